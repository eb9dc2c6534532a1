"""The page's charts: valid, light, and styled as the drawn figures are."""

import csv
import io
import json
import math
import re
from typing import Any

import altair as alt
import numpy as np
import pytest
import vl_convert
import xarray as xr

from saccade.errors import ConfigError
from saccade.figures.figure import Choice, Figure, HeatMap, Histogram, Line, Panel, over_seeds
from saccade.report import appearance
from saccade.report.charts import POINTS, chart


def layers(specification: dict[str, Any]) -> list[dict[str, Any]]:
    """All layers, each with its rows."""
    return [
        layer
        | {
            "rows": list(
                csv.DictReader(io.StringIO(specification["datasets"][layer["data"]["name"]]))
            )
        }
        for panel in specification["concat"]
        for layer in panel["layer"]
    ]


def mark(layer: dict[str, Any]) -> str:
    return layer["mark"]["type"]


def rows(layer: dict[str, Any]) -> list[dict[str, str]]:
    return layer["rows"]


def test_every_chart_compiles_and_has_tooltips(figures):
    for figure in figures:
        specification = chart(figure)
        alt.ConcatChart.from_dict(specification)  # against the schema
        svg = vl_convert.vegalite_to_svg(specification)
        assert svg.count("mark-line") + svg.count("mark-rect") > 0
        assert all("tooltip" in layer["encoding"] for layer in layers(specification))


def test_lines_are_thinned_and_rounded(figures):
    long = np.linspace(0, 1, 5001) / 3
    figure = Figure("f", "t", "", (Panel("p", "x", "y", (Line("l", long, long),)),))
    (line,) = [layer for layer in layers(chart(figure)) if mark(layer) == "line"]
    found = rows(line)
    assert 100 < len(found) <= POINTS
    assert (found[0]["x"], found[-1]["x"]) == ("0", "0.33333")
    assert (
        len(rows(next(layer for layer in layers(chart(figure, 50)) if mark(layer) == "line"))) <= 50
    )


def test_thinning_keeps_the_early_decades_of_a_logarithmic_axis():
    steps = np.arange(1.0, 10001)
    figure = Figure("f", "t", "", (Panel("p", "x", "y", (Line("l", steps, steps),), "log"),))
    (line,) = [layer for layer in layers(chart(figure)) if mark(layer) == "line"]
    assert len(rows(line)) <= POINTS
    assert sum(float(row["x"]) < 100 for row in rows(line)) > 20


def test_nan_rows_are_dropped():
    values = np.array([1.0, np.nan, 3.0, np.inf])
    figure = Figure("f", "t", "", (Panel("p", "x", "y", (Line("l", np.arange(4.0), values),)),))
    (line,) = [layer for layer in layers(chart(figure)) if mark(layer) == "line"]
    assert [row["y"] for row in rows(line)] == ["1", "3"]
    assert "NaN" not in json.dumps(chart(figure))


def test_colours_and_dashes_are_those_of_the_drawing(figures):
    styles = list(appearance.styles(figures[0]).values())
    line = next(layer for layer in layers(chart(figures[0])) if mark(layer) == "line")
    colour, dash = line["encoding"]["color"]["scale"], line["encoding"]["strokeDash"]["scale"]
    assert colour["domain"] == dash["domain"] == [style.name for style in styles]
    assert colour["range"] == [style.colour for style in styles]
    assert dash["range"] == [list(style.dash) or [1, 0] for style in styles]


def test_theory_is_drawn_last(figures):
    line = next(layer for layer in layers(chart(figures[0])) if mark(layer) == "line")
    assert rows(line)[-1]["n"] == "theory, equation 7"


def test_heat_map_has_its_numbers_and_says_where_there_are_none(figures):
    found = [
        row["t"]
        for layer in layers(chart(figures[2]))
        if mark(layer) == "text"
        for row in rows(layer)
    ]
    assert len(found) == 24
    assert found.count("n/a") == 1
    assert math.isclose(sum(text not in ("n/a", "0") for text in found), 22)


def test_a_contour_map_changes_its_colour_at_its_levels():
    values = np.linspace(0.0, 12.0, 12).reshape(3, 4)
    cells = HeatMap("v", np.arange(4), np.arange(3), values, numbered=False, levels=3)
    drawn = layers(chart(Figure("cells", "Cells", "", (Panel("p", "x", "y", (cells,)),))))
    scale = drawn[0]["encoding"]["fill"]["scale"]
    assert (scale["type"], scale["domain"]) == ("threshold", [4.0, 8.0])


def test_texts_of_two_lines_lie_within_cells_that_have_room_for_them():
    names, texts = np.array(["a", "b"]), np.array([["1", "2.0\n[1.00, 3.00]"]], object)
    cells = HeatMap("v", names, names[:1], np.array([[1.0, 2.0]]), texts=texts)
    specification = chart(Figure("cells", "Cells", "", (Panel("p", "x", "y", (cells,)),)))
    assert specification["concat"][0]["width"] >= 2 * 6 * len("[1.00, 3.00]")
    found = {
        row["t"]: layer["mark"]
        for layer in layers(specification)
        if mark(layer) == "text"
        for row in rows(layer)
    }
    assert found["1"]["dy"] == 0
    assert found["2.0\n[1.00, 3.00]"]["dy"] < 0


def test_heat_map_names_its_rows_and_columns():
    values = np.arange(6.0).reshape(3, 2)
    pairs, optimisers = ["same word", "same topic"], ["Adam 0.003", "Adam 0.01", "SGD, slow"]
    cells = HeatMap("attention", np.array(pairs), np.array(optimisers), values)
    specification = chart(
        Figure("table", "A table", "", (Panel("p", "pair", "optimiser", (cells,)),))
    )
    drawn = layers(specification)
    assert drawn[0]["encoding"]["x"]["scale"]["domain"] == pairs
    assert drawn[0]["encoding"]["y"]["scale"]["domain"] == optimisers[::-1], (
        "the first row is the lowest"
    )
    found = {
        (row["y"], row["x"]): row["t"]
        for layer in drawn
        if mark(layer) == "text"
        for row in rows(layer)
    }
    expected = {
        (optimisers[row], pairs[column]): f"{values[row, column]:g}"
        for row in range(3)
        for column in range(2)
    }
    assert found == expected
    svg = vl_convert.vegalite_to_svg(specification)
    assert all(name in svg for name in (*pairs, *optimisers))


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
def test_dense_heat_map_has_no_numbers_and_few_ticks(shape, numbered, dense):
    high, wide = shape
    values = np.arange(float(high * wide)).reshape(shape)
    values[1, 1] = np.nan
    cells = HeatMap("v", np.arange(wide), np.arange(high), values, numbered=numbered)
    specification = chart(Figure("cells", "Cells", "", (Panel("p", "x", "y", (cells,)),)))
    drawn = layers(specification)
    texts = [row for layer in drawn if mark(layer) == "text" for row in rows(layer)]
    assert len(texts) == (0 if dense else high * wide)
    rectangles = [row for layer in drawn if mark(layer) == "rect" for row in rows(layer)]
    assert len(rectangles) == high * wide, (
        "every cell is there, the missing one in a layer of its own"
    )
    for axis, count, most in (("x", wide, 11), ("y", high, 20)):
        encoding = drawn[0]["encoding"][axis]
        names = [str(place) for place in range(count)]
        assert sorted(encoding["scale"]["domain"], key=int) == names
        shown = encoding["axis"]["values"]
        assert set(shown) <= set(names)
        assert shown == names if count <= most else 5 <= len(shown) <= most
    assert "<svg" in vl_convert.vegalite_to_svg(specification)


def test_lines_of_one_name_are_drawn_apart():
    """One line a run, all of one name: a stroke never goes from the end of one to the start of
    the next.
    """
    runs = tuple(
        Line("run", np.arange(3.0), np.array([0.0, 0.5, end]), np.zeros(3), np.ones(3))
        for end in (0.2, 1.0)
    )
    drawn = layers(chart(Figure("runs", "Runs", "", (Panel("p", "x", "y", runs),))))
    for kind in ("line", "area"):
        (layer,) = (layer for layer in drawn if mark(layer) == kind)
        assert layer["encoding"]["detail"]["field"] == "g"
        groups = {
            row["g"]: [row["x"] for row in rows(layer) if row["g"] == group]
            for row in rows(layer)
            for group in [row["g"]]
        }
        assert [list(map(float, places)) for places in groups.values()] == [[0, 1, 2], [0, 1, 2]]
    (alone,) = (
        layer
        for layer in layers(chart(Figure("run", "Run", "", (Panel("p", "x", "y", runs[:1]),))))
        if mark(layer) == "line"
    )
    assert "detail" not in alone["encoding"]


def test_panels_wrap_to_the_width_of_the_page(figures):
    def width_of(count: int) -> float:
        svg = vl_convert.vegalite_to_svg(
            chart(Figure("f", "t", "", (figures[0].panels[0],) * count))
        )
        return float(svg.split('width="')[1].split('"')[0])

    assert all(width_of(count) <= 1130 for count in (2, 3))


@pytest.mark.parametrize("scale", ["linear", "log"])
@pytest.mark.parametrize("value", [np.nan, 0.0, -1.0, 2.0, np.inf])
def test_empty_constant_and_negative_data_are_drawn_too(scale, value):
    flat = np.full(4, value)
    panels = (
        Panel("lines", "x", "y", (Line("l", np.arange(4.0), flat, flat, flat),), scale, scale),
        Panel("bars", "x", "y", (Histogram("h", np.arange(5.0), flat, flat, flat),), scale, scale),
        Panel(
            "cells",
            "x",
            "y",
            (HeatMap("m", np.arange(2), np.array(["a", "b"]), flat.reshape(2, 2), scale),),
        ),
        Panel("nothing", "x", "y", (), scale, scale),
    )
    specification = chart(Figure("edge", "Edge", "", panels))
    assert "NaN" not in json.dumps(specification)
    assert "<svg" in vl_convert.vegalite_to_svg(specification)


def test_a_line_that_turns_back_is_drawn_in_its_own_order():
    """A score rises and falls again: sorted by x, its line would be a zigzag."""
    x, y = np.array([0.0, 2.0, np.nan, 1.0]), np.array([0.0, 1.0, 9.0, 2.0])
    there_and_back = Line("word", x, y, y - 1, y + 1)
    drawn = layers(chart(Figure("f", "F", "", (Panel("p", "x", "y", (there_and_back,)),))))
    (layer,) = (layer for layer in drawn if mark(layer) == "line")
    assert not [layer for layer in drawn if mark(layer) == "area"], "a band would be a zigzag"
    assert layer["encoding"]["order"]["field"] == "i"
    assert [(float(row["x"]), int(row["i"])) for row in rows(layer)] == [(0, 0), (2, 1), (1, 2)]


# -- what a reader chooses -------------------------------------------------------------------------


def chosen_figure(by: Any = "slider") -> Figure:
    """Four choices of a heat map and of a curve, beside a theory that is always the same."""
    cells = HeatMap("value", np.arange(2), np.arange(3), np.arange(24.0).reshape(4, 3, 2))
    x = np.arange(5.0)
    curves = (Line("c", x, np.outer([1.0, 2.0, 3.0, 4.0], x)), Line("t", x, x, role="theory"))
    panels = (Panel("map", "x", "y", (cells,)), Panel("curve", "x", "y", curves))
    return Figure("f", "t", "", panels, Choice("step", ("0", "10", "20", "30"), 3, by))


def test_every_choice_is_in_the_chart_and_one_is_shown_first():
    specification = chart(chosen_figure())
    alt.ConcatChart.from_dict(specification)
    params = {one["name"]: one["value"] for one in specification["params"]}
    assert params == {"theory": True, "choice": 3}
    cells, line = (
        next(x for x in layers(specification) if mark(x) == one) for one in ("rect", "line")
    )
    assert len(rows(cells)) == 24
    assert {row["c"] for row in rows(cells)} == {"0", "1", "2", "3"}
    assert cells["encoding"]["fill"]["scale"]["domain"] == [0.0, 23.0], "one scale for all"
    by_choice = [row["c"] for row in rows(line)]
    assert [by_choice.count(one) for one in ("", "0", "1", "2", "3")] == [5, 5, 5, 5, 5]


@pytest.mark.parametrize("choice", range(4))
def test_a_chart_shows_what_is_chosen(choice):
    specification = chart(chosen_figure())
    for one in specification["params"]:
        one["value"] = choice if one["name"] == "choice" else one["value"]
    svg = vl_convert.vegalite_to_svg(specification)
    shown = re.findall(r"<text [^>]*>(\d+)</text>", svg)
    assert {str(6 * choice + at) for at in range(6)} <= set(shown)
    assert svg.count('aria-roledescription="line mark"') == 2


def test_theory_and_seeds_are_switched_by_parameters():
    steps = np.arange(4.0)
    seeds = xr.DataArray(np.outer([1.0, 3.0], steps), {"seed": [5, 6]}, dims=("seed", "step"))
    marks = (over_seeds("score", steps, seeds), Line("law", steps, steps, role="theory"))
    figure = Figure("f", "t", "", (Panel("p", "x", "y", marks),))
    counts = {}
    for theory, seed in ((True, None), (False, None), (True, 6), (False, 5), (True, 7)):
        specification = chart(figure)
        values = {"theory": theory, "seed": seed}
        assert [one["name"] for one in specification["params"]] == list(values)
        specification["params"] = [{"name": name, "value": one} for name, one in values.items()]
        svg = vl_convert.vegalite_to_svg(specification)
        counts[theory, seed] = svg.count('aria-roledescription="line mark"')
    assert counts == {(True, None): 2, (False, None): 1, (True, 6): 3, (False, 5): 2, (True, 7): 2}


def test_on_paper_a_slider_is_four_panels_and_a_search_what_is_shown_first():
    slid, searched = chosen_figure().still(), chosen_figure("search").still()
    titles = [panel.title for panel in slid.panels]
    assert titles[:4] == ["map, step 0", "map, step 10", "map, step 20", "map, step 30"]
    assert len(titles) == 8
    assert [panel.title for panel in searched.panels] == ["map, step 30", "curve, step 30"]
    scales = {appearance.heat_scale(appearance.heat_map_of(one)) for one in slid.panels[:4]}  # pyright: ignore[reportArgumentType]
    assert len(scales) == 1
    plain = Figure("f", "t", "", ())
    assert plain.still() is plain


@pytest.mark.parametrize("how", [{"names": ()}, {"names": ("a",), "at": 1}, {"notes": ("x",)}])
def test_a_choice_that_does_not_fit_is_refused(how):
    with pytest.raises(ConfigError, match="choice step: got"):
        Choice(**{"label": "step", "names": ("a", "b")} | how)
