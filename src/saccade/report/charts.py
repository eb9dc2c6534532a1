"""Figures for the page: Vega-Lite charts through Altair, with tooltips, light enough to inline."""

import csv
import dataclasses
import io
import json
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from saccade.figures.figure import Figure, HeatMap, Histogram, Line, Panel, Regions, Role
from saccade.report import appearance
from saccade.report.appearance import BAND_OPACITY, HEAT_MAP, MISSING, Style
from saccade.report.formatting import number, ticks

POINTS = 200
"""Most points of a line."""
SEED_POINTS = 30
"""Most points of the line of one seed."""
PAGE_WIDTH = 1090
"""Pixels of a row of panels."""
NARROW = 5
"""From so many panels on, each is as narrow as a card."""
_LETTER = 6.4
"""Pixels per letter of the legend, a little generous."""
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans'"
_AXIS = {"gridColor": "#E6E6E6", "domainColor": "#888888", "tickColor": "#888888"}
_AXIS |= {"labelColor": "#444444", "titleColor": "#222222", "titleFontWeight": "normal"}
_AXIS |= {"labelFontSize": 11, "titleFontSize": 12, "labelOverlap": "greedy", "titlePadding": 8}
_TITLE = {"fontSize": 13, "fontWeight": 600, "anchor": "start", "color": "#222222", "offset": 10}
_LEGEND = {"labelFontSize": 12, "titleFontSize": 11, "titleFontWeight": "normal"}
_LEGEND |= {"labelColor": "#222222"}
_CONFIG = {"font": f"{_FONT}, sans-serif", "background": "white", "view": {"stroke": None}}
_CONFIG |= {"axis": _AXIS, "title": _TITLE, "legend": _LEGEND}
_STROKES = {"symbolType": "stroke", "symbolSize": 900, "symbolStrokeWidth": 2.2}
_STROKES |= {"symbolFillColor": "transparent", "symbolOpacity": 1}
"""Symbols of the legend."""
_BANDED = "isValid(datum.l) && isValid(datum.h)"
_CHOSEN = "!isValid(datum.c) || datum.c == choice"
"""What does not depend on the choice has no `c`."""

Styles = dict[tuple[str, Role], Style]


def chart(figure: Figure, points: int = POINTS, narrow: bool = False) -> dict[str, Any]:
    """The figure as a Vega-Lite specification; lines are thinned to at most this many points.
    If it is narrow, it fits a card.

    The page sets its parameters: `choice`, the place of what is chosen; `seed`, the seed whose
    lines are shown as well (null: none); `theory`, whether the theory's lines are shown.
    """
    styled, choice = appearance.styles(figure), figure.choice
    whole = figure if choice is None else figure.at(choice.at)
    every = [] if choice is None else [figure.at(place) for place in range(len(choice.names))]
    widths = [
        _natural_width(panel, NARROW if narrow else len(whole.panels)) for panel in whole.panels
    ]
    tables: dict[str, str] = {}
    panels = [
        _panel(
            _Drawn(panel, place, [one.panels[place] for one in every], styled, points),
            width,
            tables,
        )
        for place, (panel, width) in enumerate(zip(whole.panels, widths, strict=True))
    ]
    shared = {"color": "shared", "strokeDash": "shared", "fill": "independent"}
    shared |= {"shape": "shared", "stroke": "shared"}
    chart = {"$schema": alt.SCHEMA_URL, "config": _CONFIG, "concat": panels, "spacing": 28}
    chart |= {"columns": _columns(widths), "resolve": {"scale": shared, "legend": shared}}
    values = {"theory": True} if has_theory(figure) else {}
    values |= {"seed": None} if seeds_of(figure) else {}
    values |= {} if choice is None else {"choice": choice.at}
    params = [{"name": name, "value": value} for name, value in values.items()]
    return chart | ({"params": params} if params else {}) | {"datasets": tables}


def has_theory(figure: Figure) -> bool:
    """Whether a line of the figure is a theory's."""
    return any(line.role == "theory" for line in _lines(figure))


def seeds_of(figure: Figure) -> list[int]:
    """The seeds whose own lines the figure has."""
    return sorted({seed for line in _lines(figure) for seed in line.seeds})


def _lines(figure: Figure) -> list[Line]:
    return [one for panel in figure.panels for one in panel.marks if isinstance(one, Line)]


@dataclasses.dataclass(frozen=True)
class _Drawn:
    """A panel to draw."""

    panel: Panel
    """As it is shown first."""
    place: int
    every: Sequence[Panel]
    """As it is for each choice; empty without one."""
    styled: Styles
    points: int


def _natural_width(panel: Panel, panels: int) -> int:
    heat_map = appearance.heat_map_of(panel)
    if heat_map is None:
        return 640 if panels == 1 else 275 if panels == 3 or panels >= NARROW else 450
    if appearance.is_dense(heat_map):
        return 250
    letters = appearance.letters_across(heat_map)
    return min(860, max(240, max(60, round(_LETTER * letters) + 12) * len(heat_map.x)))


def _columns(widths: Sequence[int]) -> int:
    """Panels in a row: those that fit the page with axes and colour bars, at most three."""
    columns = max(1, min(3, PAGE_WIDTH // (max(widths, default=1) + 85)))
    return 2 if len(widths) == 4 and columns == 3 else columns


def _panel(drawn: _Drawn, width: int, tables: dict[str, str]) -> dict[str, Any]:
    """One panel; the data of its layers go to `tables`, which layers and panels share."""
    panel = drawn.panel
    heat_map = appearance.heat_map_of(panel)
    if heat_map is not None:
        height = 250 if appearance.is_dense(heat_map) else max(180, 36 * len(heat_map.y))
        layers = _heat_map(heat_map, drawn)
    else:
        histograms = [mark for mark in panel.marks if isinstance(mark, Histogram)]
        layers = [layer for one in appearance.regions_of(panel) for layer in _regions(one, panel)]
        layers += _histograms(histograms, panel, drawn.styled) + _curves(drawn)
        height = round(min(width * 0.72, 330))
    plain = []
    for layer in layers or [alt.Chart(_table("n", [])).mark_point()]:
        # By hand: Altair's own `layer` and `concat` copy everything many times, seconds for a page.
        one = layer.to_dict(validate=False)
        tables |= one.pop("datasets")
        plain.append({key: value for key, value in one.items() if key not in ("$schema", "config")})
    title = textwrap.wrap(panel.title, max(12, int(width / 7.4))) or [""]
    return {"title": title, "width": width, "height": height, "layer": plain}


def _curves(drawn: _Drawn) -> list[alt.Chart]:
    panel, styled = drawn.panel, drawn.styled
    lines = appearance.in_drawing_order(panel)
    if not lines:
        return []
    versions = [(_choice(lines, at, one), one) for at, one in enumerate(drawn.every)]
    versions = versions or [([(line, "") for line in lines], panel)]
    # Lines of one name, such as one per run, differ by a number: else they are drawn as one.
    repeated = len({(line.label, line.role) for line in lines}) < len(lines)
    # Strokes go by x, unless a line turns back, as norm against a score that falls again; such a
    # line has no band.
    turned = any(_turns_back(line) for several, _ in versions for line, _ in several)
    chosen = bool(drawn.every)
    rows, lone = [], []
    for several, where in versions:
        for count, (line, choice) in enumerate(several):
            name, group = styled[line.label, line.role].name, [count] if repeated else []
            bare = dataclasses.replace(line, low=None, high=None) if _turns_back(line) else line
            places = _thinned(bare, where, drawn.points)
            more = [*group, *[choice] * chosen]
            kept = [(name, *row, *more, *[at] * turned) for at, row in enumerate(places)]
            rows += kept
            lone += kept if len(kept) == 1 else []
    columns = "nxylh" + "g" * repeated + "c" * chosen + "i" * turned
    apart = {"detail": "g:N"} if repeated else {}
    theory = [style.name for style in styled.values() if style.role == "theory"]

    def source(kept: Iterable[Sequence[Any]], columns: str = columns) -> alt.Chart:
        shown = alt.Chart(_table(columns, kept))
        if theory:
            shown = shown.transform_filter(f"theory || indexof({json.dumps(theory)}, datum.n) < 0")
        return shown.transform_filter(_CHOSEN) if "c" in columns else shown

    table = source(rows)
    x, y = _x(panel, "x:Q"), _y(panel, "y:Q")
    stroke, fill = _colours(styled)
    tooltip = _tooltip({"n:N": "curve", "x:Q": panel.x_label, "y:Q": panel.y_label})
    layers = []
    if any(row[3] != "" for row in rows):
        tooltip += _tooltip({"l:Q": "band from", "h:Q": "band to"})
        bands = table.transform_filter(_BANDED).mark_area(opacity=BAND_OPACITY)
        ends = {"y": _y(panel, "l:Q"), "y2": "h:Q"}
        layers.append(bands.encode(x=x, **ends, fill=fill, tooltip=tooltip, **apart))
    strokes = table.mark_line(strokeWidth=2)
    order = {"order": "i:Q"} if turned else {}
    layers.append(strokes.encode(x=x, y=y, tooltip=tooltip, **order, **stroke, **apart))
    if seeded := _by_seed(lines, drawn):
        # The scale is that of all seeds, so that the axes stay where they are.
        named = _tooltip(
            {"s:N": "seed", "n:N": "curve", "x:Q": panel.x_label, "y:Q": panel.y_label}
        )
        own = source(seeded, "nxysi").transform_filter("datum.s == seed")
        look = own.mark_line(strokeWidth=3, point={"size": 22, "filled": True})
        ends = {"x": x, "y": y, "order": "i:Q", "detail": "s:N"}
        layers.append(look.encode(**ends, color=stroke["color"], tooltip=named))
    if lone:  # one point makes no stroke
        dots = source(lone).mark_point(filled=True, size=45, opacity=1)
        layers.append(dots.encode(x=x, y=y, fill=fill, tooltip=tooltip))
    pointer: dict[str, Any] = {"on": "pointerover", "clear": "pointerout", "nearest": True}
    near = alt.selection_point(name=f"near_{drawn.place}", empty=False, **pointer)
    seen = alt.when(near).then(alt.value(1)).otherwise(alt.value(0))
    dots = table.mark_point(filled=True, size=55)
    dots = dots.encode(x=x, y=y, fill=fill, opacity=seen, tooltip=tooltip)
    return [*layers, dots.add_params(near)]


def _choice(lines: Sequence[Line], at: int, panel: Panel) -> list[tuple[Line, Any]]:
    """The lines of one choice, with its place; lines that do not depend on it, with the first."""
    here = appearance.in_drawing_order(panel)
    both = zip(lines, here, strict=True)
    same = [line is other for line, other in both]
    both = zip(here, same, strict=True)
    return [(line, "" if fixed else at) for line, fixed in both if at == 0 or not fixed]


def _by_seed(lines: Sequence[Line], drawn: _Drawn) -> list[tuple[Any, ...]]:
    """Rows of the lines of single seeds."""
    rows: list[tuple[Any, ...]] = []
    for line in lines:
        if line.by_seed is None:
            continue
        name = drawn.styled[line.label, line.role].name
        for seed, values in zip(line.seeds, line.by_seed, strict=True):
            own = dataclasses.replace(line, y=values, low=None, high=None)
            kept = _thinned(own, drawn.panel, min(SEED_POINTS, drawn.points // 2))
            rows += [(name, x, _few_digits(y), seed, at) for at, (x, y, *_) in enumerate(kept)]
    return rows


def _turns_back(line: Line) -> bool:
    x = np.asarray(line.x, float)
    return bool(np.any(np.diff(x[np.isfinite(x)]) < 0))


def _thinned(line: Line, panel: Panel, points: int) -> list[tuple[Any, ...]]:
    """At most this many points, with the first and the last, spread evenly over the axis."""
    curve = appearance.visible(line, panel)
    shown = np.flatnonzero(np.isfinite(curve.x) & np.isfinite(curve.y))
    if shown.size > points:
        chosen = np.zeros(0, int)
        if appearance.scales(panel)[0] == "log":  # by index, the early decades would be empty
            place = np.log(curve.x[shown])
            wanted = np.linspace(place.min(), place.max(), points // 2)
            chosen = np.abs(place[:, None] - wanted).argmin(axis=0)
        spread = np.linspace(0, shown.size - 1, points - chosen.size).round().astype(int)
        shown = shown[np.unique(np.concatenate([chosen, spread]))]
    columns = (curve.x, curve.y, *_band(curve))
    return [tuple(_short(values[at]) for values in columns) for at in shown]


def _band(mark: Line | Histogram) -> list[np.ndarray]:
    """The ends of its band; NaN where it has none."""
    none = np.full(np.shape(mark.y if isinstance(mark, Line) else mark.share), np.nan)
    return [none if end is None else np.asarray(end, float) for end in (mark.low, mark.high)]


def _histograms(histograms: Sequence[Histogram], panel: Panel, styled: Styles) -> list[alt.Chart]:
    if not histograms:
        return []
    floor = appearance.baseline(panel)
    bins, outlines = [], []
    for place, histogram in enumerate(histograms):
        name = styled[histogram.label, "measured"].name
        edges, share = appearance.bin_edges(histogram, panel), np.asarray(histogram.share, float)
        tops = np.maximum(np.nan_to_num(share, nan=floor), floor) if floor else np.nan_to_num(share)
        middles = edges[:-1] + np.diff(edges) * (place + 1) / (len(histograms) + 1)
        low, high = _band(histogram)
        low = np.where(low < floor, floor, low) if floor else low
        columns = zip(edges[:-1], edges[1:], share, low, high, middles, strict=True)
        bins += [(name, *map(_short, column)) for column in columns if math.isfinite(column[2])]
        path = zip(np.repeat(edges, 2), [floor, *np.repeat(tops, 2), floor], strict=True)
        outlines += [(name, at, _short(x), _short(y)) for at, (x, y) in enumerate(path)]
    stroke, fill = _colours(styled)
    source = _table("nabslhm", bins)
    tooltip = _tooltip({"n:N": "of", "a:Q": "from", "b:Q": "to", "s:Q": panel.y_label})
    banded = any(row[4] != "" for row in bins)
    tooltip += _tooltip({"l:Q": "interval from", "h:Q": "interval to"}) if banded else []
    bars = alt.Chart(source).mark_rect(opacity=0.13)
    at = {"x": _x(panel, "a:Q"), "x2": "b:Q", "y": _y(panel, "s:Q", zero=True)}
    layers = [bars.encode(**at, y2=alt.Y2Datum(floor), fill=fill, tooltip=tooltip)]
    lines = alt.Chart(_table("nixy", outlines)).mark_line(strokeWidth=2, strokeJoin="miter")
    at = {"x": _x(panel, "x:Q"), "y": _y(panel, "y:Q", zero=True), "order": "i:Q"}
    layers.append(lines.encode(**at, **stroke, tooltip=_tooltip({"n:N": "of"})[0]))
    if banded:
        rules = alt.Chart(source).transform_filter(_BANDED).mark_rule(strokeWidth=3)
        at = {"x": _x(panel, "m:Q"), "y": _y(panel, "l:Q", zero=True), "y2": "h:Q"}
        layers.append(rules.encode(**at, color=stroke["color"], tooltip=tooltip))
    return layers


def _heat_map(heat_map: HeatMap, drawn: _Drawn) -> list[alt.Chart]:
    panel = drawn.panel
    every = [appearance.heat_map_of(one) or heat_map for one in drawn.every] or [heat_map]
    values = np.stack([np.asarray(one.value, float) for one in every])
    scale = appearance.heat_scale(heat_map)
    across, up = ticks(list(heat_map.x)), ticks(list(heat_map.y))
    rows: dict[str, list[tuple[Any, ...]]] = {"light": [], "dark": [], "missing": []}
    dense = appearance.is_dense(heat_map)
    for (at, row, column), value in np.ndenumerate(values):
        shade = scale.place(value)
        ink = "missing" if math.isnan(shade) else "light" if shade < 0.5 else "dark"
        text = number(value) if heat_map.texts is None else str(heat_map.texts[row, column])
        shown = _few_digits(_short(value)) if dense and ink != "missing" else _short(value)
        rows[ink].append((across[column], up[row], shown, text, at)[: 4 + (len(every) > 1)])
    names = appearance.shown_ticks(across)
    level = alt.Axis(values=names, labelAngle=0, labelExpr="split(datum.label, ' ')")
    upright = alt.Axis(values=appearance.shown_ticks(up, upright=True), labelLimit=220)
    columns, rising = (alt.Scale(domain=names, padding=0) for names in (across, up[::-1]))
    x = alt.X("x:N", sort=across, scale=columns, title=panel.x_label, axis=level)
    y = alt.Y("y:N", sort=up[::-1], scale=rising, title=panel.y_label, axis=upright)
    tooltip = _tooltip({"x:N": panel.x_label, "y:N": panel.y_label, "t:N": heat_map.label})
    places: dict[str, Any] = {"x": x, "y": y, "tooltip": tooltip}
    colours = alt.Scale(scheme=HEAT_MAP, type=scale.scale, domain=[scale.low, scale.high])
    if (levels := appearance.level_edges(heat_map)) is not None:
        colours = alt.Scale(scheme=HEAT_MAP, type="threshold", domain=levels[1:-1].tolist())
    look: dict[str, Any] = {"orient": "right", "gradientLength": 150, "titleLimit": 180}
    legend = alt.Legend(title=heat_map.label, format=".3~g", **look)

    def source(kept: list[tuple[Any, ...]]) -> alt.Chart:
        if len(every) == 1:
            return alt.Chart(_table("xyvt", kept, texts="xyt"))
        return alt.Chart(_table("xyvtc", kept, texts="xyt")).transform_filter(_CHOSEN)

    cells = source(rows["light"] + rows["dark"])
    rectangles = cells.mark_rect() if dense else cells.mark_rect(stroke="white")
    layers = [rectangles.encode(fill=alt.Fill("v:Q", scale=colours, legend=legend), **places)]
    for ink, colour in () if dense else (("light", "white"), ("dark", "black")):
        by_lines = {1 + row[3].count("\n") for row in rows[ink]}
        for lines in sorted(by_lines):
            kept = [row for row in rows[ink] if 1 + row[3].count("\n") == lines]
            up_by = 6.5 * (lines - 1)  # the first line is where a single one would be
            look = {"color": colour, "fontSize": 11, "lineBreak": "\n", "dy": -up_by}
            layers.append(source(kept).mark_text(**look).encode(text="t:N", **places))
    if rows["missing"]:
        empty = source(rows["missing"])
        face = empty.mark_rect(color=MISSING, stroke="#999999", strokeDash=[3, 3])
        words = empty.mark_text(color="#333333", fontSize=11, fontStyle="italic")
        layers.append(face.encode(**places))
        layers += [] if dense else [words.encode(text="t:N", **places)]
    return layers


def _regions(regions: Regions, panel: Panel) -> list[alt.Chart]:
    """Rectangles below, and the points at which kinds were found, by symbol."""
    kinds = [kind for place, kind in enumerate(regions.kinds) if place in regions.kind]
    places = [appearance.kind_place(regions, kind) for kind in kinds]
    colours = [appearance.REGION_COLOURS[place] for place in places]
    shapes = [appearance.SYMBOLS[place][1] for place in places]
    at = {"x": _x(panel, "a:Q"), "x2": "b:Q", "y": _y(panel, "c:Q"), "y2": "d:Q"}
    tooltip, layers = _tooltip({"n:N": "kind"}), []
    rows = [(kind, *map(_short, ends)) for *ends, kind in appearance.rectangles(regions)]
    # Without a scale of colours: that of the fill has the names of the lines.
    for kind, colour in zip(kinds, colours, strict=True):
        areas = alt.Chart(_table("nabcd", [row for row in rows if row[0] == kind]))
        look: Any = {"fill": colour, "opacity": appearance.REGION_OPACITY}
        layers.append(areas.mark_rect(**look).encode(**at, tooltip=tooltip))
    found = zip(regions.x, regions.y, regions.found, strict=True)
    points = [(regions.kinds[kind], _short(x), _short(y)) for x, y, kind in found]
    if points:
        legend = alt.Legend(title=None, orient="bottom", direction="horizontal", symbolSize=60)
        scales = [alt.Scale(domain=kinds, range=of) for of in (shapes, colours)]
        look = {"shape": alt.Shape("n:N", scale=scales[0], legend=legend)}
        look |= {"stroke": alt.Stroke("n:N", scale=scales[1], legend=legend)}
        names = {"n:N": "kind", "x:Q": panel.x_label, "y:Q": panel.y_label}
        dots = alt.Chart(_table("nxy", points)).mark_point(size=14, strokeWidth=1.3, opacity=1)
        dots = dots.encode(x=_x(panel, "x:Q"), y=_y(panel, "y:Q"), **look)
        layers.append(dots.encode(tooltip=_tooltip(names)))
    return layers


def _x(panel: Panel, field: str) -> alt.X:
    scale = alt.Scale(type=appearance.scales(panel)[0], zero=False, nice=False)
    return alt.X(field, title=panel.x_label, scale=scale, axis=_axis(panel, 0))


def _y(panel: Panel, field: str, zero: bool = False) -> alt.Y:
    linear = appearance.scales(panel)[1] == "linear"
    scale = alt.Scale(type="linear" if linear else "log", zero=zero and linear, nice=linear)
    return alt.Y(field, title=panel.y_label, scale=scale, axis=_axis(panel, 1))


def _axis(panel: Panel, which: int) -> alt.Axis:
    """Ticks; on a logarithmic axis at the powers of ten, because Vega's own choice crowds."""
    if appearance.scales(panel)[which] == "linear":
        return alt.Axis(tickCount=6)
    low, high = appearance.positive_range(panel, which)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1,) if math.log10(high / low) >= 2 else (1, 2, 5)
    if len(powers) > 8:
        powers = powers[:: math.ceil(len(powers) / 6)]
    values = [step * 10.0**power for power in powers for step in steps]
    return alt.Axis(values=values, format="~g" if low >= 1e-5 and high < 1e6 else "~e")


def _colours(styled: Styles) -> tuple[dict[str, Any], alt.Fill]:
    """Colour and dash by label, with one legend; apart, the fill, as the legend shows strokes."""
    names = [style.name for style in styled.values()]
    longest = max(len(name) for name in names)
    columns = max(1, min(len(names), int(900 / (longest * _LETTER + 60))))
    look: dict[str, Any] = {"orient": "bottom", "direction": "horizontal", "columns": columns}
    look |= {"labelLimit": 900, "columnPadding": 24, "offset": 18} | _STROKES
    legend = alt.Legend(title=None, **look)
    colours = alt.Scale(domain=names, range=[style.colour for style in styled.values()])
    # Vega wants a dash to have two lengths; [1, 0] is a stroke without gaps.
    lengths = [list(style.dash) or [1, 0] for style in styled.values()]
    dash = alt.StrokeDash("n:N", scale=alt.Scale(domain=names, range=lengths), legend=legend)
    stroke = {"color": alt.Color("n:N", scale=colours, legend=legend), "strokeDash": dash}
    return stroke, alt.Fill("n:N", scale=colours, legend=None)


def _tooltip(titles: Mapping[str, str]) -> list[alt.Tooltip]:
    """From fields and their titles."""
    forms = {"Q": ".4~g", "N": alt.Undefined}
    return [alt.Tooltip(key, title=text, format=forms[key[-1]]) for key, text in titles.items()]


def _table(columns: str, rows: Iterable[Sequence[Any]], texts: str = "n") -> alt.InlineData:
    """Inline CSV, half the bytes of JSON rows; columns are named by single letters."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    parse = {column: "string" if column in texts else "number" for column in columns}
    return alt.InlineData(buffer.getvalue(), alt.CsvDataFormat(type="csv", parse=parse))


def _few_digits(text: str) -> str:
    """Three digits: enough for a line of 300 pixels."""
    return f"{float(text):.3g}"


def _short(value: float) -> str:
    """Few digits; empty where there is no number."""
    return f"{value:.5g}" if math.isfinite(value) else ""
