"""The result of a training: datasets and models."""

import dataclasses
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from saccade.core.engine import Engine
from saccade.core.members import Carry
from saccade.core.parts import Leaves
from saccade.core.run import CARRY, STATE, fitted
from saccade.errors import ConfigError

if TYPE_CHECKING:
    import xarray as xr

Precision = Literal["float32", "float64"]


@dataclasses.dataclass(frozen=True)
class Training:
    """The result of a training: trajectory and snapshots as datasets, and the trained models."""

    trajectory: "xr.Dataset"
    """Every probe at every recorded step; dims: sweeps, seed, step, then the probe's own."""
    snapshot: "xr.Dataset"
    """Every probe of `Recording.ends` at the first and the last step; of a training that may stop
    early, the last is that of the best weights."""
    digest: str
    """Content address of the training; empty if it cannot be kept."""
    seconds: float
    """Time spent training, over all interruptions."""
    precision: Precision
    _engine: Engine
    _leaves: Mapping[str, np.ndarray]
    """Models and states, which a training in chunks reads from its files when they are used."""
    start: Any = None
    """The weights with which the members began, if their seeds did not draw them."""

    def __repr__(self) -> str:
        sizes = ", ".join(f"{size} {dim}" for dim, size in self.trajectory.sizes.items())
        return f"<Training: {sizes}; {', '.join(map(str, self.trajectory.data_vars))}>"

    @property
    def state(self) -> Carry:
        """The whole last state of all members: weights, optimiser, order of examples."""
        if f"{STATE}0" not in self._leaves:
            raise ConfigError(
                "after: got a training without its last state, allowed: one that was trained with "
                "keep_state=True"
            )
        with in_precision(self.precision):
            return fitted(self._engine.shapes, self._gathered(STATE), prefix=STATE)

    def _gathered(self, prefix: str) -> Mapping[str, np.ndarray]:
        leaves = self._leaves
        return leaves.gathered(prefix) if isinstance(leaves, Leaves) else leaves

    @cached_property
    def models(self) -> Any:
        """The trained models of all members, stacked: every array has a leading member dim (sweeps
        x seeds). Of a training that may stop early, they have their best weights.
        """
        with in_precision(self.precision):
            shapes = self._engine.shapes
            kept = self._gathered(CARRY)
            return self._engine.whole(*fitted((shapes.learned, shapes.still), kept))

    def edited(self, function: Callable[[Any], Any]) -> "Training":
        """This training with other weights, to start trainings with (`start=`): `function` maps the
        model of one member to a model of the same structure.
        """
        with in_precision(self.precision):
            models = eqx.filter_vmap(function)(self.models)
        if _outline(self.models) != _outline(models):
            raise ConfigError("edited: got a model of another structure, allowed: other weights")
        leaves = self._gathered(CARRY)
        new = dataclasses.replace(self, digest="", _leaves=leaves)
        new.__dict__["models"] = models
        return new

    def model(self, **where: Any) -> Any:
        """The trained model of one member, by its seed and its values of the sweeps:
        `training.model(seed=3, rate=0.1)`. An axis with one value need not be named.
        """
        loss = self.trajectory["loss"]
        axes = {str(dim): loss[dim].values.tolist() for dim in loss.dims if dim != "step"}
        if set(where) - set(axes):
            got = ", ".join(sorted(set(where) - set(axes)))
            raise ConfigError(f"model: got {got}, allowed: {', '.join(axes)}")
        places = []
        for name, values in axes.items():
            value = where.get(name, values[0] if len(values) == 1 else None)
            if value not in values:
                shown = ", ".join(f"{one:g}" for one in values)
                got = f"{name} {value}" if name in where else f"no {name}"
                raise ConfigError(f"model: got {got}, allowed: {name} as one of {shown}")
            places.append(values.index(value))
        at = int(np.ravel_multi_index(places, [len(values) for values in axes.values()]))
        pick = lambda one: jnp.asarray(one[at]) if eqx.is_array(one) else one  # noqa: E731
        with in_precision(self.precision):
            return jax.tree.map(pick, self.models)


def _outline(models: Any) -> Any:
    """Structure, shapes and types of all arrays."""
    leaves, structure = jax.tree.flatten(models)
    kinds = [(one.shape, one.dtype) if eqx.is_array(one) else type(one) for one in leaves]
    return structure, kinds


def in_precision(precision: Precision) -> Any:
    if precision == "float64":
        return jax.enable_x64(True)
    return nullcontext() if not jax.config.jax_enable_x64 else jax.enable_x64(False)  # pyright: ignore[reportAttributeAccessIssue]
