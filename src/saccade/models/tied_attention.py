"""Attention tied to three numbers, in infinitely long documents (Li et al. 2023, stage 2).

A query that shows a word weights every occurrence of that word by beta, of other words of its topic
by alpha, and of anything else by 1; a hidden query weights all words equally. Values are constant
on blocks (`Blocks`), so a word's output depends only on the attention on its topic and on hidden
words, and alpha and beta matter only through

    gamma = ((v - 1)/v) alpha + (1/v) beta.

Called on `Queries`, the model returns the output of a single word of each class.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from saccade.contracts.model import AbstractModel, AbstractModelConfig, Output
from saccade.models.freezing import without
from saccade.models.one_layer_transformer import Blocks, TiedScores
from saccade.settings import require_finite
from saccade.tasks.long_documents import LongDocumentQueries, Queries
from saccade.tasks.topic_documents import HasTopics


class TiedAttention(AbstractModel):
    """Two trained numbers, log alpha and log beta, and three frozen values."""

    tied: TiedScores
    values: Float[Array, " block"]
    """Value of hidden words, of words of the same topic, and of words of another."""

    def __call__(self, batch: Queries) -> Output:
        beta, alpha = jnp.exp(self.tied.same_word), jnp.exp(self.tied.same_topic)
        weight = jnp.stack([beta, alpha, *jnp.ones(3)])
        weight = jnp.where(batch.looks[:, None] > 0, weight, 1.0)
        single = batch.frequency * weight  # of one word of each class
        mass = batch.count * single
        total = jnp.sum(mass, axis=1, keepdims=True)
        own_topic = (mass[:, :1] + mass[:, 1:2]) / total
        other_topics = batch.words_per_topic[:, None] * single[:, 2:4] / total
        topic_mass = jnp.concatenate([own_topic, own_topic, other_topics], axis=1)
        hidden_mass = mass[:, 4:] / total
        hidden, same, other = self.values
        outputs = hidden * hidden_mass + same * topic_mass + other * (1 - hidden_mass - topic_mass)
        return Output(outputs, mass / total)

    def loss(self, batch: Queries) -> Float[Array, ""]:
        """E ||f - e_w||^2 over the selected positions of long documents."""
        outputs = self(batch).logits
        count, target = batch.count[:, :4], batch.target[:, :4]
        errors = jnp.sum(count * (outputs**2 - 2 * outputs * target), axis=1) + 1
        return jnp.sum(batch.probability * errors)

    def trainable(self) -> PyTree:
        return without(super().trainable(), ("values",))


@dataclasses.dataclass(frozen=True)
class TiedAttentionConfig(AbstractModelConfig):
    """The initialisation of alpha and beta, and the frozen values."""

    values: Callable[[Any], Blocks]
    """Returns the blocks of the frozen values for a task."""
    start_std: float = 0.1
    """Standard deviation of log alpha and log beta at initialisation."""

    def __post_init__(self):
        require_finite(self, "start_std")

    @classmethod
    def example(cls) -> tuple[Self, LongDocumentQueries]:
        return cls(_unmasked_values), LongDocumentQueries.example()

    def build(self, task: HasTopics, key: PRNGKeyArray) -> TiedAttention:
        blocks = self.values(task)
        start = self.start_std * jax.random.normal(key, (2,))
        numbers = (blocks.hidden, blocks.same, blocks.other)
        values = jnp.stack([jnp.asarray(number, start.dtype) for number in numbers])
        return TiedAttention(TiedScores(start[0], start[1]), values)


def _unmasked_values(task: HasTopics) -> Blocks:
    """The optimal values if no word is masked."""
    return Blocks(hidden=0.0, same=1 / task.words_per_topic, other=0.0)
