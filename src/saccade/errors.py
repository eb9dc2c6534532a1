"""The errors that saccade raises on purpose: each is one sentence and has an exit code."""

import functools
import os
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
_PACKAGE, _STANDARD = Path(__file__).parents[1], Path(os.__file__).parent


class SaccadeError(Exception):
    """Something that the user can understand and fix; the command line prints it as one line."""

    exit_code = 1


class ConfigError(SaccadeError):
    """A setting outside what is allowed: names the field, the value got and what is allowed."""

    exit_code = 2


class DoesNotFitError(ConfigError):
    """Members that the device's memory does not hold at once."""


class FileError(SaccadeError):
    """A file that cannot be read or written, or that is not what its name says."""


class InterruptedTrainingError(SaccadeError):
    """Training stopped on request, with its state written."""

    exit_code = 130


def place_of(error: BaseException) -> tuple[Path, int] | None:
    """File and line of the user's code where an error arose: the deepest frame outside of saccade,
    the standard library and installed packages.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return Path(error.filename), error.lineno or 0
    frames = list(traceback.walk_tb(error.__traceback__))
    places = [(Path(frame.f_code.co_filename), line) for frame, line in reversed(frames)]
    return next((place for place in places if is_the_users(place[0])), None)


def is_the_users(file: Path) -> bool:
    installed = {"site-packages", "dist-packages"} & set(file.parts)
    ours = _PACKAGE in file.parents or _STANDARD in file.parents
    return not installed and not ours and not file.name.startswith("<")


def described(error: BaseException) -> str:
    """An error in one line: kind and first line of the message; saccade's own need no kind."""
    if isinstance(error, SaccadeError):
        return str(error)
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    line = next(iter(text.strip().splitlines()), "")
    line = f"{line[:147]}..." if len(line) > 150 else line
    return f"{type(error).__name__}: {line}" if line else type(error).__name__


def plainly(function: F) -> F:
    """A function whose own errors come without what led to them, frames of JAX above all; only an
    error of the user's code stays attached.
    """

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except SaccadeError as error:
            cause = error.__cause__
            error.__notes__ = []
            users = cause is not None and place_of(cause) is not None
            raise error.with_traceback(None) from (cause if users else None)

    return cast(F, wrapped)


def located(error: BaseException) -> str:
    """The place in the user's code as an addition to a sentence, such as ` (my_model.py, line 3)`;
    empty if there is none.
    """
    place = place_of(error)
    return f" ({place[0].name}, line {place[1]})" if place else ""
