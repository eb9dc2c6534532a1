r"""Optimal values under uniform attention are constant on topics (Li, Li & Risteski 2023, stage 1).

Statement. With one-hot embeddings and uniform attention, every value matrix that minimises the
squared loss on long documents has

$$
\operatorname{mean}_{\text{same topic}} W_{ij}
    - \operatorname{mean}_{\text{different topics}} W_{ij}
    = \frac{1}{v (1 - (1 - p_c) p_m)},
$$

the diagonal included in the first mean.

Symbols. $T$ topics of $v$ words; $\tau$ topics per document, $S$ their set; $p_m$, $p_c$, $p_r$:
shares of words selected, and of those kept and replaced; $a = 1 - (1 - p_c) p_m$, $\rho = p_m p_r$,
$m = p_m (1 - p_c - p_r)$: shares of shown words that are correct, random, hidden; values $W$ (row =
output), bias $b$.

Derivation. A long document shows id 0 (hidden) with frequency $m$ and word $i$ with frequency
$\tilde{P}(i) = a P(i) + \rho / (T v)$, $P(i) = 1 / (v \tau)$ on the topics of $S$. The output
$W \tilde{P} + b$ must be $P$. For row $i$ of topic $t$, with sums $R_s$ over topics $s$ and
$x = W_{i0}$, the excess is 0 for all $S$ if and only if

$$
R_t - R_s = \frac{1}{a}, \qquad R_s = r \text{ for all } s \ne t, \qquad
m x + b_i + \frac{(1 - m) r}{v} + \frac{\rho}{a T v} = 0.
$$

Only sums over blocks are fixed: the minimisers form an affine space. The one of least norm (the
limit of vanishing decay, and of gradient descent from 0), with $b = 0$, is

$$
\begin{split}
r & = -\frac{1}{a} \, \frac{v m^2 + (1 - m) \rho / T}{(1 - m)^2 + v T m^2}, \\
W_{ij} & = \frac{r}{v} \text{ or } \frac{r + 1/a}{v}, \qquad x = \frac{m (T r + 1/a)}{1 - m}.
\end{split}
$$

With decay $\lambda \|W\|_F^2$ it is unique, equal on each class of a row, and $(x, s, q)$ solves

$$
\left[ \pi F_1 F_1^T + (1 - \pi) F_0 F_0^T + \lambda \operatorname{diag}(1, v, v (T - 1)) \right]
    (x, s, q)^T = \frac{\pi F_1}{v \tau},
$$

with $\pi = \tau / T$,
$F_1 = (m, \; a / \tau + \rho / T, \; a (\tau - 1) / \tau + \rho (T - 1) / T)$ for a document with
topic $t$ and $F_0 = (m, \; \rho / T, \; a + \rho (T - 1) / T)$ for one without.

Time. The part of $\tilde{P}$ that is equal in all documents is $u$, with
$|u|^2 = m^2 + (1 - m)^2 / (T v)$; the rest lies in the contrasts between topics, so
$E \tilde{P} \tilde{P}^T$ has the eigenvalues $|u|^2$, on each contrast

$$ \lambda = \frac{a^2 (T - \tau)}{v \tau T (T - 1)}, $$

and 0. Only contrasts enter the difference of blocks: from $W = 0$ it is
$(1 - e^{-2 \lambda t}) / (v a)$ under the gradient flow, and has $(1 - 2 \eta \lambda)^n$ left
after $n$ steps of gradient descent of rate $\eta$. With cross-entropy it starts at half that speed:
the gradient at 0 is $-E P \tilde{P}^T$, up to what is equal for all words, instead of
$-2 E P \tilde{P}^T$.

Limits. Long documents, squared loss, attention to every position. If selected positions cannot be
attended to, all seen words are correct: $a = 1$, $\rho = m = 0$, and the difference is $1/v$. For
$\tau = T$ all documents show the same frequencies: the excess is 0 even without blocks, nothing is
predicted.
"""

from typing import Any

import numpy as np
import xarray as xr

from saccade.contracts.theory import AbstractTheory
from saccade.errors import ConfigError
from saccade.models.one_layer_transformer import BLOCKS, Blocks, OneLayerTransformerConfig
from saccade.settings import over_sweeps
from saccade.tasks.topic_documents import HasTopics, Shares


def average_difference(task: HasTopics) -> float:
    """1 / (v a): mean entry, same topic less different topics, at every minimiser."""
    return 1 / (task.words_per_topic * task.shares.right)


def least_norm_values(task: HasTopics, shares: Shares | None = None) -> Blocks:
    """The minimiser of least norm without a bias."""
    T, v, _, a, rho, m = _symbols(task, shares)
    r = -(1 / a) * (v * m**2 + (1 - m) * rho / T) / ((1 - m) ** 2 + v * T * m**2)
    return Blocks(hidden=m * (T * r + 1 / a) / (1 - m), same=(r + 1 / a) / v, other=r / v)


def decayed_values(task: HasTopics, decay: float, shares: Shares | None = None) -> Blocks:
    """The unique minimiser with decay lambda ||W||_F^2 (lambda > 0), without a bias."""
    if not decay > 0:
        limit = "the limit of vanishing decay is least_norm_values"
        raise ConfigError(f"decay: got {decay!r}, allowed: above 0; {limit}")
    T, v, tau, a, rho, m = _symbols(task, shares)
    pi = tau / T
    present = np.array([m, a / tau + rho / T, a * (tau - 1) / tau + rho * (T - 1) / T])
    absent = np.array([m, rho / T, a + rho * (T - 1) / T])
    matrix = pi * np.outer(present, present) + (1 - pi) * np.outer(absent, absent)
    matrix = matrix + decay * np.diag([1, v, v * (T - 1)])
    return Blocks(*np.linalg.solve(matrix, pi * present / (v * tau)))


def contrast_moment(task: HasTopics) -> float:
    """lambda: the eigenvalue of E Pt Pt^T on contrasts between topics."""
    T, v, tau, a, _, _ = _symbols(task, None)
    return a**2 * (T - tau) / (v * tau * T * (T - 1))


def constant_moment(task: HasTopics) -> float:
    """|u|^2: the eigenvalue of E Pt Pt^T on what is equal in all documents."""
    T, v, _, _, _, m = _symbols(task, None)
    return m**2 + (1 - m) ** 2 / (T * v)


def share_left(task: HasTopics, steps: Any) -> Any:
    """Share of the difference of blocks that is left after steps of gradient descent from 0, each
    as long as the inverse of the largest curvature.
    """
    contrast, constant = contrast_moment(task), constant_moment(task)
    return (1 - contrast / max(contrast, constant)) ** steps


def excess(values: np.ndarray, bias: np.ndarray | float, task: HasTopics) -> float:
    """E ||W Pt + b - P||^2 over all sets of topics; 0 exactly at the minimisers."""
    T, v, tau = int(task.topics), int(task.words_per_topic), task.topics_per_document
    a, rho, m = task.shares.right, task.shares.random, task.shares.hidden
    sums = values[:, 1:].reshape(len(values), T, v).sum(axis=2)  # row topic
    bias = np.broadcast_to(bias, (len(values),))
    own = np.concatenate([np.zeros((1, T)), np.repeat(np.eye(T), v, axis=0)])  # row topic
    slope = (a * sums - own) / (v * tau)  # contribution of a topic in S to a row's error
    mean = m * values[:, 0] + bias + rho * sums.sum(axis=1) / (T * v) + tau * slope.mean(axis=1)
    squares = ((slope - slope.mean(axis=1, keepdims=True)) ** 2).sum()
    return float((mean**2).sum() + tau * (T - tau) / (T * (T - 1)) * squares)


def shares_seen(task: HasTopics, model: OneLayerTransformerConfig) -> Shares:
    """The shares of the task's documents among the positions that the model can attend to."""
    return task.masking.shares_unselected if model.selected_hidden else task.shares


def _symbols(task: HasTopics, shares: Shares | None) -> tuple[Any, ...]:
    """T, v, tau, a, rho and m; refused where nothing is predicted."""
    T, tau, shares = task.topics, task.topics_per_document, shares or task.shares
    if isinstance(shares.right, int | float) and shares.right <= 0:
        raise ConfigError("masking: got no word that is shown unchanged, allowed: some of them")
    if isinstance(tau, int | float) and isinstance(T, int | float) and tau >= T:
        got = f"topics_per_document: got {tau:g} of {T:g} topics, allowed: fewer than all"
        raise ConfigError(f"{got}; else all documents show the same frequencies of topics")
    return T, task.words_per_topic, tau, shares.right, shares.random, shares.hidden


class ValueOptimum(AbstractTheory):
    """Entries of the values, block by block: of least norm, or with the model's decay."""

    statement = "optimal values: same-topic less different-topic mean is 1/(v(1-(1-p_c)p_m))"
    source = "Li 2023, stage 1 (optimal values)"
    predicts = ("entry_mean", "block_difference")

    def predict(
        self, task: HasTopics, model: OneLayerTransformerConfig, trajectory: xr.Dataset
    ) -> xr.Dataset:
        entries = over_sweeps(_entries, task, model, dims=("block",))
        entries = entries.assign_coords(block=list(BLOCKS))
        same, other = (entries.sel(block=block, drop=True) for block in ("same", "other"))
        data = xr.Dataset({"entry_mean": entries, "block_difference": same - other})
        for name in data:
            data[name].attrs = {"long_name": f"{name} by the closed form of stage 1", "units": "1"}
        return data


def _entries(task: HasTopics, model: OneLayerTransformerConfig) -> list[float]:
    shares, decay = shares_seen(task, model), model.ridge
    blocks = decayed_values(task, decay, shares) if decay else least_norm_values(task, shares)
    return [float(blocks.hidden), float(blocks.same), float(blocks.other), 0.0]
