"""The page: one HTML file, readable offline: a card per paper, all claims, each study.

Charts are compressed, and unpacked by the browser when their study is opened.
"""

import base64
import dataclasses
import functools
import gzip
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from saccade.errors import described, located
from saccade.figures.figure import Figure
from saccade.records.record import Record
from saccade.records.sealed import write_atomically
from saccade.report import charts
from saccade.report.formatting import (
    SYMBOLS,
    counted,
    diverged_members,
    measured_anywhere,
    natural,
    tick,
)
from saccade.report.judged import (
    Entry,
    JudgedClaim,
    changed,
    counts,
    judged_claims,
    note_of,
    preset_of,
    verdict_maps,
)
from saccade.report.papers import PAPERS, finding_of, paper_of
from saccade.workers.progress import duration

LIMIT = 5_000_000
"""Most bytes of a page: it must still go through a mail server."""
_FOR_CHARTS = 3_300_000
"""Bytes for compressed charts; the libraries take 900,000."""
_LISTED = 50
"""Most values of a sweep that are listed one by one."""


def write_page(entries: Sequence[Entry], path: Path) -> None:
    """Write the page of some records; no training, and nothing fetched from anywhere."""
    write_atomically(Path(path), render_page(entries).encode())


def render_page(entries: Sequence[Entry]) -> str:
    """The page as text."""
    entries = sorted(entries, key=_order)
    rows = judged_claims(entries)
    figures, problems = zip(*map(drawn_figures, entries), strict=True) if entries else ((), ())
    for (study, record), why in zip(entries, problems, strict=True):
        if why:
            print(f"saccade: {study.name}, {record.preset}: figures {why}", file=sys.stderr)
    anchors = _anchors(entries)
    drawings = _drawings(figures, anchors)
    ledger = [_ledger_row(row, anchors[row.entry]) for row in rows]
    for shown, anchor in zip(ledger, _numbered([one["anchor"] for one in ledger]), strict=True):
        shown["anchor"] = anchor
    sections = [
        _section(entry, anchor, problems[place])
        | {"claims": [shown for row, shown in zip(rows, ledger, strict=True) if row.entry == place]}
        | {"figures": drawings[place]}
        | {"theory": any(map(charts.has_theory, figures[place]))}
        | {"seeds": sorted({seed for one in figures[place] for seed in charts.seeds_of(one)})}
        for place, (entry, anchor) in enumerate(zip(entries, anchors, strict=True))
    ]
    cards = _cards(rows, ledger, sections, figures)
    javascript = Markup(javascript_libraries()) if any(figures) else ""
    parts = {"ledger": ledger, "sections": sections, "symbols": SYMBOLS, "javascript": javascript}
    parts |= {"cards": cards, "filters": _filters(ledger), "quick": _is_quick(entries)}
    return template("page.html.jinja").render(parts, kinds=counts(rows), changed=changed(rows))


def _order(entry: Entry) -> tuple[Any, ...]:
    """By paper, then as in the paper, then the preset `paper` first."""
    study, record = entry
    paper, preset = paper_of(study), (record.preset != "paper", record.preset)
    if paper is None:
        return len(PAPERS), natural(study.claims[0].id if study.claims else "~"), study.name, preset
    place = paper.studies.index(study.name) if study.name in paper.studies else len(paper.studies)
    return PAPERS.index(paper), place, study.name, preset


def _group(entry: Entry) -> str:
    """The card to which a record belongs: its paper, or what its study says of it."""
    study, paper = entry[0], paper_of(entry[0])
    if paper is not None:
        return paper.citation
    cited = study.paper or study.title
    # Claims of other people about one of the papers are not those of its card.
    return f"{cited}: other studies" if cited in {one.citation for one in PAPERS} else cited


def _cards(
    rows: Sequence[JudgedClaim],
    ledger: Sequence[Mapping[str, Any]],
    sections: Sequence[Mapping[str, Any]],
    figures: Sequence[Sequence[Figure]],
) -> list[dict[str, Any]]:
    """A card per paper with records: its claims as tiles, a figure and a finding."""
    cards = []
    for name in dict.fromkeys(section["group"] for section in sections if section["claims"]):
        paper = next((one for one in PAPERS if one.citation == name), None)
        own = [place for place, section in enumerate(sections) if section["group"] == name]
        claims = [shown for row, shown in zip(rows, ledger, strict=True) if row.entry in own]
        presets = sorted({one["preset"] for one in claims}, key=lambda one: (one != "paper", one))
        first = [one["verdict"] for one in claims if one["preset"] == presets[0]]
        groups = [
            {"preset": preset, "rows": some}
            for preset in presets
            if (some := [one for one in claims if one["preset"] == preset])
        ]
        card: dict[str, Any] = {"citation": name, "groups": groups}
        found = finding_of(paper, rows) if paper else None
        card |= {"finding": found.text if found else "", "idea": paper.idea if paper else ""}
        card |= {"title": paper.title if paper else ""}
        where = f", preset {presets[0]}" if len(presets) > 1 else ""
        verdicts = f"{first.count('holds')} hold, {first.count('fails')} fail"
        verdicts += f", {first.count('undetermined')} undetermined"
        card["count"] = f"{counted(len(first), 'claim')}{where}: {verdicts}"
        card["figure"] = _telling(paper.figure if paper else (), own, sections, figures)
        card["links"] = [
            {"name": f"{one['study'].name} ({one['facts']['preset']})", "anchor": one["anchor"]}
            for one in (sections[place] for place in own)
        ]
        cards.append(card)
    return cards


def _telling(
    wanted: Sequence[tuple[str, str]],
    own: Sequence[int],
    sections: Sequence[Mapping[str, Any]],
    figures: Sequence[Sequence[Figure]],
) -> dict[str, Any] | None:
    """The first panel of the first figure wanted that was drawn, or of any; None without one."""
    drawn = [
        (sections[place]["study"].name, figure, sections[place]["anchor"])
        for place in own
        for figure in figures[place]
    ]
    ranks = {name: rank for rank, name in enumerate(wanted)}
    best = min(drawn, key=lambda one: ranks.get((one[0], one[1].name), len(ranks)), default=None)
    if best is None:
        return None
    _, figure, anchor = best
    if figure.choice is not None:
        figure = figure.at(figure.choice.at)
    small = dataclasses.replace(figure, panels=figure.panels[:1])
    return _figure(small, charts.POINTS // 2, anchor, narrow=True)


def _is_quick(entries: Sequence[Entry]) -> bool:
    """Whether all records of the papers are of their quick presets, which are small."""
    presets = {record.preset for study, record in entries if paper_of(study) is not None}
    return presets == {"quick"}


def _filters(ledger: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """What the claims can be filtered by, with its values in order of appearance."""
    fields = {"paper": "group", "verdict": "verdict", "study": "study", "status": "status"}
    values = {name: dict.fromkeys(row[key] for row in ledger) for name, key in fields.items()}
    return {name: list(some) for name, some in values.items() if len(some) > 1}


def drawn_figures(entry: Entry) -> tuple[list[Figure], str]:
    """The figures of a record; if its study cannot draw them, none and the reason."""
    study, record = entry
    try:
        return study.drawn(record), ""
    except Exception as error:
        return [], f"left out: {described(error)}{located(error)}"


def _drawings(
    figures: Sequence[Sequence[Figure]], anchors: Sequence[str]
) -> list[list[dict[str, Any]]]:
    """The figures of every record for the page; with fewer points per line where many records would
    make the page too heavy.
    """
    points = charts.POINTS
    while True:
        both = zip(figures, anchors, strict=True)
        drawn = [[_figure(one, points, anchor) for one in some] for some, anchor in both]
        if points <= 20 or sum(len(one["packed"]) for some in drawn for one in some) <= _FOR_CHARTS:
            return drawn
        points //= 2


@functools.cache
def template(name: str) -> jinja2.Template:
    """A template of the report, with the style and the script beside it."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    strict: Any = {"undefined": jinja2.StrictUndefined, "autoescape": True}
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **strict)
    return environment.get_template(name)


@functools.cache
def javascript_libraries() -> str:
    """Vega, Vega-Lite and Vega-Embed, safe within a script element."""
    bundle = vl_convert.javascript_bundle()  # pyright: ignore[reportCallIssue] (the stub wants a snippet)
    return re.sub(r"</(script)", r"<\\/\1", bundle, flags=re.IGNORECASE).replace("<!--", r"<\!--")


def _anchors(entries: Sequence[Entry]) -> list[str]:
    named = [_slug(f"{study.name}-{record.preset}").strip("-") for study, record in entries]
    return _numbered(named)


def _ledger_row(row: JudgedClaim, anchor: str) -> dict[str, Any]:
    """The fields of the claim and of its judgement, and what only the page shows."""
    judgement = row.judgement
    # A swept check has one verdict per cell, shown by the map.
    hidden = {"verdict": "", "reason": ""} if judgement.cells else {}
    measured = measured_anywhere(judgement)
    checks = [vars(finding) | {"measured": text} | hidden for finding, text in measured]
    shown = {"anchor": f"claim-{anchor}-{_slug(row.claim.id)}", "maps": verdict_maps(judgement)}
    shown |= {"section": anchor, "group": _group((row.study, row.record))}
    shown |= {"label": row.label, "status": row.status, "other_verdict": row.other_verdict}
    shown |= {"study": row.study.name, "preset": row.preset, "seeds": row.seeds}
    shown |= {"explanation": row.claim.explanation(judgement), "checks": checks}
    shown |= {"changed": judgement.changed, "stored": bool(note_of(row.study))}
    return vars(row.claim) | vars(judgement) | shown


def _section(entry: Entry, anchor: str, problem: str) -> dict[str, Any]:
    study, record = entry
    swept = [f"{name} ({len(values)} values)" for name, values in record.sweeps.items()]
    theories = dict.fromkeys(arm.predicted_by for arm in record.arms.values() if arm.predicted_by)
    facts = {"paper": study.paper, "preset": preset_of(record), "seeds": str(record.seeds)}
    facts |= {"swept": ", ".join(swept), "theory": "; ".join(theories), "device": record.device}
    facts |= {"precision": record.precision, "wall time": duration(record.seconds)}
    facts |= {"commit": re.sub(r"\b([0-9a-f]{12})[0-9a-f]{28}\b", r"\1", record.commit)}
    facts |= {"figures": problem}
    facts |= corpora_of(record)
    shown = {"anchor": anchor, "study": study, "note": note_of(study), "versions": record.versions}
    shown["group"] = _group(entry)
    # A run that was trained elsewhere has a name of its own, and no claims.
    shown |= {"title": study.title if study.claims else record.title or study.title}
    shown |= {"facts": {name: fact for name, fact in facts.items() if fact}}
    shown |= {"config": [pair for pair in _settings(record.config) if pair[0] != "sweeps"]}
    return shown | {"diverged": diverged_members(record)}


def corpora_of(record: Record) -> dict[str, str]:
    """Licence and citation of every corpus from which a record was made."""
    parts = [part for arm in record.arms.values() for part in (arm.trajectory, arm.snapshot)]
    named = {part.attrs["corpus"]: part.attrs for part in parts if "corpus" in part.attrs}
    return {
        f"corpus {name}": f"{about.get('citation', '')}; licence: {about.get('licence', '?')}"
        for name, about in named.items()
    }


def _figure(figure: Figure, points: int, section: str, narrow: bool = False) -> dict[str, Any]:
    specification = charts.chart(figure, points, narrow)
    del specification["$schema"]
    choice = None if figure.choice is None else dataclasses.asdict(figure.choice)
    whole = {"specification": specification, "choice": choice}
    text = json.dumps(whole, separators=(",", ":"), ensure_ascii=False)
    # Without a time, so that the same page has the same bytes.
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    about = {"title": figure.title, "caption": figure.caption}
    return about | {"anchor": f"figure-{section}-{_slug(figure.name)}", "packed": Markup(packed)}


def _is_swept(value: Any) -> bool:
    """Whether a setting has several values, as `describe` writes them; not one named `sweep`."""
    return (
        isinstance(value, Mapping)
        and isinstance(value.get("sweep"), str)
        and isinstance(value.get("values"), list)
        and all(isinstance(one, int | float) for one in value["values"])
    )


def _settings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The config as dotted names and values."""
    if _is_swept(value) and len(value["values"]) > _LISTED:
        ends = f"{tick(min(value['values']))} to {tick(max(value['values']))}"
        yield name, f"{ends}, {len(value['values'])} values by {value['sweep']}"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _settings(inner, f"{name}.{key}".lstrip("."))
    else:
        several = value if isinstance(value, list | tuple) else [value]
        texts = (tick(one) if isinstance(one, float) else str(one) for one in several)
        yield name, ", ".join(texts) if several else "none"


def _slug(text: str) -> str:
    """Letters and digits of any language, so that a link can be read."""
    return re.sub(r"\W+", "-", text)


def _numbered(names: Sequence[str]) -> list[str]:
    """The same names, with a number behind those that stood there before."""
    found: dict[str, None] = {}
    for name in names:
        count, free = 2, name
        while free in found:
            free, count = f"{name}--{count}", count + 1
        found[free] = None
    return list(found)
