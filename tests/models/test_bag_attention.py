"""The indexed attention equals plain softmax attention, and so do its gradients."""

import dataclasses
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.contracts.task import Batch
from saccade.models.bag_attention import (
    attend,
    bag_attention,
    index_bags,
    masked,
    sum_over_sentences,
)
from saccade.models.kernels import SOFTMAX


def plain_attention(scores, values, words, mask):
    """Softmax attention, place by place."""
    shifted = jnp.where(mask, scores[words], -jnp.inf)
    weight = jnp.exp(shifted - jnp.max(shifted, axis=1, keepdims=True))
    weight = weight / jnp.sum(weight, axis=1, keepdims=True)
    return jnp.einsum("xp,cxp->xc", weight, values[:, words])


def only_member(tree):
    return jax.tree.map(lambda leaf: jax.device_put(leaf[0]), tree)


def padding(generator: np.random.Generator, sentences: int, positions: int) -> np.ndarray:
    """Random padding that leaves a word in every sentence."""
    mask = generator.random((sentences, positions)) < 0.6
    mask[np.arange(sentences), generator.integers(positions, size=sentences)] = True
    return mask


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    sentences=st.integers(1, 40),
    positions=st.integers(1, 9),
    vocabulary=st.integers(1, 30),
    padded=st.booleans(),
    device=st.sampled_from(["cpu", "gpu"]),
    seed=st.integers(0, 2**31),
)
def test_value_and_gradients_equal_plain_softmax_attention(
    sentences, positions, vocabulary, padded, device, seed
):
    generator = np.random.default_rng(seed)
    # Half of the vocabulary at the most: words repeat, inside sentences too, and some never occur.
    words = generator.integers(-(-vocabulary // 2), size=(sentences, positions)).astype(np.int32)
    mask = padding(generator, sentences, positions) if padded else np.ones(words.shape, bool)
    with jax.enable_x64(True):
        # Accelerators have larger groups.
        with mock.patch("jax.default_backend", return_value=device):
            bags = only_member(index_bags(words[None], mask[None] if padded else None, vocabulary))
        scores, values = (
            jnp.asarray(generator.normal(size=vocabulary)),
            jnp.asarray(generator.normal(size=(3, vocabulary))),
        )
        pull = jnp.asarray(generator.normal(size=(sentences, 3)))

        @jax.jit
        def both(scores, values):
            context, backward = jax.vjp(lambda s, v: bag_attention(s, v, bags), scores, values)
            expected, plain_backward = jax.vjp(
                lambda s, v: plain_attention(s, v, jnp.asarray(words), mask), scores, values
            )
            return (context, *backward(pull)), (expected, *plain_backward(pull))

        ours, plain = both(scores, values)
    for one, other in zip(ours, plain, strict=True):
        # float64: sums of at most a few hundred terms of size 1, so 1e-12 is a thousand roundings.
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    absent = np.setdiff1d(np.arange(vocabulary), words[mask])
    assert np.all(np.asarray(ours[1])[absent] == 0)
    assert np.all(np.asarray(ours[2])[:, absent] == 0)


def test_a_gradient_of_one_word_sentences_goes_to_the_values_alone():
    words = np.asarray([[2], [2], [0]], np.int32)
    bags = only_member(index_bags(words[None], None, 4))
    scores, values = jnp.asarray([0.3, 5.0, -2.0, 0.0]), jnp.asarray([[1.0, 2.0, 3.0, 4.0]])

    @jax.jit
    def value_and_gradients(scores, values):
        context, backward = jax.vjp(lambda s, v: bag_attention(s, v, bags), scores, values)
        return context, *backward(jnp.ones((3, 1)))

    context, score_gradient, value_gradient = value_and_gradients(scores, values)
    # float32 roundings of numbers up to 3
    np.testing.assert_allclose(context[:, 0], [3, 3, 1], rtol=1e-6)
    np.testing.assert_allclose(score_gradient, np.zeros(4), atol=2e-6)
    np.testing.assert_allclose(value_gradient, [[1, 0, 2, 0]], rtol=1e-6)


@pytest.mark.parametrize("spread", [1.0, 80.0])
def test_scores_far_apart_stay_exact(spread):
    """Whole sentences lie `spread` below the largest score of the dictionary, and lose no digit
    by it.
    """
    generator = np.random.default_rng(3)
    scores = np.concatenate([generator.normal(size=10) - spread, generator.normal(size=10)])
    words = np.concatenate(
        [generator.integers(10, size=(8, 5)), generator.integers(20, size=(8, 5))]
    ).astype(np.int32)
    values, pull = generator.normal(size=(2, 20)), generator.normal(size=(16, 2))
    mask = np.ones(words.shape, bool)
    with jax.enable_x64(True):
        exact = jax.jit(
            lambda *at: jax.vjp(lambda s, v: plain_attention(s, v, words, mask), *at)[1](pull)
        )(scores, values)
    bags = only_member(index_bags(words[None], None, 20))
    single = [jnp.asarray(array, jnp.float32) for array in (scores, values, pull)]
    ours = jax.jit(lambda *at: jax.vjp(lambda s, v: bag_attention(s, v, bags), *at)[1](single[2]))(
        *single[:2]
    )
    for one, plain in zip(ours, exact, strict=True):
        # Scores of 80 carry an error of 4e-6 in float32, which is then the relative error of a
        # weight; values are of size 1.
        np.testing.assert_allclose(one, plain, atol=5e-5)


@settings(max_examples=8, deadline=None, derandomize=True)
@given(
    sources=st.integers(1, 20),
    targets=st.integers(1, 20),
    per_target=st.integers(1, 40),
    seed=st.integers(0, 2**31),
)
def test_sparse_sums_equal_add_at(sources, targets, per_target, seed):
    generator = np.random.default_rng(seed)
    words = generator.integers(sources, size=(targets, per_target)).astype(np.int32)
    mask = padding(generator, targets, per_target)
    bags = only_member(index_bags(words[None], mask[None], sources))
    # Whole numbers add up exactly, so the order of the sum cannot matter.
    of_words, of_sentences = (
        generator.integers(-9, 9, size=(count, 2)).astype(np.float32)
        for count in (sources, targets)
    )
    sentence, position = np.nonzero(mask)
    into_sentences, into_words = (
        np.zeros((targets, 2), np.float32),
        np.zeros((sources, 2), np.float32),
    )
    np.add.at(into_sentences, sentence, of_words[words[sentence, position]])
    np.add.at(into_words, words[sentence, position], of_sentences[sentence])
    sums = jax.jit(lambda words, sentences: (bags.by_sentence(words), bags.by_word(sentences)))(
        of_words, of_sentences
    )
    assert np.array_equal(sums[0], into_sentences)
    assert np.array_equal(sums[1], into_words)


def test_members_of_different_sizes_share_one_plan():
    """Members whose plans differ in depth are padded to a common size without changing a sum."""
    generator = np.random.default_rng(5)
    words = np.stack([np.zeros((30, 4), int), generator.integers(25, size=(30, 4))]).astype(
        np.int32
    )
    bags = index_bags(words, None, 25)
    rows = generator.integers(-9, 9, size=(30, 1)).astype(np.float32)
    for member in range(2):
        expected = np.zeros((25, 1), np.float32)
        np.add.at(expected, words[member].ravel(), np.repeat(rows, 4, axis=0))
        one = jax.tree.map(lambda leaf, member=member: jnp.asarray(leaf[member]), bags)
        assert np.array_equal(jax.jit(lambda plan: plan.by_word(jnp.asarray(rows)))(one), expected)


def test_padded_places_get_no_attention_and_the_rest_sums_to_one():
    generator = np.random.default_rng(7)
    mask = padding(generator, 50, 6)
    scores = jnp.asarray(generator.normal(size=(50, 6)) * 20, jnp.float32)
    attention = np.asarray(SOFTMAX.weights(masked(scores, jnp.asarray(mask))))
    assert np.all(attention[~mask] == 0)
    assert np.all(attention[mask] > 0)
    np.testing.assert_allclose(attention.sum(axis=1), 1, rtol=1e-6)  # float32


def test_padding_that_is_not_masked_changes_the_result():
    """The premise behind the mask: a pad attended to as a word moves context and attention."""
    generator = np.random.default_rng(11)
    words = jnp.asarray(generator.integers(1, 8, size=(6, 5)), jnp.int32).at[:, 3:].set(0)
    mask = jnp.asarray(np.arange(5) < 3)[None].repeat(6, axis=0)
    labels = jnp.zeros(6, jnp.int32)
    scores, values = (
        jnp.asarray(generator.normal(size=8), jnp.float32),
        jnp.asarray(generator.normal(size=(2, 8)), jnp.float32),
    )
    attended = jax.jit(lambda batch: attend(scores, values, batch.words, batch))
    masked, attention = attended(Batch(words, labels, mask))
    alone, alone_attention = attended(Batch(words[:, :3], labels))
    unmasked, unmasked_attention = attended(Batch(words, labels))
    np.testing.assert_allclose(masked, alone, rtol=1e-5)  # float32
    np.testing.assert_allclose(attention[:, :3], alone_attention, rtol=1e-5)
    assert np.all(np.abs(unmasked - alone).max(axis=1) > 1e-3)
    assert np.all(unmasked_attention[:, 3:] > 0)


@pytest.mark.parametrize("padded", [False, True])
def test_indexed_and_plain_batches_agree(padded):
    generator = np.random.default_rng(13)
    words = generator.integers(9, size=(20, 6)).astype(np.int32)
    mask = jnp.asarray(padding(generator, 20, 6)) if padded else None
    plain = Batch(jnp.asarray(words), jnp.zeros(20, jnp.int32), mask)
    members = jax.tree.map(lambda leaf: leaf[None], plain)
    index = index_bags(members.words, members.mask, 9)
    quick = only_member(dataclasses.replace(members, index=index))
    scores, values = (
        jnp.asarray(generator.normal(size=9), jnp.float32),
        jnp.asarray(generator.normal(size=(4, 9)), jnp.float32),
    )

    @jax.jit
    def computed(batch):
        return *attend(scores, values, batch.words, batch), sum_over_sentences(
            values.T, batch.words, batch
        )

    for ours, other in zip(computed(quick), computed(plain), strict=True):
        np.testing.assert_allclose(ours, other, rtol=1e-5, atol=1e-6)  # float32, sums of six terms
