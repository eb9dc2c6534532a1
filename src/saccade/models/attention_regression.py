"""One layer of multi-head attention that fits the targets of every vector (Song et al. 2024).

    MH(X) = [S_1 X W_1^V, ..., S_H X W_H^V] W^O,      S_h from X W_h^Q and X W_h^K by a kernel

Symbols: N sequences X of n vectors in R^D; H heads; W^Q, W^K, W^V in R^{D x d}; a fixed W^O in
R^{Hd x p}; loss (1/2) sum ||MH(X) - y||^2 over sequences, vectors and outputs. Attention is linear
in the values, so they are projected to the p outputs before they are averaged.
"""

import dataclasses
from typing import Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from saccade.contracts.model import AbstractModel, AbstractModelConfig, AttentionLayer, Output
from saccade.errors import ConfigError
from saccade.models.freezing import without
from saccade.models.kernels import KERNELS, AbstractKernel, KernelName
from saccade.settings import require, require_choices, require_count, require_finite
from saccade.tasks.random_sequences import HasVectors, RandomSequences, Sequences

PARTS = ("queries", "keys", "values")
Targets = Literal["task", "start", "teacher"]
POWERS = 300
"""Steps of power iteration: enough for 1e-3 of an eigenvalue that stands out by 1 %."""
Weights = Float[Array, "head feature part"]


class AttentionRegression(AbstractModel):
    """Heads of attention and a fixed output layer."""

    queries: Weights
    keys: Weights
    values: Weights
    output: Float[Array, "head part output"]
    kernel: AbstractKernel
    frozen: tuple[str, ...] = eqx.field(static=True)

    def attention_layers(self, batch: Sequences) -> tuple[AttentionLayer]:
        queries = jnp.einsum("snf,hfk->shnk", batch.inputs, self.queries)
        keys = jnp.einsum("snf,hfk->shnk", batch.inputs, self.keys)
        return (AttentionLayer(queries, keys, self.kernel),)

    def attention(self, batch: Sequences) -> Float[Array, "sequence head position key"]:
        (layer,) = self.attention_layers(batch)
        return self.kernel.weights(self.kernel.scores(layer.queries, layer.keys))

    def __call__(self, batch: Sequences) -> Output:
        attention = self.attention(batch)
        projected = jnp.einsum("hfk,hko->hfo", self.values, self.output)
        values = jnp.einsum("snf,hfo->shno", batch.inputs, projected)
        return Output(jnp.einsum("shnk,shko->sno", attention, values), attention)

    def loss(self, batch: Sequences) -> Float[Array, ""]:
        """Half the sum of squared errors over sequences, vectors and outputs."""
        return jnp.sum((self(batch).logits - batch.targets) ** 2) / 2

    def features(self, batch: Sequences) -> Float[Array, "row column"]:
        """B, a row per vector and a column per head and feature: MH(X) = B W^V W^O."""
        mixed = jnp.einsum("shnk,skf->snhf", self.attention(batch), batch.inputs)
        return mixed.reshape(mixed.shape[0] * mixed.shape[1], -1)

    def trainable(self) -> PyTree:
        return without(super().trainable(), (*self.frozen, "output"))


def value_curvature(model: AttentionRegression, batch: Sequences) -> Float[Array, ""]:
    """max_h ||W_h^O||^2 ||B||^2, an upper bound on the curvature of the loss in the values."""
    largest = jnp.max(jnp.linalg.norm(model.output, ord=2, axis=(1, 2)))
    return (largest * jnp.linalg.norm(model.features(batch), ord=2)) ** 2


def query_curvature(model: AttentionRegression, batch: Sequences) -> Float[Array, ""]:
    """Largest eigenvalue of the Hessian of the loss in W^Q, by power iteration."""

    def loss(queries: Weights) -> Float[Array, ""]:
        return eqx.tree_at(lambda one: one.queries, model, queries).loss(batch)

    def product(vector: Weights) -> Weights:
        return jax.jvp(jax.grad(loss), (model.queries,), (vector,))[1]

    def quotient(shift: float | Array) -> Float[Array, ""]:
        """The eigenvalue of the Hessian that is the largest in size once `shift` is added."""

        def turned(_: Array, vector: Weights) -> Weights:
            vector = product(vector) + shift * vector
            return vector / jnp.linalg.norm(vector)

        vector = jax.random.normal(jax.random.key(0), model.queries.shape)
        vector = jax.lax.fori_loop(0, POWERS, turned, vector / jnp.linalg.norm(vector))
        return jnp.sum(vector * product(vector))

    # Of the largest size it may be negative; shifted by that size, all are positive.
    return quotient(jnp.abs(quotient(0.0)))


@dataclasses.dataclass(frozen=True)
class AttentionRegressionConfig(AbstractModelConfig):
    """Sizes, random initialisation, and which parts are trained."""

    kernel: KernelName = "softmax"
    """softmax, or gaussian (not normalised)."""
    heads: int = 2
    """Heads (H)."""
    head_dimension: int = 16
    """Dimension of queries, keys and values (d)."""
    trained: tuple[str, ...] = PARTS
    """Which of queries, keys and values are trained."""
    query_scale: float = 1.0
    """Initial standard deviation of W^Q, times sqrt(D)."""
    key_scale: float = 1.0
    """Initial standard deviation of W^K, times sqrt(D)."""
    value_scale: float = 0.1
    """Initial standard deviation of W^V, times sqrt(D)."""
    output_scale: float = 4.0
    """Standard deviation of W^O, times sqrt(d)."""
    targets: Targets = "task"
    """task: as drawn; start: plus the initial output; teacher: that with another W^Q (scale 1)."""

    def __post_init__(self):
        require_choices(self)
        require_count(self, "heads", "head_dimension")
        require_finite(self, "query_scale", "key_scale", "value_scale", "output_scale")
        if not self.trained or not set(self.trained) <= set(PARTS):
            got, allowed = ", ".join(self.trained) or "nothing", ", ".join(PARTS)
            raise ConfigError(f"trained: got {got}, allowed: some of {allowed}")

    @classmethod
    def example(cls) -> tuple[Self, RandomSequences]:
        return cls(), RandomSequences.example()

    def _draw(self, task: HasVectors, key: PRNGKeyArray, scale: float | Array) -> Weights:
        shape = (self.heads, task.width, self.head_dimension)
        return scale * task.dimension**-0.5 * task.active[:, None] * jax.random.normal(key, shape)

    def build(self, task: HasVectors, key: PRNGKeyArray) -> AttentionRegression:
        least = f"at least the {task.outputs} outputs"
        require(self, "head_dimension", least, lambda size: size >= task.outputs)
        draws = jax.random.split(key, 4)
        queries = self._draw(task, draws[0], self.query_scale)
        keys = self._draw(task, draws[1], self.key_scale)
        values = self._draw(task, draws[2], self.value_scale)
        output = jax.random.normal(draws[3], (self.heads, self.head_dimension, task.outputs))
        output = self.output_scale * self.head_dimension**-0.5 * output
        frozen = tuple(part for part in PARTS if part not in self.trained)
        return AttentionRegression(queries, keys, values, output, KERNELS[self.kernel], frozen)

    def relabelled(
        self, task: HasVectors, start: AttentionRegression, batch: Sequences, key: PRNGKeyArray
    ) -> Sequences:
        if self.targets == "task":
            return batch
        if self.targets == "teacher":
            start = eqx.tree_at(lambda model: model.queries, start, self._draw(task, key, 1.0))
        return Sequences(batch.inputs, start(batch).logits + batch.targets)
