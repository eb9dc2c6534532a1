"""Figures as data: what is drawn, not how. `saccade.report` draws them.

Measurement is solid and coloured, with a band over seeds; theory is black and dashed.
"""

import dataclasses
from typing import Any, ClassVar, Literal

import numpy as np
import xarray as xr

from saccade.errors import ConfigError

Role = Literal["measured", "theory", "reference"]
Scale = Literal["linear", "log"]


@dataclasses.dataclass(frozen=True, eq=False)
class Line:
    """A curve, with an optional band."""

    label: str
    x: np.ndarray
    y: np.ndarray
    """In a figure with a choice, x and y may have a first axis for what is chosen."""
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    role: Role = "measured"
    seeds: tuple[int, ...] = ()
    """The seeds behind the curve; the page highlights one of them."""
    by_seed: np.ndarray | None = None
    """Their curves, one row per seed."""

    def __post_init__(self):
        x, y = np.shape(self.x)[-1:], np.shape(self.y)[-1:]
        if x != y:
            got = f"{np.size(self.x)} x and {np.size(self.y)} y"
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
    """By row and column; in a figure with a choice, the first axis may be for what is chosen."""
    scale: Scale = "linear"
    numbered: bool = True
    """Whether a small one shows its numbers; False where only the pattern matters."""
    levels: int | None = None
    """Number of colours, as in a contour map; None: they change smoothly."""
    texts: np.ndarray | None = None
    """What the cells of a small one show instead of their numbers, such as numbers with intervals.
    """
    among: np.ndarray | None = None
    """Numbers whose range is that of the colours; None: the cells' own."""


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
class Choice:
    """What the reader of the page chooses: one of some names, such as training steps by a slider or
    words by typing them.
    """

    label: str
    names: tuple[str, ...]
    at: int = 0
    """Place of the name that is shown first."""
    by: Literal["slider", "search"] = "slider"
    notes: tuple[str, ...] = ()
    """What the page says about each name; empty for nothing."""

    def __post_init__(self):
        if not self.names or not 0 <= self.at < len(self.names):
            got = f"place {self.at} of {len(self.names)} names"
            raise ConfigError(f"choice {self.label}: got {got}, allowed: the place of a name")
        if self.notes and len(self.notes) != len(self.names):
            got = f"{len(self.notes)} notes for {len(self.names)} names"
            raise ConfigError(f"choice {self.label}: got {got}, allowed: one per name")

    @staticmethod
    def of_steps(steps: np.ndarray) -> "Choice":
        """A slider over training steps; the last one is shown first."""
        return Choice("step", tuple(str(int(step)) for step in steps), len(steps) - 1)


@dataclasses.dataclass(frozen=True)
class Figure:
    """Panels under one title; the name is that of the file, without ending."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    choice: Choice | None = None
    """Lines and heat maps may differ by what is chosen."""

    def at(self, place: int) -> "Figure":
        """The figure of one choice."""
        panels = [
            dataclasses.replace(panel, marks=tuple(_at(mark, place) for mark in panel.marks))
            for panel in self.panels
        ]
        return dataclasses.replace(self, panels=tuple(panels), choice=None)

    def still(self) -> "Figure":
        """The figure on paper: four steps of a slider as panels of their own, and what a search
        shows first.
        """
        if (choice := self.choice) is None:
            return self
        last = len(choice.names) - 1
        places = [choice.at]
        if choice.by == "slider":
            places = np.unique(np.linspace(0, last, min(last + 1, 4)).round().astype(int)).tolist()
        drawn = [(f"{choice.label} {choice.names[at]}", self.at(at).panels) for at in places]
        panels = [
            dataclasses.replace(panels[place], title=", ".join(filter(None, (title, where))))
            for place, title in enumerate(panel.title for panel in self.panels)
            for where, panels in drawn
        ]
        return dataclasses.replace(self, panels=tuple(panels), choice=None)


def _at(mark: Mark, place: int) -> Mark:
    """The mark of one choice: arrays with one axis more than the mark needs are indexed."""
    axes = {Line: {"x": 1, "y": 1}, HeatMap: {"value": 2}}.get(type(mark), {})
    fixed: dict[str, Any] = {
        name: np.asarray(getattr(mark, name))[place]
        for name, needed in axes.items()
        if np.ndim(getattr(mark, name)) > needed
    }
    if "value" in fixed:  # one colour scale for all choices
        fixed["among"] = np.asarray(mark.value)  # pyright: ignore[reportAttributeAccessIssue]
    return dataclasses.replace(mark, **fixed) if fixed else mark


def over_seeds(
    label: str, x: xr.DataArray | np.ndarray, y: xr.DataArray, role: Role = "measured"
) -> Line:
    """The mean over seeds, with a band from the smallest to the largest; NaN are left out."""
    if len(set(y.dims) - {"seed"}) != 1:
        raise ConfigError(f"line {label}: got dims {y.dims}, allowed: seed and one more")
    mean = y.mean("seed").values
    if y.sizes["seed"] == 1:
        return Line(label, np.asarray(x, float), mean, role=role)
    (other,) = set(y.dims) - {"seed"}
    band = y.min("seed").values, y.max("seed").values
    seeds = tuple(int(seed) for seed in y["seed"].values)
    each = y.transpose("seed", other).values
    return Line(label, np.asarray(x, float), mean, *band, role, seeds, each)


def curve(label: str, values: xr.DataArray, role: Role = "measured") -> Line:
    """Values along their own dim; with seeds, the mean and the band over them."""
    (dim,) = (dim for dim in values.dims if dim != "seed")
    if "seed" in values.dims:
        return over_seeds(label, values[dim], values, role)
    return Line(label, values[dim].values, values.values, role=role)


def level(label: str, ends: tuple[float, float], value: float, role: Role = "reference") -> Line:
    """A horizontal line between two x."""
    return Line(label, np.asarray(ends, float), np.full(2, value, float), role=role)
