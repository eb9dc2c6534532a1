"""Largest eigenvalues of the Hessian of the training loss, along training."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from saccade.contracts.chunks import evenly
from saccade.contracts.probe import Moment
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.encoder import EncoderConfig
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable
from saccade.settings import require_count
from saccade.train.lanczos import hessian_eigenvalues
from saccade.train.members import trainable

PRECISION = "highest"
"""Of matrix products: GPUs round factors to TF32 otherwise, which second derivatives would show."""


@dataclasses.dataclass(frozen=True)
class Curvature(AbstractModelProbe):
    """The largest eigenvalues of the Hessian of the loss on some training examples, evenly spaced,
    in the weights that learn; without dropout. (The mean over few examples has larger ones than
    that over all.)
    """

    models: ClassVar = (EncoderConfig, AttentionClassifierConfig)
    examples: int = 16
    """How many training examples, at most."""
    count: int = 1
    """How many eigenvalues."""
    iterations: int = 20
    """Products with the Hessian; more find the eigenvalues more exactly, from below."""

    def __post_init__(self):
        require_count(self, "examples", "count")
        require_count(self, "iterations", least=self.count)

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(examples=4, iterations=8), super().example()[1]

    @property
    def variables(self) -> Mapping[str, Variable]:  # pyright: ignore[reportIncompatibleVariableOverride]
        about = "largest eigenvalues of the Hessian of the training loss, in falling order"
        return {"hessian_eigenvalue": Variable(("place",), about)}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        return {"place": ("place", list(range(1, self.count + 1)))}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = evenly(moment.train, self.examples)
        learned, rest = parted(moment.model)

        def loss(weights: PyTree) -> Float[Array, ""]:
            return moment.loss_of(eqx.combine(weights, rest), batch)

        with jax.default_matmul_precision(PRECISION):
            found = hessian_eigenvalues(loss, learned, self.count, self.iterations)
        missing = self.count - found.size  # of a model with fewer weights
        return {"hessian_eigenvalue": jnp.pad(found, (0, missing), constant_values=jnp.nan)}


def parted(model: Any) -> tuple[PyTree, PyTree]:
    """The weights that learn, and the rest, of a model whose attention can be differentiated twice:
    fused attention cannot.
    """
    if isinstance(model, eqx.Module) and hasattr(model, "with_attention"):
        model = model.with_attention(fused=False)  # pyright: ignore[reportAttributeAccessIssue]
    return eqx.partition(model, trainable(model))
