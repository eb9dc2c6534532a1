"""The feature matrix against NumPy, and the reach of queries against minimisation."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from saccade.contracts.probe import Moment
from saccade.models.attention_regression import AttentionRegression
from saccade.models.kernels import Gaussian, Softmax
from saccade.probes.feature_matrix import (
    FeatureMatrix,
    FirstOrderQueries,
    ReachOfQueries,
    ValueModes,
)
from saccade.tasks.random_sequences import Sequences


def parts(width: int, dimension: int, outputs: int = 2) -> tuple[AttentionRegression, Sequences]:
    """A Gaussian model of two heads, and two sequences of three vectors. Needs x64."""
    random = np.random.default_rng(9)
    active = np.arange(width) < dimension
    queries, keys, values = (
        active[:, None] * random.normal(size=(2, width, 3)) / np.sqrt(dimension) for _ in range(3)
    )
    output, inputs = random.normal(size=(2, 3, outputs)), active * random.normal(size=(2, 3, width))
    batch = Sequences(jnp.asarray(inputs), jnp.asarray(random.normal(size=(2, 3, outputs))))
    numbers = [jnp.asarray(one) for one in (queries, keys, values, output)]
    return AttentionRegression(*numbers, kernel=Gaussian(), frozen=()), batch


@jax.jit
def probes(model: Any, batch: Any) -> Any:
    moment = Moment(None, model, batch, batch, AttentionRegression.loss, lambda: model)
    return FeatureMatrix()(moment) | ReachOfQueries()(moment), model.features(batch)


def measured(model: Any, batch: Any) -> tuple[dict[str, float], np.ndarray]:
    """The results of both probes, and B."""
    with jax.enable_x64(True):
        values, features = probes(model, batch)
    return {name: float(value) for name, value in values.items()}, np.asarray(features)


@pytest.mark.parametrize(
    ("width", "dimension"),
    [(5, 5), (2, 2), (5, 2), (3, 3)],
    ids=["HD > Nn", "HD < Nn", "HD < Nn, padded", "HD = Nn"],
)
def test_singular_values_and_floor(width, dimension):
    """Nn = 6 rows; the columns of the padding are 0 and must not count."""
    with jax.enable_x64(True):
        model, batch = parts(width, dimension)
    ours, features = measured(model, batch)
    real = features.reshape(6, 2, width)[:, :, :dimension].reshape(6, -1)
    singular = np.linalg.svd(real, compute_uv=False)
    targets = np.asarray(batch.targets).reshape(6, 2)
    solution = np.linalg.lstsq(real, targets, rcond=None)[0]
    floor = np.sum((real @ solution - targets) ** 2) / 2
    assert ours["feature_high"] == pytest.approx(singular[0], rel=1e-13)
    assert ours["floor"] == pytest.approx(floor, rel=1e-10, abs=1e-20)
    if 2 * dimension < 6:
        assert ours["feature_low"] == 0
        assert ours["floor"] > 1e-3
    else:
        assert ours["feature_low"] == pytest.approx(singular[5], rel=1e-9)
        assert ours["floor"] < 1e-20
    outputs = np.linalg.svd(np.asarray(model.output), compute_uv=False)  # head singular
    assert ours["output_low"] == pytest.approx(outputs.min(), rel=1e-13)
    assert ours["curvature"] == pytest.approx((outputs.max() * singular[0]) ** 2, rel=1e-13)


def test_equal_sequences_have_a_smallest_singular_value_of_zero():
    """Rows of B are equal, so its Nn-th singular value is 0 up to rounding; it is recorded as 0."""
    with jax.enable_x64(True):
        model, batch = parts(5, 5)
        twice = eqx.tree_at(lambda one: one.inputs, batch, jnp.stack([batch.inputs[0]] * 2))
    ours, _ = measured(model, twice)
    assert ours["feature_low"] == 0
    # The best output is the mean of both targets.
    difference = np.asarray(batch.targets)[0] - np.asarray(batch.targets)[1]
    assert ours["floor"] == pytest.approx(np.sum(difference**2) / 4, rel=1e-10)


def test_the_modes_are_those_of_the_hessian_in_the_values():
    """Two outputs: the eigenvalues that are not 0, and the loss as the sum over modes."""
    with jax.enable_x64(True):
        model, batch = parts(5, 5)

        def loss(values: Any) -> Any:
            return eqx.tree_at(lambda one: one.values, model, values).loss(batch)

        def probed(model: Any, batch: Any) -> Any:
            loss = AttentionRegression.loss
            return ValueModes()(Moment(None, model, batch, batch, loss, lambda: model))

        size = model.values.size
        hessian = np.asarray(jax.jit(jax.hessian(loss))(model.values)).reshape(size, size)
        first = float(loss(model.values))
        modes = {name: np.asarray(one) for name, one in jax.jit(probed)(model, batch).items()}
    expected = np.linalg.eigvalsh(hessian)[-12:]
    np.testing.assert_allclose(modes["mode_curvature"], expected, rtol=1e-8, atol=1e-10)
    assert modes["mode_residual"].sum() / 2 == pytest.approx(first, rel=1e-12)


def test_the_first_order_of_the_queries_gradient_is_its_limit_for_small_keys():
    with jax.enable_x64(True):
        model, batch = parts(5, 5)
        tiny = (1e-7 * model.keys, Softmax())
        model = eqx.tree_at(lambda one: (one.keys, one.kernel), model, tiny)

        def loss(queries: Any) -> Any:
            return eqx.tree_at(lambda one: one.queries, model, queries).loss(batch)

        def probed(model: Any, batch: Any) -> Any:
            loss = AttentionRegression.loss
            return FirstOrderQueries()(Moment(None, model, batch, batch, loss, lambda: model))

        norm = float(jnp.linalg.norm(jax.jit(jax.grad(loss))(model.queries)))
        ours = float(jax.jit(probed)(model, batch)["first_order_gradient"])
    assert ours == pytest.approx(norm, rel=1e-5)  # the next order is that of the scores, 1e-7
    assert norm > 1e-9


# -- reach of queries ------------------------------------------------------------------------------


def shares_of_heads(model: Any, batch: Any) -> np.ndarray:
    """The output of each head for a weight of 1, the same for every vector: sequence head."""
    theta = np.einsum("hfk,hko->hf", np.asarray(model.values), np.asarray(model.output))
    return np.einsum("snf,hf->sh", np.asarray(batch.inputs), theta)


@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_the_reach_is_the_least_loss_over_weights_between_zero_and_one(scale):
    """Bounded least squares for each vector (SciPy)."""
    with jax.enable_x64(True):
        model, batch = parts(6, 6, outputs=1)
        batch = eqx.tree_at(lambda one: one.targets, batch, scale * batch.targets)
    whole = shares_of_heads(model, batch)
    floor = 0.0
    for sequence, targets in enumerate(np.asarray(batch.targets)[..., 0]):
        for target in targets:
            floor += lsq_linear(whole[sequence][None, :], [target], bounds=(0, 1), tol=1e-14).cost
    ours = measured(model, batch)[0]["reach_floor"]
    assert ours == pytest.approx(floor, rel=1e-6, abs=1e-10)
    assert ours > 1e-3, "some targets cannot be reached"


def test_queries_reach_their_floor_and_no_queries_go_below_it():
    """With Nn = D the inputs are independent, so W^Q can give any queries: here the best ones."""
    with jax.enable_x64(True):
        model, batch = parts(6, 6, outputs=1)
    whole = shares_of_heads(model, batch)
    inputs, targets = np.asarray(batch.inputs).reshape(6, 6), np.asarray(batch.targets)[..., 0]
    best = np.zeros((2, 6))  # head vector
    for place, (sequence, position) in enumerate(np.ndindex(2, 3)):
        best[:, place] = lsq_linear(
            whole[sequence][None, :], [targets[sequence, position]], bounds=(0, 1), tol=1e-14
        ).x
    # exp(-||q||^2 / (2 sqrt 3)) = weight; 1e-12 stands for a weight of 0.
    norms = np.sqrt(-2 * np.sqrt(3) * np.log(np.clip(best, 1e-12, 1)))
    queries = np.stack(
        [np.linalg.solve(inputs, norms[head][:, None] * np.eye(3)[:1]) for head in range(2)]
    )
    floor = measured(model, batch)[0]["reach_floor"]
    with jax.enable_x64(True):
        nothing = jnp.zeros_like(model.keys)

        @jax.jit
        def loss(queries: Any) -> Any:
            parts = (queries, nothing)
            return eqx.tree_at(lambda one: (one.queries, one.keys), model, parts).loss(batch)

        assert float(loss(jnp.asarray(queries))) == pytest.approx(floor, rel=1e-6)
        random = np.random.default_rng(5)
        others = [
            float(loss(jnp.asarray(size * random.normal(size=queries.shape))))
            for size in (0.1, 0.5, 1.0, 3.0)
            for _ in range(20)
        ]
    assert min(others) >= floor
