"""The optimal embeddings are closer within a topic (Li, Li & Risteski 2023, main result on
embeddings).

Statement. With uniform attention and values fixed to the identity, the optimal tied embeddings W_E
have

    mean of E_ij, same topic (diagonal included)  -  mean of E_ij, different topics  =  1 / (v (1 -
    (1 - p_c) p_m)),

E = W_E^T W_E.

Derivation. The output is E Pt + b, so E obeys the block-sum condition of the values
(`value_optimum.py`), and is symmetric and positive semidefinite on top. Block sums, and so averages
over whole blocks, are fixed; single entries are not.

Limits. As for the values. The average must include the diagonal: a minimiser reached from a large
start has a heavy diagonal and, within a topic, off-diagonal entries *below* those of different
topics, although its loss is 0.
"""

from typing import Any, ClassVar

import xarray as xr

from saccade.core.interfaces import AbstractTheory
from saccade.core.sweep import over_sweeps
from saccade.theory.value_optimum import average_difference, shares_of


class EmbeddingOptimum(AbstractTheory):
    """The mean difference of embedding dot products within and across topics."""

    statement: ClassVar[str] = (
        "optimal embeddings: same-topic less different-topic dot product is 1/(v(1-(1-p_c)p_m))"
    )
    source: ClassVar[str] = "Li 2023, main result 1 (optimal embeddings)"
    predicts: ClassVar[tuple[str, ...]] = ("similarity_difference",)

    def predict(self, task: Any, model: Any, trajectory: xr.Dataset) -> xr.Dataset:
        del model, trajectory
        difference = over_sweeps(
            lambda one: average_difference(one.words_per_topic, shares_of(one)), task
        )
        return xr.Dataset(
            {
                "similarity_difference": difference.assign_attrs(
                    description="by the block sums of any minimiser"
                )
            }
        )
