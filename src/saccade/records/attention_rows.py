"""Statistics of rows of attention: one definition for JAX's arrays and for PyTorch's tensors.

Symbols: s scores of one query, w = exp(s) their weights, p = w / sum of w over the visible keys.
(p is the attention itself with softmax. The Gaussian kernel does not normalise: there p is the
share of a key, and `attention_total` the sum of w.) k_j are the keys, v_j the values, o = sum p_j
v_j what the query gets, L a loss, and g_j = <dL/do, v_j> what it would gain by key j.

    entropy          - sum p log p
    effective keys   1 / sum p^2 = exp(2 lse(s) - lse(2 s))
    masses           sum of p over some keys
    mean distance    sum of p |i - j|, of query i
    uniform entropy  log of the number of visible keys: the most that the entropy can be
    score spread     standard deviation of s over the visible keys, each counted once
    key spread       sd_p(k) = sqrt(E_p |k - E_p k|^2)
    score reach      scale sd_p(k): how far a query of norm 1 can move its scores apart
    value signal     sd_p(g)
    query gradient   |dL/dq| = scale |Cov_p(g, k)|  =  scale sd_p(g) sd_p(k) alignment
    rounding shift   half the sum of |p - p'|, where p' is the attention of scores as a lower
                     precision holds them: the share of attention that rounding moves
    alignment        between 0 and 1; reported times sqrt(effective keys): without the factor it
                     repeats the entropy. If g knows nothing of the keys, it is about 1 where
                     attention is uniform, and somewhat less where it is peaked

Functions get the module of the arrays, `jax.numpy` or `torch`, as `xp`. Rows are the last axis but
one, keys the last.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

BLOCK = 2**20
"""Scores that are computed at once."""
REACH = "scale x spread of the keys: how far a query of norm 1 moves its scores"
PerRow = Float[Any, "*some row"]
Table = Float[Any, "*some row key"]


def chosen_rows(available: int, wanted: int) -> Int[np.ndarray, " chosen"]:
    """At most `wanted` of some rows, evenly spaced, the first and (of several) the last among
    them.
    """
    if available <= wanted:
        return np.arange(available)
    return np.linspace(0, available - 1, wanted).round().astype(int)


def row_statistics(
    scores: Table,
    visible: Bool[Any, "*#some #row key"],
    words: Bool[Any, "*#some key"],
    places: Int[Any, " row"],
    keys: Int[Any, " key"],
    xp: Any,
    normalised: bool = True,
) -> dict[str, PerRow]:
    """Statistics of some rows of scores. `visible`: keys that a row may attend to; `words`: keys
    that are no padding; `places` and `keys`: the positions of both (of a key without one, -1).
    Without a visible key, all are 0.
    """
    seen, top, below, weights = relative_weights(scores, visible, xp)
    total = xp.where(seen, xp.sum(weights, axis=-1), 1.0)
    shares = weights / total[..., None]
    first = keys == xp.argmax(words * 1, axis=-1)[..., None]
    own = keys == places[:, None]

    def mass(chosen: Any) -> PerRow:
        return xp.sum(shares * chosen, axis=-1)

    squares = xp.where(seen, xp.sum(weights**2, axis=-1), 1.0)
    everything = xp.ones_like(total) if normalised else total * xp.exp(top)
    return {
        "attention_entropy": xp.where(seen, xp.log(total) - mass(below), 0.0),
        "effective_keys": xp.where(seen, total**2 / squares, 0.0),
        "largest_score": top,
        "padding_mass": mass(~words[..., None, :]),
        "first_mass": mass(first[..., None, :]),
        "own_mass": mass(own),
        "mean_distance": mass(xp.abs(places[:, None] - keys) * (keys >= 0)),
        "attention_total": xp.where(seen, everything, 0.0),
    }


def relative_weights(
    scores: Table, visible: Bool[Any, "*#some #row key"], xp: Any
) -> tuple[Any, Any, Any, Any]:
    """Whether a row sees a key, its largest score (0 if none), scores relative to it, and their
    weights: at most 1, so that nothing overflows.
    """
    seen = xp.any(visible, axis=-1)
    scores = xp.where(visible, scores, -math.inf)
    top = xp.where(seen, xp.amax(scores, axis=-1), 0.0)
    below = xp.where(visible, scores - top[..., None], 0.0)
    return seen, top, below, xp.where(visible, xp.exp(below), 0.0)


def spread_statistics(
    scores: Table,
    visible: Bool[Any, "*#some #row key"],
    places: Int[Any, " row"],
    positions: Int[Any, " key"],
    xp: Any,
    vectors: Float[Any, "*some key part"] | None = None,
    slopes: Table | None = None,
    signal: Table | None = None,
    scale: float = 1.0,
) -> dict[str, PerRow]:
    """Spread of scores and, with the keys' `vectors`, of keys; with the `signal` g also the factors
    of the query's gradient.

    Variances are taken about the key of largest score, whose own weight never enters: E x^2 -
    (E x)^2 would lose all digits where one key has nearly all weight. `slopes`: the derivative of a
    score by its product of query and key, where that is not constant (a soft cap): the key that
    acts on a row is then its slope times the key.
    """
    seen, _, below, weights = relative_weights(scores, visible, xp)
    total = xp.where(seen, xp.sum(weights, axis=-1), 1.0)
    shares = weights / total[..., None]
    count = xp.where(seen, xp.sum(visible * 1.0, axis=-1), 1.0)
    mean = xp.sum(below, axis=-1) / count
    apart = xp.where(visible, below - mean[..., None], 0.0)
    found = {
        "score_spread": xp.sqrt(xp.sum(apart**2, axis=-1) / count),
        "visible_keys": xp.where(seen, count + 0 * mean, 0.0),
        "uniform_entropy": xp.log(count + 0 * mean),
        "future_mass": xp.sum(shares * (positions > places[:, None]), axis=-1),
    }
    if vectors is None and signal is None:
        return found
    largest = xp.argmax(xp.where(visible, scores, -math.inf), axis=-1)
    top = positions == positions[largest][..., None]
    tail = xp.where(top, 0.0, shares)
    lift = xp.ones_like(shares) if slopes is None else slopes
    drift = 0.0
    if signal is not None:
        signal = signal - xp.sum(xp.where(top, signal, 0.0), axis=-1)[..., None]
        drift = xp.sum(tail * signal, axis=-1)[..., None]
        variance = xp.sum(shares * (signal - drift) ** 2, axis=-1)
        found["value_signal"] = xp.sqrt(variance)
    if vectors is None:
        return found
    of_top = xp.where(top, lift, 0.0) @ vectors
    shift = (tail * lift) @ vectors - xp.sum(tail, axis=-1)[..., None] * of_top
    middle = of_top + shift
    squares = xp.sum(vectors**2, axis=-1)[..., None, :]
    products = middle @ xp.swapaxes(vectors, -1, -2)
    distances = lift**2 * squares - 2 * lift * products + xp.sum(middle**2, axis=-1)[..., None]
    distances = xp.where(top, xp.sum(shift**2, axis=-1)[..., None], distances)
    distances = xp.where(distances > 0, distances, 0.0)
    found["key_spread"] = xp.sqrt(xp.sum(shares * distances, axis=-1))
    if signal is not None:
        gradient = scale * ((tail * lift * signal) @ vectors - drift * middle)
        found["query_gradient"] = _norm(gradient, xp)
        bound = scale * found["value_signal"] * found["key_spread"]
        effective = xp.where(seen, 1 / xp.where(seen, xp.sum(shares**2, axis=-1), 1.0), 0.0)
        aligned = found["query_gradient"] / xp.where(bound > 0, bound, 1.0)
        found["query_alignment"] = xp.where(bound > 0, aligned, 0.0) * xp.sqrt(effective)
    return found


def rounding_shift(
    scores: Table, rounded: Table, visible: Bool[Any, "*#some #row key"], xp: Any
) -> PerRow:
    """The share of attention that goes to other keys if scores are rounded."""
    found = []
    for one in (scores, rounded):
        weights = relative_weights(one, visible, xp)[-1]
        total = xp.sum(weights, axis=-1)
        found.append(weights / xp.where(total > 0, total, 1.0)[..., None])
    return xp.sum(xp.abs(found[0] - found[1]), axis=-1) / 2


def _norm(vectors: Float[Any, "*some part"], xp: Any) -> Any:
    """Lengths of vectors whose squares may be below the smallest number."""
    largest = xp.amax(xp.abs(vectors), axis=-1)
    unit = vectors / xp.where(largest > 0, largest, 1.0)[..., None]
    return largest * xp.sqrt(xp.sum(unit**2, axis=-1))
