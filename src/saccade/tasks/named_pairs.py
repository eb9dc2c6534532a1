"""The sentence pairs of a corpus that is known by name (`saccade data list`).

Example: `NamedPairs("multi30k", tokeniser="words")`, with the ids 0 end, 2 unknown, 3 ".", 4 "a":

    [27, 39, 8, 41, ..., 3, 0] -> [28, 44, 446, ..., 3, 0], "Two young, White ..." -> "Zwei ..."

`NamedPairs("multi30k", reverse=True)` translates from German to English.
"""

import dataclasses
import os
from collections.abc import Mapping
from typing import Self

from saccade.data.catalogue import named_in_records, require_known
from saccade.data.pairs import AbstractPairs, Longer, Pair
from saccade.data.shared_vocabulary import PairTokeniser
from saccade.data.store import find_corpus, load_corpus, not_found
from saccade.settings import require_count


@dataclasses.dataclass(frozen=True)
class NamedPairs(AbstractPairs):
    """Sentences and their translations, of a known corpus. Both languages share their ids, which
    come from the training pairs; pairs with an empty sentence are left out.

    The files are looked for below `data` or the folder in `SACCADE_DATA`, then in the user's cache.
    """

    name: str
    """Name of the corpus."""
    data: str | None = None
    """Folder with a folder per corpus; by default that of the variable SACCADE_DATA."""
    reverse: bool = False
    """Whether the second language of the corpus is the source."""
    first: int | None = None
    """How many pairs of every split are kept, from the first on; None: all."""
    validation_share: float = 0.0
    """Share of the training pairs that is drawn for validation, if the corpus has none."""
    test_share: float = 0.0
    """Share of the training pairs that is drawn for testing, if the corpus has none."""
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

    def __post_init__(self):
        if isinstance(self.data, os.PathLike):
            object.__setattr__(self, "data", os.fspath(self.data))
        self.check_settings()
        require_known(self, "translation", "sentence pairs")
        if self.first is not None:
            require_count(self, "first")

    @classmethod
    def example(cls) -> Self:
        return cls("multi30k", first=200, tokeniser="words")

    def read(self) -> dict[str, list[Pair]]:
        kept = {}
        for split, examples in load_corpus(self.name, self.data).items():
            pairs = [Pair(one, other, at) for at, (one, other) in enumerate(examples, 1)]
            if self.reverse:
                pairs = [Pair(pair.target, pair.source, pair.line) for pair in pairs]
            pairs = [pair for pair in pairs if pair.source.strip() and pair.target.strip()]
            kept[split] = pairs[: self.first]
        return kept

    @property
    def about(self) -> Mapping[str, str]:
        return {**super().about, **named_in_records(self.name)}

    @property
    def missing(self) -> str:
        here = find_corpus(self.name, self.data) is not None
        return super().missing if here else not_found(self.name, self.data)

    def origin(self, split: str) -> str:
        return f"{self.name}, {split}"
