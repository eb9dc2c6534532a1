"""Agreement between two ratings of the positions of a sentence (Snell, Zhong, Klein & Steinhardt
2021, section 3.1).

u and v assign a number to each of the L positions: attention weights, a lexical probe, a saliency.
With k = ceil(0.05 L):

* `agreement` (eq. 10): A(u, v) = 1 if fewer than k positions have v above v at argmax u, else 0;
* `random_baseline`: k / L, the mean of A if v is unrelated to u;
* `rank_agreement` (table 3): Kendall's tau-b of u and v;
* `contextual_agreement` (eq. 11): xi(u, v), the performance of a second run at the first recorded
  step at which its attention agrees with the reference attention more than v agrees with u.

The reference attention is that of the first run at its best validation performance (`best_step`). A
is not symmetric. Eq. 10 does not define ties. Three rules:

* shared: the mean over random breaking of ties, in v and in argmax u; a constant u or v gets the
  baseline;
* authors: as in the authors' code, only larger v count against, and the first argmax is taken; a
  constant v gets 1;
* strict: ties count against, however they could be broken; a constant u or v gets 0 (for L > 1).

"shared" is the default: a constant carries no information about positions and should score like
chance. The authors' rule misleads where theory predicts a constant v. On permutation tasks, uniform
attention leaves a lexical probe nothing to learn, and a probe that is equal everywhere would agree
perfectly where the claim is that it does not.

All measures depend on order alone, so any increasing map of u or v changes nothing but ties. Pass
scores and logarithms rather than probabilities, which become exactly 1 or 0 in float32 and then
tie. Ties are exact: values that differ by rounding are ordered.

Undefined values are NaN, in their row alone: rows without a position, rows with a NaN at one of
their positions (under eq. 10 a NaN is below nothing, so a diverged run would agree), and tau of a
constant. `mean_over` leaves them out.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float, Int, Shaped

from saccade.core.errors import ConfigError
from saccade.core.trajectory import at_place

Ties = Literal["shared", "authors", "strict"]

SHARE = 0.05
"""The share of positions that count as the top."""


def agreement(
    first: Float[Array, "*some position"],
    second: Float[Array, "*some position"],
    mask: Bool[Array, "*some position"],
    ties: Ties = "shared",
    share: float = SHARE,
) -> Float[Array, "*some"]:
    """A(first, second) per row: whether the top position of the first is within the top `share` of
    the second.

    The mask is true at words; other positions never count. `ties` and `share` are compile-time
    constants.
    """
    if ties not in get_args(Ties):
        raise ConfigError(f"ties: got {ties!r}, allowed: {', '.join(get_args(Ties))}")
    allowed = jnp.asarray(_top_sizes(mask.shape[-1], share))[jnp.sum(mask, axis=-1)][..., None]
    top = mask & (first == jnp.max(first, axis=-1, where=mask, initial=-jnp.inf, keepdims=True))
    above, level = _sum_over_rivals(
        lambda rival, there: (
            (there & (rival > second)).astype(int),
            (there & (rival == second)).astype(int),
        ),
        second,
        mask,
    )
    level = jnp.maximum(level, 1)  # every word ties with itself
    if ties == "shared":
        # With random breaking, `above` to `above + level - 1` rivals are ahead, equally likely.
        chance = jnp.clip(allowed - above, 0, level) / level
        agreed = jnp.sum(jnp.where(top, chance, 0), axis=-1) / jnp.maximum(jnp.sum(top, axis=-1), 1)
    elif ties == "strict":
        agreed = jnp.all(above + level <= allowed, axis=-1, where=top)
    else:
        place = jnp.argmax(top, axis=-1, keepdims=True)
        agreed = jnp.take_along_axis(above < allowed, place, axis=-1)[..., 0]
    return jnp.where(
        jnp.any(mask, axis=-1) & _no_nan(first, second, mask), agreed.astype(float), jnp.nan
    )


def random_baseline(
    mask: Bool[Array, "*some position"], share: float = SHARE
) -> Float[Array, "*some"]:
    """The mean of `agreement` if the second is shuffled: size of the top / number of positions."""
    sizes = _top_sizes(mask.shape[-1], share)
    # Divided here: compiled code may multiply by a rounded reciprocal, and a constant would not
    # get exactly the baseline.
    baselines = np.append(np.nan, sizes[1:] / np.arange(1, sizes.size))
    return jnp.asarray(baselines, float)[jnp.sum(mask, axis=-1)]


def rank_agreement(
    first: Float[Array, "*some position"],
    second: Float[Array, "*some position"],
    mask: Bool[Array, "*some position"],
) -> Float[Array, "*some"]:
    """Kendall's tau-b per row; NaN if either is constant or there are fewer than two positions."""

    def compare(first_rival: Array, second_rival: Array, there: Array) -> tuple[Array, ...]:
        signs = [
            jnp.where(mask & there, _order(*pair), 0)
            for pair in ((first, first_rival), (second, second_rival))
        ]
        return signs[0] * signs[1], signs[0] ** 2, signs[1] ** 2

    # Each pair is counted twice, in all three.
    concordant, *untied = (
        jnp.sum(part, axis=-1) for part in _sum_over_rivals(compare, first, second, mask)
    )
    product = untied[0].astype(float) * untied[1]  # may be too large for an integer
    correlation = concordant / jnp.sqrt(jnp.where(product > 0, product, 1))
    return jnp.where((product > 0) & _no_nan(first, second, mask), correlation, jnp.nan)


def mean_over(values: Float[Array, "*rows"], mask: Bool[Array, "*rows"]) -> Float[Array, ""]:
    """Mean over the rows within the mask whose value is a number; NaN if there are none."""
    counts = mask & ~jnp.isnan(values)
    return jnp.sum(jnp.where(counts, values, 0)) / jnp.sum(counts)


def best_step(performance: xr.DataArray) -> xr.DataArray:
    """Index along `step` of the best performance, the first of equals; NaN is never the best.

    Raises if all values are NaN: a run without any performance is no reference.
    """
    return performance.argmax("step")


def reached(curve: xr.DataArray, value: float | xr.DataArray) -> xr.DataArray:
    """Whether a curve along `step` ever exceeds a value. (Where it does not, the paper prints the
    last performance with a star.)
    """
    return _exceeds(curve, value).any("step")


def contextual_agreement(
    curve: xr.DataArray, performance: xr.DataArray, value: float | xr.DataArray
) -> xr.DataArray:
    """xi: the performance at the first recorded step at which the curve exceeds the value; NaN if
    it never does.

    The curve is the agreement of a second run's attention with the reference attention (or its mean
    over runs), the performance is that of the same run, and the value is A(u, v). `reached`
    distinguishes "never" from a NaN performance.
    """
    # Values are selected by index, so different steps would go unnoticed.
    xr.align(curve, performance, join="exact")
    exceeds = _exceeds(curve, value)
    return at_place(performance, exceeds.argmax("step")).where(exceeds.any("step"))


def _exceeds(curve: xr.DataArray, value: float | xr.DataArray) -> xr.DataArray:
    if isinstance(value, xr.DataArray):
        if "step" in value.dims:
            raise ConfigError(
                "value: got one per step, allowed: one for all steps, such as the largest"
            )
        # Otherwise members that either of them lacks would be dropped silently.
        xr.align(curve, value, join="exact")
    return curve > value


def _top_sizes(positions: int, share: float) -> Int[np.ndarray, " length"]:
    """ceil(share L) for every length L up to the number of positions.

    The share is taken as the decimal number written: in float64 0.07 * 100 exceeds 7, and in
    float32 0.15 * 100 exceeds 15.
    """
    if not 0 < share <= 1:
        raise ConfigError(f"share: got {share}, allowed: a number above 0, at most 1")
    exact = Fraction(str(float(share)))
    return np.asarray(
        [-(-length * exact.numerator // exact.denominator) for length in range(positions + 1)]
    )


def _sum_over_rivals(
    compare: Callable[..., tuple[Array, ...]], *rows: Shaped[Array, "*some position"]
) -> tuple[Int[Array, "*some position"], ...]:
    """The comparison of every position with a rival, summed over all rivals (itself included).

    Rivals are scanned, because XLA would materialise all pairs: on a CPU, 64 sentences with 41
    words on either side would take fifteen times the memory and five times as long.
    """
    rivals = tuple(jnp.moveaxis(row, -1, 0)[..., None] for row in rows)
    shapes = jax.eval_shape(compare, *(rival[0] for rival in rivals))
    start = tuple(jnp.zeros(shape.shape, shape.dtype) for shape in shapes)
    return jax.lax.scan(
        lambda totals, rival: (jax.tree.map(jnp.add, totals, compare(*rival)), None), start, rivals
    )[0]


def _order(
    values: Float[Array, "*some position"], rival: Float[Array, "*some 1"]
) -> Int[Array, "*some position"]:
    """1, 0 or -1, by comparison: the difference of two infinities would be NaN."""
    return (values > rival).astype(int) - (values < rival).astype(int)


def _no_nan(
    first: Float[Array, "*some position"],
    second: Float[Array, "*some position"],
    mask: Bool[Array, "*some position"],
) -> Bool[Array, "*some"]:
    return ~jnp.any(mask & (jnp.isnan(first) | jnp.isnan(second)), axis=-1)
