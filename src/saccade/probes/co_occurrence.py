"""Co-occurrence of words, and how fast a proxy learns it (Snell, Zhong, Klein & Steinhardt 2021,
section 4).
"""

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from saccade.core.interfaces import (
    AbstractModelConfig,
    AbstractProbe,
    AbstractTask,
    HasVocabulary,
    Moment,
    Variable,
)
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.models.word_proxy import WordProxy, WordProxyConfig, word_counts

IDS = ("id", "other_id")


class AbstractIdTable(AbstractProbe):
    """A probe whose variables are tables of source and target ids; by default of the proxy."""

    @classmethod
    def example(cls) -> tuple[Self, tuple[tuple[AbstractModelConfig, AbstractTask], ...]]:
        return cls(), (WordProxyConfig.example(),)

    def coordinates(self, task: HasVocabulary) -> dict[str, tuple[str, Any]]:
        return {dim: (dim, np.arange(task.vocabulary_size)) for dim in IDS}


@dataclasses.dataclass(frozen=True)
class CountTable(AbstractIdTable):
    """C: co-occurrences of source and target words in the training set, each weighted by 1 / L."""

    variables: ClassVar = {
        "count_table": Variable(IDS, "co-occurrences of source and target word, 1/L each")
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[tuple[AbstractModelConfig, AbstractTask], ...]]:
        return cls(), (SequenceToSequenceConfig.example(), WordProxyConfig.example())

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch, ids = moment.train, moment.task.vocabulary_size
        source = word_counts(batch.source, batch.source_mask, ids)
        shares = source / batch.source_mask.sum(-1, keepdims=True)
        return {"count_table": shares.T @ word_counts(batch.target, batch.target_mask, ids)}


@dataclasses.dataclass(frozen=True)
class LexiconRates(AbstractIdTable):
    """Derivatives of the proxy's predictions from single words under gradient flow."""

    variables: ClassVar = {
        "logit_rate": Variable(IDS, "d/dt of the logit of a target word, given one source word"),
        "probability_rate": Variable(
            IDS, "d/dt of the probability of a target word, given one source word"
        ),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model: WordProxy = moment.model
        gradient: WordProxy = moment.gradient
        rates = -(gradient.embeddings @ model.readout + model.embeddings @ gradient.readout)
        _, probability_rates = jax.jvp(jax.nn.softmax, (model.word_logits,), (rates,))
        return {"logit_rate": rates, "probability_rate": probability_rates}


@dataclasses.dataclass(frozen=True)
class Lexicon(AbstractIdTable):
    """theta: the probability of a target word, given one source word alone."""

    variables: ClassVar = {
        "lexicon": Variable(IDS, "probability of a target word, given one source word")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"lexicon": jnp.exp(jax.nn.log_softmax(moment.model.word_logits))}
