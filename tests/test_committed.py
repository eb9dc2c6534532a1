"""The committed records, the known verdicts and the ledger agree."""

import csv
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
from scipy import stats

from saccade.judging.claim import Check, ClaimArms, PremiseNotMetError
from saccade.judging.registration import STATED, is_clean
from saccade.judging.statistics import Mean
from saccade.records.record import MissingArmError, Record
from saccade.registry import find_study, study_names
from saccade.report.ledger import ledger_markdown

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "results").glob("*.nc*"))
LEDGER = (ROOT / "docs" / "ledger.md").read_text().splitlines()
WITHOUT_RECORD = {
    ("kernels_landscape", "paper"),
    ("kernels_landscape", "small"),
    ("topics_pretrained", "paper"),
}
"""Presets that are registered, and not yet run at their size."""
WITHOUT_ATTENTION = ("diagnosis_errors", "ktiw_proxy", "topics_optima")
"""Studies in which no attention is learned from queries and keys, or from scores of words; and the
one that keeps what the diagnosis says of attention, and not the statistics."""
NOT_TRAINED = (("topics_pretrained", "small"),)
"""Records of models that were trained elsewhere, of which pairs of words are measured alone."""
SKEWED = 2.0
"""Skewness above which a t interval of the mean covers too little: that of exp(z) is 6."""


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_committed_record(file: Path):
    """It was made from a clean commit, its verdicts are the known ones, claims that do not hold say
    why, and the ledger has its rows. (One test: a record takes most of a second to open.)
    """
    record = Record.open(file)
    study = find_study(record.study)
    judgements = study.judge(record)
    assert len(record.commit.removesuffix(STATED)) == 40, record.commit
    assert is_clean(record.commit)
    assert study.is_preset(record)
    verdicts = {one.claim: one.verdict for one in judgements}
    assert verdicts == study.known(record.preset)
    assert record.verdicts.keys() <= verdicts.keys(), "no claim is withdrawn"
    stored = {claim: one["verdict"] for claim, one in record.verdicts.items()}
    assert stored == {claim: verdicts[claim] for claim in stored}  # some claims are younger
    for claim, judgement in zip(study.claims, judgements, strict=True):
        assert judgement.verdict == "holds" or claim.reason or judgement.reason, claim.id
    made = ledger_markdown([(study, record)]).splitlines()
    assert [line for line in made if line.startswith(("| ", "* **")) and line not in LEDGER] == []
    _require_little_skew(record)
    measured = any("attention_entropy" in arm.trajectory for arm in record.arms.values())
    trained_here = (record.study, record.preset) not in NOT_TRAINED
    assert measured == (record.study not in WITHOUT_ATTENTION and trained_here)


def test_registrations_of_version_0_2_are_as_listed():
    """Every label that was changed is in the list, and no other."""
    with (ROOT / "results" / "registrations.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    records = {file.name: Record.open(file) for file in FILES}
    studies = {name: find_study(record.study) for name, record in records.items()}
    judged = {
        (name, one.claim): one.status
        for name, study in studies.items()
        for one in study.judge(records[name])
    }
    listed = {(row["record"], row["claim"]): row["now"] for row in rows}
    assert listed == {place: judged[place] for place in listed}
    before = [row["now"] for row in rows if row["version 0.2"] == "registered"]
    assert {status: before.count(status) for status in set(before)} == {
        "registered": 204,
        "no number": 22,
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_what_rounding_decides_is_said(file: Path):
    """Numbers are moved within the rounding of the record, but for those that are short enough to
    be exact, such as shares of few. Where a check then finds something else, the claim says at
    which resolution it is judged.
    """
    record = Record.open(file)
    study = find_study(record.study)
    generator = np.random.default_rng(0)
    shares = [
        lambda shape: generator.uniform(-0.5, 0.5, shape),
        *(partial(np.full, fill_value=share) for share in (-0.49, 0.49)),
    ]
    moved = [study.judge(_within_rounding(record, share)) for share in shares]
    for claim, judgement, *others in zip(study.claims, study.judge(record), *moved, strict=True):
        found = [
            [(one.verdict, one.kept, one.seeds) for one in each.findings]
            for each in (judgement, *others)
        ]
        alike = all(one == found[0] for one in found)
        assert alike or "binary digits" in claim.tolerance, f"{claim.id}: {found}"


def _within_rounding(record: Record, share: Callable[[tuple[int, ...]], Any]) -> Record:
    """A record that is rounded to the same numbers: shares of the last digit are added."""

    def moved(part: xr.Dataset) -> xr.Dataset:
        variables = {}
        for name, one in part.data_vars.items():
            if one.dtype.kind == "f":
                bits = 44 if record.precision == "float64" and one.dtype.itemsize == 8 else 14
                values = one.values.astype(float)
                mantissa, exponent = np.frexp(np.where(np.isfinite(values), values, 0))
                exact = np.round(mantissa * 2**10) == mantissa * 2**10
                near = np.ldexp(mantissa + share(values.shape) * 2.0**-bits, exponent)
                variables[name] = one.copy(data=np.where(exact, values, near))
        return part.assign(variables)

    parts = ("trajectory", "snapshot", "prediction")
    arms = {
        name: dataclasses.replace(arm, **{part: moved(getattr(arm, part)) for part in parts})
        for name, arm in record.arms.items()
    }
    return dataclasses.replace(record, arms=arms)


def _require_little_skew(record: Record) -> None:
    """Positive, strongly skewed numbers are judged by their geometric mean, unless the bound lies
    outside of their range, where no interval matters.
    """
    study = find_study(record.study)
    config = study.config_of(record)
    for claim in study.claims:
        checks = (claim.checks,) if isinstance(claim.checks, Check) else claim.checks
        for check in checks:
            if type(check.statistic) is not Mean:
                continue
            names = [name for found in check.found(record.arms).values() for name in found]
            try:
                values = np.asarray(check.measure(ClaimArms(record, names), config), float).ravel()
            except (PremiseNotMetError, MissingArmError):
                continue
            values = values[np.isfinite(values)]
            kept = np.asarray(check.bound.keeps(values))
            if values.size >= 10 and values.min() > 0 and kept.any() and not kept.all():
                assert stats.skew(values) < SKEWED, f"{claim.id}: {check.quantity}"


def test_every_claim_has_a_committed_verdict():
    kept = {file.name.partition(".")[0] for file in FILES}
    lacking = {name for name, preset in WITHOUT_RECORD if preset == "paper"}
    assert set(study_names()) - kept == lacking, "the paper's record has the study's name"
    for name in study_names():
        study = find_study(name)
        claims = {claim.id for claim in study.claims}
        for preset in study.presets:
            known = set(study.known(preset))
            there = set() if (name, preset) in WITHOUT_RECORD else claims
            assert known == there, f"{name}, {preset}"


def test_the_ledger_has_no_other_rows():
    verdicts = sum(len(find_study(name).claims) for name in study_names() for _ in _presets(name))
    assert sum(line.startswith("| ") for line in LEDGER) == verdicts + 2  # head and rule


def _presets(name: str) -> list[Path]:
    return [file for file in FILES if file.name.split(".")[0] in _names(name)]


def _names(study: str) -> list[str]:
    return [study, *(f"{study}-{preset}" for preset in ("code", "small", "trained"))]
