"""Recorded steps: from 0 to the end, ascending, wherever the schedule puts them."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from word_table import Table, WordList, WordTableConfig

from saccade.errors import ConfigError
from saccade.records.schedule import AbstractSchedule, AtSteps, DenseThenEven, Every, Logarithmic
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe

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


@given(total=TOTALS, until=st.none() | st.integers(1, 5000))
def test_dense_then_even(total: int, until: int | None):
    """Logarithmic steps first, then even ones up to `until`, then a few up to the end."""
    steps = set(assert_valid(DenseThenEven(until), total))
    end = min(total, max(total if until is None else until, 1))
    assert {
        int(step) for step in np.linspace(0, until or max(total, 1), 41) if step <= total
    } <= steps
    assert len([step for step in steps if step < end]) <= 24 + 41
    assert len([step for step in steps if step > end]) <= 11


def test_dense_then_even_by_hand():
    schedule = DenseThenEven(until=8, early=4, even=3, late=3)
    np.testing.assert_array_equal(schedule.steps(16), [0, 1, 2, 4, 8, 12, 16])
    np.testing.assert_array_equal(schedule.steps(8), [0, 1, 2, 4, 8])


@pytest.mark.parametrize(
    "settings", [{"until": 0}, {"until": 2.5}, {"early": 1}, {"even": 0}, {"late": "few"}]
)
def test_impossible_parts_are_refused(settings):
    (name,) = settings
    with pytest.raises(ConfigError, match=f"{name}: got .*, allowed: a whole number, at least"):
        DenseThenEven(**settings)


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


def test_recipe_takes_one_probe_or_several():
    plain, table = Recipe(WordList(), WordTableConfig(), GradientDescent(0.1), 1), Table()
    for probes in (table, [table]):
        assert dataclasses.replace(plain, probes=probes).probes == (table,)
        assert dataclasses.replace(plain, ends=probes).ends == (table,)
    assert (plain.probes, plain.at, plain.ends) == ((), Every(10), ())
