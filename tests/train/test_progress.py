"""The default display: a live line on a terminal or in a notebook, else one line per training."""

import dataclasses
import io
import math
import sys

import pytest

from saccade.workers.progress import Progress, ProgressLine, duration

UNDER_WAY = Progress("sen FC", 100, 5000, 0.51234, 1, 20, 12.0, seconds=3.0)
FINISHED = Progress("sen FC", 5000, 5000, 0.028, 0, 20, None, True, seconds=30.2)
CACHED = Progress("sen FC", 5000, 5000, math.nan, 0, 20, None, True, "from the cache")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Notebook(io.StringIO):
    """Stands for the stream that a notebook's kernel puts in place of stdout."""


Notebook.__module__ = "ipykernel.iostream"


def shown(stream: io.StringIO, *progress: Progress) -> str:
    display = ProgressLine(stream)
    for one in progress:
        display(one)
    return stream.getvalue()


def test_texts():
    assert str(UNDER_WAY) == (
        "sen FC: 100 of 5000 steps, loss 0.512, 1 of 20 members diverged, 12.0 s left"
    )
    assert str(FINISHED) == "sen FC: 5000 of 5000 steps, loss 0.028, 30.2 s"
    stopped = dataclasses.replace(FINISHED, step=1300, may_stop=True)
    assert str(stopped) == "sen FC: stopped early, at step 1300, loss 0.028, 30.2 s"
    assert dataclasses.replace(UNDER_WAY, may_stop=True).ending == "at most 12.0 s left"
    assert str(CACHED) == "sen FC: 5000 of 5000 steps, from the cache"
    assert str(Progress("lemma 2", 0, 0, math.nan, 0, 1, None, True, "from the cache")) == (
        "lemma 2: from the cache"
    ), "work that is no training"
    assert str(Progress("a", 0, 10, math.nan, 0, 1, None)) == "a: 0 of 10 steps"
    assert CACHED.from_cache
    assert not FINISHED.from_cache


@pytest.mark.parametrize("stream", [Terminal, Notebook])
def test_one_live_line_on_a_terminal_and_in_a_notebook(stream, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    text = shown(stream(), UNDER_WAY, FINISHED, CACHED)
    first, second, third = text.split("\r")[1:]
    assert first == str(UNDER_WAY)
    assert second == str(FINISHED).ljust(len(first)) + "\n", "a shorter line covers a longer one"
    assert third == f"{CACHED}\n"


def test_a_line_does_not_wrap(monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    text = shown(Terminal(), UNDER_WAY, FINISHED)
    assert max(map(len, text.replace("\n", "\r").split("\r"))) < 30


def test_elsewhere_there_is_one_line_per_training():
    assert shown(io.StringIO(), UNDER_WAY, UNDER_WAY, FINISHED, CACHED) == f"{FINISHED}\n{CACHED}\n"


def test_a_note_is_shown_at_once():
    waiting = Progress("a", 0, 9, math.nan, 0, 1, None, note="another process is training this")
    assert shown(io.StringIO(), waiting) == f"{waiting}\n"
    assert shown(Terminal(), waiting) == f"\r{waiting}\n"


def test_letters_that_the_stream_lacks_are_replaced():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    ProgressLine(stream)(Progress("λ", 1, 1, 0.5, 0, 1, None, True))
    assert stream.buffer.getvalue() == b"?: 1 of 1 steps, loss 0.5, 0.0 s\n"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_terminal_shows_it_on_stderr_and_a_notebook_below_the_cell(monkeypatch, capsys):
    ProgressLine()(FINISHED)
    assert capsys.readouterr() == ("", f"{FINISHED}\n")
    monkeypatch.setattr(sys, "stdout", cell := Notebook())
    ProgressLine()(FINISHED)
    assert cell.getvalue() == f"\r{FINISHED}\n"
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(7.24, "7.2 s"), (99.99, "2 min"), (600, "10 min"), (7200, "2.0 h"), (math.inf, "n/a")],
)
def test_duration(seconds: float, text: str):
    assert duration(seconds) == text
