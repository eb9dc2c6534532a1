"""Registered claims: what changes a fingerprint and what does not, and the commit of a run."""

import dataclasses
import functools
import itertools
import os
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.core.bound import AtMost, Below
from saccade.core.claim import Check, Claim
from saccade.core.errors import ConfigError
from saccade.core.lab import Lab
from saccade.core.record import Arm, Record
from saccade.core.registration import VARIABLE, commit_of, fingerprint, is_registered
from saccade.core.statistics import Mean, Pooled
from saccade.core.study import Study

STUDY = '''
"""A study."""

import dataclasses
import functools

import numpy as np
import xarray as xr
import helper
from helper import scaled

from saccade.core.bound import AtMost, Below
from saccade.core.claim import Check, Claim
from saccade.core.record import Arm
from saccade.core.statistics import EverySeed, Pooled
from saccade.core.study import Study

LIMITS = {"low": 0.0, "high": 2.0}
WORDS = {"topic", "filler", "stop", "other"}


@dataclasses.dataclass(frozen=True)
class Config:
    seeds: int = 3


def experiment(config, lab):
    error = xr.DataArray(np.full((config.seeds, 1), 0.5), dims=("seed", "step"))
    lost = xr.DataArray(np.full(config.seeds, -1), dims="seed")
    trajectory = xr.Dataset({"error": error, "diverged_at": lost}, {"step": [0]})
    return {"main": Arm(trajectory, xr.Dataset(), xr.Dataset())}


@functools.cache
def cached(number):
    return number + 1


def measure(power, arms, config, *, offset=0.0):
    """What is measured."""
    total = arms["main"].end["error"]  # a comment
    for word in sorted(WORDS):
        if word in LIMITS:
            total = total + LIMITS[word]
    shown = [f"{word:>{config.seeds}} {{}}" for word in WORDS if len(word) > cached(1)]
    return scaled(total) ** power + helper.moved(offset) * len(shown)


CHECK = Check("error", functools.partial(measure, 1.0), AtMost(10.0), "main", EverySeed())
CLAIM = Claim("X-1", "The error is small.", "section 1", CHECK, "none", reason="")
STUDY = Study("own_study", "Own", "Nobody 2026", {"quick": Config()}, experiment, (CLAIM,))
'''
HELPER = """
FACTOR = 2.0


def scaled(number):
    return FACTOR * number


def moved(number):
    return number + scaled(0.0)


def unused(number):
    return number
"""
count = itertools.count()


def loaded(folder: Path, study: str = STUDY, helper: str = HELPER) -> types.ModuleType:
    """The study's module and its helper, from files of a new folder."""
    folder = folder / str(next(count))
    folder.mkdir()
    modules = {}
    for name, text in (("helper", helper), ("own_study", study)):
        file = folder / f"{name}.py"
        file.write_text(text)
        modules[name] = types.ModuleType(name)
        modules[name].__file__ = str(file)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(sys.modules, "helper", modules["helper"])
            patch.setitem(sys.modules, name, modules[name])
            exec(compile(text, file, "exec"), modules[name].__dict__)
    return modules["own_study"]


def folder_of(module: types.ModuleType) -> Path:
    return Path(module.__file__ or "").parent


def changed(folder: Path, before: str, after: str) -> str:
    """The fingerprint after a change of the files."""
    assert before in STUDY + HELPER, "the test changes something"
    files = [text.replace(before, after) for text in (STUDY, HELPER)]
    return fingerprint(loaded(folder, *files).CLAIM)


@pytest.fixture(scope="module")
def unchanged(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fingerprint(loaded(tmp_path_factory.mktemp("unchanged")).CLAIM)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("The error is small.", "The error is tiny."),
        ("AtMost(10.0)", "AtMost(10.5)"),
        ("AtMost(10.0)", "Below(10.0)"),
        ('Check("error"', 'Check("the error"'),
        ("EverySeed())", "EverySeed(5))"),
        ("EverySeed())", "Pooled(function=np.mean))"),
        ('"main", EverySeed()', '"m*", EverySeed()'),
        ("EverySeed())", "EverySeed(), left_out='no such word')"),
        ("EverySeed())", "EverySeed(), where={'rate': 0.1})"),
        ('"none", reason', '"none", full_size=(lambda config: config.seeds > 2, "more"), reason'),
        ("partial(measure, 1.0)", "partial(measure, 2.0)"),
        ("partial(measure, 1.0)", "partial(measure, 1.0, offset=1.0)"),
        ("offset=0.0):", "offset=1.0):"),
        ("** power", "* power"),
        ("FACTOR * number", "FACTOR + number"),
        ("number + scaled(0.0)", "number - scaled(0.0)"),
        ("FACTOR = 2.0", "FACTOR = 2.5"),
        ('"high": 2.0', '"high": 3.0'),
        ('"stop", "other"', '"stop"'),
        ("return number + 1", "return number + 2"),
        ("            total = total + LIMITS[word]", "            pass\n        total = total + 0"),
        ("{word:>{config.seeds}}", "{word:<{config.seeds}}"),
        # Whether a line belongs to a block or not is more than white space.
        (
            "        if word in LIMITS:\n            total = total + LIMITS[word]\n",
            "        if word in LIMITS:\n            total = total + LIMITS[word]\n"
            "            break\n        continue\n",
        ),
    ],
)
def test_a_fingerprint_changes_with_what_a_claim_says_or_measures(
    before, after, unchanged, tmp_path
):
    assert changed(tmp_path, before, after) != unchanged


INDENTED = """
def measure(arms, config):
    if config:
        first = 1
        second = 2
    return first
"""


def test_indentation_counts(tmp_path: Path):
    """The same words in another block are another function."""
    outside = INDENTED.replace("        second", "    second")
    measures = [loaded(tmp_path, text).measure for text in (INDENTED, outside)]
    assert len(set(map(printed, measures))) == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("  # a comment", ""),
        ("  # a comment", "  # another comment"),
        ('    """What is measured."""\n', ""),
        ('"""What is measured."""', '"""What is\n\n    measured, in words."""'),
        ('"""A study."""', '"""A study.\n\nOf errors.\n"""'),
        ("def measure(power,", "def measure(\n    power,"),
        ("offset=0.0):", "offset: float = 0.0) -> object:"),
        (
            'arms["main"].end["error"]  # a comment',
            'arms[\n        "main"\n    ].end["error"]',
        ),
        ("return scaled(total) ** power +", "return (scaled(total) ** power) + \\\n       "),
        ('reason=""', 'reason="The text leaves out the first 100 steps."'),
        ('"section 1", CHECK, "none"', '"section 2", CHECK, "the figure"'),
        ("    return number\n", "    return 2 * number\n"),
        ("seeds: int = 3", "seeds: int = 5"),
        ("np.full((config.seeds, 1), 0.5)", "np.full((config.seeds, 1), 0.6)"),
    ],
)
def test_a_fingerprint_does_not_change_with_how_it_is_written(before, after, unchanged, tmp_path):
    """Nor with the explanations, nor with what the measure does not use."""
    assert changed(tmp_path, before, after) == unchanged


PLACED = """
from pathlib import Path
from types import SimpleNamespace

WORDS, HERE = {"topic", "filler", "stop", "other"}, Path(__file__)


def measure(arms, config):
    return [arms[word] for word in WORDS if word in HERE.name and config is not __name__]


CHECK = SimpleNamespace(quantity="", bound=1.0, statistic=object(), arms=(), where={}, left_out="")
CHECK.measure = measure
CLAIM = SimpleNamespace(statement="", full_size=None, checks=(CHECK,))
"""


def test_a_fingerprint_is_the_same_in_every_process(tmp_path: Path):
    """Whatever the order of sets, the folder, and the place of objects in memory."""
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import own_study; "
        "from saccade.core.registration import fingerprint; print(fingerprint(own_study.CLAIM))"
    )
    prints = {fingerprint(loaded(tmp_path, PLACED).CLAIM)}
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(folder_of(loaded(tmp_path, PLACED)))],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        prints.add(done.stdout.strip())
    assert len(prints) == 1


def printed(measure: Callable[..., Any], **options: Any) -> str:
    check = Check("error", measure, AtMost(1.0), "main", **options)
    return fingerprint(Claim("A-1", "The error is small.", "", check, ""))


def test_addresses_of_objects_do_not_count():
    """Also where objects are the keys of a table that a measure uses."""

    class Thing:
        pass

    prints = set()
    for _ in range(3):
        table = {Thing(): 1}
        check = Check("x", lambda arms, config, table=table: len(table), AtMost(2.0), "a")
        prints.add(fingerprint(Claim("X-1", "A thing", "ours", check, "none")))
    assert len(prints) == 1


def test_lambdas_of_one_line_are_told_apart():
    pair = (lambda arms, config: arms["main"], lambda arms, config: arms["other"])
    # The same expression elsewhere, and with another lambda around it.
    same = lambda arms, config: arms["main"]  # noqa: E731
    around = lambda: lambda arms, config: arms["main"]  # noqa: E731
    assert printed(pair[0]) != printed(pair[1])
    assert printed(same) == printed(pair[0]) == printed(around())


def test_closed_over_values_count():
    def measure_of(limit: Any) -> Callable[..., Any]:
        return lambda arms, config: arms["main"] > limit

    limits = (1.0, 2.0, np.arange(3), np.arange(4), measure_of, printed)
    prints = [printed(measure_of(limit)) for limit in limits]
    assert len(set(prints)) == len(limits)
    assert printed(measure_of(np.arange(3))) == prints[2]


def test_a_default_of_a_lambda_counts():
    """As in a loop, where the closed-over name would be the last one."""
    measures = [lambda arms, config, name=name: arms[name] for name in ("main", "other")]
    assert len(set(map(printed, measures))) == 2


def test_a_function_that_calls_itself_is_read_once():
    def down(number: int) -> int:
        return number and down(number - 1)

    def up(number: int) -> int:
        return number and -up(number - 1)

    assert printed(down) == printed(down) != printed(up)


@dataclasses.dataclass(frozen=True)
class Measure:
    """A measure with settings."""

    power: float = 1.0

    def __call__(self, arms: Any, config: Any) -> Any:
        return arms["main"] ** self.power

    def method(self, arms: Any, config: Any) -> Any:
        return arms["other"] ** self.power


def test_objects_and_methods_are_measures():
    measures = [Measure(), Measure(2.0), Measure().method, Measure(2.0).method]
    assert len(set(map(printed, measures))) == 4
    assert printed(Measure(2.0)) == printed(Measure(2.0))


def test_a_function_without_source_counts_by_its_code():
    def made(expression: str) -> Callable[..., Any]:
        here: dict[str, Any] = {}
        exec(f"def measure(arms, config):\n    return [one for one in {expression}]", here)
        return here["measure"]

    assert printed(made("arms['main']")) == printed(made("arms['main']"))
    assert printed(made("arms['main']")) != printed(made("arms['other']"))
    assert printed(made("{'a', 'b', 'c'}")) == printed(made("{'c', 'b', 'a'}"))


def test_builtins_and_functions_of_libraries_count_by_name():
    assert printed(max) != printed(min)
    statistics = [Pooled(function=np.median), Pooled(function=np.mean), Mean(), None]
    assert len({printed(Measure(), statistic=one) for one in statistics}) == 3, "None is the mean"
    wrapped = functools.wraps(printed)(lambda *given: None)
    assert printed(wrapped) == printed(printed), "a decorator counts where it stands"


# -- the commit ------------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    own = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
    done = subprocess.run(
        ("git", "-C", str(folder), *own, *arguments), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A study in a repository with one commit."""
    monkeypatch.delenv(VARIABLE, raising=False)
    module = loaded(tmp_path)
    folder = folder_of(module)
    git(folder, "init", "--quiet")
    (folder / ".gitignore").write_text("__pycache__\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=Add a study")
    return module


def test_the_commit_of_a_study_is_that_of_its_repository(repository):
    head = git(folder_of(repository), "rev-parse", "HEAD")
    assert len(head) == 40
    assert commit_of(repository.experiment) == head
    assert commit_of(functools.partial(repository.experiment, 1)) == head


@pytest.mark.parametrize("name", ["own_study.py", "helper.py"])
def test_a_changed_file_is_said(name: str, repository):
    file = folder_of(repository) / name
    file.write_text(file.read_text() + "# more\n")
    head = git(folder_of(repository), "rev-parse", "HEAD")
    assert commit_of(repository.experiment) == f"{head}+changes"
    git(folder_of(repository), "add", ".")
    assert commit_of(repository.experiment) == f"{head}+changes", "added is not committed"
    git(folder_of(repository), "commit", "--quiet", "--message=Change it")
    assert commit_of(repository.experiment) == git(folder_of(repository), "rev-parse", "HEAD")


def test_new_python_files_are_changes_and_records_are_not(repository):
    folder = folder_of(repository)
    (folder / "runs").mkdir()
    (folder / "runs" / "record.nc").write_bytes(b"record")
    head = git(folder, "rev-parse", "HEAD")
    assert commit_of(repository.experiment) == head
    (folder / "deep").mkdir()
    (folder / "deep" / "other.py").write_text("")
    assert commit_of(repository.experiment) == f"{head}+changes"


def test_a_file_that_the_repository_does_not_track_has_no_commit(repository):
    inside = loaded(folder_of(repository))
    assert commit_of(inside.experiment) == ""


def test_a_repository_without_a_commit_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    module = loaded(tmp_path)
    git(folder_of(module), "init", "--quiet")
    git(folder_of(module), "add", ".")
    assert commit_of(module.experiment) == ""


def test_without_repository_git_or_file_there_is_no_commit(repository, tmp_path, monkeypatch):
    # The folder for tests may itself lie in a repository.
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    assert commit_of(loaded(tmp_path).experiment) == ""
    assert commit_of(max) == ""
    here: dict[str, Any] = {}
    exec("def experiment(config, lab): pass", here)
    assert commit_of(here["experiment"]) == ""
    assert commit_of(repository.experiment) != ""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(repository.experiment) == ""


@pytest.mark.parametrize("given", ["0123456", "0123456789abcdef" * 4, "0123456+changes"])
def test_the_commit_may_be_passed_along(given: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, given)
    assert commit_of(max) == given


def test_a_commit_that_is_passed_along_hides_no_changes(repository, monkeypatch):
    folder = folder_of(repository)
    head = git(folder, "rev-parse", "HEAD")
    monkeypatch.setenv(VARIABLE, head)
    assert commit_of(repository.experiment) == head
    (folder / "helper.py").write_text("VALUE = 9\n")
    assert commit_of(repository.experiment) == f"{head}+changes"
    monkeypatch.setenv(VARIABLE, head[:8])
    assert commit_of(repository.experiment) == f"{head}+changes", "its first digits will do"
    monkeypatch.setenv(VARIABLE, "ab" * 20)
    assert commit_of(repository.experiment) == "ab" * 20, "a copy of another commit"


@pytest.mark.parametrize(
    "given", ["main", "012345", "0123456 ", "0123456+", "0123456\n", "ABCDEF0"]
)
def test_what_is_no_commit_is_refused(given: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(ConfigError, match=r"SACCADE_COMMIT: got .*allowed: a commit's hexadecimal"):
        commit_of(max)


# -- records ---------------------------------------------------------------------------------------


def with_bound(study: Study[Any], bound: Any) -> Study[Any]:
    """The study with another bound."""
    (claim,) = study.claims
    (check,) = claim.checks  # pyright: ignore[reportGeneralTypeIssues]
    new = dataclasses.replace(claim, checks=dataclasses.replace(check, bound=bound))
    return dataclasses.replace(study, claims=(new,))


def test_a_record_of_a_clean_commit_is_registered_until_the_claim_changes(repository, tmp_path):
    study = repository.STUDY
    record = study.run(study.config("quick"), Lab(tmp_path / "cache", progress=None), "quick")
    assert record.commit == git(folder_of(repository), "rev-parse", "HEAD")
    record.save(tmp_path / "record.nc")
    study.with_verdicts(record.compact()).save(tmp_path / "small.nc.gz")
    files = [Record.open(tmp_path / name) for name in ("record.nc", "small.nc.gz")]
    for one in (record, *files):
        assert one.verdicts["X-1"]["registered"]
        assert study.judge(one)[0].registered
        (judgement,) = with_bound(study, AtMost(11.0)).judge(one)
        assert (judgement.verdict, judgement.registered) == ("holds", False)
        assert with_bound(study, AtMost(10.0)).judge(one)[0].registered
        assert not with_bound(study, Below(10.0)).judge(one)[0].registered


def test_a_record_of_changed_files_is_exploratory(repository, tmp_path):
    (folder_of(repository) / "new.py").write_text("")
    study = repository.STUDY
    record = study.run(study.config("quick"), Lab(tmp_path / "cache", progress=None), "quick")
    assert record.commit.endswith("+changes")
    assert not study.judge(record)[0].registered


def test_commit_and_claims_are_those_before_the_experiment(repository, unchanged, tmp_path):
    """Files that change while a training runs are not those that it was started with."""
    file, study = Path(repository.__file__), repository.STUDY
    head = git(folder_of(repository), "rev-parse", "HEAD")

    def changing(*parts: Any) -> Arm:
        file.write_text(file.read_text().replace("** power", "* power"))
        return Arm(*parts)

    repository.Arm = changing
    record = study.run(study.config("quick"), Lab(tmp_path / "cache", progress=None), "quick")
    assert (record.commit, record.fingerprints) == (head, {"X-1": unchanged})
    assert study.judge(record)[0].registered
    assert commit_of(repository.experiment) == f"{head}+changes"


def test_a_claim_of_another_fingerprint_or_none_is_exploratory():
    claim = Claim("A-1", "It is small.", "", Check("error", Measure(), AtMost(1.0)), "")
    own = fingerprint(claim)
    assert is_registered("0123456", own, claim)
    for commit, stored in (("", own), ("0123456+changes", own), ("0123456", None), ("0123456", "")):
        assert not is_registered(commit, stored, claim)
