"""What the commands of the command line do; each gives its exit code."""

import dataclasses
import hashlib
import json
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from saccade.contracts.task import AbstractCorpus
from saccade.core.study import Study, read_known
from saccade.data import store
from saccade.errors import ConfigError, FileError, SaccadeError, described, located
from saccade.figures.figure import Figure
from saccade.judging.claim import Judgement
from saccade.judging.premises import PremiseNotMetError
from saccade.options import (
    DiagnoseOptions,
    LedgerOptions,
    ListOptions,
    MapOptions,
    ReportOptions,
    ReproduceOptions,
    RunOptions,
)
from saccade.records.config import describe
from saccade.records.record import Record
from saccade.records.sealed import write_atomically
from saccade.registry import find_study, known_study, loaded_from, study_names
from saccade.report import terminal
from saccade.report.formatting import counted
from saccade.report.judged import Entry, StoredStudy, changed, judged_claims
from saccade.report.ledger import ledger_markdown, ledger_rows
from saccade.train.job import CHUNK
from saccade.train.lab import Lab
from saccade.workers.progress import Progress
from saccade.workers.schedulers import (
    Failure,
    LocalProcesses,
    asked_to_stop,
    report,
    sensible_number,
)

Show = Callable[[Progress], None]
_BY_NAN = (ValueError, IndexError, StopIteration, AssertionError, FloatingPointError)
"""Errors that NaN in place of numbers can cause, besides premises that are not met."""
LONGEST = (
    "ktiw_copying",
    "topics_attention",
    "ktiw_agreement",
    "ktiw_fate",
    "sen",
    "topics_two_stage",
    "values_first",
)
"""Studies whose quick presets train for a minute or more on a core, the longest first. They begin
before the others, so that no process is left with a long one at the end."""


def list_command(options: ListOptions, references: list[str]) -> int:
    studies, problems = [], []
    for reference in references or study_names():
        try:
            studies.append(find_study(reference))
        except SaccadeError as error:  # one broken package must not hide the other studies
            problems.append(error)
    if options.json:
        print(json.dumps([_plain(study) for study in studies], indent=2))
    elif studies:
        terminal.print_to_terminal(terminal.study_list(studies))
    if problems:
        raise type(problems[0])("; ".join(map(str, problems)))
    return 0


def _plain(study: Study[Any]) -> dict[str, Any]:
    names = ("id", "statement", "source")
    claims = [{name: getattr(claim, name) for name in names} for claim in study.claims]
    about = {name: getattr(study, name) for name in ("name", "title", "paper")}
    return about | {"presets": list(study.presets), "claims": claims}


def run_command(options: RunOptions, study: Study[Any], config: Any) -> int:
    require_data(options, study, config)
    if options.dry_run:
        return _dry_run(options, study, config)
    with terminal.ProgressDisplay() as display:
        record, folder = _trained(options, study, config, display)
        figures = save_figures(study.drawn(record), folder / "figures")
    if options.json:
        about = {"study": study.name, "preset": options.preset, "record": str(folder / "record.nc")}
        about |= {"claims": list(record.verdicts.values()), "figures": list(map(str, figures))}
        print(json.dumps(about, indent=2))
        return 0
    judgements = study.judge(record)
    table = terminal.verdict_table(study, record, judgements)
    terminal.print_to_terminal(table, *terminal.sweep_tables(judgements))
    print(f"{display.summary()}; record and figures: {folder}")
    for figure in figures:
        print(f"figure: {figure}")
    for command in _next_commands(study, judgements, folder):
        print(f"next: {command}")
    return 0


def _next_commands(
    study: Study[Any], judgements: Sequence[Judgement], folder: Path
) -> Iterator[str]:
    """What a user may want to see after a run: the page, and why a claim does not hold."""
    yield page_command(study, folder)
    own = _own(study)
    others = sorted(judgements, key=lambda one: one.verdict != "fails")  # an open one comes last
    if other := next((one for one in others if one.verdict != "holds"), None):
        yield shlex.join(["saccade", "explain", other.claim, "--records", str(folder), *own])


def page_command(study: Study[Any], folder: Path) -> str:
    """The command that makes the page of a run."""
    return shlex.join(["saccade", "report", str(folder), "-o", "report.html", *_own(study)])


def _own(study: Study[Any]) -> tuple[str, ...]:
    """How a command names a study that is a file of the user."""
    file = loaded_from(study)
    return () if file is None else ("--study", shown_path(file))


def shown_path(file: Path) -> str:
    """A path as a user would write it: from the current folder, if it is below."""
    here = Path.cwd()
    return str(file.relative_to(here) if file.is_relative_to(here) else file)


def require_data(options: RunOptions | MapOptions, study: Study[Any], config: Any) -> None:
    """Refuse a study whose corpora are not below the given folder, nor anywhere else."""
    use_data(options)
    if lacking := _lacking(config):
        raise FileError(f"{study.name}: {lacking}")


def use_data(options: RunOptions | MapOptions | ReproduceOptions) -> None:
    """Let corpora be looked for below the given folder, in this process and in its workers."""
    if options.data is not None:
        store.require_folder(options.data)
        os.environ[store.VARIABLE] = str(options.data.resolve())


def _lacking(config: Any) -> str:
    """What a config lacks to be run: what it says itself (`missing`), or the first of its corpora
    (itself, among its fields, or in what it gives as `tasks`) that is not here.
    """
    inner: list[Any] = []
    said = getattr(config, "missing", "")
    if isinstance(config, AbstractCorpus) or (isinstance(said, str) and said):
        return said
    if isinstance(config, Mapping):
        inner = list(config.values())
    elif isinstance(config, list | tuple):
        inner = list(config)
    elif dataclasses.is_dataclass(config):
        inner = [getattr(config, field.name) for field in dataclasses.fields(config)]
        inner.append(getattr(config, "tasks", ()))
    return next(filter(None, map(_lacking, inner)), "")


def lab_of(
    options: RunOptions | MapOptions, study: Study[Any], progress: Show | None, **how: Any
) -> Lab:
    precision = options.precision or study.precision
    how = {"scheduler": options.scheduler, "fresh": options.fresh, "chunk": options.chunk} | how
    return Lab(options.output / "cache", precision, progress, **how)


def _dry_run(options: RunOptions, study: Study[Any], config: Any) -> int:
    display = terminal.ProgressDisplay()  # to compile programs of full size takes time
    chunk = options.chunk or (CHUNK if options.scheduler else None)
    how: Any = {"dry_run": True, "scheduler": None, "chunk": chunk}
    lab, stopped, mistake = lab_of(options, study, display, **how), "", ""
    try:
        with warnings.catch_warnings(), lab.titled(study.name), display:
            warnings.simplefilter("ignore")  # about NaN, which every number is
            study.experiment(config, lab)
    except Exception as error:
        refused = isinstance(error, ConfigError) and re.search(r"\bgot \W*nan\b", str(error))
        if not lab.plans or (isinstance(error, SaccadeError) and not refused):
            raise
        why = f"{described(error)}{located(error)}"
        stopped = f"the numbers of {lab.plans[-1].name!r} decide which trainings follow: {why}"
        if not refused and not isinstance(error, (*_BY_NAN, PremiseNotMetError)):
            stopped = mistake = f"stopped by {why}; every number is NaN in a dry run"
    if options.json:
        plans = [dataclasses.asdict(plan) for plan in lab.plans]
        about = {"study": study.name, "preset": options.preset, "device": lab.device}
        print(json.dumps(about | {"trainings": plans, "stopped": stopped}, indent=2))
    else:
        terminal.print_to_terminal(terminal.plan_table(lab.plans))
        print(f"dry run on {lab.device}: nothing was trained")
    if mistake:
        raise SaccadeError(mistake)
    if stopped and not options.json:
        print(f"not all trainings are listed: {stopped}")
    return 0


def _trained(
    options: RunOptions, study: Study[Any], config: Any, progress: Show, **how: Any
) -> tuple[Record, Path]:
    """Train, judge and save the record; gives the record and its folder."""
    with lab_of(options, study, progress, **how) as lab:
        record = study.run(config, lab, options.preset)
    folder = options.output / f"{study.name}-{options.preset}"
    if config != study.config(options.preset):  # no run overwrites one of other settings
        changed = json.dumps(describe(config), sort_keys=True).encode()
        folder = Path(f"{folder}-{hashlib.sha256(changed).hexdigest()[:8]}")
    record.save(folder / "record.nc")
    return record, folder


def save_figures(figures: Sequence[Figure], folder: Path) -> list[Path]:
    """Write figures as PNG and PDF; gives the PNG files."""
    from saccade.report.drawing import save_figure  # matplotlib takes half a second

    return [save_figure(figure, folder)[0] for figure in figures]


def reproduce_command(options: ReproduceOptions, _: list[str]) -> int:
    from saccade.report.page import write_page

    use_data(options)
    for path in options.study:
        find_study(path)
    chosen = options.only or (*study_names(), *map(str, options.study))
    references = {find_study(reference).name: reference for reference in chosen}
    absent = {name: _lacking(find_study(one).config("quick")) for name, one in references.items()}
    for name, lacking in absent.items():
        if lacking:  # in one line, and the others are run
            print(f"saccade: {name} is left out: {lacking}", file=sys.stderr, flush=True)
            del references[name]
    if not references:
        raise FileError("no study can be run without its corpus")
    records: dict[str, Record] = {}
    with terminal.ProgressDisplay() as display:
        for study, record, folder in _run_quick(list(references.values()), options, display):
            records[study.name] = record
            if not options.json:
                with display.paused():
                    table = terminal.verdict_table(study, record, study.judge(record))
                    terminal.print_to_terminal(table)
                    print(f"{study.name}: record: {folder}\n", flush=True)
    entries: list[Entry] = [(find_study(references[name]), records[name]) for name in references]
    write_page(entries, options.page)
    rows = ledger_rows(entries)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        terminal.print_to_terminal(terminal.ledger_table(rows))
        print(f"{display.summary()}; the page: {options.page}")
    judged = judged_claims(entries)
    if others := changed(judged):
        raise SaccadeError(f"other verdicts than the known ones: {', '.join(others)}")
    if not options.json:
        known = sum(row.judgement.known is not None for row in judged)
        print(f"verdicts as known: {known} of {counted(len(rows), 'claim')}")
        for name, lacking in absent.items():
            if lacking:
                print(f"left out: {name} ({lacking})")
    return 0


def _run_quick(
    references: list[str], options: ReproduceOptions, display: Show
) -> Iterator[tuple[Study[Any], Record, Path]]:
    """Studies, records and folders, in the order in which the studies end."""
    quick = RunOptions(options.output, options.precision, options.fresh)
    studies = [find_study(reference) for reference in references]
    configs = [study.config("quick") for study in studies]
    processes = min(len(studies), sensible_number() if options.jobs is None else options.jobs)
    if processes < 1:
        raise ConfigError(f"--jobs: got {options.jobs}, allowed: a whole number, at least 1")
    if processes == 1:
        for study, config in zip(studies, configs, strict=True):
            yield study, *_trained(quick, study, config, display)
        return
    names = [*LONGEST, *(study.name for study in studies)]
    places = sorted(range(len(studies)), key=lambda place: names.index(studies[place].name))
    rows = [(references[place], options.study, quick) for place in places]
    scheduler = LocalProcesses(processes, one_core=False)
    show = lambda _, progress: display(progress)  # noqa: E731
    every = range(len(rows))
    done = scheduler.results(_run_quick_here, every, rows.__getitem__, show, tries=1)
    for at, folder in done:
        if isinstance(folder, Failure):
            raise folder.error
        yield studies[places[at]], Record.open(folder / "record.nc"), folder
    scheduler.close()


def _run_quick_here(reference: str, files: Sequence[Path], quick: RunOptions) -> Path:
    """Run one study in a worker process; gives the folder of its record."""
    for file in files:
        find_study(file)  # the reference may be the name of one
    study = find_study(reference)
    return _trained(quick, study, study.config("quick"), report, asked_to_stop=asked_to_stop)[1]


def report_command(options: ReportOptions, paths: list[str]) -> int:
    files = record_files(paths)
    entries = opened(files, options.study)
    # After the records, whose mistakes are quick then.
    from saccade.report.page import drawn_figures, write_page

    write_page(entries, options.output)
    print(f"the page: {options.output} ({counted(len(entries), 'record')})")
    if (folder := options.figures) is not None:
        places = [folder / f"{record.study}-{record.preset}" for _, record in entries]
        if len(set(places)) < len(places):  # records of one study and preset
            places = [folder / f"{at + 1}-{place.name}" for at, place in enumerate(places)]
        each = zip(entries, places, strict=True)
        drawn = sum(len(save_figures(drawn_figures(entry)[0], place)) for entry, place in each)
        print(f"{counted(drawn, 'figure')} as PNG and PDF: {folder}")
    return int(len(entries) < len(files))


def ledger_command(options: LedgerOptions, paths: list[str]) -> int:
    files = record_files(paths)
    entries = opened(files, options.study)
    if options.known is not None:
        if len(entries) < len(files):
            raise FileError(f"{options.known}: not written, because a record cannot be read")
        return _keep_as_known(entries, options.known)
    if options.json:
        print(json.dumps(ledger_rows(entries), indent=2))
    elif options.output is None:
        print(ledger_markdown(entries))
    if options.output is not None:
        write_atomically(options.output, ledger_markdown(entries).encode())
        print(f"the ledger: {options.output}", file=sys.stderr)
    return int(len(entries) < len(files))


def _keep_as_known(entries: Sequence[Entry], file: Path) -> int:
    """Write verdicts into the table of known ones; other studies and presets stay as they are."""
    others: list[str] = []
    new: dict[str, dict[str, Any]] = {}
    for study, record in entries:
        if isinstance(study, StoredStudy):
            raise ConfigError(f"{study.note}; only verdicts of now can be kept")
        if not study.is_preset(record):
            raise ConfigError(f"{study.name}, {record.preset}: not the record of a preset")
        before = read_known(file, study.name, record.preset)
        now = {one.claim: one.verdict for one in study.judge(record)}
        new.setdefault(study.name, {})[record.preset] = now
        others += [
            f"{one} ({study.name}, {record.preset}): {before[one]}, now {verdict}"
            for one, verdict in now.items()
            if before.get(one, verdict) != verdict
        ]
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known |= {name: known.get(name, {}) | presets for name, presets in new.items()}
    write_atomically(file, (json.dumps(known, indent=1, sort_keys=True) + "\n").encode())
    print(
        f"{file}: {counted(len(others), 'changed verdict')}" + "".join(f"\n{one}" for one in others)
    )
    return 0


def diagnose_command(options: DiagnoseOptions, paths: list[str]) -> int:
    from saccade.diagnosis.catalogue import diagnose

    found, problems = [], []
    for file in record_files(paths):
        try:
            record = Record.open(file)
            found.append((file, record, diagnose(record, options.step)))
        except SaccadeError as error:  # the others are shown
            problems.append(error)
    for error in problems if found else ():
        print(f"saccade: {error}; it is left out", file=sys.stderr)
    if not found:
        raise problems[0]
    if options.json:
        plain = [
            {"file": str(file), "study": record.study, "preset": record.preset} | one.plain()
            for file, record, some in found
            for one in some
        ]
        print(json.dumps(plain, indent=2))
    else:
        terminal.print_to_terminal(*(terminal.diagnosis_text(*one) for one in found))
    faulty = any(one.found for _, _, some in found for one in some)
    return int(faulty or any(isinstance(error, FileError) for error in problems))


def record_files(paths: Sequence[str], required: bool = True) -> list[Path]:
    """Files as they are, and all records below folders; some if they are required."""
    files: list[Path] = []
    for path in map(Path, paths):
        if not path.exists():
            raise FileError(f"cannot read {path}: no such file or folder")
        files += sorted((*path.rglob("*.nc"), *path.rglob("*.nc.gz"))) if path.is_dir() else [path]
    if not files and required:
        raise FileError(f"no records (*.nc, *.nc.gz) below {', '.join(paths)}")
    return files


def opened(files: Sequence[Path], studies: Sequence[Path], mention: bool = True) -> list[Entry]:
    """Records with their studies; stored verdicts where the study is missing or does not fit. Of
    several files, those that cannot be read are named and left out.
    """
    for path in studies:
        find_study(path)
    entries = [entry for _, entry in opened_files(files, mention)]
    return sorted(entries, key=lambda entry: (entry[0].name, entry[1].preset))


def opened_files(
    files: Sequence[Path], mention: bool = True, only: Collection[str] | None = None
) -> Iterator[tuple[Path, Entry]]:
    """Files and what they hold: of all studies, or only of those named."""
    read = 0
    for file in files:
        try:
            other = only is not None and Record.study_of(file) not in only
            record = None if other else Record.open(file)
            entry = None if record is None else _entry(file, record, mention)
        except FileError as error:
            if len(files) == 1 or (not read and file == files[-1]):
                raise
            print(f"saccade: {error}; it is left out", file=sys.stderr)
            continue
        read += 1
        if entry is not None:
            yield file, entry


def _entry(file: Path, record: Record, mention: bool) -> Entry:
    """A record with the study that judges it, or with what it stores."""
    study, problem = _judging(record)
    if study is None:
        study = StoredStudy.of(record, f"{file}: {problem}")
        if mention:
            print(f"saccade: {study.note}; its stored verdicts are shown", file=sys.stderr)
    return study, record


def _judging(record: Record) -> tuple[Study[Any] | None, str]:
    """The study of a record, or why it cannot judge it."""
    try:
        study = known_study(record.study)
    except SaccadeError as error:
        return None, f"the study {record.study!r} cannot be loaded ({error})"
    if study is None:
        return None, f"the study {record.study!r} is not installed"
    study.known(record.preset)  # a broken file is no matter of the record
    try:
        study.judge(record)
    except Exception as error:  # an older record need not have what the measures of today read
        return None, f"cannot be judged by {study.name}: {described(error)}{located(error)}"
    return study, ""
