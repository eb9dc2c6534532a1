"""The affine layer, and the start that PyTorch gives it."""

import equinox as eqx
import jax
from jaxtyping import Array, Float, PRNGKeyArray


def uniform(key: PRNGKeyArray, shape: tuple[int, ...], fan: int) -> Float[Array, "..."]:
    """PyTorch's start of linear and recurrent layers: uniform between -1 and 1 over the root of
    the inputs.
    """
    return jax.random.uniform(key, shape, minval=-1.0, maxval=1.0) * fan**-0.5


class Linear(eqx.Module):
    """An affine map, with PyTorch's start."""

    weights: Float[Array, "input output"]
    bias: Float[Array, " output"]

    @staticmethod
    def build(key: PRNGKeyArray, inputs: int, outputs: int) -> "Linear":
        weight_key, bias_key = jax.random.split(key)
        return Linear(
            uniform(weight_key, (inputs, outputs), inputs), uniform(bias_key, (outputs,), inputs)
        )

    def __call__(self, vectors: Float[Array, "*some input"]) -> Float[Array, "*some output"]:
        return vectors @ self.weights + self.bias
