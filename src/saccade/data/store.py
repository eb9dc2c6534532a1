"""Where corpora are found: below a folder that the user names (`--data`, or `SACCADE_DATA`), or in
the user's cache folder, into which they are downloaded on request.

A download is checked by the SHA-256 of its file, if that is known, and a corpus by that of its
examples, wherever its files come from. A file is written under its name only when it is whole.
"""

import contextlib
import errno
import functools
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from saccade.data.catalogue import CORPORA, known_corpus
from saccade.data.corpora import Examples, KnownCorpus, Source, checksum_of, sizes_of
from saccade.data.folders import CorpusFolder
from saccade.errors import ConfigError, FileError

VARIABLE = "SACCADE_DATA"
"""Environment variable with the folder of all corpora."""


class AnotherCorpusError(FileError):
    """Files that are those of another version, which has the same names."""


def roots(data: Path | str | None = None) -> list[Path]:
    """The folders in which corpora are looked for, in this order."""
    named = data or os.environ.get(VARIABLE)
    return [*([Path(named).expanduser()] if named else []), cache_folder()]


def require_folder(data: Path | str | None = None) -> None:
    """Refuse a folder of corpora, given or of the variable, that is none."""
    named = data or os.environ.get(VARIABLE)
    if named and not Path(named).expanduser().is_dir():
        source = "--data" if data else VARIABLE
        raise FileError(f"{source}: got {named}, allowed: a folder with a folder per corpus")


def cache_folder() -> Path:
    """The user's folder for corpora that were downloaded."""
    import pooch

    return Path(pooch.os_cache("saccade")) / "corpora"


def find_corpus(name: str, data: Path | str | None = None) -> CorpusFolder | None:
    """The folder with all files of a corpus; None if there is none."""
    corpus = known_corpus(name)
    folders = (CorpusFolder(root / corpus.folder) for root in roots(data))
    return next((folder for folder in folders if corpus.is_in(folder)), None)


def load_corpus(name: str, data: Path | str | None = None) -> Examples:
    """The examples of a corpus, whose numbers and sum are checked."""
    folder = find_corpus(name, data)
    if folder is None:
        raise FileError(not_found(name, data))
    return _read(name, str(folder.path))


def not_found(name: str, data: Path | str | None = None) -> str:
    """That a corpus is missing, and what a user can do, in one sentence."""
    return f"corpus {name}: not found below {_listed(data)}; {how_to_get(name)}"


def how_to_get(name: str) -> str:
    """What a user can do who lacks a corpus, in half a sentence."""
    corpus = known_corpus(name)
    fetch = f"run 'saccade data fetch {name}', or " if corpus.sources else ""
    return f"{fetch}{_by_hand(corpus)}"


def _by_hand(corpus: KnownCorpus) -> str:
    return f"make a folder {corpus.folder}, {corpus.by_hand}, and set {VARIABLE}"


def _listed(data: Path | str | None) -> str:
    return " and ".join(map(str, roots(data)))


@functools.lru_cache(maxsize=4)
def _read(name: str, path: str) -> Examples:
    corpus, folder = known_corpus(name), CorpusFolder(Path(path))
    found = corpus.read(folder)
    sizes, total = sizes_of(found), checksum_of(found)
    if corpus.sizes and sizes != dict(corpus.sizes):
        got, allowed = map(counted, (sizes, corpus.sizes))
        allowed = f"the examples of {name}, {allowed}; get its files again"
        raise FileError(f"{path}: got {got}, allowed: {allowed}")
    if corpus.checksum and total != corpus.checksum:
        got = f"examples with the SHA-256 {total[:12]}"
        allowed = f"those of {name}, {corpus.checksum[:12]}; get its files again"
        raise FileError(f"{path}: got {got}, allowed: {allowed}")
    other = next((one.name for one in CORPORA.values() if total == one.checksum), name)
    if other != name:
        raise AnotherCorpusError(f"{path}: got the files of {other}, allowed: those of {name}")
    return found


def counted(sizes: Mapping[str, int]) -> str:
    """Examples per split, in words."""
    return ", ".join(f"{size:,} {split}" for split, size in sizes.items())


# -- downloads -------------------------------------------------------------------------------------


def fetch_corpus(name: str, data: Path | str | None = None) -> CorpusFolder:
    """The folder of a corpus, whose examples are checked; after a download, into `data` or the
    user's cache, if it is not there yet.
    """
    corpus, folder = known_corpus(name), find_corpus(name, data)
    if folder is None:
        if not corpus.sources:
            raise ConfigError(f"corpus {name}: cannot be downloaded; {how_to_get(name)}")
        folder = CorpusFolder((Path(data) if data else cache_folder()) / corpus.folder)
        for source in corpus.sources:
            _download(corpus, source, folder.path)
    _read(name, str(folder.path))
    return folder


def _download(corpus: KnownCorpus, source: Source, folder: Path) -> None:
    import pooch

    known = f"sha256:{source.sha256}" if source.sha256 else None
    pooch.get_logger().setLevel(logging.WARNING)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        how: Any = pooch.HTTPDownloader(progressbar=_Progress(source.name), timeout=30)  # pyright: ignore[reportArgumentType]
        pooch.retrieve(source.url, known, source.name, folder, downloader=how)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            folder.rmdir()  # if nothing is in it
        why = f"{_why(error, folder)}; by hand: {_by_hand(corpus)}"
        raise FileError(f"{source.url}: {why}") from error


def _why(error: Exception, folder: Path) -> str:
    """What went wrong with a download. (Errors of requests are OSErrors, too.)"""
    import requests

    if isinstance(error, ValueError) and not isinstance(error, OSError):
        return "got another file than the one whose SHA-256 is known; nothing was kept"
    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"got the answer {error.response.status_code}"
    if isinstance(error, requests.ConnectionError | requests.Timeout):
        return "got no connection"
    if isinstance(error, requests.RequestException):
        return "got only a part of the file; nothing was kept"
    full = isinstance(error, OSError) and error.errno == errno.ENOSPC
    return f"{folder}: {'no space left' if full else getattr(error, 'strerror', None) or error}"


class _Progress:
    """A line on a terminal with the share that has arrived, as pooch asks for it."""

    def __init__(self, name: str):
        self.name, self.total, self._done = name, 0, 0

    def update(self, size: int) -> None:
        self._done += size
        if sys.stderr.isatty():
            share = f"{self._done / self.total:.0%}" if self.total else f"{self._done / 1e6:.1f} MB"
            sys.stderr.write(f"\r{self.name}: {share} ")

    def reset(self) -> None:
        self._done = 0

    def close(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\n")


def described(data: Path | str | None = None) -> Iterator[dict[str, Any]]:
    """Every corpus that is known by name, and where it is, as plain JSON."""
    for corpus in CORPORA.values():
        folder = find_corpus(corpus.name, data)
        yield {
            "name": corpus.name,
            "title": corpus.title,
            "task": corpus.kind,
            "sizes": dict(corpus.sizes),
            "licence": corpus.licence,
            "citation": corpus.citation,
            "note": corpus.note,
            "download": bool(corpus.sources),
            "sha256": corpus.checksum,
            "folder": None if folder is None else str(folder.path),
        }
