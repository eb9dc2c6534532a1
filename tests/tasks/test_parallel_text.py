"""Sentence pairs from two files: ids, padding, splits and lengths, and what is refused; words and
pieces.
"""

import gzip
import hashlib
import json
import random
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from saccade.data import shared_vocabulary
from saccade.data.formats import EXAMPLE_PAIRS
from saccade.data.shared_vocabulary import SharedPieces
from saccade.errors import ConfigError, FileError
from saccade.tasks.parallel_text import ParallelText

ENGLISH = ["The dog", "the cat sees the dog .", "a cat"]
GERMAN = ["Der Hund", "die Katze sieht den Hund .", "eine Katze"]
EXAMPLE: dict[str, Any] = {"source": str(EXAMPLE_PAIRS[0]), "target": str(EXAMPLE_PAIRS[1])}


def in_pieces(pieces: int = 60, **settings: Any) -> ParallelText:
    return ParallelText(**EXAMPLE | settings, pieces=pieces)


def model_of(task: ParallelText) -> bytes:
    assert isinstance(task.vocabulary, SharedPieces)
    return task.vocabulary.model


def written(folder: Path, **texts: list[str]) -> dict[str, Any]:
    """Files, by the names of the fields."""
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return {name: str(folder / name) for name in texts}


@pytest.fixture
def files(tmp_path) -> dict[str, Any]:
    return {**written(tmp_path, source=ENGLISH, target=GERMAN), "tokeniser": "words"}


# -- words -----------------------------------------------------------------------------------------


def test_ids_ends_and_padding_of_small_files(files, tmp_path):
    test = written(tmp_path, test_source=["A bird ."], test_target=["Der Hund"])
    task = ParallelText(**files, **test)
    words = ["the", ".", "cat", "dog", "hund", "katze", "a"]
    words += ["den", "der", "die", "eine", "sees", "sieht"]
    assert task.vocabulary.entries[3:] == (*words,), "by falling count, of both languages together"
    assert task.vocabulary_size == 3 + 13
    batch = task.splits["train"]
    assert batch.source.tolist() == [
        [3, 6, 0, 0, 0, 0, 0],
        [3, 5, 14, 3, 6, 4, 0],
        [9, 5, 0, 0, 0, 0, 0],
    ]
    assert batch.target.tolist() == [
        [11, 7, 0, 0, 0, 0, 0],
        [12, 8, 15, 10, 7, 4, 0],
        [13, 8, 0, 0, 0, 0, 0],
    ]
    assert batch.source_mask.tolist() == [
        [place < length for place in range(7)] for length in (3, 7, 3)
    ]
    assert batch.aligned is None
    assert batch.source.dtype == batch.target.dtype == np.int32
    assert batch.source_mask.dtype == batch.target_mask.dtype == bool
    assert list(task.splits) == ["train", "test"]
    held_out = task.splits["test"]
    assert held_out.source.tolist() == [[9, 2, 4, 0, 0, 0, 0]], "2 is unknown"
    assert task.unknown_share == {"train": (0, 0), "test": (1 / 3, 0)}
    assert task.decode(held_out.source[0]) == "a <unknown> ."
    assert task.decode([1, *batch.target[1]]) == "die katze sieht den hund ."
    assert task.decode([]) == task.decode([0, 3, 3]) == ""
    assert task.words_of(held_out.source).tolist() == [[0, 1, 2, -1, -1, -1, -1]]
    assert task.word_counts["train"].tolist() == [[2, 2], [6, 6], [2, 2]]


def test_rare_words_are_unknown(files):
    task = ParallelText(**files, least_count=2)
    assert task.vocabulary_size == 3 + 6
    assert ParallelText(**files, largest_vocabulary=5).vocabulary_size == 5
    spaces = ParallelText(**files | {"tokeniser": "spaces"})
    assert spaces.decode(spaces.splits["train"].source[0]) == "The dog", "as it is"


def test_source_and_target_are_padded_apart(tmp_path):
    task = ParallelText(
        **written(tmp_path, source=["a b c d", "a"], target=["x", "y"]), tokeniser="words"
    )
    batch = task.splits["train"]
    assert batch.source.shape == (2, 5)
    assert batch.target.tolist() == [[7, 0], [8, 0]]


def test_the_checksum_is_that_of_the_list(files, tmp_path):
    rows = [["train", *both] for both in zip(ENGLISH, GERMAN, strict=True)]
    text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
    task = ParallelText(**files)
    assert task.checksum == hashlib.sha256(text.encode()).hexdigest()
    assert task.about == {"corpus_sha256": task.checksum}
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress("\r\n".join(ENGLISH).encode()))
    assert ParallelText(**files | {"source": packed}).checksum == task.checksum
    assert ParallelText(**files, longest=2, longer="cut").checksum == task.checksum
    other = ParallelText(files["target"], files["source"], tokeniser="words")
    assert other.checksum != task.checksum


# -- splits and lengths ----------------------------------------------------------------------------


def test_shares_are_drawn_by_seed(tmp_path):
    names = [[f"{letter}{number}" for number in range(20)] for letter in "st"]
    files = written(tmp_path, source=names[0], target=names[1])
    settings = {**files, "tokeniser": "words", "validation_share": 0.1, "test_share": 0.25}
    task = ParallelText(**settings)
    assert (task.train_size, task.validation_size, task.test_size) == (13, 2, 5)
    held = {split: [*map(tuple, some)] for split, some in task.sentences.items()}
    found = [pair for some in held.values() for pair in some]
    assert sorted(found) == sorted(zip(*names, strict=True)), "every pair once"
    for split, lines in task.lines.items():
        assert held[split] == [(names[0][line - 1], names[1][line - 1]) for line in lines]
    assert ParallelText(**settings).checksum == task.checksum
    assert ParallelText(**settings, split_seed=1).checksum != task.checksum


def test_longer_pairs_are_refused_dropped_or_cut(files):
    with pytest.raises(
        FileError,
        match=r"source and .*target, line 2: got a pair of 6 and 6 words, allowed: at most 5; ",
    ):
        _ = ParallelText(**files, longest=5).splits
    assert ParallelText(**files, longest=6).left_out == {"train": 0}
    dropped = ParallelText(**files, longest=5, longer="dropped")
    assert dropped.left_out == {"train": 1}
    assert dropped.about["pairs_left_out"] == "1 train"
    assert dropped.lines["train"].tolist() == [1, 3]
    assert [source for source, _ in dropped.sentences["train"]] == ["The dog", "a cat"]
    assert dropped.splits["train"].source.shape == (2, 3)
    assert dropped.vocabulary_size == ParallelText(**files).vocabulary_size, "of all pairs"
    cut = ParallelText(**files, longest=3, longer="cut")
    assert cut.decode(cut.splits["train"].target[1]) == "die katze sieht"
    assert cut.splits["train"].target[1].tolist()[-1] == 0, "a cut sentence ends, too"
    assert "pairs_left_out" not in cut.about


def test_files_are_read_once_and_on_first_use(files):
    task = ParallelText(**files)
    lines = Path(files["source"]).read_text()
    Path(files["source"]).unlink()
    with pytest.raises(FileError, match=r"^cannot read .*source: No such file"):
        _ = task.splits
    Path(files["source"]).write_text(lines)
    batch = task.splits["train"]
    Path(files["source"]).unlink()
    assert task.splits["train"] is batch


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"source": None}, "source: got None, allowed: the name of a file"),
        (
            {"test_source": "a"},
            "test_target: got None with test_source, allowed: a file of as many lines",
        ),
        (
            {"test_source": "a", "test_target": "b", "test_share": 0.5},
            "test_share: got 0.5 and the file a, allowed: one of them; drop test_share or test_so",
        ),
        (
            {"validation_share": 0.5, "test_share": 0.5},
            "validation_share, test_share: got 0.5 and 0.5, allowed: together below 1, so that tr",
        ),
        ({"tokeniser": "letters"}, "tokeniser: got 'letters', allowed: pieces, words, spaces"),
        ({"pieces": 3}, "pieces: got 3, allowed: a whole number, at least 4"),
        ({"least_count": 0}, "least_count: got 0, allowed: a whole number, at least 1"),
        (
            {"tokeniser": "pieces", "least_count": 2},
            "least_count: got 2 with tokeniser='pieces', allowed: with words or spaces; pieces= is",
        ),
        (
            {"largest_vocabulary": 3},
            "largest_vocabulary: got 3, allowed: None or a whole number, at least 4: end, start, ",
        ),
        ({"longest": 0}, "longest: got 0, allowed: a whole number, at least 1"),
        ({"longer": "cut"}, "longer: got 'cut' without a length, allowed: with longest=50"),
        ({"longer": "kept"}, "longer: got 'kept', allowed: refused, dropped, cut"),
        ({"longest_line": 0}, "longest_line: got 0, allowed: a whole number, at least 1"),
    ],
)
def test_wrong_settings_are_refused_at_once(files, changes, sentence):
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        ParallelText(**files | changes)


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({"target": ["x", "y"]}, "source, target: got 3 lines of .*source and 2 of .*target, all"),
        (
            {"target": ["x", "", "y"]},
            r"target, line 2: got an empty line, allowed: only at the end",
        ),
        ({"target": []}, r"target: got an empty file, allowed: at least one row"),
        ({"source": ["x" * 101] * 3}, r"source, line 1: got 101 characters, allowed: at most 100"),
    ],
)
def test_other_files_are_refused(files, tmp_path, texts, sentence):
    written(tmp_path, **texts)
    with pytest.raises(FileError, match=sentence):
        _ = ParallelText(**files, longest_line=100).splits


def test_no_pair_that_is_short_enough_is_refused(files):
    with pytest.raises(
        FileError, match="got no pair of at most 1 words or pieces, allowed: at lea"
    ):
        _ = ParallelText(**files, longest=1, longer="dropped").splits


@pytest.mark.parametrize("ids", [[[3]], [0.5], [3, -1], [3, 16]])
def test_other_ids_are_not_decoded(files, ids):
    with pytest.raises(ConfigError, match=r"^ids: got .*, allowed: "):
        ParallelText(**files).decode(ids)


# -- pieces ----------------------------------------------------------------------------------------


def test_without_the_package_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(shared_vocabulary.importlib.util, "find_spec", lambda name: None)  # pyright: ignore[reportAttributeAccessIssue]
    shared_vocabulary._trained.cache_clear()
    task = in_pieces()
    how = "tokeniser: got 'pieces', which needs the package sentencepiece, allowed: 'words' or "
    assert task.missing.startswith(how)
    with pytest.raises(ConfigError, match=rf"^{how}'spaces' without it; run pip install 'saccade"):
        _ = task.splits
    assert ParallelText.example().missing == "", "words need no package"


def test_nothing_of_the_package_is_imported_for_words(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)  # an import fails
    assert ParallelText.example().train_size == 12


class TestPieces:
    """With the package."""

    @pytest.fixture(autouse=True)
    def installed(self):
        pytest.importorskip("sentencepiece", reason="needs the extra 'text'")

    def test_both_languages_share_their_ids(self):
        task = in_pieces(test_share=0.2)
        assert task.vocabulary_size == 60
        assert task.missing == ""
        assert isinstance(task.vocabulary, SharedPieces)
        assert task.vocabulary.entries[:3] == ["</s>", "<s>", "<unk>"], "end, start, unknown"
        for split, batch in task.splits.items():
            for at, sentences in enumerate(task.sentences[split]):
                decoded = tuple(task.decode(ids[at]) for ids in (batch.source, batch.target))
                assert decoded == sentences
        assert task.unknown_share["train"] == (0, 0)

    def test_words_are_found_again_in_pieces(self):
        task = in_pieces()
        batch, sentences = task.splits["train"], task.sentences["train"]
        words = [[len(text.split()) for text in both] for both in sentences]
        assert task.word_counts["train"].tolist() == words
        numbers = task.words_of(batch.source)
        for ids, of_ids, (text, _) in zip(batch.source, numbers, sentences, strict=True):
            for number, word in enumerate(text.split()):
                assert task.decode(np.asarray(ids)[of_ids == number]) == word
        assert np.array_equal(numbers < 0, batch.source == 0)

    def test_the_same_sentences_give_the_same_pieces(self, tmp_path):
        """Whatever their order and direction, and if they are trained on anew."""
        pairs = [file.read_text(encoding="utf-8").splitlines() for file in EXAMPLE_PAIRS]
        random.Random(0).shuffle(pairs[0])
        shuffled = written(tmp_path, source=pairs[1], target=pairs[0])
        models = []
        for files in (EXAMPLE, EXAMPLE, shuffled):
            shared_vocabulary._trained.cache_clear()
            models.append(model_of(in_pieces(**files)))
        assert models[0] == models[1] == models[2]

    def test_a_model_is_trained_once(self):
        shared_vocabulary._trained.cache_clear()
        for _ in range(3):
            _ = in_pieces().splits
        assert shared_vocabulary._trained.cache_info().misses == 1

    def test_pieces_come_from_the_training_pairs(self, tmp_path):
        test = written(tmp_path, test_source=["Ж dog", "\u200b"], test_target=["Hund", "Hund"])
        task = in_pieces(**test)
        assert 2 in task.splits["test"].source[0]
        assert task.splits["test"].source[1].tolist()[:2] == [2, 0], "nothing is left of it"
        assert model_of(task) == model_of(in_pieces())

    @pytest.mark.parametrize(
        ("pieces", "sentence"),
        [
            (8000, r"pieces: got 8000, allowed: at most \d+ for these sentences$"),
            (10, r"pieces: got 10, allowed: at least \d+, so that every character has an id$"),
        ],
    )
    def test_other_numbers_of_pieces_are_refused(self, pieces, sentence):
        with pytest.raises(ConfigError, match=sentence):
            _ = in_pieces(pieces).splits

    def test_longest_counts_pieces(self):
        with pytest.raises(
            FileError, match=r"line \d+: got a pair of \d+ and \d+ pieces, allowed: a"
        ):
            _ = in_pieces(longest=3).splits

    def test_decoded_sentences_have_the_best_bleu(self):
        bleu = pytest.importorskip("sacrebleu", reason="needs the extra 'text'").corpus_bleu
        task = in_pieces()
        targets = [target for _, target in task.sentences["train"]]
        decoded = [task.decode(ids) for ids in task.splits["train"].target]
        assert bleu(decoded, [targets]).score == pytest.approx(100)
        assert bleu(decoded, [targets[::-1]]).score < 50
