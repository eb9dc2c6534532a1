"""Processes of this machine: results, faults, and the user's code."""

import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_weight import train

from saccade.errors import ConfigError, FileError
from saccade.train.lab import Lab
from saccade.workers.named import scheduler_of
from saccade.workers.progress import Progress
from saccade.workers.schedulers import (
    Failure,
    LocalProcesses,
    Shared,
    asked_to_stop,
    report,
)


def nothing(place: int, progress: Progress) -> None:
    pass


def squared(value: int) -> int:
    report(Progress("squaring", value, 3, 0.0, 0, 1, None))
    return value**2


def added(shared: int, value: int) -> int:
    return shared + value


def called(function: Any) -> Any:
    return function()


def unsendable() -> Any:
    return (one for one in ())  # a generator cannot be pickled


def refused(value: int) -> None:
    raise ConfigError(f"value: got {value}, allowed: none")


def broken(marker: str, kind: str) -> int:
    """Fails twice, then succeeds."""
    tries = len(list(Path(marker).iterdir()))
    (Path(marker) / str(tries)).touch()
    if tries < 2:
        if kind == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "disk":
            raise FileError("cannot write: no space left on device")
        raise ValueError("an odd moment")
    return tries


def dies(value: int) -> int:
    if value == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def stopped(marker: str) -> None:
    report(Progress("waiting", 0, 1, 0.0, 0, 1, None))
    while not asked_to_stop():
        time.sleep(0.05)
    Path(marker).write_text(str(os.getpid()))


@pytest.fixture
def processes():
    scheduler = LocalProcesses(2, one_core=False)
    yield scheduler
    scheduler.close()


def test_results_and_progress_come_back(processes):
    told = []
    done = processes.results(squared, range(3), lambda at: (at + 1,), lambda *it: told.append(it))
    assert dict(done) == {0: 1, 1: 4, 2: 9}
    assert sorted((place, progress.step) for place, progress in told) == [(0, 1), (1, 2), (2, 3)]


def test_the_shared_argument_is_that_of_the_call(processes):
    for shared in (10, 20):
        done = processes.results(added, range(4), lambda at: (at,), nothing, Shared(shared))
        assert dict(done) == {at: shared + at for at in range(4)}


def test_a_study_reaches_workers_whatever_else_was_executed(processes, tmp_path):
    """Two studies import packages of one name; the first one's is no longer imported here."""
    from saccade.workers.code import executed

    functions = {}
    for name in ("one", "two"):
        (tmp_path / name / "package").mkdir(parents=True)
        (tmp_path / name / "package" / "__init__.py").touch()
        (tmp_path / name / "package" / "inner.py").write_text(f"VALUE = {name!r}\n")
        file = tmp_path / name / "study.py"
        source = b"from package.inner import VALUE\n\n\ndef value():\n    return VALUE\n"
        file.write_bytes(source)
        functions[name] = executed(file, source, file).value
    for name, function in functions.items():
        done = processes.results(called, [0], lambda _: (), nothing, Shared(function))
        assert dict(done) == {0: name}
    done = processes.results(added, [0], lambda _: (1,), nothing, Shared(1))
    assert dict(done) == {0: 2}


def test_a_name_that_another_file_has_taken_brings_that_file_alone(tmp_path):
    from saccade.workers.code import bundled, executed

    for name in ("gone", "taken"):
        (tmp_path / name).mkdir()
        file = tmp_path / name / "a_study_of_one_name.py"
        source = f"NAME = {name!r}\n".encode()
        file.write_bytes(source)
        module = executed(file, source, file).__name__
        if name == "gone":
            del sys.modules[module]
    sent = [content for *_, content, named in bundled(module.encode()) if named == module]
    assert sent == [b"NAME = 'taken'\n"]
    del sys.modules[module]


def test_an_error_of_the_user_is_raised_at_once(processes):
    with pytest.raises(ConfigError, match="got 7"):
        list(processes.results(refused, range(9), lambda at: (7,), nothing))


@pytest.mark.parametrize("kind", ["killed", "disk", "odd"])
def test_what_fails_twice_is_done_the_third_time(processes, tmp_path, kind):
    done = processes.results(broken, [0], lambda at: (str(tmp_path), kind), nothing)
    assert dict(done) == {0: 2}


def test_what_always_dies_is_given_up_and_the_rest_is_done(processes):
    done = dict(processes.results(dies, range(5), lambda at: (at,), nothing))
    assert isinstance(done[1], Failure)
    assert "killed by SIGKILL" in str(done.pop(1))
    assert done == {at: at for at in (0, 2, 3, 4)}


def test_a_result_that_cannot_be_sent_is_named(processes):
    ((_, failure),) = processes.results(unsendable, [0], lambda _: (), nothing)
    assert isinstance(failure, Failure)
    assert "the result of a call cannot be sent" in str(failure)


def test_an_interrupted_caller_stops_the_others(processes, tmp_path):
    marker = tmp_path / "stopped"

    def interrupt(place: int, progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(processes.results(stopped, [0], lambda at: (str(marker),), interrupt))
    assert int(marker.read_text()) != os.getpid()


@pytest.mark.parametrize("text", ["", "local", "local:0", "local:-1", "host:8786", "dask:"])
def test_what_names_no_scheduler_is_refused(text, tmp_path):
    with pytest.raises(ConfigError, match=r"scheduler: got .* allowed: local:N"):
        scheduler_of(text)
    with pytest.raises(ConfigError, match="scheduler: got"):
        Lab(tmp_path, scheduler=text)


# -- trainings -------------------------------------------------------------------------------------


def test_a_chunk_that_is_trained_again_meanwhile_is_refused(tmp_path):
    """Its file holds a state in the middle: half a result must not pass for a whole one."""
    from saccade.train.storage import read_state, write_state

    lab = Lab(tmp_path, progress=None, chunk=2)
    training = train(lab, 4)
    file = next(iter(sorted(tmp_path.glob("*.training"))))
    header, arrays = read_state(file)
    write_state(file, header | {"finished": False}, arrays)
    with pytest.raises(FileError, match="was finished, and is not now: another process trains"):
        _ = training.models
    write_state(file, header, arrays)
    assert training.models.weight.shape == (4,)


def test_large_variables_lie_in_a_file_that_is_gone_with_them(tmp_path, monkeypatch):
    from saccade.train import dataset

    whole = train(Lab(tmp_path / "a", progress=None), 5)
    monkeypatch.setattr(dataset, "IN_MEMORY", 0)
    chunked = train(Lab(tmp_path / "b", progress=None, chunk=2), 5)
    np.testing.assert_allclose(chunked.trajectory["loss"], whole.trajectory["loss"], rtol=1e-6)
    base: Any = chunked.trajectory["loss"].values
    while base is not None and not isinstance(base, np.memmap):
        base = base.base
    assert base is not None
    assert {one.suffix for one in (tmp_path / "b").iterdir()} <= {".training", ".lock", ""}


def test_code_is_unpacked_where_nobody_else_writes(tmp_path, monkeypatch):
    """A folder that somebody else prepared, open to all, is not used."""
    from saccade.workers import code

    prepared = tmp_path / f"saccade-code-{os.getuid()}"
    prepared.mkdir(mode=0o777)
    prepared.chmod(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code._own_folder.cache_clear()
    try:
        folder = code._own_folder()
    finally:
        code._own_folder.cache_clear()
    assert folder != prepared
    assert folder.stat().st_mode & 0o077 == 0
