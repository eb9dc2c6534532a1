"""Gold alignments of sentence pairs: which words of a translation people aligned with which words.

A file has a line per pair, with its links between white space (Och & Ney 2003): `3-4` is sure,
`3p4` or `3?4` is possible. A link is the position of the source word, then that of the target word,
from 0 or from 1. A line without links is a pair in which nothing is aligned.
"""

import dataclasses
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from saccade.errors import ConfigError
from saccade.files import at_line, decoded_text

Link = tuple[int, int]
"""Positions, from 0, of a source word and of a target word."""
_LINK = re.compile(r"([0-9]+)([-p?])([0-9]+)")


@dataclasses.dataclass(frozen=True)
class GoldAlignment:
    """The links of one pair. A sure link is possible, too."""

    sure: frozenset[Link]
    """Links that every alignment should have (S)."""
    possible: frozenset[Link]
    """Links that an alignment may have (P), with the sure ones."""

    def __post_init__(self):
        object.__setattr__(self, "sure", frozenset(self.sure))
        object.__setattr__(self, "possible", frozenset(self.possible) | self.sure)

    @staticmethod
    def of(sure: Iterable[Link], possible: Iterable[Link] = ()) -> "GoldAlignment":
        """From any lists of links."""
        return GoldAlignment(frozenset(sure), frozenset(possible))

    @property
    def reversed(self) -> "GoldAlignment":
        """The same with source and target exchanged."""
        sure, possible = (
            frozenset((target, source) for source, target in links)
            for links in (self.sure, self.possible)
        )
        return GoldAlignment(sure, possible)


def read_alignments(path: str | Path, first: Literal[0, 1] = 0) -> list[GoldAlignment]:
    """The alignments of a file, one per line; `first` is the number of the first word."""
    if first not in (0, 1):
        raise ConfigError(f"first: got {first!r}, allowed: 0 or 1")
    name = str(path)
    lines = decoded_text(name).removesuffix("\n").split("\n")
    return [_parsed(name, number, line, first) for number, line in enumerate(lines, 1)]


def check_alignments(
    gold: Sequence[GoldAlignment],
    lengths: Sequence[Sequence[int]],
    lines: Sequence[int] | None = None,
) -> None:
    """Refuse alignments that do not fit their pairs; `lengths` has the number of source words and
    of target words of every pair, `lines` the lines of their file, if these are not 1, 2, ...
    """
    if len(gold) != len(lengths):
        raise ConfigError(
            f"alignments: got {len(gold):,} of {len(lengths):,} pairs, allowed: one per pair"
        )
    numbers = range(1, len(gold) + 1) if lines is None else lines
    for number, alignment, (sources, targets) in zip(numbers, gold, lengths, strict=True):
        for source, target in sorted(alignment.possible):
            if not (0 <= source < sources and 0 <= target < targets):
                raise ConfigError(
                    f"alignments: got the link {source}-{target} (counted from 0) in line "
                    f"{number}, allowed: positions from 0 to {sources - 1} and {targets - 1}; files"
                    " that count from 1 need first=1 (--gold-first 1)"
                )


def _parsed(path: str, number: int, line: str, first: int) -> GoldAlignment:
    links: dict[bool, set[Link]] = {True: set(), False: set()}
    for text in line.split():
        match = _LINK.fullmatch(text)
        if match is None:
            raise at_line(
                path, number, f"got {text[:40]!r}, allowed: links such as 3-4, 3p4 or 3?4"
            )
        link = int(match[1]) - first, int(match[3]) - first
        if min(link) < 0:
            raise at_line(path, number, f"got {text!r}, allowed: positions from 1, as first=1 says")
        links[match[2] == "-"].add(link)
    return GoldAlignment.of(links[True], links[False])
