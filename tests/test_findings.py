"""docs/findings.md: every number, verdict and sentence of a finding comes from a committed record.

A list item begins with the claims that it is about, `**A-2, A-3** (hold): ...`. Its numbers are
those that `NUMBERS` computes for these claims, in this order; no other text of the page has any.
"""

import functools
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from saccade.judging.bound import Verdict
from saccade.judging.statistics import Finding
from saccade.records.record import Record
from saccade.registry import find_study
from saccade.report.formatting import number
from saccade.report.judged import KINDS, JudgedClaim, counts, judged_claims
from saccade.report.papers import PAPERS, Paper, finding_of, paper_of

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
CLAIM = re.compile(r"\b[A-F]-\d+[a-z]?\b")
HEAD = re.compile(r"\*\*([^*]+)\*\* \(([^)]+)\)[,:] ")
"""Claims of an item, and their verdicts: `**A-4** (holds; fails in `code`)`."""
PART = re.compile(r"(holds?|fails?|undetermined)(?: in `(\w+)`)?")
DIGITS = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
WORDS = re.compile(
    r"\b(two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w+teen"
    r"|(?:twen|thir|for|fif|six|seven|eigh|nine)ty|hundred|thousand)\b"
)
ALLOWED = re.compile(
    r"\b(corollary 1|theorem [12]|Equation 15|IBM Model 1|SST-[25]|two stages)\b",
    re.IGNORECASE,
)
"""Names with a number in them."""
NOT_COUNTED = "B-13 to B-16 have records", "D-10, about whole"


@functools.cache
def rows() -> Sequence[JudgedClaim]:
    """All claims, judged from the committed records."""
    records = [Record.open(file) for file in sorted((ROOT / "results").glob("*.nc*"))]
    return judged_claims([(find_study(record.study), record) for record in records])


@functools.cache
def row(claim: str, preset: str) -> JudgedClaim:
    (found,) = [one for one in rows() if one.claim.id == claim and one.record.preset == preset]
    return found


def check(claim: str, place: int = 0, preset: str = "paper") -> Finding:
    return row(claim, preset).judgement.findings[place]


# -- where a number comes from ---------------------------------------------------------------------


def value(claim: str, place: int = 0, preset: str = "paper") -> list[str]:
    """What a check measured."""
    return [number(check(claim, place, preset).value)]


def values(claim: str, *places: int, preset: str = "paper") -> list[str]:
    return [number(check(claim, place, preset).value) for place in places]


def ends(claim: str, corpora: int) -> list[str]:
    """Smallest and largest value of the first quantity, one check per corpus."""
    found = [check(claim, place).value for place in range(corpora)]
    return [number(min(found)), number(max(found))]


def largest(claim: str, *places: int) -> list[str]:
    return [number(max(check(claim, place).value for place in places))]


def kept(claim: str, *places: int) -> list[str]:
    """Seeds that keep every one of the bounds, which only the least kept one may break: "19 of 20
    seeds" are 19 and 20.
    """
    found = [check(claim, place) for place in places or (0,)]
    broken = [one for one in found if one.kept != one.judged]
    assert len(broken) <= 1, "of several it is not known whether they are the same seeds"
    (total,) = {one.judged for one in found}
    return [str((broken or found)[0].kept), str(total)]


def runs(claim: str, place: int = 0) -> list[str]:
    """A rate as a count: 0.95 of 20 runs are 19 and 20."""
    found = check(claim, place)
    hits = found.value * found.seeds
    assert abs(hits - round(hits)) < 1e-6
    return [str(round(hits)), str(found.seeds)]


def stated(claim: str, text: str, preset: str = "paper") -> list[str]:
    """A setting or bound, in the words of the claim; its number is quoted."""
    judged = row(claim, preset)
    findings = judged.judgement.findings
    words = [judged.claim.statement, *(f"{one.quantity} ({one.bound})" for one in findings)]
    assert any(text in one for one in words), f"{claim} does not say {text!r}"
    (found,) = DIGITS.findall(text)
    return [found]


def always_named() -> list[str]:
    """Planted faults that are named in all of their runs, all faults, and their runs."""
    found = [check(f"F-{place}") for place in range(3, 17)]
    (each,) = {one.seeds for one in found}
    return [str(sum(one.value == 1 for one in found)), str(len(found)), str(each)]


def both(claims: Sequence[str]) -> list[str]:
    """Seeds that keep the bounds of claims of every seed, where all do."""
    found = [one for claim in claims for one in row(claim, "paper").judgement.findings]
    counted = {(one.kept, one.judged) for one in found if one.kept is not None}
    ((least, total),) = counted
    assert least == total
    return [str(least), str(total)]


NUMBERS: dict[str, Callable[[], list[str]]] = {
    "A-2 A-3 A-6": lambda: both(["A-2", "A-3", "A-6"]) + value("A-2") + value("A-6"),
    "A-9 A-11 A-10": lambda: values("A-9", 0, 1),
    "A-4": lambda: value("A-4", 1) + value("A-4", 1, "code"),
    "A-15 A-17 A-18": lambda: values("A-15", 0, 1, 2, 3),
    "A-4b": lambda: values("A-4b", 0, 1),
    "A-8 A-8b": lambda: values("A-8", 2, 3) + values("A-8b", 0, 1),
    "A-12 A-12b": lambda: kept("A-12", 2) + both(["A-12b"]),
    "A-13 A-13b": lambda: value("A-13", 1) + largest("A-13b", 0, 1, 2),
    "A-16": lambda: stated("A-16", "50 words") + values("A-16", 2, 3, 0, 1),
    "A-13c A-13d": lambda: largest("A-13c", 3, 4, 5) + largest("A-13d", 0, 1, 2),
    "A-4c": lambda: value("A-4c"),
    "A-9d A-9b": lambda: kept("A-9b", 0, 1, 2),
    "A-15c": lambda: value("A-15c"),
    "B-1 B-4": lambda: value("B-1"),
    "B-5 B-6": lambda: values("B-6", 0, 1),
    "B-9 B-9e": lambda: both(["B-9", "B-9e"]) + value("B-9") + value("B-9e"),
    "B-8 B-10": list,
    "B-13b B-13c": lambda: values("B-13b", 0, 1, preset="small") + value("B-13c", 0, "trained"),
    "B-9d B-9f": lambda: value("B-9d") + kept("B-9d", 0) + values("B-9f", 0, 1),
    "B-11 B-11e B-11b B-11c": lambda: kept("B-11", 2)[:1] + kept("B-11", 3) + both(["B-11c"]),
    "B-11f": lambda: _common([kept("B-11f", 0), kept("B-11f", 1)]),
    "B-14b B-16 B-16b": lambda: (
        stated("B-16", "all three ratios are 1", "small")
        + value("B-16", 2, "small")
        + value("B-16b", 0, "small")
        + stated("B-16b", "< 0.01", "small")
    ),
    "B-1c": lambda: value("B-1c"),
    "B-1b B-7b": lambda: value("B-7b"),
    "B-4b": lambda: values("B-4b", 0, 1),
    "B-11d": lambda: value("B-11d"),
    "B-13d": lambda: value("B-13d", 0, "trained"),
    "C-1 C-2": lambda: kept("C-1", 0),
    "C-12 C-13 C-15": lambda: ends("C-12", 5) + ends("C-15", 5),
    "C-12n C-15m C-12m": lambda: ends("C-12n", 5),
    "C-4f C-5": lambda: runs("C-4f", 1) + runs("C-4f", 0) + value("C-5"),
    "C-11": lambda: runs("C-11", 1) + runs("C-11", 0),
    "C-4 C-4b": lambda: stated("C-4", "within 300 steps") + runs("C-4", 1) + runs("C-4", 2),
    "C-6 C-6b": lambda: value("C-6") + stated("C-6b", "up to 1.5 times") + value("C-6b"),
    "C-7 C-7b C-16e": lambda: value("C-7") + value("C-7b") + value("C-16e"),
    "C-8 C-8c": lambda: runs("C-8") + runs("C-8c"),
    "C-9 C-9c": lambda: value("C-9") + value("C-9c") + value("C-9", 0, "code"),
    "C-8m C-8n": lambda: value("C-8n"),
    "C-16 C-16b C-16h": lambda: (
        stated("C-16", "the sign of step 5")
        + runs("C-16", 0)
        + stated("C-16", "40 words: ")
        + runs("C-16", 2)
        + stated("C-16", "30 words: ")
        + runs("C-16b")
        + runs("C-16h")
    ),
    "C-16f C-16i": lambda: runs("C-16i") + value("C-16f"),
    "C-16c C-17 C-17d": lambda: (
        runs("C-16c") + runs("C-17") + stated("C-17d", "25 steps after") + runs("C-17d")
    ),
    "C-4c": lambda: runs("C-4c"),
    "D-1 D-3b": lambda: value("D-1") + value("D-3b"),
    "D-4": lambda: value("D-4"),
    "D-7": lambda: (
        stated("D-7", "queries 5 times")
        + value("D-7", 0)
        + stated("D-7", "queries 20 times")
        + value("D-7", 1)
    ),
    "D-8b": lambda: value("D-8b"),
    "D-2 D-2b": lambda: kept("D-2") + kept("D-2b"),
    "D-3": lambda: kept("D-3", 0, 1),
    "D-5 D-5b D-5c": lambda: kept("D-5", 2) + both(["D-5b"]),
    "D-6 D-6b": lambda: value("D-6b", 1) + value("D-6", 2),
    "D-9 D-9d D-9b D-9c D-9e D-9k": lambda: [
        *value("D-9"),
        *value("D-9c"),
        *value("D-9b", 1),
        *values("D-9k", 0, 1),
    ],
    "D-9h D-9i D-9f D-9g D-9j": lambda: [*value("D-9f", 0, "small"), *value("D-9h", 0, "small")],
    "D-8 D-8c": lambda: kept("D-8", 0) + kept("D-8c", 0, 1),
    "D-1b": lambda: value("D-1b"),
    "D-3c D-3d": lambda: value("D-3d"),
    "E-13 E-13b E-13f": lambda: values("E-13", 0, 3, 4) + value("E-13b") + kept("E-13f", 0),
    "E-13e": lambda: value("E-13e"),
    "F-1 F-2": lambda: runs("F-2"),
    "F-7 F-11 F-17": lambda: always_named() + runs("F-7") + runs("F-11") + runs("F-17"),
}


def _common(found: list[list[str]]) -> list[str]:
    assert all(one == found[0] for one in found)
    return found[0]


# -- what the page says ----------------------------------------------------------------------------


def numbers_in(text: str) -> list[str]:
    """All numbers, in digits or words, but for claims and names."""
    plain = ALLOWED.sub("", CLAIM.sub("", text))
    return [one.replace(",", "") for one in DIGITS.findall(plain)] + WORDS.findall(plain)


def blocks(page: str) -> list[str]:
    """Headings, tables, quotations, list items and paragraphs, each on one line."""
    parts = re.split(r"\n\n+|\n(?=[*|#] ?)", page)
    return [" ".join(part.split()) for part in parts if part.strip()]


def table_of(paper: Paper) -> str:
    """Its row of the table of counts."""
    mine = [one for one in rows() if paper_of(one.study) is paper and one.record.preset == "paper"]
    found = {some.kind: some for some in counts(mine)}
    words = ((found[kind].text if kind in found else "none") for kind in KINDS)
    cells = [re.sub(r".*: (\d+) \((.*)\)", r"\1: \2", one) for one in words]
    return f"| {paper.citation} | {' | '.join(cells)} |"


def verdict_problems(head: str, given: str) -> list[str]:
    """Verdicts behind a head that are not those of the records."""
    problems = []
    for part in given.split("; "):
        match = PART.fullmatch(part)
        if match is None:
            return [f"{head}: cannot read {part!r}"]
        word, preset = match[1], match[2] or "paper"
        verdict: Verdict = "holds" if word[0] == "h" else "fails" if word[0] == "f" else word  # pyright: ignore[reportAssignmentType]
        for claim in head.split(", "):
            presets = {one.record.preset for one in rows() if one.claim.id == claim}
            if preset not in presets or row(claim, preset).judgement.verdict != verdict:
                problems.append(f"{claim}: not {verdict} in {preset}")
    return problems


def heads_of(item: str) -> list[re.Match[str]]:
    """The claims with which a list item begins, and their verdicts."""
    heads, at = [], 0
    while match := HEAD.match(item, at):
        heads.append(match)
        at = match.end()
    return heads


def key_of(heads: Sequence[re.Match[str]]) -> str:
    return " ".join(head[1].replace(",", "") for head in heads)


def item_problems(item: str) -> list[str]:
    heads = heads_of(item)
    key = key_of(heads)
    if key not in NUMBERS:
        return [f"no numbers are known for {key!r}"]
    wrong = [one for head in heads for one in verdict_problems(head[1], head[2])]
    body = item[heads[-1].end() :]
    wrong += [f"{key}: no verdict of {one}" for one in {*CLAIM.findall(body)} - {*key.split()}]
    found, expected = numbers_in(body), NUMBERS[key]()
    return wrong + ([] if found == expected else [f"{key}: {found}, computed: {expected}"])


def items(page: str) -> list[str]:
    return [block[2:] for block in blocks(page) if block.startswith("* ")]


def problems(page: str) -> list[str]:
    """All that the records do not support."""
    found, seen = [], []
    tables = [table_of(paper) for paper in PAPERS]
    sentences = [finding_of(paper, rows()) for paper in PAPERS]
    quoted = [f"> {one.text}" for one in sentences if one is not None]
    citations = [f"## {paper.citation}" for paper in PAPERS]
    for block in blocks(page):
        exact = block in tables or block.replace(" > ", " ") in quoted or block in citations
        seen += [block.replace(" > ", " ")] if exact else []
        if block.startswith("* "):
            found += item_problems(block[2:])
        elif not exact:
            plain = block.replace("The four papers", "")
            for phrase in NOT_COUNTED:
                plain = plain.replace(phrase, "")
            if CLAIM.search(plain) or numbers_in(plain) or block[0] in ">":
                found.append(f"not computed: {block}")
    wanted = [*tables, *(one for pair in zip(citations, quoted, strict=True) for one in pair)]
    return found + ([] if seen == wanted else ["tables, headings or findings are not all there"])


def test_every_number_verdict_and_finding_is_that_of_the_records():
    assert problems(PAGE) == []


def test_every_computed_number_is_on_the_page():
    keys = [key_of(heads_of(item)) for item in items(PAGE)]
    assert sorted(keys) == sorted(NUMBERS)


def edited_numbers() -> list[tuple[int, str]]:
    """Places of all digits of the page, and the page with this digit changed: by 4, which makes no
    other name (theorem 1 and theorem 2, SST-2 and SST-5).
    """
    places = [match.start() for match in re.finditer(r"\d", PAGE)]
    changed = (str((int(PAGE[place]) + 4) % 10) for place in places)
    return [
        (place, PAGE[:place] + digit + PAGE[place + 1 :])
        for place, digit in zip(places, changed, strict=True)
    ]


def test_every_edited_digit_is_found():
    missed = [place for place, page in edited_numbers() if not problems(page)]
    assert [PAGE[max(0, place - 40) : place + 10] for place in missed] == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("**A-4b** (fails)", "**A-4b** (holds)"),
        ("**A-15** (holds; fails in `code`)", "**A-15** (holds; holds in `code`)"),
        ("**B-13b** (holds in `small`)", "**B-13b** (holds in `trained`)"),
        ("**A-2, A-3, A-6** (hold)", "**A-2, A-3, A-6** (undetermined)"),
        ("grows in balance with the keys", "shrinks in balance with the keys"),
        ("fewer epochs:", "twelve epochs:"),
        ("What is new:", "What is new, in 7 items:"),
        ("14 hold, 4 fail, 1 undetermined", "15 hold, 3 fail, 1 undetermined"),
        ("## Beyond the papers", "## Beyond"),
    ],
)
def test_an_edited_sentence_is_found(old: str, new: str):
    assert old in PAGE
    assert problems(PAGE.replace(old, new, 1))


def test_a_paper_has_at_most_forty_lines():
    sections = re.split(r"^## .*\n", PAGE, flags=re.MULTILINE)
    assert len(sections) == 1 + len(PAPERS)
    for section in sections:
        assert sum(bool(line.strip()) for line in section.splitlines()) <= 40
