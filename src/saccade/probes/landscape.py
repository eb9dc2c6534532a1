"""The loss over a plane through the weights (Li et al. 2018; Song 2024, figure 3): one direction in
all queries' weights, one in all keys'.

A direction is drawn N(0, 1) and rescaled, for every matrix, to the norm of that matrix: a step of 1
then changes every matrix by its own size, whatever the scales are.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from saccade.contracts.chunks import evenly
from saccade.contracts.probe import Moment
from saccade.models.encoder import Encoder, EncoderConfig
from saccade.probes.curvature import PRECISION
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable
from saccade.settings import require_count, require_positive

SIDES = ("query", "key")


@dataclasses.dataclass(frozen=True)
class LossPlane(AbstractModelProbe):
    """The loss on some test examples, evenly spaced, without dropout, where the weights of queries
    and keys are moved. The directions of a draw are the same for all members and models of a size.
    """

    models: ClassVar = (EncoderConfig,)
    points: int = 31
    """Points in each direction."""
    reach: float = 1.0
    """How far the weights are moved at most, in their own norms."""
    draws: int = 5
    """Pairs of directions."""
    examples: int = 512
    """How many test examples, at most."""

    def __post_init__(self):
        require_count(self, "points", "draws", "examples")
        require_positive(self, "reach")

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(points=3, draws=2, examples=4), super().example()[1]

    @property
    def variables(self) -> Mapping[str, Variable]:  # pyright: ignore[reportIncompatibleVariableOverride]
        dims = ("draw", *(f"{side}_move" for side in SIDES))
        about = "loss on test examples where weights of queries and keys are moved"
        return {"plane_loss": Variable(dims, about)}

    @property
    def moves(self) -> np.ndarray:
        return np.linspace(-self.reach, self.reach, self.points)

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        moves = {f"{side}_move": (f"{side}_move", self.moves) for side in SIDES}
        return {"draw": ("draw", list(range(self.draws))), **moves}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = evenly(moment.test, self.examples)
        # Second differences would show the rounding of fused attention and of TF32.
        model = moment.model.with_attention(fused=False)
        moves = jnp.asarray(self.moves)
        places = jnp.stack(jnp.meshgrid(jnp.arange(self.draws), moves, moves, indexing="ij"), -1)

        def loss(place: Float[Array, " 3"]) -> Float[Array, ""]:
            draw = place[0].astype(int)
            return moment.loss_of(_moved(model, draw, place[1:]), batch)

        with jax.default_matmul_precision(PRECISION):
            found = jax.lax.map(loss, places.reshape(-1, 3))
        return {"plane_loss": found.reshape(places.shape[:-1])}


def _moved(model: Encoder, draw: Array, by: Float[Array, " 2"]) -> Encoder:
    def matrices(tree: Any) -> list[Any]:
        parts = [getattr(layer.attention, side) for layer in tree.layers for side in SIDES]
        return [one.weights for one in parts]

    old = matrices(model)
    keys = jax.random.split(jax.random.fold_in(jax.random.key(0), draw), len(old))
    new = []
    for place, (matrix, key) in enumerate(zip(old, keys, strict=True)):
        drawn = jax.random.normal(key, matrix.shape, matrix.dtype)
        scaled = jnp.linalg.norm(matrix) / jnp.linalg.norm(drawn) * drawn
        new.append(matrix + by[place % len(SIDES)] * scaled)
    return eqx.tree_at(matrices, model, new)
