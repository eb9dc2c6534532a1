"""Sentences whose topic shows in a pair of neighbouring words (Lu, Mao & Nayak 2021, appendix A).

Each topic has its own Markov chain over the same words. From the first word of one of the topic's
pairs the chain moves to the pair's second word; from any other word it moves to a uniformly drawn
one. A sentence starts with the first word of one of its topic's pairs. Example with pairs (0, 1),
(2, 3) for topic 0 and (4, 5), (6, 7) for topic 1:

    [2, 3, 45, 0, 1, 120] -> topic 0        [4, 5, 77, 2, 190, 31] -> topic 1

The paper draws the pairs at random. Here they are the first words of the dictionary, which is the
same up to a renaming of the words.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from saccade.contracts.task import AbstractTask, Batch
from saccade.settings import require, require_count


@dataclasses.dataclass(frozen=True)
class MarkovPairs(AbstractTask):
    """Two or more topics, each with `pairs_per_topic` pairs of words that follow one another."""

    topics: int = 2
    """Topics, equally likely."""
    pairs_per_topic: int = 2
    """Word pairs of each topic, equally likely as the first pair; no word is in two pairs."""
    dictionary_size: int = 200
    """Words in the dictionary."""
    sentence_size: int = 10
    """Words in a sentence."""
    train_size: int = 4000
    """Sentences in the training set."""
    test_size: int = 1000
    """Sentences in the test set."""
    validation_size: int = dataclasses.field(default=0, kw_only=True)
    """Sentences in the validation set."""

    def __post_init__(self):
        require_count(self, "validation_size", least=0)
        require_count(self, "topics", "sentence_size", least=2)
        require_count(self, "pairs_per_topic", "dictionary_size", "train_size", "test_size")
        allowed = f"at least {2 * self.pairs}, two per topic pair"
        require(self, "dictionary_size", allowed, lambda size: size >= 2 * self.pairs)

    @classmethod
    def example(cls) -> Self:
        return cls(dictionary_size=9, sentence_size=4, train_size=16, test_size=5)

    @property
    def pairs(self) -> int:
        """Pairs of all topics: pair i has words 2 i and 2 i + 1, topic i // pairs_per_topic."""
        return self.topics * self.pairs_per_topic

    @property
    def topic_items(self) -> np.ndarray:
        """The items to attend to: topic pairs, numbered first * dictionary_size + second word."""
        return 2 * np.arange(self.pairs) * (self.dictionary_size + 1) + 1

    @property
    def topic_of_item(self) -> np.ndarray:
        """Topic of each topic pair."""
        return np.arange(self.pairs) // self.pairs_per_topic

    @property
    def vocabulary_size(self) -> int:
        return self.dictionary_size

    @property
    def labels(self) -> int:
        return self.topics

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        start_key, walk_key = jax.random.split(key)
        pair = jax.random.randint(start_key, (size,), 0, self.pairs, jnp.int32)
        topic, start = pair // self.pairs_per_topic, 2 * pair
        moves = (self.sentence_size - 1, size)
        uniform = jax.random.randint(walk_key, moves, 0, self.dictionary_size, jnp.int32)

        def move(word, drawn):
            of_topic = word // 2 // self.pairs_per_topic == topic
            begins_pair = (word % 2 == 0) & of_topic & (word < 2 * self.pairs)
            following = jnp.where(begins_pair, word + 1, drawn)
            return following, following

        _, rest = jax.lax.scan(move, start, uniform)
        return Batch(jnp.concatenate([start[None], rest]).T, topic)
