"""Killed, interrupted and doubled: what a training leaves is whole, and what comes of it has the
same bits.
"""

import dataclasses
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import long_training
import pytest

from saccade.train.lab import Lab
from saccade.train.storage import read_state
from saccade.workers.progress import Progress

pytestmark = pytest.mark.usefixtures("compiled_as_in_use")

KILLS = 3


@pytest.fixture(scope="module")
def unbroken(lab: Lab) -> tuple[str, str]:
    """Digest of the training, and of the numbers of a run without any break."""
    training = long_training.train(lab)
    return training.digest, long_training.numbers(training)


def started(folder: Path) -> subprocess.Popen[str]:
    """The long training in a process of its own, with the programs that were compiled before."""
    command = [sys.executable, str(Path(long_training.__file__)), str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit, "nothing happened for a minute"
        time.sleep(0.005)


def finished_here(folder: Path) -> tuple[str, list[Progress]]:
    """Run the same training to its end in this process; numbers and what was said."""
    heard: list[Progress] = []
    training = long_training.train(Lab(folder, progress=heard.append))
    return long_training.numbers(training), heard


def test_killed_training_ends_with_the_bits_of_an_unbroken_one(
    lab: Lab, unbroken: tuple[str, str], tmp_path: Path
):
    digest, numbers = unbroken
    file = tmp_path / f"{digest[:24]}.training"
    moments = random.Random(20210)
    reached = [0]
    for _ in range(KILLS):
        process = started(tmp_path)
        try:
            # Kill only after this sitting has written a state: the file is another one than before.
            before = file.stat().st_ino if file.exists() else None
            wait_until(
                lambda before=before: file.exists() and file.stat().st_ino != before, process
            )
            time.sleep(moments.uniform(0, 0.25))
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        assert process.returncode == -signal.SIGKILL
        header, _ = read_state(file)  # whole, at whatever moment the kill came
        assert not header["finished"]
        reached.append(header["step"])
    assert reached == sorted(set(reached)), (
        "every sitting goes on from where the last one was killed"
    )
    assert 0 < reached[1] < reached[-1] < long_training.STEPS

    ended, heard = finished_here(tmp_path)
    assert heard[0].step > reached[-1]
    assert ended == numbers


@pytest.mark.usefixtures("interruptible")
def test_interrupted_training_says_how_to_go_on_and_does(
    lab: Lab, unbroken: tuple[str, str], tmp_path: Path
):
    digest, numbers = unbroken
    file = tmp_path / f"{digest[:24]}.training"
    process = started(tmp_path)
    try:
        wait_until(file.exists, process)
        process.send_signal(signal.SIGINT)
        said, complaints = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130, complaints
    header, _ = read_state(file)
    assert 0 < header["step"] < long_training.STEPS
    last = said.splitlines()[-1]
    assert (
        last == f"stopped long training at step {header['step']} of {long_training.STEPS}; the same"
        " command goes on from there"
    )
    assert "Traceback" not in complaints

    ended, heard = finished_here(tmp_path)
    assert heard[0].step > header["step"]
    assert ended == numbers


def test_two_processes_on_one_folder_end_with_the_same_bits(
    lab: Lab, unbroken: tuple[str, str], tmp_path: Path
):
    digest, numbers = unbroken
    processes = [started(tmp_path) for _ in range(2)]
    try:
        told = [process.communicate(timeout=120) for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], told
    assert [said.splitlines()[-2:] for said, _ in told] == [[numbers] * 2] * 2
    # One trains and the other is answered with what the first one left.
    assert sorted("from the cache" in said for said, _ in told) == [False, True]
    header, _ = read_state(tmp_path / f"{digest[:24]}.training")
    assert header["finished"]
    assert not list(tmp_path.glob(".*.part"))


def test_killed_fresh_training_leaves_a_state_that_goes_on(
    lab: Lab, unbroken: tuple[str, str], tmp_path: Path
):
    """`fresh` forgets a finished training, not one that is under way."""

    class _KilledError(Exception):
        pass

    def fall_over(event: Progress) -> None:
        if event.step > 1000:
            raise _KilledError

    digest, numbers = unbroken
    file = tmp_path / f"{digest[:24]}.training"
    file.write_bytes((lab.folder / file.name).read_bytes())
    with pytest.raises(_KilledError):
        long_training.train(Lab(tmp_path, fresh=True, state_interval=0, progress=fall_over))
    header, _ = read_state(file)
    assert 0 < header["step"] <= 1000
    heard: list[Progress] = []
    fresh = Lab(tmp_path, fresh=True, progress=heard.append)
    assert long_training.numbers(long_training.train(dataclasses.replace(fresh))) == numbers
    assert heard[0].step > header["step"]
