"""What attention adds up: sums of values, weighted by a kernel of queries and keys, without keeping
a large table of all queries and keys.

**Explicitly**, in blocks of heads or rows, which the backward pass computes again, unless all
scores are few enough for one block; anywhere, in the precision of the training (or with scores that
are rounded to bfloat16, to see what that does).
Padding, and keys behind the query, may have any weight between hidden and seen.

**Fused**, by the kernel of GPUs for softmax attention (cuDNN), in bfloat16. Padding is a number
behind every key: an extra feature that is 1 in queries and far below 0 in keys that are not seen.
The Gaussian kernel goes the same way, although its weights are not normalised. Let q and k be
scaled by the square root of the kernel's scale, and

    q' = (q, 1, |q|^2 / 2),   k' = (k, -|k|^2 / 2, 0),   v' = (v, 0)         for every key
                              k' = (0,           0, 1),   v' = (0, 1)         for one more, the sink

so that q'.k' = q.k - |k|^2/2 and the sink's score is |q|^2/2. The softmax of these scores gives a
key the weight p_0 w, where w = exp(-|q - k|^2 / 2) is the Gaussian's and p_0 = 1 / (1 + sum of w)
is the sink's weight, which comes out behind the values. The quotient is the sum that is wanted:

    sum of w v  =  (sum of p_0 w v) / p_0

The sink's score is never below another one, so that nothing overflows. Gradients are those of the
quotient; the log-sum-exp that cuDNN returns as well has none.

Squares are taken of q and k as they were rounded to bfloat16, and stand in two features each, the
rounded number and the rest: a score is then minus half a squared distance, but for rounding. Before
that the mean of the keys is taken from queries and keys, which leaves their distances as they are.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from saccade.models.kernels import AbstractKernel, Gaussian, Softmax

PerHead = Float[Array, "sentence head position part"]
Seen = Bool[Array, "sentence position"] | None
ByPosition = Float[Array, "sentence position head part"]
ByKey = Float[Array, "sentence key head part"]
Attention = Callable[[ByPosition, ByKey, ByKey], ByPosition]
"""Softmax attention with scale 1; positions before heads. There may be more keys than positions:
the Gaussian kernel adds some.
"""

BLOCKS = {"cpu": 2**20}
"""Scores that are computed at once: on a CPU about as many as its caches hold (two layers of 16
texts of 512 words then train twice as fast as with 2^24), and elsewhere as below."""
LARGE_BLOCK = 2**24
EXTRA = 8
"""Extra features and extra keys: the fused kernel wants multiples of eight."""
FAR = -1e30
"""Score of keys that are not seen, which are zeros themselves: their weight is exactly 0."""
LARGEST_PART = 128
"""Features of a head that the fused kernel takes, with the extra ones."""


def why_not_fused(part: int) -> str:
    """Why heads of so many features cannot be fused on this device; empty if they can."""
    device = jax.devices()[0]
    if device.platform != "gpu":
        return f"no fused attention on {device.platform}"
    try:
        capability = float(getattr(device, "compute_capability", "0"))
    except ValueError:  # of a maker that counts otherwise
        capability = 0.0
    if capability < 8:
        return "fused attention needs an NVIDIA GPU of compute capability 8.0"
    if jax.config.jax_enable_x64:  # pyright: ignore[reportAttributeAccessIssue]
        return "fused attention has no float64"
    if part % 8 or part + EXTRA > LARGEST_PART:
        return f"fused attention needs heads of 8 to {LARGEST_PART - EXTRA} features in eights"
    return ""


def mixed(
    kernel: AbstractKernel,
    queries: PerHead,
    keys: PerHead,
    values: PerHead,
    seen: Seen = None,
    *,
    fused: bool = False,
    **how: Any,
) -> PerHead:
    """The sums of the values of the keys that are seen, by the weights of each query; `how` as
    `in_rows` has it, which attention that is fused has not.
    """
    if fused and _has_fused_form(kernel, **how) and not why_not_fused(queries.shape[-1]):
        return by_softmax(kernel, queries, keys, values, seen, _cudnn, jnp.bfloat16)
    return in_rows(kernel, queries, keys, values, seen, **how)


def _has_fused_form(
    kernel: AbstractKernel,
    padding_weight: Any = 0.0,
    future_weight: Any = 1.0,
    rounded: bool = False,
) -> bool:
    """Whether the fused kernel can say it: others are computed explicitly on any device."""
    plain = _is_plainly(0, padding_weight) and _is_plainly(1, future_weight) and not rounded
    return plain and type(kernel) in (Softmax, Gaussian)


def in_rows(
    kernel: AbstractKernel,
    queries: PerHead,
    keys: PerHead,
    values: PerHead,
    seen: Seen = None,
    *,
    padding_weight: Any = 0.0,
    future_weight: Any = 1.0,
    rounded: bool = False,
) -> PerHead:
    """Explicitly: all at once if there are few scores, else some sentences and heads at a time, and
    of long ones some rows.
    """

    def of_rows(places: Array, queries: Array, keys: Array, values: Array, seen: Any) -> Array:
        scores = kernel.scores(queries, keys)
        scores = with_rounding(scores) if rounded else scores
        mask = None if seen is None else seen[..., None, :]
        scores = with_visibility(scores, mask, places, padding_weight, future_weight)
        return kernel.sums(scores, values)

    sentences, heads, length, _ = queries.shape
    block, per_row = BLOCKS.get(jax.default_backend(), LARGE_BLOCK), keys.shape[2]
    places = jnp.arange(length)
    if sentences * heads * length * per_row <= block:
        per_head = None if seen is None else seen[:, None]
        return of_rows(places, queries, keys, values, per_head)

    @jax.checkpoint
    def of_head(parts: Any) -> Array:
        queries, *rest = parts
        if length * per_row <= block:
            return of_rows(places, queries, *rest)
        count = -(-length // max(1, block // per_row))
        rows = -(-length // count)
        blocks = [
            jnp.pad(one, [(0, count * rows - length), *[(0, 0)] * (one.ndim - 1)]).reshape(
                count, rows, *one.shape[1:]
            )
            for one in (places, queries)
        ]
        of_block = jax.checkpoint(lambda some: of_rows(*some, *rest))
        return jax.lax.map(of_block, blocks).reshape(count * rows, -1)[:length]

    parts = [one.reshape(-1, *one.shape[2:]) for one in (queries, keys, values)]
    per_head = None if seen is None else jnp.repeat(seen, heads, axis=0)
    at_once = block // (length * per_row)
    found = jax.lax.map(of_head, (*parts, per_head), batch_size=at_once if at_once > 1 else None)
    return found.reshape(sentences, heads, length, -1)


def with_visibility(
    scores: Float[Array, "*some row key"],
    seen: Bool[Array, "*#some #row key"] | None,
    places: Int[Array, " row"],
    padding_weight: Any = 0.0,
    future_weight: Any = 1.0,
) -> Float[Array, "*some row key"]:
    """Scores with those of keys that are not seen, and of keys behind a row's place, moved by the
    logarithm of their weight: to minus infinity for a weight of 0.
    """
    if seen is not None:
        scores = jnp.where(seen, scores, _moved(scores, padding_weight))
    if not _is_plainly(1, future_weight):
        later = jnp.arange(scores.shape[-1]) > places[:, None]
        scores = jnp.where(later, _moved(scores, future_weight), scores)
    return scores


def _moved(scores: Array, weight: Any) -> Any:
    return -jnp.inf if _is_plainly(0, weight) else scores + jnp.log(weight)


def _is_plainly(number: int, weight: Any) -> bool:
    """Whether a weight is this number, and neither swept nor traced."""
    return isinstance(weight, float | int) and weight == number


def with_rounding(scores: Float[Array, "*some"]) -> Float[Array, "*some"]:
    """Scores as bfloat16 holds them."""
    return _rounded(scores, jnp.bfloat16)


def by_softmax(
    kernel: AbstractKernel,
    queries: PerHead,
    keys: PerHead,
    values: PerHead,
    seen: Seen,
    attention: Attention,
    dtype: Any,
) -> PerHead:
    """Either kernel by a function that only knows softmax attention, of numbers of a type."""
    length, part, exact = queries.shape[2], queries.shape[-1], queries.dtype
    if seen is None and keys.shape[2] % EXTRA:
        seen = jnp.ones((keys.shape[0], keys.shape[2]), bool)
    ours, theirs, summed = (_filled(jnp.swapaxes(one, 1, 2)) for one in (queries, keys, values))
    if seen is not None:
        seen = _filled(seen)
        theirs = jnp.where(seen[..., None, None], theirs, 0)  # also of the mean
    if isinstance(kernel, Softmax):
        scaled = (part**-0.25 * ours, part**-0.25 * theirs, summed)
        ours, theirs, summed = (one.astype(dtype) for one in scaled)
        if seen is not None:
            ours = _with(ours, [jnp.ones(1, dtype)])
            theirs = _with(theirs, [_unless(seen, jnp.zeros((), exact), dtype)])
            summed = _with(summed, [])
        found = attention(ours, theirs, summed)[:, :length, :, :part]
        return jnp.swapaxes(found, 1, 2).astype(exact)
    # Distances do not change if all vectors are moved; small ones are rounded less.
    count = (
        theirs.shape[1] if seen is None else jnp.maximum(jnp.sum(seen, 1), 1)[:, None, None, None]
    )
    middle = jax.lax.stop_gradient(jnp.sum(theirs, 1, keepdims=True) / count)
    ours, theirs = (part**-0.25 * (one - middle) for one in (ours, theirs))
    if seen is not None:
        theirs = jnp.where(seen[..., None, None], theirs, 0)
    ours, theirs = (_rounded(one, dtype) for one in (ours, theirs))
    half, minus_half = (
        sign * jnp.sum(one**2, axis=-1) for sign, one in ((0.5, ours), (-0.5, theirs))
    )
    ours, theirs, summed = (one.astype(dtype) for one in (ours, theirs, summed))
    (half, half_rest), (behind, rest) = _halves(half, dtype), _halves(minus_half, dtype)
    if seen is not None:
        behind = _unless(seen, behind, dtype)[..., 0]
    one, none = jnp.ones(1, dtype), jnp.zeros(1, dtype)
    ours = _with(ours, [one, one, half[..., None], half_rest[..., None]])
    theirs = _with(theirs, [behind[..., None], rest[..., None], none, none])
    summed = _with(summed, [])
    # The sink, whose value says how much weight it has, and keys that nobody sees.
    more = (theirs.shape[0], EXTRA, *theirs.shape[2:])
    sink = (
        jnp.zeros(more, dtype).at[:, 1:, :, part].set(FAR).at[:, 0, :, part + 2 : part + 4].set(1)
    )
    told = jnp.zeros(more, dtype).at[:, 0, :, part].set(1)
    theirs, summed = jnp.concatenate([theirs, sink], 1), jnp.concatenate([summed, told], 1)
    found = attention(ours, theirs, summed)[:, :length].astype(exact)
    return jnp.swapaxes(found[..., :part] / found[..., part : part + 1], 1, 2)


def _filled(along: Array) -> Array:
    """Zeros behind the positions, up to a multiple of eight: odd lengths have no fused gradient."""
    widths = [(0, 0), (0, -along.shape[1] % EXTRA), *[(0, 0)] * (along.ndim - 2)]
    return jnp.pad(along, widths)


def _with(vectors: Array, features: list[Array]) -> Array:
    """Vectors with some further features, and zeros up to the number of extra ones."""
    shape = vectors.shape[:-1]
    more = [jnp.broadcast_to(one, (*shape, 1)) for one in features]
    more.append(jnp.zeros((*shape, EXTRA - len(features)), vectors.dtype))
    return jnp.concatenate([vectors, *more], axis=-1)


def _unless(seen: Bool[Array, "sentence position"], numbers: Array, dtype: Any) -> Array:
    """Numbers of the keys that are seen, per head, and one far below for the others."""
    there = seen[:, :, None]
    return jnp.where(there, numbers, FAR).astype(dtype)[..., None]


def _halves(numbers: Array, dtype: Any) -> tuple[Array, Array]:
    """Numbers as rounded to a type, and what rounding left."""
    rounded = _rounded(numbers, dtype)
    return rounded.astype(dtype), (numbers - rounded).astype(dtype)


def _rounded(numbers: Array, dtype: Any) -> Array:
    """Numbers as rounded to a type, in their own type. Compilers for GPUs leave out a conversion
    that is undone at once; this one they keep.
    """
    kind = jnp.finfo(dtype)
    return jax.lax.reduce_precision(numbers, kind.nexp, kind.nmant)


def _cudnn(queries: ByPosition, keys: ByKey, values: ByKey) -> ByPosition:
    return jax.nn.dot_product_attention(queries, keys, values, scale=1.0, implementation="cudnn")
