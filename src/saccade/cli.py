"""The command line: which command is meant, with which options; one line for every mistake.

The commands are in `saccade.commands` and the modules of `MODULES`, imported on use so that help is
quick.
"""

import dataclasses
import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from saccade.errors import ConfigError, SaccadeError
from saccade.options import COMMANDS, MapOptions, RunOptions, first_value, parsed
from saccade.version import __version__

if TYPE_CHECKING:
    from saccade.core.adaptive import MapAxis

GREETING = """\
saccade trains small attention models and judges, claim by claim, what papers say about how they
learn.

Three commands to try:
  saccade list                  the studies, with their presets and claims
  saccade run sen_convolution   one study on its quick preset: verdicts, figures and a record
  saccade explain A-14          a claim of that study: how it is checked, and what was found

'saccade --help' shows all commands.
"""
USAGE = """\
usage: saccade COMMAND [OPTIONS]

A laboratory for how attention learns.

commands:
  list        studies, presets and claims
  explain     a claim: what it says, how it is checked, what was found and why
  run         one study: progress, verdicts, figures, record
  map         where a claim holds, over two settings of a study
  reproduce   every study on its quick preset, the ledger and report.html
  report      the page, from records alone
  ledger      the table of verdicts, from records alone
  compare     two records of one study side by side
  measure     checkpoints of a model that was trained elsewhere, as a record
  diagnose    faults of runs by name, with what to try
  data        corpora by name: list, fetch, check
  cache       trainings that are kept, with their sizes; cache prune removes some
  doctor      versions, extras, devices, corpora and cache: what is here, what is missing
  completion  tab completion for bash and zsh: eval "$(saccade completion bash)"

A study is given by its name, or as the path of a .py file.
'saccade COMMAND --help' shows the options of a command, 'saccade --version' the version.
"""
STUDY_USAGE = """\
usage: saccade {command} STUDY {options} [OPTIONS]

STUDY is the path of a .py file that defines STUDY, or one of: {names}.
'saccade {command} STUDY --help' shows the options of a study, 'saccade list' its claims.
"""
STUDY_OPTIONS = {
    "run": (RunOptions(), "[--preset PRESET] [--sweep NAME=V1,V2,...]"),
    "map": (MapOptions(), "--x NAME=LOW..HIGH --y NAME=LOW..HIGH --claim CLAIM"),
}
"""Commands with a study's settings as options: default options, and what the usage names."""
MODULES = {
    "cache": "saccade.cache_commands",
    "compare": "saccade.compare_commands",
    "completion": "saccade.completion_commands",
    "data": "saccade.data_commands",
    "doctor": "saccade.doctor_commands",
    "explain": "saccade.explain_commands",
    "map": "saccade.map_commands",
    "measure": "saccade.watch_commands",
}
"""Where commands are; all others are in `saccade.commands`, which needs studies and the engine."""


EXTRA_OF = {
    **dict.fromkeys(
        ("jax", "equinox", "optax", "diffrax", "jaxtyping", "pooch", "cloudpickle"), "lab"
    ),
    **dict.fromkeys(("matplotlib", "altair", "vl_convert", "jinja2"), "page"),
    **dict.fromkeys(("torch", "transformers", "safetensors"), "torch"),
}
"""The extra that a command needs, by the package that is missing."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit codes: 0 done, 1 failure or changed verdict, 2 wrong options, 130 interrupted."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return prepared(arguments)()
    except SaccadeError as error:
        return _complain(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA_OF:
            raise
        extra = EXTRA_OF[package]
        need = f"needs the package {package}: pip install 'saccade[{extra}]'"
        return _complain(f"saccade {arguments[0]} {need}", 1)
    except KeyboardInterrupt:
        kept = "; finished trainings are kept, and the same command continues from there"
        trains = [*arguments][:1] in (["run"], ["map"], ["reproduce"])
        return _complain(f"stopped{kept if trains else ''}", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone, so a message would not arrive either
        return 1
    except OSError as error:
        return _complain(f"{error.filename or 'the system'}: {error.strerror or error}", 1)


def prepared(arguments: Sequence[str]) -> Callable[[], int]:
    """The command with its options, ready to be called; wrong options are refused here."""
    if not arguments:
        return partial(_print, GREETING)
    command, *rest = arguments
    if command in ("-h", "--help", "help"):
        return partial(_print, USAGE)
    if command == "--version":
        return partial(_print, f"saccade {__version__}\n")
    if command in STUDY_OPTIONS:
        return _prepared_for_study(command, rest)
    if command not in COMMANDS:
        raise ConfigError(f"command: got {command!r}, allowed: run, map, {', '.join(COMMANDS)}")
    default, positional = COMMANDS[command]
    (options,), given = parsed({"options": default}, rest, f"saccade {command}", positional)
    if positional.startswith(("RECORD", "CLAIM")) and not given:
        what = re.split(r"_|\W", positional.lower())[0]
        raise ConfigError(f"got no {what}, usage: saccade {command} {positional}")
    return partial(_call, command, options, given)


def _prepared_for_study(command: str, arguments: list[str]) -> Callable[[], int]:
    from saccade.registry import find_study, study_names

    default, named = STUDY_OPTIONS[command]
    if not arguments or arguments[0] in ("-h", "--help"):
        names = ", ".join(study_names())
        usage = STUDY_USAGE.format(command=command, options=named, names=names)
        return partial(_print, usage, 0 if arguments else 2)
    reference, *rest = arguments
    study = find_study(reference)
    usual = default.preset if default.preset in study.presets else next(iter(study.presets))
    preset = first_value(rest, "--preset", usual)
    settings = f"settings of {study.name}, preset {preset}"
    parts = {"options": dataclasses.replace(default, preset=preset)}
    parts |= {settings: study.config(preset)}
    (options, config), _ = parsed(parts, rest, f"saccade {command} {reference}")
    if command == "map":
        axes = _map_axes(options, config)
        _require_no_value(rest, {axis.name: f"--{flag}" for flag, axis in axes.items()})
        return partial(_call, command, options, study, config, axes)
    sweeps = _sweeps(options.sweep)
    _require_no_value(rest, {name: f"--sweep {name}" for name in sweeps})
    config = study.swept(config, sweeps)
    return partial(_call, command, options, study, config)


def _require_no_value(arguments: Sequence[str], swept: Mapping[str, str]) -> None:
    """Refuse a value for a setting that an option sweeps."""
    for name, option in swept.items():
        flag = f"--{name.replace('_', '-')}"
        if any(re.match(f"{flag}(=|$)", one.replace("_", "-")) for one in arguments):
            raise ConfigError(f"{flag}: got a value and {option}, allowed: one of them")


def _map_axes(options: MapOptions, config: Any) -> "dict[str, MapAxis]":
    from saccade.core.adaptive import MapAxis
    from saccade.settings import path_of, sweepable

    axes = {}
    for flag in ("x", "y"):
        text = getattr(options, flag)
        found = re.fullmatch(r"([^=]+)=(.+?)\.\.(.+?)(?::(log|linear))?", text)
        try:
            name, low, high = found[1].strip(), float(found[2]), float(found[3])  # pyright: ignore[reportOptionalSubscript]
        except (TypeError, ValueError):
            allowed = "NAME=LOW..HIGH with numbers, e.g. rate=1e-3..10"
            got = repr(text) if text else "nothing"
            raise ConfigError(f"--{flag}: got {got}, allowed: {allowed}") from None
        path = path_of(name.replace("-", "_"), sweepable(config))
        scale: Any = found[4] or ("log" if low > 0 and high >= 10 * low else "linear")  # pyright: ignore[reportOptionalSubscript]
        axes[flag] = MapAxis(path, low, high, scale)
    return axes


def _call(command: str, *arguments: Any) -> int:
    module = importlib.import_module(MODULES.get(command, "saccade.commands"))
    return getattr(module, f"{command}_command")(*arguments)


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
