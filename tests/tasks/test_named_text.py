"""Labelled texts of corpora that are known by name."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from saccade.data import catalogue, corpora, store
from saccade.data.corpora import KnownCorpus, checksum_of
from saccade.errors import ConfigError, FileError
from saccade.tasks.labelled_text import LabelledText
from saccade.tasks.named_text import NamedText

LINES = ["2 a good film", "1 a bad film", "3 so so", "2 good , good", "1 bad", "2 !"]
EXAMPLES = [tuple(line.split(" ", 1)) for line in LINES]


@pytest.fixture
def films(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of a corpus with training texts alone."""
    read = corpora.split_lines({"train": "films"}, " ")
    sums = checksum_of({"train": EXAMPLES})  # pyright: ignore[reportArgumentType] (pairs)
    about = ("films", "Films", "classification", "films", ("films",))
    corpus = KnownCorpus(*about, read, {"train": 6}, "none", "nobody", "put films there", sums)
    pairs = dataclasses.replace(corpus, name="pairs", kind="translation")
    for one in (corpus, pairs, dataclasses.replace(corpus, name="tested", sizes={"test": 3})):
        monkeypatch.setitem(catalogue.CORPORA, one.name, one)
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "films").write_text("\n".join(LINES))
    store._read.cache_clear()
    return tmp_path


def test_it_is_the_same_as_a_file_with_these_texts(films: Path, tmp_path: Path):
    rows = [f"{label}\t{text}" for label, text in EXAMPLES]
    (tmp_path / "films.tsv").write_text("\n".join(["label\ttext", *rows]))
    settings = {"validation_share": 0.34, "split_seed": 1, "least_count": 2}
    named = NamedText("films", str(films), **settings)
    filed = LabelledText(str(tmp_path / "films.tsv"), **settings)
    assert named.checksum == filed.checksum
    assert named.label_names == filed.label_names == ("1", "2", "3")
    for split in ("train", "validation"):
        for one, other in zip(*(task.splits[split].words for task in (named, filed)), strict=True):
            np.testing.assert_array_equal(one, other)


def test_labels_are_kept_and_the_first_texts(films: Path):
    task = NamedText("films", str(films), keep=("1", "2"), first=3, tokeniser="bare")
    assert task.label_names == ("1", "2")
    texts = [task.vocabulary.decode(words) for words in task.splits["train"].words]
    assert texts == [["a", "good", "film"], ["a", "bad", "film"], ["good", "good"]]
    assert task.splits["train"].labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "film"}, r"^corpus: got 'film', allowed: sst2, "),
        ({"name": "pairs"}, r"^name: got 'pairs', for translation, allowed: a corpus of labelled"),
        ({"name": "tested", "test_share": 0.1}, r"^test_share: got 0\.1, allowed: 0, since tested"),
        ({"first": 0}, r"^first: got 0, allowed: a whole number, at least 1"),
        ({"tokeniser": "letters"}, r"^tokeniser: got 'letters', allowed: "),
    ],
)
def test_wrong_settings_are_refused(films: Path, settings, message):
    with pytest.raises(ConfigError, match=message):
        NamedText(**{"name": "films", "data": str(films)} | settings)


def test_labels_that_are_not_there_are_refused(films: Path):
    with pytest.raises(ConfigError, match=r"^keep: got \('9',\), allowed: labels of films"):
        _ = NamedText("films", str(films), keep=("9",)).splits


def test_a_corpus_that_is_not_here_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(store, "roots", lambda data: [tmp_path])
    with pytest.raises(FileError, match=r"^corpus sst2: not found below .*; run 'saccade data fet"):
        _ = NamedText("sst2").splits


@pytest.mark.data
def test_words_of_sst_that_the_paper_counts(real_data: Path):
    """'best' occurs in 128 training sentences, 103 of them positive; 'powerful' in 36, all positive
    (Lu 2021, section 5.2).
    """
    task = NamedText("sst2", str(real_data), tokeniser="bare")
    assert (task.train_size, task.validation_size, task.test_size) == (6920, 872, 1821)
    batch = task.splits["train"]
    assert batch.words[0, :5].tolist() == [3, 1517, 66, 4, 534], "the example of the module"
    for word, sentences, positive in (("best", 128, 103), ("powerful", 36, 36)):
        there = (batch.words == task.vocabulary.ids[word]).any(axis=1)
        assert (there.sum(), (batch.labels[there] == 1).sum()) == (sentences, positive)


def test_held_out_texts_are_limited_also_where_they_are_drawn(films: Path):
    settings = {"keep": ("1", "2"), "test_share": 0.4}
    task = NamedText("films", str(films), held_out=1, **settings)
    whole = NamedText("films", str(films), **settings)
    assert (task.train_size, task.test_size, whole.test_size) == (3, 1, 2)
    kept, drawn = (set(map(tuple, one.splits["test"].words.tolist())) for one in (task, whole))
    assert kept < drawn


def test_first_texts_of_one_label_are_refused(films: Path):
    with pytest.raises(ConfigError, match="first: got 1, which have one label"):
        NamedText("films", str(films), first=1).splits  # noqa: B018


def test_padding_that_is_attended_to_has_no_mask(films: Path):
    masked, attended = (
        NamedText("films", str(films), padding=padding) for padding in ("masked", "attended")
    )
    np.testing.assert_array_equal(masked.splits["train"].words, attended.splits["train"].words)
    assert masked.splits["train"].mask is not None
    assert attended.splits["train"].mask is None
    assert masked.unknown_share == attended.unknown_share


def test_a_record_says_where_its_texts_are_from(films: Path):
    about = NamedText("films", str(films)).about
    assert about["corpus"] == "films"
    assert (about["licence"], about["citation"]) == ("none", "nobody")
    assert len(about["corpus_sha256"]) == 64


def test_what_is_missing_is_said_before_anything_is_read(films: Path, tmp_path: Path, monkeypatch):
    monkeypatch.delenv("SACCADE_DATA", raising=False)
    assert not NamedText("films", str(films)).missing
    missing = NamedText("films", str(tmp_path / "nowhere")).missing
    assert missing.startswith("corpus films: not found below ")
    assert "put films there" in missing


@pytest.mark.parametrize("seed", ["1", "2", "3"])
@pytest.mark.data
def test_the_order_of_the_splits_is_the_same_in_every_process(real_data: Path, seed: str):
    program = 'from saccade import NamedText; print(*NamedText("sst2", held_out=9).splits)'
    environment = os.environ | {"PYTHONHASHSEED": seed, "SACCADE_DATA": str(real_data)}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["train", "validation", "test"]
