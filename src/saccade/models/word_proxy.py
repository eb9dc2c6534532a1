"""The bag-of-words proxy of a translation model (Snell et al. 2021, sections 2.3 and 4).

Every target word is predicted from the mean of the source words' logits: p = softmax((1/L) sum_l W
e_{x_l}), with e and W from N(0, 1/d). The prediction from word i alone, theta_i = softmax(W e_i),
is its translation; beta of the proxy is theta at the correct word.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from saccade.contracts.model import AbstractModel, AbstractModelConfig, Output
from saccade.contracts.task import HasVocabulary, SentencePairs
from saccade.models.counting import id_counts
from saccade.models.recurrence import looked_up
from saccade.settings import require_count
from saccade.tasks.lexicon_sentences import LexiconSentences

Gates = Float[Array, "pair source"] | None


class WordProxy(AbstractModel):
    """Embeddings and a linear readout."""

    embeddings: Float[Array, "id dimension"]
    readout: Float[Array, "dimension id"]

    @property
    def word_logits(self) -> Float[Array, "id other_id"]:
        """W e_i: the logits of every target word, given one source word alone."""
        return self.embeddings @ self.readout

    def bag_logits(self, batch: SentencePairs, gates: Gates = None) -> Float[Array, "pair id"]:
        """The logits that all target words of a pair share. `gates` multiply the embeddings."""
        mask = batch.source_mask if gates is None else gates * batch.source_mask
        counts = id_counts(batch.source, mask, self.embeddings.shape[0])
        # Words are counted, then embedded, then averaged: cheaper than embedding every position.
        shares = counts / batch.source_mask.sum(-1, keepdims=True)
        return (shares @ self.embeddings) @ self.readout

    def __call__(self, batch: SentencePairs, gates: Gates = None) -> Output:
        """The same logits for every target word, and uniform attention."""
        logits = self.bag_logits(batch, gates)
        weights = batch.source_mask / batch.source_mask.sum(-1, keepdims=True)
        logits = jnp.broadcast_to(logits[:, None], (*batch.target.shape, logits.shape[1]))
        shape = (*batch.target.shape, weights.shape[1])
        return Output(logits, jnp.broadcast_to(weights[:, None], shape))

    def loss(self, batch: SentencePairs) -> Float[Array, ""]:
        """Cross-entropy of the target words, summed over words and pairs, as in the theory."""
        # All words of a pair have the same logits, so their counts suffice.
        counts = id_counts(batch.target, batch.target_mask, self.readout.shape[1])
        return -jnp.sum(counts * jax.nn.log_softmax(self.bag_logits(batch)))

    def lexical_probe(self, batch: SentencePairs) -> Float[Array, "pair target source"]:
        """log beta: the log probability of the correct word, given one source word alone."""
        table = jax.nn.log_softmax(self.word_logits)
        targets = jax.nn.one_hot(batch.target, table.shape[1], dtype=table.dtype)
        return jnp.einsum("pli,pti->ptl", looked_up(table, batch.source), targets)


@dataclasses.dataclass(frozen=True)
class WordProxyConfig(AbstractModelConfig):
    """Size of the proxy."""

    dimension: int = 256
    """Dimension of the embeddings (d); the theory is about the limit of large d."""

    def __post_init__(self):
        require_count(self, "dimension")

    @classmethod
    def example(cls) -> tuple[Self, LexiconSentences]:
        return cls(dimension=4), LexiconSentences.example()

    def build(self, task: HasVocabulary, key: PRNGKeyArray) -> WordProxy:
        word_key, readout_key = jax.random.split(key)
        ids, size = task.vocabulary_size, self.dimension
        embeddings = size**-0.5 * jax.random.normal(word_key, (ids, size))
        return WordProxy(embeddings, size**-0.5 * jax.random.normal(readout_key, (size, ids)))
