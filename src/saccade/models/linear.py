"""The affine layer with PyTorch's initialisation."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray


def uniform(key: PRNGKeyArray, shape: tuple[int, ...], inputs: int) -> Float[Array, "..."]:
    """PyTorch's initialisation of all kinds of layers: uniform within +- 1/sqrt(inputs)."""
    return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) * inputs**-0.5


def bounded_uniform(key: PRNGKeyArray, shape: tuple[int, ...], inputs: int) -> Float[Array, "..."]:
    """`uniform` with another rounding, for the models whose recorded runs used this one."""
    return jax.random.uniform(key, shape, minval=-(inputs**-0.5), maxval=inputs**-0.5)


class Linear(eqx.Module):
    """An affine map."""

    weights: Float[Array, "input output"]
    bias: Float[Array, " output"]

    @staticmethod
    def build(key: PRNGKeyArray, inputs: int, outputs: int) -> "Linear":
        shapes = ((inputs, outputs), (outputs,))
        return Linear(*map(uniform, jax.random.split(key), shapes, (inputs, inputs)))

    def __call__(self, vectors: Float[Array, "*some input"]) -> Float[Array, "*some output"]:
        return vectors @ self.weights + self.bias
