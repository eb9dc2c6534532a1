"""Trainings that start from another one: whose weights, which sweeps, what stays the new
training's own, what is refused.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jaxtyping import Array, Bool, PRNGKeyArray
from word_table import (
    Labels,
    RidgedConfig,
    RidgedTable,
    Table,
    WordList,
    WordTableConfig,
    nothing,
    squares,
    without_seconds,
)

from saccade.contracts.task import Batch
from saccade.errors import ConfigError, InterruptedTrainingError
from saccade.probes.motion import Displacements
from saccade.records.schedule import Every
from saccade.train.lab import Lab
from saccade.train.members import initial_model
from saccade.train.optimiser import Adam, GradientDescent
from saccade.train.recipe import Recipe
from saccade.train.start import Seeds
from saccade.train.training import TrainedArm
from saccade.workers.progress import Progress

RECIPE = Recipe(WordList(), WordTableConfig(), GradientDescent(0.5), 10, probes=(Table(),))


def train(
    lab: Lab,
    steps: int = 10,
    seeds: int | Sequence[int] | Seeds = 4,
    *,
    sweep: Mapping[str, Sequence[float]] | None = None,
    start: TrainedArm | None = None,
    after: TrainedArm | None = None,
    **changes: Any,
) -> TrainedArm:
    """The training that most tests share, with changes of its recipe: four members, so two per
    device.
    """
    recipe = dataclasses.replace(RECIPE, steps=steps, **changes)
    return lab.train(recipe, seeds, sweep=sweep, start=start, after=after)


def numbers(training: TrainedArm) -> xr.Dataset:
    """The trajectory without what tells trainings apart: attributes, and the coordinates that count
    from the start.
    """
    return training.trajectory.drop_attrs(deep=False).drop_vars(("step", "time"))


@pytest.fixture(scope="module")
def first(lab: Lab) -> TrainedArm:
    return train(lab)


# -- going on --------------------------------------------------------------------------------------


def test_training_from_another_goes_on_with_the_same_bits(lab: Lab, first: TrainedArm):
    """Plain descent on the whole set remembers nothing but the weights: 10 steps and 10 more,
    three times, are 30.
    """
    second = train(lab, start=first)
    third = train(lab, start=second)
    whole = numbers(train(lab, 30))
    for place, part in enumerate((first, second, third)):
        xr.testing.assert_identical(numbers(part), whole.isel(step=[place, place + 1]))
    np.testing.assert_array_equal(third.models.table, whole["table"].isel(step=-1))
    assert not np.allclose(
        whole["table"].isel(step=1), whole["table"].isel(step=2)
    )  # something moved


def test_steps_and_time_count_from_the_new_start(lab: Lab, first: TrainedArm):
    second = train(lab, start=first).trajectory
    np.testing.assert_array_equal(second["step"], [0, 10])
    np.testing.assert_array_equal(second["time"], [0, 5])


def test_no_steps_from_another_are_its_end(lab: Lab, first: TrainedArm):
    np.testing.assert_array_equal(
        train(lab, 0, start=first).trajectory["table"], first.trajectory["table"].isel(step=[-1])
    )


def test_start_answered_from_the_cache_starts_the_same_training(lab: Lab, first: TrainedArm):
    second, again = train(lab, start=first), train(lab, start=train(lab))
    assert again.digest == second.digest
    xr.testing.assert_identical(
        without_seconds(again.trajectory), without_seconds(second.trajectory)
    )


def test_start_is_part_of_the_digest(lab: Lab, first: TrainedArm):
    other = train(lab, 20)
    trainings = [train(lab, start=start) for start in (None, first, other)]
    assert len({training.digest for training in trainings}) == 3
    ends = np.stack([training.models.table for training in trainings])
    assert not any(np.allclose(ends[one], ends[other]) for one, other in ((0, 1), (0, 2), (1, 2)))


def test_another_task_may_follow(lab: Lab, first: TrainedArm):
    second = train(lab, task=WordList(first_label=1), start=first).trajectory.isel(step=0)
    np.testing.assert_array_equal(second["table"], first.models.table)
    right, wrong = (
        first.models.table[:, range(8), [(word + one) % 2 for word in range(8)]] for one in (1, 0)
    )
    np.testing.assert_allclose(
        second["loss"], np.mean(np.log1p(np.exp(wrong - right)), axis=1), rtol=1e-5
    )


WILD = GradientDescent(1e6)
"""Multiplies the table by 1 - 1e6 per step, where the loss is half its squared norm."""


def test_members_that_had_diverged_start_diverged(lab: Lab):
    wild = train(lab, loss=squares, optimiser=WILD)
    assert np.all(wild.trajectory["diverged_at"] > 0)
    second = train(lab, start=wild, loss=squares, optimiser=WILD).trajectory
    assert np.all(second["diverged_at"] == 0)
    assert np.all(np.isnan(second["table"]))


def test_start_of_another_precision_is_trained_in_the_labs_own(
    lab: Lab, precise_lab: Lab, first: TrainedArm
):
    precise = train(precise_lab, start=first)
    np.testing.assert_array_equal(precise.trajectory["table"].isel(step=0), first.models.table)
    assert {precise.trajectory[name].dtype for name in ("table", "loss")} == {np.dtype(np.float64)}
    assert np.any(precise.models.table != precise.models.table.astype(np.float32))
    rounded = train(lab, start=precise)
    assert rounded.trajectory["table"].dtype == np.float32
    np.testing.assert_array_equal(
        rounded.trajectory["table"].isel(step=0), precise.models.table.astype(np.float32)
    )


# -- edited weights --------------------------------------------------------------------------------


def doubled(model: Any) -> Any:
    return eqx.tree_at(lambda one: one.table, model, 2 * model.table)


def test_edited_weights_are_those_with_which_another_training_begins(lab: Lab, first: TrainedArm):
    edited = first.edited(doubled)
    second = train(lab, start=edited)
    np.testing.assert_array_equal(second.trajectory["table"].isel(step=0), 2 * first.models.table)
    np.testing.assert_array_equal(edited.model(seed=3).table, 2 * first.model(seed=3).table)
    unedited = train(lab, start=first)
    np.testing.assert_array_equal(unedited.trajectory["table"].isel(step=0), first.models.table)
    assert not np.allclose(second.models.table, unedited.models.table)


def test_every_member_is_edited_by_itself(lab: Lab, swept: TrainedArm):
    """The function sees the model of one member: here it takes away its own mean."""

    def centred(model: Any) -> Any:
        assert model.table.shape == (8, 2)
        return eqx.tree_at(lambda one: one.table, model, model.table - model.table.mean())

    second = train(lab, 0, seeds=(1,), start=swept.edited(centred))
    begun, ended = start_of(second), end_of(swept)
    rounding = 16 * 2**-23 * float(abs(ended).max())  # of a sum of sixteen numbers in float32
    np.testing.assert_allclose(begun, ended - ended.mean(["word", "label"]), atol=rounding)


def test_edited_trainings_can_be_edited_and_have_the_precision_of_the_first(precise_lab: Lab):
    precise = train(precise_lab)
    again = precise.edited(doubled).edited(doubled)
    assert again.models.table.dtype == np.float64
    np.testing.assert_array_equal(again.models.table, 4 * precise.models.table)


def test_a_training_from_edited_weights_is_found_in_the_cache(lab: Lab, first: TrainedArm):
    notes: list[str] = []
    watched = Lab(lab.folder, progress=lambda progress: notes.append(progress.note))
    edited = first.edited(doubled)
    second = train(watched, 7, start=edited)
    assert not any("cache" in note for note in notes)
    again = train(watched, 7, start=train(lab).edited(doubled))
    assert "from the cache" in notes[-1]
    assert again.digest == second.digest != train(lab, 7, start=first).digest
    xr.testing.assert_identical(
        without_seconds(again.trajectory), without_seconds(second.trajectory)
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table[:4],
        lambda table: table[None],
        lambda table: table.astype(int),
        lambda table: (table, table),
        lambda table: 0.0,
        lambda table: None,
    ],
    ids=["shape", "another dim", "type", "two", "a number", "nothing"],
)
def test_a_model_of_another_structure_is_refused(change: Any, first: TrainedArm):
    def edit(model: Any) -> Any:
        return eqx.tree_at(lambda one: one.table, model, change(model.table))

    with pytest.raises(ConfigError, match="edited: got a model of another structure"):
        first.edited(edit)


def test_an_edited_training_has_no_state_to_go_on_from(lab: Lab):
    kept = train(lab, keep_state=True)
    train(lab, 1, after=kept)
    with pytest.raises(ConfigError, match="got a training without its last state"):
        train(lab, 1, after=kept.edited(doubled))


# -- which member starts which ---------------------------------------------------------------------


def test_seeds_find_their_own_weights_in_any_order(lab: Lab, first: TrainedArm):
    turned = train(lab, 0, seeds=(3, 1, 0, 2), start=first)
    np.testing.assert_array_equal(turned.models.table, first.models.table[[3, 1, 0, 2]])


@pytest.fixture(scope="module")
def swept(lab: Lab) -> TrainedArm:
    """Two standard deviations x two rates of one seed, all of them different in the end."""
    training = train(
        lab, seeds=(1,), sweep={"model.table_std": (0.5, 2.0), "optimiser.rate": (0.1, 0.3)}
    )
    assert len(np.unique(training.models.table.round(4), axis=0)) == 4
    return training


def end_of(training: TrainedArm) -> xr.DataArray:
    return training.trajectory["table"].isel(step=-1).drop_vars(("step", "time"))


def start_of(training: TrainedArm) -> xr.DataArray:
    return training.trajectory["table"].isel(step=0).drop_vars(("step", "time"))


def test_sweeps_of_the_start_come_along(lab: Lab, swept: TrainedArm):
    second = train(lab, 5, seeds=(1,), start=swept)
    assert second.trajectory["loss"].dims == ("table_std", "rate", "seed", "step")
    xr.testing.assert_identical(start_of(second), end_of(swept))
    # The values are where the members come from, not what they train with: all have the new rate.
    np.testing.assert_array_equal(second.trajectory["time"], 0.5 * second.trajectory["step"])


def test_sweeps_of_both_are_matched_by_value_and_new_ones_multiply(lab: Lab, swept: TrainedArm):
    """The second training really has its rates, in another order; the share is new."""
    sweep = {"task.share": (0.1, 0.2), "optimiser.rate": (0.3, 0.1)}
    second = train(lab, 5, seeds=(1,), sweep=sweep, loss=squares, start=swept)
    begun, ended = start_of(second), end_of(second)
    assert begun.dims[:4] == ("share", "rate", "table_std", "seed")
    for share in (0.1, 0.2):
        same = begun.sel(share=share, drop=True).transpose(*end_of(swept).dims)
        xr.testing.assert_identical(same, end_of(swept).sel(rate=[0.3, 0.1]))
    for rate in (0.3, 0.1):
        # Closed form; five products in float32 lose at most 5 x 2^-23.
        np.testing.assert_allclose(
            ended.sel(rate=rate), (1 - rate) ** 5 * begun.sel(rate=rate), rtol=2e-6
        )


# -- seeds from another number ---------------------------------------------------------------------


def test_a_count_of_seeds_may_begin_with_another_number():
    assert Seeds(3).numbers == (0, 1, 2)
    assert Seeds(3, first=1000).numbers == (1000, 1001, 1002)
    assert Seeds(2, first=2**32 - 2).numbers == (2**32 - 2, 2**32 - 1)
    assert Seeds((9, 4)).numbers == (9, 4)
    assert Seeds(2, first=1000, data=7, order=(3, 4)).apart() == {"data": (7, 7), "order": (3, 4)}


@pytest.mark.parametrize(
    ("of", "first"),
    [
        (3, -1),
        (3, 2**32),
        (3, 1.5),
        (3, True),
        (3, "1000"),
        (3, None),
        ((4, 9), 1000),
        ((4, 9), -1),
        (range(3), 1000),
    ],
)
def test_impossible_first_number_is_refused(of: Any, first: Any):
    with pytest.raises(ConfigError) as refusal:
        Seeds(of, first=first)
    assert str(refusal.value) == (
        f"first: got {first!r}, allowed: a whole number from 0; with a list of seeds, which has "
        "its own first one, 0"
    )


@pytest.mark.parametrize(("of", "first"), [(0, 1000), (3, 2**32 - 2)])
def test_no_seed_and_a_last_one_that_is_too_large_are_refused(of: int, first: int):
    with pytest.raises(ConfigError, match=r"seeds: got .*, allowed: a count of at least 1, or"):
        Seeds(of, first=first)


def test_members_from_another_number_are_those_of_the_same_list(lab: Lab):
    counted = train(lab, seeds=Seeds(4, first=1000))
    fresh = dataclasses.replace(lab, fresh=True)
    for numbers_in_full in ((1000, 1001, 1002, 1003), range(1000, 1004)):
        listed = train(fresh, seeds=numbers_in_full)
        assert listed.digest == counted.digest
        xr.testing.assert_identical(
            without_seconds(counted.trajectory), without_seconds(listed.trajectory)
        )
        np.testing.assert_array_equal(counted.models.table, listed.models.table)
    assert counted.trajectory["seed"].values.tolist() == [1000, 1001, 1002, 1003]
    for seed in (1000, 1003):
        drawn = initial_model(WordList(), WordTableConfig(), seed).table
        table = counted.trajectory["table"].sel(seed=seed).isel(step=0)
        np.testing.assert_allclose(table, drawn, rtol=1e-6)


def test_first_number_is_that_of_the_member_whose_start_or_state_is_taken(lab: Lab):
    kept = train(lab, seeds=(1000, 1001), keep_state=True)
    begun = train(lab, 0, seeds=Seeds(1, first=1001), start=kept)
    np.testing.assert_array_equal(begun.models.table, kept.models.table[1:])
    further = train(lab, 10, seeds=Seeds(2, first=1000), after=kept)
    np.testing.assert_array_equal(further.trajectory["step"], [10, 20])
    with pytest.raises(ConfigError, match=r"after: got members .*\[1001, 1002\]"):
        train(lab, 10, seeds=Seeds(2, first=1001), after=kept)


# -- what is taken over ----------------------------------------------------------------------------


def test_initial_model_of_a_moment_is_the_given_start(lab: Lab, first: TrainedArm):
    probes = (Table(), Displacements(("table",)))
    second = train(lab, probes=probes, at=Every(2), start=first).trajectory
    table, displacement = (
        second[name].transpose("step", "seed", ...) for name in ("table", "displacement")
    )
    np.testing.assert_array_equal(table[0], first.models.table)
    np.testing.assert_array_equal(displacement[0], 0)
    way = np.linalg.norm(table - table[0], axis=(2, 3))
    np.testing.assert_allclose(displacement.sel(part="table"), way, rtol=1e-5)
    # A fresh draw would have shown: it lies elsewhere.
    assert np.all(
        np.linalg.norm(first.models.table - first.trajectory["table"].isel(step=0), axis=(1, 2))
        > 0.1
    )


@dataclasses.dataclass(frozen=True)
class SelfTaughtConfig(WordTableConfig):
    """Labels are those of the member's own start."""

    def relabelled(self, task: Any, start: Any, batch: Any, key: PRNGKeyArray) -> Any:
        return Batch(
            batch.words, jnp.argmax(start.table, axis=1)[batch.words[:, 0]].astype(jnp.int32)
        )


def test_targets_that_a_start_sets_are_those_of_the_given_one(lab: Lab, first: TrainedArm):
    turned = train(
        lab, 1, loss=squares, optimiser=WILD
    )  # the table that the seed drew, turned round
    labels = train(lab, 0, model=SelfTaughtConfig(), probes=(Labels(),), start=turned).trajectory
    drawn = first.trajectory["table"].isel(step=0)
    for name in ("train_label", "test_label"):
        np.testing.assert_array_equal(labels[name].isel(step=0), drawn.argmin("label"))


class MaskedTable(RidgedTable):
    """A ridged table with a mask."""

    counts: Bool[Array, " word"]

    def trainable(self) -> Any:
        return MaskedTable(True, False, False)  # pyright: ignore[reportArgumentType] (booleans stand for the arrays)


@dataclasses.dataclass(frozen=True)
class MaskedConfig(RidgedConfig):
    words: int = 8
    """How many words count: the first ones."""

    def build(self, task: Any, key: PRNGKeyArray) -> MaskedTable:
        ridged = super().build(task, key)
        return MaskedTable(
            ridged.table, ridged.strength, jnp.arange(task.vocabulary_size) < self.words
        )


def test_real_numbers_come_along_whether_they_learn_or_not_and_masks_do_not(lab: Lab):
    """The other training's ridge shrinks the table, by 1 - 0.5 x 0.2 per step."""
    all_words = train(lab, model=MaskedConfig(strength=0.2), loss=nothing)
    few_words = train(lab, model=MaskedConfig(strength=0.1, words=4), loss=nothing, start=all_words)
    models = few_words.models
    np.testing.assert_array_equal(
        few_words.trajectory["table"].isel(step=0), all_words.models.table
    )
    np.testing.assert_array_equal(models.counts, np.tile(np.arange(8) < 4, (4, 1)))
    np.testing.assert_array_equal(models.strength, np.full(4, 0.2, np.float32))
    # Ten products in float32 lose at most 10 x 2^-23.
    np.testing.assert_allclose(models.table, 0.9**10 * all_words.models.table, rtol=3e-6)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seeds": (1, 7)}, "start: got seed 1, 7, allowed: those that the other training had, 1"),
        ({"seeds": 2}, "start: got seed 0, 1, allowed: those that the other training had, 1"),
        (
            {"seeds": (1,), "sweep": {"optimiser.rate": (0.1, 0.2)}},
            "start: got rate 0.1, 0.2, allowed: those that the other training had, 0.1, 0.3",
        ),
        (
            {"seeds": (1,), "sweep": {"model.table_std": (1.0,)}},
            "start: got table_std 1, allowed: those that the other training had, 0.5, 2",
        ),
    ],
)
def test_seeds_and_values_that_the_start_lacks_are_refused(
    lab: Lab, swept: TrainedArm, changes: dict[str, Any], message: str
):
    before = sorted(lab.folder.glob("*.training"))
    with pytest.raises(ConfigError) as refusal:
        train(lab, start=swept, **changes)
    assert str(refusal.value) == message
    assert sorted(lab.folder.glob("*.training")) == before


@pytest.mark.parametrize(
    ("changes", "arrays"),
    [
        ({"task": WordList(vocabulary_size=9)}, "[(9, 2)]"),
        ({"model": RidgedConfig()}, "[(8, 2), ()]"),
    ],
    ids=["another dictionary", "one array more"],
)
def test_start_that_does_not_fit_is_refused(
    lab: Lab, first: TrainedArm, changes: dict, arrays: str
):
    before = sorted(lab.folder.glob("*.training"))
    with pytest.raises(ConfigError) as refusal:
        train(lab, start=first, **changes)
    expected = (
        "start: got a model with arrays [(8, 2)], allowed: one with the arrays of this one,"
        f" {arrays}"
    )
    assert str(refusal.value) == expected
    assert sorted(lab.folder.glob("*.training")) == before


# -- stopping --------------------------------------------------------------------------------------


def test_stopped_training_goes_on_from_its_state_and_not_from_the_start(
    lab: Lab, first: TrainedArm, tmp_path: Path
):
    """With Adam, which has moments to keep; the other training was done in another folder."""
    recipe = dataclasses.replace(RECIPE, optimiser=Adam(0.1), steps=30)
    unbroken = lab.train(recipe, 4, start=first)
    asked = iter([False, False, True])
    message = r"stopped training at step [1-9]\d* of 30; the same command goes on from there"
    stopping = Lab(tmp_path, progress=None, asked_to_stop=lambda: next(asked))
    with pytest.raises(InterruptedTrainingError, match=message):
        stopping.train(recipe, 4, start=first)
    heard: list[Progress] = []
    resumed = Lab(tmp_path, progress=heard.append).train(recipe, 4, start=first)
    assert heard[0].step > 2
    assert resumed.digest == unbroken.digest
    xr.testing.assert_identical(
        without_seconds(resumed.trajectory), without_seconds(unbroken.trajectory)
    )
    np.testing.assert_array_equal(resumed.models.table, unbroken.models.table)
