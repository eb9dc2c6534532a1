"""Colours, dashes, hatches and scales of a figure, for the drawn figures and the page's charts.

The colours of measurement are those of Okabe and Ito, distinct under every common colour-blindness,
without yellow, which vanishes on white paper.
"""

import dataclasses
import itertools
import math
from typing import Any

import numpy as np

from saccade.errors import ConfigError
from saccade.figures.figure import (
    Figure,
    HeatMap,
    Histogram,
    Line,
    Panel,
    Regions,
    Role,
    Scale,
)
from saccade.report.formatting import ticks

THEORY = "#000000"
COLOURS: dict[Role, tuple[str, ...]] = {
    "measured": ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    "theory": (THEORY,),
    "reference": ("#767676",),
}
MOST_NUMBERED = 11
"""Rows or columns up to which the cells of a heat map show their numbers."""
MISSING = "#DDDDDD"
"""Face of a heat-map cell without a number."""
HEAT_MAP = "cividis"
SOLID: tuple[float, ...] = ()
DASHES: dict[Role, tuple[tuple[float, ...], ...]] = {
    "measured": (SOLID, (6, 2), (1.5, 1.5), (8, 2, 1.5, 2)),
    "theory": ((5, 3), (9, 3, 2, 3), (3, 2), (12, 4)),
    "reference": ((1.5, 2.5), (1.5, 5)),
}
HATCHES = ("", "////", "\\\\\\\\", "....", "xxxx", "++++")
WIDTHS: dict[Role, float] = {"measured": 1.8, "theory": 1.5, "reference": 1.3}
BAND_OPACITY = 0.2
REGION_OPACITY = 0.25
REGION_COLOURS = ("#009E73", "#D55E00", "#767676", "#CC79A7", "#E69F00", "#56B4E9")
REGION_HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "++++")
SYMBOLS = (("o", "circle"), ("x", "M-1,-1L1,1M-1,1L1,-1"), ("^", "triangle-up"), ("s", "square"))
SYMBOLS += (("D", "diamond"), ("v", "triangle-down"))
"""Points of regions, for matplotlib and for Vega."""


@dataclasses.dataclass(frozen=True)
class Style:
    """How one label is drawn, in every panel of its figure."""

    name: str
    """The label, followed by its role where two roles share the label."""
    role: Role
    colour: str
    dash: tuple[float, ...]
    """Lengths of strokes and gaps in points; empty for solid."""
    hatch: str
    filled: bool
    """Whether it stands for a histogram."""


def styles(figure: Figure) -> dict[tuple[str, Role], Style]:
    """The style of every (label, role) of lines and histograms, in order of appearance."""
    kinds: dict[tuple[str, Role], set[type]] = {}
    for mark in (mark for panel in figure.panels for mark in panel.marks):
        if not isinstance(mark, HeatMap | Regions):
            kinds.setdefault((mark.label, mark.role), set()).add(type(mark))
    found: dict[tuple[str, Role], Style] = {}
    for (label, role), drawn_as in kinds.items():
        place = sum(other == role for _, other in found)
        colours, dashes = COLOURS[role], DASHES[role]
        # A measured curve is solid until the colours run out; overlaid histograms also differ in
        # dash, for black-and-white print.
        solid = role == "measured" and Line in drawn_as
        dash = dashes[(place // len(colours) if solid else place) % len(dashes)]
        shared = sum(other == label for other, _ in kinds) > 1
        name = f"{label} ({role})" if shared else label
        colour, hatch = colours[place % len(colours)], HATCHES[place % len(HATCHES)]
        found[label, role] = Style(name, role, colour, dash, hatch, Histogram in drawn_as)
    return found


def in_drawing_order(panel: Panel) -> list[Line]:
    """The lines of a panel, theory last: it lies on top."""
    lines = (mark for mark in panel.marks if isinstance(mark, Line))
    return sorted(lines, key=lambda line: ("reference", "measured", "theory").index(line.role))


def regions_of(panel: Panel) -> list[Regions]:
    """The regions of a panel, which lie below its lines."""
    return [mark for mark in panel.marks if isinstance(mark, Regions)]


def kinds_of(figure: Figure) -> list[str]:
    """The kinds of all regions of a figure that occur, in the order of their colours."""
    regions = [one for panel in figure.panels for one in regions_of(panel)]
    return [
        kind
        for kind in dict.fromkeys(kind for one in regions for kind in one.kinds)
        if any(kind in one.kinds and one.kinds.index(kind) in one.kind for one in regions)
    ]


def kind_place(regions: Regions, kind: str) -> int:
    """Which colour, hatch and symbol a kind has."""
    return regions.kinds.index(kind) % len(REGION_COLOURS)


def rectangles(regions: Regions) -> list[tuple[float, float, float, float, str]]:
    """The regions as rectangles (x from, to, y from, to, kind): neighbours in a row are one."""
    found = []
    for row, (low, high) in zip(regions.kind, _pairs(regions.y_edges), strict=True):
        starts = np.flatnonzero(np.diff(row, prepend=row[0] - 1))
        for start, end in _pairs(np.append(starts, len(row))):
            across = float(regions.x_edges[start]), float(regions.x_edges[end])
            found.append((*across, float(low), float(high), regions.kinds[row[start]]))
    return found


def _pairs(values: np.ndarray) -> list[tuple[Any, Any]]:
    return list(itertools.pairwise(values))


def heat_map_of(panel: Panel) -> HeatMap | None:
    """The panel's heat map, which shares its axes with nothing."""
    maps = [mark for mark in panel.marks if isinstance(mark, HeatMap)]
    if maps and len(panel.marks) > 1:
        got = f"a heat map among {len(panel.marks)} marks"
        raise ConfigError(f"panel {panel.title}: got {got}, allowed: a heat map alone")
    return maps[0] if maps else None


def is_dense(heat_map: HeatMap) -> bool:
    """Whether cells show no numbers: there are too many, or the numbers do not matter."""
    return not heat_map.numbered or max(np.asarray(heat_map.value).shape) > MOST_NUMBERED


def letters_across(heat_map: HeatMap) -> int:
    """Letters of the longest line in or below a cell."""
    lines = [line for label in ticks(list(heat_map.x)) for line in label.split()]
    if heat_map.texts is not None:
        lines += [line for text in heat_map.texts.flat for line in str(text).split("\n")]
    return max(map(len, lines))


def shown_ticks(labels: list[str], upright: bool = False) -> list[str]:
    """The labels that have room: all of few, about ten of many; along the upright axis, where they
    lie below each other, twice as many.
    """
    room = 20 if upright else 10
    every = 1 if len(labels) <= max(MOST_NUMBERED, room) else math.ceil(len(labels) / room)
    return labels[::every]


def scales(panel: Panel) -> tuple[Scale, Scale]:
    """The panel's scales; an axis without a positive number is linear, not logarithmic."""
    x, y = (_positive(panel, axis).size for axis in (0, 1))
    return panel.x_scale if x else "linear", panel.y_scale if y else "linear"


def positive_range(panel: Panel, axis: int) -> tuple[float, float]:
    """The smallest and the largest number that a logarithmic axis (0 for x, 1 for y) shows."""
    numbers = _positive(panel, axis)
    return float(numbers.min()), float(numbers.max())


def baseline(panel: Panel) -> float:
    """Where bars begin: at zero or, on a logarithmic axis, below the smallest positive number."""
    return 0.0 if scales(panel)[1] == "linear" else positive_range(panel, 1)[0] / 2


def _positive(panel: Panel, axis: int) -> np.ndarray:
    """The positive numbers of the points that can be drawn at all."""
    columns: list[np.ndarray] = [np.zeros(0)]
    for mark in panel.marks:
        if isinstance(mark, Line):
            points = np.stack([_floats(mark.x), _floats(mark.y)])
            columns += [points[axis, np.isfinite(points).all(0)]]
        elif isinstance(mark, Histogram):
            share = _floats(mark.share)
            if axis == 1 or np.isfinite(share).any():
                columns += [_floats(mark.edges) if axis == 0 else share]
        elif isinstance(mark, Regions):
            columns += [_floats(mark.y_edges if axis else mark.x_edges)]
        if isinstance(mark, Line | Histogram) and axis == 1:
            columns += [_floats(end) for end in (mark.low, mark.high) if end is not None]
    numbers = np.concatenate(columns)
    return numbers[np.isfinite(numbers) & (numbers > 0)]


def bin_edges(histogram: Histogram, panel: Panel) -> np.ndarray:
    """The edges; on a logarithmic axis, those at or below zero move to its floor."""
    edges = _floats(histogram.edges)
    if scales(panel)[0] == "linear":
        return edges
    return np.where(edges <= 0, positive_range(panel, 0)[0] / 2, edges)


def visible(line: Line, panel: Panel) -> Line:
    """The line, NaN where the axes cannot show it; bands end at the floor of a logarithmic axis."""
    x_scale, y_scale = scales(panel)
    x, y = _on_scale(line.x, x_scale), _on_scale(line.y, y_scale)
    if line.low is None or line.high is None:
        return dataclasses.replace(line, x=x, y=y, low=None, high=None)
    band = np.stack([_floats(line.low), _floats(line.high)])
    if y_scale == "log":
        band[band <= 0] = baseline(panel)
    band[:, ~np.isfinite(band).all(0)] = np.nan
    return dataclasses.replace(line, x=x, y=y, low=band[0], high=band[1])


@dataclasses.dataclass(frozen=True)
class HeatScale:
    """From values to colours, from 0 (dark) to 1 (light)."""

    scale: Scale
    low: float
    high: float

    def place(self, value: float) -> float:
        """NaN where the value has no colour."""
        if not np.isfinite(value) or (self.scale == "log" and value <= 0):
            return float("nan")
        change = np.log if self.scale == "log" else float
        return float((change(value) - change(self.low)) / (change(self.high) - change(self.low)))


def heat_scale(heat_map: HeatMap) -> HeatScale:
    """The range of the cells, or of all choices, widened where they are all equal."""
    values = _floats(heat_map.value if heat_map.among is None else heat_map.among)
    finite = values[np.isfinite(values)]
    positive = finite[finite > 0]
    if heat_map.scale == "log" and positive.size:
        low, high = float(positive.min()), float(positive.max())
        room = 1.1 if low == high else 1.0
        return HeatScale("log", low / room, high * room)
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    room = (abs(low) or 1.0) * 0.05 if low == high else 0.0
    return HeatScale("linear", low - room, high + room)


def level_edges(heat_map: HeatMap) -> np.ndarray | None:
    """The values at which one colour of a contour map ends and the next begins, with both ends."""
    if heat_map.levels is None:
        return None
    scale = heat_scale(heat_map)
    spaced = np.geomspace if scale.scale == "log" else np.linspace
    return spaced(scale.low, scale.high, heat_map.levels + 1)


def _floats(values: np.ndarray) -> np.ndarray:
    return np.asarray(values, dtype=float)


def _on_scale(values: np.ndarray, scale: Scale) -> np.ndarray:
    numbers = _floats(values)
    there = np.isfinite(numbers) & ((scale == "linear") | (numbers > 0))
    return np.where(there, numbers, np.nan)
