"""Sequences to be copied: which words they hold, in which order, and how often."""

import functools
from collections import Counter
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.contracts.task import END, FIRST_WORD, START
from saccade.errors import ConfigError
from saccade.settings import map_swept, with_sweep
from saccade.tasks.copying import Copying

SIZE = 3000
"""Sequences of a draw."""


@functools.cache
def sampler(task: Copying) -> Any:
    """Draws with any number of words, which is traced as in a sweep: one program for all
    numbers.
    """
    swept = with_sweep(task, "words", [task.length])
    return jax.jit(lambda key, words: map_swept(swept, lambda _: words).sample(key, SIZE))


@functools.cache
def drawn(task: Copying, words: float, seed: int = 0) -> Any:
    """Sentence pairs of NumPy arrays."""
    return jax.tree.map(np.asarray, sampler(task)(jax.random.key(seed), words))


def assert_uniform(counts: np.ndarray) -> None:
    """Each count within four standard errors of a multinomial's."""
    total, share = counts.sum(), 1 / len(counts)
    assert np.abs(counts - total * share).max() <= 4 * np.sqrt(total * share * (1 - share))


LONE = Copying(1, 1, groups=3, order="permuted", largest=4)
GROUPED = Copying(3, 3, groups=2, largest=5)
PERMUTED = Copying(6, 6, order="permuted", permutation=1, largest=8)


@pytest.mark.parametrize("task", [LONE, GROUPED, PERMUTED], ids=["lone", "grouped", "permuted"])
@settings(max_examples=4, deadline=None, derandomize=True)
@given(data=st.data(), seed=st.integers(0, 2**31))
def test_distinct_words_of_one_set_and_the_end(task, data, seed):
    n = data.draw(st.integers(task.length, task.set_size))
    pairs = drawn(task, float(n), seed)
    assert pairs.source.shape == pairs.target.shape == (SIZE, task.length + 1)
    assert pairs.source_mask.all()
    assert pairs.target_mask.all()
    assert np.all(pairs.source[:, -1] == END)
    assert np.all(pairs.target[:, -1] == END)
    words = np.sort(pairs.source[:, :-1] - FIRST_WORD, axis=1)
    assert np.all(np.diff(words, axis=1) > 0), "a word comes twice"
    assert np.all(words[:, 0] // task.set_size == words[:, -1] // task.set_size), (
        "words of two sets"
    )
    seen = {group * task.set_size + place for group in range(task.groups) for place in range(n)}
    assert set(words.ravel()) == seen, "the first words of every set, and no others"
    assert np.array_equal(pairs.target, np.take_along_axis(pairs.source, pairs.aligned, axis=1))


def test_a_plain_number_of_words_draws_what_a_swept_one_draws():
    plain = jax.jit(lambda key: Copying(3, 5, groups=2).sample(key, SIZE))(jax.random.key(0))
    assert all(
        np.array_equal(*leaves)
        for leaves in zip(*map(jax.tree.leaves, (plain, drawn(GROUPED, 5.0))), strict=True)
    )


def test_as_many_words_as_places_make_permutations():
    words = drawn(GROUPED, 3.0).source[:, :-1]
    group = words.min(axis=1)
    assert set(group) == {FIRST_WORD, FIRST_WORD + 5}
    assert np.array_equal(np.sort(words - group[:, None], axis=1), np.tile([0, 1, 2], (SIZE, 1)))
    orders = Counter(map(tuple, words.tolist()))
    assert len(orders) == 12
    assert_uniform(np.asarray(list(orders.values())))


def test_a_copy_is_a_copy():
    pairs = drawn(GROUPED, 5.0)
    assert np.array_equal(pairs.source, pairs.target)
    assert np.array_equal(pairs.aligned, np.tile(np.arange(4), (SIZE, 1)))


def test_one_fixed_permutation_moves_all_sequences_alike():
    assert sorted(PERMUTED.places[:-1]) == list(range(6))
    assert PERMUTED.places[-1] == 6
    assert not np.array_equal(PERMUTED.places, np.arange(7))
    pairs = drawn(PERMUTED, 8.0)
    assert np.all(pairs.aligned == PERMUTED.places), "the same for all sequences"
    # Words are distinct, so a word of the target can come from one place only.
    found = np.argmax(pairs.source[:, None, :] == pairs.target[:, :, None], axis=2)
    assert np.array_equal(found, pairs.aligned)
    assert not np.array_equal(
        PERMUTED.places, Copying(6, 8, order="permuted", permutation=2).places
    )


def test_words_places_and_sets_are_equally_likely():
    words = drawn(GROUPED, 5.0).source[:, :-1] - FIRST_WORD
    for place in range(3):
        assert_uniform(np.bincount(words[:, place], minlength=10))
    assert_uniform(np.bincount(words[:, 0] // 5, minlength=2))
    together = Counter(tuple(sorted(row % 5)) for row in words)
    assert len(together) == 10, "all sets of 3 of 5 words"
    assert_uniform(np.asarray(list(together.values())))
    # As likely as the others of those that are drawn, if some are not.
    fewer = drawn(GROUPED, 4.0).source[:, 0] - FIRST_WORD
    assert_uniform(np.bincount(fewer, minlength=10)[[0, 1, 2, 3, 5, 6, 7, 8]])


def test_ids_are_given_out_for_the_largest_number_of_words():
    narrow = Copying(3, 4, groups=2, largest=7)
    assert narrow.vocabulary_size == Copying(3, 7, groups=2).vocabulary_size == FIRST_WORD + 14
    assert np.flatnonzero(narrow.used_ids).tolist() == [END, START, 2, 3, 4, 5, 9, 10, 11, 12]
    assert np.asarray(Copying(3, 7, groups=2).used_ids).all()


def test_sequences_of_one_word():
    one, many = drawn(LONE, 1.0), drawn(LONE, 4.0)
    assert_uniform(np.bincount(one.source[:, 0] - FIRST_WORD, minlength=12)[[0, 4, 8]])
    assert_uniform(np.bincount(many.source[:, 0] - FIRST_WORD, minlength=12))
    assert np.array_equal(many.source, many.target), "one word has one order"


def test_the_decoder_sees_the_target_one_place_later():
    pairs = drawn(PERMUTED, 8.0)
    seen = np.asarray(pairs.decoder_input)
    assert np.all(seen[:, 0] == START)
    assert np.array_equal(seen[:, 1:], pairs.target[:, :-1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"length": 5, "words": 4.0},
            "words: got 4.0, allowed: a whole number, at least the 5 words of a sequence",
        ),
        ({"length": 5, "words": 5.5}, "words: got 5.5, allowed: a whole number"),
        ({"length": 5, "words": 8.0, "largest": 7}, "words: got 8.0, allowed: .*, at most 7"),
        ({"length": 5, "words": float("inf")}, "words: got inf"),
        ({"length": 5, "words": float("nan")}, "words: got nan"),
        (
            {"length": 5, "words": 5.0, "largest": 4},
            "largest: got 4, allowed: a whole number, at least 5",
        ),
        ({"length": 0}, "length: got 0, allowed: a whole number, at least 1"),
        ({"groups": 0}, "groups: got 0"),
        ({"order": "reversed"}, "order: got 'reversed', allowed: copied, permuted"),
        ({"permutation": -1}, "permutation: got -1"),
        ({"train_size": 0}, "train_size: got 0"),
        ({"test_size": 0}, "test_size: got 0"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        Copying(**settings)


def test_swept_words_need_to_be_told_how_many_ids_there_are():
    with pytest.raises(
        ConfigError,
        match=r"^largest: got None, allowed: with swept words a whole number, at least .* 7$",
    ):
        with_sweep(Copying(5, 5), "words", [5.0, 7.0, 6.0])
    assert (
        with_sweep(Copying(5, 5, largest=7), "words", [5.0, 7.0, 6.0]).vocabulary_size
        == FIRST_WORD + 7
    )
