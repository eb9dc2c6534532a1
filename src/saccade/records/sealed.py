"""Files that are whole or refused: sealed, and written atomically.

A sealed file is a payload and a trailer of 48 bytes: eight of magic, eight of payload length, 32 of
SHA-256. NetCDF readers ignore the trailer: a sealed record is still a plain NetCDF-4 file.
"""

import contextlib
import hashlib
import os
import struct
import tempfile
from pathlib import Path

from saccade.errors import FileError

__all__: list[str] = []

_MAGIC = b"SACCADE\x01"
_TRAILER = struct.Struct(">8sQ32s")


def write_sealed(path: Path, payload: bytes) -> None:
    """Write payload and seal; the old file stays intact until the new one is whole on disk."""
    trailer = _TRAILER.pack(_MAGIC, len(payload), hashlib.sha256(payload).digest())
    write_atomically(path, payload + trailer)


def write_atomically(path: Path, content: bytes) -> None:
    """Write beside the target, flush to disk, then rename over it."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(".part", f".{path.name}.", path.parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        why = f"{error.strerror or error}; what was there before is untouched"
        raise FileError(f"cannot write {path}: {why}") from error


def read_sealed(path: Path) -> bytes:
    """The payload of a sealed file, or one clear error."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    if len(content) < _TRAILER.size:
        raise FileError(f"{path}: cut short ({len(content)} bytes): not a whole saccade file")
    payload = content[: -_TRAILER.size]
    magic, length, digest = _TRAILER.unpack(content[-_TRAILER.size :])
    if magic != _MAGIC:
        why = "has no saccade seal at its end: cut short, or not written by saccade"
        raise FileError(f"{path}: {why}")
    if length != len(payload) or hashlib.sha256(payload).digest() != digest:
        raise FileError(f"{path}: its content does not match its seal: damaged or edited")
    return payload
