"""The commit of a run: a claim is registered for a record that was made from a commit without
changes, if it computes from the record what it computed then (`saccade.judging.evidence`).
"""

import functools
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from inspect import getfile, unwrap
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

from saccade.errors import ConfigError, is_the_users

VARIABLE = "SACCADE_COMMIT"
"""Environment variable with the commit, where a run happens without the repository."""
CHANGES = "+changes"
"""Stands after a commit whose files were changed before the run."""
STATED = "+stated"
"""Stands after a commit that somebody stated, and that no repository confirmed."""


def is_clean(commit: str) -> bool:
    """Whether a run's code was committed, as far as is known."""
    return bool(commit) and CHANGES not in commit


def commit_of(function: Callable[..., Any], others: Iterable[Callable[..., Any]] = ()) -> str:
    """The commit of the repository that contains a function's file, with `+changes` if tracked
    files are not as committed, Python files are not tracked, or other functions that a user has
    written come from elsewhere; empty if the file is in no commit. A commit that `SACCADE_COMMIT`
    states has `+stated` behind it, unless the repository is at hand, which must be at that commit.
    """
    files = {file for file in map(file_of, others) if file is not None and is_the_users(file)}
    commit = _commit_or_stated(function)
    strange = (
        is_clean(commit) and STATED not in commit and any(_commit(file) != commit for file in files)
    )
    return commit + CHANGES if strange else commit


def _commit_or_stated(function: Callable[..., Any]) -> str:
    given = os.environ.get(VARIABLE, "")
    if given:
        if not re.fullmatch(rf"[0-9a-f]{{7,64}}({re.escape(CHANGES)})?", given):
            allowed = f"a commit's hexadecimal digits, followed by {CHANGES} if files were changed"
            raise ConfigError(f"{VARIABLE}: got {given!r}, allowed: {allowed}")
        here = _commit(file_of(function))
        if here and not here.startswith(given):
            allowed = f"that of the repository at hand, {here}, or none"
            raise ConfigError(f"{VARIABLE}: got {given!r}, allowed: {allowed}; unset it")
        return here or given + STATED
    return _commit(file_of(function))


def _commit(file: Path | None) -> str:
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


def _innermost(function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    return unwrap(function) if callable(function) else function
