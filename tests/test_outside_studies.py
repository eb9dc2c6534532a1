"""Studies outside of the package on the command line; dry runs; interrupts."""

import contextlib
import io
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from saccade import registry
from saccade.cli import main
from saccade.registry import study_names


def called(*arguments: str) -> int:
    """The exit code of a command; help leaves by SystemExit."""
    try:
        return main(list(arguments))
    except SystemExit as stop:
        return int(stop.code or 0)


OWN = """
import dataclasses
from beside import RATE

from saccade.judging.bound import AtMost
from saccade.judging.claim import Check, Claim
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe
from saccade.judging.statistics import EverySeed
from saccade.core.study import Study
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.tasks.topic_sentences import TopicSentences


@dataclasses.dataclass(frozen=True)
class Config:
    seeds: int = 3
    rate: float = RATE
    "Learning rate."
    steps: int = 4
    task: TopicSentences = TopicSentences.example()


def experiment(config, lab):
    arms = {}
    for name, steps in (("short", 1), ("long", config.steps)):
        model, optimiser = AttentionClassifierConfig(dimension=2), GradientDescent(config.rate)
        arms |= lab.train({name: Recipe(config.task, model, optimiser, steps)}, config.seeds)
        if DECIDES:
            int(arms[name].trajectory["loss"].mean())
        # here
    return arms


CHECK = Check("loss", lambda arms, config: arms["long"].end["loss"], AtMost(10.0), "long")
CLAIMS = (Claim("X-1", "The loss is finite.", "section 1", CHECK, "none", statistic=EverySeed(3)),)
STUDY = Study("own_study", "Of my own", "Nobody 2026", {"quick": Config()}, experiment, CLAIMS)
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a study outside of the package, with a module beside it."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_study.py").write_text(f"DECIDES = False\n{OWN}")
    (folder / "deciding_study.py").write_text(
        f"DECIDES = True\n{OWN}".replace('"own_study"', '"deciding"')
    )
    (folder / "beside.py").write_text("RATE = 0.125\n")
    return folder / "own_study.py"


@pytest.fixture
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: no study has been loaded from a file."""
    monkeypatch.setattr(registry, "_loaded", {})


@pytest.fixture(scope="module")
def own_record(own: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("runs")
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main(["run", str(own), "--output", str(output)]) == 0
    return output / "own_study-quick" / "record.nc"


@pytest.mark.usefixtures("forgotten")
def test_a_study_of_the_users_own_is_listed_and_has_options(own, capsys):
    assert called("list", str(own), "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["name"], row["claims"][0]["id"]) == ("own_study", "X-1")
    assert called("list", str(own), "sen") == 0
    told = capsys.readouterr().out
    assert "Of my own" in told
    assert "topics_optima" not in told
    assert called("run", str(own), "--help") == 0
    told = capsys.readouterr().out
    assert re.search(r"--rate NUMBER +Learning rate. \(default: 0.125\)", told)
    assert "--filler-size INTEGER" in told, "fields of the nested task are options"


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("command", ["report", "ledger"])
def test_a_record_of_an_unknown_study_is_shown_with_its_stored_verdicts(
    command, own, own_record, tmp_path, capsys
):
    made = tmp_path / "made"
    known_record = Path(__file__).parents[1] / "results" / "sen_convolution.nc.gz"
    given = [str(own_record), str(known_record), "--output", str(made)]
    assert called(command, *given) == 0
    problem = f"{own_record}: the study 'own_study' is not installed; its stored verdicts are shown"
    assert f"saccade: {problem}\n" in capsys.readouterr().err
    unknown = made.read_text()
    for wanted in ("X-1", "The loss is finite.", str(own_record), "is not installed", "A-14"):
        assert wanted in unknown
    assert called(command, "--study", str(own), *given) == 0
    assert "not installed" not in capsys.readouterr().err
    known = made.read_text()
    assert "X-1" in known
    assert "not installed" not in known


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('end["loss"]', 'end["entropy"]', "claim [^;]*: KeyError: [^;]*entropy[^;]*"),
        (
            "    seeds: int = 3\n",
            "    added: int\n    seeds: int = 3\n",
            "TypeError: [^;]*added[^;]*",
        ),
    ],
)
def test_a_record_that_its_study_no_longer_fits_is_shown_with_its_stored_verdicts(
    before, after, why, own, own_record, tmp_path, capsys
):
    for name, text in (("own_study.py", own.read_text()), ("beside.py", "RATE = 0.125\n")):
        (tmp_path / name).write_text(
            text.replace(before, after).replace("Config()", "Config(**NEW)")
        )
    changed = tmp_path / "own_study.py"
    new = {"added": 1} if "added" in after else {}
    changed.write_text(f"NEW = {new}\n{changed.read_text()}")
    given = [str(own_record), "--study", str(changed), "--output", str(tmp_path / "made")]
    for command in ("ledger", "report"):
        assert called(command, *given) == 0
        note = rf"saccade: {own_record}: cannot be judged by own_study: {why}; its stored verdicts "
        assert re.search(note, capsys.readouterr().err)
        assert "cannot be judged by own_study" in (tmp_path / "made").read_text()


@pytest.mark.usefixtures("forgotten")
def test_a_damaged_record_of_an_unknown_study_is_one_line(own_record, tmp_path, capsys):
    (tmp_path / "cut.nc").write_bytes(own_record.read_bytes()[:-100])
    assert called("ledger", str(own_record), str(tmp_path / "cut.nc")) == 1
    assert re.search(r"\nsaccade: [^\n]*cut\.nc: [^\n]+\n$", capsys.readouterr().err)


@pytest.mark.usefixtures("forgotten")
def test_a_broken_package_hides_no_other_study(own_record, tmp_path, monkeypatch, capsys):
    metadata = tmp_path / "broken-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[saccade.studies]\nown_study = no_such_module\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert called("list", "--json") == 2
    printed = capsys.readouterr()
    assert [row["name"] for row in json.loads(printed.out)] == [
        name for name in study_names() if name != "own_study"
    ]
    assert re.fullmatch(r"saccade: entry point 'own_study' of broken [^\n]+\n", printed.err)
    assert called("ledger", str(own_record)) == 0
    printed = capsys.readouterr()
    assert "X-1" in printed.out
    assert "the study 'own_study' cannot be loaded (entry point" in printed.err


@pytest.mark.usefixtures("forgotten")
def test_reproduce_runs_files_in_processes_of_their_own(own, tmp_path, monkeypatch, capsys):
    """Workers load the file anew; --study adds one, and --only may name it."""
    monkeypatch.chdir(tmp_path)
    files = ["--study", str(own), "--study", str(own.with_name("deciding_study.py"))]
    only = ["--only", "own_study", str(own.with_name("deciding_study.py"))]
    assert called("reproduce", *files, *only, "--jobs", "2", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["study"], row["claim"]) for row in rows] == [
        ("deciding", "X-1"),
        ("own_study", "X-1"),
    ]
    assert (tmp_path / "report.html").exists()
    assert (tmp_path / "runs" / "deciding-quick" / "record.nc").exists()


@pytest.mark.parametrize("content", [None, "x = 1\n", "import no_such_module\n", "x =\n"])
@pytest.mark.parametrize("command", [["run"], ["list"], ["reproduce", "--only"], ["--study"]])
def test_a_mistake_in_a_file_is_one_line(command, content, own_record, tmp_path, capsys):
    file = tmp_path / "wrong_file.py"
    if content is not None:
        file.write_text(content)
    given = ["ledger", str(own_record), "--study"] if command == ["--study"] else command
    assert called(*given, str(file)) == (1 if content is None else 2)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"saccade: [^\n]*wrong_file\.py[^\n]*\n", printed.err)


# -- dry runs --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("forgotten")
def test_a_dry_run_lists_the_trainings_and_does_none(own, tmp_path, capsys):
    given = ["run", str(own), "--output", str(tmp_path), "--sweep", "leak=0.1,0.2", "--dry-run"]
    assert called(*given, "--json") == 0
    printed = capsys.readouterr()
    assert printed.err == "own_study short: planned\nown_study long: planned\n"
    found = json.loads(printed.out)
    assert [
        (plan["name"], plan["members"], plan["steps"], plan["recorded"], plan["cached"])
        for plan in found["trainings"]
    ] == [("own_study short", 6, 1, 2, False), ("own_study long", 6, 4, 2, False)]
    assert all(plan["memory_bytes"] > 0 and plan["seconds"] > 0 for plan in found["trainings"])
    assert (found["study"], found["stopped"]) == ("own_study", "")
    assert called(*given) == 0
    told = capsys.readouterr().out
    for wanted in ("own_study short", "own_study long", "2 trainings", "at most", "about"):
        assert wanted in told
    assert "nothing was train" in told
    assert not list(tmp_path.rglob("*.training"))
    assert not list(tmp_path.rglob("*.nc"))


@pytest.mark.usefixtures("forgotten")
def test_a_dry_run_says_what_is_in_the_cache(own, own_record, capsys):
    given = ["run", str(own), "--output", str(own_record.parent.parent), "--dry-run"]
    assert called(*given, "--json") == 0
    plans = json.loads(capsys.readouterr().out)["trainings"]
    assert [(plan["cached"], plan["seconds"]) for plan in plans] == [(True, None)] * 2
    assert called(*given) == 0
    assert capsys.readouterr().out.count("in the cache") == 2


@pytest.mark.usefixtures("forgotten")
def test_a_dry_run_stops_where_numbers_decide_what_follows(own, tmp_path, capsys):
    given = ["run", str(own.with_name("deciding_study.py")), "--output", str(tmp_path), "--dry-run"]
    assert called(*given) == 0
    told = capsys.readouterr().out
    assert "deciding short" in told
    assert "deciding long" not in told
    decides = "the numbers of 'deciding short' decide which trainings follow: ValueError: cannot"
    assert decides in told


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize(
    ("line", "code", "wanted"),
    [
        ("GradientDescent(float(arms[name].trajectory['loss'].mean()))", 0, "rate: got nan"),
        ("undefined_name", 1, "saccade: stopped by NameError: .*; every number is NaN in a dry"),
        ("arms['missing']", 1, r"stopped by KeyError: 'missing' \(wrong_study\.py, line \d+\);"),
        ("from saccade.errors import ConfigError; raise ConfigError('no nanny')", 2, "nanny"),
    ],
)
def test_a_dry_run_does_not_hide_a_mistake(line, code, wanted, own, capsys):
    file = own.with_name("wrong_study.py")
    file.write_text(own.read_text().replace("# here", line).replace('"own_study"', '"wrong"'))
    assert called("run", str(file), "--output", str(own.parent), "--dry-run", "--json") == code
    printed = capsys.readouterr()
    assert re.search(wanted, printed.out if code == 0 else printed.err)
    assert printed.err.removeprefix("wrong short: planned\n").count("\n") == (code > 0)
    if code < 2:
        assert [one["name"] for one in json.loads(printed.out)["trainings"]] == ["wrong short"]


# -- interrupts ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("command", ["run", pytest.param("reproduce", marks=pytest.mark.slow)])
def test_an_interrupt_is_one_line_and_exit_code_130(command, own, tmp_path):
    """Also where the parent ignores SIGINT, as under nohup: the child sets its own handler."""
    files = [tmp_path / f"{name}_study.py" for name in ("one", "two")]
    for file in files:
        text = own.read_text().replace("steps: int = 4", "steps: int = 2_000_000")
        file.write_text(text.replace('"own_study"', f'"{file.stem}"'))
    shutil.copy(own.with_name("beside.py"), tmp_path)
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); "
        "from saccade.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    study = [str(files[0])] if command == "run" else ["--only", *map(str, files), "--jobs=2"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, command, *study, "--output", str(tmp_path / "runs")],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    )
    assert process.stderr is not None
    line = ""
    while "_study short: 1 of 1 steps" not in line:
        line = process.stderr.readline()
        assert line, "the process ended"
    process.send_signal(signal.SIGINT)
    rest = process.communicate(timeout=120)[1]
    assert process.returncode == 130
    assert "Traceback" not in rest
    last = rest.splitlines()[-1]
    assert re.fullmatch(r"saccade: stopped.* the same command (goes on|continues) from there", last)
