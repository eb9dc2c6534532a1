"""Figures for papers."""

import dataclasses
import itertools

import matplotlib
import matplotlib.colors
import numpy as np
import pytest

from saccade.errors import ConfigError, FileError
from saccade.figures.figure import Figure, HeatMap, Histogram, Line, Panel
from saccade.report import appearance, drawing
from saccade.report.drawing import save_figure


def test_png_and_pdf_are_written_and_the_same_twice(figures, tmp_path):
    for figure in figures:
        first = [path.read_bytes() for path in save_figure(figure, tmp_path / "a")]
        second = [path.read_bytes() for path in save_figure(figure, tmp_path / "b")]
        assert first == second
        assert first[0].startswith(b"\x89PNG")
        assert first[1].startswith(b"%PDF")
        assert len(first[0]) > 5000
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {
        f"{name}.{ending}" for name in ("score", "shares", "map") for ending in ("png", "pdf")
    }


def test_settings_of_the_user_are_left_alone_and_do_not_matter(figures, tmp_path):
    plain = save_figure(figures[0], tmp_path / "a")[0].read_bytes()
    with matplotlib.rc_context({"font.size": 30, "axes.facecolor": "red"}):
        changed = save_figure(figures[0], tmp_path / "b")[0].read_bytes()
        assert matplotlib.rcParams["font.size"] == 30
    assert plain == changed


def test_a_folder_that_cannot_be_written_is_one_error(figures, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match="cannot write"):
        save_figure(figures[0], tmp_path / "file")


def test_styles_follow_roles_and_labels(figures):
    styles = appearance.styles(figures[0])
    assert styles["theory, equation 7", "theory"].colour == appearance.THEORY
    assert styles["theory, equation 7", "theory"].dash
    assert styles["frozen", "measured"].name == "frozen (measured)", (
        "a label with two roles says which"
    )
    assert styles["frozen", "theory"].name == "frozen (theory)"
    assert styles["frozen", "theory"].dash != styles["theory, equation 7", "theory"].dash
    measured = [style for style in styles.values() if style.role == "measured"]
    assert all(style.dash == appearance.SOLID for style in measured)
    assert len({style.colour for style in measured}) == len(measured)


def test_overlaid_histograms_differ_without_colour(figures):
    styles = appearance.styles(figures[1]).values()
    assert len({style.dash for style in styles}) == len({style.hatch for style in styles}) == 3


def test_curves_stay_apart_when_the_colours_run_out():
    line = np.arange(3.0)
    marks = tuple(Line(f"curve {place}", line, line) for place in range(20))
    styles = appearance.styles(Figure("f", "t", "", (Panel("p", "x", "y", marks),))).values()
    assert len({(style.colour, style.dash) for style in styles}) == 20


def test_panels_wrap_and_share_one_legend(figures):
    panel = figures[0].panels[0]
    canvas = drawing._drawn(dataclasses.replace(figures[0], panels=(panel,) * 5))
    assert len(canvas.axes) == 5
    place = canvas.axes[0].get_subplotspec()
    assert place is not None
    assert place.get_gridspec().get_geometry() == (2, 3)
    (legend,) = canvas.legends
    assert [text.get_text() for text in legend.get_texts()].count("frozen") == 1
    assert all(axes.get_legend() is None for axes in canvas.axes)


def test_the_legend_covers_no_axes(figures, tmp_path):
    for figure in figures[:2]:
        canvas = drawing._drawn(figure)
        canvas.savefig(tmp_path / "drawn.png")
        legend = canvas.legends[0].get_window_extent()
        assert not any(legend.overlaps(axes.get_tightbbox()) for axes in canvas.axes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("high", [1.5, 2.9, 25.0, 1e4])
def test_labels_of_a_log_axis_do_not_overlap(high):
    x = np.geomspace(1, high, 5)
    panel = Panel("p", "x", "y", (Line("line", x, x),), "log", "log")
    canvas = drawing._drawn(Figure("f", "t", "", (panel, panel, panel)))
    canvas.draw_without_rendering()
    for axes in canvas.axes:
        labels = [*axes.get_xticklabels(), *axes.get_xticklabels(minor=True)]
        low, top = axes.get_xlim()
        shown = [one for one in labels if one.get_text() and low <= one.get_position()[0] <= top]
        boxes = sorted((one.get_window_extent() for one in shown), key=lambda box: box.x0)
        assert len(boxes) >= 2
        assert all(left.x1 <= right.x0 for left, right in itertools.pairwise(boxes))


def test_heat_map_prints_every_number_and_marks_the_missing(figures):
    axes = drawing._drawn(figures[2]).axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert len(texts) == 24
    assert texts.count("n/a") == 1
    assert "10" in texts
    assert len(axes.patches) == 2, "the missing cell and the one that a logarithm does not have"
    assert [label.get_text() for label in axes.get_xticklabels()] == [
        "0.01",
        "0.03",
        "0.1",
        "0.3",
        "1",
        "3",
    ]


def test_heat_map_names_its_rows_and_columns():
    values = np.arange(6.0).reshape(3, 2)
    cells = HeatMap(
        "attention",
        np.array(["same word", "same topic"]),
        np.array(["Adam 0.003", "Adam $", "SGD 0.01"]),
        values,
    )
    axes = drawing._drawn(
        Figure("table", "A table", "", (Panel("p", "pair", "optimiser", (cells,)),))
    ).axes[0]
    shown = [
        [label.get_text().replace("\\$", "$") for label in labels]
        for labels in (axes.get_xticklabels(), axes.get_yticklabels())
    ]
    assert [text.replace("\n", " ") for text in shown[0]] == ["same word", "same topic"]
    assert [text.replace("\n", " ") for text in shown[1]] == ["Adam 0.003", "Adam $", "SGD 0.01"]
    placed = {
        tuple(round(place) for place in text.get_position()): text.get_text() for text in axes.texts
    }
    assert placed == {
        (column, row): f"{values[row, column]:g}" for row in range(3) for column in range(2)
    }


@pytest.mark.parametrize(
    ("shape", "numbered", "dense"),
    [
        ((11, 11), True, False),
        ((11, 11), False, True),
        ((12, 3), True, True),
        ((3, 12), True, True),
        ((41, 41), True, True),
    ],
)
def test_dense_heat_map_has_no_numbers_and_few_ticks(shape, numbered, dense, tmp_path):
    rows, columns = shape
    values = np.arange(float(rows * columns)).reshape(shape)
    values[1, 1] = np.nan
    cells = HeatMap("v", np.arange(columns), np.arange(rows), values, numbered=numbered)
    figure = Figure("cells", "Cells", "", (Panel("p", "x", "y", (cells,)),))
    axes = drawing._drawn(figure).axes[0]
    assert len(axes.texts) == (0 if dense else rows * columns)
    for ticks, labels, count, most in (
        (axes.get_xticks(), axes.get_xticklabels(), columns, 11),
        (axes.get_yticks(), axes.get_yticklabels(), rows, 20),
    ):
        assert [int(label.get_text()) for label in labels] == list(ticks), (
            "a label stands at another cell"
        )
        assert len(ticks) == count if count <= most else 5 <= len(ticks) <= most
    assert all(path.stat().st_size for path in save_figure(figure, tmp_path))


@pytest.mark.parametrize(("names", "in_a_row"), [(3, 4), (9, 2)])
def test_wide_tables_lie_below_each_other(names, in_a_row):
    columns = np.asarray(["accuracy" for _ in range(names)]) + np.arange(names).astype(str)
    cells = HeatMap("v", columns, np.arange(4), np.full((4, names), 0.123456))
    panels = tuple(Panel(f"p{at}", "x", "y", (cells,)) for at in range(4))
    canvas = drawing._drawn(Figure("cells", "Cells", "", panels))
    grid = canvas.axes[0].get_subplotspec().get_gridspec()  # pyright: ignore[reportOptionalMemberAccess]
    assert grid.ncols == in_a_row
    assert canvas.get_figwidth() <= drawing.WIDEST


@pytest.mark.parametrize(("scale", "edge"), [("linear", 50.5), ("log", 10.0)])
def test_a_contour_map_has_few_colours(scale, edge):
    values = np.linspace(1.0, 100.0, 100).reshape(10, 10)
    cells = HeatMap("v", np.arange(10), np.arange(10), values, scale, numbered=False, levels=2)
    edges = appearance.level_edges(cells)
    assert edges is not None
    np.testing.assert_allclose(edges, [1, edge, 100])
    canvas = drawing._drawn(Figure("cells", "Cells", "", (Panel("p", "x", "y", (cells,)),)))
    mesh = canvas.axes[0].collections[0]
    mesh.update_scalarmappable()
    colours = np.asarray(mesh.get_facecolor())
    assert len(np.unique(colours, axis=0)) == 2
    assert (colours == colours[0]).all(1).sum() == np.sum(values < edge)
    assert appearance.level_edges(dataclasses.replace(cells, levels=None)) is None


def test_a_missing_cell_of_a_dense_heat_map_shows_its_own_colour():
    values = np.full((12, 12), 1.0)
    values[3, 4] = np.nan
    cells = HeatMap("v", np.arange(12), np.arange(12), values)
    axes = drawing._drawn(Figure("cells", "Cells", "", (Panel("p", "x", "y", (cells,)),))).axes[0]
    assert matplotlib.colors.to_hex(axes.get_facecolor()).upper() == appearance.MISSING
    empty = np.ma.getmaskarray(np.ma.asarray(axes.collections[0].get_array())).reshape(12, 12)
    assert np.argwhere(empty).tolist() == [[3, 4]]


@pytest.mark.parametrize("scale", ["linear", "log"])
def test_empty_constant_and_negative_data_are_drawn_too(scale, tmp_path):
    panels = [Panel("nothing", "x", "y", (), scale, scale)]
    for value in (np.nan, 0.0, -1.0, 2.0, np.inf):
        flat = np.full(4, value)
        line, bars = Line("l", np.arange(4.0), flat, flat, flat), np.arange(5.0)
        cells = HeatMap("m", np.arange(2), np.array(["a", "b"]), flat.reshape(2, 2), scale)
        panels += [
            Panel("lines", "x", "y", (line,), scale, scale),
            Panel("bars", "x", "y", (Histogram("h", bars, flat, flat, flat),), scale, scale),
            Panel("cells", "x", "y", (cells,)),
        ]
    figure = Figure("edge", "Edge", "", tuple(panels))
    assert all(path.stat().st_size for path in save_figure(figure, tmp_path))


def test_a_heat_map_shares_its_axes_with_nothing(figures, tmp_path):
    mixed = dataclasses.replace(
        figures[2].panels[0], marks=figures[2].panels[0].marks + figures[0].panels[0].marks
    )
    with pytest.raises(ConfigError, match="a heat map alone"):
        save_figure(dataclasses.replace(figures[0], panels=(mixed,)), tmp_path)
