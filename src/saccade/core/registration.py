"""Whether a claim stood before its record: fingerprints of claims, and the commit of a run.

A record stores the commit from which it was made, and a fingerprint of every claim as it stood
there: its text, quantities, bounds, statistics and the source of its measures. A claim is
registered for a record if that commit had no changes and the fingerprint is still the same.

Measures are followed into functions and constants of their own folder; other functions, such as
those of core, and classes count by name. Comments, docstrings, annotations and line breaks do not
count. Fingerprints are the same on every machine and version of Python, except for functions
without source.
"""

import ast
import dataclasses
import functools
import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import findsource, getfile, unwrap
from pathlib import Path, PurePath
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from saccade.core.errors import ConfigError

if TYPE_CHECKING:
    from saccade.core.claim import Check, Claim

VARIABLE = "SACCADE_COMMIT"
"""Environment variable with the commit, where a run happens without the repository."""
CHANGES = "+changes"
"""Stands after a commit whose files were changed before the run."""


# -- the commit of a run ---------------------------------------------------------------------------


def commit_of(function: Callable[..., Any]) -> str:
    """The commit of the repository that contains a function's file, with `+changes` if tracked
    files are not as committed, or Python files are not tracked; empty if the file is in no commit.
    """
    given = os.environ.get(VARIABLE, "")
    if given:
        if not re.fullmatch(rf"[0-9a-f]{{7,64}}({re.escape(CHANGES)})?", given):
            allowed = f"a commit's hexadecimal digits, followed by {CHANGES} if files were changed"
            raise ConfigError(f"{VARIABLE}: got {given!r}, allowed: {allowed}")
        # Where the repository is at hand, it is asked whether that commit is what runs.
        here = _commit(function)
        return here if here.endswith(CHANGES) and here.startswith(given) else given
    return _commit(function)


def _commit(function: Callable[..., Any]) -> str:
    file = file_of(function)
    # A package in a virtual environment may lie in a repository that does not track it.
    if file is None or not _git(file.parent, "ls-files", "--", file.name):
        return ""
    commit = _git(file.parent, "rev-parse", "HEAD")
    changed = _git(file.parent, "status", "--porcelain", "--untracked-files=no")
    new = _git(file.parent, "ls-files", "--others", "--exclude-standard", "--", ":/*.py")
    if not commit or changed is None or new is None:
        return ""
    return commit + (CHANGES if changed or new else "")


def _git(folder: Path, *arguments: str) -> str | None:
    """What git prints; None if there is no git, or it refuses."""
    try:
        done = subprocess.run(
            ("git", "-C", str(folder), *arguments), capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def file_of(function: Any) -> Path | None:
    """The file that defines a function, beneath partials and decorators; None if there is none, as
    in a notebook.
    """
    try:
        file = Path(getfile(_innermost(function)))
    except TypeError:
        return None
    return file if file.is_file() else None


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return unwrap(function) if callable(function) else function


# -- fingerprints ----------------------------------------------------------------------------------


def is_registered(commit: str, stored: str | None, claim: "Claim") -> bool:
    """Whether a claim is the one with the stored fingerprint, in a commit without changes."""
    clean = bool(commit) and not commit.endswith(CHANGES)
    return clean and stored == fingerprint(claim)


def fingerprint(claim: "Claim") -> str:
    """Digest of what a claim says, measures and allows; not of its explanations."""
    checks: Sequence[Check] = claim.checks  # pyright: ignore[reportAssignmentType] (a tuple once made)
    parts: list[Any] = [claim.statement, claim.full_size]
    for check in checks:
        parts += [check.quantity, check.bound, check.statistic, check.arms, dict(check.where)]
        parts += [check.measure, check.left_out]
    homes = {_folder(one) for check in checks for one in functions_in(check.measure)}
    return hashlib.sha256(repr(_Reader(homes).plain(parts)).encode()).hexdigest()[:16]


def functions_in(value: Any) -> Iterator[FunctionType]:
    """The functions of a measure: itself, or those that a partial holds."""
    if isinstance(value, functools.partial):
        for part in (value.func, *value.args, *value.keywords.values()):
            yield from functions_in(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from functions_in(part)
    elif isinstance(value, MethodType):
        yield from functions_in(value.__func__)
    elif isinstance(value, FunctionType):
        yield unwrap(value)


def _folder(value: Any) -> Path | None:
    try:
        return Path(getfile(value)).parent
    except TypeError:
        return None


def _unplaced(text: str) -> str:
    """Without addresses of objects, which differ between processes."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


class _Reader:
    """Values as lists of texts that are the same on every machine."""

    def __init__(self, homes: set[Path | None]):
        self.homes = homes - {None}
        """Folders whose functions are followed."""
        self.read: list[FunctionType] = []
        """Functions whose source is written already."""

    def plain(self, value: Any) -> Any:
        function = _innermost(value)
        if isinstance(value, functools.partial):
            named = [part for pair in sorted(value.keywords.items()) for part in pair]
            return ["partial", *map(self.plain, (value.func, *value.args, *named))]
        if isinstance(value, MethodType):
            return ["method", self.plain(value.__func__), self.plain(value.__self__)]
        if isinstance(function, FunctionType) and self._is_followed(function):
            return self._source(function)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [field.name for field in dataclasses.fields(value)]
            parts = [(name, self.plain(getattr(value, name))) for name in fields]
            called = [self.plain(type(value).__call__)] if callable(value) else []
            return [type(value).__qualname__, *parts, *called]
        if isinstance(value, Mapping):
            return [(_unplaced(str(key)), self.plain(inner)) for key, inner in value.items()]
        if isinstance(value, tuple | list):
            return [self.plain(inner) for inner in value]
        if isinstance(value, set | frozenset):
            return sorted(repr(self.plain(inner)) for inner in value)
        if isinstance(value, PurePath):
            return value.name
        if isinstance(value, ModuleType):
            return value.__name__
        if callable(value):
            return getattr(value, "__qualname__", type(value).__qualname__)
        if hasattr(value, "dtype") and hasattr(value, "shape"):
            array = np.asarray(value)
            return [str(array.dtype), array.shape, array.tolist()]
        return _unplaced(repr(value))

    def _is_followed(self, function: FunctionType) -> bool:
        return _folder(function) in self.homes or function.__name__ == "<lambda>"

    def _source(self, function: FunctionType) -> Any:
        """The source of a function, and what it uses of its own folder; once."""
        if function in self.read:
            return f"function {self.read.index(function)}"
        self.read.append(function)
        try:
            text = _syntax_of(function)
        except (OSError, TypeError, SyntaxError):  # no source, as in an interactive session
            text = self._bytecode(function.__code__)
        defaults = (function.__defaults__ or (), function.__kwdefaults__ or {})
        return [text, self.plain(defaults), *self._used(function)]

    def _bytecode(self, code: CodeType) -> Any:
        consts = [
            self._bytecode(one) if isinstance(one, CodeType) else self.plain(one)
            for one in code.co_consts
        ]
        return [code.co_code.hex(), *code.co_names, consts]

    def _used(self, function: FunctionType) -> Iterator[tuple[str, Any]]:
        """Globals and closed-over values of a function; of a module of its folder, its parts."""
        names = {name for name in _global_names(function.__code__) if not name.startswith("__")}
        known = {name: value for name, value in function.__globals__.items() if name in names}
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        ):
            try:
                known[name] = cell.cell_contents
            except ValueError:  # not bound yet
                continue
        for name, value in sorted(known.items()):
            if isinstance(value, ModuleType) and _folder(value) in self.homes:
                parts = ((one, getattr(value, one)) for one in sorted(names) if hasattr(value, one))
                yield from ((f"{name}.{one}", self.plain(part)) for one, part in parts)
            else:
                yield name, self.plain(value)


def _global_names(code: CodeType) -> Iterator[str]:
    """Names of globals and attributes in a function and the functions within it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _global_names(inner)


# -- syntax ----------------------------------------------------------------------------------------

_NOT_COUNTED = ("annotation", "returns", "type_comment", "type_params", "kind", "ctx")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@functools.cache
def _syntax_of(function: FunctionType) -> Any:
    """A function as a tree of texts. `ast.dump` is not the same in all versions of Python."""
    code = function.__code__
    nodes = [
        node
        for node in _function_nodes("".join(findsource(function)[0]))
        if _first_line(node) == code.co_firstlineno and _name(node) == code.co_name
    ]
    # Several lambdas may begin on one line: the smallest that contains all instructions is meant.
    nodes = [node for node in nodes if all(_contains(node, place) for place in code.co_positions())]
    if not nodes:
        raise OSError("the file has changed")
    return _syntax(min(nodes, key=_extent))


@functools.lru_cache(64)
def _function_nodes(text: str) -> list[Any]:
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, _FUNCTIONS)]


def _first_line(node: Any) -> int:
    return min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))


def _name(node: Any) -> str:
    return getattr(node, "name", "<lambda>")


def _extent(node: Any) -> tuple[int, int]:
    lines = node.end_lineno - node.lineno
    return lines, node.end_col_offset - (0 if lines else node.col_offset)


def _contains(node: Any, place: tuple[int | None, ...]) -> bool:
    """Whether an instruction lies within a function; those without a place do not count."""
    line, end_line, column, end_column = place
    if not isinstance(node, ast.Lambda) or None in place or place[::2] == place[1::2]:
        return True
    begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    return begin <= (line, column) and (end_line, end_column) <= end  # pyright: ignore[reportOperatorIssue]


def _syntax(node: Any) -> Any:
    if isinstance(node, list):
        return [_syntax(one) for one in node]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: getattr(node, name, None) for name in node._fields if name not in _NOT_COUNTED}
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            if ast.get_docstring(node, clean=False) is not None:
                fields["body"] = node.body[1:]
        case ast.JoinedStr(values=values):  # Python 3.12 adds empty pieces
            fields["values"] = [one for one in values if getattr(one, "value", None) != ""]
        case _:
            pass
    given = {name: value for name, value in fields.items() if value is not None and value != []}
    return [type(node).__name__, *((name, _syntax(value)) for name, value in given.items())]
