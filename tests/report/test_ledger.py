"""The ledger: one row a claim, in order, with nothing that breaks a table."""

import dataclasses
import json

import xarray as xr

from saccade.report.ledger import ledger_markdown, ledger_rows


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
        "relative error: 0.011 [0.0104, 0.0116] (<= 0.02)",
        "largest error:",
        "| 5 |",
        "| holds |",
        "CPU, 2 cores, float32",
        "0.1.0",
    ):
        assert text in row


def test_text_does_not_break_the_table(study, record):
    rows = table(ledger_markdown([(study, record)]))
    assert "The norm grows \\| with the score<br>and stays &lt;script>" in rows[-1]
    assert all(row.replace("\\|", "").count("|") == 11 for row in rows)


def test_verdicts_that_are_not_expected_say_so(study, record):
    markdown = ledger_markdown([(study, record)])
    rows = {row.split()[1]: row for row in table(markdown)}
    assert "| fails (expected: holds) |" in rows["A-1"]
    assert "| fails |" in rows["A-3"], "expected to fail"
    assert "| undetermined (expected: holds) |" in rows["A-4"]
    assert "4 of 5" in rows["A-5"], "one seed diverged"
    assert "6 claims: 1 hold, 3 fail, 2 undetermined; 4 not the expected verdict." in markdown


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
        "* **A-3 (example, quick)**, expected: fails. the text leaves out the first 100 steps."
        in markdown
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
    assert ledger_markdown([(study, lying)]) == ledger_markdown([(study, record)])


def test_rows_are_plain_json(entries):
    rows = json.loads(json.dumps(ledger_rows(entries), allow_nan=False))
    assert len(rows) == 13
    assert rows[0]["claim"] == "A-1"
    assert rows[0]["verdict"] == "fails"
    assert rows[0]["findings"][0]["seeds"] == 4
    assert rows[-1]["cells"]


def test_no_records_make_an_empty_ledger():
    assert "0 claims" in ledger_markdown([])
    assert ledger_rows([]) == []
