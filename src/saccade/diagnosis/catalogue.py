"""The faults in the order of causes, and the diagnosis of a record."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from saccade.diagnosis.bypassed import Bypassed
from saccade.diagnosis.diverged import Diverged
from saccade.diagnosis.epsilon_swallows import EpsilonSwallows
from saccade.diagnosis.fault import PLACES, AbstractFault, Signs
from saccade.diagnosis.future_visible import FutureVisible
from saccade.diagnosis.inactive_head import InactiveHead
from saccade.diagnosis.no_lexical_signal import NoLexicalSignal
from saccade.diagnosis.padding_attended import PaddingAttended
from saccade.diagnosis.part_not_trained import PartNotTrained
from saccade.diagnosis.rank_collapse import RankCollapse
from saccade.diagnosis.saturated import Saturated
from saccade.diagnosis.score_growth import LargeScores, ScoreGrowth
from saccade.diagnosis.scores_rounded import ScoresRounded
from saccade.diagnosis.sink import Sink
from saccade.diagnosis.softmax_blind import SoftmaxBlind
from saccade.diagnosis.values_first import ValuesFirst
from saccade.errors import ConfigError
from saccade.records.record import Record

FAULTS: tuple[AbstractFault, ...] = (
    Diverged(),
    PaddingAttended(),
    FutureVisible(),
    PartNotTrained(),
    RankCollapse(),  # gradients of queries and keys vanish with it (Noci et al. 2022)
    EpsilonSwallows(),
    ScoresRounded(),
    ScoreGrowth(),
    Saturated(),
    SoftmaxBlind(),
    ValuesFirst(),
    NoLexicalSignal(),
    Bypassed(),
    InactiveHead(),
    LargeScores(),
    Sink(),
)


NUMBERED = dict(enumerate((one for one in FAULTS if not one.is_information), 1))
"""Faults by their place in the order."""


LASTING = 3
"""Measurements in a row from which on a fault that is over is worth a line."""


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
    steps: tuple[int, int] | None = None
    """The first and the last step, of a fault that is over."""

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        names = ("title", "quantity", "bound", "why", "cause", "remedy")
        names += ("in_pytorch", "in_saccade")
        about = {name: getattr(self.fault, name) for name in names}
        over = {"steps": list(self.steps)} if self.steps else {}
        value = self.value if math.isfinite(self.value) else None  # JSON has no other numbers
        places = {"where": self.where, "value": value, "places": self.places}
        return about | places | {"seeds": self.seeds} | over


@dataclasses.dataclass(frozen=True)
class Diagnosis:
    """What one arm of a record, or one cell of its sweeps, has at one step."""

    arm: str
    step: int
    found: tuple[Sighting, ...]
    """Faults, the cause first and then its consequences."""
    information: tuple[Sighting, ...]
    unchecked: tuple[tuple[AbstractFault, str], ...]
    """Faults that could not be looked for, with the reason."""
    earlier: tuple[Sighting, ...] = ()
    """Faults that it had before, for a while, and has no longer."""
    cell: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Values of the arm's own sweeps."""

    @property
    def title(self) -> str:
        """The arm and its cell, in words."""
        where = ", ".join(f"{dim} {value:g}" for dim, value in self.cell.items())
        return f"{self.arm} ({where})" if where else self.arm

    @property
    def looked_for(self) -> set[str]:
        """Titles of the faults, information left out."""
        left_out = {fault for fault, _ in self.unchecked}
        return {one.title for one in NUMBERED.values() if one not in left_out}

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "arm": self.arm,
            "cell": dict(self.cell),
            "step": self.step,
            "faults": [one.plain() for one in self.found],
            "earlier": [one.plain() for one in self.earlier],
            "information": [one.plain() for one in self.information],
            "not_checked": {fault.title: why for fault, why in self.unchecked},
        }


def diagnose(record: Record, step: int | None = None) -> list[Diagnosis]:
    """Every arm in whose numbers a fault can be looked for, at its last step, or at the last before
    `step`; of an arm with sweeps, every cell.
    """
    arms = {name: arm.trajectory for name, arm in record.arms.items()}
    arms = {name: run for name, run in arms.items() if "step" in run.dims}
    found = [
        dataclasses.replace(_of_run(cell, name, record.config, step), cell=where)
        for name, run in arms.items()
        for where, cell in _cells(run)
    ]
    found = [one for one in found if one.looked_for - {Diverged.title}]  # which all records say
    if not found:
        needed = ", ".join(dict.fromkeys(name for fault in FAULTS for name in fault.needs))
        raise ConfigError(
            f"record of {record.study}: got none of the numbers in which faults show, allowed: a "
            f"record with some of {needed}"
        )
    return found


def _cells(run: xr.Dataset) -> list[tuple[dict[str, float], xr.Dataset]]:
    """The cells of an arm's own sweeps, with their values."""
    dims = run["loss"].dims if "loss" in run else ()
    swept = [str(dim) for dim in dims if dim not in ("seed", "step")]
    cells = []
    for place in np.ndindex(*(run.sizes[dim] for dim in swept)):
        cell = run.isel(dict(zip(swept, place, strict=True)))
        cells.append(({dim: float(cell[dim]) for dim in swept}, cell))
    return cells


def _of_run(
    run: xr.Dataset, name: str, about: Mapping[str, Any], step: int | None = None
) -> Diagnosis:
    steps = run["step"].values
    if "attention_entropy" in run:  # some steps may have no numbers
        measured = run["attention_entropy"].notnull()
        there = measured.any([dim for dim in measured.dims if dim != "step"]).values
        steps = steps[there] if there.any() else steps
    at = int(steps[-1] if step is None else max([one for one in steps if one <= step], default=-1))
    if at < 0:
        raise ConfigError(f"--step: got {step}, allowed: at least {steps[0]}, the first in {name}")
    now: list[Sighting] = []
    earlier: list[Sighting] = []
    unchecked: list[tuple[AbstractFault, str]] = []
    for fault in FAULTS:
        why = fault.reason_not_to_check(run, about)
        if why:
            unchecked.append((fault, why))
            continue
        # Of a run that diverged there is nothing to measure at its end.
        when = at
        if isinstance(fault, Diverged):
            when = max(int(one) for one in run["step"].values if step is None or one <= step)
        signs = fault.signs(run, about)
        one = _sighting(fault, signs, when)
        now += [] if one is None else [one]
        if one is None and not fault.is_information:
            earlier += _before(fault, signs, at)
    faults = tuple(one for one in now if not one.fault.is_information)
    information = tuple(one for one in now if one.fault.is_information)
    return Diagnosis(name, at, faults, information, tuple(unchecked), tuple(earlier))


def _before(fault: AbstractFault, signs: Signs, step: int) -> list[Sighting]:
    """The fault at the last of at least `LASTING` measurements in a row in which half of the seeds
    had it, if there were such; not at the first step, where nothing has been learned.
    """
    if "step" not in signs.present.dims:
        return []
    present = signs.present.any([dim for dim in signs.present.dims if dim in PLACES])
    others = [dim for dim in present.dims if dim != "step"]
    present = present.mean(others) >= 0.5
    steps = [int(one) for one in present["step"].values if 0 < one <= step]
    runs: list[list[int]] = [[]]
    for one in steps:
        if bool(present.sel(step=one)):
            runs[-1].append(one)
        elif runs[-1]:
            runs.append([])
    longest = max(runs, key=len)
    if len(longest) < LASTING:
        return []
    found = _sighting(fault, signs, longest[-1])
    assert found is not None
    return [dataclasses.replace(found, steps=(longest[0], longest[-1]))]


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


def causes(run: xr.Dataset, about: Mapping[str, Any]) -> xr.DataArray:
    """The first fault of every run at every step, by its number among `NUMBERED`; 0 where there is
    none. Faults that only show in all seeds together are left out.
    """
    found = xr.zeros_like(run["loss"], dtype=int)
    for number, fault in reversed(NUMBERED.items()):
        if not fault.of_all_seeds and not fault.reason_not_to_check(run, about):
            present = fault.signs(run, about).present
            present = present.any([dim for dim in present.dims if dim in PLACES])
            found = xr.where(present, number, found)
    return found.transpose(*run["loss"].dims)


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
