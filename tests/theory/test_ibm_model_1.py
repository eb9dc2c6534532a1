"""IBM Model 1 against nltk, against a plain loop, and against the count table that its first
iteration is.
"""

import itertools

import jax
import numpy as np
import pytest
from nltk.translate import AlignedSent
from nltk.translate import IBMModel1 as Reference

from saccade.contracts.task import END, FIRST_WORD, SentencePairs
from saccade.errors import ConfigError
from saccade.tasks.lexicon_sentences import LexiconSentences
from saccade.theory import ibm_model_1 as theory
from saccade.theory.count_table import count_table
from saccade.theory.ibm_model_1 import (
    alignment,
    expected_counts,
    first_table,
    train,
    translation_scores,
)

Sentences = list[tuple[list[int], list[int]]]


def padded(sentences: Sentences, padding: int = END, extra: int = 0) -> SentencePairs:
    """The sentences as arrays, with padding behind the shorter ones and `extra` places behind
    all.
    """
    arrays = []
    for side in (0, 1):
        size = max(len(pair[side]) for pair in sentences) + extra
        words = np.full((len(sentences), size), padding, np.int32)
        mask = np.zeros(words.shape, bool)
        for row, pair in enumerate(sentences):
            words[row, : len(pair[side])], mask[row, : len(pair[side])] = pair[side], True
        arrays.append((words, mask))
    (source, source_mask), (target, target_mask) = arrays
    pairs = SentencePairs(source, target, np.zeros_like(target), source_mask, target_mask)
    return jax.device_put(pairs)


def arrays_of(pairs: SentencePairs) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    source, target, source_mask, target_mask = map(
        np.asarray, (pairs.source, pairs.target, pairs.source_mask, pairs.target_mask)
    )
    return source, target, source_mask, target_mask


def random_sentences(seed: int, repeating: bool) -> Sentences:
    """Sentences of 1 to 5 words of 6; source words repeat, target words only if `repeating`."""
    generator = np.random.default_rng(seed)

    def sentence(replace: bool) -> list[int]:
        return [int(word) for word in generator.choice(6, generator.integers(1, 6), replace)]

    return [(sentence(True), sentence(repeating)) for _ in range(12)]


def loop(sentences: Sentences, size: int, iterations: int) -> np.ndarray:
    """The textbook's loop, without NULL."""
    table = np.full((size, size), 1 / size)
    for _ in range(iterations):
        counts = np.zeros((size, size))
        for words, outputs in sentences:
            for output in outputs:
                total = sum(table[word, output] for word in words)
                for word in words:
                    counts[word, output] += table[word, output] / total
        seen = counts.sum(axis=1) > 0
        table[seen] = counts[seen] / counts[seen].sum(axis=1, keepdims=True)
    return table


def reference_table(sentences: Sentences, size: int, iterations: int) -> np.ndarray:
    """nltk's table, NULL last. It leaves words that never occur together at the start's value,
    where the shares are 0.
    """
    model = Reference([AlignedSent(outputs, words) for words, outputs in sentences], iterations)
    table = np.zeros((size + 1, size))
    table[sorted(set(range(size)) - {word for words, _ in sentences for word in words})] = 1 / size
    for words, outputs in sentences:
        for word, output in itertools.product((*words, None), outputs):
            table[size if word is None else word, output] = model.translation_table[output][word]
    return table


@pytest.mark.parametrize("iterations", [1, 2, 8])
@pytest.mark.parametrize("seed", range(3))
def test_the_table_is_that_of_nltk(seed, iterations):
    """Target words do not repeat within a sentence: nltk counts those that do as if they stood
    there once.
    """
    sentences = random_sentences(seed, repeating=False)
    found = train(padded(sentences), 6, iterations, null=True).table
    # nltk keeps all probabilities above 1e-12, and no other difference is left.
    np.testing.assert_allclose(found, reference_table(sentences, 6, iterations), rtol=0, atol=1e-9)


def test_the_numbers_that_nltk_documents():
    german = (
        "klein ist das haus, das haus ist ja groß, das buch ist ja klein, das haus, das buch, ein"
        " buch"
    )
    english = "the house is small, the house is big, the book is small, the house, the book, a book"
    corpora = [[sentence.split() for sentence in text.split(", ")] for text in (english, german)]
    words = sorted({word for corpus in corpora for sentence in corpus for word in sentence})
    number = {word: place for place, word in enumerate(words)}
    sentences = [
        ([number[word] for word in x], [number[word] for word in y])
        for x, y in zip(*corpora, strict=True)
    ]
    table = train(padded(sentences), len(words), 5, null=True).table
    documented = [
        ("book", "buch", 0.889),
        ("book", "das", 0.062),
        (None, "buch", 0.113),
        (None, "ja", 0.073),
    ]
    for source, target, chance in documented:
        row = len(words) if source is None else number[source]
        assert round(table[row, number[target]], 3) == chance


@pytest.mark.parametrize("iterations", [0, 1, 2, 8])
@pytest.mark.parametrize("block", [5, 1024])
def test_the_table_is_that_of_a_plain_loop_if_words_repeat(iterations, block, monkeypatch):
    monkeypatch.setattr(theory, "BLOCK", block)
    sentences = random_sentences(7, repeating=True)
    assert any(len(set(outputs)) < len(outputs) for _, outputs in sentences)
    np.testing.assert_allclose(
        train(padded(sentences), 6, iterations).table,
        loop(sentences, 6, iterations),
        rtol=1e-9,
        atol=1e-15,
    )


def test_the_first_iteration_gives_the_count_table_by_rows():
    pairs = padded(random_sentences(5, repeating=True))
    counts = count_table(*arrays_of(pairs), 8)
    np.testing.assert_allclose(
        expected_counts(np.full((8, 8), 1 / 8), pairs)[0], counts, rtol=1e-12
    )
    np.testing.assert_allclose(train(pairs, 8, 1).table, first_table(counts), rtol=1e-12)
    assert not np.allclose(train(pairs, 8, 2).table, first_table(counts), atol=1e-3), (
        "the second iteration goes on"
    )
    assert np.all(train(pairs, 8, 3).table[7] == 1 / 8), (
        "a word that never occurs keeps the uniform row"
    )


@pytest.mark.parametrize("null", [False, True])
def test_every_iteration_raises_the_likelihood(null):
    pairs = padded(random_sentences(2, repeating=True))
    model = train(pairs, 6, 12, null)
    assert model.log_likelihoods[0] == pytest.approx(-np.log(6) * int(pairs.target_mask.sum())), (
        "the uniform table's"
    )
    assert np.all(np.diff(model.log_likelihoods) > 0)
    assert expected_counts(model.table, pairs, null)[1] > model.log_likelihoods[-1]
    np.testing.assert_allclose(model.table.sum(axis=1), 1, rtol=1e-12)
    # No other table near by is likelier: the likelihood is concave, and iterations end at its top.
    trained = train(pairs, 6, 300, null)
    generator, best = np.random.default_rng(0), expected_counts(trained.table, pairs, null)[1]
    for _ in range(5):
        other = 0.95 * trained.table + 0.05 * generator.dirichlet(np.ones(6), len(trained.table))
        assert expected_counts(other, pairs, null)[1] < best


@pytest.mark.parametrize("null", [False, True])
def test_padding_changes_nothing(null):
    sentences = random_sentences(4, repeating=True)
    plain, longer = padded(sentences), padded(sentences, padding=3, extra=2)
    table = train(plain, 6, 4, null).table
    np.testing.assert_allclose(train(longer, 6, 4, null).table, table, rtol=1e-12)
    weights = alignment(table, *arrays_of(longer), null=null)
    there, wanted = np.asarray(longer.source_mask), np.asarray(longer.target_mask)
    np.testing.assert_allclose(weights.sum(axis=2), wanted, rtol=1e-12)
    padding = np.pad(~there, ((0, 0), (0, int(null))))
    assert np.all(weights[np.broadcast_to(padding[:, None, :], weights.shape)] == 0)
    assert weights.shape[2] == there.shape[1] + null


def test_alpha_and_beta_are_equations_18_and_19():
    sentences: Sentences = [([2, 3, 2], [1, 0]), ([3], [2])]
    pairs = padded(sentences)
    table = first_table(np.random.default_rng(0).random((4, 4)))
    scores, weights = (
        function(table, *arrays_of(pairs)) for function in (translation_scores, alignment)
    )
    beta = np.asarray([[table[word, output] for word in (2, 3, 2)] for output in (1, 0)])
    np.testing.assert_array_equal(scores[0], beta)
    np.testing.assert_allclose(weights[0], beta / beta.sum(axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_array_equal(scores[1], [[table[3, 2], 0, 0], [0, 0, 0]])
    np.testing.assert_array_equal(weights[1], [[1, 0, 0], [0, 0, 0]])
    with_null = first_table(np.random.default_rng(0).random((5, 4)))
    scores = translation_scores(with_null, *arrays_of(pairs), null=True)
    np.testing.assert_array_equal(scores[1, 0], [with_null[3, 2], 0, 0, with_null[4, 2]])


def test_a_word_that_nothing_translates_to_is_aligned_evenly():
    table = np.asarray([[1.0, 0.0], [1.0, 0.0]])
    pairs = padded([([0, 1], [1]), ([0], [0])])
    assert alignment(table, *arrays_of(pairs))[0].tolist() == [[0.5, 0.5]]
    assert expected_counts(table, pairs)[1] == -np.inf


def test_a_sentence_without_words_gives_nothing():
    table = np.full((2, 2), 0.5)
    pairs = padded([([0, 1], [1]), ([], [0])])
    counts, likelihood = expected_counts(table, pairs)
    assert counts.tolist() == [[0, 0.5], [0, 0.5]]
    assert likelihood == -np.inf, "its target word comes from nowhere"


def test_permutations_are_never_aligned():
    """Every word goes with every other equally often: the first table is a fixed point."""
    orders = list(itertools.permutations(range(FIRST_WORD, FIRST_WORD + 3)))
    pairs = padded([(list(order), list(order)) for order in orders])
    model = train(pairs, 5, 30)
    np.testing.assert_allclose(model.table[FIRST_WORD:, FIRST_WORD:], 1 / 3, rtol=1e-12)
    np.testing.assert_allclose(alignment(model.table, *arrays_of(pairs)), 1 / 3, rtol=1e-12)
    # One word less in some sentences is enough to learn from.
    informative = padded([(list(order), list(order)) for order in [*orders, (2, 3), (3, 4)]])
    table = train(informative, 5, 200).table[FIRST_WORD:, FIRST_WORD:]
    assert np.array_equal(table.argmax(axis=1), [0, 1, 2])


def test_a_lexicon_is_found():
    task = LexiconSentences(words=20, shortest=3, longest=6)
    pairs = jax.jit(lambda key: task.sample(key, 1000))(jax.random.key(0))
    table = train(pairs, task.vocabulary_size, 20).table
    assert np.array_equal(table[FIRST_WORD : FIRST_WORD + 20].argmax(axis=1), task.translations)
    weights = alignment(table, *arrays_of(pairs))
    # A word that stands twice in a sentence shares its translations, so positions are compared by
    # their words.
    guessed = np.take_along_axis(np.asarray(pairs.source), weights.argmax(axis=2), axis=1)
    right = np.take_along_axis(np.asarray(pairs.source), np.asarray(pairs.aligned), axis=1)
    assert np.mean((guessed == right)[np.asarray(pairs.target_mask)]) > 0.99


def test_tables_that_do_not_fit_are_refused():
    pairs = padded([([0], [1])])
    with pytest.raises(ConfigError, match=r"^table: got 2 rows of 2 with null=True, allowed: "):
        alignment(np.full((2, 2), 0.5), *arrays_of(pairs), null=True)
    with pytest.raises(ConfigError, match=r"^target: got the id 1, allowed: 0 to 0"):
        train(pairs, 1, 1)
