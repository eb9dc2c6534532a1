"""Break the premise of a claim in its experiment, not in its record: the claim must fail."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
from trained_kernels import REFUTATIONS as KERNELS
from trained_ktiw import REFUTATIONS as KTIW
from trained_refutations import TrainedRefutation
from trained_sen import REFUTATIONS as SEN
from trained_topics import REFUTATIONS as TOPICS

from saccade.core.study import Study
from saccade.judging.claim import Judgement
from saccade.records.record import Record
from saccade.registry import find_study, study_names
from saccade.train.lab import Lab

ALL = (*SEN, *TOPICS, *KTIW, *KERNELS)
FAMILIES = {"A": SEN, "B": TOPICS, "C": KTIW, "D": KERNELS, "E": KERNELS}


def _ids(study: Study[Any]) -> list[str]:
    return [claim.id for claim in study.claims]


def judged(record: Record, claim: str) -> Judgement:
    found = {one.claim: one for one in find_study(record.study).judge(record)}
    return found[claim]


@pytest.mark.slow
@pytest.mark.parametrize("one", ALL, ids=[f"{one.claim}: {one.premise}" for one in ALL])
def test_a_claim_fails_once_its_premise_is_broken(one: TrainedRefutation, tmp_path: Path):
    study = next(study for study in map(find_study, study_names()) if one.claim in _ids(study))
    lab = Lab(tmp_path, study.precision, progress=None)
    whole = judged(one.run(lab, False), one.claim)
    assert whole.verdict == "holds", whole.reason
    record = one.run(lab, True)
    broken = judged(record, one.claim)
    assert broken.verdict == "fails", broken.reason
    failing = [finding for finding in broken.findings if finding.verdict == "fails"]
    assert all(math.isfinite(finding.value) for finding in failing)
    for name, arm in record.arms.items():
        if "loss" in arm.trajectory:
            assert bool(arm.trajectory["loss"].isel(step=-1).notnull().all()), name


def test_every_family_of_claims_has_a_trained_refutation():
    for letter, family in FAMILIES.items():
        assert any(one.claim.startswith(f"{letter}-") for one in family), letter


def test_the_documents_list_every_trained_refutation():
    text = (Path(__file__).parents[2] / "docs" / "claims.md").read_text()
    listed = re.findall(r"^\| (\S+) \| ([^|]+) \| [^|]+ \| holds; broken: fails \|$", text, re.M)
    assert sorted(listed) == sorted((one.claim, one.premise) for one in ALL)
