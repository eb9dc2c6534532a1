"""Streams of fresh examples, and targets that a member's own start sets."""

import dataclasses
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
import xarray as xr
from word_table import (
    DrawnNumbers,
    Labels,
    Table,
    TaughtConfig,
    WordTableConfig,
    label_visits,
    visits,
    without_seconds,
)

from saccade.errors import InterruptedTrainingError
from saccade.records.schedule import AtSteps, Every
from saccade.train.batches import Fresh, Minibatch
from saccade.train.lab import Lab
from saccade.train.members import initial_model, purpose_key, training_set
from saccade.train.optimiser import Adam, GradientDescent
from saccade.train.recipe import Recipe
from saccade.train.training import TrainedArm
from saccade.workers.progress import Progress

TASK = DrawnNumbers()
SIZE, STEPS = 8, 12
RECIPE = Recipe(
    TASK,
    WordTableConfig(0.0),
    GradientDescent(1.0),
    STEPS,
    probes=(Table(),),
    at=Every(1),
    batches=Fresh(SIZE),
    loss=visits,
)
"""Counts the words of its batches: a step at rate 1 adds 1 to the row of every example."""


def train(lab: Lab, seeds: int | Sequence[int] = 4, **changes: Any) -> TrainedArm:
    """Train the recipe, with some changes of its fields."""
    return lab.train(dataclasses.replace(RECIPE, **changes), seeds)


def words_of_step(seed: int, step: int) -> np.ndarray:
    """The examples that a seed sees at a step: those of the task, with the step's own key."""
    key = jax.random.fold_in(purpose_key(seed, "order"), step)
    return np.asarray(TASK.sample(key, SIZE).words[:, 0])


def counts(training: TrainedArm) -> xr.DataArray:
    return training.trajectory["table"].isel(label=0)


@pytest.fixture(scope="module")
def streamed(lab: Lab) -> TrainedArm:
    return train(lab)


def test_every_step_sees_the_examples_that_its_key_draws(streamed: TrainedArm):
    seen = counts(streamed).diff("step")
    for seed in range(4):
        for step in range(STEPS):
            expected = np.bincount(words_of_step(seed, step), minlength=TASK.vocabulary_size)
            np.testing.assert_array_equal(seen.sel(seed=seed, step=step + 1), expected)


def test_examples_are_new_at_every_step_and_for_every_seed(streamed: TrainedArm):
    """Of 384 draws from 4000 words, 18 pairs are expected to be equal; of a training set of 24,
    all would be.
    """
    seen = int((counts(streamed).isel(step=-1).sum("seed") > 0).sum())
    assert (
        384 - 18 - 4 * 18**0.5 < seen <= 384
    )  # four standard deviations of a Poisson number of pairs
    for seed in range(4):
        known = np.asarray(training_set(TASK, seed).words)
        assert np.isin(words_of_step(seed, 0), known).sum() < SIZE


def test_the_training_set_only_measures(streamed: TrainedArm):
    """The recorded loss is that of the fixed training set: minus the visits to its words, in
    both columns.
    """
    table, loss = streamed.trajectory["table"].sum("label"), streamed.trajectory["loss"]
    for seed in range(4):
        known = np.asarray(training_set(TASK, seed).words)[:, 0]
        np.testing.assert_array_equal(
            loss.sel(seed=seed), -table.sel(seed=seed).values[:, known].sum(axis=1)
        )
    assert np.any(loss < 0)


def test_a_seed_sees_the_same_stream_in_any_company_and_on_any_schedule(
    lab: Lab, streamed: TrainedArm
):
    alone = train(lab, seeds=(2,), at=AtSteps((5,)))
    np.testing.assert_array_equal(
        counts(alone).sel(seed=2), counts(streamed).sel(seed=2, step=[0, 5, STEPS])
    )
    longer = train(lab, seeds=(3, 0, 2, 1), steps=20, at=AtSteps((7, STEPS)))
    shared = [0, 7, STEPS]
    np.testing.assert_array_equal(
        counts(longer).sel(seed=range(4), step=shared), counts(streamed).sel(step=shared)
    )


def test_batches_may_be_larger_than_the_training_set(lab: Lab):
    large = train(lab, steps=1, batches=Fresh(60), seeds=2)
    assert np.all(counts(large).isel(step=-1).sum("word") == 60)


def interrupting_at(step: int):
    def interrupt(event: Progress) -> None:
        if event.step >= step and not event.finished:
            os.kill(os.getpid(), signal.SIGINT)

    return interrupt


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_stream_goes_on_to_the_same_bits(lab: Lab, tmp_path: Path):
    recipe = dataclasses.replace(RECIPE, optimiser=Adam(0.1), steps=60, at=Every(10))
    whole = lab.train(recipe, 4)
    own = Lab(tmp_path, progress=None)
    with pytest.raises(InterruptedTrainingError, match=r"at step \d+ of 60"):
        dataclasses.replace(own, progress=interrupting_at(20)).train(recipe, 4)
    resumed = own.train(recipe, 4)
    assert without_seconds(resumed.trajectory).identical(without_seconds(whole.trajectory))
    assert np.any(whole.trajectory["table"].isel(step=-1) != whole.trajectory["table"].sel(step=20))


# -- targets of a start or a teacher ---------------------------------------------------------------

TAUGHT = TaughtConfig()


@pytest.fixture(scope="module")
def taught(lab: Lab) -> TrainedArm:
    return train(lab, model=TAUGHT, probes=(Table(), Labels()), loss=label_visits, steps=3)


def labels_of_words(seed: int) -> np.ndarray:
    """What a member's start and its teacher say about every word, drawn by hand."""
    start = initial_model(TASK, TAUGHT, seed)
    turned = jax.random.bernoulli(purpose_key(seed, "label"), 0.5, (TASK.vocabulary_size,))
    return np.asarray(start.table).argmax(axis=1) ^ np.asarray(turned)


def test_targets_are_those_of_the_members_own_start(taught: TrainedArm):
    for seed in range(4):
        labels = labels_of_words(seed)
        train_words = np.asarray(training_set(TASK, seed).words)[:, 0]
        test_words = np.asarray(TASK.sample(purpose_key(seed, "evaluation"), TASK.test_size).words)[
            :, 0
        ]
        np.testing.assert_array_equal(
            taught.trajectory["train_label"].sel(seed=seed, step=0), labels[train_words]
        )
        np.testing.assert_array_equal(
            taught.trajectory["test_label"].sel(seed=seed, step=3), labels[test_words]
        )
    assert len({labels_of_words(seed).tobytes() for seed in range(4)}) == 4


def test_streamed_examples_have_the_same_teacher(taught: TrainedArm):
    moved = (taught.trajectory["table"] - taught.trajectory["table"].isel(step=0)).round()
    for seed in range(4):
        labels = labels_of_words(seed)
        expected = np.zeros((TASK.vocabulary_size, 2))
        for step in range(3):
            words = words_of_step(seed, step)
            np.add.at(expected, (words, labels[words]), 1)
        np.testing.assert_array_equal(moved.sel(seed=seed, step=3), expected)


def test_minibatches_have_the_same_teacher(lab: Lab):
    """An epoch of minibatches visits every word of the training set once, under its teacher's
    label.
    """
    moved = train(
        lab, model=TAUGHT, loss=label_visits, steps=3, batches=Minibatch(SIZE)
    ).trajectory["table"]
    for seed in range(4):
        words = np.asarray(training_set(TASK, seed).words)[:, 0]
        expected = np.zeros((TASK.vocabulary_size, 2))
        np.add.at(expected, (words, labels_of_words(seed)[words]), 1)
        np.testing.assert_array_equal(
            (moved.sel(seed=seed, step=3) - moved.sel(seed=seed, step=0)).round(), expected
        )
