"""gamma*: the table of the specification, the stationary point, and what a free weight of hidden
keys adds.
"""

import numpy as np
import pytest
import xarray as xr
from scipy.optimize import brentq

from saccade.errors import ConfigError
from saccade.settings import with_sweep
from saccade.tasks.long_documents import LongDocumentQueries
from saccade.tasks.topic_documents import Masking
from saccade.theory.attention_ratio import (
    LOWER,
    UPPER,
    AttentionRatio,
    optimal_free_ratio,
    optimal_ratio,
    stage_two_loss,
)

TABLE = {
    10: (5.76, 7.00, 8.18, 8.95),
    20: (7.63, 10.02, 12.75, 14.88),
    50: (10.17, 14.43, 20.49, 26.43),
    100: (11.70, 17.26, 26.18, 36.35),
}
"""gamma* for v = 10 and tau = 2, 3, 5, 8, as printed."""
PAPER = LongDocumentQueries(10, 10, 4)


def slope(gamma: float, task: LongDocumentQueries, delta: float = 1.0) -> tuple[float, float]:
    """dL/dgamma and dL/ddelta by complex steps: exact to rounding, because L is a rational
    function.
    """
    step = 1e-30
    by_gamma = stage_two_loss(gamma + 1j * step, task, delta).imag / step
    return by_gamma, stage_two_loss(gamma + 0j, task, delta + 1j * step).imag / step


def test_the_table_of_the_specification():
    task = with_sweep(LongDocumentQueries(), "topics", list(TABLE), "T")
    task = with_sweep(task, "topics_per_document", (2, 3, 5, 8), "tau")
    predicted = AttentionRatio().predict(task, None, xr.Dataset())["attention_ratio"]
    assert predicted.dims == ("T", "tau")
    # One unit of the last printed digit: two of the sixteen (7.0051, 36.3448) are rounded the wrong
    # way in the table.
    np.testing.assert_allclose(predicted, list(TABLE.values()), rtol=0, atol=0.01)
    for place in np.ndindex(4, 4):
        one = LongDocumentQueries(list(TABLE)[place[0]], 10, (2, 3, 5, 8)[place[1]])
        found = float(predicted[place])
        # The root of the derivative, which is sharp to rounding where the minimum is sharp to its
        # square root.
        root = brentq(
            lambda gamma, one=one: slope(gamma, one)[0], 0.9 * found, 1.1 * found, xtol=1e-12
        )
        assert found == pytest.approx(root, rel=1e-6)
    assert bool((predicted.diff("T") > 0).all())
    assert bool((predicted.diff("tau") > 0).all())
    bounds = predicted / predicted["tau"], predicted / predicted["T"]
    assert float(bounds[0].min()) > LOWER
    assert float(bounds[1].max()) < UPPER


@pytest.mark.parametrize(
    ("topics", "masking"),
    [(2, Masking()), (100, Masking()), (10, Masking(0.5, 0.1, 0.2))],
    ids=str,
)
def test_with_one_topic_a_document_attention_cannot_help(topics, masking):
    """The derivative is 0 at exactly 1, so gamma* is 1 as far as a flat minimum can be found."""
    task = LongDocumentQueries(topics, 10, 1, masking)
    curvature = (
        stage_two_loss(1.01, task) - 2 * stage_two_loss(1.0, task) + stage_two_loss(0.99, task)
    ) / 1e-4
    assert abs(slope(1.0, task)[0]) < 1e-14
    assert curvature > 0
    assert optimal_ratio(task) == pytest.approx(1, abs=1e-5)


SETTINGS = [
    (10, 10, 4, Masking()),
    (5, 3, 2, Masking(0.5, 0.1, 0.2)),
    (3, 1, 2, Masking(0.3, 0.5, 0.5)),
]


@pytest.mark.parametrize("sizes", SETTINGS, ids=str)
def test_the_derivative_is_zero_at_the_optimum_and_no_other_ratio_is_better(sizes):
    task = LongDocumentQueries(*sizes)
    best = optimal_ratio(task)
    around = [slope(best * factor, task)[0] for factor in (0.99, 1.0, 1.01)]
    assert around[0] < 0 < around[2]
    # A minimum is found to the root of rounding: 1e-8 of the ratio, of which 1e-6 of the slopes one
    # percent away.
    assert abs(around[1]) < 1e-4 * min(-around[0], around[2])
    grid = np.exp(np.linspace(np.log(1e-3), np.log(1e4), 2000))
    assert np.min(stage_two_loss(grid, task)) >= stage_two_loss(best, task)


def test_a_free_weight_of_hidden_keys_moves_the_optimum_a_little():
    assert optimal_ratio(PAPER) == pytest.approx(7.72, abs=0.005)
    gamma, delta = optimal_free_ratio(PAPER)
    assert gamma == pytest.approx(8.11, abs=0.005)
    assert delta == pytest.approx(1.50, abs=0.005)
    assert stage_two_loss(gamma, PAPER, delta) < stage_two_loss(optimal_ratio(PAPER), PAPER)
    scale = min(
        abs(one)
        for one in (slope(gamma * 1.01, PAPER, delta)[0], slope(gamma, PAPER, delta * 1.01)[1])
    )
    assert np.all(np.abs(slope(gamma, PAPER, delta)) < 1e-3 * scale), "both derivatives are 0"


def test_more_random_words_lower_the_ratio():
    assert optimal_ratio(LongDocumentQueries(10, 10, 4, Masking(0.15, 0.1, 0.2))) < optimal_ratio(
        PAPER
    )


def test_documents_about_all_topics_are_refused():
    with pytest.raises(
        ConfigError, match=r"^topics_per_document: got 10 of 10 topics, allowed: fewer than all"
    ):
        optimal_ratio(LongDocumentQueries(10, 10, 10))
