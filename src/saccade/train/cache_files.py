"""What a cache keeps: finished trainings, states of unfinished ones, results of other slow work and
compiled programs; and how to remove some of it while other processes train.
"""

import contextlib
import dataclasses
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from saccade.errors import FileError
from saccade.train.storage import is_used, locked, read_header

__all__: list[str] = []

Kind = Literal["training", "unfinished", "result", "compiled", "leftover", "damaged"]
"""A leftover is what an interrupted process left: a part of a file, or a lock that nobody holds."""
_SUFFIXES = (".training", ".result")


class _HeldError(Exception):
    """Another process holds a lock."""


@dataclasses.dataclass(frozen=True)
class Kept:
    """One file of a cache."""

    path: Path
    kind: Kind
    size: int
    """In bytes."""
    changed: float
    """Time of the last change, in seconds since 1970."""
    name: str = ""
    """Of the training or the slow work; empty where the file does not say it."""
    step: int | None = None
    """Step that an unfinished training has reached."""
    steps: int | None = None

    @property
    def age(self) -> float:
        """Seconds since the last change."""
        return max(time.time() - self.changed, 0.0)

    @property
    def lock(self) -> Path | None:
        """The lock under which the file is written, if there is one."""
        if self.kind == "compiled":
            return None
        # A part of a file is named after it: .0123.training.x1y2.part
        stem = re.match(r"\.?([^.]+)", self.path.name)
        return self.path.with_name(f"{stem[1]}.lock") if stem else None

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        about = {"file": str(self.path), "kind": self.kind, "name": self.name}
        about |= {"step": self.step, "steps": self.steps}
        return about | {"bytes": self.size, "age_seconds": round(self.age)}


def kept_in(folder: Path, locks: bool = False) -> list[Kept]:
    """The files of a cache, the largest first; none if there is no such folder. With `locks`, also
    locks of files that do not exist: of trainings that have begun, or were interrupted early.
    """
    files = [*folder.glob("*.training"), *folder.glob("*.result"), *folder.glob(".*.part")]
    known = {file.stem for file in files if file.suffix in _SUFFIXES}
    if locks:
        files += (file for file in folder.glob("*.lock") if file.stem not in known)
    files += (file for file in (folder / "compiled").rglob("*") if file.is_file())
    found = (kept_file(file) for file in files)
    return sorted((one for one in found if one is not None), key=lambda one: (-one.size, one.path))


def kept_file(file: Path) -> Kept | None:
    """What one file is; None if it is gone."""
    header: dict[str, Any] = {}
    kind: Kind = "leftover"
    # GPUs have folders of their own below it.
    within = "compiled" in file.parts[-4:-1]
    if within and file.suffix not in (*_SUFFIXES, ".part", ".lock"):
        kind = "compiled"
    elif file.suffix in _SUFFIXES:
        try:
            header = read_header(file)
            kind = "result" if file.suffix == ".result" else "training"
            if kind == "training" and not header.get("finished"):
                kind = "unfinished"
        except FileError:
            kind = "damaged"
    try:
        about = file.stat()
    except FileNotFoundError:
        return None
    named = {key: header.get(key) for key in ("step", "steps")}
    name = "".join(one for one in str(header.get("name", "")) if one.isprintable())
    return Kept(file, kind, about.st_size, about.st_mtime, name, **named)


@contextlib.contextmanager
def _unheld(lock: Path | None) -> Iterator[None]:
    """Hold a lock, if there is one; raises `_HeldError` if another process does."""

    def refuse() -> None:
        raise _HeldError

    with contextlib.nullcontext() if lock is None else locked(lock, refuse):
        yield


def is_in_use(one: Kept) -> bool:
    """Whether a process holds the lock of a file, or may read it later."""
    if one.kind == "training" and is_used(one.path.parent):
        return True
    try:
        with _unheld(one.lock if one.lock and one.lock.exists() else None):
            return False
    except _HeldError:
        return True


def remove(one: Kept) -> bool:
    """Remove a file and its lock; gives whether it was done. A file that a process holds or may
    read later, or that has changed since it was listed, is kept.
    """
    try:
        if one.kind == "training" and is_used(one.path.parent):
            return False
        with _unheld(one.lock):
            now = kept_file(one.path)
            if now is not None and (now.kind, now.changed) != (one.kind, one.changed):
                return False
            one.path.unlink(missing_ok=True)
            if one.lock is not None:
                one.lock.unlink(missing_ok=True)
            return True
    except _HeldError:
        return False
    except OSError as error:
        raise FileError(f"cannot remove {one.path}: {error.strerror or error}") from error
