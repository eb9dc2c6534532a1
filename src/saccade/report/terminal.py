"""What the terminal shows: live progress while training, then tables, readable at 80 columns.

Text that the terminal's encoding cannot write is replaced when it is drawn: a study must not end in
an encoding error.
"""

import contextlib
import dataclasses
import math
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, ProgressColumn, Task, TaskID
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from saccade.core.bound import Verdict
from saccade.core.claim import Judgement
from saccade.core.lab import Plan
from saccade.core.progress import Progress, duration
from saccade.core.record import Record
from saccade.core.study import Study
from saccade.report.formatting import ASCII_SYMBOLS, SYMBOLS, measured, measured_anywhere, number
from saccade.report.judged import Cell, VerdictMap, verdict_maps

COLOURS: dict[Verdict, str] = {"holds": "green", "fails": "red", "undetermined": "yellow"}
PLAIN_INTERVAL = 10.0
"""Seconds between two lines about one training, where there is no terminal to draw on."""
_ACROSS = 5
"""Columns of a map of verdicts that fit 80 characters."""
# ruff: noqa: RUF001 (these are the symbols to replace)
_IN_ASCII = {"≤": "<=", "≥": ">=", "×": "x", "…": "..."} | dict.fromkeys("–—−", "-")
_IN_ASCII |= dict.fromkeys("’‘", "'")


# -- text that every terminal can write ------------------------------------------------------------


def encodable(text: str, encoding: str) -> str:
    """The text, with characters that the encoding lacks replaced by similar ones."""
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
    """A verdict with its symbol: never shown by colour alone."""

    verdict: Verdict
    behind: str | None = None
    """Text after the symbol, in place of the verdict."""

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


def _table(title: str = "") -> Table:
    return Table(
        title=title or None,
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )


def _statement(text: str) -> Words:
    return Words(textwrap.shorten(text, 100, placeholder=" ..."))


def verdict_table(study: Study[Any], record: Record, judgements: Sequence[Judgement]) -> Table:
    """One row per claim, with its checks, and with the reason unless it simply holds."""
    seconds = duration(record.seconds)
    table = _table(f"{study.name}, preset {record.preset}: {record.seeds} seeds, {seconds}")
    table.add_column("claim", no_wrap=True, style="bold")
    table.add_column("statement", ratio=1, min_width=16, max_width=60)
    table.add_column("measured [95 % interval], bound", ratio=1, min_width=24, max_width=60)
    table.add_column("verdict", no_wrap=True, min_width=14)
    for claim, judgement in zip(study.claims, judgements, strict=True):
        statement = [_statement(claim.statement)]
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
        shown = Group(*checks) if checks else Words("n/a")
        table.add_row(claim.id, Group(*statement), shown, Group(*verdict))
        table.add_section()
    return table


def sweep_tables(judgements: Sequence[Judgement]) -> list[RenderableType]:
    """Every claim's verdicts, with the measured values, over the grid; none without a sweep."""
    tables: list[RenderableType] = []
    for judgement in judgements:
        for one in verdict_maps(judgement):
            heading = Words(f"{judgement.claim}: {one.title}", "bold")
            starts = range(0, len(one.columns), _ACROSS)
            maps = [_map_across(one, start) for start in starts] or [_map_down(one)]
            tables.append(Group(heading, Words(f"verdict and {one.quantities}", "dim"), *maps))
    return tables


def _map_down(one: VerdictMap) -> Table:
    table = _table()
    table.add_column(Words(one.row_name), justify="right")
    table.add_column("verdict", no_wrap=True)
    for finding in one.findings:
        table.add_column(Words(f"{finding.quantity} ({finding.bound})"))
    for value, (cell,) in one.rows:
        values = (Words(measured(finding)) for finding in cell.findings)
        table.add_row(value, Badge(cell.verdict), *values)
    return table


def _map_across(one: VerdictMap, start: int) -> Table:
    """The columns of a map that fit, from one on."""
    table = _table()
    table.add_column("", justify="right")
    for value in one.columns[start : start + _ACROSS]:
        table.add_column(value, no_wrap=True)
    for value, cells in one.rows:
        table.add_row(value, *(_cell(cell) for cell in cells[start : start + _ACROSS]))
    return table


def _cell(cell: Cell) -> RenderableType:
    first, *rest = cell.numbers or [""]
    return Group(Badge(cell.verdict, first), *(Words(f"  {text}") for text in rest))


def ledger_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One line per claim, from `ledger_rows`: the verdicts of many studies at a glance."""
    table = _table()
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
        study = Words(f"{row['study']}\n{row['preset']}")
        table.add_row(row["claim"], study, _statement(row["statement"]), Group(*verdict))
    return table


def study_list(studies: Iterable[Study[Any]]) -> Table:
    """All studies with their presets and claims."""
    table = _table()
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


def plan_table(plans: Sequence[Plan]) -> Table:
    """What a dry run found: one row per training, and the sums."""
    table = _table()
    table.add_column("training", style="bold", overflow="fold")
    for name in ("members", "steps", "recorded", "memory", "time"):
        table.add_column(name, justify="right", no_wrap=True)
    for plan in plans:
        known = "" if plan.seconds is None else f"about {duration(plan.seconds)}"
        seconds = "in the cache" if plan.cached else known
        counts = (str(count) for count in (plan.members, plan.steps, plan.recorded))
        table.add_row(Words(plan.name), *counts, _memory(plan.memory_bytes), seconds)
    table.add_section()
    seconds = sum(plan.seconds or 0.0 for plan in plans if not plan.cached)
    sums = (str(sum(plan.members for plan in plans)), "", "")
    most = max((plan.memory_bytes for plan in plans), default=0)
    title = f"{len(plans)} training{'' if len(plans) == 1 else 's'}"
    table.add_row(title, *sums, f"at most {_memory(most)}", f"about {duration(seconds)}")
    return table


def _memory(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{number(size)} {unit}"
        size /= 1000
    return f"{number(size)} TB"


# -- progress --------------------------------------------------------------------------------------


class ProgressDisplay:
    """Shows on stderr how far many trainings are: live bars on a terminal, sparse lines elsewhere.

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
        self._finished = self._from_cache = 0

    def __enter__(self) -> "ProgressDisplay":
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            columns = map(_Column, ("steps", "loss", "members", "ending"))
            self._bars = Bars(
                *(_Column("name"), BarColumn(bar_width=10), *columns),
                console=self._console,
                refresh_per_second=4,
                transient=True,
                redirect_stdout=sys.stdout.isatty(),
            )
            self._bars.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Nothing is drawn within, so that other text can be printed."""
        if self._bars is not None:
            self._bars.stop()
        yield
        if self._bars is not None:
            self._bars.start()

    def summary(self) -> str:
        """How many trainings finished, and how many of them came from the cache."""
        trainings = f"{self._finished} training{'' if self._finished == 1 else 's'}"
        return f"{trainings}, {self._from_cache} from the cache"

    def __call__(self, progress: Progress) -> None:
        if progress.finished and progress.steps:
            self._finished += 1
            self._from_cache += progress.from_cache
        if self._bars is not None:
            self._draw(self._bars, progress)
        if self._bars is None or progress.finished:
            self._print(progress, self._clock())

    def _draw(self, bars: Bars, progress: Progress) -> None:
        """A bar per training that is under way; a finished one becomes a line above."""
        task = self._tasks.pop(progress.name, None)
        if progress.finished:
            if task is not None:
                bars.remove_task(task)
            return
        members = f"{progress.members} member{'' if progress.members == 1 else 's'}"
        fields = {
            "name": progress.name,
            "steps": f"{progress.step}/{progress.steps}",
            "loss": f"loss {number(progress.loss)}" if math.isfinite(progress.loss) else "",
            "members": (
                f"{progress.diverged}/{progress.members} diverged" if progress.diverged else members
            ),
            "ending": progress.ending,
        }
        fields = {key: encodable(text, self._console.encoding) for key, text in fields.items()}
        total = max(progress.steps, 1)
        if task is None:
            task = bars.add_task("", total=total, fields=fields)
        bars.update(task, completed=progress.step, total=total, fields=fields)
        self._tasks[progress.name] = task

    def _print(self, progress: Progress, now: float) -> None:
        name = progress.name
        last = self._last_line.setdefault(name, now - progress.seconds)
        new_note = bool(progress.note) and self._notes.get(name) != progress.note
        if not progress.finished and not new_note and now - last < PLAIN_INTERVAL:
            return
        self._last_line[name], self._notes[name] = now, progress.note
        text = encodable(str(progress), self._console.encoding)
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        if progress.finished:
            del self._last_line[name], self._notes[name]


class _Column(ProgressColumn):
    """One text of the progress line."""

    def __init__(self, field: str):
        super().__init__()
        self._field = field

    def render(self, task: Task) -> Text:
        style = "bold" if self._field == "name" else ""
        return Text(task.fields["fields"][self._field], style=style, overflow="fold")
