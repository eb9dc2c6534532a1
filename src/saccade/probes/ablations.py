"""What attention is worth: the loss without it, a layer or a head at a time."""

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array

from saccade.contracts.chunks import evenly
from saccade.contracts.probe import Moment
from saccade.contracts.task import SPLITS
from saccade.errors import ConfigError
from saccade.models.encoder import EncoderConfig
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable
from saccade.settings import require, require_count


@dataclasses.dataclass(frozen=True)
class Ablations(AbstractModelProbe):
    """Loss with uniform attention in each layer, and without each head, on evenly spaced examples;
    and the loss as it is on the same ones. A pass for each. For models with `ablated`.
    """

    split: str = "test"
    """The examples: train, validation or test."""
    examples: int = 64
    """The most examples."""

    models: ClassVar = (EncoderConfig,)
    variables: ClassVar = {
        "whole_loss": Variable((), "loss on the examples of the ablations", "nat"),
        "uniform_loss": Variable(("layer",), "loss with the layer's attention made uniform", "nat"),
        "all_uniform_loss": Variable((), "loss with the attention of all layers uniform", "nat"),
        "removed_loss": Variable(("layer", "head"), "loss without the head", "nat"),
    }

    def __post_init__(self):
        require(self, "split", ", ".join(SPLITS), SPLITS.__contains__)
        require_count(self, "examples")

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(examples=4), super().example()[1]

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model, batch = moment.model, evenly(moment.split(self.split), self.examples)
        if not hasattr(model, "ablated"):
            raise ConfigError(
                f"Ablations: got {type(model).__name__}, allowed: a model with `ablated`, such as "
                "the encoder"
            )
        layers, heads = model.ablated_shape
        uniform = [moment.loss_of(model.ablated(layer), batch) for layer in range(layers)]
        every = model
        for layer in range(layers):
            every = every.ablated(layer)
        removed = [
            [moment.loss_of(model.ablated(layer, head), batch) for head in range(heads)]
            for layer in range(layers)
        ]
        return {
            "whole_loss": moment.loss_of(model, batch),
            "uniform_loss": jnp.stack(uniform),
            "all_uniform_loss": moment.loss_of(every, batch),
            "removed_loss": jnp.stack([jnp.stack(row) for row in removed]),
        }
