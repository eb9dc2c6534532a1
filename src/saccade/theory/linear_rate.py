r"""Attention with rich enough features converges linearly (Song et al. 2024, theorem 1).

Statement. One layer of attention with $H$ heads on $N$ sequences of $n$ vectors in $R^D$. If
$H D \ge N n$ there are an initialisation and a step size $\eta$ with

$$
f_t \le (1 - \eta \beta)^t f_0, \qquad
\beta = \sigma_{\min}(W^O)^2 \, \sigma_{\min}(B_0)^2 > 0.
$$

Symbols. $f$: half the sum of squared errors; $W_h^O$: fixed output layer of head $h$; $B$: the
$N n \times H D$ matrix of blocks $[S_{i1} X_i, \ldots, S_{iH} X_i]$; $\sigma_{\min}(B)$: its
$N n$-th singular value (0 if $H D < N n$).

Derivation [for values only]. The output is $F = B \Theta$, $\Theta_h = W_h^V W_h^O$, so

$$
\begin{split}
\|\nabla_{W^V} f\|^2 & = \sum_h \|B_h^T (F - Y) W_h^{O T}\|^2 \\
    & \ge 2 \min_h \sigma_{\min}(W_h^O)^2 \, \sigma_{\min}(B)^2 f,
\end{split}
$$

and $f$ has curvature at most $L = \max_h \|W_h^O\|^2 \|B\|^2$. With $B$ frozen (only values are
trained) and $\eta \le 1/L$, a step of gradient descent gives
$f_{t+1} \le (1 - 2 \eta \beta (1 - \eta L / 2)) f_t \le (1 - \eta \beta) f_t$. If $H D < N n$ the
limit is the projection floor $\frac{1}{2} \|(I - P_B) Y\|^2$.

Limits. With queries and keys trained, $B$ moves: the bound is then the paper's statement about a
good initialisation, not derived here. Without $\sigma_{\min}(B_0) > 0$ and $\eta \le 1/L$ nothing
is guaranteed.
"""

from typing import Any

import numpy as np
import xarray as xr

from saccade.contracts.theory import AbstractTheory
from saccade.records.trajectory import at_place, at_start


def loss_bound(initial: Any, step_size: Any, beta: Any, steps: Any) -> Any:
    """(1 - eta beta)^t f_0, exact for tiny eta beta; eta beta >= 1 counts as 1 - 1e-16."""
    return initial * np.exp(steps * np.log1p(-np.minimum(step_size * beta, 1 - 2.0**-53)))


def step_size(trajectory: xr.Dataset) -> xr.DataArray:
    """eta of every member: its rate, divided by its initial curvature if that is its unit."""
    rate = at_place(trajectory["time"], -1) / at_place(trajectory["step"], -1)
    if trajectory["time"].attrs.get("units", "1") == "1":
        return rate
    return rate / at_start(trajectory)["curvature"]


class LinearRate(AbstractTheory):
    """The bound on the loss, from the singular values at the start (probe `FeatureMatrix`)."""

    statement = "with HD >= Nn and a small step the loss falls at least as fast as (1 - eta beta)^t"
    source = "Song 2024, theorem 1"
    predicts = ("loss",)

    def predict(self, task: Any, model: Any, trajectory: xr.Dataset) -> xr.Dataset:
        start = at_start(trajectory[["loss", "feature_low", "output_low"]])
        beta = (start["output_low"] * start["feature_low"]) ** 2
        bound = loss_bound(start["loss"], step_size(trajectory), beta, trajectory["step"])
        name = "(1 - eta beta)^t f_0, an upper bound on the loss"
        return xr.Dataset({"loss": bound.assign_attrs(long_name=name, units="1")})


class ProjectionFloor(AbstractTheory):
    """The limit of the loss if only values are trained."""

    statement = "with only values trained the loss tends to the targets' distance to the range of B"
    source = "derived; Song 2024, theorem 1 is the case of distance 0"
    predicts = ("loss",)

    def predict(self, task: Any, model: Any, trajectory: xr.Dataset) -> xr.Dataset:
        floor = at_start(trajectory)["floor"] * xr.ones_like(trajectory["step"], dtype=float)
        name = "least loss with the initial B, the limit if only values are trained"
        return xr.Dataset({"loss": floor.assign_attrs(long_name=name, units="1")})
