"""Stopping and states: asked to stop, deaf to interrupts, what a state holds and how often one
is written.
"""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from word_table import Table, WordList, WordTableConfig, without_seconds

import saccade.train.run
from saccade.errors import InterruptedTrainingError
from saccade.train.engine import Engine
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam
from saccade.train.recipe import Recipe
from saccade.train.storage import read_state, write_state
from saccade.train.training import TrainedArm
from saccade.workers.progress import Progress


def train(lab: Lab, steps: int = 60) -> TrainedArm:
    """Four members, so two per device, with Adam, which has moments that must survive a stop."""
    return lab.train(Recipe(WordList(), WordTableConfig(), Adam(0.1), steps, probes=(Table(),)), 4)


def state_file(lab: Lab, training: TrainedArm) -> Path:
    return lab.folder / f"{training.digest[:24]}.training"


@pytest.fixture(scope="module")
def plain(lab: Lab) -> TrainedArm:
    return train(lab)


# -- stopping --------------------------------------------------------------------------------------


def test_training_that_is_asked_to_stop_goes_on_to_the_same_bits(plain: TrainedArm, tmp_path: Path):
    asked = iter([False, False, True])
    with pytest.raises(
        InterruptedTrainingError,
        match=r"stopped training at step \d+ of 60; the same command goes on from there",
    ):
        train(Lab(tmp_path, progress=None, asked_to_stop=lambda: next(asked)))
    header, arrays = read_state(state_file(Lab(tmp_path, progress=None), plain))
    assert 0 < header["step"] < 60
    assert not header["finished"]
    assert len(arrays["probes:loss"]) == 1 + header["step"] // 10
    resumed = train(Lab(tmp_path, progress=None, asked_to_stop=lambda: False))
    xr.testing.assert_identical(
        without_seconds(resumed.trajectory), without_seconds(plain.trajectory)
    )
    np.testing.assert_array_equal(resumed.models.table, plain.models.table)


def test_every_sitting_gets_on_even_if_it_is_asked_to_stop_at_once(lab: Lab, tmp_path: Path):
    own = Lab(tmp_path, progress=None, asked_to_stop=lambda: True)
    with pytest.raises(InterruptedTrainingError, match="stopped training at step 1 of 2;"):
        train(own, 2)
    with pytest.raises(
        InterruptedTrainingError,
        match="stopped after training, which is finished; the same command goes on",
    ):
        train(own, 2)
    # Of a finished one nothing is asked.
    xr.testing.assert_identical(
        without_seconds(train(own, 2).trajectory), without_seconds(train(lab, 2).trajectory)
    )


def test_process_that_ignores_interrupts_goes_on_ignoring_them(plain: TrainedArm, tmp_path: Path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        through = train(Lab(tmp_path, progress=lambda event: os.kill(os.getpid(), signal.SIGINT)))
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    xr.testing.assert_identical(
        without_seconds(through.trajectory), without_seconds(plain.trajectory)
    )


# -- states ----------------------------------------------------------------------------------------


def test_finished_state_has_no_optimiser_and_an_unfinished_one_has(
    lab: Lab, plain: TrainedArm, tmp_path: Path
):
    """Adam keeps two moments of every number: they go on with a training, and end with it."""

    def tables(folder: Lab) -> list[np.ndarray]:
        _, arrays = read_state(state_file(folder, plain))
        return [
            array
            for name, array in arrays.items()
            if name.startswith("carry:") and array.shape == plain.models.table.shape
        ]

    own = Lab(tmp_path, progress=None, asked_to_stop=lambda: True)
    with pytest.raises(InterruptedTrainingError):
        train(own)
    _, mean, square = tables(own)
    # After one step the moments are 0.1 and 0.001 of the gradient and of its square.
    np.testing.assert_allclose(square, 0.1 * mean**2, rtol=1e-4)
    assert np.all(mean != 0)

    resumed = train(Lab(tmp_path, progress=None))
    from_the_cache = train(Lab(tmp_path, progress=None))
    for folder in (lab, own):
        (table,) = tables(folder)
        np.testing.assert_array_equal(table, plain.trajectory["table"].isel(step=-1))
    for training in (plain, resumed, from_the_cache):
        np.testing.assert_array_equal(
            training.models.table, plain.trajectory["table"].isel(step=-1)
        )
        xr.testing.assert_identical(
            without_seconds(training.trajectory), without_seconds(plain.trajectory)
        )


class Clock:
    """Stands for the module `time`: goes on only when it is set."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock by which a dispatch, which is then of one step, takes a second, and nothing else
    takes any time.
    """
    clock, advance = Clock(), Engine.advance

    def slow(*arguments):
        clock.now += 1
        return advance(*arguments)

    monkeypatch.setattr(saccade.train.run, "time", clock)
    monkeypatch.setattr(Engine, "advance", slow)
    return clock


@pytest.mark.parametrize(("interval", "writing", "gap"), [(0, 0, 1), (0, 1, 21), (9.5, 1, 30)])
def test_states_are_written_rarely_if_that_takes_long(
    clock: Clock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    interval: float,
    writing: float,
    gap: int,
):
    """From the end of one to the next: the interval, and at least 20 times as long as the last
    one took.
    """
    steps: list[int] = []

    def written(path: Path, header: dict, arrays: dict) -> None:
        del path, arrays
        if not header["finished"]:
            steps.append(header["step"])
        clock.now += writing

    monkeypatch.setattr(saccade.train.run, "write_state", written)
    train(Lab(tmp_path, progress=None, state_interval=interval), 50)
    assert steps == list(range(1 if interval == 0 else 10, 50, gap))


def test_progress_tells_the_seconds_of_its_own_sitting(plain: TrainedArm, tmp_path: Path):
    with pytest.raises(InterruptedTrainingError):
        train(Lab(tmp_path, progress=None, asked_to_stop=lambda: True))
    file = state_file(Lab(tmp_path, progress=None), plain)
    header, arrays = read_state(file)
    write_state(file, header | {"seconds": 1000.0}, arrays)  # a long sitting
    heard: list[Progress] = []
    begun = time.monotonic()
    resumed = train(Lab(tmp_path, progress=heard.append))
    seconds = [event.seconds for event in heard]
    assert seconds == sorted(seconds)
    assert 0 < seconds[0] <= seconds[-1] <= time.monotonic() - begun < 1000
    assert 1000 < resumed.seconds < 1000 + time.monotonic() - begun
