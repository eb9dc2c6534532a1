"""Texts with labels, wherever they come from, as ids of words: what corpora of texts share.

Words and labels get their ids from the training texts. Texts are read on first use, once; all
splits are padded to the longest text of the corpus.
"""

import dataclasses
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import count

import numpy as np

from saccade.contracts.task import SPLITS, AbstractCorpus, Batch
from saccade.data.corpora import checksum_of
from saccade.data.formats import Row
from saccade.data.shares import check_shares, drawn_shares
from saccade.data.vocabulary import (
    BYTES,
    PADDING,
    UNKNOWN,
    Tokeniser,
    Vocabulary,
    check_limits,
    tokens_of,
)
from saccade.errors import ConfigError, FileError
from saccade.files import at_line
from saccade.settings import require_choices, require_count, require_single


class AbstractText(AbstractCorpus):
    """A corpus of labelled texts; a frozen dataclass has these fields, and says how to read."""

    validation_share: float
    """Share of the training texts that is drawn for validation, if there are no texts for it."""
    test_share: float
    """Share of the training texts that is drawn for testing, if there are no texts for it."""
    split_seed: int
    """Seed of these draws."""
    tokeniser: Tokeniser
    """How a text becomes words."""
    least_count: int
    """Times that a word occurs in the training texts, at least, to get an id of its own."""
    largest_vocabulary: int | None
    """Largest number of ids, with padding and unknown; rarer words are unknown."""
    longest: int | None
    """Words in the longest text; None: whatever there is. A longer text is refused, or cut."""
    cut: bool
    """Whether only the first words of a longer text are kept, as many as `longest` says."""

    @abstractmethod
    def read(self) -> dict[str, list[Row]]:
        """The rows of every split that has some of its own, train among them."""

    @abstractmethod
    def source(self, split: str) -> str:
        """Where the rows of a split come from, for messages."""

    def limited(self, rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
        """The rows that are kept of every split; by default all."""
        return rows

    def check_settings(self) -> None:
        """Refuse settings that no corpus can have, before anything is read."""
        fields = [field.name for field in dataclasses.fields(self)]  # pyright: ignore[reportArgumentType]
        require_single(self, "because a corpus is the same for all members", *fields)
        require_choices(self)
        check_shares(self, "texts")
        check_limits(self.least_count, self.largest_vocabulary, "largest_vocabulary")
        if self.longest is not None:
            require_count(self, "longest")
        elif self.cut:
            raise ConfigError("cut: got True without a length, allowed: with longest=400")

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
            for split, batch in self._content.splits.items()
        }

    @cached_property
    def _content(self) -> "_Content":
        rows = self.read()
        rows |= drawn_shares(self, rows["train"], self.source("train"))
        rows = self.limited(rows)
        files = {split: self.source(split) for split in SPLITS if split in rows}
        names = _label_names(files["train"], rows["train"])
        for split, file in files.items():
            _check_labels(file, rows[split], split, names)
        # Words are numbered as they come, and renumbered once their counts are known: a corpus of
        # some million words is then read in seconds.
        numbers: defaultdict[str, int] = defaultdict(count().__next__)
        for name in BYTES if self.tokeniser == "bytes" else ():
            numbers[name]  # in the order of the bytes
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
        listed = {split: [(row.label, row.text) for row in some] for split, some in rows.items()}
        return _Content(splits, words, names, checksum_of(listed))

    def _numbered(
        self, file: str, rows: Sequence[Row], numbers: Mapping[str, int]
    ) -> list[np.ndarray]:
        """The words of every text, each by its number."""
        bytewise, texts = self.tokeniser == "bytes", []
        what = "bytes" if bytewise else "words"
        for row in rows:
            words = row.text.encode() if bytewise else tokens_of(row.text, self.tokeniser)
            if self.longest is not None and len(words) > self.longest:
                if not self.cut:
                    raise at_line(
                        file,
                        row.line,
                        f"got a text of {len(words)} {what}, allowed: at most {self.longest}; raise"
                        f" longest, or give cut=True to keep the first {what}",
                    )
                words = words[: self.longest]
            if isinstance(words, bytes):
                texts.append(np.frombuffer(words, np.uint8))
            else:
                texts.append(np.fromiter(map(numbers.__getitem__, words), np.int32, len(words)))
        return texts


@dataclasses.dataclass(frozen=True)
class _Content:
    splits: Mapping[str, Batch]
    vocabulary: Vocabulary
    label_names: tuple[str, ...]
    checksum: str


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
