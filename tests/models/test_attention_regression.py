"""Multi-head attention for regression, against NumPy, finite differences and a smaller model."""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.errors import ConfigError
from saccade.models.attention_regression import (
    AttentionRegression,
    AttentionRegressionConfig,
    query_curvature,
    value_curvature,
)
from saccade.models.kernels import KERNELS
from saccade.tasks.random_sequences import RandomSequences, Sequences

TASK = RandomSequences(train_size=2, positions=3, width=4, dimension=4, outputs=2)
KEY = jax.random.key(6)
each_kernel = pytest.mark.parametrize("kernel", KERNELS)


def parts(kernel: str, dimension: int = 4) -> tuple[AttentionRegression, Sequences]:
    """A model of two heads, and two sequences of three vectors of width 4. Needs x64."""
    random = np.random.default_rng(6)
    active = np.arange(4) < dimension
    weights = [
        active[:, None] * random.normal(size=(2, 4, 3)) / np.sqrt(dimension) for _ in range(3)
    ]
    weights.append(2 * random.normal(size=(2, 3, 2)))
    batch = Sequences(
        jnp.asarray(active * random.normal(size=(2, 3, 4))),
        jnp.asarray(random.normal(size=(2, 3, 2))),
    )
    return AttentionRegression(*map(jnp.asarray, weights), kernel=KERNELS[kernel], frozen=()), batch


def by_numpy(
    weights: dict[str, np.ndarray], kernel: str, batch: Sequences
) -> tuple[np.ndarray, float, np.ndarray]:
    """[S_1 X W_1^V, ..., S_H X W_H^V] W^O by loops, half the squared error, and B."""
    inputs, targets = np.asarray(batch.inputs), np.asarray(batch.targets)
    heads, _, size = weights["queries"].shape
    outputs, rows = [], []
    for X in inputs:
        mixed, features = [], []
        for head in range(heads):
            Q, K = X @ weights["queries"][head], X @ weights["keys"][head]
            if kernel == "softmax":
                S = np.exp(Q @ K.T / np.sqrt(size))
                S /= S.sum(axis=1, keepdims=True)
            else:
                S = np.exp(-np.sum((Q[:, None] - K[None]) ** 2, axis=2) / (2 * np.sqrt(size)))
            mixed.append(S @ X @ weights["values"][head])
            features.append(S @ X)
        outputs.append(np.concatenate(mixed, axis=1) @ weights["output"].reshape(heads * size, -1))
        rows.append(np.concatenate(features, axis=1))
    outputs = np.stack(outputs)
    return outputs, float(np.sum((outputs - targets) ** 2) / 2), np.concatenate(rows)


def arrays(model: AttentionRegression) -> dict[str, np.ndarray]:
    return {
        name: np.asarray(getattr(model, name)) for name in ("queries", "keys", "values", "output")
    }


LOSS_AND_GRADIENT = jax.jit(
    lambda model, batch: (
        *eqx.filter_value_and_grad(AttentionRegression.loss)(model, batch),
        model(batch),
        model.features(batch),
    )
)


@each_kernel
def test_output_loss_features_and_gradient(kernel):
    """Against NumPy; the gradient (also that of the fixed output layer) by finite differences."""
    with jax.enable_x64(True):
        model, batch = parts(kernel)
        loss, slopes, output, features = LOSS_AND_GRADIENT(model, batch)
    weights = arrays(model)
    expected, expected_loss, rows = by_numpy(weights, kernel, batch)
    # float64, numbers of size 10
    np.testing.assert_allclose(output.logits, expected, rtol=0, atol=1e-12)
    assert float(loss) == pytest.approx(expected_loss, rel=1e-13)
    np.testing.assert_allclose(features, rows, rtol=0, atol=1e-13)
    theta = np.einsum("hfk,hko->hfo", weights["values"], weights["output"]).reshape(8, 2)
    np.testing.assert_allclose(
        np.asarray(features) @ theta, expected.reshape(6, 2), rtol=0, atol=1e-12
    )
    step = 1e-5
    for name, place in weights.items():
        slope = np.asarray(getattr(slopes, name))
        for index in np.ndindex(*place.shape):
            moved = []
            for sign in (1, -1):
                shifted = place.copy()
                shifted[index] += sign * step
                moved.append(by_numpy(weights | {name: shifted}, kernel, batch)[1])
            # The error of central differences is step^2 / 6 = 2e-11 times a third derivative (up
            # to 1e3), plus 1e-14 / step = 1e-9.
            assert (moved[0] - moved[1]) / (2 * step) == pytest.approx(
                slope[index], rel=1e-6, abs=5e-8
            )


@each_kernel
def test_a_smaller_dimension_is_the_smaller_model_and_the_padding_has_no_effect(kernel):
    """Width 4, dimension 2: the loss without the last two features, whose gradient is exactly 0."""
    with jax.enable_x64(True):
        model, batch = parts(kernel, 2)
        loss, slopes, _, features = LOSS_AND_GRADIENT(model, batch)
        small_batch = Sequences(batch.inputs[..., :2], batch.targets)
        cut = [getattr(model, name)[:, :2] for name in ("queries", "keys", "values")]
        small = AttentionRegression(*cut, output=model.output, kernel=model.kernel, frozen=())
        small_loss, small_slopes, _, small_features = LOSS_AND_GRADIENT(small, small_batch)
    assert float(loss) == pytest.approx(float(small_loss), rel=1e-14)
    for name in ("queries", "keys", "values"):
        assert np.all(np.asarray(getattr(model, name))[:, 2:] == 0)
        slope = np.asarray(getattr(slopes, name))
        np.testing.assert_allclose(slope[:, :2], getattr(small_slopes, name), rtol=0, atol=1e-12)
        assert np.all(slope[:, 2:] == 0)
        assert np.abs(slope).max() > 1e-2
    np.testing.assert_allclose(
        np.linalg.svd(features)[1][:4], np.linalg.svd(small_features)[1], rtol=0, atol=1e-13
    )


@pytest.mark.parametrize(("kernel", "heads"), [("softmax", 1), ("gaussian", 2)])
def test_no_curvature_in_the_values_is_larger_than_the_bound(kernel, heads):
    with jax.enable_x64(True):
        model, batch = parts(kernel)
        one = AttentionRegression(
            *(getattr(model, name)[:heads] for name in ("queries", "keys", "values", "output")),
            kernel=model.kernel,
            frozen=(),
        )

        def loss(values: jax.Array) -> Any:
            values = values.reshape(one.values.shape)
            return eqx.tree_at(lambda tree: tree.values, one, values).loss(batch)

        hessian = np.asarray(jax.jit(jax.hessian(loss))(one.values.reshape(-1)))
        bound = float(value_curvature(one, batch))
    largest = np.linalg.eigvalsh(hessian)[-1]
    assert largest <= bound * (1 + 1e-12)
    if heads == 1:
        # The bound is reached: the Hessian is the Kronecker product of B^T B and W^O W^O^T.
        assert largest == pytest.approx(bound, rel=1e-12)
    else:
        assert largest > bound / 4


# -- targets ---------------------------------------------------------------------------------------


@functools.cache
def relabelled() -> tuple[AttentionRegression, Sequences, dict[str, list[Sequences]], np.ndarray]:
    """The initial model, the data as drawn, the data with other targets (keys 1, 1 and 2), and the
    queries of scale 1 for key 1.
    """
    kinds = ("task", "start", "teacher")
    settings: dict[str, Any] = {
        "heads": 2,
        "head_dimension": 3,
        "value_scale": 1.0,
        "query_scale": 3.0,
    }
    configs = {targets: AttentionRegressionConfig(targets=targets, **settings) for targets in kinds}

    def drawn(key: jax.Array, *keys: jax.Array) -> Any:
        start, batch = configs["task"].build(TASK, key), TASK.sample(key, 2)
        given = {
            kind: [config.relabelled(TASK, start, batch, one) for one in keys]
            for kind, config in configs.items()
        }
        return start, batch, given, configs["task"]._draw(TASK, keys[0], 1.0)

    with jax.enable_x64(True):
        return jax.jit(drawn)(KEY, *(jax.random.key(seed) for seed in (1, 1, 2)))


@pytest.mark.parametrize("targets", ["task", "start"])
def test_targets_as_drawn_and_targets_added_to_the_initial_output(targets):
    start, batch, given, _ = relabelled()
    first, _, other = given[targets]
    own = 0 if targets == "task" else by_numpy(arrays(start), "softmax", batch)[0]
    np.testing.assert_allclose(first.targets, np.asarray(batch.targets) + own, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(first.targets, other.targets)
    np.testing.assert_array_equal(first.inputs, batch.inputs)


def test_a_teacher_differs_from_the_initial_model_in_its_queries_only():
    """They have scale 1 for any initial scale; keys, values and output layer are the same."""
    start, batch, given, queries = relabelled()
    first, again, other = given["teacher"]
    np.testing.assert_allclose(first.targets, again.targets, rtol=1e-14, atol=1e-14)
    assert not np.allclose(first.targets, other.targets), "the key draws the teacher"
    taught = by_numpy(arrays(start) | {"queries": np.asarray(queries)}, "softmax", batch)[0]
    np.testing.assert_allclose(
        first.targets, taught + np.asarray(batch.targets), rtol=0, atol=1e-12
    )
    # 24 numbers of standard deviation 1/2 and 3/2: 1 is seven and three standard errors
    # (std / sqrt(48)) away from them.
    assert np.std(np.asarray(queries)) < 1 < np.std(np.asarray(start.queries))


# -- configs ---------------------------------------------------------------------------------------


def test_the_initial_model_has_the_scales_of_the_config():
    task = RandomSequences(width=40, dimension=25)
    config = AttentionRegressionConfig(
        heads=3,
        head_dimension=16,
        query_scale=2.0,
        key_scale=0.0,
        value_scale=0.1,
        output_scale=4.0,
    )
    model = jax.jit(lambda key: config.build(task, key))(KEY)
    for name, std in (("queries", 2 / 5), ("keys", 0.0), ("values", 0.1 / 5)):
        matrix = np.asarray(getattr(model, name))
        assert matrix.shape == (3, 40, 16)
        assert np.all(matrix[:, 25:] == 0)
        # A variance of n numbers has the relative standard error sqrt(2 / n): four of them.
        assert np.mean(matrix[:, :25] ** 2) == pytest.approx(
            std**2, rel=4 * np.sqrt(2 / (3 * 25 * 16))
        )
    assert np.mean(np.asarray(model.output) ** 2) == pytest.approx(1, rel=4 * np.sqrt(2 / 48))


@pytest.mark.parametrize(
    "trained", [("queries",), ("values",), ("queries", "keys", "values")], ids=str
)
def test_only_the_trained_parts_learn_and_never_the_output_layer(trained):
    config = AttentionRegressionConfig(heads=1, head_dimension=2, trained=trained)
    shapes = eqx.filter_eval_shape(config.build, TASK, KEY)
    model = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape), shapes)
    flags = model.trainable()
    assert {
        name for name in ("queries", "keys", "values", "output") if getattr(flags, name)
    } == set(trained)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "linear"}, "kernel: got 'linear', allowed: softmax, gaussian"),
        ({"targets": "random"}, "targets: got 'random', allowed: task, start, teacher"),
        ({"heads": 0}, "heads: got 0, allowed: a whole number, at least 1"),
        ({"key_scale": -1.0}, "key_scale: got -1.0, allowed: a finite number, at least 0"),
        ({"trained": ()}, "trained: got nothing, allowed: some of queries, keys, values"),
        (
            {"trained": ("values", "output")},
            "trained: got values, output, allowed: some of queries, keys, values",
        ),
    ],
)
def test_impossible_configs_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        AttentionRegressionConfig(**settings)


def test_more_outputs_than_the_dimension_of_a_head_are_refused():
    """The values could not reach all outputs then, and sigma_min(W^O) would be 0."""
    with pytest.raises(
        ConfigError, match=r"^head_dimension: got 1, allowed: at least the 2 outputs"
    ):
        AttentionRegressionConfig(head_dimension=1).build(TASK, KEY)


@each_kernel
@pytest.mark.parametrize("sign", [1.0, -1.0], ids=["targets", "targets reversed"])
def test_the_curvature_of_the_queries_is_the_largest_eigenvalue_of_the_hessian(kernel, sign):
    with jax.enable_x64(True):
        model, batch = parts(kernel)
        batch = eqx.tree_at(lambda one: one.targets, batch, 3 * sign * batch.targets)

        def loss(queries: Any) -> Any:
            return eqx.tree_at(lambda one: one.queries, model, queries).loss(batch)

        size = model.queries.size
        hessian = jax.jit(jax.hessian(loss))(model.queries).reshape(size, size)
        ours = float(jax.jit(query_curvature)(model, batch))
    eigenvalues = np.linalg.eigvalsh(hessian)
    assert eigenvalues[0] < 0 < eigenvalues[-1]
    assert ours == pytest.approx(eigenvalues[-1], rel=1e-3)
