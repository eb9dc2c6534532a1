"""Intervals, rates, pooled numbers, rank correlations and exponents, against closed forms."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from saccade.core.bound import AtMost
from saccade.core.errors import ConfigError
from saccade.core.statistics import (
    LEVEL,
    POOLED_RESAMPLES,
    RESAMPLES,
    AbstractStatistic,
    EverySeed,
    Finding,
    FisherTest,
    Mean,
    Pooled,
    Rate,
    RateDifference,
    bootstrap_interval,
    exact_interval,
    log_slope,
    rank_correlation,
    resampled_interval,
)

NUMBERS = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12)


def found(
    statistic: AbstractStatistic, *samples: xr.DataArray, lost: xr.DataArray | None = None
) -> Finding:
    """The finding for a bound of 1."""
    return statistic.find(
        "number", AtMost(1.0), samples, xr.DataArray(False) if lost is None else lost
    )


def sample(values, *dims: str) -> xr.DataArray:
    return xr.DataArray(np.asarray(values, float), dims=("seed", *dims))


# -- one number per seed ---------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [0, -1, 2.0, "3", None])
@pytest.mark.parametrize("kind", [Mean, EverySeed, Rate, RateDifference, FisherTest])
def test_impossible_numbers_of_seeds_are_refused(kind, seeds):
    with pytest.raises(ConfigError, match=f"seeds: got {seeds!r}, allowed: a whole number"):
        kind(seeds)


def test_statistics_need_three_seeds_by_default():
    kinds = (Mean(), EverySeed(), Rate(), RateDifference(), FisherTest())
    assert {kind.seeds for kind in (*kinds, Pooled(function=np.mean))} == {3}


@pytest.mark.parametrize(
    ("statistic", "interval", "verdict", "bound"),
    [
        (Mean(), bootstrap_interval(np.asarray([0.0, 1.0, 1.0])), "holds", "<= 1"),
        (Rate(), exact_interval(2, 3), "holds", "<= 1"),
        (EverySeed(), bootstrap_interval(np.asarray([0.0, 1.0, 1.0])), "holds", "<= 1, every seed"),
    ],
    ids=["mean", "rate", "every seed"],
)
def test_a_number_per_seed_has_its_mean_and_interval(statistic, interval, verdict, bound):
    """The seed that diverged and the one without a number are left out of the mean and counted."""
    values = sample([0.0, 1.0, 1.0, np.nan, 7.0])
    finding = found(statistic, values[:4])
    assert (finding.quantity, finding.bound, finding.verdict) == ("number", bound, verdict)
    assert (finding.value, finding.seeds) == (pytest.approx(2 / 3), 3)
    assert (finding.low, finding.high) == interval
    assert finding.reason == "1 of 4 seeds do not meet the premise"
    lost = found(statistic, values, lost=sample([0, 0, 0, 0, 1]).astype(bool))
    assert lost.verdict == ("fails" if isinstance(statistic, EverySeed) else "undetermined")
    assert (lost.value, lost.low, lost.high) == (finding.value, finding.low, finding.high)
    assert lost.reason == "1 of 5 seeds diverged; 1 of 5 seeds do not meet the premise"


# -- bootstrap intervals ---------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(numbers=NUMBERS)
def test_interval_is_deterministic_and_lies_within_the_range(numbers: list[float]):
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


def test_interval_covers_the_true_mean_at_its_nominal_rate():
    random = np.random.default_rng(1)
    inside = [
        low <= 0 <= high
        for low, high in (bootstrap_interval(random.normal(size=30)) for _ in range(200))
    ]
    # The percentile bootstrap is too narrow by about sqrt(29/30), so it covers 93.5 % here; 200
    # trials have a standard error of 1.7 %, and four of those are allowed.
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


def test_equal_numbers_have_an_interval_of_width_zero():
    assert bootstrap_interval(np.full(4, 0.1)) == (0.1, 0.1)


def test_infinite_number_makes_the_interval_the_range():
    assert bootstrap_interval(np.asarray([1.0, 2.0, math.inf])) == (1.0, math.inf)
    assert bootstrap_interval(np.asarray([1.0, 2.0, -math.inf])) == (-math.inf, 2.0)


def test_infinite_numbers_have_an_interval_of_width_zero():
    assert bootstrap_interval(np.full(3, math.inf)) == (math.inf, math.inf)


@pytest.mark.parametrize("size", [2, 5, 10, 30])
def test_the_interval_is_that_of_scipy(size):
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


# -- rates -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(trials=st.integers(1, 60), share=st.floats(0, 1))
def test_exact_interval_is_clopper_and_pearsons(trials: int, share: float):
    """Quantiles of beta laws, with 0 and 1 at the ends."""
    successes = round(share * trials)
    low, high = exact_interval(successes, trials)
    tail = (1 - LEVEL) / 2
    failures = trials - successes
    least = stats.beta.ppf(tail, successes, failures + 1) if successes else 0
    most = stats.beta.ppf(1 - tail, successes + 1, failures) if failures else 1
    assert (low, high) == pytest.approx((least, most), abs=1e-9)
    assert low <= successes / trials <= high


def test_exact_interval_covers_every_rate_at_least_at_its_nominal_level():
    """Exactly, by the binomial probabilities of all counts."""
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


def fisher(first: xr.DataArray, second: xr.DataArray) -> Finding:
    return found(FisherTest(1), first, second)


def chances(successes: int, first: int, second: int) -> np.ndarray:
    """Chance of every count in the first sample, given the number of successes in both."""
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
def test_fishers_test_adds_the_chances_of_all_tables_that_are_as_unlikely(
    first: int, second: int, shares: tuple[float, float]
):
    one, other = round(shares[0] * first), round(shares[1] * second)
    ours = fisher(outcomes(one, first), outcomes(other, second)).value
    chance = chances(one + other, first, second)
    assert ours == pytest.approx(chance[chance <= chance[one] * (1 + 1e-7)].sum(), rel=1e-6)
    theirs = np.asarray(stats.fisher_exact([[one, first - one], [other, second - other]]))[1]
    assert ours == pytest.approx(theirs, rel=1e-12)
    reverse = fisher(outcomes(other, second), outcomes(one, first)).value
    assert reverse == pytest.approx(ours, rel=1e-9)


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
    finding = found(RateDifference(), outcomes(one, first), outcomes(other, second))
    assert finding.value == pytest.approx(one / first - other / second)
    assert (finding.low, finding.high) == pytest.approx((low, high), abs=1e-4)
    assert finding.seeds == min(first, second)


def test_a_few_resamples_without_a_number_are_left_out_but_not_many():
    """With many it is unknown on which side of the bound they are."""
    numbers = np.linspace(0, 1, 1000)
    few, many = numbers.copy(), numbers.copy()
    few[:20], many[:100] = np.nan, np.nan
    assert resampled_interval(few) == pytest.approx((0.0445, 0.9755), abs=1e-3)
    assert np.all(np.isnan(resampled_interval(many)))
    assert np.all(np.isnan(resampled_interval(np.array([]))))


def test_fishers_test_of_the_lady_tasting_tea():
    """Three of four cups of each kind identified: (16 + 1) / 70 on either side."""
    finding = fisher(outcomes(3, 4), outcomes(1, 4))
    assert finding.value == pytest.approx(34 / 70)
    assert math.isnan(finding.low)
    assert math.isnan(finding.high)
    assert finding.verdict == "holds", "the chance itself is compared"


@pytest.mark.parametrize("successes", [0, 20])
@pytest.mark.parametrize("trials", [1, 20])
def test_fishers_test_finds_no_difference_if_all_succeed_or_all_fail(successes: int, trials: int):
    finding = fisher(outcomes(min(successes, trials), trials), outcomes(successes, 20))
    assert (finding.value, finding.seeds) == (1, trials)


def test_fishers_test_leaves_out_seeds_without_an_outcome():
    missing = xr.DataArray([np.nan] * 3, dims="seed")
    finding = fisher(*(xr.concat([outcomes(count, 4), missing], "seed") for count in (3, 1)))
    assert (finding.value, finding.seeds) == (pytest.approx(34 / 70), 4)


# -- numbers of all seeds together -----------------------------------------------------------------


def pooled(function: Callable[..., float], *samples: xr.DataArray) -> tuple[Finding, np.ndarray]:
    """The finding, and the number of every resample and of the samples themselves."""
    numbers: list[float] = []

    def kept(*arrays: np.ndarray) -> float:
        numbers.append(function(*arrays))
        return numbers[-1]

    return found(Pooled(1, function=kept), *samples), np.asarray(numbers)


def test_a_pooled_number_is_that_of_the_sample_and_its_resamples_are_deterministic():
    values = sample(np.random.default_rng(6).normal(size=9))
    finding, numbers = pooled(np.median, values)
    assert len(numbers) == 1 + POOLED_RESAMPLES
    assert len(np.unique(numbers)) > 3
    assert finding.value == np.median(values)
    assert finding.seeds == 9
    again, same = pooled(np.median, values.copy())
    assert again == finding
    np.testing.assert_array_equal(same, numbers)
    assert finding.low in numbers
    assert finding.high in numbers
    outside = np.mean((numbers < finding.low) | (numbers > finding.high))
    assert outside <= 1 - LEVEL


def difference(one: np.ndarray, other: np.ndarray) -> float:
    return one.mean() - other.mean()


def test_resamples_spread_like_the_mean():
    random = np.random.default_rng(7)
    first, second = sample(random.normal(0, 2, 30)), sample(random.normal(5, 1, 12))
    # The spread of 500 draws has a relative standard error of 1 / sqrt(2 x 500) = 3.2 %; four of
    # those. Their mean has one of 1 / sqrt(500) = 4.5 % of the spread; four of those.
    variances = [float(values.var()) / values.size for values in (first, second)]
    for (finding, numbers), expected, variance in (
        (pooled(np.mean, first), first.mean(), variances[0]),
        (pooled(difference, first, second), first.mean() - second.mean(), sum(variances)),
    ):
        assert finding.value == pytest.approx(float(expected))
        assert numbers.std() == pytest.approx(variance**0.5, rel=4 * 0.032)
        assert numbers.mean() == pytest.approx(float(expected), abs=4 * 0.045 * variance**0.5)


def test_samples_are_resampled_independently_even_if_they_are_the_same():
    values = sample(np.random.default_rng(8).normal(size=10))
    _, numbers = pooled(difference, values, values)
    assert np.sum(numbers != 0) == POOLED_RESAMPLES


def test_the_values_of_a_seed_stay_together():
    rows = np.arange(12.0).reshape(4, 3)
    seen: set[tuple[float, ...]] = set()

    def look(values: np.ndarray) -> float:
        assert values.shape == (4, 3)
        seen.update(map(tuple, values.tolist()))
        return 0.0

    pooled(look, sample(rows, "word").transpose("word", "seed"))
    assert seen == set(map(tuple, rows.tolist()))


def test_one_seed_has_one_resample():
    finding, numbers = pooled(np.median, sample([3.0]))
    assert np.all(numbers == 3)
    assert (finding.value, finding.low, finding.high, finding.seeds) == (3, 3, 3, 1)


def test_interval_of_resamples_contains_its_share_of_them():
    values = np.random.default_rng(9).permutation(np.arange(500.0))
    low, high = resampled_interval(values)
    assert (low, high) == tuple(np.percentile(values, [2.5, 97.5], method="nearest"))
    # Of 500, 2.5 % per side are 12.5.
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


def test_with_nine_of_twenty_infinite_times_the_interval_of_the_median_is_open_above():
    finding, _ = pooled(np.median, sample([*np.arange(11.0), *[math.inf] * 9]))
    assert finding.value == 9.5
    assert 2 < finding.low < 9.5
    assert finding.high == math.inf


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
    """Spearman's correlation of the complete pairs, as SciPy's `nan_policy="omit"` gives it."""
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
def test_numbers_without_a_logarithm_are_left_out(missing: float):
    x = along([0.1, 1.0, 10.0, 100.0])
    y = 3 * x**2
    y[2] = missing
    assert float(log_slope(x, y, "scale")) == pytest.approx(2)
    broken = y.copy()
    broken[3] = 1.0
    assert float(log_slope(x, broken, "scale")) < 1


def test_members_without_enough_numbers_have_no_exponent():
    """A line needs two points: fewer give NaN without a warning; other members do not change."""
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


@pytest.mark.parametrize(("counted", "seeds"), [(None, 4), (0, 20), (1, 4)])
def test_a_pooled_number_counts_the_smallest_sample_unless_told(counted: int | None, seeds: int):
    samples = [xr.DataArray(np.arange(float(size)), dims="seed") for size in (20, 4)]
    statistic = Pooled(5, function=lambda *arrays: float(arrays[0].mean()), counted=counted)
    finding = statistic.find("q", AtMost(100.0), samples, xr.DataArray(False))
    assert finding.seeds == seeds
    assert finding.verdict == ("holds" if seeds >= 5 else "undetermined")
