"""Corpora by name: found, read, checked and downloaded, from a server on the loopback address."""

import dataclasses
import errno
import gzip
import hashlib
import http.server
import io
import lzma
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pooch
import pytest

from saccade.data import catalogue, corpora, store
from saccade.data.corpora import KnownCorpus, Source, checksum_of
from saccade.data.folders import CorpusFolder
from saccade.errors import ConfigError, FileError

TRAIN, TEST = "1 good film\n0 bad film\n", "1 fine\n"
EXAMPLES = {"train": [("1", "good film"), ("0", "bad film")], "test": [("1", "fine")]}


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def films(*sources: Source, **changes) -> KnownCorpus:
    files = {"train": "films.train", "test": "films.test"}
    about = ("films", "Films", "classification", "films", tuple(files.values()))
    corpus = KnownCorpus(
        *about,
        corpora.split_lines(files, " "),
        {"train": 2, "test": 1},
        "none",
        "nobody",
        "put films.train and films.test there",
        checksum_of(EXAMPLES),
        sources,
    )
    return dataclasses.replace(corpus, **changes)


@pytest.fixture(autouse=True)
def nothing_else(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache of its own, no variable, and nothing remembered."""
    monkeypatch.delenv(store.VARIABLE, raising=False)
    monkeypatch.setattr(pooch, "os_cache", lambda name: tmp_path / "cache" / name)
    store._read.cache_clear()


@pytest.fixture
def know(monkeypatch: pytest.MonkeyPatch):
    def added(corpus: KnownCorpus) -> KnownCorpus:
        monkeypatch.setitem(catalogue.CORPORA, corpus.name, corpus)
        return corpus

    return added


def written(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name.replace("_", ".")).write_text(text, encoding="utf-8")
    return folder


# -- finding and checking --------------------------------------------------------------------------


def place_of(data: Path | None = None) -> Path | None:
    folder = store.find_corpus("films", data)
    return None if folder is None else folder.path


def test_folders_are_searched_in_order(know, tmp_path, monkeypatch):
    know(films())
    cached = written(
        tmp_path / "cache" / "saccade" / "corpora" / "films", films_train=TRAIN, films_test=TEST
    )
    assert place_of() == cached
    named = written(tmp_path / "named" / "films", films_train=TRAIN, films_test=TEST)
    monkeypatch.setenv(store.VARIABLE, str(tmp_path / "named"))
    assert place_of() == named
    given = written(tmp_path / "given" / "films", films_train=TRAIN)
    assert place_of(tmp_path / "given") == cached, "a file is missing"
    written(given, films_test=TEST)
    assert place_of(tmp_path / "given") == given
    assert store.load_corpus("films", tmp_path / "given") == EXAMPLES


@pytest.mark.parametrize("ending", [".gz", ".xz"])
def test_a_repacked_copy_is_as_good(know, tmp_path, ending):
    know(films())
    pack = {".gz": gzip.compress, ".xz": lzma.compress}[ending]
    folder = written(tmp_path / "films", films_test=TEST)
    (folder / f"films.train{ending}").write_bytes(pack(TRAIN.replace("\n", "\r\n").encode()))
    assert store.load_corpus("films", tmp_path) == EXAMPLES


def test_what_is_missing_is_said_with_how_to_get_it(know, tmp_path):
    know(films(Source("http://127.0.0.1/films.train")))
    how = "run 'saccade data fetch films', or make a folder films, put films.train and films.test"
    with pytest.raises(
        FileError, match=rf"^corpus films: not found below .*; {how} there, and set"
    ):
        store.load_corpus("films", tmp_path)
    with pytest.raises(ConfigError, match=r"^corpus: got 'film', allowed: sst2, sst5, imdb, "):
        store.load_corpus("film")


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            "1 good film\n",
            r"got 1 train, 1 test, allowed: the examples of films, 2 train, 1 test; ",
        ),
        ("1 good film\n1 bad film\n", r"got examples with the SHA-256 \w{12}, allowed: those of f"),
        ("1 good film\n0\n", r"films\.train, line 2: got 1 column, allowed: 2$"),
    ],
)
def test_other_examples_are_refused(know, tmp_path, train, message):
    know(films())
    written(tmp_path / "films", films_train=train, films_test=TEST)
    with pytest.raises(FileError, match=message):
        store.load_corpus("films", tmp_path)


def test_files_that_are_cut_or_no_text_are_refused(know, tmp_path):
    know(films())
    folder = written(tmp_path / "films", films_test=TEST)
    (folder / "films.train.gz").write_bytes(gzip.compress(TRAIN.encode())[:-6])
    with pytest.raises(
        FileError, match=r"films\.train\.gz: got a file that is cut or damaged; get"
    ):
        store.load_corpus("films", tmp_path)
    (folder / "films.train").write_bytes(b"1 \xff\n")
    with pytest.raises(FileError, match=r"films\.train: got bytes that are no text in utf-8"):
        store.load_corpus("films", tmp_path)


def test_another_version_under_the_same_names_is_refused(know, tmp_path):
    know(films())
    know(films(name="official", checksum=""))
    written(tmp_path / "films", films_train=TRAIN, films_test=TEST)
    with pytest.raises(
        store.AnotherCorpusError, match=r"got the files of films, allowed: those of"
    ):
        store.load_corpus("official", tmp_path)


# -- archives --------------------------------------------------------------------------------------

MEMBERS = {
    "top/train/pos/2.txt": "b",
    "top/train/neg/1.txt": "a",
    "top/readme": "no",
    "x/pos.txt": "no",
}


def packed(path: Path) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in MEMBERS.items():
                archive.writestr(name, text)
        return path
    with tarfile.open(path, "w:gz") as archive:
        for name, text in MEMBERS.items():
            about = tarfile.TarInfo(name)
            about.size = len(text)
            archive.addfile(about, io.BytesIO(text.encode()))
    return path


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "folder"])
def test_members_are_read_in_the_order_of_their_names(tmp_path, kind):
    if kind == "folder":
        for name, text in MEMBERS.items():
            written((tmp_path / name).parent)
            (tmp_path / name).write_text(text)
    else:
        packed(tmp_path / f"texts.{kind}")
    found = CorpusFolder(tmp_path).members("texts", r"train/(neg|pos)/\d+\.txt")
    assert [(match[1], text) for match, text in found] == [("neg", "a"), ("pos", "b")]


def test_an_archive_that_is_cut_is_refused(tmp_path):
    file = packed(tmp_path / "texts.tar.gz")
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(FileError, match=r"texts\.tar\.gz: got a file that is cut or damaged"):
        CorpusFolder(tmp_path).members("texts", r"train/(neg|pos)/\d+\.txt")


def test_archives_without_their_file_are_refused(tmp_path):
    packed(tmp_path / "yelp.csv.zip")
    packed(tmp_path / "deu-eng.zip")
    for read in (corpora.read_yelp, corpora.read_tatoeba):
        with pytest.raises(FileError, match=r": got 0 files .* in .*, allowed: one$"):
            read(CorpusFolder(tmp_path))


# -- downloads -------------------------------------------------------------------------------------


class Answers(http.server.BaseHTTPRequestHandler):
    """Files by name; `cut` promises more bytes than it sends."""

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        text = {"films.train": TRAIN, "films.test": TEST, "cut": TRAIN}.get(name)
        if text is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(text) + (50 if name == "cut" else 0)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("known", [True, False])
def test_a_corpus_is_fetched_once(know, address, tmp_path, known):
    sums = [sha256(text) if known else "" for text in (TRAIN, TEST)]
    urls = (f"{address}/films.{split}" for split in ("train", "test"))
    know(films(*map(Source, urls, sums)))
    folder = store.fetch_corpus("films")
    assert folder.path == tmp_path / "cache" / "saccade" / "corpora" / "films"
    assert store.load_corpus("films") == EXAMPLES
    times = [file.stat().st_mtime_ns for file in folder.path.iterdir()]
    store.fetch_corpus("films")
    assert times == [file.stat().st_mtime_ns for file in folder.path.iterdir()]
    given = tmp_path / "given"
    store.fetch_corpus("films", given)
    assert not given.exists(), "it is in the cache already"


@pytest.mark.parametrize(
    ("name", "sums", "why"),
    [
        ("nothing", "", "got the answer 404"),
        ("cut", "", "got only a part of the file; nothing was kept|got no connection"),
        (
            "films.train",
            "0" * 64,
            "got another file than the one whose SHA-256 is known; nothing w",
        ),
    ],
)
def test_a_download_that_fails_leaves_nothing(know, address, tmp_path, name, sums, why):
    know(films(Source(f"{address}/{name}", sums, "films.train")))
    with pytest.raises(
        FileError, match=rf"^{address}/{name}: ({why}).*; by hand: make a folder films, put "
    ):
        store.fetch_corpus("films")
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def test_without_a_network(know, tmp_path):
    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        port = server.server_port
    know(films(Source(f"http://127.0.0.1:{port}/films.train")))
    with pytest.raises(FileError, match=r"films\.train: got no connection; by hand: make a folder"):
        store.fetch_corpus("films", tmp_path)
    assert not list(tmp_path.iterdir()), "no empty folder stays"


def test_a_full_disk_is_one_line(know, address, monkeypatch):
    know(films(Source(f"{address}/films.train")))

    def full(*_, **__) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(pooch, "retrieve", full)
    with pytest.raises(FileError, match=r"films\.train: .*: no space left; by hand: make a folder"):
        store.fetch_corpus("films")


def test_what_cannot_be_downloaded_says_so(know):
    know(films())
    with pytest.raises(
        ConfigError, match=r"^corpus films: cannot be downloaded; make a folder fil"
    ):
        store.fetch_corpus("films")


# -- the catalogue ---------------------------------------------------------------------------------


@pytest.mark.parametrize("corpus", catalogue.CORPORA.values(), ids=lambda one: one.name)
def test_an_entry_is_complete(corpus: KnownCorpus):
    assert all((corpus.title, corpus.licence, corpus.citation, corpus.by_hand, corpus.files))
    assert not corpus.checksum or (len(corpus.checksum) == 64 and corpus.sizes)
    assert all(source.url.startswith("https://") and source.name for source in corpus.sources)
    names = {name for names in corpus.files for name in names.split("|")}
    for source in corpus.sources:
        stems = {source.name.removesuffix(end) for end in (".gz", ".tar.gz", ".zip")}
        assert stems & names, "what is downloaded is what is read"


@pytest.mark.data
@pytest.mark.parametrize("name", [one.name for one in catalogue.CORPORA.values() if one.checksum])
def test_a_real_corpus_has_its_sum(name, real_data):
    if store.find_corpus(name, real_data) is None:
        pytest.skip(f"{name} is not below {real_data}")
    assert store.load_corpus(name, real_data)
