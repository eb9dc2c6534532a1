"""Attention kernels: how queries and keys make weights. Any model takes either.

Softmax:    score = scale q.k,                 weights = exp(score), divided by their sum over the
keys; Gaussian:   score = - scale ||q - k||^2 / 2,   weights = exp(score), not divided by anything.

The Gaussian's score is softmax's less (|q|^2 + |k|^2) scale / 2; the scale is 1/sqrt(d) unless a
model says otherwise.
"""

from abc import abstractmethod
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

KernelName = Literal["softmax", "gaussian"]


class AbstractKernel(eqx.Module):
    """Scores of queries and keys, and the weights that scores make."""

    normalised: ClassVar[bool]
    """Whether the weights of a query add up to 1."""

    @abstractmethod
    def scores(
        self,
        queries: Float[Array, "*#some query part"],
        keys: Float[Array, "*#some key part"],
        scale: float | None = None,
    ) -> Float[Array, "*some query key"]:
        """Logarithms of the weights, before any normalisation."""

    @abstractmethod
    def weights(self, scores: Float[Array, "*some key"]) -> Float[Array, "*some key"]:
        """Weights of the keys; a key whose score is minus infinity gets exactly 0."""


class Softmax(AbstractKernel):
    """exp(q.k / sqrt d), normalised over the keys."""

    normalised: ClassVar[bool] = True

    def scores(
        self,
        queries: Float[Array, "*#some query part"],
        keys: Float[Array, "*#some key part"],
        scale: float | None = None,
    ) -> Float[Array, "*some query key"]:
        return _scale(queries, scale) * _products(queries, keys)

    def weights(self, scores: Float[Array, "*some key"]) -> Float[Array, "*some key"]:
        return jax.nn.softmax(scores, axis=-1)


class Gaussian(AbstractKernel):
    """exp(-||q - k||^2 / (2 sqrt d)), not normalised."""

    normalised: ClassVar[bool] = False

    def scores(
        self,
        queries: Float[Array, "*#some query part"],
        keys: Float[Array, "*#some key part"],
        scale: float | None = None,
    ) -> Float[Array, "*some query key"]:
        squares = [jnp.sum(vectors**2, axis=-1) for vectors in (queries, keys)]
        distance = (
            squares[0][..., :, None] + squares[1][..., None, :] - 2 * _products(queries, keys)
        )
        return -_scale(queries, scale) / 2 * distance

    def weights(self, scores: Float[Array, "*some key"]) -> Float[Array, "*some key"]:
        return jnp.exp(scores)


def _scale(queries: Float[Array, "*some query part"], scale: float | None) -> float:
    return queries.shape[-1] ** -0.5 if scale is None else scale


def _products(
    queries: Float[Array, "*#some query part"], keys: Float[Array, "*#some key part"]
) -> Float[Array, "*some query key"]:
    return jnp.einsum("...qd,...kd->...qk", queries, keys)


SOFTMAX, GAUSSIAN = Softmax(), Gaussian()
KERNELS: dict[str, AbstractKernel] = {"softmax": SOFTMAX, "gaussian": GAUSSIAN}
KERNEL_TITLES: dict[KernelName, str] = {"softmax": "softmax", "gaussian": "Gaussian"}
