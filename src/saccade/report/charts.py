"""Figures for the page: Vega-Lite charts through Altair, with tooltips, light enough to inline."""

import csv
import io
import math
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import altair as alt
import numpy as np

from saccade.core.figure import Figure, HeatMap, Histogram, Line, Panel, Role
from saccade.report import appearance
from saccade.report.appearance import BAND_OPACITY, HEAT_MAP, MISSING, Style
from saccade.report.formatting import number, ticks

POINTS = 200
"""Most points of a line."""
PAGE_WIDTH = 1090
"""Pixels of a row of panels."""
_DIGITS = 5
_LETTER = 6.4
"""Pixels per letter of the legend, a little generous."""
_FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans',"
    " sans-serif"
)

_BANDED = "isValid(datum.l) && isValid(datum.h)"

Styles = dict[tuple[str, Role], Style]


def chart(figure: Figure, points: int = POINTS) -> dict[str, Any]:
    """The figure as a Vega-Lite specification; lines are thinned to at most this many points."""
    styled = appearance.styles(figure)
    widths = [_natural_width(panel, len(figure.panels)) for panel in figure.panels]
    columns = _columns(widths)
    tables: dict[str, str] = {}
    panels = [
        _panel(panel, place, width, styled, points, tables)
        for place, (panel, width) in enumerate(zip(figure.panels, widths, strict=True))
    ]
    shared = {"color": "shared", "strokeDash": "shared", "fill": "independent"}
    return {
        "$schema": alt.SCHEMA_URL,
        "config": _config().to_dict(),
        "concat": panels,
        "columns": columns,
        "spacing": 28,
        "resolve": {"scale": shared, "legend": shared},
        "datasets": tables,
    }


def _config() -> alt.Config:
    return alt.Config(
        font=_FONT,
        background="white",
        view=alt.ViewConfig(stroke=None),
        axis=alt.AxisConfig(
            gridColor="#E6E6E6",
            domainColor="#888888",
            tickColor="#888888",
            labelColor="#444444",
            titleColor="#222222",
            titleFontWeight="normal",
            labelFontSize=11,
            titleFontSize=12,
            labelOverlap="greedy",
            titlePadding=8,
        ),
        title=alt.TitleConfig(
            fontSize=13, fontWeight=600, anchor="start", color="#222222", offset=10
        ),
        legend=alt.LegendConfig(
            labelFontSize=12, titleFontSize=11, titleFontWeight="normal", labelColor="#222222"
        ),
    )


def _natural_width(panel: Panel, panels: int) -> int:
    heat_map = appearance.heat_map_of(panel)
    if heat_map is not None and appearance.is_dense(heat_map):
        return 250
    if heat_map is not None:
        longest = max(len(line) for label in ticks(list(heat_map.x)) for line in label.split())
        return min(860, max(240, max(60, round(_LETTER * longest) + 12) * len(heat_map.x)))
    return 640 if panels == 1 else 275 if panels == 3 or panels > 4 else 450


def _columns(widths: Sequence[int]) -> int:
    """Panels in a row: those that fit the page with axes and colour bars, at most three."""
    room = max(widths, default=1) + 85
    columns = max(1, min(3, PAGE_WIDTH // room))
    return 2 if len(widths) == 4 and columns == 3 else columns


def _panel(
    panel: Panel, place: int, width: int, styled: Styles, points: int, tables: dict[str, str]
) -> dict[str, Any]:
    """One panel; the data of its layers go to `tables`, which layers and panels share."""
    heat_map = appearance.heat_map_of(panel)
    if heat_map is not None:
        height = 250 if appearance.is_dense(heat_map) else max(180, 36 * len(heat_map.y))
        layers = _heat_map(heat_map, panel)
    else:
        histograms = [mark for mark in panel.marks if isinstance(mark, Histogram)]
        layers = _histograms(histograms, panel, styled) + _curves(panel, place, styled, points)
        height = round(min(width * 0.72, 330))
    plain = []
    for layer in layers or [alt.Chart(_table(("n",), [])).mark_point()]:
        # Put together by hand: Altair's own `layer` and `concat` copy everything many times,
        # seconds for a page.
        one = layer.to_dict(validate=False)
        tables |= one.pop("datasets")
        plain.append({key: value for key, value in one.items() if key not in ("$schema", "config")})
    title = textwrap.wrap(panel.title, max(12, int(width / 7.4))) or [""]
    return {"title": title, "width": width, "height": height, "layer": plain}


# -- lines -----------------------------------------------------------------------------------------


def _curves(panel: Panel, place: int, styled: Styles, points: int) -> list[alt.Chart]:
    lines = appearance.in_drawing_order(panel)
    if not lines:
        return []
    # Lines of one name, such as one per run, differ by a number; else they would be drawn
    # as one line that jumps back and forth.
    repeated = len({(line.label, line.role) for line in lines}) < len(lines)
    rows, lone = [], []
    for count, line in enumerate(lines):
        kept = [
            (styled[line.label, line.role].name, *row, *([count] if repeated else []))
            for row in _thinned(line, panel, points)
        ]
        rows += kept
        lone += kept if len(kept) == 1 else []
    columns = ("n", "x", "y", "l", "h", *(["g"] if repeated else []))
    apart = {"detail": "g:N"} if repeated else {}
    source = _table(columns, rows)
    x, y, low = _x(panel, "x:Q"), _y(panel, "y:Q"), _y(panel, "l:Q")
    colour, dash = _stroke(styled)
    tooltip = _tooltip({"n:N": "curve", "x:Q": panel.x_label, "y:Q": panel.y_label})
    layers = []
    if any(row[3] != "" for row in rows):
        tooltip += _tooltip({"l:Q": "band from", "h:Q": "band to"})
        bands = alt.Chart(source).transform_filter(_BANDED).mark_area(opacity=BAND_OPACITY)
        fill = _fill(styled)
        layers.append(bands.encode(x=x, y=low, y2="h:Q", fill=fill, tooltip=tooltip, **apart))
    strokes = alt.Chart(source).mark_line(strokeWidth=2)
    layers.append(strokes.encode(x=x, y=y, color=colour, strokeDash=dash, tooltip=tooltip, **apart))
    if lone:  # one point makes no stroke
        dots = alt.Chart(_table(columns, lone)).mark_point(filled=True, size=45, opacity=1)
        layers.append(dots.encode(x=x, y=y, fill=_fill(styled), tooltip=tooltip))
    near = alt.selection_point(
        name=f"near_{place}", on="pointerover", nearest=True, empty=False, clear="pointerout"
    )
    seen = alt.when(near).then(alt.value(1)).otherwise(alt.value(0))
    dots = alt.Chart(source).mark_point(filled=True, size=55)
    dots = dots.encode(x=x, y=y, fill=_fill(styled), opacity=seen, tooltip=tooltip)
    return [*layers, dots.add_params(near)]


def _thinned(line: Line, panel: Panel, points: int) -> list[tuple[Any, ...]]:
    """At most this many points, with the first and the last, spread evenly over the axis."""
    curve = appearance.visible(line, panel)
    shown = np.flatnonzero(np.isfinite(curve.x) & np.isfinite(curve.y))
    if shown.size > points:
        if appearance.scales(panel)[0] == "log":  # by index, the early decades would be empty
            place = np.log(curve.x[shown])
            wanted = np.linspace(place.min(), place.max(), points // 2)
            chosen = np.abs(place[:, None] - wanted[None, :]).argmin(axis=0)
            spread = np.linspace(0, shown.size - 1, points - points // 2).round().astype(int)
            shown = shown[np.unique(np.concatenate([chosen, spread]))]
        else:
            shown = shown[np.unique(np.linspace(0, shown.size - 1, points).round().astype(int))]
    none = np.full(curve.x.shape, np.nan)
    low, high = (none if end is None else end for end in (curve.low, curve.high))
    return [tuple(_short(values[at]) for values in (curve.x, curve.y, low, high)) for at in shown]


# -- histograms ------------------------------------------------------------------------------------


def _histograms(histograms: Sequence[Histogram], panel: Panel, styled: Styles) -> list[alt.Chart]:
    if not histograms:
        return []
    floor = appearance.baseline(panel)
    bins, outlines = [], []
    for place, histogram in enumerate(histograms):
        name = styled[histogram.label, "measured"].name
        edges, share = appearance.bin_edges(histogram, panel), np.asarray(histogram.share, float)
        tops = np.maximum(np.nan_to_num(share, nan=floor), floor) if floor else np.nan_to_num(share)
        none = np.full(share.shape, np.nan)
        ends = (none if end is None else end for end in (histogram.low, histogram.high))
        low, high = (np.asarray(end, float) for end in ends)
        middles = edges[:-1] + np.diff(edges) * (place + 1) / (len(histograms) + 1)
        low = np.where(low < floor, floor, low) if floor else low
        columns = zip(edges[:-1], edges[1:], share, low, high, middles, strict=True)
        bins += [(name, *map(_short, column)) for column in columns]
        path = [(edges[0], floor)]
        for left, right, top in zip(edges[:-1], edges[1:], tops, strict=True):
            path += [(left, top), (right, top)]
        path.append((edges[-1], floor))
        outlines += [(name, at, _short(x), _short(y)) for at, (x, y) in enumerate(path)]
    bins = [row for row in bins if row[3] != ""]
    x, y = _x(panel, "a:Q"), _y(panel, "s:Q", zero=True)
    colour, dash = _stroke(styled)
    names = {"n:N": "of", "a:Q": "from", "b:Q": "to", "s:Q": panel.y_label}
    source = _table(("n", "a", "b", "s", "l", "h", "m"), bins)
    banded = any(row[4] != "" for row in bins)
    if banded:
        names |= {"l:Q": "interval from", "h:Q": "interval to"}
    tooltip = _tooltip(names)
    bars = alt.Chart(source).mark_rect(opacity=0.13)
    outline = alt.Chart(_table(("n", "i", "x", "y"), outlines))
    outline = outline.mark_line(strokeWidth=2, strokeJoin="miter")
    at = {"x": _x(panel, "x:Q"), "y": _y(panel, "y:Q", zero=True), "order": "i:Q"}
    layers = [
        bars.encode(x=x, x2="b:Q", y=y, y2=alt.Y2Datum(floor), fill=_fill(styled), tooltip=tooltip),
        outline.encode(**at, color=colour, strokeDash=dash, tooltip=_tooltip({"n:N": "of"})[0]),
    ]
    if banded:
        known = alt.Chart(source).transform_filter(_BANDED)
        at = {"x": _x(panel, "m:Q"), "y": _y(panel, "l:Q", zero=True), "y2": "h:Q"}
        layers.append(known.mark_rule(strokeWidth=3).encode(**at, color=colour, tooltip=tooltip))
    return layers


# -- heat maps -------------------------------------------------------------------------------------


def _heat_map(heat_map: HeatMap, panel: Panel) -> list[alt.Chart]:
    scale = appearance.heat_scale(heat_map)
    across, up = ticks(list(heat_map.x)), ticks(list(heat_map.y))
    rows: dict[str, list[tuple[Any, ...]]] = {"light": [], "dark": [], "missing": []}
    for (row, column), value in np.ndenumerate(np.asarray(heat_map.value, float)):
        shade = scale.place(value)
        ink = "missing" if math.isnan(shade) else "light" if shade < 0.5 else "dark"
        rows[ink].append((across[column], up[row], _short(value), number(value)))
    columns = ("x", "y", "v", "t")
    dense = appearance.is_dense(heat_map)
    level = alt.Axis(
        labelAngle=0, values=appearance.shown_ticks(across), labelExpr="split(datum.label, ' ')"
    )
    upright = alt.Axis(values=appearance.shown_ticks(up), labelLimit=220)
    columns_scale, rows_scale = (alt.Scale(domain=d, padding=0) for d in (across, up[::-1]))
    x = alt.X("x:N", sort=across, scale=columns_scale, title=panel.x_label, axis=level)
    y = alt.Y("y:N", sort=up[::-1], scale=rows_scale, title=panel.y_label, axis=upright)
    tooltip = _tooltip({"x:N": panel.x_label, "y:N": panel.y_label, "t:N": heat_map.label})
    shown: dict[str, Any] = {"x": x, "y": y, "tooltip": tooltip}
    colours = alt.Scale(scheme=HEAT_MAP, type=scale.scale, domain=[scale.low, scale.high])
    legend = alt.Legend(
        title=heat_map.label, orient="right", gradientLength=150, titleLimit=180, format=".3~g"
    )

    def source(kept: list[tuple[Any, ...]]) -> alt.Chart:
        return alt.Chart(_table(columns, kept, texts=("x", "y", "t")))

    cells = source(rows["light"] + rows["dark"])
    rectangles = cells.mark_rect() if dense else cells.mark_rect(stroke="white")
    layers = [rectangles.encode(fill=alt.Fill("v:Q", scale=colours, legend=legend), **shown)]
    for ink, colour in () if dense else (("light", "white"), ("dark", "black")):
        texts = source(rows[ink]).mark_text(color=colour, fontSize=11)
        layers.append(texts.encode(text="t:N", **shown))
    if rows["missing"]:
        empty = source(rows["missing"])
        face = empty.mark_rect(color=MISSING, stroke="#999999", strokeDash=[3, 3])
        words = empty.mark_text(color="#333333", fontSize=11, fontStyle="italic")
        layers.append(face.encode(**shown))
        layers += [] if dense else [words.encode(text="t:N", **shown)]
    return layers


# -- what they share -------------------------------------------------------------------------------


def _x(panel: Panel, field: str) -> alt.X:
    scale = alt.Scale(type=appearance.scales(panel)[0], zero=False, nice=False)
    return alt.X(field, title=panel.x_label, scale=scale, axis=_axis(panel, 0))


def _y(panel: Panel, field: str, zero: bool = False) -> alt.Y:
    linear = appearance.scales(panel)[1] == "linear"
    scale = alt.Scale(type="linear" if linear else "log", zero=zero and linear, nice=linear)
    return alt.Y(field, title=panel.y_label, scale=scale, axis=_axis(panel, 1))


def _axis(panel: Panel, which: Literal[0, 1]) -> alt.Axis:
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


def _stroke(styled: Styles) -> tuple[alt.Color, alt.StrokeDash]:
    """Colour and dash by label, with one legend for both under the panels."""
    names = [style.name for style in styled.values()]
    longest = max(len(name) for name in names)
    columns = max(1, min(len(names), int(900 / (longest * _LETTER + 60))))
    legend = alt.Legend(
        title=None,
        orient="bottom",
        direction="horizontal",
        columns=columns,
        symbolType="stroke",
        symbolSize=900,
        symbolStrokeWidth=2.2,
        symbolFillColor="transparent",
        symbolOpacity=1,
        labelLimit=900,
        columnPadding=24,
        offset=18,
    )
    colours = alt.Scale(domain=names, range=[style.colour for style in styled.values()])
    # Vega wants a dash to have two lengths; [1, 0] is a stroke without gaps.
    lengths = [list(style.dash) or [1, 0] for style in styled.values()]
    dash = alt.StrokeDash("n:N", scale=alt.Scale(domain=names, range=lengths), legend=legend)
    return alt.Color("n:N", scale=colours, legend=legend), dash


def _fill(styled: Styles) -> alt.Fill:
    """The colour of areas: a channel of its own, so that the legend shows strokes."""
    colours = {style.name: style.colour for style in styled.values()}
    scale = alt.Scale(domain=list(colours), range=list(colours.values()))
    return alt.Fill("n:N", scale=scale, legend=None)


def _tooltip(titles: Mapping[str, str]) -> list[alt.Tooltip]:
    """From fields and their titles."""
    formats = [".4~g" if field.endswith(":Q") else alt.Undefined for field in titles]
    rows = zip(titles.items(), formats, strict=True)
    return [alt.Tooltip(field, title=title, format=form) for (field, title), form in rows]


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], texts: Sequence[str] = ("n",)
) -> alt.InlineData:
    """Inline CSV: half the bytes of JSON rows."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    parse = {column: "string" if column in texts else "number" for column in columns}
    form = alt.CsvDataFormat(type="csv", parse=parse)
    return alt.InlineData(values=buffer.getvalue(), format=form)


def _short(value: float) -> str:
    """Few digits; empty where there is no number."""
    return f"{value:.{_DIGITS}g}" if math.isfinite(value) else ""
