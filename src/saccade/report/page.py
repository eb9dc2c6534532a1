"""The page: one self-contained HTML file, readable offline. The ledger of verdicts first, then
study by study.
"""

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from saccade.core.claim import Finding, Judgement
from saccade.core.figure import Figure, Line
from saccade.core.record import Record
from saccade.core.storage import write_atomically
from saccade.report import charts
from saccade.report.formatting import (
    SYMBOLS,
    diverged_members,
    duration,
    measured,
    measured_anywhere,
    number,
    seeds,
    tick,
)
from saccade.report.judged import (
    Entry,
    JudgedClaim,
    VerdictMap,
    counts,
    judged_claims,
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
    """Points that a line may keep: fewer where the lines of many records would make the page too
    heavy.
    """
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
    """Vega, Vega-Lite and Vega-Embed, safe inside of a script element."""
    bundle = vl_convert.javascript_bundle()  # pyright: ignore[reportCallIssue] (the stub wants a snippet)
    return re.sub(r"</(script)", r"<\\/\1", bundle, flags=re.IGNORECASE).replace("<!--", r"<\!--")


def _anchors(entries: Sequence[Entry]) -> list[str]:
    anchors: list[str] = []
    for study, record in entries:
        anchor = re.sub(r"[^A-Za-z0-9]+", "-", f"{study.name}-{record.preset}").strip("-")
        same = sum(
            re.fullmatch(re.escape(anchor) + r"(--\d+)?", other) is not None for other in anchors
        )
        anchors.append(f"{anchor}--{same + 1}" if same else anchor)
    return anchors


def _ledger_row(row: JudgedClaim, anchor: str) -> dict[str, Any]:
    claim, judgement = row.claim, row.judgement
    return {
        "id": claim.id,
        "anchor": f"{anchor}-{_slug(claim.id)}",
        "statement": claim.statement,
        "source": claim.source,
        "study": row.study.name,
        "preset": row.record.preset,
        "paper": claim.paper,
        "prediction": claim.prediction,
        "tolerance": claim.tolerance,
        "seeds": seeds(claim, judgement, row.record),
        "verdict": judgement.verdict,
        "expected": judgement.expected,
        "as_expected": judgement.as_expected,
        "expected_reason": claim.expected_reason(judgement),
        "reason": judgement.reason,
        "checks": _checks(judgement),
    }


def _checks(judgement: Judgement) -> list[dict[str, Any]]:
    return [
        {
            "quantity": finding.quantity,
            "measured": text,
            "bound": finding.bound,
            # A swept check has a verdict a cell, told by the map.
            "verdict": "" if judgement.cells else finding.verdict,
            "reason": "" if judgement.cells else finding.reason,
            "seeds": finding.seeds,
        }
        for finding, text in zip(judgement.findings, measured_anywhere(judgement), strict=True)
    ]


def _section(entry: Entry, anchor: str, rows: Sequence[JudgedClaim]) -> dict[str, Any]:
    study, record = entry
    theories = list(
        dict.fromkeys(arm.predicted_by for arm in record.arms.values() if arm.predicted_by)
    )
    return {
        "anchor": anchor,
        "name": study.name,
        "title": study.title,
        "facts": {
            "paper": study.paper,
            "preset": record.preset,
            "seeds": str(record.seeds),
            **(
                {
                    "swept": ", ".join(
                        f"{name} ({len(values)} values)" for name, values in record.sweeps.items()
                    )
                }
                if record.sweeps
                else {}
            ),
            **({"theory": "; ".join(theories)} if theories else {}),
            "device": record.device,
            "precision": record.precision,
            "wall time": duration(record.seconds),
        },
        "versions": dict(record.versions),
        "diverged": diverged_members(record),
        "claims": [
            _ledger_row(row, anchor) | {"maps": [_map(one) for one in verdict_maps(row.judgement)]}
            for row in rows
        ],
        "divergences": study.divergences,
        "config": _settings(record),
    }


def _map(one: VerdictMap) -> dict[str, Any]:
    def cell(verdict: str, findings: Sequence[Finding]) -> dict[str, Any]:
        told = "\n".join(
            f"{finding.quantity}: {measured(finding)} ({finding.bound})" for finding in findings
        )
        return {
            "verdict": verdict,
            "values": [number(finding.value) for finding in findings],
            "title": f"{verdict}\n{told}",
        }

    return {
        "where": one.where,
        "row_name": one.row_name,
        "column_name": one.column_name,
        "columns": [tick(value) for value in one.column_values],
        "rows": [
            (tick(value), [cell(*found) for found in cells])
            for value, cells in zip(one.row_values, one.cells, strict=True)
        ],
        "quantities": [finding.quantity for finding in one.cells[0][0][1]],
    }


def _figure(figure: Figure, points: int) -> dict[str, Any]:
    specification = charts.chart(figure, points)
    specification.pop("$schema", None)
    # Inside of a script element only "<" can do harm.
    text = json.dumps(specification, separators=(",", ":"), ensure_ascii=False).replace(
        "<", "\\u003c"
    )
    text = text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return {"title": figure.title, "caption": figure.caption, "specification": Markup(text)}


def _settings(record: Record) -> list[tuple[str, str]]:
    """The config as dotted names and values."""

    def flat(value: Any, name: str) -> list[tuple[str, str]]:
        if isinstance(value, Mapping):
            return [
                pair
                for key, inner in value.items()
                for pair in flat(inner, f"{name}.{key}" if name else str(key))
            ]
        if isinstance(value, list | tuple):
            return [
                (
                    name,
                    ", ".join(
                        tick(item) if isinstance(item, float) else str(item) for item in value
                    )
                    or "none",
                )
            ]
        return [(name, tick(value) if isinstance(value, float) else str(value))]

    return [pair for pair in flat(record.config, "") if pair[0] != "sweeps"]


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", text)
