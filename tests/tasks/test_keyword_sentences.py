"""Sentences with and without the keyword: where it stands, how often, and what else there is."""

import functools
from typing import Any

import jax
import numpy as np
import pytest

from saccade.errors import ConfigError
from saccade.tasks.keyword_sentences import KEYWORD, KeywordSentences

SIZE = 3000
"""Sentences of a draw."""


@functools.cache
def sampler(task: KeywordSentences) -> Any:
    return jax.jit(lambda key: task.sample(key, SIZE))


def drawn(task: KeywordSentences, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    batch = sampler(task)(jax.random.key(seed))
    return np.asarray(batch.words), np.asarray(batch.labels)


def assert_uniform(counts: np.ndarray) -> None:
    """Each count within four standard errors of a multinomial's."""
    total, share = counts.sum(), 1 / len(counts)
    assert np.abs(counts - total * share).max() < 4 * np.sqrt(total * share * (1 - share))


SMALL, SMALLEST, PAPER = (
    KeywordSentences(length=5, words=4),
    KeywordSentences(length=1, words=2),
    KeywordSentences(),
)


@pytest.mark.parametrize("task", [SMALLEST, SMALL, PAPER], ids=["smallest", "small", "paper"])
def test_the_keyword_stands_once_in_positives_and_never_in_negatives(task):
    for seed in range(3):
        sentences, labels = drawn(task, seed)
        assert sentences.shape == (SIZE, task.length)
        assert set(labels) == set(range(task.labels)) == {0, 1}
        assert np.array_equal(np.sum(sentences == KEYWORD, axis=1), labels)
        assert set(sentences.ravel()) == set(range(task.words))
        assert task.vocabulary_size == task.words
        assert abs(labels.sum() - SIZE / 2) < 5 * np.sqrt(
            SIZE / 4
        )  # five standard errors of a binomial


def test_words_and_places_are_equally_likely():
    sentences, labels = drawn(SMALL)
    assert_uniform(np.bincount(np.argmax(sentences == KEYWORD, axis=1)[labels == 1], minlength=5))
    for label in (0, 1):
        others = sentences[labels == label]
        assert_uniform(np.bincount(others[others != KEYWORD] - 1, minlength=3))


def test_other_words_are_drawn_with_replacement():
    sentences, labels = drawn(SMALL)
    negatives = sentences[labels == 0]
    repeated = np.sum(negatives[:, 0] == negatives[:, 1])
    # Four standard errors of a binomial.
    assert abs(repeated - len(negatives) / 3) < 4 * np.sqrt(len(negatives) * 2 / 9)


def test_the_sizes_of_the_paper():
    assert (PAPER.length, PAPER.words) == (40, 40)


@pytest.mark.parametrize(
    ("field", "value"),
    [("length", 0), ("words", 1), ("train_size", 0), ("test_size", -1), ("words", 2.5)],
)
def test_impossible_sizes_are_refused_by_name(field, value):
    with pytest.raises(ConfigError, match=rf"^{field}: got {value!r}, allowed: "):
        KeywordSentences(**{field: value})
