"""The bag-of-words proxy against its formula."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.task import SentencePairs
from saccade.errors import ConfigError
from saccade.models.sequence_to_sequence import token_entropy
from saccade.models.word_proxy import WordProxy, WordProxyConfig
from saccade.tasks.lexicon_sentences import LexiconSentences

IDS, DIMENSION = 5, 3
SOURCE, TARGET = np.asarray([[2, 3, 2, 0], [4, 0, 1, 3]]), np.asarray([[3, 4, 0], [2, 0, 1]])
THERE, WANTED = (
    np.asarray([[1, 1, 1, 1], [1, 1, 0, 0]], bool),
    np.asarray([[1, 1, 1], [1, 1, 0]], bool),
)
ROUNDING = 1e-14
"""Float64, numbers of size up to 10."""


def pairs(source: np.ndarray = SOURCE, there: np.ndarray = THERE) -> SentencePairs:
    ids, targets = jnp.asarray(source, jnp.int32), jnp.asarray(TARGET, jnp.int32)
    return SentencePairs(
        ids, targets, jnp.zeros_like(targets), jnp.asarray(there), jnp.asarray(WANTED)
    )


def scattered() -> WordProxy:
    """Under jax.enable_x64."""
    random = np.random.default_rng(0)
    return WordProxy(
        *(jnp.asarray(random.normal(size=shape)) for shape in ((IDS, DIMENSION), (DIMENSION, IDS)))
    )


@jax.jit
def answers(model: WordProxy, batch: SentencePairs, gates: Any) -> Any:
    losses = token_entropy(model, batch), model.loss(batch)
    return model(batch), model(batch, gates), model.lexical_probe(batch), losses


def measured(model: WordProxy, batch: SentencePairs, gates: np.ndarray | None = None) -> Any:
    """Output, output with gates, lexical probe, mean and summed loss, as NumPy arrays."""
    with jax.enable_x64(True):
        return jax.tree.map(
            np.asarray,
            answers(model, batch, jnp.asarray(np.ones(SOURCE.shape) if gates is None else gates)),
        )


def model() -> WordProxy:
    with jax.enable_x64(True):
        return scattered()


def log_softmax(logits: np.ndarray) -> np.ndarray:
    return logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))


def test_outputs_and_losses_are_those_of_the_formula():
    proxy, gates = model(), np.random.default_rng(1).normal(size=SOURCE.shape)
    output, gated, probe, (mean, total) = measured(proxy, pairs(), gates)
    e, W = np.asarray(proxy.embeddings), np.asarray(proxy.readout).T
    surprise = 0.0
    for pair, length in enumerate((4, 2)):
        words = SOURCE[pair, :length]
        logits = sum(W @ e[word] for word in words) / length
        np.testing.assert_allclose(
            output.logits[pair], np.tile(logits, (3, 1)), rtol=0, atol=ROUNDING
        )
        scaled = (
            sum(gate * (W @ e[word]) for gate, word in zip(gates[pair], words, strict=False))
            / length
        )
        np.testing.assert_allclose(
            gated.logits[pair], np.tile(scaled, (3, 1)), rtol=0, atol=ROUNDING
        )
        assert np.array_equal(output.attention[pair], np.tile(THERE[pair] / length, (3, 1)))
        for t, target in enumerate(TARGET[pair]):
            surprise -= WANTED[pair, t] * log_softmax(np.asarray(logits))[target]
            for place, word in enumerate(words):
                assert probe[pair, t, place] == pytest.approx(
                    log_softmax(W @ e[word])[target], rel=0, abs=ROUNDING
                )
    assert float(total) == pytest.approx(surprise, rel=1e-13)
    assert float(mean) == pytest.approx(surprise / WANTED.sum(), rel=1e-13), (
        "the mean over the same words"
    )


def test_the_order_of_words_does_not_matter_and_nor_does_padding():
    proxy = model()
    output, _, _, losses = measured(proxy, pairs())
    order = np.asarray([3, 1, 0, 2])
    moved, _, _, moved_losses = measured(proxy, pairs(SOURCE[:, order], THERE[:, order]))
    np.testing.assert_allclose(moved.logits, output.logits, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(moved_losses, losses, rtol=0, atol=ROUNDING)
    assert np.array_equal(moved.attention, output.attention[:, :, order])
    padded, _, _, padded_losses = measured(proxy, pairs(np.where(THERE, SOURCE, 2)))
    assert np.array_equal(padded.logits, output.logits)
    assert np.array_equal(padded_losses, losses)


def test_padded_targets_do_not_count():
    proxy, batch = model(), pairs()
    other = dataclasses.replace(batch, target=jnp.where(batch.target_mask, batch.target, 4))
    assert not np.array_equal(other.target, batch.target)
    assert np.array_equal(measured(proxy, batch)[3], measured(proxy, other)[3])


def test_the_start_has_variance_one_over_d():
    task = LexiconSentences(words=20)
    built = jax.jit(lambda key: WordProxyConfig(dimension=25).build(task, key))(jax.random.key(0))
    assert (built.embeddings.shape, built.readout.shape) == ((42, 25), (25, 42))
    for table in (built.embeddings, built.readout):
        assert np.mean(np.asarray(table) ** 2) == pytest.approx(
            1 / 25, rel=4 * np.sqrt(2 / table.size)
        )  # four standard errors
    assert not np.array_equal(built.embeddings, built.readout.T)
    assert all(jax.tree.leaves(built.trainable()))


def test_an_impossible_config_is_refused_by_name():
    with pytest.raises(
        ConfigError, match=r"^dimension: got 0, allowed: a whole number, at least 1"
    ):
        WordProxyConfig(dimension=0)
