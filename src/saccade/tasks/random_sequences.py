"""Sequences of Gaussian vectors with Gaussian targets (Song, Han, Zhang, Ding & Hong 2024).

N sequences of n vectors of dimension D with entries N(0, variance / D). Each vector has p random
targets, so the question is whether training can fit them. Example, n = 2, D = 3, p = 1:

    [[0.3, -1.1, 0.7], [0.2, 0.9, -0.4]] -> [[0.8], [-0.1]]

`dimension` can be swept. Vectors are stored in `width` numbers, of which the
last width - dimension are zero. The weights for these have no effect: this is exactly the task of
the smaller dimension.
"""

import dataclasses
from typing import Protocol, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from saccade.contracts.task import AbstractBatch, AbstractTask
from saccade.settings import require_count, require_finite, require_positive


class HasVectors(Protocol):
    """A task whose examples are sequences of vectors, each with some targets."""

    @property
    def width(self) -> int: ...
    @property
    def dimension(self) -> int: ...
    @property
    def outputs(self) -> int: ...
    @property
    def active(self) -> Float[Array, " feature"]: ...


class Sequences(AbstractBatch):
    """Sequences of vectors, and the targets of every vector."""

    inputs: Float[Array, "*member sequence position feature"]
    targets: Float[Array, "*member sequence position output"]


@dataclasses.dataclass(frozen=True)
class RandomSequences(AbstractTask):
    """Gaussian sequences and targets."""

    train_size: int = 6
    """Sequences to fit (N)."""
    test_size: int = 1
    """Sequences in the test set; one is enough, because random targets do not generalise."""
    positions: int = 4
    """Vectors per sequence (n)."""
    width: int = 16
    """Stored numbers per vector: the largest dimension."""
    dimension: int = 16
    """Dimension of the vectors (D), a whole number up to the width."""
    outputs: int = 1
    """Targets per vector (p)."""
    input_variance: float = 4.0
    """Mean squared norm of a vector: entries have this variance divided by D."""
    target_std: float = 1.0
    """Standard deviation of the targets."""

    def __post_init__(self):
        require_count(self, "train_size", "test_size", "positions", "width", "outputs")
        allowed = f"a whole number from 1 to the width, {self.width}"
        require_count(self, "dimension", most=self.width, allowed=allowed)
        require_positive(self, "input_variance")
        require_finite(self, "target_std")

    @classmethod
    def example(cls) -> Self:
        return cls(train_size=5, test_size=2, positions=3, width=4, dimension=3, outputs=2)

    @property
    def active(self) -> Float[Array, " feature"]:
        """1 for the features in use, 0 for the rest of the width."""
        return (jnp.arange(self.width) < self.dimension).astype(jnp.zeros(()).dtype)

    def sample(self, key: PRNGKeyArray, size: int) -> Sequences:
        input_key, target_key = jax.random.split(key)
        spread = self.active * jnp.sqrt(self.input_variance / self.dimension)
        inputs = jax.random.normal(input_key, (size, self.positions, self.width))
        targets = jax.random.normal(target_key, (size, self.positions, self.outputs))
        return Sequences(spread * inputs, self.target_std * targets)
