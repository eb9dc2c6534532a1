"""Accuracy and loss on any split."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.model import Output, cross_entropy
from saccade.contracts.probe import Moment
from saccade.contracts.task import Batch
from saccade.errors import ConfigError
from saccade.probes.performance import Accuracy, Losses

RANDOM = np.random.default_rng(2)
LOGITS = jnp.asarray(RANDOM.normal(size=(7, 3)), jnp.float32)


def model(batch: Any) -> Output:
    """The logits of a word."""
    return Output(LOGITS[batch.words[:, 0]])


def loss(model: Any, batch: Batch) -> Any:
    return cross_entropy(model(batch).logits, batch.labels)


def sentences(size: int) -> Batch:
    words, labels = RANDOM.integers(0, 7, (size, 1)), RANDOM.integers(0, 3, size)
    return Batch(jnp.asarray(words, jnp.int32), jnp.asarray(labels, jnp.int32))


SPLITS = {"train": sentences(20), "validation": sentences(11), "test": sentences(8)}


def moment(chunk: int | None = None, **left_out: Any) -> Moment:
    splits = SPLITS | left_out
    train, validation, test = (splits[one] for one in ("train", "validation", "test"))
    return Moment(None, model, train, test, loss, lambda: model, validation, chunk)


def share_of(batch: Batch) -> float:
    best = np.asarray(LOGITS)[np.asarray(batch.words)[:, 0]].argmax(1)
    return float(np.mean(best == np.asarray(batch.labels)))


@pytest.mark.parametrize("chunk", [None, 3])
def test_accuracy_of_every_split(chunk):
    ours = Accuracy(("train", "validation", "test"))(moment(chunk))
    assert set(ours) == {"train_accuracy", "validation_accuracy", "test_accuracy"}
    for split, batch in SPLITS.items():
        assert float(ours[f"{split}_accuracy"]) == pytest.approx(share_of(batch), rel=1e-6)


@pytest.mark.parametrize("chunk", [None, 3])
def test_losses_of_other_splits(chunk):
    ours = Losses()(moment(chunk))
    assert set(ours) == {"validation_loss", "test_loss"} == set(Losses().variables)
    for split in ("validation", "test"):
        expected = float(loss(model, SPLITS[split]))
        assert float(ours[f"{split}_loss"]) == pytest.approx(expected, rel=1e-6)


def test_accuracy_is_of_training_and_test_unless_told_otherwise():
    probe = Accuracy()
    assert list(probe.variables) == ["train_accuracy", "test_accuracy"]
    texts = [variable.long_name for variable in probe.variables.values()]
    assert texts == [
        f"share of {one} sentences classified correctly" for one in ("training", "test")
    ]
    assert set(probe(moment(validation=None))) == set(probe.variables)


def test_a_split_that_the_task_does_not_have_is_refused():
    with pytest.raises(
        ConfigError, match=r"^split: got 'validation', allowed: those that the task"
    ):
        Accuracy(("validation",))(moment(validation=None))


@pytest.mark.parametrize("splits", [(), ("dev",), ("test", "test"), "test"])
def test_splits_are_checked(splits):
    for kind in (Accuracy, Losses):
        with pytest.raises(ConfigError, match=r"^splits: got .* allowed: some of train, validatio"):
            kind(splits)
