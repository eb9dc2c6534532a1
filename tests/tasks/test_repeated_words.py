"""Repeated words: what is shown, what is asked, and that no word tells of another."""

import jax
import numpy as np
import pytest

from saccade.errors import ConfigError
from saccade.tasks.repeated_words import FIRST, HIDDEN, PADDING, SEPARATOR, RepeatedWords

SIZE = 400


def drawn(**settings):
    task = RepeatedWords(**{"length": 5, "words": 7, "extra": 3, **settings})
    return task, jax.tree.map(np.asarray, task.sample(jax.random.key(1), SIZE))


@pytest.mark.parametrize("objective", ["next", "masked"])
def test_the_second_part_repeats_the_first(objective):
    task, batch = drawn(objective=objective)
    first = batch.words[:, :5]
    assert np.all(batch.words[:, 5] == SEPARATOR)
    assert np.all((first >= FIRST) & (first < task.vocabulary_size))
    places = np.flatnonzero(batch.selected[0])
    assert np.all(batch.selected == batch.selected[0])
    np.testing.assert_array_equal(batch.labels[:, places], first)
    if objective == "next":
        assert places.tolist() == [5, 6, 7, 8, 9]
        np.testing.assert_array_equal(batch.words[:, 6:11], first)
    else:
        assert places.tolist() == [6, 7, 8, 9, 10]
        assert np.all(batch.words[:, 6:11] == HIDDEN)


def test_padding_stands_behind_all_words():
    _, batch = drawn()
    assert np.all((batch.words == PADDING) == ~batch.mask)
    lengths = batch.mask.sum(1)
    assert set(lengths) == {11, 12, 13, 14}
    assert np.all(batch.mask == (np.arange(14) < lengths[:, None]))


@pytest.mark.parametrize("objective", ["next", "masked"])
def test_shown_positions_have_their_own_answer(objective):
    _, batch = drawn(objective=objective, shown=1.0)
    np.testing.assert_array_equal(batch.words[batch.selected], batch.labels[batch.selected])
    _, some = drawn(objective="masked", shown=0.3)
    share = np.mean(some.words[some.selected] != HIDDEN)
    assert share == pytest.approx(0.3, abs=4 * np.sqrt(0.21 / some.selected.sum()))


def test_words_say_nothing_about_each_other():
    """Mutual information of a predicted word and the one before it, against its expected size."""
    task, batch = drawn(length=2, words=5, extra=0)
    table = np.zeros((5, 5))
    np.add.at(table, (batch.words[:, 3] - FIRST, batch.labels[:, 3] - FIRST), 1)
    expected = table.sum(1, keepdims=True) * table.sum(0) / SIZE
    chi_squared = np.sum((table - expected) ** 2 / expected)
    assert chi_squared < 45  # 16 degrees of freedom: exceeded with probability 1.4e-4
    assert task.is_causal


def test_settings_are_checked():
    with pytest.raises(ConfigError, match=r"^shown: got 2, allowed: from 0 to 1"):
        RepeatedWords(shown=2)
    with pytest.raises(ConfigError, match=r"^objective: got 'both', allowed: next, masked"):
        RepeatedWords(objective="both")  # pyright: ignore[reportArgumentType]
