"""Beside the study file `cluster_work`: task and model, which workers must be able to import."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

from saccade import AbstractModelConfig, AbstractTask, Batch


@dataclasses.dataclass(frozen=True)
class Targets(AbstractTask):
    train_size: int = 4
    test_size: int = 2

    def sample(self, key: Any, size: int) -> Batch:
        words = jax.random.randint(key, (size, 2), 1, 9)
        return Batch(words, words[:, 0])


class Slow(eqx.Module):
    weight: jax.Array
    work: int = eqx.field(static=True)

    def loss(self, batch: Batch) -> Any:
        useless = jax.lax.fori_loop(0, self.work, lambda _, x: jnp.sin(x + 1e-3), self.weight)
        return jnp.mean((self.weight - batch.words) ** 2) * 0.01 + 1e-9 * useless


@dataclasses.dataclass(frozen=True)
class SlowConfig(AbstractModelConfig):
    work: int = 10

    def build(self, task: Any, key: Any) -> Slow:
        return Slow(jax.random.normal(key), self.work)
