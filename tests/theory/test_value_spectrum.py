"""The loss curve of values alone, against exact descent and against training."""

import numpy as np
import pytest
import xarray as xr

from saccade.models.attention_regression import AttentionRegressionConfig, value_curvature
from saccade.probes.feature_matrix import FeatureMatrix, ValueModes
from saccade.records.schedule import AtSteps
from saccade.records.trajectory import at_start
from saccade.tasks.random_sequences import RandomSequences
from saccade.theory.linear_rate import ProjectionFloor
from saccade.theory.value_spectrum import ValueSpectrum
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe


def test_the_curve_is_that_of_descent_on_a_quadratic():
    """Two modes and one direction that nothing sees, by a loop."""
    curvature, parts, rate = np.array([0.0, 0.5, 3.0]), np.array([1.0, 4.0, 9.0]), 0.4
    steps, residual, losses = np.array([0, 1, 2, 7, 30]), np.sqrt(parts), {}
    for step in range(31):
        losses[step] = np.sum(residual**2) / 2
        residual = residual - rate * curvature * residual
    trajectory = xr.Dataset(
        {
            "mode_curvature": (("seed", "mode"), curvature[None]),
            "mode_residual": (("seed", "mode"), parts[None]),
            "loss": (("seed", "step"), np.zeros((1, 5))),
        },
        {"step": steps, "time": ("step", rate * steps), "seed": [0]},
    )
    predicted = ValueSpectrum().predict(None, None, trajectory)["loss"]
    np.testing.assert_allclose(predicted[0], [losses[step] for step in steps], rtol=1e-12)


@pytest.mark.parametrize("outputs", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_training_follows_the_curve(precise_lab: Lab, outputs):
    """Values only: D = 1 is too small for a fit (HD = 2 < Nn = 4), D = 3 is enough. A step above
    the limit of theorem 1 changes nothing.
    """
    recipe = Recipe(
        RandomSequences(2, 1, 2, width=3, dimension=3, outputs=outputs),
        AttentionRegressionConfig("gaussian", heads=2, head_dimension=3, trained=("values",)),
        GradientDescent(curvature=value_curvature),
        2000,
        at=AtSteps((1, 2, 5, 10, 100)),
        ends=(FeatureMatrix(), ValueModes()),
    )
    sweep = {"task.dimension": (1.0, 3.0), "optimiser.rate": (0.5, 1.5)}
    arm = precise_lab.train(recipe, seeds=3, sweep=sweep)
    start = at_start(arm.snapshot).drop_vars(["loss", "diverged_at"], errors="ignore")
    given = arm.trajectory.assign(start.data_vars)
    predicted = ValueSpectrum().predict(None, None, given)["loss"]
    np.testing.assert_allclose(given["loss"], predicted, rtol=1e-9, atol=1e-20)  # rounding
    floor = ProjectionFloor().predict(None, None, given)["loss"]
    assert bool((predicted > (1 - 1e-9) * floor).all())
    assert float((predicted.isel(step=-1) / predicted.isel(step=0)).max()) < 0.9
