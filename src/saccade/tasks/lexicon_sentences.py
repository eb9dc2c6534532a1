"""A made-up translation corpus: Zipf words, a one-to-one lexicon, local reordering.

It stands in for the corpora of Snell, Zhong, Klein & Steinhardt 2021 (Multi30k and the like).
Source words are drawn with chances that fall like 1 / rank; each has one translation; target words
stand fewer than `window` places from their source word. Example, window 2, with the translation of
a written a':

    [the, dog, sees, a, cat, END] -> [the', dog', a', sees', cat', END]

Sentences have several lengths: they are padded with END and masked.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from saccade.core.interfaces import END, FIRST_WORD, AbstractTask, SentencePairs
from saccade.core.sweep import require, require_count


@dataclasses.dataclass(frozen=True)
class LexiconSentences(AbstractTask):
    """Zipf sentences and their word-by-word translations, locally reordered."""

    words: int = 200
    """Words of each language."""
    shortest: int = 6
    """Words of the shortest sentence."""
    longest: int = 14
    """Words of the longest sentence."""
    exponent: float = 1.0
    """Exponent of Zipf's law."""
    window: float = 3.0
    """Reordering: words trade places with others fewer than this many places away; 1 keeps the
    order.
    """
    lexicon: int = 0
    """Number of the lexicon."""
    train_size: int = 2000
    """Pairs in the training set."""
    test_size: int = 64
    """Pairs in the test set."""

    def __post_init__(self):
        require_count(self, "words", least=2)
        require_count(self, "shortest", "train_size", "test_size")
        require_count(self, "longest", least=self.shortest)
        require_count(self, "lexicon", least=0)
        require(
            self, "exponent", "a finite number, at least 0", lambda value: 0 <= value < float("inf")
        )
        require(
            self, "window", "a finite number, at least 1", lambda value: 1 <= value < float("inf")
        )

    @property
    def vocabulary_size(self) -> int:
        """Ids: the end, the start, the source words and the target words."""
        return FIRST_WORD + 2 * self.words

    @property
    def translations(self) -> Int[np.ndarray, " word"]:
        """Id of the translation of every source word (0 is the most frequent)."""
        return FIRST_WORD + self.words + np.random.default_rng(self.lexicon).permutation(self.words)

    @property
    def frequencies(self) -> Float[jax.Array, " word"]:
        """Chance of every source word."""
        weight = jnp.arange(1, self.words + 1) ** -jnp.asarray(self.exponent, float)
        return weight / weight.sum()

    def sample(self, key: PRNGKeyArray, size: int) -> SentencePairs:
        length_key, word_key, order_key = jax.random.split(key, 3)
        places = jnp.arange(self.longest + 1)
        length = jax.random.randint(length_key, (size, 1), self.shortest, self.longest + 1)
        chosen = jax.random.categorical(
            word_key, jnp.log(self.frequencies), shape=(size, self.longest + 1)
        )
        there = places < length
        # A word at place l wants to stand at l + a lot in [0, window): the order of these wishes is
        # the target's.
        wish = places + self.window * jax.random.uniform(order_key, chosen.shape)
        aligned = jnp.argsort(
            jnp.where(there, wish, 2.0 * self.longest + self.window + places), axis=1
        )
        source = jnp.where(there, FIRST_WORD + chosen, END)
        translated = jnp.where(there, jnp.asarray(self.translations)[chosen], END)
        mask = places <= length
        target = jnp.take_along_axis(translated, aligned, axis=1)
        return SentencePairs(
            source.astype(jnp.int32),
            target.astype(jnp.int32),
            aligned.astype(jnp.int32),
            mask,
            mask,
        )
