"""Streams of fresh examples, and targets that a member's own start sets."""

import dataclasses
import os
import signal
from pathlib import Path

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
)

from saccade.core.batches import Fresh, Minibatch
from saccade.core.lab import Lab, Training
from saccade.core.members import initial_model, purpose_key, training_set
from saccade.core.optimiser import Adam, GradientDescent
from saccade.core.progress import Progress
from saccade.core.recording import Recording
from saccade.errors import InterruptedTrainingError
from saccade.records.schedule import AtSteps, Every

TASK = DrawnNumbers()
EMPTY = WordTableConfig(0.0)
SIZE, STEPS = 8, 12


def train(lab: Lab, **changes) -> Training:
    """Counts the words of its batches: a step at rate 1 adds 1 to the row of every example."""
    settings = {
        "task": TASK,
        "model": EMPTY,
        "optimiser": GradientDescent(1.0),
        "steps": STEPS,
        "record": Recording((Table(),), Every(1)),
        "seeds": 4,
        "batches": Fresh(SIZE),
        "loss": visits,
    }
    return lab.train(**(settings | changes))


def words_of_step(seed: int, step: int) -> np.ndarray:
    """The examples that a seed sees at a step: those of the task, with the step's own key."""
    key = jax.random.fold_in(purpose_key(seed, "order"), step)
    return np.asarray(TASK.sample(key, SIZE).words[:, 0])


def counts(training: Training) -> xr.DataArray:
    return training.trajectory["table"].isel(label=0)


@pytest.fixture(scope="module")
def streamed(lab: Lab) -> Training:
    return train(lab)


def test_every_step_sees_the_examples_that_its_key_draws(streamed: Training):
    seen = counts(streamed).diff("step")
    for seed in range(4):
        for step in range(STEPS):
            expected = np.bincount(words_of_step(seed, step), minlength=TASK.vocabulary_size)
            np.testing.assert_array_equal(seen.sel(seed=seed, step=step + 1), expected)


def test_examples_are_new_at_every_step_and_for_every_seed(streamed: Training):
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


def test_the_training_set_only_measures(streamed: Training):
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
    lab: Lab, streamed: Training
):
    alone = train(lab, seeds=(2,), record=Recording((Table(),), AtSteps((5,))))
    np.testing.assert_array_equal(
        counts(alone).sel(seed=2), counts(streamed).sel(seed=2, step=[0, 5, STEPS])
    )
    longer = train(
        lab, steps=20, record=Recording((Table(),), AtSteps((7, STEPS))), seeds=(3, 0, 2, 1)
    )
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
    changes = {"optimiser": Adam(0.1), "steps": 60, "record": Recording((Table(),))}
    whole = train(lab, **changes)
    own = Lab(tmp_path, progress=None)
    with pytest.raises(InterruptedTrainingError, match=r"at step \d+ of 60"):
        train(dataclasses.replace(own, progress=interrupting_at(20)), **changes)
    resumed = train(own, **changes)
    assert resumed.trajectory.identical(whole.trajectory)
    assert np.any(whole.trajectory["table"].isel(step=-1) != whole.trajectory["table"].sel(step=20))


# -- targets of a start or a teacher ---------------------------------------------------------------

TAUGHT = TaughtConfig()


@pytest.fixture(scope="module")
def taught(lab: Lab) -> Training:
    record = Recording((Table(), Labels()), Every(1))
    return train(lab, model=TAUGHT, record=record, loss=label_visits, steps=3)


def labels_of_words(seed: int) -> np.ndarray:
    """What a member's start and its teacher say about every word, drawn by hand."""
    start = initial_model(TASK, TAUGHT, seed)
    turned = jax.random.bernoulli(purpose_key(seed, "label"), 0.5, (TASK.vocabulary_size,))
    return np.asarray(start.table).argmax(axis=1) ^ np.asarray(turned)


def test_targets_are_those_of_the_members_own_start(taught: Training):
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


def test_streamed_examples_have_the_same_teacher(taught: Training):
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
