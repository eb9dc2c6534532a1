"""The probes against plain loops over sentences and words."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.probe import Moment
from saccade.contracts.task import Batch
from saccade.models.attention_classifier import AttentionClassifier, AttentionClassifierConfig
from saccade.probes.performance import Accuracy
from saccade.probes.topic_words import (
    CentredTopicWords,
    Distributions,
    KeySquares,
    OtherWords,
    QueryNorm,
    Surroundings,
    TopicWords,
    Velocities,
)
from saccade.tasks.topic_sentences import TopicSentences

TASK = TopicSentences(
    topics=2,
    words_per_topic=2,
    filler_size=4,
    dictionary_size=7,
    train_size=25,
    test_size=9,
    leak=0.2,
)
"""Leaks, so that a topic word may stand several times in a sentence, and beside another one."""
EDGES = Distributions(score_edges=(-1.0, -0.2, 0.1, 0.6, 1.0), norm_edges=(0.0, 0.5, 1.0, 1.5))
CONFIGS = {
    "unit": AttentionClassifierConfig("TC", dimension=3, embedding_std=0.7),
    "fixed": AttentionClassifierConfig(
        "TC", dimension=3, embedding_std=0.7, query="fixed", key_dimension=2, query_std=2.0
    ),
    "trained": AttentionClassifierConfig(
        "TC", dimension=3, embedding_std=0.7, query="trained", key_dimension=2, query_std=2.0
    ),
}


@functools.cache
def parts(query: str) -> tuple[Any, Any, Batch, Batch]:
    """Start, a model away from it, training and test sentences, in float64."""
    config = CONFIGS[query]
    with jax.enable_x64(True):
        start, train, test = jax.jit(
            lambda key: (
                config.build(TASK, key),
                TASK.sample(key, TASK.train_size),
                TASK.sample(jax.random.fold_in(key, 1), 9),
            )
        )(jax.random.key(4))
        moved = np.random.default_rng(5)
        learned, still = eqx.partition(start, eqx.is_inexact_array)
        now = jax.tree.map(
            lambda leaf: leaf + jnp.asarray(0.5 * moved.normal(size=leaf.shape)), learned
        )
        model = eqx.combine(now, still)
        if query == "fixed":
            model = eqx.tree_at(lambda one: one.query, model, start.query)
    return start, model, train, test


def with_index(config: AttentionClassifierConfig, batch: Batch) -> Batch:
    members = config.prepare(TASK, jax.tree.map(lambda leaf: leaf[None], batch))
    return jax.tree.map(lambda leaf: jax.device_put(leaf[0]), members)


@functools.cache
def measured(query: str, indexed: bool) -> dict[str, np.ndarray]:
    """All probes at once."""
    start, model, train, test = parts(query)
    probes = (
        TopicWords(),
        CentredTopicWords(),
        OtherWords(),
        Surroundings(),
        Velocities(),
        QueryNorm(),
        KeySquares(),
        EDGES,
        Accuracy(),
    )
    with jax.enable_x64(True):
        if indexed:
            train, test = (with_index(CONFIGS[query], batch) for batch in (train, test))

        @jax.jit
        def measure(model: Any, start: Any, train: Batch, test: Batch) -> dict[str, Any]:
            moment = Moment(TASK, model, train, test, AttentionClassifier.loss, lambda: start)
            values = {name: value for probe in probes for name, value in probe(moment).items()}
            return values | {"loss": moment.loss}

        return jax.tree.map(np.asarray, measure(model, start, train, test))


def surroundings(query: str) -> list[list[tuple[float, float, np.ndarray]]]:
    """For each topic word, (attention, 1/Z_r, vbar_r) of every training sentence with it, by
    loops.
    """
    _, model, train, _ = parts(query)
    with jax.enable_x64(True):
        scores, embeddings = np.asarray(model.scores), np.asarray(model.rescaled_embeddings)
    found: list[list[tuple[float, float, np.ndarray]]] = [[] for _ in range(TASK.topic_words)]
    for words in np.asarray(train.words):
        for topic_word in set(words.tolist()) & set(range(TASK.topic_words)):
            rest = [word for word in words if word != topic_word]
            partition = sum(np.exp(scores[word]) for word in rest)
            mean = sum(np.exp(scores[word]) * embeddings[:, word] for word in rest) / partition
            own = np.exp(scores[topic_word]) * (len(words) - len(rest))
            found[topic_word].append((own / (own + partition), 1 / partition, mean))
    return found


EXACT = {"rtol": 0, "atol": 1e-12}
"""float64, sums of a few dozen terms of size 1."""

both_ways = pytest.mark.parametrize("indexed", [False, True], ids=["plain", "indexed"])


@both_ways
def test_score_norm_and_attention_of_topic_words(indexed):
    values = measured("trained", indexed)
    _, model, _, _ = parts("trained")
    query, keys, embeddings = (
        np.asarray(part) for part in (model.query, model.keys, model.embeddings)
    )
    np.testing.assert_allclose(values["score"], (query @ keys)[:4], **EXACT)
    np.testing.assert_allclose(
        values["norm"], np.linalg.norm(query) * np.linalg.norm(embeddings[:, :4], axis=0), **EXACT
    )
    expected = [np.mean([attention for attention, _, _ in one]) for one in surroundings("trained")]
    np.testing.assert_allclose(values["attention"], expected, **EXACT)
    assert values["query_norm"] == pytest.approx(np.linalg.norm(query), abs=1e-12)
    assert values["key_square"] == pytest.approx(np.sum(keys**2), abs=1e-12)
    assert values["score_square"] == pytest.approx(np.sum((query @ keys) ** 2), abs=1e-12)
    unit = measured("unit", indexed)
    assert unit["key_square"] == unit["score_square"]


@both_ways
def test_the_averages_over_the_other_words(indexed):
    values = measured("trained", indexed)
    _, model, _, _ = parts("trained")
    own = np.linalg.norm(np.asarray(model.query)) * np.asarray(model.embeddings)
    loops = surroundings("trained")
    np.testing.assert_allclose(
        values["inverse_partition"], [np.mean([one[1] for one in word]) for word in loops], **EXACT
    )
    distances = [
        np.linalg.norm(own[:, place] - np.mean([one[2] for one in word], axis=0))
        for place, word in enumerate(loops)
    ]
    np.testing.assert_allclose(values["distance"], distances, **EXACT)


@both_ways
def test_the_other_words_in_summary(indexed):
    values = measured("unit", indexed)
    _, model, _, _ = parts("unit")
    scores, norms = (
        np.asarray(model.score_table)[4:],
        np.linalg.norm(np.asarray(model.embeddings)[:, 4:], axis=0),
    )
    assert values["other_score_mean"] == pytest.approx(np.abs(scores).mean(), abs=1e-12)
    assert values["other_score_max"] == np.abs(scores).max()
    assert values["other_norm_mean"] == pytest.approx(norms.mean(), abs=1e-12)


def test_shares_count_words_a_bin_and_sum_to_one():
    values = measured("unit", False)
    start, model, _, _ = parts("unit")
    change = np.asarray(model.score_table) - np.asarray(start.score_table)
    moved = np.linalg.norm(np.asarray(model.embeddings) - np.asarray(start.embeddings), axis=0)
    for which, chosen in (("topic", slice(0, 4)), ("other", slice(4, None))):
        for name, numbers, edges in (
            ("score", change, EDGES.score_edges),
            ("norm", moved, EDGES.norm_edges),
        ):
            inside = np.clip(
                numbers[chosen], edges[0], edges[-1]
            )  # the outermost bins take what lies beyond
            expected, _ = np.histogram(inside, edges)
            share = values[f"{which}_{name}_share"]
            np.testing.assert_allclose(share, expected / inside.size, atol=1e-12)
            assert share.sum() == pytest.approx(1, abs=1e-12)
        assert values[f"{which}_displacement"] == pytest.approx(moved[chosen].mean(), abs=1e-12)
        assert values[f"{which}_score_change"] == pytest.approx(
            np.abs(change[chosen]).mean(), abs=1e-12
        )
    np.testing.assert_allclose(values["centred_score"], change[:4], **EXACT)
    np.testing.assert_allclose(values["centred_norm"], moved[:4], **EXACT)
    middles = EDGES.coordinates(TASK)["score_bin"][1]
    np.testing.assert_allclose(middles, [-0.6, -0.05, 0.35, 0.8])


@pytest.mark.parametrize("query", CONFIGS)
def test_velocities_are_those_of_a_tiny_step(query):
    """(after - before) / step of one Euler step, in which the query moves only if it is trained."""
    start, model, train, test = parts(query)
    step = 1e-6
    with jax.enable_x64(True):

        @jax.jit
        def stepped(model: Any, train: Batch) -> tuple[Any, Any]:
            gradient = Moment(
                TASK, model, train, test, AttentionClassifier.loss, lambda: start
            ).gradient
            moves = eqx.filter(gradient, model.trainable(), replace=0.0)
            after = eqx.apply_updates(model, jax.tree.map(lambda slope: -step * slope, moves))
            return tuple(
                (one.scores_of(TASK.topic_items), one.embeddings_of(TASK.topic_items))
                for one in (model, after)
            )

        (score, embedding), (score_after, embedding_after) = jax.tree.map(
            np.asarray, stepped(model, train)
        )
    values = measured(query, False)
    velocity = (embedding_after - embedding) / step
    norms = np.linalg.norm(embedding_after, axis=0) - np.linalg.norm(embedding, axis=0)
    mean = np.stack(
        [np.mean([one[2] for one in word], axis=0) for word in surroundings(query)], axis=1
    )
    # First-order differences err by step x curvature = 1e-6, and by rounding 1e-16 / step = 1e-10.
    np.testing.assert_allclose(
        values["score_velocity"], (score_after - score) / step, rtol=1e-4, atol=2e-6
    )
    np.testing.assert_allclose(values["norm_velocity"], norms / step, rtol=1e-4, atol=2e-6)
    np.testing.assert_allclose(
        values["projection"], np.sum((embedding - mean) * velocity, axis=0), rtol=1e-4, atol=2e-6
    )
    assert np.abs(values["score_velocity"]).max() > 1e-3


def test_frozen_parts_are_measured_as_if_they_could_move():
    start, model, train, test = parts("unit")
    frozen = AttentionClassifier(
        model.embeddings, model.head, ("score_table", "embeddings"), score_table=model.score_table
    )
    with jax.enable_x64(True):
        values = jax.jit(
            lambda one: Velocities()(
                Moment(TASK, one, train, test, AttentionClassifier.loss, lambda: start)
            )
        )(frozen)
    for name, value in values.items():
        np.testing.assert_allclose(value, measured("unit", False)[name], **EXACT)


@both_ways
def test_accuracy_counts_sentences_and_loss_is_the_cross_entropy(indexed):
    values = measured("unit", indexed)
    _, model, train, test = parts("unit")
    scores, embeddings = np.asarray(model.score_table), np.asarray(model.embeddings)
    for name, batch in (("train", train), ("test", test)):
        right, losses = 0, []
        for words, label in zip(np.asarray(batch.words), np.asarray(batch.labels), strict=True):
            weight = np.exp(scores[words])
            logits = (embeddings[:, words] @ weight / weight.sum()) @ np.asarray(model.head.first)
            right += int(np.argmax(logits) == label)
            losses.append(np.log(np.exp(logits).sum()) - logits[label])
        assert values[f"{name}_accuracy"] == pytest.approx(right / len(losses), abs=1e-6)
        if name == "train":
            assert values["loss"] == pytest.approx(np.mean(losses), abs=1e-12)


def test_a_moment_computes_once_what_several_probes_ask_for():
    start, model, train, test = parts("unit")
    moment = Moment(TASK, model, train, test, AttentionClassifier.loss, lambda: start)
    asked = []
    for _ in range(2):
        moment.once(asked.append)
    assert asked == [moment]
