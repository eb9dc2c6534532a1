"""The ledger: one row per claim, in order, with nothing that breaks a table."""

import dataclasses
import json

import pytest
import xarray as xr

from saccade.errors import FileError
from saccade.judging.bound import AtMost
from saccade.judging.claim import Check, Claim
from saccade.judging.statistics import Deterministic
from saccade.report import judged
from saccade.report.judged import JudgedClaim, StoredStudy, counts, judged_claims
from saccade.report.ledger import ledger_markdown, ledger_rows

CHECK = Check("theory", lambda arms, _: 0 * arms["plain"].end["error"], AtMost(0.02), "plain")


def table(markdown: str) -> list[str]:
    return [line for line in markdown.splitlines() if line.startswith("|")][2:]


def test_rows_begin_with_the_claim_in_natural_order(study, record):
    rows = table(ledger_markdown([(study, record)]))
    assert [row.split()[1] for row in rows] == ["A-1", "A-2", "A-3", "A-4", "A-5", "A-10"]
    assert rows[0].startswith("| A-1 (example, quick) |")


def test_a_row_has_everything(study, record):
    row = table(ledger_markdown([(study, record)]))[-1]
    for text in (
        "Lu 2021, Theorem 1",
        "0.012",
        "relative error: 0.011 [0.01, 0.012] (<= 0.02)",
        "largest error:",
        "| 5 |",
        "| holds | exploratory |",
        "CPU, 2 cores, float32",
        "0.1.0",
    ):
        assert text in row


def test_text_does_not_break_the_table(study, record):
    rows = table(ledger_markdown([(study, record)]))
    assert "The norm grows \\| with the score<br>and stays &lt;script>" in rows[-1]
    assert all(row.replace("\\|", "").count("|") == 12 for row in rows)


def test_verdicts_that_are_not_the_known_ones_say_so(study, record):
    markdown = ledger_markdown([(study, record)])
    rows = {row.split()[1]: row for row in table(markdown)}
    assert "| fails (known: holds) |" in rows["A-1"]
    assert "| fails |" in rows["A-3"], "known to fail"
    assert "| undetermined |" in rows["A-4"], "known to be undetermined"
    assert "| undetermined |" in rows["A-5"], "nothing is known"
    section = markdown.split("## Other verdicts than the known ones\n\n")[1]
    assert section == "* A-1 (holds, now fails).\n"
    plain = {row["claim"]: (row["known"], row["changed"]) for row in ledger_rows([(study, record)])}
    assert plain["A-1"] == ("holds", True)
    assert plain["A-3"] == ("fails", False)
    assert plain["A-5"] == (None, False)


def test_nothing_is_known_of_other_presets_and_settings(study, record):
    settings = dict(record.config) | {"words": 21}
    for other in (
        dataclasses.replace(record, preset="paper"),
        dataclasses.replace(record, config=settings),
    ):
        rows = ledger_rows([(study, other)])
        assert {row["known"] for row in rows} == {None}
        assert "known ones" not in ledger_markdown([(study, other)])


def test_seeds_are_counted(study, record):
    rows = {row.split()[1]: row for row in table(ledger_markdown([(study, record)]))}
    assert "| 4 of 5 |" in rows["A-5"], "one seed diverged"
    assert "; 4 of 5 seeds, share >= 0.28 (<= 0.02, every seed) | 4 of 5 |" in rows["A-1"]


def test_a_number_that_no_seed_enters_has_no_seeds(study, record):
    checks = dataclasses.replace(CHECK, statistic=Deterministic())
    alone = dataclasses.replace(study.claims[0], checks=checks)
    both = dataclasses.replace(alone, id="A-2", checks=(checks, CHECK))
    claims = dataclasses.replace(study, claims=(alone, both))
    first, second = table(ledger_markdown([(claims, record)]))
    assert first.startswith("| A-2 ")
    assert "| 5 |" in first
    assert "theory: 0 (<= 0.02, no seed enters) | none |" in second


def test_verdicts_are_counted_by_kind(study, record, monkeypatch):
    monkeypatch.setattr(judged, "_is_built_in", lambda study: True)
    rows = judged_claims([(study, record)])

    def of(place: int, claim: str, registered: bool) -> JudgedClaim:
        row = rows[place]
        judgement = dataclasses.replace(row.judgement, registered=registered)
        named = dataclasses.replace(row.claim, id=claim)
        return dataclasses.replace(row, claim=named, judgement=judgement)

    assert [row.judgement.verdict for row in rows[:1] + rows[-2:]] == [
        "fails",
        "undetermined",
        "holds",
    ]
    kinds = [
        of(0, "A-12", True),
        of(5, "E-1", False),
        of(5, "A-12b", True),
        of(5, "F-1", True),
        of(4, "A-1", False),
        of(4, "A-1c", False),
    ]
    assert [one.text for one in counts(kinds)] == [
        "Claims specified from the papers: 2 (0 hold, 1 fail, 1 undetermined)",
        "Claims of our own, registered before their record: 2 (2 hold, 0 fail, 0 undetermined)",
        "Exploratory claims: 2 (1 hold, 0 fail, 1 undetermined)",
    ]
    made = dataclasses.replace(record, commit="ab" * 20)
    changed = [dataclasses.replace(one, record=made) for one in kinds]
    assert [one.text.split(" (")[0] for one in counts(changed)] == [
        "Claims specified from the papers: 1",
        "Claims of our own, registered before their record: 2",
        "Exploratory claims: 3",
    ], "A-1 is not the claim of its commit any more"
    other = dataclasses.replace(record, preset="paper")
    both = [kinds[0], dataclasses.replace(kinds[0], record=other)]
    assert [one.kind for one in counts(both)] == [
        "Claims specified from the papers, preset paper",
        f"Claims specified from the papers, preset {record.preset}",
    ]
    markdown = ledger_markdown([(study, record)])
    assert "\n* Claims specified from the papers: 6 (1 hold, 3 fail, 2 undetermined)\n" in markdown
    assert "Exploratory" not in markdown, "there are none"


def test_an_outside_study_has_no_specified_claims(study, record):
    rows = judged_claims([(study, record)])
    kinds = [one.kind for one in counts(rows)]
    assert kinds == ["Exploratory claims", "Claims of our own without a number"]


def test_registered_claims_are_marked(study, record):
    registered = study.with_verdicts(dataclasses.replace(record, verdicts={}), "0123456")
    other = {"A-2": registered.verdicts["A-2"] | {"evidence": {}, "verdict": "holds"}}
    registered = dataclasses.replace(registered, verdicts={**registered.verdicts, **other})
    rows = {row.split()[1]: row for row in table(ledger_markdown([(study, registered)]))}
    assert "| fails (when the record was made: holds) | exploratory |" in rows["A-2"]
    assert "| holds | registered |" in rows["A-10"]
    changed = dataclasses.replace(registered, commit="0123456+changes")
    assert "| registered |" not in ledger_markdown([(study, changed)])
    assert {row["commit"] for row in ledger_rows([(study, changed)])} == {"0123456+changes"}


def test_seeds_are_counted_in_the_arms_that_a_claim_rests_on(study, record):
    """Arms of more seeds, of which the claim does not speak, are no seeds that it lost."""
    more = dataclasses.replace(
        record.arms["plain"], trajectory=xr.concat([record.arms["plain"].trajectory] * 4, "seed")
    )
    rows = table(
        ledger_markdown([(study, dataclasses.replace(record, arms={**record.arms, "other": more}))])
    )
    assert "| 5 |" in rows[-1]


def test_reasons_are_listed_below(study, record):
    markdown = ledger_markdown([(study, record)])
    assert (
        "## Why claims do not hold\n\n"
        "* **A-3 (example, quick)**, fails. the text leaves out the first 100 steps.\n" in markdown
    )
    assert "* **A-4 (example, quick)**: premise not met: example has no trained scores." in markdown
    assert "`saccade ledger`" in markdown


def test_two_presets_and_a_sweep(entries):
    markdown = ledger_markdown(entries)
    assert "A-1 (example, paper)" in markdown
    (swept,) = [row for row in table(markdown) if row.startswith("| B-1")]
    assert "0.011 to 0.561 over 21 cells" in swept


def test_verdicts_come_from_the_numbers_and_not_from_the_file(study, record):
    lying = dataclasses.replace(record, verdicts={"A-1": {"verdict": "holds"}})
    said, silent = (ledger_markdown([(study, one)]).splitlines() for one in (lying, record))
    others = [one for one, other in zip(said, silent, strict=True) if one != other]
    (row,) = others
    assert "| fails (known: holds; when the record was made: holds) |" in row


def test_rows_are_plain_json(entries):
    rows = json.loads(json.dumps(ledger_rows(entries), allow_nan=False))
    assert len(rows) == 13
    assert rows[0]["claim"] == "A-1"
    assert rows[0]["verdict"] == "fails"
    assert rows[0]["findings"][0]["seeds"] == 4
    assert rows[-1]["cells"]


def test_no_records_make_an_empty_ledger():
    assert table(ledger_markdown([])) == []
    assert ledger_rows([]) == []


def test_a_study_that_is_not_installed_is_shown_with_its_stored_verdicts(unknown, study, record):
    markdown = ledger_markdown(unknown)
    known = {row.split(" (")[0]: row for row in table(ledger_markdown([(study, record)]))}
    rows = table(markdown)
    shown = [row for row in rows if "(example, quick)" in row]
    assert len(shown) == 6
    for row in shown:
        cells, expected = (line.split(" | ") for line in (row, known[row.split(" (")[0]]))
        assert cells[:5] + cells[-2:] == expected[:5] + expected[-2:]
        assert cells[-3] == "stored, not compared"
        assert "stored" in cells[7]
        assert cells[7].split()[0] == expected[7].split()[0]
    assert "* runs/example.nc: the study 'example' is not installed; its verdicts are" in markdown
    assert "* runs/older.nc: the study 'older' is not installed" in markdown
    (swept,) = [row for row in rows if row.startswith("| B-1")]
    assert "0.011 to 0.561 over 21 cells" in swept
    old = [row for row in rows if "(older, quick)" in row]
    assert len(old) == 6
    assert all("not stored" in row for row in old), "saccade 0.1 stored no statements"
    plain = json.loads(json.dumps(ledger_rows(unknown), allow_nan=False))
    assert {row["note"] for row in plain if row["study"] == "older"} == {
        "runs/older.nc: the study 'older' is not installed"
    }
    assert [row["note"] for row in ledger_rows([(study, record)])] == [""] * 6


def test_stored_verdicts_that_make_no_sense_are_one_error(record):
    for verdicts in ({"A-1": {"verdict": "holds"}}, {"A-1": 5}, {"A-1": {"cells": 3}}):
        with pytest.raises(FileError, match=r"x\.nc.*stored verdicts cannot be read"):
            StoredStudy.of(dataclasses.replace(record, verdicts=verdicts), "x.nc: not installed")


def test_a_record_is_judged_once(study, record, monkeypatch):
    judged = []
    judge = Claim.judge
    monkeypatch.setattr(Claim, "judge", lambda *given: judged.append(given[0].id) or judge(*given))
    fresh = dataclasses.replace(record)
    ledger_markdown([(study, fresh)])
    ledger_rows([(study, fresh)])
    assert sorted(judged) == sorted(claim.id for claim in study.claims)
