"""Sentence pairs of corpora that are known by name."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from saccade.data import catalogue, corpora, store
from saccade.data.catalogue import known_corpus
from saccade.data.corpora import KnownCorpus, checksum_of
from saccade.errors import ConfigError, FileError
from saccade.tasks.named_pairs import NamedPairs
from saccade.tasks.parallel_text import ParallelText

PAIRS = [
    ("the dog", "der Hund"),
    ("a cat", "eine Katze"),
    ("the cat", ""),
    ("dogs", "Hunde sehen viel"),
    ("cats", "Katzen"),
    ("the dogs", "die Hunde"),
]


@pytest.fixture
def animals(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a corpus with training pairs alone, one of which has no translation."""
    read = corpora.split_lines({"train": "animals"}, "\t")
    about = ("animals", "Animals", "translation", "animals", ("animals",))
    sums = checksum_of({"train": PAIRS})
    corpus = KnownCorpus(*about, read, {"train": 6}, "none", "nobody", "put animals there", sums)
    both = corpora.split_lines({"train": "animals", "test": "animals"}, "\t")
    for one in (
        corpus,
        dataclasses.replace(corpus, name="labelled", kind="classification"),
        dataclasses.replace(corpus, name="tested", sizes={"train": 6, "test": 6}),
        dataclasses.replace(corpus, name="unsized", read=both, sizes={}, checksum=""),
    ):
        monkeypatch.setitem(catalogue.CORPORA, one.name, one)
    (tmp_path / "animals").mkdir()
    lines = "\n".join("\t".join(pair) for pair in PAIRS)
    (tmp_path / "animals" / "animals").write_text(lines, encoding="utf-8")
    store._read.cache_clear()
    return tmp_path


@pytest.mark.parametrize("reverse", [False, True])
def test_it_is_the_same_as_files_with_these_sentences(animals: Path, tmp_path: Path, reverse: bool):
    whole = [pair for pair in PAIRS if all(pair)]
    sides = [[pair[side] for pair in whole] for side in (0, 1)]
    names = [tmp_path / "source", tmp_path / "target"]
    for name, lines in zip(names, sides[::-1] if reverse else sides, strict=True):
        name.write_text("\n".join(lines), encoding="utf-8")
    source, target = map(str, names)
    settings = {"test_share": 0.4, "split_seed": 1, "least_count": 1}
    named = NamedPairs("animals", str(animals), reverse, tokeniser="words", **settings)
    filed = ParallelText(source, target, tokeniser="words", **settings)
    assert named.checksum == filed.checksum
    assert named.vocabulary.entries == filed.vocabulary.entries
    assert (named.train_size, named.test_size) == (3, 2)
    for split in ("train", "test"):
        one, other = (task.splits[split] for task in (named, filed))
        np.testing.assert_array_equal(one.source, other.source)
        np.testing.assert_array_equal(one.target, other.target)


def test_lines_are_those_of_the_corpus(animals: Path):
    """The third pair is left out, because it has no translation."""
    task = NamedPairs("animals", animals, first=3, tokeniser="spaces")  # pyright: ignore[reportArgumentType]
    assert task.lines["train"].tolist() == [1, 2, 4]
    assert task.sentences["train"] == [PAIRS[0], PAIRS[1], PAIRS[3]]
    assert task.data == str(animals)
    about = {"corpus": "animals", "licence": "none", "citation": "nobody"}
    assert task.about == {"corpus_sha256": task.checksum, **about}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "animal"}, r"^corpus: got 'animal', allowed: sst2, "),
        (
            {"name": "labelled"},
            r"^name: got 'labelled', for classification, allowed: a corpus of s",
        ),
        ({"name": "tested", "test_share": 0.1}, r"^test_share: got 0\.1, allowed: 0, since tested"),
        ({"first": 0}, r"^first: got 0, allowed: a whole number, at least 1"),
        ({"longer": "dropped"}, r"^longer: got 'dropped' without a length, allowed: with longest="),
    ],
)
def test_wrong_settings_are_refused(animals: Path, settings, message):
    with pytest.raises(ConfigError, match=message):
        NamedPairs(**{"name": "animals", "data": str(animals)} | settings)


def test_a_share_beside_pairs_of_the_corpus_is_refused(animals: Path):
    """Also if the catalogue does not say which splits there are."""
    task = NamedPairs("unsized", str(animals), test_share=0.5, tokeniser="words")
    with pytest.raises(
        ConfigError, match=r"^test_share: got 0\.5, allowed: 0, since there are pai"
    ):
        _ = task.splits


def test_a_corpus_that_is_not_here_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "roots", lambda data: [tmp_path])
    task = NamedPairs("multi30k")
    assert task.missing.startswith("corpus multi30k: not found below ")
    with pytest.raises(FileError, match=r"^corpus multi30k: not found below .*; run 'saccade data"):
        _ = task.splits


# -- real corpora ----------------------------------------------------------------------------------


@pytest.mark.data
def test_multi30k(real_data: Path):
    task = NamedPairs("multi30k", str(real_data), tokeniser="words")
    assert (task.train_size, task.validation_size, task.test_size) == (29000, 1014, 1000)
    assert task.checksum == known_corpus("multi30k").checksum
    batch = task.splits["train"]
    assert batch.source[0, :4].tolist() == [27, 39, 8, 41], "the example of the module"
    assert batch.target[0, :3].tolist() == [28, 44, 446], "the example of the module"
    assert task.decode(batch.target[0]).startswith("zwei junge weiße männer")
    turned = NamedPairs("multi30k", str(real_data), reverse=True, tokeniser="words")
    assert turned.vocabulary.entries == task.vocabulary.entries
    np.testing.assert_array_equal(turned.splits["test"].source, task.splits["test"].target)


@pytest.mark.slow
@pytest.mark.data
def test_pieces_of_multi30k(real_data: Path):
    pytest.importorskip("sentencepiece", reason="needs the extra 'text'")
    task = NamedPairs("multi30k", str(real_data), longest=40, longer="dropped")
    assert task.vocabulary_size == 8000
    assert task.train_size + task.left_out["train"] == 29000
    assert 0 < task.left_out["train"] < 100
    assert task.splits["train"].source.shape[1] <= 41
    shares = [share for both in task.unknown_share.values() for share in both]
    assert max(shares) < 0.005, "only characters that hardly occur are unknown"
    decoded = [task.decode(ids) for ids in task.splits["test"].target]
    written = [" ".join(target.split()) for _, target in task.sentences["test"]]
    assert np.mean([one == other for one, other in zip(decoded, written, strict=True)]) > 0.95


@pytest.mark.slow
@pytest.mark.data
def test_tatoeba_has_no_splits_of_its_own(real_data: Path):
    settings = {"validation_share": 0.01, "test_share": 0.02, "least_count": 3}
    task = NamedPairs("tatoeba", str(real_data), tokeniser="words", **settings)
    sizes = (task.train_size, task.validation_size, task.test_size)
    assert sizes == (169813 - 1698 - 3396, 1698, 3396)
    german, english = task.sentences["train"][0]
    assert (german, english) in [("Hallo!", "Hi."), ("Grüß Gott!", "Hi."), ("Lauf!", "Run!")]
    assert NamedPairs("tatoeba", str(real_data), tokeniser="words").checksum == (
        known_corpus("tatoeba").checksum
    )
