"""How far a training is, and the default display of `Lab`."""

import dataclasses
import math
import shutil
import sys
from typing import TextIO

FROM_CACHE = "from the cache"
"""The note of a training that was found finished."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a training is; passed to `Lab.progress` several times per second."""

    name: str
    step: int
    steps: int
    loss: float
    diverged: int
    members: int
    seconds_left: float | None
    finished: bool = False
    note: str = ""
    seconds: float = 0.0
    """Time since the start of this training or, after an interruption, of its continuation."""
    may_stop: bool = False
    """Whether early stopping may end it before its last step."""
    done: int | None = None
    """Members that have ended, of a training in chunks; its step is the mean over all members."""
    rate: float | None = None
    """Members per second, of a training in chunks."""

    @property
    def from_cache(self) -> bool:
        return self.finished and self.note == FROM_CACHE

    @property
    def ending(self) -> str:
        """The note or, without one, the time taken or left."""
        if self.note or (self.seconds_left is None and not self.finished):
            return self.note
        most = "at most " if self.may_stop else ""
        left = f"{most}{duration(self.seconds_left or 0.0)} left"
        return duration(self.seconds) if self.finished else left

    def __str__(self) -> str:
        parts = [f"{self.step} of {self.steps} steps"] if self.steps else []
        if self.finished and self.step < self.steps:
            parts = [f"stopped early, at step {self.step}"]
        if self.done is not None and not self.finished:
            parts = [f"{self.done} of {self.members} members"]
        if self.rate is not None:
            parts.append(f"{self.rate:.3g} members per second")
        if math.isfinite(self.loss):
            parts.append(f"loss {self.loss:.3g}")
        if self.diverged:
            parts.append(f"{self.diverged} of {self.members} members diverged")
        return f"{self.name}: {', '.join(filter(None, [*parts, self.ending]))}"


class ProgressLine:
    """One live line per training on a terminal (stderr) or in a notebook (below the cell).

    Elsewhere, such as in a log file, one line per finished training.
    """

    def __init__(self, stream: TextIO | None = None):
        self._stream = stream
        self._written = 0  # characters of the line that the next one replaces

    def __call__(self, progress: Progress) -> None:
        stream = self._stream or (sys.stdout if _in_notebook(sys.stdout) else sys.stderr)
        encoding = getattr(stream, "encoding", None) or "utf-8"
        text = str(progress).encode(encoding, "replace").decode(encoding)
        done = progress.finished or bool(progress.note)
        if stream.isatty() or _in_notebook(stream):
            text = text[: shutil.get_terminal_size().columns - 1]
            stream.write(f"\r{text.ljust(self._written)}" + ("\n" if done else ""))
            self._written = 0 if done else len(text)
        elif done:
            stream.write(f"{text}\n")
        stream.flush()


def _in_notebook(stream: object) -> bool:
    return type(stream).__module__.startswith("ipykernel.")


def duration(seconds: float) -> str:
    """Wall time in the unit that a reader would choose."""
    if not math.isfinite(seconds):
        return "n/a"
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
