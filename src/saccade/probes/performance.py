"""How well a model does: accuracy on the training and the test set."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from saccade.core.interfaces import AbstractProbe, Batch, Moment, Output, Variable


@dataclasses.dataclass(frozen=True)
class Accuracy(AbstractProbe):
    """Share of sentences whose largest logit is the right one."""

    variables: ClassVar = {
        "train_accuracy": Variable((), "share of training sentences classified rightly"),
        "test_accuracy": Variable((), "share of test sentences classified rightly"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {
            "train_accuracy": _accuracy(moment.train_output, moment.train),
            "test_accuracy": _accuracy(moment.test_output, moment.test),
        }


def _accuracy(output: Output, batch: Batch) -> Array:
    wrong = jnp.mean(jnp.argmax(output.logits, axis=-1) != batch.labels)
    return 1 - wrong  # exactly 1 without an error, which the mean of ones need not be in float32
