"""What the terminal shows: live progress while training, then tables, readable at 80 columns.

Text that the terminal's encoding lacks is replaced: a study must not end in an encoding error.
"""

import contextlib
import dataclasses
import math
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars
from rich.table import Column, Table
from rich.text import Text

from saccade.core.study import Study
from saccade.judging.bound import Verdict
from saccade.judging.claim import Judgement
from saccade.records.record import Record
from saccade.report.formatting import (
    SYMBOLS,
    counted,
    measured,
    measured_anywhere,
    number,
    size_text,
)
from saccade.report.judged import VerdictMap, verdict_maps
from saccade.train.lab import Plan
from saccade.workers.progress import Progress, duration

if TYPE_CHECKING:  # models take a second to import, and few commands diagnose
    from saccade.diagnosis.catalogue import Diagnosis, Sighting
    from saccade.train.cache_files import Kept

COLOURS: dict[Verdict, str] = {"holds": "green", "fails": "red", "undetermined": "yellow"}
PLAIN_INTERVAL = 10.0
"""Seconds between two lines about one training, where there is no terminal to draw on."""
_ACROSS = 5
"""Columns of a map of verdicts that fit 80 characters."""
# ruff: noqa: RUF001 (these are the symbols to replace)
_IN_ASCII = {"≤": "<=", "≥": ">=", "×": "x", "…": "...", "✓": "+", "✗": "x"}
_IN_ASCII |= dict.fromkeys("–—−", "-") | dict.fromkeys("’‘", "'")


def encodable(text: str, encoding: str) -> str:
    """The text, with characters that the encoding lacks replaced by similar ones."""
    with contextlib.suppress(LookupError):
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            text = "".join(_IN_ASCII.get(letter, letter) for letter in text)
            return text.encode(encoding, "replace").decode(encoding)
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


def badge(verdict: Verdict, behind: str | None = None) -> Words:
    """A verdict, or another text, behind its symbol: never shown by colour alone."""
    return Words(f"{SYMBOLS[verdict]} {verdict if behind is None else behind}", COLOURS[verdict])


def print_to_terminal(*renderables: RenderableType) -> None:
    console = Console()
    for renderable in renderables:
        console.print(renderable)


def _table(*columns: Column | str, title: str | None = None) -> Table:
    look: Any = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD}
    return Table(*columns, title=title, pad_edge=False, **look)


def _first(header: str) -> Column:
    return Column(header, no_wrap=True, style="bold")


def _statement(text: str) -> Words:
    return Words(textwrap.shorten(text, 100, placeholder=" ..."))


def _verdict(verdict: Verdict, known: Verdict | None) -> list[RenderableType]:
    changed = [] if known in (None, verdict) else [Words(f"known:\n{known}", "bold")]
    return [badge(verdict), *changed]


def verdict_table(study: Study[Any], record: Record, judgements: Sequence[Judgement]) -> Table:
    """One row per claim, with its checks, and with the reason unless it simply holds."""
    about = f"{record.seeds} seeds, {duration(record.seconds)}"
    statements = Column("statement", ratio=1, min_width=16, max_width=60)
    numbers = Column("measured [95 % interval], bound", ratio=1, min_width=24, max_width=60)
    columns = (_first("claim"), statements, numbers, Column("verdict", no_wrap=True, min_width=14))
    table = _table(*columns, title=f"{study.name}, preset {record.preset}: {about}")
    for claim, judgement in zip(study.claims, judgements, strict=True):
        statement = [_statement(claim.statement)]
        if judgement.reason and (judgement.verdict != "holds" or judgement.cells):
            statement.append(Words(judgement.reason, "dim"))
        if why := claim.explanation(judgement):
            statement.append(Words(f"why: {why}", "dim"))
        checks: list[Words] = []
        for finding, text in measured_anywhere(judgement):
            checks += [Words(finding.quantity, "dim"), Words(text), Words(f"  {finding.bound}")]
        verdict = Group(*_verdict(judgement.verdict, judgement.known))
        shown = Group(*checks or [Words("n/a")])
        table.add_row(claim.id, Group(*statement), shown, verdict, end_section=True)
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
    quantities = (Column(Words(f"{check.quantity} ({check.bound})")) for check in one.findings)
    first = Column(Words(one.row_name), justify="right")
    table = _table(first, Column("verdict", no_wrap=True), *quantities)
    for value, (cell,) in one.rows:
        table.add_row(value, badge(cell.verdict), *(Words(measured(one)) for one in cell.findings))
    return table


def _map_across(one: VerdictMap, start: int) -> Table:
    """The columns of a map that fit, from one on."""
    shown = slice(start, start + _ACROSS)
    columns = (Column(value, no_wrap=True) for value in one.columns[shown])
    table = _table(Column(justify="right"), *columns)
    for value, cells in one.rows:
        badges = (badge(cell.verdict, "\n  ".join(cell.numbers)) for cell in cells[shown])
        table.add_row(value, *badges)
    return table


def ledger_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """One line per claim, from `ledger_rows`: the verdicts of many studies at a glance."""
    last = Column("verdict", no_wrap=True, min_width=14)
    table = _table(_first("claim"), "study", Column("statement", ratio=1, min_width=20), last)
    for row in rows:
        verdict = _verdict(row["verdict"], row["known"])
        if row["verdict"] == row["known"] != "holds":
            verdict.append(Words("as known", "dim"))
        study = Words(f"{row['study']}\n{row['preset']}")
        table.add_row(row["claim"], study, _statement(row["statement"]), Group(*verdict))
    return table


def study_list(studies: Iterable[Study[Any]]) -> Table:
    """All studies with their presets and claims."""
    lists = (Column("presets", min_width=7), Column("claims", max_width=20))
    table = _table(_first("study"), Column("what it shows", ratio=1), *lists)
    for study in studies:
        shown = Group(Words(study.title), Words(study.paper, "dim"))
        presets, claims = "\n".join(study.presets), ", ".join(claim.id for claim in study.claims)
        table.add_row(study.name, shown, Words(presets), Words(claims), end_section=True)
    return table


def plan_table(plans: Sequence[Plan]) -> Table:
    """What a dry run found: one row per training, and the sums."""
    names = ("members", "steps", "recorded", "memory", "time")
    numbers = (Column(name, justify="right", no_wrap=True) for name in names)
    table = _table(Column("training", style="bold", overflow="fold"), *numbers)
    for plan in plans:
        known = "" if plan.seconds is None else f"about {duration(plan.seconds)}"
        seconds = "in the cache" if plan.cached else known
        counts = map(str, (plan.members, plan.steps, plan.recorded))
        table.add_row(Words(plan.name), *counts, size_text(plan.memory_bytes), seconds)
    table.add_section()
    members, memory = sum(plan.members for plan in plans), [plan.memory_bytes for plan in plans]
    seconds = sum(plan.seconds or 0.0 for plan in plans if not plan.cached)
    sums = (str(members), "", "", f"at most {size_text(max(memory, default=0))}")
    table.add_row(counted(len(plans), "training"), *sums, f"about {duration(seconds)}")
    return table


def kept_table(files: "Sequence[Kept]") -> RenderableType:
    """What a cache keeps, without its compiled programs."""
    numbers = (Column(name, justify="right", no_wrap=True) for name in ("size", "age"))
    columns = (Column("name", style="bold", overflow="fold"), Column("state"), *numbers)
    table = _table(*columns, Column("file", overflow="fold"))
    for one in files[:_FILES]:
        of = f" of {one.steps}" if one.steps else ""
        state = f"step {one.step}{of}" if one.kind == "unfinished" else _STATES.get(one.kind, "")
        age = duration(one.age) if one.age < 2 * 86400 else f"{one.age / 86400:.0f} days"
        name = Words(one.name or "unknown", "" if one.name else "dim")
        table.add_row(name, state or one.kind, size_text(one.size), age, Words(one.path.stem))
    if len(files) <= _FILES:
        return table
    return Group(table, Words(f"and {len(files) - _FILES} smaller ones (--json lists all)", "dim"))


_FILES = 50
"""Files of a cache that are listed."""
_STATES = {"training": "finished"}


def watched_table(record: Record) -> Table:
    """The layers of a run that was trained elsewhere: means over heads at its first and last
    measured step.
    """
    shown = {"entropy": "attention_entropy", "effective keys": "effective_keys"}
    shown |= {"largest score": "largest_score", "first word": "first_mass"}
    run = record.arms["run"].trajectory.isel(seed=0)
    ends = [int(run["step"][0]), int(run["step"][-1])]
    columns = [Column(name, justify="right") for name in shown]
    steps = f"step {ends[0]}" if ends[0] == ends[1] else f"steps {ends[0]} -> {ends[1]}"
    title = f"{record.title}: {steps}"
    rise = "uniform_loss" in run
    columns += [Column("loss if uniform", justify="right")] if rise else []
    table = _table(Column("layer", overflow="fold"), *columns, title=title)
    for layer in run["layer"].values:
        row = []
        for name in shown.values():
            values = run[name].sel(layer=layer, step=ends)
            means = (values.max("head") if name == "largest_score" else values.mean("head")).values
            row.append(Words(" -> ".join(number(float(one)) for one in dict.fromkeys(means))))
        if rise:
            change = run["uniform_loss"].sel(layer=layer, step=ends[1]) - run["loss"].sel(
                step=ends[1]
            )
            row.append(Words(f"{float(change):+.2g}"))
        table.add_row(Words(str(layer)), *row)
    return table


def diagnosis_text(file: Path, record: Record, found: "Sequence[Diagnosis]") -> RenderableType:
    """Arms with a fault, the cause first and then its consequences; arms without one; and what was
    not looked for.
    """
    lines = [Words(f"{file}: {record.title or record.study}", "bold")]
    several = len(found) > 1 or len(record.arms) > 1
    for one in found:
        shown = (*one.found, *one.information)
        named = f"{one.title}, step {one.step}" if several else f"step {one.step}"
        lines += [Words(f"{named}:")] if (*shown, *one.earlier) else []
        for place, sighting in enumerate(shown):
            lines += _sighting(sighting, "cause" if not place else "consequence, or besides")
        for sighting in one.earlier:
            lines += _sighting(sighting, "earlier, and no longer beyond its bound")
    sound = [one for one in found if not one.found and not one.earlier]
    if sound:
        counts = sorted({len(one.looked_for) for one in sound})
        count = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else f"{counts[0]}"
        names = ", ".join(f"{one.title} (step {one.step})" for one in sound)
        names = f": {names}" if several else f", at step {sound[0].step}"
        told = f"none of the {count} faults that were looked for{names}"
        lines.append(Words(f"{told[:_LONG]} ..." if len(told) > _LONG else told, "green"))
    reasons = {(fault.title, why) for one in found for fault, why in one.unchecked}
    everywhere = [one for one in reasons if all(_lacks(some, one) for some in found)]
    if everywhere:
        by_reason: dict[str, list[str]] = {}
        for fault, why in sorted(everywhere):
            by_reason.setdefault(why, []).append(fault)
        lines.append(Words(f"not looked for, {counted(len(everywhere), 'fault')}:", "dim"))
        lines += [Words(f"  {', '.join(some)}: {why}", "dim") for why, some in by_reason.items()]
    notes = record.config.get("notes", ())
    return Group(*lines, *(Words(f"note: {one}", "dim") for one in notes))


_LONG = 400
"""Characters of a list of sound arms that are shown."""


def _lacks(found: "Diagnosis", reason: tuple[str, str]) -> bool:
    return any((fault.title, why) == reason for fault, why in found.unchecked)


def _sighting(one: "Sighting", kind: str) -> list[Words]:
    """A fault with its number, its bound and what to try."""
    fault = one.fault
    kind = "information" if fault.is_information else kind
    many = f", {one.places} places" if one.places else ""
    many += f", {one.seeds}" if one.seeds else ""
    where = f" ({one.where})" if one.where else ""
    during = f" at step {one.steps[1]}, from step {one.steps[0]} on" if one.steps else ""
    texts = [f"{fault.quantity}: {number(one.value)}{during}{where}{many}"]
    texts += [f"a sign if {fault.bound}; {fault.why}"]
    texts += [f"probable cause: {fault.cause}", f"to try: {fault.remedy}"]
    lines = {"in PyTorch": fault.in_pytorch, "in saccade": fault.in_saccade}
    texts += [f"  {where}: {line}" for where, line in lines.items() if line]
    head = Words(f"  {kind}: {fault.title}", "" if fault.is_information else "red")
    return [head, *(Words(f"    {text}") for text in texts)]


_SHOWN = {"name": "bold", "steps": "", "loss": "", "members": "", "ending": ""}
"""Texts of the line of a training, and their styles."""
_FOLDED = Column(overflow="fold")


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
        self._printed: dict[str, tuple[float, str]] = {}  # name -> time and note of the last line
        self._finished = self._from_cache = 0

    def __enter__(self) -> "ProgressDisplay":
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            name, *others = (
                TextColumn(f"{{task.fields[{field}]}}", style, markup=False, table_column=_FOLDED)
                for field, style in _SHOWN.items()
            )
            how: Any = {"refresh_per_second": 4, "redirect_stdout": sys.stdout.isatty()}
            columns = (name, BarColumn(bar_width=10), *others)
            self._bars = Bars(*columns, console=self._console, transient=True, **how)
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
        return f"{counted(self._finished, 'training')}, {self._from_cache} from the cache"

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
        steps = f"{progress.step}/{progress.steps}"
        if progress.done is not None:
            steps = f"{progress.done}/{progress.members}"
        loss = f"loss {number(progress.loss)}" if math.isfinite(progress.loss) else ""
        diverged = f"{progress.diverged}/{progress.members} diverged"
        members = diverged if progress.diverged else counted(progress.members, "member")
        if progress.rate is not None:
            members = f"{members}, {progress.rate:.3g} per s"
        texts = (progress.name, steps, loss, members, progress.ending)
        encoded = (encodable(text, self._console.encoding) for text in texts)
        fields: Any = dict(zip(_SHOWN, encoded, strict=True))
        if task is None:
            task = bars.add_task("", **fields)
        bars.update(task, completed=progress.step, total=max(progress.steps, 1), **fields)
        self._tasks[progress.name] = task

    def _print(self, progress: Progress, now: float) -> None:
        last, note = self._printed.setdefault(progress.name, (now - progress.seconds, ""))
        new_note = progress.note not in ("", note)
        if not progress.finished and not new_note and now - last < PLAIN_INTERVAL:
            return
        self._printed[progress.name] = now, progress.note
        text = encodable(str(progress), self._console.encoding)
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)
        if progress.finished:
            del self._printed[progress.name]
