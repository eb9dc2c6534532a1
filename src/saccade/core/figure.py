"""Figures as data: what is drawn, not how. `saccade.report` turns them into PNG, PDF and the page's
charts.

A mark says whether it was measured or predicted, and the report draws that difference: measurement
is solid and coloured, with a band over seeds; theory is black and dashed.
"""

import dataclasses
from typing import Literal

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
            raise ConfigError(
                f"line {self.label}: got {len(self.x)} x and {len(self.y)} y, allowed: equally many"
            )


@dataclasses.dataclass(frozen=True, eq=False)
class Histogram:
    """Fraction per bin, with the range over seeds."""

    label: str
    edges: np.ndarray
    share: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class HeatMap:
    """A value for every (x, y) cell; NaN where there is none. Small ones show their numbers, so
    that they serve as tables.
    """

    label: str
    x: np.ndarray
    """Numbers or names of the columns."""
    y: np.ndarray
    """Numbers or names of the rows."""
    value: np.ndarray
    """Rows are y, columns are x."""
    scale: Scale = "linear"
    numbered: bool = True
    """Whether a small one shows its numbers; False where only the pattern matters."""


Mark = Line | Histogram | HeatMap


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
    """Some panels under one title."""

    name: str
    """File name without ending."""
    title: str
    caption: str
    panels: tuple[Panel, ...]


def over_seeds(
    label: str, x: xr.DataArray | np.ndarray, y: xr.DataArray, role: Role = "measured"
) -> Line:
    """The mean over seeds, with a band from the smallest to the largest; NaN are left out."""
    other = [dim for dim in y.dims if dim != "seed"]
    if len(other) != 1:
        raise ConfigError(f"line {label}: got dims {y.dims}, allowed: seed and one more")
    mean = y.mean("seed")
    several = y.sizes["seed"] > 1
    band = (y.min("seed").values, y.max("seed").values) if several else (None, None)
    return Line(label, np.asarray(x, float), mean.values, *band, role=role)
