"""The faults in the order of causes, and the diagnosis of a record."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import xarray as xr

from saccade.core.errors import ConfigError
from saccade.core.record import Record
from saccade.diagnosis.diverged import Diverged
from saccade.diagnosis.epsilon_swallows import EpsilonSwallows
from saccade.diagnosis.fault import PLACES, AbstractFault, Signs
from saccade.diagnosis.future_visible import FutureVisible
from saccade.diagnosis.padding_attended import PaddingAttended
from saccade.diagnosis.part_not_trained import PartNotTrained
from saccade.diagnosis.score_growth import LargeScores, ScoreGrowth
from saccade.diagnosis.sink import Sink
from saccade.diagnosis.softmax_blind import SoftmaxBlind

FAULTS: tuple[AbstractFault, ...] = (
    Diverged(),
    PaddingAttended(),
    FutureVisible(),
    PartNotTrained(),
    EpsilonSwallows(),
    ScoreGrowth(),
    SoftmaxBlind(),
    LargeScores(),
    Sink(),
)


NUMBERED = dict(enumerate((one for one in FAULTS if not one.is_information), 1))
"""Faults by their place in the order."""


@dataclasses.dataclass(frozen=True)
class Sighting:
    """A fault that a run has."""

    fault: AbstractFault
    where: str
    """The place where its number is farthest beyond the bound."""
    value: float
    places: str
    """In how many of the places."""
    seeds: str
    """In how many of the seeds, if there are several."""


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What one arm of a record has at one step."""

    arm: str
    step: int
    found: tuple[Sighting, ...]
    """Faults, the cause first and then its consequences."""
    information: tuple[Sighting, ...]
    unchecked: tuple[tuple[AbstractFault, str], ...]
    """Faults that could not be looked for, with the reason."""

    @property
    def looked_for(self) -> set[str]:
        """Titles of the faults, information left out."""
        left_out = {fault for fault, _ in self.unchecked}
        return {one.title for one in NUMBERED.values() if one not in left_out}

    def plain(self) -> dict[str, Any]:
        """As JSON."""

        def of(one: Sighting) -> dict[str, Any]:
            names = ("title", "quantity", "bound", "why", "cause", "remedy")
            about = {name: getattr(one.fault, name) for name in names}
            places = {"where": one.where, "value": one.value, "places": one.places}
            return about | places | {"seeds": one.seeds}

        return {
            "arm": self.arm,
            "step": self.step,
            "faults": [of(one) for one in self.found],
            "information": [of(one) for one in self.information],
            "not_checked": {fault.title: why for fault, why in self.unchecked},
        }


def diagnose(record: Record, step: int | None = None) -> list[Diagnosis]:
    """Every arm in whose numbers a fault can be looked for, at its last step, or at the last before
    `step`.
    """
    arms = [name for name, arm in record.arms.items() if "step" in arm.trajectory.dims]
    found = [_of_arm(record, name, step) for name in arms]
    found = [one for one in found if one.looked_for - {Diverged.title}]  # which all records say
    if not found:
        needed = ", ".join(dict.fromkeys(name for fault in FAULTS for name in fault.needs))
        raise ConfigError(
            f"record of {record.study}: got none of the numbers in which faults show, allowed: a "
            f"record with some of {needed}"
        )
    return found


def _of_arm(record: Record, name: str, step: int | None) -> Diagnosis:
    run = record.arms[name].trajectory
    steps = run["step"].values
    if "attention_entropy" in run:  # some steps may have no numbers
        measured = run["attention_entropy"].notnull()
        there = measured.any([dim for dim in measured.dims if dim != "step"]).values
        steps = steps[there] if there.any() else steps
    at = int(steps[-1] if step is None else max([one for one in steps if one <= step], default=-1))
    if at < 0:
        raise ConfigError(f"--step: got {step}, allowed: at least {steps[0]}, the first in {name}")
    sightings: list[Sighting] = []
    unchecked: list[tuple[AbstractFault, str]] = []
    for fault in FAULTS:
        why = fault.reason_not_to_check(run, record.config)
        if why:
            unchecked.append((fault, why))
            continue
        # Of a run that diverged there is nothing to measure at its end.
        when = int(run["step"][-1]) if isinstance(fault, Diverged) and step is None else at
        one = _sighting(fault, fault.signs(run, record.config), when)
        sightings += [] if one is None else [one]
    faults = tuple(one for one in sightings if not one.fault.is_information)
    information = tuple(one for one in sightings if one.fault.is_information)
    return Diagnosis(name, at, faults, information, tuple(unchecked))


def _sighting(fault: AbstractFault, signs: Signs, step: int) -> Sighting | None:
    now = [
        one.sel(step=step) if "step" in one.dims else one for one in (signs.value, signs.present)
    ]
    value, present = xr.broadcast(*now)
    if not present.any():
        return None
    there = value.where(present)
    flat = there.argmax(...) if fault.worst == "largest" else there.argmin(...)
    chosen = value.isel(flat)  # pyright: ignore[reportArgumentType]
    # Records of trainings here number layers and heads without coordinates.
    where = [
        f"{dim} {chosen[dim].item() if dim in value.coords else int(flat[dim])}"  # pyright: ignore[reportArgumentType]
        for dim in PLACES
        if dim in value.dims
    ]
    others = [dim for dim in value.dims if dim not in PLACES]
    counts = [int(one.any(others).sum()) for one in (present, value.notnull())]
    seeds = present.sizes.get("seed", 1)
    affected = int(present.any([dim for dim in present.dims if dim != "seed"]).sum())
    return Sighting(
        fault,
        ", ".join(where),
        float(chosen),
        f"{counts[0]} of {counts[1]}" if where else "",
        f"{affected} of {seeds} seeds" if seeds > 1 else "",
    )


def strip(run: xr.Dataset, about: Mapping[str, Any]) -> xr.DataArray:
    """The first fault of every head at every step, by its number among `NUMBERED`; 0 where there is
    none. Seeds are taken together.
    """
    shape = run["attention_entropy"].isel(seed=0, drop=True)
    found = xr.zeros_like(shape)
    for number, fault in reversed(NUMBERED.items()):
        if not fault.reason_not_to_check(run, about):
            present = fault.signs(run, about).present
            others = [dim for dim in present.dims if dim not in ("step", "layer", "head")]
            found = xr.where(present.any(others), number, found)
    measured = shape.notnull()
    return found.where(measured.any("step") & (measured | (found > 0))).transpose(*shape.dims)
