"""The result of a training: an arm with its recipe and its weights."""

import dataclasses
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from saccade.contracts.theory import AbstractTheory
from saccade.errors import ConfigError
from saccade.records.record import Arm
from saccade.train.engine import Moving
from saccade.train.parts import Leaves
from saccade.train.precision import Precision, in_precision
from saccade.train.recipe import Recipe
from saccade.train.run import CARRY, STATE, fitted


@dataclasses.dataclass(frozen=True, eq=False)
class Weights:
    """The weights and states of all members, which are read when they are asked for."""

    shapes: Moving
    """Shapes and types of the arrays of a state."""
    skeleton: Any
    """The parts of a model that are not arrays."""
    leaves: Mapping[str, np.ndarray]
    """The arrays; a training in chunks reads them from its files."""
    precision: Precision
    step: int
    """The last step."""
    begun: Any = None
    """The weights with which the members began, if their seeds did not draw them."""

    def gathered(self, prefix: str) -> Mapping[str, np.ndarray]:
        return self.leaves.gathered(prefix) if isinstance(self.leaves, Leaves) else self.leaves

    @property
    def moving(self) -> Moving:
        """The whole last state of all members: weights, optimiser, order of examples."""
        if f"{STATE}0" not in self.leaves:
            raise ConfigError(
                "after: got a training without its last state, allowed: one whose recipe says "
                "keep_state=True; edited weights begin other trainings with start="
            )
        with in_precision(self.precision):
            return fitted(self.shapes, self.gathered(STATE), prefix=STATE)

    @cached_property
    def models(self) -> Any:
        """The models of all members, stacked."""
        with in_precision(self.precision):
            kept = (self.shapes.state.learned, self.shapes.state.still)
            return eqx.combine(*fitted(kept, self.gathered(CARRY)), self.skeleton)

    def edited(self, function: Callable[[Any], Any]) -> "Weights":
        """Other weights, by a function of the model of one member."""
        with in_precision(self.precision):
            models = eqx.filter_vmap(function)(self.models)
        if _outline(self.models) != _outline(models):
            raise ConfigError("edited: got a model of another structure, allowed: other weights")
        new = dataclasses.replace(self, leaves=self.gathered(CARRY))
        new.__dict__["models"] = models
        return new


@dataclasses.dataclass(frozen=True, repr=False)
class TrainedArm(Arm):
    """The arm that a training makes, with its recipe and the weights of its models."""

    _: dataclasses.KW_ONLY
    recipe: Recipe
    """What was trained, and how."""
    weights: Weights
    """The last weights and states."""

    def __repr__(self) -> str:
        sizes = ", ".join(f"{size} {dim}" for dim, size in self.trajectory.sizes.items())
        return f"<TrainedArm: {sizes}; {', '.join(map(str, self.trajectory.data_vars))}>"

    @property
    def models(self) -> Any:
        """The trained models of all members, stacked: every array has a leading member dim (sweeps
        x seeds). Of a training that may stop early, they have their best weights.
        """
        return self.weights.models

    @property
    def precision(self) -> Precision:
        """The precision in which it was trained."""
        return self.weights.precision

    def edited(self, function: Callable[[Any], Any]) -> Self:
        """This training with other weights, to start trainings with (`start=`): `function` maps the
        model of one member to a model of the same structure.
        """
        unkept = self.trajectory.assign_attrs(digest="")
        weights = self.weights.edited(function)
        return dataclasses.replace(self, trajectory=unkept, weights=weights)

    def model(self, **where: Any) -> Any:
        """The trained model of one member, by its seed and its values of the sweeps:
        `arm.model(seed=3, rate=0.1)`. An axis with one value need not be named.
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
                shown = ", ".join(f"{known:g}" for known in values)
                got = f"{name} {value}" if name in where else f"no {name}"
                raise ConfigError(f"model: got {got}, allowed: {name} as one of {shown}")
            places.append(values.index(value))
        at = int(np.ravel_multi_index(places, [len(values) for values in axes.values()]))
        pick = lambda leaf: jnp.asarray(leaf[at]) if eqx.is_array(leaf) else leaf  # noqa: E731
        with in_precision(self.precision):
            return jax.tree.map(pick, self.models)

    def beside(self, theory: AbstractTheory, task: Any = None, model: Any = None) -> Self:
        """This arm with what a theory predicts for it. The theory may be asked about another task
        or model than the trained one, such as the limit of long documents.
        """
        task = self.recipe.task if task is None else task
        model = self.recipe.model if model is None else model
        predicted = theory.predict(task, model, self.trajectory)
        return self.with_prediction(predicted, theory.source)


def _outline(models: Any) -> Any:
    """Structure, shapes and types of all arrays."""
    leaves, structure = jax.tree.flatten(models)
    kinds = [(leaf.shape, leaf.dtype) if eqx.is_array(leaf) else type(leaf) for leaf in leaves]
    return structure, kinds
