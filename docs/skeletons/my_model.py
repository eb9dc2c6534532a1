"""Skeleton of a model: every word has a score and a value, and attention averages the values.

A sentence of words w_1 ... w_n has attention a_i = softmax(s_{w_1}, ..., s_{w_n})_i and the output
z = sum_i a_i v_{w_i}; the logits of labels 0 and 1 are -z and z.

A model is an Equinox module and the frozen config that builds it.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray
from my_task import MarkedSentences

from saccade import AbstractModel, AbstractModelConfig, Batch, HasVocabulary, Output
from saccade.settings import require_positive


class WordAttention(AbstractModel):
    """Two tables: scores and values of the words."""

    scores: Float[Array, " word"]
    values: Float[Array, " word"]

    def __call__(self, batch: Batch) -> Output:
        scores = self.scores[batch.words]  # sentence x position
        if batch.mask is not None:
            scores = jnp.where(batch.mask, scores, -jnp.inf)  # no attention to padding
        attention = jax.nn.softmax(scores)
        output = jnp.sum(attention * self.values[batch.words], axis=-1)
        return Output(jnp.stack([-output, output], axis=-1), attention)

    # The default loss is the mean cross-entropy of `batch.labels`. For another one, define
    #     def loss(self, batch): ...
    # By default every array is trained. To freeze some, define
    #     def trainable(self): ...    # a tree of booleans


@dataclasses.dataclass(frozen=True)
class WordAttentionConfig(AbstractModelConfig):
    """Scores are initially zero, values are random."""

    value_std: float = 0.01
    """Initial standard deviation of the values."""

    def __post_init__(self):
        require_positive(self, "value_std")

    @classmethod
    def example(cls) -> tuple[Self, MarkedSentences]:
        """A small config and a small task that it fits."""
        return cls(), MarkedSentences.example()

    def build(self, task: HasVocabulary, key: PRNGKeyArray) -> WordAttention:
        # The key depends on the seed alone: all randomness of the start comes from it.
        words = task.vocabulary_size
        return WordAttention(jnp.zeros(words), self.value_std * jax.random.normal(key, (words,)))
