"""Sentences with one topic word each (Lu, Mao & Nayak 2021, section 3).

Example with 2 topics of 2 words and 3 non-topic words per sentence (words 0 and 1 belong to topic
0, words 2 and 3 to topic 1):

    [2, 17, 9, 17] -> topic 1        [0, 4, 12, 5] -> topic 0
"""

import dataclasses
from typing import Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from saccade.contracts.task import AbstractTask, Batch, HasLabels, HasVocabulary
from saccade.settings import require, require_count


class HasLabelledWords(HasVocabulary, HasLabels, Protocol):
    """A task of classifying sentences."""


class HasFillers(Protocol):
    """A task of sentences with one topic word among a fixed number of other words."""

    @property
    def filler_size(self) -> int: ...


class HasTopicWords(HasFillers, Protocol):
    """A task of sentences with one of some equally likely topic words."""

    @property
    def topics(self) -> int: ...
    @property
    def topic_words(self) -> int: ...


@dataclasses.dataclass(frozen=True)
class TopicSentences(AbstractTask):
    """One topic word, and `filler_size` other words, drawn with replacement."""

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
    validation_size: int = dataclasses.field(default=0, kw_only=True)
    """Sentences in the validation set."""
    leak: float = 0.0
    """Probability of a topic word at a non-topic position, against the theory's premise."""

    def __post_init__(self):
        require_count(self, "validation_size", least=0)
        require_count(self, "topics", least=2)
        sizes = ("words_per_topic", "filler_size", "dictionary_size", "train_size", "test_size")
        require_count(self, *sizes)
        require(self, "leak", "from 0 to 1", lambda value: 0 <= value <= 1)

    @classmethod
    def example(cls) -> Self:
        return cls(2, 2, filler_size=3, dictionary_size=6, train_size=16, test_size=5)

    @property
    def topic_words(self) -> int:
        """Number of topic words (N in the paper); they are words 0 to N - 1."""
        return self.topics * self.words_per_topic

    @property
    def topic_items(self) -> np.ndarray:
        """The items that a model should attend to: the topic words."""
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
        shape, words = (size, self.filler_size), (self.topic_words, self.vocabulary_size)
        filler = jax.random.randint(filler_key, shape, *words, jnp.int32)
        if not (isinstance(self.leak, float) and self.leak == 0):
            leaked = jax.random.randint(leaked_key, shape, 0, self.topic_words, jnp.int32)
            filler = jnp.where(jax.random.uniform(leak_key, shape) < self.leak, leaked, filler)
        # The topic word stands first; the models are bags of words and do not see the order.
        sentences = jnp.concatenate([topic_word, filler], axis=1)
        return Batch(sentences, topic_word[:, 0] // self.words_per_topic)
