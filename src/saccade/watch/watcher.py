"""A run that is watched: measurements along training, and the record that they make."""

import dataclasses
import importlib.metadata
import logging
import math
import re
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import Tensor, nn

from saccade.errors import ConfigError, SaccadeError, described
from saccade.records.config import describe
from saccade.records.record import Arm, Record
from saccade.records.schedule import AbstractSchedule, AtSteps, Logarithmic
from saccade.records.variable import Variable
from saccade.version import __version__
from saccade.watch.capture import ROOT, CaptureError, looks_like_attention
from saccade.watch.measuring import Measurement, NotFiniteError, Probe, Settings, measure
from saccade.watch.quantities import (
    ARM,
    ERROR,
    NAME,
    PAPER,
    PER_HEAD,
    PER_PART,
    TITLE,
    VARIABLES,
    WatchedRun,
)
from saccade.watch.quiet import unwrapped
from saccade.watch.weights import PARTS, Weights, added_norms, copied, norms, weights_of

log = logging.getLogger("saccade.watch")

HORIZON = 100_000
"""Steps over which a schedule is spread if their number is not given; then ten times as many."""


class Watch:
    """Measures a model along its training, and never changes it.

    It measures at once (step 0), refuses a model that it cannot measure faithfully, and from then
    on at the steps of the schedule. After each measurement the record is written, so that a run
    that breaks off leaves one.

        run = Watch(model, probe=batch)
        for batch in batches:
            ...
            run.step(loss)
        run.finish()

    `probe` is a dict of the model's arguments (with labels, if the model gives its loss), a tensor
    or tuple of arguments with `loss` (a function of what the model gives), or a function of the
    model that gives loss and outputs. `ids` and `words` (True where there is a word) say what the
    sequences are if the batch has no `input_ids` and `attention_mask`. With `steps`, the length of
    the run, a schedule such as Logarithmic(40) is spread over it, else over 100,000 steps. With the
    `optimiser`, Adam's epsilon is compared with the gradients. `causal` says that no query should
    see a later position; by default whether none does at the first step.
    """

    def __init__(
        self,
        model: nn.Module,
        probe: Any,
        every: AbstractSchedule = Logarithmic(40),  # noqa: B008 (frozen)
        *,
        steps: int | None = None,
        loss: Callable[[Any], Tensor] | None = None,
        ids: Tensor | None = None,
        words: Tensor | None = None,
        optimiser: torch.optim.Optimizer | None = None,
        causal: bool | None = None,
        output: str | Path | None = Path("runs/watched/record.nc"),
        name: str = "",
        rows: int = 128,
        gradients: bool = True,
        ablations: bool = False,
        autocast: torch.dtype | None = None,
        is_attention: Callable[[str, nn.Module], bool] = looks_like_attention,
        first: int = 0,
    ):
        if not isinstance(model, nn.Module):
            raise ConfigError(f"model: got {type(model).__name__}, allowed: a torch.nn.Module")
        if not isinstance(every, AbstractSchedule):
            allowed = "a schedule such as Logarithmic(40) or Every(100)"
            raise ConfigError(f"every: got {every!r}, allowed: {allowed}")
        for field, count in (("rows", rows), ("steps", steps)):
            if count is not None and (not isinstance(count, int | np.integer) or count < 1):
                raise ConfigError(f"{field}: got {count!r}, allowed: a whole number, at least 1")
        self._model = unwrapped(model)
        self._probe = Probe(probe, loss, ids, words)
        self._settings = Settings(rows, gradients, ablations, autocast, is_attention)
        self._every, self._total, self._optimiser = every, steps, optimiser
        self._output = None if output is None else Path(output)
        self._name, self._causal = name, causal
        self._horizon = steps if steps is not None else HORIZON
        if steps is None and isinstance(every, AtSteps):
            self._horizon = max(every.at, default=0)
        self._due = set(every.steps(self._horizon).tolist())
        self.steps = first
        """Steps that were made."""
        self.seconds = 0.0
        """Time spent on measuring."""
        self._found: Measurement
        """The first measurement."""
        self._measured: dict[int, dict[str, np.ndarray]] = {}
        """Step -> variable -> its values."""
        self._losses: dict[int, float] = {}
        self._diverged: int | None = None
        self._problems: dict[int, str] = {}
        self._weights: dict[str, Weights] = {}
        self._start: dict[str, dict[str, Tensor]] = {}
        self._active = not _is_other_process()
        if self._active:
            self._take(first=True)
            if gradients and math.isnan(self._found.loss):
                why = "the probe has no loss: give labels or `loss`, or gradients=False"
                warnings.warn(f"saccade: {why}", stacklevel=2)

    # -- along training ----------------------------------------------------------------------------

    def step(self, loss: Tensor | float | None = None) -> None:
        """After a step of the optimiser: count it, and measure if the schedule says so. `loss` is
        the step's training loss.
        """
        self.steps += 1
        if self._active and self._is_due():
            self._note_loss(loss)
            self._take()

    def at(self, step: int, loss: Tensor | float | None = None) -> None:
        """Measure now, as the state after so many steps."""
        if not isinstance(step, int | np.integer) or step < self.steps:
            raise ConfigError(f"step: got {step!r}, allowed: a whole number, at least {self.steps}")
        self.steps = int(step)
        if self._active and self.steps not in self._measured:
            self._note_loss(loss)
            self._take()

    def finish(self) -> Record | None:
        """Measure the last step, write the record and give it (in other processes than the first:
        None).
        """
        if not self._active:
            return None
        if self.steps not in self._measured and self.steps not in self._problems:
            self._take()
        record = self.record
        if self._output is not None:
            record.save(self._output)
        return record

    def __enter__(self) -> "Watch":
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.finish()

    def _is_due(self) -> bool:
        if (
            self._total is None
            and self.steps > self._horizon
            and not isinstance(self._every, AtSteps)
        ):
            self._horizon *= 10
            self._due |= set(self._every.steps(self._horizon).tolist())
        return self.steps in self._due

    def add_losses(self, losses: Mapping[int, float]) -> None:
        """Training losses by step, where a log has them; those of measured steps are kept, or of
        the last step before.
        """
        known = sorted(losses)
        for step in self._measured:
            before = [one for one in known if one <= step]
            if before and step not in self._losses:
                self._losses[step] = losses[before[-1]]

    def _note_loss(self, loss: Tensor | float | None) -> None:
        if loss is not None:
            self._losses[self.steps] = float(loss.detach() if isinstance(loss, Tensor) else loss)

    def _take(self, first: bool = False) -> None:
        begun = time.perf_counter()
        try:
            found = measure(self._model, self._probe, self._settings)
        except NotFiniteError as error:
            if first:
                raise
            self._diverged = self.steps if self._diverged is None else self._diverged
            self._problem(str(error))
        except CaptureError as error:
            if first:
                raise
            self._problem(str(error))
        except Exception as error:
            if not first or isinstance(error, SaccadeError):
                raise
            batch = self._probe.batch
            given = f"; it was given {', '.join(batch)}" if isinstance(batch, Mapping) else ""
            why = f"probe: the model cannot be run on it: {described(error)}{given}"
            raise ConfigError(why) from error
        else:
            if not first and set(found.calls) != set(self._found.calls):
                other = set(found.calls) ^ set(self._found.calls)
                self._problem(f"other attention than at first: {', '.join(sorted(other))}")
            else:
                self._keep(found)
        seconds = time.perf_counter() - begun
        self.seconds += seconds
        log.debug("step %d: looked at in %.3f s", self.steps, seconds)
        if self._output is not None and self._measured:
            self.record.save(self._output)

    def _problem(self, why: str) -> None:
        self._problems[self.steps] = why
        warnings.warn(f"saccade: step {self.steps} is not measured: {why}", stacklevel=4)

    def _keep(self, found: Measurement) -> None:
        if not self._weights:
            self._found = found
            for layer, one in found.calls.items():
                path = layer.partition("#")[0]
                sample = found.samples.get(layer)
                self._weights[layer] = weights_of(self._model, path, one.heads, sample)
                self._start[layer] = copied(self._weights[layer])
        self._measured[self.steps] = found.table() | self._parts() | self._added(found)

    def _added(self, found: Measurement) -> dict[str, np.ndarray]:
        """The norm of what each head adds, where the output's matrix is known."""
        heads = max(one.heads for one in found.calls.values())
        norms = np.full((len(found.calls), heads), np.nan, np.float32)
        for row, (layer, one) in zip(norms, found.calls.items(), strict=True):
            output = self._weights[layer].get("output")
            if output is not None and one.squares is not None:
                row[: one.heads] = added_norms(output, one.squares)
        return {"head_norm": norms}

    def _parts(self) -> dict[str, np.ndarray]:
        """Numbers of the weight matrices, by layer and part."""
        rows = [
            (*norms(weights, self._start[layer]), self._moments(weights))
            for layer, weights in self._weights.items()
        ]
        return dict(zip(PER_PART, np.asarray(rows, np.float32).swapaxes(0, 1), strict=True))

    def _moments(self, weights: Weights) -> list[float]:
        """Root of Adam's mean of squared gradients over epsilon, per part; NaN without Adam."""
        groups = [] if self._optimiser is None else self._optimiser.param_groups
        owners = {id(one): group for group in groups for one in group["params"]}
        found = []
        for part in PARTS:
            parameter = weights[part].parameter if part in weights else None
            group, state = owners.get(id(parameter), {}), {}
            if self._optimiser is not None and parameter is not None:
                state = self._optimiser.state.get(parameter, {})
            if "exp_avg_sq" not in state or not group.get("eps"):
                found.append(math.nan)
                continue
            squares = weights[part].chosen(state["exp_avg_sq"]).mean()
            corrected = squares / (1 - group["betas"][1] ** float(state["step"]))
            found.append(float(corrected.sqrt()) / group["eps"])
        return found

    # -- the record --------------------------------------------------------------------------------

    @property
    def unseen(self) -> dict[str, str]:
        """Modules that look like attention and were not seen, with the reason."""
        return dict(self._found.unseen)

    @property
    def record(self) -> Record:
        """The record of what was measured so far."""
        if not self._active:
            raise ConfigError("record: got a process that does not measure, allowed: the first one")
        parameters = list(self._model.parameters())
        weights = next((one for one in parameters if one.is_floating_point()), torch.zeros(()))
        config = WatchedRun(
            type(self._model).__name__,
            sum(one.numel() for one in parameters),
            self._is_causal(),
            dict(self._found.rungs),
            self.unseen,
            (*self._found.notes, *self._unrecognised(), *self._named_problems()),
            max(one.examples for one in self._found.calls.values()),
            self._name,
        )
        plain = describe(config) | {"sweeps": {}}
        plain.pop("class")
        about = {"seconds": self.seconds, "digest": ""}
        arm = Arm(self._dataset().assign_attrs(about), xr.Dataset(), xr.Dataset())
        return Record(
            NAME,
            "run",
            plain,
            {ARM: arm},
            _versions(),
            _device_name(weights),
            str(weights.dtype).removeprefix("torch."),
            self.seconds,
            title=self._name or f"{TITLE}: {config.model}",
            paper=PAPER,
        )

    def _is_causal(self) -> bool:
        if self._causal is not None:
            return self._causal
        masses = [one.values["future_mass"] for one in self._found.calls.values()]
        masses = [one for one in masses if not np.all(np.isnan(one))]
        return bool(masses) and all(np.nanmax(one) == 0 for one in masses)

    def _unrecognised(self) -> list[str]:
        found = []
        for layer, weights in self._weights.items():
            missing = [part for part in PARTS if part not in weights]
            if missing and layer != ROOT:
                found.append(f"{layer}: weights of {', '.join(missing)} are not recognised")
        return found

    def _named_problems(self) -> list[str]:
        return [f"step {step}: not measured, {why}" for step, why in self._problems.items()]

    def _dataset(self) -> xr.Dataset:
        steps = sorted({*self._measured, *self._problems})
        heads = max(one.heads for one in self._found.calls.values())
        coordinates = {
            "seed": [0],
            "step": np.asarray(steps, np.int64),
            "layer": list(self._found.calls),
            "head": np.arange(heads),
            "part": list(PARTS),
        }
        gone = -1 if self._diverged is None else self._diverged
        words = {"long_name": "step at which the outputs stopped being finite, or -1"}
        data: dict[str, Any] = {
            "diverged_at": (("seed",), np.asarray([gone]), words | {"units": "step"})
        }
        first = next(iter(self._measured.values()))
        described = VARIABLES | {name + ERROR: _of_error(VARIABLES[name]) for name in PER_HEAD}
        for name, variable in described.items():
            nothing = np.full_like(first.get(name, np.float32(np.nan)), np.nan)
            rows = [self._measured.get(step, {}).get(name, nothing) for step in steps]
            if name == "training_loss":
                rows = [np.float32(self._losses.get(step, np.nan)) for step in steps]
            values = np.stack(rows)[None]
            if name == "loss" or np.isfinite(values).any():
                data[name] = (("seed", "step", *variable.dims), values, variable.attributes)
        return xr.Dataset(data, coordinates)


def _of_error(variable: Variable) -> Variable:
    words = f"standard error over sequences: {variable.long_name}"
    return dataclasses.replace(variable, long_name=words)


def _is_other_process() -> bool:
    """Whether another process of a distributed training measures."""
    group = torch.distributed
    return group.is_available() and group.is_initialized() and group.get_rank() > 0


def _versions() -> dict[str, str]:
    """Versions that can change a number."""
    found = {"saccade": __version__, "numpy": np.__version__}
    found |= {"torch": re.sub(r"\+.*", "", torch.__version__)}
    try:
        return found | {"transformers": importlib.metadata.version("transformers")}
    except importlib.metadata.PackageNotFoundError:
        return found


def _device_name(weights: Tensor) -> str:
    if weights.device.type == "cuda":
        return torch.cuda.get_device_name(weights.device)
    return "CPU" if weights.device.type == "cpu" else str(weights.device)
