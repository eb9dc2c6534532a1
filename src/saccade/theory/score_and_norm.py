r"""Score and norm of a topic word grow together (Lu, Mao & Nayak 2021, theorem 1, corollary 1).

Statement. Under gradient flow, with other words nearly constant, topic word $i$ has between two
times (theorem 1)

$$
\left[ s + e^s \left\langle \frac{1}{Z_r} \right\rangle \right]
    = \left[ \frac{1}{2} \|v - \langle \bar{v}_r \rangle\|^2 \right]
$$

and, from scores of 0 and embeddings near 0 (corollary 1, "SEN"),

$$ \|v\| = \sqrt{2 \left(s + \frac{e^s - 1}{m}\right)}. $$

Symbols. $s$, $v$: score and embedding of the word; $Z_r$, $\bar{v}_r$: partition sum and weighted
mean embedding of a sentence's $m$ other words; $\langle \cdot \rangle$: mean over the training
sentences with the word.

Sketch. $dv$ is the attended gradient, $ds$ its projection on $v - \bar{v}$; $\bar{v}$ holds $v$
with weight $e^s / (e^s + Z_r)$, so
$(1 + e^s \langle 1/Z_r \rangle) \, ds = (v - \langle \bar{v}_r \rangle) \cdot dv$, and both sides
integrate. The loss does not appear: the relation holds for every classifier.

Limits. Steps of size $\eta$ add $\sum \|dv\|^2 / 2$ to the right side, so the error grows with
$\eta$. An initial variance of $\sigma^2$ adds $\|v(0)\|^2$ to $\|v\|^2$ and correlates gradients
with sentences (error below Lipschitz $\sqrt{d} \, \sigma^2 / 4$).
"""

from typing import Any

import numpy as np
import xarray as xr

from saccade.contracts.theory import AbstractTheory
from saccade.records.trajectory import at_start
from saccade.tasks.topic_sentences import HasFillers


class Corollary1(AbstractTheory):
    """The norm that corresponds to a score."""

    statement = "||v|| = sqrt(2 (s + (exp(s) - 1) / m))"
    source = "Lu 2021, corollary 1"
    predicts = ("norm",)

    def predict(self, task: HasFillers, model: object, trajectory: xr.Dataset) -> xr.Dataset:
        norm = norm_of_score(trajectory["score"], task.filler_size)
        name = "norm by corollary 1, from the measured score"
        return xr.Dataset({"norm": norm.assign_attrs(long_name=name, units="1")})


class Theorem1(AbstractTheory):
    """The distance from the other words' mean that corresponds to a score and measured averages."""

    statement = "[s + exp(s) <1/Z_r>] = [||v - <vbar_r>||^2 / 2]"
    source = "Lu 2021, theorem 1"
    predicts = ("distance",)

    def predict(self, task: object, model: object, trajectory: xr.Dataset) -> xr.Dataset:
        left = trajectory["score"] + np.exp(trajectory["score"]) * trajectory["inverse_partition"]
        square = at_start(trajectory["distance"]) ** 2 + 2 * (left - at_start(left))
        distance = (square.clip(min=0) ** 0.5).transpose(*trajectory["distance"].dims)
        name = "distance by theorem 1, from the measured score"
        return xr.Dataset({"distance": distance.assign_attrs(long_name=name, units="1")})


def norm_of_score(score: Any, filler_size: float) -> Any:
    """Corollary 1: the norm of a topic word with a score; 0 for negative scores (not covered)."""
    return np.sqrt(2 * np.maximum(score + np.expm1(score) / filler_size, 0))


def score_of_norm(norm: Any, filler_size: float) -> np.ndarray:
    """The inverse of corollary 1, by Newton's method on a convex function, from the right."""
    target = np.asarray(norm, float) ** 2 / 2
    # The solution has s < target and e^s < 1 + m target: the smaller of the two lies to its right.
    score = np.minimum(target, np.log1p(filler_size * target))
    for _ in range(50):
        excess = score + np.expm1(score) / filler_size - target
        score = score - excess / (1 + np.exp(score) / filler_size)
    return score
