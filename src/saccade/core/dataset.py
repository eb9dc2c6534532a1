"""From stacked results (step x member x ...) to datasets with named dims."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.core.checks import ALWAYS, SCALED, STOPPING
from saccade.core.interfaces import AbstractCorpus, AbstractProbe, AbstractTask
from saccade.core.members import NOT_DIVERGED
from saccade.core.optimiser import AbstractOptimiser
from saccade.core.sweep import Swept

if TYPE_CHECKING:
    import xarray as xr

__all__: list[str] = []


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
        arrays: Mapping[str, np.ndarray],
        which: str,
        steps: np.ndarray,
        probes: Sequence[AbstractProbe],
    ) -> "xr.Dataset":
        import xarray as xr

        described = dict(ALWAYS)
        if f"{which}:stopped_at" in arrays:
            described |= STOPPING
        if f"{which}:step_unit" in arrays:
            described |= SCALED
        coordinates: dict[str, Any] = {"seed": np.asarray(self.seeds), "step": steps}
        for probe in probes:
            described |= probe.variables
            coordinates |= probe.coordinates(self.task)
        coordinates |= {name: np.asarray(swept.grid) for name, swept in self.sweeps.items()}
        coordinates |= {f"{one}_seed": ("seed", list(of)) for one, of in self.apart.items()}
        outer = (*self.sweeps, "seed")
        grid = tuple(len(coordinates[dim]) for dim in outer)

        # A training that ended where it began has one end.
        arrays = {key: it[-len(steps) :] for key, it in arrays.items() if key.startswith(which)}
        diverged_at = _diverged_at(arrays, steps, which)
        dead = (diverged_at >= 0) & (steps[:, None] >= diverged_at)
        if not self.trained:
            dead &= ~np.isfinite(arrays[f"{which}:loss"])
        ends = {"diverged_at": diverged_at}
        for name in STOPPING if "stopped_at" in described else ():
            ends[name] = arrays[f"{which}:{name}"][-1].astype(np.int64)
        if "step_unit" in described:
            ends["step_unit"] = arrays[f"{which}:step_unit"][-1]
        if "stopped_at" in ends:
            dead |= (ends["stopped_at"] >= 0) & (steps[:, None] > ends["stopped_at"])
        data: dict[str, Any] = {}
        for name, variable in described.items():
            if name in ends:
                data[name] = (outer, ends[name].reshape(grid), variable.attributes)
                continue
            values = self._unstacked(_alive(arrays[f"{which}:{name}"], dead), grid)
            data[name] = ((*outer, "step", *variable.dims), values, variable.attributes)
        if f"{which}:time" in arrays:
            # Of the seeds, the one that went on longest knows the time of all.
            time = self._unstacked(arrays[f"{which}:time"], grid).max(axis=len(grid) - 1)
            words = {"long_name": "training time, integral of the rate", "units": "1"}
            coordinates["time"] = ((*self.sweeps, "step"), time, words)
        else:
            coordinates["time"] = self._time(steps)
        about = dict(self.task.about) if isinstance(self.task, AbstractCorpus) else {}
        about |= self.computed
        return xr.Dataset(data, coordinates, about)

    def _unstacked(self, values: np.ndarray, grid: tuple[int, ...]) -> np.ndarray:
        """From dims step, member, ... to sweeps, seed, step, ..."""
        values = values.reshape(len(values), *grid, *values.shape[2:])
        return np.moveaxis(values, 0, len(grid))

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


def _diverged_at(arrays: Mapping[str, np.ndarray], steps: np.ndarray, which: str) -> np.ndarray:
    """Per member; a loss that is not finite at a recorded step counts even if no later step noticed
    it.
    """
    marked = arrays[f"{which}:diverged_at"][-1].astype(np.int64)
    bad = ~np.isfinite(arrays[f"{which}:loss"])
    first_bad = np.where(bad.any(axis=0), steps[bad.argmax(axis=0)], NOT_DIVERGED)
    return np.where((marked == NOT_DIVERGED), first_bad, marked)
