"""Figures for the page: the same figure as a Vega-Lite chart through Altair, with tooltips,
light enough to inline.
"""

import csv
import io
import math
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import altair as alt
import numpy as np

from saccade.core.figure import Figure, HeatMap, Histogram, Line, Panel, Role
from saccade.report import appearance
from saccade.report.appearance import BAND_OPACITY, HEAT_MAP, MISSING, Style
from saccade.report.formatting import number, ticks

POINTS = 200
"""Most points a line keeps."""
PAGE_WIDTH = 1090
"""Pixels that a row of panels may take."""
_DIGITS = 5
_LETTER = 6.4
"""Pixels a letter of the legend takes, a little generously."""
_FONT = (
    "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans',"
    " sans-serif"
)

Styles = dict[tuple[str, Role], Style]


def chart(figure: Figure, points: int = POINTS) -> dict[str, Any]:
    """The figure as a Vega-Lite specification; every line is thinned to at most so many points."""
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
    """As many panels in a row, at most three, as fit the page with their axes and colour bars."""
    room = max(widths, default=1) + 85
    columns = max(1, min(3, PAGE_WIDTH // room))
    return 2 if len(widths) == 4 and columns == 3 else columns


def _panel(
    panel: Panel, place: int, width: int, styled: Styles, points: int, tables: dict[str, str]
) -> dict[str, Any]:
    """One panel; the data of its layers go to the tables, where layers and panels share them."""
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
    # Lines of one name, one a run, say, are apart by a number; else they would be drawn as one that
    # jumps back and forth.
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
    tooltip = [_told("n:N", "curve"), _told("x:Q", panel.x_label), _told("y:Q", panel.y_label)]
    layers = []
    if any(row[3] != "" for row in rows):
        tooltip += [_told("l:Q", "band from"), _told("h:Q", "band to")]
        layers.append(
            alt.Chart(source)
            .transform_filter("isValid(datum.l) && isValid(datum.h)")
            .mark_area(opacity=BAND_OPACITY)
            .encode(x=x, y=low, y2="h:Q", fill=_fill(styled), tooltip=tooltip, **apart)
        )
    strokes = alt.Chart(source).mark_line(strokeWidth=2)
    layers.append(strokes.encode(x=x, y=y, color=colour, strokeDash=dash, tooltip=tooltip, **apart))
    if lone:  # one point makes no stroke
        dots = alt.Chart(_table(columns, lone)).mark_point(filled=True, size=45, opacity=1)
        layers.append(dots.encode(x=x, y=y, fill=_fill(styled), tooltip=tooltip))
    near = alt.selection_point(
        name=f"near_{place}", on="pointerover", nearest=True, empty=False, clear="pointerout"
    )
    seen = alt.when(near).then(alt.value(1)).otherwise(alt.value(0))
    layers.append(
        alt.Chart(source)
        .mark_point(filled=True, size=55)
        .encode(x=x, y=y, fill=_fill(styled), opacity=seen, tooltip=tooltip)
        .add_params(near)
    )
    return layers


def _thinned(line: Line, panel: Panel, points: int) -> list[tuple[Any, ...]]:
    """At most so many points that can be shown, the first and the last among them, evenly spread
    as they are on the axis.
    """
    curve = appearance.visible(line, panel)
    shown = np.flatnonzero(np.isfinite(curve.x) & np.isfinite(curve.y))
    if shown.size > points:
        if (
            appearance.scales(panel)[0] == "log"
        ):  # evenly in index would leave the early decades bare
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
        low, high = (
            none if end is None else np.asarray(end, float)
            for end in (histogram.low, histogram.high)
        )
        for left, right, top, bottom_end, top_end in zip(
            edges[:-1], edges[1:], share, low, high, strict=True
        ):
            middle = left + (right - left) * (place + 1) / (len(histograms) + 1)
            bottom_end = max(bottom_end, floor) if floor else bottom_end
            bins.append((name, *map(_short, (left, right, top, bottom_end, top_end, middle))))
        path = [(edges[0], floor)]
        for left, right, top in zip(edges[:-1], edges[1:], tops, strict=True):
            path += [(left, top), (right, top)]
        path.append((edges[-1], floor))
        outlines += [(name, at, _short(x), _short(y)) for at, (x, y) in enumerate(path)]
    bins = [row for row in bins if row[3] != ""]
    x, y = _x(panel, "a:Q"), _y(panel, "s:Q", zero=True)
    colour, dash = _stroke(styled)
    tooltip = [
        _told("n:N", "of"),
        _told("a:Q", "from"),
        _told("b:Q", "to"),
        _told("s:Q", panel.y_label),
    ]
    source = _table(("n", "a", "b", "s", "l", "h", "m"), bins)
    banded = any(row[4] != "" for row in bins)
    if banded:
        tooltip += [_told("l:Q", "interval from"), _told("h:Q", "interval to")]
    layers = [
        alt.Chart(source)
        .mark_rect(opacity=0.13)
        .encode(x=x, x2="b:Q", y=y, y2=alt.Y2Datum(floor), fill=_fill(styled), tooltip=tooltip),
        alt.Chart(_table(("n", "i", "x", "y"), outlines))
        .mark_line(strokeWidth=2, strokeJoin="miter")
        .encode(
            x=_x(panel, "x:Q"),
            y=_y(panel, "y:Q", zero=True),
            order="i:Q",
            color=colour,
            strokeDash=dash,
            tooltip=_told("n:N", "of"),
        ),
    ]
    if banded:
        layers.append(
            alt.Chart(source)
            .transform_filter("isValid(datum.l) && isValid(datum.h)")
            .mark_rule(strokeWidth=3)
            .encode(
                x=_x(panel, "m:Q"),
                y=_y(panel, "l:Q", zero=True),
                y2="h:Q",
                color=colour,
                tooltip=tooltip,
            )
        )
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
    x = alt.X(
        "x:N",
        sort=across,
        scale=alt.Scale(domain=across, padding=0),
        title=panel.x_label,
        axis=level,
    )
    y = alt.Y(
        "y:N",
        sort=up[::-1],
        scale=alt.Scale(domain=up[::-1], padding=0),
        title=panel.y_label,
        axis=upright,
    )
    tooltip = [
        _told("x:N", panel.x_label),
        _told("y:N", panel.y_label),
        _told("t:N", heat_map.label),
    ]
    fill = alt.Fill(
        "v:Q",
        scale=alt.Scale(scheme=HEAT_MAP, type=scale.scale, domain=[scale.low, scale.high]),
        legend=alt.Legend(
            title=heat_map.label, orient="right", gradientLength=150, titleLimit=180, format=".3~g"
        ),
    )
    cells = alt.Chart(_table(columns, rows["light"] + rows["dark"], texts=("x", "y", "t")))
    rectangles = cells.mark_rect() if dense else cells.mark_rect(stroke="white")
    layers = [rectangles.encode(x=x, y=y, fill=fill, tooltip=tooltip)]
    for ink, colour in () if dense else (("light", "white"), ("dark", "black")):
        source = _table(columns, rows[ink], texts=("x", "y", "t"))
        layers.append(
            alt.Chart(source)
            .mark_text(color=colour, fontSize=11)
            .encode(x=x, y=y, text="t:N", tooltip=tooltip)
        )
    if rows["missing"]:
        empty = alt.Chart(_table(columns, rows["missing"], texts=("x", "y", "t")))
        layers.append(
            empty.mark_rect(color=MISSING, stroke="#999999", strokeDash=[3, 3]).encode(
                x=x, y=y, tooltip=tooltip
            )
        )
        words = empty.mark_text(color="#333333", fontSize=11, fontStyle="italic")
        layers += [] if dense else [words.encode(x=x, y=y, text="t:N", tooltip=tooltip)]
    return layers


# -- what they share -------------------------------------------------------------------------------


def _x(panel: Panel, field: str) -> alt.X:
    scale = appearance.scales(panel)[0]
    return alt.X(
        field,
        title=panel.x_label,
        scale=alt.Scale(type=scale, zero=False, nice=False),
        axis=_axis(panel, 0),
    )


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
    dashes = alt.Scale(
        domain=names, range=[list(style.dash) or [1, 0] for style in styled.values()]
    )
    return alt.Color("n:N", scale=colours, legend=legend), alt.StrokeDash(
        "n:N", scale=dashes, legend=legend
    )


def _fill(styled: Styles) -> alt.Fill:
    """The colour of areas: a channel of its own, so that the legend shows strokes."""
    names, colours = (
        [style.name for style in styled.values()],
        [style.colour for style in styled.values()],
    )
    return alt.Fill("n:N", scale=alt.Scale(domain=names, range=colours), legend=None)


def _told(field: str, title: str) -> alt.Tooltip:
    return (
        alt.Tooltip(field, title=title, format=".4~g")
        if field.endswith(":Q")
        else alt.Tooltip(field, title=title)
    )


def _table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], texts: Sequence[str] = ("n",)
) -> alt.InlineData:
    """Inline CSV: half the bytes of JSON rows."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    parse = {column: "string" if column in texts else "number" for column in columns}
    return alt.InlineData(
        values=buffer.getvalue(), format=alt.CsvDataFormat(type="csv", parse=parse)
    )


def _short(value: float) -> str:
    """Few digits, and nothing where there is no number."""
    return f"{value:.{_DIGITS}g}" if math.isfinite(value) else ""
