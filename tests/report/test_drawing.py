"""Figures for papers."""

import dataclasses

import matplotlib
import numpy as np
import pytest

from saccade.core.errors import ConfigError, FileError
from saccade.core.figure import Figure, HeatMap, Histogram, Line, Panel
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
    assert names == {f"{name}.{ending}" for name in ("score", "shares", "map") for ending in ("png", "pdf")}


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
    assert styles["frozen", "measured"].name == "frozen (measured)", "a label with two roles says which"
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
    assert canvas.axes[0].get_subplotspec().get_gridspec().get_geometry() == (2, 3)  # pyright: ignore[reportOptionalMemberAccess]
    (legend,) = canvas.legends
    assert [text.get_text() for text in legend.get_texts()].count("frozen") == 1
    assert all(axes.get_legend() is None for axes in canvas.axes)


def test_the_legend_covers_no_axes(figures, tmp_path):
    for figure in figures[:2]:
        canvas = drawing._drawn(figure)
        canvas.savefig(tmp_path / "drawn.png")
        legend = canvas.legends[0].get_window_extent()
        assert not any(legend.overlaps(axes.get_tightbbox()) for axes in canvas.axes)  # pyright: ignore[reportArgumentType]


def test_heat_map_prints_every_number_and_marks_the_missing(figures):
    axes = drawing._drawn(figures[2]).axes[0]
    texts = [text.get_text() for text in axes.texts]
    assert len(texts) == 24
    assert texts.count("n/a") == 1
    assert "10" in texts
    assert len(axes.patches) == 2, "the missing cell and the one that a logarithm does not have"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0.01", "0.03", "0.1", "0.3", "1", "3"]


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("value", [np.nan, 0.0, -1.0, 2.0, np.inf])
def test_empty_constant_and_negative_data_are_drawn_too(scale, value, tmp_path):
    flat = np.full(4, value)
    panels = (
        Panel("lines", "x", "y", (Line("l", np.arange(4.0), flat, flat, flat),), scale, scale),
        Panel("bars", "x", "y", (Histogram("h", np.arange(5.0), flat, flat, flat),), scale, scale),
        Panel("cells", "x", "y", (HeatMap("m", np.arange(2), np.array(["a", "b"]), flat.reshape(2, 2), scale),)),
        Panel("nothing", "x", "y", (), scale, scale),
    )
    assert all(path.stat().st_size for path in save_figure(Figure("edge", "Edge", "", panels), tmp_path))


def test_a_heat_map_shares_its_axes_with_nothing(figures, tmp_path):
    mixed = dataclasses.replace(figures[2].panels[0], marks=figures[2].panels[0].marks + figures[0].panels[0].marks)
    with pytest.raises(ConfigError, match="a heat map alone"):
        save_figure(dataclasses.replace(figures[0], panels=(mixed,)), tmp_path)
