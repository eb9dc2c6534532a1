"""Classifier heads that are linear before anything else, so that words can be classified before
they are averaged.

`project` maps the table of embeddings to the head's first layer; attention averages what it gives;
`finish` does the rest. Attention is linear in the values, so this equals averaging first, at a
fraction of the cost.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray


class AbstractHead(eqx.Module):
    first: Float[Array, "dimension column"]
    """The first, linear layer."""

    def project(self, embeddings: Float[Array, "dimension word"]) -> Float[Array, "column word"]:
        return jnp.einsum("dw,dc->cw", embeddings, self.first)

    @abstractmethod
    def finish(
        self, context: Float[Array, "sentence column"]
    ) -> Float[Array, "sentence label"]: ...


class LinearHead(AbstractHead):
    """logits = U^T context."""

    def finish(self, context: Float[Array, "sentence column"]) -> Float[Array, "sentence label"]:
        return context


class TwoLayerHead(AbstractHead):
    """logits = U2^T ReLU(U1^T context + b1) + b2."""

    first_bias: Float[Array, " column"]
    second: Float[Array, "column label"]
    second_bias: Float[Array, " label"]

    def finish(self, context: Float[Array, "sentence column"]) -> Float[Array, "sentence label"]:
        return jax.nn.relu(context + self.first_bias) @ self.second + self.second_bias


def orthonormal_head(dimension: int, labels: int, key: PRNGKeyArray) -> LinearHead:
    """U with orthonormal columns."""
    return LinearHead(jnp.linalg.qr(jax.random.normal(key, (dimension, labels)))[0])


def gaussian_head(dimension: int, labels: int, key: PRNGKeyArray) -> LinearHead:
    """U standard normal with ones on its diagonal: independent columns, far from orthonormal."""
    matrix = jax.random.normal(key, (dimension, labels))
    return LinearHead(jnp.where(jnp.eye(dimension, labels, dtype=bool), 1.0, matrix))


def linear_head(dimension: int, labels: int, key: PRNGKeyArray) -> LinearHead:
    """U uniform in +- 1/sqrt(dimension), PyTorch's default."""
    return LinearHead(_uniform(key, (dimension, labels), dimension))


def two_layer_head(dimension: int, hidden: int, labels: int, key: PRNGKeyArray) -> TwoLayerHead:
    """Weights and biases uniform in +- 1/sqrt(inputs of the layer), PyTorch's default."""
    keys = jax.random.split(key, 4)
    return TwoLayerHead(
        _uniform(keys[0], (dimension, hidden), dimension),
        _uniform(keys[1], (hidden,), dimension),
        _uniform(keys[2], (hidden, labels), hidden),
        _uniform(keys[3], (labels,), hidden),
    )


def _uniform(key: PRNGKeyArray, shape: tuple[int, ...], inputs: int) -> Array:
    return jax.random.uniform(key, shape, minval=-(inputs**-0.5), maxval=inputs**-0.5)
