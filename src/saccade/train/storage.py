"""States and results of trainings on disk, and the locks by which processes share a folder."""

import contextlib
import io
import json
import uuid
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout

from saccade.errors import FileError
from saccade.records.sealed import read_sealed, write_sealed

__all__: list[str] = []

_USED = ".used-"
"""How files begin on which those who read from a folder hold their locks."""


def write_state(path: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """A header of plain JSON and some named arrays in one sealed file, without pickle."""
    buffer = io.BytesIO()
    # NumPy's files know no bfloat16: such arrays are kept as bytes, with the name of their type.
    odd = {name: str(one.dtype) for name, one in arrays.items() if one.dtype.kind == "V"}
    plain = {
        name: one[..., None].view(np.uint8) if name in odd else one for name, one in arrays.items()
    }
    text = np.frombuffer(json.dumps({**header, "types": odd}).encode(), np.uint8)
    np.savez(buffer, allow_pickle=False, header=text, **plain)
    write_sealed(path, buffer.getvalue())


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    payload = read_sealed(path)
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
        for name, kind in header.pop("types", {}).items():
            arrays[name] = arrays[name].view(np.dtype(kind))[..., 0]
    except Exception as error:
        why = f"sealed, but not a training state or result ({error}); delete it and run again"
        raise FileError(f"{path}: {why}") from error
    return header, arrays


def read_header(path: Path) -> dict[str, Any]:
    """The header of a training state or result, without its arrays; the seal is not checked."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return json.loads(archive["header"].tobytes())
    except Exception as error:
        raise FileError(f"{path}: not a training state or result ({error})") from error


@contextlib.contextmanager
def locked(path: Path, waiting: Any = None) -> Iterator[None]:
    """Hold a lock while the block runs; the system frees it if the process dies. Whoever holds it
    may remove the file.
    """
    lock = _lock_of(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            if waiting is not None:
                waiting()
            lock.acquire()
    except OSError as error:
        why = f"{error.strerror or error}; nothing was changed"
        raise FileError(f"cannot write {path}: {why}") from error
    try:
        yield
    finally:
        lock.release()


class Use:
    """A process reads finished trainings of a folder for as long as this object exists: nobody
    removes them. Many processes may do so at once, each with a lock of its own.
    """

    def __init__(self, folder: Path):
        path = folder / f"{_USED}{uuid.uuid4().hex}"
        lock = _lock_of(path)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lock.acquire(blocking=False)
        except OSError as error:
            why = f"{error.strerror or error}; nothing was changed"
            raise FileError(f"cannot write {path}: {why}") from error
        weakref.finalize(self, _let_go, lock, path)


def is_used(folder: Path) -> bool:
    """Whether a process reads finished trainings of a folder. Removes what killed ones left."""
    for path in folder.glob(f"{_USED}*"):
        lock = _lock_of(path)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            return True
        _let_go(lock, path)
    return False


def _lock_of(path: Path) -> FileLock:
    # Objects of one path are apart, so that a process waits for itself as for any other.
    return FileLock(path, thread_local=False, is_singleton=False, poll_interval=0.1)


def _let_go(lock: FileLock, path: Path) -> None:
    with contextlib.suppress(OSError):  # a file that others have open stays on some systems
        path.unlink(missing_ok=True)
    lock.release()
