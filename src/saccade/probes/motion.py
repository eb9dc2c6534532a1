"""How far the parts of a model have moved, the size of their gradients, and their stable rank.

Parts are named by dotted paths into the model, at any depth: `values`, `layers.0.attention.query`.
A pattern names one part, whose arrays are pooled: `layers.*.attention.query` is the queries of all
layers together. For a number per layer, give one path per layer.
"""

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from saccade.contracts.probe import Moment
from saccade.errors import ConfigError
from saccade.models.attention_regression import AttentionRegressionConfig
from saccade.models.encoder import EncoderConfig
from saccade.models.one_layer_transformer import OneLayerTransformerConfig
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable
from saccade.train.optimiser import Adam
from saccade.train.paths import named, part, paths

SQUARINGS = 24
"""Of a Gram matrix, for its largest eigenvalue."""


def _norm(tree: Any) -> Float[Array, ""]:
    return jnp.sqrt(sum((jnp.sum(leaf**2) for leaf in jax.tree.leaves(tree)), jnp.zeros(())))


def stable_rank(matrix: Float[Array, "row column"]) -> Float[Array, ""]:
    """||W||_F^2 / ||W||_2^2: the number of directions that matter, at most the rank.

    The squared spectral norm is the largest eigenvalue of the smaller Gram matrix G, here as
    tr(G^m)^(1/m) with m = 2^24 by repeated squaring: too large by a factor n^(1/m), which is
    below 1 + 1e-6. (With eigenvalues by LAPACK, trainings on two cores hung; why is not known.)
    """
    rows, columns = matrix.shape
    power = matrix @ matrix.T if rows < columns else matrix.T @ matrix
    whole = jnp.trace(power)
    power, log_largest = power / whole, jnp.zeros_like(whole)
    for squaring in range(1, SQUARINGS + 1):
        power = power @ power
        trace = jnp.trace(power)
        power, log_largest = power / trace, log_largest + jnp.log(trace) / 2**squaring
    return jnp.exp(-log_largest)


@dataclasses.dataclass(frozen=True)
class AbstractPartProbe(AbstractModelProbe):
    """A probe with one number per part of the model."""

    models: ClassVar = (AttentionRegressionConfig, OneLayerTransformerConfig)
    parts: tuple[str, ...] = ("values", "keys", "queries")
    """Paths of the parts, with * for any name."""

    def __post_init__(self):
        if not isinstance(self.parts, tuple | list) or not self.parts:
            raise ConfigError(
                f"parts: got {self.parts!r}, allowed: at least one path; write "
                f'{type(self).__name__}(("layers.0.attention.query",))'
            )

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        return {"part": ("part", list(self.parts))}

    def _parts(self, model: Any) -> list[list[Any]]:
        """The arrays of every part."""
        return [part(model, pattern, "parts") for pattern in self.parts]


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


class SecondMoments(AbstractPartProbe):
    """Root of Adam's mean squared gradient over Adam's epsilon, root mean square over the numbers
    of each part. NaN for parts that do not learn, and without Adam.
    """

    variables: ClassVar = {
        "second_moment": Variable(("part",), "root of Adam's mean squared gradient, over epsilon")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        states = [
            one
            for one in jax.tree.leaves(moment.optimiser_state, is_leaf=_is_adams)
            if _is_adams(one)
        ]
        nothing = jnp.full(len(self.parts), jnp.nan)
        if not states or not isinstance(moment.optimiser, Adam):
            self._parts(moment.model)  # names that are wrong are refused
            return {"second_moment": nothing}
        learned = paths(states[0].nu)
        corrected = 1 - moment.optimiser.second ** jnp.maximum(states[0].count, 1)
        found = []
        for pattern in self.parts:
            arrays = part(moment.model, pattern, "parts")
            if any(named(pattern, path) for path in learned):
                arrays = part(states[0].nu, pattern, "parts")
                mean = sum(map(jnp.sum, arrays)) / sum(one.size for one in arrays)
                found.append(jnp.sqrt(mean / corrected) / moment.optimiser.epsilon)
            else:
                found.append(jnp.asarray(jnp.nan))
        # Before the first step there is no gradient yet.
        return {"second_moment": jnp.where(states[0].count > 0, jnp.stack(found), nothing)}


def _is_adams(state: Any) -> bool:
    return hasattr(state, "nu") and hasattr(state, "count")


class StableRanks(AbstractPartProbe):
    """Stable rank ||W||_F^2 / ||W||_2^2 of each part's matrix: of the arrays that it names, those
    with two dims, and their mean if there are several. NaN for a part without a matrix, or of
    zeros.
    """

    variables: ClassVar = {
        "stable_rank": Variable(("part",), "squared Frobenius norm over squared spectral norm")
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        names = ("layers.0.attention.query", "layers.*.attention.key", "head.bias")
        return cls(names), (EncoderConfig.example(),)

    def __call__(self, moment: Moment) -> dict[str, Array]:
        ranks = [
            [stable_rank(array) for array in arrays if array.ndim == 2]
            for arrays in self._parts(moment.model)
        ]
        means = [jnp.mean(jnp.stack(some)) if some else jnp.asarray(jnp.nan) for some in ranks]
        return {"stable_rank": jnp.stack(means)}
