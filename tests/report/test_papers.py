"""The papers: every study has one, and a finding is given only with the verdicts it presupposes."""

import dataclasses
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from saccade.judging.bound import Verdict
from saccade.judging.claim import Judgement
from saccade.records.record import Record
from saccade.registry import find_study, known_study, study_names
from saccade.report.judged import JudgedClaim, StoredStudy, judged_claims
from saccade.report.papers import PAPERS, Finding, Paper, finding_of, paper_of

RESULTS = Path(__file__).parents[2] / "results"
EVERY_FINDING = [(paper, finding) for paper in PAPERS for finding in paper.findings]
EMPTY = Record("", "paper", {}, {}, {}, "", "float32", 0.0)
PER_PAPER = pytest.mark.parametrize("paper", PAPERS, ids=lambda paper: paper.letter)
PER_FINDING = pytest.mark.parametrize(
    ("paper", "finding"),
    EVERY_FINDING,
    ids=["+".join(finding.rests_on) for _, finding in EVERY_FINDING],
)


def committed(study: str) -> list[Record]:
    """The records of a study in all presets; nothing else is opened."""
    files = [RESULTS / f"{study}.nc.gz", *RESULTS.glob(f"{study}-*.nc*")]
    return [Record.open(file) for file in files if file.exists()]


def judged(study: str, verdicts: Mapping[str, Any], preset: str = "paper") -> list[JudgedClaim]:
    """Rows as of a record with given verdicts."""
    found: Any = find_study(study)
    record: Any = dataclasses.replace(EMPTY, study=study, preset=preset)
    claims = {claim.id: claim for claim in found.claims}
    return [
        JudgedClaim(0, found, record, claims[name], Judgement(name, verdict, ()))
        for name, verdict in verdicts.items()
        if name in claims
    ]


def rows_of(paper: Paper, verdicts: Mapping[str, Any], preset: str = "paper"):
    return [row for study in paper.studies for row in judged(study, verdicts, preset)]


def test_every_study_has_exactly_one_paper():
    named = Counter(name for paper in PAPERS for name in paper.studies)
    assert named == Counter(study_names()), "each name once"
    for name in study_names():
        study, paper = find_study(name), paper_of(find_study(name))
        assert paper is not None
        letters = {claim.id.partition("-")[0] for claim in study.claims}
        assert letters == {paper.letter} or (name, letters) == ("diagnosis_errors", {"F"})
        assert paper.letter == "E" or study.paper == paper.citation
    assert [paper.letter for paper in PAPERS] == ["A", "B", "C", "D", "E"]


def test_studies_of_other_people_have_none(study, unknown):
    watched = known_study("watched")
    assert watched is not None
    assert paper_of(watched) is None
    assert {claim.id[0] for claim in study.claims} == {"A"}
    assert paper_of(study) is None
    assert [paper_of(stored) for stored, _ in unknown] == [None] * 3


def test_a_stored_study_belongs_to_the_paper_that_it_cites(unknown):
    stored = unknown[0][0]
    assert isinstance(stored, StoredStudy)
    cites = dataclasses.replace(stored, paper=PAPERS[0].citation)
    assert paper_of(cites) is PAPERS[0]
    assert paper_of(dataclasses.replace(cites, paper=PAPERS[1].citation)) is None, "A, not B"
    assert paper_of(dataclasses.replace(cites, name="sen_query", claims=())) is PAPERS[0]


@PER_PAPER
def test_a_paper_has_figures_and_a_finding_of_its_records(paper: Paper):
    """From the committed records; one of every study, as all studies have a figure to show."""
    entries = [(find_study(name), record) for name in paper.studies for record in committed(name)]
    drawn = {(study.name, one.name) for study, record in entries for one in study.drawn(record)}
    assert set(paper.figure) <= drawn
    assert len(set(paper.figure)) == len(paper.figure)
    assert {name for name, _ in paper.figure} == {study.name for study, _ in entries}
    assert finding_of(paper, judged_claims(entries)) is paper.findings[0]


@PER_FINDING
def test_a_finding_rests_on_claims_of_its_paper(paper: Paper, finding: Finding):
    claims = {claim.id for name in paper.studies for claim in find_study(name).claims}
    assert finding.rests_on
    assert set(finding.rests_on) <= claims
    assert set(finding.rests_on.values()) <= set(get_args(Verdict))


@PER_FINDING
def test_a_finding_is_refuted_by_any_other_verdict(paper: Paper, finding: Finding):
    alone, given = dataclasses.replace(paper, findings=(finding,)), dict(finding.rests_on)
    assert finding_of(alone, rows_of(paper, given)) is finding
    for claim, presupposed in given.items():
        for other in {*get_args(Verdict)} - {presupposed}:
            assert finding_of(alone, rows_of(paper, given | {claim: other})) is None
        lacking = {name: verdict for name, verdict in given.items() if name != claim}
        assert finding_of(alone, rows_of(paper, lacking)) is None


def test_the_first_finding_that_holds_is_given():
    snell = PAPERS[2]
    first, second, *_ = snell.findings
    given = dict(first.rests_on)
    assert finding_of(snell, rows_of(snell, given)) is first
    assert finding_of(snell, rows_of(snell, given | {"C-17": "holds"})) is second
    assert finding_of(snell, []) is None


def test_the_preset_paper_counts_or_else_the_first_of_the_alphabet():
    snell = PAPERS[2]
    second = snell.findings[1]
    rows = {
        (preset, verdict): rows_of(snell, {"C-16": verdict}, preset)
        for preset in ("code", "paper", "quick")
        for verdict in get_args(Verdict)
    }
    assert finding_of(snell, rows["code", "fails"] + rows["paper", "holds"]) is second
    assert finding_of(snell, rows["code", "holds"] + rows["paper", "fails"]) is None
    assert finding_of(snell, rows["quick", "fails"] + rows["code", "holds"]) is second
    assert finding_of(snell, rows["quick", "holds"] + rows["code", "fails"]) is None
    assert finding_of(snell, rows["paper", "holds"] + rows["paper", "holds"]) is second
    assert finding_of(snell, rows["paper", "holds"] + rows["paper", "undetermined"]) is None


def test_claims_of_other_studies_do_not_count(study, record):
    """A study of other people may have a claim of the same id."""
    lu = dataclasses.replace(PAPERS[0], findings=(Finding("", {"A-2": "fails"}),))
    rows = judged_claims([(study, record)])
    assert {row.claim.id: row.judgement.verdict for row in rows}["A-2"] == "fails"
    assert finding_of(lu, rows) is None
    assert finding_of(lu, [*rows, *rows_of(lu, {"A-2": "fails"})]) is not None


@PER_FINDING
def test_a_finding_has_no_measured_number(paper: Paper, finding: Finding):
    del paper
    assert not re.search(r"\d", re.sub(r"corollary 1|SST-2", "", finding.text))
    assert finding.text.endswith(".")
    assert finding.text.count(". ") == 0, "one sentence"
