"""The bound of theorem 1 and the projection floor, against training; too large a step breaks the
bound.
"""

import numpy as np
import pytest
import xarray as xr

from saccade.models.attention_regression import AttentionRegressionConfig, value_curvature
from saccade.probes.feature_matrix import FeatureMatrix
from saccade.records.schedule import AtSteps
from saccade.tasks.random_sequences import RandomSequences
from saccade.theory.linear_rate import LinearRate, ProjectionFloor, loss_bound
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe

RATES = (0.5, 1.0, 20.0)
"""In units of the largest step that the theory allows."""
STEPS = 10000


def test_the_bound_is_a_power():
    steps = np.array([0, 1, 2, 5])
    np.testing.assert_allclose(loss_bound(3.0, 0.1, 2.0, steps), 3 * 0.8**steps, rtol=1e-14)
    np.testing.assert_allclose(loss_bound(3.0, 0.1, 0.0, steps), 3.0, rtol=0)
    # 1 - eta beta is 1 in float64, but the bound still falls.
    assert loss_bound(1.0, 1e-9, 1e-9, 1e18) == pytest.approx(np.exp(-1), rel=1e-12)


@pytest.fixture(scope="module")
def trained(precise_lab: Lab) -> xr.Dataset:
    """Values only: two sequences of two vectors, two heads. D = 1 is too small for a fit (HD = 2 <
    Nn = 4), D = 3 is enough.
    """
    recipe = Recipe(
        RandomSequences(2, 1, 2, width=3, dimension=3),
        AttentionRegressionConfig("gaussian", heads=2, head_dimension=3, trained=("values",)),
        GradientDescent(curvature=value_curvature),
        STEPS,
        probes=(FeatureMatrix(),),
        at=AtSteps((1, 2, 5, 10, 20, 50, 100, 1000)),
    )
    sweep = {"task.dimension": (1.0, 3.0), "optimiser.rate": RATES}
    return precise_lab.train(recipe, seeds=3, sweep=sweep).trajectory


def test_the_loss_stays_below_the_bound_for_steps_that_the_theory_allows(trained):
    chosen = trained.sel(dimension=3)
    bound = LinearRate().predict(None, None, chosen)["loss"]
    # A squared rounding error (1e-16 of numbers of size 1) stays while the bound keeps falling.
    ratio = (chosen["loss"] / bound).where(bound > 1e-28).sel(rate=[0.5, 1.0])
    assert float(chosen["feature_low"].isel(step=0).min()) > 1e-3, "beta is positive"
    assert float(ratio.max()) <= 1 + 1e-12
    np.testing.assert_allclose(ratio.sel(step=0), 1, rtol=1e-12)
    fallen = (bound / bound.isel(step=0)).sel(rate=1.0)
    assert float(fallen.isel(step=-1).max()) < 0.9, "the bound falls"
    assert int(ratio.sel(step=100).count()) == ratio.sel(step=100).size, (
        "the bound is above rounding for a hundred steps"
    )


def test_the_bound_depends_on_the_first_step_only(trained):
    bound = LinearRate().predict(None, None, trained)["loss"]
    start = trained.isel(step=0)
    for rate in RATES:
        beta = (start["output_low"] * start["feature_low"]) ** 2
        factor = 1 - rate / start["curvature"] * beta
        expected = (start["loss"] * factor ** trained["step"]).sel(rate=rate, dimension=3)
        np.testing.assert_allclose(
            bound.sel(rate=rate, dimension=3).transpose(*expected.dims), expected, rtol=1e-9
        )
    flat = bound.sel(dimension=1)
    # HD < Nn: beta is 0.
    np.testing.assert_allclose(flat, flat.isel(step=0).broadcast_like(flat), rtol=1e-12)


def test_a_step_far_above_the_limit_breaks_the_bound(trained):
    """Refutation: the premise eta <= 1/L is necessary."""
    chosen = trained.sel(dimension=3)
    bound = LinearRate().predict(None, None, chosen)["loss"]
    ratio = (chosen["loss"] / bound).sel(rate=20.0, step=5)
    assert bool((ratio > 10).all())


def test_values_alone_end_at_the_projection_floor(trained):
    chosen = trained.sel(rate=[0.5, 1.0])
    floor = ProjectionFloor().predict(None, None, chosen)["loss"]
    assert set(floor.dims) >= {"dimension", "rate", "seed", "step"}
    end, limit = (one.sel(dimension=1).isel(step=-1) for one in (chosen["loss"], floor))
    np.testing.assert_allclose(end, limit, rtol=1e-6)
    assert float(limit.min()) > 1e-3, "the targets cannot be fitted"
    # With D = 3 they can: the floor is rounding, and the loss is still falling.
    assert float(floor.sel(dimension=3).max()) < 1e-20
    enough = chosen["loss"].sel(dimension=3)
    assert float((enough.isel(step=-1) / enough.isel(step=0)).max()) < 0.5


def test_the_floor_is_that_of_the_first_step():
    """Attention that moves changes B; the prediction is made at the start."""
    trajectory = xr.Dataset(
        {"floor": (("seed", "step"), [[3.0, 2.0, 1.0]])}, {"step": [0, 5, 9], "seed": [0]}
    )
    np.testing.assert_array_equal(
        ProjectionFloor().predict(None, None, trajectory)["loss"], [[3.0, 3.0, 3.0]]
    )
