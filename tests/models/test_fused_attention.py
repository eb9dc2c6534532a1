"""Attention by blocks of rows and by the fused kernel of softmax equals the explicit form."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.models import fused_attention
from saccade.models.fused_attention import by_softmax, in_rows, mixed, why_not_fused
from saccade.models.kernels import KERNELS

SENTENCES, HEADS, LENGTH, PART = 3, 2, 11, 4
SEEN = np.arange(LENGTH) < np.asarray([[11], [4], [1]])
each_kernel = pytest.mark.parametrize("kernel", KERNELS)
each_mask = pytest.mark.parametrize("seen", [None, SEEN], ids=["full", "padded"])


def drawn(scale: float = 1.0, length: int = LENGTH, part: int = PART) -> list[Any]:
    """Queries and keys of a size, values, and what the sums are multiplied by, of size 1. A key is
    no farther than about 2 from the query of its position, so that Gaussian weights are not all 0.
    """
    random = np.random.default_rng(0)
    queries, keys, values, pull = random.normal(size=(4, SENTENCES, HEADS, length, part))
    keys = scale * queries + min(scale, 1.0) * keys
    return [jnp.asarray(one) for one in (scale * queries, keys, values, pull)]


def softmax_attention(queries: Any, keys: Any, values: Any) -> Any:
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", queries, keys), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, values)


def plain(kernel: Any, queries: Any, keys: Any, values: Any, seen: Any) -> Any:
    """As the kernel says it, all at once."""
    scores = kernel.scores(queries, keys)
    if seen is not None:
        scores = jnp.where(seen[:, None, None], scores, -jnp.inf)
    return kernel.weights(scores) @ values


def slopes(way: Any, parts: list[Any]) -> Any:
    """The sums, and the derivatives of a product with them by queries, keys and values."""
    *inputs, pull = parts

    def total(*inputs: Any) -> tuple[Any, Any]:
        found = way(*inputs)
        return (found * pull).sum(), found

    return jax.jit(jax.grad(total, argnums=(0, 1, 2), has_aux=True))(*inputs)


@each_kernel
@each_mask
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0])
def test_either_kernel_is_a_softmax_with_more_features(kernel, seen, scale):
    """In float64. At the largest scale scores lie thousands apart: a sink with the same score for
    all queries would have a weight of 0 for some.
    """
    with jax.enable_x64(True):
        parts, mask = drawn(scale), None if seen is None else jnp.asarray(seen)
        one = KERNELS[kernel]
        found = slopes(
            lambda q, k, v: by_softmax(one, q, k, v, mask, softmax_attention, jnp.float64), parts
        )
        wanted = slopes(lambda q, k, v: plain(one, q, k, v, mask), parts)
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            # Ratios of sums of some ten numbers; squares of the size of the scores are rounded.
            size = np.abs(theirs).max()
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11 * max(size, 1.0))
        assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(wanted[1]))


@each_kernel
@each_mask
@pytest.mark.parametrize("rows", [1, 4, LENGTH])
def test_blocks_of_rows_change_nothing(kernel, seen, rows, monkeypatch):
    monkeypatch.setattr(fused_attention, "ROWS_AND_KEYS", rows * SENTENCES * HEADS * LENGTH)
    with jax.enable_x64(True):
        parts, mask = drawn(), None if seen is None else jnp.asarray(seen)
        one = KERNELS[kernel]
        found = slopes(lambda q, k, v: in_rows(one, q, k, v, mask), parts)
        wanted = slopes(lambda q, k, v: plain(one, q, k, v, mask), parts)
        for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@each_kernel
def test_blocks_keep_no_table_of_all_queries_and_keys(kernel, monkeypatch):
    """The memory of forward and backward pass grows with the length, not with its square."""
    monkeypatch.setattr(fused_attention, "ROWS_AND_KEYS", 2**14)

    def memory(length: int) -> int:
        parts = drawn(length=length)
        whole = jax.jit(
            jax.grad(lambda q, k, v: mixed(KERNELS[kernel], q, k, v).sum(), argnums=(0, 1, 2))
        )
        analysis: Any = whole.lower(*parts[:3]).compile().memory_analysis()
        return analysis.temp_size_in_bytes

    assert memory(2048) < 6 * memory(512)  # four times the length, sixteen times the table


def test_this_machine_says_why_it_does_not_fuse():
    if jax.default_backend() == "gpu":
        assert not why_not_fused(32)
        assert "in eights" in why_not_fused(12)
    else:
        assert why_not_fused(32) == "no fused attention on cpu"
        parts = drawn()[:3]
        for kernel in KERNELS.values():
            np.testing.assert_array_equal(
                mixed(kernel, *parts, fused=True), mixed(kernel, *parts, fused=False)
            )


@pytest.mark.gpu
@each_kernel
@each_mask
@pytest.mark.parametrize("scale", [0.5, 2.0])
def test_the_fused_form_is_as_exact_as_bfloat16_allows(kernel, seen, scale):
    """Sums and derivatives against float32 in full precision: 2 % in the norm."""
    if why := why_not_fused(32):
        pytest.skip(why)
    length = 256
    mask = None if seen is None else jnp.arange(length) < jnp.asarray([[256], [100], [1]])
    parts = [part.astype(jnp.float32) for part in drawn(scale, length, 32)]
    one = KERNELS[kernel]
    found = slopes(lambda q, k, v: mixed(one, q, k, v, mask, fused=True), parts)
    with jax.default_matmul_precision("highest"):
        wanted = slopes(lambda q, k, v: plain(one, q, k, v, mask), parts)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.linalg.norm(ours - theirs) < 0.02 * np.linalg.norm(theirs)
