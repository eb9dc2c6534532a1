"""How the learning rate changes along training: a factor of the optimiser's `rate` per step."""

import dataclasses
from abc import ABC, abstractmethod
from typing import Any

import jax.numpy as jnp
import numpy as np

from saccade.settings import require, require_count

SHARE = "from 0 to 1"


def _require_shares(owner: Any, *fields: str) -> None:
    for field in fields:
        require(owner, field, SHARE, lambda value: 0 <= value <= 1)


@dataclasses.dataclass(frozen=True)
class AbstractRateSchedule(ABC):
    """A factor of the rate; step 0 is the first."""

    @abstractmethod
    def factor(self, step: Any) -> Any:
        """What the rate is multiplied by in a step."""

    def integral(self, steps: np.ndarray) -> np.ndarray:
        """Sum of the factors of all steps before the given ones."""
        last = int(np.max(steps, initial=0))
        factors = np.asarray(self.factor(np.arange(last)), np.float64)
        return np.concatenate([[0.0], np.cumsum(np.broadcast_to(factors, last))])[steps]


def _risen(step: Any, warmup: int) -> Any:
    """A straight line that reaches 1 with step `warmup`."""
    return jnp.minimum((step + 1) / max(warmup, 1), 1.0)


def _between(first: Any, last: Any, progress: Any) -> Any:
    """Half a cosine from one value to another."""
    return last + (first - last) * (1 + jnp.cos(jnp.pi * jnp.clip(progress, 0.0, 1.0))) / 2


@dataclasses.dataclass(frozen=True)
class Warmup(AbstractRateSchedule):
    """A straight rise, then constant."""

    warmup: int = 100
    """Steps of the rise."""

    def __post_init__(self):
        require_count(self, "warmup")

    def factor(self, step: Any) -> Any:
        return _risen(step, self.warmup)


@dataclasses.dataclass(frozen=True)
class Cosine(AbstractRateSchedule):
    """Half a cosine from 1 to `floor`, after an optional straight rise."""

    steps: int = 1000
    """The step at which the floor is reached."""
    warmup: int = 0
    """Steps of the rise; they are among `steps`."""
    floor: float = 0.0
    """Smallest factor."""

    def __post_init__(self):
        require_count(self, "steps")
        require(
            self,
            "warmup",
            f"a whole number from 0, below the {self.steps} steps",
            lambda value: isinstance(value, int) and 0 <= value < self.steps,
        )
        _require_shares(self, "floor")

    def factor(self, step: Any) -> Any:
        fallen = _between(1.0, self.floor, (step - self.warmup) / (self.steps - self.warmup))
        return jnp.where(step < self.warmup, _risen(step, self.warmup), fallen)


@dataclasses.dataclass(frozen=True)
class OneCycle(AbstractRateSchedule):
    """Half a cosine up from `first` to 1, then half a cosine down to `last`."""

    steps: int = 1000
    """The step at which the cycle ends."""
    peak: float = 0.3
    """Where the largest rate lies, as a share of the steps."""
    first: float = 0.04
    """Factor of the first step."""
    last: float = 1e-4
    """Factor from the last step on."""

    def __post_init__(self):
        require_count(self, "steps")
        _require_shares(self, "first", "last")
        require(self, "peak", "above 0 and below 1", lambda value: 0 < value < 1)

    def factor(self, step: Any) -> Any:
        top = self.peak * self.steps
        rising = _between(self.first, 1.0, step / top)
        falling = _between(1.0, self.last, (step - top) / (self.steps - top))
        return jnp.where(step < top, rising, falling)
