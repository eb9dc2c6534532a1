"""The toy of lexicon and attention: its equation, what it keeps, and its order."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.optimize import brentq

from saccade.theory.lexicon_then_attention import (
    attention_score,
    half_rise_times,
    lexical_advantage,
    lexical_scores,
)

STARTS = [(0.0, 0.0, 0.5), (0.3, -0.4, 0.2), (-1.0, 0.5, -0.7), (2.0, 2.0, 0.0), (0.0, 1.0, 0.0)]
TIMES = np.linspace(0, 2, 21)


@pytest.mark.parametrize("start", STARTS, ids=str)
def test_the_closed_form_solves_its_equation(start):
    def flow(_: float, state: np.ndarray) -> list[float]:
        b0, b1, p = state
        return [-p, p, b1 - b0]  # less the gradient of p (b0 - b1)

    solved = solve_ivp(flow, (0, 2), start, t_eval=TIMES, rtol=1e-11, atol=1e-12).y
    b0, b1 = lexical_scores(TIMES, *start)
    found = np.stack(np.broadcast_arrays(b0, b1, attention_score(TIMES, *start)))
    np.testing.assert_allclose(
        found, solved, rtol=1e-8, atol=1e-9
    )  # the solver's error over two units of time
    np.testing.assert_allclose(lexical_advantage(TIMES, *start), b1 - b0, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("start", STARTS, ids=str)
def test_the_start_and_what_is_kept(start):
    b0, b1, p = start
    assert lexical_scores(0.0, *start) == pytest.approx((b0, b1), abs=1e-15)
    assert attention_score(0.0, *start) == p
    assert sum(lexical_scores(TIMES, *start)) == pytest.approx(np.full(21, b0 + b1), abs=1e-12)
    advantage, score = lexical_advantage(TIMES, *start), attention_score(TIMES, *start)
    kept = (b1 - b0) ** 2 - 2 * p**2
    np.testing.assert_allclose(
        advantage**2 - 2 * score**2, kept, rtol=0, atol=1e-12 * np.max(advantage**2 + 2 * score**2)
    )


def test_slopes_at_the_start():
    """From b0 = b1 the lexicon moves at once and attention does not, by central differences of
    an error of step^2.
    """
    step = 1e-4
    slopes = [
        (function(step) - function(-step)) / (2 * step)
        for function in (lexical_advantage, attention_score)
    ]
    assert slopes[0] == pytest.approx(1.0, abs=step**2)
    assert slopes[1] == pytest.approx(0.0, abs=step**2)
    # The second derivatives the other way round: attention is driven by the lexicon.
    bends = [
        (function(step) - 2 * function(0.0) + function(-step)) / step**2
        for function in (lexical_advantage, attention_score)
    ]
    assert bends == pytest.approx([0.0, 1.0], abs=1e-6)


def test_the_special_start_as_the_specification_writes_it():
    np.testing.assert_allclose(
        lexical_advantage(TIMES), np.sqrt(2) / 2 * np.sinh(np.sqrt(2) * TIMES), rtol=1e-12
    )
    np.testing.assert_allclose(
        attention_score(TIMES), 0.5 * np.cosh(np.sqrt(2) * TIMES), rtol=1e-12
    )


@pytest.mark.parametrize("horizon", [1e-3, 0.3, 1.0, 5.0])
def test_the_lexicon_makes_half_of_its_rise_first(horizon):
    lexicon, attention = half_rise_times(horizon)
    assert 0 < lexicon < attention < horizon
    for function, time in ((lexical_advantage, lexicon), (attention_score, attention)):

        def missing(at: float, function=function) -> float:
            return function(at) - (function(0.0) + function(horizon)) / 2

        # p starts flat: what a rise of 1e-6 or more leaves after rounding is 1e-10 of it.
        assert time == pytest.approx(brentq(missing, 0, horizon, xtol=1e-15), rel=1e-8)


def test_half_rises_of_short_and_long_times():
    lexicon, attention = half_rise_times(np.asarray([1e-4, 20.0]))
    assert lexicon[0] / 1e-4 == pytest.approx(1 / 2, rel=1e-6)
    assert attention[0] / 1e-4 == pytest.approx(1 / np.sqrt(2), rel=1e-6)
    assert lexicon[1] - 20 == pytest.approx(-np.log(2) / np.sqrt(2), abs=1e-6)
    assert attention[1] - 20 == pytest.approx(-np.log(2) / np.sqrt(2), abs=1e-6)


def test_from_a_known_lexicon_and_no_attention_the_order_is_the_other_way_round():
    """The premise broken: p = 0 and b1 > b0."""
    step = 1e-4
    rises = [
        function(step, 0.0, 1.0, 0.0) - function(0.0, 0.0, 1.0, 0.0)
        for function in (lexical_advantage, attention_score)
    ]
    assert rises[0] / step == pytest.approx(0, abs=2 * step)
    assert rises[1] / step == pytest.approx(1, abs=step)
    assert lexical_advantage(1.0, 2.0, 2.0, 0.0) == attention_score(1.0, 2.0, 2.0, 0.0) == 0, (
        "from nothing comes nothing"
    )


@pytest.mark.parametrize("advantage", [-0.3, -1e-9, 1e-9, 2.0])
def test_from_uniform_attention_the_sign_of_the_advantage_is_kept_and_grows(advantage):
    """p counts from uniform attention; the growing mode and the decaying one are exponentials."""
    d, p = (
        function(TIMES, 0.0, advantage, 0.0) for function in (lexical_advantage, attention_score)
    )
    assert np.all(d * advantage > 0)
    assert np.all(p[1:] * advantage > 0)
    assert np.all(np.diff(abs(d)) > 0)
    growth = np.exp(np.sqrt(2) * TIMES)
    np.testing.assert_allclose(d + np.sqrt(2) * p, advantage * growth, rtol=1e-12)
    rounding = 1e-12 * abs(advantage) * growth
    assert np.all(abs(d - np.sqrt(2) * p - advantage / growth) <= rounding)


def test_attention_leaves_the_probabilities():
    passes = np.arccosh(2) / np.sqrt(2)
    assert passes == pytest.approx(0.931, abs=5e-4)
    assert attention_score(passes) == pytest.approx(1, rel=1e-12)
    assert attention_score(1.01 * passes) > 1
