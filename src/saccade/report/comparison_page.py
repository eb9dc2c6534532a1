"""The page of a comparison: one self-contained HTML file with the figures of both records."""

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markupsafe import Markup

from saccade.figures.figure import Figure, Line, Mark
from saccade.records.sealed import write_atomically
from saccade.report import appearance, charts
from saccade.report.comparison import RULE, TRAJECTORY_RULE, CheckComparison, Comparison
from saccade.report.comparison_text import SHOWN, explained, written
from saccade.report.formatting import SYMBOLS, number
from saccade.report.judged import Entry
from saccade.report.page import LIMIT, drawn_figures, javascript_libraries, template

HALF = 540
"""Pixels of one of two figures side by side."""
_BESIDE = 85
"""Pixels of axes and colour bar beside a panel."""
_LETTER, _SYMBOL = 6.4, 60
"""Pixels of a letter and of a symbol in a legend."""


def write_comparison(comparison: Comparison, first: Entry, second: Entry, path: Path) -> None:
    """Write the page of two records; nothing is fetched from anywhere."""
    write_atomically(Path(path), render_comparison(comparison, first, second).encode())


def render_comparison(comparison: Comparison, first: Entry, second: Entry) -> str:
    """The page as text."""
    drawn, problems = zip(*map(drawn_figures, (first, second)), strict=True)
    for name, why in zip("AB", problems, strict=True):
        if why:
            print(f"saccade: {name}: figures {why}", file=sys.stderr)
    first_figures, second_figures = ([_plain(figure) for figure in some] for some in drawn)
    figures = _light(first_figures, second_figures)
    claims = [
        dataclasses.asdict(claim)
        | {"rows": [_row(*row) for row in claim.rows()], "notes": claim.notes}
        | {"verdict_differs": claim.verdict_differs}
        for claim in comparison.claims
    ]
    found = comparison.trajectories
    variables = [
        vars(one)
        | {"where": one.where, "means": [number(one.first), number(one.second)]}
        | {"size": f"{'+' if one.standardised > 0 else ''}{number(one.standardised)}"}
        for one in found.variables[:SHOWN]
    ]
    reasons: dict[str, list[str]] = {}
    for name, why in found.incomparable:
        reasons.setdefault(why, []).append(name)
    parts = {"comparison": comparison, "claims": claims, "variables": variables}
    parts |= {"reasons": reasons, "figures": figures, "symbols": SYMBOLS, "problems": problems}
    parts |= {"rule": RULE, "trajectory_rule": TRAJECTORY_RULE}
    javascript = Markup(javascript_libraries()) if figures else ""
    return template("compare.html.jinja").render(parts, javascript=javascript)


def _row(check: CheckComparison, swept: str) -> dict[str, Any]:
    numbers = [written(one.value, one.low, one.high, "\n") for one in (check.first, check.second)]
    shown = {"quantity": check.quantity, "bound": check.bound, "swept": swept, "numbers": numbers}
    gap = check.difference
    return shown | {"difference": explained(gap, "\n"), "outcome": gap.outcome, "apart": gap.apart}


def _light(first: list[Figure], second: list[Figure]) -> list[dict[str, Any]]:
    """Pairs of figures, with fewer points per line where they would make the page too heavy."""
    points = charts.POINTS
    while True:
        pairs = _pairs(first, second, points)
        sides = [side for pair in pairs for side in pair["sides"] if side]
        if points <= 20 or sum(len(side["specification"]) for side in sides) <= LIMIT // 2:
            return pairs
        points //= 2


def _pairs(first: list[Figure], second: list[Figure], points: int) -> list[dict[str, Any]]:
    """Figures of the same name side by side; stacked where one is too wide for half of a page."""
    names = dict.fromkeys(figure.name for figure in (*first, *second))
    pairs = []
    for name in names:
        sides = [next((one for one in some if one.name == name), None) for some in (first, second)]
        known = [one for one in sides if one is not None]
        narrow = all(map(_fits, known))
        shown = [one and _side(one, points, narrow) for one in sides]
        captions = list(dict.fromkeys(one.caption for one in known if one.caption))
        about = {"title": known[0].title, "sides": shown, "narrow": narrow}
        pairs.append(
            about | {"caption": captions[0] if len(captions) == 1 else "", "each": captions}
        )
    return pairs


def _plain(figure: Figure) -> Figure:
    """Without lines of single seeds, and with what a choice, such as of steps, shows first."""
    still = figure if figure.choice is None else figure.at(figure.choice.at)
    panels = [
        dataclasses.replace(panel, marks=tuple(map(_without_seeds, panel.marks)))
        for panel in still.panels
    ]
    return dataclasses.replace(still, panels=tuple(panels))


def _without_seeds(mark: Mark) -> Mark:
    if not isinstance(mark, Line):
        return mark
    return dataclasses.replace(mark, seeds=(), by_seed=None)


def _fits(figure: Figure) -> bool:
    """Whether heat maps, which cannot be narrower than their cells, and names fit half a page."""
    widths = [
        panel["width"] + _BESIDE
        for panel, given in zip(charts.chart(figure, 2)["concat"], figure.panels, strict=True)
        if appearance.heat_map_of(given) is not None
    ]
    names = [style.name for style in appearance.styles(figure).values()]
    return max(*widths, *(len(name) * _LETTER + _SYMBOL for name in names), 0, 0) <= HALF


def _side(figure: Figure, points: int, narrow: bool) -> dict[str, Any]:
    """One of two figures, with the chart as JSON for a script element."""
    chart = charts.chart(figure, points)
    if narrow:
        chart["columns"] = 1
        for panel, given in zip(chart["concat"], figure.panels, strict=True):
            if appearance.heat_map_of(given) is None:
                panel |= {"width": HALF - _BESIDE, "height": 280}
        for legend in _legends(chart["concat"]):
            legend["columns"] = max(1, legend["columns"] * HALF // charts.PAGE_WIDTH)
    about = {"title": figure.title, "caption": figure.caption}
    return about | {"specification": _inlined(chart)}


def _inlined(chart: dict[str, Any]) -> Markup:
    """A chart as JSON for a script element."""
    del chart["$schema"]
    text = json.dumps(chart, separators=(",", ":"), ensure_ascii=False)
    for harmful in "<\u2028\u2029":
        text = text.replace(harmful, f"\\u{ord(harmful):04x}")
    return Markup(text)


def _legends(value: Any) -> Iterator[dict[str, Any]]:
    """The legends of a chart that have columns."""
    if isinstance(value, dict):
        if "columns" in (value.get("legend") or {}):
            yield value["legend"]
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from _legends(inner)
