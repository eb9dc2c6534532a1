"""Where softmax gives the queries no gradient, and where the Gaussian kernel gives none."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from saccade.models.attention_regression import AttentionRegression
from saccade.models.kernels import KERNELS
from saccade.tasks.random_sequences import Sequences
from saccade.theory.kernel_blindness import KernelBlindness


@functools.cache
def parts(kernel: str) -> tuple[AttentionRegression, Sequences, Any]:
    """A model, data, and the queries' gradient as a function of the scales of keys and queries."""
    random = np.random.default_rng(8)
    weights = [random.normal(size=(2, 4, 3)) / 2 for _ in range(3)]
    with jax.enable_x64(True):
        batch = Sequences(
            jnp.asarray(random.normal(size=(2, 3, 4))), jnp.asarray(random.normal(size=(2, 3, 1)))
        )
        numbers = [jnp.asarray(one) for one in (*weights, 2 * random.normal(size=(2, 3, 1)))]
        model = AttentionRegression(*numbers, kernel=KERNELS[kernel], frozen=())

    def scaled(keys: Any, queries: Any) -> AttentionRegression:
        return eqx.tree_at(
            lambda one: (one.keys, one.queries), model, (keys * model.keys, queries * model.queries)
        )

    def loss(queries: Any, keys: Any) -> Any:
        return eqx.tree_at(lambda one: one.queries, scaled(keys, 1.0), queries).loss(batch)

    @jax.jit
    def gradient(keys: Any, queries: Any) -> Any:
        moved = scaled(keys, queries)
        return jax.grad(loss)(moved.queries, keys), moved(batch).attention

    return model, batch, gradient


def slope(kernel: str, keys: float, queries: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Gradient of the queries, and attention."""
    with jax.enable_x64(True):
        return tuple(
            np.asarray(one) for one in parts(kernel)[2](jnp.asarray(keys), jnp.asarray(queries))
        )  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize("queries", [0.3, 1.0, 20.0])
def test_without_keys_only_the_gaussian_kernel_has_a_gradient(queries):
    blind, uniform = slope("softmax", 0.0, queries)
    assert np.all(blind == 0)
    np.testing.assert_allclose(uniform, 1 / 3, rtol=1e-15)
    if queries < 10:  # for larger queries the Gaussian's gradient vanishes as well
        seen, attention = slope("gaussian", 0.0, queries)
        assert np.linalg.norm(seen) > 1e-2
        model, batch, _ = parts("gaussian")
        vectors = np.einsum(
            "snf,hfk->shnk", np.asarray(batch.inputs), queries * np.asarray(model.queries)
        )
        expected = np.exp(-np.sum(vectors**2, axis=-1) / (2 * np.sqrt(3)))
        np.testing.assert_allclose(
            attention, np.repeat(expected[..., None], 3, axis=-1), rtol=1e-12
        )


def test_softmaxs_gradient_is_proportional_to_the_scale_of_the_keys():
    scales = (1e-5, 1e-4, 1e-3)
    norms = [np.linalg.norm(slope("softmax", scale)[0]) for scale in scales]
    slopes = np.diff(np.log(norms)) / np.diff(np.log(scales))
    # The next order is the scale itself, times a number of size 1.
    np.testing.assert_allclose(slopes, 1, atol=0.01)
    gaussian = [np.linalg.norm(slope("gaussian", scale)[0]) for scale in scales]
    np.testing.assert_allclose(gaussian, gaussian[0], rtol=0.01)


def test_for_large_queries_the_gaussian_kernel_has_no_gradient():
    assert np.linalg.norm(slope("gaussian", 1.0, 40.0)[0]) < 1e-12
    assert np.linalg.norm(slope("softmax", 1.0, 1.0)[0]) > 1e-3
    assert set(KERNELS) == {"softmax", "gaussian"}


def test_the_prediction_is_the_first_order_at_the_start():
    measured = np.array([[0.1, 0.4], [0.2, 0.8]])[:, :, None] * np.ones((1, 1, 3))
    trajectory = xr.Dataset(
        {"first_order_gradient": (("seed", "key_scale", "step"), measured)},
        {"seed": [0, 1], "key_scale": [0.01, 0.04], "step": [0, 1, 2]},
    )
    predicted = KernelBlindness().predict(None, None, trajectory)["gradient_norm"]
    assert set(predicted.dims) == {"seed", "key_scale", "part"}
    np.testing.assert_array_equal(predicted.sel(part="queries"), measured[..., 0])
