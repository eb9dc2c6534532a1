"""Parts of which records are made by hand, and edits that break them."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from saccade.judging.claim import Check, Claim, Judgement
from saccade.records.config import describe
from saccade.records.record import Arm, Record
from saccade.registry import find_study

SEEDS = 5
PARTS = ("trajectory", "snapshot", "prediction")


def record_of(study: str, config: Any, arms: dict[str, Arm]) -> Record:
    plain = describe(config) | {"sweeps": {}}
    plain.pop("class")
    return Record(study, "synthetic", plain, arms, {"saccade": "0"}, "none", "float64", 0.0)


def along(
    steps: Any,
    sweep: dict[str, Any] | None = None,
    inner: dict[str, Any] | None = None,
    seeds: int = SEEDS,
    /,
    **variables: Any,
) -> xr.Dataset:
    """A dataset whose variables are DataArrays with some of the dims (sweep), seed, step, and inner
    ones; they are broadcast along the rest of the first three.
    """
    outer: dict[str, Any] = {**(sweep or {}), "seed": np.arange(seeds)}
    coordinates = {**outer, "step": np.asarray(steps), **(inner or {})}
    members = xr.DataArray(np.ones([len(values) for values in outer.values()]), outer, list(outer))
    each = members * on("step", coordinates["step"], np.ones(len(coordinates["step"])))
    data: dict[str, Any] = {"diverged_at": (-members).astype(int)}
    for name, value in variables.items():
        value = value if isinstance(value, xr.DataArray) else xr.DataArray(value)
        kept = [dim for dim in value.dims if dim not in each.dims]
        data[name] = (each * value.drop_vars("time", errors="ignore")).transpose(*each.dims, *kept)
    return xr.Dataset(data, coordinates).assign_coords(time=("step", 0.1 * np.asarray(steps)))


def on(dim: str, coordinates: Any, values: Any) -> xr.DataArray:
    return xr.DataArray(np.asarray(values, float), {dim: list(coordinates)}, [dim])


def per_seed(seeds: int = SEEDS) -> xr.DataArray:
    """Factors that make seeds differ a little."""
    return on("seed", range(seeds), 1 + 0.01 * np.arange(seeds))


def trained(trajectory: xr.Dataset) -> Arm:
    """An arm without snapshots and theory."""
    return Arm(trajectory)


def judged(record: Record) -> dict[str, Judgement]:
    """Judgements by claim."""
    return {judgement.claim: judgement for judgement in find_study(record.study).judge(record)}


def checks_of(claim: Claim) -> tuple[Check, ...]:
    return claim.checks  # pyright: ignore[reportReturnType] (a tuple once the claim is made)


def altered(config: Any, **changes: Any) -> Any:
    """A config with fields replaced by name, also those of nested configs."""
    own = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in changes:
            own[field.name] = changes[field.name]
        elif dataclasses.is_dataclass(value):
            own[field.name] = altered(value, **changes)
    return dataclasses.replace(config, **own)


# -- edits of a record -----------------------------------------------------------------------------

Change = Callable[[xr.DataArray], Any]
Edit = Callable[[Record], Record]
Refutations = Mapping[str, Sequence[Edit | tuple[Edit, ...]]]
"""For every claim, and each of its checks in order: one or more edits that break it."""


def change(arms: str, variable: str, edit: Change, part: str = "trajectory") -> Edit:
    """Replace one variable in some arms (names separated by spaces) by a function of itself."""

    def edited(record: Record) -> Record:
        changed = dict(record.arms)
        for name in arms.split():
            dataset = getattr(changed[name], part)
            values = dataset[variable].copy(deep=True)
            replaced = dataset.assign({variable: edit(values)})
            changed[name] = dataclasses.replace(changed[name], **{part: replaced})
        return dataclasses.replace(record, arms=changed)

    return edited


def at_end(arms: str, variable: str, edit: Change) -> Edit:
    """The same for a snapshot."""
    return change(arms, variable, edit, "snapshot")


def swap(first: str, second: str) -> Edit:
    """Exchange two arms."""

    def edited(record: Record) -> Record:
        exchanged = {first: record.arms[second], second: record.arms[first]}
        return dataclasses.replace(record, arms={**record.arms, **exchanged})

    return edited


def both(first: Edit, second: Edit) -> Edit:
    return lambda record: second(first(record))


def without(record: Record, *names: str) -> Record:
    """The record of a run that left out some arms."""
    kept = {name: arm for name, arm in record.arms.items() if name not in names}
    return dataclasses.replace(record, arms=kept)


def diverge(arm: str, seed: int = 2) -> Edit:
    """One seed of an arm stops being finite halfway, as the lab records it."""

    def edited(record: Record) -> Record:
        trajectory = record.arms[arm].trajectory
        step, lost = trajectory["step"], trajectory["seed"] == seed
        at = int(step[len(step) // 2])
        floats = {
            name: values.where(~(lost & (step >= at)))
            for name, values in trajectory.items()
            if "step" in values.dims
        }
        marked = trajectory["diverged_at"].where(~lost, at)
        changed = trajectory.assign({**floats, "diverged_at": marked})
        arms = {**record.arms, arm: dataclasses.replace(record.arms[arm], trajectory=changed)}
        return dataclasses.replace(record, arms=arms)

    return edited


# -- changes of a variable -------------------------------------------------------------------------


def times(factor: float) -> Change:
    return lambda values: factor * values


def plus(amount: float) -> Change:
    return lambda values: values + amount


def power(exponent: float) -> Change:
    return lambda values: values**exponent


def set_to(value: float) -> Change:
    return lambda values: xr.full_like(values, value)


def one_seed(edit: Change, seed: int = 2) -> Change:
    """The same change for a single seed."""
    return lambda values: values.where(values["seed"] != seed, edit(values))


def at(edit: Change, **place: Any) -> Change:
    """The same change at one coordinate only."""
    ((dim, value),) = place.items()
    return lambda values: values.where(values[dim] != value, edit(values))


def after(step: int, edit: Change) -> Change:
    return lambda values: values.where(values["step"] <= step, edit(values))


def once_trained(edit: Change) -> Change:
    """The change for one seed, everywhere but at step 0."""
    return one_seed(lambda values: values.where(values["step"] == 0, edit(values)))


def reversed_along(dim: str) -> Change:
    return lambda values: values.copy(data=values.isel({dim: slice(None, None, -1)}).values)


def steeper(dim: str, exponent: float) -> Change:
    return lambda values: values * values[dim].clip(min=1e-9) ** exponent


def fails_until(step: float) -> Change:
    """The initial value until a step, and the largest from then on."""
    return lambda values: xr.where(
        values["step"] < step, values.isel(step=0, drop=True), values.max("step")
    ).transpose(*values.dims)


def alike(**place: Any) -> Change:
    """The values of one coordinate, at all of them."""
    ((dim, value),) = place.items()
    return lambda values: values.where(values[dim] == value, values.sel({dim: value}, drop=True))
