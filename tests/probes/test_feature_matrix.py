"""The feature matrix against NumPy, and the reach of queries against minimisation."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import lsq_linear

from saccade.core.interfaces import Moment
from saccade.models.attention_regression import AttentionRegression, half_squared_error
from saccade.models.kernels import Gaussian
from saccade.probes.feature_matrix import FeatureMatrix, ReachOfQueries
from saccade.tasks.random_sequences import Sequences


def in_a_hurry(function: Any) -> Any:
    """Compiled without optimisation: quicker than one operation at a time, for what runs once."""
    hurry = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    return jax.jit(function, compiler_options=hurry)  # pyright: ignore[reportArgumentType]


def parts(width: int, dimension: int, outputs: int = 2) -> tuple[AttentionRegression, Sequences]:
    """A model of two heads with the Gaussian kernel, and two sequences of three vectors. Under
    jax.enable_x64.
    """
    random = np.random.default_rng(9)
    active = np.arange(width) < dimension
    queries, keys, values = (
        active[:, None] * random.normal(size=(2, width, 3)) / np.sqrt(dimension) for _ in range(3)
    )
    output, inputs = random.normal(size=(2, 3, outputs)), active * random.normal(size=(2, 3, width))
    batch = Sequences(jnp.asarray(inputs), jnp.asarray(random.normal(size=(2, 3, outputs))))
    numbers = [jnp.asarray(one) for one in (queries, keys, values, output)]
    return AttentionRegression(*numbers, kernel=Gaussian(), frozen=()), batch


@in_a_hurry
def probes(model: Any, batch: Any) -> Any:
    moment = Moment(None, model, batch, batch, half_squared_error, lambda: model)
    return FeatureMatrix()(moment) | ReachOfQueries()(moment), model.features(batch)


def measured(model: Any, batch: Any) -> tuple[dict[str, float], np.ndarray]:
    """What both probes give, and B."""
    with jax.enable_x64(True):
        values, features = probes(model, batch)
    return {name: float(value) for name, value in values.items()}, np.asarray(features)


@pytest.mark.parametrize(
    ("width", "dimension"),
    [(5, 5), (2, 2), (5, 2), (3, 3)],
    ids=["HD > Nn", "HD < Nn", "HD < Nn, padded", "HD = Nn"],
)
def test_singular_values_and_floor(width, dimension):
    """Nn = 6 rows; the columns that the padding adds are 0 and must not count."""
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


def test_vectors_that_are_alike_leave_no_smallest_singular_value():
    """Two equal sequences: rows of B are equal, so that its Nn-th singular value is 0 but for
    rounding, and is called 0.
    """
    with jax.enable_x64(True):
        model, batch = parts(5, 5)
        twice = eqx.tree_at(lambda one: one.inputs, batch, jnp.stack([batch.inputs[0]] * 2))
    ours, _ = measured(model, twice)
    assert ours["feature_low"] == 0
    halves = (
        np.asarray(batch.targets)[0] - np.asarray(batch.targets)[1]
    )  # the best is the mean of both targets
    assert ours["floor"] == pytest.approx(np.sum(halves**2) / 4, rel=1e-10)


# -- reach of queries ------------------------------------------------------------------------------


def shares_of_heads(model: Any, batch: Any) -> np.ndarray:
    """What each head adds to every vector of a sequence if the query opens it fully: sequence
    head.
    """
    theta = np.einsum("hfk,hko->hf", np.asarray(model.values), np.asarray(model.output))
    return np.einsum("snf,hf->sh", np.asarray(batch.inputs), theta)


@pytest.mark.parametrize("scale", [0.3, 2.0])
def test_the_reach_is_the_least_that_shares_between_zero_and_one_can_miss(scale):
    """Bounded least squares for every vector apart (scipy)."""
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
    assert ours > 1e-3, "some targets are out of reach"


def test_queries_reach_their_floor_and_no_queries_go_below_it():
    """With Nn = D inputs are independent, so any queries can be had: those of the best shares,
    written down.
    """
    with jax.enable_x64(True):
        model, batch = parts(6, 6, outputs=1)
    whole = shares_of_heads(model, batch)
    inputs, targets = np.asarray(batch.inputs).reshape(6, 6), np.asarray(batch.targets)[..., 0]
    best = np.zeros((2, 6))  # head vector
    for place, (sequence, position) in enumerate(np.ndindex(2, 3)):
        best[:, place] = lsq_linear(
            whole[sequence][None, :], [targets[sequence, position]], bounds=(0, 1), tol=1e-14
        ).x
    # exp(-||q||^2 / (2 sqrt 3)) = share; a share of 0 is as good as 1e-12.
    norms = np.sqrt(-2 * np.sqrt(3) * np.log(np.clip(best, 1e-12, 1)))
    queries = np.stack(
        [np.linalg.solve(inputs, norms[head][:, None] * np.eye(3)[:1]) for head in range(2)]
    )
    floor = measured(model, batch)[0]["reach_floor"]
    with jax.enable_x64(True):
        nothing = jnp.zeros_like(model.keys)

        @in_a_hurry
        def loss(queries: Any) -> Any:
            return half_squared_error(
                eqx.tree_at(lambda one: (one.queries, one.keys), model, (queries, nothing)), batch
            )

        assert float(loss(jnp.asarray(queries))) == pytest.approx(floor, rel=1e-6)
        random = np.random.default_rng(5)
        others = [
            float(loss(jnp.asarray(size * random.normal(size=queries.shape))))
            for size in (0.1, 0.5, 1.0, 3.0)
            for _ in range(20)
        ]
    assert min(others) >= floor
