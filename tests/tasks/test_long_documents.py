"""Infinitely long documents against explicit ones: every set of topics, every query, every word."""

import dataclasses
import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.errors import ConfigError
from saccade.models.one_layer_transformer import Blocks, TiedScores
from saccade.models.tied_attention import TiedAttention
from saccade.tasks.long_documents import LongDocumentQueries, LongDocuments, Queries
from saccade.tasks.topic_documents import Masking, Shares
from saccade.theory.attention_ratio import stage_two_loss
from saccade.theory.value_optimum import least_norm_values

KEY = jax.random.key(0)
SIZES = [(4, 2, 1), (4, 3, 2), (5, 1, 3), (4, 2, 4)]
"""T, v, tau."""
MASKINGS = {
    "bert": Masking(),
    "heavy": Masking(0.6, 0.3, 0.2),
    "nothing hidden": Masking(0.5, 0.7, 0.3),
    "all hidden": Masking(0.4, 0.0, 0.0),
}


def all_documents(
    topics: int, words: int, per_document: int, shares: Shares
) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies of shown and of true ids, with a row for every set of topics; id 0 is the hidden
    word.
    """
    shown, there = [], []
    for chosen in itertools.combinations(range(topics), per_document):
        true = np.zeros(1 + topics * words)
        for word in range(topics * words):
            true[1 + word] = (word // words in chosen) / (words * per_document)
        seen = shares.right * true + shares.random / (topics * words)
        seen[0] = shares.hidden
        shown.append(seen)
        there.append(true)
    return np.stack(shown), np.stack(there)


@pytest.mark.parametrize("selected_hidden", [False, True])
@pytest.mark.parametrize("masking", MASKINGS.values(), ids=MASKINGS.keys())
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_rows_give_every_squared_error_that_all_documents_give(sizes, masking, selected_hidden):
    """E ||W Pt + b - P||^2 over all sets of topics, for a random W and b."""
    topics, words, per_document = sizes
    with jax.enable_x64(True):
        task = LongDocuments(topics, words, per_document, masking, selected_hidden)
        batch = task.sample(KEY, task.train_size)
        rows, target, constant = (
            np.asarray(part) for part in (batch.shown, batch.target, batch.constant)
        )
    assert rows.shape == target.shape == (task.train_size, 1 + topics * words)
    shares = Shares(1.0, 0.0, 0.0) if selected_hidden else masking.shares
    shown, there = all_documents(topics, words, per_document, shares)
    np.testing.assert_allclose(shown.sum(axis=1), 1, atol=1e-14)
    random = np.random.default_rng(1)
    weights, bias = random.normal(size=(shown.shape[1],) * 2), random.normal(size=shown.shape[1])
    expected = np.mean(np.sum((shown @ weights.T + bias - there) ** 2, axis=1))
    ours = np.sum((rows @ weights.T + constant[:, None] * bias - target) ** 2)
    assert ours == pytest.approx(expected, rel=1e-12)  # float64


def test_a_sample_draws_nothing():
    with jax.enable_x64(True):
        first, second = (
            LongDocuments(4, 2, 1).sample(jax.random.key(seed), size)
            for seed, size in ((0, 5), (1, 9))
        )
    assert eqx.tree_equal(first, second)


@pytest.mark.parametrize("topics", [2, 3, 4, 10])
def test_ids_are_those_of_documents_with_an_end(topics):
    task = LongDocuments(topics, 3, 1)
    assert task.vocabulary_size == 1 + 3 * topics
    assert task.hidden_id == 0
    assert task.topic_of_id.tolist() == [-1, *np.repeat(np.arange(topics), 3)]


# -- queries ---------------------------------------------------------------------------------------

QUERY_SIZES = [(3, 2, 1), (4, 2, 2), (4, 3, 3), (3, 1, 2)]


def queries(task: LongDocumentQueries) -> Queries:
    return task.sample(KEY, 4)


@pytest.mark.parametrize("masking", MASKINGS.values(), ids=MASKINGS.keys())
@pytest.mark.parametrize("sizes", QUERY_SIZES, ids=str)
def test_kinds_and_words_are_all_there(sizes, masking):
    with jax.enable_x64(True):
        batch = queries(LongDocumentQueries(*sizes, masking=masking))
        batch = jax.tree.map(np.asarray, batch)
    one = {"rtol": 0, "atol": 1e-14}
    np.testing.assert_allclose(batch.probability.sum(), 1, **one)
    np.testing.assert_allclose(np.sum(batch.count * batch.frequency, axis=1), 1, **one)
    np.testing.assert_allclose(np.sum(batch.count * batch.target, axis=1), 1, **one)
    np.testing.assert_array_equal(batch.count.sum(axis=1), sizes[0] * sizes[1] + 1)
    assert np.all(batch.probability >= 0)
    assert np.all(batch.count >= 0)
    assert batch.looks.tolist() == [1, 1, 1, 0]


def explicit_error(task: LongDocumentQueries, alpha: float, beta: float, blocks: Blocks) -> float:
    """E ||f - e_w||^2 by loops over sets of topics, selected words and shown words,
    with D x D tables.
    """
    topics, words, per_document = (
        int(task.topics),
        int(task.words_per_topic),
        int(task.topics_per_document),
    )
    masking, size = task.masking, int(task.topics * task.words_per_topic)
    shown, there = all_documents(topics, words, per_document, masking.shares)
    topic = np.array([-1, *np.repeat(np.arange(topics), words)])
    weight, values = np.ones((size + 1, size + 1)), np.zeros((size + 1, size + 1))
    for query, key in itertools.product(range(size + 1), repeat=2):
        if query > 0 and key > 0:
            weight[query, key] = (
                beta if query == key else alpha if topic[query] == topic[key] else 1.0
            )
            values[query, key] = blocks.same if topic[query] == topic[key] else blocks.other
        elif query > 0:
            values[query, key] = blocks.hidden
    error = 0.0
    for seen, true in zip(shown, there, strict=True):
        attention = weight * seen
        outputs = (attention / attention.sum(axis=1, keepdims=True)) @ values.T  # query output
        for word in range(1, size + 1):
            right = np.eye(size + 1)[word]
            mistakes = np.sum((outputs - right) ** 2, axis=1)
            replaced = mistakes[1:].mean()
            hidden = 1 - masking.kept - masking.replaced
            error += true[word] * (
                masking.kept * mistakes[word] + masking.replaced * replaced + hidden * mistakes[0]
            )
    return error / len(shown)


@pytest.mark.parametrize("masking", MASKINGS.values(), ids=MASKINGS.keys())
@pytest.mark.parametrize("sizes", QUERY_SIZES, ids=str)
def test_the_error_of_tied_attention_is_that_of_explicit_documents(sizes, masking):
    random = np.random.default_rng(2)
    blocks = Blocks(*random.normal(size=3))
    alpha, beta = np.exp(random.normal(size=2))
    with jax.enable_x64(True):
        task = LongDocumentQueries(*sizes, masking=masking)
        scores = TiedScores(jnp.log(jnp.asarray(beta)), jnp.log(jnp.asarray(alpha)))
        model = TiedAttention(scores, jnp.asarray([blocks.hidden, blocks.same, blocks.other]))
        ours = float(ERROR(model, queries(task)))
    assert ours == pytest.approx(explicit_error(task, alpha, beta, blocks), rel=1e-12)  # float64


ERROR = jax.jit(TiedAttention.loss)


@pytest.mark.parametrize("masking", [Masking(), Masking(0.6, 0.3, 0.2)], ids=["bert", "heavy"])
@pytest.mark.parametrize("sizes", [(10, 10, 4), (4, 3, 2), (3, 1, 2)], ids=str)
def test_the_error_of_tied_attention_is_the_loss_of_the_theory_up_to_a_constant(sizes, masking):
    """For three pairs of alpha and beta with each gamma: only gamma matters."""
    words = sizes[1]
    with jax.enable_x64(True):
        task = LongDocumentQueries(*sizes, masking=masking)
        batch, blocks = queries(task), least_norm_values(task)
        values = jnp.asarray([blocks.hidden, blocks.same, blocks.other])
        gaps = []
        for gamma in (0.3, 1.0, 2.5, 8.0):
            for share in (0.2, 0.5, 0.9):  # of gamma that the same word has
                beta = gamma if words == 1 else share * gamma * words
                alpha = 7.0 * share if words == 1 else (1 - share) * gamma * words / (words - 1)
                model = TiedAttention(
                    TiedScores(jnp.log(jnp.asarray(beta)), jnp.log(jnp.asarray(alpha))), values
                )
                gaps.append(float(ERROR(model, batch)) - stage_two_loss(gamma, task))
    np.testing.assert_allclose(gaps, gaps[0], rtol=0, atol=1e-14)
    # Rounding leaves the constant, and the loss must have varied by far more than that.
    assert abs(stage_two_loss(8.0, task) - stage_two_loss(0.3, task)) > 1e-5


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topics": 1}, "topics: got 1, allowed: a whole number, at least 2"),
        ({"words_per_topic": 0}, "words_per_topic: got 0"),
        (
            {"topics": 4, "topics_per_document": 5.0},
            "topics_per_document: got 5.0, allowed: a whole number from 1 to the 4 topics",
        ),
        (
            {"topics_per_document": 0.5},
            "topics_per_document: got 0.5, allowed: a whole number from 1 to the 10 topics",
        ),
    ],
)
def test_impossible_long_documents_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        LongDocuments(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topics": 1.0}, "topics: got 1.0, allowed: a whole number, at least 2"),
        ({"words_per_topic": 0.0}, "words_per_topic: got 0.0, allowed: a whole number, at least 1"),
        (
            {"topics_per_document": 0.0},
            "topics_per_document: got 0.0, allowed: a whole number, at least 1",
        ),
        ({"train_size": 5}, "train_size: got 5, allowed: 4, the kinds of queries"),
    ],
)
def test_impossible_queries_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        LongDocumentQueries(**settings)


def test_sizes_of_the_moments_cannot_be_chosen():
    assert LongDocuments(topics=7).train_size == LongDocuments(topics=7).test_size == 8
    assert "train_size" not in {field.name for field in dataclasses.fields(LongDocuments)}
