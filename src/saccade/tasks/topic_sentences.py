"""Sentences with one topic word each (Lu, Mao & Nayak 2021, section 3).

Example, with 2 topics of 2 words and 3 non-topic words a sentence (words 0, 1 mean topic 0; words
2, 3 topic 1):

    [2, 17, 9, 17] -> topic 1        [0, 4, 12, 5] -> topic 0
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from saccade.core.interfaces import AbstractTask, Batch
from saccade.core.sweep import require, require_count


@dataclasses.dataclass(frozen=True)
class TopicSentences(AbstractTask):
    """One topic word and `filler_size` words drawn with replacement from a dictionary of
    non-topic words.
    """

    topics: int = 4
    """Topics, equally likely."""
    words_per_topic: int = 2
    """Topic words of each topic, equally likely; no word belongs to two topics."""
    filler_size: int = 20
    """Non-topic words in a sentence (m in the paper)."""
    dictionary_size: int = 5000
    """Non-topic words in the dictionary (M in the paper)."""
    train_size: int = 800
    """Sentences in the training set."""
    test_size: int = 200
    """Sentences in the test set."""
    leak: float = 0.0
    """Chance that a non-topic place holds a random topic word instead: breaks the theory's
    premise on purpose.
    """

    def __post_init__(self):
        require_count(self, "topics", least=2)
        require_count(
            self, "words_per_topic", "filler_size", "dictionary_size", "train_size", "test_size"
        )
        require(self, "leak", "from 0 to 1", lambda value: 0 <= value <= 1)

    @property
    def topic_words(self) -> int:
        """Topic words in all (N in the paper); they are words 0 to N - 1."""
        return self.topics * self.words_per_topic

    @property
    def topic_items(self) -> np.ndarray:
        """What a model should attend to: the topic words."""
        return np.arange(self.topic_words)

    @property
    def topic_of_item(self) -> np.ndarray:
        """Topic of each topic word."""
        return self.topic_items // self.words_per_topic

    @property
    def vocabulary_size(self) -> int:
        return self.topic_words + self.dictionary_size

    @property
    def labels(self) -> int:
        return self.topics

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        topic_key, filler_key, leak_key, leaked_key = jax.random.split(key, 4)
        topic_word = jax.random.randint(topic_key, (size, 1), 0, self.topic_words, jnp.int32)
        shape = (size, self.filler_size)
        filler = jax.random.randint(
            filler_key, shape, self.topic_words, self.vocabulary_size, jnp.int32
        )
        if not (isinstance(self.leak, float) and self.leak == 0):
            leaked = jax.random.randint(leaked_key, shape, 0, self.topic_words, jnp.int32)
            filler = jnp.where(jax.random.uniform(leak_key, shape) < self.leak, leaked, filler)
        # The topic word stands first; the models are bags of words and cannot tell.
        return Batch(
            jnp.concatenate([topic_word, filler], axis=1), topic_word[:, 0] // self.words_per_topic
        )


@dataclasses.dataclass(frozen=True)
class TopicSentenceSettings:
    """The settings that studies of topic sentences have in common."""

    seeds: int = 5
    """Repetitions, each with its own data and start."""
    topics: int = 4
    """Topics."""
    words_per_topic: int = 2
    """Topic words of each topic."""
    filler_size: int = 20
    """Non-topic words in a sentence (m)."""
    dictionary_size: int = 5000
    """Non-topic words in the dictionary (M)."""
    train_size: int = 800
    """Training sentences."""
    test_size: int = 200
    """Test sentences."""
    dimension: int = 15
    """Dimension of the embeddings."""
    rate: float = 0.1
    """Learning rate."""

    def __post_init__(self):
        require_count(self, "seeds")

    @property
    def task(self) -> TopicSentences:
        return TopicSentences(
            self.topics,
            self.words_per_topic,
            self.filler_size,
            self.dictionary_size,
            self.train_size,
            self.test_size,
        )
