"""Li's studies: premises, and settings that are refused."""

import pytest
from every_record import RECORDS
from record_parts import altered, change, judged

from saccade.core.errors import ConfigError
from saccade.registry import find_study


def test_attention_that_never_moves_has_no_stages():
    """Exactly at 0 keys and queries stay where they are: a displacement of 0 has no share."""
    still = change("sgd_squared", "displacement", lambda way: way.where(way["part"] == "values", 0))
    verdicts = judged(still(RECORDS["topics_two_stage"]()))
    assert verdicts["B-9"].verdict == verdicts["B-12"].verdict == "undetermined"
    assert "do not meet the premise" in verdicts["B-9"].reason


@pytest.mark.parametrize(
    ("study", "changed", "reason"),
    [
        ("topics_optima", {"topics_per_document": 5}, r"got 5, allowed: fewer than the 5 topics"),
        ("topics_optima", {"topics_per_document": 7}, r"got 7, allowed: at most the 5 topics"),
        ("topics_optima", {"kept": 0.6, "replaced": 0.5}, r"got 0\.6 \+ 0\.5, allowed: at most 1"),
        ("topics_optima", {"selected": 0.0}, r"got 0\.0, allowed: above 0 and at most 1"),
        ("topics_two_stage", {"steps": 999}, r"got 999, allowed: at least 1000, where stage 1"),
        ("topics_two_stage", {"squared_steps": 500}, r"got 500, allowed: at least 1000"),
        ("topics_attention", {"fast_rate": 0.0}, r"got 0\.0, allowed: a finite number above 0"),
    ],
)
def test_an_impossible_setting_is_refused_with_its_reason(study, changed, reason):
    with pytest.raises(ConfigError, match=rf"{next(iter(changed))}.*: {reason}"):
        altered(find_study(study).config("quick"), **changed)
