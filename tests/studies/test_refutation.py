"""Every check of every claim can fail: break what it is about, and the claim is refuted."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr
from synthetic_records import RECORDS, WRONG_WORD, Edit, change, diverge, judged, one_seed, swap

from saccade.core.record import Record
from saccade.core.study import find_study

sound = functools.cache(lambda study: RECORDS[study]())
CLAIMS = [(study, claim) for study in RECORDS for claim in find_study(study).claims]


def reversed_along(dim: str) -> Callable[[xr.DataArray], xr.DataArray]:
    return lambda values: values.copy(data=values.isel({dim: slice(None, None, -1)}).values)


def after(step: int, edit: Callable[[xr.DataArray], Any]) -> Callable[[xr.DataArray], xr.DataArray]:
    return lambda values: values.where(values["step"] <= step, edit(values))


def regrown(arm: str, dim: str, growth: Callable[[xr.DataArray], Any]) -> Edit:
    """Norms that exceed corollary 1 by a function of the swept value."""

    def edited(record: Record) -> Record:
        norm = record.arms[arm].prediction["norm"] * (1 + growth(record.arms[arm].trajectory[dim]))
        return change(arm, "norm", lambda values: norm.transpose(*values.dims))(record)

    return edited


def of_wrong_word(edit: Callable[[xr.DataArray], Any]) -> Callable[[xr.DataArray], xr.DataArray]:
    return lambda values: values.where(values["word"] != WRONG_WORD, edit(values))


def never_falls(record: Record) -> Record:
    """The word that starts on the wrong side rises from the first step on, and faster than with frozen scores."""
    rises = change("TC", "score", of_wrong_word(lambda values: values["step"] / 1000))
    return change("TC", "norm_velocity", lambda values: values + 1)(rises(record))


REFUTATIONS: list[tuple[str, str, str, Edit]] = [
    ("sen", "A-1", "score change", change("TL", "other_score_change", one_seed(lambda values: values + 0.1), "snapshot")),
    ("sen", "A-1", "displacement", change("FC", "other_displacement", one_seed(lambda values: values + 0.2), "snapshot")),
    ("sen", "A-2", "largest relative gap", change("TC", "norm", one_seed(lambda values: 1.1 * values))),
    ("sen", "A-2", "mean relative gap", change("FC TC TL", "norm", lambda values: 1.1 * values)),
    *(("sen", "A-3", f"gap, {head}", change(head, "norm", one_seed(lambda values: 0.95 * values))) for head in ("FC", "TC", "TL")),
    ("sen", "A-4", "training loss", change("FC", "loss", one_seed(lambda values: values + 0.05))),
    ("sen", "A-4", "attention on", change("FC", "attention", one_seed(lambda values: 0.85 * values))),
    ("sen", "A-4", "accuracy", change("FC", "test_accuracy", one_seed(lambda values: 0.99 * values))),
    (
        "sen",
        "A-4",
        "attention gained",
        change("FC", "attention", after(5000, lambda values: values.sel(step=5000, drop=True) - 0.01)),
    ),
    (
        "sen",
        "A-4",
        "loss after four",
        change("FC", "loss", after(5000, lambda values: 0.6 * values.sel(step=5000, drop=True))),
    ),
    ("sen", "A-4", "largest rise", change("FC", "loss", one_seed(after(10000, lambda values: values + 0.01)))),
    *(
        ("sen", "A-4b", f"{head}: attention", change(head, "attention", one_seed(lambda values: 0.5 * values)))
        for head in ("TC", "TL")
    ),
    ("sen", "A-4c", "predicted loss", change("FC", "loss", lambda values: 1.2 * values)),
    ("sen", "A-5", "smaller of the differences", swap("FC", "TL")),
    ("sen", "A-5", "smaller of the differences", swap("TC", "TL")),
    ("sen", "A-5", "smaller of the differences", change("TC", "score", one_seed(lambda values: 0 * values))),
    ("sen", "A-6", "left - right", change("TL", "distance", one_seed(lambda values: 1.05 * values))),
    ("sen", "A-6", "left - right", change("TC", "distance", lambda values: 1.1 * values)),
    ("sen", "A-7", "signs agree", change("TC", "projection", one_seed(lambda values: -values))),
    ("sen", "A-7b", "error of a score", change("FC", "score", lambda values: 1.1 * values)),
    ("sen", "A-8", "one rate to the next", change("by_rate", "norm", reversed_along("rate"))),
    ("sen", "A-8", "one start to the next", change("by_std", "norm", reversed_along("embedding_std"))),
    ("sen", "A-8", "rate, at least", regrown("by_rate", "rate", lambda rate: 0.03 * rate**0.5)),
    ("sen", "A-8", "rate, at most", regrown("by_rate", "rate", lambda rate: 0.01 * rate**2)),
    ("sen", "A-8", "variance, at least", regrown("by_std", "embedding_std", lambda std: 0.01 + std)),
    ("sen", "A-8", "variance, at most", regrown("by_std", "embedding_std", lambda std: 0.01 + 4e4 * std**4)),
    *(("sen_synergy", "A-9", f"epochs of {arm}", change(arm, "loss", one_seed(lambda values: 0 * values))) for arm in ("KF", "EF")),
    *(
        ("sen_synergy", "A-9b", f"{arm}: test accuracy", change(arm, "test_accuracy", one_seed(lambda values: 0.99 * values)))
        for arm in ("TC", "KF", "EF")
    ),
    ("sen_synergy", "A-9c", "epochs until", change("TC", "loss", lambda values: values + 0.2)),
    ("sen_synergy", "A-10", "has halved", change("EF", "score", one_seed(lambda values: values + 5))),
    ("sen_synergy", "A-10", "at the end", change("EF", "score", one_seed(lambda values: 0.1 * values))),
    ("sen_synergy", "A-11", "gain in topic norm", change("KF", "norm", one_seed(lambda values: values + 3))),
    ("sen_synergy", "A-12", "smallest score", change("TC", "score", lambda values: values.clip(min=0))),
    ("sen_synergy", "A-12", "at the end", change("TC", "score", one_seed(after(50000, lambda values: -0.2)))),
    ("sen_synergy", "A-12", "where the score is lowest", change("KF", "norm_velocity", lambda values: 0.1 * values)),
    ("sen_synergy", "A-12", "epoch from which", never_falls),
    *(
        ("sen_query", claim, f"{head}: rank correlation of", change(head, "norm", reversed_along("query_variance")))
        for head in ("FC", "TC", "TL")
        for claim in ("A-13", "A-13b")
    ),
    *(
        ("sen_query", claim, f"{head}: smallest {kind}", change(head, "norm", reversed_along("step")))
        for head in ("FC", "TC", "TL")
        for claim, kind in (("A-13", "correlation"), ("A-13b", "rank correlation"))
    ),
    ("sen_convolution", "A-14", "accuracy", change("TC-CNN", "test_accuracy", lambda values: 0.9 * values)),
    ("sen_convolution", "A-14", "score change", change("TC-CNN", "other_score_change", lambda values: 100 * values, "snapshot")),
    ("sen_convolution", "A-14", "rank correlation", change("TC-CNN", "centred_norm", reversed_along("step"))),
]


@pytest.mark.parametrize(("study", "claim"), CLAIMS, ids=[claim.id for _, claim in CLAIMS])
def test_a_record_with_the_phenomenon_keeps_every_claim(study, claim):
    judgement = claim.judge(sound(study))
    assert judgement.verdict == "holds", judgement.reason
    assert len(judgement.findings) == len(claim.checks)


@pytest.mark.parametrize(
    ("study", "claim", "quantity", "edit"), REFUTATIONS, ids=[f"{claim}: {quantity}" for _, claim, quantity, _ in REFUTATIONS]
)
def test_a_record_without_it_refutes_the_claim(study, claim, quantity, edit):
    judgement = next(one for _, one in CLAIMS if one.id == claim).judge(edit(sound(study)))
    assert judgement.verdict == "fails", judgement.reason
    assert [finding.verdict for finding in judgement.findings if quantity in finding.quantity] == ["fails"]


def test_no_check_is_left_out():
    for study, claim in CLAIMS:
        broken = {quantity for where, name, quantity, _ in REFUTATIONS if (where, name) == (study, claim.id)}
        for check in claim.checks:
            assert any(quantity in check.quantity for quantity in broken), f"{claim.id}: {check.quantity}"


DIVERGED = [
    *((study, claim, arm) for study, claim in CLAIMS for arm in dict.fromkeys(arm for check in claim.checks for arm in check.arms)),
    *(("sen", claim, arm) for study, claim in CLAIMS if claim.id == "A-8" for arm in ("by_rate", "by_std")),
]  # fmt: skip


@pytest.mark.parametrize(("study", "claim", "arm"), DIVERGED, ids=[f"{claim.id}: {arm}" for _, claim, arm in DIVERGED])
def test_a_seed_that_diverged_keeps_no_bound(study, claim, arm):
    """An every-seed check fails by it; a mean cannot be taken."""
    judgement = claim.judge(diverge(arm)(sound(study)))
    resting = [check for check in claim.checks if arm in check.arms or not check.arms]
    expected = "fails" if any(check.every_seed for check in resting) else "undetermined"
    assert judgement.verdict == expected
    assert "1 of 5 seeds diverged" in judgement.reason


@pytest.mark.parametrize(("study", "claim"), CLAIMS, ids=[claim.id for _, claim in CLAIMS])
def test_two_seeds_are_too_few_for_any_claim(study, claim):
    record = sound(study)
    arms = {}
    for name, arm in record.arms.items():
        parts = {part: getattr(arm, part) for part in ("trajectory", "snapshot", "prediction")}
        cut = {part: data.isel(seed=slice(0, 2)) if "seed" in data.dims else data for part, data in parts.items()}
        arms[name] = dataclasses.replace(arm, **cut)
    judgement = claim.judge(dataclasses.replace(record, arms=arms))
    assert judgement.verdict == "undetermined"
    assert "2 seeds" in judgement.reason


def all_lost(record: Record, arm: str) -> Record:
    for seed in record.arms[arm].trajectory["seed"].values:
        record = diverge(arm, int(seed))(record)
    return record


@pytest.mark.parametrize("study", RECORDS)
def test_figures_are_made_whatever_diverged(study):
    """Sound, with one seed lost, with all lost halfway, and with nothing left at all."""
    record = sound(study)
    first = next(iter(record.arms))
    nothing = change(first, "loss", lambda values: values)(all_lost(record, first))
    trajectory = nothing.arms[first].trajectory
    blank = {name: values * np.nan for name, values in trajectory.items() if "step" in values.dims}
    emptied = dataclasses.replace(
        nothing.arms[first], trajectory=trajectory.assign({**blank, "diverged_at": 0 * trajectory["diverged_at"]})
    )
    nothing = dataclasses.replace(nothing, arms={**nothing.arms, first: emptied})
    names = [figure.name for figure in find_study(study).figures(record)]
    assert names
    assert len(set(names)) == len(names)
    for one in (diverge(first)(record), all_lost(record, first), nothing):
        assert [figure.name for figure in find_study(study).figures(one)] == names
        assert all(judgement.verdict != "holds" for judgement in judged(one).values() if _rests_on(study, judgement.claim, first))


def _rests_on(study: str, name: str, arm: str) -> bool:
    return any(arm in check.arms for claim in find_study(study).claims if claim.id == name for check in claim.checks)


def test_premises_that_a_record_cannot_answer_are_named():
    record = sound("sen")
    short = dataclasses.replace(record, config={**record.config, "long_steps": record.config["steps"]})
    assert judged(short)["A-4"].verdict == "undetermined"
    assert "long_steps" in judged(short)["A-4"].reason
    without = dataclasses.replace(record, arms={name: arm for name, arm in record.arms.items() if not name.startswith("by_")})
    assert judged(without)["A-8"].verdict == "undetermined"
    assert "by_rate was not run" in judged(without)["A-8"].reason


@pytest.mark.parametrize("arm", ["FC_lemma2", "FC_theorem2", "by_rate", "TL"])
def test_a_record_without_an_arm_is_judged_as_undetermined(arm):
    """A sweep leaves out the arms of theory: what rests on them has no verdict, and everything else has."""
    record = sound("sen")
    verdicts = judged(dataclasses.replace(record, arms={name: one for name, one in record.arms.items() if name != arm}))
    resting = {
        "FC_lemma2": {"A-7b"},
        "FC_theorem2": {"A-4c"},
        "by_rate": {"A-8"},
        "TL": {"A-1", "A-2", "A-3", "A-4b", "A-5", "A-6", "A-7"},
    }
    assert {claim for claim, judgement in verdicts.items() if judgement.verdict == "undetermined"} == resting[arm]


def test_scores_that_never_rise_leave_the_gap_undetermined():
    """Corollary 1's gap is taken above a score of 0.05: a run too short to get there says nothing."""
    flat = change("FC TC TL by_rate by_std", "score", lambda values: 0.001 * values)
    verdicts = judged(flat(sound("sen")))
    assert {claim: verdicts[claim].verdict for claim in ("A-2", "A-3", "A-6", "A-8")} == dict.fromkeys(
        ("A-2", "A-3", "A-6", "A-8"), "undetermined"
    )


def test_arms_that_never_converge_are_infinitely_late():
    """KF and EF that never get there: TC converges before them. All never: no verdict."""
    never = change("KF EF", "loss", lambda values: values + 1)(sound("sen_synergy"))
    assert judged(never)["A-9"].verdict == "holds"
    assert judged(never)["A-9"].plain()["findings"][0]["value"] is None, "JSON has no infinity"
    assert judged(change("TC", "loss", lambda values: values + 1)(never))["A-9"].verdict == "undetermined"
