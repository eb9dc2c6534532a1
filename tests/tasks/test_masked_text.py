"""Running text with masked words."""

from typing import Any

import numpy as np
import pytest

from saccade.data.formats import EXAMPLE_PAIRS
from saccade.errors import ConfigError
from saccade.tasks.masked_text import MaskedText
from saccade.tasks.topic_documents import Masking

TEXT = "the river is long and the <unk> boat is slow . " * 12


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(TEXT + "\n\n" + TEXT.upper(), encoding="utf-8")
    return str(path)


def test_sequences_are_the_words_of_an_article_in_order(file):
    task = MaskedText(file, length=50)
    words = task.vocabulary.decode(task.splits["train"].labels[0])
    assert words[:9] == TEXT.replace("<unk>", "<unknown>").split()[:9]
    assert task.hidden_id == task.vocabulary_size - 1 == task.vocabulary.size
    assert "<unk>" not in task.vocabulary.ids


def test_unknown_words_and_padding_are_never_selected(file):
    batch: Any = MaskedText(file, length=50, masking=Masking(1.0, 0.0, 0.0)).splits["train"]
    assert np.array_equal(batch.selected, batch.labels > 1)
    assert np.array_equal(batch.mask, batch.labels != 0)
    assert not batch.mask.all(), "the last sequence of an article is shorter"


def test_masks_have_their_shares(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text(" ".join(f"w{at % 500}" for at in range(40_000)), encoding="utf-8")
    batch: Any = MaskedText(str(path)).splits["train"]
    chosen = batch.selected
    shown, labels = batch.words[chosen], batch.labels[chosen]
    many = np.sum(batch.mask)
    error = 5 * np.sqrt(0.15 * 0.85 / many)  # five standard errors of a share
    assert abs(chosen.sum() / many - 0.15) < error
    assert abs((shown == 502).mean() - 0.8) < 5 * np.sqrt(0.8 * 0.2 / chosen.sum())
    kept = 0.1 + 0.1 / 500  # a random word may be the right one
    assert abs((shown == labels).mean() - kept) < 5 * np.sqrt(0.1 * 0.9 / chosen.sum())


def test_copies_differ_in_their_masks_alone(file):
    one, two = (MaskedText(file, length=10, copies=n).splits for n in (1, 2))
    labels = two["train"].labels
    assert np.array_equal(labels, np.concatenate([one["train"].labels] * 2))
    first, second = np.split(two["train"].selected, 2)
    assert not np.array_equal(first, second)
    assert np.array_equal(one["test"].words, two["test"].words)


def test_a_seed_draws_other_masks(file):
    one, two = (MaskedText(file, mask_seed=seed).splits["train"].selected for seed in (0, 1))
    assert not np.array_equal(one, two)


def test_sweeps_and_wrong_settings_are_refused():
    with pytest.raises(ConfigError, match="length: got 0"):
        MaskedText(str(EXAMPLE_PAIRS[0]), length=0)
    with pytest.raises(ConfigError, match="corpus: got 'sst2'"):
        MaskedText("sst2")
    assert MaskedText("nowhere.txt").missing.startswith("corpus: got nowhere.txt, allowed: wiki")


@pytest.mark.data
def test_wikitext_has_its_splits(real_data):
    task = MaskedText("wikitext2_shuffled", str(real_data), largest_vocabulary=6000)
    assert {split: len(batch.words) for split, batch in task.splits.items()} == {
        "train": 32353,
        "validation": 3370,
        "test": 3801,
    }
    assert task.about["corpus"] == "wikitext2_shuffled"
