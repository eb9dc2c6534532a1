"""Studies of corpora that are not here: one line, and the others go on."""

import dataclasses
import importlib.util
from typing import Any

import pytest
import xarray as xr

from saccade import commands
from saccade.cli import main
from saccade.errors import FileError
from saccade.options import ReproduceOptions
from saccade.records.record import Arm, Record
from saccade.report.page import corpora_of
from saccade.studies.ktiw_translation import PRESETS
from saccade.tasks.named_text import NamedText


@pytest.fixture(autouse=True)
def without_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    monkeypatch.setattr("saccade.data.store.cache_folder", lambda: tmp_path / "cache")


@dataclasses.dataclass(frozen=True)
class Config:
    given: Any = None
    tasks: Any = ()


def test_a_run_says_in_one_line_what_is_missing(capsys):
    assert main(["run", "sen_sst"]) == 1
    told = capsys.readouterr().err.strip()
    assert told.startswith("saccade: sen_sst: corpus sst2: not found below ")
    assert "saccade data fetch sst2" in told
    assert "\n" not in told


def test_a_folder_that_is_none_is_refused(capsys, tmp_path):
    assert main(["run", "sen_sst", "--data", str(tmp_path / "none")]) == 1
    assert "--data: got " in capsys.readouterr().err


class _CalledError(Exception):
    pass


def test_reproduce_leaves_out_what_it_cannot_run_and_goes_on(capsys, monkeypatch):
    def called(references: list[str], *_: Any) -> Any:
        raise _CalledError(*references)

    monkeypatch.setattr(commands, "_run_quick", called)
    options = ReproduceOptions(only=("sen_sst", "sen_convolution", "ktiw_translation"))
    with pytest.raises(_CalledError) as asked:
        commands.reproduce_command(options, [])
    assert asked.value.args == ("sen_convolution",)
    told = capsys.readouterr().err.splitlines()
    assert [line.split(" is left out: ")[0] for line in told] == [
        "saccade: sen_sst",
        "saccade: ktiw_translation",
    ]
    with pytest.raises(FileError, match="no study can be run without its corpus"):
        commands.reproduce_command(ReproduceOptions(only=("sen_sst",)), [])


@pytest.mark.parametrize(
    "config",
    [
        NamedText("sst2"),
        Config(NamedText("sst2")),
        Config((1, NamedText("sst2"))),
        Config(tasks=(NamedText("sst2"),)),
        Config(tasks={"one": NamedText("sst2")}),
        Config({"inner": Config(NamedText("sst2"))}),
    ],
    ids=["corpus", "field", "tuple", "tasks", "mapping", "nested"],
)
def test_a_corpus_is_found_wherever_a_config_has_it(config):
    assert commands._lacking(config).startswith("corpus sst2: not found")


def test_a_config_without_corpora_lacks_nothing():
    assert commands._lacking(Config(3, ("a", None))) == ""


def test_the_page_names_the_corpora_of_a_record():
    named = {"corpus": "sst2", "licence": "free", "citation": "Somebody 2013"}
    arms = {
        "one": Arm(xr.Dataset(attrs=named)),
        "same": Arm(xr.Dataset(attrs=named)),
        "bare": Arm(xr.Dataset(attrs={"corpus": "mine"})),
        "generated": Arm(xr.Dataset()),
    }
    record = Record("study", "quick", {}, arms, {}, "none", "float32", 0.0)
    assert corpora_of(record) == {
        "corpus sst2": "Somebody 2013; licence: free",
        "corpus mine": "; licence: ?",
    }


def test_a_package_that_a_study_needs_is_named_before_anything_is_trained(capsys, monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == "sacrebleu" else found(name)
    )
    assert main(["run", "ktiw_translation"]) == 1
    told = capsys.readouterr().err.strip()
    assert told == (
        "saccade: ktiw_translation: BLEU needs the package sacrebleu: pip install 'saccade[text]'"
    )
    generated = dataclasses.replace(PRESETS["quick"], corpora=("lexicon",))
    assert not commands._lacking(generated), "generated sentences are not translated"
