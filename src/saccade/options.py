"""The options of every command as dataclasses, and the parser that is made from them.

Every field is an option, with its default and, as help, the text below it. The settings of a study
become options in the same way. Every mistake is a `ConfigError` of one line.
"""

import argparse
import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from saccade.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class ListOptions:
    """The studies, with their presets and claims: all, or those named."""

    json: bool = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True)
class _TrainingOptions:
    output: Path = Path("runs")
    """Folder for records, figures and the cache of trainings."""
    precision: Literal["float32", "float64"] | None = None
    """Precision of training; by default the study's own."""
    fresh: bool = False
    """Train again even if the cache holds these trainings."""
    data: Path | None = None
    """Folder with a folder per corpus; by default that of the variable SACCADE_DATA."""
    json: bool = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True)
class _ChunkOptions(_TrainingOptions):
    chunk: int | None = None
    """Most members trained at once; by default all that fit the device's memory, or 64 with a
    scheduler. The same size gives the same bits, whichever worker trains."""
    scheduler: str | None = None
    """Where chunks are trained: local:4 (four processes), dask:4 (a Dask cluster of four), the
    address of a Dask scheduler (tcp://HOST:8786) or its file (*.json); by default in this process.
    """


@dataclasses.dataclass(frozen=True)
class RunOptions(_ChunkOptions):
    """Run one study: train, judge its claims, draw its figures, save the record."""

    preset: str = "quick"
    """Settings to start from; the options below change single ones."""
    sweep: tuple[str, ...] = ()
    """NAME=V1,V2,...: train the grid of these values of a setting of type NUMBER; repeatable."""
    dry_run: bool = False
    """Train nothing; show members, steps, memory and estimated time of every training."""


@dataclasses.dataclass(frozen=True)
class MapOptions(_ChunkOptions):
    """Where a claim of a study holds, over two of its settings: the grid is refined only where the
    verdict changes. Draws the boundary and saves a record.
    """

    x: str = ""
    """NAME=LOW..HIGH: a setting of type NUMBER and its range; required. From a factor of 10 between
    two positive ends the axis is logarithmic; LOW..HIGH:log and LOW..HIGH:linear say which."""
    y: str = ""
    """NAME=LOW..HIGH: the other one; required."""
    claim: str = ""
    """Number of the claim to judge, such as A-2; required."""
    cells: int = 2000
    """Most cells (pairs of values) to train; a round of refinement that needs more is not begun."""
    finest: int = 64
    """Steps of the finest lattice along each axis, a power of two."""
    coarse: int = 8
    """Steps of the lattice to begin with, a power of two."""
    full: bool = False
    """Train every cell of the finest lattice as well, and compare."""
    preset: str = "quick"
    """Settings to start from; the options below change single ones."""


@dataclasses.dataclass(frozen=True)
class ReproduceOptions(_TrainingOptions):
    """Run every study on its quick preset; exit code 1 if a verdict is not the known one."""

    page: Path = Path("report.html")
    """The page to write."""
    only: tuple[str, ...] = ()
    """Names or .py files of the studies to run; all if none is given."""
    study: tuple[Path, ...] = ()
    """.py files of studies to run besides those that are installed."""
    jobs: int | None = None
    """Studies at once, in processes; by default one per core, at most four (accelerator: one)."""


@dataclasses.dataclass(frozen=True)
class _RecordOptions:
    study: tuple[Path, ...] = ()
    """The .py file of a study that is not installed; may be given several times."""


@dataclasses.dataclass(frozen=True)
class ReportOptions(_RecordOptions):
    """The page, from records alone: nothing is trained."""

    output: Path = Path("report.html")
    """The page to write."""
    figures: Path | None = None
    """Folder for the figures as PNG and PDF, in a folder per record; none are written otherwise."""


@dataclasses.dataclass(frozen=True)
class LedgerOptions(_RecordOptions):
    """The table of verdicts, judged again from records alone."""

    output: Path | None = None
    """Markdown file to write; printed if none is given."""
    json: bool = False
    """Print JSON instead."""
    known: Path | None = None
    """Instead, keep these verdicts as the known ones in this file (known.json beside the study)."""


@dataclasses.dataclass(frozen=True)
class CompareOptions(_RecordOptions):
    """Two records of one study side by side: settings, verdicts, numbers and trajectories, with the
    differences marked that exceed their 95 % intervals. A and B are records, or folders of a run.
    """

    output: Path | None = None
    """A page to write, with the figures of both; otherwise tables are printed."""
    json: bool = False
    """Print JSON instead."""


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """Corpora by name: list them, fetch some into the user's cache, or check what is here."""

    data: Path | None = None
    """Folder with a folder per corpus; by default that of the variable SACCADE_DATA. Fetched
    corpora go there if it is given."""
    json: bool = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True)
class MeasureOptions:
    """Measure the checkpoints of a run that was trained elsewhere, and write a record. FOLDER has
    folders checkpoint-* with safetensors and a tokeniser, as the Trainer of transformers saves
    them, or is one checkpoint. Needs the extra `torch`.
    """

    text: Path | None = None
    """Text file on which the model is measured; required."""
    output: Path = Path("runs/measured/record.nc")
    """The record to write."""
    sequences: int = 8
    """Sequences of the text, evenly spaced."""
    tokens: int = 128
    """Tokens per sequence."""
    rows: int = 128
    """The most queries per sequence, evenly spaced."""
    ablations: bool = False
    """Measure also the loss with each layer's attention made uniform, and without each head."""
    hub: str | None = None
    """Instead of FOLDER: name of a model on the hub, with the option --steps; needs a network."""
    steps: tuple[int, ...] = ()
    """Steps whose revisions are fetched from the hub."""
    revision: str = "step{}"
    """Name of the revision of a step on the hub, with {} for the step."""
    device: str = "cpu"
    """Device of PyTorch: cpu, cuda, cuda:1, mps."""


@dataclasses.dataclass(frozen=True)
class DiagnoseOptions:
    """Why attention does not learn: look for known faults in records of runs, and say what to try.
    Exit code 1 if there is a fault, or a file cannot be read.
    """

    step: int | None = None
    """Judge at this step, or the last measured one before; by default at the last."""
    json: bool = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True)
class ExplainOptions(_RecordOptions):
    """A claim: what it says, what the paper says, how it is checked, what was found in records and
    why, and where its code is. A study stands for all of its claims.
    """

    records: tuple[Path, ...] = ()
    """Record, or folder with records, in which findings are looked for; may be given several times.
    By default the folders runs and results, where they exist."""
    json: bool = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True)
class DoctorOptions:
    """What is installed, which devices and corpora there are, and what is missing. Exit code 1 only
    if something is broken that every study needs.
    """

    output: Path = Path("runs")
    """Folder whose cache is measured."""
    data: Path | None = None
    """Folder with a folder per corpus; by default that of the variable SACCADE_DATA."""
    json: bool = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True)
class CacheOptions:
    """What the cache keeps: finished trainings, states of unfinished ones, results of other slow
    work and compiled programs. `saccade cache prune` removes those that the options name; none that
    a process is using.
    """

    output: Path = Path("runs")
    """Folder with the folder cache, as for saccade run."""
    older_than: str = ""
    """With prune: only what was last written this long ago: 90m, 12h, 30d or 4w."""
    unfinished: bool = False
    """With prune: states of unfinished trainings, and what interrupted writes left."""
    compiled: bool = False
    """With prune: compiled programs; they are compiled again when they are needed."""
    all: bool = False
    """With prune: everything."""
    dry_run: bool = False
    """With prune: remove nothing, and say what would be removed."""
    json: bool = False
    """Print JSON."""


@dataclasses.dataclass(frozen=True)
class CompletionOptions:
    """Tab completion for a shell: eval "$(saccade completion bash)" in ~/.bashrc, or
    eval "$(saccade completion zsh)" in ~/.zshrc. Prints the script, which completes commands,
    options, studies, presets and claims.
    """


COMMANDS = {
    "list": (ListOptions(), "[STUDY...]"),
    "data": (DataOptions(), "list | fetch NAME... | check [NAME...]"),
    "reproduce": (ReproduceOptions(), ""),
    "report": (ReportOptions(), "RECORD_OR_FOLDER..."),
    "ledger": (LedgerOptions(), "RECORD_OR_FOLDER..."),
    "compare": (CompareOptions(), "A B"),
    "measure": (MeasureOptions(), "[FOLDER]"),
    "diagnose": (DiagnoseOptions(), "RECORD_OR_FOLDER..."),
    "explain": (ExplainOptions(), "CLAIM_OR_STUDY..."),
    "doctor": (DoctorOptions(), ""),
    "cache": (CacheOptions(), "[prune]"),
    "completion": (CompletionOptions(), "bash | zsh"),
}
"""All but `run` and `map`: default options, and the name of the positional arguments."""


# -- the parser ------------------------------------------------------------------------------------

SHORT = {"--output": ("-o",)}
"""Short names of options."""
_STRICT: Any = {"add_help": False, "allow_abbrev": False, "exit_on_error": False}


def parsed(
    parts: Mapping[str, Any], arguments: Sequence[str], program: str, positional: str = ""
) -> tuple[list[Any], list[str]]:
    """The parts, given as titles and defaults, with the options applied; and positional arguments,
    named by `positional` (an option of several values is then repeated, with one value each).
    Fields of nested dataclasses are options by their plain names.
    """
    usage = " ".join(filter(None, [program, positional, "[OPTIONS]"]))
    description = inspect.getdoc(type(next(iter(parts.values()))))
    layout = functools.partial(argparse.HelpFormatter, max_help_position=28)
    parser = argparse.ArgumentParser(program, usage, description, formatter_class=layout, **_STRICT)
    groups = {title: parser.add_argument_group(title) for title in parts}
    next(iter(groups.values())).add_argument("-h", "--help", action="help", help="Show this help.")
    fields = [(title, field) for title, part in parts.items() for field in _fields(part)]
    names = [field.name for _, field in fields]
    known: dict[str, str] = {}
    owners: dict[str, str] = {}
    for title, field in fields:
        flag = field.flag(unique=names.count(field.name) == 1)
        if owners.setdefault(flag, title) != title:  # a setting that is named as an option
            flag = f"--study-{flag[2:]}"
        if flag in known:
            raise ConfigError(f"{program}: got two settings named {flag}, allowed: one")
        field.add(groups[title], flag, f"{title}.{field.path}", one_by_one=bool(positional))
        known[flag] = field.kind.allowed
    given = [_plain(argument) for argument in arguments]
    try:
        found, rest = parser.parse_known_args(given)
    except argparse.ArgumentError as error:
        flag = str(error.argument_name).partition("/")[0]
        got = re.sub("^ignored explicit argument", "got", error.message)
        got = "got nothing" if got.startswith("expected") else got
        raise ConfigError(f"{flag}: {got}, allowed: {known[flag]}") from None
    every = ", ".join(known)
    for one in rest:
        if one.startswith("-"):
            flag = one.partition("=")[0]
            close = difflib.get_close_matches(flag.strip("-"), [name[2:] for name in known], 1)
            hint = f"did you mean --{close[0]}? " if close else ""
            raise ConfigError(f"{flag}: no such option of {program}; {hint}allowed: {every}")
        if not positional:
            before = given[max(given.index(one) - 1, 0)]
            what = f"{before}: " if before in known else ""
            allowed = known.get(before, f"the options {every}")
            raise ConfigError(f"{what}got {one.strip()!r}, allowed: {allowed}")
    values = {
        path: tuple(value for value in given if value is not _NONE)
        if isinstance(given, list)
        else given
        for path, given in vars(found).items()
    }
    return [_applied(part, f"{title}.", values) for title, part in parts.items()], rest


def first_value(arguments: Sequence[str], flag: str, default: str) -> str:
    """The value of one option, read before the others: they depend on it."""
    parser = argparse.ArgumentParser(**_STRICT)
    parser.add_argument(flag, nargs="?", dest="value")
    return parser.parse_known_args(arguments)[0].value or default


_NONE = object()
"""Read from "()", which says that an option of several values has none."""


@dataclasses.dataclass(frozen=True)
class _Kind:
    """How the values of a type are read from text."""

    allowed: str
    word: str
    """Stands for the value in the help."""
    read: Callable[[str], Any]
    several: bool = False
    choices: tuple[str, ...] = ()
    """All texts that are allowed, where they are few."""

    def __call__(self, text: str) -> Any:
        text = text.removeprefix(" ")
        if self.several and text == "()":
            return _NONE
        try:
            return self.read(text)
        except (ValueError, KeyError):
            raise argparse.ArgumentTypeError(f"got {text!r}") from None


_SWITCH = _Kind("no value (it is a switch)", "", bool)
_KINDS = {
    bool: _SWITCH,
    int: _Kind("a whole number", "INTEGER", int),
    float: _Kind("a number", "NUMBER", float),
    str: _Kind("a text", "TEXT", str),
    Path: _Kind("a path", "PATH", Path),
}


def _kind(hint: Any) -> _Kind | None:
    """None for a type that no option can set, such as a function."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        choices = {str(one): one for one in inner}
        word = f"{{{','.join(choices)}}}"
        return _Kind(", ".join(choices), word, choices.__getitem__, choices=tuple(choices))
    if origin in (typing.Union, types.UnionType):
        kinds = [_kind(one) for one in inner if one is not types.NoneType]
        return kinds[0] if len(kinds) == 1 else None
    if origin is tuple and len({*inner} - {...}) == 1:
        one = _kind(inner[0])
        if one is None or one is _SWITCH or one.several:
            return None
        return dataclasses.replace(one, allowed=f"{one.allowed}, one or more", several=True)
    return _KINDS.get(hint) if isinstance(hint, type) else None


@dataclasses.dataclass(frozen=True)
class _Field:
    """A field of a config that is an option; the path is dotted, from the config down."""

    path: str
    name: str
    kind: _Kind
    default: Any
    help: str

    def flag(self, unique: bool) -> str:
        name = (self.name if unique else self.path).rstrip("_").replace("_", "-")
        # A switch that is on can only be turned off.
        return f"--no-{name}" if self.kind is _SWITCH and self.default else f"--{name}"

    def add(self, group: Any, flag: str, dest: str, one_by_one: bool) -> None:
        value = self.default
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
        text = self.help if shown in (None, "") else f"{self.help} (default: {shown})"
        how: dict[str, Any] = {"type": self.kind, "metavar": self.kind.word}
        if self.kind is _SWITCH:
            text = f"Turn off: {self.help}" if self.default else self.help
            how = {"action": "store_const", "const": not self.default}
        if self.kind.several:
            how |= {"action": "append"} if one_by_one else {"action": "extend", "nargs": "+"}
        how |= {"dest": dest, "default": argparse.SUPPRESS, "help": text.replace("%", "%%")}
        group.add_argument(flag, *SHORT.get(flag, ()), **how)


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of a command, for those who complete it."""

    flags: tuple[str, ...]
    """Its name and, if it has one, its short name."""
    word: str
    """Stands for the value in the help; empty for a switch."""
    choices: tuple[str, ...]
    several: bool
    help: str


def options_of(default: Any) -> list[Option]:
    """The options that are made from a dataclass."""
    found = [(field.flag(unique=True), field) for field in _fields(default)]
    return [
        Option(
            (flag, *SHORT.get(flag, ())), it.kind.word, it.kind.choices, it.kind.several, it.help
        )
        for flag, it in found
    ]


def _fields(config: Any, above: str = "") -> Iterator[_Field]:
    hints, texts = typing.get_type_hints(type(config)), _texts(type(config))
    for field in dataclasses.fields(config):
        name, kind = field.name, _kind(hints[field.name])
        value, path = getattr(config, name), f"{above}{name}"
        if dataclasses.is_dataclass(value) and field.init:
            yield from _fields(value, f"{path}.")
        elif kind is not None and field.init:
            yield _Field(path, name, kind, value, texts.get(name, ""))


def _texts(kind: type) -> dict[str, str]:
    """The texts below the fields of a dataclass and of its bases."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError):
            continue  # made in an interactive session
        for field, text in itertools.pairwise(getattr(tree, "body", ())):
            match field, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(found))):
                    texts[name] = " ".join(found.split())
    return texts


def _plain(argument: str) -> str:
    """Underscores in names are hyphens; a space keeps a negative number from being an option."""
    if argument.startswith("--"):
        name, equals, value = argument.partition("=")
        return name.replace("_", "-") + equals + value
    return f" {argument}" if re.match(r"-\.?\d", argument) else argument


def _applied(config: Any, above: str, values: Mapping[str, Any]) -> Any:
    """The config with all values at once: one alone may not fit the others."""
    changes: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        path = f"{above}{field.name}"
        if path in values:
            changes[field.name] = values[path]
        elif any(other.startswith(f"{path}.") for other in values):
            changes[field.name] = _applied(getattr(config, field.name), f"{path}.", values)
    return dataclasses.replace(config, **changes) if changes else config
