"""Agreement by hand, against plain Python and against SciPy; xi on small curves."""

import functools
import itertools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kendalltau

from saccade.errors import ConfigError
from saccade.probes.agreement import (
    agreement,
    best_step,
    contextual_agreement,
    mean_over,
    random_baseline,
    rank_agreement,
    reached,
)
from saccade.records.trajectory import at_place, first_step

RULES = ("shared", "authors", "strict")
SHARES = (0.05, 0.3)
ROWS, WIDTH = 32, 100
ROUNDING = 4e-7
"""A few roundings of a number up to 1 in float32."""


@functools.cache
def program(share: float) -> Any:
    """All measures of all rows, with every rule: one program for all tests, since compiling is
    what takes time.
    """

    @jax.jit
    def compiled(first: Any, second: Any, mask: Any) -> dict[str, Any]:
        agreements = {rule: agreement(first, second, mask, rule, share) for rule in RULES}
        return agreements | {
            "baseline": random_baseline(mask, share),
            "rank": rank_agreement(first, second, mask),
        }

    return compiled


def measured(
    first: Any, second: Any, mask: Any = True, share: float = 0.05
) -> dict[str, np.ndarray]:
    """All measures of at most ROWS rows of at most WIDTH positions; NaN fills what is added, and
    must not matter.
    """
    first, second, mask = np.broadcast_arrays(
        np.asarray(first, np.float32), np.asarray(second, np.float32), mask
    )
    rows, positions = first.shape
    room = ((0, ROWS - rows), (0, WIDTH - positions))
    padded = (
        jnp.asarray(np.pad(values, room, constant_values=np.nan)) for values in (first, second)
    )
    values = program(share)(*padded, jnp.asarray(np.pad(mask, room)))
    return {name: np.asarray(value)[:rows] for name, value in values.items()}


def one(first: Any, second: Any, mask: Any = True, share: float = 0.05) -> dict[str, float]:
    """All measures of one row."""
    row = measured(np.asarray(first)[None], np.asarray(second)[None], mask, share)
    return {name: float(value[0]) for name, value in row.items()}


# -- by hand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("place", "answer"), [(39, 1), (38, 1), (37, 0), (0, 0)])
def test_the_top_of_the_first_must_be_among_the_top_twentieth_of_the_second(place, answer):
    """L = 40: two places at the top, so one rival may be above and two may not."""
    ours = one(np.arange(40) == place, np.arange(40))
    assert [ours[rule] for rule in RULES] == [answer] * 3


def test_agreement_is_not_symmetric():
    """L = 21 has two places at the top; the second's top is only third in the first."""
    first, second = np.arange(21.0), np.arange(21.0)
    second[18] = 21
    assert one(first, second)["shared"] == 1
    assert one(second, first)["shared"] == 0


def test_ties_by_hand():
    """L = 40, two places at the top. The first's top is level with two rivals, and another rival
    is above all three.
    """
    first, second = np.zeros(40), np.zeros(40)
    first[3], second[[3, 4, 5]], second[6] = 1, 2, 5
    ours = one(first, second)
    assert ours["authors"] == 1, "one rival above, two allowed"
    assert ours["strict"] == 0, "three rivals above or level"
    assert ours["shared"] == pytest.approx(1 / 3, abs=ROUNDING), (
        "one free place at the top for three"
    )
    first[0] = 1  # a second top, where the second is lowest
    ours = one(first, second)
    assert ours["authors"] == 0, "the first argmax counts"
    assert ours["shared"] == pytest.approx(1 / 6, abs=ROUNDING), "half the time, a third"
    first = np.isin(np.arange(40), [4, 6]).astype(float)
    assert one(first, second)["strict"] == 0, "of two tops, one is level with others"
    first[4] = 0
    assert one(first, second)["strict"] == 1


# -- against plain Python --------------------------------------------------------------------------


def plain(
    first: list[float], second: list[float], mask: list[bool], ties: str, share: float
) -> float:
    """The definitions, read out; for the shared rule each top and each rank among equals is as
    likely as the next.
    """
    first, second = (
        [value for value, there in zip(row, mask, strict=True) if there] for row in (first, second)
    )
    if not first:
        return math.nan
    allowed = -(-len(first) * round(100 * share) // 100)
    outcomes = []
    for top in [place for place, value in enumerate(first) if value == max(first)]:
        rivals = [value for place, value in enumerate(second) if place != top]
        ahead = sum(value > second[top] for value in rivals)
        level = sum(value == second[top] for value in rivals)
        ranks = {
            "shared": range(ahead, ahead + level + 1),
            "authors": [ahead],
            "strict": [ahead + level],
        }[ties]
        outcomes.append(sum(rank < allowed for rank in ranks) / len(ranks))
    return {
        "shared": sum(outcomes) / len(outcomes),
        "authors": outcomes[0],
        "strict": min(outcomes),
    }[ties]


@pytest.mark.parametrize("share", SHARES)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**31), values=st.integers(1, 30), kept=st.floats(0.05, 1))
def test_agreement_is_what_plain_python_says(share: float, seed: int, values: int, kept: float):
    """Rows with ties and with holes in the mask; values outside the mask must not matter."""
    random = np.random.default_rng(seed)
    first, second = random.integers(values, size=(2, 20, 30)).astype(float)
    mask = random.random((20, 30)) < kept
    mask[0] = False
    rubbish = random.choice([np.nan, np.inf, 0, values - 1], size=(2, 20, 30))
    ours = measured(
        np.where(mask, first, rubbish[0]), np.where(mask, second, rubbish[1]), mask, share
    )
    for ties in RULES:
        rows = zip(first.tolist(), second.tolist(), mask.tolist(), strict=True)
        expected = [plain(*row, ties=ties, share=share) for row in rows]
        np.testing.assert_allclose(ours[ties], expected, rtol=0, atol=ROUNDING, err_msg=ties)


def test_the_shared_rule_is_the_mean_over_all_ways_of_breaking_ties():
    """Ties broken by every order of small amounts that change nothing else (L = 4, two places at
    the top).
    """
    first, second = np.array([2, 2, 0, 2]), np.array([1, 3, 1, 1])
    orders = np.asarray(
        [0.1 * np.asarray(order) for order in itertools.permutations(range(4))]
    )  # order position
    # The strict rule, as no ties are left.
    broken = [measured(first + order, second + orders, share=0.3)["strict"] for order in orders]
    shared = one(first, second, share=0.3)["shared"]
    assert shared == pytest.approx(float(np.mean(broken)), abs=ROUNDING)
    assert shared == pytest.approx((1 / 3 + 1 + 1 / 3) / 3, abs=ROUNDING)


def test_rows_are_apart():
    """What is undefined in one row stays there, and one row at a time (vmap) gives the same."""
    random = np.random.default_rng(1)
    first, second = random.integers(4, size=(2, 5, 9)).astype(np.float32)
    mask = np.ones((5, 9), bool)
    mask[1], second[2, 3] = False, np.nan
    together = measured(first, second, mask)
    apart = jax.jit(jax.vmap(lambda *row: (agreement(*row), rank_agreement(*row))))(
        first, second, mask
    )
    for name, alone in zip(("shared", "rank"), apart, strict=True):
        np.testing.assert_array_equal(np.isnan(together[name]), [False, True, True, False, False])
        np.testing.assert_allclose(alone, together[name], rtol=0, atol=ROUNDING)


# -- constants, the baseline and short rows --------------------------------------------------------


@pytest.mark.parametrize("length", [2, 7, 20, 21, 41])
def test_a_constant_gets_what_chance_gets(length):
    some, constant = np.random.default_rng(length).permutation(length), np.full(length, 0.3)
    ours = measured([some, constant, constant], [constant, some, constant])
    chance = np.float32(math.ceil(length / 20) / length)
    np.testing.assert_array_equal(ours["baseline"], chance)
    np.testing.assert_array_equal(
        ours["shared"][:2], chance, err_msg="exactly, not but for rounding"
    )
    assert ours["shared"][2] == pytest.approx(chance, abs=ROUNDING)
    assert ours["authors"][0] == ours["authors"][2] == 1, "the trap"
    np.testing.assert_array_equal(ours["strict"], 0)
    np.testing.assert_array_equal(ours["rank"], np.nan)


def test_the_baseline_is_the_mean_over_all_shuffles():
    """The second put in each of its rotations: the first's top meets every rank once."""
    first = np.broadcast_to(np.sin(np.arange(23)), (23, 23))
    ours = measured(first, [np.roll(np.arange(23), shift) for shift in range(23)])
    for rule in RULES:
        assert np.mean(ours[rule]) == pytest.approx(ours["baseline"][0], abs=ROUNDING)


def test_one_position_agrees_with_itself():
    ours = one(np.arange(6), -np.arange(6), np.arange(6) == 4)
    assert [ours[rule] for rule in (*RULES, "baseline")] == [1] * 4
    assert math.isnan(ours["rank"]), "but has no order"


def test_no_position_and_no_number_give_nan():
    """A diverged run must not agree: a NaN is below nothing."""
    row, broken = np.arange(4.0), np.array([0, 1, np.nan, 3])
    mask = np.ones((3, 4), bool)
    mask[0] = False
    ours = measured([row, row, broken], [row, broken, row], mask)
    for name in (*RULES, "rank"):
        np.testing.assert_array_equal(ours[name], np.nan, err_msg=name)
    np.testing.assert_array_equal(ours["baseline"], [np.nan, 0.25, 0.25])


def test_infinite_values_are_in_order():
    """Logarithms of 0: a row of them is a constant, and a value above them is on top."""
    low, peak = np.full(20, -np.inf), np.where(np.arange(20) == 7, -50.0, -np.inf)
    ours = measured([low, peak, peak], [peak, low, np.exp(peak)])
    np.testing.assert_array_equal(ours["shared"], np.asarray([0.05, 0.05, 1], np.float32))
    np.testing.assert_allclose(ours["rank"], [np.nan, np.nan, 1], rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(
    ("share", "sizes"),
    [
        (0.05, {1: 1, 19: 1, 20: 1, 21: 2, 40: 2, 41: 3, 60: 3, 61: 4, 80: 4, 100: 5}),
        (0.3, {1: 1, 10: 3, 50: 15, 90: 27, 100: 30}),
    ],
)
def test_the_size_of_the_top_is_rounded_up_exactly(share, sizes):
    """The last place at the top agrees, the next does not. Of 0.3 * 50 in float32, one more
    would be allowed.
    """
    for length, size in sizes.items():
        place = length - size
        tops = [np.arange(length) == place, np.arange(length) == place - 1][: 1 + (place > 0)]
        ours = measured(tops, np.arange(length), share=share)
        assert ours["shared"].tolist() == [1, 0][: len(tops)], f"length {length}"
        assert ours["baseline"][0] == np.float32(size / length)


@pytest.mark.parametrize(
    ("share", "length", "size"),
    [(0.05, 60, 3), (0.07, 100, 7), (0.15, 100, 15), (0.55, 100, 55), (1.0, 8, 8)],
)
def test_the_size_of_the_top_in_double_precision(share, length, size):
    """0.07 * 100 and 0.55 * 100 are too large in float64."""
    with jax.enable_x64(True):
        baseline = jax.jit(functools.partial(random_baseline, share=share))(
            jnp.asarray(np.ones(length, bool))
        )
        assert baseline.dtype == np.float64
        assert float(baseline) == size / length


@pytest.mark.parametrize("share", [0.0, -0.1, 1.5, math.nan])
def test_a_share_that_makes_no_sense_is_refused(share):
    with pytest.raises(ConfigError, match=r"share: got .*, allowed: a number above 0, at most 1"):
        random_baseline(jnp.ones(3, bool), share)


def test_an_unknown_rule_is_refused():
    row, rule = jnp.ones(3), "fair"
    unchecked: Any = getattr(
        agreement, "__wrapped__", agreement
    )  # without the check of types, which only tests have
    with pytest.raises(ConfigError, match="ties: got 'fair', allowed: shared, authors, strict"):
        unchecked(row, row, row > 0, rule)


# -- Kendall ---------------------------------------------------------------------------------------


@settings(max_examples=12, deadline=None, derandomize=True)
@given(seed=st.integers(0, 2**31), values=st.integers(2, 20), kept=st.floats(0.1, 1))
def test_rank_agreement_is_kendalls_tau_b(seed: int, values: int, kept: float):
    random = np.random.default_rng(seed)
    first, second = random.integers(values, size=(2, 8, 12)).astype(float)
    mask = random.random((8, 12)) < kept
    mask[0], mask[1] = False, np.arange(12) == 5
    first[2] = 1
    expected = []
    for row, other, there in zip(first, second, mask, strict=True):
        varied = there.any() and np.ptp(row[there]) > 0 and np.ptp(other[there]) > 0
        result: Any = kendalltau(row[there], other[there]) if varied else None
        expected.append(result.statistic if varied else math.nan)
    first[~mask] = random.choice([np.nan, 99])
    np.testing.assert_allclose(
        measured(first, second, mask)["rank"], expected, rtol=0, atol=ROUNDING
    )


def test_rank_agreement_of_equal_and_of_opposite_orders():
    row = np.random.default_rng(3).normal(size=(1, 90))
    np.testing.assert_allclose(measured(row, np.exp(row))["rank"], 1, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(measured(row, -row)["rank"], -1, rtol=0, atol=ROUNDING)


# -- means -----------------------------------------------------------------------------------------


def test_the_mean_leaves_out_padding_and_what_is_undefined():
    values = jnp.asarray([[1, 0, np.nan], [0.5, 7, np.nan]], float)
    mean = jax.jit(mean_over)
    assert float(mean(values, np.array([[True, True, True], [True, False, False]]))) == 0.5
    assert math.isnan(float(mean(values, np.zeros((2, 3), bool))))
    assert math.isnan(float(mean(values, np.array([[False, False, True], [False, False, True]]))))


def test_the_mean_of_ones_is_one_when_compiled():
    """Divided by a constant 41, compiled code would give a little less."""
    assert float(jax.jit(lambda values: mean_over(values, jnp.ones(41, bool)))(jnp.ones(41))) == 1


# -- xi --------------------------------------------------------------------------------------------


def along(numbers: Any, *dims: str) -> xr.DataArray:
    steps = np.array([0, 10, 50, 100])
    return xr.DataArray(
        numbers, dims=(*dims, "step"), coords={"step": steps, "time": ("step", 0.1 * steps)}
    )


CURVE, PERFORMANCE = along([0.1, 0.4, 0.3, 0.6]), along([0.5, 0.7, 0.8, 0.9])


@pytest.mark.parametrize(
    ("value", "performance"),
    [
        (0.05, 0.5),
        (0.1, 0.7),
        (0.35, 0.7),
        (0.4, 0.9),
        (0.6, math.nan),
        (0.7, math.nan),
        (math.nan, math.nan),
    ],
    ids=[
        "at once",
        "equal is not above",
        "a later fall does not count",
        "a later rise",
        "equal at the end",
        "never",
        "no value",
    ],
)
def test_contextual_agreement_by_hand(value, performance):
    xi = contextual_agreement(CURVE, PERFORMANCE, value)
    np.testing.assert_equal(float(xi), performance)
    assert bool(reached(CURVE, value)) == (not math.isnan(performance))
    assert not {"step", "time"} & set(xi.coords)


def test_contextual_agreement_of_every_member():
    """Curves and performances of two seeds, and values of two rules; one performance is NaN
    where the curve gets there.
    """
    seeds = {"seed": [4, 7]}
    curve = along([[0.1, 0.4, 0.3, 0.6], [0.2, 0.2, 0.9, 0.9]], "seed").assign_coords(seeds)
    performance = along([[0.5, 0.7, 0.8, 0.9], [0.1, 0.2, math.nan, 0.4]], "seed").assign_coords(
        seeds
    )
    value = xr.DataArray([[0.35, 0.1], [0.6, 0.3]], dims=("rule", "seed"), coords=seeds)
    xi = contextual_agreement(curve, performance, value)
    np.testing.assert_array_equal(xi.transpose("rule", "seed"), [[0.7, 0.1], [math.nan, math.nan]])
    np.testing.assert_array_equal(
        reached(curve, value).transpose("rule", "seed"), [[True, True], [False, True]]
    )
    steps = first_step(curve > value).transpose("rule", "seed")
    np.testing.assert_array_equal(
        steps, [[10, 0], [math.nan, 50]], err_msg="the steps that these belong to"
    )


def test_what_does_not_fit_together_is_refused():
    other_steps = PERFORMANCE.assign_coords(step=[0, 10, 50, 200])
    with pytest.raises(ValueError, match="step"):
        contextual_agreement(CURVE, other_steps, 0.3)
    with pytest.raises(ConfigError, match="value: got one per step"):
        contextual_agreement(CURVE, PERFORMANCE, CURVE)
    curve = along(np.ones((2, 4)), "seed").assign_coords(seed=[0, 1])
    with pytest.raises(ValueError, match="seed"):
        reached(curve, xr.DataArray([0.1, 0.2], dims="seed", coords={"seed": [1, 2]}))


def test_the_best_step_is_the_first_of_equals():
    performance = along([[0.5, 0.9, 0.9, 0.7], [math.nan, 0.2, 0.1, 0.3]], "seed")
    best = best_step(performance)
    np.testing.assert_array_equal(best, [1, 3])
    np.testing.assert_array_equal(at_place(performance, best), [0.9, 0.3])
    with pytest.raises(ValueError, match="NaN"):
        best_step(along(np.full(4, math.nan)))
