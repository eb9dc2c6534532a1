"""The command `saccade compare`, on committed records and on files that cannot be compared."""

import json
import re
import shutil
from pathlib import Path

import pytest

from saccade.cli import main

RESULTS = Path(__file__).parent.parent / "results"
PAPER, CODE = (str(RESULTS / f"sen{which}.nc.gz") for which in ("", "-code"))


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["compare", *arguments]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


def test_paper_and_code_presets_of_sen_at_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = printed(capsys, PAPER, CODE)
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    for wanted in (
        "A-4 (holds, fails), A-4c (holds, undetermined)",
        "would exceed by chance",
        "if 0 lies outside its own 95 % interval",
        "* model.embedding_std 0.001 1e-06",
        "The versions are the same.",
        "(only A)",
        "the rate is derived for orthonormal columns",
        "after Bonferroni's correction",
    ):
        assert wanted in flat, wanted
    # No interval is cut: every bracket that opens is closed.
    body = text[text.index("Claims and checks") : text.index("Trajectories:")]
    assert body.count("[") == body.count("]") > 60


def test_the_same_numbers_as_json(capsys):
    found = json.loads(printed(capsys, PAPER, CODE, "--json"))
    assert (found["study"], found["identical"]) == ("sen", False)
    assert {pair["name"] for pair in found["settings"]} >= {"model.query", "task.train_size"}
    assert found["counts"]["other_verdicts"] == 2
    assert found["counts"]["compared"] == sum(len(claim["checks"]) for claim in found["claims"])
    assert 0 < found["counts"]["exceed"] <= found["counts"]["compared"]
    claim = next(one for one in found["claims"] if one["id"] == "A-4")
    attention = claim["checks"][1]
    assert attention["difference"]["outcome"] == "exceeds"
    gap = attention["second"]["value"] - attention["first"]["value"]
    assert attention["difference"]["value"] == pytest.approx(gap)


def test_topics_are_compared_too(capsys):
    names = [str(RESULTS / f"topics_attention{which}.nc.gz") for which in ("", "-code")]
    found = json.loads(printed(capsys, *names, "--json"))
    assert found["counts"]["cannot_be_compared"] == 0
    assert found["counts"]["trajectory_variables"] > 50
    outcomes = [
        one["difference"]["outcome"] for claim in found["claims"] for one in claim["checks"]
    ]
    assert {"exceeds", "within"} == set(outcomes)


def test_identical_files_are_said_to_be_so_and_nothing_is_marked(capsys, tmp_path):
    copy = tmp_path / "copy" / "record.nc.gz"
    copy.parent.mkdir()
    shutil.copy(PAPER, copy)
    for other in (PAPER, str(copy), str(copy.parent)):
        text = printed(capsys, PAPER, other)
        assert "A and B are the same file, or copies of it." in text
        assert "0 of 26 differences exceed" in " ".join(text.split())
        assert "Shared seeds: 32 in FC" in text
        assert not re.search(r"^\* |  \* [+-]", text, re.MULTILINE)


def test_the_page_is_written(capsys, tmp_path):
    page = tmp_path / "deep" / "compare.html"
    text = printed(capsys, PAPER, CODE, "-o", str(page))
    assert text.splitlines()[-1].endswith("compare.html")
    assert text.startswith("Verdicts: 2 of 12 claims")
    assert 1_000_000 < page.stat().st_size < 5_000_000
    assert main(["compare", PAPER, CODE, "--json", "-o", str(page)]) == 0
    both = capsys.readouterr()
    assert json.loads(both.out)["study"] == "sen"
    assert both.err == f"the page: {page}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        ([], 2, "got 0 records, usage: saccade compare A B"),
        ([PAPER], 2, "got 1 record, usage: saccade compare A B"),
        ([PAPER, CODE, PAPER], 2, "got 3 records, usage: saccade compare A B"),
        ([PAPER, "missing.nc"], 1, "cannot read missing.nc: no such file or folder"),
        ([PAPER, "text.nc"], 1, "text.nc: has no saccade seal at its end"),
        ([PAPER, "empty"], 1, "no records (*.nc, *.nc.gz) below empty"),
        ([PAPER, str(RESULTS)], 2, "records below"),
        ([PAPER, str(RESULTS / "topics_optima.nc.gz")], 2, "allowed: two records of one study"),
        ([PAPER, CODE, "--wrong"], 2, "--wrong: no such option of saccade compare"),
        ([PAPER, CODE, "-o", "."], 1, "cannot write"),
    ],
)
def test_every_mistake_is_one_line(arguments, code, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("text.nc").write_text("no record\n" * 20)
    Path("empty").mkdir()
    assert main(["compare", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"saccade: [^\n]+\n", printed.err)
    assert told in printed.err
