"""The classifier's gradients against the paper's, against finite differences; its ablations,
queries and heads.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.task import Batch
from saccade.models.attention_classifier import (
    AttentionClassifier,
    AttentionClassifierConfig,
    Head,
)
from saccade.models.heads import LinearHead, gaussian_head, orthonormal_head
from saccade.tasks.topic_sentences import TopicSentences

TASK = TopicSentences(
    topics=3, words_per_topic=2, filler_size=4, dictionary_size=9, train_size=12, test_size=4
)


def sentences() -> Batch:
    return jax.jit(lambda key: TASK.sample(key, TASK.train_size))(jax.random.key(1))


def built(config: AttentionClassifierConfig) -> Any:
    return jax.jit(lambda key: config.build(TASK, key))(jax.random.key(2))


def with_index(config: AttentionClassifierConfig, batch: Batch) -> Batch:
    return jax.tree.map(
        lambda leaf: leaf[0], config.prepare(TASK, jax.tree.map(lambda leaf: leaf[None], batch))
    )


def scattered(head: Head, **settings: Any) -> AttentionClassifier:
    """A model away from its start: scores and embeddings of size 1."""
    config = AttentionClassifierConfig(
        head=head, dimension=4, embedding_std=1.0, hidden_size=5, **settings
    )
    scores = jnp.asarray(np.random.default_rng(3).normal(size=TASK.vocabulary_size))
    return eqx.tree_at(lambda model: model.score_table, built(config), scores)


def averaged_first(
    head: dict[str, np.ndarray], scores: np.ndarray, embeddings: np.ndarray, batch: Batch
):
    """The model of the paper in NumPy, average first: loss, attention, context, dL/d context and
    logits.
    """
    words, labels = np.asarray(batch.words), np.asarray(batch.labels)
    weight = np.exp(scores[words])
    attention = weight / weight.sum(axis=1, keepdims=True)
    context = np.einsum("xp,dxp->xd", attention, embeddings[:, words])
    hidden = context @ head["first"]
    logits = hidden
    if "second" in head:
        hidden = hidden + head["first_bias"]
        logits = np.maximum(hidden, 0) @ head["second"] + head["second_bias"]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    loss = -np.mean(np.log(shares[np.arange(len(labels)), labels]))
    pull = (shares - np.eye(logits.shape[1])[labels]) / len(labels)
    if "second" in head:
        pull = pull @ head["second"].T * (hidden > 0)
    return loss, attention, context, pull @ head["first"].T, logits


def parts(model: AttentionClassifier) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    head = {
        field.name: np.asarray(getattr(model.head, field.name))
        for field in dataclasses.fields(model.head)
    }
    return head, np.asarray(model.scores), np.asarray(model.embeddings)


@pytest.mark.parametrize("head", ["FC", "TC", "TL"])
def test_gradients_are_those_of_the_paper_and_of_finite_differences(head):
    """dL/dv_w = sum p_w g_x and dL/ds_w = sum p_w (v_w - vbar_x) . g_x, with g_x = dL/dvbar_x."""
    with jax.enable_x64(True):
        model, plain = scattered(head), sentences()
        indexed = with_index(AttentionClassifierConfig(), plain)
        both = jax.jit(
            lambda model, batch: (
                jax.grad(AttentionClassifier.loss)(model, batch),
                model(batch).logits,
            )
        )
        ours, logits = zip(*(both(model, batch) for batch in (plain, indexed)), strict=True)
    weights, scores, embeddings = parts(model)
    _, attention, context, pull, expected_logits = averaged_first(
        weights, scores, embeddings, plain
    )
    by_score, by_embedding = np.zeros_like(scores), np.zeros_like(embeddings)
    for sentence, words in enumerate(np.asarray(plain.words)):
        for position, word in enumerate(words):
            share = attention[sentence, position]
            by_embedding[:, word] += share * pull[sentence]
            by_score[word] += share * (embeddings[:, word] - context[sentence]) @ pull[sentence]
    for one in ours:
        # float64 sums of a few dozen terms below 1
        np.testing.assert_allclose(one.embeddings, by_embedding, rtol=0, atol=1e-13)
        np.testing.assert_allclose(one.score_table, by_score, rtol=0, atol=1e-13)
    for one in logits:  # projecting first equals averaging first
        np.testing.assert_allclose(one, expected_logits, rtol=0, atol=1e-13)

    step = 1e-5
    for name, place, slope in (
        ("scores", scores, ours[0].score_table),
        ("embeddings", embeddings, ours[0].embeddings),
        *((part, weights[part], getattr(ours[0].head, part)) for part in weights),
    ):
        for index in np.ndindex(*place.shape):
            moved = []
            for sign in (1, -1):
                shifted = place.copy()
                shifted[index] += sign * step
                now = {"scores": scores, "embeddings": embeddings, **weights, name: shifted}
                head_now = {part: now[part] for part in weights}
                moved.append(averaged_first(head_now, now["scores"], now["embeddings"], plain)[0])
            # Central differences err by step^2 / 6 = 2e-11 times a third derivative, and by 1e-16 /
            # step = 1e-11.
            np.testing.assert_allclose(
                (moved[0] - moved[1]) / (2 * step), np.asarray(slope)[index], rtol=0, atol=1e-9
            )


def learning(model: AttentionClassifier) -> set[str]:
    """Names of the parts with an array that learns, and no array that does not."""
    trainable = model.trainable()
    names = {field.name for field in dataclasses.fields(model) if field.name != "frozen"}
    flags = {name: set(jax.tree.leaves(getattr(trainable, name))) for name in names}
    assert all(len(kinds) < 2 for kinds in flags.values()), "a part learns whole or not at all"
    return {name for name, kinds in flags.items() if kinds == {True}}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"head": "FC"}, {"embeddings", "score_table"}),
        ({"head": "TC"}, {"embeddings", "score_table", "head"}),
        ({"head": "TL"}, {"embeddings", "score_table", "head"}),
        ({"head": "TC", "keys_frozen": True}, {"embeddings", "head"}),
        ({"head": "TC", "embeddings_frozen": True}, {"score_table", "head"}),
        ({"head": "FC", "keys_frozen": True, "embeddings_frozen": True}, set()),
        ({"head": "FC", "query": "fixed"}, {"embeddings", "keys"}),
        ({"head": "FC", "query": "trained"}, {"embeddings", "keys", "query"}),
        ({"head": "TC", "query": "trained", "keys_frozen": True}, {"embeddings", "query", "head"}),
    ],
)
def test_only_what_should_learn_is_trainable(settings, expected):
    model = eqx.filter_eval_shape(
        AttentionClassifierConfig(**settings).build, TASK, jax.random.key(0)
    )
    filled = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), model)
    assert learning(filled) == expected


def descended(model: Any, batch: Batch, rate: float, steps: int) -> Any:
    """The model after some steps of gradient descent on what learns."""
    learned, still = eqx.partition(model, model.trainable())

    def loss(moving: Any) -> Any:
        return eqx.combine(moving, still).loss(batch)

    def step(_: Any, moving: Any) -> Any:
        return jax.tree.map(
            lambda value, slope: value - rate * slope, moving, jax.grad(loss)(moving)
        )

    return eqx.combine(
        jax.jit(lambda start: jax.lax.fori_loop(0, steps, step, start))(learned), still
    )


@pytest.mark.parametrize("query_norm", [1.0, 3.0])
def test_a_fixed_query_is_a_unit_query_with_the_rate_times_its_squared_norm(query_norm):
    """v = ||q|| nu and s = q . k move as free v and s do on loss(v / ||q||), at the rate tau
    ||q||^2 (not tau ||q||).
    """
    rate, steps = 0.05, 40
    with jax.enable_x64(True):
        batch = sentences()
        drawn = built(AttentionClassifierConfig(dimension=4, embedding_std=0.1, query="fixed"))
        query = query_norm * drawn.query / jnp.linalg.norm(drawn.query)
        fixed = eqx.tree_at(lambda model: model.query, drawn, query)
        head = LinearHead(fixed.head.first / query_norm)  # classifies v / ||q||
        free = AttentionClassifier(
            query_norm * fixed.embeddings, head, ("head",), score_table=fixed.scores
        )
        end = descended(fixed, batch, rate, steps)
        squared, printed = (
            descended(free, batch, rate * query_norm**power, steps) for power in (2, 1)
        )
        scores, embeddings = np.asarray(end.scores), np.asarray(end.rescaled_embeddings)
    assert np.ptp(scores) > 1e-3, "nothing was learned"
    # float64, forty steps
    np.testing.assert_allclose(scores, squared.score_table, rtol=0, atol=1e-13)
    np.testing.assert_allclose(embeddings, squared.embeddings, rtol=0, atol=1e-13)
    agrees = np.allclose(embeddings, printed.embeddings, rtol=0, atol=1e-6)
    assert agrees == (query_norm == 1), "the paper's tau ||q|| agrees for a norm of 1 only"


def test_a_unit_query_has_norm_one_and_a_drawn_one_its_own():
    unit = built(AttentionClassifierConfig())
    drawn = built(AttentionClassifierConfig(query="trained", query_std=2.0))
    assert float(unit.query_norm) == 1
    norm = float(np.linalg.norm(np.asarray(drawn.query)))
    assert float(drawn.query_norm) == pytest.approx(norm, rel=1e-6)  # float32
    np.testing.assert_allclose(
        drawn.rescaled_embeddings, norm * np.asarray(drawn.embeddings), rtol=1e-6
    )
    assert np.all(np.asarray(drawn.scores) == 0)
    items = np.asarray([3, 0, 3])
    assert np.array_equal(drawn.embeddings_of(items), drawn.rescaled_embeddings[:, items])
    assert np.array_equal(drawn.scores_of(items), drawn.scores[items])


def test_the_gaussian_head_has_a_unit_diagonal_and_the_orthonormal_one_orthonormal_columns():
    gaussian = np.asarray(jax.jit(lambda key: gaussian_head(5, 3, key).first)(jax.random.key(0)))
    assert np.all(np.diag(gaussian) == 1)
    assert not np.any(gaussian[~np.eye(5, 3, dtype=bool)] == 1)
    orthonormal = np.asarray(
        jax.jit(lambda key: orthonormal_head(5, 3, key).first)(jax.random.key(0))
    )
    np.testing.assert_allclose(orthonormal.T @ orthonormal, np.eye(3), atol=1e-6)  # float32


@pytest.mark.parametrize(
    ("fixed_head", "orthonormal"), [("orthonormal", True), ("gaussian", False)]
)
def test_the_fixed_head_is_the_one_asked_for(fixed_head, orthonormal):
    first = np.asarray(built(AttentionClassifierConfig(fixed_head=fixed_head)).head.first)
    assert np.allclose(first.T @ first, np.eye(TASK.labels), atol=1e-5) == orthonormal


def test_trained_heads_start_within_one_over_the_root_of_their_inputs():
    head: Any = built(AttentionClassifierConfig("TL", dimension=16, hidden_size=4)).head
    for part, inputs in (("first", 16), ("first_bias", 16), ("second", 4), ("second_bias", 4)):
        values = np.abs(np.asarray(getattr(head, part)))
        assert values.max() <= inputs**-0.5
        assert values.max() > 0.5 * inputs**-0.5, (
            "three or more uniform draws, all in the lower half: unlucky seed"
        )


def test_embeddings_start_with_their_standard_deviation():
    embeddings = np.asarray(
        built(AttentionClassifierConfig(dimension=400, embedding_std=0.2)).embeddings
    )
    # 6000 normal draws: the sample deviation has a standard error of 1 / sqrt(2 * 6000) = 0.9 %,
    # four of them
    assert embeddings.std() == pytest.approx(0.2, rel=0.037)
