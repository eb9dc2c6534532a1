"""What the terminal shows, wide or narrow, with and without Unicode."""

import dataclasses
import io
import itertools
import math
import os
import subprocess
import sys

import pytest
from rich.console import Console

from saccade.judging.bound import Verdict
from saccade.judging.claim import Judgement
from saccade.judging.statistics import Finding
from saccade.report.judged import verdict_maps
from saccade.report.ledger import ledger_rows
from saccade.report.terminal import (
    ProgressDisplay,
    Words,
    badge,
    encodable,
    ledger_table,
    plan_table,
    print_to_terminal,
    study_list,
    sweep_tables,
    verdict_table,
)
from saccade.train.plan import Plan
from saccade.workers.progress import Progress


def drawn(*renderables, width: int = 80, encoding: str = "utf-8") -> str:
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, width=width)
    for renderable in renderables:
        console.print(renderable)
    stream.flush()
    return stream.buffer.getvalue().decode(encoding)  # pyright: ignore[reportAttributeAccessIssue]


def test_verdict_table_at_80_columns(study, record):
    text = drawn(verdict_table(study, record, study.judge(record)))
    assert max(map(len, text.splitlines())) <= 80
    for wanted in (
        "A-10",
        "0.011 [0.01, 0.012]",
        "<= 0.02",
        "✓ holds",
        "✗ fails",
        "? undetermined",
        "known:",
        "why: the text leaves out",
        "premise not met",
        "diverged",
    ):
        assert wanted in text, wanted


def test_markup_in_a_statement_is_text(study, record):
    claims = (dataclasses.replace(study.claims[0], statement="[red]plain[/nonsense]"),)
    study = dataclasses.replace(study, claims=claims)
    assert "[red]plain[/nonsense]" in drawn(
        verdict_table(study, record, study.judge(record)), width=120
    )


def test_sweep_maps(swept_study, swept_record, line_swept_record, study, record):
    text = drawn(*sweep_tables(swept_study.judge(swept_record)))
    assert max(map(len, text.splitlines())) <= 80
    assert "rate (down) and variance (across)" in text
    assert text.count("✓") == 4
    assert text.count("✗") == 17
    line = drawn(*sweep_tables(swept_study.judge(line_swept_record)))
    assert "0.011 [0.01, 0.012]" in line
    assert "B-1: rate" in line
    assert sweep_tables(study.judge(record)) == []


def test_three_sweeps_are_sliced():
    finding = Finding("error", "<= 1", "holds", 0.5, 0.4, 0.6, 5)
    cells: tuple[tuple[dict[str, float], Verdict, tuple[Finding, ...]], ...] = tuple(
        (
            {"a": float(a), "b": float(b), "c": float(c)},
            "holds",
            (dataclasses.replace(finding, value=100 * a + 10 * b + c),),
        )
        for a, b, c in itertools.product(range(2), range(3), range(2))
    )
    maps = verdict_maps(Judgement("C-1", "holds", (finding,), cells=cells))
    assert [one.where for one in maps] == ["c = 0", "c = 1"]
    assert [[cell.findings[0].value for cell in row] for _, row in maps[1].rows] == [
        [1, 11, 21],
        [101, 111, 121],
    ]
    assert maps[1].title == "a (down) and b (across), at c = 1"


def test_ledger_table(entries):
    text = drawn(ledger_table(ledger_rows(entries)))
    assert max(map(len, text.splitlines())) <= 80
    for wanted in (
        "A-10",
        "example",
        "paper",
        "✗ fails",
        "as known",
        "known:",
        "? undetermined",
    ):
        assert wanted in text


def test_printing_goes_to_stdout(capsys):
    print_to_terminal(Words("one"), badge("fails"))
    captured = capsys.readouterr()
    assert captured.out == "one\n✗ fails\n"
    assert captured.err == ""


def test_study_list(study, swept_study):
    text = drawn(study_list([study, swept_study]))
    assert max(map(len, text.splitlines())) <= 80
    for wanted in ("example", "swept", "Score and norm grow together", "quick", "paper", "A-10"):
        assert wanted in text


def test_letters_that_the_terminal_lacks_are_replaced(study, record):
    claims = (dataclasses.replace(study.claims[0], statement="λ ≤ 1 … always"),)
    study = dataclasses.replace(study, claims=claims)
    text = drawn(
        verdict_table(study, record, study.judge(record)), study_list([study]), encoding="ascii"
    )
    assert "? <= 1 ... always" in text
    assert "+ holds" in text
    assert encodable("λ", "utf-8") == "λ"


def test_a_process_with_ascii_output_does_not_crash():
    program = (
        "from rich.console import Console; from saccade.report.terminal import badge,"
        " ProgressDisplay, Words\nfrom saccade.workers.progress import"
        " Progress\nConsole().print(badge('holds'), Words('λ'))\nwith ProgressDisplay() as display:"
        " display(Progress('λ', 5, 5, 0.1, 0, 3, None, True))\n"
    )
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        capture_output=True,
        timeout=120,
        check=True,
    )
    assert b"+ holds" in done.stdout
    assert b"?: 5 of 5 steps" in done.stderr


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_of(*steps: tuple[float, Progress]) -> list[str]:
    clock, stream = Clock(), io.StringIO()
    with ProgressDisplay(Console(file=stream, width=80), clock) as display:
        for now, progress in steps:
            clock.now = now
            display(progress)
    return stream.getvalue().splitlines()


def test_plain_progress_is_sparse():
    steps = [
        (second / 2, Progress("sen FC", second * 10, 5000, 0.5, 0, 5, 60.0, seconds=second / 2))
        for second in range(1, 60)
    ]
    lines = lines_of(
        *steps,
        (30.2, Progress("sen FC", 5000, 5000, 0.028, 0, 5, None, finished=True, seconds=30.2)),
    )
    assert lines == [
        "sen FC: 200 of 5000 steps, loss 0.5, 60.0 s left",
        "sen FC: 400 of 5000 steps, loss 0.5, 60.0 s left",
        "sen FC: 5000 of 5000 steps, loss 0.028, 30.2 s",
    ]


def test_plain_progress_says_cache_waiting_and_divergence():
    waiting = Progress(
        "a", 0, 50, math.nan, 0, 5, None, note="another process is training this; waiting for it"
    )
    lines = lines_of(
        (1.0, waiting),
        (2.0, waiting),
        (3.0, Progress("a", 50, 50, math.nan, 0, 5, None, finished=True, note="from the cache")),
        (5.5, Progress("b", 50, 50, 0.1, 2, 5, None, finished=True, seconds=2.5)),
    )
    assert lines == [
        "a: 0 of 50 steps, another process is training this; waiting for it",
        "a: 50 of 50 steps, from the cache",
        "b: 50 of 50 steps, loss 0.1, 2 of 5 members diverged, 2.5 s",
    ]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_live_progress(encoding):
    """Bars of the trainings under way; a finished one is a line, which stays."""
    stream = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    console = Console(file=stream, force_terminal=True, width=80, height=24, color_system=None)
    with ProgressDisplay(console) as display:
        display(Progress("sen λ", 100, 5000, 0.5, 2, 20, 12.0))
        console.file.flush()
        display._bars.refresh()  # pyright: ignore[reportOptionalMemberAccess, reportPrivateUsage]
        display(Progress("sen λ", 5000, 5000, 0.028, 1, 20, None, finished=True))
        with display.paused():
            stream.write("between\n")
        display(Progress("b", 50, 50, math.nan, 0, 20, None, finished=True, note="from the cache"))
        assert not display._tasks  # pyright: ignore[reportPrivateUsage]
    stream.flush()
    text = stream.buffer.getvalue().decode(encoding)  # pyright: ignore[reportAttributeAccessIssue]
    for wanted in ("100/5000", "2/20 diverged", "12.0 s left", "between"):
        assert wanted in text
    name = "λ" if encoding == "utf-8" else "?"
    finished = f"sen {name}: 5000 of 5000 steps, loss 0.028, 1 of 20 members diverged, 0.0 s"
    assert finished in text
    assert "b: 50 of 50 steps, from the cache" in text
    assert display.summary() == "2 trainings, 1 from the cache"


def test_plans_of_a_dry_run():
    plans = [
        Plan("sen FC", 10, 5000, 61, 2_400_000, True, None),
        Plan("sen TC", 20, 5000, 61, 4_000, False, 75.0),
        Plan("sen λ", 20, 100, 61, 4_000_000_000, False, 125.0),
    ]
    text = drawn(plan_table(plans), encoding="ascii")
    assert max(map(len, text.splitlines())) <= 80
    for wanted in ("sen FC", "10", "5000", "61", "2.4 MB", "in the cache", "about 75.0 s", "4 kB"):
        assert wanted in text
    (sums,) = (line for line in text.splitlines() if "3 trainings" in line)
    assert all(wanted in sums for wanted in ("50", "at most 4 GB", "about 3 min"))
