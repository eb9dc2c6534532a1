"""The page: one offline file with everything on it, escaped, that a browser draws."""

import base64
import dataclasses
import gzip
import json
import re
from typing import Any

import numpy as np
import pytest
from markupsafe import escape

from saccade.errors import FileError
from saccade.figures.figure import Figure, Line, Panel
from saccade.report.judged import StoredStudy
from saccade.report.page import LIMIT, render_page, write_page
from saccade.report.papers import PAPERS


@pytest.fixture(scope="module")
def page(entries) -> str:
    return render_page(entries)


def own(page: str) -> str:
    """The page without the inlined libraries and charts."""
    text = re.sub(r"<script>\(function \(\) \{.*?\n\}\)\(\);</script>", "", page, flags=re.DOTALL)
    return re.sub(r'(class="specification">)[^<]*', r"\1", text)


def packed(page: str) -> list[dict[str, Any]]:
    """What the browser unpacks: the charts, those of the cards first."""
    found = re.findall(r'class="specification">([^<]*)<', page)
    return [json.loads(gzip.decompress(base64.b64decode(one))) for one in found]


def claims_of(page: str) -> str:
    text = own(page)
    return text[text.index('id="claims"') : text.index('id="studies"')]


def test_nothing_is_fetched_and_the_page_is_light(page):
    assert len(page.encode()) < LIMIT
    assert not re.search(r"(src|href|srcset|action)\s*=\s*[\"']?\s*(https?:)?//", page)
    assert not re.search(
        r"@import|url\(|<link(?! rel=\"icon\" href=\"data:,\")|<iframe|<img", own(page)
    )
    assert "http" not in own(page)


def test_the_libraries_are_inlined_once_and_end_where_they_should(page):
    assert page.count("<script>(function () {\n") == 1
    scripts = re.findall(r"<script\b[^>]*>(.*?)</script>", page, flags=re.DOTALL)
    assert len(scripts) == 2 + 8, (
        "libraries, the page's own, three figures of two records, the map of claims of the"
        " swept one, and one panel on the card"
    )
    charts = packed(page)
    assert [len(one["specification"]["concat"]) for one in charts[:2]] == [1, 2]
    assert all(one["choice"] is None for one in charts)


def test_every_claim_is_a_tile_of_its_paper_and_a_row_that_unfolds(page):
    text = own(page)
    assert text.index('id="papers"') < text.index('id="claims"') < text.index('id="studies"')
    cards = text[text.index('id="papers"') : text.index('id="claims"')]
    assert re.findall(r"<h2>(.*?)</h2>", cards) == ["Lu, Example and Other 2021"]
    tiles = re.findall(r'aria-label="(\S+) (\w+), ([\w ]+)"', cards)
    assert len(tiles) == 13
    assert tiles[0] == ("A-1", "fails", "exploratory")
    ledger = claims_of(page)
    assert len(re.findall(r'<details class="row"', ledger)) == 13
    for wanted in (
        "Lu 2021, Theorem 1",
        "0.011 [0.01, 0.012]",
        "&lt;= 0.02",
        "✓",
        "✗",
        "the text leaves out",
    ):
        assert wanted in ledger
    assert ledger.count("known: holds") == 1, "A-1 of the quick preset"
    assert ledger.count(" data-changed>") == 1
    assert ledger.count('data-status="exploratory"') == 11
    assert ledger.count('data-status="unlabelled"') == 2
    assert "4 of 5" in ledger


def test_verdicts_are_counted_by_kind_and_changes_are_listed(study, record):
    page = render_page([(study, record)])
    head = re.sub(r"<[^>]*>", "", claims_of(page).split("<form")[0])
    for counts in (
        "Exploratory claims: 5 (✓ 1 holds, ✗ 3 fail, ? 1 undetermined)",
        "Claims of our own without a number: 1 (✓ 0 hold, ✗ 0 fail, ? 1 undetermined)",
    ):
        assert counts in " ".join(head.split())
    assert "6 claims: 1 hold, 3 fail, 2 undetermined" in own(page)
    head = own(page)
    assert "Other verdicts than the known ones: A-1 (holds, now fails)" in head
    other = own(render_page([(study, dataclasses.replace(record, preset="paper"))]))
    assert "than the known ones" not in other


def test_a_registered_claim_says_so_and_the_commit_is_a_fact(study, record):
    made = study.with_verdicts(dataclasses.replace(record, verdicts={}), "abc")
    kept = {"A-2": made.verdicts["A-2"]}
    page = own(render_page([(study, dataclasses.replace(made, verdicts=kept))]))
    ledger = claims_of(page)
    status = [ledger.count(f'data-status="{one}"') for one in ("registered", "exploratory")]
    assert status == [1, 4]
    assert re.search(r"commit</\w+>\s*<\w+[^>]*>abc<", page)


def test_rows_link_to_what_exists(page):
    targets = re.findall(r'href="#([^"]+)"', own(page))
    places = re.findall(r'\bid="([^"]+)"', own(page))
    assert len(places) == len(set(places))
    assert targets
    assert set(targets) <= set(places)


def test_anchors_are_unique_in_every_script(study, record):
    claims = [
        dataclasses.replace(claim, id=name)
        for claim, name in zip(study.claims, ("主-1", "論-1", "A.1", "A-1"), strict=False)
    ]
    page = own(render_page([(dataclasses.replace(study, claims=tuple(claims)), record)]))
    rows = re.findall(r'<details class="row" id="([^"]+)"', page)
    assert len(set(rows)) == 4
    assert {"claim-example-quick-主-1", "claim-example-quick-論-1"} <= set(rows)


def test_a_setting_named_sweep_is_a_setting(study, record):
    settings = {**record.config, "sweep": "every night", "map": 3}
    page = own(render_page([(study, dataclasses.replace(record, config=settings))]))
    assert "every night" in page


def test_a_study_of_others_does_not_join_the_card_of_a_paper(study, record, entries):
    theirs = dataclasses.replace(study, paper=PAPERS[0].citation)
    page = own(render_page([(theirs, record)]))
    assert f"<h2>{escape(PAPERS[0].citation)}: other studies</h2>" in page
    assert "Surprising" not in page


@pytest.mark.parametrize("where", ["verdict", "finding"])
def test_a_stored_verdict_that_is_none_is_refused_with_its_file(unknown, where):
    _, record = unknown[0]
    verdicts = json.loads(json.dumps(dict(record.verdicts)))
    first = next(one for one in verdicts.values() if one["findings"])
    (first if where == "verdict" else first["findings"][0])["verdict"] = "maybe"
    with pytest.raises(
        FileError, match=r"theirs.nc, and its stored verdicts cannot be read .*maybe"
    ):
        StoredStudy.of(dataclasses.replace(record, verdicts=verdicts), "theirs.nc")


def test_records_of_two_presets_are_told_apart(page, study, record):
    assert 'id="example-quick"' in page
    assert 'id="example-paper"' in page
    same = render_page([(study, record), (study, record)])
    assert 'id="example-quick--2"' in same


def test_text_is_escaped(page):
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;" in page
    assert "not &lt;stated&gt;" in page
    assert "<b>scores" not in page


def test_a_study_has_its_facts(page):
    text = own(page)
    for wanted in (
        "Lu, Example and Other 2021",
        "CPU, 2 cores",
        "float32",
        "7.2 s",
        "jax",
        "optimiser.momentum",
        "1, 2.5",
        "wild: 1 of 5 members diverged (seed 3 at step 40)",
        "batch size",
        "twice the standard error",
        "growth of the score (Theorem 1)",
        "rate (3 values), variance (7 values)",
    ):
        assert wanted in text, wanted


def test_a_sweep_has_its_map(page):
    (found,) = re.findall(r'<table class="map">.*?</table>', page, flags=re.DOTALL)
    assert len(re.findall(r"<td ", found)) == 21
    assert "holds in 4, fails in 17, undetermined in 0 of 21 cells" in page


def test_a_page_without_figures_needs_no_libraries(study, record):
    page = render_page([(dataclasses.replace(study, figures=lambda arms, config: []), record)])
    assert len(page) < 40_000
    assert "✗ fails" in page


def test_many_records_still_make_a_light_page(study, record):
    x = np.random.default_rng(0).random(400)
    panel = Panel("p", "x", "y", tuple(Line(f"line {place}", x, x, x, x) for place in range(8)))
    heavy = dataclasses.replace(
        study, figures=lambda arms, config: [Figure("f", "t", "", (panel,) * 6)] * 3
    )
    assert len(render_page([(heavy, record)] * 4).encode()) < LIMIT


def test_the_page_is_the_same_twice(entries, tmp_path):
    write_page(entries, tmp_path / "deep" / "a.html")
    write_page(entries, tmp_path / "b.html")
    assert (tmp_path / "deep" / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_a_page_that_cannot_be_written_is_one_error(tmp_path):
    with pytest.raises(FileError, match="cannot write"):
        write_page([], tmp_path)


def test_a_study_that_is_not_installed_is_shown_with_its_stored_verdicts(unknown, entries):
    page = render_page([*unknown, entries[0]])
    text = own(page)
    assert text.count("is not installed. The verdicts and values are those stored") == 3
    assert "runs/older.nc: the study &#39;older&#39;" in text
    assert text.count("stored, not compared ·") == 13
    assert "Score and norm grow together &amp; alone" in text
    assert len(re.findall(r'<table class="map">.*?</table>', page, flags=re.DOTALL)) == 1
    sections = text.split('<details class="study"')[1:]
    assert sorted("<figure" in section for section in sections) == [False, False, False, True]


def test_figures_that_fail_are_left_out_with_a_note(study, record, capsys):
    broken = dataclasses.replace(study, figures=lambda arms, config: [arms["missing"]])
    text = own(render_page([(broken, record), (study, record)]))
    assert "left out: KeyError: &#39;missing&#39; (test_page.py, line" in text
    parts = text.split('<details class="study"')[1:]
    assert ["<figure" in part for part in parts] == [False, True]
    told = capsys.readouterr().err
    assert told.startswith("saccade: example, quick: figures left out: KeyError: 'missing'")
