"""The smallest training: one weight, which moves to the mean word of two sentences."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from saccade.contracts.model import AbstractModel, AbstractModelConfig, Output
from saccade.contracts.task import AbstractTask, Batch
from saccade.records.schedule import Every
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe
from saccade.train.training import TrainedArm


@dataclasses.dataclass(frozen=True)
class Zeros(AbstractTask):
    train_size: int = 2
    test_size: int = 2

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        del key
        return Batch(jnp.zeros((size, 1), jnp.int32), jnp.zeros(size, jnp.int32))


class Weight(AbstractModel):
    """One number, which is drawn to the mean word of the batch."""

    weight: Float[Array, ""]

    def __call__(self, batch: Batch) -> Output:
        return Output(jnp.full((len(batch.labels), 1), self.weight), jnp.ones(batch.words.shape))

    def loss(self, batch: Batch) -> Float[Array, ""]:
        return jnp.mean((self.weight - batch.words) ** 2)


@dataclasses.dataclass(frozen=True)
class WeightConfig(AbstractModelConfig):
    start: float = 1.0

    def build(self, task: Any, key: PRNGKeyArray) -> Weight:
        del task
        return Weight(self.start + 0.1 * jax.random.uniform(key))


RECIPE = Recipe(Zeros(), WeightConfig(), GradientDescent(0.1), 2, at=Every(1))
"""Two steps."""


def train(
    lab: Lab,
    seeds: int | Sequence[int] = 1,
    sweep: Mapping[str, Sequence[float]] | None = None,
    start: TrainedArm | None = None,
    **changes: Any,
) -> TrainedArm:
    """Train the recipe, with some changes of its fields."""
    return lab.train(dataclasses.replace(RECIPE, **changes), seeds, sweep=sweep, start=start)
