"""The committed records, the known verdicts and the ledger agree."""

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from saccade.core.claim import Check, ClaimArms
from saccade.core.record import Record
from saccade.core.registration import CHANGES
from saccade.core.statistics import Mean
from saccade.registry import find_study, study_names
from saccade.report.ledger import ledger_markdown

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "results").glob("*.nc.gz"))
RECORDS = [Record.open(file) for file in FILES]
each_record = pytest.mark.parametrize("record", RECORDS, ids=[file.name for file in FILES])
SKEWED = 2.0
"""Skewness above which a t interval of the mean covers too little: that of exp(z) is 6."""


@each_record
def test_the_known_verdicts_are_those_of_the_committed_records(record: Record):
    study = find_study(record.study)
    verdicts = {one.claim: one.verdict for one in study.judge(record)}
    assert study.is_preset(record)
    assert verdicts == study.known(record.preset)


@each_record
def test_a_committed_record_was_made_from_a_clean_commit(record: Record):
    assert len(record.commit) == 40, record.commit
    assert CHANGES not in record.commit


@each_record
def test_a_claim_that_is_known_not_to_hold_says_why(record: Record):
    study = find_study(record.study)
    for claim, judgement in zip(study.claims, study.judge(record), strict=True):
        if judgement.verdict != "holds":
            assert claim.reason or judgement.reason, claim.id


@pytest.mark.parametrize("study", study_names())
def test_every_study_has_a_committed_record_and_known_quick_verdicts(study: str):
    assert "paper" in {record.preset for record in RECORDS if record.study == study}
    claims = {claim.id for claim in find_study(study).claims}
    assert set(find_study(study).known("quick")) == claims


def test_the_ledger_is_that_of_the_committed_records():
    entries = sorted(
        ((find_study(record.study), record) for record in RECORDS),
        key=lambda entry: (entry[0].name, entry[1].preset),
    )
    assert (ROOT / "docs" / "ledger.md").read_text() == ledger_markdown(entries)


@each_record
def test_means_are_of_numbers_that_are_not_strongly_skewed(record: Record):
    """Positive, strongly skewed numbers are judged by their geometric mean."""
    study = find_study(record.study)
    config = study.config_of(record)
    for claim in study.claims:
        checks = (claim.checks,) if isinstance(claim.checks, Check) else claim.checks
        for check in checks:
            if type(check.statistic) is not Mean:
                continue
            names = [name for found in check.found(record.arms).values() for name in found]
            values = np.asarray(check.measure(ClaimArms(record, names), config), float).ravel()
            values = values[np.isfinite(values)]
            if values.size >= 10 and values.min() > 0 and np.ptp(values) > 1e-6 * values.max():
                assert stats.skew(values) < SKEWED, f"{claim.id}: {check.quantity}"
