"""Every check of every claim can fail: break what it is about, and the claim is refuted."""

import dataclasses
import fnmatch
import functools
import re

import diagnosis_records
import numpy as np
import pytest
from every_record import RECORDS, REFUTATIONS, figure_names
from record_parts import PARTS, Edit, checks_of, diverge, judged

from saccade.judging.claim import Claim, Judgement
from saccade.judging.statistics import Deterministic, EverySeed, GeometricMean, Mean, Rate
from saccade.records.record import Record
from saccade.registry import find_study, study_names

pytestmark = pytest.mark.usefixtures("few_resamples")
CLAIMS = {claim.id: (study, claim) for study in RECORDS for claim in find_study(study).claims}
each_claim = pytest.mark.parametrize(("study", "claim"), CLAIMS.values(), ids=CLAIMS)
PER_SEED = Mean | GeometricMean | Rate | EverySeed
TOGETHER = {
    "A-2": {"A-3"},
    "A-3": {"A-2"},
    "A-13b": {"A-13"},
    "B-5": {"B-5b"},
    "B-11": {"B-11e"},
    "B-11e": {"B-11"},
    "C-4f": {"C-4"},
    "C-5": {"C-4", "C-4f", "C-6", "C-6b"},
    "C-8c": {"C-8", "C-8d"},
    "C-8d": {"C-8"},
    "C-9b": {"C-9"},
    "C-9c": {"C-9", "C-9e"},
    "C-10": {"C-10c"},
    "C-10c": {"C-10"},
    "C-17": {"C-17d"},
    "D-5b": {"D-5"},
    "D-9": {"D-9d"},
    "D-9f": {"D-9i"},
    **diagnosis_records.TOGETHER,
}
"""Claims that share their numbers with others, which every refutation breaks as well."""


def arms_of(claim: Claim) -> list[str]:
    """Names and patterns of all arms that a claim rests on."""
    return list(dict.fromkeys(arm for check in checks_of(claim) for arm in check.arms))


@functools.cache
def kept_claims(study: str) -> dict[str, Judgement]:
    """The judgements of a study's record made by hand."""
    return judged(RECORDS[study]())


@functools.cache
def diverged(study: str, arm: str) -> Record:
    """That record with one seed of an arm lost."""
    return diverge(arm)(RECORDS[study]())


@each_claim
def test_a_record_with_the_phenomenon_keeps_every_claim(study, claim):
    judgement = kept_claims(study)[claim.id]
    assert judgement.verdict == "holds", judgement.reason
    assert len(judgement.findings) == len(claim.checks)


@pytest.mark.parametrize("study", study_names())
def test_every_check_has_a_refutation(study):
    if study not in RECORDS:
        pytest.skip(f"no record of {study} was made by hand, so its claims are not refuted")
    for claim in find_study(study).claims:
        assert len(REFUTATIONS[claim.id]) == len(checks_of(claim)), claim.id


def test_every_refutation_is_of_a_claim():
    assert set(REFUTATIONS) == set(CLAIMS)


@each_claim
def test_a_record_without_it_refutes_the_claim(study, claim):
    """Each edit breaks its check; one of them leaves all other claims intact."""
    record, alone = RECORDS[study](), {claim.id} | TOGETHER.get(claim.id, set())
    config, fewest = find_study(study).config_of(record), set(CLAIMS)
    for place, given in enumerate(REFUTATIONS[claim.id]):
        edits: tuple[Edit, ...] = given if isinstance(given, tuple) else (given,)
        for edit in edits:
            edited = edit(record)
            judgement = claim.judge(edited, config)
            assert judgement.verdict == "fails", f"{checks_of(claim)[place]}: {judgement.reason}"
            assert judgement.findings[place].verdict == "fails", checks_of(claim)[place].quantity
            if fewest != alone:
                fewest = min(fewest, broken_by(edited, record), key=len)
    assert fewest == alone


def broken_by(edited: Record, record: Record) -> set[str]:
    """The claims that no longer hold. Those whose arms were left alone do."""
    study = find_study(record.study)
    config = study.config_of(edited)
    changed = {name for name, arm in record.arms.items() if edited.arms.get(name) is not arm}
    touched = [
        claim
        for claim in study.claims
        if edited.config is not record.config
        or any(fnmatches(name, arms_of(claim)) for name in changed)
    ]
    return {claim.id for claim in touched if claim.judge(edited, config).verdict != "holds"}


SAMPLED = {
    name: (study, claim)
    for name, (study, claim) in CLAIMS.items()
    if any(check.statistic.seeds > 1 for check in checks_of(claim))  # pyright: ignore[reportOptionalMemberAccess]
}
"""Claims about trainings; the others are about numbers that are computed without chance."""
DIVERGED = [
    (study, claim, pattern, name)
    for study, claim in SAMPLED.values()
    for pattern in arms_of(claim)
    for name in fnmatch.filter(RECORDS[study]().arms, pattern)[:1]
    if "diverged_at" in RECORDS[study]().arms[name].trajectory
]


def test_one_seed_is_enough_only_without_chance():
    for name in set(CLAIMS) - set(SAMPLED):
        study, claim = CLAIMS[name]
        for arm in arms_of(claim):
            assert RECORDS[study]().arms[arm].trajectory.sizes["seed"] == 1
            assert "diverged_at" not in RECORDS[study]().arms[arm].trajectory


@pytest.mark.parametrize(
    ("study", "claim", "pattern", "arm"),
    DIVERGED,
    ids=[f"{claim.id}: {pattern}" for _, claim, pattern, _ in DIVERGED],
)
def test_a_seed_that_diverged_keeps_no_bound(study, claim, pattern, arm):
    """A check of every seed, or of a number that no seed enters, fails; others have no verdict."""
    record = RECORDS[study]()
    judgement = claim.judge(diverged(study, arm), find_study(study).config_of(record))
    resting = [check.statistic for check in claim.checks if pattern in check.arms]
    fails = any(isinstance(statistic, EverySeed | Deterministic) for statistic in resting)
    assert judgement.verdict == ("fails" if fails else "undetermined")
    per_seed = any(isinstance(statistic, PER_SEED) for statistic in resting)
    seeds = record.arms[arm].trajectory.sizes["seed"]
    if all(isinstance(statistic, Deterministic) for statistic in resting):
        assert "diverged" in judgement.reason
        return
    assert (f"1 of {seeds} seeds diverged" if per_seed else "seeds diverged") in judgement.reason


@functools.cache
def of_two_seeds(study: str) -> Record:
    """The record made by hand of a study with two seeds."""
    record = RECORDS[study]()
    arms = {}
    for name, arm in record.arms.items():
        parts = {part: getattr(arm, part) for part in PARTS}
        first_two = {
            part: data.isel(seed=slice(0, 2)) if "seed" in data.dims else data
            for part, data in parts.items()
        }
        arms[name] = dataclasses.replace(arm, **first_two)
    return dataclasses.replace(record, arms=arms)


@pytest.mark.parametrize(("study", "claim"), SAMPLED.values(), ids=SAMPLED)
def test_two_seeds_are_too_few_for_any_claim(study, claim):
    few = of_two_seeds(study)
    judgement = claim.judge(few, find_study(study).config_of(few))
    assert judgement.verdict == "undetermined"
    # A claim over several arms takes two runs of each.
    assert re.search(r"(^|\D)\d+ seeds, \d+ needed|2 seeds", judgement.reason)


def all_lost(record: Record, arm: str) -> Record:
    for seed in record.arms[arm].trajectory["seed"].values:
        record = diverge(arm, int(seed))(record)
    return record


def emptied(record: Record, arm: str) -> Record:
    """An arm without any number, from the start on."""
    trajectory = record.arms[arm].trajectory
    blank = {name: values * np.nan for name, values in trajectory.items() if "step" in values.dims}
    blank = trajectory.assign({**blank, "diverged_at": 0 * trajectory["diverged_at"]})
    arms = {**record.arms, arm: dataclasses.replace(record.arms[arm], trajectory=blank)}
    return dataclasses.replace(record, arms=arms)


@pytest.mark.parametrize("name", RECORDS)
def test_figures_are_made_whatever_diverged(name):
    """Sound, with one seed lost, with all lost halfway, and without any number."""
    study, record = find_study(name), RECORDS[name]()
    config = study.config_of(record)
    first = next(name for name, arm in record.arms.items() if "diverged_at" in arm.trajectory)
    resting = [claim for claim in study.claims if fnmatches(first, arms_of(claim))]
    names = figure_names(name)
    assert names
    assert len(set(names)) == len(names)
    for one in (diverged(name, first), all_lost(record, first), emptied(record, first)):
        assert [figure.name for figure in study.drawn(one)] == names
        assert "holds" not in {claim.judge(one, config).verdict for claim in resting}


def fnmatches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
