"""One layer of multi-head attention that fits a number for every vector (Song, Han, Zhang, Ding &
Hong 2024).

    MH(X) = [S_1 X W_1^V, ..., S_H X W_H^V] W^O,      S_h from X W_h^Q and X W_h^K by a kernel, W^O
    fixed

Symbols: N sequences X of n vectors in R^D; H heads; W^Q, W^K, W^V in R^{D x d}; W^O in R^{Hd x p};
loss (1/2) sum ||MH(X) - y||^2, the sum over sequences, vectors and outputs. Attention is linear in
the values, so they are projected to the p outputs before they are averaged.
"""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractModel, AbstractModelConfig, Output
from saccade.core.sweep import require, require_count
from saccade.models.attention_classifier import without
from saccade.models.kernels import KERNELS, AbstractKernel, KernelName
from saccade.tasks.random_sequences import Sequences

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

    def features(self, batch: Sequences) -> Float[Array, "row column"]:
        """B: one row a vector, one column a head and feature, so that MH(X) = B Theta with
        Theta_h = W_h^V W_h^O.
        """
        mixed = jnp.einsum("shnk,skf->snhf", self.attention(batch.inputs), batch.inputs)
        return mixed.reshape(mixed.shape[0] * mixed.shape[1], -1)

    def trainable(self) -> PyTree:
        return without(super().trainable(), (*self.frozen, "output"))


def half_squared_error(model: AttentionRegression, batch: Sequences) -> Float[Array, ""]:
    """(1/2) sum of squared errors over sequences, vectors and outputs."""
    return jnp.sum((model(batch).logits - batch.targets) ** 2) / 2


def value_curvature(model: AttentionRegression, batch: Sequences) -> Float[Array, ""]:
    """max_h ||W_h^O||^2 ||B||^2: the loss has no larger curvature in the values; a step of its
    inverse never overshoots.
    """
    largest = jnp.max(jnp.linalg.norm(model.output, ord=2, axis=(1, 2)))
    return (largest * jnp.linalg.norm(model.features(batch), ord=2)) ** 2


@dataclasses.dataclass(frozen=True)
class AttentionRegressionConfig(AbstractModelConfig):
    """Random start. Standard deviations are in units of 1/sqrt(D), that of the output layer of
    1/sqrt(d).
    """

    kernel: KernelName = "softmax"
    """softmax, or gaussian (not normalised)."""
    heads: int = 2
    """Heads (H)."""
    head_dimension: int = 16
    """Dimension of queries, keys and values (d)."""
    trained: tuple[str, ...] = PARTS
    """Which of queries, keys and values learn."""
    query_scale: float = 1.0
    """Standard deviation of W^Q at the start, times sqrt(D)."""
    key_scale: float = 1.0
    """Standard deviation of W^K at the start, times sqrt(D)."""
    value_scale: float = 0.1
    """Standard deviation of W^V at the start, times sqrt(D)."""
    output_scale: float = 4.0
    """Standard deviation of W^O, times sqrt(d)."""
    targets: Targets = "task"
    """task: as drawn; start: added to the model's own output at the start; teacher: added to the
    output that another W^Q (drawn with scale 1) would give.
    """

    def __post_init__(self):
        require(self, "kernel", ", ".join(KERNELS), lambda value: value in KERNELS)
        require(
            self,
            "targets",
            "task, start, teacher",
            lambda value: value in ("task", "start", "teacher"),
        )
        require_count(self, "heads", "head_dimension")
        for field in ("query_scale", "key_scale", "value_scale", "output_scale"):
            require(
                self, field, "a finite number, at least 0", lambda value: 0 <= value < float("inf")
            )
        unknown = [part for part in self.trained if part not in PARTS]
        if unknown or not self.trained:
            raise ConfigError(
                f"trained: got {', '.join(self.trained) or 'nothing'}, allowed: some of"
                f" {', '.join(PARTS)}"
            )

    def _draw(self, task: Any, key: PRNGKeyArray, scale: Any) -> Float[Array, "head feature part"]:
        shape = (self.heads, task.width, self.head_dimension)
        return scale * task.dimension**-0.5 * task.active[:, None] * jax.random.normal(key, shape)

    def build(self, task: Any, key: PRNGKeyArray) -> AttentionRegression:
        if task.outputs > self.head_dimension:
            raise ConfigError(
                f"head_dimension: got {self.head_dimension}, allowed: at least the {task.outputs}"
                " outputs"
            )
        keys = jax.random.split(key, 4)
        scales = (self.query_scale, self.key_scale, self.value_scale)
        parts = (self._draw(task, one, scale) for one, scale in zip(keys[:3], scales, strict=True))
        output = jax.random.normal(keys[3], (self.heads, self.head_dimension, task.outputs))
        frozen = tuple(part for part in PARTS if part not in self.trained)
        spread = self.output_scale * self.head_dimension**-0.5
        return AttentionRegression(
            *parts, output=spread * output, kernel=KERNELS[self.kernel], frozen=frozen
        )

    def relabelled(
        self, task: Any, start: AttentionRegression, batch: Sequences, key: PRNGKeyArray
    ) -> Sequences:
        if self.targets == "task":
            return batch
        source = start
        if self.targets == "teacher":
            source = eqx.tree_at(lambda model: model.queries, start, self._draw(task, key, 1.0))
        return Sequences(batch.inputs, source(batch).logits + batch.targets)
