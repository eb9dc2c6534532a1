"""Sequences of distinct words to be copied (Snell et al. 2021, sections 3.3 and 6.2).

Ids 0 and 1 are END and START; words have ids from 2. Example, 3 of 5 words, copied and permuted:

    [4, 2, 6, END] -> [4, 2, 6, END]        [4, 2, 6, END] -> [6, 4, 2, END]

If there are exactly `length` words, every sequence is a permutation of the same words and
co-occurrence carries no information. `words` can be swept: `largest` words have ids, of which the
first `words` are drawn.
"""

import dataclasses
from typing import Literal, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from saccade.contracts.task import END, FIRST_WORD, AbstractTask, SentencePairs
from saccade.errors import ConfigError
from saccade.settings import Swept, require_choices, require_count

Order = Literal["copied", "permuted"]


@dataclasses.dataclass(frozen=True)
class Copying(AbstractTask):
    """`length` distinct words from one of several disjoint sets of `words`, and their copy."""

    length: int = 40
    """Words per sequence (k)."""
    words: int = 40
    """Words in a set (n); equal to `length`, sequences are permutations."""
    groups: int = 1
    """Disjoint sets of words; each sequence draws from one of them."""
    order: Order = "copied"
    """copied: the output repeats the input. permuted: the same permutation of every input."""
    permutation: int = 0
    """Number of the fixed permutation."""
    largest: int | None = None
    """Words per set that have an id; None: `words`, which then cannot be swept."""
    stream: int = 0
    """Number of the stream of sequences: members of one seed differ if their streams do."""
    train_size: int = 50
    """Sequences in the training set; with fresh batches it only serves to measure the loss."""
    test_size: int = 50
    """Sequences in the test set."""
    validation_size: int = dataclasses.field(default=0, kw_only=True)
    """Sequences in the validation set."""

    def __post_init__(self):
        require_count(self, "length", "groups", "train_size", "test_size")
        require_count(self, "permutation", "stream", "validation_size", least=0)
        whole, least, most = "a whole number, at least", self.length, self.largest
        require_choices(self)
        if most is not None:
            require_count(self, "largest", least=least)
        limit = "" if most is None else f", at most {most}"
        allowed = f"{whole} the {least} words of a sequence{limit}"
        require_count(self, "words", least=least, most=most, allowed=allowed)
        if most is None and isinstance(self.words, Swept):
            allowed = f"with swept words {whole} their largest, {max(self.words.values)}"
            raise ConfigError(f"largest: got None, allowed: {allowed}")

    @classmethod
    def example(cls) -> Self:
        return cls(length=3, words=4, groups=2, largest=5, train_size=16, test_size=5)

    @property
    def set_size(self) -> int:
        """Words per set that have an id."""
        return self.words if self.largest is None else self.largest

    @property
    def vocabulary_size(self) -> int:
        """Ids: END, START and the words of all sets."""
        return FIRST_WORD + self.groups * self.set_size

    @property
    def used_ids(self) -> Bool[Array, " id"]:
        """The ids that may occur in sequences (and START, which no target contains)."""
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
        key = jax.random.fold_in(key, jnp.asarray(self.stream).astype(jnp.uint32))
        group_key, word_key = jax.random.split(key)
        ranks = jax.random.uniform(word_key, (size, self.set_size))
        # Words that are not drawn are sorted to the end.
        ranks = jnp.where(jnp.arange(self.set_size) < self.words, ranks, 2.0)
        words = jnp.argsort(ranks, axis=1)[:, : self.length]
        group = jax.random.randint(group_key, (size, 1), 0, self.groups)
        source = FIRST_WORD + group * self.set_size + words
        source = jnp.pad(source, ((0, 0), (0, 1)), constant_values=END).astype(jnp.int32)
        aligned = jnp.broadcast_to(jnp.asarray(self.places, jnp.int32), source.shape)
        everywhere = jnp.ones(source.shape, bool)
        return SentencePairs(source, source[:, self.places], aligned, everywhere, everywhere)
