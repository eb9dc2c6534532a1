"""`Lab.measure`: probes on models that exist already."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from word_table import TASK, Sentences, SplitLoss, Table, TestWords, WordTable, WordTableConfig

from saccade.contracts.probe import Moment
from saccade.errors import ConfigError
from saccade.records.schedule import Every
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe
from saccade.train.training import TrainedArm

STEPS = (0, 4, 8)


@pytest.fixture(scope="module")
def trained(lab: Lab) -> TrainedArm:
    recipe = Recipe(
        TASK,
        WordTableConfig(),
        GradientDescent(0.5),
        8,
        probes=(Table(), TestWords(), Moved()),
        at=Every(4),
    )
    return lab.train(recipe, (5, 2))


class Moved(Table):
    """How far the table is from its start."""

    variables = {"moved": Table.variables["table"]}  # noqa: RUF012

    def __call__(self, moment: Moment) -> dict[str, Any]:
        return {"moved": moment.model.table - moment.initial.table}


def checkpoints(trained: TrainedArm, seed: int) -> list[WordTable]:
    table = trained.trajectory["table"].sel(seed=seed)
    return [WordTable(jnp.asarray(table.sel(step=step).values)) for step in STEPS]


def test_checkpoints_give_the_dataset_of_their_training(lab: Lab, trained: TrainedArm):
    runs = {seed: checkpoints(trained, seed) for seed in (5, 2)}
    measured = lab.measure(TASK, runs, (Table(), TestWords(), Moved()), steps=STEPS)
    assert set(measured.variables) == set(trained.trajectory.variables)
    for name in ("table", "test_word", "moved", "diverged_at"):
        expected = trained.trajectory[name]
        assert measured[name].dims == expected.dims
        np.testing.assert_allclose(measured[name], expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(measured["loss"], trained.trajectory["loss"], rtol=1e-5)
    assert measured["step"].values.tolist() == list(STEPS)


def test_one_run_on_a_corpus_in_chunks(lab: Lab):
    models = [WordTable(jnp.full((12, 2), at) * jnp.asarray([1.0, 0.0])) for at in (0.0, 1.0)]
    measured = lab.measure(Sentences(), models, (SplitLoss(),), chunk=2)
    assert measured["step"].values.tolist() == [0, 1]
    # Labels 0, 1, 0: with logits (1, 0) their mean cross-entropy.
    entropy = np.log1p(np.exp(np.asarray([-1.0, 1.0, -1.0]))).mean()
    np.testing.assert_allclose(measured["validation_loss"][0], [np.log(2), entropy], rtol=1e-6)


def test_a_module_without_a_loss_takes_a_function(lab: Lab):
    models = [eqx.nn.Linear(2, 2, key=jax.random.key(seed)) for seed in (0, 1)]

    def loss(model: eqx.nn.Linear, batch: Any) -> Any:
        return jnp.sum(model.weight**2)

    measured = lab.measure(TASK, models, (), loss=loss)
    squares = [float(jnp.sum(model.weight**2)) for model in models]
    np.testing.assert_allclose(measured["loss"][0], squares, rtol=1e-6)
    with pytest.raises(ConfigError, match=r"got a Linear without a loss, allowed: .*`loss=`"):
        lab.measure(TASK, models, ())


def test_a_model_that_is_not_finite_is_marked(lab: Lab):
    models = [WordTable(jnp.full((14, 2), value)) for value in (1.0, np.nan, 2.0)]
    measured = lab.measure(TASK, models, (Table(),), steps=(10, 20, 30))
    assert measured["diverged_at"].values.tolist() == [20]
    assert np.isfinite(measured["loss"].values).tolist() == [[True, False, True]]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"steps": (0, 8, 4)}, "steps: got 4 after 8, allowed: ascending steps; sort the models"),
        ({"steps": (0, 4, 4)}, "steps: got 4 after 4, allowed: ascending steps"),
        ({"steps": (0, 4)}, "steps: got .0, 4., allowed: a whole number for each of the 3 models"),
        ({"again": 1}, r"those of steps 0 and 8 \(seed 5\) have equal weights, .* saved twice\?"),
        ({"other": 1}, "seed 5, step 4 and of seed 5, step 8 differ in structure or shapes"),
        ({"models": []}, "models: got none, allowed: a list of Equinox modules, or a dict of such"),
        ({"models": ["a"]}, "models: got a list with the type str, allowed: a list of Equinox"),
    ],
)
def test_checkpoints_that_make_no_sense_are_named(lab: Lab, trained, change, problem):
    models = change.get("models", checkpoints(trained, 5))
    if "again" in change:
        models = [*models[:2], models[0]]
    if "other" in change:
        models = [*models[:2], WordTable(jnp.zeros((3, 2)))]
    with pytest.raises(ConfigError, match=problem):
        lab.measure(TASK, {5: models}, (Table(),), steps=change.get("steps", STEPS))


def test_examples_are_evaluated_in_chunks(lab: Lab):
    seen = []

    def spying(model: WordTable, batch: Any) -> Any:
        seen.append(batch.size)
        return model.loss(batch)

    lab.measure(Sentences(), [WordTable(jnp.ones((12, 2)))], (), loss=spying, chunk=5)
    assert set(seen) == {4}, "twelve sentences, at most five at a time: evenly"
