"""The commit of a run: a claim is registered for a record that was made from a commit without
changes, if it computes from the record what it computed then (`saccade.judging.evidence`).
"""

import functools
import os
import re
import subprocess
from collections.abc import Callable
from inspect import getfile, unwrap
from pathlib import Path
from typing import Any

from saccade.errors import ConfigError

VARIABLE = "SACCADE_COMMIT"
"""Environment variable with the commit, where a run happens without the repository."""
CHANGES = "+changes"
"""Stands after a commit whose files were changed before the run."""
STATED = "+stated"
"""Stands after a commit that somebody stated, and that no repository confirmed."""


def is_clean(commit: str) -> bool:
    """Whether a run's code was committed, as far as is known."""
    return bool(commit) and CHANGES not in commit


def commit_of(function: Callable[..., Any]) -> str:
    """The commit of the repository that contains a function's file, with `+changes` if tracked
    files are not as committed, or Python files are not tracked; empty if the file is in no commit.
    A commit that `SACCADE_COMMIT` states has `+stated` behind it, unless the repository is at hand
    and at that commit.
    """
    given = os.environ.get(VARIABLE, "")
    if given:
        if not re.fullmatch(rf"[0-9a-f]{{7,64}}({re.escape(CHANGES)})?", given):
            allowed = f"a commit's hexadecimal digits, followed by {CHANGES} if files were changed"
            raise ConfigError(f"{VARIABLE}: got {given!r}, allowed: {allowed}")
        here = _commit(function)
        return here if here.startswith(given) else given + STATED
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
