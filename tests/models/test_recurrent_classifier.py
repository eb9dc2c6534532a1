"""The recurrent classifier against loops in NumPy, against the paper's identity and its number
of parameters.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_recurrence import states

from saccade.contracts.task import Batch
from saccade.errors import ConfigError
from saccade.models.kernels import Gaussian
from saccade.models.recurrent_classifier import RecurrentClassifier, RecurrentClassifierConfig
from saccade.tasks.keyword_sentences import KeywordSentences

WORDS = 4
LENGTHS = (4, 1, 3)
MASK = np.arange(4) < np.asarray(LENGTHS)[:, None]
SENTENCES = Batch(
    jnp.asarray([[2, 0, 1, 2], [3, 1, 1, 1], [0, 3, 2, 1]], jnp.int32),
    jnp.asarray([1, 0, 1], jnp.int32),
    jnp.asarray(MASK),
)
ROUNDING = 1e-12
"""Float64: numbers of size up to 10, a hundred operations deep."""

VARIANTS: dict[str, dict[str, Any]] = {
    "toy task": {},
    "both directions": {"directions": "both", "kernel": "gaussian"},
    "uniform": {"directions": "both", "cell": "gru", "attention": "uniform"},
}
each_variant = pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)


def shapes(words: int, **settings: Any) -> Any:
    config = RecurrentClassifierConfig(**settings)
    return eqx.filter_eval_shape(config.build, KeywordSentences(words=words), jax.random.key(0))


def scattered(**settings: Any) -> RecurrentClassifier:
    """A model of that kind far from its start: all numbers of size 1. Under jax.enable_x64."""
    random = np.random.default_rng(0)
    wanted = shapes(WORDS, hidden=2, features=3, score_size=5, **settings)
    return jax.tree.map(lambda leaf: jax.device_put(random.normal(size=leaf.shape)), wanted)


@jax.jit
def answers(model: RecurrentClassifier, batch: Batch) -> tuple[Any, ...]:
    return model(batch), model.lexical_probe(batch), model.word_logits(batch)


def measured(model: RecurrentClassifier, batch: Batch) -> tuple[Any, ...]:
    """Output, lexical probe and the words' logits, as NumPy arrays."""
    return jax.tree.map(np.asarray, answers(model, batch))


def by_numpy(
    model: RecurrentClassifier, batch: Batch
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]:
    """Logits of the positive class; attention and words' logits of every sentence without its
    padding, by loops.
    """
    model = jax.tree.map(np.asarray, model)
    positive, attention, word_logits = [], [], []
    for words, length in zip(np.asarray(batch.words), LENGTHS, strict=True):
        vectors = model.embeddings[words[:length]]
        h = np.concatenate([states(layer, vectors)[0] for layer in model.layers], axis=1)
        hidden = np.maximum(h @ model.scorer.weights + model.scorer.bias, 0)
        weights = np.exp((hidden @ model.score_vector.weights + model.score_vector.bias)[:, 0])
        if model.attention == "uniform":
            weights = np.ones(length)
        if model.attention == "uniform" or not isinstance(model.kernel, Gaussian):
            weights = weights / weights.sum()
        gamma = (h @ model.readout.weights + model.readout.bias)[:, 0]
        positive.append(weights @ gamma)
        attention.append(weights)
        word_logits.append(gamma)
    return np.asarray(positive), attention, word_logits


@each_variant
def test_logits_attention_and_probes_are_those_of_plain_loops(settings):
    with jax.enable_x64(True):
        model = scattered(**settings)
        output, probe, logits = measured(model, SENTENCES)
    positive, attention, gamma = by_numpy(model, SENTENCES)
    assert [layer.backwards for layer in model.layers] == [False, True][: len(model.layers)]
    np.testing.assert_allclose(
        output.logits, np.stack([np.zeros(3), positive], axis=1), rtol=0, atol=ROUNDING
    )
    signs = 2 * np.asarray(SENTENCES.labels) - 1
    for sentence, length in enumerate(LENGTHS):
        np.testing.assert_allclose(
            output.attention[sentence, :length], attention[sentence], rtol=0, atol=ROUNDING
        )
        np.testing.assert_allclose(
            logits[sentence, :length], gamma[sentence], rtol=0, atol=ROUNDING
        )
        beta = 1 / (1 + np.exp(-signs[sentence] * gamma[sentence]))
        np.testing.assert_allclose(np.exp(probe[sentence, :length]), beta, rtol=0, atol=ROUNDING)
    assert np.all(output.attention[~MASK] == 0)
    if settings.get("attention") == "uniform":
        assert all(
            np.all(output.attention[sentence, :length] == 1 / length)
            for sentence, length in enumerate(LENGTHS)
        )


@each_variant
def test_the_right_label_is_as_likely_as_attention_and_lexicon_say(settings):
    """p_correct = sigmoid(sum of alpha logit(beta)): the paper's decomposition."""
    with jax.enable_x64(True):
        output, probe, _ = measured(scattered(**settings), SENTENCES)
    chances = np.exp(output.logits) / np.exp(output.logits).sum(axis=1, keepdims=True)
    correct = chances[np.arange(3), np.asarray(SENTENCES.labels)]
    beta = np.exp(probe)
    together = np.sum(np.where(MASK, output.attention * np.log(beta / (1 - beta)), 0), axis=1)
    np.testing.assert_allclose(correct, 1 / (1 + np.exp(-together)), rtol=0, atol=ROUNDING)


@each_variant
def test_words_at_padding_do_not_matter(settings):
    with jax.enable_x64(True):
        model = scattered(**settings)
        others = jnp.where(MASK, SENTENCES.words, (SENTENCES.words + 1) % WORDS)
        found = [
            measured(model, dataclasses.replace(SENTENCES, words=words))
            for words in (SENTENCES.words, others)
        ]
    (output, *first), (other, *second) = found
    assert np.array_equal(output.logits, other.logits)
    assert np.array_equal(output.attention, other.attention)
    assert all(np.array_equal(one[MASK], two[MASK]) for one, two in zip(first, second, strict=True))


def test_no_mask_is_a_mask_of_full_sentences():
    with jax.enable_x64(True):
        model = scattered()
        full = dataclasses.replace(SENTENCES, mask=jnp.ones(MASK.shape, bool))
        with_mask, without = (
            measured(model, full),
            measured(model, dataclasses.replace(SENTENCES, mask=None)),
        )
    for one, other in zip(jax.tree.leaves(with_mask), jax.tree.leaves(without), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=ROUNDING)


def test_as_many_parameters_as_the_papers_classifier_has():
    """1,274,882 without embeddings: 1,142,784 in the LSTM, 131,328 + 257 in the attention and
    513 in the readout.
    """
    sizes: dict[str, Any] = {
        "hidden": 256,
        "features": 300,
        "score_size": 256,
        "directions": "both",
    }
    model = shapes(11_022, **sizes)
    count = {
        name: sum(leaf.size for leaf in jax.tree.leaves(getattr(model, name))) for name in PARTS
    }
    assert count == {
        "embeddings": 3_306_600,
        "layers": 1_142_784,
        "scorer": 131_328,
        "score_vector": 257,
        "readout": 513,
    }
    assert sum(count.values()) - count["embeddings"] == 1_274_882
    assert sum(leaf.size for leaf in jax.tree.leaves(model)) == 4_581_482


PARTS = ("embeddings", "layers", "scorer", "score_vector", "readout")


@pytest.mark.parametrize(
    ("settings", "learning"),
    [
        ({}, PARTS),
        ({"attention": "frozen"}, ("embeddings", "layers", "readout")),
        ({"attention": "uniform"}, ("embeddings", "layers", "readout")),
        ({"lexicon": "frozen"}, ("scorer", "score_vector")),
    ],
    ids=["all", "frozen attention", "uniform attention", "frozen lexicon"],
)
def test_what_learns(settings, learning):
    flags = scattered(directions="both", **settings).trainable()
    for name in PARTS:
        assert set(jax.tree.leaves(getattr(flags, name))) == {name in learning}, name


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 0}, "hidden: got 0, allowed: a whole number, at least 1"),
        ({"features": 2.5}, "features: got 2.5, allowed: a whole number, at least 1"),
        ({"score_size": 0}, "score_size: got 0, allowed: a whole number, at least 1"),
        ({"directions": "two"}, "directions: got 'two', allowed: one, both"),
        ({"cell": "rnn"}, "cell: got 'rnn', allowed: lstm, gru"),
        ({"attention": "none"}, "attention: got 'none', allowed: learned, frozen, uniform"),
        ({"lexicon": "uniform"}, "lexicon: got 'uniform', allowed: learned, frozen"),
        ({"kernel": "linear"}, "kernel: got 'linear', allowed: softmax, gaussian"),
        (
            {"lexicon": "frozen", "attention": "uniform"},
            "lexicon: got 'frozen' with attention 'uniform'",
        ),
    ],
)
def test_impossible_configs_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        RecurrentClassifierConfig(**settings)


def test_more_than_two_labels_are_refused():
    class Task:
        vocabulary_size, labels = 5, 3

    with pytest.raises(ConfigError, match="task: got 3 labels of Task, allowed: two"):
        RecurrentClassifierConfig(2, 2, 2).build(Task(), jax.random.key(0))
