"""Members of an ensemble: their seeds, keys and starts, and the state that they carry."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PyTree

__all__: list[str] = []

PURPOSES = ("init", "data", "order", "evaluation", "label", "validation", "dropout")
"""Each has its own key, so that changing one never moves another."""
VARIED = {"start": ("init",), "order": ("order", "dropout")}
"""What can have a seed of its own, and for which purposes; `data` is for all others."""

NOT_DIVERGED = -1


def purpose_key(seed: Any, purpose: str) -> Array:
    """The key that a seed has for one purpose."""
    return jax.random.fold_in(jax.random.key(seed), PURPOSES.index(purpose))


def initial_model(task: Any, model: Any, seed: Any) -> Any:
    """The model with which the member of that seed starts."""
    return model.build(task, purpose_key(seed, "init"))


def training_set(task: Any, seed: Any) -> Any:
    """The examples on which the member of that seed trains."""
    return task.sample(purpose_key(seed, "data"), task.train_size)


class Members(eqx.Module):
    """Who is trained: a seed and an index into each sweep, for every member."""

    seed: Int[Array, " member"]
    choice: dict[str, Int[Array, " member"]]
    start: PyTree = None
    """None, or the numbers of the models with which the members start instead of those that
    their seeds draw.
    """
    values: tuple[Float[Array, " member"] | Int[Array, " member"], ...] = ()
    """What the swept fields of task, model and optimiser get, in the order of these fields;
    filled in by the recipe's functions.
    """
    apart: dict[str, Int[Array, " member"]] = eqx.field(default_factory=dict)
    """Seeds of start, data or order that differ from `seed`."""

    def key(self, purpose: str) -> Array:
        """The key of one member for one purpose."""
        group = next((name for name, of in VARIED.items() if purpose in of), "data")
        return purpose_key(self.apart.get(group, self.seed), purpose)


class Stopping(eqx.Module):
    """The best that a member has measured so far."""

    best: Float[Array, ""]
    best_step: Int[Array, ""]
    stopped: Int[Array, ""]
    """Step at which the member stopped, or -1."""
    learned: PyTree
    """The trained arrays at the best step."""


class TrainState(eqx.Module):
    """What changes from step to step of a training, for every member."""

    learned: PyTree
    """The trained arrays of the model."""
    still: PyTree
    """The arrays that are part of the model but never move."""
    optimiser_state: PyTree
    order: Int[Array, " example"] | None
    """Order of the examples in this epoch (minibatches only); by length, bucket after bucket."""
    unit: Float[Array, ""]
    """What this member's steps are multiplied by: 1, or 1 / curvature at its start (see
    `AbstractStepper.curvature`).
    """
    stopping: Stopping | None = None
    """What early stopping remembers."""
    elapsed: Float[Array, ""] | None = None
    """Integral of the rate, where only the optimiser's state knows the rate."""


def trainable(model: Any) -> PyTree:
    """Which leaves learn; all real numbers of a module that does not say."""
    if hasattr(model, "trainable"):
        return model.trainable()
    return jax.tree.map(eqx.is_inexact_array, model)


def is_inexact(leaf: Any) -> bool:
    """Whether a leaf stands for an array of real numbers; shapes count, too."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def where(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(partial(jnp.where, condition), yes, no)
