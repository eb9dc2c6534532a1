"""Labelled texts from files: ids, padding and splits of hand-made files, and what is refused."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from saccade.errors import ConfigError, FileError
from saccade.models.encoder import EncoderConfig
from saccade.records.config import describe, typed
from saccade.settings import Swept
from saccade.tasks.labelled_text import LabelledText
from saccade.train.batches import Minibatch
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe

TRAIN = [
    ("pos", "A good film"),
    ("neg", "A bad, bad film"),
    ("pos", "good"),
]
"""Counted: 2 a, bad, film, good; 1 comma."""
TEST = [("neg", "a dull film"), ("pos", "Good!")]


def written(folder: Path, name: str, rows: list[tuple[str, str]]) -> str:
    file = folder / name
    table = [("label", "text"), *rows]
    file.write_text("".join(f"{label}\t{text}\n" for label, text in table), encoding="utf-8")
    return str(file)


@pytest.fixture
def train(tmp_path) -> str:
    return written(tmp_path, "train.tsv", TRAIN)


@pytest.fixture
def held_out(tmp_path) -> str:
    return written(tmp_path, "test.tsv", TEST)


@pytest.fixture
def numbered(tmp_path) -> str:
    """Twenty texts of one word each, all different, of two labels in turn."""
    rows = [(str(number % 2), f"word{number}") for number in range(20)]
    return written(tmp_path, "numbered.tsv", rows)


def texts_of(task: LabelledText, split: str) -> list[str]:
    words = {number: word for word, number in task.vocabulary.ids.items()}
    batch = task.splits[split]
    mask = np.ones(batch.words.shape, bool) if batch.mask is None else np.asarray(batch.mask)
    return [
        " ".join(words.get(int(one), "?") for one in row[there])
        for row, there in zip(batch.words, mask, strict=True)
    ]


# -- what is read ----------------------------------------------------------------------------------


def test_ids_labels_and_padding_of_a_small_file(train, held_out):
    task = LabelledText(train, test=held_out)
    assert task.vocabulary.words == ("a", "bad", "film", "good", ",")
    assert task.label_names == ("neg", "pos")
    assert (task.vocabulary_size, task.labels) == (7, 2)
    assert list(task.splits) == ["train", "test"]
    batch = task.splits["train"]
    assert batch.words.tolist() == [[2, 5, 4, 0, 0], [2, 3, 6, 3, 4], [5, 0, 0, 0, 0]]
    assert batch.labels.tolist() == [1, 0, 1]
    assert batch.mask is not None
    assert batch.mask.tolist() == [[True] * 3 + [False] * 2, [True] * 5, [True] + [False] * 4]
    assert batch.words.dtype == batch.labels.dtype == np.int32
    assert batch.lengths.tolist() == [3, 5, 1]
    batch = task.splits["test"]
    assert batch.words.tolist() == [[2, 1, 4, 0, 0], [5, 1, 0, 0, 0]]
    assert batch.labels.tolist() == [0, 1]
    assert (task.train_size, task.validation_size, task.test_size) == (3, 0, 2)
    assert task.unknown_share == {"train": 0.0, "test": 2 / 5}


def test_rare_words_are_unknown(train, held_out):
    twice = LabelledText(train, test=held_out, least_count=2)
    assert twice.vocabulary.words == ("a", "bad", "film", "good")
    assert twice.unknown_share == {"train": 1 / 9, "test": 2 / 5}
    assert twice.splits["train"].words[1].tolist() == [2, 3, 1, 3, 4]
    assert LabelledText(train, largest_vocabulary=4).vocabulary.words == ("a", "bad")


def test_no_mask_where_all_texts_are_full(tmp_path):
    rows = [("a", "x y"), ("b", "y z")]
    task = LabelledText(written(tmp_path, "a.tsv", rows), test=written(tmp_path, "b.tsv", rows))
    assert [batch.mask for batch in task.splits.values()] == [None, None]
    assert task.unknown_share == {"train": 0.0, "test": 0.0}
    longer = written(tmp_path, "c.tsv", [("a", "x y z")])
    batches = LabelledText(written(tmp_path, "a.tsv", rows), test=longer).splits.values()
    assert [np.sum(~np.asarray(batch.mask)) for batch in batches] == [2, 0]


def test_words_at_white_space_keep_their_case(tmp_path):
    task = LabelledText(written(tmp_path, "a.tsv", TRAIN), tokeniser="spaces")
    assert task.vocabulary.words == ("A", "film", "good", "bad", "bad,")


def test_bytes_are_those_of_utf8(tmp_path, lab):
    """An umlaut is two bytes; ids by falling count, then by number; a model trains on them."""
    path = written(tmp_path, "t.tsv", [("a", "bübb"), ("b", "B")])
    task = LabelledText(path, tokeniser="bytes")
    assert task.vocabulary.words == ("b", "B", "\u00bc", "\u00c3")
    np.testing.assert_array_equal(task.splits["train"].words, [[2, 5, 4, 2, 2], [3, 0, 0, 0, 0]])
    with pytest.raises(
        FileError, match=r"line 2: got a text of 5 bytes, allowed: at most 4; raise"
    ):
        len(LabelledText(path, tokeniser="bytes", longest=4).splits)
    cut = LabelledText(path, tokeniser="bytes", longest=2, cut=True)
    np.testing.assert_array_equal(cut.splits["train"].words, [[3, 4], [2, 0]])
    model = EncoderConfig(layers=1, heads=1, dimension=4, hidden=4, dropout=0.0)
    trained = lab.train(Recipe(task, model, GradientDescent(0.5), 3, batches=Minibatch(2)))
    loss = trained.trajectory["loss"].isel(seed=0).values
    assert loss[-1] < loss[0]


def test_other_formats_and_columns(tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("3,Title,a body\n10,Other,text\n")
    task = LabelledText(str(table), label=0, text=(1, 2))
    assert texts_of(task, "train") == ["title a body", "other text"]
    assert task.label_names == ("3", "10"), "by number"
    objects = tmp_path / "a.jsonl"
    objects.write_text("".join(json.dumps({"l": label, "t": text}) + "\n" for label, text in TRAIN))
    other = LabelledText(str(objects), label="l", text="t")
    assert texts_of(other, "train") == ["a good film", "a bad , bad film", "good"]


def test_the_checksum_is_of_splits_labels_and_texts(train, held_out, tmp_path):
    objects = tmp_path / "copy.jsonl"
    objects.write_text("".join(json.dumps({"l": label, "t": text}) + "\n" for label, text in TRAIN))
    task = LabelledText(train)
    canonical = "".join(
        json.dumps(["train", label, text], ensure_ascii=False) + "\n" for label, text in TRAIN
    )
    assert task.checksum == hashlib.sha256(canonical.encode()).hexdigest()
    assert LabelledText(str(objects), label="l", text="t", least_count=2).checksum == task.checksum
    others = [LabelledText(train, test=held_out), LabelledText(train, validation=held_out)]
    others.append(LabelledText(written(tmp_path, "turned.tsv", TRAIN[::-1])))
    assert len({task.checksum, *(one.checksum for one in others)}) == 4


def test_a_path_object_will_do(train):
    assert LabelledText(Path(train)) == LabelledText(train)  # pyright: ignore[reportArgumentType]


def test_the_config_is_read_back_from_a_record(train):
    task = LabelledText(train, validation_share=0.4, label="l", text=("a", "b"), longest=7)
    assert typed(LabelledText, json.loads(json.dumps(describe(task)))) == task


def test_nothing_is_read_before_it_is_needed(tmp_path):
    task = LabelledText(str(tmp_path / "none.tsv"))
    with pytest.raises(FileError, match="cannot read"):
        _ = task.splits


def test_another_content_gives_other_examples(train):
    first = LabelledText(train)
    assert first.train_size == 3
    with open(train, "a") as file:
        file.write("neg\tawful\n")
    assert first.train_size == 3, "read once"
    assert LabelledText(train).train_size == 4


# -- long texts ------------------------------------------------------------------------------------


def test_long_texts_are_refused_or_cut_on_request(train, held_out):
    assert LabelledText(train, longest=5).splits["train"].words.shape == (3, 5)
    with pytest.raises(
        FileError,
        match=r"train\.tsv, line 3: got a text of 5 words, allowed: at most 4; raise longest, or "
        r"give cut=True to keep the first words$",
    ):
        _ = LabelledText(train, longest=4).splits
    short = written(Path(train).parent, "short.tsv", [("pos", "good"), ("neg", "bad")])
    with pytest.raises(FileError, match=r"test\.tsv, line 2: got a text of 3 words"):
        _ = LabelledText(short, test=held_out, longest=2).splits
    task = LabelledText(train, longest=2, cut=True)
    assert texts_of(task, "train") == ["a good", "a bad", "good"]
    assert task.vocabulary.words == ("a", "good", "bad"), "what is cut is not counted"


# -- splits ----------------------------------------------------------------------------------------


def test_splits_are_drawn_by_the_seed(numbered):
    task = LabelledText(numbered, validation_share=0.1, test_share=0.25)
    assert list(task.splits) == ["train", "validation", "test"]
    assert (task.train_size, task.validation_size, task.test_size) == (13, 2, 5)
    again = LabelledText(numbered, validation_share=0.1, test_share=0.25)
    assert texts_of(again, "train") == texts_of(task, "train")
    # Words of the validation and test texts are unknown: the vocabulary is that of training.
    assert task.unknown_share == {"train": 0.0, "validation": 1.0, "test": 1.0}
    others = [
        texts_of(LabelledText(numbered, test_share=0.25, split_seed=seed), "train")
        for seed in range(4)
    ]
    assert len(set(map(tuple, others))) == 4
    order = np.random.default_rng(0).permutation(20)
    assert texts_of(task, "train") == [f"word{number}" for number in sorted(order[7:])]
    # A test set stays the same if validation examples are drawn, too.
    alone = LabelledText(numbered, test_share=0.25)
    assert alone.splits["test"].labels.tolist() == task.splits["test"].labels.tolist()
    assert set(texts_of(task, "train")) < set(texts_of(alone, "train"))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    lengths=st.lists(st.integers(1, 6), min_size=12, max_size=40),
    validation_share=st.sampled_from([0.0, 0.1, 0.3]),
    test_share=st.sampled_from([0.0, 0.1, 0.4]),
    split_seed=st.integers(0, 2**40),
)
def test_no_text_is_lost_or_cut(
    lengths, validation_share, test_share, split_seed, tmp_path_factory
):
    """Every text begins with a word of its own and has an end that all texts know."""
    rows = [
        ("01"[at % 2], " ".join([f"w{at}", *["end"] * length])) for at, length in enumerate(lengths)
    ]
    file = written(tmp_path_factory.mktemp("texts"), "texts.tsv", rows)
    task = LabelledText(
        file, validation_share=validation_share, test_share=test_share, split_seed=split_seed
    )
    try:
        splits = task.splits
    except FileError as error:
        assume("got the one label" not in str(error))  # by chance, the other is drawn away
        raise
    sizes = {split: batch.size for split, batch in splits.items()}
    assert sum(sizes.values()) == len(rows)
    assert sizes.get("test", 0) == round(test_share * len(rows))
    assert sizes.get("validation", 0) == round(validation_share * len(rows))
    found = sorted(
        (label, length)
        for batch in splits.values()
        for label, length in zip(batch.labels.tolist(), batch.lengths.tolist(), strict=True)
    )
    assert found == sorted((int(label), len(text.split())) for label, text in rows)
    assert {batch.words.shape[1] for batch in splits.values()} == {max(lengths) + 1}
    end = task.vocabulary.ids["end"]
    assert sum(int(np.sum(batch.words == end)) for batch in splits.values()) == sum(lengths)
    assert texts_of(task, "train") == [
        text for _, text in rows if task.vocabulary.ids.get(text.split()[0])
    ]


def test_a_share_and_a_file_of_another_split_go_together(numbered, tmp_path):
    test = written(tmp_path, "more.tsv", [("1", "word3 word4")])
    task = LabelledText(numbered, test=test, validation_share=0.5)
    assert (task.train_size, task.validation_size, task.test_size) == (10, 10, 1)


# -- what is refused -------------------------------------------------------------------------------


def test_one_class_only_is_refused(tmp_path):
    file = written(tmp_path, "a.tsv", [("pos", "good"), ("pos", "fine")])
    with pytest.raises(
        FileError,
        match=r"/a\.tsv: got the one label 'pos' in all 2 training rows, allowed: at least two "
        r"labels$",
    ):
        _ = LabelledText(file).splits


def test_a_label_that_training_lacks_is_refused_by_its_line(train, tmp_path):
    test = written(tmp_path, "other.tsv", [("pos", "good"), ("positive", "good")])
    with pytest.raises(
        FileError,
        match=r"/other\.tsv, line 3: got the label 'positive' in test, allowed: labels of the "
        r"training texts, neg, pos$",
    ):
        _ = LabelledText(train, test=test).splits


def test_a_label_that_is_drawn_away_is_refused_by_its_line(numbered):
    with open(numbered, "a") as file:
        file.write("rare\tword\n")
    refused = r"/numbered\.tsv, line 22: got the label 'rare' in test, allowed: .*, 0, 1$"
    tasks = [LabelledText(numbered, test_share=0.5, split_seed=seed) for seed in range(8)]
    outcomes = []
    for task in tasks:
        try:
            outcomes.append(task.labels)
        except FileError as error:
            assert re.search(refused, str(error))  # noqa: PT017
            outcomes.append(None)
    assert set(outcomes) == {3, None}


@pytest.mark.parametrize(
    ("shares", "sentence"),
    [
        (
            {"test_share": 0.1},
            "got 3 rows, of which test_share=0.1 is none, allowed: at least one; raise the share",
        ),
        (
            {"test_share": 0.5, "validation_share": 0.4},
            "got 3 rows, of which none is left for training; lower validation_share or test_share",
        ),
    ],
)
def test_an_empty_split_is_refused(shares, sentence, train):
    with pytest.raises(FileError, match=rf"/train\.tsv: {re.escape(sentence)}$"):
        _ = LabelledText(train, **shares).splits


def test_a_count_that_no_word_has_is_refused(train):
    with pytest.raises(ConfigError, match="least_count: got 3, allowed: at most 2, the count"):
        _ = LabelledText(train, least_count=3).splits


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"path": 3}, "path: got 3, allowed: the name of a file"),
        ({"test": 3}, "test: got 3, allowed: the name of a file"),
        ({"path": "a.txt"}, "path: got 'a.txt', allowed: names that end in .tsv"),
        ({"test": "b.xlsx"}, "path: got 'b.xlsx', allowed: names that end in .tsv"),
        ({"label": 0}, "columns: got label=0, text='text', allowed: names for all, or numbers"),
        ({"test_share": 1.0}, "test_share: got 1.0, allowed: from 0 to below 1"),
        ({"validation_share": -0.1}, "validation_share: got -0.1, allowed: from 0 to below 1"),
        (
            {"test_share": 0.5, "validation_share": 0.5},
            "validation_share, test_share: got 0.5 and 0.5, allowed: together below 1, so that",
        ),
        (
            {"test_share": 0.5, "test": "b.tsv"},
            "test_share: got 0.5 and the file b.tsv, allowed: one of them; drop test_share or test",
        ),
        (
            {"test_share": Swept.over("share", [0.1, 0.2])},
            "sweep test_share: cannot be swept, because a corpus is the same for all members; give",
        ),
        (
            {"split_seed": Swept.over("seed", [0, 1])},
            "sweep split_seed: cannot be swept, because a corpus is the same for all members; give",
        ),
        ({"split_seed": -1}, "split_seed: got -1, allowed: a whole number, at least 0"),
        ({"least_count": 0}, "least_count: got 0, allowed: a whole number, at least 1"),
        (
            {"largest_vocabulary": 2},
            "largest_vocabulary: got 2, allowed: None or a whole number, at least 3: padding,",
        ),
        ({"tokeniser": "letters"}, "tokeniser: got 'letters', allowed: words, spaces"),
        ({"longest": 0}, "longest: got 0, allowed: a whole number, at least 1"),
        ({"cut": True}, "cut: got True without a length, allowed: with longest=400"),
        ({"longest_line": 0}, "longest_line: got 0, allowed: a whole number, at least 1"),
    ],
)
def test_settings_are_checked_at_construction(options, sentence):
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}"):
        LabelledText(**{"path": "a.tsv", **options})
