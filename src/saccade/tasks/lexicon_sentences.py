"""A synthetic translation corpus: Zipf words, a one-to-one lexicon, local reordering.

It stands in for the corpora of Snell, Zhong, Klein & Steinhardt 2021, such as Multi30k. Source
words have probabilities proportional to 1 / rank; each has one translation; a target word stands
fewer than `window` positions from its source word. Example, window 2, a' translates a:

    [the, dog, sees, a, cat, END] -> [the', dog', a', sees', cat', END]

Sentences differ in length: they are padded with END and masked.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from saccade.contracts.task import END, FIRST_WORD, AbstractTask, SentencePairs
from saccade.settings import require_count, require_finite


@dataclasses.dataclass(frozen=True)
class LexiconSentences(AbstractTask):
    """Zipf sentences and their word-by-word translations, locally reordered."""

    words: int = 200
    """Words per language."""
    shortest: int = 6
    """Words in the shortest sentence."""
    longest: int = 14
    """Words in the longest sentence."""
    exponent: float = 1.0
    """Exponent of Zipf's law."""
    window: float = 3.0
    """Reordering: words swap with words fewer than this many positions away; 1 keeps the order."""
    lexicon: int = 0
    """Number of the lexicon."""
    train_size: int = 2000
    """Pairs in the training set."""
    test_size: int = 64
    """Pairs in the test set."""
    validation_size: int = dataclasses.field(default=0, kw_only=True)
    """Pairs of sentences in the validation set."""

    def __post_init__(self):
        require_count(self, "validation_size", least=0)
        require_count(self, "words", least=2)
        require_count(self, "shortest", "train_size", "test_size")
        require_count(self, "longest", least=self.shortest)
        require_count(self, "lexicon", least=0)
        require_finite(self, "exponent")
        require_finite(self, "window", least=1)

    @classmethod
    def example(cls) -> Self:
        return cls(words=4, shortest=2, longest=5, train_size=16, test_size=5)

    @property
    def vocabulary_size(self) -> int:
        """Ids: END, START, the source words and the target words."""
        return FIRST_WORD + 2 * self.words

    @property
    def translations(self) -> Int[np.ndarray, " word"]:
        """Id of the translation of every source word (0 is the most frequent)."""
        return FIRST_WORD + self.words + np.random.default_rng(self.lexicon).permutation(self.words)

    @property
    def frequencies(self) -> Float[jax.Array, " word"]:
        """Probability of every source word."""
        weight = jnp.arange(1, self.words + 1) ** -jnp.asarray(self.exponent, float)
        return weight / weight.sum()

    def sample(self, key: PRNGKeyArray, size: int) -> SentencePairs:
        length_key, word_key, order_key = jax.random.split(key, 3)
        places = jnp.arange(self.longest + 1)
        length = jax.random.randint(length_key, (size, 1), self.shortest, self.longest + 1)
        shape = (size, self.longest + 1)
        chosen = jax.random.categorical(word_key, jnp.log(self.frequencies), shape=shape)
        there = places < length
        # Target words are sorted by their source position plus a uniform number in [0, window).
        rank = places + self.window * jax.random.uniform(order_key, chosen.shape)
        behind = 2.0 * self.longest + self.window + places
        aligned = jnp.argsort(jnp.where(there, rank, behind), axis=1)
        source = jnp.where(there, FIRST_WORD + chosen, END)
        translated = jnp.where(there, jnp.asarray(self.translations)[chosen], END)
        target = jnp.take_along_axis(translated, aligned, axis=1)
        mask = places <= length
        ids = (array.astype(jnp.int32) for array in (source, target, aligned))
        return SentencePairs(*ids, source_mask=mask, target_mask=mask)
