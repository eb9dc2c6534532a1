"""Early stopping: a member ends when a measured quantity has not improved for some steps."""

import dataclasses
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Int

from saccade.core.members import NOT_DIVERGED, Carry, Stopping, where
from saccade.errors import ConfigError
from saccade.settings import require_choices, require_count, require_finite


@dataclasses.dataclass(frozen=True)
class EarlyStopping:
    """Stop a member `patience` steps after its best value, at a recorded step. Its best weights are
    kept.
    """

    quantity: str = "validation_loss"
    """Name of a recorded variable with one number per member."""
    patience: int = 100
    """Steps without improvement."""
    best: Literal["smallest", "largest"] = "smallest"
    """Which value of the quantity is best."""
    gain: float = 0.0
    """Smallest change that counts as an improvement."""

    def __post_init__(self):
        require_count(self, "patience")
        require_choices(self)
        require_finite(self, "gain")

    def begun(self, learned: Any) -> Stopping:
        first, never = (jnp.asarray(step, jnp.int32) for step in (0, NOT_DIVERGED))
        return Stopping(jnp.asarray(jnp.inf), first, never, learned)

    def noticed(self, carry: Carry, measured: dict[str, Array], step: Int[Array, ""]) -> Carry:
        """A member's state after a recorded step."""
        state = carry.stopping
        assert state is not None, "a training with early stopping carries its state"
        value = measured[self.quantity] * (1 if self.best == "smallest" else -1)
        at = step.astype(jnp.int32)
        going = (state.stopped == NOT_DIVERGED) & (carry.diverged == NOT_DIVERGED)
        # Weights that are not finite may have a finite quantity, such as an accuracy of zero.
        sound = jnp.isfinite(value) & jnp.isfinite(measured["loss"])
        better = going & sound & (value < state.best - self.gain)
        patient = at - state.best_step < self.patience
        stopping = Stopping(
            jnp.where(better, value, state.best).astype(state.best.dtype),
            jnp.where(better, at, state.best_step),
            jnp.where(going & ~better & ~patient, at, state.stopped),
            where(better, carry.learned, state.learned),
        )
        return dataclasses.replace(carry, stopping=stopping)

    def require(self, shapes: dict[str, Any]) -> None:
        """Refuse a quantity that is not measured, or is no real number per member."""
        known = sorted(
            name
            for name, one in shapes.items()
            if not one.shape and jnp.issubdtype(one.dtype, jnp.floating)
        )
        if self.quantity not in known:
            raise ConfigError(
                f"stopping: got the quantity {self.quantity!r}, allowed: a recorded variable with "
                f"one number per member, {', '.join(known)}; add a probe such as "
                "Losses(('validation',)) to the recording"
            )
