r"""Optimal attention prefers the query's own topic (Li, Li & Risteski 2023, stage 2).

Statement. Tie attention to $c_1$ (same word), $c_2$ (same topic) and $c_3$ (different topic), and
fix the values to the optimum of stage 1. The optimal average ratio

$$ \gamma = \frac{v - 1}{v} \frac{c_2}{c_3} + \frac{1}{v} \frac{c_1}{c_3} $$

lies between $\lambda_1 \tau$ and $\lambda_2 T$.

Derivation. Values are constant on blocks, so the output of a word of topic $u$ is
$x A_0 + s A_u + q (1 - A_0 - A_u)$, with attention $A_0$ on hidden words and $A_u$ on topic $u$. A
query that shows a word of topic $t$ puts $A_t = \gamma g_t / Z$ on its topic, $A_u = g_u / Z$ on
others and $A_0 = m / Z$, where $g_u = a / \tau + \rho / T$ for topics of the document, $\rho / T$
for others, and $Z = 1 + (\gamma - 1) g_t$. Selected positions are kept with probability $p_c$ (the
target is the shown word), random with $p_r$ (target drawn from $P$), else hidden (uniform
attention). The loss depends on $\gamma$:

$$
\begin{split}
L(\gamma) = {} & p_c (|f|^2 - 2 f_t)
    + p_r \frac{\tau}{T} \left(|f|^2 - 2 \operatorname{mean}_S f\right) \\
    & + p_r \left(1 - \frac{\tau}{T}\right) \left(|f'|^2 - 2 \operatorname{mean}_S f'\right)
    + \text{const},
\end{split}
$$

$f$ for $t \in S$ and $f'$ for $t \notin S$, $|f|^2$ the sum over all words. Its minimum is found to
machine accuracy. A free table of scores may also weight hidden keys by $\delta$ ($m$ becomes
$\delta m$, and $Z$ grows by $(\delta - 1) m$). For $T = v = 10$, $\tau = 4$, $\gamma^*$ is then
8.11, with $\delta = 1.50$, not 7.72.

Limits. Symbols and documents as in `value_optimum.py`. With one topic per document ($\tau = 1$),
where $\gamma^* = 1$, and with $p_c = 0$ attention cannot help; for $p_r$ near 0 $\gamma^*$ may
exceed $T$. Our source does not give $\lambda_1$ and $\lambda_2$; 0.5 and 1 are read off a grid, not
proved.
"""

from typing import Any

import numpy as np
import xarray as xr

from saccade.contracts.theory import AbstractTheory
from saccade.settings import over_sweeps
from saccade.tasks.topic_documents import HasTopics
from saccade.theory.value_optimum import least_norm_values

LOWER, UPPER = 0.5, 1.0
"""lambda_1 and lambda_2."""


def stage_two_loss(gamma: Any, task: HasTopics, delta: Any = 1.0) -> Any:
    """The loss of queries that show a word, up to a constant (delta: weight of hidden keys)."""
    T, v, tau = task.topics, task.words_per_topic, task.topics_per_document
    masking, shares, values = task.masking, task.shares, least_norm_values(task)
    inside, outside = shares.right / tau + shares.random / T, shares.random / T

    def outputs(own: Any) -> tuple[Any, ...]:
        """Outputs of words of the query's topic, other topics of the document, and all others."""
        total = 1 + (gamma - 1) * own + (delta - 1) * shares.hidden
        hidden = delta * shares.hidden / total
        topics = (gamma * own / total, inside / total, outside / total)
        x, s, q = values.hidden, values.same, values.other
        return tuple(x * hidden + s * topic + q * (1 - hidden - topic) for topic in topics)

    own, among, beyond = outputs(inside)
    square = v * (own**2 + (tau - 1) * among**2 + (T - tau) * beyond**2)
    right = square - 2 * own
    present = square - 2 * (own + (tau - 1) * among) / tau
    own, among, beyond = outputs(outside)
    absent = v * (own**2 + tau * among**2 + (T - tau - 1) * beyond**2) - 2 * among
    share = tau / T
    return masking.kept * right + masking.replaced * (share * present + (1 - share) * absent)


def optimal_ratio(task: HasTopics) -> float:
    """gamma* of a task; NaN if the loss has no inner minimum."""
    from scipy.optimize import minimize_scalar

    def loss(log_gamma: float) -> float:
        return float(stage_two_loss(np.exp(log_gamma), task))

    # The minimum is unique in practice, but this is not proved: a grid first, then the best cell.
    grid = np.linspace(np.log(1e-3), np.log(1e3 * task.topics), 400)
    losses = stage_two_loss(np.exp(grid), task)
    best = int(np.argmin(losses))
    if best in (0, len(grid) - 1) or np.ptp(losses) <= 1e-14:
        return float("nan")  # with some masking, attention gains nothing or should be infinite
    low, high = grid[best - 1], grid[best + 1]
    found = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-10})
    return float(np.exp(found.x))  # pyright: ignore[reportAttributeAccessIssue]


def optimal_free_ratio(task: HasTopics) -> tuple[float, float]:
    """gamma* and the weight of hidden keys, if both are free (as in a free table of scores)."""
    from scipy.optimize import minimize

    def loss(logs: np.ndarray) -> float:
        return float(stage_two_loss(np.exp(logs[0]), task, np.exp(logs[1])))

    start = np.log([optimal_ratio(task), 1.0])
    unit = max(abs(loss(start)), 1e-300)  # Nelder-Mead's tolerance on values is absolute
    options = {"xatol": 1e-9, "fatol": 1e-15, "maxiter": 10000}
    found = minimize(lambda logs: loss(logs) / unit, start, method="Nelder-Mead", options=options)
    gamma, delta = np.exp(found.x)
    return float(gamma), float(delta)


class AttentionRatio(AbstractTheory):
    """gamma* for every size of the task, sweeps included."""

    statement = "optimal same-topic to other attention lies between lambda_1 tau and lambda_2 T"
    source = "Li 2023, stage 2 (optimal attention)"
    predicts = ("attention_ratio",)

    def predict(self, task: HasTopics, model: Any, trajectory: xr.Dataset) -> xr.Dataset:
        text = {"long_name": "gamma*, the minimiser of the exact loss", "units": "1"}
        return xr.Dataset({"attention_ratio": over_sweeps(optimal_ratio, task).assign_attrs(text)})
