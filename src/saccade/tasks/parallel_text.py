"""Sentence pairs from two text files: a sentence per line, and its translation in the same line.

Example with the ids 0 end, 2 unknown, 3 "the", 4 "dog", 5 "der", 6 "hund" of both languages:

    [3, 4, 0] -> [5, 6, 0], "The dog" -> "Der Hund"        [3, 2, 0] -> [5, 2, 0]
"""

import dataclasses
import os
from typing import Self

from saccade.data.formats import EXAMPLE_PAIRS, LONGEST_LINE, read_lines
from saccade.data.pairs import AbstractPairs, Longer, Pair
from saccade.data.shared_vocabulary import PairTokeniser
from saccade.errors import ConfigError, FileError
from saccade.settings import require_count

_FILES = {
    "train": ("source", "target"),
    "validation": ("validation_source", "validation_target"),
    "test": ("test_source", "test_target"),
}


@dataclasses.dataclass(frozen=True)
class ParallelText(AbstractPairs):
    """Sentences and their translations, from files of as many lines. Both languages share their
    ids, which come from the training pairs.
    """

    source: str
    """File with the training sentences, one per line (also compressed, with the ending .gz)."""
    target: str
    """File with their translations."""
    validation_source: str | None = None
    """File with the validation sentences."""
    validation_target: str | None = None
    """File with their translations."""
    test_source: str | None = None
    """File with the test sentences."""
    test_target: str | None = None
    """File with their translations."""
    validation_share: float = 0.0
    """Share of the training pairs that is drawn for validation, if there are no files for it."""
    test_share: float = 0.0
    """Share of the training pairs that is drawn for testing, if there are no files for it."""
    split_seed: int = 0
    """Seed of these draws."""
    tokeniser: PairTokeniser = "pieces"
    """What gets an id: "pieces" of words (SentencePiece, of both languages together); "words" and
    punctuation marks, in lower case; or what stands between "spaces", unchanged."""
    pieces: int = 8000
    """Number of ids of the tokeniser "pieces", with end, start and unknown."""
    least_count: int = 1
    """Times that a word occurs in the training pairs, at least, to get an id of its own."""
    largest_vocabulary: int | None = None
    """Largest number of ids, with end, start and unknown; rarer words are unknown."""
    longest: int | None = None
    """Words or pieces in the longest sentence, without its end; None: whatever there is."""
    longer: Longer = "refused"
    """What becomes of a pair with a longer sentence: it is refused with its line, dropped (the
    record says how many were), or cut to the first words or pieces of each sentence."""
    longest_line: int = LONGEST_LINE
    """Characters in the longest line of a file; a longer one is refused."""

    def __post_init__(self):
        for split, names in _FILES.items():
            for name in names:
                given = getattr(self, name)
                if isinstance(given, os.PathLike):
                    object.__setattr__(self, name, os.fspath(given))
                elif not isinstance(given, str) and (split == "train" or given is not None):
                    raise ConfigError(f"{name}: got {given!r}, allowed: the name of a file")
            alone = [name for name in names if getattr(self, name) is not None]
            if len(alone) == 1:
                (lacking,) = {*names} - {*alone}
                raise ConfigError(
                    f"{lacking}: got None with {alone[0]}, allowed: a file of as many lines"
                )
            share = f"{split}_share"
            if split != "train" and alone and getattr(self, share):
                raise ConfigError(
                    f"{share}: got {getattr(self, share)} and the file {getattr(self, alone[0])}, "
                    f"allowed: one of them; drop {share} or {' and '.join(alone)}"
                )
        self.check_settings()
        require_count(self, "longest_line")

    @classmethod
    def example(cls) -> Self:
        source, target = map(str, EXAMPLE_PAIRS)
        return cls(source, target, tokeniser="words", validation_share=0.2, test_share=0.2)

    def _files(self, split: str) -> tuple[str, str] | None:
        source, target = (getattr(self, name) for name in _FILES[split])
        return None if source is None else (source, target)

    def read(self) -> dict[str, list[Pair]]:
        found = {}
        for split, names in _FILES.items():
            if (files := self._files(split)) is None:
                continue
            sources, targets = (read_lines(file, self.longest_line) for file in files)
            if len(sources) != len(targets):
                got = f"{len(sources):,} lines of {files[0]} and {len(targets):,} of {files[1]}"
                raise FileError(f"{', '.join(names)}: got {got}, allowed: as many in both")
            pairs = zip(sources, targets, strict=True)
            found[split] = [Pair(*both, line) for line, both in enumerate(pairs, 1)]
        return found

    def origin(self, split: str) -> str:
        return " and ".join(self._files(split) or (self.source, self.target))
