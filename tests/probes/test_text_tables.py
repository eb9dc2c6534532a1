"""Ratings of positions by a classifier: which texts, padding, saliency by finite differences."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.model import cross_entropy
from saccade.contracts.probe import Moment
from saccade.contracts.task import Batch
from saccade.errors import ConfigError
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.models.word_classifier import WordClassifierConfig
from saccade.probes.text_tables import TextTables, saliency
from saccade.tasks.keyword_sentences import KeywordSentences
from saccade.train.loss import own_loss

TASK = KeywordSentences(length=4, words=6)
MASK = jnp.asarray([[1, 1, 1, 1], [1, 1, 0, 0], [1, 1, 1, 0], [1, 0, 0, 0]], bool)
BATCH = Batch(
    jnp.asarray([[1, 2, 3, 4], [0, 5, 0, 0], [2, 2, 1, 0], [3, 0, 0, 0]]),
    jnp.asarray([1, 0, 1, 0]),
    MASK,
)
CONFIGS = (
    RecurrentClassifierConfig(3, 4, 5, directions="both"),
    RecurrentClassifierConfig(3, 4, 5, attention="uniform"),
    WordClassifierConfig(3),
)
each_model = pytest.mark.parametrize("config", CONFIGS, ids=["attention", "uniform", "proxy"])


def build(config):
    return config.build(TASK, jax.random.key(3))


@each_model
def test_tables_are_nan_at_padding_and_rank_as_the_model_does(config):
    model = build(config)
    moment = Moment(TASK, model, BATCH, BATCH, own_loss, lambda: model)
    found = jax.jit(lambda: TextTables("test", texts=4)(moment))()
    for table in found.values():
        np.testing.assert_array_equal(np.isnan(table), ~np.asarray(MASK))
    weights = np.where(MASK, eqx.filter_jit(model)(BATCH).attention, np.nan)
    score = np.asarray(found["alpha_test"])
    for row in range(4):
        there = np.asarray(MASK)[row]
        expected = np.exp(score[row][there]) / np.exp(score[row][there]).sum()
        np.testing.assert_allclose(weights[row][there], expected, rtol=1e-5)


def test_some_texts_are_evenly_spaced():
    model = build(CONFIGS[2])
    moment = Moment(TASK, model, BATCH, BATCH, own_loss, lambda: model)
    whole, some = (
        jax.jit(lambda count=count: TextTables("train", texts=count)(moment)["beta_train"])()
        for count in (4, 2)
    )
    np.testing.assert_array_equal(some, whole[np.asarray([0, 2])])


@each_model
def test_saliency_is_minus_the_derivative_of_the_own_loss(config):
    with jax.enable_x64(True):
        model = jax.tree.map(lambda leaf: jnp.asarray(leaf, float), build(config))
        found = np.asarray(jax.jit(saliency)(model, BATCH))
        step = 1e-5

        @jax.jit
        def loss(text: int, place: int, by: float) -> jax.Array:
            one = BATCH.examples(jnp.asarray([text]))
            gates = jnp.ones((1, 4)).at[0, place].add(by)
            return cross_entropy(model(one, gates).logits, one.labels)

        for text, place in np.argwhere(np.asarray(MASK)):
            slope = float(loss(text, place, step) - loss(text, place, -step)) / (2 * step)
            np.testing.assert_allclose(found[text, place], -slope, rtol=1e-5, atol=1e-9)


def test_the_proxy_averages_its_words():
    model = build(CONFIGS[2])
    logits = np.asarray(model.word_logits(BATCH))
    means = [logits[row][np.asarray(MASK)[row]].mean() for row in range(4)]
    np.testing.assert_allclose(model(BATCH).logits[:, 1], means, rtol=1e-5)
    sign = np.asarray([1, -1, 1, -1])[:, None]
    np.testing.assert_allclose(
        np.exp(model.lexical_probe(BATCH)), 1 / (1 + np.exp(-sign * logits)), rtol=1e-5
    )


def test_only_the_asked_ratings_are_computed():
    model = build(CONFIGS[2])
    moment = Moment(TASK, model, BATCH, BATCH, own_loss, lambda: model)
    probe = TextTables("test", 4, ("beta",))
    assert set(probe.variables) == set(probe(moment)) == {"beta_test"}
    with pytest.raises(ConfigError, match="allowed: some of alpha, beta, delta"):
        TextTables(ratings=("gamma",))
