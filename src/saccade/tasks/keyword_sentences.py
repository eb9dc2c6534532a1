"""Sentences that are positive if they contain a keyword (Snell et al. 2021, section 6.1).

Half of the sentences are positive and contain the keyword, word 0, exactly once, at a random
position; all other positions hold other words, drawn with replacement. Example with 4 words:

    [7, 0, 3, 7] -> positive        [5, 2, 9, 2] -> negative

The distribution is that of rejection sampling from uniform sentences, without the rejections.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from saccade.contracts.task import AbstractTask, Batch
from saccade.settings import require_count

KEYWORD = 0


@dataclasses.dataclass(frozen=True)
class KeywordSentences(AbstractTask):
    """Balanced sentences with and without the keyword."""

    length: int = 40
    """Words per sentence."""
    words: int = 40
    """Words in the vocabulary, including the keyword."""
    train_size: int = 50
    """Sentences in the training set; with fresh batches it only serves to measure the loss."""
    test_size: int = 400
    """Sentences in the test set."""
    validation_size: int = dataclasses.field(default=0, kw_only=True)
    """Sentences in the validation set."""
    labels = 2

    def __post_init__(self):
        require_count(self, "validation_size", least=0)
        require_count(self, "length", "train_size", "test_size")
        require_count(self, "words", least=2)

    @classmethod
    def example(cls) -> Self:
        return cls(length=5, words=4, train_size=16, test_size=5)

    @property
    def vocabulary_size(self) -> int:
        return self.words

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        label_key, place_key, word_key = jax.random.split(key, 3)
        shape = (size, self.length)
        words = jax.random.randint(word_key, shape, KEYWORD + 1, self.words, jnp.int32)
        positive = jax.random.bernoulli(label_key, shape=(size,))
        place = jax.random.randint(place_key, (size,), 0, self.length)
        marked = positive[:, None] & (jnp.arange(self.length) == place[:, None])
        return Batch(jnp.where(marked, KEYWORD, words), positive.astype(jnp.int32))
