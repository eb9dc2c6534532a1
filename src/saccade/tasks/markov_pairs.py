"""Sentences told apart by a pair of neighbouring words (Lu, Mao & Nayak 2021, appendix A).

Each topic has its own Markov chain over the same words. From the first word of one of the topic's
pairs the chain goes to the pair's second word; from any other word it goes anywhere. A sentence
starts with the first word of one of its topic's pairs. Example, with pairs (0, 1), (2, 3) for topic
0 and (4, 5), (6, 7) for topic 1:

    [2, 3, 45, 0, 1, 120] -> topic 0        [4, 5, 77, 2, 190, 31] -> topic 1

The paper draws the pairs at random; here they are the first words of the dictionary, which is the
same up to the names of the words, because nothing else tells words apart.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractTask, Batch
from saccade.core.sweep import require_count


@dataclasses.dataclass(frozen=True)
class MarkovPairs(AbstractTask):
    """Two or more topics, each with `pairs_per_topic` pairs of words that follow one another."""

    topics: int = 2
    """Topics, equally likely."""
    pairs_per_topic: int = 2
    """Word pairs of each topic, equally likely at the start; no word is in two pairs."""
    dictionary_size: int = 200
    """Words in the dictionary."""
    sentence_size: int = 10
    """Words in a sentence."""
    train_size: int = 4000
    """Sentences in the training set."""
    test_size: int = 1000
    """Sentences in the test set."""

    def __post_init__(self):
        require_count(self, "topics", "sentence_size", least=2)
        require_count(self, "pairs_per_topic", "dictionary_size", "train_size", "test_size")
        if self.dictionary_size < 2 * self.pairs:
            least = 2 * self.pairs
            raise ConfigError(
                f"dictionary_size: got {self.dictionary_size}, allowed: at least {least}, two a"
                " topic pair"
            )

    @property
    def pairs(self) -> int:
        """Topic pairs in all; pair i is the words (2 i, 2 i + 1) and belongs to topic i //
        pairs_per_topic.
        """
        return self.topics * self.pairs_per_topic

    @property
    def topic_items(self) -> np.ndarray:
        """What a model should attend to: the topic pairs, as numbers first word *
        dictionary_size + second word.
        """
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
        topic = pair // self.pairs_per_topic
        anywhere = jax.random.randint(
            walk_key, (self.sentence_size - 1, size), 0, self.dictionary_size, jnp.int32
        )

        def move(word, free):
            begins_pair = (
                (word % 2 == 0)
                & (word // 2 // self.pairs_per_topic == topic)
                & (word < 2 * self.pairs)
            )
            following = jnp.where(begins_pair, word + 1, free)
            return following, following

        start = 2 * pair
        _, rest = jax.lax.scan(move, start, anywhere)
        return Batch(jnp.concatenate([start[None], rest]).T, topic)
