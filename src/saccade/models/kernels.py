"""Attention kernels: the weights that queries and keys give. Every model takes either.

Softmax:    score = scale q.k,                 weights = exp(score), divided by their sum over keys;
Gaussian:   score = - scale ||q - k||^2 / 2,   weights = exp(score), not normalised.

The Gaussian's score is softmax's minus (|q|^2 + |k|^2) scale / 2. The scale is 1/sqrt(d) unless a
model sets another.
"""

from abc import abstractmethod
from typing import ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

KernelName = Literal["softmax", "gaussian"]
Queries = Float[Array, "*#some query part"]
Keys = Float[Array, "*#some key part"]
Table = Float[Array, "*some query key"]


class AbstractKernel(eqx.Module):
    """Scores of queries and keys, and the weights of scores."""

    normalised: ClassVar[bool]
    """Whether the weights of a query sum to 1."""

    @abstractmethod
    def scores(self, queries: Queries, keys: Keys, scale: float | None = None) -> Table:
        """Logarithms of the weights, before any normalisation."""

    @abstractmethod
    def weights(self, scores: Float[Array, "*some key"]) -> Float[Array, "*some key"]:
        """Weights of the keys; a key with score minus infinity has weight exactly 0."""

    def sums(
        self, scores: Table, values: Float[Array, "*#some key feature"]
    ) -> Float[Array, "*some query feature"]:
        """The sums of values by the weights of the scores."""
        return jnp.einsum("...qk,...kd->...qd", self.weights(scores), values)

    def of_query(
        self, query: Float[Array, " part"], keys: Float[Array, "part key"]
    ) -> Float[Array, " key"]:
        """Scores of one query for keys that are the columns of a table, without scaling."""
        return self.scores(query[None], keys.T, scale=1.0)[0]


class Softmax(AbstractKernel):
    """exp(q.k / sqrt d), normalised over the keys."""

    normalised: ClassVar[bool] = True

    def scores(self, queries: Queries, keys: Keys, scale: float | None = None) -> Table:
        return _scale(queries, scale) * jnp.einsum("...qd,...kd->...qk", queries, keys)

    def weights(self, scores: Float[Array, "*some key"]) -> Float[Array, "*some key"]:
        return jax.nn.softmax(scores, axis=-1)

    def sums(
        self, scores: Table, values: Float[Array, "*#some key feature"]
    ) -> Float[Array, "*some query feature"]:
        # Divided behind the sums: there are fewer of them than weights.
        largest = jax.lax.stop_gradient(jnp.max(scores, axis=-1, keepdims=True))
        # A query that sees no key has no weights: its sum is 0, as the Gaussian's is.
        weights = jnp.exp(scores - jnp.where(largest > -jnp.inf, largest, 0.0))
        total = jnp.sum(weights, axis=-1, keepdims=True)
        sums = jnp.einsum("...qk,...kd->...qd", weights, values)
        return sums / jnp.where(total > 0, total, 1.0)


class Gaussian(AbstractKernel):
    """exp(-||q - k||^2 / (2 sqrt d)), not normalised."""

    normalised: ClassVar[bool] = False

    def scores(self, queries: Queries, keys: Keys, scale: float | None = None) -> Table:
        ours, theirs = (jnp.sum(vectors**2, axis=-1) for vectors in (queries, keys))
        distance = ours[..., :, None] + theirs[..., None, :]
        distance = distance - 2 * jnp.einsum("...qd,...kd->...qk", queries, keys)
        return -_scale(queries, scale) / 2 * distance

    def weights(self, scores: Float[Array, "*some key"]) -> Float[Array, "*some key"]:
        return jnp.exp(scores)


class Direct(AbstractKernel):
    """Keys of one part are the scores themselves; weights as another kernel has them."""

    of: AbstractKernel

    @property
    def normalised(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.of.normalised

    def scores(self, queries: Queries, keys: Keys, scale: float | None = None) -> Table:
        scores = jnp.swapaxes(keys, -1, -2)
        return jnp.broadcast_to(scores, (*queries.shape[:-1], scores.shape[-1]))

    def weights(self, scores: Float[Array, "*some key"]) -> Float[Array, "*some key"]:
        return self.of.weights(scores)


def _scale(queries: Queries, scale: float | None) -> float:
    return queries.shape[-1] ** -0.5 if scale is None else scale


SOFTMAX = Softmax()
KERNELS: dict[str, AbstractKernel] = {"softmax": SOFTMAX, "gaussian": Gaussian()}
KERNEL_TITLES: dict[KernelName, str] = {"softmax": "softmax", "gaussian": "Gaussian"}
