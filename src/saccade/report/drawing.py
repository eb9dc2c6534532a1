"""Figures for papers: PNG and PDF through matplotlib, the same bytes for the same figure."""

import io
import math
import textwrap
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.colors import BoundaryNorm, LogNorm, Normalize, to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
    NullLocator,
)

from saccade.figures.figure import Figure, HeatMap, Histogram, Panel, Regions, Role
from saccade.records.sealed import write_atomically
from saccade.report import appearance
from saccade.report.appearance import BAND_OPACITY, HEAT_MAP, MISSING, WIDTHS, Style
from saccade.report.formatting import number, ticks

COLUMNS = 4
"""Most panels in a row."""
WIDEST = 21.0
"""Inches of the widest figure, unless a single panel is wider."""
DOTS_PER_INCH = 150
_CHARACTER = 0.078
"""Inches per character of nine points, a little generous."""
_AXES = {"titlesize": 9, "titleweight": "bold", "labelsize": 8.5, "edgecolor": "#444444"}
_AXES |= {"linewidth": 0.7, "grid": True, "axisbelow": True}
_TICKS = {"labelsize": 7.5, "color": "#444444"}
_SETTINGS: dict[Any, dict[str, Any]] = {
    "font": {"family": "DejaVu Sans", "size": 8.5},
    "axes": _AXES | {"spines.top": False, "spines.right": False},
    "grid": {"color": "#E6E6E6", "linewidth": 0.6},
    "xtick": _TICKS,
    "ytick": _TICKS,
    "legend": {"frameon": False, "fontsize": 8.5, "handlelength": 2.6},
    "lines": {"scale_dashes": False},
    "hatch": {"linewidth": 0.5},
    "figure": {"constrained_layout.h_pad": 0.07, "constrained_layout.w_pad": 0.07},
    "pdf": {"fonttype": 42},  # TrueType: journals refuse type 3
}


def save_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write `<folder>/<figure.name>.png` and `.pdf`."""
    figure = figure.still()
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a reader's own matplotlibrc must not change the bytes
        for group, settings in _SETTINGS.items():
            matplotlib.rc(group, **settings)
        canvas = _drawn(figure)
        # Lay the panels out once; without an engine, the two files do not do it again.
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")
        # Not `savefig`, which draws everything twice to find layouts.
        png, pdf = io.BytesIO(), io.BytesIO()
        FigureCanvasAgg(canvas).print_png(png, metadata={"Software": None})
        about = {"CreationDate": None, "Title": figure.title}
        FigureCanvasPdf(canvas).print_pdf(pdf, metadata=about)
    paths = [Path(folder) / f"{figure.name}.{ending}" for ending in ("png", "pdf")]
    for path, content in zip(paths, (png, pdf), strict=True):
        write_atomically(path, content.getvalue())
    return paths


def _drawn(figure: Figure) -> Canvas:
    sizes = [_panel_size(panel, len(figure.panels)) for panel in figure.panels]
    rows, widths = _rows_and_widths([size[0] for size in sizes])
    columns = len(widths)
    in_rows = [sizes[row * columns : (row + 1) * columns] for row in range(rows)]
    heights = [max((size[1] for size in row), default=1.0) for row in in_rows]
    styled, width = appearance.styles(figure), sum(widths)
    kinds = appearance.kinds_of(figure)
    # Labels of a legend may be whole sentences: the longest decides how many columns it has.
    room = max(20, int(width / _CHARACTER) - 8)
    names = [*kinds, *(style.name for style in styled.values())]
    labels = [textwrap.wrap(name, room) or [""] for name in names]
    longest = max((len(line) for label in labels for line in label), default=0)
    across = max(1, min(len(labels), int(width / (longest * _CHARACTER + 0.65))))
    lines = [max(map(len, labels[at : at + across])) for at in range(0, len(labels), across)]
    title = _wrapped(figure.title, width, 1.25)
    height = sum(heights) + 0.18 * sum(lines) + 0.2 * (title.count("\n") + 1) + 0.1
    canvas = Canvas(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(canvas)
    canvas.suptitle(title, fontsize=11, fontweight="bold")
    grid = canvas.add_gridspec(rows, columns, width_ratios=widths, height_ratios=heights)
    for place, panel in enumerate(figure.panels):
        axes = canvas.add_subplot(grid[place // columns, place % columns])
        axes.set_title(_wrapped(panel.title, widths[place % columns] - 0.7, 1.1))
        axes.set_xlabel(_wrapped(panel.x_label, widths[place % columns] - 0.5))
        axes.set_ylabel(_wrapped(panel.y_label, heights[place // columns] - 0.4))
        if (heat_map := appearance.heat_map_of(panel)) is not None:
            _draw_heat_map(canvas, axes, heat_map)
        else:
            _draw_marks(axes, panel, styled)
    if labels:
        handles: list[Any] = [_kind_handle(figure, kind) for kind in kinds]
        handles += [_handle(style) for style in styled.values()]
        names = [_plain("\n".join(label)) for label in labels]
        canvas.legend(handles, names, loc="outside lower center", ncols=across)
    return canvas


def _rows_and_widths(panels: list[float]) -> tuple[int, list[float]]:
    """In how many rows panels lie, and how wide the columns are."""
    rows = math.ceil(len(panels) / COLUMNS) or 1
    while True:
        # Five panels are three and two, not four and one.
        columns = math.ceil(len(panels) / rows) or 1
        widths = [max(panels[at::columns], default=4.0) for at in range(columns)]
        if columns == 1 or sum(widths) <= WIDEST:
            return math.ceil(len(panels) / columns) or 1, widths
        rows += 1


def _panel_size(panel: Panel, panels: int) -> tuple[float, float]:
    """Inches; a heat map has room for its numbers."""
    heat_map = appearance.heat_map_of(panel)
    if heat_map is None:
        if appearance.regions_of(panel):
            return (5.4, 4.4) if panels == 1 else (4.8, 4.2)
        return (4.8, 3.2) if panels == 1 else (3.2, 2.7)
    if appearance.is_dense(heat_map):
        return 3.9, 3.0
    rows, columns = heat_map.value.shape
    across = appearance.letters_across(heat_map)
    up = max(len(label) for label in ticks(list(heat_map.y)))
    width = max(0.5, 0.9 * _CHARACTER * across + 0.1) * columns + _CHARACTER * up
    return max(3.2, width + 1.7), max(2.7, 0.3 * rows + 1.0)


def _draw_marks(axes: Axes, panel: Panel, styled: dict[tuple[str, Role], Style]) -> None:
    scales = appearance.scales(panel)
    sides = ((axes.set_xscale, axes.xaxis), (axes.set_yscale, axes.yaxis))
    for place, (set_scale, axis) in enumerate(sides):
        if scales[place] == "log":
            set_scale("log")
            low, high = appearance.positive_range(panel, place)
            if high > 30 * low:
                axis.set_major_formatter(FuncFormatter(_power))
                axis.set_minor_formatter(NullFormatter())
            else:  # few powers of ten, or none
                few = MaxNLocator(4) if high < 3 * low else LogLocator(subs=(1, 2, 5))
                axis.set_major_locator(few)
                axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
                axis.set_minor_locator(NullLocator())
    for regions in appearance.regions_of(panel):
        _draw_regions(axes, regions)
    histograms = [mark for mark in panel.marks if isinstance(mark, Histogram)]
    floor = appearance.baseline(panel)
    for place, histogram in enumerate(histograms):
        style, edges = styled[histogram.label, "measured"], appearance.bin_edges(histogram, panel)
        _draw_histogram(axes, histogram, edges, style, (place + 1) / (len(histograms) + 1), floor)
    for layer, line in enumerate(appearance.in_drawing_order(panel)):
        style = styled[line.label, line.role]
        curve = appearance.visible(line, panel)
        look: dict[str, Any] = {"color": style.colour, "zorder": 2 + layer / 1000}
        if curve.low is not None and curve.high is not None:
            band = curve.x, curve.low, curve.high
            axes.fill_between(*band, alpha=BAND_OPACITY, linewidth=0, **look)
        look |= {"linestyle": _linestyle(style), "linewidth": WIDTHS[style.role]}
        single = np.isfinite(curve.x * curve.y).sum() == 1  # one point makes no stroke
        look |= {"marker": "o" if single else None, "markersize": 4, "zorder": 3 + layer / 1000}
        axes.plot(curve.x, curve.y, **look)
    positive = all(np.nanmin(histogram.share, initial=0) >= 0 for histogram in histograms)
    if histograms and scales[1] == "linear" and positive:
        axes.set_ylim(bottom=0)


def _draw_histogram(
    axes: Axes, histogram: Histogram, edges: np.ndarray, style: Style, across: float, floor: float
) -> None:
    """One histogram; its intervals stand at a share `across` of every bin."""
    share = np.asarray(histogram.share, float)
    share = np.maximum(share, floor) if floor else share
    colour, filled = style.colour, {"baseline": floor, "fill": True, "linewidth": 0}
    axes.stairs(share, edges, facecolor=colour, alpha=0.13, **filled)
    if style.hatch:
        look: dict[str, Any] = {"facecolor": "none", "edgecolor": colour, "hatch": style.hatch}
        axes.stairs(share, edges, alpha=0.55, **look, **filled)
    look = {"color": colour, "linewidth": 1.5, "linestyle": _linestyle(style), "zorder": 3}
    axes.stairs(share, edges, baseline=floor, **look)
    if histogram.low is not None and histogram.high is not None:
        # Side by side within the bin: intervals must not hide each other.
        middles = edges[:-1] + np.diff(edges) * across
        ends = (np.asarray(end, float) for end in (histogram.low, histogram.high))
        low, high = (np.maximum(end, floor) for end in ends)
        axes.vlines(middles, low, high, color=colour, linewidth=2.4, alpha=0.9, zorder=4)


def _draw_regions(axes: Axes, regions: Regions) -> None:
    for low, high, bottom, top, kind in appearance.rectangles(regions):
        look = _region_look(appearance.kind_place(regions, kind))
        axes.add_patch(Rectangle((low, bottom), high - low, top - bottom, **look, zorder=1))
    for place in np.unique(regions.found).tolist():
        here = regions.found == place
        look = _point_look(place % len(appearance.SYMBOLS))
        axes.plot(regions.x[here], regions.y[here], linestyle="none", clip_on=False, **look)
    axes.set_xlim(regions.x_edges[0], regions.x_edges[-1])
    axes.set_ylim(regions.y_edges[0], regions.y_edges[-1])
    axes.grid(visible=False)


def _region_look(place: int) -> dict[str, Any]:
    """Colours are mixed with white: the edges of transparent rectangles would show."""
    colour, share = np.asarray(to_rgb(appearance.REGION_COLOURS[place])), appearance.REGION_OPACITY
    face, edge = (tuple(1 - part * (1 - colour)) for part in (share, 2 * share))
    hatch = appearance.REGION_HATCHES[place] or None
    return {"facecolor": face, "edgecolor": edge, "hatch": hatch, "linewidth": 0}


def _point_look(place: int) -> dict[str, Any]:
    colour = tuple(0.6 * one for one in to_rgb(appearance.REGION_COLOURS[place]))
    symbol = appearance.SYMBOLS[place][0]
    return {"marker": symbol, "color": colour, "markersize": 2.6, "markeredgewidth": 0.7}


def _kind_handle(figure: Figure, kind: str) -> tuple[Patch, Line2D]:
    regions = (one for panel in figure.panels for one in appearance.regions_of(panel))
    place = appearance.kind_place(next(one for one in regions if kind in one.kinds), kind)
    return Patch(**_region_look(place)), Line2D([], [], linestyle="none", **_point_look(place))


def _draw_heat_map(canvas: Canvas, axes: Axes, heat_map: HeatMap) -> None:
    values = np.asarray(heat_map.value, float)
    dense, scale = appearance.is_dense(heat_map), appearance.heat_scale(heat_map)
    norm = (LogNorm if scale.scale == "log" else Normalize)(scale.low, scale.high)
    if (levels := appearance.level_edges(heat_map)) is not None:
        norm = BoundaryNorm(levels, 256)
    shades = np.array([[scale.place(value) for value in row] for row in values])
    edges: Any = {} if dense else {"edgecolors": "white", "linewidth": 0.8}
    up, across = (np.arange(count + 1) - 0.5 for count in values.shape)
    shown = np.ma.masked_where(np.isnan(shades), values)
    mesh = axes.pcolormesh(across, up, shown, norm=norm, cmap=HEAT_MAP, **edges)
    if dense:
        axes.set_facecolor(MISSING)
    for (row, column), shade in () if dense else np.ndenumerate(shades):
        look: dict[str, Any] = {"color": "#FFFFFF" if shade < 0.5 else "#000000"}
        if np.isnan(shade):
            hatched: Any = {"facecolor": MISSING, "edgecolor": "#999999", "hatch": "////"}
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, linewidth=0.8, **hatched))
            box = {"facecolor": MISSING, "edgecolor": "none", "pad": 1.2}
            look = {"color": "#333333", "bbox": box}
        written = None if heat_map.texts is None else str(heat_map.texts[row, column])
        text = number(float(values[row, column])) if written is None else written
        axes.text(column, row, text, ha="center", va="center", fontsize=7, **look)
    axes.grid(visible=False)
    sides = ((axes.set_xticks, heat_map.x, "\n"), (axes.set_yticks, heat_map.y, " "))
    for set_ticks, names, gap in sides:
        labels = ticks(list(names))
        shown = appearance.shown_ticks(labels, upright=gap == " ")
        texts = [_plain(label).replace(" ", gap) for label in shown]
        set_ticks([labels.index(label) for label in shown], texts)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = canvas.colorbar(mesh, ax=axes, aspect=24, pad=0.02)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.set_label(_wrapped(heat_map.label, 2.4))


def _handle(style: Style) -> Line2D | Patch:
    dash = _linestyle(style)
    if not style.filled:
        return Line2D([], [], color=style.colour, linewidth=WIDTHS[style.role], linestyle=dash)
    face: Any = {"facecolor": (*to_rgb(style.colour), 0.15), "edgecolor": style.colour}
    return Patch(linewidth=1.3, linestyle=dash, hatch=style.hatch, **face)


def _power(value: float, place: int | None = None) -> str:
    """A power of ten in plain letters: matplotlib's own is a formula, and slow to draw."""
    exponent = math.log10(value)
    if not math.isclose(exponent, round(exponent), abs_tol=1e-9):
        return number(value)
    return "10" + str(round(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _linestyle(style: Style) -> Any:
    return (0, style.dash) if style.dash else "solid"


def _wrapped(text: str, inches: float, size: float = 1.0) -> str:
    """Broken into lines of this many inches, at a multiple of the usual letter size."""
    letters = max(12, int(inches / (_CHARACTER * size)))
    return _plain("\n".join(textwrap.wrap(text, letters, break_on_hyphens=False)))


def _plain(text: str) -> str:
    """Labels are plain text: a dollar sign starts no formula."""
    return text.replace("$", r"\$")
