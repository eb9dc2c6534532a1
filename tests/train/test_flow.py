"""The gradient flow in the engine: one of its steps leads from one recorded step to the next."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from one_weight import RECIPE
from word_table import without_seconds

from saccade.errors import InterruptedTrainingError
from saccade.records.schedule import AtSteps, Every
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientFlow
from saccade.train.stopping import EarlyStopping
from saccade.workers.progress import Progress

FLOW = dataclasses.replace(
    RECIPE, optimiser=GradientFlow(0.01), steps=60, at=Every(10), keep_state=True
)
"""The weight falls as w exp(-2 t): by 2 % per step."""


def infinite_below_a_half(model: Any, batch: Any) -> Any:
    return model.loss(batch) + jnp.where(model.weight < 0.5, jnp.inf, 0.0)


def test_a_flow_solves_its_equation_between_uneven_records(lab: Lab):
    arm = lab.train(dataclasses.replace(FLOW, at=AtSteps((0, 1, 7, 60))), 3)
    loss = arm.trajectory["loss"]
    exact = loss.isel(step=0) * np.exp(-4 * 0.01 * loss["step"])
    np.testing.assert_allclose(loss, exact.transpose(*loss.dims), rtol=1e-5)


def test_a_flow_goes_on_from_another(lab: Lab):
    whole = lab.train(dataclasses.replace(FLOW, steps=120), 3)
    second = lab.train(FLOW, 3, after=lab.train(FLOW, 3))
    assert second.trajectory["step"].values.tolist() == [60, 70, 80, 90, 100, 110, 120]
    np.testing.assert_allclose(
        second.trajectory["loss"], whole.trajectory["loss"].sel(step=slice(60, None)), rtol=1e-5
    )


def test_a_flow_diverges_at_the_recorded_step_that_it_does_not_reach(lab: Lab):
    """And stays so, where another one goes on from it."""
    recipe = dataclasses.replace(FLOW, loss=infinite_below_a_half)
    first = lab.train(recipe, 3)
    begun = first.trajectory["loss"].isel(step=0) ** 0.5
    reached = np.log(begun / 0.5) / (2 * 0.01)
    expected = np.ceil(reached / 10) * 10
    assert set(np.asarray(expected)) == {40.0}
    np.testing.assert_array_equal(first.trajectory["diverged_at"], expected)
    second = lab.train(recipe, 3, after=first)
    np.testing.assert_array_equal(second.trajectory["diverged_at"], expected)
    assert np.isnan(second.trajectory["loss"]).all()


def test_a_flow_stops_early_at_a_recorded_step(lab: Lab):
    """The loss falls, so that its largest value is the first."""
    stopping = EarlyStopping("loss", patience=25, best="largest")
    arm = lab.train(dataclasses.replace(FLOW, stopping=stopping), 2)
    assert arm.trajectory["stopped_at"].values.tolist() == [30, 30]
    assert arm.trajectory["best_step"].values.tolist() == [0, 0]
    np.testing.assert_allclose(arm.models.weight**2, arm.trajectory["loss"].isel(step=0), rtol=1e-6)


def test_an_interrupted_flow_goes_on_where_it_was(tmp_path):
    unbroken = Lab(tmp_path / "unbroken", progress=None).train(FLOW, 2)
    heard: list[Progress] = []
    lab = Lab(tmp_path / "broken", progress=heard.append)
    lab.asked_to_stop = lambda: len(heard) == 1
    with pytest.raises(InterruptedTrainingError, match=r"at step \d0 of 60"):
        lab.train(FLOW, 2)
    assert heard[-1].step < 60
    lab.asked_to_stop = None
    resumed = lab.train(FLOW, 2)
    assert without_seconds(resumed.trajectory).identical(without_seconds(unbroken.trajectory))
