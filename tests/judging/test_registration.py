"""Registered claims: what a claim may change without losing its label, what it may not, and the
commit of a run.
"""

import dataclasses
import functools
import itertools
import json
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from saccade.errors import ConfigError
from saccade.judging.bound import AtMost, Below, Within
from saccade.judging.claim import Check, Claim
from saccade.judging.evidence import TOLERANCE, differences
from saccade.judging.premises import PremiseNotMetError, noted_premises, require_premise
from saccade.judging.registration import VARIABLE, commit_of
from saccade.judging.statistics import EverySeed
from saccade.records.record import Arm, Record
from saccade.report.ledger import ledger_markdown
from saccade.train.lab import Lab

STUDY = '''
"""A study."""

import dataclasses
import functools

import numpy as np
import xarray as xr
import helper
from helper import scaled

from saccade.judging.bound import AtMost, Below
from saccade.judging.claim import Check, Claim
from saccade.judging.premises import require_premise
from saccade.records.record import Arm
from saccade.judging.statistics import EverySeed, Pooled
from saccade.core.study import Study

LIMITS = {"low": 0.1, "high": 2.3}
WORDS = ("low", "filler", "stop", "high")


@dataclasses.dataclass(frozen=True)
class Config:
    seeds: int = 4


def experiment(config, lab):
    error = xr.DataArray(np.float32([[0.5], [0.6], [0.9], [1.7]]), dims=("seed", "step"))
    lost = xr.DataArray(np.full(config.seeds, -1), dims="seed")
    trajectory = xr.Dataset({"error": error, "diverged_at": lost}, {"step": [0]})
    return {"main": Arm(trajectory)}


def measure(power, arms, config, *, offset=0.0):
    """What is measured."""
    require_premise(config.seeds > 1, "several seeds")
    total = arms["main"].end["error"]  # a comment
    for word in WORDS:
        if word in LIMITS:
            total = total + LIMITS[word]
    return scaled(total) ** power + helper.moved(offset)


def middle(arms, config):
    return (arms["main"].end["error"],)


CHECK = Check("error", functools.partial(measure, 1.0), AtMost(10.0), "main", EverySeed())
POOLED = Check("middle", middle, AtMost(10.0), "main", Pooled(function=np.mean))
CLAIM = Claim("X-1", "The error is small.", "section 1", (CHECK, POOLED), "none", reason="")
STUDY = Study("own_study", "Own", "Nobody 2026", {"quick": Config()}, experiment, (CLAIM,))
'''
HELPER = """
FACTOR = 2.0


def scaled(number):
    return FACTOR * number


def moved(number):
    return number + scaled(0.0)
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


def kept(record: Record, folder: Path) -> Record:
    """A record as its file gives it back."""
    record.save(folder / "kept.nc")
    return Record.open(folder / "kept.nc")


# -- what keeps and what loses the label -----------------------------------------------------------


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of the study, from a clean commit."""
    folder = tmp_path_factory.mktemp("committed")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(VARIABLE, raising=False)
        module = loaded(folder)
        commit_all(folder_of(module))
        study = module.STUDY
        record = study.run(study.config("quick"), Lab(folder / "cache", progress=None), "quick")
    record.save(folder / "record.nc")
    return folder / "record.nc"


def judged_after(file: Path, folder: Path, *edits: tuple[str, str]) -> Any:
    """The claim's judgement on the record once the files have been edited."""
    texts = [STUDY, HELPER]
    for before, after in edits:
        assert any(before in text for text in texts), before
        texts = [text.replace(before, after) for text in texts]
    (judgement,) = loaded(folder, *texts).STUDY.judge(Record.open(file))
    return judgement


def test_the_claim_as_it_was_is_registered(file, tmp_path):
    judgement = judged_after(file, tmp_path)
    assert (judgement.verdict, judgement.registered, judgement.status) == (
        "holds",
        True,
        "registered",
    )
    assert Record.open(file).verdicts["X-1"]["registered"] is True


REFACTORINGS = {
    "a local variable is renamed": [("total", "summed")],
    "a function of another file is renamed": [("moved", "shifted")],
    "a loop becomes an expression, which adds in another order": [
        (
            """    for word in WORDS:
        if word in LIMITS:
            total = total + LIMITS[word]
    return scaled(total)""",
            "    return scaled(sum(LIMITS[word] for word in WORDS if word in LIMITS) + total)",
        )
    ],
    "a partial becomes a lambda": [
        ("functools.partial(measure, 1.0)", "lambda arms, config: measure(1.0, arms, config)")
    ],
    "a constant moves, and numbers are written otherwise": [
        ("FACTOR * number", "number / 0.5"),
        ("AtMost(10.0)", "AtMost(10)"),
        ("** power", "** (power / 1)"),
    ],
    "an equal premise is asked for twice": [
        (
            'require_premise(config.seeds > 1, "several seeds")',
            'for _ in "ab": require_premise(config.seeds > 1, "several seeds")',
        )
    ],
    "comments, explanations and sources change": [
        ("  # a comment", ""),
        ('"""What is measured."""', '"""A measure."""'),
        ('reason=""', 'reason="who knows"'),
        ('"section 1"', '"section 2"'),
    ],
}


@pytest.mark.parametrize("name", REFACTORINGS)
def test_a_refactoring_keeps_the_label(name, file, tmp_path):
    judgement = judged_after(file, tmp_path, *REFACTORINGS[name])
    assert judgement.registered is True


CHEATS = {
    "the statement": [("The error is small.", "The error is tiny.")],
    "the quantity": [('Check("error"', 'Check("the error"')],
    "the bound, by little": [("AtMost(10.0)", "AtMost(10.0000001)")],
    "the bound, in kind": [("AtMost(10.0)", "Below(10.0)")],
    "fewest seeds": [("EverySeed())", "EverySeed(4))")],
    "the statistic": [("EverySeed())", "Pooled(function=np.mean))")],
    "the function of a pooled statistic": [("function=np.mean", "function=np.median")],
    "seeds that are left out": [("EverySeed())", "EverySeed(), left_out='no such word')")],
    "a premise goes": [('    require_premise(config.seeds > 1, "several seeds")\n', "")],
    "a premise comes": [('"several seeds")', '"several seeds"); require_premise(True, "more")')],
    "the arms": [('AtMost(10.0), "main", EverySeed', 'AtMost(10.0), "m*", EverySeed')],
    "the members": [("EverySeed())", "EverySeed(), where={'rate': 0.1})")],
    "the size that is needed": [
        ('"none", reason', '"none", full_size=(lambda config: config.seeds > 2, "more"), reason')
    ],
    "a check goes": [("(CHECK, POOLED)", "CHECK")],
    "a bound of the same name": [
        ("LIMITS =", 'Own = type("AtMost", (AtMost,), {})\nLIMITS ='),
        ('AtMost(10.0), "main", EverySeed', 'Own(10.0), "main", EverySeed'),
    ],
    "the measure": [("** power", "* power * 1.00001")],
    "a constant": [("FACTOR = 2.0", "FACTOR = 2.0001")],
    "the scale": [("EverySeed())", "EverySeed(), scale=1e3)")],
}


@pytest.mark.parametrize("name", CHEATS)
def test_another_claim_is_exploratory(name, file, tmp_path):
    judgement = judged_after(file, tmp_path, *CHEATS[name])
    assert judgement.verdict == "holds", "the verdict alone would not show it"
    assert (judgement.registered, judgement.status) == (False, "exploratory")


def test_verdicts_are_written_once(file, tmp_path):
    """Neither a copy nor a smaller copy of a record takes the verdicts of edited code."""
    edited = loaded(tmp_path, STUDY.replace("** power", "* power * 1.01")).STUDY
    record = Record.open(file)
    for copy in (record, record.compact()):
        with pytest.raises(ConfigError, match="got one with verdicts, allowed: one without"):
            edited.with_verdicts(copy)
        again = kept(copy, tmp_path)
        assert again.verdicts == record.verdicts
        assert edited.judge(again)[0].registered is False
        assert loaded(tmp_path).STUDY.judge(again)[0].registered is True
    anew = kept(edited.with_verdicts(dataclasses.replace(record, verdicts={})), tmp_path)
    assert anew.commit == "", "nobody says from which commit these verdicts are"
    assert edited.judge(anew)[0].registered is False


@pytest.mark.parametrize("broken", [["x"], [None], {"a": 1}, None, "text"], ids=str)
def test_stored_evidence_that_cannot_be_read_is_another_claim(broken, file, tmp_path):
    record = Record.open(file)
    stored = json.loads(json.dumps(record.verdicts["X-1"]))
    stored["evidence"]["checks"][0]["samples"][0]["values"] = broken
    lying = {"X-1": stored | {"verdict": "fails"}}
    (judgement,) = loaded(tmp_path).STUDY.judge(dataclasses.replace(record, verdicts=lying))
    assert (judgement.verdict, judgement.registered) == ("holds", False)


def test_a_run_judges_the_numbers_that_its_file_has(file, tmp_path):
    """Numbers are rounded to 14 binary digits, and judged after that, in double precision."""
    record = Record.open(file)
    stored = record.verdicts["X-1"]["evidence"]["checks"][0]["samples"][0]
    error = record.arms["main"].trajectory["error"]
    assert error.dtype == np.float32
    assert stored["dims"] == {"seed": 4}
    np.testing.assert_array_equal(
        stored["values"], 2 * (error.values[:, 0].astype(float) + 0.1 + 2.3)
    )
    assert not np.array_equal(error.values[:, 0], np.asarray([0.5, 0.6, 0.9, 1.7], np.float32)), (
        "rounded"
    )


NO_NUMBER = {
    "an arm that was not run": [('AtMost(10.0), "main"', 'AtMost(10.0), "other"')],
    "a premise that is not met": [('config.seeds > 1, "several', 'config.seeds > 9, "several')],
    "nothing but NaN": [("** power", "* np.nan")],
}


@pytest.mark.parametrize("name", NO_NUMBER)
def test_a_number_that_is_lost_costs_the_label(name, file, tmp_path):
    judgement = judged_after(file, tmp_path, *NO_NUMBER[name], ("(CHECK, POOLED)", "CHECK"))
    assert judgement.verdict != "holds"
    assert judgement.registered is False


def test_a_claim_without_a_number_has_no_label(repository, tmp_path):
    (claim,) = repository.STUDY.claims
    none = dataclasses.replace(claim, checks=dataclasses.replace(repository.CHECK, arms="other"))
    study = dataclasses.replace(repository.STUDY, claims=(none,))
    again = kept(study.run(study.config("quick"), Lab(tmp_path, progress=None)), tmp_path)
    (judgement,) = study.judge(again)
    assert (judgement.verdict, judgement.registered) == ("undetermined", None)
    assert (judgement.status, again.verdicts["X-1"]["registered"]) == ("no number", None)


def test_a_record_without_evidence_is_exploratory(file, tmp_path):
    """As a claim that was added after its record was made."""
    record = dataclasses.replace(Record.open(file), verdicts={})
    assert loaded(tmp_path).STUDY.judge(record)[0].registered is False


# -- evidence --------------------------------------------------------------------------------------


SMALL, MANY = AtMost(1.0), AtMost(0.0)


def evidence(values: list[float], bound: Any = SMALL, **options: Any) -> Any:
    """What a claim computes from a record with these errors."""
    error = xr.DataArray(np.asarray(values), dims="seed")
    arm = Arm(xr.Dataset({"error": error}))
    record = Record("any", "quick", {}, {"main": arm}, {}, "CPU", "float64", 1.0)
    measured = lambda arms, config: arms["main"].trajectory["error"]  # noqa: E731
    check = Check("error", measured, bound, "main", EverySeed(), **options)
    return Claim("X-1", "It is small", "ours", check, "none").judge(record, None).evidence


@pytest.mark.parametrize(
    ("bound", "options", "size"),
    [
        (AtMost(1.0), {}, 1.0),
        (AtMost(0.0), {}, 1e-3),
        (AtMost(0.0), {"scale": 1e-3}, 1e-3),
        (AtMost(0.0), {"scale": 50.0}, 50.0),
        (Below(-4.0), {}, 4.0),
        (Within(-7.0, 2.0), {}, 7.0),
    ],
)
def test_samples_are_compared_at_a_millionth_of_the_largest(bound, options, size):
    """Of sample, bound and the scale that the check states."""
    before = evidence([1e-3, 2e-4, 1e-3], bound, **options)
    for share, same in ((0.5, True), (2.0, False)):
        moved = evidence([1e-3 + share * TOLERANCE * size, 2e-4, 1e-3], bound, **options)
        assert (not list(differences(before, moved))) == same


def test_verdicts_are_compared_exactly():
    """A number that crosses its bound within the tolerance is another verdict."""
    before, after = (evidence([limit, 0.5, 0.5]) for limit in (1 + 4e-7, 1 - 1e-7))
    assert [*differences(before, after)] == [
        "the verdict changed from 'fails' to 'holds'",
        "error: the same numbers are judged otherwise",
    ]


def test_means_are_compared_at_the_size_of_their_samples():
    before, after = [1.0, -1.0, 1.0, -1.0], [1.0 + 1e-9, -1.0, 1.0, -1.0]
    assert not list(differences(evidence(before, MANY), evidence(after, MANY)))


def test_zeros_may_be_rounded_otherwise():
    zeros, near, far = ([sample] * 3 for sample in (0.0, -1e-17, -1e-12))
    assert not list(differences(evidence(zeros, MANY), evidence(near, MANY)))
    assert list(differences(evidence(zeros, MANY), evidence(far, MANY)))


@pytest.mark.parametrize("where", [{"rate": range(3)}, {"rate": xr.DataArray([1, 2])}])
def test_evidence_is_plain_json(where):
    def measured(arms: Any, config: Any) -> Any:
        return arms["main"].trajectory["error"]

    check = Check("error", measured, AtMost(1.0), "main", EverySeed(), where=where)
    error = xr.Dataset({"error": ("seed", [0.1, 0.2, 0.3])})
    arm = Arm(error)
    record = Record("any", "quick", {}, {"main": arm}, {}, "CPU", "float64", 1.0)
    found = Claim("X-1", "It is small", "ours", check, "none").judge(record, None).evidence
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.parametrize("scale", [-1.0, np.nan, np.inf])
def test_a_scale_is_a_finite_number(scale):
    with pytest.raises(ConfigError, match=r"got the scale .*allowed: a finite number"):
        Check("error", lambda arms, config: None, AtMost(1.0), scale=scale)


def test_numbers_that_are_not_finite_are_the_same_or_not():
    whole, other = [0.5, np.nan, np.inf], [0.5, np.inf, np.nan]
    assert not list(differences(evidence(whole), evidence(whole)))
    assert list(differences(evidence(whole), evidence(other)))
    assert list(differences(evidence(whole), evidence([0.5, np.nan, -np.inf])))
    assert list(differences(evidence(whole), evidence([0.5, np.nan, 1e30])))
    assert list(differences(evidence(whole), evidence([0.5, np.nan])))


def test_premises_are_noted_in_their_order():
    with noted_premises() as noted:
        require_premise(True, "one")
        with pytest.raises(PremiseNotMetError, match="3 of 4"):
            require_premise(False, "two", "3 of 4")
    assert noted == [("one", True), ("two", False)]
    require_premise(True, "nobody asks")
    assert len(noted) == 2


# -- the commit ------------------------------------------------------------------------------------


def git(folder: Path, *arguments: str) -> str:
    own = ("-c", "user.name=Nobody", "-c", "user.email=nobody@example.org")
    done = subprocess.run(
        ("git", "-C", str(folder), *own, *arguments), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit_all(folder: Path) -> None:
    """Make a repository of a folder."""
    git(folder, "init", "--quiet")
    (folder / ".gitignore").write_text("__pycache__\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message=Add a study")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A study in a repository with one commit."""
    monkeypatch.delenv(VARIABLE, raising=False)
    module = loaded(tmp_path)
    commit_all(folder_of(module))
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
    assert commit_of(max) == f"{given}+stated", "nothing here confirms it"


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
    with pytest.raises(ConfigError, match=f"allowed: that of the repository at hand, {head}"):
        commit_of(repository.experiment)


def test_measures_lie_in_the_commit_as_well(repository, tmp_path):
    """An experiment of a clean commit does not register claims that are written elsewhere."""
    head = git(folder_of(repository), "rev-parse", "HEAD")
    outside = loaded(tmp_path)
    assert commit_of(repository.experiment, [repository.measure]) == head
    assert commit_of(repository.experiment, [repository.measure, xr.concat]) == head, "a library"
    assert commit_of(repository.experiment, [repository.measure, outside.measure]) != head
    study = dataclasses.replace(repository.STUDY, claims=outside.STUDY.claims)
    record = study.run(study.config("quick"), Lab(tmp_path / "cache", progress=None))
    assert kept(record, tmp_path).commit == f"{head}+changes"


@pytest.mark.parametrize(
    "given", ["main", "012345", "0123456 ", "0123456+", "0123456\n", "ABCDEF0"]
)
def test_what_is_no_commit_is_refused(given: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(ConfigError, match=r"SACCADE_COMMIT: got .*allowed: a commit's hexadecimal"):
        commit_of(max)


# -- records ---------------------------------------------------------------------------------------


def test_a_record_of_changed_files_is_exploratory(repository, tmp_path):
    (folder_of(repository) / "new.py").write_text("")
    study = repository.STUDY
    record = study.run(study.config("quick"), Lab(tmp_path / "cache", progress=None), "quick")
    assert record.commit.endswith("+changes")
    assert study.judge(kept(record, tmp_path))[0].registered is False


def test_the_commit_is_that_before_the_experiment(repository, tmp_path):
    """Files that change while a training runs are not those that it was started with."""
    changed, study = Path(repository.__file__), repository.STUDY
    head = git(folder_of(repository), "rev-parse", "HEAD")

    def changing(*parts: Any) -> Arm:
        changed.write_text(changed.read_text().replace("** power", "* power"))
        return Arm(*parts)

    repository.Arm = changing
    record = study.run(study.config("quick"), Lab(tmp_path / "cache", progress=None), "quick")
    assert record.commit == head
    assert study.judge(kept(record, tmp_path))[0].registered is True
    assert commit_of(repository.experiment) == f"{head}+changes"


def test_a_stated_commit_is_registered_and_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "0123456")
    study = loaded(tmp_path).STUDY
    record = study.run(study.config("quick"), Lab(tmp_path / "cache", progress=None), "quick")
    assert record.commit == "0123456+stated"
    again = kept(record, tmp_path)
    assert study.judge(again)[0].registered is True
    assert "commit stated, not verified" in ledger_markdown([(study, again)])
