"""States and results of trainings on disk, and the locks by which processes share a folder."""

import contextlib
import fcntl
import io
import json
import os
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from saccade.errors import FileError
from saccade.records.sealed import read_sealed, write_sealed

__all__: list[str] = []

_USED = ".used"
"""The file of a folder on which those who read from it hold a shared lock."""


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
    """Hold an advisory lock while the block runs; the kernel frees it if the process dies. Whoever
    holds it may remove the file.
    """
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(path, "a+b")  # noqa: SIM115 (closed below, after the lock is freed)
        except OSError as error:
            why = f"{error.strerror or error}; nothing was changed"
            raise FileError(f"cannot write {path}: {why}") from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if waiting is not None:
                    waiting()
                fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_file(path, file):
                continue  # it was removed while we waited: others lock another file by now
            yield
            return


class Use:
    """A process reads finished trainings of a folder for as long as this object exists: nobody
    removes them. Many processes may do so at once.
    """

    def __init__(self, folder: Path):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = os.open(folder / _USED, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            why = f"{error.strerror or error}; nothing was changed"
            raise FileError(f"cannot write {folder / _USED}: {why}") from error
        weakref.finalize(self, os.close, file)
        fcntl.flock(file, fcntl.LOCK_SH)


def is_used(folder: Path) -> bool:
    """Whether a process reads finished trainings of a folder."""
    try:
        file = os.open(folder / _USED, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(file)
    return False


def _is_file(path: Path, file: Any) -> bool:
    """Whether an open file is still the one of its name."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
