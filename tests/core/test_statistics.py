"""Intervals over seeds, rates, pooled numbers, rank correlations and exponents of power laws,
against SciPy and closed forms.
"""

import math

import numpy as np
import pytest
import xarray as xr
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from saccade.core.statistics import (
    LEVEL,
    POOLED_RESAMPLES,
    RESAMPLES,
    bootstrap_interval,
    difference_of_rates,
    exact_interval,
    fisher_test,
    log_slope,
    over_all_seeds,
    rank_correlation,
    resampled_interval,
)

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)


@settings(max_examples=40, deadline=None)
@given(numbers=NUMBERS)
def test_interval_is_deterministic_and_lies_inside_the_range(numbers: list[float]):
    values = np.asarray(numbers)
    low, high = bootstrap_interval(values)
    assert bootstrap_interval(values.copy()) == (low, high)
    slack = 1e-9 * np.abs(values).max()  # a mean of equal numbers may round
    assert values.min() - slack <= low <= high <= values.max() + slack


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1000), size=st.integers(3, 30))
def test_interval_covers_the_mean_of_the_numbers(seed: int, size: int):
    values = np.random.default_rng(seed).normal(size=size)
    low, high = bootstrap_interval(values)
    assert low < values.mean() < high


def test_interval_is_that_of_the_normal_law_for_many_numbers():
    values = np.random.default_rng(0).normal(2, 3, 400)
    error = values.std() / math.sqrt(values.size)
    expected = np.asarray(stats.norm.interval(LEVEL, values.mean(), error))
    # The 2.5 % quantile of 4000 resamples has a standard error of sqrt(0.025 0.975 / 4000) / 0.058
    # = 0.042 errors of the mean (0.058: density of the normal law there); four of those.
    np.testing.assert_allclose(bootstrap_interval(values), expected, atol=4 * 0.042 * error)


def test_interval_covers_the_truth_about_as_often_as_it_says():
    random = np.random.default_rng(1)
    inside = [
        low <= 0 <= high
        for low, high in (bootstrap_interval(random.normal(size=30)) for _ in range(200))
    ]
    # The percentile bootstrap is too narrow by about sqrt(29/30), worth 93.5 % here; 200 trials
    # have a standard error of 1.7 %, and four of those are allowed.
    assert abs(np.mean(inside) - 0.935) < 4 * 0.017


def test_interval_shrinks_with_more_seeds():
    values = np.random.default_rng(2).normal(size=400)
    few, many = (np.ptp(bootstrap_interval(values[:size])) for size in (25, 400))
    assert many < few / 2


@pytest.mark.parametrize("numbers", [[], [3.0]])
def test_fewer_than_two_numbers_have_no_interval(numbers: list[float]):
    low, high = bootstrap_interval(np.asarray(numbers))
    assert math.isnan(low)
    assert math.isnan(high)


def test_equal_numbers_have_an_interval_of_no_width():
    assert bootstrap_interval(np.full(4, 0.1)) == (0.1, 0.1)


def test_infinite_number_makes_the_interval_the_range():
    assert bootstrap_interval(np.asarray([1.0, 2.0, math.inf])) == (1.0, math.inf)
    assert bootstrap_interval(np.asarray([1.0, 2.0, -math.inf])) == (-math.inf, 2.0)


def test_infinite_numbers_alone_are_an_interval_of_no_width():
    assert bootstrap_interval(np.full(3, math.inf)) == (math.inf, math.inf)


# -- rates -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(trials=st.integers(1, 60), share=st.floats(0, 1))
def test_exact_interval_is_clopper_and_pearsons(trials: int, share: float):
    """Quantiles of beta laws, with 0 and 1 at the ends."""
    successes = round(share * trials)
    low, high = exact_interval(successes, trials)
    tail = (1 - LEVEL) / 2
    assert low == pytest.approx(
        stats.beta.ppf(tail, successes, trials - successes + 1) if successes else 0, abs=1e-9
    )
    assert high == pytest.approx(
        stats.beta.ppf(1 - tail, successes + 1, trials - successes) if successes < trials else 1,
        abs=1e-9,
    )
    assert low <= successes / trials <= high


def test_exact_interval_covers_every_rate_as_often_as_it_says():
    """Not by drawing: the chances of all counts are known."""
    trials = 20
    rates = np.linspace(0.01, 0.99, 99)
    intervals = np.asarray([exact_interval(count, trials) for count in range(trials + 1)])
    inside = (intervals[:, :1] <= rates) & (rates <= intervals[:, 1:])
    covered = np.sum(
        stats.binom.pmf(np.arange(trials + 1)[:, None], trials, rates) * inside, axis=0
    )
    assert covered.min() >= LEVEL


def test_no_trials_have_no_rate():
    assert np.all(np.isnan(exact_interval(0, 0)))


def outcomes(successes: int, trials: int) -> xr.DataArray:
    return xr.DataArray([1.0] * successes + [0.0] * (trials - successes), dims="seed")


def chances(successes: int, first: int, second: int) -> np.ndarray:
    """Chance of every count in the first sample, if so many of all succeed wherever they are."""
    counts = range(first + 1)
    ways = [
        math.comb(first, one) * math.comb(second, successes - one) if one <= successes else 0
        for one in counts
    ]
    return np.asarray(ways) / math.comb(first + second, successes)


@settings(max_examples=40, deadline=None)
@given(
    first=st.integers(1, 25),
    second=st.integers(1, 25),
    shares=st.tuples(st.floats(0, 1), st.floats(0, 1)),
)
def test_fisher_test_adds_the_chances_of_all_that_is_as_unlikely(
    first: int, second: int, shares: tuple[float, float]
):
    one, other = round(shares[0] * first), round(shares[1] * second)
    found = fisher_test(outcomes(one, first), outcomes(other, second)).item()
    chance = chances(one + other, first, second)
    assert found == pytest.approx(chance[chance <= chance[one] * (1 + 1e-7)].sum(), rel=1e-6)
    theirs = np.asarray(stats.fisher_exact([[one, first - one], [other, second - other]]))[1]
    assert found == pytest.approx(theirs, rel=1e-12)
    assert fisher_test(outcomes(other, second), outcomes(one, first)).item() == pytest.approx(
        found, rel=1e-9
    )


@pytest.mark.parametrize(
    ("one", "first", "other", "second", "low", "high"),
    # Newcombe (1998), Statistics in Medicine 17, table II, method 10.
    [
        (56, 70, 48, 80, 0.0524, 0.3339),
        (9, 10, 3, 10, 0.1705, 0.8090),
        (0, 10, 0, 20, -0.1611, 0.2775),
        (10, 10, 0, 10, 0.6075, 1.0),
    ],
)
def test_a_difference_of_rates_has_newcombes_interval(one, first, other, second, low, high):
    found = difference_of_rates(outcomes(one, first), outcomes(other, second))
    assert found.item() == pytest.approx(one / first - other / second)
    assert found.attrs["interval"] == pytest.approx((low, high), abs=1e-4)
    assert found.attrs["seeds"] == min(first, second)


def test_resamples_without_a_number_are_not_swept_under_the_carpet():
    """A few may be left out; of many nobody knows on which side of the bound they are."""
    numbers = np.linspace(0, 1, 1000)
    few, many = numbers.copy(), numbers.copy()
    few[:20], many[:100] = np.nan, np.nan
    assert resampled_interval(few) == pytest.approx((0.0445, 0.9755), abs=1e-3)
    assert np.all(np.isnan(resampled_interval(many)))
    assert np.all(np.isnan(resampled_interval(np.array([]))))


def test_fisher_test_of_the_lady_who_tasted_tea():
    """Three of four cups of each kind told right: (16 + 1) / 70 on either side."""
    assert fisher_test(outcomes(3, 4), outcomes(1, 4)).item() == pytest.approx(34 / 70)


@pytest.mark.parametrize("successes", [0, 20])
@pytest.mark.parametrize("trials", [1, 20])
def test_fisher_test_finds_no_difference_where_all_succeed_or_all_fail(successes: int, trials: int):
    found = fisher_test(outcomes(min(successes, trials), trials), outcomes(successes, 20))
    assert found.item() == 1
    assert found.attrs["seeds"] == trials


def test_fisher_test_leaves_out_seeds_without_an_outcome():
    missing = xr.DataArray([np.nan] * 3, dims="seed")
    found = fisher_test(*(xr.concat([outcomes(count, 4), missing], "seed") for count in (3, 1)))
    assert found.item() == pytest.approx(34 / 70)
    assert found.attrs["seeds"] == 4


# -- numbers of all seeds together -----------------------------------------------------------------


def sample(values, *dims: str) -> xr.DataArray:
    return xr.DataArray(np.asarray(values, float), dims=("seed", *dims))


def test_first_resample_is_the_sample_itself_and_all_are_the_same_again():
    values = sample(np.random.default_rng(6).normal(size=9))
    found = over_all_seeds(np.median, values)
    assert found.dims == ("resample",)
    assert found.sizes["resample"] == 1 + POOLED_RESAMPLES
    assert found[0] == np.median(values)
    assert found.attrs["seeds"] == 9
    xr.testing.assert_identical(found, over_all_seeds(np.median, values.copy()))
    assert len(np.unique(found)) > 3


def test_resamples_spread_like_the_mean():
    random = np.random.default_rng(7)
    first, second = sample(random.normal(0, 2, 30)), sample(random.normal(5, 1, 12))
    # The spread of 500 draws has a relative standard error of 1 / sqrt(2 x 500) = 3.2 %; four of
    # those. Their mean is off by 1 / sqrt(500) = 4.5 % of the spread; four of those.
    variances = [float(values.var()) / values.size for values in (first, second)]
    for found, expected, variance in (
        (over_all_seeds(np.mean, first), first.mean(), variances[0]),
        (
            over_all_seeds(lambda one, other: one.mean() - other.mean(), first, second),
            first.mean() - second.mean(),
            sum(variances),
        ),
    ):
        assert found[1:].std() == pytest.approx(variance**0.5, rel=4 * 0.032)
        assert found[1:].mean() == pytest.approx(float(expected), abs=4 * 0.045 * variance**0.5)


def test_samples_are_resampled_apart_even_if_they_are_the_same():
    values = sample(np.random.default_rng(8).normal(size=10))
    assert np.all(
        over_all_seeds(lambda one, other: one.mean() - other.mean(), values, values)[1:50] != 0
    )


def test_what_a_seed_has_stays_together():
    rows = np.arange(12.0).reshape(4, 3)
    seen: set[tuple[float, ...]] = set()

    def look(values: np.ndarray) -> float:
        assert values.shape == (4, 3)
        seen.update(map(tuple, values.tolist()))
        return 0.0

    over_all_seeds(look, sample(rows, "word").transpose("word", "seed"))
    assert seen == set(map(tuple, rows.tolist()))


def test_one_seed_gives_the_same_number_always():
    found = over_all_seeds(np.median, sample([3.0]))
    assert np.all(found == 3)
    assert found.attrs["seeds"] == 1


def test_interval_of_resamples_has_its_share_of_them_inside():
    values = np.random.default_rng(9).permutation(np.arange(500.0))
    low, high = resampled_interval(values)
    assert (low, high) == tuple(np.percentile(values, [2.5, 97.5], method="nearest"))
    # Out of 500, 2.5 % a side are 12.5.
    assert (low, 499 - high) == (12, 12)


def test_interval_of_resamples_may_be_infinite_and_leaves_a_few_nan_out():
    values = np.arange(500.0)
    assert resampled_interval(np.append(values, [np.nan] * 12)) == resampled_interval(values)
    assert resampled_interval(np.where(values < 480, values, math.inf)) == (12, math.inf)
    assert resampled_interval(np.where(values < 490, values, math.inf)) == (12, 487)
    assert resampled_interval(np.where(values < 480, -math.inf, math.inf)) == (-math.inf, math.inf)
    assert resampled_interval(np.full(5, math.inf)) == (math.inf, math.inf)


@pytest.mark.parametrize("values", [[], [np.nan] * 3])
def test_no_resamples_have_no_interval(values: list[float]):
    assert np.all(np.isnan(resampled_interval(np.asarray(values))))


def test_nine_of_twenty_seeds_that_never_got_there_leave_the_median_open_above():
    times = sample([*np.arange(11.0), *[math.inf] * 9])
    found = over_all_seeds(np.median, times)
    low, high = resampled_interval(found.values[1:])
    assert found[0] == 9.5
    assert 2 < low < 9.5
    assert high == math.inf


# -- rank correlation ------------------------------------------------------------------------------


def spearman(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.asarray(stats.spearmanr(first, second))[0])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3)), min_size=3, max_size=20))
def test_rank_correlation_is_spearmans_with_ties(pairs: list[tuple[int, int]]):
    first, second = np.asarray(pairs, dtype=float).T
    assume(np.ptp(first) > 0)
    assume(np.ptp(second) > 0)
    got = rank_correlation(
        xr.DataArray(first, dims="step"), xr.DataArray(second, dims="step"), "step"
    )
    assert float(got) == pytest.approx(spearman(first, second), abs=1e-12)


def test_rank_correlation_runs_along_one_dim_and_broadcasts():
    random = np.random.default_rng(4)
    first, second = random.normal(size=(3, 2, 15)), random.normal(size=15)
    got = rank_correlation(
        xr.DataArray(first, dims=("seed", "word", "step")),
        xr.DataArray(second, dims="step"),
        "step",
    )
    assert set(got.dims) == {"seed", "word"}
    for seed in range(3):
        for word in range(2):
            assert float(got.isel(seed=seed, word=word)) == pytest.approx(
                spearman(first[seed, word], second)
            )


def test_rank_correlation_leaves_missing_numbers_out_in_pairs():
    """Spearman's correlation of the pairs that are whole, as SciPy's `nan_policy="omit"` has it."""
    first = np.asarray([1.0, 2.0, 3.0, 4.0, 5.0, np.nan])
    second = np.asarray([2.0, 1.0, np.nan, 4.0, 3.0, 9.0])
    whole = np.isfinite(first) & np.isfinite(second)
    got = rank_correlation(
        xr.DataArray(first, dims="step"), xr.DataArray(second, dims="step"), "step"
    )
    assert float(got) == pytest.approx(spearman(first[whole], second[whole]))


def test_rank_correlation_of_monotone_curves_is_one():
    step = xr.DataArray(np.arange(10.0), dims="step")
    assert float(rank_correlation(step, 2**step, "step")) == pytest.approx(1)
    assert float(rank_correlation(step, -(step**3), "step")) == pytest.approx(-1)


# -- exponents -------------------------------------------------------------------------------------


def along(values, dim: str = "scale") -> xr.DataArray:
    return xr.DataArray(np.asarray(values, float), dims=dim)


@settings(max_examples=60, deadline=None)
@given(exponent=st.floats(-4, 4), factor=st.floats(1e-6, 1e6), points=st.integers(2, 8))
def test_exponent_of_a_power_law_is_found_exactly(exponent: float, factor: float, points: int):
    x = along(np.geomspace(1e-3, 10, points))
    # Rounding of the logarithms, over a spread of at least four decades.
    assert float(log_slope(x, factor * x**exponent, "scale")) == pytest.approx(
        exponent, abs=1e-12 * (1 + abs(np.log(factor)))
    )


def test_exponent_is_that_of_least_squares():
    random = np.random.default_rng(5)
    x, y = random.uniform(0.1, 10, 20), random.uniform(0.1, 10, 20)
    expected = stats.linregress(np.log(x), np.log(y))
    assert float(log_slope(along(x), along(y), "scale")) == pytest.approx(
        np.asarray(expected)[0], rel=1e-10
    )


@pytest.mark.parametrize("missing", [np.nan, 0.0, -2.0])
def test_numbers_without_a_logarithm_are_left_out_of_the_exponent(missing: float):
    x = along([0.1, 1.0, 10.0, 100.0])
    y = 3 * x**2
    y[2] = missing
    assert float(log_slope(x, y, "scale")) == pytest.approx(2)
    broken = y.copy()
    broken[3] = 1.0
    assert float(log_slope(x, broken, "scale")) < 1


def test_members_without_enough_numbers_have_no_exponent():
    """A line needs two points: none, or one, gives NaN and no warning; other members are not
    touched.
    """
    x = along([0.1, 1.0, 10.0])
    y = xr.DataArray(
        [[1.0, 10.0, 100.0], [np.nan] * 3, [np.nan, 2.0, np.nan]], dims=("seed", "scale")
    )
    found = log_slope(x, y, "scale")
    assert found.dims == ("seed",)
    np.testing.assert_allclose(found, [1, np.nan, np.nan])


def test_exponents_run_along_one_dim():
    x = along([1.0, 2.0, 4.0])
    y = xr.DataArray(
        np.stack([x.values, x.values**2, x.values**-1])[None], dims=("seed", "part", "scale")
    )
    np.testing.assert_allclose(log_slope(x, y, "scale"), [[1, 2, -1]])


@pytest.mark.parametrize("size", [2, 5, 10, 30])
def test_the_interval_is_that_of_scipy(size):
    from scipy import stats

    values = np.random.default_rng(size).normal(size=size)
    theirs = stats.bootstrap(
        (values,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    np.testing.assert_allclose(bootstrap_interval(values), (theirs.low, theirs.high), rtol=1e-12)
