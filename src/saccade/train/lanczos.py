"""Largest eigenvalues of a symmetric matrix that is known by its products with vectors, such as the
Hessian of a loss, by Lanczos's method.

Some products span a space in which the matrix is tridiagonal; its largest eigenvalues there are
never above those of the matrix, and soon close to them. Every new vector is made orthogonal to all
earlier ones, twice, because rounding would otherwise bring found directions back.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jax.scipy.linalg import eigh_tridiagonal
from jaxtyping import Array, Float, PyTree

from saccade.train.members import purpose_key

__all__: list[str] = []


def largest_eigenvalues(
    product: Callable[[PyTree], PyTree], like: PyTree, count: int = 1, iterations: int = 20
) -> Float[Array, " place"]:
    """The largest eigenvalues, in falling order, of a matrix that multiplies trees like this one.
    Fewer iterations than numbers in the tree give lower bounds. Of equal eigenvalues one is found;
    NaN if there are no more.
    """
    flat, shaped = ravel_pytree(like)
    iterations = min(iterations, flat.size)
    first = jax.random.normal(purpose_key(0, "init"), flat.shape, flat.dtype)

    def orthogonal(vector: Array, basis: Array) -> Array:
        for _ in range(2):
            vector = vector - basis.T @ (basis @ vector)
        return vector

    def iterate(place: Array, state: tuple[Array, Array, Array, Array]) -> Any:
        basis, vector, diagonal, beside = state
        basis = basis.at[place].set(vector)
        found = ravel_pytree(product(shaped(vector)))[0]
        diagonal = diagonal.at[place].set(vector @ found)
        rest = orthogonal(found, basis)
        length = jnp.linalg.norm(rest)
        # Nothing but rounding is left where the space is complete.
        done = length <= 10 * jnp.finfo(flat.dtype).eps * jnp.linalg.norm(found)
        vector = jnp.where(done, 0.0, rest / jnp.where(done, 1.0, length))
        return basis, vector, diagonal, beside.at[place].set(jnp.where(done, 0.0, length))

    basis = jnp.zeros((iterations, flat.size), flat.dtype)
    zeros = jnp.zeros(iterations, flat.dtype)
    start = (basis, first / jnp.linalg.norm(first), zeros, zeros)
    _, _, diagonal, beside = jax.lax.fori_loop(0, iterations, iterate, start)
    # Behind the end of a complete space stand zeros, which are no eigenvalues: far below all.
    floor = -3 * (jnp.max(jnp.abs(diagonal)) + 2 * jnp.max(beside)) - 1
    ended = jnp.concatenate([jnp.zeros(1, bool), jnp.cumsum(beside[:-1] == 0) > 0])
    count = min(count, iterations)
    chosen = (iterations - count, iterations - 1)
    found = eigh_tridiagonal(
        jnp.where(ended, floor, diagonal),
        jnp.where(ended[1:], 0.0, beside[:-1]),
        eigvals_only=True,
        select="i",
        select_range=chosen,
    )
    return jnp.where(found < floor / 2, jnp.nan, found)[::-1]


def hessian_eigenvalues(
    loss: Callable[[PyTree], Float[Array, ""]],
    weights: PyTree,
    count: int = 1,
    iterations: int = 20,
    scale: PyTree | None = None,
) -> Float[Array, " place"]:
    """The largest eigenvalues of the Hessian of a loss. With a scale s per weight they are those of
    diag(s) H diag(s): with s = 1 / sqrt(p) those that matter to an optimiser that divides its steps
    by p.
    """

    def scaled(tree: PyTree) -> PyTree:
        return tree if scale is None else jax.tree.map(jnp.multiply, tree, scale)

    def product(vector: PyTree) -> PyTree:
        return scaled(jax.jvp(jax.grad(loss), (weights,), (scaled(vector),))[1])

    return largest_eigenvalues(product, weights, count, iterations)
