"""From stacked results (step x member x ...) to datasets with named dims."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.core.checks import ALWAYS
from saccade.core.interfaces import AbstractProbe, AbstractTask
from saccade.core.members import NOT_DIVERGED
from saccade.core.optimiser import AbstractOptimiser
from saccade.core.sweep import Swept

if TYPE_CHECKING:
    import xarray as xr


@dataclasses.dataclass(frozen=True)
class Frame:
    """The axes that all datasets of a training share."""

    sweeps: Mapping[str, Swept]
    seeds: Sequence[int]
    optimiser: AbstractOptimiser
    task: AbstractTask

    def dataset(
        self,
        arrays: Mapping[str, np.ndarray],
        which: str,
        steps: np.ndarray,
        probes: Sequence[AbstractProbe],
    ) -> "xr.Dataset":
        import xarray as xr

        described = dict(ALWAYS)
        coordinates: dict[str, Any] = {"seed": np.asarray(self.seeds), "step": steps}
        for probe in probes:
            described |= probe.variables
            coordinates |= probe.coordinates(self.task)
        coordinates |= {name: np.asarray(swept.grid) for name, swept in self.sweeps.items()}
        coordinates["time"] = self._time(steps)
        outer = (*self.sweeps, "seed")
        grid = tuple(len(coordinates[dim]) for dim in outer)

        diverged_at = _diverged_at(arrays, steps, which)
        dead = (diverged_at >= 0) & (steps[:, None] >= diverged_at)
        data: dict[str, Any] = {}
        for name, variable in described.items():
            values = arrays[f"{which}:{name}"]
            if name == "diverged_at":
                data[name] = (outer, diverged_at.reshape(grid), variable.attributes)
                continue
            if np.issubdtype(values.dtype, np.floating):
                values = np.where(
                    dead.reshape(dead.shape + (1,) * (values.ndim - 2)), np.nan, values
                )
            inner = values.shape[2:]
            values = np.moveaxis(values.reshape(len(steps), *grid, *inner), 0, len(grid))
            data[name] = ((*outer, "step", *variable.dims), values, variable.attributes)
        return xr.Dataset(data, coordinates)

    def _time(self, steps: np.ndarray) -> Any:
        rate = self.optimiser.rate
        scaled = getattr(self.optimiser, "curvature", None) is not None
        attributes = {
            "long_name": "training time, rate x step",
            "units": "1/curvature at the start" if scaled else "1",
        }
        if isinstance(rate, Swept):
            return ((rate.name, "step"), np.asarray(rate.values)[:, None] * steps, attributes)
        return ("step", rate * steps, attributes)


def _diverged_at(arrays: Mapping[str, np.ndarray], steps: np.ndarray, which: str) -> np.ndarray:
    """Per member; a loss that is not finite at a recorded step counts even if no later step noticed
    it.
    """
    marked = arrays[f"{which}:diverged_at"][-1].astype(np.int64)
    bad = ~np.isfinite(arrays[f"{which}:loss"])
    first_bad = np.where(bad.any(axis=0), steps[bad.argmax(axis=0)], NOT_DIVERGED)
    return np.where((marked == NOT_DIVERGED), first_bad, marked)
