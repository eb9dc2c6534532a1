"""Attention by blocks and by the fused kernel of softmax equals the explicit form."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.models import fused_attention
from saccade.models.encoder import EncoderConfig
from saccade.models.fused_attention import by_softmax, in_rows, mixed, why_not_fused
from saccade.models.kernels import KERNELS, AbstractKernel, Softmax
from saccade.tasks.arrays import Arrays
from saccade.train.batches import Minibatch
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe

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
    return [jax.device_put(one) for one in (scale * queries, keys, values, pull)]


def softmax_attention(queries: Any, keys: Any, values: Any) -> Any:
    weights = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", queries, keys), axis=-1)
    return jnp.einsum("bhqk,bkhd->bqhd", weights, values)


IN_FLOAT64 = (softmax_attention, jnp.float64)


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
        # Where one key has nearly all weight, queries and keys hardly matter.
        leaves = jax.tree.leaves(wanted if scale <= 1 else wanted[1])
        assert all(np.abs(leaf).max() > 1e-3 for leaf in leaves)


@each_kernel
@each_mask
def test_the_fused_kernel_is_called_with_shapes_that_it_takes(kernel, seen, monkeypatch):
    """On a CPU, by JAX's own attention in place of cuDNN's: the Gaussian kernel has extra keys."""
    on_any_device = jax.nn.dot_product_attention

    def without_cudnn(*inputs: Any, scale: float, implementation: str) -> Any:
        assert implementation == "cudnn"
        return on_any_device(*inputs, scale=scale)

    monkeypatch.setattr(jax.nn, "dot_product_attention", without_cudnn)
    queries, keys, values, _ = drawn()
    mask = None if seen is None else jnp.asarray(seen)
    sums = by_softmax(
        KERNELS[kernel], queries, keys, values, mask, fused_attention._cudnn, jnp.float32
    )
    wanted = plain(KERNELS[kernel], queries, keys, values, mask)
    np.testing.assert_allclose(sums, wanted, rtol=1e-4, atol=1e-5)


@each_kernel
def test_padded_keys_have_no_weight_however_large_they_are(kernel):
    with jax.enable_x64(True):
        queries, keys, values, _ = drawn()
        far = jnp.where(jnp.asarray(SEEN)[:, None, :, None], keys, 1e4 * queries)
        found = [
            by_softmax(KERNELS[kernel], queries, one, values, jnp.asarray(SEEN), *IN_FLOAT64)
            for one in (keys, far)
        ]
        np.testing.assert_allclose(*found, rtol=1e-9)
        if kernel == "gaussian":
            nobody = jnp.zeros_like(SEEN)
            none = by_softmax(KERNELS[kernel], queries, keys, values, nobody, *IN_FLOAT64)
            np.testing.assert_array_equal(none, 0, "nobody is seen: a sum of nothing")


def test_a_common_offset_of_queries_and_keys_costs_no_precision():
    """Distances do not know it: bfloat16 then rounds the same small numbers."""
    parts = [part.astype(jnp.float32) for part in drawn(0.5, 64, 32)]

    def by_bfloat16(q: Any, k: Any, v: Any) -> Any:
        return by_softmax(KERNELS["gaussian"], q, k, v, None, softmax_attention, jnp.bfloat16)

    wanted = jax.tree.leaves(
        slopes(lambda q, k, v: plain(KERNELS["gaussian"], q, k, v, None), parts)
    )
    moved = [parts[0] + 30, parts[1] + 30, *parts[2:]]
    for ours, theirs in zip(jax.tree.leaves(slopes(by_bfloat16, moved)), wanted, strict=True):
        assert np.linalg.norm(ours - theirs) < 0.03 * np.linalg.norm(theirs)


@each_kernel
@each_mask
@pytest.mark.parametrize("rows", [1, 4, LENGTH, 4 * LENGTH], ids="{} rows at once".format)
def test_blocks_change_nothing(kernel, seen, rows, monkeypatch):
    """One row, some rows, one head, or four of all six heads."""
    monkeypatch.setattr(fused_attention, "BLOCKS", {jax.default_backend(): rows * LENGTH})
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
    monkeypatch.setattr(fused_attention, "BLOCKS", {jax.default_backend(): 2**14})

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


class Doubled(Softmax):
    """A kernel that no fused form knows."""

    def weights(self, scores: Any) -> Any:
        return 2 * super().weights(scores)


class Steep(AbstractKernel):
    """Another one."""

    normalised = False

    def scores(self, queries: Any, keys: Any, scale: float | None = None) -> Any:
        return jnp.einsum("...qd,...kd->...qk", queries, keys)

    def weights(self, scores: Any) -> Any:
        return scores**2


@pytest.fixture
def fusing(monkeypatch):
    """A device that fuses, where a call of the fused kernel only raises."""

    def fused(*parts: Any) -> Any:
        raise RuntimeError("the fused kernel was called")

    monkeypatch.setattr(fused_attention, "why_not_fused", lambda part: "")
    monkeypatch.setattr(fused_attention, "_cudnn", fused)


@each_kernel
def test_what_has_no_fused_form_is_computed_explicitly(kernel, fusing):
    parts = drawn()[:3]
    with pytest.raises(RuntimeError, match="the fused kernel was called"):
        mixed(KERNELS[kernel], *parts, fused=True)
    for how in ({"future_weight": 0.0}, {"padding_weight": 0.5}, {"rounded": True}):
        np.testing.assert_array_equal(
            mixed(KERNELS[kernel], *parts, fused=True, **how),
            mixed(KERNELS[kernel], *parts, **how),
        )
    for other in (Steep(), Doubled()):
        np.testing.assert_array_equal(mixed(other, *parts, fused=True), mixed(other, *parts))


@each_kernel
def test_a_training_with_fused_attention_calls_the_fused_kernel(kernel, fusing, lab):
    random = np.random.default_rng(0)
    words = random.integers(1, 9, (12, 8))
    task = Arrays.of((words, words[:, 0] % 2), test=(words, words[:, 0] % 2))
    model = EncoderConfig(1, 2, 16, 16, kernel=kernel, fused=True)
    recipe = Recipe(task, model, GradientDescent(0.05), 2, batches=Minibatch(4))
    with pytest.raises(Exception, match="the fused kernel was called"):
        lab.train(recipe, seeds=1)


@each_kernel
def test_a_query_that_sees_no_key_gets_nothing(kernel):
    """As the first word of a decoder behind padding at the left."""
    queries, keys, values, _ = drawn()
    seen = jnp.arange(keys.shape[2]) > 0
    seen = jnp.broadcast_to(seen, (keys.shape[0], keys.shape[2]))

    def of(queries: Any, keys: Any, values: Any) -> Any:
        return in_rows(KERNELS[kernel], queries, keys, values, seen, future_weight=0.0)

    sums, back = jax.vjp(of, queries, keys, values)
    np.testing.assert_array_equal(sums[:, :, 0], 0)
    assert np.abs(sums[:, :, 1:]).min() > 0
    assert all(np.isfinite(slope).all() for slope in back(jnp.ones_like(sums)))


@pytest.mark.gpu
@each_kernel
@each_mask
@pytest.mark.parametrize(("scale", "length"), [(0.5, 256), (2.0, 255)])
def test_the_fused_form_is_as_exact_as_bfloat16_allows(kernel, seen, scale, length):
    """Sums and derivatives against float32 in full precision: 2 % in the norm."""
    if why := why_not_fused(32):
        pytest.skip(why)
    mask = None if seen is None else jnp.arange(length) < jnp.asarray([[length], [100], [1]])
    parts = [part.astype(jnp.float32) for part in drawn(scale, length, 32)]
    one = KERNELS[kernel]
    found = slopes(lambda q, k, v: mixed(one, q, k, v, mask, fused=True), parts)
    with jax.default_matmul_precision("highest"):
        wanted = slopes(lambda q, k, v: plain(one, q, k, v, mask), parts)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert np.linalg.norm(ours - theirs) < 0.02 * np.linalg.norm(theirs)


@pytest.mark.gpu
@each_kernel
@pytest.mark.parametrize("length", [16, 17])
def test_an_encoder_trains_alike_fused_and_explicitly(kernel, length, lab):
    """Two members, padded texts: the losses of some steps differ by what bfloat16 rounds."""
    if why := why_not_fused(16):
        pytest.skip(why)
    random = np.random.default_rng(0)
    lengths = random.integers(1, length, 40)
    mask = np.arange(length) < lengths[:, None]
    words = np.where(mask, random.integers(1, 9, mask.shape), 0)
    task = Arrays.of((words, words[:, 0] % 2, mask), test=(words, words[:, 0] % 2, mask))
    losses = []
    for fused in (False, True):
        model = EncoderConfig(2, 2, 32, 32, dropout=0.0, kernel=kernel, fused=fused)
        recipe = Recipe(task, model, GradientDescent(0.05), 20, batches=Minibatch(8))
        trained = lab.train(recipe, seeds=2)
        losses.append(trained.trajectory["loss"].values)
        said = trained.trajectory.attrs.get("attention_form")
        assert said == ("fused, in bfloat16" if fused else None)
    np.testing.assert_allclose(*losses, rtol=0.05)
