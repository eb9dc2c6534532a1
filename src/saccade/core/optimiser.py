"""How a member moves: Optax optimisers, and the gradient flow that they approximate.

Every optimiser has a `rate`; training time is rate x step, so that trajectories of different rates,
and of the flow, lie on one axis.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import optax

from saccade.core.sweep import require, require_positive


@dataclasses.dataclass(frozen=True)
class AbstractOptimiser(ABC):  # noqa: B024 (a base of two kinds)
    """Base of the optimisers: `rate` turns steps into time."""

    rate: float = 0.1
    """Learning rate; training time is rate x step."""

    def __post_init__(self):
        require_positive(self, "rate")


@dataclasses.dataclass(frozen=True)
class AbstractStepper(AbstractOptimiser):
    """An optimiser that takes discrete steps."""

    curvature: Callable[[Any, Any], Any] | None = dataclasses.field(default=None, kw_only=True)
    """None, or a function of a member's start and training set by which its rate is divided.

    With a bound on the curvature of the loss, `rate` and time are in the units of convergence
    theorems."""

    def __post_init__(self):
        super().__post_init__()
        allowed = "None, or a function of model and training set"
        require(self, "curvature", allowed, lambda one: one is None or callable(one))

    @abstractmethod
    def transformation(self) -> optax.GradientTransformation:
        """The Optax transformation."""


@dataclasses.dataclass(frozen=True)
class GradientDescent(AbstractStepper):
    """Plain gradient descent, with optional heavy-ball momentum."""

    momentum: float = 0.0
    """Fraction of the last step that is kept; 0 is plain gradient descent."""

    def __post_init__(self):
        super().__post_init__()
        require(self, "momentum", "at least 0 and below 1", lambda value: 0 <= value < 1)

    def transformation(self) -> optax.GradientTransformation:
        plain = isinstance(self.momentum, float | int) and self.momentum == 0
        return optax.sgd(self.rate, momentum=None if plain else self.momentum)  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True)
class Adam(AbstractStepper):
    """Adam with Optax's defaults."""

    rate: float = 1e-3

    def transformation(self) -> optax.GradientTransformation:
        return optax.adam(self.rate)  # pyright: ignore[reportArgumentType]


@dataclasses.dataclass(frozen=True)
class GradientFlow(AbstractOptimiser):
    """The limit of vanishing steps: d parameters / d time = - gradient, integrated by Diffrax
    (Tsitouras 5/4).

    One step of the flow is the time `rate`, so its record lies on the same steps as that of
    gradient descent.
    """

    relative_tolerance: float = 1e-6
    """Error allowed in one solver step, relative to the parameter."""
    absolute_tolerance: float = 1e-9
    """Error allowed in one solver step, absolute."""

    def __post_init__(self):
        super().__post_init__()
        require_positive(self, "relative_tolerance", "absolute_tolerance")
