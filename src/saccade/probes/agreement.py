"""Agreement between two ratings of the positions of a sentence (Snell et al. 2021, section 3.1).

u and v assign a number to each of the L positions: attention weights, a lexical probe, a saliency.
With k = ceil(0.05 L):

* `agreement` (eq. 10): A(u, v) = 1 if fewer than k positions have v above v at argmax u, else 0;
* `random_baseline`: k / L, the mean of A if v is unrelated to u;
* `rank_agreement` (table 3): Kendall's tau-b of u and v;
* `contextual_agreement` (eq. 11): xi(u, v), the performance of a second run at the first recorded
  step at which its attention agrees with the reference attention more than v agrees with u.

The reference attention is that of the first run at its best validation performance (`best_step`). A
is not symmetric. Eq. 10 does not define ties. Three rules:

* shared: the mean over random breaking of ties, in v and in argmax u; constants get the baseline;
* authors: as in their code, only larger v count against, at the first argmax; a constant v gets 1;
* strict: ties count against, however they could be broken; constants get 0 (for L > 1).

"shared" is the default: a constant should score like chance. Under the authors' rule, a lexical
probe equal everywhere, as theory predicts on permutation tasks, would agree perfectly.

All measures depend on order alone. Pass scores and logarithms rather than probabilities, which
become exactly 1 or 0 in float32 and then tie. Values that differ by rounding do not tie.

Undefined values are NaN, and `mean_over` leaves them out: rows without a position or with a NaN at
one (under eq. 10 a NaN is below nothing, so a diverged run would agree), and tau of a constant.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float, Int, Shaped

from saccade.errors import ConfigError
from saccade.records.trajectory import at_place
from saccade.settings import require

Rating = Float[Array, "*some position"]
Mask = Bool[Array, "*some position"]
"""True at words; other positions never count."""
Ties = Literal["shared", "authors", "strict"]
RATINGS = ("alpha", "beta", "delta")
"""Attention, lexical probe and saliency, in tables of positions."""

SHARE = 0.05
"""The share of positions that count as the top."""


def require_ratings(probe: Any) -> None:
    """Refuse other `ratings` than some of those that there are."""
    need = f"some of {', '.join(RATINGS)}"
    require(probe, "ratings", need, lambda given: bool(given) and set(given) <= set(RATINGS))


def agreement(
    first: Rating, second: Rating, mask: Mask, ties: Ties = "shared", share: float = SHARE
) -> Float[Array, "*some"]:
    """A per row: whether the first's top position is within the second's top `share`."""
    if ties not in get_args(Ties):
        raise ConfigError(f"ties: got {ties!r}, allowed: {', '.join(get_args(Ties))}")
    allowed = jnp.asarray(_top_sizes(mask.shape[-1], share))[jnp.sum(mask, axis=-1)][..., None]
    top = mask & (first == jnp.max(first, axis=-1, where=mask, initial=-jnp.inf, keepdims=True))

    def compare(rival: Array, there: Array) -> tuple[Array, ...]:
        return tuple((there & how).astype(int) for how in (rival > second, rival == second))

    above, level = _sum_over_rivals(compare, second, mask)
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
    defined = jnp.any(mask, axis=-1) & _no_nan(first, second, mask)
    return jnp.where(defined, agreed.astype(float), jnp.nan)


def random_baseline(mask: Mask, share: float = SHARE) -> Float[Array, "*some"]:
    """The mean of `agreement` if the second is shuffled: size of the top / number of positions."""
    sizes = _top_sizes(mask.shape[-1], share)
    # Divided here: compiled code may multiply by a rounded reciprocal, so that a constant differs.
    baselines = np.append(np.nan, sizes[1:] / np.arange(1, sizes.size))
    return jnp.asarray(baselines, float)[jnp.sum(mask, axis=-1)]


def rank_agreement(first: Rating, second: Rating, mask: Mask) -> Float[Array, "*some"]:
    """Kendall's tau-b per row; NaN if either is constant or there are fewer than two positions."""

    def compare(first_rival: Array, second_rival: Array, there: Array) -> tuple[Array, ...]:
        u = jnp.where(mask & there, _order(first, first_rival), 0)
        v = jnp.where(mask & there, _order(second, second_rival), 0)
        return u * v, u**2, v**2

    sums = _sum_over_rivals(compare, first, second, mask)  # each pair counts twice, in all three
    concordant, untied_u, untied_v = (jnp.sum(part, axis=-1) for part in sums)
    product = untied_u.astype(float) * untied_v  # may be too large for an integer
    correlation = concordant / jnp.sqrt(jnp.where(product > 0, product, 1))
    return jnp.where((product > 0) & _no_nan(first, second, mask), correlation, jnp.nan)


def mean_over(values: Float[Array, "*rows"], mask: Bool[Array, "*rows"]) -> Float[Array, ""]:
    """Mean over the rows within the mask whose value is a number; NaN if there are none."""
    counts = mask & ~jnp.isnan(values)
    return jnp.sum(jnp.where(counts, values, 0)) / jnp.sum(counts)


def best_step(performance: xr.DataArray) -> xr.DataArray:
    """Index along `step` of the best performance, the first of equals; raises if all are NaN."""
    return performance.argmax("step")


def reached(curve: xr.DataArray, value: float | xr.DataArray) -> xr.DataArray:
    """Whether a curve ever exceeds a value (else the paper stars the last performance)."""
    return _exceeds(curve, value).any("step")


def contextual_agreement(
    curve: xr.DataArray, performance: xr.DataArray, value: float | xr.DataArray
) -> xr.DataArray:
    """xi: a second run's performance at the first recorded step at which the curve, its attention's
    agreement with the reference (or a mean over runs), exceeds the value A(u, v). NaN if it never
    does; `reached` distinguishes this from a NaN performance.
    """
    xr.align(curve, performance, join="exact")  # values are selected by index
    exceeds = _exceeds(curve, value)
    return at_place(performance, exceeds.argmax("step")).where(exceeds.any("step"))


def _exceeds(curve: xr.DataArray, value: float | xr.DataArray) -> xr.DataArray:
    if isinstance(value, xr.DataArray):
        if "step" in value.dims:
            raise ConfigError("value: got one per step, allowed: one for all, such as the largest")
        xr.align(curve, value, join="exact")  # arithmetic would drop members that either lacks
    return curve > value


def _top_sizes(positions: int, share: float) -> Int[np.ndarray, " length"]:
    """ceil(share L) for every length L up to the number of positions."""
    if not 0 < share <= 1:
        raise ConfigError(f"share: got {share}, allowed: a number above 0, at most 1")
    # The share is the decimal number as written: in float64 0.07 * 100 exceeds 7.
    exact = Fraction(str(float(share)))
    return np.asarray([math.ceil(length * exact) for length in range(positions + 1)])


def _sum_over_rivals(
    compare: Callable[..., tuple[Array, ...]], *rows: Shaped[Array, "*some position"]
) -> tuple[Int[Array, "*some position"], ...]:
    """The comparison of every position with a rival, summed over all rivals (itself included)."""
    # Scanned: XLA would materialise all pairs, which on a CPU takes five times as long.
    rivals = tuple(jnp.moveaxis(row, -1, 0)[..., None] for row in rows)
    shapes = jax.eval_shape(compare, *(rival[0] for rival in rivals))
    start = tuple(jnp.zeros(shape.shape, shape.dtype) for shape in shapes)

    def add(totals: tuple[Array, ...], rival: tuple[Array, ...]) -> tuple[tuple[Array, ...], None]:
        return jax.tree.map(jnp.add, totals, compare(*rival)), None

    return jax.lax.scan(add, start, rivals)[0]


def _order(values: Rating, rival: Float[Array, "*some 1"]) -> Int[Array, "*some position"]:
    """1, 0 or -1, by comparison: the difference of two infinities would be NaN."""
    return (values > rival).astype(int) - (values < rival).astype(int)


def _no_nan(first: Rating, second: Rating, mask: Mask) -> Bool[Array, "*some"]:
    return ~jnp.any(mask & (jnp.isnan(first) | jnp.isnan(second)), axis=-1)
