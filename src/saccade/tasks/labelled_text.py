"""Labelled texts from files: TSV, CSV or JSON Lines with a label and a text per row.

Example with the vocabulary 2 "film", 3 "good", 4 "a" (0 is padding, 1 an unknown word) and the
labels 0 "negative", 1 "positive":

    [4, 3, 2, 0, 0] -> label 1, "A good film"        [4, 1, 1, 1, 2] -> label 0
"""

import dataclasses
import os
from typing import Self

from saccade.data.formats import EXAMPLE, LONGEST_LINE, Column, Row, check_columns, read_rows
from saccade.data.texts import AbstractText
from saccade.data.vocabulary import Tokeniser
from saccade.errors import ConfigError
from saccade.settings import require_count


@dataclasses.dataclass(frozen=True)
class LabelledText(AbstractText):
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
    longest_line: int = LONGEST_LINE
    """Characters in the longest line of a file; a longer one is refused."""

    def __post_init__(self):
        for name in ("path", "validation", "test"):
            given = getattr(self, name)
            if isinstance(given, os.PathLike):
                object.__setattr__(self, name, os.fspath(given))
            elif not isinstance(given, str) and (name == "path" or given is not None):
                raise ConfigError(f"{name}: got {given!r}, allowed: the name of a file")
        self.check_settings()
        for file in self._files.values():
            check_columns(file, self.label, self.text)
        require_count(self, "longest_line")
        for name in ("validation", "test"):
            share = f"{name}_share"
            if getattr(self, share) and getattr(self, name) is not None:
                raise ConfigError(
                    f"{share}: got {getattr(self, share)} and the file {getattr(self, name)}, "
                    f"allowed: one of them; drop {share} or {name}"
                )

    @classmethod
    def example(cls) -> Self:
        return cls(str(EXAMPLE), validation_share=0.2, test_share=0.2)

    @property
    def _files(self) -> dict[str, str]:
        files = {"train": self.path, "validation": self.validation, "test": self.test}
        return {split: file for split, file in files.items() if file is not None}

    def read(self) -> dict[str, list[Row]]:
        return {
            split: read_rows(file, self.label, self.text, self.longest_line)
            for split, file in self._files.items()
        }

    def source(self, split: str) -> str:
        return self._files.get(split, self.path)
