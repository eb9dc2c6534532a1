"""Accuracy of a classifier on the training and the test set."""

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array

from saccade.core.interfaces import AbstractProbe, Batch, Moment, Output, Variable
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.convolutional_classifier import ConvolutionalClassifierConfig
from saccade.models.recurrent_classifier import RecurrentClassifierConfig


@dataclasses.dataclass(frozen=True)
class Accuracy(AbstractProbe):
    """Share of sentences whose largest logit is that of their label."""

    variables: ClassVar = {
        "train_accuracy": Variable((), "share of training sentences classified correctly"),
        "test_accuracy": Variable((), "share of test sentences classified correctly"),
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        kinds = AttentionClassifierConfig, ConvolutionalClassifierConfig, RecurrentClassifierConfig
        return cls(), tuple(kind.example() for kind in kinds)

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {
            "train_accuracy": _accuracy(moment.train_output, moment.train),
            "test_accuracy": _accuracy(moment.test_output, moment.test),
        }


def _accuracy(output: Output, batch: Batch) -> Array:
    wrong = jnp.mean(jnp.argmax(output.logits, axis=-1) != batch.labels)
    return 1 - wrong  # exactly 1 without an error; the mean of ones need not be in float32
