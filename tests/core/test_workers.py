import os
import time

import pytest

from saccade.core.errors import ConfigError
from saccade.core.lab import Progress
from saccade.core.workers import asked_to_stop, report, run_in_processes


def squared(value: int) -> int:
    report(Progress("squaring", value, 3, 0.0, 0, 1, None))
    return value**2


def refused(value: int) -> None:
    raise ConfigError(f"value: got {value}, allowed: none")


def stopped(marker: str) -> None:
    report(Progress("waiting", 0, 1, 0.0, 0, 1, None))
    while not asked_to_stop():
        time.sleep(0.05)
    with open(marker, "w") as file:
        file.write(str(os.getpid()))


def test_results_and_progress_come_back():
    told = []
    results = dict(run_in_processes(squared, [(1,), (2,), (3,)], 2, told.append))
    assert results == {0: 1, 1: 4, 2: 9}
    assert sorted(progress.step for progress in told) == [1, 2, 3]


def test_an_error_is_the_callers():
    with pytest.raises(ConfigError, match="got 7"):
        list(run_in_processes(refused, [(7,)], 2, print))


def test_an_interrupted_caller_stops_the_others(tmp_path):
    marker = tmp_path / "stopped"

    def interrupt(progress: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        list(run_in_processes(stopped, [(str(marker),)], 1, interrupt))
    assert int(marker.read_text()) != os.getpid()
