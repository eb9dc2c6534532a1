"""Remedies, tried: a study's run goes on from its last weights under each, and without any.

The trainings of a study are taken from the cache (or trained anew). Arms with a fault are trained
for some more steps: as they were, and with each remedy that the first fault knows. All begin with
the same weights and a fresh optimiser. What is compared is the time to half of the way from the
loss at which they begin to the least that any of them reaches, in each seed; a run that does not
get there counts with all its steps.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.lab import Lab, Training
from saccade.core.recording import Recording
from saccade.core.study import Study
from saccade.diagnosis.catalogue import Diagnosis, diagnose
from saccade.diagnosis.diverged import Diverged
from saccade.diagnosis.fault import AbstractFault
from saccade.diagnosis.setup import Setup
from saccade.errors import ConfigError, SaccadeError
from saccade.judging.statistics import t_interval
from saccade.records.record import Record
from saccade.records.schedule import Every
from saccade.settings import with_sweep

POINTS = 50
"""Measurements of a run that goes on."""
CONTROL = "as it was"
SEEDS = 3
"""Fewest seeds for a word on a remedy."""


FALL = 0.05
"""Share of the first loss that some run must lose, for times to mean anything."""


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What one remedy did."""

    arm: str
    fault: AbstractFault
    remedy: str
    loss: float
    """At the end, mean over the seeds that have one."""
    ratio: float = float("nan")
    """Time with it over time without, geometric mean over seeds."""
    low: float = float("nan")
    high: float = float("nan")
    seeds: int = 0
    reached: int = 0
    """Seeds that reach the goal."""
    control_reached: int = 0
    """Seeds that reach it without a remedy."""
    diverged: int = 0
    problem: str = ""
    """Why it could not be tried."""

    @property
    def is_bound(self) -> bool:
        """Whether the ratio is at most this: the run without a remedy did not get there."""
        return self.control_reached < self.seeds and self.remedy != CONTROL

    @property
    def verdict(self) -> str:
        if self.problem:
            return f"not tried: {self.problem}"
        lost = f"; {self.diverged} of {self.seeds} seeds diverged" if self.diverged else ""
        got = f"{self.reached} of {self.seeds} seeds get there"
        if self.remedy == CONTROL:
            return f"for comparison: {got}{lost}"
        if self.seeds < SEEDS:
            return f"undetermined: {self.seeds} seeds, {SEEDS} needed"
        if not self.reached and not self.control_reached:
            return f"neither gets there{lost}"
        if self.high < 1:
            return f"shortens the plateau: {got}{lost}"
        word = "lengthens it" if self.low > 1 else "no difference beyond that of seeds"
        return f"{word}: {got}{lost}"

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        numbers = {name: getattr(self, name) for name in ("loss", "ratio", "low", "high")}
        numbers = {name: one if np.isfinite(one) else None for name, one in numbers.items()}
        names = {"arm": self.arm, "fault": self.fault.title, "remedy": self.remedy}
        counts = {name: getattr(self, name) for name in ("seeds", "reached", "control_reached")}
        return names | numbers | counts | {"at_most": self.is_bound, "verdict": self.verdict}


@dataclasses.dataclass
class _Recalling(Lab):
    """A lab that remembers how each training was called."""

    calls: dict[str, tuple[Setup, Training, Mapping[str, Any]]] = dataclasses.field(
        default_factory=dict
    )

    def train(self, task: Any, model: Any, optimiser: Any, steps: int, *more: Any, **how: Any):
        training = super().train(task, model, optimiser, steps, *more, **how)
        setup = Setup(task, model, optimiser, steps=steps)
        for path, values in (how.get("sweep") or {}).items():
            dims = {path, path.partition(".")[2]} & {*map(str, training.trajectory["loss"].dims)}
            setup = with_sweep(setup, path, values, dims.pop())
        kept = ("batches", "loss", "frozen", "seeds")
        how = {name: how[name] for name in kept if name in how}
        self.calls[training.digest] = (setup, training, how)
        return training


def tried(record: Record, study: Study[Any], lab: Lab, steps: int | None) -> Iterator[Attempt]:
    """Every remedy of the first fault, for every arm of a record, and cell of its sweeps, that has
    one.
    """
    found: dict[tuple[str, AbstractFault], list[Diagnosis]] = {}
    for one in diagnose(record):
        if one.found:
            found.setdefault((one.arm, one.found[0].fault), []).append(one)
    if not found:
        raise ConfigError(f"--try: got no fault in the record of {record.study}, allowed: one")
    same = {one.name: getattr(lab, one.name) for one in dataclasses.fields(Lab) if one.init}
    recalling = _Recalling(**same)
    arms = study.experiment(study.config_of(record), recalling)
    for (name, fault), cells in found.items():
        digest = arms[name].trajectory.attrs.get("digest", "") if name in arms else ""
        if digest not in recalling.calls:
            yield Attempt(name, fault, "", np.nan, problem="the arm is not that of one training")
            continue
        yield from _of_arm(fault, cells, *recalling.calls[digest], lab, steps)


def _of_arm(
    fault: AbstractFault,
    cells: Sequence[Diagnosis],
    setup: Setup,
    training: Training,
    how: Mapping[str, Any],
    lab: Lab,
    steps: int | None,
) -> Iterator[Attempt]:
    name = cells[0].arm
    length = setup.steps if steps is None else steps
    remedies = fault.to_try(setup)
    if not remedies:
        why = "no remedy of this fault is a setting of this model or optimiser"
        yield Attempt(name, fault, "", np.nan, problem=why)
        return
    losses: dict[str, xr.DataArray] = {}
    problems: dict[str, str] = {}
    for remedy, changed in {CONTROL: setup, **remedies}.items():
        try:
            going = lab.train(
                changed.task,
                changed.model,
                changed.optimiser,
                length,
                Recording(at=Every(max(1, length // POINTS))),
                # From weights that are no numbers nothing can go on: such runs begin anew.
                start=None if isinstance(fault, Diverged) else training,
                name=f"{name}, {remedy}",
                **({"seeds": training.trajectory["seed"].values.tolist()} | dict(how)),
            )
            losses[remedy] = going.trajectory["loss"]
        except SaccadeError as error:  # the remedy does not fit this model
            if remedy == CONTROL:
                raise
            problems[remedy] = str(error)
    for one in cells:
        some = {remedy: loss.sel(one.cell) for remedy, loss in losses.items()}
        yield from _compared(one.title, fault, some)
    for remedy, why in problems.items():
        yield Attempt(name, fault, remedy, np.nan, problem=why)


def _compared(
    name: str, fault: AbstractFault, losses: Mapping[str, xr.DataArray]
) -> Iterator[Attempt]:
    """Times with and without each remedy, seed by seed."""
    start = losses[CONTROL].isel(step=0, drop=True)
    least = xr.concat([one.min("step") for one in losses.values()], "remedy").min("remedy")
    # Without a fall there is no goal, and nobody gets there.
    goal = ((start + least) / 2).where(start - least > FALL * abs(start))
    times = {remedy: _time(one, goal) for remedy, one in losses.items()}
    control, control_there = times[CONTROL]
    for remedy, one in losses.items():
        time, there = times[remedy]
        last = one.isel(step=-1)
        counts = (goal.size, int(there.sum()), int(control_there.sum()), int(last.isnull().sum()))
        about = (name, fault, remedy, float(last.mean()))
        if remedy == CONTROL:
            yield Attempt(*about, math.nan, math.nan, math.nan, *counts)
            continue
        logs = np.log(time / control)
        low, high = (float(edge) for edge in np.exp(t_interval(logs)))
        yield Attempt(*about, float(np.exp(logs.mean())), low, high, *counts)


def _time(loss: xr.DataArray, goal: xr.DataArray) -> tuple[np.ndarray, np.ndarray]:
    """First step at which a run is at its goal, the last one if it never is; and whether it is."""
    there = (loss <= goal).transpose("seed", "step").values
    steps = loss["step"].values.astype(float)
    reached = np.asarray(there.any(1))
    first = np.where(reached, steps[there.argmax(1)], steps[-1])
    return np.maximum(first, steps[1] if len(steps) > 1 else 1.0), reached
