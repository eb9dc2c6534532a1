"""The two kernels against their formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.models.kernels import KERNELS, Gaussian, Softmax

RANDOM = np.random.default_rng(0)
QUERIES, KEYS = RANDOM.normal(size=(2, 5, 3)), RANDOM.normal(size=(2, 4, 3))
EXACT = {"rtol": 0, "atol": 1e-14}
"""float64, numbers of size 1."""


def weights(
    kernel, queries: np.ndarray, keys: np.ndarray, scale: float | None = None
) -> np.ndarray:
    with jax.enable_x64(True):
        return np.asarray(
            kernel.weights(kernel.scores(jnp.asarray(queries), jnp.asarray(keys), scale))
        )


@pytest.mark.parametrize("scale", [None, 0.7])
def test_the_gaussian_kernel_is_the_exponential_of_minus_half_the_squared_distance(scale):
    """exp(-||q - k||^2 / (2 sqrt d)), by loops."""
    factor = 3**-0.5 if scale is None else scale
    expected = np.empty((2, 5, 4))
    for some, query, key in np.ndindex(expected.shape):
        distance = np.sum((QUERIES[some, query] - KEYS[some, key]) ** 2)
        expected[some, query, key] = np.exp(-factor * distance / 2)
    np.testing.assert_allclose(weights(Gaussian(), QUERIES, KEYS, scale), expected, **EXACT)


@pytest.mark.parametrize("scale", [None, 0.7])
def test_the_softmax_kernel_is_normalised_over_the_keys(scale):
    factor = 3**-0.5 if scale is None else scale
    raw = np.exp(factor * np.einsum("sqd,skd->sqk", QUERIES, KEYS))
    ours = weights(Softmax(), QUERIES, KEYS, scale)
    np.testing.assert_allclose(ours, raw / raw.sum(axis=2, keepdims=True), **EXACT)
    np.testing.assert_allclose(ours.sum(axis=2), 1, **EXACT)


def test_one_vector_added_to_all_keys_changes_softmax_not_at_all_and_the_gaussian_kernel_much():
    moved = KEYS + np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(
        weights(Softmax(), QUERIES, moved), weights(Softmax(), QUERIES, KEYS), **EXACT
    )
    assert (
        np.abs(weights(Gaussian(), QUERIES, moved) - weights(Gaussian(), QUERIES, KEYS)).max() > 0.1
    )


def test_one_vector_added_to_queries_and_keys_changes_the_gaussian_kernel_not_at_all():
    moved = np.array([1.0, -2.0, 0.5])
    np.testing.assert_allclose(
        weights(Gaussian(), QUERIES + moved, KEYS + moved),
        weights(Gaussian(), QUERIES, KEYS),
        **EXACT,
    )


@pytest.mark.parametrize("name", KERNELS)
def test_a_score_of_minus_infinity_has_weight_zero_and_takes_nothing_from_the_others(name):
    kernel = KERNELS[name]
    with jax.enable_x64(True):
        scores = kernel.scores(jnp.asarray(QUERIES), jnp.asarray(KEYS))
        without = np.asarray(kernel.weights(jnp.where(jnp.arange(4) == 2, -jnp.inf, scores)))
        kept = [0, 1, 3]
        expected = np.asarray(kernel.weights(scores[..., jnp.asarray(kept)]))
        gradient = jax.grad(
            lambda scores: jnp.sum(
                kernel.weights(jnp.where(jnp.arange(4) == 2, -jnp.inf, scores)) ** 2
            )
        )(scores)
    assert np.all(without[..., 2] == 0)
    np.testing.assert_allclose(without[..., kept], expected, **EXACT)
    assert np.all(np.isfinite(gradient))
    assert kernel.normalised == bool(np.allclose(without.sum(axis=-1), 1))


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("leading", [(), (2,), (2, 3)], ids=str)
def test_any_number_of_leading_dims(name, leading):
    kernel = KERNELS[name]
    shapes = (jax.ShapeDtypeStruct((*leading, size, 3), jnp.float32) for size in (5, 4))
    scores = jax.eval_shape(kernel.scores, *shapes)
    assert scores.shape == jax.eval_shape(kernel.weights, scores).shape == (*leading, 5, 4)
