"""Skeleton of a task: sentences with one marked word, whose sign is the label.

Words 0 and 1 are marked, all others are fillers. Example with 3 fillers per sentence:

    [1, 9, 4, 4] -> label 1        [0, 7, 2, 9] -> label 0

A task is a frozen dataclass of plain numbers. It knows no model and no global randomness.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from saccade import AbstractTask, Batch
from saccade.settings import require, require_count

MARKED = 2
"""Marked words: word 0 for label 0, word 1 for label 1."""


@dataclasses.dataclass(frozen=True)
class MarkedSentences(AbstractTask):
    """One marked word, and fillers drawn with replacement."""

    # The string below a field is its help on the command line.
    filler_size: int = 10
    """Fillers in a sentence."""
    dictionary_size: int = 500
    """Fillers in the dictionary."""
    train_size: int = 200
    """Sentences in the training set."""
    test_size: int = 100
    """Sentences in the test set."""
    # Any float can be swept.
    flips: float = 0.0
    """Probability that a label is wrong."""

    def __post_init__(self):
        # A wrong value is refused at construction, by name. In a sweep every value is checked.
        require_count(self, "filler_size", "dictionary_size", "train_size", "test_size")
        require(self, "flips", "from 0 to 1", lambda value: 0 <= value <= 1)

    @classmethod
    def example(cls) -> Self:
        """A small instance, on which a test is quick."""
        return cls(filler_size=3, dictionary_size=6, train_size=16, test_size=5)

    # What a model needs to know about the data: see `HasVocabulary` and `HasLabels`.
    @property
    def vocabulary_size(self) -> int:
        return MARKED + self.dictionary_size

    @property
    def labels(self) -> int:
        return 2

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        # This runs within compiled code: all randomness comes from the key, and shapes depend on
        # `size` and whole numbers of the config only.
        marked_key, filler_key, flip_key = jax.random.split(key, 3)
        marked = jax.random.randint(marked_key, (size, 1), 0, MARKED, jnp.int32)
        shape = (size, self.filler_size)
        fillers = jax.random.randint(filler_key, shape, MARKED, self.vocabulary_size, jnp.int32)
        flipped = jax.random.bernoulli(flip_key, self.flips, (size,)).astype(jnp.int32)
        return Batch(jnp.concatenate([marked, fillers], axis=1), marked[:, 0] ^ flipped)
