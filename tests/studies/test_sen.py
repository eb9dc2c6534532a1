"""Lu's studies: premises, missing arms, and a sweep that breaks the premises in training."""

import dataclasses

import numpy as np
import pytest
from every_record import RECORDS, assert_alike
from record_parts import PARTS, altered, change, judged, plus, times, without

from saccade.core.figure import HeatMap, Line
from saccade.core.lab import Lab
from saccade.core.record import Record
from saccade.registry import find_study


def sound(study: str) -> Record:
    return RECORDS[study]()


def test_premises_that_a_record_cannot_answer_are_named():
    record = sound("sen")
    short = {**record.config, "long_steps": record.config["steps"]}
    judgement = judged(dataclasses.replace(record, config=short))["A-4"]
    assert judgement.verdict == "undetermined"
    assert "long_steps" in judgement.reason
    judgement = judged(without(record, "by_rate", "by_std"))["A-8"]
    assert judgement.verdict == "undetermined"
    assert "by_rate was not run" in judgement.reason


@pytest.mark.parametrize(
    ("arm", "resting"),
    [
        ("FC_lemma2", {"A-7b"}),
        ("FC_theorem2", {"A-4c"}),
        ("by_rate", {"A-8"}),
        ("TL", {"A-1", "A-2", "A-3", "A-4b", "A-5", "A-6", "A-7"}),
    ],
)
def test_a_record_without_an_arm_is_judged_as_undetermined(arm, resting):
    """A sweep leaves out the arms of theory: claims about them have no verdict, all others have."""
    verdicts = judged(without(sound("sen"), arm))
    assert {name for name, one in verdicts.items() if one.verdict == "undetermined"} == resting


def test_scores_that_never_rise_leave_the_gap_undetermined():
    """The gap to corollary 1 is measured above a score of 0.05: a run too short to get there says
    nothing.
    """
    flat = change("FC TC TL by_rate by_std", "score", times(0.001))
    verdicts = judged(flat(sound("sen")))
    assert {verdicts[claim].verdict for claim in ("A-2", "A-3", "A-6", "A-8")} == {"undetermined"}


def test_arms_that_never_converge_are_infinitely_late():
    """KF and EF that never converge: TC is before them. All never: no verdict."""
    never = change("KF EF", "loss", plus(1))(sound("sen_synergy"))
    assert judged(never)["A-9"].verdict == "holds"
    assert judged(never)["A-9"].plain()["findings"][0]["value"] is None, "JSON has no infinity"
    assert judged(change("TC", "loss", plus(1))(never))["A-9"].verdict == "undetermined"


# -- premises broken in training -------------------------------------------------------------------

STDS, LEAKS = (1e-3, 1.0), (0.0, 0.5)


@pytest.fixture(scope="module")
def broken(lab: Lab) -> Record:
    """A small `sen` over initial values (theorem 1 wants small ones) and leaks (and topic words in
    no other place).
    """
    study = find_study("sen")
    sizes = {"topics": 2, "words_per_topic": 1, "filler_size": 10, "dictionary_size": 1500}
    sizes |= {"train_size": 100, "test_size": 20, "dimension": 4, "seeds": 5}
    config = altered(study.config("quick"), **sizes, rate=0.15, steps=400, long_steps=400)
    return study.run(study.swept(config, {"embedding_std": STDS, "leak": LEAKS}), lab)


@pytest.mark.slow
@pytest.mark.parametrize("claim", ["A-2", "A-3", "A-6"])
def test_leaks_and_large_starts_refute_the_relation_of_score_and_norm(claim, broken):
    judgement = judged(broken)[claim]
    cells = {(at["embedding_std"], at["leak"]): verdict for at, verdict, _ in judgement.cells}
    assert cells.pop((1e-3, 0.0)) == "holds"
    assert set(cells.values()) == {"fails"}
    assert judgement.verdict == "undetermined"
    assert "holds in 1, fails in 3" in judgement.reason


@pytest.mark.slow
def test_a_swept_record_is_judged_drawn_and_kept(broken, tmp_path):
    study = find_study("sen")
    gaps, claims = study.drawn(broken)
    assert len(gaps.panels) == 3
    (cells,) = gaps.panels[0].marks
    assert isinstance(cells, HeatMap)
    assert cells.value.shape == (2, 2)
    assert claims.name == "sen_claims"
    verdicts = judged(broken)
    assert set(verdicts) == {claim.id for claim in study.claims}
    assert verdicts["A-8"].verdict == "undetermined", "two values are no sweep for A-8"
    theory = {verdicts[claim].verdict for claim in ("A-7b", "A-4c")}
    assert theory == {"undetermined"}, "a sweep has no arms of theory"
    broken.save(tmp_path / "record.nc")
    again = judged(Record.open(tmp_path / "record.nc"))
    for claim, judgement in verdicts.items():
        assert [cell[:2] for cell in again[claim].cells] == [cell[:2] for cell in judgement.cells]
        assert again[claim].verdict == judgement.verdict == broken.verdicts[claim]["verdict"]
    assert set(broken.arms) == {"FC", "TC", "TL", "by_std"}
    assert_alike(sound("sen"), broken, broken.arms)


@pytest.mark.slow
def test_a_sweep_along_one_value_is_drawn_as_a_line(broken):
    one = {
        name: dataclasses.replace(
            arm, **{part: getattr(arm, part).isel({"leak": 0}, True, "ignore") for part in PARTS}
        )
        for name, arm in broken.arms.items()
    }
    task = {**broken.config["task"], "leak": LEAKS[0]}
    config = {**broken.config, "task": task, "sweeps": {"embedding_std": list(STDS)}}
    record = dataclasses.replace(broken, arms=one, config=config)
    gaps, _ = find_study("sen").drawn(record)
    (line,) = gaps.panels[0].marks
    assert isinstance(line, Line)
    assert np.array_equal(line.x, STDS)
    assert [verdict for _, verdict, _ in judged(record)["A-2"].cells] == ["holds", "fails"]
