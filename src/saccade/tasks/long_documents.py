"""Infinitely long documents about topics: exact expectations, no samples (Li et al. 2023).

The word frequencies of a long document follow from its set S of topics. Two views of this
population, both exact for any number of topics:

`LongDocuments`, for uniform attention. A model's output is then affine in the frequencies, so a
squared loss needs only their second moments. T + 1 rows have these moments: the mean document and,
for every topic s, the deviation sqrt(tau (T - tau) / (T (T - 1))) (e_s - 1/T). With 2 topics of 2
words, tau = 1 and no masking:

    [0,  .25,  .25,  .25,  .25]  mean
    [0,  .18,  .18, -.18, -.18]  topic 0
    [0, -.18, -.18,  .18,  .18]  topic 1

`LongDocumentQueries`, for attention that depends on the query's word: the four kinds of queries
(unchanged; replaced by a word of S; replaced by another word; hidden) with their probabilities, and
for each the words of the document in five classes: the query's own word, other words of its topic,
words of other topics of S, words of topics outside S, hidden words.
"""

import dataclasses
from typing import Any, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from saccade.contracts.task import AbstractBatch, AbstractTask
from saccade.errors import ConfigError
from saccade.settings import Swept, require, require_count
from saccade.tasks.topic_documents import AbstractTopicTask, Masking, Shares


class Moments(AbstractBatch):
    """Rows whose sum of squares is an expectation over documents."""

    shown: Float[Array, "*member row id"]
    """Frequencies of the shown ids."""
    target: Float[Array, "*member row id"]
    """Frequencies of the true ids."""
    constant: Float[Array, "*member row"]
    """The row of the constant 1, which multiplies a bias."""


@dataclasses.dataclass(frozen=True)
class LongDocuments(AbstractTopicTask):
    """The second moments of the frequencies of long documents. `sample` draws nothing."""

    topics: int = 10
    """Topics (T)."""
    words_per_topic: int = 10
    """Words of each topic (v)."""
    topics_per_document: int = 4
    """Distinct topics per document (tau)."""
    masking: Masking = Masking()
    """How words are masked."""
    selected_hidden: bool = False
    """Selected positions cannot be attended to (the authors' code): all seen words are correct."""

    def __post_init__(self):
        require_count(self, "topics", least=2)
        require_count(self, "words_per_topic")
        allowed = f"a whole number from 1 to the {self.topics} topics"
        require_count(self, "topics_per_document", most=self.topics, allowed=allowed)

    @classmethod
    def example(cls) -> Self:
        return cls(3, 2, 2)

    @property
    def train_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Rows of the moments."""
        return self.topics + 1

    test_size = train_size  # pyright: ignore[reportAssignmentType]

    @property
    def shares(self) -> Shares:
        return self.masking.shares_unselected if self.selected_hidden else self.masking.shares

    def sample(self, key: PRNGKeyArray, size: int) -> Moments:
        del key, size
        topics, per_document = self.topics, self.topics_per_document
        spread = jnp.sqrt(per_document * (topics - per_document) / (topics * (topics - 1)))
        mean = jnp.full((1, topics), per_document / topics)
        in_document = jnp.concatenate([mean, spread * (jnp.eye(topics) - 1 / topics)])  # row topic
        constant = jnp.zeros(topics + 1).at[0].set(1)
        words = jnp.repeat(in_document, self.words_per_topic, axis=1)  # row word
        words = words / (self.words_per_topic * per_document)
        shares = self.shares
        seen = shares.right * words + shares.random * constant[:, None] / words.shape[1]
        shown = jnp.concatenate([shares.hidden * constant[:, None], seen], axis=1)
        return Moments(shown, jnp.pad(words, ((0, 0), (1, 0))), constant)


class Queries(AbstractBatch):
    """Kinds of queries in long documents, and the words around them."""

    probability: Float[Array, "*member kind"]
    """Probability of this kind among the selected positions."""
    count: Float[Array, "*member kind class"]
    """Words in each class (own word, own topic, others of the document, other topics, hidden)."""
    frequency: Float[Array, "*member kind class"]
    """Frequency of each single word of the class."""
    target: Float[Array, "*member kind class"]
    """Probability that each single word of the class is the correct one."""
    looks: Float[Array, "*member kind"]
    """1 if the query shows a word, 0 if it is hidden; hidden queries attend uniformly."""
    words_per_topic: Float[Array, "*member kind"]


@dataclasses.dataclass(frozen=True)
class LongDocumentQueries(AbstractTask):
    """The kinds of queries of long documents. All sizes can be swept."""

    topics: int = 10
    """Topics (T)."""
    words_per_topic: int = 10
    """Words of each topic (v)."""
    topics_per_document: int = 4
    """Distinct topics per document (tau)."""
    masking: Masking = Masking()
    """How words are masked."""
    train_size: int = 4
    """Kinds of queries."""
    test_size: int = 4
    """Kinds of queries."""

    def __post_init__(self):
        require_count(self, "topics", least=2)
        require_count(self, "words_per_topic", "topics_per_document")
        most, least = self.topics_per_document, self.topics
        most = max(most.values) if isinstance(most, Swept) else most
        least = min(least.values) if isinstance(least, Swept) else least
        if not any(isinstance(size, jax.Array) for size in (most, least)) and most > least:
            allowed = f"at most the {least:g} topics"
            raise ConfigError(f"topics_per_document: got {most:g}, allowed: {allowed}")
        for field in ("train_size", "test_size"):
            require(self, field, "4, the kinds of queries", lambda value: value == 4)

    @classmethod
    def example(cls) -> Self:
        return cls(3, 2, 2)

    @property
    def shares(self) -> Shares:
        return self.masking.shares

    def sample(self, key: PRNGKeyArray, size: int) -> Queries:
        del key, size
        topics, words, present = self.topics, self.words_per_topic, self.topics_per_document
        masking, shares = self.masking, self.shares
        there = 1 / (words * present)
        outside = shares.random / (topics * words)
        inside = shares.right * there + outside
        replaced = (masking.replaced * present / topics, masking.replaced * (1 - present / topics))
        probability = (masking.kept, *replaced, 1 - masking.kept - masking.replaced)
        of_topic = (1, words - 1, words * (present - 1), words * (topics - present), 1)
        beyond = (1, words - 1, words * present, words * (topics - present - 1), 1)
        hidden = (0, 0, words * present, words * (topics - present), 1)
        own_frequency = (inside, inside, outside, 0)
        elsewhere = (0, 0, there, 0, 0)
        return Queries(
            probability=_rows(probability)[0],
            count=_rows(of_topic, of_topic, beyond, hidden),
            frequency=_rows(*((own, own, inside, outside, shares.hidden) for own in own_frequency)),
            target=_rows((1, 0, 0, 0, 0), (there, there, there, 0, 0), elsewhere, elsewhere),
            looks=_rows((1, 1, 1, 0))[0],
            words_per_topic=_rows((words,) * 4)[0],
        )


def _rows(*kinds: tuple[Any, ...]) -> Float[Array, "kind class"]:
    """Numbers, some of them traced, as an array."""
    dtype = jnp.zeros(()).dtype
    return jnp.stack([jnp.stack([jnp.asarray(number, dtype) for number in kind]) for kind in kinds])
