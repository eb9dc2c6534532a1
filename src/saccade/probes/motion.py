"""How far the parts of a model have moved, and the size of their gradients."""

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractProbe, Moment, Variable
from saccade.models.attention_regression import AttentionRegressionConfig
from saccade.models.one_layer_transformer import OneLayerTransformerConfig


def _norm(tree: Any) -> Float[Array, ""]:
    return jnp.sqrt(sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), jnp.zeros(())))


@dataclasses.dataclass(frozen=True)
class AbstractPartProbe(AbstractProbe):
    """A probe with one number per part of the model."""

    parts: tuple[str, ...] = ("values", "keys", "queries")
    """Names of the parts."""

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(), (AttentionRegressionConfig.example(), OneLayerTransformerConfig.example())

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        del task
        return {"part": ("part", list(self.parts))}

    def _parts(self, model: Any) -> list[Any]:
        kind = type(model).__name__
        for name in self.parts:
            if getattr(model, name, None) is None:
                raise ConfigError(f"parts: got {name}, allowed: parts that {kind} has")
        return [getattr(model, name) for name in self.parts]


class Displacements(AbstractPartProbe):
    """Frobenius norm of each part, and of its displacement from the initialisation."""

    variables: ClassVar = {
        "part_norm": Variable(("part",), "Frobenius norm of a part of the model"),
        "displacement": Variable(("part",), "Frobenius norm of a part minus its initialisation"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        now, start = self._parts(moment.model), self._parts(moment.initial)
        moved = [jax.tree.map(jnp.subtract, *both) for both in zip(now, start, strict=True)]
        return {
            "part_norm": jnp.stack([_norm(part) for part in now]),
            "displacement": jnp.stack([_norm(part) for part in moved]),
        }


class GradientNorms(AbstractPartProbe):
    """Frobenius norm of the gradient of each part, trained or not."""

    variables: ClassVar = {
        "gradient_norm": Variable(("part",), "Frobenius norm of the gradient of the training loss")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"gradient_norm": jnp.stack([_norm(part) for part in self._parts(moment.gradient)])}
