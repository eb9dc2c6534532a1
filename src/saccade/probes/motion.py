"""How far the parts of a model have moved, and how hard the loss pulls at them."""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractProbe, Moment, Variable


def _norm(tree: Any) -> Float[Array, ""]:
    return jnp.sqrt(sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), jnp.zeros(())))


def _part(model: Any, name: str) -> Any:
    part = getattr(model, name, None)
    if part is None:
        raise ConfigError(f"parts: got {name}, allowed: parts that {type(model).__name__} has")
    return part


@dataclasses.dataclass(frozen=True)
class Displacements(AbstractProbe):
    """Frobenius norm of each part, and of its way from the start."""

    parts: tuple[str, ...] = ("values", "keys", "queries")
    """Names of the parts."""

    variables: ClassVar = {
        "part_norm": Variable(("part",), "Frobenius norm of a part of the model"),
        "displacement": Variable(
            ("part",), "Frobenius norm of a part less what it was at the start"
        ),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        now, start = (
            [_part(model, name) for name in self.parts] for model in (moment.model, moment.initial)
        )
        ways = [jax.tree.map(jnp.subtract, *both) for both in zip(now, start, strict=True)]
        return {
            "part_norm": jnp.stack([_norm(part) for part in now]),
            "displacement": jnp.stack([_norm(way) for way in ways]),
        }

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        del task
        return {"part": ("part", list(self.parts))}


@dataclasses.dataclass(frozen=True)
class GradientNorms(AbstractProbe):
    """Frobenius norm of the gradient of each part, trained or not."""

    parts: tuple[str, ...] = ("values", "keys", "queries")
    """Names of the parts."""

    variables: ClassVar = {
        "gradient_norm": Variable(("part",), "Frobenius norm of the gradient of the training loss")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {
            "gradient_norm": jnp.stack([_norm(_part(moment.gradient, name)) for name in self.parts])
        }

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        del task
        return {"part": ("part", list(self.parts))}
