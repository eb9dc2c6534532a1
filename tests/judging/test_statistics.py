"""Intervals, rates, pooled numbers, rank correlations and exponents, against closed forms."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import xarray as xr
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from saccade.errors import ConfigError
from saccade.judging.bound import AtLeast, AtMost
from saccade.judging.statistics import (
    LEVEL,
    POOLED_RESAMPLES,
    AbstractStatistic,
    Deterministic,
    EverySeed,
    Finding,
    FisherTest,
    GeometricMean,
    McNemarTest,
    Mean,
    Pooled,
    Rate,
    RateDifference,
    exact_interval,
    log_slope,
    rank_correlation,
    resampled_interval,
    t_interval,
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


KINDS = (Mean, GeometricMean, EverySeed, Rate, RateDifference, FisherTest, McNemarTest)


@pytest.mark.parametrize("seeds", [0, -1, 2.0, "3", None])
@pytest.mark.parametrize("kind", KINDS)
def test_impossible_numbers_of_seeds_are_refused(kind, seeds):
    with pytest.raises(ConfigError, match=f"seeds: got {seeds!r}, allowed: a whole number"):
        kind(seeds)


def test_statistics_need_three_seeds_by_default():
    assert {kind().seeds for kind in KINDS} | {Pooled(function=np.mean).seeds} == {3}


@pytest.mark.parametrize(
    ("statistic", "interval", "verdict", "bound"),
    [
        (Mean(), t_interval(np.asarray([0.0, 1.0, 1.0])), "undetermined", "<= 1"),
        (Rate(), exact_interval(2, 3), "holds", "<= 1"),
        (Rate(by_value=True), exact_interval(2, 3), "holds", "<= 1, by count"),
        (EverySeed(), t_interval(np.asarray([0.0, 1.0, 1.0])), "holds", "<= 1, every seed"),
    ],
    ids=["mean", "rate", "rate by count", "every seed"],
)
def test_a_number_per_seed_has_its_mean_and_interval(statistic, interval, verdict, bound):
    """The seed that diverged and the one without a number are left out of the mean and counted."""
    values = sample([0.0, 1.0, 1.0, np.nan, 7.0])
    finding = found(statistic, values[:3])
    assert (finding.quantity, finding.bound, finding.verdict) == ("number", bound, verdict)
    assert (finding.value, finding.seeds) == (pytest.approx(2 / 3), 3)
    assert (finding.low, finding.high) == interval
    lost = found(statistic, values, lost=sample([0, 0, 0, 0, 1]).astype(bool))
    assert lost.verdict == ("fails" if isinstance(statistic, EverySeed) else "undetermined")
    assert (lost.value, lost.low, lost.high) == (finding.value, finding.low, finding.high)
    assert lost.reason == "1 of 5 seeds diverged; 1 of 5 seeds have no number"


@pytest.mark.parametrize(
    ("bound", "by_interval", "by_count"),
    [
        (AtLeast(0.7), "holds", "holds"),  # the interval of 19 of 20 is 0.751 to 0.999
        (AtLeast(0.95), "undetermined", "holds"),
        (AtLeast(0.96), "undetermined", "fails"),
        (AtMost(0.7), "fails", "fails"),
    ],
)
def test_a_rate_is_judged_by_its_interval_or_by_count(bound, by_interval, by_count):
    outcome = outcomes(19, 20)
    for statistic, verdict in ((Rate(), by_interval), (Rate(by_value=True), by_count)):
        assert statistic.find("q", bound, [outcome], xr.DataArray(False)).verdict == verdict


# -- t intervals -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(numbers=NUMBERS)
def test_the_interval_is_that_of_scipy(numbers: list[float]):
    values = np.asarray(numbers)
    assume(np.ptp(values) > max(1e-9 * np.abs(values).max(), 1e-100))
    theirs = stats.t.interval(LEVEL, values.size - 1, values.mean(), stats.sem(values))
    slack = 1e-12 * np.abs(values).max()
    np.testing.assert_allclose(t_interval(values), theirs, rtol=1e-9, atol=slack)


@pytest.mark.parametrize("size", [5, 10, 32])
@pytest.mark.parametrize(
    ("statistic", "law", "truth"),
    [(Mean(), "normal", 0.0), (GeometricMean(), "lognormal", 1.0)],
    ids=["mean, normal", "geometric mean, lognormal"],
)
def test_intervals_cover_the_truth_at_their_nominal_rate(statistic, law, truth, size):
    """These laws are those of the t interval, so the coverage is 95 % at every size. 5,000 trials
    have a standard error of sqrt(0.95 0.05 / 5000) = 0.31 %; four of those.
    """
    trials = getattr(np.random.default_rng(size), law)(size=(5000, size))
    inside = [low <= truth <= high for low, high in map(statistic.interval, trials)]
    assert abs(np.mean(inside) - LEVEL) < 4 * 0.0031


@pytest.mark.parametrize(("size", "covered"), [(5, 0.82), (32, 0.884)])
def test_a_mean_of_skewed_numbers_covers_too_little(size: int, covered: float):
    """Why there is a geometric mean. The numbers are those of 20,000 trials (docs/claims.md); these
    2,000 have a standard error of 0.9 % at most, and four of those are allowed.
    """
    trials = np.random.default_rng(size).lognormal(size=(2000, size))
    inside = [low <= math.exp(0.5) <= high for low, high in map(Mean().interval, trials)]
    assert abs(np.mean(inside) - covered) < 4 * 0.009


@pytest.mark.parametrize("numbers", [[], [3.0]])
def test_fewer_than_two_numbers_have_no_interval(numbers: list[float]):
    assert np.all(np.isnan(t_interval(np.asarray(numbers))))


def test_equal_numbers_have_an_interval_of_width_zero():
    assert t_interval(np.full(4, 0.1)) == (0.1, 0.1)


def test_infinite_number_makes_the_interval_the_range():
    assert t_interval(np.asarray([1.0, 2.0, math.inf])) == (1.0, math.inf)
    assert t_interval(np.asarray([1.0, 2.0, -math.inf])) == (-math.inf, 2.0)


def test_infinite_numbers_have_an_interval_of_width_zero():
    assert t_interval(np.full(3, math.inf)) == (math.inf, math.inf)


# -- geometric means -------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(numbers=st.lists(st.floats(1e-6, 1e6), min_size=3, max_size=12))
def test_a_geometric_mean_is_the_mean_of_the_logarithms(numbers: list[float]):
    finding, logs = found(GeometricMean(), sample(numbers)), found(Mean(), sample(np.log(numbers)))
    theirs = [logs.value, logs.low, logs.high]
    with np.errstate(over="ignore"):
        np.testing.assert_allclose([finding.value, finding.low, finding.high], np.exp(theirs))
    assert finding.value == pytest.approx(stats.gmean(numbers), rel=1e-9)
    assert finding.bound == "<= 1, geometric mean"


def test_a_geometric_mean_does_not_depend_on_the_unit():
    values = np.random.default_rng(3).lognormal(size=8)
    one, other = (found(GeometricMean(), sample(scale * values)) for scale in (1.0, 1000.0))
    small = np.asarray([one.value, one.low, one.high])
    np.testing.assert_allclose(1000 * small, [other.value, other.low, other.high])


@pytest.mark.parametrize("number", [0.0, -2.0])
def test_a_number_without_a_logarithm_leaves_it_undetermined(number: float):
    finding = found(GeometricMean(), sample([0.1, 0.2, number]))
    assert finding.verdict == "undetermined"
    assert finding.reason == f"the number {number:g} has no logarithm"
    assert np.all(np.isnan([finding.value, finding.low, finding.high]))


def test_an_infinite_time_makes_the_geometric_mean_infinite():
    finding = found(GeometricMean(), sample([0.1, 0.2, math.inf]))
    assert (finding.value, finding.high, finding.verdict) == (math.inf, math.inf, "undetermined")
    assert finding.low == pytest.approx(0.1)
    assert found(GeometricMean(), sample([2.0, 3.0, math.inf])).verdict == "fails"


def test_few_very_different_numbers_have_an_endless_interval():
    """The logarithms span 500; t for two numbers is 12.7, and exp(12.7 x 250) has no float."""
    finding = found(GeometricMean(2), sample([1.0, math.exp(500)]))
    assert (finding.low, finding.high) == (0.0, math.inf)
    assert finding.verdict == "undetermined"


# -- numbers that no seed enters -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "verdict", "reason"),
    [
        (0.5, "holds", ""),
        (1.5, "fails", ""),
        (math.inf, "fails", ""),
        (np.nan, "fails", "no number"),
    ],
)
@pytest.mark.parametrize("seeds", [None, 1, 4])
def test_a_number_that_no_seed_enters_is_compared_itself(value, verdict, reason, seeds):
    values = xr.DataArray(value) if seeds is None else sample([value] * seeds)
    finding = found(Deterministic(), values)
    assert (finding.verdict, finding.reason) == (verdict, reason)
    np.testing.assert_equal(finding.value, value)
    assert (finding.seeds, finding.bound) == (0, "<= 1, no seed enters")
    assert np.all(np.isnan([finding.low, finding.high]))
    lost = found(Deterministic(), values, lost=xr.DataArray(True))
    assert (lost.verdict, lost.reason) == ("fails", "diverged")


@pytest.mark.parametrize("values", [[0.5, 0.50001], [0.5, np.nan], [1e-9, 2e-9], [0.5, math.inf]])
def test_seeds_that_differ_enter_a_number(values: list[float]):
    with pytest.raises(ConfigError, match="'number': got numbers that differ between seeds"):
        found(Deterministic(), sample(values))


def test_seeds_may_differ_by_rounding_if_all_keep_the_bound():
    """Members of a parallel program are not rounded alike."""
    assert found(Deterministic(), sample([0.5, 0.5 + 4e-10])).verdict == "holds"
    assert found(Deterministic(), sample([1.0, 1.0 + 4e-10])).verdict == "fails"


# -- seeds without a number ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statistic", "verdict"),
    [
        (Mean(), "undetermined"),
        (GeometricMean(), "undetermined"),
        (Rate(), "undetermined"),
        (Rate(by_value=True), "undetermined"),
        (EverySeed(), "fails"),
        (Pooled(function=np.mean), "undetermined"),
        (Pooled(function=np.mean, by_value=True), "undetermined"),
    ],
)
def test_seeds_without_a_number_count_unless_a_reason_is_given(statistic, verdict):
    values = sample([0.5, 0.6, 0.4, np.nan])
    finding = found(statistic, values)
    assert finding.verdict == verdict
    assert finding.reason.endswith("seeds have no number")
    why = "the premise is a score above 1"
    left_out = statistic.find("number", AtMost(1.0), [values], xr.DataArray(False), why)
    assert left_out.verdict == "holds"
    assert left_out.reason.endswith(f"seeds have no number, left out: {why}")
    assert left_out.seeds == finding.seeds == 3
    assert left_out.value == finding.value


def test_a_reason_does_not_excuse_seeds_that_diverged():
    lost = sample([0, 0, 0, 1]).astype(bool)
    for statistic, verdict in ((Mean(), "undetermined"), (EverySeed(), "fails")):
        finding = statistic.find("q", AtMost(1.0), [sample([0.1] * 4)], lost, "the premise")
        assert finding.verdict == verdict


@pytest.mark.parametrize(
    ("values", "lost", "left_out", "kept", "judged"),
    [
        ([0.1, 0.2, 0.3], [0, 0, 0], "", 3, 3),
        ([0.1, 0.2, 1.3], [0, 0, 0], "", 2, 3),
        ([0.1, 0.2, np.nan], [0, 0, 0], "", 2, 3),
        ([0.1, 0.2, np.nan], [0, 0, 0], "no such word", 2, 2),
        ([0.1, 0.2, 0.3], [0, 1, 0], "", 2, 3),
        ([0.1, np.nan, np.nan], [0, 1, 0], "no such word", 1, 2),
    ],
)
def test_every_seed_counts_those_that_keep_the_bound(values, lost, left_out, kept, judged):
    """Seeds that diverged, or have no number, do not keep it."""
    diverged = sample(lost).astype(bool)
    finding = EverySeed().find("q", AtMost(1.0), [sample(values)], diverged, left_out)
    assert (finding.kept, finding.judged) == (kept, judged)
    other = Mean().find("q", AtMost(1.0), [sample(values)], diverged, left_out)
    assert (other.kept, other.judged) == (None, None)


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


def pairs(both: int, only_first: int, only_second: int, neither: int) -> list[xr.DataArray]:
    """Outcomes of seeds that two arms share."""
    counts = (both, only_first, only_second, neither)
    return [sample(np.repeat(column, counts)) for column in ([1, 1, 0, 0], [1, 0, 1, 0])]


@pytest.mark.parametrize(
    ("table", "low", "high"),
    [
        # From the tests of the R package contingencytables (Fagerland, Lydersen and Laake); without
        # the adjustment of the correlation it is -0.1174 to -0.0059.
        ((59, 6, 16, 80), -0.1186, -0.0046),
        # By hand: all seeds alike, so the interval is that of two samples without correlation.
        ((10, 0, 0, 0), -0.2775, 0.2775),
    ],
)
def test_a_difference_of_paired_rates_has_newcombes_interval(table, low, high):
    finding = found(RateDifference(paired=True), *pairs(*table))
    assert finding.value == pytest.approx((table[1] - table[2]) / sum(table))
    assert (finding.low, finding.high) == pytest.approx((low, high), abs=5e-5)


def test_pairs_that_agree_narrow_the_interval_and_pairs_that_differ_widen_it():
    alike, opposed = pairs(10, 0, 0, 10), pairs(0, 10, 10, 0)
    widths = []
    for samples in (alike, opposed):
        for paired in (True, False):
            finding = found(RateDifference(paired=paired), *samples)
            assert finding.value == 0
            widths.append(finding.high - finding.low)
    assert widths[0] < widths[1] / 2
    assert widths[1] == widths[3] < widths[2]


def test_the_interval_of_paired_rates_covers_enough():
    """Of 60 % and 40 % with a correlation of 0.5, and 20 pairs. The interval is an approximation:
    2 % beside 95 % are allowed, and three standard errors of 1,500 trials.
    """
    first, second, size = 0.6, 0.4, 20
    together = first * second + 0.5 * math.sqrt(first * (1 - first) * second * (1 - second))
    chances = [together, first - together, second - together, 1 - first - second + together]
    counts = np.random.default_rng(0).multinomial(size, chances, 1500)
    tables, repeats = np.unique(counts, axis=0, return_counts=True)
    statistic = RateDifference(paired=True)
    inside = [
        low <= first - second <= high
        for _, low, high in (statistic.summary(pairs(*table)) for table in tables)
    ]
    assert abs(np.average(inside, weights=repeats) - LEVEL) < 0.02 + 3 * 0.0056


@pytest.mark.parametrize(
    ("table", "chance"),
    [
        # 2 sum_{k <= 1} C(8, k) / 2^8 = 2 (1 + 8) / 256
        ((3, 1, 7, 12), 18 / 256),
        # 2 (1/2)^6, whatever the seeds do that agree
        ((0, 6, 0, 2), 2 / 64),
        ((50, 0, 6, 9), 2 / 64),
        ((4, 5, 5, 4), 1.0),
        ((4, 0, 0, 4), 1.0),
    ],
)
def test_mcnemars_test_is_a_binomial_test_of_the_seeds_that_differ(table, chance):
    finding = found(McNemarTest(), *pairs(*table))
    assert finding.value == pytest.approx(chance, rel=1e-12)
    assert np.all(np.isnan([finding.low, finding.high]))
    assert finding.verdict == "holds", "the chance itself is compared"
    assert finding.seeds == sum(table)


PAIRED = (McNemarTest(), RateDifference(paired=True), Pooled(paired=True, function=np.mean))


@pytest.mark.parametrize("statistic", PAIRED[:2], ids=["McNemar", "difference"])
def test_a_pair_without_one_of_its_numbers_has_none(statistic):
    first, second = pairs(3, 4, 1, 2)
    whole = found(statistic, first, second)
    first, second = (xr.concat([one, sample([1, 0])], "seed") for one in (first, second))
    first[10], second[11] = np.nan, np.nan
    missing = found(statistic, first, second)
    assert missing.reason == "2 seeds have no number"
    assert missing.verdict == "undetermined"
    assert (missing.seeds, missing.value, missing.low) == pytest.approx(
        (10, whole.value, whole.low), nan_ok=True
    )


@pytest.mark.parametrize("statistic", PAIRED, ids=["McNemar", "difference", "pooled"])
def test_pairs_of_different_seeds_are_refused(statistic):
    first, second = pairs(3, 4, 1, 2)
    with pytest.raises(ConfigError, match="'number': got pairs of other seeds"):
        found(statistic, first, second[:-1])
    first = first.assign_coords(seed=np.arange(10))
    with pytest.raises(ConfigError, match="'number': got pairs of other seeds"):
        found(statistic, first, second.assign_coords(seed=np.arange(10)[::-1]))


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


def test_paired_samples_are_resampled_together():
    values = sample(np.random.default_rng(8).normal(size=10))
    paired = Pooled(paired=True, function=difference)
    finding = found(paired, values, values + 0.5)
    assert (finding.value, finding.low, finding.high) == pytest.approx((-0.5, -0.5, -0.5))
    apart = found(Pooled(function=difference), values, values + 0.5)
    assert apart.low < -0.6 < -0.4 < apart.high


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
