"""The examples of the documents run in a folder of the user's."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from saccade.cli import main
from saccade.records.record import Record

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
SMALL = "--layers 1 --dimension 8 --heads 2 --hidden 8 --seeds 3 --steps 40 --batch-size 200"


@pytest.mark.slow
def test_the_encoder_trains_on_a_file_of_texts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, str(EXAMPLES / "reviews.py")], check=True)
    lines = Path("reviews.tsv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 3001
    assert lines[0] == "label\ttext"
    study = str(EXAMPLES / "encoder_on_text.py")
    main(["run", study, *SMALL.split(), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert {"T-1", "T-2"} <= set(re.findall(r"T-\d", json.dumps(told)))
    (file,) = Path("runs").glob("encoder_on_text-quick*/record.nc")
    arm = Record.open(file).arms["encoder"]
    assert arm.trajectory["attention_entropy"].dims == ("rate", "seed", "step", "layer", "head")
    assert arm.trajectory["best_step"].dims == ("rate", "seed")
    assert arm.snapshot["test_accuracy"].isel(step=-1).notnull().all()
    assert {path.name for path in (file.parent / "figures").glob("*.png")} == {
        "encoder_entropy.png",
        "encoder_loss.png",
    }


def test_without_the_file_the_study_says_so_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # A study that another test loaded has read its file already.
    monkeypatch.setattr("saccade.registry._loaded", {})
    assert main(["run", str(EXAMPLES / "encoder_on_text.py")]) == 1
    told = capsys.readouterr().err.strip()
    assert told.startswith("saccade: ")
    assert "reviews.tsv" in told
    assert len(told.splitlines()) == 1
