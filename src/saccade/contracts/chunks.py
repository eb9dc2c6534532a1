"""Functions of many examples, evaluated on some of them at a time."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

__all__: list[str] = []


def _chunk(batch: Any, first: Any, size: int) -> Any:
    slice_of = lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, first, size)  # noqa: E731
    return jax.tree.map(slice_of, batch)


def _even(examples: int, size: int) -> tuple[int, int]:
    """Chunks of equal sizes, at most `size`, and a smaller last one: their number and size."""
    each = -(-examples // -(-examples // size))
    return examples // each, each


def even_places(size: int, count: int) -> np.ndarray:
    """Some of the places of a list, evenly spaced; all if there are no more."""
    count = min(count, size)
    return np.arange(count) * size // count


def evenly(batch: Any, count: int) -> Any:
    """Some of the examples, evenly spaced; all if there are no more."""
    return batch.examples(jnp.asarray(even_places(batch.size, count)))


def in_chunks(function: Callable[[Any], Any], batch: Any, size: int | None) -> Any:
    """The results of a function of examples, which has a result per example: of at most `size`
    examples at once.
    """
    if size is None or batch.size <= size:
        return function(batch)
    whole, size = _even(batch.size, size)
    found = jax.lax.map(lambda at: function(_chunk(batch, at * size, size)), jnp.arange(whole))
    found = jax.tree.map(lambda leaf: leaf.reshape(whole * size, *leaf.shape[2:]), found)
    if whole * size == batch.size:
        return found
    rest = function(_chunk(batch, whole * size, batch.size - whole * size))
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), found, rest)


def mean_over_chunks(function: Callable[[Any], Any], batch: Any, size: int | None) -> Any:
    """The mean of a function that is itself a mean over examples: of at most `size` examples at
    once, weighted by their number.
    """
    if size is None or batch.size <= size:
        return function(batch)
    whole, size = _even(batch.size, size)
    function = jax.jit(function)  # traced once for its shapes and for the loop
    add = lambda weight: lambda total, one: total + weight * one  # noqa: E731
    zero = jax.tree.map(
        lambda shape: jnp.zeros(shape.shape, shape.dtype),
        jax.eval_shape(function, _chunk(batch, 0, size)),
    )

    def added(at: Any, total: Any) -> Any:
        return jax.tree.map(add(size), total, function(_chunk(batch, at * size, size)))

    total = jax.lax.fori_loop(0, whole, added, zero)
    left = batch.size - whole * size
    if left:
        total = jax.tree.map(add(left), total, function(_chunk(batch, whole * size, left)))
    return jax.tree.map(lambda one: one / batch.size, total)
