"""Numbers are written the same everywhere."""

import dataclasses
import math

import pytest
import xarray as xr

from saccade.judging.statistics import Finding
from saccade.records.record import Arm
from saccade.report.formatting import diverged_members, measured, natural, number, ticks


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0046, "0.0046"),
        (1.23456, "1.23"),
        (-0.0, "0"),
        (5000, "5000"),
        (123456, "123000"),
        (999.9, "1000"),
        (1.5e7, "1.5e+07"),
        (1.234e-6, "1.23e-06"),
        (math.nan, "n/a"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
    ],
)
def test_number(value: float, text: str):
    assert number(value) == text


def test_measured_has_its_interval():
    assert (
        measured(Finding("q", "<= 1", "holds", 0.0046, 0.0045, 0.0047, 5))
        == "0.0046 [0.0045, 0.0047]"
    )
    assert (
        measured(Finding("q", "<= 1", "undetermined", 0.0046, math.nan, math.nan, 1))
        == "0.0046 [no interval]"
    )
    assert measured(Finding("q", "<= 1", "undetermined", math.nan, math.nan, math.nan, 0)) == "n/a"


def test_a_number_that_no_seed_enters_has_no_interval():
    finding = Finding("q", "<= 1, no seed enters", "holds", 0.0046, math.nan, math.nan, 0)
    assert measured(finding) == "0.0046"


@pytest.mark.parametrize(
    ("kept", "judged", "share"),
    # Closed form: a share r gives no failure in n seeds with chance r^n, which is 0.025 at the
    # bound, and at least one success with chance 1 - (1 - r)^n.
    [
        (5, 5, 0.025 ** (1 / 5)),
        (32, 32, 0.025 ** (1 / 32)),
        (0, 5, 0),
        (1, 5, 1 - 0.975 ** (1 / 5)),
    ],
)
def test_where_every_seed_must_keep_the_bound_it_is_counted_how_many_do(kept, judged, share):
    finding = Finding("q", "<= 1", "fails", 0.5, 0.4, 0.6, judged, "", kept, judged)
    assert measured(finding) == f"0.5 [0.4, 0.6]; {kept} of {judged} seeds, share >= {share:.2f}"


def test_natural_order():
    assert sorted(["B-1", "A-10", "A-2", "A-2b", "AB"], key=natural) == [
        "A-2",
        "A-2b",
        "A-10",
        "AB",
        "B-1",
    ]


def test_tick_labels_stay_different():
    assert ticks([0.1, 1, "softmax"]) == ["0.1", "1", "softmax"]
    assert ticks([1.00000001, 1.00000002]) == ["1.00000001", "1.00000002"]


def test_diverged_members_are_named(record, swept_record):
    assert diverged_members(record) == ["wild: 1 of 5 members diverged (seed 3 at step 40)"]
    assert diverged_members(swept_record) == []


def test_members_that_diverged_in_bfloat16_get_an_advice(record):
    wild = record.arms["wild"]
    said = wild.trajectory.assign_attrs(attention_form="fused, in bfloat16")
    arms = {"wild": dataclasses.replace(wild, trajectory=said), "plain": record.arms["plain"]}
    (sentence,) = diverged_members(dataclasses.replace(record, arms=arms))
    assert sentence.endswith("; attention was in bfloat16: try fused=False, in float32")
    assert "bfloat16" not in diverged_members(record)[0]


def test_an_arm_of_theory_alone_has_no_members(record):
    theory = Arm.of_prediction(xr.Dataset({"error": 0.01}), "Theorem 1")
    assert diverged_members(dataclasses.replace(record, arms={"theory": theory})) == []
