"""Verdicts from records made by hand: every rule that `saccade.core.claim` states."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.core.claim import Check, Claim, Judgement, PremiseNotMetError
from saccade.core.errors import ConfigError
from saccade.core.record import Arm, Record
from saccade.core.statistics import bootstrap_interval, fisher_test, over_all_seeds


def record_of(
    values: np.ndarray | Sequence[float],
    diverged: Sequence[int] = (),
    sweeps: dict[str, list[float]] | None = None,
    **more: Arm,
) -> Record:
    """A record whose arm `main` has one `error` a (sweeps and) seed; `diverged` are places of
    seeds.
    """
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
    arms = {"main": Arm(trajectory, xr.Dataset(), xr.Dataset()), **more}
    return Record("example", "quick", {"sweeps": sweeps}, arms, {}, "CPU, 2 cores", "float32", 1.0)


def end_error(record: Record) -> xr.DataArray:
    return record.arm("main").end["error"]


def check(comparison: str = "<=", bound: float = 1.0, **options) -> Check:
    settings = {"quantity": "error", "measure": end_error, "arms": ("main",)} | options
    return Check(comparison=comparison, bound=bound, **settings)  # pyright: ignore[reportArgumentType]


def claim(*checks: Check, **options) -> Claim:
    return Claim(
        "A-1", "The error is small", "Lu 2021, figure 1", checks, "the paper's figure", **options
    )


def judge(record: Record, *checks: Check) -> Judgement:
    return claim(*checks).judge(record)


# -- every seed ------------------------------------------------------------------------------------


def test_every_seed_holds_if_all_keep_the_bound():
    judgement = judge(record_of([0.1, 0.2, 1.0]), check(every_seed=True))
    assert judgement.verdict == "holds"
    assert judgement.findings[0].bound == "<= 1, every seed"
    assert judgement.findings[0].seeds == 3


def test_every_seed_fails_if_one_breaks_the_bound():
    judgement = judge(record_of([0.1, 0.2, 1.1, 0.0]), check(every_seed=True))
    assert judgement.verdict == "fails"
    assert "1 of 4 seeds break the bound" in judgement.reason


def test_every_seed_fails_if_one_diverged_even_where_the_rest_keeps_the_bound():
    judgement = judge(record_of([0.1, 0.2, 0.3, 0.1], diverged=[2]), check(every_seed=True))
    assert judgement.verdict == "fails"
    assert "1 of 4 seeds diverged" in judgement.reason
    assert judgement.findings[0].seeds == 3


# -- mean ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("comparison", "values", "verdict"),
    [
        ("<=", [0.1, 0.2, 0.3, 0.2], "holds"),
        ("<=", [0.1, 0.2, 0.3, 3.0], "undetermined"),
        ("<=", [1.1, 1.2, 1.3, 1.2], "fails"),
        (">=", [1.1, 1.2, 1.3, 1.2], "holds"),
        (">=", [1.1, 1.2, 1.3, 0.1], "undetermined"),
        (">=", [0.1, 0.2, 0.3, 0.2], "fails"),
        ("<=", [1.0, 1.0, 1.0], "holds"),
        ("<", [1.0, 1.0, 1.0], "fails"),
        (">=", [1.0, 1.0, 1.0], "holds"),
        (">", [1.0, 1.0, 1.0], "fails"),
    ],
)
def test_mean_is_judged_by_its_whole_interval(comparison: str, values: list[float], verdict: str):
    judgement = judge(record_of(values), check(comparison))
    assert judgement.verdict == verdict
    assert ("the interval crosses the bound" in judgement.reason) == (verdict == "undetermined")
    finding = judgement.findings[0]
    assert finding.value == pytest.approx(np.mean(values))
    assert (finding.low, finding.high) == bootstrap_interval(np.asarray(values))


def test_mean_with_one_seed_beyond_the_bound_may_still_hold():
    assert judge(record_of([0.1, 0.1, 0.1, 0.1, 1.1]), check()).verdict == "holds"


def test_mean_cannot_be_taken_if_a_seed_diverged():
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
    every_seed=st.booleans(),
    bound=st.floats(-2, 2),
)
def test_no_verdict_but_undetermined_or_fails_without_enough_whole_seeds(
    values: list[float], diverged: list[int], every_seed: bool, bound: float
):
    lost = [place for place in diverged if place < len(values)]
    judgement = judge(record_of(values, lost), check(bound=bound, every_seed=every_seed))
    numbers = [
        value for place, value in enumerate(values) if place not in lost and not math.isnan(value)
    ]
    assert judgement.findings[0].seeds == len(numbers)
    if lost or len(numbers) < 3:
        assert judgement.verdict != "holds"
        assert judgement.reason
    json.dumps(judgement.plain(), allow_nan=False)


# -- premises and missing seeds --------------------------------------------------------------------


def test_seed_without_its_premise_is_left_out_and_counted():
    judgement = judge(record_of([0.1, math.nan, 0.3, 0.2]), check(every_seed=True))
    assert judgement.verdict == "holds"
    assert judgement.findings[0].seeds == 3
    assert judgement.findings[0].value == pytest.approx(0.2)
    assert "1 of 4 seeds do not meet the premise" in judgement.reason


@pytest.mark.parametrize("every_seed", [False, True])
def test_too_few_seeds_with_the_premise_are_undetermined(every_seed: bool):
    judgement = judge(record_of([0.1, math.nan, math.nan, 0.2]), check(every_seed=every_seed))
    assert judgement.verdict == "undetermined"
    assert "2 seeds, 3 needed" in judgement.reason


@pytest.mark.parametrize("every_seed", [False, True])
def test_no_seed_with_the_premise_is_undetermined(every_seed: bool):
    judgement = judge(record_of([math.nan] * 4), check(every_seed=every_seed))
    assert judgement.verdict == "undetermined"
    assert math.isnan(judgement.findings[0].value)
    assert "4 of 4 seeds do not meet the premise" in judgement.reason


@pytest.mark.parametrize("every_seed", [False, True])
def test_too_few_seeds_are_undetermined(every_seed: bool):
    judgement = judge(record_of([0.1, 0.2]), check(every_seed=every_seed))
    assert judgement.verdict == "undetermined"
    assert "2 seeds, 3 needed" in judgement.reason
    assert judge(record_of([0.1, 0.2]), check(every_seed=every_seed, seeds=2)).verdict == "holds"


def test_one_broken_seed_is_enough_to_fail_an_every_seed_check():
    """Both rules speak here (too few seeds; one seed breaks the bound): no further seed could
    mend it.
    """
    assert judge(record_of([0.1, 1.2]), check(every_seed=True)).verdict == "fails"


def test_mean_of_one_seed_never_fails_for_want_of_an_interval():
    assert judge(record_of([0.1]), check(seeds=1)).verdict != "fails"


def test_seed_that_never_got_there_is_infinite_and_counts():
    assert judge(record_of([0.1, 0.2, math.inf]), check()).verdict == "undetermined"
    assert judge(record_of([0.1, 0.2, math.inf]), check(every_seed=True)).verdict == "fails"


def test_no_seed_got_there():
    judgement = judge(record_of([math.inf] * 3), check())
    assert judgement.verdict == "fails"
    json.dumps(judgement.plain(), allow_nan=False)


def test_missing_arm_is_undetermined():
    judgement = judge(record_of([0.1, 0.2, 0.3]), check(arms=("main", "frozen")))
    assert judgement.verdict == "undetermined"
    assert judgement.reason == "premise not met: arm frozen was not run"
    told = judge(
        record_of([0.1, 0.2, 0.3]),
        check(arms=("main", "frozen"), missing=lambda record: f"{record.seeds} were enough"),
    )
    assert told.reason == "premise not met: arm frozen was not run: 3 were enough"
    assert judgement.findings == ()


def test_unmet_premise_is_undetermined_with_its_reason():
    def unmet(record: Record) -> xr.DataArray:
        raise PremiseNotMetError(f"{record.study} was too short")

    judgement = judge(record_of([0.1, 0.2, 0.3]), check(), check(measure=unmet))
    assert judgement.verdict == "undetermined"
    assert judgement.reason == "premise not met: example was too short"


# -- rates, and numbers that are compared themselves -----------------------------------------------


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
    finding = judge(successes(count, trials), check(">=", 0.5, rate=True, seeds=1)).findings[0]
    assert (finding.value, finding.seeds) == (count / trials, trials)
    assert (finding.low, finding.high) == pytest.approx((low, high), abs=5e-5)


@pytest.mark.parametrize(
    ("count", "comparison", "bound", "by_interval", "by_value"),
    [
        (20, ">=", 0.95, "undetermined", "holds"),
        (20, ">=", 0.8, "holds", "holds"),
        (20, "<", 0.8, "fails", "fails"),
        (19, ">=", 0.95, "undetermined", "holds"),
        (18, ">=", 0.95, "undetermined", "fails"),
        (10, ">=", 0.95, "fails", "fails"),
        (0, "<=", 0.05, "undetermined", "holds"),
        (0, "<=", 0.2, "holds", "holds"),
        (0, ">", 0.0, "undetermined", "fails"),
        (0, ">", 0.2, "fails", "fails"),
    ],
)
def test_rate_is_judged_by_its_interval_or_by_value(
    count: int, comparison: str, bound: float, by_interval: str, by_value: str
):
    record = successes(count, 20)
    assert judge(record, check(comparison, bound, rate=True)).verdict == by_interval
    assert judge(record, check(comparison, bound, rate=True, by_value=True)).verdict == by_value


def test_rate_of_one_seed_has_an_interval_too():
    """Other numbers of one seed have none and are compared themselves; one success proves no
    rate.
    """
    assert judge(successes(1, 1), check(">=", 0.95, rate=True, seeds=1)).verdict == "undetermined"
    assert (
        judge(successes(1, 1), check(">=", 0.95, rate=True, seeds=1, by_value=True)).verdict
        == "holds"
    )
    assert judge(successes(1, 1), check(">=", 0.95, seeds=1)).verdict == "holds"
    assert judge(successes(1, 1), check(">=", 0.02, rate=True, seeds=1)).verdict == "holds"


@pytest.mark.parametrize(("bound", "verdict"), [(1.0, "holds"), (0.9, "holds"), (0.89, "fails")])
def test_mean_by_value_is_compared_without_its_interval_which_is_told(bound: float, verdict: str):
    values = [0.1, 0.2, 0.3, 3.0]
    judgement = judge(record_of(values), check(bound=bound, by_value=True))
    assert judgement.verdict == verdict
    assert (judgement.findings[0].low, judgement.findings[0].high) == bootstrap_interval(
        np.asarray(values)
    )
    assert judge(record_of(values), check(bound=bound)).verdict == "undetermined"


@pytest.mark.parametrize("rate", [False, True])
def test_by_value_is_no_way_round_the_other_rules(rate: bool):
    number = check(">=", 0.5, by_value=True, rate=rate)
    assert judge(record_of([1.0] * 4, diverged=[1]), number).verdict == "undetermined"
    few = judge(record_of([1.0, math.nan, math.nan, 1.0]), number)
    assert few.verdict == "undetermined"
    assert few.reason == "error: 2 of 4 seeds do not meet the premise; 2 seeds, 3 needed"
    left_out = judge(record_of([1.0, math.nan, 0.0, 1.0]), number)
    assert left_out.verdict == "holds"
    assert (left_out.findings[0].value, left_out.findings[0].seeds) == (pytest.approx(2 / 3), 3)
    assert judge(record_of([math.nan] * 4), number).verdict == "undetermined"


# -- pooled ----------------------------------------------------------------------------------------


def median(values: np.ndarray) -> float:
    return float(np.median(values))


def pooled(statistic: Callable[..., float] = median, **options) -> Check:
    """A check of one number of all seeds together, the median unless told otherwise."""
    return check(measure=lambda record: over_all_seeds(statistic, end_error(record)), **options)


TIMES = [*np.linspace(8, 12, 20)]


@pytest.mark.parametrize(
    ("comparison", "bound", "by_interval", "by_value"),
    [
        ("<=", 12, "holds", "holds"),
        ("<=", 10.1, "undetermined", "holds"),
        ("<=", 9.9, "undetermined", "fails"),
        ("<=", 8, "fails", "fails"),
        (">", 8, "holds", "holds"),
        (">", 12, "fails", "fails"),
    ],
)
def test_pooled_number_is_judged_by_its_interval_or_by_value(
    comparison: str, bound: float, by_interval: str, by_value: str
):
    judgement = judge(record_of(TIMES), pooled(comparison=comparison, bound=bound))
    finding = judgement.findings[0]
    assert judgement.verdict == by_interval
    assert ("the interval crosses the bound" in judgement.reason) == (by_interval == "undetermined")
    assert (finding.value, finding.seeds) == (pytest.approx(10), 20)
    assert 8 < finding.low < 9.9
    assert 10.1 < finding.high < 12
    assert (
        judge(record_of(TIMES), pooled(comparison=comparison, bound=bound, by_value=True)).verdict
        == by_value
    )


@pytest.mark.parametrize(
    ("never", "verdict"), [(1, "holds"), (9, "undetermined"), (19, "fails"), (20, "fails")]
)
def test_seeds_that_never_got_there_count_in_a_pooled_number(never: int, verdict: str):
    """Of 20 seeds: one does not move a median to infinity, nine may (its interval ends there),
    most do.
    """
    judgement = judge(record_of(TIMES[never:] + [math.inf] * never), pooled(bound=13.0))
    finding = judgement.findings[0]
    assert judgement.verdict == verdict
    assert (math.isinf(finding.value), math.isinf(finding.high)) == (never > 10, never > 1)
    assert finding.seeds == 20
    json.dumps(judgement.plain(), allow_nan=False)


@pytest.mark.parametrize("by_value", [False, True])
def test_pooled_number_that_does_not_exist_is_undetermined(by_value: bool):
    """No seed got there: a ratio of infinite medians is no number."""

    def ratio(values: np.ndarray) -> float:
        return median(values[:, 0]) / median(values[:, 1])

    def measure(record: Record) -> xr.DataArray:
        return over_all_seeds(ratio, xr.concat([end_error(record)] * 2, "arm"))

    judgement = judge(record_of([math.inf] * 20), check(measure=measure, by_value=by_value))
    assert judgement.verdict == "undetermined"
    assert judgement.reason == "error: no number"
    assert math.isnan(judgement.findings[0].value)
    json.dumps(judgement.plain(), allow_nan=False)
    assert judge(record_of(TIMES), check(measure=measure, by_value=by_value)).verdict == "holds"


@pytest.mark.parametrize("by_value", [False, True])
def test_pooled_number_cannot_be_taken_if_a_seed_diverged(by_value: bool):
    judgement = judge(record_of(TIMES, diverged=[4]), pooled(bound=13.0, by_value=by_value))
    assert judgement.verdict == "undetermined"
    assert judgement.reason == "error: seeds diverged"
    assert math.isnan(judgement.findings[0].value)


@pytest.mark.parametrize("by_value", [False, True])
def test_pooled_number_of_too_few_seeds_is_undetermined(by_value: bool):
    judgement = judge(record_of(TIMES), pooled(bound=13.0, seeds=21, by_value=by_value))
    assert judgement.verdict == "undetermined"
    assert judgement.reason == "error: 20 seeds, 21 needed"
    assert (
        judge(record_of(TIMES), pooled(bound=13.0, seeds=20, by_value=by_value)).verdict == "holds"
    )


def test_seeds_of_a_pooled_number_are_those_of_its_smallest_sample():
    record = record_of(TIMES, other=record_of(TIMES[:4]).arm("main"))

    def difference(one: Record) -> xr.DataArray:
        return over_all_seeds(
            lambda first, second: median(first) - median(second),
            end_error(one),
            one.arm("other").end["error"],
        )

    judgement = judge(record, check(measure=difference, bound=9.0, arms=("main", "other"), seeds=5))
    assert judgement.reason == "error: 4 seeds, 5 needed"


@pytest.mark.parametrize(("count", "verdict"), [(20, "fails"), (10, "holds"), (0, "holds")])
def test_chance_that_has_no_interval_is_compared_by_value(count: int, verdict: str):
    """20 of 20 against so many of 20: 10 have a chance of 4e-4 if nothing differs, 20 have 1."""
    record = record_of([1.0] * 20, other=successes(count, 20).arm("main"))

    def chance(one: Record) -> xr.DataArray:
        return fisher_test(end_error(one), one.arm("other").end["error"])

    judgement = judge(record, check("<", 0.05, measure=chance, by_value=True, seeds=20))
    assert judgement.verdict == verdict
    assert judgement.findings[0].seeds == 20
    # By an interval it cannot be judged, and it never fails for want of one.
    unjudged = judge(record, check("<", 0.05, measure=chance, seeds=20))
    assert unjudged.verdict == "undetermined"
    assert unjudged.reason == "error: no interval"


def test_pooled_numbers_of_a_sweep_are_judged_cell_by_cell():
    record = record_of(np.stack([TIMES, np.add(TIMES, 20), TIMES]), sweeps=RATES)
    record.arm("main").trajectory["diverged_at"][2, 5] = 40

    def measure(one: Record) -> xr.DataArray:
        error = end_error(one)
        return xr.concat(
            [over_all_seeds(median, error.sel(rate=rate)) for rate in RATES["rate"]], error["rate"]
        )

    judgement = judge(record, check(measure=measure, bound=13.0))
    assert [verdict for _, verdict, _ in judgement.cells] == ["holds", "fails", "undetermined"]
    assert [findings[0].seeds for _, _, findings in judgement.cells] == [20, 20, 20]
    assert judgement.cells[1][2][0].value == pytest.approx(judgement.cells[0][2][0].value + 20)


@pytest.mark.parametrize(("dim", "size"), [("word", 4), ("seed", 20)])
def test_pooled_number_with_another_dim_is_an_error(dim: str, size: int):
    with pytest.raises(TypeError, match="'error' must give one number a seed"):
        judge(
            record_of(TIMES),
            check(
                measure=lambda one: over_all_seeds(median, end_error(one)).expand_dims({dim: size})
            ),
        )


# -- several checks --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "verdict"),
    [
        ((1.0, 2.0), "holds"),
        ((1.0, 0.2), "undetermined"),
        ((1.0, 0.01), "fails"),
        ((0.2, 0.01), "fails"),
        ((0.01, 0.2), "fails"),
    ],
)
def test_claim_is_as_good_as_its_worst_check(bounds: tuple[float, ...], verdict: str):
    judgement = judge(
        record_of([0.1, 0.2, 0.3]),
        *(check(bound=bound, quantity=f"error {bound}") for bound in bounds),
    )
    assert judgement.verdict == verdict
    assert [finding.quantity for finding in judgement.findings] == [
        f"error {bound}" for bound in bounds
    ]


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
def test_sweep_with_one_verdict_everywhere_has_it(row: int, verdict: str):
    judgement = judge(record_of(np.repeat(SWEPT[[row]], 3, axis=0), sweeps=RATES), check())
    assert judgement.verdict == verdict


def test_two_sweeps_make_a_cell_for_every_pair():
    sweeps = RATES | {"variance": [1.0, 2.0]}
    values = np.stack([SWEPT, SWEPT + 10], axis=1)
    judgement = judge(record_of(values, sweeps=sweeps), check())
    assert [tuple(place.values()) for place, _, _ in judgement.cells] == [
        (rate, variance) for rate in RATES["rate"] for variance in (1.0, 2.0)
    ]
    assert [verdict for place, verdict, _ in judgement.cells if place["variance"] == 2.0] == [
        "fails"
    ] * 3


def test_diverged_seeds_count_in_their_own_cell():
    record = record_of(np.repeat(SWEPT[[0]], 3, axis=0), sweeps=RATES)
    record.arm("main").trajectory["diverged_at"][1, 2] = 40
    judgement = judge(record, check(every_seed=True))
    assert [verdict for _, verdict, _ in judgement.cells] == ["holds", "fails", "holds"]


def test_check_that_was_not_swept_counts_in_every_cell():
    record = record_of(SWEPT, sweeps=RATES, plain=record_of([0.1, 0.2, 0.3]).arm("main"))
    unswept = check(measure=lambda record: record.arm("plain").end["error"], arms=("plain",))
    judgement = judge(record, check(), unswept)
    assert all(finding.seeds == 3 for finding in judgement.findings)
    assert [verdict for _, verdict, _ in judgement.cells] == ["holds", "undetermined", "fails"]


# -- what is refused -------------------------------------------------------------------------------


def test_measure_without_seeds_is_an_error():
    with pytest.raises(TypeError, match="one number a seed"):
        judge(
            record_of([0.1, 0.2, 0.3]), check(measure=lambda record: end_error(record).mean("seed"))
        )


def test_measure_with_more_than_one_number_a_seed_is_an_error():
    with pytest.raises(TypeError, match="one number a seed"):
        judge(
            record_of([0.1, 0.2, 0.3]),
            check(measure=lambda record: end_error(record).expand_dims(word=4)),
        )


def test_unknown_comparison_is_refused():
    with pytest.raises(ConfigError, match=r"comparison: got '==', allowed: <=, <, >=, >"):
        check("==")


@pytest.mark.parametrize("expected", ["fails", "undetermined"])
def test_expected_failure_needs_a_reason(expected: str):
    with pytest.raises(ConfigError, match=f"claim A-1: expected='{expected}' without a reason"):
        claim(check(), expected=expected)
    judgement = claim(check(bound=0.01), expected="fails", reason="the text leaves it out").judge(
        record_of([0.1, 0.2, 0.3])
    )
    assert judgement.as_expected
    assert not judge(record_of([0.1, 0.2, 0.3]), check(bound=0.01)).as_expected


def test_claim_without_checks_is_refused():
    with pytest.raises(ConfigError, match="A-1"):
        claim()


# -- plain -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        record_of([0.1, 0.2, 0.3]),
        record_of([math.nan] * 3),
        record_of([0.1], [0]),
        record_of(SWEPT, sweeps=RATES),
    ],
    ids=["plain", "no numbers", "diverged", "swept"],
)
def test_plain_judgement_is_json_without_nan(record: Record):
    judgement = judge(record, check())
    plain = json.loads(json.dumps(judgement.plain(), allow_nan=False))
    assert plain["verdict"] == judgement.verdict
    assert plain["claim"] == "A-1"
    finding = judgement.findings[0]
    assert plain["findings"][0]["value"] == (None if math.isnan(finding.value) else finding.value)
    assert len(plain["cells"]) == len(judgement.cells)


def test_members_that_diverged_elsewhere_do_not_count():
    """An arm's own sweep: a check about one value is blind to a member that was lost at another."""
    lost = xr.DataArray(
        [[-1, -1, -1], [5, -1, -1]],
        dims=("rate", "seed"),
        coords={"rate": [0.1, 1.0], "seed": [0, 1, 2]},
    )
    values = xr.DataArray(
        np.zeros((2, 3, 1)), dims=("rate", "seed", "step"), coords={**lost.coords, "step": [0]}
    )
    arm = Arm(xr.Dataset({"loss": values, "diverged_at": lost}), xr.Dataset(), xr.Dataset())
    record = Record("study", "custom", {}, {"swept_1": arm}, {}, "cpu", "float32", 0.0)

    def at(rate: float, arms: tuple[str, ...] = ("swept_*",)) -> str:
        check = Check(
            "loss",
            lambda one: one.arm("swept_1").end["loss"].sel(rate=rate, drop=True),
            "<=",
            0.0,
            arms,
            every_seed=True,
            where={"rate": rate},
        )
        return Claim("A-1", "a statement", "a source", (check,), "none").judge(record).verdict

    assert at(0.1) == "holds"
    assert at(1.0) == "fails"
    assert at(0.1, ("other_*",)) == "undetermined"


def test_a_number_of_all_seeds_may_bring_its_interval():
    def measure(value: float):
        return lambda _: xr.DataArray(
            [value], dims="resample", attrs={"seeds": 3, "interval": (-0.2, 0.4)}
        )

    (finding,) = judge(record_of([0.1, 0.2, 0.3]), check(">", 0.0, measure=measure(0.1))).findings
    assert (finding.value, finding.low, finding.high, finding.verdict) == (
        0.1,
        -0.2,
        0.4,
        "undetermined",
    )
    assert (
        judge(
            record_of([0.1, 0.2, 0.3]), check(">", 0.0, measure=measure(0.1), by_value=True)
        ).verdict
        == "holds"
    )
    assert (
        judge(record_of([0.1, 0.2, 0.3]), check(">", 0.5, measure=measure(0.1))).verdict == "fails"
    )


def test_a_record_below_the_full_size_is_undetermined_and_expected_to_be():
    small = record_of([0.1, 0.2, 0.3])
    small = dataclasses.replace(small, config={**small.config, "length": 8})
    large = dataclasses.replace(small, config={**small.config, "length": 40})
    sized = claim(
        check(), full_size=(lambda config: config["length"] >= 40, "sequences of 40 words")
    )
    judged = sized.judge(small)
    assert judged.verdict == "undetermined"
    assert judged.as_expected
    assert sized.expected_reason(judged) == "this claim needs sequences of 40 words"
    assert judged.findings == sized.judge(large).findings, "what there is, is told"
    assert sized.judge(large).verdict == "holds"
    failing = claim(check(bound=0.0), full_size=sized.full_size)
    assert not failing.judge(large).as_expected
