"""The page: one self-contained HTML file, readable offline; the ledger first, then each study."""

import functools
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from saccade.core.errors import described, located
from saccade.core.figure import Figure, Line
from saccade.core.progress import duration
from saccade.core.record import Record
from saccade.core.storage import write_atomically
from saccade.report import charts
from saccade.report.formatting import SYMBOLS, diverged_members, measured_anywhere, tick
from saccade.report.judged import (
    Entry,
    JudgedClaim,
    changed,
    counts,
    judged_claims,
    note_of,
    verdict_maps,
)

LIMIT = 5_000_000
"""Most bytes of a page: it must still go through a mail server."""
_FOR_POINTS = 3_000_000
"""Bytes for the points of lines; the libraries take 900,000."""
_LISTED = 50
"""Most values of a sweep that are listed one by one."""
_ROW = 40
"""Bytes of a point: step, value and band."""


def write_page(entries: Sequence[Entry], path: Path) -> None:
    """Write the page of some records; no training, and nothing fetched from anywhere."""
    write_atomically(Path(path), render_page(entries).encode())


def render_page(entries: Sequence[Entry]) -> str:
    """The page as text."""
    rows = judged_claims(entries)
    figures, problems = zip(*map(drawn_figures, entries), strict=True) if entries else ((), ())
    for (study, record), why in zip(entries, problems, strict=True):
        if why:
            print(f"saccade: {study.name}, {record.preset}: figures {why}", file=sys.stderr)
    points = _points(figure for some in figures for figure in some)
    anchors = _anchors(entries)
    ledger = [_ledger_row(row, anchors[row.entry]) for row in rows]
    sections = [
        _section(entry, anchor, problems[place])
        | {"claims": [shown for row, shown in zip(rows, ledger, strict=True) if row.entry == place]}
        | {"figures": [_figure(figure, points) for figure in figures[place]]}
        for place, (entry, anchor) in enumerate(zip(entries, anchors, strict=True))
    ]
    javascript = Markup(_javascript()) if any(figures) else ""
    parts = {"ledger": ledger, "sections": sections, "symbols": SYMBOLS, "javascript": javascript}
    return _template().render(parts, kinds=counts(rows), changed=changed(rows))


def drawn_figures(entry: Entry) -> tuple[list[Figure], str]:
    """The figures of a record; if its study cannot draw them, none and the reason."""
    study, record = entry
    try:
        return study.drawn(record), ""
    except Exception as error:
        return [], f"left out: {described(error)}{located(error)}"


def _points(figures: Iterable[Figure]) -> int:
    """Points that a line may keep: fewer where many records would make the page too heavy."""
    marks = [mark for figure in figures for panel in figure.panels for mark in panel.marks]
    row_bytes = sum(len(mark.label) + _ROW for mark in marks if isinstance(mark, Line))
    return max(20, min(charts.POINTS, _FOR_POINTS // max(row_bytes, 1)))


@functools.cache
def _template() -> jinja2.Template:
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    strict: Any = {"undefined": jinja2.StrictUndefined, "autoescape": True}
    environment = jinja2.Environment(loader=loader, trim_blocks=True, lstrip_blocks=True, **strict)
    return environment.get_template("page.html.jinja")


@functools.cache
def _javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed, safe within a script element."""
    bundle = vl_convert.javascript_bundle()  # pyright: ignore[reportCallIssue] (the stub wants a snippet)
    return re.sub(r"</(script)", r"<\\/\1", bundle, flags=re.IGNORECASE).replace("<!--", r"<\!--")


def _anchors(entries: Sequence[Entry]) -> list[str]:
    anchors: list[str] = []
    for study, record in entries:
        anchor = _slug(f"{study.name}-{record.preset}").strip("-")
        same = sum(other == anchor or other.startswith(f"{anchor}--") for other in anchors)
        anchors.append(f"{anchor}--{same + 1}" if same else anchor)
    return anchors


def _ledger_row(row: JudgedClaim, anchor: str) -> dict[str, Any]:
    """The fields of the claim and of its judgement, and what only the page shows."""
    judgement = row.judgement
    # A swept check has one verdict per cell, shown by the map.
    hidden = {"verdict": "", "reason": ""} if judgement.cells else {}
    measured = measured_anywhere(judgement)
    checks = [vars(finding) | {"measured": text} | hidden for finding, text in measured]
    shown = {"anchor": f"{anchor}-{_slug(row.claim.id)}", "maps": verdict_maps(judgement)}
    shown |= {"study": row.study.name, "preset": row.record.preset, "seeds": row.seeds}
    shown |= {"explanation": row.claim.explanation(judgement), "checks": checks}
    shown |= {"changed": judgement.changed, "stored": bool(note_of(row.study))}
    return vars(row.claim) | vars(judgement) | shown


def _section(entry: Entry, anchor: str, problem: str) -> dict[str, Any]:
    study, record = entry
    swept = [f"{name} ({len(values)} values)" for name, values in record.sweeps.items()]
    theories = dict.fromkeys(arm.predicted_by for arm in record.arms.values() if arm.predicted_by)
    facts = {"paper": study.paper, "preset": record.preset, "seeds": str(record.seeds)}
    facts |= {"swept": ", ".join(swept), "theory": "; ".join(theories), "device": record.device}
    facts |= {"precision": record.precision, "wall time": duration(record.seconds)}
    facts |= {"commit": record.commit, "figures": problem}
    facts |= corpora_of(record)
    shown = {"anchor": anchor, "study": study, "note": note_of(study), "versions": record.versions}
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


def _figure(figure: Figure, points: int) -> dict[str, Any]:
    specification = charts.chart(figure, points)
    del specification["$schema"]
    text = json.dumps(specification, separators=(",", ":"), ensure_ascii=False)
    for harmful in "<\u2028\u2029":  # within a script element
        text = text.replace(harmful, f"\\u{ord(harmful):04x}")
    return {"title": figure.title, "caption": figure.caption, "specification": Markup(text)}


def _settings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The config as dotted names and values."""
    if isinstance(value, Mapping) and "sweep" in value and len(value["values"]) > _LISTED:
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
    return re.sub(r"[^A-Za-z0-9]+", "-", text)
