"""What the terminal shows: live progress while training, then tables of verdicts, readable at 80
columns.

Text that the terminal's encoding cannot write is replaced when it is drawn: a study must not end in
an encoding error.
"""

import dataclasses
import math
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, ProgressColumn, Task, TaskID
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from saccade.core.claim import Judgement, Verdict
from saccade.core.lab import Progress
from saccade.core.record import Record
from saccade.core.study import Study
from saccade.report.formatting import (
    ASCII_SYMBOLS,
    SYMBOLS,
    duration,
    measured,
    measured_anywhere,
    number,
    tick,
)
from saccade.report.judged import Cell, VerdictMap, verdict_maps

COLOURS: dict[Verdict, str] = {"holds": "green", "fails": "red", "undetermined": "yellow"}
PLAIN_INTERVAL = 10.0
"""Seconds between two lines about one training, where there is no terminal to draw on."""
_ACROSS = 5
"""Columns of a map of verdicts that fit 80 characters."""
# ruff: noqa: RUF001 (these are the symbols to replace)
_IN_ASCII = {
    "≤": "<=",
    "≥": ">=",
    "×": "x",
    "–": "-",
    "—": "-",
    "−": "-",
    "…": "...",
    "’": "'",
    "‘": "'",
}


# -- text that every terminal can write ------------------------------------------------------------


def encodable(text: str, encoding: str) -> str:
    """The text, with what the encoding does not have replaced by something near it."""
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = "".join(_IN_ASCII.get(letter, letter) for letter in text)
        return text.encode(encoding, "replace").decode(encoding)
    except LookupError:
        return text
    return text


@dataclasses.dataclass(frozen=True)
class Words:
    """Plain text, never markup."""

    text: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(encodable(self.text, options.encoding), style=self.style, overflow="fold")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, Text(encodable(self.text, options.encoding)))


@dataclasses.dataclass(frozen=True)
class Badge:
    """A verdict with its symbol: never told by colour alone."""

    verdict: Verdict
    behind: str | None = None
    """What follows the symbol, instead of the word."""

    def _text(self, options: ConsoleOptions) -> Text:
        symbols = ASCII_SYMBOLS if options.ascii_only else SYMBOLS
        behind = self.verdict if self.behind is None else self.behind
        return Text(
            encodable(f"{symbols[self.verdict]} {behind}", options.encoding),
            style=COLOURS[self.verdict],
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._text(options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement.get(console, options, self._text(options))


def print_to_terminal(*renderables: RenderableType) -> None:
    """Print to stdout."""
    console = Console()
    for renderable in renderables:
        console.print(renderable)


# -- tables ----------------------------------------------------------------------------------------


def verdict_table(study: Study[Any], record: Record, judgements: Sequence[Judgement]) -> Table:
    """One row a claim; its checks below one another, and the reason wherever the verdict is not
    simply `holds`.
    """
    table = Table(
        title=(
            f"{study.name}, preset {record.preset}: {record.seeds} seeds,"
            f" {duration(record.seconds)}"
        ),
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        expand=False,
    )
    table.add_column("claim", no_wrap=True, style="bold")
    table.add_column("statement", ratio=1, min_width=16, max_width=60)
    table.add_column("measured [95 % interval], bound", ratio=1, min_width=24, max_width=60)
    table.add_column("verdict", no_wrap=True, min_width=14)
    claims = {claim.id: claim for claim in study.claims}
    for judgement in judgements:
        claim = claims[judgement.claim]
        statement = [Words(textwrap.shorten(claim.statement, 100, placeholder=" ..."))]
        if judgement.reason and (judgement.verdict != "holds" or judgement.cells):
            statement.append(Words(judgement.reason, "dim"))
        if claim.expected_reason(judgement) and judgement.as_expected:
            statement.append(Words(f"as expected: {claim.expected_reason(judgement)}", "dim"))
        verdict: list[RenderableType] = [Badge(judgement.verdict)]
        if not judgement.as_expected:
            verdict.append(Words(f"expected:\n{judgement.expected}", "bold"))
        checks: list[RenderableType] = []
        for finding, text in zip(judgement.findings, measured_anywhere(judgement), strict=True):
            checks += [Words(finding.quantity, "dim"), Words(text), Words(f"  {finding.bound}")]
        table.add_row(
            claim.id, Group(*statement), Group(*checks) if checks else Words("n/a"), Group(*verdict)
        )
        table.add_section()
    return table


def sweep_tables(
    study: Study[Any], record: Record, judgements: Sequence[Judgement]
) -> list[RenderableType]:
    """For a swept record: every claim's verdicts, with the measured values, over the grid. Empty
    if nothing was swept.
    """
    del (
        study,
        record,
    )  # a map needs nothing beyond the judgement; the signature is that of `verdict_table`
    tables: list[RenderableType] = []
    for judgement in judgements:
        for one in verdict_maps(judgement):
            axes = (
                f"{one.row_name} (down) and {one.column_name} (across)"
                if one.column_name
                else one.row_name
            )
            quantities = ", ".join(finding.quantity for finding in one.cells[0][0][1])
            heading = Words(
                f"{judgement.claim}: {axes}" + (f", at {one.where}" if one.where else ""), "bold"
            )
            shown = [heading, Words(f"verdict and {quantities}", "dim")]
            if one.column_name:
                starts = range(0, len(one.column_values), _ACROSS)
                tables.append(Group(*shown, *(_map_across(one, start) for start in starts)))
            else:
                tables.append(Group(*shown, _map_down(one)))
    return tables


def _map_down(one: VerdictMap) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column(Words(one.row_name), justify="right")
    table.add_column("verdict", no_wrap=True)
    for finding in one.cells[0][0][1]:
        table.add_column(Words(f"{finding.quantity} ({finding.bound})"))
    for value, ((verdict, findings),) in zip(one.row_values, one.cells, strict=True):
        table.add_row(
            tick(value), Badge(verdict), *(Words(measured(finding)) for finding in findings)
        )
    return table


def _map_across(one: VerdictMap, start: int) -> Table:
    """Some columns of a map; as many as fit are chosen by the caller."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("", justify="right")
    for value in one.column_values[start : start + _ACROSS]:
        table.add_column(tick(value), no_wrap=True)
    for value, cells in zip(one.row_values, one.cells, strict=True):
        table.add_row(tick(value), *(_cell(cell) for cell in cells[start : start + _ACROSS]))
    return table


def _cell(cell: Cell) -> RenderableType:
    verdict, findings = cell
    if not findings:
        return Badge(verdict, "")
    first, *rest = findings
    return Group(
        Badge(verdict, number(first.value)),
        *(Words(f"  {number(finding.value)}") for finding in rest),
    )


def ledger_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One line a claim, from `ledger_rows`: the verdicts of many studies at a glance."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("claim", no_wrap=True, style="bold")
    table.add_column("study")
    table.add_column("statement", ratio=1, min_width=20)
    table.add_column("verdict", no_wrap=True, min_width=14)
    for row in rows:
        verdict: list[RenderableType] = [Badge(row["verdict"])]
        if row["verdict"] != row["expected"]:
            verdict.append(Words(f"expected:\n{row['expected']}", "bold"))
        elif row["expected"] != "holds":
            verdict.append(Words("as expected", "dim"))
        statement = textwrap.shorten(row["statement"], 100, placeholder=" ...")
        table.add_row(
            row["claim"],
            Words(f"{row['study']}\n{row['preset']}"),
            Words(statement),
            Group(*verdict),
        )
    return table


def study_list(studies: Iterable[Study[Any]]) -> Table:
    """All studies with their presets and claims."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("study", no_wrap=True, style="bold")
    table.add_column("what it shows", ratio=1)
    table.add_column("presets", min_width=7)
    table.add_column("claims", max_width=20)
    for study in studies:
        table.add_row(
            study.name,
            Group(Words(study.title), Words(study.paper, "dim")),
            Words("\n".join(study.presets)),
            Words(", ".join(claim.id for claim in study.claims)),
        )
        table.add_section()
    return table


# -- progress --------------------------------------------------------------------------------------


class ProgressDisplay:
    """Shows how far the trainings are, on stderr: live bars on a terminal, sparse lines elsewhere.

    with ProgressDisplay() as display:
        lab = Lab(progress=display)
    """

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic):
        self._console = console or Console(stderr=True)
        self._clock = clock
        self._bars: Bars | None = None
        self._tasks: dict[str, TaskID] = {}
        self._last_line: dict[str, float] = {}
        self._notes: dict[str, str] = {}

    def __enter__(self) -> "ProgressDisplay":
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._bars = Bars(
                _Column("name"),
                BarColumn(bar_width=10),
                *map(_Column, ("steps", "loss", "members", "left")),
                console=self._console,
                refresh_per_second=4,
            )
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def __call__(self, progress: Progress) -> None:
        if self._bars is not None:
            self._draw(self._bars, progress)
        else:
            self._print(progress, self._clock())

    def _draw(self, bars: Bars, progress: Progress) -> None:
        task = self._tasks.get(progress.name)
        encoding = self._console.encoding
        fields = {key: encodable(text, encoding) for key, text in _fields(progress).items()}
        if task is None:
            task = self._tasks[progress.name] = bars.add_task(
                "", total=max(progress.steps, 1), fields=fields
            )
        done = progress.steps == 0 and progress.finished
        bars.update(
            task,
            completed=1 if done else progress.step,
            total=max(progress.steps, 1),
            fields=fields,
        )
        if progress.finished:
            del self._tasks[
                progress.name
            ]  # a later training of the same name gets a bar of its own

    def _print(self, progress: Progress, now: float) -> None:
        name = progress.name
        last = self._last_line.setdefault(name, now - progress.seconds)
        new_note = bool(progress.note) and self._notes.get(name) != progress.note
        if not progress.finished and not new_note and now - last < PLAIN_INTERVAL:
            return
        self._last_line[name], self._notes[name] = now, progress.note
        told = [f"{progress.step} of {progress.steps} steps"]
        if math.isfinite(progress.loss):
            told.append(f"loss {number(progress.loss)}")
        if progress.diverged:
            told.append(f"{progress.diverged} of {progress.members} members diverged")
        if progress.note:
            told.append(progress.note)
        elif progress.finished:
            told.append(duration(progress.seconds))
        elif progress.seconds_left is not None:
            told.append(f"{duration(progress.seconds_left)} left")
        text = encodable(f"{name}: {', '.join(told)}", self._console.encoding)
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        if progress.finished:
            del self._last_line[name], self._notes[name]


def _fields(progress: Progress) -> dict[str, str]:
    members = f"{progress.members} member{'' if progress.members == 1 else 's'}"
    if progress.finished:
        left = progress.note or duration(progress.seconds)
    else:
        left = progress.note or (
            "" if progress.seconds_left is None else f"{duration(progress.seconds_left)} left"
        )
    return {
        "name": progress.name,
        "steps": f"{progress.step}/{progress.steps}",
        "loss": f"loss {number(progress.loss)}" if math.isfinite(progress.loss) else "",
        "members": (
            f"{progress.diverged}/{progress.members} diverged" if progress.diverged else members
        ),
        "left": left,
    }


class _Column(ProgressColumn):
    """One text of the progress line."""

    def __init__(self, field: str):
        super().__init__()
        self._field = field

    def render(self, task: Task) -> Text:
        return Text(
            task.fields["fields"][self._field],
            style="bold" if self._field == "name" else "",
            overflow="fold",
        )
