"""Where norm and score change their order: against corollary 1 itself, and SciPy."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from saccade.theory.half_rise_order import excess, reversal_score
from saccade.theory.score_and_norm import norm_of_score

fillers = st.floats(0.5, 1e5)


@settings(derandomize=True, deadline=None)
@given(score=st.floats(0.01, 12), filler_size=fillers)
def test_the_sign_is_that_of_corollary_1(score, filler_size):
    half = norm_of_score(score / 2, filler_size) - norm_of_score(score, filler_size) / 2
    if abs(excess(score, filler_size)) > 1e-9 * score:
        assert (half > 0) == (excess(score, filler_size) > 0)


@settings(derandomize=True, deadline=None)
@given(filler_size=fillers)
def test_at_the_reversal_the_norm_is_halfway_at_half_of_the_score(filler_size):
    score = reversal_score(filler_size)
    assert norm_of_score(score / 2, filler_size) == pytest.approx(
        norm_of_score(score, filler_size) / 2, rel=1e-12
    )
    assert excess(0.9 * score, filler_size) > 0 > excess(1.1 * score, filler_size)


@pytest.mark.parametrize(
    ("filler_size", "rounded"), [(5, 3.72), (10, 4.31), (20, 4.97), (40, 5.68)]
)
def test_the_root_is_that_of_scipy(filler_size, rounded):
    root = brentq(excess, 0.5, 30, args=(filler_size,), xtol=1e-14)
    assert reversal_score(filler_size) == pytest.approx(root, rel=1e-12)
    assert reversal_score(filler_size) == pytest.approx(rounded, abs=0.005)
