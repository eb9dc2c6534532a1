"""Adaptive maps: which points of a lattice to try, so that boundaries between verdicts are found.

The lattice has `side` + 1 points per axis, `side` a power of two. It is tried at a coarse lattice
first. Then every square that has two different verdicts at its corners, or anywhere on its edges
or within, is split into four, down to squares of one step:

    a - - - a - - - b          a - - - a - a - b
    |       |       |          |       | a b b b       the right square has two verdicts
    |       |       |    ->    |       a a a b b       and is split; the left one only
    |       |       |          |       | a a a b       if a new point on their common
    a - - - a - - - b          a - - - a - a - b       edge disagrees with it

What lies wholly within a square whose known points agree is not found. No training in here.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

import numpy as np

from saccade.errors import ConfigError
from saccade.figures.figure import Scale

T = TypeVar("T")
Point = tuple[int, int]
"""Column and row of a lattice, from 0."""
Square = tuple[int, int, int]
"""Column and row of the first corner, and steps along an edge."""
Curve = tuple[np.ndarray, np.ndarray]
"""Columns and rows, fractions allowed."""
UNKNOWN = -1


@dataclasses.dataclass(frozen=True)
class MapAxis:
    """One axis of a map: a field, and the range that it covers."""

    path: str
    """Dotted path of the field within the study's config."""
    low: float
    high: float
    scale: Scale

    def __post_init__(self):
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            got = f"{self.low:g}..{self.high:g}"
            raise ConfigError(f"{self.path}: got {got}, allowed: two finite numbers, ascending")
        if self.scale == "log" and self.low <= 0:
            got = f"{self.low:g}..{self.high:g}"
            raise ConfigError(f"{self.path}: got {got}, allowed on a log axis: numbers above 0")

    @property
    def name(self) -> str:
        return self.path.rpartition(".")[2]

    def values(self, places: np.ndarray, side: int) -> np.ndarray:
        """The values at some places of a lattice, which may lie between its points."""
        share = np.asarray(places, float) / side
        if self.scale == "linear":
            return self.low + share * (self.high - self.low)
        values = self.low * (self.high / self.low) ** share
        # The ends are those that were asked for, to the last digit.
        return np.where(share == 0, self.low, np.where(share == 1, self.high, values))

    def places(self, values: np.ndarray, side: int) -> np.ndarray:
        """The lattice points nearest to some values."""
        ends, numbers = np.asarray([self.low, self.high]), np.asarray(values, float)
        if self.scale == "log":
            ends, numbers = np.log(ends), np.log(numbers)
        return np.rint((numbers - ends[0]) / (ends[1] - ends[0]) * side).astype(int)


@dataclasses.dataclass(frozen=True)
class Lattice:
    """The finest lattice of a map, and the coarse one to begin with."""

    side: int = 64
    """Steps along an axis."""
    coarse: int = 8
    """Steps along an axis of the lattice to begin with."""

    def __post_init__(self):
        for name in ("side", "coarse"):
            value = getattr(self, name)
            if value < 1 or value & (value - 1):
                raise ConfigError(f"{name}: got {value}, allowed: a power of two")
        if self.coarse > self.side:
            raise ConfigError(f"coarse: got {self.coarse}, allowed: at most the side, {self.side}")

    @property
    def points(self) -> int:
        return (self.side + 1) ** 2

    @property
    def first(self) -> list[Point]:
        """The points of the coarse lattice, row by row."""
        places = range(0, self.side + 1, self.side // self.coarse)
        return [(column, row) for row in places for column in places]

    @property
    def every(self) -> list[Point]:
        return [(column, row) for row in range(self.side + 1) for column in range(self.side + 1)]

    def table(self, found: Mapping[Point, int]) -> np.ndarray:
        """The known verdicts, as numbers from 0, by row and column; `UNKNOWN` elsewhere."""
        table = np.full((self.side + 1, self.side + 1), UNKNOWN)
        for (column, row), verdict in found.items():
            table[row, column] = verdict
        return table

    def leaves(self, found: Mapping[Point, int]) -> list[Square]:
        """The squares that are not to be split, given what is known. If the corners of a square are
        not all known, it is a leaf, too.
        """
        table = self.table(found)
        size = self.side // self.coarse
        roots = range(0, self.side, size)
        return [
            leaf
            for row in roots
            for column in roots
            for leaf in _leaves(table, (column, row, size))
        ]

    def wanted(self, found: Mapping[Point, int]) -> list[Point]:
        """The points to try next, row by row: none if no square is left to split."""
        corners = {corner for leaf in self.leaves(found) for corner in _corners(leaf)}
        return sorted(corners - found.keys(), key=lambda point: point[::-1])

    def filled(self, found: Mapping[Point, int]) -> np.ndarray:
        """A verdict for every point, by row and column: its own, or else that of the nearest known
        corner of its square.
        """
        known = self.table(found)
        table = known.copy()
        for column, row, size in self.leaves(found):
            near = np.arange(size + 1) * 2 > size
            corners = known[np.ix_([row, row + size], [column, column + size])]
            # A square that was not split for want of cells may lack corners.
            usual = corners[corners != UNKNOWN]
            nearest = corners[near.astype(int)[:, None], near.astype(int)]
            nearest = np.where(nearest == UNKNOWN, usual[0], nearest)
            part = table[row : row + size + 1, column : column + size + 1]
            part[part == UNKNOWN] = nearest[part == UNKNOWN]
        return table


def _leaves(table: np.ndarray, square: Square) -> Iterator[Square]:
    column, row, size = square
    inside = table[row : row + size + 1, column : column + size + 1]
    corners = inside[:: size or 1, :: size or 1]
    known = inside[inside != UNKNOWN]
    if size == 1 or (corners == UNKNOWN).any() or (known == known[0]).all():
        yield square
        return
    half = size // 2
    for up, across in ((0, 0), (0, half), (half, 0), (half, half)):
        yield from _leaves(table, (column + across, row + up, half))


def _corners(square: Square) -> list[Point]:
    column, row, size = square
    return [(column + across, row + up) for up in (0, size) for across in (0, size)]


@dataclasses.dataclass(frozen=True)
class Refinement:
    """What an adaptive map tried."""

    found: Mapping[Point, int]
    """Verdicts of the points that were tried, in the order of trying."""
    levels: tuple[int, ...]
    """How many points each round tried."""
    lacking: int = 0
    """Points that the next round would have tried, if the most allowed had been more."""


def refined(
    lattice: Lattice, judged: Callable[[Sequence[Point]], Sequence[int]], most: int | None = None
) -> Refinement:
    """Try the coarse lattice, then split squares; `judged` gives the verdicts of some points, as
    numbers from 0. A round that would exceed the most points allowed is not begun.
    """
    found: dict[Point, int] = {}
    levels: list[int] = []
    wanted = lattice.first
    if most is not None and len(wanted) > most:
        got = f"the coarse lattice has {len(wanted)}"
        raise ConfigError(f"cells: got {most}, allowed: at least {len(wanted)} ({got})")
    while wanted and (most is None or len(found) + len(wanted) <= most):
        found |= zip(wanted, judged(wanted), strict=True)
        levels.append(len(wanted))
        wanted = lattice.wanted(found)
    return Refinement(found, tuple(levels), len(wanted))


def boundaries(table: np.ndarray) -> list[Curve]:
    """The lines between different verdicts of a table, halfway between neighbouring points:
    marching squares, with a corner where three or four verdicts meet.
    """
    segments: list[tuple[Point, Point]] = []  # in half steps, so that places are whole
    rows, columns = table.shape
    for row in range(rows - 1):
        for column in range(columns - 1):
            around = table[row : row + 2, column : column + 2]
            if (around == around[0, 0]).all():
                continue
            crossed: list[Point] = []
            sides = (
                ((0, 0), (0, 1), (1, 0)),
                ((0, 1), (1, 1), (2, 1)),
                ((1, 1), (1, 0), (1, 2)),
                ((1, 0), (0, 0), (0, 1)),
            )
            for one, other, (across, up) in sides:
                if around[one] != around[other]:
                    crossed.append((2 * column + across, 2 * row + up))
            if len(crossed) == 2:
                segments.append((crossed[0], crossed[1]))
            else:
                middle = (2 * column + 1, 2 * row + 1)
                segments += [(end, middle) for end in crossed]
    return [
        (np.asarray([x for x, _ in line]) / 2, np.asarray([y for _, y in line]) / 2)
        for line in _chained(segments)
    ]


def _chained(segments: Sequence[tuple[Point, Point]]) -> list[list[Point]]:
    """Segments joined end to end into as few lines as meet at no branch."""
    ends: dict[Point, list[Point]] = {}
    for one, other in segments:
        ends.setdefault(one, []).append(other)
        ends.setdefault(other, []).append(one)
    lines: list[list[Point]] = []
    # From ends and branches first: what is left are rings.
    for start in [*(one for one, to in ends.items() if len(to) != 2), *ends]:
        while ends[start]:
            line = [start]
            while ends[line[-1]] and (len(line) == 1 or len(ends[line[-1]]) == 1):
                here = line[-1]
                there = ends[here].pop(0)
                ends[there].remove(here)
                line.append(there)
            lines.append(line)
    return lines
