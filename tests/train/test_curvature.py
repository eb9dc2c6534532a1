"""Steps in units of a member's curvature, and penalties that a model adds to its loss: against
closed forms.
"""

import dataclasses
import os
import signal
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from word_table import (
    TASK,
    Gradient,
    RidgedConfig,
    Table,
    WordTable,
    WordTableConfig,
    example_curvature,
    nothing,
    squares,
    without_seconds,
)

from saccade.contracts.task import Batch
from saccade.errors import ConfigError, InterruptedTrainingError
from saccade.records.schedule import Every
from saccade.train.batches import Minibatch
from saccade.train.lab import Lab
from saccade.train.members import initial_model, training_set
from saccade.train.optimiser import Adam, GradientDescent, GradientFlow
from saccade.train.recipe import Recipe
from saccade.train.training import TrainedArm
from saccade.workers.progress import Progress

CURVED = GradientDescent(0.8, curvature=example_curvature)


RECIPE = Recipe(TASK, WordTableConfig(), CURVED, 20, probes=(Table(),), at=Every(5), loss=squares)


def curvatures() -> np.ndarray:
    """By hand, for every seed, from its start and its training set."""
    starts = [
        np.asarray(initial_model(TASK, WordTableConfig(), seed).table, float) for seed in range(4)
    ]
    words = [np.asarray(training_set(TASK, seed).words, float) for seed in range(4)]
    return np.asarray(
        [2 + (start**2).mean() + data.mean() for start, data in zip(starts, words, strict=True)]
    )


@pytest.fixture(scope="module")
def curved(lab: Lab) -> TrainedArm:
    return lab.train(RECIPE, 4)


def test_a_step_is_the_rate_divided_by_the_members_own_curvature(curved: TrainedArm):
    """Under half the squared norm every step multiplies the table by 1 - rate / curvature."""
    table = curved.trajectory["table"]
    decay = (table / table.isel(step=0)).mean(("word", "label")).transpose("seed", "step")
    expected = (1 - 0.8 / curvatures())[:, None] ** table["step"].values
    # Twenty products in float32 lose at most 20 x 2^-23 = 2.4e-6, and the curvature itself as much.
    np.testing.assert_allclose(decay, expected, rtol=1e-5)
    assert np.ptp(curvatures()) > 0.1


def test_the_unit_is_recorded(lab: Lab, curved: TrainedArm):
    np.testing.assert_allclose(curved.trajectory["step_unit"], 1 / curvatures(), rtol=1e-5)
    plain = dataclasses.replace(RECIPE, steps=1, optimiser=GradientDescent(0.8))
    assert "step_unit" not in lab.train(plain, 4).trajectory


def test_time_is_in_units_of_the_rate(curved: TrainedArm):
    np.testing.assert_allclose(curved.trajectory["time"], 0.8 * curved.trajectory["step"])


def test_a_swept_rate_is_divided_as_well(lab: Lab):
    recipe = dataclasses.replace(RECIPE, steps=1)
    swept = lab.train(recipe, 4, sweep={"optimiser.rate": (0.4, 0.8)}).trajectory["table"]
    step = (
        (swept.isel(step=-1) / swept.isel(step=0)).mean(("word", "label")).transpose("rate", "seed")
    )
    np.testing.assert_allclose(step, 1 - np.outer((0.4, 0.8), 1 / curvatures()), rtol=1e-5)


def test_adam_and_minibatches_take_it_too(lab: Lab):
    """Adam's first step is the rate, up to 1e-8 / gradient; the curvature is that of the whole
    training set.
    """
    recipe = dataclasses.replace(
        RECIPE, steps=1, optimiser=Adam(0.1, curvature=example_curvature), batches=Minibatch(4)
    )
    table = lab.train(recipe, 4).trajectory["table"]
    step = abs(table.isel(step=-1) - table.isel(step=0)).median(("word", "label"))
    np.testing.assert_allclose(step, 0.1 / curvatures(), rtol=1e-4)


@pytest.mark.usefixtures("interruptible")
def test_the_unit_survives_an_interruption(lab: Lab, curved: TrainedArm, tmp_path: Path):
    def interrupt(event: Progress) -> None:
        if event.step >= 5 and not event.finished:
            os.kill(os.getpid(), signal.SIGINT)

    own = Lab(tmp_path, progress=None)
    with pytest.raises(InterruptedTrainingError):
        dataclasses.replace(own, progress=interrupt).train(RECIPE, 4)
    resumed = own.train(RECIPE, 4).trajectory
    assert without_seconds(resumed).identical(without_seconds(curved.trajectory))


@pytest.mark.parametrize(("kind", "error"), [(GradientDescent, ConfigError), (Adam, TypeError)])
def test_a_curvature_is_named(kind: type, error: type[Exception]):
    assert kind(0.5, curvature=example_curvature).curvature is example_curvature
    assert kind(0.5).curvature is None
    with pytest.raises(error):
        kind(0.5, example_curvature)
    assert GradientDescent(0.5, 0.25).momentum == 0.25


# -- penalties -------------------------------------------------------------------------------------

STRENGTH, RATE = 0.2, 0.5


def test_a_penalty_pulls_and_is_part_of_the_recorded_loss(lab: Lab):
    """Alone, half the strength times the squared norm multiplies the table by 1 - rate x
    strength per step.
    """
    recipe = Recipe(
        TASK,
        RidgedConfig(strength=STRENGTH),
        GradientDescent(RATE),
        20,
        probes=(Table(), Gradient()),
        at=Every(5),
        loss=nothing,
    )
    trajectory = lab.train(recipe, 4).trajectory
    table = trajectory["table"]
    decay = (table / table.isel(step=0)).mean(("word", "label")).transpose("seed", "step")
    np.testing.assert_allclose(
        decay, np.broadcast_to((1 - RATE * STRENGTH) ** table["step"].values, (4, 5)), rtol=1e-5
    )
    # A sum of 28 squares in float32.
    np.testing.assert_allclose(
        trajectory["loss"], STRENGTH * (table**2).sum(("word", "label")) / 2, rtol=1e-5
    )
    np.testing.assert_allclose(trajectory["gradient"], STRENGTH * table, rtol=1e-5)


def ridged_entropy(model: WordTable, batch: Batch):
    return model.loss(batch) + STRENGTH * jnp.sum(model.table**2) / 2


@pytest.mark.slow
def test_a_penalty_is_the_same_as_a_term_of_the_loss(lab: Lab):
    recipe = dataclasses.replace(RECIPE, optimiser=GradientDescent(RATE), batches=Minibatch(8))
    model = RidgedConfig(strength=STRENGTH)
    ridged = lab.train(dataclasses.replace(recipe, model=model, loss=None), 4).trajectory
    term = lab.train(dataclasses.replace(recipe, loss=ridged_entropy), 4).trajectory
    for name in ("loss", "table"):
        np.testing.assert_allclose(
            ridged[name], term[name], rtol=1e-4, atol=1e-5
        )  # two programs in float32


@pytest.mark.slow
def test_the_flow_feels_a_penalty(precise_lab: Lab):
    """Alone it makes the table decay as exp(-strength x time)."""
    recipe = dataclasses.replace(
        RECIPE,
        model=RidgedConfig(strength=STRENGTH),
        optimiser=GradientFlow(RATE),
        steps=10,
        loss=nothing,
    )
    flow = precise_lab.train(recipe, 1).trajectory
    decay = (flow["table"] / flow["table"].isel(step=0)).mean(("word", "label")).squeeze("seed")
    np.testing.assert_allclose(
        decay, np.exp(-STRENGTH * flow["time"].values), rtol=1e-4
    )  # the solver keeps 1e-6 per step
    assert jax.numpy.zeros(1).dtype == np.float32


def test_a_swept_penalty_is_each_members_own(lab: Lab):
    strengths = (0.0, 0.2, 0.6)
    recipe = dataclasses.replace(
        RECIPE, model=RidgedConfig(), optimiser=GradientDescent(RATE), steps=10, loss=nothing
    )
    training = lab.train(recipe, 1, sweep={"model.strength": strengths})
    table = training.trajectory["table"].squeeze("seed")
    decay = (table.isel(step=-1) / table.isel(step=0)).mean(("word", "label"))
    np.testing.assert_allclose(decay, (1 - RATE * np.asarray(strengths)) ** 10, rtol=1e-5)
