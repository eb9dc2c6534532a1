r"""A trained query keeps its balance with the keys (setting of Lu, Mao & Nayak 2021, appendix B).

Statement. (Derived here; the paper has none.) With scores $s_w = q \cdot k_w$ and both $q$ and
$k_w$ trained by gradient flow at one rate,

$$ \|q\|^2 - \sum_w \|k_w\|^2 \quad \text{is constant}, $$

the sum over all words $w$ of the dictionary. From keys of 0,

$$ \|q\|^4 - \|q_0\|^2 \|q\|^2 = \sum_w s_w^2, $$

so the scores give the norm of the query at every time.

Symbols. $q$, $q_0$: query, and its initial value; $k_w$, $s_w$: key and score of word $w$; $K$: all
keys; $L$: training loss; $g_w = \partial L / \partial s_w$; $\tau$: learning rate.

Sketch. $dq/dt = -\sum_w g_w k_w$ and $dk_w/dt = -g_w q$, so both squares change at the rate
$-2 \sum_w g_w s_w$. From keys of 0 every $k_w$ stays on the line of $q_0$, and so does $q$: then
$s_w^2 = \|q\|^2 \|k_w\|^2$, and the sum is $\|q\|^2 (\|q\|^2 - \|q_0\|^2)$. The loss enters through
$g_w$ alone: the law holds for every classifier, and with words that are not topic words.

Steps. One step of gradient descent changes the constant by
$\tau^2 (\|\partial L / \partial q\|^2 - \|\partial L / \partial K\|^2)$. If $\tau$ is at most
1 / (curvature), a step lowers the loss by at least $\tau / 2$ times the squared gradient, so that
the whole change is at most $2 \tau$ times the fall of the loss.

Limits. Scores that are no product of query and key (a Gaussian kernel), weight decay, momentum or
Adam, and rates that differ between query and keys. The second equation needs keys of 0 at first.
"""

from typing import Any

import numpy as np
import xarray as xr

from saccade.contracts.theory import AbstractTheory
from saccade.records.trajectory import at_start


class QueryConservation(AbstractTheory):
    """The norm of the query that corresponds to the scores of all words."""

    statement = "||q||^4 - ||q_0||^2 ||q||^2 = sum_w s_w^2"
    source = "derived for Lu 2021, section B (trained query)"
    predicts = ("query_norm",)

    def predict(self, task: object, model: object, trajectory: xr.Dataset) -> xr.Dataset:
        square = at_start(trajectory["query_norm"]) ** 2
        norm = norm_of_scores(trajectory["score_square"], square)
        norm = norm.transpose(*trajectory["query_norm"].dims)
        name = "norm of the query by its balance with the keys, from the measured scores"
        return xr.Dataset({"query_norm": norm.assign_attrs(long_name=name, units="1")})


def norm_of_scores(score_square: Any, initial_square: Any) -> Any:
    """||q|| from sum_w s_w^2 and ||q_0||^2."""
    return np.sqrt((initial_square + np.sqrt(initial_square**2 + 4 * score_square)) / 2)


def balance(trajectory: xr.Dataset) -> xr.DataArray:
    """||q||^2 - sum_w ||k_w||^2."""
    return trajectory["query_norm"] ** 2 - trajectory["key_square"]
