"""Snell's studies: premises, and arms that were not run."""

import pytest
from every_record import RECORDS
from record_parts import at, change, fails_until, judged, set_to, times, without

from saccade.registry import find_study


@pytest.mark.parametrize("missing", ["one_good", "all_bad"])
def test_heads_that_were_not_found_leave_nothing_to_be_judged(missing):
    """A search may end without enough good or bad heads: their models are then not run."""
    record = without(RECORDS["ktiw_multihead"](), missing)
    verdicts = judged(record)
    undetermined = dict.fromkeys(("C-9", "C-9c", "C-9d", "C-9e"), "undetermined")
    expected = undetermined | {"C-9b": "holds"}
    assert {claim: judgement.verdict for claim, judgement in verdicts.items()} == expected
    found = "20 good and 60 bad heads among 80 tried"
    assert f"arm {missing} was not run: {found}" in verdicts["C-9"].reason
    _, curves, _ = find_study("ktiw_multihead").drawn(record)
    assert len(curves.panels) == 2
    assert "Too few heads were found for" in curves.caption


def test_runs_that_all_succeed_early_say_nothing_about_late_ones():
    early = change("by_words", "test_accuracy", fails_until(50))(RECORDS["ktiw_copying"]())
    judgement = judged(early)["C-4d"]
    assert judgement.verdict == "undetermined"
    assert "20 of 20 seeds have no number, left out" in judgement.reason


def test_runs_that_never_succeed_are_infinitely_late():
    """Permutations that are never copied take longer; if the larger set never is, either, there is
    no ratio.
    """
    never = change("by_words", "test_accuracy", at(set_to(0.3), words=40))
    record = never(RECORDS["ktiw_copying"]())
    judgement = judged(record)["C-5"]
    assert judgement.verdict == "holds"
    assert judgement.plain()["findings"][0]["value"] is None, "JSON has no infinity"
    lost = change("by_words", "test_accuracy", times(0))(record)
    assert judged(lost)["C-5"].verdict == "undetermined"
