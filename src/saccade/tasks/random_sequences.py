"""Sequences of Gaussian vectors with Gaussian targets, as in the theory of Song, Han, Zhang, Ding &
Hong (2024).

N sequences of n vectors of dimension D, entries N(0, variance / D); each vector has a target (p
numbers). Nothing is to be learned but these targets, so the question is whether training can fit
them. Example, n = 2, D = 3, p = 1:

    [[0.3, -1.1, 0.7], [0.2, 0.9, -0.4]] -> [[0.8], [-0.1]]

`dimension` is a float that can be swept: vectors are stored in `width` numbers, of which the last
width - dimension are 0. A model's weights for those never matter, so this is exactly the task of
the smaller dimension.
"""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from saccade.core.interfaces import AbstractBatch, AbstractTask
from saccade.core.sweep import require, require_count, require_positive


class Sequences(AbstractBatch):
    """Sequences of vectors, and a target for every vector."""

    inputs: Float[Array, "*member sequence position feature"]
    targets: Float[Array, "*member sequence position output"]


@dataclasses.dataclass(frozen=True)
class RandomSequences(AbstractTask):
    """Gaussian sequences and targets."""

    train_size: int = 6
    """Sequences to fit (N)."""
    test_size: int = 1
    """Sequences in the test set; nothing is to be generalised, so one is enough."""
    positions: int = 4
    """Vectors in a sequence (n)."""
    width: int = 16
    """Numbers stored a vector: the largest dimension."""
    dimension: float = 16.0
    """Dimension of the vectors (D), a whole number up to the width."""
    outputs: int = 1
    """Target numbers a vector (p)."""
    input_variance: float = 4.0
    """Variance of a vector's length: entries have this variance divided by D."""
    target_std: float = 1.0
    """Standard deviation of the targets."""

    def __post_init__(self):
        require_count(self, "train_size", "test_size", "positions", "width", "outputs")
        width = self.width
        require(
            self,
            "dimension",
            f"a whole number from 1 to the width, {width}",
            lambda value: 1 <= value <= width and float(value).is_integer(),
        )
        require_positive(self, "input_variance")
        require(
            self,
            "target_std",
            "a finite number, at least 0",
            lambda value: 0 <= value < float("inf"),
        )

    @property
    def active(self) -> Float[Array, " feature"]:
        """1 for the features that are there, 0 for the rest of the width."""
        return (jnp.arange(self.width) < self.dimension).astype(jnp.zeros(()).dtype)

    def sample(self, key: PRNGKeyArray, size: int) -> Sequences:
        input_key, target_key = jax.random.split(key)
        spread = self.active * jnp.sqrt(self.input_variance / self.dimension)
        inputs = spread * jax.random.normal(input_key, (size, self.positions, self.width))
        targets = self.target_std * jax.random.normal(
            target_key, (size, self.positions, self.outputs)
        )
        return Sequences(inputs, targets)
