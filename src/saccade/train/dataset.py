"""From stacked results (step x member x ...) to datasets with named dims."""

import dataclasses
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.contracts.probe import AbstractProbe
from saccade.contracts.task import AbstractCorpus, AbstractTask
from saccade.errors import FileError
from saccade.settings import Swept
from saccade.train.checks import ALWAYS, MISSING, SCALED, STOPPING
from saccade.train.members import NOT_DIVERGED
from saccade.train.optimiser import AbstractOptimiser
from saccade.train.parts import Part, Parts, nothing

if TYPE_CHECKING:
    import xarray as xr

__all__: list[str] = []

IN_MEMORY = 2**24
"""Bytes of a variable that is put together in memory; larger ones lie in a file."""


@dataclasses.dataclass(frozen=True)
class Frame:
    """The axes that all datasets of a training share."""

    sweeps: Mapping[str, Swept]
    seeds: Sequence[int]
    optimiser: AbstractOptimiser
    task: AbstractTask
    apart: Mapping[str, Sequence[int]] = dataclasses.field(default_factory=dict)
    """Seeds of start, data or order that differ from `seeds`."""
    trained: bool = True
    """Whether one step follows from another; of checkpoints a later one may be sound again."""
    computed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """How this device computed the model."""

    def dataset(
        self,
        parts: Parts,
        which: str,
        steps: np.ndarray,
        probes: Sequence[AbstractProbe],
        folder: Path | None = None,
    ) -> "xr.Dataset":
        """The dataset of all members. Of several chunks, numbers are put together one after another
        into a file in the folder, which memory is a window of.
        """
        import xarray as xr

        described = dict(ALWAYS)
        kept = parts.trained[0].arrays()
        names = {key.partition(":")[2] for key in kept if key.startswith(which)}
        if "stopped_at" in names:
            described |= STOPPING
        if "step_unit" in names:
            described |= SCALED
        coordinates: dict[str, Any] = {"seed": np.asarray(self.seeds), "step": steps}
        for probe in probes:
            described |= probe.variables
            coordinates |= probe.coordinates(self.task)
        coordinates |= {name: np.asarray(swept.grid) for name, swept in self.sweeps.items()}
        coordinates |= {f"{one}_seed": ("seed", list(of)) for one, of in self.apart.items()}
        outer = (*self.sweeps, "seed")
        grid = tuple(len(coordinates[dim]) for dim in outer)

        joined: dict[str, np.ndarray] = {}
        for some, part in parts.places():
            if part.failure:
                continue  # filled below
            for name, values in self._of_part(part, which, steps).items():
                if len(parts) == 1:
                    joined[name] = values
                    continue
                if name not in joined:
                    shape = (parts.count, *values.shape[1:])
                    joined[name] = _in_file(shape, values.dtype, folder)
                joined[name][some] = values
        if parts.not_trained is not None:
            for values in joined.values():
                values[parts.not_trained] = nothing(values.dtype)
        data: dict[str, Any] = {}
        for name, variable in described.items():
            values = joined[name].reshape(*grid, *joined[name].shape[1:])
            dims = outer if values.ndim == len(outer) else (*outer, "step", *variable.dims)
            data[name] = (dims, values, variable.attributes)
        if parts.not_trained is not None:
            data["not_trained"] = (outer, parts.not_trained.reshape(grid), MISSING.attributes)
        if "time" in names:
            # Of the seeds, the one that went on longest knows the time of all.
            every = joined["time"].reshape(*grid, len(steps))
            time = np.fmax.reduce(every, axis=len(grid) - 1)
            words = {"long_name": "training time, integral of the rate", "units": "1"}
            coordinates["time"] = ((*self.sweeps, "step"), time, words)
        else:
            coordinates["time"] = self._time(steps)
        about = dict(self.task.about) if isinstance(self.task, AbstractCorpus) else {}
        about |= self.computed
        return xr.Dataset(data, coordinates, about)

    def _of_part(self, part: Part, which: str, steps: np.ndarray) -> dict[str, np.ndarray]:
        """The variables of one chunk, with dims member, step, ... or member alone; NaN where a
        member no longer trains.
        """
        found = {
            key.partition(":")[2]: rows
            for key, rows in part.arrays().items()
            if key.startswith(which)
        }
        # A training that ended where it began has one end; a chunk that ended earlier than others
        # repeats its last row, of which nothing is shown after its members' ends.
        lacking = max(len(steps) - len(found["loss"]), 0)
        arrays = {name: rows[-len(steps) :] for name, rows in found.items()}
        if lacking:
            arrays = {
                name: np.concatenate([rows, np.repeat(rows[-1:], lacking, axis=0)])
                for name, rows in arrays.items()
            }
        diverged_at = _diverged_at(arrays["diverged_at"], arrays["loss"], steps)
        dead = (diverged_at >= 0) & (steps[:, None] >= diverged_at)
        if not self.trained:
            dead &= ~np.isfinite(arrays["loss"])
        ends = {"diverged_at": diverged_at}
        for name in STOPPING if "stopped_at" in arrays else ():
            ends[name] = arrays[name][-1].astype(np.int64)
        if "step_unit" in arrays:
            ends["step_unit"] = arrays["step_unit"][-1]
        if "stopped_at" in ends:
            dead |= (ends["stopped_at"] >= 0) & (steps[:, None] > ends["stopped_at"])
        return ends | {
            name: np.moveaxis(rows if name == "time" else _alive(rows, dead), 0, 1)
            for name, rows in arrays.items()
            if name not in ends
        }

    def _time(self, steps: np.ndarray) -> Any:
        dims, values, what = self.optimiser.time(steps)
        scaled = getattr(self.optimiser, "curvature", None) is not None
        units = "1/curvature at the start" if scaled else "1"
        return dims, values, {"long_name": what, "units": units}


def _alive(values: np.ndarray, dead: np.ndarray) -> np.ndarray:
    """Values of dims step, member, ...; NaN where a member no longer trains."""
    if not np.issubdtype(values.dtype, np.floating):
        return values
    return np.where(dead.reshape(dead.shape + (1,) * (values.ndim - 2)), np.nan, values)


def _in_file(shape: tuple[int, ...], dtype: np.dtype, folder: Path | None) -> np.ndarray:
    """An array that lies in a file without a name, which is gone with the array."""
    if math.prod(shape) * dtype.itemsize < IN_MEMORY:
        return np.empty(shape, dtype)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            size = math.prod(shape) * dtype.itemsize
            if hasattr(os, "posix_fallocate"):  # a full disk is told now, and not by a signal
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
            return np.memmap(file, dtype, "r+", shape=shape)
    except OSError as error:
        raise FileError(f"cannot write {folder}: {error.strerror or error}") from error


def _diverged_at(marked: np.ndarray, loss: np.ndarray, steps: np.ndarray) -> np.ndarray:
    """Per member; a loss that is not finite at a recorded step counts even if no later step noticed
    it.
    """
    marked = marked[-1].astype(np.int64)
    bad = ~np.isfinite(loss)
    first_bad = np.where(bad.any(axis=0), steps[bad.argmax(axis=0)], NOT_DIVERGED)
    return np.where((marked == NOT_DIVERGED), first_bad, marked)
