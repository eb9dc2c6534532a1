"""The skeletons work as they are, in a folder outside of the package, through the command line."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from saccade.registry import find_study

HERE = Path(__file__).parent
SKELETONS = sorted((HERE.parent / "docs" / "skeletons").glob("*.py"))
RECORD = Path("runs", "my_study-quick", "record.nc")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The skeletons in a folder of their own, after a first run."""
    folder = tmp_path_factory.mktemp("outside")
    for path in SKELETONS:
        shutil.copy(path, folder)
    first = saccade(folder, "run", "my_study.py", "--preset", "quick")
    assert "1 training, 0 from the cache" in first.stdout
    return folder


def saccade(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own; it must end well."""
    command = [sys.executable, "-m", "saccade", *arguments]
    # Without the folder of compiled programs that tests share: the lab keeps its own, as for users.
    own = {name: value for name, value in os.environ.items() if "COMPIL" not in name}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=own)
    assert done.returncode == 0, done.stderr
    return done


def test_there_is_one_of_each_kind():
    kinds = ("model", "probe", "study", "task", "theory")
    assert [path.name for path in SKELETONS] == [f"my_{kind}.py" for kind in kinds]


def test_each_keeps_the_contract_of_its_kind(folder, monkeypatch):
    monkeypatch.setattr("saccade.registry._loaded", {})
    monkeypatch.setattr(sys, "path", [str(folder), str(HERE / "contracts"), *sys.path])
    contracts = importlib.import_module("contracts")
    task, model, probe, theory = (
        importlib.import_module(f"my_{kind}") for kind in ("task", "model", "probe", "theory")
    )
    contracts.check_task(task.MarkedSentences)
    contracts.check_model(model.WordAttentionConfig)
    contracts.check_probe(probe.MarkedWords)
    contracts.check_theory(theory.ValueOfScore, [probe.MarkedWords])
    contracts.check_study(find_study(folder / "my_study.py"))
    for path in SKELETONS:
        sys.modules.pop(path.stem, None)


def test_the_first_run_writes_record_and_figures(folder):
    assert (folder / RECORD).exists()
    drawn = {path.suffix for path in (folder / RECORD).parent.glob("figures/my_study_value.*")}
    assert {".png", ".pdf"} <= drawn


@pytest.mark.slow
def test_a_second_run_comes_from_the_cache_with_the_same_verdicts(folder):
    second = saccade(folder, "run", "my_study.py", "--preset", "quick", "--json")
    claims = json.loads(second.stdout)["claims"]
    assert {one["claim"]: one["verdict"] for one in claims} == {"M-1": "holds", "M-2": "holds"}
    assert "from the cache" in second.stderr


def test_the_study_is_listed(folder):
    (listed,) = json.loads(saccade(folder, "list", "my_study.py", "--json").stdout)
    assert listed["name"] == "my_study"
    assert [claim["id"] for claim in listed["claims"]] == ["M-1", "M-2"]


@pytest.mark.slow
def test_report_and_ledger_of_the_record(folder):
    report = saccade(folder, "report", "runs", "-o", "page.html", "--study", "my_study.py")
    page = (folder / "page.html").read_text()
    assert "The value of a marked word follows its score" in page
    assert "The value follows the score" in page, "its figures are drawn"
    ledger = saccade(folder, "ledger", "runs", "--study", "my_study.py")
    assert "| M-1 (my_study, quick) |" in ledger.stdout
    assert "not installed" not in report.stderr + ledger.stderr
