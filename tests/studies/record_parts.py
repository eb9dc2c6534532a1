"""Parts of which records are made by hand: datasets spread over seeds and steps, and the record
around them.
"""

from typing import Any

import numpy as np
import xarray as xr

from saccade.core.lab import describe
from saccade.core.record import Arm, Record

SEEDS = 5


def record_of(study: str, config: Any, arms: dict[str, Arm]) -> Record:
    plain = describe(config) | {"sweeps": {}}
    plain.pop("class")
    return Record(study, "synthetic", plain, arms, {"saccade": "0"}, "none", "float64", 0.0)


def along(
    steps: Any,
    sweep: dict[str, Any] | None = None,
    inner: dict[str, Any] | None = None,
    seeds: int = SEEDS,
    **variables: Any,
) -> xr.Dataset:
    """A dataset whose variables are DataArrays with some of the dims (sweep), seed, step, and
    inner ones; the rest is spread.
    """
    outer: dict[str, Any] = {**(sweep or {}), "seed": np.arange(seeds)}
    coordinates = {**outer, "step": np.asarray(steps), **(inner or {})}
    members = xr.DataArray(np.ones([len(values) for values in outer.values()]), outer, list(outer))
    each = members * xr.DataArray(
        np.ones(len(coordinates["step"])), {"step": coordinates["step"]}, ["step"]
    )
    data: dict[str, Any] = {"diverged_at": (-members).astype(int)}
    for name, value in variables.items():
        value = value if isinstance(value, xr.DataArray) else xr.DataArray(value)
        kept = [dim for dim in value.dims if dim not in each.dims]
        data[name] = (each * value.drop_vars("time", errors="ignore")).transpose(*each.dims, *kept)
    return xr.Dataset(data, coordinates).assign_coords(time=("step", 0.1 * np.asarray(steps)))


def on(dim: str, coordinates: Any, values: Any) -> xr.DataArray:
    return xr.DataArray(np.asarray(values, float), {dim: list(coordinates)}, [dim])
