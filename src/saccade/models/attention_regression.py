"""One layer of multi-head attention that fits the targets of every vector (Song, Han, Zhang, Ding &
Hong 2024).

    MH(X) = [S_1 X W_1^V, ..., S_H X W_H^V] W^O,      S_h from X W_h^Q and X W_h^K by a kernel

Symbols: N sequences X of n vectors in R^D; H heads; W^Q, W^K, W^V in R^{D x d}; a fixed W^O in
R^{Hd x p}; loss (1/2) sum ||MH(X) - y||^2 over sequences, vectors and outputs. Attention is linear
in the values, so they are projected to the p outputs before they are averaged.
"""

import dataclasses
import math
from typing import Literal, Self, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractModel, AbstractModelConfig, Output
from saccade.core.sweep import require, require_count
from saccade.models.freezing import without
from saccade.models.kernels import KERNELS, AbstractKernel, KernelName
from saccade.tasks.random_sequences import HasVectors, RandomSequences, Sequences

PARTS = ("queries", "keys", "values")

Targets = Literal["task", "start", "teacher"]


class AttentionRegression(AbstractModel):
    """Heads of attention and a fixed output layer."""

    queries: Float[Array, "head feature part"]
    keys: Float[Array, "head feature part"]
    values: Float[Array, "head feature part"]
    output: Float[Array, "head part output"]
    kernel: AbstractKernel
    frozen: tuple[str, ...] = eqx.field(static=True)

    def attention(
        self, inputs: Float[Array, "sequence position feature"]
    ) -> Float[Array, "sequence head position key"]:
        queries, keys = (
            jnp.einsum("snf,hfk->shnk", inputs, part) for part in (self.queries, self.keys)
        )
        return self.kernel.weights(self.kernel.scores(queries, keys))

    def __call__(self, batch: Sequences) -> Output:
        attention = self.attention(batch.inputs)
        projected = jnp.einsum("hfk,hko->hfo", self.values, self.output)
        values = jnp.einsum("snf,hfo->shno", batch.inputs, projected)
        return Output(jnp.einsum("shnk,shko->sno", attention, values), attention)

    def loss(self, batch: Sequences) -> Float[Array, ""]:
        """Half the sum of squared errors over sequences, vectors and outputs."""
        return jnp.sum((self(batch).logits - batch.targets) ** 2) / 2

    def features(self, batch: Sequences) -> Float[Array, "row column"]:
        """B, with a row per vector and a column per head and feature: MH(X) = B Theta with
        Theta_h = W_h^V W_h^O.
        """
        mixed = jnp.einsum("shnk,skf->snhf", self.attention(batch.inputs), batch.inputs)
        return mixed.reshape(mixed.shape[0] * mixed.shape[1], -1)

    def trainable(self) -> PyTree:
        return without(super().trainable(), (*self.frozen, "output"))


def value_curvature(model: AttentionRegression, batch: Sequences) -> Float[Array, ""]:
    """max_h ||W_h^O||^2 ||B||^2, an upper bound on the curvature of the loss in the values: a step
    of its inverse never overshoots.
    """
    largest = jnp.max(jnp.linalg.norm(model.output, ord=2, axis=(1, 2)))
    return (largest * jnp.linalg.norm(model.features(batch), ord=2)) ** 2


@dataclasses.dataclass(frozen=True)
class AttentionRegressionConfig(AbstractModelConfig):
    """Random initialisation. Standard deviations are in units of 1/sqrt(D), that of the output
    layer in units of 1/sqrt(d).
    """

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
    """task: as drawn; start: added to the model's own output at initialisation; teacher: added to
    the output with another W^Q (of scale 1).
    """

    def __post_init__(self):
        require(self, "kernel", ", ".join(KERNELS), lambda value: value in KERNELS)
        known = get_args(Targets)
        require(self, "targets", ", ".join(known), lambda value: value in known)
        require_count(self, "heads", "head_dimension")
        finite = "a finite number, at least 0"
        for field in ("query_scale", "key_scale", "value_scale", "output_scale"):
            require(self, field, finite, lambda value: 0 <= value < math.inf)
        if not self.trained or not set(self.trained) <= set(PARTS):
            raise ConfigError(
                f"trained: got {', '.join(self.trained) or 'nothing'}, allowed: some of"
                f" {', '.join(PARTS)}"
            )

    @classmethod
    def example(cls) -> tuple[Self, RandomSequences]:
        return cls(), RandomSequences.example()

    def _draw(
        self, task: HasVectors, key: PRNGKeyArray, scale: float | Float[Array, ""]
    ) -> Float[Array, "head feature part"]:
        shape = (self.heads, task.width, self.head_dimension)
        return scale * task.dimension**-0.5 * task.active[:, None] * jax.random.normal(key, shape)

    def build(self, task: HasVectors, key: PRNGKeyArray) -> AttentionRegression:
        if task.outputs > self.head_dimension:
            raise ConfigError(
                f"head_dimension: got {self.head_dimension}, allowed: at least the {task.outputs}"
                " outputs"
            )
        keys = jax.random.split(key, 4)
        scales = (self.query_scale, self.key_scale, self.value_scale)
        parts = (self._draw(task, one, scale) for one, scale in zip(keys[:3], scales, strict=True))
        output = jax.random.normal(keys[3], (self.heads, self.head_dimension, task.outputs))
        spread = self.output_scale * self.head_dimension**-0.5
        frozen = tuple(part for part in PARTS if part not in self.trained)
        return AttentionRegression(
            *parts, output=spread * output, kernel=KERNELS[self.kernel], frozen=frozen
        )

    def relabelled(
        self, task: HasVectors, start: AttentionRegression, batch: Sequences, key: PRNGKeyArray
    ) -> Sequences:
        if self.targets == "task":
            return batch
        source = start
        if self.targets == "teacher":
            source = eqx.tree_at(lambda model: model.queries, start, self._draw(task, key, 1.0))
        return Sequences(batch.inputs, source(batch).logits + batch.targets)
