"""Files that are whole or refused: sealed, written atomically, locked while a training owns them.
No pickle anywhere.

A sealed file is any payload followed by a trailer of 48 bytes: eight of magic, eight of payload
length, 32 of SHA-256. NetCDF readers ignore what follows the payload, so a sealed record is still a
plain NetCDF-4 file.
"""

import contextlib
import fcntl
import hashlib
import io
import json
import os
import struct
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from saccade.core.errors import FileError

_MAGIC = b"SACCADE\x01"
_TRAILER = struct.Struct(">8sQ32s")


def write_sealed(path: Path, payload: bytes) -> None:
    """Write payload and seal; the old file stays intact until the new one is whole on disk."""
    trailer = _TRAILER.pack(_MAGIC, len(payload), hashlib.sha256(payload).digest())
    write_atomically(path, payload + trailer)


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, flush to disk, then rename over it."""
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(
            prefix=f".{path.name}.", suffix=".part", dir=path.parent
        )
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        raise FileError(
            f"cannot write {path}: {error.strerror or error}; what was there before is untouched"
        ) from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def read_sealed(path: Path) -> bytes:
    """The payload of a sealed file, or one clear error."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) < _TRAILER.size:
        raise FileError(f"{path}: cut short ({len(content)} bytes): not a whole saccade file")
    magic, length, digest = _TRAILER.unpack(content[-_TRAILER.size :])
    if magic != _MAGIC:
        raise FileError(
            f"{path}: has no saccade seal at its end: cut short, or not written by saccade"
        )
    payload = content[: -_TRAILER.size]
    if length != len(payload) or hashlib.sha256(payload).digest() != digest:
        raise FileError(f"{path}: its content does not match its seal: damaged or edited")
    return payload


def write_state(path: Path, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """A header of plain JSON and some named arrays in one sealed file."""
    buffer = io.BytesIO()
    np.savez(
        buffer,
        allow_pickle=False,
        header=np.frombuffer(json.dumps(header).encode(), np.uint8),
        **arrays,
    )
    write_sealed(path, buffer.getvalue())


def read_state(path: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    payload = read_sealed(path)
    try:
        with np.load(io.BytesIO(payload), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(arrays.pop("header").tobytes())
    except Exception as error:
        raise FileError(f"{path}: sealed, but not a training state ({error})") from error
    return header, arrays


@contextlib.contextmanager
def locked(path: Path, waiting: Any = None) -> Iterator[None]:
    """Hold an advisory lock for as long as the block runs; the kernel frees it if the process
    dies.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = open(path, "a+b")  # noqa: SIM115 (closed below, after the lock is freed)
    except OSError as error:
        raise FileError(
            f"cannot write {path}: {error.strerror or error}; nothing was changed"
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if waiting is not None:
                waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
