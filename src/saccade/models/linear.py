"""The affine layer with PyTorch's initialisation."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray


def uniform(key: PRNGKeyArray, shape: tuple[int, ...], inputs: int) -> Float[Array, "..."]:
    """PyTorch's initialisation of linear, convolutional and recurrent layers: uniform within
    +- 1/sqrt(inputs).
    """
    return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) * inputs**-0.5


def bounded_uniform(key: PRNGKeyArray, shape: tuple[int, ...], inputs: int) -> Float[Array, "..."]:
    """The same distribution as `uniform`, for the classifiers of Lu 2021. The scaling is rounded
    differently, so their recorded runs need this one to be repeated to the last bit.
    """
    return jax.random.uniform(key, shape, minval=-(inputs**-0.5), maxval=inputs**-0.5)


class Linear(eqx.Module):
    """An affine map."""

    weights: Float[Array, "input output"]
    bias: Float[Array, " output"]

    @staticmethod
    def build(key: PRNGKeyArray, inputs: int, outputs: int) -> "Linear":
        weight_key, bias_key = jax.random.split(key)
        weights = uniform(weight_key, (inputs, outputs), inputs)
        return Linear(weights, uniform(bias_key, (outputs,), inputs))

    def __call__(self, vectors: Float[Array, "*some input"]) -> Float[Array, "*some output"]:
        return vectors @ self.weights + self.bias
