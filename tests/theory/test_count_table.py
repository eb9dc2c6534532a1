"""The count table: by hand, exactly for copying, and as the first movement of the proxy."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.contracts.task import END, FIRST_WORD
from saccade.errors import ConfigError
from saccade.settings import over_sweeps, with_sweep
from saccade.tasks.copying import Copying
from saccade.theory import count_table as theory
from saccade.theory.count_table import (
    count_table,
    diagonal_ratio,
    expected_count_table,
    initial_logit_derivative,
    initial_probability_derivative,
)


def counted_by_hand(source, target, source_mask, target_mask, vocabulary_size, without_end):
    """The definition, position by position."""
    table = np.zeros((vocabulary_size, vocabulary_size))
    for x, y, x_there, y_there in zip(source, target, source_mask, target_mask, strict=True):
        words = [
            word
            for word, there in zip(x, x_there, strict=True)
            if there and not (without_end and word == END)
        ]
        outputs = [
            word
            for word, there in zip(y, y_there, strict=True)
            if there and not (without_end and word == END)
        ]
        for word, output in itertools.product(words, outputs):
            table[word, output] += 1 / len(words)
    return table


def random_corpus(
    pairs: int, vocabulary_size: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Words that repeat, ragged masks with holes, garbage where they hide, one sentence without
    words.
    """
    generator = np.random.default_rng(seed)
    source = generator.integers(0, vocabulary_size, (pairs, 6))
    target = generator.integers(0, vocabulary_size, (pairs, 4))
    source_mask, target_mask = (
        generator.random(source.shape) < 0.7,
        generator.random(target.shape) < 0.7,
    )
    source_mask[0] = False
    return (
        np.where(source_mask, source, -5),
        np.where(target_mask, target, 99),
        source_mask,
        target_mask,
    )


@pytest.mark.parametrize("without_end", [False, True])
@pytest.mark.parametrize("block", [1, 7, 4096])
def test_the_table_is_its_definition(without_end, block, monkeypatch):
    monkeypatch.setattr(theory, "BLOCK", block)
    corpus = random_corpus(30, 5)
    table = count_table(*corpus, 5, without_end=without_end)
    np.testing.assert_allclose(
        table, counted_by_hand(*corpus, 5, without_end), rtol=1e-12
    )  # sums in another order
    assert table.sum() > 0
    assert (table[END].sum() == table[:, END].sum() == 0) == without_end


def test_every_target_word_of_a_sentence_with_words_counts_once():
    """The weights 1 / L of a target word sum to 1."""
    source, target, source_mask, target_mask = random_corpus(30, 5)
    table = count_table(source, target, source_mask, target_mask, 5)
    assert table.sum() == pytest.approx(target_mask[source_mask.any(axis=1)].sum(), rel=1e-12)


def test_ids_without_a_row_are_refused():
    there = np.ones((1, 2), bool)
    words = np.asarray([[2, 3]])
    with pytest.raises(ConfigError, match=r"^source: got the id 7, allowed: 0 to 3"):
        count_table(np.asarray([[2, 7]]), words, there, there, 4)
    with pytest.raises(ConfigError, match=r"^target: got the id -1, allowed: 0 to 3"):
        count_table(words, np.asarray([[-1, 2]]), there, there, 4)


def every_sequence(task: Copying) -> np.ndarray:
    """All sequences of the task, each once: they are equally likely."""
    sequences = [
        [FIRST_WORD + group * task.set_size + place for place in places] + [END]
        for group in range(task.groups)
        for places in itertools.permutations(range(int(task.words)), task.length)
    ]
    return np.asarray(sequences)


EXACT = [
    Copying(1, 1),
    Copying(1, 1, groups=3),
    Copying(1, 4, groups=2),
    Copying(2, 2),
    Copying(3, 4, largest=5, groups=2),
    Copying(3, 5),
    Copying(4, 4),
    Copying(3, 3, groups=2),
    Copying(3, 4, order="permuted", permutation=5),
]


@pytest.mark.parametrize(
    "task", EXACT, ids=lambda task: f"{task.length}of{task.words:g}x{task.groups}{task.order}"
)
def test_the_expected_table_is_the_mean_over_all_sequences(task):
    sequences = every_sequence(task)
    there = np.ones(sequences.shape, bool)
    targets = sequences[:, task.places]
    expected = expected_count_table(task)
    table = count_table(sequences, targets, there, there, task.vocabulary_size, without_end=True)
    np.testing.assert_allclose(table / len(sequences), expected, rtol=1e-12, atol=0)
    # Every word of a sequence is a target word once: k words a pair.
    assert expected.sum() == pytest.approx(task.length, rel=1e-12)
    # The end, if it counts, shrinks the entries of words by k / (k + 1), and leaves their ratio
    # alone.
    whole = count_table(sequences, targets, there, there, task.vocabulary_size)[
        FIRST_WORD:, FIRST_WORD:
    ] / len(sequences)
    shrunk = task.length / (task.length + 1)
    np.testing.assert_allclose(
        whole, shrunk * expected[FIRST_WORD:, FIRST_WORD:], rtol=1e-12, atol=0
    )
    # The ratio, where a set has two words that are ever together.
    if task.length > 1:
        assert expected[FIRST_WORD, FIRST_WORD] / expected[
            FIRST_WORD, FIRST_WORD + 1
        ] == pytest.approx(diagonal_ratio(task))


def test_the_sampled_table_of_forty_of_sixty():
    task, size = Copying(40, 60, groups=2), 5000
    pairs = jax.jit(lambda key: task.sample(key, size))(jax.random.key(0))
    table = count_table(
        pairs.source,
        pairs.target,
        pairs.source_mask,
        pairs.target_mask,
        task.vocabulary_size,
        without_end=True,
    )
    expected = expected_count_table(task)
    chance = (
        expected * task.length
    )  # an entry is 1 / k times the number of sequences that hold both words
    error = np.sqrt(chance * (1 - chance) / size) / task.length
    assert np.all(np.abs(table / size - expected) <= 5 * error), (
        "five standard errors of a binomial, for 7200 entries"
    )
    assert expected[FIRST_WORD, FIRST_WORD + 60] == 0, "across sets"


def test_ratios():
    assert diagonal_ratio(Copying(40, 60)) == pytest.approx(1.513, abs=5e-4)
    task = with_sweep(Copying(40, largest=80), "words", [40, 41, 60, 80])
    np.testing.assert_allclose(over_sweeps(diagonal_ratio, task), [1, 40 / 39, 59 / 39, 79 / 39])
    assert diagonal_ratio(Copying(1, 1)) == diagonal_ratio(Copying(40, 40, groups=2)) == 1
    assert diagonal_ratio(Copying(1, 2)) == float("inf")


PAIRS, IDS, OUTPUTS = 12, 7, 5


def proxy_corpus() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Word counts of source sentences of several lengths, those of their targets, and their
    count table.
    """
    generator = np.random.default_rng(3)
    has, gives = generator.integers(0, 3, (PAIRS, IDS)), generator.integers(0, 3, (PAIRS, OUTPUTS))
    has[:, 0] += 1  # no empty sentence
    return has, gives, (has / has.sum(axis=1, keepdims=True)).T @ gives


@jax.jit
def started(embedding: Any, output: Any, has: Any, gives: Any) -> tuple[Any, Any]:
    """First derivatives of the proxy's logits and probabilities under gradient flow, by
    differentiation.
    """

    def loss(parameters: Any) -> Any:
        e, W = parameters
        return -jnp.sum(
            gives * jax.nn.log_softmax((has / has.sum(axis=1, keepdims=True)) @ e @ W.T)
        )

    def logits(parameters: Any) -> Any:
        return parameters[0] @ parameters[1].T

    parameters = embedding, output
    velocity = jax.tree.map(jnp.negative, jax.grad(loss)(parameters))
    by_probability = jax.jvp(lambda now: jax.nn.softmax(logits(now)), (parameters,), (velocity,))[1]
    return jax.jvp(logits, (parameters,), (velocity,))[1], by_probability


def proxy_errors(width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Measured less predicted, relative to the largest prediction: of logits and of
    probabilities.
    """
    has, gives, counts = proxy_corpus()
    generator = np.random.default_rng(seed)
    e, W = (
        generator.normal(size=(words, width)).astype(np.float32) / np.sqrt(width)
        for words in (IDS, OUTPUTS)
    )
    measured = started(e, W, has.astype(np.float32), gives.astype(np.float32))
    predicted = initial_logit_derivative(counts), initial_probability_derivative(counts)
    logits, chances = (
        (np.asarray(found) - expected) / np.abs(expected).max()
        for found, expected in zip(measured, predicted, strict=True)
    )
    return logits, chances


def test_the_proxy_starts_as_predicted_the_better_the_wider_it_is():
    narrow, wide = (
        np.asarray([proxy_errors(width, seed) for seed in range(6)]) for width in (100, 10_000)
    )
    assert np.abs(wide).max() < 0.05  # the specification's bound for d = 1e4
    # Errors fall like d^(-1/2). Of 6 x 35 entries, in 6 independent draws, the root mean square is
    # known to about 1 / sqrt(2 x 6 x 7) = 11 %: a ratio to 16 %, of which three make a half.
    falls = np.sqrt((narrow**2).mean(axis=(0, 2, 3)) / (wide**2).mean(axis=(0, 2, 3)))
    np.testing.assert_allclose(falls, 10, rtol=0.5)


def test_a_probability_starts_slower_than_a_logit_by_the_number_of_outputs():
    """What equation 15 prints for probabilities is off by that factor: the proxy refutes it."""
    has, gives, counts = proxy_corpus()
    logit, chance = initial_logit_derivative(counts), initial_probability_derivative(counts)
    np.testing.assert_allclose(logit, OUTPUTS * chance, rtol=1e-12)
    generator = np.random.default_rng(0)
    e, W = (
        generator.normal(size=(words, 10_000)).astype(np.float32) / 100 for words in (IDS, OUTPUTS)
    )
    _, measured = started(e, W, has.astype(np.float32), gives.astype(np.float32))
    slope = float(np.sum(np.asarray(measured) * logit) / np.sum(logit**2))
    assert slope == pytest.approx(1 / OUTPUTS, rel=0.05)


@settings(max_examples=5, deadline=None, derandomize=True)
@given(words=st.integers(1, 5), outputs=st.integers(1, 5), seed=st.integers(0, 99))
def test_derivatives_sum_to_zero_and_ignore_what_all_outputs_share(words, outputs, seed):
    counts = np.random.default_rng(seed).random((words, outputs))
    derivative = initial_logit_derivative(counts)
    np.testing.assert_allclose(derivative.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(
        initial_logit_derivative(counts + counts[:, :1]), derivative, atol=1e-12
    )


def test_permutations_give_no_word_a_reason_to_prefer_its_copy():
    derivative = initial_logit_derivative(expected_count_table(Copying(40, 40, groups=2)))
    assert np.ptp(derivative[FIRST_WORD, FIRST_WORD : FIRST_WORD + 40]) == 0
    assert derivative[FIRST_WORD, FIRST_WORD] > derivative[FIRST_WORD, FIRST_WORD + 40], (
        "but its set is learned"
    )
