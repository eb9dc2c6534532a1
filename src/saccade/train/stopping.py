"""Early stopping: a member ends when a measured quantity has not improved for some steps."""

import dataclasses
from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Int

from saccade.errors import ConfigError
from saccade.settings import require_choices, require_count, require_finite
from saccade.train.members import NOT_DIVERGED, Stopping, TrainState, where


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

    def noticed(
        self, state: TrainState, observed: dict[str, Array], step: Int[Array, ""]
    ) -> tuple[TrainState, dict[str, Array]]:
        """A member's state after a recorded step, and what is recorded of it."""
        before = state.stopping
        assert before is not None, "a training with early stopping carries its state"
        self.require(observed)
        value = observed[self.quantity] * (1 if self.best == "smallest" else -1)
        at = step.astype(jnp.int32)
        going = (before.stopped == NOT_DIVERGED) & (observed["diverged_at"] == NOT_DIVERGED)
        # Weights that are not finite may have a finite quantity, such as an accuracy of zero.
        sound = jnp.isfinite(value) & jnp.isfinite(observed["loss"])
        better = going & sound & (value < before.best - self.gain)
        patient = at - before.best_step < self.patience
        stopping = Stopping(
            jnp.where(better, value, before.best).astype(before.best.dtype),
            jnp.where(better, at, before.best_step),
            jnp.where(going & ~better & ~patient, at, before.stopped),
            where(better, state.learned, before.learned),
        )
        rows = {"best_step": stopping.best_step, "stopped_at": stopping.stopped}
        return dataclasses.replace(state, stopping=stopping), rows

    def require(self, observed: dict[str, Any]) -> None:
        """Refuse a quantity that is not measured, or is no real number per member."""
        known = sorted(
            name
            for name, value in observed.items()
            if not value.shape and jnp.issubdtype(value.dtype, jnp.floating)
        )
        if self.quantity not in known:
            raise ConfigError(
                f"stopping: got the quantity {self.quantity!r}, allowed: a recorded variable with "
                f"one number per member, {', '.join(known)}; add a probe such as "
                "Losses(('validation',)) to the recording"
            )
