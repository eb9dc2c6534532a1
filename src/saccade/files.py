"""Files that somebody else has written."""

import gzip
import zlib
from pathlib import Path

from saccade.errors import FileError


def decoded_text(path: str) -> str:
    """The text of a file, in UTF-8 and perhaps compressed by gzip, as it is."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror or error}") from error
    if path.lower().endswith(".gz"):
        try:
            content = gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise FileError(
                f"{path}: got {len(content)} bytes that are no whole gzip file; compress the text "
                "again, or drop .gz from the name of a file that is not compressed"
            ) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        got = f"0x{error.object[error.start]:02x}"
        raise at_line(
            path, line, f"got the byte {got}, allowed: text in UTF-8; convert the file"
        ) from error


def at_line(path: str, line: int, sentence: str) -> FileError:
    """What is wrong in a line of a file."""
    return FileError(f"{path}, line {line}: {sentence}")
