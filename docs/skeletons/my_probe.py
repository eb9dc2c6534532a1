"""Skeleton of a probe: score, value and attention of the marked words.

A probe is a pure function of one moment of one member's training. The lab vectorises it over seeds
and swept values, and runs it within the compiled training loop.
"""

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from my_model import WordAttentionConfig
from my_task import MARKED

from saccade import AbstractModelConfig, AbstractProbe, AbstractTask, Moment, Variable


@dataclasses.dataclass(frozen=True)
class MarkedWords(AbstractProbe):
    """Score, value and received attention of every marked word."""

    # Dims after sweeps, seed and step; the text labels the axes of plots. All of it is checked
    # before the first step of a training.
    variables: ClassVar = {
        "score": Variable(("word",), "score of the marked word"),
        "value": Variable(("word",), "absolute value of the marked word"),
        "attention": Variable(("word",), "attention to it, mean over its training sentences"),
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[tuple[AbstractModelConfig, AbstractTask], ...]]:
        """A probe, and small models with their tasks on which it works."""
        return cls(), (WordAttentionConfig.example(),)

    def coordinates(self, task: AbstractTask) -> dict[str, tuple[str, Any]]:
        """Coordinates of the dims: name -> (dim, values)."""
        del task
        return {"word": ("word", np.arange(MARKED))}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        # A moment has task, model, train, test, loss, gradient, train_output, test_output and
        # initial. Whatever no probe uses is not computed.
        first, marked = moment.train.words[:, 0], jnp.arange(MARKED)
        contains = first[:, None] == marked  # sentence x word
        received = jnp.sum(contains * moment.train_output.attention[:, :1], axis=0)
        return {
            "score": moment.model.scores[marked],
            "value": jnp.abs(moment.model.values[marked]),
            "attention": received / jnp.maximum(contains.sum(axis=0), 1),
        }
