"""Classifier heads with a linear first layer: words are projected before they are averaged.

`project` applies the first layer to the table of embeddings, attention averages the result, and
`finish` applies the rest. Attention is linear in the values, so this equals averaging first, at a
fraction of the cost.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from saccade.models.linear import bounded_uniform


class AbstractHead(eqx.Module):
    """A classifier of contexts."""

    first: Float[Array, "dimension column"]
    """The first, linear layer."""

    def project(self, embeddings: Float[Array, "dimension word"]) -> Float[Array, "column word"]:
        return jnp.einsum("dw,dc->cw", embeddings, self.first)

    @abstractmethod
    def finish(self, context: Float[Array, "sentence column"]) -> Float[Array, "sentence label"]:
        """Logits of averaged projections."""


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
    """U with PyTorch's initialisation."""
    return LinearHead(bounded_uniform(key, (dimension, labels), dimension))


def two_layer_head(dimension: int, hidden: int, labels: int, key: PRNGKeyArray) -> TwoLayerHead:
    """Weights and biases with PyTorch's initialisation."""
    shapes = ((dimension, hidden), (hidden,), (hidden, labels), (labels,))
    inputs, keys = (dimension, dimension, hidden, hidden), jax.random.split(key, 4)
    return TwoLayerHead(*map(bounded_uniform, keys, shapes, inputs))
