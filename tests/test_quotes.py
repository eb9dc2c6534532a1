"""Every measured number that documents and explanations quote is in the ledger, in the row of a
claim that the same paragraph names. (tests/test_committed.py makes that row from its record.)
"""

import functools
import itertools
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.probes.translation import READABLE
from saccade.records.record import Record
from saccade.records.trajectory import at_place, at_start, first_step
from saccade.registry import find_study, study_names
from saccade.studies import kernels_stationary, ktiw_classification, ktiw_fate
from saccade.studies._agreement import AGREEMENTS, best_of
from saccade.studies.ktiw_translation import ACCURACY, RUNS
from saccade.studies.sen_sst import learns

ROOT = Path(__file__).parents[1]
CLAIM = re.compile(r"\b([A-F]-\d+[a-z]?)\b")
QUOTED = re.compile(r"\d[\d,]*\.\d+(?:e-?\d+)?|\d+ of \d+|\d+(?:\.\d+)? %")
"""Decimal numbers, counts of runs and percentages."""
NUMBER = re.compile(r"\d+\.?\d*(?:e[+-]?\d+)?")


@functools.cache
def rows() -> dict[str, list[list[str]]]:
    """The cells of the ledger's rows, by claim."""
    found: dict[str, list[list[str]]] = {}
    for line in (ROOT / "docs" / "ledger.md").read_text().splitlines():
        if line.startswith("| ") and CLAIM.match(line[2:]):
            cells = re.split(r" (?<!\\)\| ", line.strip("| "))
            found.setdefault(cells[0].split()[0], []).append(cells)
    return found


@functools.cache
def in_ledger(claim: str) -> set[str]:
    """All that may be quoted where a claim is named; rates also as counts and percentages."""
    allowed: set[str] = set()
    for cells in rows().get(claim, []):
        text, numbers = " ".join(cells), NUMBER.findall(cells[5])
        allowed |= {*QUOTED.findall(text), *NUMBER.findall(text)}
        for number, seeds in itertools.product(numbers, map(int, re.findall(r"\d+", cells[6]))):
            hits = float(number) * seeds
            if float(number) <= 1 and abs(hits - round(hits)) < 0.001 * seeds:
                allowed.add(f"{round(hits)} of {seeds}")
        allowed |= {f"{float(number):.0%}".replace("%", " %") for number in numbers}
    return allowed


def unsupported(text: str, also: str = "") -> list[str]:
    """Quoted numbers of a paragraph that no claim named there has measured."""
    plain = re.sub(r"`[^`]*`", "", CLAIM.sub("", text))
    claims = {*CLAIM.findall(text), *([also] if also else [])}
    allowed = set().union(*map(in_ledger, claims)) if claims else set()
    return [one for one in QUOTED.findall(plain) if one not in allowed]


def paragraphs() -> list[str]:
    text = (ROOT / "docs" / "papers.md").read_text()
    return [" ".join(one.split()) for one in re.split(r"\n\n|\n\* ", text) if "|---" not in one]


@pytest.mark.parametrize("place", range(len(paragraphs())))
def test_a_paragraph_quotes_the_ledger(place: int):
    assert not unsupported(paragraphs()[place])


@pytest.mark.parametrize("name", ["README.md", "docs/start.md", "docs/theory.md"])
def test_a_paragraph_that_names_a_claim_quotes_the_ledger(name: str):
    text = re.sub(r"^```.*?^```", "", (ROOT / name).read_text(), flags=re.MULTILINE | re.DOTALL)
    for one in text.split("\n\n"):
        if CLAIM.search(one):
            assert not unsupported(" ".join(one.split())), name


@pytest.mark.parametrize("study", study_names())
def test_an_explanation_quotes_the_ledger(study: str):
    for claim in find_study(study).claims:
        assert not unsupported(claim.reason, claim.id), claim.id


def test_a_number_from_nowhere_is_found():
    assert unsupported("**A-2**: the gap is 0.123456.") == ["0.123456"]
    assert unsupported("No claim is named here, 19 of 20 runs.") == ["19 of 20"]


def arms_and_config(name: str) -> tuple[Any, Any]:
    record = Record.open(ROOT / "results" / f"{name}.nc.gz")
    return record.arms, find_study(record.study).config_of(record)


def test_findings_that_no_claim_measures():
    """Those of docs/papers.md and of the explanations of C-8d, C-9 and A-10."""
    for name, edited, counts in (
        ("ktiw_fate", "turned", (19, 4)),
        ("ktiw_reflection", "reflected", (12, 3)),
    ):
        sham, other = ktiw_fate._two_fates("sham", edited, *arms_and_config(name))
        assert (int((sham > other).sum()), int((sham < other).sum())) == counts
    ratios = kernels_stationary._matched_ratio(*arms_and_config("kernels_stationary"))
    assert int((ratios > 1).sum()) == 9
    arms, _ = arms_and_config("ktiw_classification")
    tables = {
        corpus: ([100 * float(best_of(arms, corpus, name).mean()) for name in AGREEMENTS], paper)
        for corpus, paper in ktiw_classification.PAPER_AGREEMENT.items()
    }
    assert int((np.abs(np.subtract(*tables["imdb"])) < 5).sum()) == 3
    ratios = {corpus: ours[0] / paper[0] for corpus, (ours, paper) in tables.items()}
    assert round(ratios["yelp_sample"], 1) == 3.1
    assert round(ratios["newsgroups"], 1) == 0.5
    arms, _ = arms_and_config("sen_synergy")
    tied, free = (arms[name].trajectory["score"].mean("word") for name in ("EF", "TC"))
    assert bool((tied > free).sel(step=slice(None, 7000)).isel(step=-1).all())
    arms, config = arms_and_config("ktiw_copying")
    trajectory = arms["by_words"].trajectory.sel(words=config.choice)
    right, found = trajectory["lexicon_right"], trajectory["attention_accuracy"]
    doubled = first_step(right > 2 * at_start(right), np.inf)
    attended = first_step(found.sel(offset=READABLE).sum("offset") > 0.5, np.inf)
    assert int((doubled == attended).sum()) == 2
    assert int((doubled > attended).sum()) == 0


def test_findings_of_translation_that_no_claim_measures():
    arms, config = arms_and_config("ktiw_translation")
    scores = {name: arms[f"{name}_bleu"].trajectory["bleu_beam"] for name in config.corpora[:5]}
    assert round(100 * float(best_of(arms, "multi30k", "alpha_uniform").mean())) == 32
    assert round(float(scores["multi30k"].mean())) == 36
    # Tatoeba: two runs that align words, and three that are level with uniform attention.
    attention, uniform = (arms[f"tatoeba_{name}"].trajectory for name in RUNS)
    ends = [at_place(one[ACCURACY], -1) for one in (attention, uniform)]
    aligns = scores["tatoeba"] > 24
    assert aligns.sum() == 2
    assert (ends[0].where(aligns) > ends[1].max() + 0.015).sum() == 2
    stuck = scores["tatoeba"].where(~aligns)
    assert (stuck.min().round(), stuck.max().round()) == (18, 20)
    assert ends[0].where(~aligns).max() < ends[1].min() + 0.005
    gap = arms["tatoeba_agreement"].trajectory["alpha_uniform_top_test"].where(~aligns)
    assert (gap.isel(step=-1) < gap.max("step") - 0.09).sum() == 3
    errors = arms["lexicon_alignment"].trajectory
    half = {
        name: first_step(errors[f"error_{name}"] < 0.5, np.inf)
        for name in ("attention", "uniform", "probe")
    }
    found = {name: (int(one.min()), int(one.max())) for name, one in half.items()}
    assert found == {"attention": (200, 250), "uniform": (250, 350), "probe": (150, 250)}
    best = [errors["error_model_1"].mean(), errors["error_proxy"].min("proxy_step").mean()]
    assert [round(100 * float(one)) for one in best] == [15, 15]


def test_epochs_and_runs_of_reviews_with_the_authors_columns():
    arms, _ = arms_and_config("sen_sst-code")
    epochs = [arms[name].trajectory["best_step"] for name in ("sst2_FC", "sst5_FC")]
    assert [round(float(one.mean()), -2) for one in epochs] == [7700, 4400]
    assert int((1 - learns("sst2_TC_padding", arms)).sum()) == 13


def test_bad_heads_of_the_two_presets():
    heads = arms_and_config("ktiw_multihead")[0]["candidates"].trajectory
    low = (at_place(heads["test_accuracy"], -1) < 0.6).all("seed")
    assert not (low & heads["bad"]).any()
    arms, config = arms_and_config("ktiw_multihead-code")
    bad = arms["candidates"].trajectory["bad"].sum("head").values
    assert [int(one) for one in bad if one >= config.model.heads] == [9]


def test_the_ledgers_headline_counts_its_rows():
    text = (ROOT / "docs" / "ledger.md").read_text()
    head = re.findall(r"^\* .*: \d+ \((\d+) holds?, (\d+) fails?, (\d+) undet", text, re.MULTILINE)
    sums = [sum(map(int, column)) for column in zip(*head, strict=True)]
    verdicts = Counter(cells[7].split()[0] for some in rows().values() for cells in some)
    assert sums == [verdicts[word] for word in ("holds", "fails", "undetermined")]
