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
from matplotlib.colors import LogNorm, Normalize, to_rgb
from matplotlib.figure import Figure as Canvas
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, NullFormatter

from saccade.core.figure import Figure, HeatMap, Histogram, Panel, Role
from saccade.core.storage import write_atomically
from saccade.report import appearance
from saccade.report.appearance import BAND_OPACITY, HEAT_MAP, MISSING, Style
from saccade.report.formatting import number, ticks

COLUMNS = 4
"""Most panels in a row."""
DOTS_PER_INCH = 150
_CHARACTER = 0.078
"""Inches per character of nine points, a little generous."""
_SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.titlesize": 9,
    "axes.titleweight": "bold",
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.6,
    "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 2.6,
    "lines.scale_dashes": False,
    "hatch.linewidth": 0.5,
    "figure.constrained_layout.h_pad": 0.07,
    "figure.constrained_layout.w_pad": 0.07,
    "pdf.fonttype": 42,  # TrueType: journals refuse type 3
}


def save_figure(figure: Figure, folder: Path) -> list[Path]:
    """Write `<folder>/<figure.name>.png` and `.pdf`."""
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a reader's own matplotlibrc must not change the bytes
        matplotlib.rcParams.update(_SETTINGS)  # pyright: ignore[reportCallIssue, reportArgumentType]
        canvas = _drawn(figure)
        # Lay the panels out once; without an engine, the two files do not do it again.
        canvas.draw_without_rendering()
        canvas.set_layout_engine("none")
        # Not `savefig`, which draws everything twice to find layouts.
        files = {name: io.BytesIO() for name in (f"{figure.name}.png", f"{figure.name}.pdf")}
        png, pdf = files.values()
        FigureCanvasAgg(canvas).print_png(png, metadata={"Software": None})
        FigureCanvasPdf(canvas).print_pdf(
            pdf, metadata={"CreationDate": None, "Title": figure.title}
        )
    for name, content in files.items():
        write_atomically(Path(folder) / name, content.getvalue())
    return [Path(folder) / name for name in files]


def _drawn(figure: Figure) -> Canvas:
    rows = math.ceil(len(figure.panels) / COLUMNS) or 1
    # Five panels are three and two, not four and one.
    columns = math.ceil(len(figure.panels) / rows) or 1
    sizes = [_panel_size(panel, len(figure.panels)) for panel in figure.panels]
    widths = [max((size[0] for size in sizes[at::columns]), default=4.0) for at in range(columns)]
    in_rows = [sizes[row * columns : (row + 1) * columns] for row in range(rows)]
    heights = [max((size[1] for size in row), default=1.0) for row in in_rows]
    styled = appearance.styles(figure)
    # Labels of a legend may be whole sentences: its columns are those that the longest leaves room
    # for.
    room = max(20, int(sum(widths) / _CHARACTER) - 8)
    labels = ["\n".join(textwrap.wrap(style.name, room)) for style in styled.values()]
    longest = max((len(line) for label in labels for line in label.splitlines()), default=0)
    legend_columns = max(1, min(len(labels), int(sum(widths) / (longest * _CHARACTER + 0.65))))
    in_lines = [label.count("\n") + 1 for label in labels]
    legend_lines = sum(
        max(in_lines[place : place + legend_columns])
        for place in range(0, len(labels), legend_columns)
    )
    title = _wrapped(figure.title, sum(widths), 1.25)
    height = sum(heights) + 0.18 * legend_lines + 0.2 * (title.count("\n") + 1) + 0.1
    canvas = Canvas(figsize=(sum(widths), height), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(canvas)
    canvas.suptitle(title, fontsize=11, fontweight="bold")
    grid = canvas.add_gridspec(rows, columns, width_ratios=widths, height_ratios=heights)
    for place, panel in enumerate(figure.panels):
        axes = canvas.add_subplot(grid[place // columns, place % columns])
        axes.set_title(_wrapped(panel.title, widths[place % columns] - 0.7, 1.1))
        axes.set_xlabel(_wrapped(panel.x_label, widths[place % columns] - 0.5))
        axes.set_ylabel(_wrapped(panel.y_label, heights[place // columns] - 0.4))
        heat_map = appearance.heat_map_of(panel)
        if heat_map is not None:
            _draw_heat_map(canvas, axes, heat_map)
        else:
            _draw_marks(axes, panel, styled)
    if styled:
        handles, names = map(_handle, styled.values()), map(_plain, labels)
        where = "outside lower center"
        canvas.legend(list(handles), list(names), loc=where, ncols=legend_columns)
    return canvas


def _panel_size(panel: Panel, panels: int) -> tuple[float, float]:
    """Inches; a heat map has room for its numbers."""
    heat_map = appearance.heat_map_of(panel)
    if heat_map is None:
        return (4.8, 3.2) if panels == 1 else (3.2, 2.7)
    rows, columns = heat_map.value.shape
    if appearance.is_dense(heat_map):
        return 3.9, 3.0
    across = max(len(line) for label in ticks(list(heat_map.x)) for line in label.split())
    up = max(len(label) for label in ticks(list(heat_map.y)))
    width = max(0.5, 0.9 * _CHARACTER * across + 0.1) * columns + _CHARACTER * up
    return max(3.2, width + 1.7), max(2.7, 0.3 * rows + 1.0)


def _draw_marks(axes: Axes, panel: Panel, styled: dict[tuple[str, Role], Style]) -> None:
    x_scale, y_scale = appearance.scales(panel)
    for place, (set_scale, axis, scale) in enumerate(
        ((axes.set_xscale, axes.xaxis, x_scale), (axes.set_yscale, axes.yaxis, y_scale))
    ):
        if scale == "log":
            set_scale("log")
            low, high = appearance.positive_range(panel, place)  # pyright: ignore[reportArgumentType]
            if high > 30 * low:  # else the axis needs its minor labels, and matplotlib's own
                axis.set_major_formatter(FuncFormatter(_power))
                axis.set_minor_formatter(NullFormatter())
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
            axes.fill_between(
                curve.x, curve.low, curve.high, alpha=BAND_OPACITY, linewidth=0, **look
            )
        look |= {"linestyle": _linestyle(style), "linewidth": style.width}
        single = np.isfinite(curve.x * curve.y).sum() == 1  # one point makes no stroke
        look |= {"marker": "o" if single else None, "markersize": 4, "zorder": 3 + layer / 1000}
        axes.plot(curve.x, curve.y, **look)
    positive = all(np.nanmin(histogram.share, initial=0) >= 0 for histogram in histograms)
    if histograms and y_scale == "linear" and positive:
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
        # Side by side within the bin: the intervals of overlaid histograms must not hide each
        # other.
        middles = edges[:-1] + np.diff(edges) * across
        ends = (np.asarray(end, float) for end in (histogram.low, histogram.high))
        low, high = (np.maximum(end, floor) for end in ends)
        axes.vlines(middles, low, high, color=colour, linewidth=2.4, alpha=0.9, zorder=4)


def _draw_heat_map(canvas: Canvas, axes: Axes, heat_map: HeatMap) -> None:
    values = np.asarray(heat_map.value, float)
    rows, columns = values.shape
    dense = appearance.is_dense(heat_map)
    scale = appearance.heat_scale(heat_map)
    norm = (LogNorm if scale.scale == "log" else Normalize)(scale.low, scale.high)
    shades = np.array([[scale.place(value) for value in row] for row in values])
    mesh = axes.pcolormesh(
        np.arange(columns + 1) - 0.5,
        np.arange(rows + 1) - 0.5,
        np.ma.masked_where(np.isnan(shades), values),
        norm=norm,
        cmap=HEAT_MAP,
        **({} if dense else {"edgecolors": "white", "linewidth": 0.8}),
    )
    if dense:
        axes.set_facecolor(MISSING)
    for (row, column), shade in () if dense else np.ndenumerate(shades):
        look: dict[str, Any] = {"color": "#FFFFFF" if shade < 0.5 else "#000000"}
        if np.isnan(shade):
            hatched: Any = {"facecolor": MISSING, "edgecolor": "#999999", "hatch": "////"}
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, linewidth=0.8, **hatched))
            box = {"facecolor": MISSING, "edgecolor": "none", "pad": 1.2}
            look = {"color": "#333333", "bbox": box}
        text = number(float(values[row, column]))
        axes.text(column, row, text, ha="center", va="center", fontsize=7, **look)
    axes.grid(visible=False)
    sides = ((axes.set_xticks, heat_map.x, "\n"), (axes.set_yticks, heat_map.y, " "))
    for set_ticks, names, gap in sides:
        labels = ticks(list(names))
        shown = appearance.shown_ticks(labels)
        texts = [_plain(label).replace(" ", gap) for label in shown]
        set_ticks([labels.index(label) for label in shown], texts)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    bar = canvas.colorbar(mesh, ax=axes, aspect=24, pad=0.02)
    bar.outline.set_visible(False)  # pyright: ignore[reportCallIssue]
    bar.set_label(_wrapped(heat_map.label, 2.4))


def _handle(style: Style) -> Line2D | Patch:
    look: dict[str, Any] = {"linestyle": _linestyle(style)}
    if style.filled:
        face = (*to_rgb(style.colour), 0.15)
        look |= {"facecolor": face, "edgecolor": style.colour, "hatch": style.hatch}
        return Patch(linewidth=1.3, **look)
    return Line2D([], [], color=style.colour, linewidth=style.width, **look)


def _power(value: float, place: int | None = None) -> str:
    """A power of ten in plain letters: matplotlib's own is a formula, and slow to draw."""
    del place
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
