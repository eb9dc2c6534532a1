"""Gaussian sequences: shapes, variances, and the swept dimension."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import ConfigError
from saccade.settings import map_swept, with_sweep
from saccade.tasks.random_sequences import RandomSequences


def drawn(task: RandomSequences, size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    batch = jax.jit(lambda key: task.sample(key, size))(jax.random.key(seed))
    return np.asarray(batch.inputs), np.asarray(batch.targets)


@settings(max_examples=3, deadline=None, derandomize=True)
@given(
    positions=st.integers(1, 4),
    width=st.integers(1, 6),
    missing=st.integers(0, 5),
    outputs=st.integers(1, 3),
)
def test_only_the_dimension_is_filled(positions, width, missing, outputs):
    dimension = max(1, width - missing)
    task = RandomSequences(5, 1, positions, width, dimension, outputs)
    inputs, targets = drawn(task, 5)
    assert inputs.shape == (5, positions, width)
    assert targets.shape == (5, positions, outputs)
    assert np.all(inputs[..., :dimension] != 0)
    assert np.all(inputs[..., dimension:] == 0)
    assert np.asarray(task.active).tolist() == [1.0] * dimension + [0.0] * (width - dimension)


def test_the_mean_squared_norm_of_a_vector_does_not_depend_on_the_dimension():
    task = RandomSequences(positions=10, width=8, dimension=4, input_variance=9.0, target_std=0.5)
    inputs, targets = drawn(task, 400)
    filled = inputs[..., :4]
    # A mean of n squares of N(0, s^2) has the standard error s^2 sqrt(2/n), a mean s / sqrt(n):
    # four of each.
    for numbers, variance in ((filled, 9 / 4), (targets, 0.25)):
        assert abs(np.mean(numbers**2) - variance) < 4 * variance * np.sqrt(2 / numbers.size)
        assert abs(np.mean(numbers)) < 4 * np.sqrt(variance / numbers.size)
    assert np.mean(np.sum(filled**2, axis=-1)) == pytest.approx(9, rel=4 * np.sqrt(2 / filled.size))
    # Inputs and targets are independent: their correlation is 0 within four standard errors
    # 1 / sqrt(n).
    correlation = np.corrcoef(filled[..., 0].reshape(-1), targets.reshape(-1))[0, 1]
    assert abs(correlation) < 4 / np.sqrt(targets.size)


def test_a_swept_dimension_draws_the_same_data_as_that_dimension_alone():
    task = RandomSequences(width=6, dimension=6)
    swept = with_sweep(task, "dimension", (2.0, 6.0), "D")

    def member(choice: jax.Array) -> Any:
        task = map_swept(swept, lambda one: jnp.asarray(one.values)[choice])
        return task.sample(jax.random.key(3), 4)

    together = jax.jit(jax.vmap(member))(jnp.arange(2))
    for place, dimension in enumerate((2, 6)):
        inputs, targets = drawn(RandomSequences(width=6, dimension=dimension), 4, seed=3)
        # float32: two programs may round differently.
        np.testing.assert_allclose(together.inputs[place], inputs, rtol=1e-6)
        np.testing.assert_allclose(together.targets[place], targets, rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"positions": 0}, "positions: got 0, allowed: a whole number, at least 1"),
        (
            {"width": 4, "dimension": 5.0},
            "dimension: got 5.0, allowed: a whole number from 1 to the width, 4",
        ),
        ({"dimension": 2.5}, "dimension: got 2.5, allowed: a whole number from 1 to the width, 16"),
        ({"dimension": 0.0}, "dimension: got 0.0"),
        ({"input_variance": 0.0}, "input_variance: got 0.0, allowed: a finite number above 0"),
        ({"target_std": -1.0}, "target_std: got -1.0, allowed: a finite number, at least 0"),
        ({"outputs": 0}, "outputs: got 0"),
    ],
)
def test_impossible_sequences_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        RandomSequences(**settings)


def test_every_value_of_a_sweep_is_checked():
    with pytest.raises(
        ConfigError, match=r"^dimension: got 17, allowed: a whole number from 1 to the width, 16"
    ):
        with_sweep(RandomSequences(), "dimension", (4.0, 17.0))
