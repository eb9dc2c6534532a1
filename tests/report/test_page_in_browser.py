"""The page in headless Chromium: nothing is cut off, and every control does what it says."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from browser import examined

from saccade.figures.figure import Choice, Figure, HeatMap, Line, Panel, over_seeds
from saccade.report.page import write_page

pytestmark = pytest.mark.browser

READY = """
await until(() => page.documentElement.dataset.charts === "drawn");
const enter = async (control, value) => {
  if (control.type === "checkbox") control.checked = value; else control.value = value;
  control.dispatchEvent(new view.Event("input", { bubbles: true }));
  await sleep(200);
};
"""
"""The charts of the cards are drawn; and how a reader changes a control."""
OPEN = """
const study = page.querySelector("details.study");
study.open = true;
const charts = Array.from(study.querySelectorAll(".chart"));
const isDone = (chart) => ["drawn", "failed"].includes(chart.dataset.state);
await until(() => charts.every(isDone));
const lines = (at) => charts[at].querySelectorAll(".mark-line path[stroke-width]").length;
"""


def explorable(arms, config) -> list[Figure]:
    """Seeds and theory; heat maps along steps; curves by word."""
    steps = np.arange(5.0)
    seeds = xr.DataArray(
        np.outer([1.0, 2.0, 4.0], steps), {"seed": [7, 8, 9]}, dims=("seed", "step")
    )
    theory = Line("law", steps, 2 * steps, role="theory")
    panel = Panel("growth", "step", "score", (over_seeds("score", steps, seeds), theory))
    cells = np.arange(24.0).reshape(3, 4, 2)
    table = HeatMap("weight", np.arange(2), np.arange(4), cells)
    maps = Panel("m", "key", "query", (table,))
    words = Choice("word", ("bad", "good", "goodness"), 1, "search", ("rare", "common", ""))
    paths = Line("path", np.ones((3, 5)) * steps, np.outer([1.0, 2.0, 3.0], steps))
    return [
        Figure("grow", "Growth", "", (panel, dataclasses.replace(panel, title="again"))),
        Figure("maps", "Maps", "", (maps,), Choice.of_steps(steps[:3])),
        Figure("words", "Words", "", (Panel("w", "score", "norm", (paths,)),), words),
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def report(entries, folder) -> Path:
    write_page(entries, folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def explored(study, record, folder) -> Path:
    write_page([(dataclasses.replace(study, figures=explorable), record)], folder / "explored.html")
    return folder / "explored.html"


@pytest.mark.parametrize("width", [400, 800, 1300])
def test_nothing_is_cut_off_and_every_chart_is_drawn(report, width):
    found = examined(
        report,
        READY
        + """
        page.getElementById("open-all").click();
        await until(() => page.getElementById("open-all").textContent === "All is open");
        const meant = ".scroll, .skip, .stacked thead";
        const isBeyond = (one) => one.getBoundingClientRect().right > view.innerWidth + 1;
        const beyond = Array.from(page.querySelectorAll("body *"))
          .filter((one) => isBeyond(one) && !one.closest(meant));
        const states = Array.from(page.querySelectorAll(".chart")).map((one) => one.dataset.state);
        const wide = page.documentElement.scrollWidth - page.documentElement.clientWidth;
        return { beyond: beyond.map((one) => one.outerHTML.slice(0, 80)), states, wide };
        """,
        width,
    )
    assert found["beyond"] == []
    assert found["wide"] <= 0
    assert found["states"] == ["drawn"] * 8, "seven figures, and one panel on the card"


def test_charts_of_folded_studies_wait(report):
    script = READY + 'return page.querySelectorAll(".chart[data-state]").length;'
    assert examined(report, script, 800) == 1


def test_claims_are_filtered_and_links_unfold_them(report):
    found = examined(
        report,
        READY
        + """
        const form = page.querySelector(".filters"), output = form.querySelector("output");
        const told = [output.textContent];
        const filter = async (control, value) => {
          await enter(control, value);
          told.push(output.textContent);
        };
        await filter(form.elements.verdict, "fails");
        await filter(form.elements.text, "no such words");
        form.reset(); await sleep(50); told.push(output.textContent);
        await filter(form.elements.verdict, "undetermined");
        const tile = page.querySelector("a.tile.fails");
        const row = page.getElementById(tile.hash.slice(1));
        const before = [row.open, row.hidden];
        tile.click(); await sleep(100);
        const bare = page.querySelector("[data-claim='A-2']");
        view.location.hash = "A-2"; await sleep(100);
        const after = [row.open, row.hidden];
        return { told, before, after, bare: bare.open, title: tile.title.length > 5 };
        """,
        800,
    )
    assert found["told"][0] == found["told"][3] == "13 of 13 claims"
    assert found["told"][1] not in found["told"][:1]
    assert found["told"][2] == "0 of 13 claims"
    assert (found["before"], found["after"]) == ([False, True], [True, False])
    assert found["bare"]
    assert found["title"]


def test_theory_is_switched_off_and_a_seed_is_highlighted_in_all_panels(explored):
    found = examined(
        explored,
        READY
        + OPEN
        + """
        const controls = study.querySelector(".controls").elements, counts = [lines(0)];
        const { theory, seed } = controls;
        for (const [control, value] of [[theory, false], [theory, true], [seed, "9"], [seed, ""]]) {
          await enter(control, value);
          counts.push(lines(0));
        }
        return { counts, offered: Array.from(seed.options).map((one) => one.textContent) };
        """,
        1300,
    )
    assert found["offered"] == ["none", "7", "8", "9"]
    assert found["counts"] == [4, 2, 4, 6, 4], "two panels with a curve and a theory each"


def test_a_slider_and_a_search_choose_what_is_shown(explored):
    found = examined(
        explored,
        READY
        + OPEN
        + """
        const told = [], texts = [];
        const choosers = charts.map((chart) => chart.parentElement.querySelector(".chooser"));
        const note = () => {
          told.push(choosers.slice(1).map((one) => one.querySelector("output").textContent));
          const cells = Array.from(charts[1].querySelectorAll(".mark-text text"));
          texts.push(cells.map((one) => one.textContent).join(" "));
        };
        const use = async (at, value) => {
          await enter(choosers[at].querySelector("input"), value);
          note();
        };
        note();
        await use(1, "0");
        await use(2, "GOODNESS");
        await use(2, "go");
        await use(2, "zebra");
        return { told, texts, none: choosers[0] };
        """,
        1300,
    )
    assert found["none"] is None
    assert found["told"] == [
        ["2", "good: common"],
        ["0", "good: common"],
        ["0", "goodness"],
        ["0", "such as good, goodness"],
        ["0", "no word begins so"],
    ]
    assert found["texts"][0] != found["texts"][1]


@pytest.mark.parametrize("name", ["100%", "nowhere"])
def test_a_link_to_nothing_hides_nothing(report, name):
    script = READY + 'return page.querySelectorAll(".chart[data-state=drawn]").length;'
    other = report.with_name(f"report-{name[:3]}.html")
    moved = f"<script>history.replaceState(null, '', '#{name}')</script></head>"
    text = report.read_text(encoding="utf-8").replace("</head>", moved, 1)
    other.write_text(text, encoding="utf-8")
    assert examined(other, script, 800) == 1


def test_the_theme_changes_and_is_told(report):
    found = examined(
        report,
        READY
        + """
        const button = page.getElementById("theme"), seen = [];
        const paper = () => view.getComputedStyle(page.body).backgroundColor;
        for (let turn = 0; turn < 3; turn += 1) {
          seen.push([button.textContent, paper()]);
          button.click();
        }
        return seen;
        """,
        800,
    )
    assert [name for name, _ in found] == [
        f"Theme: {one}" for one in ("automatic", "light", "dark")
    ]
    assert found[1][1] != found[2][1]
