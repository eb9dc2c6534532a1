"""Reading trajectories: values at a step, and the step at which a condition first holds."""

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from saccade.records.record import Arm

DataT = TypeVar("DataT", xr.DataArray, xr.Dataset)


def only(arms: Mapping[str, Arm]) -> Arm:
    """The arm of a check that names a single one."""
    (arm,) = arms.values()
    return arm


def at_place(values: DataT, place: Any) -> DataT:
    """Values at a place along `step` (one for all, or one per member), without its coordinates.

    Coordinates may differ between members; arithmetic would then refuse or drop members.
    """
    return values.isel(step=place).drop_vars(("step", "time"), errors="ignore")


def at_start(values: DataT) -> DataT:
    return at_place(values, 0)


def fall(values: xr.DataArray) -> xr.DataArray:
    """The last value divided by the first."""
    return at_place(values, -1) / at_start(values)


def first_step(condition: xr.DataArray, never: float = np.nan) -> xr.DataArray:
    """The first recorded step at which a condition is true, or `never`."""
    steps = at_place(condition["step"].astype(float), condition.argmax("step"))
    return steps.where(condition.any("step"), never)


def half_rise(values: xr.DataArray) -> xr.DataArray:
    """The step at which a quantity is halfway between its first and its last value, interpolated
    linearly between recorded steps. NaN for a member that does not rise.
    """
    way = values - at_start(values)
    whole = at_place(way, -1)
    share = way / whole.where(whole > 0)
    steps = values["step"].astype(float)
    there = share >= 0.5
    after = there.argmax("step")
    before = (after - 1).clip(0)
    (x1, y1), (x0, y0) = (
        (at_place(steps, place), at_place(share, place)) for place in (after, before)
    )
    return (x0 + (x1 - x0) * (0.5 - y0) / (y1 - y0).where(y1 > y0)).where(whole > 0)
