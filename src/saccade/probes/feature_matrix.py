"""The matrix B of attended inputs, which determines how fast the values can be fitted (Song, Han,
Zhang, Ding & Hong 2024).
"""

import dataclasses
from typing import ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array

from saccade.core.interfaces import AbstractProbe, Moment, Variable
from saccade.models.attention_regression import AttentionRegressionConfig, value_curvature
from saccade.tasks.random_sequences import RandomSequences


@dataclasses.dataclass(frozen=True)
class FeatureMatrix(AbstractProbe):
    """Singular values of B and of the output layer, and the least loss with this B."""

    variables: ClassVar = {
        "feature_low": Variable(
            (), "Nn-th singular value of B; 0 if B has fewer columns (HD) than rows (Nn)"
        ),
        "feature_high": Variable((), "largest singular value of B"),
        "output_low": Variable((), "smallest singular value of the output layer, over heads"),
        "curvature": Variable(
            (), "largest squared singular value of the output layer times that of B"
        ),
        "floor": Variable(
            (),
            "half the squared distance of the targets to the range of B, the least loss with B",
        ),
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[tuple[AttentionRegressionConfig, RandomSequences], ...]]:
        return cls(), (AttentionRegressionConfig.example(),)

    def __call__(self, moment: Moment) -> dict[str, Array]:
        features, targets = moment.model.features(moment.train), moment.train.targets
        left, singular, _ = jnp.linalg.svd(features, full_matrices=False)
        rows = features.shape[0]
        flat = targets.reshape(rows, -1)
        # Directions of B whose singular value is zero up to rounding span nothing.
        real = singular > singular[0] * max(features.shape) * jnp.finfo(features.dtype).eps
        outside = flat - left @ (real[:, None] * (left.T @ flat))
        low = singular[rows - 1] if singular.size >= rows else jnp.zeros(())
        outputs = jnp.linalg.svd(moment.model.output, compute_uv=False)
        return {
            "feature_low": jnp.where(jnp.sum(real) >= rows, low, 0.0),
            "feature_high": singular[0],
            "output_low": jnp.min(outputs[:, -1]),
            "curvature": value_curvature(moment.model, moment.train),
            "floor": jnp.sum(outside**2) / 2,
        }


@dataclasses.dataclass(frozen=True)
class ReachOfQueries(AbstractProbe):
    """The least loss that queries alone can reach with the Gaussian kernel if all keys are zero."""

    variables: ClassVar = {
        "reach_floor": Variable(
            (),
            "least loss over all queries, Gaussian kernel, all keys 0 (several outputs: a lower"
            " bound)",
        )
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[tuple[AttentionRegressionConfig, RandomSequences], ...]]:
        return cls(), (AttentionRegressionConfig.example(),)

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model, batch = moment.model, moment.train
        # A head gives all vectors of a sequence the same weight in [0, 1], which the query sets:
        # it adds a share of `whole`.
        projected = jnp.einsum("hfk,hko->hfo", model.values, model.output)
        whole = jnp.einsum("snf,hfo->sho", batch.inputs, projected)
        low, high = (
            jnp.sum(part, axis=1)[:, None, :]
            for part in (jnp.minimum(whole, 0), jnp.maximum(whole, 0))
        )
        missed = jnp.maximum(jnp.maximum(low - batch.targets, batch.targets - high), 0)
        return {"reach_floor": jnp.sum(missed**2) / 2}
