"""Counting the words of documents."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Shaped


def id_counts(
    ids: Int[Array, "document position"],
    present: Shaped[Array, "document position"] | None,
    size: int,
) -> Float[Array, "document id"]:
    """How often each id occurs in each document, where it is present (or weighted by `present`)."""
    weight = jnp.ones(ids.shape) if present is None else present
    document = jnp.arange(ids.shape[0])[:, None]
    return jnp.zeros((ids.shape[0], size)).at[document, ids].add(weight)
