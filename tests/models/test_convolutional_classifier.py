"""The tables of word pairs against an explicit convolution over the sentence."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.task import Batch
from saccade.models.convolutional_classifier import (
    ConvolutionalClassifier,
    ConvolutionalClassifierConfig,
    pair_numbers,
)
from saccade.tasks.markov_pairs import MarkovPairs

TASK = MarkovPairs(dictionary_size=9, sentence_size=5, train_size=7, test_size=3)
CONFIG = ConvolutionalClassifierConfig(dimension=3, key_dimension=4, embedding_std=1.0)


called = jax.jit(lambda model, batch: model(batch))


@pytest.fixture(scope="module")
def model() -> ConvolutionalClassifier:
    """A model away from its start: keys of size 1."""
    built = jax.jit(lambda key: CONFIG.build(TASK, key))(jax.random.key(0))
    keys = np.random.default_rng(1).normal(size=built.keys.shape)
    return eqx.tree_at(lambda one: one.keys, built, jnp.asarray(keys, jnp.float32))


def convolved(convolution, table: np.ndarray, words: np.ndarray) -> np.ndarray:
    """out_l = K1^T x_l + K2^T x_{l+1} + bias, place by place."""
    first, second, bias = (
        np.asarray(part) for part in (convolution.first, convolution.second, convolution.bias)
    )
    places = []
    for left, right in itertools.pairwise(words):
        places.append(table[:, left] @ first + table[:, right] @ second + bias)
    return np.asarray(places)


@pytest.mark.parametrize("with_index", [False, True])
def test_the_model_is_attention_over_an_explicit_convolution(model, with_index):
    batch = jax.jit(lambda key: TASK.sample(key, 7))(jax.random.key(2))
    if with_index:
        members = CONFIG.prepare(TASK, jax.tree.map(lambda leaf: leaf[None], batch))
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), members)
    output = called(model, batch)
    for place, words in enumerate(np.asarray(batch.words)):
        values = convolved(model.embedding_convolution, np.asarray(model.embeddings), words)
        scores = convolved(model.key_convolution, np.asarray(model.keys), words) @ np.asarray(
            model.query
        )
        attention = np.exp(scores) / np.exp(scores).sum()
        # float32, sums of a dozen terms of size 1
        np.testing.assert_allclose(output.attention[place], attention, rtol=1e-5)
        np.testing.assert_allclose(
            output.logits[place],
            attention @ values @ np.asarray(model.head.first),
            rtol=1e-4,
            atol=1e-5,
        )


def test_some_pairs_are_rows_of_the_table_of_all(model):
    items = np.asarray([0, 80, 13, 13, 7])
    some = jax.jit(lambda model: (model.scores_of(items), model.embeddings_of(items)))(model)
    whole = jax.jit(lambda model: (model.scores[items], model.rescaled_embeddings[:, items]))(model)
    for one, other in zip(some, whole, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)  # float32


def test_pairs_are_numbered_first_word_times_vocabulary_plus_second():
    assert pair_numbers(np.asarray([[2, 0, 8, 8]]), 9).tolist() == [[18, 8, 80]]


def test_the_query_has_norm_one_and_does_not_learn(model):
    assert float(jnp.linalg.norm(model.query)) == pytest.approx(1, rel=1e-6)  # float32
    flags = model.trainable()
    assert flags.query is False
    assert all(
        jax.tree.leaves(
            (
                flags.embeddings,
                flags.keys,
                flags.embedding_convolution,
                flags.key_convolution,
                flags.head,
            )
        )
    )


def test_all_pairs_start_with_one_score():
    """Keys start at 0, so that only the bias of the convolution is left: centring removes it."""
    scores = np.asarray(jax.jit(lambda key: CONFIG.build(TASK, key).scores)(jax.random.key(0)))
    assert scores.shape == (81,)
    assert np.ptp(scores) == 0


@pytest.mark.parametrize("with_index", [False, True])
def test_padded_sentences_equal_the_sentences_alone(model, with_index):
    """A pair counts if both of its words are there."""
    words = jnp.asarray(np.random.default_rng(3).integers(9, size=(4, 5)), jnp.int32)
    labels = jnp.zeros(4, jnp.int32)
    short = called(model, Batch(words[:, :3], labels))
    padded = Batch(words, labels, jnp.asarray([[True, True, True, False, False]] * 4))
    if with_index:
        members = CONFIG.prepare(TASK, jax.tree.map(lambda leaf: leaf[None], padded))
        padded = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), members)
    output = called(model, padded)
    np.testing.assert_allclose(output.logits, short.logits, rtol=1e-5, atol=1e-6)  # float32
    np.testing.assert_allclose(output.attention[:, :2], short.attention, rtol=1e-5)
    assert np.all(np.asarray(output.attention)[:, 2:] == 0)
