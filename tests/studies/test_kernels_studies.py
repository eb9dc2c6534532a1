"""Song's studies: premises, and settings that are refused."""

import dataclasses

import pytest
from every_record import RECORDS
from record_parts import at_end, change, diverge, judged, plus

from saccade.errors import ConfigError
from saccade.registry import find_study

VARIANTS = {"D-1b", "D-2b", "D-3b", "D-3c", "D-3d"}
EVERY = {"D-1", "D-2", "D-3", "D-4"} | VARIANTS


@pytest.mark.parametrize(
    ("changed", "unanswered", "reason"),
    [
        ({"step_share": 2.5}, EVERY, "a step of 2.5 times the largest that the theory allows"),
        ({"sequences": 100}, {"D-1", "D-3", "D-3b", "D-3c"}, "no size with HD >= Nn was run"),
        ({"sequences": 1, "positions": 2}, {"D-2", "D-2b", "D-4"}, "no size with HD < Nn was run"),
        ({"heads": (3,)}, VARIANTS, "arm softmax_"),
    ],
    ids=["step", "few features", "many features", "heads"],
)
def test_kernels_beyond_the_premise_are_not_judged(changed, unanswered, reason):
    record = RECORDS["kernels_convergence"]()
    verdicts = judged(dataclasses.replace(record, config={**record.config, **changed}))
    assert {name for name, one in verdicts.items() if one.verdict == "undetermined"} >= unanswered
    for claim in unanswered:
        assert reason in verdicts[claim].reason
        assert verdicts[claim].findings == ()


@pytest.mark.parametrize(
    ("claim", "arm"), [("D-1b", "softmax_values_4"), ("D-3b", "gaussian_all_1")]
)
def test_a_seed_that_diverged_with_other_heads_keeps_no_bound_either(claim, arm):
    """Theorem 1 is about all sizes that were run: a seed that diverged in one of them refutes the
    bound for it.
    """
    assert judged(diverge(arm)(RECORDS["kernels_convergence"]()))[claim].verdict == "fails"


def test_a_run_that_is_too_short_for_the_specified_steps_is_not_judged_by_them():
    record = RECORDS["kernels_convergence"]()
    arms = {name: arm.at_steps(slice(0, 3000)) for name, arm in record.arms.items()}
    verdicts = judged(dataclasses.replace(record, arms=arms))
    for claim in EVERY - VARIANTS:
        assert verdicts[claim].verdict == "undetermined"
        assert "steps were run, 4,000 are specified" in verdicts[claim].reason
    assert verdicts["D-1b"].verdict == "holds"


def test_values_that_reach_no_target_say_nothing_about_the_theorem():
    """D-5 counts targets that cannot be reached, as it is specified; D-5b is about the others, and
    without any it has no verdict.
    """
    far = at_end("gaussian_keys", "reach_floor", plus(0.2))(RECORDS["kernels_stationary"]())
    far = change("gaussian_keys", "loss", lambda values: values.clip(min=0.21))(far)
    verdicts = judged(far)
    assert verdicts["D-5"].verdict == "fails"
    assert verdicts["D-5b"].verdict == "undetermined"
    assert "5 of 5 seeds have no number" in verdicts["D-5b"].reason
    assert verdicts["D-5c"].verdict == "holds"


@pytest.mark.parametrize(
    ("study", "changed", "reason"),
    [
        ("kernels_convergence", {"heads": ()}, r"got \(\), allowed: one or more whole numbers"),
        ("kernels_convergence", {"step_share": -0.5}, r"got -0\.5, allowed: a finite number above"),
        ("kernels_stationary", {"cells": 1}, "got 1, allowed: a whole number, at least 2"),
        ("kernels_stationary", {"largest_scale": 0.001}, r"got 0\.001, allowed: above the least"),
    ],
)
def test_an_impossible_setting_is_refused_with_its_reason(study, changed, reason):
    with pytest.raises(ConfigError, match=f"{next(iter(changed))}: {reason}"):
        dataclasses.replace(find_study(study).config("quick"), **changed)
