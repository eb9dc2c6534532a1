"""How a member moves: ready-made optimisers, any Optax transformation, and the gradient flow.

Training time is the integral of the learning rate over the steps, so that trajectories of different
rates and schedules, and of the flow, lie on one axis.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, PyTree

from saccade.errors import ConfigError
from saccade.settings import over_sweeps, require, require_finite, require_positive
from saccade.train.paths import dotted, named, paths, require_part, selected
from saccade.train.rates import AbstractRateSchedule


class AbstractOptimiser(ABC):  # noqa: B024 (a base of two kinds)
    """Base of all optimisers."""

    def time(self, steps: np.ndarray) -> tuple[Any, np.ndarray, str]:
        """Training time at some steps: dims, values, and what it is in words."""
        return "step", steps, "step (the optimiser's rate is not known)"


class AbstractStepper(AbstractOptimiser):
    """An optimiser that takes discrete steps."""

    curvature: Callable[[Any, Any], Any] | None = None
    """None, or a function of a member's start and training set by which its rate is divided.

    With a bound on the curvature of the loss, `rate` and time are in the units of convergence
    theorems."""

    @abstractmethod
    def transformation(self) -> optax.GradientTransformation:
        """The Optax transformation."""

    def initial(self, learned: PyTree) -> PyTree:
        """The optimiser's state at the start of a training."""
        return self.transformation().init(learned)

    def update(
        self, gradient: PyTree, state: PyTree, learned: PyTree, loss: Array
    ) -> tuple[PyTree, PyTree]:
        """What to add to the weights, and the next state."""
        del loss
        return self.transformation().update(gradient, state, learned)

    def rate_of(self, state: PyTree) -> Array | None:
        """The rate of the last step, where only the state knows it; None where `time` does."""
        del state


@dataclasses.dataclass(frozen=True)
class PartRate:
    """A rate of its own for a part of the model."""

    part: str
    """Path of the part, such as `embedding` or `layers.*.attention`."""
    factor: float
    """What the optimiser's rate is multiplied by; 0 keeps the part at its start."""

    def __post_init__(self):
        require_finite(self, "factor")


@dataclasses.dataclass(frozen=True)
class AbstractRatedStepper(AbstractStepper):
    """An optimiser with a rate, and with what can be added to any: a schedule of the rate, weight
    decay, clipping, and rates per part of the model.
    """

    rate: float = 0.1
    """Learning rate; training time is rate x step."""
    schedule: AbstractRateSchedule | None = dataclasses.field(default=None, kw_only=True)
    """How the rate changes along training; None: it does not."""
    decay: float = dataclasses.field(default=0.0, kw_only=True)
    """Weight decay: every step also subtracts rate x decay x weight (decoupled, as in AdamW)."""
    decayed: tuple[str, ...] = dataclasses.field(default=("*",), kw_only=True)
    """Paths of the parts that decay."""
    clip_value: float | None = dataclasses.field(default=None, kw_only=True)
    """Largest absolute value of an entry of the gradient; None: no limit."""
    clip_norm: float | None = dataclasses.field(default=None, kw_only=True)
    """Largest norm of the whole gradient; None: no limit."""
    parts: tuple[PartRate, ...] = dataclasses.field(default=(), kw_only=True)
    """Parts of the model with a rate of their own; the first that names an array counts."""
    curvature: Callable[[Any, Any], Any] | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self):
        require_positive(self, "rate")
        require_finite(self, "decay")
        for field in ("clip_value", "clip_norm"):
            if getattr(self, field) is not None:
                require_positive(self, field)
        allowed = "None, or a function of model and training set"
        require(self, "curvature", allowed, lambda one: one is None or callable(one))
        allowed = "None, or a schedule such as Cosine(1000, warmup=100)"
        fits = lambda one: one is None or isinstance(one, AbstractRateSchedule)  # noqa: E731
        require(self, "schedule", allowed, fits)
        for field, kind, example in (("decayed", str, "('*.weight',)"), ("parts", PartRate, PARTS)):
            value = getattr(self, field)
            if not isinstance(value, tuple) or not all(isinstance(one, kind) for one in value):
                raise ConfigError(f"{field}: got {value!r}, allowed: a tuple such as {example}")

    @abstractmethod
    def direction(self) -> optax.GradientTransformation:
        """From the gradient to the direction of a step, before it is multiplied by the rate."""

    def transformation(self) -> optax.GradientTransformation:
        chain = []
        if self.clip_value is not None:
            chain.append(optax.clip(self.clip_value))
        if self.clip_norm is not None:
            chain.append(optax.clip_by_global_norm(self.clip_norm))
        chain.append(self.direction())
        if not _is_zero(self.decay):
            mask = lambda tree: selected(tree, self.decayed, "decayed")  # noqa: E731
            chain.append(optax.add_decayed_weights(self.decay, mask))
        if self.parts:
            chain.append(_scaled_parts(self.parts))
        rate: Any = self.rate
        if self.schedule is not None:
            schedule = self.schedule
            rate = lambda step: self.rate * schedule.factor(step)  # noqa: E731
        return optax.chain(*chain, optax.scale_by_learning_rate(rate))

    def time(self, steps: np.ndarray) -> tuple[Any, np.ndarray, str]:
        def elapsed(rate: float, schedule: AbstractRateSchedule | None) -> np.ndarray:
            return rate * (steps if schedule is None else schedule.integral(steps))

        values = over_sweeps(elapsed, self.rate, self.schedule, dims=("step",))
        what = "rate x step" if self.schedule is None else "integral of the rate"
        return values.dims, values.values, f"training time, {what}"


PARTS = "(PartRate('embedding', 0.1),)"


def _is_zero(value: Any) -> bool:
    """Whether a field is the plain number 0, and neither swept nor traced."""
    return isinstance(value, float | int) and value == 0


def _scaled_parts(parts: tuple[PartRate, ...]) -> optax.GradientTransformation:
    def scaled(path: Any, update: Array) -> Array:
        for one in parts:
            if named(one.part, dotted(path)):
                return one.factor * update
        return update

    def update(updates: PyTree, state: Any, params: Any = None) -> tuple[PyTree, Any]:
        del params
        known = paths(updates)
        for one in parts:
            require_part(one.part, known, "parts")
        return jax.tree.map_with_path(scaled, updates), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


@dataclasses.dataclass(frozen=True)
class GradientDescent(AbstractRatedStepper):
    """Gradient descent, with optional heavy-ball momentum."""

    momentum: float = 0.0
    """Fraction of the last step that is kept; 0 is plain gradient descent."""

    def __post_init__(self):
        super().__post_init__()
        require(self, "momentum", "at least 0 and below 1", lambda value: 0 <= value < 1)

    def direction(self) -> optax.GradientTransformation:
        if _is_zero(self.momentum):
            return optax.identity()
        return optax.trace(self.momentum)


@dataclasses.dataclass(frozen=True)
class Adam(AbstractRatedStepper):
    """Adam; with `decay` it is AdamW."""

    rate: float = 1e-3
    first: float = dataclasses.field(default=0.9, kw_only=True)
    """Decay of the mean of gradients (beta 1)."""
    second: float = dataclasses.field(default=0.999, kw_only=True)
    """Decay of the mean of squared gradients (beta 2)."""
    epsilon: float = dataclasses.field(default=1e-8, kw_only=True)
    """Added to the root of the mean square."""

    def __post_init__(self):
        super().__post_init__()
        for field in ("first", "second"):
            require(self, field, "at least 0 and below 1", lambda value: 0 <= value < 1)
        require_finite(self, "epsilon")

    def direction(self) -> optax.GradientTransformation:
        return optax.scale_by_adam(self.first, self.second, self.epsilon)


@dataclasses.dataclass(frozen=True, eq=False)
class OptaxOptimiser(AbstractStepper):
    """Any Optax transformation. `Lab.train` makes it of a bare transformation.

    Numbers that `optax.inject_hyperparams` keeps in the state can be swept by their names, and give
    the time. Otherwise time is the step: Optax does not say which rate a transformation has.
    """

    inner: optax.GradientTransformation
    hyperparameters: Any = None
    """A dataclass of the injected numbers, or None."""

    @classmethod
    def of(cls, transformation: Any) -> Any:
        """A bare transformation as an optimiser; anything else as it is."""
        if isinstance(transformation, optax.MultiSteps):
            transformation = transformation.gradient_transformation()
        if not isinstance(transformation, optax.GradientTransformation):
            return transformation
        try:
            state = transformation.init({})
        except Exception:  # an initialisation that needs real weights has no injected numbers here
            state = ()
        nodes = _injected(state)
        names = [name for node in nodes for name in node.hyperparams]
        numbers = {
            name: float(value)
            for node in nodes
            for name, value in node.hyperparams.items()
            if name not in getattr(node, "hyperparams_states", {})
            and jnp.ndim(value) == 0
            and names.count(name) == 1  # of two with one name, none can be meant
        }
        if not numbers:
            return cls(transformation)
        fields = [(name, float, dataclasses.field(default=it)) for name, it in numbers.items()]
        return cls(transformation, dataclasses.make_dataclass("Injected", fields, frozen=True)())

    def transformation(self) -> optax.GradientTransformation:
        return self.inner

    def update(
        self, gradient: PyTree, state: PyTree, learned: PyTree, loss: Array
    ) -> tuple[PyTree, PyTree]:
        inner = optax.with_extra_args_support(self.inner)
        return inner.update(gradient, state, learned, value=loss, grad=gradient)

    def initial(self, learned: PyTree) -> PyTree:
        state = self.inner.init(learned)
        if self.hyperparameters is None:
            return state

        def filled(node: Any) -> Any:
            if not hasattr(node, "hyperparams"):
                return node
            swept = {
                name: value
                for name, value in vars(self.hyperparameters).items()
                if isinstance(value, jax.Array) and name in node.hyperparams
            }
            values = {
                name: jnp.asarray(swept[name], jnp.result_type(old)) if name in swept else old
                for name, old in node.hyperparams.items()
            }
            return node._replace(hyperparams=values)

        return jax.tree.map(filled, state, is_leaf=lambda node: hasattr(node, "hyperparams"))

    def rate_of(self, state: PyTree) -> Array | None:
        rates = [node.hyperparams.get("learning_rate") for node in _injected(state)]
        return next((jnp.asarray(rate) for rate in rates if rate is not None), None)


def _injected(state: PyTree) -> list[Any]:
    """The states of `optax.inject_hyperparams` within a state."""
    is_one = lambda node: hasattr(node, "hyperparams")  # noqa: E731
    return [node for node in jax.tree.leaves(state, is_leaf=is_one) if is_one(node)]


@dataclasses.dataclass(frozen=True)
class GradientFlow(AbstractOptimiser):
    """The limit of vanishing steps: d parameters / d time = - gradient, integrated by Diffrax
    (Tsitouras 5/4).

    One step of the flow is the time `rate`, so its record lies on the same steps as that of
    gradient descent.
    """

    rate: float = 0.1
    """Time of one step."""
    relative_tolerance: float = 1e-6
    """Error allowed in one solver step, relative to the parameter."""
    absolute_tolerance: float = 1e-9
    """Error allowed in one solver step, absolute."""

    def __post_init__(self):
        require_positive(self, "rate", "relative_tolerance", "absolute_tolerance")

    def time(self, steps: np.ndarray) -> tuple[Any, np.ndarray, str]:
        values = over_sweeps(lambda rate: rate * steps, self.rate, dims=("step",))
        return values.dims, values.values, "training time, rate x step"
