"""Documents about a few topics, with words hidden for a model to guess (Li, Li & Risteski 2023).

There are T topics of v words each, and no word has two topics. A document is about tau distinct
topics (the paper's theory), or mixes all topics by a draw from a Dirichlet distribution (the
authors' code); each of its words comes from one of its topics. A selected word is shown as it is,
replaced by a random word, or hidden. Example, with 2 topics of 3 words ({1, 2, 3} and {4, 5, 6}),
one of them in the document, and 0 for a hidden word:

    [2, 0, 3, 5, 1]  is shown of  [2, 1, 3, 3, 1]; the second and the fourth word are selected

Ids: hidden words are 0 and words 1 to T v. With `markers` the ids are those of the authors' code
(padding 0, hidden 1, start 2, end 3, words 4 to T v + 3), and every document begins with a start
and ends with an end.
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractBatch, AbstractTask
from saccade.core.sweep import Swept, require, require_count, require_positive

Topics = Literal["distinct", "dirichlet"]
Replacements = Literal["words", "all"]

NO_TOPIC = -1


@dataclasses.dataclass(frozen=True)
class Shares:
    """Of what a long document shows: words that are right, words drawn at random, hidden words.
    They add up to 1.
    """

    right: Any
    """a of the theory."""
    random: Any
    """rho of the theory."""
    hidden: Any
    """m of the theory."""


@dataclasses.dataclass(frozen=True)
class Masking:
    """How words are hidden. The defaults are BERT's, and those of the paper."""

    selected: float = 0.15
    """Probability that a word is selected to be guessed (p_m)."""
    kept: float = 0.1
    """Probability that a selected word is shown as it is (p_c)."""
    replaced: float = 0.1
    """Probability that a selected word is replaced by a random word (p_r); otherwise it is
    hidden.
    """

    def __post_init__(self):
        require(self, "selected", "above 0 and at most 1", lambda value: 0 < value <= 1)
        for field in ("kept", "replaced"):
            require(self, field, "from 0 to 1", lambda value: 0 <= value <= 1)
        kept, replaced = (
            max(value.values) if isinstance(value, Swept) else value
            for value in (self.kept, self.replaced)
        )
        if (
            not any(isinstance(value, jax.Array) for value in (kept, replaced))
            and kept + replaced > 1 + 1e-12
        ):
            raise ConfigError(
                f"kept + replaced: got {kept:g} + {replaced:g}, allowed: at most 1 together"
            )

    @property
    def shares(self) -> Shares:
        """What a model sees that attends to every position."""
        random = self.selected * self.replaced
        hidden = self.selected * (1 - self.kept - self.replaced)
        return Shares(1 - (1 - self.kept) * self.selected, random, hidden)

    @property
    def shares_unselected(self) -> Shares:
        """What a model sees to which selected positions are invisible."""
        return Shares(1.0, 0.0, 0.0)


class Documents(AbstractBatch):
    """Masked documents: what is shown, what was there, and what is to be guessed."""

    words: Int[Array, "*member document position"]
    """Shown ids."""
    labels: Int[Array, "*member document position"]
    """True ids."""
    selected: Bool[Array, "*member document position"]
    """True where the word is to be guessed."""
    mask: Bool[Array, "*member document position"] | None = None
    """True where there is a word; None if every document is full."""


@dataclasses.dataclass(frozen=True)
class TopicDocuments(AbstractTask):
    """Bags of words with topics, masked."""

    topics: int = 10
    """Topics (T)."""
    words_per_topic: int = 10
    """Words of each topic (v)."""
    topics_per_document: int = 4
    """Distinct topics of a document (tau), unless topics are mixed by Dirichlet."""
    mixture: Topics = "distinct"
    """distinct: tau topics with equal shares; dirichlet: all topics, with shares from a
    Dirichlet distribution.
    """
    concentration: float = 0.1
    """Parameter of the Dirichlet distribution."""
    shortest: int = 128
    """Words of the shortest document."""
    longest: int = 128
    """Words of the longest document; lengths between are equally likely."""
    masking: Masking = Masking()
    """How words are hidden."""
    markers: bool = False
    """Begin and end every document with a marker, and number words as the authors' code does."""
    replacements: Replacements = "words"
    """What replaces a word: any word, or any id, markers included (the authors' code)."""
    train_size: int = 256
    """Documents in the training set."""
    test_size: int = 64
    """Documents in the test set."""

    def __post_init__(self):
        require_count(self, "topics", least=2)
        require_count(
            self,
            "words_per_topic",
            "topics_per_document",
            "shortest",
            "longest",
            "train_size",
            "test_size",
        )
        require(
            self, "mixture", "distinct, dirichlet", lambda value: value in ("distinct", "dirichlet")
        )
        require(self, "replacements", "words, all", lambda value: value in ("words", "all"))
        require_positive(self, "concentration")
        if self.mixture == "distinct" and self.topics_per_document > self.topics:
            raise ConfigError(
                f"topics_per_document: got {self.topics_per_document}, allowed: at most the"
                f" {self.topics} topics"
            )
        if self.longest < self.shortest:
            raise ConfigError(
                f"longest: got {self.longest}, allowed: at least the shortest, {self.shortest}"
            )

    # -- ids ---------------------------------------------------------------------------------------

    @property
    def words_in_all(self) -> int:
        return self.topics * self.words_per_topic

    @property
    def hidden_id(self) -> int:
        """The id that stands for a hidden word."""
        return 1 if self.markers else 0

    @property
    def first_word(self) -> int:
        """The id of the first word of the first topic."""
        return 4 if self.markers else 1

    @property
    def vocabulary_size(self) -> int:
        return self.first_word + self.words_in_all

    @property
    def topic_of_id(self) -> np.ndarray:
        """Topic of every id; -1 for ids that are no words."""
        word = np.arange(self.vocabulary_size) - self.first_word
        return np.where(word >= 0, word // self.words_per_topic, NO_TOPIC)

    @property
    def positions(self) -> int:
        """Positions of a document, padding and markers included."""
        return self.longest + 2 * self.markers

    # -- drawing -----------------------------------------------------------------------------------

    def sample(self, key: PRNGKeyArray, size: int) -> Documents:
        topic_key, length_key, position_key = jax.random.split(key, 3)
        # All that is drawn a position, at once: one draw compiles and runs faster than four.
        word_draw, topic_draw, fate, other_word = jax.random.uniform(
            position_key, (4, size, self.positions)
        )
        topic, word = self._topics_and_words(
            topic_key, topic_draw[:, : self.longest], word_draw[:, : self.longest]
        )
        labels = self.first_word + topic * self.words_per_topic + word
        mask = None
        if self.shortest < self.longest:
            length = jax.random.randint(length_key, (size, 1), self.shortest, self.longest + 1)
            mask = jnp.arange(self.longest) < length
            labels = jnp.where(mask, labels, 0)
            if self.markers:
                place = jnp.arange(self.positions - 1)
                labels = jnp.where(place == length, 3, jnp.pad(labels, ((0, 0), (0, 1))))
                mask = jnp.concatenate([jnp.ones((size, 1), bool), place <= length], axis=1)
        elif self.markers:
            labels = jnp.pad(labels, ((0, 0), (0, 1)), constant_values=3)
        if self.markers:
            labels = jnp.pad(labels, ((0, 0), (1, 0)), constant_values=2)
        low = self.first_word if self.replacements == "words" else 0
        replacement = low + _whole(other_word, self.vocabulary_size - low)
        chosen = self.masking
        kept = chosen.selected * chosen.kept
        shown = jnp.where(
            fate < kept + chosen.selected * chosen.replaced, replacement, self.hidden_id
        )
        shown = jnp.where(fate < kept, labels, shown)
        # Markers and padding are never guessed.
        selected = (fate < chosen.selected) & (labels >= self.first_word)
        labels = labels.astype(jnp.int32)
        return Documents(
            jnp.where(selected, shown, labels).astype(jnp.int32), labels, selected, mask
        )

    def _topics_and_words(
        self,
        key: PRNGKeyArray,
        topic_draw: Float[Array, "document position"],
        word_draw: Float[Array, "document position"],
    ) -> tuple[Int[Array, "document position"], Int[Array, "document position"]]:
        """The topic of every position, and which of its words."""
        size = topic_draw.shape[0]
        if self.mixture == "dirichlet":
            shares = jax.random.dirichlet(
                key, jnp.full(self.topics, 1.0) * self.concentration, (size,)
            )
            below = jnp.cumsum(shares, axis=1)[:, None, :-1]
            return jnp.sum(topic_draw[:, :, None] > below, axis=-1), _whole(
                word_draw, self.words_per_topic
            )
        order = jnp.argsort(jax.random.uniform(key, (size, self.topics)), axis=1)[
            :, None, : self.topics_per_document
        ]
        place = _whole(topic_draw, self.topics_per_document)[:, :, None] == jnp.arange(
            self.topics_per_document
        )
        return jnp.sum(jnp.where(place, order, 0), axis=-1), _whole(word_draw, self.words_per_topic)


def _whole(draw: Float[Array, "document position"], below: int) -> Int[Array, "document position"]:
    """Whole numbers from 0, equally likely to one part in 2^23 / below, of uniform draws."""
    return jnp.floor(draw * below).astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class TopicDocumentSettings:
    """The settings that studies of topic documents have in common."""

    seeds: int = 5
    """Repetitions, each with its own start and documents."""
    topics: int = 10
    """Topics (T)."""
    words_per_topic: int = 10
    """Words of each topic (v)."""
    topics_per_document: int = 4
    """Distinct topics of a document (tau)."""
    selected: float = 0.15
    """Share of words that are selected to be guessed (p_m)."""
    kept: float = 0.1
    """Share of selected words that are shown as they are (p_c)."""
    replaced: float = 0.1
    """Share of selected words that are replaced by a random word (p_r)."""

    def __post_init__(self):
        require_count(self, "seeds")
        TopicDocuments(
            self.topics, self.words_per_topic, self.topics_per_document
        )  # checks the sizes
        if self.topics_per_document == self.topics:
            raise ConfigError(
                f"topics_per_document: got {self.topics_per_document}, allowed: fewer than the"
                f" {self.topics} topics; a document about all of them shows the same frequencies as"
                " any other, and nothing tells topics apart"
            )
        right = self.masking.shares.right
        if not isinstance(right, Swept) and right <= 0:
            raise ConfigError(
                f"selected: got {self.selected:g} with kept {self.kept:g}, allowed: some word that"
                " is shown as it is"
            )

    @property
    def masking(self) -> Masking:
        return Masking(self.selected, self.kept, self.replaced)

    def documents(self, shortest: int, longest: int, **settings: Any) -> TopicDocuments:
        """Documents of these topics and this masking."""
        return TopicDocuments(
            self.topics,
            self.words_per_topic,
            self.topics_per_document,
            shortest=shortest,
            longest=longest,
            masking=self.masking,
            **settings,
        )
