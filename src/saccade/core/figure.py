"""Figures as data: what is drawn, not how. `saccade.report` draws them.

Measurement is solid and coloured, with a band over seeds; theory is black and dashed.
"""

import dataclasses
from typing import ClassVar, Literal

import numpy as np
import xarray as xr

from saccade.core.errors import ConfigError

Role = Literal["measured", "theory", "reference"]
Scale = Literal["linear", "log"]


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """A curve, with an optional band."""

    label: str
    x: np.ndarray
    y: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    role: Role = "measured"

    def __post_init__(self):
        if len(self.x) != len(self.y):
            got = f"{len(self.x)} x and {len(self.y)} y"
            raise ConfigError(f"line {self.label}: got {got}, allowed: equally many")


@dataclasses.dataclass(frozen=True, eq=False)
class Histogram:
    """Fraction per bin, with the range over seeds."""

    label: str
    edges: np.ndarray
    share: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    role: ClassVar[Role] = "measured"


@dataclasses.dataclass(frozen=True, eq=False)
class HeatMap:
    """A value for every (x, y) cell, NaN where there is none; a small one serves as a table."""

    label: str
    x: np.ndarray
    y: np.ndarray
    """Numbers or names of the columns (x) and rows (y)."""
    value: np.ndarray
    scale: Scale = "linear"
    numbered: bool = True
    """Whether a small one shows its numbers; False where only the pattern matters."""
    levels: int | None = None
    """Number of colours, as in a contour map; None: they change smoothly."""
    texts: np.ndarray | None = None
    """What the cells of a small one show instead of their numbers, such as numbers with intervals.
    """


@dataclasses.dataclass(frozen=True, eq=False)
class Regions:
    """Which of a few kinds holds where in the plane, and at which points that was found. Kinds
    differ by colour, by hatch and by the symbol of their points.
    """

    kinds: tuple[str, ...]
    x_edges: np.ndarray
    y_edges: np.ndarray
    """Edges of columns and rows, ascending."""
    kind: np.ndarray
    """Place of the kind of every (row, column) among the kinds."""
    x: np.ndarray
    y: np.ndarray
    found: np.ndarray
    """The points, and the places of their kinds."""


Mark = Line | Histogram | HeatMap | Regions


@dataclasses.dataclass(frozen=True)
class Panel:
    """One set of axes."""

    title: str
    x_label: str
    y_label: str
    marks: tuple[Mark, ...]
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"


@dataclasses.dataclass(frozen=True)
class Figure:
    """Panels under one title; the name is that of the file, without ending."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]


def over_seeds(
    label: str, x: xr.DataArray | np.ndarray, y: xr.DataArray, role: Role = "measured"
) -> Line:
    """The mean over seeds, with a band from the smallest to the largest; NaN are left out."""
    if len(set(y.dims) - {"seed"}) != 1:
        raise ConfigError(f"line {label}: got dims {y.dims}, allowed: seed and one more")
    several = y.sizes["seed"] > 1
    band = (y.min("seed").values, y.max("seed").values) if several else (None, None)
    return Line(label, np.asarray(x, float), y.mean("seed").values, *band, role=role)


def curve(label: str, values: xr.DataArray, role: Role = "measured") -> Line:
    """Values along their own dim; with seeds, the mean and the band over them."""
    (dim,) = (dim for dim in values.dims if dim != "seed")
    if "seed" in values.dims:
        return over_seeds(label, values[dim], values, role)
    return Line(label, values[dim].values, values.values, role=role)


def level(label: str, ends: tuple[float, float], value: float, role: Role = "reference") -> Line:
    """A horizontal line between two x."""
    return Line(label, np.asarray(ends, float), np.full(2, value, float), role=role)
