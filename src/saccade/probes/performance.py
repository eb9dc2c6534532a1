"""Accuracy of a classifier, and the loss, on the examples of some splits."""

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array

from saccade.contracts.model import Output
from saccade.contracts.probe import Moment
from saccade.contracts.task import SPLITS, Batch
from saccade.errors import ConfigError
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.convolutional_classifier import ConvolutionalClassifierConfig
from saccade.models.encoder import EncoderConfig
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable

TITLES = {"train": "training", "validation": "validation", "test": "test"}


@dataclasses.dataclass(frozen=True)
class AbstractSplitProbe(AbstractModelProbe):
    """A probe with one number per split, which is part of the variable's name."""

    models: ClassVar = (
        AttentionClassifierConfig,
        ConvolutionalClassifierConfig,
        RecurrentClassifierConfig,
        EncoderConfig,
    )
    splits: tuple[str, ...]
    """Splits: some of train, validation and test."""

    def __post_init__(self):
        known = isinstance(self.splits, tuple | list) and set(self.splits) <= set(SPLITS)
        if not known or not self.splits or len(set(self.splits)) < len(self.splits):
            raise ConfigError(
                f"splits: got {self.splits!r}, allowed: some of {', '.join(SPLITS)}, each once; "
                f'write {type(self).__name__}(("test",))'
            )

    @property
    @abstractmethod
    def variables(self) -> Mapping[str, Variable]: ...  # pyright: ignore[reportIncompatibleVariableOverride]


@dataclasses.dataclass(frozen=True)
class Accuracy(AbstractSplitProbe):
    """Share of sentences whose largest logit is that of their label."""

    splits: tuple[str, ...] = ("train", "test")
    """Splits: some of train, validation and test."""

    @property
    def variables(self) -> Mapping[str, Variable]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {
            f"{split}_accuracy": Variable(
                (), f"share of {TITLES[split]} sentences classified correctly"
            )
            for split in self.splits
        }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {
            f"{split}_accuracy": _accuracy(moment.output(split), moment.split(split))
            for split in self.splits
        }


@dataclasses.dataclass(frozen=True)
class Losses(AbstractSplitProbe):
    """The loss on other examples than those of training, in chunks if training has them."""

    splits: tuple[str, ...] = ("validation", "test")
    """Splits: some of train, validation and test."""

    @property
    def variables(self) -> Mapping[str, Variable]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return {
            f"{split}_loss": Variable(
                (), f"loss on the {TITLES[split]} set (including the model's penalty)"
            )
            for split in self.splits
        }

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(("train", "test")), super().example()[1]

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {f"{split}_loss": moment.loss_on(split) for split in self.splits}


def _accuracy(output: Output, batch: Batch) -> Array:
    wrong = jnp.mean(jnp.argmax(output.logits, axis=-1) != batch.labels)
    return 1 - wrong  # exactly 1 without an error; the mean of ones need not be in float32
