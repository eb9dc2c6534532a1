"""The labelled texts of a corpus that is known by name (`saccade data list`).

Example: `NamedText("sst2", tokeniser="bare")`, with the ids 2 "the", 3 "a", 4 "and":

    [3, 1517, 66, 4, 534, ...] -> label 1, "a stirring , funny and finally transporting ..."

`NamedText("ag_news_sample", keep=("1", "3"))` has the texts about the world and about business.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Literal, Self

import numpy as np

from saccade.contracts.task import Batch
from saccade.data.catalogue import named_in_records, require_known
from saccade.data.formats import Row
from saccade.data.store import find_corpus, load_corpus, not_found
from saccade.data.texts import AbstractText
from saccade.data.vocabulary import Tokeniser
from saccade.errors import ConfigError
from saccade.settings import require_count


@dataclasses.dataclass(frozen=True)
class NamedText(AbstractText):
    """Texts with labels of a known corpus. Words and labels get their ids from the training texts.

    The files are looked for below `data` or the folder in `SACCADE_DATA`, then in the user's cache.
    """

    name: str
    """Name of the corpus."""
    data: str | None = None
    """Folder with a folder per corpus; by default that of the variable SACCADE_DATA."""
    keep: tuple[str, ...] = ()
    """Labels whose texts are kept; all if none is given."""
    first: int | None = None
    """How many texts of every split are kept, from the first on; None: all."""
    validation_share: float = 0.0
    """Share of the training texts that is drawn for validation, if the corpus has none."""
    test_share: float = 0.0
    """Share of the training texts that is drawn for testing, if the corpus has none."""
    split_seed: int = 0
    """Seed of these draws."""
    tokeniser: Tokeniser = "words"
    """How a text becomes words: "words" finds words and punctuation marks, in lower case; "spaces"
    splits at white space and changes nothing; "bare" drops punctuation marks, then splits;
    "bytes" takes the bytes of the text."""
    least_count: int = 1
    """Times that a word occurs in the training texts, at least, to get an id of its own."""
    largest_vocabulary: int | None = None
    """Largest number of ids, with padding and unknown; rarer words are unknown."""
    longest: int | None = None
    """Words in the longest text; None: whatever there is. A longer text is refused, or cut."""
    cut: bool = False
    """Whether only the first words of a longer text are kept, as many as `longest` says."""
    held_out: int | None = None
    """Most texts of validation and of test, drawn with `split_seed`; None: all."""
    padding: Literal["masked", "attended"] = "masked"
    """Whether models see what is padding, or take it for a word like any other."""

    def __post_init__(self):
        if isinstance(self.data, os.PathLike):
            object.__setattr__(self, "data", os.fspath(self.data))
        self.check_settings()
        require_known(self, "classification", "labelled texts")
        for field in ("first", "held_out"):
            if getattr(self, field) is not None:
                require_count(self, field)

    @classmethod
    def example(cls) -> Self:
        return cls("sst2", first=200)

    def read(self) -> dict[str, list[Row]]:
        kept = {}
        for split, examples in load_corpus(self.name, self.data).items():
            rows = [Row(label, text, at) for at, (label, text) in enumerate(examples, 1)]
            rows = [
                row for row in rows if row.text.strip() and row.label in (self.keep or (row.label,))
            ]
            kept[split] = rows[: self.first]
        if not kept["train"]:
            raise ConfigError(f"keep: got {self.keep}, allowed: labels of {self.name}")
        if self.first is not None and len({row.label for row in kept["train"]}) < 2:
            allowed = f"more texts, because those of {self.name} are sorted by label"
            raise ConfigError(f"first: got {self.first}, which have one label, allowed: {allowed}")
        return kept

    def limited(self, rows: dict[str, list[Row]]) -> dict[str, list[Row]]:
        if self.held_out is None:
            return rows
        kept = {}
        for split, some in rows.items():
            order = np.random.default_rng(self.split_seed).permutation(len(some))
            most = len(some) if split == "train" else self.held_out
            kept[split] = [some[at] for at in np.sort(order[:most])]
        return kept

    @property
    def splits(self) -> Mapping[str, Batch]:
        if self.padding == "masked":
            return super().splits
        return {name: Batch(one.words, one.labels) for name, one in super().splits.items()}

    @property
    def about(self) -> Mapping[str, str]:
        return {**super().about, **named_in_records(self.name)}

    @property
    def missing(self) -> str:
        here = find_corpus(self.name, self.data) is not None
        return "" if here else not_found(self.name, self.data)

    def source(self, split: str) -> str:
        return f"{self.name}, {split}"
