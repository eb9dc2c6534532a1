"""Recorded steps: from 0 to the end, ascending, wherever the schedule puts them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.core.errors import ConfigError
from saccade.core.schedule import AbstractSchedule, AtSteps, Every, Logarithmic

TOTALS = st.integers(0, 5000)


def assert_valid(schedule: AbstractSchedule, total: int) -> np.ndarray:
    steps = schedule.steps(total)
    assert steps[0] == 0
    assert steps[-1] == total
    assert np.all(np.diff(steps) > 0)
    assert steps.dtype == np.int64
    return steps


@given(total=TOTALS, period=st.integers(1, 6000))
def test_every(total: int, period: int):
    steps = assert_valid(Every(period), total)
    assert set(steps) == {*range(0, total + 1, period), total}


@given(total=TOTALS, points=st.integers(2, 300))
def test_logarithmic(total: int, points: int):
    steps = assert_valid(Logarithmic(points), total)
    # Fails for two points: step 1 comes along with 0 and the last.
    assert len(steps) <= points
    gaps = np.diff(steps[1:])
    # Dense at first: gaps of a rounded geometric grid never shrink by more than the rounding.
    assert np.all(np.diff(gaps) >= -1)


@given(data=st.data(), total=TOTALS)
def test_at_steps(data: st.DataObject, total: int):
    at = data.draw(st.lists(st.integers(0, total), max_size=20))
    steps = assert_valid(AtSteps(tuple(at)), total)
    assert set(steps) == {0, total, *at}


@given(total=TOTALS, beyond=st.integers(1, 100))
def test_steps_beyond_the_run_are_refused(total: int, beyond: int):
    with pytest.raises(
        ConfigError,
        match=f"at: got step {total + beyond}, allowed: at most the run's {total} steps",
    ):
        AtSteps((0, total + beyond)).steps(total)


@pytest.mark.parametrize("period", [0, -1, 2.5, "ten"])
def test_impossible_period_is_refused(period):
    with pytest.raises(
        ConfigError, match=f"period: got {period!r}, allowed: a whole number, at least 1"
    ):
        Every(period)


@pytest.mark.parametrize("points", [1, 0, 10.0])
def test_impossible_points_are_refused(points):
    with pytest.raises(
        ConfigError, match=f"points: got {points!r}, allowed: a whole number, at least 2"
    ):
        Logarithmic(points)


@pytest.mark.parametrize("at", [(-1,), (1.5,), (0, "end")])
def test_impossible_steps_are_refused(at):
    with pytest.raises(ConfigError, match=r"at: got .* allowed: whole numbers from 0"):
        AtSteps(at)
