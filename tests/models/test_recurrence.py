"""The recurrent layer with its gradient by hand, against a plain loop, against PyTorch, and on
padded sentences.
"""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_recurrence import random_layer, states

from saccade.models.linear import Linear
from saccade.models.recurrence import FEW_WORDS, Recurrence, both_ways, looked_up

SENTENCES, POSITIONS, WORDS, FEATURES, HIDDEN = 3, 3, 5, 3, 2
LENGTHS = np.asarray([3, 1, 2])
MASK = np.arange(POSITIONS) < LENGTHS[:, None]
ROUNDING = 1e-12
"""Float64: numbers of size up to 100, a hundred operations deep."""

TORCH_NAMES = {
    "weight_ih_l0": "input_weights",
    "bias_ih_l0": "input_bias",
    "weight_hh_l0": "state_weights",
    "bias_hh_l0": "state_bias",
}

each_cell = pytest.mark.parametrize("cell", ["lstm", "gru"])
each_direction = pytest.mark.parametrize("backwards", [False, True], ids=["forwards", "backwards"])
each_mask = pytest.mark.parametrize("masked", [False, True], ids=["full", "padded"])


def numbers(cell: str, seed: int = 0) -> dict[str, Any]:
    """Everything a layer depends on but its weights, all of size 1. Under jax.enable_x64."""
    random = np.random.default_rng(seed)
    kept = 2 if cell == "lstm" else 1
    return {
        "table": jnp.asarray(random.normal(size=(WORDS, FEATURES))),
        "start": tuple(jnp.asarray(random.normal(size=(SENTENCES, HIDDEN))) for _ in range(kept)),
        "gates": jnp.asarray(random.normal(size=(SENTENCES, POSITIONS))),
    }


def drawn_words(seed: int = 0) -> Any:
    return jnp.asarray(
        np.random.default_rng(seed).integers(WORDS, size=(SENTENCES, POSITIONS)), jnp.int32
    )


def pulls(cell: str) -> tuple[Any, Any]:
    """What every output at a word, and every number of the last state, counts in a sum that is
    differentiated.
    """
    random = np.random.default_rng(9)
    of_outputs = random.normal(size=(SENTENCES, POSITIONS, HIDDEN))
    return of_outputs, random.normal(size=(2 if cell == "lstm" else 1, SENTENCES, HIDDEN))


def pulled(outputs: Any, last: Any, mask: Any, pull: tuple[Any, Any]) -> Any:
    """Padding does not count: what is put out there is nobody's business."""
    return (outputs * pull[0] * mask[..., None]).sum() + sum(
        (part * weight).sum() for part, weight in zip(last, pull[1], strict=True)
    )


def ours(layer: Recurrence, numbers: dict[str, Any], words: Any, mask: Any) -> tuple[Any, Any]:
    return layer.of_words(numbers["table"], words, mask, numbers["start"], numbers["gates"])


def looped(layer: Recurrence, numbers: dict[str, Any], words: Any, mask: Any) -> tuple[Any, Any]:
    vectors = numbers["gates"][..., None] * numbers["table"][words]
    there = jnp.swapaxes(mask, 0, 1)[..., None]
    outputs, last = states(layer, jnp.swapaxes(vectors, 0, 1), numbers["start"], there, jnp)
    return jnp.swapaxes(outputs, 0, 1), last


def slopes(
    way: Any, layer: Recurrence, numbers: dict[str, Any], words: Any, mask: Any, pull: Any
) -> Any:
    """The gradient by weights, table, start and gates; outputs and last state."""

    def total(parts: Any) -> tuple[Any, Any]:
        outputs, last = way(*parts, words, mask)
        return pulled(outputs, last, jnp.ones(words.shape) if mask is None else mask, pull), (
            outputs,
            last,
        )

    return jax.grad(total, has_aux=True)((layer, numbers))


OURS, LOOPED = (jax.jit(functools.partial(slopes, way)) for way in (ours, looped))


def our_slopes(layer: Recurrence, numbers: dict[str, Any], words: Any, masked: bool) -> Any:
    pull = tuple(map(jnp.asarray, pulls(layer.cell)))
    return jax.tree.map(
        np.asarray, OURS(layer, numbers, words, jnp.asarray(MASK) if masked else None, pull)
    )


def looped_slopes(layer: Recurrence, numbers: dict[str, Any], words: Any, masked: bool) -> Any:
    """Backwards by reading sentences from their end: one program for both directions."""

    def turned(array: Any) -> Any:
        return jnp.asarray(np.flip(array, axis=1) if layer.backwards else array)

    of_outputs, of_last = pulls(layer.cell)
    forwards = Recurrence(
        **{name: getattr(layer, name) for name in TORCH_NAMES.values()}, cell=layer.cell
    )
    mask = turned(MASK if masked else np.ones_like(MASK))
    given = numbers | {"gates": turned(numbers["gates"])}
    (slope, of_numbers), (outputs, last) = LOOPED(
        forwards, given, turned(words), mask, (turned(of_outputs), jnp.asarray(of_last))
    )
    of_numbers["gates"] = turned(of_numbers["gates"])
    return (dataclasses.replace(slope, backwards=layer.backwards), of_numbers), (
        turned(outputs),
        last,
    )


def assert_close(first: Any, second: Any) -> None:
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=ROUNDING)


def at_words(outputs: Any, masked: bool) -> np.ndarray:
    return np.asarray(outputs)[MASK if masked else np.ones_like(MASK)]


@each_cell
@each_direction
@each_mask
def test_outputs_last_state_and_all_gradients_are_those_of_a_plain_loop(cell, backwards, masked):
    with jax.enable_x64(True):
        parts = (
            random_layer(np.random.default_rng(1), FEATURES, HIDDEN, cell, backwards),
            numbers(cell),
            drawn_words(),
        )
        gradient, (outputs, last) = our_slopes(*parts, masked)
        expected, (expected_outputs, expected_last) = looped_slopes(*parts, masked)
    assert_close(at_words(outputs, masked), at_words(expected_outputs, masked))
    assert_close(last, expected_last)
    assert_close(gradient, expected)
    # Everything that is compared moves something, so that a gradient of zeros would not pass.
    assert all(np.abs(leaf).max() > 1e-3 for leaf in jax.tree.leaves(gradient))


@each_cell
@each_mask
def test_outputs_last_state_and_all_gradients_are_those_of_torch(cell, masked):
    """Both directions at once, with PyTorch's own order of gates (i, f, g, o and r, z, n) and
    its own padding.
    """
    torch = pytest.importorskip("torch")
    with jax.enable_x64(True):
        random = np.random.default_rng(2)
        layers = [
            random_layer(random, FEATURES, HIDDEN, cell, backwards) for backwards in (False, True)
        ]
        given, words = [numbers(cell, seed) for seed in (3, 4)], drawn_words(5)
        for one in given:
            one |= {"table": given[0]["table"], "gates": jnp.ones((SENTENCES, POSITIONS))}
        found = [our_slopes(*parts, words, masked) for parts in zip(layers, given, strict=True)]

    kind = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[cell]
    theirs = kind(FEATURES, HIDDEN, batch_first=True, bidirectional=True, dtype=torch.float64)
    places = [
        (f"{name}{ending}", field, way)
        for name, field in TORCH_NAMES.items()
        for way, ending in enumerate(("", "_reverse"))
    ]
    with torch.no_grad():
        for name, field, way in places:
            getattr(theirs, name).copy_(
                torch.tensor(np.asarray(getattr(layers[way], field)).T.copy())
            )
    table = torch.tensor(np.array(given[0]["table"]), requires_grad=True)
    starts = [
        torch.tensor(np.stack(both), requires_grad=True)
        for both in zip(*(one["start"] for one in given), strict=True)
    ]
    inputs = table[torch.tensor(np.array(words), dtype=torch.long)]
    packing = torch.nn.utils.rnn
    if masked:
        inputs = packing.pack_padded_sequence(
            inputs, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False
        )
    outputs, last = theirs(inputs, tuple(starts) if cell == "lstm" else starts[0])
    if masked:
        outputs, _ = packing.pad_packed_sequence(outputs, batch_first=True)
    last = last if cell == "lstm" else (last,)
    mask, pull = (
        torch.tensor(MASK if masked else np.ones_like(MASK)),
        tuple(map(torch.tensor, pulls(cell))),
    )
    totals = [
        pulled(outputs[..., part], [state[way] for state in last], mask, pull)
        for way, part in enumerate((slice(None, HIDDEN), slice(HIDDEN, None)))
    ]
    (totals[0] + totals[1]).backward()

    ours_together = np.concatenate([one[1][0] for one in found], axis=-1)
    assert_close(at_words(ours_together, masked), at_words(outputs.detach().numpy(), masked))
    for part, state in enumerate(last):
        assert_close(np.stack([one[1][1][part] for one in found]), state.detach().numpy())
        assert_close(
            np.stack([one[0][1]["start"][part] for one in found]), starts[part].grad.numpy()
        )
    for name, field, way in places:
        assert_close(getattr(found[way][0][0], field), getattr(theirs, name).grad.numpy().T)
    assert_close(np.sum([one[0][1]["table"] for one in found], axis=0), table.grad.numpy())


@each_cell
def test_vectors_are_read_as_words_are_and_one_at_a_time_as_all_at_once(cell):
    with jax.enable_x64(True):
        layer = random_layer(np.random.default_rng(10), FEATURES, HIDDEN, cell)
        given, words, mask = numbers(cell, 11), drawn_words(), jnp.asarray(MASK)
        given["gates"] = jnp.ones((SENTENCES, POSITIONS))
        vectors, start = given["table"][words], given["start"]
        assert_close(layer.of_vectors(vectors, mask, start), ours(layer, given, words, mask))
        outputs, last = layer.of_vectors(vectors, start=start)
        state = start
        for place in range(POSITIONS):
            state = layer.step(vectors[:, place], state)
            assert_close(state[0], outputs[:, place])
        assert_close(state, last)


def test_members_of_an_ensemble_do_not_touch_one_another():
    """Layers, sentences and starts of three members at once, as the engine does it."""
    cell = "lstm"
    with jax.enable_x64(True):
        members = [
            (
                random_layer(np.random.default_rng(m), FEATURES, HIDDEN, cell),
                numbers(cell, m),
                drawn_words(m),
            )
            for m in range(3)
        ]
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *members)
        mask, pull = jnp.asarray(MASK), tuple(map(jnp.asarray, pulls(cell)))
        together = jax.jit(
            jax.vmap(lambda layer, given, words: slopes(ours, layer, given, words, mask, pull))
        )(*stacked)
        for place, member in enumerate(members):
            assert_close(
                jax.tree.map(lambda leaf, place=place: leaf[place], together),
                our_slopes(*member, True),
            )


# -- padding ---------------------------------------------------------------------------------------


@each_cell
@each_direction
def test_padding_changes_nothing_and_learns_nothing(cell, backwards):
    """Whatever words stand there: the same outputs at words, the same last state, the same
    gradient, to the last bit.
    """
    with jax.enable_x64(True):
        layer = random_layer(np.random.default_rng(6), FEATURES, HIDDEN, cell, backwards)
        given, words = numbers(cell, 7), drawn_words()
        others = jnp.where(MASK, words, (words + 1) % WORDS)
        (gradient, (outputs, last)), (other_gradient, (other_outputs, other_last)) = (
            our_slopes(layer, given, one, True) for one in (words, others)
        )
    assert np.array_equal(at_words(outputs, True), at_words(other_outputs, True))
    assert all(np.array_equal(*pair) for pair in zip(last, other_last, strict=True))
    assert all(
        np.array_equal(*pair)
        for pair in zip(*map(jax.tree.leaves, (gradient, other_gradient)), strict=True)
    )
    assert np.all(gradient[1]["gates"][~MASK] == 0)
    # The last state is the output at the last word read: the sentence's last forwards, its first
    # backwards.
    final = np.zeros(SENTENCES, int) if backwards else LENGTHS - 1
    assert np.array_equal(last[0], outputs[np.arange(SENTENCES), final])
    # And all is as if the sentence ended there.
    vectors = np.asarray(given["gates"])[..., None] * np.asarray(given["table"])[np.asarray(words)]
    for sentence, length in enumerate(LENGTHS):
        alone, end = states(
            layer,
            vectors[sentence, :length],
            tuple(np.asarray(part[sentence]) for part in given["start"]),
        )
        assert_close(outputs[sentence, :length], alone)
        assert_close(tuple(part[sentence] for part in last), end)


@each_cell
def test_one_position_has_no_direction(cell):
    with jax.enable_x64(True):
        layer, given = (
            random_layer(np.random.default_rng(8), FEATURES, HIDDEN, cell),
            numbers(cell, 8),
        )
        back = Recurrence(
            layer.input_weights,
            layer.input_bias,
            layer.state_weights,
            layer.state_bias,
            layer.cell,
            backwards=True,
        )
        words = drawn_words()[:, :1]
        both = jax.jit(lambda *layers: [one.of_words(given["table"], words) for one in layers])
        (outputs, last), (back_outputs, back_last) = both(layer, back)
    assert outputs.shape == (SENTENCES, 1, HIDDEN)
    assert np.array_equal(outputs, back_outputs)
    assert all(np.array_equal(*pair) for pair in zip(last, back_last, strict=True))
    assert np.array_equal(outputs[:, 0], last[0])
    for sentence in range(SENTENCES):
        expected, _ = states(
            layer, np.asarray(given["table"])[np.asarray(words)[sentence]]
        )  # which starts from 0
        assert_close(outputs[sentence], expected)


# -- starts and tables -----------------------------------------------------------------------------


def test_the_start_is_pytorchs():
    """Uniform up to 1 / sqrt(hidden): nothing beyond, and the variance hidden^-1 / 3."""
    layer = jax.jit(lambda key: Recurrence.build(key, 5, 9, "gru"))(jax.random.key(0))
    assert_uniform(jax.tree.leaves(layer), 1 / 3)


@each_cell
def test_an_lstm_has_four_gates_and_two_states_a_gru_three_and_one(cell):
    gates, kept = {"lstm": (4, 2), "gru": (3, 1)}[cell]
    layer = eqx.filter_eval_shape(Recurrence.build, jax.random.key(0), 5, 9, cell)
    assert [leaf.shape for leaf in jax.tree.leaves(layer)] == [
        (5, 9 * gates),
        (9 * gates,),
        (9, 9 * gates),
        (9 * gates,),
    ]
    assert [part.shape for part in layer.start(4)] == [(4, 9)] * kept


def test_a_linear_layer_starts_by_its_inputs():
    layer = jax.jit(lambda key: Linear.build(key, 16, 30))(jax.random.key(0))
    assert (layer.weights.shape, layer.bias.shape) == ((16, 30), (30,))
    assert_uniform([layer.weights, layer.bias], 1 / 4)


def assert_uniform(arrays: list[Any], bound: float) -> None:
    values = np.concatenate([np.ravel(array) for array in arrays])
    assert 0.98 * bound < np.abs(values).max() <= bound
    # The square of a uniform number has mean b^2/3 and variance 4 b^4 / 45: four standard errors.
    assert np.mean(values**2) == pytest.approx(
        bound**2 / 3, abs=4 * bound**2 * np.sqrt(4 / 45 / values.size)
    )
    assert abs(np.mean(values)) < 4 * bound / np.sqrt(3 * values.size)
    for array in arrays:
        assert np.ptp(array) > bound


@pytest.mark.parametrize("rows", [FEW_WORDS, FEW_WORDS + 1])
def test_words_find_their_rows_in_small_and_large_tables(rows):
    random = np.random.default_rng(0)
    table, words = (
        jnp.asarray(random.normal(size=(rows, 2)), jnp.float32),
        jnp.asarray(random.integers(rows, size=(4, 5))),
    )
    pull = random.normal(size=(4, 5, 2)).astype(np.float32)
    assert np.array_equal(looked_up(table, words), np.asarray(table)[np.asarray(words)])
    gradient = jax.grad(lambda table: jnp.sum(looked_up(table, words) * pull))(table)
    expected = np.zeros((rows, 2), np.float32)
    np.add.at(expected, np.asarray(words), pull)
    np.testing.assert_allclose(
        gradient, expected, rtol=0, atol=2e-6
    )  # float32, up to twenty numbers of size 1


@each_cell
@pytest.mark.parametrize(
    ("masked", "words"), [(True, WORDS), (False, 40)], ids=["more positions", "more words"]
)
def test_both_directions_in_one_scan_are_those_of_two(cell, masked, words):
    """Outputs and all derivatives, whether the table or the positions are projected."""
    with jax.enable_x64(True):
        random = np.random.default_rng(3)
        table = jnp.asarray(random.normal(size=(words, FEATURES)))
        chosen = jnp.asarray(random.integers(words, size=(SENTENCES, POSITIONS)), jnp.int32)
        gates = jnp.asarray(random.normal(size=(SENTENCES, POSITIONS)))
        pull = random.normal(size=(SENTENCES, POSITIONS, 2 * HIDDEN))
        mask = jnp.asarray(MASK) if masked else None
        layers = tuple(
            jax.tree.map(
                lambda leaf: jax.device_put(random.normal(size=leaf.shape)),
                eqx.filter_eval_shape(
                    Recurrence.build, jax.random.key(0), FEATURES, HIDDEN, cell, back
                ),
            )
            for back in (False, True)
        )

        def together(layers: Any, table: Any, gates: Any) -> Any:
            inputs = [layer.inputs_of_words(table, chosen, gates) for layer in layers]
            return both_ways(layers, inputs, mask)[0]

        def apart(layers: Any, table: Any, gates: Any) -> Any:
            outputs = [one.of_words(table, chosen, mask, gates=gates)[0] for one in layers]
            return jnp.concatenate(outputs, axis=-1)

        def with_slopes(way: Any) -> list[Any]:
            found, backward = jax.vjp(way, layers, table, gates)
            return jax.tree.leaves((found, backward(jnp.asarray(pull))))

        found, wanted = (jax.jit(lambda way=way: with_slopes(way))() for way in (together, apart))
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, atol=ROUNDING)
