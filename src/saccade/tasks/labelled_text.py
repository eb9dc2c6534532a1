"""Labelled texts from files: TSV, CSV or JSON Lines with a label and a text per row.

Example with the vocabulary 2 "film", 3 "good", 4 "a" (0 is padding, 1 an unknown word) and the
labels 0 "negative", 1 "positive":

    [4, 3, 2, 0, 0] -> label 1, "A good film"        [4, 1, 1, 1, 2] -> label 0
"""

import dataclasses
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Self

import numpy as np

from saccade.core.errors import ConfigError, FileError
from saccade.core.interfaces import SPLITS, AbstractCorpus, Batch
from saccade.core.sweep import require, require_choices, require_count, require_single
from saccade.data.formats import (
    EXAMPLE,
    LONGEST_LINE,
    Column,
    Row,
    at_line,
    check_columns,
    read_rows,
)
from saccade.data.vocabulary import PADDING, UNKNOWN, Tokeniser, Vocabulary, check_limits, tokens_of


@dataclasses.dataclass(frozen=True)
class LabelledText(AbstractCorpus):
    """Texts with labels. Words and labels get their ids from the training texts.

    Files are read on first use, once. All splits are padded to the longest text of the corpus.
    """

    path: str
    """File with the training texts (.tsv, .csv or .jsonl, also with .gz)."""
    validation: str | None = None
    """File with the validation texts, in the same columns."""
    test: str | None = None
    """File with the test texts, in the same columns."""
    validation_share: float = 0.0
    """Share of the texts of `path` that is drawn for validation, if there is no file for it."""
    test_share: float = 0.0
    """Share of the texts of `path` that is drawn for testing, if there is no file for it."""
    split_seed: int = 0
    """Seed of these draws."""
    label: Column = "label"
    """Column of the label: its name, or its number from 0 if the file has no header."""
    text: Column | tuple[Column, ...] = "text"
    """Column of the text, or several columns, which are joined by spaces."""
    tokeniser: Tokeniser = "words"
    """How a text becomes words: "words" finds words and punctuation marks, in lower case; "spaces"
    splits at white space and changes nothing."""
    least_count: int = 1
    """Times that a word occurs in the training texts, at least, to get an id of its own."""
    largest_vocabulary: int | None = None
    """Largest number of ids, with padding and unknown; rarer words are unknown."""
    longest: int | None = None
    """Words in the longest text; None: whatever there is. A longer text is refused, or cut."""
    cut: bool = False
    """Whether only the first words of a longer text are kept, as many as `longest` says."""
    longest_line: int = LONGEST_LINE
    """Characters in the longest line of a file; a longer one is refused."""

    def __post_init__(self):
        for name in ("path", "validation", "test"):
            given = getattr(self, name)
            if isinstance(given, os.PathLike):
                object.__setattr__(self, name, os.fspath(given))
            elif not isinstance(given, str) and (name == "path" or given is not None):
                raise ConfigError(f"{name}: got {given!r}, allowed: the name of a file")
        fields = [field.name for field in dataclasses.fields(self)]
        require_single(self, "because a corpus is the same for all members", *fields)
        for file in self._files.values():
            check_columns(file, self.label, self.text)
        require_choices(self)
        require_count(self, "split_seed", least=0)
        require_count(self, "longest_line")
        check_limits(self.least_count, self.largest_vocabulary, "largest_vocabulary")
        self._check_shares()
        if self.longest is not None:
            require_count(self, "longest")
        elif self.cut:
            raise ConfigError("cut: got True without a length, allowed: with longest=400")

    def _check_shares(self) -> None:
        for name in ("validation_share", "test_share"):
            require(self, name, "from 0 to below 1", lambda value: 0 <= value < 1)
            file = name.removesuffix("_share")
            if getattr(self, name) and getattr(self, file) is not None:
                raise ConfigError(
                    f"{name}: got {getattr(self, name)} and the file {getattr(self, file)}, "
                    f"allowed: one of them; drop {name} or {file}"
                )
        if self.validation_share + self.test_share >= 1:
            raise ConfigError(
                f"validation_share, test_share: got {self.validation_share} and {self.test_share}, "
                "allowed: together below 1, so that training texts are left"
            )

    @classmethod
    def example(cls) -> Self:
        return cls(str(EXAMPLE), validation_share=0.2, test_share=0.2)

    @property
    def splits(self) -> Mapping[str, Batch]:
        return self._content.splits

    @property
    def checksum(self) -> str:
        """SHA-256 of the list of (split, label, text): the same for a copy in another format."""
        return self._content.checksum

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that have ids, from the training texts."""
        return self._content.vocabulary

    @property
    def vocabulary_size(self) -> int:
        return self.vocabulary.size

    @property
    def label_names(self) -> tuple[str, ...]:
        """The labels as they stand in the file: sorted, by number if all are whole numbers."""
        return self._content.label_names

    @property
    def labels(self) -> int:
        return len(self.label_names)

    @property
    def unknown_share(self) -> Mapping[str, float]:
        """Share of the words of each split that have no id of their own."""
        return {
            split: float(np.mean((batch.words == UNKNOWN)[_there(batch)]))
            for split, batch in self.splits.items()
        }

    @property
    def _files(self) -> dict[str, str]:
        files = {"train": self.path, "validation": self.validation, "test": self.test}
        return {split: file for split, file in files.items() if file is not None}

    @cached_property
    def _content(self) -> "_Content":
        files = self._files
        rows = {
            split: read_rows(file, self.label, self.text, self.longest_line)
            for split, file in files.items()
        }
        rows |= self._drawn(rows["train"])
        files = {split: files.get(split, self.path) for split in SPLITS if split in rows}
        names = _label_names(self.path, rows["train"])
        for split, file in files.items():
            _check_labels(file, rows[split], split, names)
        # Words are numbered as they come, and renumbered once their counts are known: a corpus of
        # some million words is then read in seconds.
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        texts = {s: self._numbered(file, rows[s], numbers) for s, file in files.items()}
        counts = np.bincount(np.concatenate(texts["train"]), minlength=len(numbers))
        counted = {word: int(n) for word, n in zip(numbers, counts, strict=True) if n}
        words = Vocabulary.of_counts(counted, self.least_count, self.largest_vocabulary)
        batches = _padded(texts, words.encode(list(numbers)))
        label_ids = {name: number for number, name in enumerate(names)}
        splits = {}
        for split, (padded, mask) in batches.items():
            labels = np.asarray([label_ids[row.label] for row in rows[split]], np.int32)
            splits[split] = Batch(padded, labels, mask)  # pyright: ignore[reportArgumentType]
        return _Content(splits, words, names, _checksum(rows))

    def _drawn(self, rows: Sequence[Row]) -> dict[str, list[Row]]:
        """The rows of the training file by split, in the order of the file."""
        order = np.random.default_rng(self.split_seed).permutation(len(rows))
        drawn, start = {}, 0
        for split in ("test", "validation"):
            share = getattr(self, f"{split}_share")
            size = round(share * len(rows))
            if share and not size:
                raise FileError(
                    f"{self.path}: got {len(rows)} rows, of which {split}_share={share} is none, "
                    "allowed: at least one; raise the share"
                )
            if size:
                drawn[split] = order[start : start + size]
            start += size
        if start >= len(rows):
            raise FileError(
                f"{self.path}: got {len(rows)} rows, of which none is left for training; lower "
                "validation_share or test_share"
            )
        drawn["train"] = order[start:]
        return {split: [rows[at] for at in np.sort(ids)] for split, ids in drawn.items()}

    def _numbered(
        self, file: str, rows: Sequence[Row], numbers: Mapping[str, int]
    ) -> list[np.ndarray]:
        """The words of every text, each by its number."""
        texts = []
        for row in rows:
            words = tokens_of(row.text, self.tokeniser)
            if self.longest is not None and len(words) > self.longest:
                if not self.cut:
                    raise at_line(
                        file,
                        row.line,
                        f"got a text of {len(words)} words, allowed: at most {self.longest}; raise "
                        "longest, or give cut=True to keep the first words",
                    )
                words = words[: self.longest]
            texts.append(np.fromiter(map(numbers.__getitem__, words), np.int32, len(words)))
        return texts


@dataclasses.dataclass(frozen=True)
class _Content:
    splits: Mapping[str, Batch]
    vocabulary: Vocabulary
    label_names: tuple[str, ...]
    checksum: str


def _checksum(rows: Mapping[str, Sequence[Row]]) -> str:
    """One line of JSON per text, in the order of splits and files."""
    digest = hashlib.sha256()
    for split in SPLITS:
        for row in rows.get(split, ()):
            line = json.dumps([split, row.label, row.text], ensure_ascii=False)
            digest.update(f"{line}\n".encode())
    return digest.hexdigest()


def _label_names(path: str, rows: Sequence[Row]) -> tuple[str, ...]:
    names = {row.label for row in rows}
    if len(names) < 2:
        raise FileError(
            f"{path}: got the one label {rows[0].label!r} in all {len(rows)} training rows, "
            "allowed: at least two labels"
        )
    if all(name.isdecimal() for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def _check_labels(file: str, rows: Sequence[Row], split: str, names: Sequence[str]) -> None:
    known = set(names)
    for row in rows:
        if row.label not in known:
            allowed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
            raise at_line(
                file,
                row.line,
                f"got the label {row.label!r} in {split}, allowed: labels of the training texts, "
                f"{allowed}",
            )


def _padded(
    texts: Mapping[str, Sequence[np.ndarray]], ids: np.ndarray
) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """Word ids and mask of every split, as long as the longest text of all; no mask if all texts
    have that length.
    """
    lengths = {split: np.asarray([len(one) for one in some]) for split, some in texts.items()}
    longest = max(int(np.max(some)) for some in lengths.values())
    is_full = all(int(np.min(some)) == longest for some in lengths.values())
    padded = {}
    for split, some in texts.items():
        mask = np.arange(longest) < lengths[split][:, None]
        words = np.full(mask.shape, PADDING, np.int32)
        words[mask] = ids[np.concatenate(some)]
        padded[split] = (words, None if is_full else mask)
    return padded


def _there(batch: Batch) -> np.ndarray:
    return np.ones(batch.words.shape, bool) if batch.mask is None else np.asarray(batch.mask)
