"""Sentences whose topic shows in a word pair: starts, pairs and free moves."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import ConfigError
from saccade.models.convolutional_classifier import pair_numbers
from saccade.tasks.markov_pairs import MarkovPairs


def drawn(task: MarkovPairs, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    batch = jax.jit(lambda key: task.sample(key, size))(jax.random.key(seed))
    return np.asarray(batch.words), np.asarray(batch.labels)


def moves(
    task: MarkovPairs, words: np.ndarray, labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every move (from, to), and whether it starts with the first word of a pair of the
    sentence's own topic.
    """
    left, right = words[:, :-1], words[:, 1:]
    first_of_pair = (left % 2 == 0) & (left < 2 * task.pairs)
    own = first_of_pair & (left // 2 // task.pairs_per_topic == labels[:, None])
    return left, right, own


@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    topics=st.integers(2, 4),
    pairs_per_topic=st.integers(1, 3),
    spare=st.integers(0, 9),
    sentence_size=st.integers(2, 8),
    seed=st.integers(0, 2**31),
)
def test_a_pair_of_the_topic_is_never_torn(topics, pairs_per_topic, spare, sentence_size, seed):
    task = MarkovPairs(topics, pairs_per_topic, 2 * topics * pairs_per_topic + spare, sentence_size)
    words, labels = drawn(task, 60, seed)
    assert words.shape == (60, sentence_size)
    assert words.min() >= 0
    assert words.max() < task.vocabulary_size
    left, right, own = moves(task, words, labels)
    assert np.all(own[:, 0]), "a sentence starts with the first word of one of its topic's pairs"
    assert np.array_equal(right[own], left[own] + 1)
    # The second words make topic pairs, numbered as the task says, and of the topic that it says.
    pairs = pair_numbers(words, task.vocabulary_size)[:, 0]
    assert set(pairs) <= set(task.topic_items)
    assert np.array_equal(task.topic_of_item[np.searchsorted(task.topic_items, pairs)], labels)


def test_pairs_are_numbered_as_the_model_numbers_them():
    task = MarkovPairs(topics=2, pairs_per_topic=2, dictionary_size=11)
    words = np.asarray([[2 * pair, 2 * pair + 1] for pair in range(task.pairs)])
    assert np.array_equal(pair_numbers(words, 11)[:, 0], task.topic_items)
    assert task.topic_of_item.tolist() == [0, 0, 1, 1]


def test_starts_are_equally_likely_and_free_moves_go_anywhere():
    task = MarkovPairs(topics=2, pairs_per_topic=2, dictionary_size=10, sentence_size=6)
    words, labels = drawn(task, 3000)
    left, right, own = moves(task, words, labels)
    foreign = ~own & (left % 2 == 0) & (left < 8)
    # Each count within four standard errors of a multinomial's: starts; free moves; those from
    # another topic's first words.
    for numbers, kinds in ((words[:, 0] // 2, 4), (right[~own], 10), (right[foreign], 10)):
        counts = np.bincount(numbers, minlength=kinds)
        assert np.abs(counts - numbers.size / kinds).max() < 4 * np.sqrt(
            numbers.size / kinds * (1 - 1 / kinds)
        )
    for before in range(10):  # the word before says nothing about a free move
        counts = np.bincount(right[~own & (left == before)], minlength=10)
        assert np.abs(counts - counts.sum() / 10).max() < 5 * np.sqrt(
            counts.sum() * 0.09
        )  # 100 counts: five errors


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topics": 1}, "topics: got 1, allowed: a whole number, at least 2"),
        ({"sentence_size": 1}, "sentence_size: got 1"),
        ({"pairs_per_topic": 0}, "pairs_per_topic: got 0"),
        ({"dictionary_size": 7}, "dictionary_size: got 7, allowed: at least 8, two per topic pair"),
        ({"train_size": 0}, "train_size: got 0"),
    ],
)
def test_impossible_sizes_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        MarkovPairs(**settings)
