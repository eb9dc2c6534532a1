"""The page: one self-contained HTML file, readable offline; the ledger first, then each study."""

import dataclasses
import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from saccade.core.claim import Judgement
from saccade.core.figure import Figure, Line
from saccade.core.progress import duration
from saccade.core.record import Record
from saccade.core.storage import write_atomically
from saccade.report import charts
from saccade.report.formatting import SYMBOLS, diverged_members, measured_anywhere, tick
from saccade.report.judged import (
    Entry,
    JudgedClaim,
    counts,
    judged_claims,
    note_of,
    verdict_maps,
)

LIMIT = 5_000_000
"""Most bytes of a page: it must still go through a mail server."""
_FOR_POINTS = 3_000_000
"""Bytes for the points of lines; the libraries take 900,000."""
_ROW = 40
"""Bytes of a point: step, value and band."""


def write_page(entries: Sequence[Entry], path: Path) -> None:
    """Write the page of some records; no training, and nothing fetched from anywhere."""
    write_atomically(Path(path), render_page(entries).encode())


def render_page(entries: Sequence[Entry]) -> str:
    """The page as text."""
    rows = judged_claims(entries)
    figures = [list(study.drawn(record)) for study, record in entries]
    points = _points(figure for some in figures for figure in some)
    anchors = _anchors(entries)
    return _template().render(
        count=counts(rows),
        ledger=[_ledger_row(row, anchors[row.entry]) for row in rows],
        sections=[
            _section(entry, anchor, [row for row in rows if row.entry == place])
            for place, (entry, anchor) in enumerate(zip(entries, anchors, strict=True))
        ],
        figures=[[_figure(figure, points) for figure in some] for some in figures],
        symbols=SYMBOLS,
        javascript=Markup(_javascript()) if any(figures) else "",
    )


def _points(figures: Iterable[Figure]) -> int:
    """Points that a line may keep: fewer where many records would make the page too heavy."""
    marks = [mark for figure in figures for panel in figure.panels for mark in panel.marks]
    row_bytes = sum(len(mark.label) + _ROW for mark in marks if isinstance(mark, Line))
    return max(20, min(charts.POINTS, _FOR_POINTS // max(row_bytes, 1)))


@functools.cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
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
    claim, judgement = row.claim, row.judgement
    texts = ("id", "statement", "source", "paper", "prediction", "tolerance")
    return {name: getattr(claim, name) for name in texts} | {
        "anchor": f"{anchor}-{_slug(claim.id)}",
        "study": row.study.name,
        "preset": row.record.preset,
        "seeds": row.seeds,
        "verdict": judgement.verdict,
        "expected": judgement.expected,
        "as_expected": judgement.as_expected,
        "expected_reason": row.expected_reason,
        "reason": judgement.reason,
        "stored": bool(row.note),
        "checks": _checks(judgement),
    }


def _checks(judgement: Judgement) -> list[dict[str, Any]]:
    # A swept check has one verdict per cell, shown by the map.
    return [
        dataclasses.asdict(finding)
        | {"measured": text}
        | ({"verdict": "", "reason": ""} if judgement.cells else {})
        for finding, text in zip(judgement.findings, measured_anywhere(judgement), strict=True)
    ]


def _section(entry: Entry, anchor: str, rows: Sequence[JudgedClaim]) -> dict[str, Any]:
    study, record = entry
    swept = [f"{name} ({len(values)} values)" for name, values in record.sweeps.items()]
    theories = dict.fromkeys(arm.predicted_by for arm in record.arms.values() if arm.predicted_by)
    facts = {
        "paper": study.paper,
        "preset": record.preset,
        "seeds": str(record.seeds),
        "swept": ", ".join(swept),
        "theory": "; ".join(theories),
        "device": record.device,
        "precision": record.precision,
        "wall time": duration(record.seconds),
    }
    return {
        "anchor": anchor,
        "name": study.name,
        "title": study.title,
        "facts": {name: fact for name, fact in facts.items() if fact},
        "versions": dict(record.versions),
        "note": note_of(study),
        "diverged": diverged_members(record),
        "claims": [
            _ledger_row(row, anchor) | {"maps": verdict_maps(row.judgement)} for row in rows
        ],
        "divergences": study.divergences,
        "config": _settings(record),
    }


def _figure(figure: Figure, points: int) -> dict[str, Any]:
    specification = charts.chart(figure, points)
    specification.pop("$schema", None)
    # Within a script element only "<" can do harm.
    text = json.dumps(specification, separators=(",", ":"), ensure_ascii=False).replace(
        "<", "\\u003c"
    )
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return {"title": figure.title, "caption": figure.caption, "specification": Markup(text)}


def _settings(record: Record) -> list[tuple[str, str]]:
    """The config as dotted names and values."""

    def text(value: Any) -> str:
        return tick(value) if isinstance(value, float) else str(value)

    def flat(value: Any, name: str) -> list[tuple[str, str]]:
        if isinstance(value, Mapping):
            inner = (flat(one, f"{name}.{key}".lstrip(".")) for key, one in value.items())
            return [pair for pairs in inner for pair in pairs]
        if isinstance(value, list | tuple):
            return [(name, ", ".join(map(text, value)) or "none")]
        return [(name, text(value))]

    return [pair for pair in flat(record.config, "") if pair[0] != "sweeps"]


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text)
