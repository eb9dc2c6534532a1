"""The comparison of two records: the rule in closed form, what it marks, and what it refuses."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest
import xarray as xr
from browser import examined
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from saccade.core.adaptive import MapAxis
from saccade.core.adaptive_map import AdaptiveMap
from saccade.errors import ConfigError
from saccade.judging.statistics import Finding, t_interval
from saccade.records.record import Record
from saccade.report.comparison import Comparison, compared, difference
from saccade.report.comparison_page import render_comparison, write_comparison
from saccade.report.page import LIMIT


def finding(value: float, low: float = math.nan, high: float = math.nan, seeds: int = 5) -> Finding:
    return Finding("error", "<= 1", "holds", value, low, high, seeds)


def edited(record: Record, arm: str = "plain", **changes: xr.DataArray) -> Record:
    """The record with some variables of an arm replaced."""
    old = record.arms[arm]
    new = dataclasses.replace(old, trajectory=old.trajectory.assign(changes))
    return dataclasses.replace(record, arms={**record.arms, arm: new})


def scaled(record: Record, factor: float) -> Record:
    return edited(record, error=record.arms["plain"].trajectory["error"] * factor)


# -- the rule --------------------------------------------------------------------------------------


def test_half_widths_add_as_the_root_of_the_sum_of_squares():
    found = difference(finding(10, 7, 13), finding(16, 12, 20))
    assert (found.value, found.low, found.high) == (6, 1, 11)
    assert (found.outcome, found.apart) == ("exceeds", False), "the intervals overlap"
    assert found.size == 6 / 5


def test_each_end_takes_the_sides_on_which_it_lies():
    found = difference(finding(10, 9, 13), finding(20, 16, 32))
    assert found.low == 10 - math.hypot(4, 3)
    assert found.high == 10 + math.hypot(12, 1)


@pytest.mark.parametrize(
    ("second", "outcome", "apart"),
    [
        (finding(1.0, 0.9, 1.1), "within", False),
        (finding(1.14, 1.04, 1.24), "within", False),
        (finding(1.15, 1.05, 1.25), "exceeds", False),
        (finding(1.21, 1.11, 1.31), "exceeds", True),
        (finding(0.85, 0.75, 0.95), "exceeds", False),
        (finding(1.0, 1.0, 1.0), "within", False),
    ],
)
def test_the_limit_is_the_square_root_of_two_half_widths(second, outcome, apart):
    found = difference(finding(1.0, 0.9, 1.1), second)
    assert (found.outcome, found.apart) == (outcome, apart)


def test_the_rule_is_wider_than_welch_for_equal_numbers_of_seeds():
    random = np.random.default_rng(0)
    for spread in (1.0, 3.0):
        a, b = random.normal(0, 1, 6), random.normal(0, spread, 6)
        found = difference(*(finding(one.mean(), *t_interval(one)) for one in (a, b)))
        exact = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
        assert found.low <= exact.low
        assert found.high >= exact.high
        assert found.value == pytest.approx((exact.low + exact.high) / 2)


@pytest.mark.parametrize("seeds", [5, 32])
def test_equal_laws_exceed_in_at_most_one_case_of_twenty(seeds):
    """2,000 pairs; three standard errors of a share of 0.05 are 0.015."""
    samples = np.random.default_rng(1).normal(3.0, 0.5, (2000, 2, seeds))
    found = [difference(*(finding(x.mean(), *t_interval(x)) for x in pair)) for pair in samples]
    share = np.mean([one.outcome == "exceeds" for one in found])
    assert 0.01 < share < 0.065


edges = st.tuples(st.floats(-1e3, 1e3), st.floats(0, 1e3), st.floats(0, 1e3))


@given(edges, edges)
def test_intervals_apart_always_exceed_and_the_order_does_not_matter(one, other):
    a, b = (finding(value, value - down, value + up) for value, down, up in (one, other))
    found, turned = difference(a, b), difference(b, a)
    if a.high < b.low or b.high < a.low:
        assert found.apart
        assert found.outcome == "exceeds"
    assert (found.outcome, found.apart) == (turned.outcome, turned.apart)
    assert (found.value, found.low, found.high) == (-turned.value, -turned.high, -turned.low)
    assert difference(a, a).outcome == "within"


@pytest.mark.parametrize(
    ("a", "b", "reason"),
    [
        (finding(1.0, seeds=0), finding(2.0, seeds=0), "A and B have no interval"),
        (finding(1.0), finding(1.0), "A and B have no interval; the numbers are equal"),
        (finding(1.0, 0.9, 1.1), finding(2.0, seeds=1), "B has no interval"),
        (finding(math.nan), finding(2.0, 1.9, 2.1), "A has no finite number"),
        (finding(1.0, 0.9, 1.1), finding(math.inf, 3, math.inf), "B has no finite number"),
    ],
)
def test_numbers_without_an_interval_cannot_be_compared(a, b, reason):
    found = difference(a, b)
    assert (found.outcome, found.reason) == ("cannot be compared", reason)
    assert not found.apart
    assert found.size == 0


def test_an_end_at_infinity_is_an_end_of_the_difference():
    found = difference(finding(1, 0.9, 1.1), finding(5, 4, math.inf))
    assert (found.outcome, found.high) == ("exceeds", math.inf)


# -- records ---------------------------------------------------------------------------------------


def of(first: Record, second: Record, study, **rest) -> Comparison:
    return compared((study, first), (study, second), **rest)


def test_a_record_does_not_differ_from_itself(study, record):
    found = of(record, record, study)
    assert found.count("exceeds") == found.apart == 0
    assert not found.other_verdicts
    assert (found.settings, found.versions, found.alone) == ((), (), ())
    assert not any(pair.differs for pair in found.facts)
    assert [one.standardised for one in found.trajectories.variables] == [0, 0]
    assert found.trajectories.exceeding == 0


def test_an_edited_record_is_marked_where_it_was_edited(study, record):
    found = of(record, scaled(record, 3.0), study)
    marked = {claim.id for claim in found.claims for one in claim.checks if one.difference.apart}
    assert marked == {"A-10", "A-2", "A-3"}, "the checks of the arm `plain`"
    assert found.other_verdicts == ["A-10 (holds, fails)"]
    (most, other) = found.trajectories.variables
    assert (most.arm, most.variable, most.exceeds) == ("plain", "error", True)
    assert (other.arm, other.exceeds) == ("wild", False)
    values = [2.0 * record.arms["plain"].end["error"].mean().item()]
    assert most.second - most.first == pytest.approx(values[0])


def test_a_small_edit_is_within_the_intervals(study, record):
    found = of(record, scaled(record, 1.01), study)
    assert found.count("exceeds") == 0
    assert found.trajectories.exceeding == 0


def test_settings_versions_and_facts_that_differ_are_named(study, record):
    config = {**record.config, "rate": 0.2, "optimiser": {"momentum": 0.9, "decay": 0.1}}
    other = dataclasses.replace(record, config=config, versions={"jax": "0.11.0"}, device="GPU")
    found = of(record, other, study)
    assert {pair.name: pair.texts for pair in found.settings} == {
        "rate": ("0.1", "0.2"),
        "optimiser.decay": ("absent", "0.1"),
    }
    assert [pair.name for pair in found.versions] == ["saccade", "jax"]
    assert [pair.name for pair in found.facts if pair.differs] == ["device"]


def test_close_settings_are_shown_with_all_digits(study, record):
    other = dataclasses.replace(record, config={**record.config, "rate": 0.1 + 1e-9})
    (pair,) = of(record, other, study).settings
    assert pair.texts[0] != pair.texts[1]


def test_shared_seeds_and_chance_are_said(study, record):
    found = of(record, record, study)
    assert found.shared_seeds == "5 in plain, wild"
    assert "not independent" in " ".join(found.summary())
    assert found.by_chance == pytest.approx(0.05 * found.compared)
    assert f"about {found.by_chance:.2g} of {found.compared} would exceed" in " ".join(
        found.summary()
    )
    moved = {
        name: dataclasses.replace(
            arm, trajectory=arm.trajectory.assign_coords(seed=np.arange(5) + 100)
        )
        for name, arm in record.arms.items()
    }
    apart = of(record, dataclasses.replace(record, arms=moved), study)
    assert apart.shared_seeds == ""
    assert apart.facts[1].texts == ("5 (0 to 4)", "5 (100 to 104)")


def test_claims_checks_arms_and_variables_of_one_record_are_listed(study, record):
    fewer = dataclasses.replace(study, claims=study.claims[1:])
    more = edited(record, extra=record.arms["plain"].trajectory["error"])
    less = dataclasses.replace(more, arms={"plain": more.arms["plain"]})
    found = compared((study, record), (fewer, less))
    assert found.alone == ("A-10 (only A)",)
    assert found.trajectories.alone == ("wild (only A)", "plain: extra (only B)")
    claims = {claim.id: claim for claim in found.claims}
    (alone,) = claims["A-1"].alone
    assert re.fullmatch(r"relative error: 0\.0109 \[.*\]; 4 of 5 seeds, .* \(only A\)", alone)
    assert claims["A-1"].notes == (
        "undetermined in B: premise not met: arm wild was not run (the record has plain)",
    )


def test_variables_of_other_shape_are_named_with_the_reason(study, record):
    trajectory = record.arms["plain"].trajectory
    wide = {"words": trajectory["error"].expand_dims(word=[1, 2, 3])}
    a = edited(record, **wide)
    for values, why in (
        ({"word": [0, 1]}, "3 places along word in A, 2 in B"),
        ({"word": [1, 2, 4]}, "other values of word"),
        ({"topic": [1, 2, 3]}, "dims word, seed, step in A, topic, seed, step in B"),
    ):
        b = edited(record, words=trajectory["error"].expand_dims(values))
        assert of(a, b, study).trajectories.incomparable == (("plain, words", why),)
    later = trajectory.assign_coords(step=trajectory["step"] + 1)
    arms = {"plain": dataclasses.replace(record.arms["plain"], trajectory=later)}
    none = of(record, dataclasses.replace(record, arms=arms), study).trajectories
    assert none.incomparable == (("plain, error", "no step that both measured"),)


def test_the_largest_difference_in_standard_errors_is_found(study, record):
    """Welch's statistic by SciPy, at the one step and word that was moved."""
    values = np.random.default_rng(0).normal(5.0, 1.0, (2, 5, 3, 4))
    values[1, :, 2, 3] += 30
    dims = ("seed", "step", "word")
    sides = [edited(record, words=xr.DataArray(one, dims=dims)) for one in values]
    found = of(sides[0], sides[1], study).trajectories.variables[0]
    assert (found.variable, found.step, found.at, found.numbers) == ("words", 20, {"word": 3}, 12)
    wanted, _ = stats.ttest_ind(values[1, :, 2, 3], values[0, :, 2, 3], equal_var=False)
    # The rounding of a compact record adds (35 / 16384)^2 to the square of an error of 0.6.
    assert found.standardised == pytest.approx(wanted, rel=1e-5)
    assert found.p_value == pytest.approx(2 * stats.t.sf(wanted, 4), rel=1e-4)
    assert found.exceeds


def test_rounding_is_no_difference_where_no_seed_varies(study, record):
    ones = xr.ones_like(record.arms["plain"].trajectory["error"])
    sides = [edited(record, error=ones * value) for value in (1.0, 1 + 2e-5)]
    assert of(sides[0], sides[1], study).trajectories.exceeding == 0
    sides = [edited(record, error=ones * value) for value in (1.0, 1.1)]
    assert of(sides[0], sides[1], study).trajectories.exceeding == 1


def test_noise_exceeds_nowhere_although_thousands_of_numbers_are_compared(study, record):
    random = np.random.default_rng(2)
    dims = ("seed", "step", "word")
    sides = [
        edited(record, words=xr.DataArray(random.normal(0, 1, (5, 3, 2000)), dims=dims))
        for _ in range(2)
    ]
    found = of(sides[0], sides[1], study).trajectories
    assert found.numbers == 6006
    assert abs(found.variables[0].standardised) > 4, "one of thousands is large by chance"
    assert found.exceeding == 0


def test_cells_of_a_sweep_are_compared_one_by_one(swept_study, swept_record):
    other = edited(swept_record)
    values = other.arms["plain"].trajectory["error"].copy()
    values[2, 6] += 5
    found = of(swept_record, edited(swept_record, error=values), swept_study)
    (claim,) = found.claims
    assert len(claim.checks) == 42
    assert found.count("exceeds") == 2
    rows = claim.rows()
    assert [text for _, text in rows] == ["1 of 21 cells; shown at rate = 0.05, variance = 0.5"] * 2


def test_other_studies_and_maps_are_refused(study, record, swept_study, swept_record):
    with pytest.raises(
        ConfigError, match=r"study: got example \(A\) and swept \(B\), allowed: two"
    ):
        compared((study, record), (swept_study, swept_record))
    x, y = (MapAxis(name, 0.0, 1.0, "linear") for name in ("rate", "words"))
    mapped = dataclasses.asdict(AdaptiveMap("A-2", x, y))
    other = dataclasses.replace(record, config={**record.config, "adaptive-map": mapped})
    with pytest.raises(ConfigError, match="B: got a map, whose cells are its own, allowed"):
        compared((study, record), (study, other))


def test_stored_verdicts_are_compared_and_named(unknown):
    first = unknown[0]
    found = compared(first, first)
    assert found.count("exceeds") == 0
    assert found.compared > 0
    assert found.stored == ("runs/example.nc: the study 'example' is not installed",)


def test_json_has_everything_and_no_nan(study, record):
    plain = of(record, scaled(record, 3), study, files=("a.nc", "b.nc")).plain()
    again = json.loads(json.dumps(plain, allow_nan=False))
    assert again["files"] == ["a.nc", "b.nc"]
    assert again["counts"]["exceed"] == 4
    assert again["rules"]["checks"].startswith("Numbers have 95 % intervals")
    assert {"settings", "versions", "facts", "claims", "trajectories"} <= set(again)


# -- the page --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def both(study, record):
    return (study, record), (study, dataclasses.replace(scaled(record, 3), preset="paper"))


def test_the_page_is_offline_light_and_marks_by_words(both):
    page = render_comparison(compared(*both), *both)
    own = re.sub(r"<script>\(function \(\) \{.*?\n\}\)\(\);</script>", "", page, flags=re.DOTALL)
    assert len(page.encode()) < LIMIT
    assert "http" not in own
    assert "<script>alert" not in page
    assert own.count('class="specification"') == 6, "three figures of two records"
    marks = own.split("Claims and checks")[1].split("Trajectories")[0]
    assert marks.count("≠</span> differs") == 4
    assert marks.count("≠</span> verdict") == 1
    assert "would exceed by chance" in own
    assert "cannot be compared" in own


def test_figures_of_one_record_are_shown_beside_a_note(study, record):
    less = dataclasses.replace(study, figures=lambda arms, config: [])
    sides = (study, record), (less, record)
    page = render_comparison(compared(*sides), *sides)
    assert page.count("This record has no such figure.") == 3
    without = render_comparison(compared(sides[1], sides[1]), sides[1], sides[1])
    assert len(without) < 60_000, "no libraries"


def test_figures_that_fail_are_named(study, record, capsys):
    broken = dataclasses.replace(study, figures=lambda arms, config: [arms["missing"]])
    sides = (study, record), (broken, record)
    page = render_comparison(compared(*sides), *sides)
    assert "B: figures left out: KeyError" in page
    assert capsys.readouterr().err.startswith("saccade: B: figures left out: KeyError")


OVERFLOW = """
  const root = page.documentElement;
  await until(() => root.dataset.charts);
  const out = Array.from(page.querySelectorAll("main *")).filter((one) =>
    !one.closest(".chart") && one.getBoundingClientRect().right > root.clientWidth + 0.5);
  const cut = Array.from(page.querySelectorAll("td, th, .differs, .badge")).filter((one) =>
    one.clientWidth && one.scrollWidth > one.clientWidth + 1);
  const texts = [...out, ...cut].map((one) => one.textContent);
  return [root.dataset.charts, root.scrollWidth - root.clientWidth, ...texts];
"""


@pytest.mark.browser
@pytest.mark.parametrize("width", [400, 800, 1300])
def test_nothing_overflows_and_every_chart_is_drawn(both, width, tmp_path):
    page = tmp_path / "compare.html"
    first, second = both
    write_comparison(compared(first, second), first, second, page)
    assert examined(page, OVERFLOW, width) == ["drawn", 0]


def test_members_that_are_lost_are_a_fact(study, record):
    def lost(first: Record, second: Record) -> tuple[str, str] | None:
        facts = compared((study, first), (study, second)).facts
        pairs = {one.name: (one.first, one.second) for one in facts}
        return pairs.get("members diverged or not trained")

    assert lost(record, record) == ("wild: 1", "wild: 1")
    arms = {
        name: dataclasses.replace(arm, trajectory=arm.trajectory.drop_vars("diverged_at"))
        for name, arm in record.arms.items()
    }
    none = dataclasses.replace(record, arms=arms)
    assert lost(none, none) is None
    assert lost(none, record) == ("none", "wild: 1")
