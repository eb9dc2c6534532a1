"""Sequences of distinct words to be copied (Snell, Zhong, Klein & Steinhardt 2021, sections 3.3 and
6.2).

Ids 0 and 1 are the end and the start; words are 2, 3, ... Example, 3 distinct words of 5, copied
and put in a fixed order:

    [4, 2, 6, END] -> [4, 2, 6, END]        [4, 2, 6, END] -> [6, 4, 2, END]

With as many words as places every sequence is a permutation of the same words, and which words
occur together says nothing. `words` is a float that can be swept: ids are given out for `largest`
words, of which only the first are drawn.
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from saccade.core.errors import ConfigError
from saccade.core.interfaces import END, FIRST_WORD, AbstractTask, SentencePairs
from saccade.core.sweep import Swept, require, require_count, require_positive

Order = Literal["copied", "permuted"]


@dataclasses.dataclass(frozen=True)
class Copying(AbstractTask):
    """`length` distinct words, of `words` or of one of several disjoint sets of as many, and
    their copy.
    """

    length: int = 40
    """Words of a sequence (k)."""
    words: float = 40.0
    """Words to choose from (n), a whole number; as many as a sequence has make permutations."""
    groups: int = 1
    """Disjoint sets of that many words; a sequence draws from one of them."""
    order: Order = "copied"
    """copied: the output repeats the input. permuted: one fixed permutation of it, the same for
    all sequences.
    """
    permutation: int = 0
    """Number of the fixed permutation."""
    largest: int | None = None
    """Words of a set that have an id; None: as many as `words`, which are then not swept."""
    stream: float = 0.0
    """Number of the stream of sequences: members of one seed that differ in it see different
    sequences.
    """
    train_size: int = 1
    """Sequences in the training set; training on fresh ones (`stream`) uses it to measure the
    loss only.
    """
    test_size: int = 50
    """Sequences in the test set."""

    def __post_init__(self):
        require_count(self, "length", "groups", "train_size", "test_size")
        require_count(self, "permutation", least=0)
        require(
            self,
            "stream",
            "a whole number, at least 0",
            lambda value: value >= 0 and float(value).is_integer(),
        )
        require(self, "order", "copied, permuted", lambda value: value in ("copied", "permuted"))
        least, most = self.length, self.largest
        if most is not None:
            require_count(self, "largest", least=least)
        told = f"a whole number, at least the {least} words of a sequence" + (
            "" if most is None else f", at most {most}"
        )
        require(
            self,
            "words",
            told,
            lambda value: least <= value <= (most or float("inf")) and float(value).is_integer(),
        )
        if most is None and isinstance(self.words, Swept):
            told = (
                "with swept words a whole number, at least their largest,"
                f" {int(max(self.words.values))}"
            )
            raise ConfigError(f"largest: got None, allowed: {told}")

    @property
    def set_size(self) -> int:
        """Words of a set that have an id."""
        return int(self.words) if self.largest is None else self.largest

    @property
    def vocabulary_size(self) -> int:
        """Ids: the end, the start and the words of all sets."""
        return FIRST_WORD + self.groups * self.set_size

    @property
    def used_ids(self) -> Bool[Array, " id"]:
        """The ids that sequences may hold (START among them, which no target has)."""
        place = (jnp.arange(self.vocabulary_size) - FIRST_WORD) % self.set_size
        return (jnp.arange(self.vocabulary_size) < FIRST_WORD) | (place < self.words)

    @property
    def places(self) -> Int[np.ndarray, " target"]:
        """The source position of every target position."""
        order = np.arange(self.length)
        if self.order == "permuted":
            order = np.random.default_rng(self.permutation).permutation(self.length)
        return np.append(order, self.length)

    def sample(self, key: PRNGKeyArray, size: int) -> SentencePairs:
        group_key, word_key = jax.random.split(
            jax.random.fold_in(key, jnp.asarray(self.stream).astype(jnp.uint32))
        )
        lots = jax.random.uniform(word_key, (size, self.set_size))
        lots = jnp.where(
            jnp.arange(self.set_size) < self.words, lots, 2.0
        )  # words that are not drawn come last
        words = jnp.argsort(lots, axis=1)[:, : self.length]
        group = jax.random.randint(group_key, (size, 1), 0, self.groups)
        source = FIRST_WORD + group * self.set_size + words
        source = jnp.pad(source, ((0, 0), (0, 1)), constant_values=END).astype(jnp.int32)
        aligned = jnp.broadcast_to(jnp.asarray(self.places, jnp.int32), source.shape)
        everywhere = jnp.ones(source.shape, bool)
        return SentencePairs(source, source[:, self.places], aligned, everywhere, everywhere)


@dataclasses.dataclass(frozen=True)
class CopyingSettings:
    """The settings that studies of copying have in common."""

    seeds: int = 20
    """Repetitions, each with its own start and sequences."""
    length: int = 40
    """Words of a sequence."""
    choice: int = 60
    """Words to choose from where co-occurrence is informative."""
    hidden: int = 256
    """Size of embeddings and states."""
    batch_size: int = 128
    """New sequences a step."""
    rate: float = 0.001
    """Learning rate of Adam."""
    test_size: int = 50
    """Test sequences."""
    budget: int = 200
    """Steps within which a run must succeed."""
    long_budget: int = 300
    """The longer budget, reported beside it."""

    def __post_init__(self):
        require_count(self, "seeds", "hidden", "batch_size", "test_size", "budget", "long_budget")
        require_positive(self, "rate")
        require_count(self, "length")
        require_count(self, "choice", least=self.length + 1)

    def copying(self, words: float, **settings: Any) -> Copying:
        return Copying(self.length, words, test_size=self.test_size, **settings)
