"""The recurrent layer: LSTM or GRU in one direction, shared by all recurrent models.

The gradient is written by hand for speed. Automatic differentiation of a scan accumulates the
gradient of the state's weights in every step (a product and a sum of the size of the weights). Here
the backward scan carries only the recurrent part, and the weights' gradient is one product over all
steps and sentences. Outputs and initialisation are those of PyTorch's `nn.LSTM` and `nn.GRU`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from saccade.models.linear import uniform

CellName = Literal["lstm", "gru"]
State = tuple[Float[Array, "sentence hidden"], ...]
"""State of a cell: the output first; an LSTM also has its memory."""
Gates = Float[Array, "sentence gate"]
Inputs = Float[Array, "position sentence gate"]
Mask = Bool[Array, "position sentence"] | None
Weights = tuple[Float[Array, "hidden gate"], Float[Array, " gate"]]
Kind = tuple[CellName, bool]
"""Name of a cell, and whether it reads backwards."""

FEW_WORDS = 512
"""Up to this many words, rows are looked up by one-hot products: no slow scatter backwards."""

GPU_UNROLLED = 4
"""Positions per pass of the loop on an accelerator, whose time goes by the number of passes (1.2
times as fast); on CPUs one."""


def lstm_cell(inputs: Gates, fed_back: Gates, state: State) -> State:
    enter, forget, content, leave = jnp.split(inputs + fed_back, 4, axis=-1)
    memory = jax.nn.sigmoid(forget) * state[1] + jax.nn.sigmoid(enter) * jnp.tanh(content)
    return jax.nn.sigmoid(leave) * jnp.tanh(memory), memory


def gru_cell(inputs: Gates, fed_back: Gates, state: State) -> State:
    reset_in, keep_in, content_in = jnp.split(inputs, 3, axis=-1)
    reset_back, keep_back, content_back = jnp.split(fed_back, 3, axis=-1)
    keep = jax.nn.sigmoid(keep_in + keep_back)
    content = jnp.tanh(content_in + jax.nn.sigmoid(reset_in + reset_back) * content_back)
    return ((1 - keep) * content + keep * state[0],)


CELLS = {"lstm": (lstm_cell, 4, 2), "gru": (gru_cell, 3, 1)}
"""Per cell: its function, number of gates and number of arrays in its state."""


def _scan(move: Any, start: State, along: tuple, reverse: bool):
    unrolled = 1 if jax.default_backend() == "cpu" else GPU_UNROLLED
    return jax.lax.scan(move, start, along, reverse=reverse, unroll=unrolled)


def _held(there: Bool[Array, " sentence"] | None, new: State, old: State) -> State:
    """The new state at words, the old one at padding."""
    if there is None:
        return new
    return tuple(jnp.where(there[:, None], one, other) for one, other in zip(new, old, strict=True))


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def recur(
    kind: Kind, inputs: Inputs, weights: Weights, start: State, mask: Mask
) -> tuple[Float[Array, "position sentence hidden"], State]:
    """All outputs along the positions, and the last state."""
    return _forward(kind, inputs, weights, start, mask)[0]


def _forward(kind: Kind, inputs: Inputs, weights: Weights, start: State, mask: Mask):
    step = CELLS[kind[0]][0]

    def move(state: State, at: tuple[Array, Array | None]):
        inputs_here, there = at
        fed_back = state[0] @ weights[0] + weights[1]
        new = _held(there, step(inputs_here, fed_back, state), state)
        return new, (new[0], fed_back, state)

    last, (outputs, fed_back, before) = _scan(move, start, (inputs, mask), kind[1])
    return (outputs, last), (inputs, weights, mask, fed_back, before)


def _backward(kind: Kind, kept: tuple, gradients: tuple[Array, State]):
    inputs, weights, mask, fed_back, before = kept
    of_outputs, of_last = gradients
    step = CELLS[kind[0]][0]

    def move(of_state: State, at: tuple):
        of_output, *parts, there = at
        of_new = (of_state[0] + of_output, *of_state[1:])
        _, pull = jax.vjp(lambda *parts: _held(there, step(*parts), parts[2]), *parts)
        of_inputs, of_fed, of_before = pull(of_new)
        return (of_before[0] + of_fed @ weights[0].T, *of_before[1:]), (of_inputs, of_fed)

    along = (of_outputs, inputs, fed_back, before, mask)
    of_start, (of_inputs, of_fed) = _scan(move, of_last, along, not kind[1])
    of_weights = jnp.einsum("psh,psg->hg", before[0], of_fed)
    return of_inputs, (of_weights, of_fed.sum((0, 1))), of_start, None


recur.defvjp(_forward, _backward)


class Recurrence(eqx.Module):
    """One recurrent layer in one direction. Arrays within have positions first, for the scan."""

    input_weights: Float[Array, "feature gate"]
    input_bias: Float[Array, " gate"]
    state_weights: Float[Array, "hidden gate"]
    state_bias: Float[Array, " gate"]
    cell: CellName = eqx.field(static=True)
    backwards: bool = eqx.field(static=True, default=False)

    @staticmethod
    def build(
        key: PRNGKeyArray, features: int, hidden: int, cell: CellName, backwards: bool = False
    ) -> "Recurrence":
        """Uniform within +-1 / sqrt(hidden), as in PyTorch."""
        gates = CELLS[cell][1] * hidden
        shapes = ((features, gates), (gates,), (hidden, gates), (gates,))
        arrays = map(uniform, jax.random.split(key, 4), shapes, (hidden,) * 4)
        return Recurrence(*arrays, cell=cell, backwards=backwards)

    def start(self, sentences: int) -> State:
        zeros = jnp.zeros((sentences, self.state_weights.shape[0]), self.state_weights.dtype)
        return (zeros,) * CELLS[self.cell][2]

    def of_words(
        self,
        table: Float[Array, "word feature"],
        words: Int[Array, "sentence position"],
        mask: Bool[Array, "sentence position"] | None = None,
        start: State | None = None,
        gates: Float[Array, "sentence position"] | None = None,
    ) -> tuple[Float[Array, "sentence position hidden"], State]:
        """Outputs at all positions, and the last state. `gates` multiply the embeddings."""
        return self._along(self.inputs_of_words(table, words, gates), mask, start)

    def of_vectors(
        self,
        vectors: Float[Array, "sentence position feature"],
        mask: Bool[Array, "sentence position"] | None = None,
        start: State | None = None,
    ) -> tuple[Float[Array, "sentence position hidden"], State]:
        """Outputs at all positions, and the last state, of a layer that reads vectors, such as the
        outputs of another layer.
        """
        return self._along(self.inputs_of_vectors(vectors), mask, start)

    def step(self, vectors: Float[Array, "sentence feature"], state: State) -> State:
        """The state after one more position."""
        fed_back = state[0] @ self.state_weights + self.state_bias
        return CELLS[self.cell][0](self.inputs_of_vectors(vectors), fed_back, state)

    def inputs_of_words(
        self,
        table: Float[Array, "word feature"],
        words: Int[Array, "sentence position"],
        gates: Float[Array, "sentence position"] | None = None,
    ) -> Float[Array, "sentence position gate"]:
        """What words add to the layer's gates."""
        if words.size < table.shape[0]:  # fewer positions than words: these alone are projected
            inputs = looked_up(table, words) @ self.input_weights
        else:
            inputs = looked_up(table @ self.input_weights, words)
        if gates is not None:
            inputs = gates[..., None] * inputs
        return inputs + self.input_bias

    def inputs_of_vectors(
        self, vectors: Float[Array, "*some feature"]
    ) -> Float[Array, "*some gate"]:
        """What vectors add to the layer's gates."""
        return vectors @ self.input_weights + self.input_bias

    def _along(
        self,
        inputs: Float[Array, "sentence position gate"],
        mask: Bool[Array, "sentence position"] | None,
        start: State | None,
    ) -> tuple[Float[Array, "sentence position hidden"], State]:
        start = self.start(inputs.shape[0]) if start is None else start
        kind, weights = (self.cell, self.backwards), (self.state_weights, self.state_bias)
        mask = None if mask is None else mask.T
        outputs, last = recur(kind, jnp.swapaxes(inputs, 0, 1), weights, start, mask)  # pyright: ignore[reportGeneralTypeIssues]
        return jnp.swapaxes(outputs, 0, 1), last


def both_ways(
    layers: Sequence[Recurrence],
    inputs: Sequence[Float[Array, "sentence position gate"]],
    mask: Bool[Array, "sentence position"] | None = None,
) -> tuple[Float[Array, "sentence position both"], tuple[Float[Array, "2 sentence hidden"], ...]]:
    """Outputs of a forward and a backward layer at all positions, and their last states, in one
    scan: what reads backwards gets the positions in reversed order. On an accelerator, whose time
    goes by the number of steps, that is half the time of two scans.
    """

    def stacked(forth: Array, back: Array) -> Array:
        """Positions first, then sentences."""
        return jnp.stack([jnp.swapaxes(forth, 0, 1), jnp.swapaxes(back, 0, 1)[::-1]])

    weights = [(layer.state_weights, layer.state_bias) for layer in layers]
    starts = [layer.start(inputs[0].shape[0]) for layer in layers]
    weights, start = (
        jax.tree.map(lambda *pair: jnp.stack(pair), *parts) for parts in (weights, starts)
    )
    there = None if mask is None else stacked(mask, mask)
    run = jax.vmap(partial(recur, (layers[0].cell, False)))
    outputs, last = run(stacked(*inputs), weights, start, there)  # pyright: ignore[reportCallIssue]
    both = jnp.concatenate([outputs[0], outputs[1][::-1]], axis=-1)
    return jnp.swapaxes(both, 0, 1), last


def looked_up(
    table: Float[Array, "word column"], words: Int[Array, "*some"]
) -> Float[Array, "*some column"]:
    """The rows of the table at the words' ids."""
    if table.shape[0] > FEW_WORDS:
        return table[words]
    return jax.nn.one_hot(words, table.shape[0], dtype=table.dtype) @ table
