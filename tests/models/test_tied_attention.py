"""Attention tied to three numbers: what it depends on, and where it starts. (Its error: see
tasks/test_long_documents.py.)
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.errors import ConfigError
from saccade.models.one_layer_transformer import Blocks, TiedScores
from saccade.models.tied_attention import TiedAttention, TiedAttentionConfig
from saccade.tasks.long_documents import LongDocumentQueries

TASK = LongDocumentQueries(5, 3, 2)
BLOCKS = Blocks(hidden=0.3, same=0.5, other=-0.2)


def model(same_word: float, same_topic: float) -> TiedAttention:
    values = jnp.asarray([BLOCKS.hidden, BLOCKS.same, BLOCKS.other])
    return TiedAttention(TiedScores(jnp.asarray(same_word), jnp.asarray(same_topic)), values)


def test_attention_is_frequency_times_weight_and_hidden_queries_do_not_look():
    alpha, beta = 2.0, 5.0
    with jax.enable_x64(True):
        batch = TASK.sample(jax.random.key(0), 4)
        output = model(np.log(beta), np.log(alpha))(batch)
    mass = np.asarray(batch.count) * np.asarray(batch.frequency)
    weighed = mass * np.array([[beta, alpha, 1, 1, 1]] * 3 + [[1] * 5])
    np.testing.assert_allclose(
        output.attention, weighed / weighed.sum(axis=1, keepdims=True), rtol=0, atol=1e-15
    )
    np.testing.assert_allclose(output.attention[3], mass[3], rtol=0, atol=1e-15)


def test_the_gradient_is_that_of_finite_differences_and_only_gamma_moves_the_error():
    with jax.enable_x64(True):
        batch = TASK.sample(jax.random.key(0), 4)
        error = jax.jit(lambda word, topic: model(word, topic).loss(batch))
        slope_of = jax.jit(jax.grad(lambda both: model(both[0], both[1]).loss(batch)))
        slopes = np.asarray(slope_of(jnp.asarray([0.4, 0.9])))
        step = 1e-5
        for place, slope in enumerate(slopes):
            moved = [
                error(*(np.array([0.4, 0.9]) + sign * step * np.eye(2)[place])) for sign in (1, -1)
            ]
            # Central differences err by step^2 / 6 and by rounding, 1e-16 / step = 1e-11.
            assert (moved[0] - moved[1]) / (2 * step) == pytest.approx(slope, abs=1e-9)
    # d/d log beta : d/d log alpha = beta : (v - 1) alpha, because gamma is their weighted mean.
    assert slopes[0] / slopes[1] == pytest.approx(np.exp(0.4) / (2 * np.exp(0.9)), rel=1e-10)
    assert abs(slopes[0]) > 1e-3


def test_only_the_two_logarithms_learn_and_they_start_where_the_config_says():
    built = TiedAttentionConfig(lambda task: BLOCKS, start_std=0.0).build(TASK, jax.random.key(1))
    assert (float(built.tied.same_word), float(built.tied.same_topic)) == (0, 0)
    np.testing.assert_allclose(built.values, [0.3, 0.5, -0.2], rtol=1e-7)  # float32
    flags = built.trainable()
    assert flags.tied.same_word
    assert flags.tied.same_topic
    assert not flags.values
    away = TiedAttentionConfig(lambda task: BLOCKS, start_std=0.5).build(TASK, jax.random.key(1))
    assert float(away.tied.same_word) != float(away.tied.same_topic) != 0


def test_values_are_those_of_the_task_that_is_trained_on():
    config = TiedAttentionConfig(
        lambda task: Blocks(task.topics, task.words_per_topic, task.topics_per_document)
    )
    np.testing.assert_array_equal(config.build(TASK, jax.random.key(0)).values, [5, 3, 2])


def test_an_impossible_start_is_refused_by_name():
    with pytest.raises(
        ConfigError, match=r"^start_std: got -1.0, allowed: a finite number, at least 0"
    ):
        TiedAttentionConfig(lambda task: BLOCKS, start_std=-1.0)
