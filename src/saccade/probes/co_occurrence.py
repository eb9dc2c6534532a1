"""Which words occur together, and how fast a proxy learns them (Snell, Zhong, Klein & Steinhardt
2021, section 4).
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from saccade.core.interfaces import AbstractProbe, Moment, Variable
from saccade.models.word_proxy import WordProxy, word_counts


def _ids(task: Any) -> dict[str, tuple[str, Any]]:
    ids = np.arange(task.vocabulary_size)
    return {"id": ("id", ids), "other_id": ("other_id", ids)}


@dataclasses.dataclass(frozen=True)
class CountTable(AbstractProbe):
    """C: for every pair of the training set, 1 / L for each co-occurrence of a source and a
    target word.
    """

    variables: ClassVar = {
        "count_table": Variable(
            ("id", "other_id"), "co-occurrences of a source and a target word, 1/L each"
        )
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch, ids = moment.train, moment.task.vocabulary_size
        source = word_counts(batch.source, batch.source_mask, ids) / batch.source_mask.sum(
            -1, keepdims=True
        )
        return {"count_table": source.T @ word_counts(batch.target, batch.target_mask, ids)}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        return _ids(task)


@dataclasses.dataclass(frozen=True)
class LexiconRates(AbstractProbe):
    """How fast what a word says alone changes under gradient flow: its logits, and its
    probabilities.
    """

    variables: ClassVar = {
        "logit_rate": Variable(
            ("id", "other_id"), "d/dt of the logit that a source word gives to a target word"
        ),
        "probability_rate": Variable(
            ("id", "other_id"), "d/dt of the probability that a source word gives to a target word"
        ),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model: WordProxy = moment.model
        gradient: WordProxy = moment.gradient
        rates = -(gradient.embeddings @ model.readout + model.embeddings @ gradient.readout)
        _, probability_rates = jax.jvp(jax.nn.softmax, (model.word_logits,), (rates,))
        return {"logit_rate": rates, "probability_rate": probability_rates}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        return _ids(task)


@dataclasses.dataclass(frozen=True)
class Lexicon(AbstractProbe):
    """theta: the probability that a source word alone gives to a target word."""

    variables: ClassVar = {
        "lexicon": Variable(
            ("id", "other_id"), "probability of a target word, given one source word"
        )
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"lexicon": jnp.exp(jax.nn.log_softmax(moment.model.word_logits))}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        return _ids(task)
