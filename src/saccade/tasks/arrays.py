"""Examples in memory: arrays of word ids with a label per text, or batches of any other class.

Example with 5 words, of which 0 is padding, and 2 labels:

    [3, 1, 4, 0] -> label 1        [2, 2, 0, 0] -> label 0
"""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Self

import jax
import numpy as np

from saccade.contracts.task import SPLITS, AbstractBatch, AbstractCorpus, Batch
from saccade.errors import ConfigError
from saccade.settings import require_count

Examples = AbstractBatch | tuple[Any, Any] | tuple[Any, Any, Any]
"""A batch, or its words, labels and, if some are padding, mask."""


@dataclasses.dataclass(frozen=True, eq=False)
class Arrays(AbstractCorpus):
    """A corpus of batches that you have. `Arrays.of` makes them from arrays or lists.

    The arrays are checked and copied; whole numbers become `int32`.
    """

    train: AbstractBatch
    """The training examples."""
    validation: AbstractBatch | None = None
    """The validation examples."""
    test: AbstractBatch | None = None
    """The test examples."""
    dictionary_size: int | None = None
    """Number of word ids; by default one more than the largest id that occurs."""

    def __post_init__(self):
        if self.dictionary_size is not None:
            require_count(self, "dictionary_size")
        for split in SPLITS:
            batch = getattr(self, split)
            if split == "train" or batch is not None:
                object.__setattr__(self, split, _checked(split, batch))
        for split, batch in self.splits.items():
            _check_alike(split, batch, self.train)
            if isinstance(batch, Batch) and isinstance(self.train, Batch):
                _check_labels(split, batch, self.train)
        if self.dictionary_size is not None and self.dictionary_size < self._largest_id + 1:
            raise ConfigError(
                f"dictionary_size: got {self.dictionary_size}, allowed: at least "
                f"{self._largest_id + 1}, since the word id {self._largest_id} occurs"
            )

    @classmethod
    def of(
        cls,
        train: Examples,
        validation: Examples | None = None,
        test: Examples | None = None,
        dictionary_size: int | None = None,
    ) -> Self:
        """A corpus of (words, labels) or (words, labels, mask): word ids [example, position], a
        label per example, and True where there is a word. A batch of your own class stays as it is.
        """
        batches = [
            _batch(split, examples)
            for split, examples in zip(SPLITS, (train, validation, test), strict=True)
        ]
        return cls(*batches, dictionary_size=dictionary_size)  # pyright: ignore[reportArgumentType]

    @classmethod
    def example(cls) -> Self:
        words = [[2, 3, 1], [4, 1, 0], [3, 2, 0], [1, 4, 4], [2, 2, 3], [4, 0, 0]]
        labels = [0, 1, 0, 1, 0, 1]
        mask = np.asarray(words) > 0
        few = slice(3)
        return cls.of((words, labels, mask), test=(words[few], labels[few], mask[few]))

    @property
    def splits(self) -> Mapping[str, AbstractBatch]:
        batches = ((split, getattr(self, split)) for split in SPLITS)
        return {split: batch for split, batch in batches if batch is not None}

    @property
    def vocabulary_size(self) -> int:
        """Number of word ids, if the batches have `words`."""
        return self.dictionary_size or self._largest_id + 1

    @property
    def labels(self) -> int:
        """Number of labels, if the batches have a label per example."""
        labels = _whole_numbers(self, "labels")
        if any(one.ndim != 1 for one in labels):
            raise AttributeError("one label per example", name="labels", obj=self)
        return self._largest_label + 1

    @cached_property
    def _largest_id(self) -> int:
        return max(int(np.max(words)) for words in _whole_numbers(self, "words"))

    @cached_property
    def _largest_label(self) -> int:
        return max(int(np.max(labels)) for labels in _whole_numbers(self, "labels"))


def _whole_numbers(task: Arrays, name: str) -> list[np.ndarray]:
    """An array of whole numbers that the batches of all splits have."""
    arrays = [getattr(batch, name, None) for batch in task.splits.values()]
    if any(array is None or not np.issubdtype(array.dtype, np.integer) for array in arrays):
        missing = "vocabulary_size" if name == "words" else name
        raise AttributeError(f"batches without {name}", name=missing, obj=task)
    return arrays  # pyright: ignore[reportReturnType] (none is None)


def _batch(split: str, examples: Any) -> AbstractBatch | None:
    if examples is None or isinstance(examples, AbstractBatch):
        return examples
    if not isinstance(examples, tuple) or len(examples) not in (2, 3):
        many = isinstance(examples, tuple)
        got = f"{len(examples)} arrays" if many else f"the type {type(examples).__name__}"
        raise ConfigError(
            f"{split}: got {got}, allowed: (words, labels), (words, labels, mask), or a batch"
        )
    names = ("words", "labels", "mask")
    arrays = [_array(f"{split} {name}", one) for name, one in zip(names, examples, strict=False)]
    return Batch(*arrays)


def _array(name: str, given: Any) -> Any:
    if given is None:
        return None
    try:
        return np.asarray(given)
    except ValueError as error:  # rows of different lengths
        raise ConfigError(
            f"{name}: got rows of different lengths, allowed: one length; pad the rows with 0 and "
            "give a mask that is False there"
        ) from error


def _checked(split: str, batch: Any) -> AbstractBatch:
    """The batch with arrays that are its own."""
    if not isinstance(batch, AbstractBatch):
        raise ConfigError(
            f"{split}: got the type {type(batch).__name__}, allowed: a batch (AbstractBatch); use "
            "Arrays.of for arrays"
        )
    if isinstance(batch, Batch):
        _check_words(split, batch)
    copied = jax.tree_util.tree_map_with_path(
        lambda path, leaf: _copied(f"{split} {_name(path)}", leaf), batch
    )
    sizes = {_name(path): len(leaf) for path, leaf in jax.tree.leaves_with_path(copied)}
    if len(set(sizes.values())) != 1 or 0 in sizes.values():
        got = ", ".join(f"{size} {name}" for name, size in sizes.items()) or "no array"
        raise ConfigError(
            f"{split}: got {got}, allowed: arrays with the same number of examples, at least one"
        )
    return copied


def _check_words(split: str, batch: Batch) -> None:
    """Labelled texts: what each array must be."""
    for name, array, dims in (("words", batch.words, 2), ("labels", batch.labels, 1)):
        if not hasattr(array, "dtype") or not np.issubdtype(array.dtype, np.integer):
            kind = getattr(array, "dtype", type(array).__name__)
            raise ConfigError(
                f"{split} {name}: got the type {kind}, allowed: an array of whole numbers"
            )
        if array.ndim != dims or 0 in array.shape:
            axes = "[example, position]" if dims == 2 else "[example]"
            raise ConfigError(
                f"{split} {name}: got the shape {tuple(array.shape)}, allowed: {axes}, not empty"
            )
        if np.min(array) < 0:
            allowed = "ids from 0" if dims == 2 else "labels from 0"
            raise ConfigError(f"{split} {name}: got {np.min(array)}, allowed: {allowed}")
    if batch.mask is not None:
        mask = np.asarray(batch.mask)
        if mask.dtype != bool or mask.shape != batch.words.shape:
            raise ConfigError(
                f"{split} mask: got {mask.dtype} of shape {mask.shape}, allowed: bool of shape "
                f"{tuple(batch.words.shape)}, as words"
            )
        if not mask.any(axis=1).all():
            row = int(np.argmin(mask.any(axis=1)))
            raise ConfigError(
                f"{split} mask: got example {row} without a word, allowed: at least one per "
                "example; remove the example"
            )
    if batch.index is not None:
        raise ConfigError(f"{split} index: got one, allowed: None; the model makes it")


def _copied(name: str, leaf: Any) -> np.ndarray:
    if not isinstance(leaf, np.ndarray | jax.Array) or leaf.ndim == 0:
        raise ConfigError(
            f"{name}: got {leaf!r}, allowed: arrays with the examples first, and nothing else"
        )
    copied = np.array(leaf)
    if np.issubdtype(copied.dtype, np.integer):
        limits = np.iinfo(np.int32)
        if copied.size and (np.min(copied) < limits.min or np.max(copied) > limits.max):
            raise ConfigError(
                f"{name}: got numbers that int32 does not hold, allowed: smaller ones"
            )
        copied = copied.astype(np.int32)
    copied.flags.writeable = False
    return copied


def _check_alike(split: str, batch: AbstractBatch, train: AbstractBatch) -> None:
    """All splits fit the same model."""
    if jax.tree.structure(batch) != jax.tree.structure(train):
        ours, theirs = _parts(batch), _parts(train)
        raise ConfigError(f"{split}: got {ours}, allowed: {theirs}, as in train")
    leaves = zip(jax.tree.leaves_with_path(batch), jax.tree.leaves(train), strict=True)
    for (path, leaf), like in leaves:
        if (leaf.shape[1:], leaf.dtype) != (like.shape[1:], like.dtype):
            got, allowed = (
                f"{one.dtype} of shape (examples, {_rest(one)})" for one in (leaf, like)
            )
            raise ConfigError(
                f"{split} {_name(path)}: got {got}, allowed: {allowed}, as in train; pad all "
                "splits to one length"
            )


def _check_labels(split: str, batch: Batch, train: Batch) -> None:
    known = np.unique(train.labels)
    if split == "train":
        if len(known) < 2 or known[-1] != len(known) - 1:
            raise ConfigError(
                f"train labels: got {_listed(known)}, allowed: at least two labels, numbered from "
                "0 without gaps"
            )
        return
    strange = np.setdiff1d(batch.labels, known)
    if strange.size:
        raise ConfigError(
            f"{split} labels: got {_listed(strange)}, allowed: labels of train, 0 to {known[-1]}"
        )


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path).lstrip(".")


def _parts(batch: AbstractBatch) -> str:
    names = [_name(path) for path, _ in jax.tree.leaves_with_path(batch)]
    return f"{type(batch).__name__} with {', '.join(names)}"


def _rest(array: np.ndarray) -> str:
    return ", ".join(map(str, array.shape[1:]))


def _listed(labels: np.ndarray) -> str:
    shown = ", ".join(map(str, labels[:8]))
    return shown if len(labels) <= 8 else f"{shown}, ..."
