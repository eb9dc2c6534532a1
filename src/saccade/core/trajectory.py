"""Reading trajectories: values at a step, and the step at which something first happens, whatever else was swept."""

from typing import Any, TypeVar

import numpy as np
import xarray as xr

DataT = TypeVar("DataT", xr.DataArray, xr.Dataset)


def at_place(values: DataT, place: Any) -> DataT:
    """Values at a place along `step` (one for all, or one a member), without the coordinates of `step`.

    They are dropped because they may differ between members, and arithmetic would then refuse or drop members.
    """
    return values.isel(step=place).drop_vars(("step", "time"), errors="ignore")


def at_start(values: DataT) -> DataT:
    return at_place(values, 0)


def fall(values: xr.DataArray) -> xr.DataArray:
    """The last value as a share of the first."""
    return at_place(values, -1) / at_start(values)


def first_step(condition: xr.DataArray, never: float = np.nan) -> xr.DataArray:
    """The first recorded step at which a condition is true, or `never`."""
    steps = at_place(condition["step"].astype(float), condition.argmax("step"))
    return steps.where(condition.any("step"), never)
