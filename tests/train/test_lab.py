"""`Lab.train`: members, recipes by name, lengths, keys, minibatches, divergence, cache and the
files that hold it.
"""

import dataclasses
import errno
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from word_table import (
    TASK,
    NumberedExamples,
    NumberedNumbers,
    Table,
    TestWords,
    WordList,
    WordTable,
    WordTableConfig,
    example_curvature,
    matched_visits,
    squares,
    visits,
)

import saccade.train.engine
import saccade.train.prepared
from saccade.contracts.task import Batch
from saccade.errors import ConfigError, FileError, InterruptedTrainingError
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.records.schedule import AtSteps, Every, Logarithmic
from saccade.train.batches import AbstractBatches, Fresh, Minibatch
from saccade.train.engine import Engine
from saccade.train.identity import training_digest
from saccade.train.lab import Lab
from saccade.train.members import PURPOSES, purpose_key, training_set
from saccade.train.optimiser import Adam, GradientDescent, GradientFlow
from saccade.train.recipe import Recipe
from saccade.train.storage import read_state, write_state
from saccade.train.training import TrainedArm
from saccade.workers.progress import Progress

WORDS = WordList(vocabulary_size=24, train_size=24)
RECIPE = Recipe(WORDS, WordTableConfig(), GradientDescent(0.5), 60, probes=(Table(),))


def train(
    lab: Lab,
    steps: int = 60,
    seeds: int | Sequence[int] = 4,
    *,
    sweep: Mapping[str, Sequence[float]] | None = None,
    **changes: Any,
) -> TrainedArm:
    """The training that most tests share, with changes of its recipe: four members, so two per
    device.
    """
    return lab.train(dataclasses.replace(RECIPE, steps=steps, **changes), seeds, sweep=sweep)


def state_file(lab: Lab, training: TrainedArm) -> Path:
    return lab.folder / f"{training.digest[:24]}.training"


def same_bits(first: xr.Dataset, second: xr.Dataset) -> bool:
    """Whether two datasets are the same numbers, NaN for NaN, whichever training they are of."""
    first, second = first.drop_attrs(deep=False), second.drop_attrs(deep=False)
    return first.identical(second) and all(
        first[name].dtype == second[name].dtype for name in first.variables
    )


@pytest.fixture(scope="module")
def plain(lab: Lab) -> TrainedArm:
    return train(lab)


# -- members ---------------------------------------------------------------------------------------


def test_attention_member_in_an_ensemble_equals_the_same_seed_alone(lab: Lab):
    recipe = Recipe(TASK, AttentionClassifierConfig("FC", 4, 0.1), GradientDescent(0.5), 60)
    ensemble, alone = lab.train(recipe, 5), lab.train(recipe, (2,))
    # Not bit-equal: three members per device and one alone are compiled to different programs,
    # which sum in different orders.
    xr.testing.assert_allclose(ensemble.trajectory.sel(seed=[2]), alone.trajectory, rtol=1e-5)
    for part in ("embeddings", "score_table"):
        np.testing.assert_allclose(
            getattr(ensemble.models, part)[2], getattr(alone.models, part)[0], rtol=1e-5, atol=1e-6
        )
    assert float(alone.trajectory["loss"][0, -1]) < 0.9 * float(alone.trajectory["loss"][0, 0])


def test_adding_a_member_changes_no_other_member(lab: Lab, plain: TrainedArm):
    # Three members are padded to four, so both ensembles run the same program: bit-equal.
    fewer = train(lab, seeds=(0, 1, 2))
    assert same_bits(plain.trajectory.sel(seed=[0, 1, 2]), fewer.trajectory)


def test_order_of_seeds_changes_no_member(lab: Lab, plain: TrainedArm):
    assert same_bits(
        train(lab, seeds=(3, 1, 0, 2)).trajectory.sel(seed=[0, 1, 2, 3]), plain.trajectory
    )


def test_seeds_start_and_end_in_different_places(plain: TrainedArm):
    for step in (0, -1):
        tables = plain.trajectory["table"].isel(step=step).values
        assert len(np.unique(tables.round(4), axis=0)) == 4


@pytest.mark.parametrize(
    ("path", "values", "changed"),
    [
        ("optimiser.rate", (0.25, 0.5), lambda value: {"optimiser": GradientDescent(value)}),
        pytest.param(
            "task.leak",
            (0.2, 0.6),
            lambda value: {"task": dataclasses.replace(TASK, leak=value)},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_swept_member_equals_a_separate_run(
    lab: Lab, path: str, values: tuple[float, ...], changed: Callable[[float], dict]
):
    name = path.partition(".")[2]
    swept = train(lab, task=TASK, seeds=(0, 1), sweep={path: values}).trajectory
    assert swept["loss"].dims == (name, "seed", "step")
    np.testing.assert_array_equal(swept[name], values)
    value = values[1]
    separate = train(lab, **({"task": TASK, "seeds": (0, 1)} | changed(value))).trajectory
    # Other programs (a swept value is an argument, a plain one a constant), so equal up to rounding
    # only. The paths agree to 1e-5 of the largest entry; small entries are differences of large
    # ones.
    xr.testing.assert_allclose(
        swept.sel({name: value}).drop_vars(name), separate, rtol=1e-5, atol=1e-5
    )
    assert not np.allclose(swept["loss"].isel({name: 0})[:, -1], separate["loss"][:, -1], rtol=1e-2)


def test_two_sweeps_make_a_grid_with_time_along_the_rate(lab: Lab):
    sweep = {"model.table_std": (0.5, 2.0), "optimiser.rate": (0.25, 0.5)}
    trajectory = train(lab, seeds=(0,), sweep=sweep).trajectory
    assert trajectory["loss"].dims == ("table_std", "rate", "seed", "step")
    np.testing.assert_array_equal(
        trajectory["time"].transpose("rate", "step"), np.outer((0.25, 0.5), trajectory["step"])
    )
    start = trajectory["table"].isel(step=0, seed=0)
    np.testing.assert_allclose(start.sel(table_std=2.0), 4 * start.sel(table_std=0.5), rtol=1e-6)


def test_sweeps_of_two_fields_of_one_name_are_a_grid_under_their_whole_paths(lab: Lab):
    sweep = {"optimiser.rate": (0.25, 0.5), "model.rate": (0.25, 0.5)}
    trajectory = train(lab, seeds=(0,), sweep=sweep).trajectory
    assert trajectory["loss"].dims == ("model.rate", "optimiser.rate", "seed", "step")
    start = trajectory["table"].isel(step=0, seed=0)
    np.testing.assert_allclose(start[1], 2 * start[0], rtol=1e-6)
    assert trajectory["time"].dims == ("optimiser.rate", "step")
    ends = trajectory["loss"].isel(step=-1).values
    assert len(np.unique(ends.round(5))) == 4


def test_models_are_those_of_the_last_step(plain: TrainedArm):
    np.testing.assert_array_equal(plain.models.table, plain.trajectory["table"].isel(step=-1))


# -- recipes by name -------------------------------------------------------------------------------

SHORT = dataclasses.replace(RECIPE, steps=20)


def test_recipes_by_name_give_arms_by_name_in_their_order(lab: Lab, plain: TrainedArm):
    heard: list[Progress] = []
    recipes = {"short": SHORT, "long": RECIPE}
    arms = dataclasses.replace(lab, progress=heard.append).train(recipes, 4)
    assert list(arms) == list(dict.fromkeys(event.name for event in heard)) == ["short", "long"]
    for name, alone in (("short", lab.train(SHORT, 4)), ("long", plain)):
        assert arms[name].recipe is recipes[name]
        assert arms[name].digest == alone.digest
        assert same_bits(arms[name].trajectory, alone.trajectory)


def test_a_start_is_one_arm_for_all_recipes_or_one_by_name(lab: Lab, plain: TrainedArm):
    def first_tables(start: TrainedArm | dict[str, TrainedArm]) -> list[np.ndarray]:
        arms = lab.train({"first": SHORT, "second": SHORT}, 4, start=start)
        assert list(arms) == ["first", "second"]
        return [arm.trajectory["table"].isel(step=0).values for arm in arms.values()]

    other, drawn = lab.train(SHORT, 4), plain.trajectory["table"].isel(step=0).values
    np.testing.assert_array_equal(first_tables(plain), [plain.models.table, plain.models.table])
    both = first_tables({"second": other, "first": plain})
    np.testing.assert_array_equal(both, [plain.models.table, other.models.table])
    # Without a start of its own, a recipe's members begin with the weights that their seeds draw.
    np.testing.assert_array_equal(first_tables({"second": other}), [drawn, other.models.table])


def test_recipes_go_on_after_one_arm_or_after_arms_by_name(lab: Lab, plain: TrainedArm):
    before = {
        name: lab.train(dataclasses.replace(RECIPE, steps=steps, keep_state=True), 4)
        for name, steps in (("first", 10), ("second", 20))
    }
    named = lab.train({"first": SHORT, "second": SHORT}, 4, after=before)
    shared = lab.train({"first": SHORT, "second": SHORT}, 4, after=before["second"])
    for arm, steps in (
        (named["first"], [10, 20, 30]),
        (named["second"], [20, 30, 40]),
        (shared["first"], [20, 30, 40]),
        (shared["second"], [20, 30, 40]),
    ):
        np.testing.assert_array_equal(arm.trajectory["step"], steps)
        np.testing.assert_array_equal(
            arm.trajectory["table"], plain.trajectory["table"].sel(step=steps)
        )


@pytest.mark.parametrize("argument", ["start", "after"])
def test_arm_for_an_unknown_recipe_is_refused(lab: Lab, plain: TrainedArm, argument: str):
    arms: Any = {argument: {"first": plain, "third": plain}}
    with pytest.raises(ConfigError) as refusal:
        lab.train({"first": SHORT, "second": SHORT}, 4, **arms)
    assert str(refusal.value) == f"{argument}: got third, allowed: first, second"
    with pytest.raises(ConfigError) as refusal:
        lab.train(SHORT, 4, **arms)
    expected = f"{argument}: got the type dict, allowed: a TrainedArm, or None"
    assert str(refusal.value) == expected


@pytest.mark.parametrize(
    ("recipes", "got"),
    [
        ({}, "{}"),
        ("plain", "'plain'"),
        ({"plain": WORDS}, "'plain' with the type WordList"),
        ({"plain": RECIPE, "other": Recipe}, "'other' with the type type"),
        ({1: RECIPE}, "1 with the type Recipe"),
    ],
    ids=["none", "a text", "a task", "a class", "a number"],
)
def test_what_is_no_recipe_is_refused(tmp_path: Path, recipes: Any, got: str):
    with pytest.raises(ConfigError) as refusal:
        Lab(tmp_path, progress=None).train(recipes)
    assert str(refusal.value) == (
        f"recipes: got {got}, allowed: a Recipe, or recipes by name such as "
        '{"attention": Recipe(...)}'
    )
    assert not list(tmp_path.iterdir()), "nothing is trained before the last recipe is checked"


def test_title_stands_before_names_of_arms(lab: Lab, plain: TrainedArm):
    heard: list[Progress] = []
    watched = dataclasses.replace(lab, progress=heard.append)

    def shown() -> list[str]:
        watched.train({"FC": RECIPE}, 4)
        watched.train(RECIPE, 4)
        names = [event.name for event in heard]
        heard.clear()
        return names

    assert shown() == ["FC", "training"]
    with watched.titled("sen"):
        assert shown() == ["sen FC", "sen"]
        with watched.titled("sen_sst"):
            assert shown() == ["sen_sst FC", "sen_sst"]
        assert watched.title == "sen"
    assert shown() == ["FC", "training"]


def test_title_ends_with_an_error(tmp_path: Path):
    lab = Lab(tmp_path, title="before")
    with pytest.raises(ZeroDivisionError), lab.titled("sen"):
        _ = 1 / 0
    assert lab.title == "before"


# -- lengths and schedules -------------------------------------------------------------------------


@pytest.mark.parametrize("at", [Every(1), Logarithmic(7), AtSteps((7, 10, 20, 33, 60))])
def test_longer_run_passes_through_the_numbers_of_the_shorter(lab: Lab, plain: TrainedArm, at):
    longer = train(lab, 101, at=at).trajectory
    shared = np.intersect1d(longer["step"], plain.trajectory["step"])
    assert shared.size >= 2
    assert same_bits(longer.sel(step=shared), plain.trajectory.sel(step=shared))


@pytest.mark.usefixtures("interruptible")
def test_what_one_dispatch_holds_changes_no_number(
    plain: TrainedArm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = []
    advance = Engine.advance

    def counted(*arguments):
        moved, found = advance(*arguments)
        rows.append(len(found["loss"]))
        return moved, found

    monkeypatch.setattr(Engine, "advance", counted)
    # Of one of the two devices.
    row = sum(plain.trajectory[name].isel(step=0).nbytes for name in ("table", "loss")) // 2
    monkeypatch.setattr(saccade.train.engine, "ROWS", 3 * row)
    tight = train(Lab(tmp_path, progress=None)).trajectory
    assert set(rows) == {2}  # the numbers of `diverged_at` leave room for two recorded steps
    assert same_bits(tight, plain.trajectory)
    with pytest.raises(InterruptedTrainingError):
        train(Lab(tmp_path / "again", progress=interrupting_at(20)))
    assert same_bits(train(Lab(tmp_path / "again", progress=None)).trajectory, plain.trajectory)


def test_no_steps_gives_the_start(lab: Lab, plain: TrainedArm):
    nothing = train(lab, 0)
    np.testing.assert_array_equal(nothing.trajectory["step"], [0])
    np.testing.assert_array_equal(
        nothing.trajectory["table"], plain.trajectory["table"].isel(step=[0])
    )


def test_snapshots_are_taken_at_the_first_and_the_last_step(lab: Lab, plain: TrainedArm):
    training = train(lab, ends=(Table(),))
    np.testing.assert_array_equal(training.snapshot["step"], [0, 60])
    np.testing.assert_array_equal(
        training.snapshot["table"], plain.trajectory["table"].sel(step=[0, 60])
    )


def test_training_without_snapshots_has_the_loss_at_both_ends_and_nothing_else(
    lab: Lab, plain: TrainedArm
):
    assert set(plain.snapshot.data_vars) == {"loss", "diverged_at"}
    np.testing.assert_array_equal(plain.snapshot["step"], [0, 60])
    assert same_bits(plain.snapshot, plain.trajectory[["loss", "diverged_at"]].sel(step=[0, 60]))
    nothing = train(lab, 0).snapshot
    assert set(nothing.data_vars) == {"loss", "diverged_at"}
    np.testing.assert_array_equal(nothing["step"], [0])


@pytest.mark.parametrize("steps", [-1, 2.5, "many", True])
def test_impossible_step_count_is_refused(lab: Lab, steps):
    with pytest.raises(ConfigError, match=r"steps: got .* allowed: a whole number, at least 0"):
        train(lab, steps)


@pytest.mark.parametrize("seeds", [0, (), (1, 1), (-1,), (2**32,), "many", None])
def test_impossible_seeds_are_refused(lab: Lab, seeds):
    with pytest.raises(ConfigError, match="seeds: got"):
        train(lab, seeds=seeds)


@pytest.mark.parametrize("path", ["rate", "optimiser", "optimiser.momentun", "device.rate"])
def test_unknown_sweep_is_refused_with_what_is_allowed(lab: Lab, path: str):
    with pytest.raises(ConfigError, match=r"no such number, allowed: .*(rate|optimiser)"):
        train(lab, sweep={path: (0.1, 0.2)})


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_another_test_size_changes_no_training_number(lab: Lab):
    few = train(lab, task=TASK, probes=(Table(), TestWords())).trajectory
    many = train(
        lab, probes=(Table(), TestWords()), task=dataclasses.replace(TASK, test_size=9)
    ).trajectory
    assert not np.array_equal(few["test_word"], many["test_word"])
    assert same_bits(few.drop_vars("test_word"), many.drop_vars("test_word"))


def test_purposes_and_seeds_have_keys_of_their_own():
    keys = {
        tuple(jax.random.key_data(purpose_key(seed, purpose)).tolist())
        for seed in range(8)
        for purpose in PURPOSES
    }
    assert len(keys) == 8 * len(PURPOSES)


def test_seeds_have_data_of_their_own():
    drawn = [np.asarray(training_set(TASK, seed).words) for seed in range(4)]
    assert all(
        not np.array_equal(one, other) for place, one in enumerate(drawn) for other in drawn[:place]
    )


def test_minibatches_change_neither_start_nor_data(lab: Lab, plain: TrainedArm):
    minibatch = train(lab, batches=Minibatch(8)).trajectory
    start = {"step": 0}
    np.testing.assert_array_equal(
        minibatch["table"].sel(start), plain.trajectory["table"].sel(start)
    )
    # The loss is over the whole training set, in another program: equal up to rounding.
    np.testing.assert_allclose(
        minibatch["loss"].sel(start), plain.trajectory["loss"].sel(start), rtol=1e-6
    )
    assert not np.allclose(minibatch["table"][:, -1], plain.trajectory["table"][:, -1], rtol=1e-3)


# -- minibatches -----------------------------------------------------------------------------------


def test_minibatches_visit_every_example_once_per_epoch(lab: Lab):
    training = train(
        lab,
        12,
        task=NumberedExamples(),
        optimiser=GradientDescent(1.0),
        loss=visits,
        batches=Minibatch(8),
        at=Every(1),
    )
    count = (
        (training.trajectory["table"] - training.trajectory["table"].isel(step=0))
        .squeeze("label")
        .round()
    )
    for epoch in range(1, 5):
        assert np.all(count.sel(step=3 * epoch) == epoch)
    batches = count.diff("step")
    assert set(np.unique(batches)) == {0, 1}
    assert np.all(batches.sum("word") == 8)
    first_batches = (
        batches.sel(step=[1, 4, 7, 10]).transpose("seed", "step", "word").values.reshape(-1, 24)
    )
    assert (
        len(np.unique(first_batches, axis=0)) == 16
    )  # four seeds x four epochs, each with an order of its own


def test_minibatches_that_do_not_divide_the_examples_visit_none_twice_per_epoch(lab: Lab):
    training = train(
        lab,
        4,
        task=NumberedExamples(),
        optimiser=GradientDescent(1.0),
        loss=visits,
        batches=Minibatch(10),
        at=Every(2),
    )
    count = training.trajectory["table"].squeeze("label").diff("step").round()
    assert set(np.unique(count)) == {0, 1}
    assert np.all(count.sum("word") == 20)


def test_minibatches_of_another_class_keep_their_examples_whole(lab: Lab):
    training = train(
        lab,
        6,
        task=NumberedNumbers(),
        model=WordTableConfig(0.0),
        optimiser=GradientDescent(1.0),
        loss=matched_visits,
        batches=Minibatch(8),
        at=Every(3),
    )
    count = training.trajectory["table"].squeeze("label")
    for epoch in (0, 1, 2):
        assert np.all(count.sel(step=3 * epoch) == epoch)


def test_minibatch_training_is_deterministic(lab: Lab):
    first = train(lab, batches=Minibatch(8))
    again = train(dataclasses.replace(lab, fresh=True), batches=Minibatch(8))
    assert same_bits(first.trajectory, again.trajectory)


def test_one_batch_of_all_examples_is_full_batch_training(lab: Lab, plain: TrainedArm):
    whole = train(lab, batches=Minibatch(WORDS.train_size)).trajectory
    xr.testing.assert_allclose(whole, plain.trajectory, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [Minibatch, Fresh])
@pytest.mark.parametrize("size", [0, -3, 2.5, "8"])
def test_impossible_batch_size_is_refused(kind: type, size):
    with pytest.raises(ConfigError, match=f"size: got {size!r}, allowed: a whole number, at least"):
        kind(size)


def test_minibatch_that_is_larger_than_the_training_set_is_refused(lab: Lab):
    with pytest.raises(ConfigError) as refusal:
        train(lab, batches=Minibatch(25))
    assert str(refusal.value) == (
        "batches: got Minibatch(25), allowed: at most the 24 training examples"
    )


@pytest.mark.parametrize("batches", [Minibatch(8), Fresh(8)])
def test_gradient_flow_has_no_minibatches(lab: Lab, batches: AbstractBatches):
    with pytest.raises(ConfigError) as refusal:
        train(lab, optimiser=GradientFlow(0.5), batches=batches)
    assert str(refusal.value) == f"batches: got {batches}, allowed: FullBatch() with GradientFlow"


# -- gradient flow ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_gap_between_descent_and_flow_halves_with_the_rate(precise_lab: Lab):
    """Euler's method is of first order: the gap at equal time is proportional to the rate."""
    rates, steps = (0.4, 0.2, 0.1, 0.05), (10, 20, 40, 80)
    descent = train(
        precise_lab, 80, seeds=(0,), sweep={"optimiser.rate": rates}, at=AtSteps(steps)
    ).trajectory["table"]
    flow = (
        train(precise_lab, 10, seeds=(0,), optimiser=GradientFlow(0.4))
        .trajectory["table"]
        .isel(seed=0, step=-1)
    )
    ends = np.stack(
        [descent.sel(rate=rate, step=step, seed=0) for rate, step in zip(rates, steps, strict=True)]
    )
    gaps = np.linalg.norm(ends - flow.values, axis=(1, 2))
    slope = np.polyfit(np.log(rates), np.log(gaps), 1)[0]
    # The next term of the error is of second order: at these rates it bends the slope by a few
    # hundredths.
    assert abs(slope - 1) < 0.1


def test_flow_follows_its_closed_form(precise_lab: Lab):
    """Under half the squared norm the table decays as exp(-time)."""
    flow = train(
        precise_lab, 10, seeds=(0,), optimiser=GradientFlow(0.2), loss=squares, at=Every(2)
    ).trajectory
    decay = flow["table"] / flow["table"].isel(step=0)
    # The solver keeps 1e-6 per step; a handful of steps lead to time 2.
    np.testing.assert_allclose(
        decay.mean(("word", "label")), np.exp(-flow["time"].values)[None], rtol=1e-4
    )


# -- divergence ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def diverging(lab: Lab) -> TrainedArm:
    return train(
        lab,
        40,
        seeds=(0,),
        loss=squares,
        sweep={"optimiser.rate": (0.1, 0.2, 0.5, 1e6)},
        at=Every(1),
    )


def steps_to_infinity(table: np.ndarray, rate: float) -> int:
    """The first step at which the squares of table x (1 - rate)^step no longer fit into a
    float32.
    """
    with np.errstate(over="ignore"):
        finite = [
            np.isfinite(np.sum((table.astype(float) * (1 - rate) ** step).astype(np.float32) ** 2))
            for step in range(40)
        ]
    return finite.index(False)


def test_diverging_member_is_marked_at_its_step(diverging: TrainedArm):
    trajectory = diverging.trajectory.sel(seed=0)
    expected = steps_to_infinity(trajectory["table"].sel(rate=1e6, step=0).values, 1e6)
    np.testing.assert_array_equal(trajectory["diverged_at"], [-1, -1, -1, expected])
    assert 0 < expected < 40


def test_diverged_member_has_numbers_up_to_its_step_and_none_after(diverging: TrainedArm):
    wild = diverging.trajectory.sel(seed=0, rate=1e6)
    end = int(wild["diverged_at"])
    for name in ("loss", "table"):
        values = wild[name].transpose("step", ...).values
        assert np.all(np.isfinite(values[:end]))
        assert np.all(np.isnan(values[end:]))


def test_diverged_member_leaves_its_neighbours_alone(lab: Lab, diverging: TrainedArm):
    # Three members are padded to four: the same number per device, and bit-equal.
    calm = train(
        lab,
        40,
        seeds=(0,),
        loss=squares,
        sweep={"optimiser.rate": (0.1, 0.2, 0.5)},
        at=Every(1),
    ).trajectory
    assert same_bits(diverging.trajectory.sel(rate=[0.1, 0.2, 0.5]), calm)
    factor = (calm["table"] / calm["table"].isel(step=0)).mean(("word", "label")).isel(seed=0)
    for rate in (0.1, 0.2, 0.5):
        # Closed form; 40 products in float32 lose at most 40 x 2^-23 = 5e-6.
        np.testing.assert_allclose(factor.sel(rate=rate), (1 - rate) ** calm["step"], rtol=2e-5)


def test_divergence_in_the_very_last_step_counts(lab: Lab, diverging: TrainedArm):
    last = int(diverging.trajectory["diverged_at"].sel(seed=0, rate=1e6))
    sweep = {"optimiser.rate": (0.1, 0.2, 0.5, 1e6)}
    short = train(lab, last, seeds=(0,), loss=squares, sweep=sweep, at=Every(1), ends=(Table(),))
    for dataset in (short.trajectory, short.snapshot):
        np.testing.assert_array_equal(dataset["diverged_at"].sel(seed=0), [-1, -1, -1, last])
        assert np.all(np.isnan(dataset["table"].sel(rate=1e6, step=last)))
        assert np.all(np.isfinite(dataset["table"].sel(rate=0.5, step=last)))


def test_progress_counts_diverged_members_and_averages_the_others(lab: Lab, diverging: TrainedArm):
    heard: list[Progress] = []
    train(
        dataclasses.replace(lab, progress=heard.append, fresh=True),
        40,
        seeds=(0,),
        loss=squares,
        sweep={"optimiser.rate": (0.1, 0.2, 0.5, 1e6)},
        at=Every(1),
    )
    assert heard[-1].diverged == 1
    assert heard[-1].members == 4
    calm = diverging.trajectory["loss"].isel(step=-1).sel(rate=[0.1, 0.2, 0.5])
    assert heard[-1].loss == pytest.approx(float(calm.mean()), rel=1e-5)


# -- cache and digest ------------------------------------------------------------------------------


def test_second_call_is_answered_from_the_cache(lab: Lab, plain: TrainedArm):
    heard: list[Progress] = []
    before = state_file(lab, plain).stat().st_mtime_ns
    again = train(dataclasses.replace(lab, progress=heard.append))
    assert [(event.note, event.finished) for event in heard] == [("from the cache", True)]
    assert state_file(lab, plain).stat().st_mtime_ns == before
    assert same_bits(again.trajectory, plain.trajectory)
    assert again.seconds == pytest.approx(plain.seconds, abs=1)
    np.testing.assert_array_equal(again.models.table, plain.models.table)


def test_fresh_trains_again_to_the_same_bits(lab: Lab, plain: TrainedArm):
    heard: list[Progress] = []
    again = train(dataclasses.replace(lab, fresh=True, progress=heard.append))
    assert heard[-1].finished
    assert all(event.note == "" for event in heard)
    assert same_bits(again.trajectory, plain.trajectory)


CHANGES = {
    "steps": {"steps": 61},
    "schedule": {"at": Every(20)},
    "seeds": {"seeds": (0, 1, 2, 4)},
    "probes": {"probes": (Table(), TestWords())},
    "ends": {"ends": (Table(),)},
    "minibatches": {"batches": Minibatch(8)},
    "another size": {"batches": Minibatch(4)},
    "fresh examples": {"batches": Fresh(8)},
    "curvature": {"optimiser": GradientDescent(0.5, curvature=example_curvature)},
    "loss": {"loss": squares},
    "rate": {"optimiser": GradientDescent(0.25)},
    "momentum": {"optimiser": GradientDescent(0.5, 0.1)},
    "optimiser": {"optimiser": Adam(0.5)},
    "model": {"model": WordTableConfig(2.0)},
    "task": {"task": dataclasses.replace(WORDS, test_size=9)},
    "sweep": {"sweep": {"task.share": (1.0,)}},
}


class _DigestOnlyError(Exception):
    pass


def digest_of(monkeypatch: pytest.MonkeyPatch, lab: Lab, **changes) -> str:
    """The digest that a training would have, without training."""
    digests: list[str] = []

    def caught(*arguments) -> None:
        digests.append(training_digest(*arguments) or "")
        raise _DigestOnlyError

    with monkeypatch.context() as patch:
        patch.setattr(saccade.train.prepared, "training_digest", caught)
        with pytest.raises(_DigestOnlyError):
            train(lab, **changes)
    return digests[0]


def test_any_change_gives_another_digest(
    lab: Lab, plain: TrainedArm, precise_lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    assert digest_of(monkeypatch, lab) == plain.digest
    digests = {name: digest_of(monkeypatch, lab, **change) for name, change in CHANGES.items()}
    digests["precision"] = digest_of(monkeypatch, precise_lab)
    assert len({plain.digest, *digests.values()}) == len(digests) + 1


def weighted(factor: float):
    def loss(model: WordTable, batch: Batch):
        return factor * model.loss(batch)

    return loss


def test_two_losses_of_one_name_are_not_one_training(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    """Two closures of one function."""
    first, second, again = (
        digest_of(monkeypatch, lab, loss=weighted(factor)) for factor in (1.0, 2.0, 1.0)
    )
    assert first != second
    assert first == again


def test_precision_is_recorded_and_matters(precise_lab: Lab, plain: TrainedArm):
    precise = train(precise_lab)
    assert precise.trajectory["table"].dtype == np.float64
    assert plain.trajectory["table"].dtype == np.float32
    assert np.any(precise.trajectory["loss"].values != plain.trajectory["loss"].values)
    assert jax.numpy.zeros(1).dtype == np.float32  # float64 ends with the training


def test_unknown_precision_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="precision: got 'float16', allowed: float32, float64"):
        Lab(tmp_path, precision="float16")  # pyright: ignore[reportArgumentType]


# -- progress --------------------------------------------------------------------------------------


def test_progress_rises_to_a_finished_event(lab: Lab, plain: TrainedArm):
    heard: list[Progress] = []
    watched = dataclasses.replace(lab, fresh=True, progress=heard.append)
    watched.train({"a small one": RECIPE}, 4)
    steps = [event.step for event in heard]
    assert steps == sorted(steps)
    assert steps[-1] == 60
    assert len(set(steps)) > 3
    assert [event.finished for event in heard] == [False] * (len(heard) - 1) + [True]
    assert {(event.name, event.steps, event.members) for event in heard} == {("a small one", 60, 4)}
    assert heard[-1].loss == pytest.approx(float(plain.trajectory["loss"][:, -1].mean()), rel=1e-5)


def test_result_from_the_cache_says_so_by_default(
    lab: Lab, plain: TrainedArm, capsys: pytest.CaptureFixture[str]
):
    train(Lab(lab.folder))
    assert capsys.readouterr().err == "training: 60 of 60 steps, from the cache\n"


def interrupting_at(step: int):
    def interrupt(event: Progress) -> None:
        if event.step >= step and not event.finished:
            os.kill(os.getpid(), signal.SIGINT)

    return interrupt


@pytest.mark.usefixtures("interruptible")
def test_interrupted_training_goes_on_to_the_same_bits(lab: Lab, plain: TrainedArm, tmp_path: Path):
    own = Lab(tmp_path, progress=None)
    with pytest.raises(
        InterruptedTrainingError,
        match=r"stopped training at step \d+ of 60; the same command goes on from there",
    ):
        train(dataclasses.replace(own, progress=interrupting_at(20)))
    header, _ = read_state(state_file(own, plain))
    assert 20 <= header["step"] < 60
    assert not header["finished"]
    heard: list[Progress] = []
    resumed = train(dataclasses.replace(own, progress=heard.append))
    assert heard[0].step > header["step"]
    assert same_bits(resumed.trajectory, plain.trajectory)
    assert same_bits(resumed.snapshot, plain.snapshot)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("interruptible")
def test_interrupt_in_the_last_moment_is_not_lost(lab: Lab):
    with pytest.raises(InterruptedTrainingError, match="stopped after training, which is finished"):
        train(dataclasses.replace(lab, fresh=True, progress=interrupting_at(60)))


# -- damaged files ---------------------------------------------------------------------------------


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes) -> bytes:
    changed = bytearray(content)
    changed[len(changed) // 3] ^= 4
    return bytes(changed)


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize(
    "damage", [cut, flipped, lambda content: b"", lambda content: b"a letter to the editor" * 20]
)
def test_damaged_state_is_refused_by_name_and_left_alone(
    lab: Lab, plain: TrainedArm, tmp_path: Path, damage, fresh: bool
):
    own = Lab(tmp_path, progress=None, fresh=fresh)
    file = state_file(own, plain)
    content = damage(state_file(lab, plain).read_bytes())
    file.write_bytes(content)
    with pytest.raises(FileError) as refusal:
        train(own)
    assert str(file) in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert file.read_bytes() == content


def test_state_of_another_training_is_refused_by_name(lab: Lab, plain: TrainedArm, tmp_path: Path):
    own = Lab(tmp_path, progress=None)
    file = state_file(own, plain)
    header, arrays = read_state(state_file(lab, plain))
    write_state(file, header | {"digest": "0" * 64}, arrays)
    content = file.read_bytes()
    with pytest.raises(FileError, match="belongs to another training") as refusal:
        train(own)
    assert str(file) in str(refusal.value)
    assert file.read_bytes() == content


def test_state_that_does_not_fit_is_refused_by_name(lab: Lab, plain: TrainedArm, tmp_path: Path):
    own = Lab(tmp_path, progress=None)
    file = state_file(own, plain)
    header, arrays = read_state(state_file(lab, plain))
    wrong = {key: value[:1] if key.startswith("carry:") else value for key, value in arrays.items()}
    write_state(file, header | {"step": 20, "finished": False}, wrong)
    with pytest.raises(FileError, match="does not fit") as refusal:
        train(own)
    assert str(file) in str(refusal.value)


def test_full_disk_ends_training_in_one_sentence(
    plain: TrainedArm, lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    own = Lab(tmp_path, progress=None)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(FileError, match="No space left on device") as refusal:
            train(own)
    assert str(state_file(own, plain)) in str(refusal.value)
    assert not list(tmp_path.glob("*.part")) + list(tmp_path.glob(".*.part"))
    assert same_bits(train(own).trajectory, plain.trajectory)


def test_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path):
    file = tmp_path / "occupied"
    file.write_text("not a folder")
    with pytest.raises(FileError) as refusal:
        train(Lab(file / "cache", progress=None))
    assert str(file) in str(refusal.value)


def test_all_recipes_are_checked_before_the_first_is_trained(tmp_path):
    heard: list[Progress] = []
    wrong = dataclasses.replace(RECIPE, batches=Minibatch(10**6))
    with pytest.raises(ConfigError, match="batches: got Minibatch"):
        Lab(tmp_path, progress=heard.append).train({"right": RECIPE, "wrong": wrong})
    assert heard == []


def test_an_arm_has_the_recipe_as_it_was_trained(lab: Lab):
    plain = lab.train(RECIPE, 2)
    assert plain.recipe is RECIPE
    swept = lab.train(RECIPE, 2, sweep={"optimiser.rate": [0.1, 0.2]})
    assert swept.recipe.optimiser.rate.grid == (0.1, 0.2)
    assert swept.recipe.task is RECIPE.task
