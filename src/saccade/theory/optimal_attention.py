r"""Optimal attention need not go to the position with the largest beta (Snell et al. 2021, A.1).

Statement. For fixed logits, $p = \operatorname{softmax}(\sum_l \alpha_l \gamma_l + \gamma_s)$ and
$\beta_l = \operatorname{softmax}(\gamma_l + \gamma_s)_y$, the attention that maximises $p_y$ solves
a convex program. With two outputs it is the position with the largest $\beta$. With three it may
give that position nothing: for $\gamma = (0, 0, 0), (0, -10, 5), (0, 5, -10)$, $\gamma_s = 0$ and
the first output, $\beta$ is 1/3 and twice about $e^{-5}$, but the optimum is
$\alpha = (0, 1/2, 1/2)$, $p = 1 / (1 + 2 e^{-5/2})$.

Symbols. $\gamma_l$ [output]: logits if all attention is on position $l$; $\gamma_s$: the decoder's
contribution; $y$: the correct output; $h = \log((1 - p_y) / p_y)$: log odds against $y$.

Derivation. With logits relative to those of $y$,

$$ h(\alpha) = \log \sum_{o \ne y} \exp\left(\sum_l \alpha_l \gamma_{lo} + \gamma_{so}\right), $$

convex on a convex set, and $p_y$ decreases in $h$. (The paper's loss is $\log(1 + e^h)$, convex
too, but flat where $p_y$ is near 1.) For two outputs $h$ is linear,
$-\operatorname{logit}(\beta_l)$ at vertex $l$: the best vertex is an optimum. For more, mixing
positions averages logits, and so cancels errors of opposite signs. For any $\alpha$,

$$
h(\alpha) - \min h \le \operatorname{gap}(\alpha)
    = \max_l \nabla h \cdot (\alpha - \text{vertex}_l),
$$

because $h$ lies above its tangent: the gap certifies the optimum, and bounds the rise of
$\log p_y$.

Method. Projected gradient with spectral steps and a line search (Birgin, Martinez & Raydan 2000).

Limits. That attention goes where $\beta$ is large is the paper's heuristic, not its theorem.
Attention is free here, whereas a network computes it from its states. Only a linear map may lie
between averaged states and logits. If several attentions are optimal, one is returned.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from saccade.errors import ConfigError

Attention = Float[np.ndarray, " position"]
Logits = Float[np.ndarray, "position output"]
Shared = Float[np.ndarray, " output"] | None

COUNTER_EXAMPLE_LOGITS = ((0.0, 0.0, 0.0), (0.0, -10.0, 5.0), (0.0, 5.0, -10.0))
"""gamma of eq. 30, one row per position."""
COUNTER_EXAMPLE_TARGET = 0  # the correct output
COUNTER_EXAMPLE_PROBES = (1 / 3, *[1 / (1 + math.exp(-10) + math.exp(5))] * 2)
"""beta: .3333, .0067, .0067."""
COUNTER_EXAMPLE_ATTENTION = (0.0, 0.5, 0.5)  # the optimum, zero where beta is largest
COUNTER_EXAMPLE_PROBABILITY = 1 / (1 + 2 * math.exp(-5 / 2))  # p at the optimum: .859
COUNTER_EXAMPLE_UNIFORM_PROBABILITY = 1 / (1 + 2 * math.exp(-5 / 3))  # p, uniform attention: .726

SUFFICIENT_DECREASE = 1e-4
"""Share of the linearly predicted decrease that a step must achieve (Armijo's usual constant)."""
MEMORY = 10
"""Recent values whose largest a step may not exceed: forced monotone, spectral steps are slow."""


@dataclasses.dataclass(frozen=True)
class OptimalAttention:
    """An attention, its value, and a certificate of how far it is from the optimum."""

    attention: Attention
    """alpha, on the simplex."""
    probability: float
    """p_y."""
    gap: float
    """No attention has higher log odds of y (or a higher log p_y) by more than this."""


def optimal_attention(
    logits: Logits, target: int, shared: Shared = None, tolerance: float = 1e-9, steps: int = 10_000
) -> OptimalAttention:
    """The attention that makes the target most likely, up to the tolerance if steps suffice."""
    positions, outputs = logits.shape
    if outputs < 2:
        raise ConfigError(f"logits: got {outputs} output, allowed: at least 2 (one is certain)")
    if not np.all(np.isfinite(logits)) or not (shared is None or np.all(np.isfinite(shared))):
        raise ConfigError("logits: got some that are not finite, allowed: finite numbers")
    if not 0 <= target < outputs:
        raise ConfigError(f"target: got {target}, allowed: 0 to {outputs - 1}, the outputs")
    relative = np.delete(logits - logits[:, [target]], target, axis=1)  # position, other output
    added = np.zeros(outputs - 1) if shared is None else np.delete(shared - shared[target], target)

    def odds(attention: np.ndarray) -> tuple[float, np.ndarray]:
        """h and its gradient."""
        others = attention @ relative + added
        return float(np.logaddexp.reduce(others)), relative @ _softmax(others)

    attention = np.full(positions, 1 / positions)
    value, gradient = odds(attention)
    recent, step = [value], 1.0
    for _ in range(steps):
        if _gap(attention, gradient) <= tolerance:
            break
        # A step of a thousand times the simplex acts like an infinite one, and loses no digits.
        step = min(step, 1e3 / np.ptp(gradient))
        direction = projected_on_simplex(attention - step * gradient) - attention
        slope, share = float(gradient @ direction), 1.0
        moved, (new_value, new_gradient) = attention + direction, odds(attention + direction)
        while new_value > max(recent) + SUFFICIENT_DECREASE * share * slope and share > 1e-12:
            share /= 2
            moved = attention + share * direction
            new_value, new_gradient = odds(moved)
        change, turn = moved - attention, new_gradient - gradient
        bend = float(change @ turn)
        step = float(change @ change) / bend if bend > 0 else math.inf
        attention, gradient = moved, new_gradient
        recent = [*recent[1 - MEMORY :], new_value]
    probability = float(np.exp(-np.logaddexp(0, odds(attention)[0])))
    return OptimalAttention(attention, probability, max(_gap(attention, gradient), 0.0))


def projected_on_simplex(point: Attention) -> Attention:
    """The nearest point with entries >= 0 and sum 1: subtract a constant, set negatives to 0."""
    falling = np.sort(point)[::-1]
    constants = (np.cumsum(falling) - 1) / np.arange(1, len(point) + 1)
    last = np.flatnonzero(falling > constants)[-1]  # entries up to here stay positive
    return np.maximum(point - constants[last], 0)


def lexical_probes(logits: Logits, target: int, shared: Shared = None) -> Attention:
    """beta (eq. 28): the target's probability if all attention is on one position."""
    return _softmax(logits if shared is None else logits + shared)[:, target]


def target_probability(
    attention: Attention, logits: Logits, target: int, shared: Shared = None
) -> float:
    """p_y under any attention (eq. 27)."""
    total = attention @ logits
    return float(_softmax(total if shared is None else total + shared)[target])


def _gap(attention: np.ndarray, gradient: np.ndarray) -> float:
    return float(gradient @ attention - gradient.min())


def _softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis; importing SciPy's takes a second."""
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)
