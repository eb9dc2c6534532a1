"""Every measured number that documents and explanations quote is in the ledger, in the row of a
claim that the same paragraph names.
"""

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from saccade.core.record import Record
from saccade.core.statistics import Finding
from saccade.registry import find_study
from saccade.report.formatting import measured, number
from saccade.report.judged import TEXTS, JudgedClaim, judged_claims

ROOT = Path(__file__).parents[1]
CLAIM = re.compile(r"\b([A-E]-\d+[a-z]?)\b")
QUOTED = re.compile(r"\d[\d,]*\.\d+(?:e-?\d+)?|\d+ of \d+|\d+(?:\.\d+)? %")
"""Decimal numbers, counts of runs and percentages."""


@functools.cache
def rows() -> dict[str, list[JudgedClaim]]:
    """The rows of the committed records, by claim."""
    records = map(Record.open, sorted((ROOT / "results").glob("*.nc.gz")))
    found: dict[str, list[JudgedClaim]] = {}
    for row in judged_claims([(find_study(record.study), record) for record in records]):
        found.setdefault(row.claim.id, []).append(row)
    return found


def numbers_of(finding: Finding) -> Iterator[str]:
    """What may be quoted of a finding: numbers as in the ledger, rates also as counts."""
    yield from re.findall(r"[\d.]+(?:e[+-]?\d+)?", measured(finding))
    for value in (finding.value, finding.low, finding.high):
        yield from (number(abs(value)), f"{abs(value):.2f}", f"{abs(value):.1f}", f"{value:.0%}")
    for hits in (finding.value * finding.seeds, finding.kept):
        if hits is not None and hits == hits and abs(hits - round(hits)) < 1e-9:
            yield f"{round(hits)} of {finding.seeds}"


def in_ledger(claim: str) -> set[str]:
    """All that may be quoted where a claim is named."""
    allowed: set[str] = set()
    for row in rows().get(claim, []):
        texts = [getattr(row.claim, name) for name in TEXTS]
        for finding in row.judgement.findings:
            texts += [finding.quantity, finding.bound]
            allowed |= set(numbers_of(finding))
        allowed |= {one.replace("%", " %").replace("  ", " ") for one in allowed}
        allowed |= set(QUOTED.findall(" ".join(texts)))
        allowed |= set(re.findall(r"\d+\.\d+", " ".join(texts)))
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
    text = paragraphs()[place]
    assert not unsupported(text), text


def test_an_explanation_quotes_the_ledger():
    for claim, found in rows().items():
        for row in found:
            wrong = unsupported(getattr(row.claim, "reason", ""), claim)
            assert not wrong, f"{claim} ({row.record.preset}): {wrong}"


def test_a_number_from_nowhere_is_found():
    assert unsupported("**A-2**: the gap is 0.123456.") == ["0.123456"]
    assert unsupported("No claim is named here, 19 of 20 runs.") == ["19 of 20"]
