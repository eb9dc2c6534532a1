"""Lu's studies: premises, missing arms, planted words, and a sweep."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_record import RECORDS, assert_alike
from record_parts import PARTS, altered, change, judged, plus, times, without

from saccade.contracts.probe import Moment
from saccade.figures.figure import HeatMap, Line
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.probes.topic_words import Velocities
from saccade.records.record import Record
from saccade.registry import find_study
from saccade.studies import sen, sen_synergy
from saccade.tasks.topic_sentences import TopicSentences
from saccade.train.lab import Lab
from saccade.train.loss import own_loss


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
        ("by_rate", {"A-8", "A-8b"}),
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
    record = change("FC TC TL by_rate by_std", "largest_gap", times(np.nan))(sound("sen"))
    for name in ("mean_gap", "largest_residual"):
        record = change("FC TC TL", name, times(np.nan))(record)
    verdicts = judged(record)
    gaps = ("A-2", "A-3", "A-6", "A-8", "A-8b")
    assert {verdicts[claim].verdict for claim in gaps} == {"undetermined"}


def test_running_maxima_and_means_hold_every_measured_epoch():
    """Also those that the record does not keep, and only scores above the floor."""
    arm = sound("sen").arms["TC"]
    peak = int(arm.trajectory["step"][30])
    norm = arm.trajectory["norm"].where(arm.trajectory["step"] != peak, 2 * arm.trajectory["norm"])
    fine = arm.with_variables(norm=norm)
    last = int(arm.trajectory["step"][-1])
    kept = sen.with_running(fine, 0.1).at_steps([0, last]).trajectory
    assert np.all(np.isnan(kept["largest_gap"].sel(step=0)))
    np.testing.assert_allclose(kept["largest_gap"].sel(step=last), 1.0)
    counted = (arm.trajectory["score"] > 0.05).sum(("step", "word"))
    np.testing.assert_allclose(kept["mean_gap"].sel(step=last), 8 / counted)
    np.testing.assert_allclose(kept["equal_signs"].sel(step=last), 1.0)


def test_arms_that_never_converge_are_infinitely_late():
    """KF and EF that never converge: TC is before them. All never: TC is not."""
    never = change("KF_loss EF_loss", "loss", plus(1))(sound("sen_synergy"))
    assert judged(never)["A-9"].verdict == "holds"
    assert judged(never)["A-9"].plain()["findings"][0]["value"] is None, "JSON has no infinity"
    assert judged(change("TC_loss", "loss", plus(1))(never))["A-9"].verdict == "fails"


def test_the_time_of_convergence_does_not_depend_on_the_recorded_epochs():
    """An exponential loss, of which ever fewer epochs are recorded."""
    loss = sound("sen_synergy").arms["KF_loss"]
    exact = 1000 * 3 * np.log(14) / 4
    for every in (1, 5, 20):
        sparse = loss.at_steps(loss.trajectory["step"].values[::every])
        np.testing.assert_allclose(sen_synergy._converged_at(sparse), exact, rtol=1e-9)


def test_the_paper_leaves_the_norm_of_its_query_open():
    """The number is shown, without a verdict."""
    record = sound("sen_synergy")
    unknown = dataclasses.replace(record, config={**record.config, "knows_query_norm": False})
    judgement = judged(unknown)["A-9c"]
    assert judgement.verdict == "undetermined"
    assert "not stated" in judgement.reason
    assert np.isfinite(judgement.findings[0].value)


# -- a word on the wrong side ----------------------------------------------------------------------


@pytest.mark.slow
def test_a_word_is_planted_only_where_no_projection_is_negative():
    task = TopicSentences(2, 1, filler_size=4, dictionary_size=9, train_size=12, test_size=2)
    model = AttentionClassifierConfig("TC", dimension=5, embedding_std=0.5)

    def planted(seed: int) -> tuple[Any, ...]:
        key = jax.random.key(seed)
        batch, start = task.sample(key, 12), model.build(task, key)
        step = eqx.filter_grad(sen_synergy.planting(task))(start, batch)
        moved = eqx.tree_at(lambda one: one.embeddings, start, start.embeddings - step.embeddings)
        moments = [Moment(task, one, batch, None, own_loss, lambda: None) for one in (start, moved)]
        velocity = start.embedding_velocity(moments[0].gradient)
        still = jax.tree.map(lambda leaf: jnp.all(leaf == 0), (step.score_table, step.head))
        before, after = (Velocities()(moment)["projection"] for moment in moments)
        return before, after, start.embeddings, moved.embeddings, velocity, still

    seen = set()
    for seed in range(12):
        before, after, old, new, velocity, still = jax.jit(planted, static_argnums=0)(seed)
        assert all(map(bool, jax.tree.leaves(still))), "nothing else moves"
        changed = np.flatnonzero(np.any(np.asarray(old != new), axis=0))
        lacks = bool(np.min(before) >= 0)
        seen.add(lacks)
        assert changed.tolist() == ([int(np.argmin(before))] if lacks else [])
        if lacks:
            (word,) = changed
            unit = velocity[:, word] / np.linalg.norm(velocity[:, word])
            np.testing.assert_allclose(new[:, word], -0.5 * unit, atol=1e-6)
            assert after[word] < 0
    assert seen == {True, False}


# -- a sweep ---------------------------------------------------------------------------------------

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
