"""What is known of words before training: three sentences by hand."""

import numpy as np

from saccade.contracts.task import Batch
from saccade.data.word_facts import WordFacts

WORDS = np.asarray([[2, 3, 2, 0], [2, 4, 0, 0], [3, 4, 4, 3]])
BATCH = Batch(WORDS, np.asarray([1, 0, 1]), WORDS > 0)  # pyright: ignore[reportArgumentType]


def test_a_text_counts_once_however_often_the_word_stands_in_it():
    facts = WordFacts.of(BATCH, 6, 2)
    np.testing.assert_array_equal(facts.occurrence, [0, 0, 2, 2, 2, 0])


def test_companions_are_the_other_words_of_these_texts():
    facts = WordFacts.of(BATCH, 6, 2)
    np.testing.assert_allclose(facts.companions, [0, 0, 1.5, 2.5, 2, 0])


def test_purity_is_the_difference_of_the_two_largest_shares():
    facts = WordFacts.of(BATCH, 6, 3)
    np.testing.assert_allclose(facts.purity, [0, 0, 0, 1, 0, 0])


def test_without_a_mask_padding_is_a_word():
    facts = WordFacts.of(Batch(WORDS, BATCH.labels), 6, 2)  # pyright: ignore[reportArgumentType]
    np.testing.assert_array_equal(facts.occurrence, [2, 0, 2, 2, 2, 0])
    np.testing.assert_allclose(facts.companions[2:5], 3)
