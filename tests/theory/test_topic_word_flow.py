"""Lemma 2's flow against the exact gradient flow of the whole model."""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from saccade.models.attention_classifier import AttentionClassifier, AttentionClassifierConfig, Head
from saccade.tasks.topic_sentences import TopicSentences
from saccade.theory import topic_word_flow
from saccade.theory.topic_word_flow import Lemma2, TopicWordState
from saccade.train.lab import Lab
from saccade.workers.progress import FROM_CACHE, Progress

TASK = TopicSentences(
    topics=2, words_per_topic=2, filler_size=4, dictionary_size=30, train_size=20, test_size=2
)


@functools.cache
def velocities(
    head: Head, others_std: float, query_norm: float | None = None
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Lemma 2's and the exact velocities of topic words with scores and embeddings of size 1, in
    float64.

    With a query norm, the query is fixed and has that norm, and the velocities are those of v =
    ||q|| nu and s = q . k.
    """
    config = AttentionClassifierConfig(
        head,
        dimension=3,
        embedding_std=others_std,
        hidden_size=4,
        query="fixed" if query_norm else "unit",
        key_dimension=2,
    )
    generator = np.random.default_rng(0)
    with jax.enable_x64(True):
        scores, embeddings = (
            jnp.asarray(generator.normal(size=4)),
            jnp.asarray(generator.normal(size=(3, 4))),
        )

        @jax.jit
        def both(key: Any) -> Any:
            start, batch = config.build(TASK, key), TASK.sample(key, TASK.train_size)
            nu = start.embeddings.at[:, :4].set(embeddings)
            if query_norm is None:
                start = eqx.tree_at(
                    lambda one: (one.score_table, one.embeddings),
                    start,
                    (start.scores.at[:4].set(scores), nu),
                )
            else:
                query = query_norm * start.query / jnp.linalg.norm(start.query)  # pyright: ignore[reportOperatorIssue, reportArgumentType]
                keys = start.keys.at[:, :4].set(query[:, None] * scores / query_norm**2)  # pyright: ignore[reportOptionalMemberAccess]
                start = eqx.tree_at(
                    lambda one: (one.query, one.keys, one.embeddings), start, (query, keys, nu)
                )
            field, loss = Lemma2().vector_field(TASK, start, batch)
            topic = TASK.topic_items
            state = TopicWordState(
                scores, start.embeddings_of(topic), eqx.filter(start.head, eqx.is_array)
            )
            exact_loss, gradient = jax.value_and_grad(AttentionClassifier.loss)(start, batch)
            exact = (
                start.score_velocity(gradient)[topic],
                start.embedding_velocity(gradient)[:, topic],
                -gradient.head.first,
            )
            return field(0.0, state, None), loss(state), exact, exact_loss

        lemma, loss, exact, exact_loss = jax.tree.map(np.asarray, both(jax.random.key(3)))
    return {
        "loss": (loss, exact_loss),
        "scores": (lemma.scores, exact[0]),
        "embeddings": (lemma.embeddings, exact[1]),
        "head": (lemma.head.first, exact[2] * (head != "FC")),
    }


@pytest.mark.parametrize(
    ("head", "query_norm"), [("FC", None), ("TC", None), ("TL", None), ("TC", 1.7)]
)
def test_the_flow_is_exact_where_the_other_words_are_at_zero(head, query_norm):
    """Then Z_r = m and vbar_r = 0 in every sentence, and no mean is taken over anything that
    varies.
    """
    for name, (lemma, exact) in velocities(head, 0.0, query_norm).items():
        np.testing.assert_allclose(lemma, exact, rtol=0, atol=1e-13, err_msg=name)  # float64
        assert name == "head" or np.abs(exact).max() > 1e-3


def test_the_score_alone_is_approximate_where_they_are_not():
    """Lemma 2 averages vbar_r over the sentences of a word; its embedding and loss need no
    average.
    """
    errors = {}
    for std in (0.01, 0.1):
        values = velocities("FC", std)
        for name in ("loss", "embeddings"):
            np.testing.assert_allclose(*values[name], rtol=0, atol=1e-14)
        errors[std] = np.abs(values["scores"][0] - values["scores"][1]).max()
    assert 0 < errors[0.01] < errors[0.1]


CONFIG = AttentionClassifierConfig("FC", dimension=3, embedding_std=1e-3)


def axes() -> xr.Dataset:
    """A trajectory without variables."""
    steps = np.asarray([0, 5, 10])
    coordinates = {
        "seed": [0, 3],
        "step": steps,
        "time": ("step", 0.5 * steps),
        "word": np.arange(4),
        "topic": ("word", TASK.topic_of_item),
    }
    return xr.Dataset(coords=coordinates)


@functools.cache
def predicted() -> xr.Dataset:
    return Lemma2().predict(TASK, CONFIG, axes())


def test_predictions_start_at_the_start_and_lie_on_the_trajectorys_axes():
    found = predicted()
    assert set(found.data_vars) == set(Lemma2.predicts)
    assert found["score"].dims == found["norm"].dims == ("seed", "step", "word")
    assert found["loss"].dims == ("seed", "step")
    start = found.isel(step=0)
    assert np.all(start["score"] == 0)
    np.testing.assert_allclose(
        start["loss"], np.log(2), rtol=1e-2
    )  # embeddings of 1e-3 move the loss by about as much
    assert np.all(start["norm"] < 1e-2)
    assert np.all(found["loss"].diff("step") < 0)
    assert np.all(found["score"].isel(step=-1) > 0)
    first, second = found["score"].isel(step=-1).values
    assert not np.array_equal(first, second)


@pytest.mark.slow
def test_a_lab_keeps_the_solution_and_finds_it_by_its_equations(tmp_path, monkeypatch):
    notes: list[Progress] = []
    lab = Lab(tmp_path, progress=notes.append)
    first, second = (Lemma2().predict(TASK, CONFIG, axes(), lab.cached) for _ in range(2))
    assert [one.note == FROM_CACHE for one in notes] == [False, True]
    xr.testing.assert_identical(first, second)
    xr.testing.assert_identical(first, predicted())
    # Another task or a changed helper changes the traced equations, and so the identity.
    before = Lemma2().version(TASK, CONFIG)
    assert before == Lemma2().version(TASK, CONFIG)
    assert before != Lemma2().version(dataclasses.replace(TASK, filler_size=5), CONFIG)
    monkeypatch.setattr(topic_word_flow, "cross_entropy", lambda logits, labels: logits.sum())
    assert Lemma2().version(TASK, CONFIG) != before
