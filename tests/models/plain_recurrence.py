"""Recurrent layers as PyTorch's documentation writes them: a plain loop over words.

In NumPy it is an oracle for values, in JAX (`arrays=jnp`) for gradients.
"""

from typing import Any

import jax
import numpy as np

from saccade.models.recurrence import Recurrence


def states(
    layer: Recurrence, vectors: Any, start: Any = None, there: Any = None, arrays: Any = np
) -> tuple[Any, tuple[Any, ...]]:
    """Outputs at every position of one sentence, or of several (positions first), and the last
    state.

    The initial state is 0 by default; at padding the state is kept.
    """
    parts = [
        arrays.asarray(getattr(layer, name))
        for name in ("input_weights", "input_bias", "state_weights", "state_bias")
    ]
    input_weights, input_bias, state_weights, state_bias = parts
    size = state_weights.shape[0]
    gates = [slice(first * size, (first + 1) * size) for first in range(4)]

    def sigmoid(values: Any) -> Any:
        return 1 / (1 + arrays.exp(-values))

    def fed(vector: Any, h: Any, gate: slice) -> Any:
        return (
            vector @ input_weights[:, gate]
            + input_bias[gate]
            + h @ state_weights[:, gate]
            + state_bias[gate]
        )

    def lstm(vector: Any, h: Any, c: Any) -> tuple[Any, ...]:
        i, f, g, o = (fed(vector, h, gate) for gate in gates)
        c = sigmoid(f) * c + sigmoid(i) * arrays.tanh(g)
        return sigmoid(o) * arrays.tanh(c), c

    def gru(vector: Any, h: Any) -> tuple[Any, ...]:
        r, z = (sigmoid(fed(vector, h, gate)) for gate in gates[:2])
        n = gates[2]
        inner = h @ state_weights[:, n] + state_bias[n]
        return (
            (1 - z) * arrays.tanh(vector @ input_weights[:, n] + input_bias[n] + r * inner) + z * h,
        )

    state = (
        start if start is not None else (arrays.zeros(size),) * (2 if layer.cell == "lstm" else 1)
    )
    length = len(vectors)
    outputs: list[Any] = [None] * length
    for place in reversed(range(length)) if layer.backwards else range(length):
        new = lstm(vectors[place], *state) if layer.cell == "lstm" else gru(vectors[place], *state)
        state = (
            new
            if there is None
            else tuple(arrays.where(there[place], *pair) for pair in zip(new, state, strict=True))
        )
        outputs[place] = state[0]
    return arrays.stack(outputs), state


def random_layer(
    random: np.random.Generator, features: int, hidden: int, cell: Any, backwards: bool = False
) -> Recurrence:
    """A layer whose gates are neither open nor closed, and not near their start. Under
    jax.enable_x64 in double precision.
    """
    gates = hidden * (4 if cell == "lstm" else 3)
    shapes = ((features, gates), (gates,), (hidden, gates), (gates,))
    input_weights, input_bias, state_weights, state_bias = (
        jax.device_put(random.normal(size=shape)) for shape in shapes
    )
    return Recurrence(input_weights, input_bias, state_weights, state_bias, cell, backwards)
