"""A corpus of arrays in memory: what it holds, and what it refuses."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.task import AbstractBatch, Batch
from saccade.errors import ConfigError
from saccade.records.config import describe
from saccade.tasks.arrays import Arrays

WORDS = np.asarray([[2, 3, 0], [1, 4, 5], [2, 0, 0], [3, 3, 1]])
LABELS = np.asarray([0, 1, 2, 1])
MASK = WORDS > 0


class Readings(AbstractBatch):
    """Numbers measured over time, with a class of a user's own."""

    values: jax.Array
    targets: jax.Array


def readings(size: int, times: int = 4) -> Readings:
    values = np.arange(size * times, dtype=np.float32).reshape(size, times)
    return Readings(values, np.arange(size))  # pyright: ignore[reportArgumentType]


def test_arrays_are_the_splits():
    task = Arrays.of((WORDS, LABELS, MASK), test=(WORDS[:2], LABELS[:2], MASK[:2]))
    assert list(task.splits) == ["train", "test"]
    train, test = task.splits["train"], task.splits["test"]
    assert isinstance(train, Batch)
    assert isinstance(test, Batch)
    for given, kept in ((WORDS, train.words), (LABELS, train.labels), (MASK, train.mask)):
        np.testing.assert_array_equal(given, kept)
    assert train.words.dtype == train.labels.dtype == np.int32
    np.testing.assert_array_equal(test.words, WORDS[:2])
    assert (task.train_size, task.validation_size, task.test_size) == (4, 0, 2)
    assert (task.vocabulary_size, task.labels) == (6, 3)
    assert train.lengths.tolist() == [2, 3, 1, 3]


@pytest.mark.parametrize("given", [np.asarray, jnp.asarray, lambda array: array.tolist()])
def test_lists_and_jax_arrays_will_do(given):
    task = Arrays.of((given(WORDS), given(LABELS)), validation=(given(WORDS), given(LABELS)))
    for batch in task.splits.values():
        assert isinstance(batch, Batch)
        assert type(batch.words) is np.ndarray
        assert batch.mask is None
        np.testing.assert_array_equal(batch.words, WORDS)
    assert list(task.splits) == ["train", "validation"]


def test_the_largest_id_may_be_in_any_split_or_be_stated():
    assert Arrays.of((WORDS, LABELS), test=(WORDS + 4, LABELS)).vocabulary_size == 10
    assert Arrays.of((WORDS, LABELS), dictionary_size=6).vocabulary_size == 6
    assert Arrays.of((WORDS, LABELS), dictionary_size=100).vocabulary_size == 100


def test_the_arrays_are_the_tasks_own():
    words = WORDS.astype(np.int32)
    task = Arrays.of((words, LABELS))
    words[0, 0] = 77
    batch = task.splits["train"]
    assert isinstance(batch, Batch)
    assert batch.words[0, 0] == 2
    with pytest.raises(ValueError, match="read-only"):
        batch.words[0, 0] = 3  # pyright: ignore[reportIndexIssue]


def test_a_task_is_itself_and_describes_its_content():
    one, same, other = (Arrays.of((WORDS, labels)) for labels in (LABELS, LABELS, LABELS[::-1]))
    assert one != same
    assert len({one, same}) == 2
    assert describe(one) == describe(same) != describe(other)


def test_batches_of_another_class():
    task = Arrays.of(readings(5), validation=readings(2), test=readings(3))
    assert [batch.size for batch in task.splits.values()] == [5, 2, 3]
    train = task.splits["train"]
    assert isinstance(train, Readings)
    assert (train.values.dtype, train.targets.dtype) == (np.float32, np.int32)
    assert Arrays(readings(5)).splits["train"].size == 5
    for name in ("vocabulary_size", "labels"):
        with pytest.raises(AttributeError) as error:
            getattr(task, name)
        assert error.value.name == name
        assert error.value.obj is task


def with_words(words: Any, labels: Any = LABELS, mask: Any = None):
    return lambda: Arrays.of((words, labels, mask))


def with_test(*test):
    return lambda: Arrays.of((WORDS, LABELS, MASK), test=test)


EMPTY_ROW = MASK & (np.arange(4) != 2)[:, None]
REFUSED = {
    "train words: got rows of different lengths, allowed: one length; pad the rows with 0 and give "
    "a mask that is False there": with_words([[1, 2], [1]]),
    "train words: got the type float64, allowed: an array of whole numbers": with_words(
        1.0 * WORDS
    ),
    "train words: got the type bool, allowed: an array of whole numbers": with_words(MASK),
    "train words: got the shape (4,), allowed: [example, position], not empty": with_words(LABELS),
    "train words: got the shape (0, 3), allowed: [example, position], not empty": with_words(
        WORDS[:0], LABELS[:0]
    ),
    "train words: got -1, allowed: ids from 0": with_words(WORDS - 1),
    "train words: got numbers that int32 does not hold, allowed: smaller ones": with_words(
        WORDS + 2**31
    ),
    "train labels: got the type <U1, allowed: an array of whole numbers": with_words(
        WORDS, list("abab")
    ),
    "train labels: got the shape (4, 3), allowed: [example], not empty": with_words(WORDS, WORDS),
    "train labels: got -2, allowed: labels from 0": with_words(WORDS, LABELS - 2),
    "train: got 4 words, 3 labels, allowed: arrays with the same number of examples, at least "
    "one": with_words(WORDS, LABELS[:3]),
    "train labels: got 0, allowed: at least two labels, numbered from 0 without gaps": with_words(
        WORDS, 0 * LABELS
    ),
    "train labels: got 1, 2, 3, allowed: at least two labels, numbered from 0 without gaps": (
        with_words(WORDS, LABELS + 1)
    ),
    "train mask: got int64 of shape (4, 3), allowed: bool of shape (4, 3), as words": with_words(
        WORDS, LABELS, WORDS
    ),
    "train mask: got bool of shape (4, 2), allowed: bool of shape (4, 3), as words": with_words(
        WORDS, LABELS, MASK[:, :2]
    ),
    "train mask: got example 2 without a word, allowed: at least one per example; remove the "
    "example": with_words(WORDS, LABELS, EMPTY_ROW),
    "test: got Batch with words, labels, allowed: Batch with words, labels, mask, as in train": (
        with_test(WORDS, LABELS)
    ),
    "test words: got int32 of shape (examples, 2), allowed: int32 of shape (examples, 3), as in "
    "train; pad all splits to one length": with_test(WORDS[:, :2], LABELS, MASK[:, :2]),
    "test labels: got 3, allowed: labels of train, 0 to 2": with_test(WORDS, LABELS + 1, MASK),
    "test: got 1 arrays, allowed: (words, labels), (words, labels, mask), or a batch": with_test(
        WORDS
    ),
    "train: got the type list, allowed: (words, labels), (words, labels, mask), or a batch": (
        lambda: Arrays.of([WORDS, LABELS])  # pyright: ignore[reportArgumentType]
    ),
    "train: got the type ndarray, allowed: a batch (AbstractBatch); use Arrays.of for arrays": (
        lambda: Arrays(WORDS)  # pyright: ignore[reportArgumentType]
    ),
    "train index: got one, allowed: None; the model makes it": (
        lambda: Arrays(Batch(WORDS, LABELS, None, (WORDS,)))  # pyright: ignore[reportArgumentType]
    ),
    "dictionary_size: got 5, allowed: at least 6, since the word id 5 occurs": (
        lambda: Arrays.of((WORDS, LABELS), dictionary_size=5)
    ),
    "dictionary_size: got 0, allowed: a whole number, at least 1": (
        lambda: Arrays.of((WORDS, LABELS), dictionary_size=0)
    ),
    "test: got Readings with values, targets, allowed: Batch with words, labels, as in train": (
        lambda: Arrays.of((WORDS, LABELS), test=readings(3))
    ),
    "validation values: got float32 of shape (examples, 5), allowed: float32 of shape (examples, "
    "4), as in train; pad all splits to one length": (
        lambda: Arrays.of(readings(3), validation=readings(3, 5))
    ),
    "train targets: got 3, allowed: arrays with the examples first, and nothing else": (
        lambda: Arrays.of(Readings(WORDS, 3))  # pyright: ignore[reportArgumentType]
    ),
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_does_not_fit_is_refused(sentence):
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        REFUSED[sentence]()
