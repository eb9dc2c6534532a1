"""Verdicts on synthetic records: every rule that `saccade.judging.claim` states, and its bounds."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import ConfigError
from saccade.judging.bound import Above, AbstractBound, AtLeast, AtMost, Below, Within
from saccade.judging.claim import (
    Check,
    Claim,
    ClaimArms,
    Judgement,
    PremiseNotMetError,
    _cell,
    _find,
    _finder,
)
from saccade.judging.statistics import (
    AbstractStatistic,
    Deterministic,
    EverySeed,
    FisherTest,
    GeometricMean,
    McNemarTest,
    Mean,
    Pooled,
    Rate,
    RateDifference,
    t_interval,
)
from saccade.records.record import Arm, MissingArmError, Record

each_rule = pytest.mark.parametrize("statistic", [Mean(), EverySeed()], ids=["mean", "every seed"])


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the imagined study."""

    length: int = 8


def record_of(
    values: np.ndarray | Sequence[float],
    diverged: Sequence[int] = (),
    sweeps: dict[str, list[float]] | None = None,
    **more: Arm,
) -> Record:
    """A record whose arm `main` has one `error` per (sweeps and) seed; `diverged` lists seeds."""
    sweeps = sweeps or {}
    array = np.asarray(values, dtype=float)
    dims = (*sweeps, "seed")
    diverged_at = np.full(array.shape, -1)
    diverged_at[..., list(diverged)] = 40
    trajectory = xr.Dataset(
        {
            "error": ((*dims, "step"), np.stack([array + 9, array], axis=-1)),
            "diverged_at": (dims, diverged_at),
        },
        coords={"seed": np.arange(array.shape[-1]), "step": [0, 10], **sweeps},
    )
    arms = {"main": Arm(trajectory), **more}
    return Record("example", "quick", {"sweeps": sweeps}, arms, {}, "CPU, 2 cores", "float32", 1.0)


def end_error(arms: Mapping[str, Arm], config: Any) -> xr.DataArray:
    return arms["main"].end["error"]


ONE = AtMost(1.0)


def check(bound: AbstractBound = ONE, statistic: Any = None, **options) -> Check:
    given = {"quantity": "error", "measure": end_error, "arms": "main"} | options
    return Check(bound=bound, statistic=statistic, **given)  # pyright: ignore[reportArgumentType]


def claim(*checks: Check, **options) -> Claim:
    return Claim(
        "A-1", "The error is small", "Lu 2021, figure 1", checks, "the paper's figure", **options
    )


def judge(record: Record, *checks: Check, **options) -> Judgement:
    return claim(*checks, **options).judge(record, Config())


# -- bounds ----------------------------------------------------------------------------------------

INTERVALS = {
    "below": (0.0, 0.5),
    "touches the lower limit": (0.0, 1.0),
    "crosses the lower limit": (0.5, 1.5),
    "inside": (1.2, 1.8),
    "equal": (1.0, 2.0),
    "crosses the upper limit": (1.5, 2.5),
    "touches the upper limit": (2.0, 3.0),
    "above": (2.5, 3.0),
    "covers": (0.0, 3.0),
    "covers from the lower limit": (1.0, 3.0),
    "point inside": (1.5, 1.5),
    "point at the lower limit": (1.0, 1.0),
    "point at the upper limit": (2.0, 2.0),
    "half infinite": (1.5, math.inf),
    "infinite": (-math.inf, math.inf),
    "beyond": (math.inf, math.inf),
}
EDGES = {  # closed, open
    "touches the lower limit": ("undetermined", "fails"),
    "touches the upper limit": ("undetermined", "fails"),
    "equal": ("holds", "undetermined"),
    "point at the lower limit": ("holds", "fails"),
    "point at the upper limit": ("holds", "fails"),
}
INSIDE, OUTSIDE = ("inside", "point inside"), ("below", "above", "beyond")


@pytest.mark.parametrize("place", INTERVALS)
@pytest.mark.parametrize("open", [False, True], ids=["closed", "open"])
def test_within_at_every_position_of_an_interval(place: str, open: bool):
    """An interval that covers the allowed range breaks it at both edges, and does not fail."""
    clear = "holds" if place in INSIDE else "fails" if place in OUTSIDE else "undetermined"
    expected = EDGES.get(place, (clear, clear))[open]
    assert Within(1.0, 2.0, open=open).verdict(*INTERVALS[place]) == expected


@pytest.mark.parametrize(
    ("bound", "verdicts"),
    [  # of (0, 0.5), (0, 1), (0.5, 1.5), (1, 2), (1.5, 2) and (1, 1)
        (AtMost(1.0), "holds holds undetermined undetermined fails holds"),
        (Below(1.0), "holds undetermined undetermined fails fails fails"),
        (AtLeast(1.0), "fails undetermined undetermined holds holds holds"),
        (Above(1.0), "fails fails undetermined undetermined holds fails"),
    ],
    ids=str,
)
def test_one_sided_bounds_at_every_position_of_an_interval(bound: AbstractBound, verdicts: str):
    intervals = ((0.0, 0.5), (0.0, 1.0), (0.5, 1.5), (1.0, 2.0), (1.5, 2.0), (1.0, 1.0))
    assert [bound.verdict(*interval) for interval in intervals] == verdicts.split()


NUMBERS = st.integers(-4, 4).map(float)


@given(limits=st.tuples(NUMBERS, NUMBERS), edges=st.tuples(NUMBERS, NUMBERS), open=st.booleans())
def test_within_is_a_lower_and_an_upper_bound_together(limits, edges, open: bool):
    (least, most), (low, high) = sorted(limits), sorted(edges)
    lower, upper = (Above, Below) if open else (AtLeast, AtMost)
    both = {lower(least).verdict(low, high), upper(most).verdict(low, high)}
    expected = "fails" if "fails" in both else "holds" if both == {"holds"} else "undetermined"
    assert Within(least, most, open=open).verdict(low, high) == expected


@pytest.mark.parametrize(
    "bound", [AtMost(1.0), Below(1.0), AtLeast(1.0), Above(1.0), Within(0.0, 2.0)], ids=str
)
def test_nan_keeps_no_bound(bound: AbstractBound):
    assert not bound.keeps(math.nan)
    assert not np.any(bound.keeps(np.asarray([math.nan])))


@pytest.mark.parametrize(
    ("bound", "text", "kept"),
    [
        (AtMost(1.0), "<= 1", [True, True, False]),
        (Below(1.0), "< 1", [True, False, False]),
        (AtLeast(1.0), ">= 1", [False, True, True]),
        (Above(1.0), "> 1", [False, False, True]),
        (Within(1.0, 2.0), "within [1, 2]", [False, True, True]),
        (Within(1.0, 2.0, open=True), "within (1, 2)", [False, False, False]),
        (AtMost(1e-6), "<= 1e-06", [False, False, False]),
    ],
    ids=str,
)
def test_bounds_compare_arrays_and_print_their_limits(bound, text: str, kept: list[bool]):
    assert bound.keeps(np.asarray([0.5, 1.0, 2.0])).tolist() == kept
    assert str(bound) == text


# -- every seed ------------------------------------------------------------------------------------


def test_every_seed_holds_if_all_keep_the_bound():
    judgement = judge(record_of([0.1, 0.2, 1.0]), check(statistic=EverySeed()))
    assert judgement.verdict == "holds"
    assert judgement.findings[0].bound == "<= 1, every seed"
    assert judgement.findings[0].seeds == 3


def test_every_seed_fails_if_one_breaks_the_bound():
    judgement = judge(record_of([0.1, 0.2, 1.1, 0.0]), check(statistic=EverySeed()))
    assert judgement.verdict == "fails"
    assert "1 of 4 seeds break the bound" in judgement.reason


def test_every_seed_fails_if_one_diverged_even_if_the_rest_keep_the_bound():
    judgement = judge(record_of([0.1, 0.2, 0.3, 0.1], diverged=[2]), check(statistic=EverySeed()))
    assert judgement.verdict == "fails"
    assert "1 of 4 seeds diverged" in judgement.reason
    assert judgement.findings[0].seeds == 3


def test_every_seed_must_lie_within_both_limits():
    values = [0.1, 0.2, 0.3]
    for bound, verdict in (
        (Within(0.1, 0.3), "holds"),
        (Within(0.15, 0.3), "fails"),
        (Within(0.1, 0.3, open=True), "fails"),
    ):
        assert judge(record_of(values), check(bound, EverySeed())).verdict == verdict


# -- mean ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bound", "values", "verdict"),
    [
        (AtMost(1.0), [0.1, 0.2, 0.3, 0.2], "holds"),
        (AtMost(1.0), [0.1, 0.2, 0.3, 3.0], "undetermined"),
        (AtMost(1.0), [1.1, 1.2, 1.3, 1.2], "fails"),
        (AtLeast(1.0), [1.1, 1.2, 1.3, 1.2], "holds"),
        (AtLeast(1.0), [1.1, 1.2, 1.3, 0.1], "undetermined"),
        (AtLeast(1.0), [0.1, 0.2, 0.3, 0.2], "fails"),
        (AtMost(1.0), [1.0, 1.0, 1.0], "holds"),
        (Below(1.0), [1.0, 1.0, 1.0], "fails"),
        (AtLeast(1.0), [1.0, 1.0, 1.0], "holds"),
        (Above(1.0), [1.0, 1.0, 1.0], "fails"),
        (Within(0.0, 1.0), [0.1, 0.2, 0.3, 0.2], "holds"),
        (Within(1.0, 1.5), [0.1, 1.2, 2.3, 1.2], "undetermined"),
        (Within(0.0, 0.05), [0.1, 0.2, 0.3, 0.2], "fails"),
    ],
)
def test_mean_is_judged_by_its_whole_interval(bound, values: list[float], verdict: str):
    judgement = judge(record_of(values), check(bound))
    assert judgement.verdict == verdict
    assert ("the interval crosses the bound" in judgement.reason) == (verdict == "undetermined")
    finding = judgement.findings[0]
    assert finding.bound == str(bound)
    assert finding.value == pytest.approx(np.mean(values))
    assert (finding.low, finding.high) == t_interval(np.asarray(values))


def test_mean_with_one_seed_beyond_the_bound_may_still_hold():
    assert judge(record_of([0.1, 0.1, 0.1, 0.1, 1.1]), check()).verdict == "holds"  # 0.3 +- 0.56


def test_mean_is_undetermined_if_a_seed_diverged():
    for values in ([0.1, 0.2, 0.3, 0.1], [5.0, 6.0, 7.0, 5.0]):
        judgement = judge(record_of(values, diverged=[0, 3]), check())
        assert judgement.verdict == "undetermined"
        assert "2 of 4 seeds diverged" in judgement.reason


def test_divergence_counts_in_the_named_arms_only():
    other = record_of([0.1, 0.2, 0.3], diverged=[1]).arm("main")
    record = record_of([0.1, 0.2, 0.3], other=other)
    assert judge(record, check()).verdict == "holds"
    assert judge(record, check(arms=("main", "other"))).verdict == "undetermined"


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.one_of(st.floats(-3, 3), st.just(math.nan)), min_size=1, max_size=8),
    diverged=st.lists(st.integers(0, 7), max_size=2),
    statistic=st.sampled_from([Mean(), EverySeed(), Rate()]),
    limit=st.floats(-2, 2),
)
def test_no_claim_holds_without_enough_seeds_that_have_a_number(
    values: list[float], diverged: list[int], statistic: AbstractStatistic, limit: float
):
    lost = [seed for seed in diverged if seed < len(values)]
    judgement = judge(record_of(values, lost), check(AtMost(limit), statistic))
    numbers = [
        value for seed, value in enumerate(values) if seed not in lost and not math.isnan(value)
    ]
    assert judgement.findings[0].seeds == len(numbers)
    if lost or len(numbers) < 3:
        assert judgement.verdict != "holds"
        assert judgement.reason
    json.dumps(judgement.plain(), allow_nan=False)


# -- premises and missing seeds --------------------------------------------------------------------


WHY = "the word is in no sentence"


def test_a_seed_without_a_number_counts_against_the_claim():
    record = record_of([0.1, math.nan, 0.3, 0.2])
    for statistic, verdict in ((Mean(), "undetermined"), (EverySeed(), "fails")):
        judgement = judge(record, check(statistic=statistic))
        assert judgement.verdict == verdict
        assert judgement.reason == "error: 1 of 4 seeds have no number"


@each_rule
def test_a_seed_without_a_number_is_left_out_if_the_check_says_why(statistic):
    judgement = judge(
        record_of([0.1, math.nan, 0.3, 0.2]), check(statistic=statistic, left_out=WHY)
    )
    assert judgement.verdict == "holds"
    assert judgement.findings[0].seeds == 3
    assert judgement.findings[0].value == pytest.approx(0.2)
    assert judgement.reason == f"error: 1 of 4 seeds have no number, left out: {WHY}"


@each_rule
def test_too_few_seeds_that_are_not_left_out_are_undetermined(statistic: AbstractStatistic):
    few = check(statistic=statistic, left_out=WHY)
    judgement = judge(record_of([0.1, math.nan, math.nan, 0.2]), few)
    assert judgement.verdict == "undetermined"
    assert "2 seeds, 3 needed" in judgement.reason


@each_rule
def test_without_any_number_nothing_is_determined(statistic: AbstractStatistic):
    judgement = judge(record_of([math.nan] * 4), check(statistic=statistic, left_out=WHY))
    assert judgement.verdict == "undetermined"
    assert math.isnan(judgement.findings[0].value)
    assert "4 of 4 seeds have no number" in judgement.reason


# -- numbers that no seed enters -------------------------------------------------------------------


def constant(arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    return xr.DataArray(config.length / 10)


def test_a_deterministic_check_needs_no_seeds():
    single = check(statistic=Deterministic(), measure=constant)
    for seeds in (1, 5):
        judgement = judge(record_of([0.1] * seeds), single)
        assert (judgement.verdict, judgement.findings[0].seeds) == ("holds", 0)
    assert judge(
        record_of([0.1]), check(AtMost(0.7), Deterministic(), measure=constant)
    ).verdict == ("fails")
    assert judge(record_of([0.1, 0.2], diverged=[1]), single).verdict == "fails"


def test_a_deterministic_check_in_a_sweep():
    """One that the sweep does not enter counts in every cell; one that it enters has its own."""
    record = record_of(SWEPT, sweeps=RATES)
    judgement = judge(record, check(), check(statistic=Deterministic(), measure=constant))
    assert [verdict for _, verdict, _ in judgement.cells] == ["holds", "undetermined", "fails"]
    assert {findings[1].value for _, _, findings in judgement.cells} == {0.8}
    alone = judge(record, check(statistic=Deterministic(), measure=constant))
    assert (alone.verdict, alone.cells) == ("holds", ())
    swept = check(
        statistic=Deterministic(), measure=lambda arms, _: end_error(arms, _).isel(seed=0)
    )
    judgement = judge(record, swept)
    assert [verdict for _, verdict, _ in judgement.cells] == ["holds", "holds", "fails"]
    assert [findings[0].value for _, _, findings in judgement.cells] == [0.1, 0.1, 5.0]
    record.arm("main").trajectory["diverged_at"][0, 2] = 40
    lost = judge(dataclasses.replace(record), swept)
    assert [verdict for _, verdict, _ in lost.cells] == ["fails", "holds", "fails"]


@each_rule
def test_too_few_seeds_are_undetermined(statistic: AbstractStatistic):
    judgement = judge(record_of([0.1, 0.2]), check(statistic=statistic))
    assert judgement.verdict == "undetermined"
    assert "2 seeds, 3 needed" in judgement.reason
    assert judge(record_of([0.1, 0.2]), check(statistic=type(statistic)(2))).verdict == "holds"


def test_one_broken_seed_is_enough_to_fail_an_every_seed_check():
    """Also with too few seeds: no further seed could change it."""
    assert judge(record_of([0.1, 1.2]), check(statistic=EverySeed())).verdict == "fails"


def test_mean_of_one_seed_is_judged_by_its_value():
    assert judge(record_of([0.1]), check(statistic=Mean(1))).verdict == "holds"
    assert judge(record_of([1.1]), check(statistic=Mean(1))).verdict == "fails"


def test_infinite_seed_counts():
    """A seed that never reached a threshold."""
    assert judge(record_of([0.1, 0.2, math.inf]), check()).verdict == "undetermined"
    assert judge(record_of([0.1, 0.2, math.inf]), check(statistic=EverySeed())).verdict == "fails"


def test_infinite_seeds_only():
    judgement = judge(record_of([math.inf] * 3), check())
    assert judgement.verdict == "fails"
    json.dumps(judgement.plain(), allow_nan=False)


def test_missing_arm_is_undetermined():
    record = record_of([0.1, 0.2, 0.3])
    judgement = judge(record, check(arms=("main", "frozen")))
    assert judgement.verdict == "undetermined"
    assert judgement.reason == "premise not met: arm frozen was not run (the record has main)"
    assert judgement.findings == ()
    explained = check(
        arms=("main", "frozen"),
        missing=lambda arms, config: f"{', '.join(arms)} with length {config.length} is enough",
    )
    assert judge(record, explained).reason == (
        "premise not met: arm frozen was not run: main with length 8 is enough"
    )


def test_unmet_premise_is_undetermined_with_its_reason():
    def unmet(arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
        raise PremiseNotMetError(f"sequences of {config.length} words are too short")

    judgement = judge(record_of([0.1, 0.2, 0.3]), check(), check(measure=unmet))
    assert judgement.verdict == "undetermined"
    assert judgement.reason == "premise not met: sequences of 8 words are too short"


# -- arms ------------------------------------------------------------------------------------------


def test_arms_refuse_an_arm_that_the_check_does_not_name():
    record = record_of([0.1, 0.2, 0.3])
    arms = ClaimArms(record, ["main"])
    assert arms["main"] is ClaimArms(record, ["main"])["main"], "converted once"
    xr.testing.assert_equal(arms["main"].trajectory, record.arm("main").trajectory)
    with pytest.raises(MissingArmError, match="arm other was not run"):
        arms["other"]
    with pytest.raises(TypeError, match="the check must name the arm 'main'"):
        ClaimArms(record, [])["main"]


def test_measure_gets_exactly_the_arms_that_the_check_names():
    plain = record_of([0.1, 0.2, 0.3]).arm("main")
    record = record_of([0.1, 0.2, 0.3], heads_1=plain, heads_2=plain, other=plain)
    seen: list[list[str]] = []

    def measure(arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
        seen.append(list(arms))
        return arms["heads_2"].end["error"]

    assert judge(record, check(measure=measure, arms="heads_*")).verdict == "holds"
    assert judge(record, check(measure=measure, arms=("other", "heads_2"))).verdict == "holds"
    assert seen == [["heads_1", "heads_2"], ["other", "heads_2"]]
    with pytest.raises(ConfigError, match=r"claim A-1, error: .* must name the arm 'heads_2'"):
        judge(record, check(measure=measure, arms=("main", "other")))


def test_checks_inherit_arms_and_statistic_from_the_claim():
    other = record_of([5.0, 6.0, 7.0]).arm("main")
    record = record_of([0.1, 0.2, 1.1], other=other)

    def largest(arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
        return xr.concat([arm.end["error"] for arm in arms.values()], "arm").max("arm")

    inherits = Check("inherits", largest, AtMost(1.0))
    own = Check("own", largest, AtMost(9.0), "other", Mean(2))
    judgement = judge(record, inherits, own, arms="main", statistic=EverySeed(2))
    assert [finding.bound for finding in judgement.findings] == ["<= 1, every seed", "<= 9"]
    assert [finding.value for finding in judgement.findings] == pytest.approx([1.4 / 3, 6.0])
    assert [finding.verdict for finding in judgement.findings] == ["fails", "holds"]
    filled = claim(inherits, own, arms="main", statistic=EverySeed(2)).checks
    assert [one.arms for one in filled] == [("main",), ("other",)]  # pyright: ignore[reportGeneralTypeIssues]
    assert [one.statistic for one in filled] == [EverySeed(2), Mean(2)]  # pyright: ignore[reportGeneralTypeIssues]
    assert inherits.arms == (), "the check itself is not changed"


def test_the_default_statistic_is_the_mean_over_three_seeds():
    (filled,) = claim(check()).checks  # pyright: ignore[reportGeneralTypeIssues]
    assert filled.statistic == Mean(3)


def test_a_claim_may_have_a_single_check():
    single = Claim("A-1", "The error is small", "Lu 2021", check(), "none")
    assert single.judge(record_of([0.1, 0.2, 0.3]), Config()).verdict == "holds"


# -- rates -----------------------------------------------------------------------------------------


def successes(count: int, trials: int) -> Record:
    return record_of([1.0] * count + [0.0] * (trials - count))


@pytest.mark.parametrize(
    ("count", "trials", "low", "high"),
    [
        # Closed form at the ends: a rate r gives no failure in n trials with chance r^n, which is
        # 0.025 at the bound.
        (20, 20, 0.025 ** (1 / 20), 1.0),
        (0, 20, 0.0, 1 - 0.025 ** (1 / 20)),
        (1, 1, 0.025, 1.0),
        (0, 1, 0.0, 0.975),
        # From tables of Clopper and Pearson's interval.
        (19, 20, 0.7513, 0.9987),
        (10, 20, 0.2720, 0.7280),
    ],
)
def test_rate_has_its_exact_interval(count: int, trials: int, low: float, high: float):
    finding = judge(successes(count, trials), check(AtLeast(0.5), Rate(1))).findings[0]
    assert (finding.value, finding.seeds) == (count / trials, trials)
    assert (finding.low, finding.high) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("count", "bound", "by_interval", "by_count"),
    [  # the intervals of 20, 19, 18 and 10 of 20 are those above, 0.68 to 0.99, and 0.27 to 0.73
        (20, AtLeast(0.8), "holds", "holds"),
        (20, AtLeast(0.95), "undetermined", "holds"),
        (20, Below(0.8), "fails", "fails"),
        (19, AtLeast(0.95), "undetermined", "holds"),
        (18, AtLeast(0.95), "undetermined", "fails"),
        (0, AtMost(0.2), "holds", "holds"),
        (0, Above(0.0), "undetermined", "fails"),
        (10, Within(0.4, 0.6), "undetermined", "holds"),
        (10, Within(0.75, 0.8), "fails", "fails"),
    ],
)
def test_rate_is_judged_by_its_interval_or_by_count(count, bound, by_interval, by_count):
    judgement = judge(successes(count, 20), check(bound, Rate()))
    assert judgement.verdict == by_interval
    assert ("the interval crosses the bound" in judgement.reason) == (by_interval == "undetermined")
    counted = judge(successes(count, 20), check(bound, Rate(by_value=True)))
    assert (counted.verdict, counted.reason) == (by_count, "")


def test_rate_of_one_seed():
    """One success says little: its interval begins at 0.025."""
    assert judge(successes(1, 1), check(AtLeast(0.95), Rate(1))).verdict == "undetermined"
    assert judge(successes(1, 1), check(AtLeast(0.02), Rate(1))).verdict == "holds"
    for statistic, verdict in ((Rate(1, by_value=True), "holds"), (Rate(2), "undetermined")):
        assert judge(successes(1, 1), check(AtLeast(0.95), statistic)).verdict == verdict


def test_rate_follows_the_other_rules():
    rate = check(AtLeast(0.05), Rate(), left_out=WHY)
    assert judge(record_of([1.0] * 4, diverged=[1]), rate).verdict == "undetermined"
    few = judge(record_of([1.0, math.nan, math.nan, 1.0]), rate)
    assert few.verdict == "undetermined"
    assert few.reason == f"error: 2 of 4 seeds have no number, left out: {WHY}; 2 seeds, 3 needed"
    left_out = judge(record_of([1.0, math.nan, 0.0, 1.0]), rate)
    assert left_out.verdict == "holds"
    assert (left_out.findings[0].value, left_out.findings[0].seeds) == (pytest.approx(2 / 3), 3)
    assert judge(record_of([math.nan] * 4), rate).verdict == "undetermined"


# -- numbers of all seeds together -----------------------------------------------------------------

TIMES = [*np.linspace(8, 12, 20)]
by_interval_and_value = pytest.mark.parametrize(
    "by_value", [False, True], ids=["interval", "value"]
)


def median(values: np.ndarray) -> float:
    return float(np.median(values))


def pooled(seeds: int = 3, by_value: bool = False) -> Pooled:
    return Pooled(seeds, by_value=by_value, function=median)


@pytest.mark.parametrize(
    ("bound", "by_interval", "by_value"),
    [
        (AtMost(12.0), "holds", "holds"),
        (AtMost(10.1), "undetermined", "holds"),
        (AtMost(9.9), "undetermined", "fails"),
        (AtMost(8.0), "fails", "fails"),
        (Above(8.0), "holds", "holds"),
        (Above(12.0), "fails", "fails"),
        (Within(9.9, 10.1), "undetermined", "holds"),
    ],
)
def test_pooled_number_is_judged_by_its_interval_or_by_value(bound, by_interval, by_value):
    judgement = judge(record_of(TIMES), check(bound, pooled()))
    finding = judgement.findings[0]
    assert judgement.verdict == by_interval
    assert ("the interval crosses the bound" in judgement.reason) == (by_interval == "undetermined")
    assert (finding.value, finding.seeds) == (pytest.approx(10), 20)
    assert 8 < finding.low < 9.9
    assert 10.1 < finding.high < 12
    valued = judge(record_of(TIMES), check(bound, pooled(by_value=True)))
    assert valued.verdict == by_value
    assert (valued.findings[0].low, valued.findings[0].high) == (finding.low, finding.high)


@pytest.mark.parametrize(
    ("never", "verdict"), [(1, "holds"), (9, "undetermined"), (19, "fails"), (20, "fails")]
)
def test_infinite_seeds_count_in_a_pooled_number(never: int, verdict: str):
    """Of 20 seeds one does not make a median infinite, nine may (so its interval is), most do."""
    record = record_of(TIMES[never:] + [math.inf] * never)
    judgement = judge(record, check(AtMost(13.0), pooled()))
    finding = judgement.findings[0]
    assert judgement.verdict == verdict
    assert (math.isinf(finding.value), math.isinf(finding.high)) == (never > 10, never > 1)
    assert finding.seeds == 20
    json.dumps(judgement.plain(), allow_nan=False)


def ratio(first: np.ndarray, second: np.ndarray) -> float:
    return median(first) / median(second)


@by_interval_and_value
def test_pooled_number_that_does_not_exist_is_undetermined(by_value: bool):
    """A ratio of infinite medians is not a number."""
    statistic = Pooled(by_value=by_value, function=ratio)
    twice = check(statistic=statistic, measure=lambda arms, config: (end_error(arms, config),) * 2)
    judgement = judge(record_of([math.inf] * 20), twice)
    assert judgement.verdict == "undetermined"
    assert judgement.reason == "error: no number"
    assert math.isnan(judgement.findings[0].value)
    json.dumps(judgement.plain(), allow_nan=False)
    exists = check(AtMost(1.5), statistic, measure=twice.measure)
    assert judge(record_of(TIMES), exists).verdict == "holds"


@by_interval_and_value
def test_pooled_number_is_undetermined_if_a_seed_diverged(by_value: bool):
    statistic = pooled(by_value=by_value)
    judgement = judge(record_of(TIMES, diverged=[4]), check(AtMost(13.0), statistic))
    assert judgement.verdict == "undetermined"
    assert judgement.reason == "error: seeds diverged"
    assert math.isnan(judgement.findings[0].value)


@by_interval_and_value
def test_pooled_number_of_too_few_seeds_is_undetermined(by_value: bool):
    few = judge(record_of(TIMES), check(AtMost(13.0), pooled(21, by_value)))
    assert few.verdict == "undetermined"
    assert few.reason == "error: 20 seeds, 21 needed"
    assert judge(record_of(TIMES), check(AtMost(13.0), pooled(20, by_value))).verdict == "holds"


def both(arms: Mapping[str, Arm], config: Config) -> tuple[xr.DataArray, xr.DataArray]:
    return arms["main"].end["error"], arms["other"].end["error"]


@pytest.mark.parametrize(
    "statistic", [RateDifference(5), FisherTest(5)], ids=["difference", "Fisher"]
)
def test_seeds_of_two_samples_are_those_of_the_smaller_one(statistic: AbstractStatistic):
    for first, second in ((20, 4), (4, 20)):
        record = record_of([1.0] * first, other=successes(2, second).arm("main"))
        judgement = judge(
            record, check(AtMost(9.0), statistic, measure=both, arms=("main", "other"))
        )
        assert judgement.reason == "error: 4 seeds, 5 needed"


@pytest.mark.parametrize(("count", "verdict"), [(20, "fails"), (10, "holds"), (0, "holds")])
def test_chance_of_fishers_test_is_compared_itself(count: int, verdict: str):
    """20 of 20 against `count` of 20: 10 have a chance of 4e-4 without a difference, 20 have 1."""
    record = record_of([1.0] * 20, other=successes(count, 20).arm("main"))
    chance = check(Below(0.05), FisherTest(20), measure=both, arms=("main", "other"))
    judgement = judge(record, chance)
    assert judgement.verdict == verdict
    assert judgement.findings[0].seeds == 20
    assert math.isnan(judgement.findings[0].low)


def test_mcnemars_test_compares_seed_by_seed():
    """Of 20 seeds 8 succeed in the first arm alone: 2 / 2^8, whatever the others do."""
    record = record_of([1.0] * 18 + [0.0] * 2, other=successes(10, 20).arm("main"))
    for bound, verdict in ((Below(0.0079), "holds"), (Below(0.0078), "fails")):
        chance = check(bound, McNemarTest(20), measure=both, arms=("main", "other"))
        judgement = judge(record, chance)
        assert judgement.verdict == verdict
        assert judgement.findings[0].value == pytest.approx(2 / 2**8)


@pytest.mark.parametrize(
    ("bound", "by_interval", "by_value"),
    [
        (Above(0.0), "undetermined", "holds"),
        (Above(-0.9), "holds", "holds"),
        (Above(0.5), "undetermined", "fails"),
        (Above(0.9), "fails", "fails"),
    ],
)
def test_difference_of_rates_is_judged_by_its_interval_or_by_value(bound, by_interval, by_value):
    """3 of 4 less 2 of 4: 0.25, with an interval of about -0.35 to 0.70 (Newcombe)."""
    record = record_of([1.0, 1.0, 1.0, 0.0], other=successes(2, 4).arm("main"))
    for statistic, verdict in (
        (RateDifference(), by_interval),
        (RateDifference(by_value=True), by_value),
    ):
        judgement = judge(record, check(bound, statistic, measure=both, arms=("main", "other")))
        assert judgement.verdict == verdict
        assert judgement.findings[0].value == pytest.approx(0.25)


def test_pooled_numbers_of_a_sweep_are_judged_cell_by_cell():
    record = record_of(np.stack([TIMES, np.add(TIMES, 20), TIMES]), sweeps=RATES)
    record.arm("main").trajectory["diverged_at"][2, 5] = 40
    judgement = judge(record, check(AtMost(13.0), pooled()))
    assert [verdict for _, verdict, _ in judgement.cells] == ["holds", "fails", "undetermined"]
    assert [findings[0].seeds for _, _, findings in judgement.cells] == [20, 20, 20]
    assert judgement.cells[1][2][0].value == pytest.approx(judgement.cells[0][2][0].value + 20)


def test_a_pooled_sample_may_have_further_dims_but_needs_seeds():
    def per_word(arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
        return end_error(arms, config).expand_dims(word=4)

    judgement = judge(record_of(TIMES), check(AtMost(13.0), pooled(), measure=per_word))
    assert judgement.verdict == "holds"
    with pytest.raises(ConfigError, match=r"'error': got the dims .*allowed: one number per seed"):
        judge(
            record_of(TIMES),
            check(
                AtMost(13.0),
                pooled(),
                measure=lambda arms, config: per_word(arms, config).mean("seed"),
            ),
        )


# -- several checks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "verdict"),
    [
        ((1.0, 2.0), "holds"),
        ((1.0, 0.2), "undetermined"),
        ((1.0, -0.1), "fails"),  # the interval is -0.05 to 0.45
        ((0.2, -0.1), "fails"),
        ((-0.1, 0.2), "fails"),
    ],
)
def test_a_claim_has_the_worst_verdict_of_its_checks(limits: tuple[float, ...], verdict: str):
    quantities = [f"error {limit}" for limit in limits]
    checks = [
        check(AtMost(limit), quantity=quantity)
        for limit, quantity in zip(limits, quantities, strict=True)
    ]
    judgement = judge(record_of([0.1, 0.2, 0.3]), *checks)
    assert judgement.verdict == verdict
    assert [finding.quantity for finding in judgement.findings] == quantities


# -- sweeps ----------------------------------------------------------------------------------------

RATES = {"rate": [0.1, 0.2, 0.4]}
SWEPT = np.asarray([[0.1, 0.2, 0.3], [0.1, 0.9, 3.0], [5.0, 6.0, 7.0]])


def test_cells_of_a_sweep_are_judged_one_by_one():
    judgement = judge(record_of(SWEPT, sweeps=RATES), check())
    assert [(place, verdict) for place, verdict, _ in judgement.cells] == [
        ({"rate": 0.1}, "holds"),
        ({"rate": 0.2}, "undetermined"),
        ({"rate": 0.4}, "fails"),
    ]
    assert [findings[0].seeds for _, _, findings in judgement.cells] == [3, 3, 3]
    assert judgement.verdict == "undetermined"
    assert judgement.reason == "holds in 1, fails in 1, undetermined in 1 of 3 cells"


@pytest.mark.parametrize(("row", "verdict"), [(0, "holds"), (2, "fails")])
def test_a_sweep_with_one_verdict_everywhere_has_it(row: int, verdict: str):
    judgement = judge(record_of(np.repeat(SWEPT[[row]], 3, axis=0), sweeps=RATES), check())
    assert judgement.verdict == verdict


def test_two_sweeps_make_a_cell_for_every_pair():
    sweeps = RATES | {"variance": [1.0, 2.0]}
    values = np.stack([SWEPT, SWEPT + 10], axis=1)
    judgement = judge(record_of(values, sweeps=sweeps), check())
    assert [tuple(place.values()) for place, _, _ in judgement.cells] == [
        (rate, variance) for rate in RATES["rate"] for variance in (1.0, 2.0)
    ]
    larger = [verdict for place, verdict, _ in judgement.cells if place["variance"] == 2.0]
    assert larger == ["fails"] * 3


def test_diverged_seeds_count_in_their_own_cell():
    record = record_of(np.repeat(SWEPT[[0]], 3, axis=0), sweeps=RATES)
    record.arm("main").trajectory["diverged_at"][1, 2] = 40
    judgement = judge(record, check(statistic=EverySeed()))
    assert [verdict for _, verdict, _ in judgement.cells] == ["holds", "fails", "holds"]


def test_a_check_that_was_not_swept_counts_in_every_cell():
    record = record_of(SWEPT, sweeps=RATES, plain=record_of([0.1, 0.2, 0.3]).arm("main"))
    unswept = check(measure=lambda arms, config: arms["plain"].end["error"], arms="plain")
    judgement = judge(record, check(), unswept)
    assert all(finding.seeds == 3 for finding in judgement.findings)
    assert [verdict for _, verdict, _ in judgement.cells] == ["holds", "undetermined", "fails"]


def test_members_that_diverged_elsewhere_do_not_count():
    """A sweep of the arm itself: `where` limits the check to some of its members."""
    lost = xr.DataArray(
        [[-1, -1, -1], [5, -1, -1]],
        dims=("rate", "seed"),
        coords={"rate": [0.1, 1.0], "seed": [0, 1, 2]},
    )
    values = xr.DataArray(
        np.zeros((2, 3, 1)), dims=("rate", "seed", "step"), coords={**lost.coords, "step": [0]}
    )
    arm = Arm(xr.Dataset({"loss": values, "diverged_at": lost}))
    record = Record("study", "custom", {}, {"swept_1": arm}, {}, "cpu", "float32", 0.0)

    def at(rate: float, arms: str = "swept_*") -> str:
        def measure(arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
            return arms["swept_1"].end["loss"].sel(rate=rate, drop=True)

        one = Check("loss", measure, AtMost(0.0), arms, EverySeed(), where={"rate": rate})
        return judge(record, one).verdict

    assert at(0.1) == "holds"
    assert at(1.0) == "fails"
    assert at(0.1, "other_*") == "undetermined"


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "change",
    [
        lambda error: error.mean("seed"),
        lambda error: error.expand_dims(word=4),
        lambda error: (error, error),
    ],
    ids=["no seeds", "another dim", "two samples"],
)
@pytest.mark.parametrize("statistic", [Mean(), EverySeed(), Rate()], ids=["mean", "every", "rate"])
def test_a_measure_without_exactly_one_number_per_seed_is_an_error(change, statistic):
    with pytest.raises(ConfigError, match=r"'error': got the dims .*allowed: one number per seed"):
        judge(
            record_of([0.1, 0.2, 0.3]),
            check(
                statistic=statistic, measure=lambda arms, config: change(end_error(arms, config))
            ),
        )


@pytest.mark.parametrize("bound", [1.0, "<= 1", AtMost])
def test_anything_but_a_bound_is_refused(bound: Any):
    with pytest.raises(ConfigError, match=r"^check 'error': got the bound .*allowed: AtMost"):
        check(bound)


def test_a_claim_without_checks_is_refused():
    with pytest.raises(ConfigError, match="claim A-1: got no checks, allowed: at least one"):
        claim()


# -- stored judgements -----------------------------------------------------------------------------

RECORDS = {
    "plain": record_of([0.1, 0.2, 0.3]),
    "no numbers": record_of([math.nan] * 3),
    "infinite": record_of([0.1, 0.2, math.inf]),
    "diverged": record_of([0.1], [0]),
    "swept": record_of(SWEPT, sweeps=RATES),
}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_plain_judgement_is_json_without_nan(record: Record):
    judgement = judge(record, check())
    plain = json.loads(json.dumps(judgement.plain(), allow_nan=False))
    assert plain["verdict"] == judgement.verdict
    assert plain["claim"] == "A-1"
    value = judgement.findings[0].value
    assert plain["findings"][0]["value"] == (value if math.isfinite(value) else None)
    assert len(plain["cells"]) == len(judgement.cells)


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize("arms", ["main", "frozen"])
def test_a_stored_judgement_is_read_back(record: Record, arms: str):
    """Numbers that are not finite are stored as null and read as NaN."""
    judgement = judge(record, check(arms=arms), check(AtMost(0.0)), reason="it is too large")
    judgement = dataclasses.replace(judgement, registered=True)
    stored = json.loads(json.dumps(judgement.plain() | {"statement": "The error is small"}))
    again = Judgement.of_plain(stored)
    assert again.plain() == judgement.plain()
    assert again.registered
    assert [type(place) for place, _, _ in again.cells] == [dict] * len(judgement.cells)
    for one, other in zip(again.findings, judgement.findings, strict=True):
        assert one.value == other.value or (
            math.isnan(one.value) and not math.isfinite(other.value)
        )
    if record is RECORDS["plain"] or record is RECORDS["swept"]:
        assert again == dataclasses.replace(judgement, evidence={})


# -- sizes -----------------------------------------------------------------------------------------


def test_a_record_below_the_full_size_is_undetermined():
    record = record_of([0.1, 0.2, 0.3])
    size = (lambda config: config.length >= 40, "sequences of 40 words")
    sized = claim(check(), full_size=size)
    small, large = (sized.judge(record, Config(length)) for length in (8, 40))
    assert (small.verdict, small.reason) == (
        "undetermined",
        "this claim needs sequences of 40 words",
    )
    assert small.findings == large.findings, "the measured numbers are reported"
    assert (large.verdict, large.reason) == ("holds", "")
    failing = claim(check(AtMost(-0.1)), full_size=size)
    assert [failing.judge(record, Config(length)).verdict for length in (8, 40)] == [
        "undetermined",
        "fails",
    ]
    cells = sized.judge(record_of(SWEPT, sweeps=RATES), Config(8)).cells
    assert {verdict for _, verdict, _ in cells} == {"undetermined"}


# -- known verdicts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "known", "changed", "explained"),
    [
        ("holds", None, False, False),
        ("holds", "holds", False, False),
        ("holds", "fails", True, False),
        ("fails", None, False, True),
        ("fails", "fails", False, True),
        ("fails", "holds", True, False),
        ("undetermined", "fails", True, False),
    ],
)
def test_a_verdict_is_compared_with_the_known_one(verdict, known, changed, explained):
    """The explanation is of a claim that is known not to hold, not of a surprise."""
    judgement = Judgement("A-1", verdict, (), known=known)
    assert judgement.changed == changed
    text = claim(check(), reason="the text omits it").explanation(judgement)
    assert text == ("the text omits it" if explained else "")


def test_a_check_without_its_arm_leaves_the_others_their_numbers():
    record = record_of([0.1, 0.2, 0.3])
    judgement = judge(record, check(), check(arms=("other",)), check())
    assert judgement.verdict == "undetermined"
    assert judgement.reason == "premise not met: arm other was not run (the record has main)"
    first, second, third = judgement.findings
    assert first == third
    assert first.value == pytest.approx(0.2)
    assert math.isnan(second.value)
    assert "was not run" in second.reason
    refuted = judge(record, check(), check(arms=("other",)), check(AtMost(-1.0)))
    assert refuted.verdict == "fails", "one failing check is enough"


@pytest.mark.parametrize("statistic", [Mean(3), EverySeed(3), GeometricMean(3), Rate(3)])
@pytest.mark.parametrize("left_out", ["", "no number here"])
def test_cells_are_judged_from_plain_arrays_as_from_labelled_ones(statistic, left_out):
    """The quick way over thousands of cells finds what the general one finds, bit by bit."""
    values = np.random.default_rng(0).lognormal(-1, 1, (5, 4, 6))
    values[0, :, 1], values[1] = np.nan, np.nan
    sample = xr.DataArray(values, dims=("seed", "a", "b"))
    gone = xr.zeros_like(sample, dtype=bool)
    gone[2, 1, 3] = True
    check = Check(
        "q", lambda arms, config: sample, AtMost(0.5), "arm", statistic, left_out=left_out
    )
    quick = _finder(check, ([sample], gone, None), ["b", "a"])
    for a, b in np.ndindex(4, 6):
        at = {"a": a, "b": b}
        slow = _find(check, ([_cell(sample, at)], _cell(gone, at), None))
        assert repr(quick(at)) == repr(slow)


@pytest.mark.parametrize(
    ("statistic", "numbers", "verdict"),
    [
        (EverySeed(3), (0.1, 0.1, 0.1, 0.1), "undetermined"),
        (EverySeed(3), (0.9, 0.1, 0.1, 0.1), "fails"),
        (EverySeed(3), (0.1, 0.1, 0.1, 0.9), "undetermined"),
        (Mean(3), (0.1, 0.11, 0.1, 0.1), "undetermined"),
        (Mean(3), (0.9, 0.91, 0.9, 0.1), "undetermined"),
    ],
)
def test_a_seed_that_was_not_trained_is_no_evidence(statistic, numbers, verdict):
    """The last seed was not trained, whatever its number says; another one may break a bound that
    every seed must keep.
    """
    sample = xr.DataArray(np.asarray(numbers), dims="seed")
    missing = xr.DataArray([False, False, False, True], dims="seed")
    check = Check("q", lambda arms, config: sample, AtMost(0.5), "arm", statistic)
    found = _find(check, ([sample], xr.zeros_like(missing), missing))
    assert found.verdict == verdict
    assert found.reason.startswith("1 of 4 seeds were not trained")
    nothing = _find(check, ([sample], xr.zeros_like(missing), xr.ones_like(missing)))
    assert (nothing.verdict, nothing.reason) == (
        "undetermined",
        "4 of 4 seeds were not trained",
    )
