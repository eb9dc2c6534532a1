"""`saccade explain`, `cache`, `doctor` and `completion`, as a user calls them."""

import fcntl
import gc
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from saccade import (
    AttentionRegressionConfig,
    GradientDescent,
    Lab,
    Progress,
    RandomSequences,
    Recipe,
    doctor_commands,
    registry,
)
from saccade.cli import main
from saccade.options import COMMANDS
from saccade.registry import find_study, outlines, study_names
from saccade.report.explained import Explanation, place_of_claim, places_of_measure
from saccade.train.cache_files import kept_in, remove
from saccade.train.storage import locked, read_header, write_state

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "results" / "sen_convolution.nc.gz"


def words_of(value: object) -> str:
    """The id of a test: the words that a user types."""
    return " ".join(value) if isinstance(value, list) and value else ""


def printed_json(capsys, *arguments: str):
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# -- explain ---------------------------------------------------------------------------------------


def test_a_claim_is_explained_with_what_a_record_shows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    assert main(["explain", "a-14", "--records", str(RECORD)]) == 0
    told = capsys.readouterr().out
    for wanted in (
        "Under a convolution, topic pairs also receive the large scores",
        "Lu 2021, appendix A, figures 8 and 9",
        "paper's value: 99.89 % test accuracy",
        "test accuracy: >= 0.98, every seed",
        "arms: TC-CNN; _score_ratio",
        "EverySeed, at least 5 seeds",
        "set before the experiment",
        "holds (preset paper, 32 seeds",
        "32 of 32 seeds",
        "registered: it computes what it computed at the record's commit",
    ):
        assert wanted in told, wanted


def test_why_a_claim_fails_is_said_and_json_has_the_same(capsys):
    (one,) = printed_json(
        capsys, "explain", "A-13", "--records", str(ROOT / "results" / "sen_query.nc.gz")
    )
    assert (one["claim"], one["study"]) == ("A-13", "sen_query")
    (found,) = one["found"]
    assert found["verdict"] == "fails"
    assert found["explanation"] == one["explanation"] != ""
    assert found["status"] == "registered"
    assert found["findings"][0]["low"] < found["findings"][0]["high"]
    assert len(one["checks"]) == len(found["findings"])


def test_records_are_looked_for_in_runs_and_results(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (one,) = printed_json(capsys, "explain", "A-14")
    assert one["found"] == []
    assert main(["explain", "A-14"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "no record is here known: holds (preset quick), holds (preset paper)" in told
    assert "'saccade run sen_convolution' makes one" in told
    for folder in ("runs", "results"):
        Path(folder).mkdir()
        shutil.copy(RECORD, folder)
    (one,) = printed_json(capsys, "explain", "A-14")
    kept = [f"{folder}/{RECORD.name}" for folder in ("runs", "results")]
    assert [row["record"] for row in one["found"]] == kept
    shutil.copy(ROOT / "results" / "ktiw_limits.nc.gz", "runs")
    Path("runs", "bad.nc").write_bytes(b"no record")
    (one,) = printed_json(capsys, "explain", "A-14")
    assert [row["record"] for row in one["found"]] == kept


def test_a_bad_record_is_one_line(capsys, tmp_path):
    bad = tmp_path / "bad.nc"
    assert main(["explain", "A-14", "--records", str(bad)]) == 1
    assert "no such file" in capsys.readouterr().err
    bad.write_bytes(b"no record" * 9)
    assert main(["explain", "A-14", "--records", str(bad)]) == 1
    assert re.fullmatch(r"saccade: [^\n]*bad\.nc[^\n]*\n", capsys.readouterr().err)
    assert main(["explain", "A-14", "--records", str(tmp_path / "bad.nc"), str(tmp_path)]) == 2
    assert f"records are named with --records {tmp_path}" in capsys.readouterr().err


def test_a_study_stands_for_all_of_its_claims(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = printed_json(capsys, "explain", "ktiw_limits", "C-10")
    assert [row["claim"] for row in rows] == [one.id for one in find_study("ktiw_limits").claims]


OWN = """
import dataclasses
import numpy as np
import xarray as xr
from saccade import Arm, AtMost, Check, Claim, Study

@dataclasses.dataclass(frozen=True)
class Config:
    seeds: int = 3

def experiment(config, lab):
    error = xr.DataArray(np.full((config.seeds, 1), 0.5), dims=("seed", "step"))
    lost = xr.DataArray(np.full(config.seeds, -1), dims="seed")
    trajectory = xr.Dataset({"error": error, "diverged_at": lost}, {"step": [0]})
    return {"main": Arm(trajectory)}

def last_error(arms, config):
    return arms["main"].end["error"]

CLAIMS = (
    Claim("X-1", "It is small.", "page 1", Check("error", last_error, AtMost(0.4), "main"), "no"),
)
STUDY = Study("own_study", "Own", "Nobody 2026", {"quick": Config()}, experiment, CLAIMS)
"""


def test_a_study_outside_of_the_package_is_explained(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own_study.py").write_text(OWN)
    for arguments in (["X-1", "--study", "own_study.py"], ["own_study.py"]):
        monkeypatch.setattr(registry, "_loaded", {})
        (one,) = printed_json(capsys, "explain", *arguments)
        assert one["claim"] == "X-1"
        lines = OWN.splitlines()
        assert lines[one["code"]["line"] - 1].startswith('    Claim("X-1"')
        (measure,) = one["checks"][0]["measure"]
        assert lines[measure["line"] - 1].startswith("def last_error")
        assert main(["explain", *arguments]) == 0
        assert "'saccade run own_study.py' makes one" in " ".join(capsys.readouterr().out.split())
    assert main(["run", "own_study.py"]) == 0
    *_, page, why = capsys.readouterr().out.splitlines()
    own = "--study own_study.py"
    assert page == f"next: saccade report runs/own_study-quick -o report.html {own}"
    assert why == f"next: saccade explain X-1 --records runs/own_study-quick {own}"
    (one,) = printed_json(capsys, *why.split()[2:])
    assert [row["verdict"] for row in one["found"]] == ["fails"]


@pytest.mark.parametrize("name", study_names())
def test_code_is_found_where_it_is_said_to_be(name):
    study = find_study(name)
    for claim in study.claims:
        place = place_of_claim(study, claim.id)
        assert place is not None
        lines = place.file.read_text(encoding="utf-8").splitlines()[place.line - 1 :][:2]
        assert f'"{claim.id}"' in "".join(lines) or lines[0].startswith("CLAIMS"), claim.id
        for check in Explanation(study, claim).checks:
            first, *_ = places_of_measure(check)
            line = first.file.read_text(encoding="utf-8").splitlines()[first.line - 1]
            assert re.search(r"\bdef |lambda|^@", line.strip()), f"{claim.id}: {line}"


# -- completion ------------------------------------------------------------------------------------


def test_outlines_are_what_the_studies_say():
    """They are read from files; if a study writes its presets otherwise, this fails."""
    for name, outline in outlines().items():
        study = find_study(name)
        assert outline.presets == tuple(study.presets), name
        assert sorted(outline.claims) == sorted(claim.id for claim in study.claims), name


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_a_script_is_made_without_importing_what_is_slow(shell):
    program = (
        f"import sys; from saccade.cli import main; code = main(['completion', '{shell}']);"
        " slow = {'jax', 'rich', 'numpy', 'xarray', 'matplotlib'} & set(sys.modules);"
        " print('#', sorted(slow)); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "# []"


@pytest.fixture(scope="module")
def bash_script(tmp_path_factory) -> Path:
    if shutil.which("bash") is None:
        pytest.skip("bash is not here")
    return script("bash", tmp_path_factory.mktemp("bash"))


def script(shell: str, folder: Path) -> Path:
    with pytest.MonkeyPatch.context() as patch, (folder / shell).open("w") as file:
        patch.setattr(sys, "stdout", file)
        assert main(["completion", shell]) == 0
    return folder / shell


def completed(file: Path, folder: Path, *words: str) -> list[str]:
    """What a real bash offers for the last word."""
    program = (
        'source "$1"; shift; complete -p saccade >&2; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1));'
        ' _saccade; ((${#COMPREPLY[@]})) && printf "%s\\n" "${COMPREPLY[@]}" || true'
    )
    command = ["bash", "--norc", "-c", program, "bash", str(file), "saccade", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == "complete -F _saccade saccade\n"
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["re"], ["reproduce", "report"]),
        (["exp"], ["explain"]),
        (["--v"], ["--version"]),
        (["run", "sen_c"], ["sen_convolution"]),
        (["run", "my"], ["my_study.py"]),
        (["run", "sen", "--preset", ""], ["quick", "paper", "code"]),
        (["run", "sen", "--preset", "=", "p"], ["paper"]),
        (["run", "sen", "--preset", "="], ["quick", "paper", "code"]),
        (["run", "topics_pretrained", "--preset", "tr"], ["trained"]),
        (["run", "./my_study.py", "--preset", ""], ["quick", "paper"]),
        (["run", "sen", "--precision", ""], ["float32", "float64"]),
        (["run", "sen", "--dry"], ["--dry-run"]),
        (["run", "sen", "--chunk", ""], []),
        (["run", "sen", "se"], []),
        (["run", "sen", "--output", "a f"], ["a folder"]),
        (["run", "sen", "-o", "a f"], ["a folder"]),
        (["map", "sen_query", "--claim", ""], ["A-13", "A-13b", "A-13c", "A-13d"]),
        (["explain", "A-14"], ["A-14"]),
        (["explain", "sen_q"], ["sen_query"]),
        (["explain", "A-14", "--rec"], ["--records"]),
        (["reproduce", "--only", "values"], ["values_first"]),
        (["report", "rec"], ["record.nc"]),
        (["report", "record.nc", "--study", "my"], ["my_study.py"]),
        (["report", "record.nc", "--study", "rec"], []),
        (["data", "f"], ["fetch"]),
        (["cache", ""], ["prune"]),
        (["cache", "prune", "--u"], ["--unfinished"]),
        (["completion", "z"], ["zsh"]),
        (["doctor", ""], []),
    ],
    ids=lambda value: " ".join(value) or "nothing",
)
def test_bash_completes(words, wanted, bash_script, tmp_path):
    (tmp_path / "a folder").mkdir()
    for name in ("my_study.py", "record.nc"):
        (tmp_path / name).touch()
    assert completed(bash_script, tmp_path, *words) == wanted


def test_bash_completes_every_command_and_its_options(bash_script, tmp_path, capsys):
    commands = ["run", "map", *COMMANDS]
    assert set(completed(bash_script, tmp_path, "")) == {*commands, "--help", "--version"}
    for command in COMMANDS:
        with pytest.raises(SystemExit):
            main([command, "--help"])
        known = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", capsys.readouterr().out, re.MULTILINE))
        assert set(completed(bash_script, tmp_path, command, "--")) == known, command


def test_the_zsh_script_names_every_command(tmp_path):
    """Without a zsh the text alone is checked."""
    file = script("zsh", tmp_path)
    text = file.read_text()
    assert text.startswith("#compdef saccade\n")
    assert "--precision=[Precision of training]:value:(float32 float64)" in text
    assert "sen_query) compadd A-13 A-13b A-13c A-13d ;;" in text
    for command in ("run", "map", *COMMANDS):
        assert f"\n        '{command}:" in text, command
        assert f"\n                {command})\n" in text, command
    if shutil.which("zsh"):
        subprocess.run(["zsh", "-n", str(file)], check=True)


# -- cache -----------------------------------------------------------------------------------------

NAMES = {"a": "training", "b": "unfinished", "c": "result", "d": "damaged"}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A cache with one file of every kind, of which the result is 40 days old."""
    folder = tmp_path / "runs" / "cache"
    arrays = {"x": np.zeros(100)}
    for name, finished in (("a", True), ("b", False)):
        header = {"digest": name, "step": 5, "finished": finished, "name": f"arm {name}"}
        write_state(folder / f"{name}.training", header | {"steps": 9}, arrays)
    write_state(folder / "c.result", {"tree": 0}, arrays)
    (folder / "d.training").write_bytes(b"no training")
    (folder / ".a.training.x1.part").write_bytes(b"half")
    for name in "abce":
        (folder / f"{name}.lock").touch()
    (folder / "compiled").mkdir()
    for name in ("jit_f-cache", "jit_f-atime"):
        (folder / "compiled" / name).write_bytes(b"program")
    old = (folder / "c.result").stat().st_mtime - 40 * 86400
    os.utime(folder / "c.result", (old, old))
    return tmp_path / "runs"


def left(runs: Path) -> set[str]:
    return {path.name for path in (runs / "cache").rglob("*") if path.is_file()}


def test_the_cache_is_listed(runs, capsys):
    about = printed_json(capsys, "cache", "-o", str(runs))
    kinds = {Path(row["file"]).name.partition(".")[0]: row["kind"] for row in about["files"]}
    assert {name: kind for name, kind in kinds.items() if name} == NAMES
    assert kinds[""] == "leftover"
    assert about["compiled"] == {"programs": 1, "bytes": 14}
    sizes = sum(path.stat().st_size for path in (runs / "cache").rglob("*") if path.is_file())
    assert about["bytes"] == sizes
    assert main(["cache", "-o", str(runs)]) == 0
    told = capsys.readouterr().out
    assert re.search(r"arm b +step 5 of 9 ", told)
    assert re.search(r"unknown +result .* 40 days", told)
    assert "1 unfinished training (" in told
    assert re.search(r"1 compiled program \(14 B\).*; [\d.]+ kB in all", told)


def test_an_empty_cache_and_a_missing_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["cache"]) == 0
    assert capsys.readouterr().out == "runs/cache: nothing is kept here\n"
    assert main(["cache", "prune", "--all"]) == 0
    assert capsys.readouterr().out == "runs/cache: nothing to remove\n"
    assert main(["cache", "-o", "missing"]) == 1
    assert "cannot read missing: no such folder" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("given", "gone"),
    [
        (["--older-than", "30d"], {"c.result", "c.lock"}),
        (["--older-than", "41d"], set()),
        (["--unfinished"], {"b.training", "b.lock", ".a.training.x1.part", "a.lock", "e.lock"}),
        (["--compiled"], {"jit_f-cache", "jit_f-atime"}),
        (["--unfinished", "--older-than", "1h"], set()),
        (["--all", "--older-than", "4w"], {"c.result", "c.lock"}),
        (["--all"], None),
    ],
    ids=words_of,
)
def test_prune_removes_what_is_named(given, gone, runs, capsys):
    before = left(runs)
    gone = before if gone is None else gone
    assert main(["cache", "prune", "-o", str(runs), "--dry-run", *given]) == 0
    assert left(runs) == before
    planned = capsys.readouterr().out.splitlines()[-1]
    assert main(["cache", "prune", "-o", str(runs), *given]) == 0
    assert before - left(runs) == gone
    done = capsys.readouterr().out.splitlines()[-1]
    assert done == planned.replace("would remove", "removed").replace("would be freed", "freed")


def test_prune_keeps_what_a_process_holds(runs, capsys):
    with (runs / "cache" / "b.lock").open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        for dry in (["--dry-run"], []):
            assert main(["cache", "prune", "--all", "-o", str(runs), *dry]) == 0
            assert "1 file in use, so kept: arm b (b.training)" in capsys.readouterr().out
        assert left(runs) == {"b.training", "b.lock"}
    assert main(["cache", "prune", "--all", "-o", str(runs)]) == 0
    assert left(runs) == set()


def test_prune_keeps_finished_chunks_that_a_run_will_read(tmp_path, capsys):
    """Their own locks are free by then; the run reads them when it puts its record together."""
    task = RandomSequences(6, 1, 4, 4, 4)
    model = AttentionRegressionConfig(heads=2, head_dimension=4)
    pruned = []

    def prune(progress: Progress) -> None:
        if progress.done and not pruned:
            pruned.append(main(["cache", "prune", "--all", "-o", str(tmp_path)]))

    lab = Lab(tmp_path / "cache", progress=prune, chunk=1)
    arm = lab.train(Recipe(task, model, GradientDescent(0.1), 3), seeds=3)
    assert pruned == [0]
    assert "in use, so kept" in capsys.readouterr().out
    assert arm.trajectory.sizes["seed"] == 3
    assert len(list((tmp_path / "cache").glob("*.training"))) == 3
    del arm, lab
    gc.collect()
    assert main(["cache", "prune", "--all", "-o", str(tmp_path)]) == 0
    assert not list((tmp_path / "cache").glob("*.training"))


def test_compiled_programs_of_gpus_lie_deeper_and_are_compiled_ones(tmp_path):
    deep = tmp_path / "cache" / "compiled" / "autotuned" / "0123"
    deep.parent.mkdir(parents=True)
    deep.write_text("x")
    assert [one.kind for one in kept_in(tmp_path / "cache")] == ["compiled"]


def test_a_training_that_has_ended_since_it_was_listed_is_kept(runs):
    (one,) = (one for one in kept_in(runs / "cache") if one.kind == "unfinished")
    write_state(one.path, {"finished": True}, {})
    assert not remove(one)
    assert one.path.exists()


def test_a_lock_that_was_removed_is_made_again(tmp_path):
    """Two processes must not hold the lock of one name, each on a file of its own."""
    path = tmp_path / "a.lock"
    waited = []

    def removed_meanwhile():
        waited.append(path.unlink())
        fcntl.flock(first, fcntl.LOCK_UN)

    with path.open("ab") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        with locked(path, removed_meanwhile):
            assert waited
            with path.open("ab") as again, pytest.raises(BlockingIOError):
                fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_header_is_read_without_the_arrays(tmp_path):
    write_state(tmp_path / "a.training", {"name": "arm", "step": 3}, {"x": np.zeros(3)})
    assert read_header(tmp_path / "a.training") == {"name": "arm", "step": 3, "types": {}}


# -- doctor ----------------------------------------------------------------------------------------


def test_the_doctor_finds_everything_that_the_core_needs(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    (tmp_path / "sst").mkdir()
    about = printed_json(capsys, "doctor", "-o", str(runs))
    assert about["healthy"]
    found = {(one["section"], one["name"]): one for one in about["findings"]}
    for package in ("jax", "equinox", "optax", "diffrax", "numpy", "xarray"):
        assert found["versions", package]["text"] == importlib.metadata.version(package)
    assert found["corpora", "SACCADE_DATA"]["text"] == str(tmp_path)
    assert found["cache", str(runs / "cache")]["text"].startswith(
        "1 finished training, 1 unfinished one,"
    )
    absent = [one for one in about["findings"] if one["name"].startswith("not here")]
    assert "saccade data fetch sst2" in [one["remedy"] for one in absent]
    assert all(one["status"] == "missing" for one in absent)
    assert main(["doctor", "-o", str(runs)]) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[-1] == "what every study needs is here"
    assert "JAX trains on" in told


def test_the_doctor_says_how_to_get_an_extra(monkeypatch):
    wanted = ["jax>=0.4", "no-such-package>=1; extra == 'torch'", "numpy<1; extra == 'old'"]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: wanted)
    torch, old = doctor_commands._extras()
    assert (torch.name, torch.status, torch.text) == ("torch", "missing", "without no-such-package")
    assert torch.remedy == "pip install 'saccade[torch]'"
    assert old.status == "missing"
    assert re.fullmatch(r"numpy [\w.]+ \(needed: <1\)", old.text)


@pytest.mark.parametrize(
    ("needed", "text"),
    [
        ("no-such-package>=2", "no-such-package: not installed, needed: >=2"),
        ("numpy>=99", r"numpy: [\w.]+, needed: >=99"),
    ],
)
def test_a_broken_core_is_exit_code_one(needed, text, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: [needed])
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert re.search(rf"^  ! {text}$", told, re.MULTILINE)
    assert f"to do: pip install '{needed}'" in told
    assert told.splitlines()[-1].startswith(f"broken: {re.split('[<>=]', needed)[0]};")


def test_the_doctor_goes_on_where_jax_is_broken(monkeypatch, tmp_path, capsys):
    import jax

    def broken():
        raise RuntimeError("no backend\nmore")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(jax, "local_devices", broken)
    assert main(["doctor"]) == 1
    told = capsys.readouterr().out
    assert "  ! JAX: RuntimeError: no backend\n" in told
    assert "+ git:" in told or "- git:" in told


def test_the_doctor_works_without_the_libraries_that_it_looks_for(tmp_path):
    """In a process of its own, whose imports of JAX and rich fail."""
    program = (
        "import sys; sys.modules['jax'] = sys.modules['rich'] = None;"
        " from saccade.cli import main; sys.exit(main(['doctor', '--json', '-o', sys.argv[1]]))"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1, done.stderr
    rows = json.loads(done.stdout)["findings"]
    broken = {row["name"]: row["remedy"] for row in rows if row["status"] == "broken"}
    assert broken["jax"] == "pip install --force-reinstall jax"
    assert broken["equinox"] == "pip install jax"
    assert broken["rich"] == "pip install --force-reinstall rich"
    assert "numpy" not in broken
    assert {"JAX", "studies"} <= set(broken)


def test_the_folder_of_corpora_that_is_none_is_no_matter_of_the_core(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path / "none"))
    assert main(["doctor"]) == 0
    assert f"- SACCADE_DATA: {tmp_path / 'none'}, which is no folder" in capsys.readouterr().out
