"""Random words that are repeated, as Olsson et al. 2022 have them to find induction heads: the
smallest task that attention must solve.

`length` random words, a separator and the same words again, then up to `extra` other words and
padding. To be predicted are the repeated words: by the word before each (`next`, for decoders), or
where they are hidden (`masked`, for encoders). No word says anything about another one, so that
only attention to its first occurrence helps. Example, length 2, extra 1; ? are positions that are
not predicted, _ is padding:

    [7, 4, SEPARATOR, 7, 4, _] -> [?, ?, 7, 4, ?, ?]                 next
    [7, 4, SEPARATOR, HIDDEN, HIDDEN, 5] -> [?, ?, ?, 7, 4, ?]       masked

With `shown` above 0 some of these positions show their own answer, for which no attention is
needed.
"""

import dataclasses
from typing import Literal, Self

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from saccade.contracts.task import AbstractTask
from saccade.settings import require, require_choices, require_count
from saccade.tasks.topic_documents import Documents

PADDING, HIDDEN, SEPARATOR, FIRST = range(4)
Objective = Literal["next", "masked"]


@dataclasses.dataclass(frozen=True)
class RepeatedWords(AbstractTask):
    """Sequences whose second part repeats the first."""

    length: int = 8
    """Words that are repeated."""
    words: int = 16
    """Words in the vocabulary."""
    extra: int = 4
    """The most other words behind them; what is left is padding."""
    objective: Objective = "next"
    """next: predict the word behind; masked: predict the hidden word."""
    shown: float = 0.0
    """Probability that a position shows its own answer."""
    train_size: int = 64
    """Sequences in the training set; with fresh batches it only serves to measure the loss."""
    test_size: int = 64
    """Sequences in the test set."""
    validation_size: int = dataclasses.field(default=0, kw_only=True)
    """Sequences in the validation set."""

    def __post_init__(self):
        require_choices(self)
        require_count(self, "length", "train_size", "test_size")
        require_count(self, "words", least=2)
        require_count(self, "extra", "validation_size", least=0)
        require(self, "shown", "from 0 to 1", lambda value: 0 <= value <= 1)

    @classmethod
    def example(cls) -> Self:
        return cls(length=3, words=4, extra=2, shown=0.2, train_size=16, test_size=5)

    @property
    def vocabulary_size(self) -> int:
        """Ids: padding, hidden, separator and the words."""
        return FIRST + self.words

    @property
    def is_causal(self) -> bool:
        """Whether a query must not see later words, among which its answer stands."""
        return self.objective == "next"

    def sample(self, key: PRNGKeyArray, size: int) -> Documents:
        word_key, extra_key, count_key, shown_key = jax.random.split(key, 4)
        draw = lambda key, count: jax.random.randint(  # noqa: E731
            key, (size, count), FIRST, self.vocabulary_size, jnp.int32
        )
        words, extra = draw(word_key, self.length), draw(extra_key, self.extra)
        separator = jnp.full((size, 1), SEPARATOR, jnp.int32)
        whole = jnp.concatenate([words, separator, words, extra], axis=1)
        place = jnp.arange(whole.shape[1])
        count = jax.random.randint(count_key, (size, 1), 0, self.extra + 1)
        there = place < 2 * self.length + 1 + count
        whole = jnp.where(there, whole, PADDING)
        repeated = (place > self.length) & (place <= 2 * self.length)
        if self.is_causal:
            labels, selected = jnp.roll(whole, -1, axis=1), jnp.roll(repeated, -1)
            hidden = whole
        else:
            labels, selected, hidden = whole, repeated, jnp.where(repeated, HIDDEN, whole)
        selected = jnp.broadcast_to(selected, whole.shape)
        shown = selected & jax.random.bernoulli(shown_key, self.shown, whole.shape)
        words = jnp.where(shown, labels, hidden)
        return Documents(words, jnp.where(selected, labels, words), selected, there)
