"""The command line. Thin: every command parses its options, calls the library and prints.
Imports are made on use, so that help is quick.
"""

import contextlib
import dataclasses
import difflib
import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from saccade.core.errors import ConfigError, FileError, SaccadeError
from saccade.version import __version__

USAGE = """\
usage: saccade COMMAND [OPTIONS]

A laboratory for how attention learns.

commands:
  list        studies, presets and claims
  run         one study: progress, verdicts, figures, record
  reproduce   every study on its quick preset, the ledger and report.html
  report      the page, from records alone
  ledger      the table of verdicts, from records alone
  compact     a smaller copy of a record, with the same verdicts

'saccade COMMAND --help' tells the options of a command; 'saccade --version' the version.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code: 0 done, 1 not as expected, 2 wrong options, 130
    interrupted.
    """
    arguments = [
        "--output" if one == "-o" else one
        for one in (sys.argv[1:] if arguments is None else arguments)
    ]
    commands: Mapping[str, Callable[[list[str]], int]] = {
        "list": _list,
        "run": _run,
        "reproduce": _reproduce,
        "report": _report,
        "ledger": _ledger,
        "compact": _compact,
    }
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(USAGE, end="")
        return 0
    if arguments[0] == "--version":
        print(f"saccade {__version__}")
        return 0
    try:
        if arguments[0] not in commands:
            raise ConfigError(f"command: got {arguments[0]!r}, allowed: {', '.join(commands)}")
        return commands[arguments[0]](arguments[1:])
    except SaccadeError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _complain(
            "stopped; finished trainings are kept, and the same command goes on from there", 130
        )
    except BrokenPipeError:
        sys.stderr.close()  # whoever read us has gone; there is nobody left to tell
        return 1
    except OSError as error:
        return _complain(f"{error.filename or 'the system'}: {error.strerror or error}", 1)


def _complain(message: str, code: int) -> int:
    print(f"saccade: {' '.join(message.split())}", file=sys.stderr)
    return code


# -- commands --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class ListOptions:
    """The studies, with their presets and claims."""

    json: bool = False
    """Print JSON."""


def _list(arguments: list[str]) -> int:
    options = _parsed(ListOptions(), arguments, "saccade list")
    from saccade.core.study import find_study, study_names

    studies = [find_study(name) for name in study_names()]
    if options.json:
        rows = [
            {
                "name": study.name,
                "title": study.title,
                "paper": study.paper,
                "presets": list(study.presets),
                "claims": [
                    {"id": claim.id, "statement": claim.statement, "source": claim.source}
                    for claim in study.claims
                ],
            }
            for study in studies
        ]
        print(json.dumps(rows, indent=2))
        return 0
    from saccade.report.terminal import print_to_terminal, study_list

    print_to_terminal(study_list(studies))
    return 0


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """Options of every run."""

    preset: str = "quick"
    """Settings to start from; the options below change single ones."""
    sweep: tuple[str, ...] = ()
    """NAME=V1,V2,...: train the whole grid at once, over any float below; may be given several
    times.
    """
    output: Path = Path("runs")
    """Folder for records, figures and the cache of trainings."""
    precision: Literal["float32", "float64"] | None = None
    """Precision of training; by default the study's own."""
    fresh: bool = False
    """Train again even if the cache holds these trainings."""
    json: bool = False
    """Print the verdicts as JSON."""


def _run(arguments: list[str]) -> int:
    from saccade.core.study import find_study, study_names

    if not arguments or arguments[0] in ("-h", "--help"):
        print("usage: saccade run STUDY [--preset PRESET] [--sweep NAME=V1,V2,...] [OPTIONS]\n")
        print("studies:", ", ".join(study_names()))
        print(
            "'saccade run STUDY --help' tells the options of a study; 'saccade list' what it is"
            " about."
        )
        return 0 if arguments else 2
    study = find_study(arguments[0])
    rest = arguments[1:]
    preset = _value_of(rest, "--preset") or RunOptions.preset
    options, config = _parsed_together(
        RunOptions(preset=preset), study.config(preset), rest, study.name
    )
    preset_config = study.config(options.preset)
    sweeps = _sweeps(options.sweep)
    config = study.swept(config, sweeps)
    folder = _run_folder(options.output, study.name, options.preset, config, preset_config)

    record, _ = _run_study(study, config, options.preset, folder, options)
    judgements = study.judge(record)
    if options.json:
        claims = [
            judgement.plain() | {"expected_reason": claim.expected_reason(judgement)}
            for claim, judgement in zip(study.claims, judgements, strict=True)
        ]
        told = {
            "study": study.name,
            "preset": options.preset,
            "record": str(folder / "record.nc"),
            "claims": claims,
        }
        print(json.dumps(told, indent=2))
        return 0
    from saccade.report.terminal import print_to_terminal, sweep_tables, verdict_table

    print_to_terminal(verdict_table(study, record, judgements))
    if record.sweeps:
        print_to_terminal(*sweep_tables(study, record, judgements))
    print(f"record and figures: {folder}")
    return 0


@dataclasses.dataclass(frozen=True)
class ReproduceOptions:
    """Every study on its quick preset; exit code 1 if a verdict is not the expected one."""

    page: Path = Path("report.html")
    """The page to write."""
    output: Path = Path("runs")
    """Folder for records, figures and the cache of trainings."""
    only: tuple[str, ...] = ()
    """Names of the studies to run; all if none is given."""
    jobs: int | None = None
    """Studies at once, each in a process of its own; by default one a core, at most four, and on
    an accelerator one.
    """
    precision: Literal["float32", "float64"] | None = None
    """Precision of training; by default the study's own."""
    fresh: bool = False
    """Train again even if the cache holds these trainings."""
    json: bool = False
    """Print the ledger as JSON."""


def _reproduce(arguments: list[str]) -> int:
    options = _parsed(ReproduceOptions(), arguments, "saccade reproduce")
    from saccade.core.study import find_study, study_names

    studies = [find_study(name) for name in dict.fromkeys(options.only or study_names())]
    records: dict[str, Any] = {}
    for study, record, seconds in _run_quick(studies, options):
        records[study.name] = record
        if not options.json:
            from saccade.report.terminal import print_to_terminal, verdict_table

            print_to_terminal(verdict_table(study, record, study.judge(record)))
            print(
                f"{study.name}: {seconds:.0f} s; record and figures:"
                f" {_quick_folder(options, study.name)}\n",
                flush=True,
            )
    entries = [(study, records[study.name]) for study in studies]
    from saccade.report.ledger import ledger_rows
    from saccade.report.page import write_page

    write_page(entries, options.page)
    rows = ledger_rows(entries)
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        from saccade.report.terminal import ledger_table, print_to_terminal

        print_to_terminal(ledger_table(rows))
        print(f"the page: {options.page}")
    surprises = [
        judgement.claim
        for study, record in entries
        for judgement in study.judge(record)
        if not judgement.as_expected
    ]
    if surprises:
        return _complain(f"not as expected: {', '.join(surprises)}", 1)
    return 0


def _run_quick(
    studies: Sequence[Any], options: ReproduceOptions
) -> Iterator[tuple[Any, Any, float]]:
    """Studies, records and seconds, in the order in which the studies end."""
    from saccade.core.record import Record
    from saccade.core.workers import run_in_processes, sensible_number
    from saccade.report.terminal import ProgressDisplay

    processes = min(len(studies), sensible_number() if options.jobs is None else options.jobs)
    if processes < 1:
        raise ConfigError(f"--jobs: got {options.jobs}, allowed: a whole number, at least 1")
    if processes == 1:
        for study in studies:
            yield (
                study,
                *_run_study(
                    study,
                    study.config("quick"),
                    "quick",
                    _quick_folder(options, study.name),
                    options,
                ),
            )
        return
    with ProgressDisplay() as display:
        rows = [(study.name, options) for study in studies]
        for place, seconds in run_in_processes(_run_quick_here, rows, processes, display):
            study = studies[place]
            yield study, Record.open(_quick_folder(options, study.name) / "record.nc"), seconds


def _run_quick_here(name: str, options: ReproduceOptions) -> float:
    """One study in a process of its own, which leaves its record in the study's folder; gives
    the seconds.
    """
    from saccade.core.study import find_study
    from saccade.core.workers import asked_to_stop, report

    study = find_study(name)
    folder = _quick_folder(options, name)
    _, seconds = _run_study(
        study,
        study.config("quick"),
        "quick",
        folder,
        options,
        progress=report,
        asked_to_stop=asked_to_stop,
    )
    return seconds


def _quick_folder(options: ReproduceOptions, name: str) -> Path:
    return options.output / f"{name}-quick"


@dataclasses.dataclass(frozen=True)
class ReportOptions:
    """The page, from records alone: nothing is trained."""

    output: Path = Path("report.html")
    """The page to write."""


def _report(arguments: list[str]) -> int:
    paths, arguments = _positional(arguments, "saccade report RECORD_OR_FOLDER...", ReportOptions())
    options = _parsed(ReportOptions(), arguments, "saccade report")
    entries = _opened(paths)
    from saccade.report.page import write_page

    write_page(entries, options.output)
    print(f"the page: {options.output} ({len(entries)} records)")
    return 0


@dataclasses.dataclass(frozen=True)
class LedgerOptions:
    """The table of verdicts, judged anew from records alone."""

    output: Path | None = None
    """Markdown file to write; printed if none is given."""
    json: bool = False
    """Print JSON instead."""


def _ledger(arguments: list[str]) -> int:
    paths, arguments = _positional(arguments, "saccade ledger RECORD_OR_FOLDER...", LedgerOptions())
    options = _parsed(LedgerOptions(), arguments, "saccade ledger")
    entries = _opened(paths)
    from saccade.core.storage import write_atomically
    from saccade.report.ledger import ledger_markdown, ledger_rows

    if options.json:
        print(json.dumps(ledger_rows(entries), indent=2))
    elif options.output is None:
        print(ledger_markdown(entries))
    if options.output is not None:
        write_atomically(options.output, ledger_markdown(entries).encode())
        print(f"the ledger: {options.output}", file=sys.stderr)
    return 0


@dataclasses.dataclass(frozen=True)
class CompactOptions:
    """A smaller copy of a record, judged anew: numbers rounded to 14 binary digits (double
    precision: 44); refused if that changed a verdict.
    """

    output: Path = Path("record.nc.gz")
    """The copy to write; compressed as a whole if its name ends in .gz."""


def _compact(arguments: list[str]) -> int:
    paths, arguments = _positional(arguments, "saccade compact RECORD", CompactOptions())
    options = _parsed(CompactOptions(), arguments, "saccade compact")
    if len(paths) != 1:
        raise ConfigError(f"record: got {len(paths)} paths, allowed: one")
    files = _record_files(paths)
    if len(files) != 1:
        raise ConfigError(f"record: got {len(files)} records below {paths[0]}, allowed: one")
    ((study, record),) = _opened(files)
    smaller = record.compact()
    before, after = (
        {one.claim: one.verdict for one in study.judge(which)} for which in (record, smaller)
    )
    changed = [claim for claim in before if before[claim] != after[claim]]
    if changed:
        raise FileError(
            f"{paths[0]}: rounding changes the verdict of {', '.join(changed)}; not written"
        )
    # The claims may have changed since the run; the copy says what they say now.
    verdicts = {judgement.claim: judgement.plain() for judgement in study.judge(smaller)}
    dataclasses.replace(smaller, verdicts=verdicts).save(options.output)
    print(
        f"{options.output}: {options.output.stat().st_size / 1000:.0f} kB, was"
        f" {files[0].stat().st_size / 1000:.0f} kB"
    )
    return 0


# -- shared by the commands ------------------------------------------------------------------------


def _run_study(
    study: Any,
    config: Any,
    preset: str,
    folder: Path,
    options: Any,
    progress: Callable[[Any], None] | None = None,
    asked_to_stop: Callable[[], bool] | None = None,
) -> tuple[Any, float]:
    """Train, judge, save the record and draw the figures."""
    import time

    from saccade.core.lab import Lab
    from saccade.report.terminal import ProgressDisplay

    begun = time.monotonic()
    with contextlib.nullcontext(progress) if progress is not None else ProgressDisplay() as display:
        precision = options.precision or study.precision
        lab = Lab(
            options.output / "cache",
            precision,
            display,
            fresh=options.fresh,
            asked_to_stop=asked_to_stop,
        )
        record = study.run(config, lab, preset)
    record.save(folder / "record.nc")
    _draw(study, record, folder)
    return record, time.monotonic() - begun


def _draw(study: Any, record: Any, folder: Path) -> None:
    from saccade.report.drawing import save_figure

    for figure in study.drawn(record):
        save_figure(figure, folder / "figures")


def _run_folder(output: Path, name: str, preset: str, config: Any, preset_config: Any) -> Path:
    """A preset's own folder; a changed config gets another, so that no run overwrites a
    different one.
    """
    if config == preset_config:
        return output / f"{name}-{preset}"
    import hashlib

    from saccade.core.lab import describe

    changed = json.dumps(describe(config), sort_keys=True)
    return output / f"{name}-{preset}-{hashlib.sha256(changed.encode()).hexdigest()[:8]}"


def _record_files(paths: Sequence[Path]) -> list[Path]:
    """Files as they are, and all records below folders."""
    files: list[Path] = []
    for path in paths:
        if not path.exists():
            raise FileError(f"cannot read {path}: no such file or folder")
        files += sorted((*path.rglob("*.nc"), *path.rglob("*.nc.gz"))) if path.is_dir() else [path]
    if not files:
        raise FileError(
            f"no records (*.nc, *.nc.gz) below {', '.join(str(path) for path in paths)}"
        )
    return files


def _opened(paths: Sequence[Path]) -> list[tuple[Any, Any]]:
    """Studies and records of some files, or of all records below some folders."""
    from saccade.core.record import Record
    from saccade.core.study import find_study

    entries = []
    for file in _record_files(paths):
        record = Record.open(file)
        entries.append((find_study(record.study), record))
    return sorted(entries, key=lambda entry: (entry[0].name, entry[1].preset))


def _sweeps(given: Sequence[str]) -> dict[str, list[float]]:
    sweeps: dict[str, list[float]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        name = name.strip().replace("-", "_")
        try:
            numbers = [float(value) for value in values.split(",")] if equals else []
        except ValueError:
            numbers = []
        if not numbers or not name:
            raise ConfigError(
                f"--sweep: got {text!r}, allowed: NAME=V1,V2,... with numbers, e.g. rate=0.01,0.1,1"
            )
        if name in sweeps:
            raise ConfigError(f"--sweep: got {name!r} twice, allowed: one --sweep a name")
        sweeps[name] = numbers
    return sweeps


# -- options: tyro makes them from the dataclasses; errors are one line ----------------------------


def _value_of(arguments: Sequence[str], option: str) -> str | None:
    """The value that an option is given, looked up before the options are parsed."""
    for place, argument in enumerate(arguments):
        if argument == option and place + 1 < len(arguments):
            return arguments[place + 1]
        if argument.startswith(f"{option}="):
            return argument.split("=", 1)[1]
    return None


def _positional(arguments: Sequence[str], usage: str, options: Any) -> tuple[list[Path], list[str]]:
    """Leading paths, and what follows them."""
    if any(argument in ("-h", "--help") for argument in arguments):
        _parsed(options, ["--help"], usage)
    taken: list[Path] = []
    rest: list[str] = []
    switches = {_name(field.name) for field in dataclasses.fields(options) if field.type is bool}
    waiting = iter(arguments)
    for argument in waiting:
        if argument.startswith("-"):
            rest.append(argument)
            if argument not in switches and "=" not in argument:
                rest += [following for following in [next(waiting, None)] if following is not None]
        else:
            taken.append(Path(argument))
    if not taken:
        raise ConfigError(f"got no record, usage: {usage}")
    return taken, rest


def _parsed(options: Any, arguments: Sequence[str], program: str) -> Any:
    """Options from flags; defaults are what is passed in."""
    _check_options([options], arguments, program)
    return _by_tyro(type(options), options, arguments, program)


def _parsed_together(
    options: Any, config: Any, arguments: Sequence[str], name: str
) -> tuple[Any, Any]:
    """Options of the run and config of the study, from one flat set of flags."""
    program = f"saccade run {name}"
    _check_options([options, config], arguments, program)
    fields: list[Any] = [
        (part, type(value), dataclasses.field(default=value))
        for part, value in (("run", options), (name, config))
    ]
    together = dataclasses.make_dataclass("Together", fields, frozen=True)
    together.__doc__ = f"Run the study {name}. 'saccade list' tells what it is about."
    parsed = _by_tyro(together, together(), arguments, program)
    return parsed.run, getattr(parsed, name)


def _by_tyro(kind: Any, default: Any, arguments: Sequence[str], program: str) -> Any:
    import tyro

    error = io.StringIO()
    try:
        with contextlib.redirect_stderr(error):
            return tyro.cli(
                kind,
                prog=program,
                args=_gathered(arguments),
                default=default,
                config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as stop:
        if stop.code in (0, None):
            raise
        # `_check_options` has seen to the usual mistakes; for the rest, the first line inside
        # tyro's box.
        told = [
            line.strip(" │|") for line in error.getvalue().splitlines() if line.strip(" │|─╭╮╰╯-")
        ]
        raise ConfigError(f"{program}: {told[1] if len(told) > 1 else 'wrong options'}") from None


def _gathered(arguments: Sequence[str]) -> list[str]:
    """All values of a repeated --sweep (or --only) behind one, which is how tyro takes several."""
    gathered: list[str] = []
    repeated: dict[str, list[str]] = {}
    current: list[str] = gathered
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in ("--sweep", "--only"):
            current = repeated.setdefault(name, [])
            current += [value] if equals else []
        elif _is_option(argument):
            current = gathered
            gathered.append(argument)
        else:
            current.append(argument)
    return gathered + [part for name, values in repeated.items() for part in (name, *values)]


def _name(field: str) -> str:
    return f"--{field.replace('_', '-')}"


def _check_options(parts: Sequence[Any], arguments: Sequence[str], program: str) -> None:
    """Refuse unknown options and values of the wrong kind, in one line that says what is
    allowed.
    """
    known: dict[str, Any] = {}
    for part in parts:
        hints = get_type_hints(type(part))
        for field in dataclasses.fields(part):
            on = hints[field.name] is bool and getattr(
                part, field.name
            )  # a switch that is on can only be turned off
            known[_name(f"no_{field.name}" if on else field.name)] = hints[field.name]
    place = 0
    while place < len(arguments):
        name, equals, attached = arguments[place].partition("=")
        name = name.replace("_", "-")
        place += 1
        if name in ("-h", "--help"):
            continue
        if name not in known:
            close = difflib.get_close_matches(name, known, 1)
            hint = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(
                f"{name}: no such option of {program}; {hint}allowed: {', '.join(known)}"
            )
        values = [attached] if equals else []
        while not equals and place < len(arguments) and not _is_option(arguments[place]):
            values.append(arguments[place])
            place += 1
        _check_values(name, known[name], values)


def _is_option(argument: str) -> bool:
    return (
        argument.startswith("-")
        and not argument.lstrip("-")[:1].isdigit()
        and not argument.startswith("-.")
    )


def _check_values(name: str, kind: Any, values: Sequence[str]) -> None:
    if type(None) in get_args(
        kind
    ):  # an option that may be left out takes the values of what it is otherwise
        (kind,) = (one for one in get_args(kind) if one is not type(None))
    inner = get_args(kind)
    several = get_origin(kind) is tuple
    single = inner[0] if several else kind
    tests: Mapping[Any, tuple[str, Callable[[str], Any]]] = {
        int: ("a whole number", int),
        float: ("a number", float),
        str: ("a text", str),
        Path: ("a path", Path),
    }
    if kind is bool:
        if values:
            raise ConfigError(f"{name}: got {values[0]!r}, allowed: no value (it is a switch)")
        return
    if get_origin(kind) is Literal:
        allowed, convert = (
            ", ".join(map(str, inner)),
            lambda text: inner[list(map(str, inner)).index(text)],
        )
    else:
        allowed, convert = tests[single]
    if not values or (len(values) > 1 and not several):
        got = repr(" ".join(values)) if values else "nothing"
        raise ConfigError(
            f"{name}: got {got}, allowed: {allowed}" + (", one or more" if several else "")
        )
    for value in values:
        try:
            convert(value)
        except ValueError:
            raise ConfigError(f"{name}: got {value!r}, allowed: {allowed}") from None


if __name__ == "__main__":
    sys.exit(main())
