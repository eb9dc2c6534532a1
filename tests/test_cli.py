"""The command line, in process: help, one line for every mistake, and every command end to end
on a tiny run.
"""

import contextlib
import dataclasses
import io
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from saccade import __version__, commands, registry
from saccade.cli import main, prepared
from saccade.core.study import Study
from saccade.options import COMMANDS, ReproduceOptions, RunOptions, parsed
from saccade.registry import find_study, study_names
from saccade.studies import sen_convolution
from saccade.train.lab import Lab

TINY = [
    *("--seeds=2", "--dictionary-size=12", "--sentence_size=4", "--train_size=16", "--test-size=6"),
    *("--dimension=3", "--key-dimension=2", "--steps=4"),
]
"""A run of sen_convolution, the study of a single training, that takes little but compilation."""


def called(*arguments: str) -> int:
    """The exit code of a command; help leaves by SystemExit."""
    try:
        return main(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)


@pytest.fixture(scope="module")
def output(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def tiny_run(output: Path) -> dict:
    """What `saccade run --json` printed, for a run into `output`."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
        assert main(["run", "sen_convolution", *TINY, "--output", str(output), "--json"]) == 0
    return json.loads(printed.getvalue())


# -- help ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--help"], ["usage", "reproduce", "ledger"]),
        (["-h"], ["usage"]),
        (["list", "--help"], ["--json"]),
        (["run", "--help"], ["usage", *study_names()]),
        *(
            (["run", study, "--help"], ["--preset", "--sweep", "--seeds", "(default:"])
            for study in study_names()
        ),
        (["map", "sen", "--help"], ["--x", "--y", "--claim", "--cells", "--full", "--seeds"]),
        (["reproduce", "--help"], ["--page", "--only"]),
        (["report", "--help"], ["--output"]),
        (["ledger", "--help"], ["--output", "--json", "--known"]),
        (["explain", "--help"], ["--records", "--study", "--json"]),
        (["doctor", "--help"], ["--output", "--data", "--json"]),
        (["cache", "--help"], ["--older-than", "--unfinished", "--compiled", "--all", "--dry-run"]),
        (["completion", "--help"], ["in ~/.bashrc", 'eval "$(saccade completion zsh)"']),
        (["compare", "--help"], ["saccade compare A B", "--output", "--json", "--study"]),
    ],
    ids=lambda value: (
        " ".join(value)
        if value and value[0] in ("--help", "-h", "list", "run", "reproduce")
        else ""
    ),
)
def test_every_command_helps(arguments, wanted, capsys):
    assert called(*arguments) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    for text in wanted:
        assert text in printed.out


def test_saccade_alone_greets_with_commands_that_are_real(capsys):
    assert called() == 0
    told = capsys.readouterr().out
    commands = re.findall(r"^  saccade ((?:\S+ )*\S+)  ", told, re.MULTILINE)
    assert len(commands) == 3
    assert all(callable(prepared(command.split())) for command in commands)
    assert "'saccade --help' shows all commands" in told


def test_the_usage_names_every_command(capsys):
    called("--help")
    listed = re.findall(r"^  (\w+)  ", capsys.readouterr().out, re.MULTILINE)
    assert set(listed) == {"run", "map", *COMMANDS}


def test_the_version_is_shown(capsys):
    assert called("--version") == 0
    assert capsys.readouterr().out == f"saccade {__version__}\n"


def test_every_option_has_help(capsys):
    """The docstring below each field of the config arrives in the help of its study."""
    for study in study_names():
        called("run", study, "--help")
        told = capsys.readouterr().out
        pattern = r"^  (--[a-z][a-z.-]+)(?: \S+)*?(?:  |\n {10,}) *(\S.*)"
        options = re.findall(pattern, told, re.MULTILINE)
        assert len(options) == len(re.findall(r"^  --", told, re.MULTILINE)) > 10
        for option, text in options:
            assert re.match(r"[^(]{4}", text), f"{study} {option}"


def test_help_is_quick_because_it_imports_little():
    program = (
        "import sys; from saccade.cli import main; code = main(['--help']); print(sorted({'jax',"
        " 'rich', 'numpy', 'xarray', 'matplotlib'} & set(sys.modules))); sys.exit(code)"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert result.stdout.startswith("usage: saccade")
    assert result.stdout.splitlines()[-1] == "[]"


# -- mistakes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["wrong"], "command: got 'wrong', allowed: run, map, list"),
        (["list", "--wrong"], "--wrong: no such option"),
        (["list", "extra"], "study: got 'extra', allowed:"),
        (["reproduce", "extra"], "got 'extra', allowed: the options --output"),
        (["run", "wrong"], f"study: got 'wrong', allowed: {', '.join(study_names())}, or the path"),
        (["run", "--preset", "quick"], "study: got '--preset', allowed:"),
        (["run", "sen", "extra"], "got 'extra', allowed: the options --output"),
        (["run", "sen", "--seeds", "1", "2"], "got '2', allowed: the options"),
        (["run", "sen", "--json=yes"], "--json: got 'yes', allowed: no value"),
        (["run", "sen", "--seed", "1"], "did you mean --seeds?"),
        (["run", "sen", "--rate", "-1e-3"], "rate: got -0.001, allowed: a finite number above 0"),
        (["run", "sen", "--rate=-.5"], "rate: got -0.5, allowed: a finite number above 0"),
        (["run", "sen", "--ratee", "1"], "did you mean --rate?"),
        (["run", "sen", "--seeds", "x"], "--seeds: got 'x', allowed: a whole number"),
        (["run", "sen", "--seeds", "1.5"], "--seeds: got '1.5', allowed: a whole number"),
        (["run", "sen", "--seeds", "0"], "seeds: got 0, allowed: a whole number, at least 1"),
        (["run", "sen", "--seeds"], "--seeds: got nothing"),
        (["run", "sen", "--rate", "fast"], "--rate: got 'fast', allowed: a number"),
        (["run", "sen", "--rate", "-1"], "rate: got -1.0, allowed: a finite number above 0"),
        (["run", "sen", "--rate", "nan"], "rate: got nan"),
        (["run", "sen", "--leak", "2"], "leak: got 2.0, allowed: from 0 to 1"),
        (["run", "sen", "--query", "none"], "--query: got 'none', allowed: unit, fixed, trained"),
        (
            ["run", "sen", "--steps", "10", "--long-steps", "5"],
            "long_steps: got 5, allowed: a whole number, at least 10",
        ),
        (["run", "sen", "--json", "yes"], "--json: got 'yes', allowed: no value"),
        (
            ["run", "sen", "--precision", "float16"],
            "--precision: got 'float16', allowed: float32, float64",
        ),
        (["run", "sen", "--preset", "wrong"], "preset: got 'wrong', allowed: quick, paper, code"),
        (["run", "sen", "--preset"], "--preset: got nothing"),
        (["run", "sen", "--chunk", "0"], "chunk: got 0, allowed: a whole"),
        (
            ["run", "sen", "--sweep", "wrong=1,2"],
            "sweep wrong: no such number, allowed:",
        ),
        (["run", "sen", "--sweep", "steps=1,2"], "sweep steps: used as one number"),
        (["run", "sen_convolution", "--sweep", "steps=1,2"], "sweep steps: used as one number"),
        (
            ["run", "sen", "--rate", "1", "--sweep", "rate=1,2"],
            "--rate: got a value and --sweep rate, allowed: one of them",
        ),
        (["run", "sen", "--sweep", "rate=a,b"], "--sweep: got 'rate=a,b', allowed: NAME=V1,V2"),
        (["run", "sen", "--sweep", "rate"], "--sweep: got 'rate', allowed: NAME=V1,V2"),
        (["run", "sen", "--sweep", "rate=nan"], "sweep rate: got nan, allowed: finite numbers"),
        (["run", "sen", "--sweep", "rate=1,1"], "sweep rate: got 1, 1, allowed: every value once"),
        (
            ["run", "sen", "--sweep", "rate=-1,1"],
            "rate: got -1.0, allowed: a finite number above 0",
        ),
        (["run", "sen", "--sweep", "rate=1", "--sweep", "rate=2"], "--sweep: got 'rate' twice"),
        (
            ["run", "sen_query", "--query-variances", "0.1", "0.5"],
            "query_variances: got (0.1, 0.5), allowed: at least three",
        ),
        (
            ["run", "topics_optima", "--topics-per-document", "5", "--topics", "5"],
            "topics_per_document: got 5, allowed: fewer than the 5 topics",
        ),
        (
            ["run", "topics_optima", "--kept", "0.6", "--replaced", "0.5"],
            "kept + replaced: got 0.6 + 0.5, allowed: at most 1",
        ),
        (["run", "topics_two_stage", "--steps", "10"], "steps: got 10, allowed: at least 1000"),
        (
            ["run", "kernels_convergence", "--heads", "0"],
            "heads: got (0,), allowed: one or more whole numbers above 0",
        ),
        (["run", "kernels_stationary", "--step-share", "1"], "--step-share: no such option"),
        (["reproduce", "--only", "wrong"], "study: got 'wrong'"),
        (["report"], "got no record, usage: saccade report"),
        (["ledger", "--json"], "got no record, usage: saccade ledger"),
        (["run", "ktiw_multihead", "--shared-embeddings"], "--shared-embeddings: no such option"),
        (
            ["run", "ktiw_multihead", "--no-shared-embeddings", "--heads", "0"],
            "heads: got 0, allowed: a whole number",
        ),
        (["run", "ktiw_multihead", "--sweep", "failure=0.5,0.9"], "sweep failure: cannot be swept"),
        (
            ["run", "ktiw_proxy", "--dimensions", "100", "1000"],
            "dimensions: got (100, 1000), allowed: whole numbers above 0, 10000",
        ),
        (["run", "values_first", "--length", "0"], "length: got 0, allowed: a whole number"),
        (["report", "one.nc", "--output"], "--output: got nothing, allowed: a path"),
        (["explain"], "got no claim, usage: saccade explain CLAIM_OR_STUDY..."),
        (["explain", "A-133"], "claim: got 'A-133', did you mean A-13"),
        (["explain", "A-13", "--record", "x"], "--record: no such option of saccade explain; did"),
        (["doctor", "extra"], "got 'extra', allowed: the options --output"),
        (["cache", "clear"], "got 'saccade cache clear', allowed: saccade cache, saccade cache pr"),
        (["cache", "--all"], "--all: got it without prune, allowed: saccade cache prune --all"),
        (["cache", "prune"], "prune: got nothing to remove, allowed: one or more of --older-than"),
        (["cache", "prune", "--dry-run"], "prune: got nothing to remove"),
        (["cache", "prune", "--older-than", "30"], "--older-than: got '30', allowed: 90m, 12h"),
        (["cache", "prune", "--older-than"], "--older-than: got nothing, allowed: a text"),
        (["completion"], "shell: got nothing, allowed: bash, zsh"),
        (["completion", "fish"], "shell: got 'fish', allowed: bash, zsh"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_option_is_one_line_and_exit_code_two(
    arguments, told, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("saccade.registry._loaded", {})  # studies that other tests loaded
    assert called(*arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"saccade: [^\n]+\n", printed.err)
    assert told in printed.err
    assert not list(tmp_path.rglob("*.nc"))


def test_a_dimension_below_the_number_of_topics_is_refused(capsys, tmp_path):
    """Fewer dimensions than topics have no orthonormal columns, one a topic."""
    tiny = [
        "--seeds",
        "1",
        "--steps",
        "1",
        "--long-steps",
        "1",
        "--train-size",
        "8",
        "--dictionary-size",
        "8",
        "--topics",
        "3",
    ]
    assert called("run", "sen", *tiny, "--dimension", "2", "--output", str(tmp_path)) == 2
    assert re.search(r"saccade: dimension: got 2, allowed: [^\n]+\n$", capsys.readouterr().err)


def test_several_values_of_one_option_can_be_listed():
    config = find_study("sen_query").config("quick")
    given = ["--query-variances", "0.1", "0.5", "1.0", "--sweep", "a=1", "b=2", "--sweep=c=3"]
    (options, changed), _ = parsed({"run": RunOptions(), "settings": config}, given, "test")
    assert changed.query_variances == (0.1, 0.5, 1.0)
    assert options.sweep == ("a=1", "b=2", "c=3")


def test_a_command_is_checked_before_it_is_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for arguments in (["run", "sen", "--sweep", "rate=0.1,1"], ["report", "missing.nc"], ["list"]):
        assert callable(prepared(arguments))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["report", "ledger"])
@pytest.mark.parametrize("kind", ["missing", "empty", "text", "cut", "edited", "folder"])
def test_a_bad_file_is_one_line_and_exit_code_one(command, kind, tiny_run, tmp_path, capsys):
    whole = Path(tiny_run["record"]).read_bytes()
    path = tmp_path / "bad.nc"
    content = {
        "empty": b"",
        "text": b"no record" * 20,
        "cut": whole[:-200],
        "edited": whole[:3000] + b"X" + whole[3001:],
    }
    if kind in content:
        path.write_bytes(content[kind])
    elif kind == "folder":
        path.mkdir()
    assert called(command, str(path), "--output", str(tmp_path / "new")) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"saccade: [^\n]*bad\.nc[^\n]*\n", printed.err)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("command", ["report", "ledger"])
def test_of_several_records_a_bad_one_is_left_out(command, tiny_run, tmp_path, capsys):
    whole = Path(tiny_run["record"]).read_bytes()
    (tmp_path / "a.nc").write_bytes(whole[:-200])
    (tmp_path / "b.nc").write_bytes(whole)
    new = tmp_path / "new"
    assert called(command, str(tmp_path), "--output", str(new)) == 1
    assert re.match(r"saccade: [^\n]*a\.nc[^\n]*; it is left out\n", capsys.readouterr().err)
    assert "A-14" in new.read_text(encoding="utf-8")
    known = tmp_path / "known.json"
    if command == "ledger":
        assert called(command, str(tmp_path), "--known", str(known)) == 1
        assert not known.exists()
    (tmp_path / "b.nc").unlink()
    (tmp_path / "c.nc").write_bytes(b"no record")
    new.unlink()
    assert called(command, str(tmp_path), "--output", str(new)) == 1
    assert not new.exists()


def test_a_folder_that_cannot_be_written_is_one_line(tiny_run, tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert (
        called("report", tiny_run["record"], "--output", str(tmp_path / "file" / "page.html")) == 1
    )
    assert re.fullmatch(r"saccade: [^\n]+\n", capsys.readouterr().err)
    assert called("run", "sen_convolution", *TINY, "--output", str(tmp_path / "file")) == 1
    assert re.fullmatch(r"saccade: [^\n]+\n", capsys.readouterr().err)


# -- the commands ----------------------------------------------------------------------------------


def test_list_names_every_study_in_words_and_in_json(capsys):
    assert called("list", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == study_names()
    assert all(row["claims"] and {"quick", "paper"} <= set(row["presets"]) for row in rows)
    assert called("list") == 0
    told = capsys.readouterr().out
    assert all(study in told for study in study_names())


STUDIES = (
    "diagnosis_errors",
    "kernels_convergence",
    "kernels_landscape",
    "kernels_stationary",
    "kernels_training",
    "ktiw_agreement",
    "ktiw_classification",
    "ktiw_copying",
    "ktiw_fate",
    "ktiw_limits",
    "ktiw_multihead",
    "ktiw_proxy",
    "ktiw_reflection",
    "ktiw_translation",
    "sen",
    "sen_convolution",
    "sen_query",
    "sen_sst",
    "sen_synergy",
    "topics_attention",
    "topics_optima",
    "topics_pretrained",
    "topics_two_stage",
    "values_first",
)


def test_list_names_the_studies(capsys):
    assert called("list", "--json") == 0
    assert tuple(row["name"] for row in json.loads(capsys.readouterr().out)) == STUDIES
    assert called("list") == 0
    told = capsys.readouterr().out
    assert all(re.search(rf"\b{study}\b", told) for study in STUDIES)


class _AskedError(Exception):
    pass


@pytest.mark.parametrize(
    ("study", "given", "expected"),
    [
        ("topics_optima", [], "float64"),
        ("topics_optima", ["--precision", "float32"], "float32"),
        ("topics_attention", [], "float32"),
        ("topics_attention", ["--precision", "float64"], "float64"),
    ],
)
@pytest.mark.parametrize("command", ["run", "reproduce"])
def test_a_study_is_trained_in_its_own_precision_unless_asked(
    command, study, given, expected, tmp_path, monkeypatch
):
    asked = []

    def stopped(lab: Lab, *arguments, **options):
        asked.append(lab.precision)
        raise _AskedError

    monkeypatch.setattr(Lab, "train", stopped)
    which = [study] if command == "run" else ["--only", study]
    with pytest.raises(_AskedError):
        main([command, *which, *given, "--output", str(tmp_path)])
    assert asked == [expected]
    assert (find_study(study).precision == expected) == (not given)


def test_run_leaves_a_record_and_figures(tiny_run, output):
    record = Path(tiny_run["record"])
    assert record.is_relative_to(output)
    assert tiny_run["study"] == "sen_convolution"
    assert tiny_run["preset"] == "quick"
    assert [claim["claim"] for claim in tiny_run["claims"]] == ["A-14"]
    assert tiny_run["claims"][0]["verdict"] == "fails", "four steps"
    figures = {path.name for path in (record.parent / "figures").iterdir()}
    assert {"sen_convolution_distributions.png", "sen_convolution_curves.png"} <= figures
    assert {Path(path).name for path in tiny_run["figures"]} == {
        name for name in figures if name.endswith(".png")
    }


def test_a_second_run_comes_from_the_cache_and_says_the_same(tiny_run, output, capsys):
    trained = {path: path.stat().st_mtime_ns for path in (output / "cache").glob("*.training")}
    assert len(trained) == 1
    assert called("run", "sen_convolution", *TINY, "--output", str(output), "--json") == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == tiny_run
    assert "from the cache" in printed.err
    assert {
        path: path.stat().st_mtime_ns for path in (output / "cache").glob("*.training")
    } == trained


def test_run_without_json_shows_verdict_folder_and_cache(tiny_run, output, capsys):
    assert called("run", "sen_convolution", *TINY, "--output", str(output)) == 0
    told = capsys.readouterr().out
    assert "A-14" in told
    assert tiny_run["claims"][0]["verdict"] in told
    folder = Path(tiny_run["record"]).parent
    assert f"1 training, 1 from the cache; record and figures: {folder}\n" in told
    assert re.findall(r"^figure: (.+)$", told, re.MULTILINE) == tiny_run["figures"]
    wanted = [f"report {folder} -o report.html", f"explain A-14 --records {folder}"]
    assert re.findall(r"^next: saccade (.+)$", told, re.MULTILINE) == wanted


def test_a_changed_setting_gets_a_folder_of_its_own(tiny_run, output):
    folder = Path(tiny_run["record"]).parent
    assert re.fullmatch(r"sen_convolution-quick-[0-9a-f]{8}", folder.name)
    assert folder.parent == output


@pytest.mark.parametrize("times", [1, 2])
def test_report_draws_the_figures_of_records(times, tiny_run, tmp_path, capsys):
    record, folder = Path(tiny_run["record"]), tmp_path / "drawn"
    for at in range(times):
        (tmp_path / str(at)).mkdir()
        shutil.copy(record, tmp_path / str(at))
    page = ("-o", str(tmp_path / "page.html"))
    assert called("report", str(tmp_path), *page, "--figures", str(folder)) == 0
    wanted = {path.name for path in (record.parent / "figures").iterdir()}
    name = "sen_convolution-quick"
    folders = [name] if times == 1 else [f"1-{name}", f"2-{name}"]
    found = {path.name: {one.name for one in path.iterdir()} for path in folder.iterdir()}
    assert found == dict.fromkeys(folders, wanted)
    drawn = times * len(wanted) // 2
    assert f"{drawn} figures as PNG and PDF: {folder}\n" in capsys.readouterr().out


def test_report_makes_one_page_from_records_and_folders(tiny_run, output, tmp_path, capsys):
    for given in (tiny_run["record"], str(output)):
        page = tmp_path / "page.html"
        assert called("report", given, "-o", str(page)) == 0
        assert "(1 record)" in capsys.readouterr().out
        assert "A-14" in page.read_text()


def test_ledger_shows_the_verdicts_three_ways(tiny_run, tmp_path, capsys):
    assert called("ledger", tiny_run["record"], "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert "A-14" in json.dumps(rows)
    assert called("ledger", tiny_run["record"]) == 0
    told = capsys.readouterr().out
    assert "A-14" in told
    table = tmp_path / "ledger.md"
    assert called("ledger", "--output", str(table), tiny_run["record"]) == 0
    assert "A-14" in table.read_text()
    assert table.read_text().strip() == told.strip()


# -- known verdicts --------------------------------------------------------------------------------

OWN = """
import dataclasses
import numpy as np
import xarray as xr
from saccade.judging.bound import AtMost
from saccade.judging.claim import Check, Claim
from saccade.records.record import Arm
from saccade.judging.statistics import EverySeed
from saccade.core.study import Study

@dataclasses.dataclass(frozen=True)
class Config:
    seeds: int = 3
    error: float = 0.5

def experiment(config, lab):
    error = xr.DataArray(np.full((config.seeds, 1), config.error), dims=("seed", "step"))
    lost = xr.DataArray(np.full(config.seeds, -1), dims="seed")
    trajectory = xr.Dataset({"error": error, "diverged_at": lost}, {"step": [0]})
    return {"main": Arm(trajectory)}

def claim(name, limit):
    check = Check("error", lambda arms, _: arms["main"].end["error"], AtMost(limit), "main")
    return Claim(name, "It is small.", "section 1", check, "none", statistic=EverySeed())

CLAIMS = (claim("X-1", 0.6), claim("X-2", 0.4))
PRESETS = {"quick": Config(), "paper": Config(5)}
STUDY = Study("known_study", "Known", "Nobody 2026", PRESETS, experiment, CLAIMS)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a study without trainings; X-1 holds, X-2 fails."""
    monkeypatch.setattr(registry, "_loaded", {})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "known_study.py").write_text(OWN)
    return tmp_path / "known_study.py"


def keep(file: Path, verdicts: str) -> None:
    words = {"h": "holds", "f": "fails", "u": "undetermined"}
    known = {f"X-{place}": words[one] for place, one in enumerate(verdicts, 1)}
    file.with_name("known.json").write_text(json.dumps({"known_study": {"quick": known}}))


def test_the_longest_studies_begin_first(monkeypatch):
    begun = []

    def begin(self, function, places, row, *rest, **how):
        begun.extend(row(place)[0] for place in places)
        return iter(())

    monkeypatch.setattr(commands.LocalProcesses, "results", begin)
    assert not list(commands._run_quick(study_names(), ReproduceOptions(jobs=2), print))
    assert begun[: len(commands.LONGEST)] == list(commands.LONGEST)
    assert sorted(begun) == study_names()


@pytest.mark.parametrize(
    ("verdicts", "told"),
    [
        ("", ""),
        ("hf", ""),
        ("h", ""),
        ("hh", "X-2 (holds, now fails)"),
        ("uh", "X-1 (undetermined, now holds), X-2 (holds, now fails)"),
    ],
)
def test_reproduce_says_which_verdicts_are_not_the_known_ones(verdicts, told, own, capsys):
    """Also where a claim fails, the exit code is 0 if that is known, or nothing is known."""
    keep(own, verdicts)
    given = ["--study", str(own), "--only", "known_study"]
    assert called("reproduce", *given) == bool(told)
    printed = capsys.readouterr()
    last = f"saccade: other verdicts than the known ones: {told}\n"
    assert printed.err.endswith(last) == bool(told)
    assert ("than the known ones" in Path("report.html").read_text()) == bool(told)
    assert called("reproduce", *given, "--json") == bool(told)
    rows = json.loads(capsys.readouterr().out)
    assert [row["changed"] for row in rows] == [f"{row['claim']} (" in told for row in rows]


def test_without_a_table_nothing_is_known(own, capsys):
    assert called("reproduce", "--study", str(own), "--only", "known_study", "--json") == 0
    assert [row["known"] for row in json.loads(capsys.readouterr().out)] == [None, None]


WRONG = b'{"known_study": {"quick": {"X-1": "true"}}}'


@pytest.mark.parametrize("content", [b"{", b"[]", WRONG, b"\xff"])
def test_a_broken_table_is_one_line(content, own, capsys):
    assert called("run", str(own)) == 0
    record = "runs/known_study-quick/record.nc"
    own.with_name("known.json").write_bytes(content)
    commands = (["run", str(own), "--output", "other"], ["reproduce", "--only", str(own)])
    commands += (["ledger", record], ["report", record], ["ledger", record, "--known=known.json"])
    for command in commands:
        capsys.readouterr()
        assert called(*command) == 1
        assert re.fullmatch(r"saccade: [^\n]*known\.json: [^\n]+\n", capsys.readouterr().err)
    assert own.with_name("known.json").read_bytes() == content
    assert not Path("other").exists()


def test_ledger_keeps_verdicts_as_the_known_ones(own, capsys):
    for preset in ("quick", "paper"):
        assert called("run", str(own), "--preset", preset) == 0
    quick, paper = (f"runs/known_study-{preset}" for preset in ("quick", "paper"))
    own.with_name("known.json").write_text('{"other": {"quick": {"A-1": "fails"}}}')
    now = {"X-1": "holds", "X-2": "fails"}
    others = {"other": {"quick": {"A-1": "fails"}}}
    capsys.readouterr()
    for record, presets in ((quick, {"quick": now}), (paper, {"quick": now, "paper": now})):
        assert called("ledger", record, "--known", "known.json") == 0
        assert capsys.readouterr().out == "known.json: 0 changed verdicts\n"
        known = json.loads(Path("known.json").read_text())
        assert known == others | {"known_study": presets}
    keep(own, "hh")
    assert called("ledger", quick, "--known", "known.json") == 0
    told = capsys.readouterr().out
    assert told == "known.json: 1 changed verdict\nX-2 (known_study, quick): holds, now fails\n"
    assert json.loads(Path("known.json").read_text()) == {"known_study": {"quick": now}}


def test_a_changed_verdict_is_shown_in_the_ledger(own, capsys):
    assert called("run", str(own)) == 0
    keep(own, "hh")
    capsys.readouterr()
    assert called("ledger", "runs") == 0
    told = capsys.readouterr().out
    assert "| fails (known: holds) |" in told
    assert "\n* X-2 (holds, now fails).\n" in told


def test_only_records_of_presets_are_kept_as_known(own, monkeypatch, capsys):
    assert called("run", str(own), "--error", "0.3") == 0
    capsys.readouterr()
    assert called("ledger", "runs", "--known", "known.json") == 2
    assert capsys.readouterr().err == "saccade: known_study, quick: not the record of a preset\n"
    monkeypatch.setattr(registry, "_loaded", {})
    assert called("ledger", "runs", "--known", "known.json") == 2
    assert "is not installed; only verdicts of now can be kept\n" in capsys.readouterr().err
    assert not Path("known.json").exists()


def test_reproduce_takes_trainings_from_the_cache(tiny_run, output, tmp_path, monkeypatch, capsys):
    quick = sen_convolution.STUDY.config("quick")
    (config,), _ = parsed({"settings": quick}, TINY, "test")
    tiny = dataclasses.replace(sen_convolution.STUDY, presets={"quick": config})
    monkeypatch.setattr(sen_convolution, "STUDY", tiny)
    monkeypatch.setattr(Study, "known", lambda study, preset: {"A-14": "holds"})
    page, verdict = tmp_path / "page.html", tiny_run["claims"][0]["verdict"]
    given = ["--only", "sen_convolution", "--output", str(output), "--page", str(page)]
    assert called("reproduce", *given) == 1
    printed = capsys.readouterr()
    told = f"other verdicts than the known ones: A-14 (holds, now {verdict})"
    assert printed.err.splitlines()[-1] == f"saccade: {told}"
    assert "A-14" in page.read_text()
    assert "1 training, 1 from the cache; the page:" in printed.out
