r"""Optimal embeddings are closer within a topic (Li, Li & Risteski 2023, main result 1).

Statement. With uniform attention and identity values, optimal tied embeddings ($E = W_E^T W_E$)
have

$$
\operatorname{mean}_{\text{same topic}} E_{ij}
    - \operatorname{mean}_{\text{different topics}} E_{ij}
    = \frac{1}{v (1 - (1 - p_c) p_m)},
$$

the diagonal included in the first mean.

Derivation. The output is $E \tilde{P} + b$, so $E$ satisfies the block-sum condition of the values
(`value_optimum.py`) and is symmetric and positive semidefinite. Block sums are fixed, and hence
averages over whole blocks; single entries are not.

Limits. As for the values. The average must include the diagonal: minimisers reached from a large
initialisation have a heavy diagonal, and other entries within a topic *below* those across topics.
"""

from typing import Any

import xarray as xr

from saccade.contracts.theory import AbstractTheory
from saccade.settings import over_sweeps
from saccade.tasks.topic_documents import HasTopics
from saccade.theory.value_optimum import average_difference


class EmbeddingOptimum(AbstractTheory):
    """The mean difference of embedding dot products within and across topics."""

    statement = "optimal embeddings: same- less different-topic dot product is 1/(v(1-(1-p_c)p_m))"
    source = "Li 2023, main result 1 (optimal embeddings)"
    predicts = ("similarity_difference",)

    def predict(self, task: HasTopics, model: Any, trajectory: xr.Dataset) -> xr.Dataset:
        difference = over_sweeps(average_difference, task)
        text = {"long_name": "similarity_difference of any minimiser", "units": "1"}
        return xr.Dataset({"similarity_difference": difference.assign_attrs(text)})
