"""Documents about a few topics, with masked words for a model to predict (Li, Li & Risteski 2023).

There are T topics of v words each; no word belongs to two topics. A document is about tau distinct
topics (the paper's theory), or mixes all topics with shares drawn from a Dirichlet distribution
(the authors' code). Each word is drawn from one of the document's topics. A selected word is shown
unchanged, replaced by a random word, or hidden. Example with 2 topics of 3 words ({1, 2, 3} and
{4, 5, 6}), one topic per document, and 0 for a hidden word:

    [2, 0, 3, 5, 1]  shown for  [2, 1, 3, 3, 1]; the second and the fourth word are selected

Ids: 0 is the hidden word, 1 to T v are words. With `markers` the ids are those of the authors' code
(padding 0, hidden 1, start 2, end 3, words 4 to T v + 3), and every document begins with a start
marker and ends with an end marker.
"""

import dataclasses
from typing import Any, Literal, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from saccade.contracts.task import AbstractBatch, AbstractTask, HasVocabulary
from saccade.errors import ConfigError
from saccade.settings import Swept, require, require_choices, require_count, require_positive

Topics = Literal["distinct", "dirichlet"]
Replacements = Literal["words", "all"]
Draws = Float[Array, "document position"]

NO_TOPIC = -1


@dataclasses.dataclass(frozen=True)
class Shares:
    """Shares of a long document: correct words, random words and hidden words. They sum to 1."""

    right: Any
    """Correct words (a of the theory)."""
    random: Any
    """Random words (rho)."""
    hidden: Any
    """Hidden words (m)."""


@dataclasses.dataclass(frozen=True)
class Masking:
    """How words are masked. The defaults are those of BERT and of the paper."""

    selected: float = 0.15
    """Probability that a word is selected for prediction (p_m)."""
    kept: float = 0.1
    """Probability that a selected word is shown unchanged (p_c)."""
    replaced: float = 0.1
    """Probability that a selected word is replaced by a random word (p_r); else it is hidden."""

    def __post_init__(self):
        require(self, "selected", "above 0 and at most 1", lambda value: 0 < value <= 1)
        for field in ("kept", "replaced"):
            require(self, field, "from 0 to 1", lambda value: 0 <= value <= 1)
        parts = (self.kept, self.replaced)
        most = [max(part.values) if isinstance(part, Swept) else part for part in parts]
        if not any(isinstance(part, jax.Array) for part in most) and sum(most) > 1 + 1e-12:
            got = "{:g} + {:g}".format(*most)
            raise ConfigError(f"kept + replaced: got {got}, allowed: at most 1 together")

    @property
    def shares(self) -> Shares:
        """The shares if every position can be attended to."""
        random = self.selected * self.replaced
        hidden = self.selected * (1 - self.kept - self.replaced)
        return Shares(1 - (1 - self.kept) * self.selected, random, hidden)

    @property
    def shares_unselected(self) -> Shares:
        """The shares if selected positions cannot be attended to."""
        return Shares(1.0, 0.0, 0.0)


class HasTopics(Protocol):
    """A task of documents about topics: its sizes and its masking."""

    @property
    def topics(self) -> int: ...
    @property
    def words_per_topic(self) -> int: ...
    @property
    def topics_per_document(self) -> int: ...
    @property
    def masking(self) -> Masking: ...
    @property
    def shares(self) -> Shares: ...


class HasTopicIds(HasTopics, HasVocabulary, Protocol):
    """A task of documents about topics whose ids are known."""

    @property
    def hidden_id(self) -> int: ...
    @property
    def topic_of_id(self) -> np.ndarray: ...


class Documents(AbstractBatch):
    """Masked documents."""

    words: Int[Array, "*member document position"]
    """Ids that are shown."""
    labels: Int[Array, "*member document position"]
    """True ids."""
    selected: Bool[Array, "*member document position"]
    """True where the word is to be predicted."""
    mask: Bool[Array, "*member document position"] | None = None
    """True where there is a word; None if every document is full."""


class AbstractTopicTask(AbstractTask):
    """A task of documents about topics whose ids are the special ones, then the topics' words."""

    topics: int
    words_per_topic: int
    markers: bool = False

    @property
    def hidden_id(self) -> int:
        """The id that is shown for a hidden word."""
        return 1 if self.markers else 0

    @property
    def first_word(self) -> int:
        """The id of the first word of the first topic."""
        return 4 if self.markers else 1

    @property
    def vocabulary_size(self) -> int:
        return self.first_word + self.topics * self.words_per_topic

    @property
    def topic_of_id(self) -> np.ndarray:
        """Topic of every id; -1 for ids that are not words."""
        word = np.arange(self.vocabulary_size) - self.first_word
        return np.where(word >= 0, word // self.words_per_topic, NO_TOPIC)


@dataclasses.dataclass(frozen=True)
class TopicDocuments(AbstractTopicTask):
    """Masked bags of words with topics."""

    topics: int = 10
    """Topics (T)."""
    words_per_topic: int = 10
    """Words of each topic (v)."""
    topics_per_document: int = 4
    """Distinct topics per document (tau); not used by Dirichlet mixtures."""
    mixture: Topics = "distinct"
    """distinct: tau topics with equal shares; dirichlet: all topics with Dirichlet shares."""
    concentration: float = 0.1
    """Parameter of the Dirichlet distribution."""
    shortest: int = 128
    """Words of the shortest document."""
    longest: int = 128
    """Words of the longest document; lengths are uniform in between."""
    masking: Masking = Masking()
    """How words are masked."""
    markers: bool = False
    """Add start and end markers, and number the words as the authors' code does."""
    replacements: Replacements = "words"
    """Replacements are drawn from all words, or from all ids (the authors' code)."""
    train_size: int = 256
    """Documents in the training set."""
    test_size: int = 64
    """Documents in the test set."""
    validation_size: int = dataclasses.field(default=0, kw_only=True)
    """Documents in the validation set."""

    def __post_init__(self):
        require_count(self, "validation_size", least=0)
        require_count(self, "topics", least=2)
        require_count(self, "words_per_topic", "topics_per_document", "shortest", "longest")
        require_count(self, "train_size", "test_size")
        require_choices(self)
        require_positive(self, "concentration")
        if self.mixture == "distinct":
            most = f"at most the {self.topics} topics"
            require(self, "topics_per_document", most, lambda value: value <= self.topics)
        least = f"at least the shortest, {self.shortest}"
        require(self, "longest", least, lambda value: value >= self.shortest)

    @classmethod
    def example(cls) -> Self:
        return cls(3, 2, 2, shortest=3, longest=7, train_size=16, test_size=5)

    @property
    def positions(self) -> int:
        """Positions per document, padding and markers included."""
        return self.longest + 2 * self.markers

    @property
    def shares(self) -> Shares:
        return self.masking.shares

    def sample(self, key: PRNGKeyArray, size: int) -> Documents:
        topic_key, length_key, position_key = jax.random.split(key, 3)
        # One draw for all positions compiles and runs faster than four.
        draws = jax.random.uniform(position_key, (4, size, self.positions))
        word_draw, topic_draw = draws[:2, :, : self.longest]
        fate, other_word = draws[2:]
        word, topic = _whole(word_draw, self.words_per_topic), self._topics(topic_key, topic_draw)
        labels = self.first_word + topic * self.words_per_topic + word
        mask, length = None, self.longest
        if self.shortest < self.longest:
            length = jax.random.randint(length_key, (size, 1), self.shortest, self.longest + 1)
            mask = jnp.arange(self.longest) < length
            labels = jnp.where(mask, labels, 0)
        if self.markers:
            place = jnp.arange(self.positions - 1)
            labels = jnp.where(place == length, 3, jnp.pad(labels, ((0, 0), (0, 1))))
            labels = jnp.pad(labels, ((0, 0), (1, 0)), constant_values=2)
            if mask is not None:
                mask = jnp.pad(place <= length, ((0, 0), (1, 0)), constant_values=True)
        low = self.first_word if self.replacements == "words" else 0
        replacement = low + _whole(other_word, self.vocabulary_size - low)
        chance = self.masking.selected
        kept, replaced = chance * self.masking.kept, chance * self.masking.replaced
        shown = jnp.where(fate < kept + replaced, replacement, self.hidden_id)
        shown = jnp.where(fate < kept, labels, shown)
        # Markers and padding are never predicted.
        selected = (fate < chance) & (labels >= self.first_word)
        labels = labels.astype(jnp.int32)
        shown = jnp.where(selected, shown, labels).astype(jnp.int32)
        return Documents(shown, labels, selected, mask)

    def _topics(self, key: PRNGKeyArray, draw: Draws) -> Int[Array, "document position"]:
        """The topic of every position."""
        if self.mixture == "dirichlet":
            concentration = jnp.full(self.topics, 1.0) * self.concentration
            shares = jax.random.dirichlet(key, concentration, draw.shape[:1])
            below = jnp.cumsum(shares, axis=1)[:, None, :-1]
            return jnp.sum(draw[:, :, None] > below, axis=-1)
        chosen = self.topics_per_document
        order = jnp.argsort(jax.random.uniform(key, (draw.shape[0], self.topics)), axis=1)
        place = _whole(draw, chosen)[:, :, None] == jnp.arange(chosen)
        return jnp.sum(jnp.where(place, order[:, None, :chosen], 0), axis=-1)


def _whole(draw: Draws, below: int) -> Int[Array, "document position"]:
    """Integers from 0 to `below` - 1, uniform up to one part in 2^23 / below."""
    return jnp.floor(draw * below).astype(jnp.int32)
