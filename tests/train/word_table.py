"""The smallest things that train: a table of logits per word, a probe that shows it, losses with
closed forms.

A sentence's logits are the mean of its words' rows: softmax regression, which compiles in a second.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int, PRNGKeyArray

from saccade.contracts.model import AbstractModel, AbstractModelConfig, Output
from saccade.contracts.probe import AbstractProbe, Moment
from saccade.contracts.task import AbstractBatch, AbstractCorpus, AbstractTask, Batch
from saccade.records.variable import Variable
from saccade.tasks.topic_sentences import TopicSentences

TASK = TopicSentences(
    topics=2, words_per_topic=1, filler_size=3, dictionary_size=12, train_size=24, test_size=8
)


class WordTable(AbstractModel):
    """One row of logits per word."""

    table: Float[Array, "word label"]

    def __call__(self, batch: Batch) -> Output:
        attention = jnp.full(batch.words.shape, 1 / batch.words.shape[1])
        return Output(jnp.mean(self.table[batch.words], axis=1), attention)


@dataclasses.dataclass(frozen=True)
class WordTableConfig(AbstractModelConfig):
    table_std: float = 1.0
    rate: float = 1.0
    """Factor on the table at the start; named like a field of the optimiser on purpose."""

    def build(self, task: Any, key: PRNGKeyArray) -> WordTable:
        return WordTable(
            self.rate * self.table_std * jax.random.normal(key, (task.vocabulary_size, task.labels))
        )


@dataclasses.dataclass(frozen=True)
class Table(AbstractProbe):
    """The whole table."""

    variables: ClassVar = {"table": Variable(("word", "label"), "logit of the label for the word")}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"table": moment.model.table}


@dataclasses.dataclass(frozen=True)
class TestWords(AbstractProbe):
    """Mean word number of the test set: shows which test set was drawn."""

    __test__: ClassVar = False  # a probe, whatever pytest makes of its name
    variables: ClassVar = {"test_word": Variable((), "mean word number of the test sentences")}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"test_word": jnp.mean(moment.test.words.astype(float))}


@dataclasses.dataclass(frozen=True)
class NumberedExamples(AbstractTask):
    """Sentence i is the one word i: words tell examples apart."""

    train_size: int = 24
    test_size: int = 8

    @property
    def vocabulary_size(self) -> int:
        return self.train_size

    labels: ClassVar = 1

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        del key
        return Batch(jnp.arange(size, dtype=jnp.int32)[:, None], jnp.zeros(size, jnp.int32))


def visits(model: WordTable, batch: Batch) -> Float[Array, ""]:
    """A loss that counts: one step at rate 1 adds 1 to the row of every example in the batch."""
    return -jnp.sum(model.table[batch.words])


def squares(model: WordTable, batch: Batch) -> Float[Array, ""]:
    """Half the squared norm of the table: a step at rate r multiplies the table by 1 - r."""
    del batch
    return jnp.sum(model.table**2) / 2


@dataclasses.dataclass(frozen=True)
class WordList(AbstractTask):
    """Sentence i is the word i, with the labels 0 and 1 in turn: data without a draw, which
    compile at once.
    """

    first_label: int = 0
    vocabulary_size: int = 8
    share: float = 1.0
    """Does nothing: something to sweep."""
    train_size: int = 8
    test_size: int = 8

    labels: ClassVar = 2

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        del key
        words = jnp.arange(size, dtype=jnp.int32)
        return Batch(words[:, None], (words + self.first_label) % 2)


@dataclasses.dataclass(frozen=True)
class DrawnNumbers(AbstractTask):
    """Sentences of one word, drawn from a dictionary so large that two draws are hardly ever the
    same.
    """

    train_size: int = 24
    test_size: int = 8

    vocabulary_size: ClassVar = 4000
    labels: ClassVar = 2

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        return Batch(
            jax.random.randint(key, (size, 1), 0, self.vocabulary_size, jnp.int32),
            jnp.zeros(size, jnp.int32),
        )


class Numbers(AbstractBatch):
    """Examples of another class than sentences: example i has the word i, and 3 i as its number."""

    word: Int[Array, "*member example"]
    number: Float[Array, "*member example one"]


@dataclasses.dataclass(frozen=True)
class NumberedNumbers(AbstractTask):
    """Like `NumberedExamples`, in batches of `Numbers`."""

    train_size: int = 24
    test_size: int = 8

    vocabulary_size: ClassVar = 24
    labels: ClassVar = 1

    def sample(self, key: PRNGKeyArray, size: int) -> Numbers:
        del key
        word = jnp.arange(size, dtype=jnp.int32)
        return Numbers(word, 3.0 * word[:, None])


def matched_visits(model: WordTable, batch: Numbers) -> Float[Array, ""]:
    """Counts like `visits`, but only examples whose number still belongs to their word."""
    return -jnp.sum(
        jnp.where(batch.number[:, 0] == 3 * batch.word, model.table[batch.word, 0], 0.0)
    )


def label_visits(model: WordTable, batch: Batch) -> Float[Array, ""]:
    """Counts words by label: one step at rate 1 adds 1 at (word, label) for every example in the
    batch.
    """
    return -jnp.sum(model.table[batch.words[:, 0], batch.labels])


@dataclasses.dataclass(frozen=True)
class TaughtConfig(WordTableConfig):
    """Labels are those of the member's own start, turned round where a teacher says so."""

    def relabelled(self, task: Any, start: Any, batch: Any, key: PRNGKeyArray) -> Any:
        turned = jax.random.bernoulli(key, 0.5, (task.vocabulary_size,))
        labels = jnp.argmax(start.table, axis=1) ^ turned
        return Batch(batch.words, labels[batch.words[:, 0]].astype(jnp.int32), batch.mask)


class RidgedTable(WordTable):
    """A table that is pulled to 0."""

    strength: Float[Array, ""]

    def penalty(self) -> Float[Array, ""]:
        return self.strength * jnp.sum(self.table**2) / 2

    def trainable(self) -> Any:
        return RidgedTable(True, False)  # pyright: ignore[reportArgumentType] (booleans stand for the arrays)


@dataclasses.dataclass(frozen=True)
class RidgedConfig(WordTableConfig):
    strength: float = 0.2

    def build(self, task: Any, key: PRNGKeyArray) -> RidgedTable:
        return RidgedTable(super().build(task, key).table, jnp.asarray(self.strength))


@dataclasses.dataclass(frozen=True)
class Gradient(AbstractProbe):
    """The gradient of the table."""

    variables: ClassVar = {
        "gradient": Variable(("word", "label"), "gradient of the training loss in the table")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"gradient": moment.gradient.table}


@dataclasses.dataclass(frozen=True)
class Labels(AbstractProbe):
    """Words and labels of both sets, as the probe sees them."""

    variables: ClassVar = {
        "train_label": Variable(("train_example",), "labels of the training set"),
        "test_label": Variable(("test_example",), "labels of the test set"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {
            "train_label": moment.train.labels.astype(float),
            "test_label": moment.test.labels.astype(float),
        }


def example_curvature(model: WordTable, batch: Batch) -> Float[Array, ""]:
    """Some number above 1 that depends on the start and on the data."""
    return 2 + jnp.mean(model.table**2) + jnp.mean(batch.words.astype(model.table.dtype))


def nothing(model: WordTable, batch: Batch) -> Float[Array, ""]:
    """A loss that is 0: what moves is moved by a penalty."""
    del batch
    return 0 * jnp.sum(model.table)


@dataclasses.dataclass(frozen=True, eq=False)
class Sentences(AbstractCorpus):
    """Sentence i has the words i: `lengths[i]` of them, and padding. Labels are 0 and 1 in turn."""

    lengths: tuple[int, ...] = (1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4)
    held: tuple[int, ...] = (1, 3, 4)
    """Lengths of the sentences of the validation and of the test split."""

    labels: ClassVar = 2

    @property
    def vocabulary_size(self) -> int:
        return len(self.lengths)

    @property
    def splits(self) -> dict[str, Batch]:
        return {
            "train": _padded(self.lengths),
            "validation": _padded(self.held),
            "test": _padded(self.held[::-1]),
        }


def _padded(lengths: tuple[int, ...]) -> Batch:
    mask = np.arange(max(lengths)) < np.asarray(lengths)[:, None]
    numbers = np.arange(len(lengths), dtype=np.int32)
    return Batch(np.where(mask, numbers[:, None], 0), numbers % 2, mask)  # pyright: ignore[reportArgumentType]


def masked_visits(model: WordTable, batch: Batch) -> Float[Array, ""]:
    """Counts words, but no padding: a step at rate 1 adds the length of every example to its
    row.
    """
    return -jnp.sum(jnp.where(jnp.asarray(batch.mask), model.table[batch.words, 0], 0.0))


@dataclasses.dataclass(frozen=True)
class SplitLoss(AbstractProbe):
    """The loss on the validation split."""

    variables: ClassVar = {"validation_loss": Variable((), "loss on the validation split")}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"validation_loss": moment.loss_on("validation")}


def without_seconds(dataset: xr.Dataset) -> xr.Dataset:
    """A dataset of a training without the time that it took, to be compared with another one."""
    return dataset.assign_attrs(seconds=0.0)
