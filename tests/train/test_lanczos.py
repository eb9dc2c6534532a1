"""Largest eigenvalues by products alone, against NumPy's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.train.lanczos import hessian_eigenvalues, largest_eigenvalues

RANDOM = np.random.default_rng(0)


def symmetric(size: int) -> np.ndarray:
    matrix = RANDOM.normal(size=(size, size))
    return matrix + matrix.T


@pytest.mark.parametrize(("size", "iterations"), [(40, 40), (40, 200), (200, 60), (3, 20), (1, 5)])
def test_the_largest_eigenvalues_of_a_matrix(size: int, iterations: int):
    matrix = symmetric(size)
    with jax.enable_x64(True):
        found = largest_eigenvalues(
            lambda tree: {"a": jnp.asarray(matrix) @ tree["a"]},
            {"a": jnp.zeros(size)},
            min(size, 3),
            iterations,
        )
    np.testing.assert_allclose(found, np.linalg.eigvalsh(matrix)[::-1][:3], rtol=1e-8)


def test_a_multiple_eigenvalue_ends_the_space_without_a_number_that_is_none():
    with jax.enable_x64(True):
        found = largest_eigenvalues(lambda vector: 2.5 * vector, jnp.zeros(7), 1, 5)
    np.testing.assert_allclose(found, [2.5])


def test_what_lies_behind_a_complete_space_is_no_eigenvalue():
    with jax.enable_x64(True):
        found = largest_eigenvalues(lambda vector: -2.5 * vector, jnp.zeros(7), 2, 5)
        two = largest_eigenvalues(
            lambda vector: jnp.asarray([-1.0, -1, -3, -3]) * vector, jnp.zeros(4), 3, 4
        )
    np.testing.assert_allclose(found, [-2.5, np.nan])
    np.testing.assert_allclose(two, [-1, -3, np.nan])


def test_few_products_give_lower_bounds():
    matrix = symmetric(100)
    with jax.enable_x64(True):
        found = [
            float(
                largest_eigenvalues(lambda one: jnp.asarray(matrix) @ one, jnp.zeros(100), 1, n)[0]
            )
            for n in (2, 5, 10, 30)
        ]
    assert found == sorted(found)
    assert found[0] < 0.9 * found[-1] <= 1.0000001 * np.linalg.eigvalsh(matrix)[-1]


def test_a_scaled_hessian():
    """Of a quadratic loss with the matrix A: A itself, and diag(s) A diag(s)."""
    matrix, scale = symmetric(12), RANDOM.uniform(0.1, 3, 12)
    with jax.enable_x64(True):
        given = jnp.asarray(matrix)
        loss = lambda one: one["x"] @ given @ one["x"] / 2 + one["x"].sum()  # noqa: E731
        at = {"x": jnp.ones(12)}
        plain = hessian_eigenvalues(loss, at, 2, 12)
        scaled = hessian_eigenvalues(loss, at, 2, 12, {"x": jnp.asarray(scale)})
    np.testing.assert_allclose(plain, np.linalg.eigvalsh(matrix)[::-1][:2], rtol=1e-9)
    wanted = np.linalg.eigvalsh(scale[:, None] * matrix * scale)[::-1][:2]
    np.testing.assert_allclose(scaled, wanted, rtol=1e-9)
