"""The precision of real numbers: float32 for training, float64 for checks of closed forms."""

from contextlib import nullcontext
from typing import Any, Literal

import jax

Precision = Literal["float32", "float64"]


def in_precision(precision: Precision) -> Any:
    """A context in which JAX computes in a precision."""
    if precision == "float64":
        return jax.enable_x64(True)
    return nullcontext() if not jax.config.jax_enable_x64 else jax.enable_x64(False)  # pyright: ignore[reportAttributeAccessIssue]
