"""The made-up corpus: one translation a word, local reordering, Zipf's law, padding."""

import dataclasses
import functools
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.contracts.task import END, FIRST_WORD
from saccade.errors import ConfigError
from saccade.settings import map_swept, with_sweep
from saccade.tasks.lexicon_sentences import LexiconSentences

SIZE = 2000
"""Pairs of a draw."""
TASK = LexiconSentences(words=6, shortest=2, longest=8, lexicon=3)
SHORTEST = LexiconSentences(words=3, shortest=1, longest=1)


@functools.cache
def sampler(task: LexiconSentences) -> Any:
    """Draws with any window and exponent, which are traced as in a sweep: one program for all of
    them.
    """
    swept = with_sweep(with_sweep(task, "window", [1.0]), "exponent", [1.0])
    return jax.jit(
        lambda key, values: map_swept(swept, lambda one: values[one.name]).sample(key, SIZE)
    )


@functools.cache
def drawn(task: LexiconSentences, window: float = 3.0, exponent: float = 1.0, seed: int = 0) -> Any:
    """Sentence pairs of NumPy arrays."""
    pairs = sampler(task)(jax.random.key(seed), {"window": window, "exponent": exponent})
    return jax.tree.map(np.asarray, pairs)


def lengths(pairs: Any) -> np.ndarray:
    """Words of every sentence, the end left out."""
    return np.sum(pairs.source_mask, axis=1) - 1


@pytest.mark.parametrize("task", [TASK, SHORTEST], ids=["several", "one word"])
@settings(max_examples=5, deadline=None, derandomize=True)
@given(window=st.floats(1, 12), seed=st.integers(0, 2**31))
def test_a_target_word_translates_a_source_word_near_by(task, window, seed):
    pairs = drawn(task, window, seed=seed)
    places = np.arange(task.longest + 1)
    length = lengths(pairs)[:, None]
    assert pairs.source.shape == pairs.target.shape == (SIZE, task.longest + 1)
    assert set(length.ravel()) == set(range(task.shortest, task.longest + 1))
    assert np.array_equal(pairs.source_mask, places <= length)
    assert np.array_equal(pairs.target_mask, pairs.source_mask)
    there = np.broadcast_to(places < length, pairs.source.shape)
    # Words where there are words, the end and padding behind them.
    for sentences, first in ((pairs.source, FIRST_WORD), (pairs.target, FIRST_WORD + task.words)):
        assert np.all(sentences[~there] == END)
        assert set(sentences[there]) == set(range(first, first + task.words))
    assert task.vocabulary_size == FIRST_WORD + 2 * task.words
    # Every source word is translated once, not far from its place, and the end is where it was.
    assert np.array_equal(np.sort(pairs.aligned, axis=1), np.tile(places, (SIZE, 1)))
    assert np.all(np.abs(pairs.aligned - places)[there] < window)
    assert np.all(np.take_along_axis(pairs.aligned, length, axis=1) == length)
    from_source = np.take_along_axis(pairs.source, pairs.aligned, axis=1)
    assert np.array_equal(pairs.target[there], task.translations[from_source[there] - FIRST_WORD])


def test_a_window_of_one_keeps_the_order():
    assert np.array_equal(drawn(TASK, 1.0).aligned, np.tile(np.arange(9), (SIZE, 1)))


@pytest.mark.parametrize("window", [2.0, 3.0])
def test_a_wider_window_uses_all_of_its_room_and_no_more(window):
    moved = drawn(TASK, window).aligned - np.arange(9)
    assert set(moved.ravel()) == set(range(1 - int(window), int(window)))


def test_two_neighbours_trade_places_as_often_as_two_lots_say():
    """Window 2, two words: 1 + 2u' < 2u has the chance (1/2)^2 / 2 = 1/8 for two uniform lots."""
    pairs = drawn(TASK, 2.0)
    pair = pairs.aligned[lengths(pairs) == 2]
    traded = int(np.sum(pair[:, 0] == 1))
    assert abs(traded - len(pair) / 8) < 4 * np.sqrt(
        len(pair) / 8 * 7 / 8
    )  # four standard errors of a binomial


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0])
def test_words_follow_zipf(exponent):
    chances = np.arange(1, 7) ** -exponent / np.sum(np.arange(1, 7) ** -exponent)
    np.testing.assert_allclose(
        dataclasses.replace(TASK, exponent=exponent).frequencies, chances, rtol=1e-6
    )  # float32
    pairs = drawn(TASK, exponent=exponent)
    words = pairs.source[pairs.source >= FIRST_WORD] - FIRST_WORD
    counts = np.bincount(words, minlength=6)
    assert np.all(
        np.abs(counts - words.size * chances) < 4 * np.sqrt(words.size * chances * (1 - chances))
    )  # standard errors


def test_lengths_are_equally_likely():
    counts = np.bincount(lengths(drawn(TASK)), minlength=9)
    assert counts[:2].tolist() == [0, 0]
    assert np.abs(counts[2:] - SIZE / 7).max() < 4 * np.sqrt(
        SIZE / 7 * 6 / 7
    )  # four standard errors of a multinomial


def test_a_lexicon_is_one_to_one_and_has_a_number():
    other = dataclasses.replace(TASK, lexicon=1)
    for task in (TASK, other):
        assert sorted(task.translations) == list(range(FIRST_WORD + 6, FIRST_WORD + 12))
    assert not np.array_equal(TASK.translations, other.translations)
    # It changes the translations and nothing else.
    first, second = drawn(TASK), drawn(other)
    assert np.array_equal(first.source, second.source)
    assert np.array_equal(first.aligned, second.aligned)
    assert not np.array_equal(first.target, second.target)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"words": 1}, "words: got 1, allowed: a whole number, at least 2"),
        ({"shortest": 0}, "shortest: got 0, allowed: a whole number, at least 1"),
        ({"shortest": 5, "longest": 4}, "longest: got 4, allowed: a whole number, at least 5"),
        ({"exponent": -1.0}, "exponent: got -1.0, allowed: a finite number, at least 0"),
        ({"exponent": float("nan")}, "exponent: got nan"),
        ({"window": 0.5}, "window: got 0.5, allowed: a finite number, at least 1"),
        ({"window": float("inf")}, "window: got inf"),
        ({"lexicon": -1}, "lexicon: got -1"),
        ({"train_size": 0}, "train_size: got 0"),
        ({"test_size": 0}, "test_size: got 0"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        LexiconSentences(**settings)
