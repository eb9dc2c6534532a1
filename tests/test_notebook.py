"""The tutorial's notebook is made from the page, runs from scratch, and shows what it shows."""

import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from types import ModuleType

import pytest

from saccade.cli import main

DOCS = Path(__file__).parents[1] / "docs"
LARGEST = 300_000
"""Bytes: it is committed."""


@pytest.fixture(scope="module")
def notebook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tutorial_notebook", DOCS / "notebook.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def committed() -> list[dict]:
    return json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))["cells"]


def verdicts(cells: list[dict]) -> list[tuple[str, str]]:
    """What precedes a verdict on its line, and the verdict, in all that the cells print."""
    printed = "".join(
        output["text"]
        for cell in cells
        if cell["cell_type"] == "code"
        for output in cell["outputs"]
        if "text" in output
    )
    return re.findall(r"^ +([\w.-]+) .*?(holds|fails|undetermined)\b", printed, re.MULTILINE)


def test_the_notebook_is_made_from_the_page(notebook, committed):
    """Else run `python docs/notebook.py`."""
    source = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    kept = ("id", "cell_type", "source")
    made = notebook.cells(source)
    assert [[one[name] for name in kept] for one in made] == [
        [one[name] for name in kept] for one in committed
    ]
    assert source.count("\n```") == 2 * sum(one["cell_type"] == "code" for one in made)


def test_the_notebook_is_small_and_complete(committed):
    assert (DOCS / "tutorial.ipynb").stat().st_size < LARGEST
    code = [cell for cell in committed if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [*range(1, len(code) + 1)]
    kinds = [output["output_type"] for cell in code for output in cell["outputs"]]
    assert {"stream", "display_data"} <= set(kinds)
    assert "error" not in kinds
    text = json.dumps(committed)
    assert "/tmp" not in text, "no path of the machine that made it"
    assert "/home" not in text


def test_the_notebook_runs_from_scratch(
    notebook, committed, tmp_path, monkeypatch, cut_short, capsys
):
    """The committed cells, in order, in an empty folder; trainings are cut short."""
    monkeypatch.setattr("saccade.registry._loaded", {})
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.chdir(tmp_path)

    def in_process(commands: str) -> str:
        for line in commands.splitlines():
            program, *arguments = shlex.split(line, comments=True)
            assert program == "saccade"
            assert main(arguments) == 0
        return capsys.readouterr().out

    cut_short(20)
    cells = [{**cell} for cell in committed]
    notebook.run(cells, in_process)
    for made, kept in zip(cells, committed, strict=True):
        if kept["cell_type"] == "code":
            assert [one["output_type"] for one in made["outputs"]] == [
                one["output_type"] for one in kept["outputs"]
            ]
    sys.modules.pop("my_study", None)


@pytest.mark.slow
def test_the_notebook_runs_from_scratch_with_the_same_verdicts(
    notebook, committed, tmp_path, monkeypatch
):
    """Half a minute of trainings, at full length: verdicts are compared, numbers may differ."""
    monkeypatch.chdir(tmp_path)
    made = notebook.cells((DOCS / "tutorial.md").read_text(encoding="utf-8"))
    notebook.run(made)
    found = verdicts(made)
    assert found == verdicts(committed)
    assert ("0", "holds") in found
    assert ("0.1", "fails") in found
