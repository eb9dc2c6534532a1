"""How the files of known corpora are read.

A corpus is a list of (label, text) per split, or of (source, target) for pairs of sentences, or of
("", line) for running text. Its sum is that of this list (`checksum_of`), so that a copy in other
files is as good.
"""

import csv
import dataclasses
import hashlib
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from saccade.contracts.task import SPLITS
from saccade.data.folders import CorpusFolder
from saccade.errors import FileError

Examples = dict[str, list[tuple[str, str]]]
"""By split: (label, text), or (source, target)."""
Kind = Literal["classification", "translation", "language model"]


def checksum_of(examples: Mapping[str, Iterable[tuple[str, str]]]) -> str:
    """SHA-256 of the examples: one line of JSON each, [split, label, text], in the order of splits
    and files.
    """
    digest = hashlib.sha256()
    for split in SPLITS:
        for label, text in examples.get(split, ()):
            line = json.dumps([split, label, text], ensure_ascii=False)
            digest.update(f"{line}\n".encode())
    return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class Source:
    """A file that can be downloaded."""

    url: str
    sha256: str = ""
    """Of the file; empty if it is not known, and only the corpus is checked."""
    called: str = ""
    """Its name on the disk, if the address does not end with it."""

    @property
    def name(self) -> str:
        return self.called or self.url.rpartition("/")[2]


@dataclasses.dataclass(frozen=True)
class KnownCorpus:
    """A corpus with a name."""

    name: str
    title: str
    kind: Kind
    folder: str
    """Name of its folder below the folder of all corpora."""
    files: tuple[str, ...]
    """Names of its files, without the endings of compressors and archives; `one|other` if either
    will do."""
    read: Callable[[CorpusFolder], Examples]
    sizes: Mapping[str, int]
    """Examples per split; empty if versions differ."""
    licence: str
    citation: str
    by_hand: str
    """How to get the files without a download."""
    checksum: str = ""
    """SHA-256 of the examples; empty if the corpus could not be had."""
    sources: tuple[Source, ...] = ()
    """Files to download; empty if that is not possible."""
    note: str = ""
    """How it differs from what the papers used."""

    def is_in(self, folder: CorpusFolder) -> bool:
        """Whether a folder has all of its files."""
        return all(any(map(folder.has, names.split("|"))) for names in self.files)


def sizes_of(examples: Mapping[str, Sequence[Any]]) -> dict[str, int]:
    """Examples per split."""
    return {split: len(some) for split, some in examples.items()}


# -- formats ---------------------------------------------------------------------------------------


def split_lines(names: Mapping[str, str], separator: str) -> Callable[[CorpusFolder], Examples]:
    """Two columns per line: label and text, or source and target. Further columns are dropped, if
    the separator is a tab.
    """
    most = -1 if separator == "\t" else 1

    def read(folder: CorpusFolder) -> Examples:
        found: Examples = {}
        for split, name in names.items():
            rows = [line.split(separator, most) for line in folder.lines(name)]
            found[split] = [_two(folder, name, at, row) for at, row in enumerate(rows, 1)]
        return found

    return read


def _two(folder: CorpusFolder, name: str, line: int, row: Sequence[str]) -> tuple[str, str]:
    if len(row) < 2:
        raise FileError(f"{folder.path / name}, line {line}: got 1 column, allowed: 2")
    return row[0], row[1]


def comma_separated(
    names: Mapping[str, str], label: int, texts: Sequence[int], header: Sequence[str] = ()
) -> Callable[[CorpusFolder], Examples]:
    """Columns of CSV files; `header` names the splits whose files have one."""
    width = max(label, *texts) + 1

    def read(folder: CorpusFolder) -> Examples:
        found = {}
        for split, name in names.items():
            rows = list(csv.reader(io.StringIO(folder.text(name), newline="")))
            rows = rows[1:] if split in header else rows
            for at, row in enumerate(rows, 1):
                if len(row) < width:
                    got = f"got {len(row)} columns, allowed: at least {width}"
                    raise FileError(f"{folder.path / name}, row {at}: {got}")
            found[split] = [(row[label], " ".join(row[at] for at in texts)) for row in rows]
        return found

    return read


def pairs_of_files(names: Mapping[str, tuple[str, str]]) -> Callable[[CorpusFolder], Examples]:
    """Two files per split, aligned by line."""

    def read(folder: CorpusFolder) -> Examples:
        found: Examples = {}
        for split, (source, target) in names.items():
            sources, targets = folder.lines(source), folder.lines(target)
            if len(sources) != len(targets):
                got = f"{len(sources):,} lines of {source} and {len(targets):,} of {target}"
                raise FileError(f"{folder.path}: got {got}, allowed: as many")
            found[split] = list(zip(sources, targets, strict=True))
        return found

    return read


def read_imdb(folder: CorpusFolder) -> Examples:
    pattern = r"(train|test)/(neg|pos)/\d+_\d+\.txt"
    found: Examples = {"train": [], "test": []}
    archive = "aclImdb_v1" if folder.archive("aclImdb_v1") else "aclImdb_labeled"
    for match, text in folder.members(archive, pattern):
        found[match[1]].append((match[2], text))
    return found


def read_newsgroups(folder: CorpusFolder) -> Examples:
    pattern = r"20news-bydate-(train|test)/rec\.sport\.(baseball|hockey)/\d+"
    found: Examples = {"train": [], "test": []}
    name = "20news-bydate"
    archive = name if folder.archive(name) else f"{name}_baseball_hockey"
    for match, text in folder.members(archive, pattern, "latin-1"):
        # The header names the group, so it is dropped.
        found[match[1]].append((match[2], re.split(r"\r?\n\r?\n", text, maxsplit=1)[-1]))
    return found


def _only_member(folder: CorpusFolder, archive: str, name: str) -> str:
    """The text of the one file of an archive that is read."""
    found = folder.members(archive, re.escape(name))
    if len(found) != 1:
        got = f"got {len(found)} files {name} in {archive}"
        raise FileError(f"{folder.path}: {got}, allowed: one")
    return found[0][1]


def read_yelp(folder: CorpusFolder) -> Examples:
    text = _only_member(folder, "yelp.csv", "yelp.csv")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    if rows and not {"stars", "text"} <= rows[0].keys():
        raise FileError(f"{folder.path / 'yelp.csv'}: got no columns 'stars' and 'text'")
    stars = {"1": "negative", "2": "negative", "4": "positive", "5": "positive"}
    return {"train": [(stars[row["stars"]], row["text"]) for row in rows if row["stars"] in stars]}


def read_tatoeba(folder: CorpusFolder) -> Examples:
    text = _only_member(folder, "deu-eng", "deu.txt")
    rows = [line.split("\t") for line in text.removesuffix("\n").split("\n")]
    pairs = [_two(folder, "deu.txt", at, row) for at, row in enumerate(rows, 1)]
    return {"train": [(german, english) for english, german in pairs]}


def running_text(names: Mapping[str, str]) -> Callable[[CorpusFolder], Examples]:
    """Running text, line by line."""

    def read(folder: CorpusFolder) -> Examples:
        return {split: [("", line) for line in folder.lines(one)] for split, one in names.items()}

    return read


def read_ag_news_sample(folder: CorpusFolder) -> Examples:
    sample = comma_separated({"train": "derived_train_union.csv"}, 0, (1,), header=("train",))
    return sample(folder) | comma_separated({"test": "test.csv"}, 0, (1, 2))(folder)
