"""The matrix B of attended inputs, which sets how fast values are fitted (Song et al. 2024)."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from saccade.contracts.probe import Moment
from saccade.models.attention_regression import AttentionRegressionConfig, value_curvature
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable


class FeatureMatrix(AbstractModelProbe):
    """Singular values of B and of the output layer, and the least loss with this B."""

    models: ClassVar = (AttentionRegressionConfig,)
    variables: ClassVar = {
        "feature_low": Variable((), "Nn-th singular value of B (Nn x HD), 0 if HD < Nn"),
        "feature_high": Variable((), "largest singular value of B"),
        "output_low": Variable((), "smallest singular value of the output layer, over heads"),
        "curvature": Variable((), "largest squared singular value of output layer times that of B"),
        "floor": Variable((), "least loss with B: half squared distance of targets to its range"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model, batch = moment.model, moment.train
        features = model.features(batch)
        left, singular, _ = jnp.linalg.svd(features, full_matrices=False)
        rows = features.shape[0]
        flat = batch.targets.reshape(rows, -1)
        # Directions of B whose singular value is zero up to rounding span nothing.
        real = singular > singular[0] * max(features.shape) * jnp.finfo(features.dtype).eps
        outside = flat - left @ (real[:, None] * (left.T @ flat))
        low = singular[rows - 1] if singular.size >= rows else jnp.zeros(())
        low = jnp.where(jnp.sum(real) >= rows, low, 0.0)
        outputs = jnp.linalg.svd(model.output, compute_uv=False)
        found = {"curvature": value_curvature(model, batch), "floor": jnp.sum(outside**2) / 2}
        found["output_low"] = jnp.min(outputs[:, -1])
        return found | {"feature_low": low, "feature_high": singular[0]}


class ValueModes(AbstractModelProbe):
    """How the values see the loss: eigenvalues of its Hessian in W^V that are not 0 for every B,
    and the residual's share in each eigenvector.
    """

    models: ClassVar = (AttentionRegressionConfig,)
    variables: ClassVar = {
        "mode_curvature": Variable(("mode",), "eigenvalue of sum_h W_h^OT W_h^O (x) B_h B_h^T"),
        "mode_residual": Variable(("mode",), "squared component of the residual along its vector"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model, batch = moment.model, moment.train
        heads, _, outputs = model.output.shape
        features = model.features(batch)
        blocks = features.reshape(features.shape[0], heads, -1)
        seen = jnp.einsum("hko,hkp->hop", model.output, model.output)
        curvature = jnp.einsum("hop,rhf,shf->rosp", seen, blocks, blocks)
        size = features.shape[0] * outputs
        eigenvalues, vectors = jnp.linalg.eigh(curvature.reshape(size, size))
        residual = (model(batch).logits - batch.targets).reshape(size)
        return {"mode_curvature": eigenvalues, "mode_residual": (vectors.T @ residual) ** 2}


class FirstOrderQueries(AbstractModelProbe):
    """Softmax's gradient of W^Q to first order in the keys, from the weights and the residual."""

    models: ClassVar = (AttentionRegressionConfig,)
    variables: ClassVar = {
        "first_order_gradient": Variable((), "norm of the gradient of W^Q to first order in W^K")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model, batch = moment.model, moment.train
        (layer,) = model.attention_layers(batch)
        # Attention is 1/n to leading order; d S_ab / d q_a = (k_b - mean k) / (n sqrt d).
        keys = layer.keys - jnp.mean(layer.keys, axis=2, keepdims=True)
        projected = jnp.einsum("hfk,hko->hfo", model.values, model.output)
        values = jnp.einsum("snf,hfo->shno", batch.inputs, projected)
        pull = jnp.einsum("shnk,shno->shko", keys, values) / keys.shape[2] / keys.shape[3] ** 0.5
        residual = model(batch).logits - batch.targets
        gradient = jnp.einsum("snf,sno,shko->hfk", batch.inputs, residual, pull)
        return {"first_order_gradient": jnp.sqrt(jnp.sum(gradient**2))}


class ReachOfQueries(AbstractModelProbe):
    """The least loss that queries alone can reach with the Gaussian kernel if all keys are zero."""

    models: ClassVar = (AttentionRegressionConfig,)
    variables: ClassVar = {
        "reach_floor": Variable((), "least loss over queries, keys 0 (lower bound if many outputs)")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model, batch = moment.model, moment.train
        # A head adds a share of `whole`: the query sets one weight in [0, 1] per sequence.
        projected = jnp.einsum("hfk,hko->hfo", model.values, model.output)
        whole = jnp.einsum("snf,hfo->sho", batch.inputs, projected)
        low = jnp.sum(jnp.minimum(whole, 0), axis=1, keepdims=True)
        high = jnp.sum(jnp.maximum(whole, 0), axis=1, keepdims=True)
        missed = jnp.maximum(jnp.maximum(low - batch.targets, batch.targets - high), 0)
        return {"reach_floor": jnp.sum(missed**2) / 2}
