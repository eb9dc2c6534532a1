"""Sentences with one topic word each: what is in them, and how often."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import ConfigError
from saccade.tasks.topic_sentences import TopicSentences


@functools.cache
def drawn(task: TopicSentences, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    batch = jax.jit(lambda key: task.sample(key, size))(jax.random.key(seed))
    return np.asarray(batch.words), np.asarray(batch.labels)


def assert_uniform(counts: np.ndarray) -> None:
    """Each count within four standard errors of a multinomial's."""
    total, share = counts.sum(), 1 / len(counts)
    assert np.abs(counts - total * share).max() < 4 * np.sqrt(total * share * (1 - share))


@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    topics=st.integers(2, 5),
    words_per_topic=st.integers(1, 3),
    filler_size=st.integers(1, 6),
    dictionary_size=st.integers(1, 9),
    seed=st.integers(0, 2**31),
)
def test_one_topic_word_tells_the_label_and_fillers_come_from_the_dictionary(
    topics, words_per_topic, filler_size, dictionary_size, seed
):
    task = TopicSentences(topics, words_per_topic, filler_size, dictionary_size)
    words, labels = drawn(task, 50, seed)
    assert words.shape == (50, 1 + filler_size)
    is_topic_word = words < task.topic_words
    assert np.all(is_topic_word.sum(axis=1) == 1)
    assert np.array_equal(words[is_topic_word] // words_per_topic, labels)
    assert np.array_equal(task.topic_of_item[words[is_topic_word]], labels)
    assert words.min() >= 0
    assert words.max() < task.vocabulary_size == task.topic_words + dictionary_size
    assert task.labels == topics


def test_topics_topic_words_and_fillers_are_equally_likely():
    task = TopicSentences(topics=4, words_per_topic=2, filler_size=5, dictionary_size=20)
    words, labels = drawn(task, 4000)
    assert_uniform(np.bincount(labels, minlength=4))
    assert_uniform(np.bincount(words[:, 0], minlength=8))
    assert_uniform(np.bincount(words[:, 1:].ravel() - 8, minlength=20))


def test_fillers_are_drawn_with_replacement_and_independently_of_the_topic():
    task = TopicSentences(topics=2, words_per_topic=1, filler_size=2, dictionary_size=4)
    words, labels = drawn(task, 4000)
    repeated = int(np.sum(words[:, 1] == words[:, 2]))
    assert abs(repeated - 1000) < 4 * np.sqrt(
        4000 * 0.25 * 0.75
    )  # four standard errors of a binomial
    assert_uniform(np.bincount(4 * labels + words[:, 1] - 2, minlength=8))


@pytest.mark.parametrize("leak", [0.0, 0.3, 1.0])
def test_leaks_put_topic_words_among_the_fillers(leak):
    task = TopicSentences(topics=2, words_per_topic=2, filler_size=5, dictionary_size=6, leak=leak)
    words, labels = drawn(task, 1000)
    assert np.array_equal(words[:, 0] // 2, labels), "the first word tells the topic, leak or not"
    leaked = words[:, 1:] < 4
    assert abs(leaked.sum() - leak * leaked.size) <= 4 * np.sqrt(
        leaked.size * leak * (1 - leak)
    )  # standard errors
    if leak:
        assert_uniform(np.bincount(words[:, 1:][leaked], minlength=4))


def test_a_leak_of_zero_changes_no_sentence():
    """The leak has keys of its own: other words stay as they were."""
    plain, _ = drawn(TopicSentences(2, 2, filler_size=5, dictionary_size=6), 1000)
    leaking, _ = drawn(TopicSentences(2, 2, filler_size=5, dictionary_size=6, leak=0.3), 1000)
    kept = leaking[:, 1:] >= 4
    assert np.array_equal(plain[:, 0], leaking[:, 0])
    assert np.array_equal(plain[:, 1:][kept], leaking[:, 1:][kept])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("topics", 1),
        ("words_per_topic", 0),
        ("filler_size", 0),
        ("dictionary_size", 0),
        ("train_size", 0),
        ("test_size", -1),
        ("leak", -0.1),
        ("leak", 1.1),
        ("leak", float("nan")),
    ],
)
def test_impossible_sizes_are_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=rf"^{field}: got {value!r}, allowed: "):
        TopicSentences(**{field: value})
