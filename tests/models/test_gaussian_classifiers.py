"""The classifiers of Lu 2021 with the Gaussian kernel in place of softmax."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.task import Batch
from saccade.errors import ConfigError
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.convolutional_classifier import ConvolutionalClassifierConfig
from saccade.tasks.markov_pairs import MarkovPairs
from saccade.tasks.topic_sentences import TopicSentences

CASES = {
    "bag": (
        AttentionClassifierConfig(
            "TC", 4, 0.5, query="trained", key_dimension=3, kernel="gaussian"
        ),
        TopicSentences(2, 2, 3, 6, train_size=8, test_size=2),
    ),
    "pairs": (
        ConvolutionalClassifierConfig(4, 3, 0.5, kernel="gaussian"),
        MarkovPairs(dictionary_size=9, sentence_size=4, train_size=8, test_size=2),
    ),
}


@pytest.fixture(params=CASES)
def case(request):
    config, task = CASES[request.param]
    model = config.build(task, jax.random.key(0))
    keys = jax.random.normal(jax.random.key(1), model.keys.shape)
    return config, task, eqx.tree_at(lambda one: one.keys, model, keys)


def test_weights_are_exponentials_of_distances_and_not_normalised(case):
    config, task, model = case
    batch = task.sample(jax.random.key(2), 8)
    items = np.asarray(model.items(batch))
    output = eqx.filter_jit(model)(batch)
    if isinstance(config, AttentionClassifierConfig):
        keys = np.asarray(model.keys)
    else:
        keys = np.asarray(model.key_convolution.on_pairs(model.keys))
    distance = np.sum((np.asarray(model.query)[:, None] - keys) ** 2, axis=0)
    np.testing.assert_allclose(output.attention, np.exp(-distance / 2)[items], rtol=1e-5)
    values = np.asarray(
        model.head.project(model.rescaled_embeddings / getattr(model, "query_norm", 1.0))
    )
    context = np.einsum(
        "sp,cps->sc", np.asarray(output.attention), np.moveaxis(values[:, items], 1, 2)
    )
    np.testing.assert_allclose(output.logits, context, rtol=1e-4, atol=1e-6)
    assert np.abs(np.sum(output.attention, axis=1) - 1).max() > 0.05


def test_the_index_changes_no_number_and_no_gradient(case):
    config, task, model = case
    batch = task.sample(jax.random.key(2), 8)
    members = config.prepare(task, jax.tree.map(lambda leaf: np.asarray(leaf)[None], batch))
    indexed = jax.tree.map(lambda leaf: jax.device_put(leaf[0]), members)
    moving, still = eqx.partition(model, eqx.is_inexact_array)
    loss = jax.jit(jax.value_and_grad(lambda part, one: eqx.combine(part, still).loss(one)))
    ways = [loss(moving, one) for one in (batch, indexed)]
    jax.tree.map(
        lambda left, right: np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-6), *ways
    )


def test_padding_gets_no_weight(case):
    _, task, model = case
    batch = task.sample(jax.random.key(2), 8)
    mask = np.ones(batch.words.shape, bool)
    mask[:, -1] = False
    attention = np.asarray(model(Batch(batch.words, batch.labels, jnp.asarray(mask))).attention)
    assert np.all(attention[:, -1] == 0)
    assert np.all(attention[:, 0] > 0)


def test_velocity_of_scores_is_their_change_along_the_flow():
    config, task = CASES["bag"]
    model = config.build(task, jax.random.key(0))
    model = eqx.tree_at(
        lambda one: one.keys, model, jax.random.normal(jax.random.key(1), model.keys.shape)
    )
    batch = task.sample(jax.random.key(2), 8)
    moving, still = eqx.partition(model, eqx.is_inexact_array)
    gradient = jax.jit(jax.grad(lambda part: eqx.combine(part, still).loss(batch)))(moving)
    step = 1e-2
    there, back = (
        eqx.combine(
            jax.tree.map(
                lambda leaf, slope, sign=sign: leaf - sign * step * slope, moving, gradient
            ),
            still,
        )
        for sign in (1, -1)
    )
    change = (there.scores - back.scores) / (2 * step)
    np.testing.assert_allclose(model.score_velocity(gradient), change, rtol=1e-3, atol=1e-4)


def test_a_unit_query_has_no_keys_for_the_gaussian_kernel():
    with pytest.raises(
        ConfigError,
        match=r"kernel: got gaussian with a unit query, allowed: a fixed or a trained query",
    ):
        AttentionClassifierConfig(kernel="gaussian")
    with pytest.raises(ConfigError, match=r"kernel: got 'cauchy', allowed: softmax, gaussian"):
        dataclasses.replace(CASES["pairs"][0], kernel="cauchy")
