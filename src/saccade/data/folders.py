"""Files of a corpus, as they are or packed: `train.csv`, `train.csv.gz`, or within an archive.

A copy that somebody has repacked is as good as the published file, so a file is found with or
without the ending of a compressor, and the members of an archive are also found in a folder.
Archives are read in memory; nothing is unpacked onto the disk.
"""

import bz2
import gzip
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

from saccade.errors import FileError

UNPACKERS: dict[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
    ".bz2": bz2.decompress,
}
"""How a file is unpacked, by the ending that a compressor adds to its name."""
ARCHIVES = (".tar.gz", ".tar.xz", ".tar.bz2", ".tar", ".zip")
_BROKEN = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)

Member = tuple[re.Match[str], str]
"""The name of a member, as the match of a pattern, and its text."""


class CorpusFolder:
    """The folder with the files of one corpus."""

    def __init__(self, path: Path):
        self.path = path

    def find(self, name: str) -> Path | None:
        """The file of this name, perhaps compressed; None if there is none."""
        files = (self.path / f"{name}{ending}" for ending in UNPACKERS)
        return next((file for file in files if file.is_file()), None)

    def has(self, name: str) -> bool:
        """Whether there is a file, an archive or a folder of this name."""
        packed = self.find(name) or self.archive(name)
        return packed is not None or (self.path / name).is_dir()

    def text(self, name: str) -> str:
        """The text of a file."""
        file = self.find(name)
        if file is None:
            raise FileError(f"{self.path / name}: no such file, and no compressed one")
        try:
            content = UNPACKERS[file.name.removeprefix(name)](file.read_bytes())
        except _BROKEN as error:
            raise _broken(file) from error
        return _decoded(file, content, "utf-8-sig")

    def lines(self, name: str) -> list[str]:
        """The lines of a file; only a line feed ends a line."""
        lines = self.text(name).removesuffix("\n").split("\n")
        return [line.removesuffix("\r") for line in lines]

    def members(self, archive: str, pattern: str, encoding: str = "utf-8") -> list[Member]:
        """The members of an archive whose names end as a pattern says, in the order of their names.
        `archive` is the name without `.tar.gz`, `.zip` or the like; without such a file, the
        members are looked for in the folder itself.
        """
        ends = re.compile(f"(?:^|.*/){pattern}$")
        file = self.archive(archive)
        try:
            found = dict(_unpacked(self.path, ends) if file is None else _archived(file, ends))
        except _BROKEN as error:
            raise _broken(file or self.path) from error
        decoded = {
            name: _decoded(file or self.path / name, found[name], encoding) for name in found
        }
        return [(match, decoded[name]) for name in sorted(found) if (match := ends.match(name))]

    def archive(self, name: str) -> Path | None:
        """The archive of this name without its ending."""
        files = (self.path / f"{name}{ending}" for ending in ARCHIVES)
        return next((file for file in files if file.is_file()), None)


def _unpacked(folder: Path, ends: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    for file in folder.rglob("*"):
        name = file.relative_to(folder).as_posix()
        if ends.match(name) and file.is_file():
            yield name, file.read_bytes()


def _archived(file: Path, ends: re.Pattern[str]) -> Iterator[tuple[str, bytes]]:
    if file.suffix == ".zip":
        with zipfile.ZipFile(file) as archive:
            yield from (
                (name, archive.read(name)) for name in filter(ends.match, archive.namelist())
            )
        return
    with tarfile.open(file) as archive:
        for member in archive:
            opened = archive.extractfile(member) if ends.match(member.name) else None
            if opened is not None:
                yield member.name, opened.read()


def _broken(file: Path) -> FileError:
    return FileError(f"{file}: got a file that is cut or damaged; get it again")


def _decoded(file: Path, content: bytes, encoding: str) -> str:
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise FileError(f"{file}: got bytes that are no text in {encoding}") from error
