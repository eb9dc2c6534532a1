"""Early stopping: per member, at recorded steps, with the best weights kept."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from word_table import Table, WordList, WordTableConfig, squares, without_seconds

from saccade.contracts.probe import AbstractProbe, Moment
from saccade.errors import ConfigError, InterruptedTrainingError
from saccade.records.schedule import Every
from saccade.records.variable import Variable
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe
from saccade.train.stopping import EarlyStopping
from saccade.train.training import TrainedArm
from saccade.workers.progress import Progress

RATE = 0.1


@dataclasses.dataclass(frozen=True)
class Distance(AbstractProbe):
    """How far the largest entry has come to a goal that it passes: smallest when it is there."""

    goal: float = 0.4

    variables: ClassVar = {"distance": Variable((), "distance to the goal")}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"distance": jnp.abs(jnp.max(jnp.abs(moment.model.table)) - self.goal)}


RECIPE = Recipe(
    WordList(),
    WordTableConfig(),
    GradientDescent(RATE),
    200,
    probes=(Distance(), Table()),
    at=Every(2),
    ends=(Distance(),),
    loss=squares,
    stopping=EarlyStopping("distance", patience=8),
)
"""Every step multiplies the table by 0.9: it passes the goal, sooner or later by seed."""


def stopping_by(stopping: EarlyStopping) -> Recipe:
    return dataclasses.replace(RECIPE, stopping=stopping)


@pytest.fixture(scope="module")
def unstopped(lab: Lab) -> TrainedArm:
    return lab.train(stopping_by(EarlyStopping("distance", patience=1000)))


@pytest.fixture(scope="module")
def stopped(lab: Lab) -> TrainedArm:
    return lab.train(RECIPE)


def test_each_member_stops_after_its_own_best_step(stopped: TrainedArm, unstopped: TrainedArm):
    distance = unstopped.trajectory["distance"]
    best = distance["step"].values[distance.argmin("step").values]
    assert len(set(best.tolist())) > 1, "the seeds differ"
    np.testing.assert_array_equal(stopped.trajectory["best_step"], best)
    np.testing.assert_array_equal(stopped.trajectory["stopped_at"], best + 8)
    np.testing.assert_array_equal(unstopped.trajectory["stopped_at"], -1)


def test_models_and_snapshots_have_the_best_weights(stopped: TrainedArm, unstopped: TrainedArm):
    for seed, best in enumerate(stopped.trajectory["best_step"].values):
        table = unstopped.trajectory["table"].sel(seed=seed, step=best)
        np.testing.assert_array_equal(stopped.models.table[seed], table)
        np.testing.assert_array_equal(stopped.model(seed=seed).table, table)
    last = stopped.snapshot["distance"].isel(step=-1)
    np.testing.assert_allclose(last, unstopped.trajectory["distance"].min("step"), rtol=1e-6)


def test_training_ends_with_the_last_member_and_others_are_marked(
    stopped: TrainedArm, unstopped: TrainedArm
):
    record, ends = stopped.trajectory, stopped.trajectory["stopped_at"]
    assert record["step"].values[-1] == ends.max() < 200
    going = record["step"] <= ends
    kept = record["table"].where(going)
    whole = unstopped.trajectory["table"].sel(step=record["step"]).where(going)
    np.testing.assert_array_equal(kept, whole)
    assert bool(record["distance"].isnull().equals(~going.transpose("seed", "step")))


def test_the_display_says_where_training_stopped(tmp_path, stopped: TrainedArm):
    last = int(stopped.trajectory["stopped_at"].max())
    for _ in range(2):  # the second time from the cache
        said: list[Progress] = []
        Lab(tmp_path, progress=said.append).train(RECIPE)
        assert f"stopped early, at step {last}" in str(said[-1])


def test_the_largest_can_be_best_and_small_gains_do_not_count(lab: Lab):
    """The table shrinks, so the distance to 0 is largest at the start, and falls by a tenth."""
    to_zero = dataclasses.replace(RECIPE, probes=(Distance(0.0),), ends=())
    by_the_largest = EarlyStopping("distance", 6, "largest")
    largest = lab.train(dataclasses.replace(to_zero, stopping=by_the_largest))
    np.testing.assert_array_equal(largest.trajectory["best_step"], 0)
    np.testing.assert_array_equal(largest.trajectory["stopped_at"], 6)
    by_gains = EarlyStopping("distance", 6, gain=0.05)
    falling = lab.train(dataclasses.replace(to_zero, steps=100, stopping=by_gains))
    size = falling.trajectory["distance"]
    for seed, best in enumerate(falling.trajectory["best_step"].values):
        values = size.sel(seed=seed)
        reference = float(values.sel(step=best))
        later = values.where(values["step"] > best, drop=True)
        assert np.all(later.dropna("step") > reference - 0.05)


def test_chunks_and_interruptions_change_nothing(tmp_path, stopped: TrainedArm):
    chunked = Lab(tmp_path / "chunked", progress=None, chunk=2).train(RECIPE)
    assert len(list((tmp_path / "chunked").glob("*.training"))) == 3
    for name in ("table", "best_step", "stopped_at"):
        np.testing.assert_allclose(chunked.trajectory[name], stopped.trajectory[name], rtol=1e-6)
    np.testing.assert_allclose(chunked.models.table, stopped.models.table, rtol=1e-6)

    with Lab(tmp_path / "elsewhere", progress=None, chunk=2, scheduler="local:2") as lab:
        elsewhere = lab.train(RECIPE)
    for name in ("table", "best_step", "stopped_at"):
        np.testing.assert_allclose(elsewhere.trajectory[name], stopped.trajectory[name], rtol=1e-6)
    np.testing.assert_allclose(elsewhere.models.table, stopped.models.table, rtol=1e-6)

    asked = iter([False] * 2 + [True] * 100)
    lab = Lab(tmp_path / "broken", progress=None, asked_to_stop=lambda: next(asked))
    with pytest.raises(InterruptedTrainingError):
        lab.train(RECIPE)
    resumed = Lab(tmp_path / "broken", progress=None).train(RECIPE)
    assert without_seconds(resumed.trajectory).identical(without_seconds(stopped.trajectory))
    assert resumed.snapshot.identical(stopped.snapshot)
    np.testing.assert_array_equal(resumed.models.table, stopped.models.table)


def test_a_stopped_training_comes_from_the_cache(lab: Lab, stopped: TrainedArm):
    heard: list[Progress] = []
    again = dataclasses.replace(lab, progress=heard.append).train(RECIPE)
    assert [event.note for event in heard] == ["from the cache"]
    assert without_seconds(again.trajectory).identical(without_seconds(stopped.trajectory))
    later = lab.train(stopping_by(EarlyStopping("distance", 10)))
    assert again.digest == stopped.digest != later.digest


@dataclasses.dataclass(frozen=True)
class Sound(AbstractProbe):
    """1 from the step on at which the weights are not finite: what an accuracy may become."""

    variables: ClassVar = {"sound": Variable((), "whether some weight is not finite")}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"sound": jnp.any(~jnp.isfinite(moment.model.table)).astype(float)}


def test_weights_that_are_not_finite_are_never_the_best(lab: Lab):
    """A step of 1e30 overflows: the next recorded step measures infinite weights."""
    recipe = Recipe(
        WordList(),
        WordTableConfig(),
        GradientDescent(1e30),
        20,
        probes=(Sound(),),
        at=Every(1),
        loss=squares,
        stopping=EarlyStopping("sound", patience=4, best="largest"),
    )
    training = lab.train(recipe, 2)
    np.testing.assert_array_equal(training.trajectory["best_step"], 0)
    assert np.all(np.isfinite(training.models.table))
    assert np.all(training.trajectory["diverged_at"] > 0)


def test_quantities_that_cannot_be_watched_are_refused(lab: Lab):
    known = "distance, loss"
    for quantity in ("validation_loss", "table", "diverged_at"):
        wanted = f"stopping: got the quantity '{quantity}', allowed: .*{known}"
        with pytest.raises(ConfigError, match=wanted):
            lab.train(stopping_by(EarlyStopping(quantity)))
    with pytest.raises(ConfigError, match="patience: got 0, allowed: a whole number"):
        EarlyStopping(patience=0)
    with pytest.raises(ConfigError, match="stopping: got 100, allowed: EarlyStopping"):
        stopping_by(100)  # pyright: ignore[reportArgumentType]


def test_a_training_that_ends_where_it_began_has_one_end(lab: Lab):
    """All members diverge in the first step."""
    recipe = Recipe(
        WordList(),
        WordTableConfig(1e30),
        GradientDescent(1.0),
        8,
        at=Every(4),
        loss=squares,
        stopping=EarlyStopping("loss", patience=4),
    )
    training = lab.train(recipe, 2)
    np.testing.assert_array_equal(training.trajectory["diverged_at"], 0)
    assert training.snapshot["step"].values.tolist() == [0]
