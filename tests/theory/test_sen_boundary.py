"""The gap of corollary 1 for finite steps: its limits, its order, and the flow that it becomes."""

import numpy as np
import pytest

from saccade.theory.fixed_linear_classifier import convergence
from saccade.theory.score_and_norm import norm_of_score
from saccade.theory.sen_boundary import largest_gap, largest_start

SIZES = {"topics": 4, "topic_words": 8, "filler_size": 20}


def gap_at(rate, start=0.0, time=500.0, floor=0.05):
    measured = range(round(time / rate) + 1)
    return largest_gap(np.array([rate]), np.array([start]), measured, **SIZES, floor=floor)[0]


def test_for_small_steps_the_gap_is_that_of_the_start():
    square = 0.01
    expected = np.sqrt(1 + square / norm_of_score(0.05, 20) ** 2) - 1
    assert gap_at(0.02, square) == pytest.approx(expected, rel=0.01)


def test_without_a_start_the_gap_grows_with_the_rate():
    """Order 1: half the rate, half the gap."""
    gaps = np.array([gap_at(rate, time=800.0) for rate in (0.4, 0.2, 0.1)])
    np.testing.assert_allclose(gaps[:-1] / gaps[1:], 2, rtol=0.1)


def test_small_steps_follow_the_flow_of_theorem_2():
    """A word passes the floor when the flow does."""
    times = np.linspace(0, 300, 3001)
    score = convergence(times, 4, 8, 20)["score"]
    passed = times[np.argmax(score > 0.05)]
    assert np.isnan(gap_at(0.1, time=passed * 0.98))
    assert np.isfinite(gap_at(0.1, time=passed * 1.02))


def test_the_largest_start_is_the_median_of_the_largest():
    random = np.random.default_rng(0)
    drawn = (random.standard_normal((4000, 40, 15)) ** 2).sum(-1).max(1)
    share = np.mean(drawn < largest_start(15, 40))
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(4000), "four standard errors of a share"
