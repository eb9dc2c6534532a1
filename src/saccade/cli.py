"""The command line: which command is meant, with which options; one line for every mistake.

`saccade.commands`, `saccade.data_commands` and `saccade.watch_commands` have the commands, imported
on use so that help is quick.
"""

import re
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from saccade.core.errors import ConfigError, SaccadeError
from saccade.options import COMMANDS, RunOptions, first_value, parsed
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
  measure     checkpoints of a model that was trained elsewhere, as a record
  diagnose    faults of runs by name, with what to try
  data        corpora by name: list, fetch, check

A study is given by its name, or as the path of a .py file.
'saccade COMMAND --help' shows the options of a command, 'saccade --version' the version.
"""
RUN_USAGE = """\
usage: saccade run STUDY [--preset PRESET] [--sweep NAME=V1,V2,...] [OPTIONS]

STUDY is the path of a .py file that defines STUDY, or one of: {names}.
'saccade run STUDY --help' shows the options of a study, 'saccade list' its claims.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failure or changed verdict, 2 wrong options, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return prepared(arguments)()
    except SaccadeError as error:
        return _complain(str(error), error.exit_code)
    except KeyboardInterrupt:
        kept = "; finished trainings are kept, and the same command continues from there"
        return _complain(f"stopped{kept if arguments[0] in ('run', 'reproduce') else ''}", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, so a message would not arrive either
        return 1
    except OSError as error:
        return _complain(f"{error.filename or 'the system'}: {error.strerror or error}", 1)


def prepared(arguments: Sequence[str]) -> Callable[[], int]:
    """The command with its options, ready to be called; wrong options are refused here."""
    command, *rest = arguments or ["--help"]
    if command in ("-h", "--help", "help"):
        return partial(_print, USAGE)
    if command == "--version":
        return partial(_print, f"saccade {__version__}\n")
    if command == "run":
        return _prepared_run(rest)
    if command not in COMMANDS:
        raise ConfigError(f"command: got {command!r}, allowed: run, {', '.join(COMMANDS)}")
    default, positional = COMMANDS[command]
    (options,), given = parsed({"options": default}, rest, f"saccade {command}", positional)
    if positional.startswith("RECORD") and not given:
        raise ConfigError(f"got no record, usage: saccade {command} {positional}")
    return partial(_call, command, options, given)


def _prepared_run(arguments: list[str]) -> Callable[[], int]:
    from saccade.registry import find_study, study_names

    if not arguments or arguments[0] in ("-h", "--help"):
        usage = RUN_USAGE.format(names=", ".join(study_names()))
        return partial(_print, usage, 0 if arguments else 2)
    reference, *rest = arguments
    study = find_study(reference)
    usual = RunOptions.preset if RunOptions.preset in study.presets else next(iter(study.presets))
    preset = first_value(rest, "--preset", usual)
    settings = f"settings of {study.name}, preset {preset}"
    parts = {"options": RunOptions(preset=preset), settings: study.config(preset)}
    (options, config), _ = parsed(parts, rest, f"saccade run {reference}")
    sweeps = _sweeps(options.sweep)
    for name in sweeps:
        flag = f"--{name.replace('_', '-')}"
        if any(re.match(f"{flag}(=|$)", one.replace("_", "-")) for one in rest):
            raise ConfigError(f"{flag}: got a value and --sweep {name}, allowed: one of them")
    config = study.swept(config, sweeps)
    return partial(_call, "run", options, study, config)


def _call(command: str, *arguments: Any) -> int:
    if command == "data":  # needs neither studies nor the engine
        from saccade.data_commands import data_command

        return data_command(*arguments)
    if command == "measure":
        from saccade.watch_commands import measure_command

        return measure_command(*arguments)
    from saccade import commands

    return getattr(commands, f"{command}_command")(*arguments)


def _sweeps(given: Sequence[str]) -> dict[str, list[float]]:
    sweeps: dict[str, list[float]] = {}
    for text in given:
        name, _, values = text.partition("=")
        name = name.strip().replace("-", "_")
        try:
            numbers = [float(value) for value in values.split(",")]
        except ValueError:
            numbers = []
        if not numbers or not name:
            allowed = "NAME=V1,V2,... with numbers, e.g. rate=0.01,0.1,1"
            raise ConfigError(f"--sweep: got {text!r}, allowed: {allowed}")
        if name in sweeps:
            raise ConfigError(f"--sweep: got {name!r} twice, allowed: one --sweep per name")
        sweeps[name] = numbers
    return sweeps


def _complain(message: str, code: int) -> int:
    print(f"saccade: {' '.join(message.split())}", file=sys.stderr)
    return code


def _print(text: str, code: int = 0) -> int:
    print(text, end="")
    return code
