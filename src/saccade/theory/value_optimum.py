"""The optimal values under uniform attention are constant on topics (Li, Li & Risteski 2023, stage
1).

Statement. With one-hot embeddings and uniform attention, every value matrix that minimises the
squared loss on long documents has

    mean entry, same topic (diagonal included)  -  mean entry, different topics   =   1 / (v (1 - (1
    - p_c) p_m)).

Weight decay makes the minimiser unique.

Symbols. T topics of v words; tau topics a document, S their set; p_m, p_c, p_r: shares of words
that are selected, and of those kept and replaced; a = 1 - (1 - p_c) p_m, rho = p_m p_r, m = p_m (1
- p_c - p_r): shares of shown words that are right, random, hidden; W: values, row = output; b:
bias; lambda: decay.

Derivation. A long document shows id 0 (hidden) with frequency m and word i with a P(i) + rho/(T v),
P(i) = 1/(v tau) on the topics of S. The output W Pt + b must be P. Let row i belong to topic t, R_s
be the sum of the row over topic s, and x = W_i0. The excess is 0 for all S exactly if

    R_t - R_s = 1/a,   R_s = r for all s != t,   m x + b_i + (1 - m) r / v + rho/(a T v) = 0.

Only sums over blocks are fixed: the minimisers form an affine space. The one of least norm (the
limit of vanishing decay, and of gradient descent from 0), with b = 0, is

    r = -(1/a) (v m^2 + (1 - m) rho / T) / ((1 - m)^2 + v T m^2),   W_ij = r/v or (r + 1/a)/v,   x =
    m (T r + 1/a) / (1 - m).

With decay lambda ||W||_F^2, all of a row's entries of one class are equal, and (x, s, q) solves

    [pi F1 F1^T + (1 - pi) F0 F0^T + lambda diag(1, v, v (T - 1))] (x, s, q)^T = pi F1 / (v tau),
    pi = tau/T,

F1 = (m, a/tau + rho/T, a (tau-1)/tau + rho (T-1)/T) for a document with topic t, F0 = (m, rho/T, a
+ rho (T-1)/T) without.

Limits. Long documents, squared loss, attention to every position. If selected positions cannot be
attended to, all that is seen is right: a = 1, rho = m = 0, and the difference is 1/v. For tau = T
every document shows the same frequencies, so nothing tells topics apart: the excess is 0 for
matrices without any blocks, and the theory is silent.
"""

from typing import Any, ClassVar

import numpy as np
import xarray as xr

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractTheory
from saccade.core.sweep import over_sweeps
from saccade.models.one_layer_transformer import BLOCKS, Blocks
from saccade.tasks.topic_documents import Shares


def average_difference(words_per_topic: Any, shares: Shares) -> Any:
    """1 / (v a): mean entry of same-topic pairs less that of different-topic pairs, at every
    minimiser.
    """
    return 1 / (words_per_topic * shares.right)


def least_norm_values(task: Any, shares: Shares | None = None) -> Blocks:
    """The minimiser of least norm without a bias, for a task with topics, words_per_topic,
    topics_per_document, masking.
    """
    T, v, shares = task.topics, task.words_per_topic, shares or shares_of(task)
    _check(task, shares)
    a, rho, m = shares.right, shares.random, shares.hidden
    r = -(1 / a) * (v * m**2 + (1 - m) * rho / T) / ((1 - m) ** 2 + v * T * m**2)
    return Blocks(hidden=m * (T * r + 1 / a) / (1 - m), same=(r + 1 / a) / v, other=r / v)


def decayed_values(task: Any, decay: float, shares: Shares | None = None) -> Blocks:
    """The unique minimiser with decay lambda ||W||_F^2 (lambda > 0), without a bias."""
    if not decay > 0:
        raise ConfigError(
            f"decay: got {decay!r}, allowed: above 0; the limit of vanishing decay is"
            " least_norm_values"
        )
    T, v, tau, shares = (
        task.topics,
        task.words_per_topic,
        task.topics_per_document,
        shares or shares_of(task),
    )
    _check(task, shares)
    a, rho, m = shares.right, shares.random, shares.hidden
    pi = tau / T
    with_topic = np.array([m, a / tau + rho / T, a * (tau - 1) / tau + rho * (T - 1) / T])
    without_topic = np.array([m, rho / T, a + rho * (T - 1) / T])
    matrix = pi * np.outer(with_topic, with_topic) + (1 - pi) * np.outer(
        without_topic, without_topic
    )
    matrix = matrix + decay * np.diag([1, v, v * (T - 1)])
    return Blocks(*np.linalg.solve(matrix, pi * with_topic / (v * tau)))


def excess(values: np.ndarray, bias: np.ndarray | float, task: Any) -> float:
    """E ||W Pt + b - P||^2 over all sets of topics, by the conditions above: 0 exactly at the
    minimisers.
    """
    T, v, tau, shares = task.topics, task.words_per_topic, task.topics_per_document, shares_of(task)
    a, rho, m = shares.right, shares.random, shares.hidden
    sums = values[:, 1:].reshape(len(values), T, v).sum(axis=2)  # row topic
    bias = np.broadcast_to(bias, (len(values),))
    own = np.concatenate([np.zeros((1, T)), np.repeat(np.eye(T), v, axis=0)])  # row topic
    slope = (a * sums - own) / (v * tau)  # what a topic in S adds to a row's error
    mean = m * values[:, 0] + bias + rho * sums.sum(axis=1) / (T * v) + tau * slope.mean(axis=1)
    spread = (
        tau * (T - tau) / (T * (T - 1)) * ((slope - slope.mean(axis=1, keepdims=True)) ** 2).sum()
    )
    return float((mean**2).sum() + spread)


def shares_of(task: Any, model: Any = None) -> Shares:
    """What a model sees of the task's documents."""
    if getattr(model, "selected_hidden", False):
        return task.masking.shares_unselected
    return task.shares if hasattr(task, "shares") else task.masking.shares


def _check(task: Any, shares: Shares) -> None:
    if isinstance(shares.right, int | float) and shares.right <= 0:
        raise ConfigError(
            "masking: got no word that is shown as it is, allowed: some; else documents tell"
            " nothing"
        )
    T, tau = task.topics, task.topics_per_document
    if isinstance(tau, int | float) and isinstance(T, int | float) and tau >= T:
        raise ConfigError(
            f"topics_per_document: got {tau:g} of {T:g} topics, allowed: fewer than all; with all"
            " of them every document shows the same frequencies, and nothing tells topics apart"
        )


class ValueOptimum(AbstractTheory):
    """Entries of the values, block by block: of least norm, or with the model's decay."""

    statement: ClassVar[str] = (
        "optimal values differ by 1/(v(1-(1-p_c)p_m)) between words of one topic and of two"
    )
    source: ClassVar[str] = "Li 2023, stage 1 (optimal values)"
    predicts: ClassVar[tuple[str, ...]] = ("entry_mean", "block_difference")

    def predict(self, task: Any, model: Any, trajectory: xr.Dataset) -> xr.Dataset:
        del trajectory
        entries = over_sweeps(_entries, task, model, dims=("block",)).assign_coords(
            block=list(BLOCKS)
        )
        difference = entries.sel(block="same", drop=True) - entries.sel(block="other", drop=True)
        told = {"description": "by the closed form of stage 1"}
        return xr.Dataset(
            {
                "entry_mean": entries.assign_attrs(told),
                "block_difference": difference.assign_attrs(told),
            }
        )


def _entries(task: Any, model: Any) -> list[float]:
    shares = shares_of(task, model)
    blocks = (
        decayed_values(task, model.ridge, shares)
        if model.ridge
        else least_norm_values(task, shares)
    )
    return [float(blocks.hidden), float(blocks.same), float(blocks.other), 0.0]
