"""Statistics of attention by row blocks, against explicit tables in float64."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from saccade.contracts.model import AttentionLayer
from saccade.contracts.probe import Moment
from saccade.contracts.task import Batch, SentencePairs
from saccade.errors import ConfigError
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.encoder import EncoderConfig
from saccade.models.kernels import Gaussian, Softmax
from saccade.models.one_layer_transformer import OneLayerTransformerConfig
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.probes.attention import AttentionStatistics, layer_statistics
from saccade.records.attention_rows import row_statistics

RANDOM = np.random.default_rng(5)
EXAMPLES, HEADS, POSITIONS, SIZE = 5, 2, 9, 3
CONFIGS = {AttentionClassifierConfig: {"query": "fixed"}}
"""What a model needs for both kernels."""
MASK = np.arange(POSITIONS) < np.asarray([9, 4, 1, 6, 0])[:, None]


def statistics_of(
    scores: Any, visible: Any, words: Any, places: Any, normalised: bool = True
) -> dict[str, Any]:
    keys = jnp.arange(scores.shape[-1])
    rows = functools.partial(row_statistics, xp=jnp, normalised=normalised)
    return jax.jit(rows)(scores, visible, words, places, keys)


def table_of(scores: np.ndarray, visible: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Weights and attention, as the definitions have them, in float64."""
    weights = np.where(visible, np.exp(scores.astype(np.float64)), 0)
    return weights, weights / weights.sum(-1, keepdims=True)


def expected_row(
    scores: np.ndarray, visible: np.ndarray, words: np.ndarray, place: int, normalised: bool
) -> dict[str, Any]:
    weights, shares = table_of(scores, visible)
    keys = np.arange(len(scores))
    return {
        "attention_entropy": -sum(one * np.log(one) for one in shares if one > 0),
        "effective_keys": 1 / np.sum(shares**2),
        "largest_score": scores[visible].max(),
        "padding_mass": shares[~words].sum(),
        "first_mass": shares[np.flatnonzero(words)[0]] if words.any() else 0.0,
        "own_mass": shares[place],
        "mean_distance": np.sum(shares * np.abs(keys - place)),
        "attention_total": 1.0 if normalised else weights.sum(),
    }


def layer_of(kernel: Any, causal: bool, masked: bool, scale: float = 1.0) -> AttentionLayer:
    queries, keys = (
        jnp.asarray(scale * RANDOM.normal(size=(EXAMPLES, HEADS, POSITIONS, SIZE)), jnp.float32)
        for _ in range(2)
    )
    mask = jnp.asarray(MASK) if masked else None
    return AttentionLayer(queries, keys, kernel, mask, mask, future_weight=0.0 if causal else 1.0)


def expected_layer(layer: AttentionLayer, places: Any = range(POSITIONS)) -> dict[str, np.ndarray]:
    """Per head, query by query."""
    queries, keys = (np.asarray(one, np.float64) for one in (layer.queries, layer.keys))
    products = np.einsum("ehqd,ehkd->ehqk", queries, keys)
    if isinstance(layer.kernel, Gaussian):
        products -= (np.sum(queries**2, -1)[..., None] + np.sum(keys**2, -1)[:, :, None]) / 2
    scores = products / np.sqrt(SIZE)
    full = np.ones((EXAMPLES, POSITIONS), bool)
    mask, words = (full if one is None else np.asarray(one) for one in (layer.mask, layer.words))
    found: dict[str, list[list[float]]] = {}
    for example in range(EXAMPLES):
        for place in places:
            visible = mask[example] & ((np.arange(POSITIONS) <= place) | (layer.future_weight != 0))
            if not words[example, place] or not visible.any():
                continue
            rows = [
                expected_row(one, visible, words[example], place, layer.kernel.normalised)
                for one in scores[example, :, place]
            ]
            for name in rows[0]:
                found.setdefault(name, []).append([row[name] for row in rows])
    return {
        name: np.max(rows, axis=0) if name == "largest_score" else np.mean(rows, axis=0)
        for name, rows in found.items()
    }


def assert_close(ours: dict[str, Any], expected: dict[str, Any]) -> None:
    assert set(ours) == set(expected) == set(AttentionStatistics.variables)
    for name, value in expected.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-5, atol=2e-6, err_msg=name)  # float32


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalised", [True, False])
def test_rows_are_those_of_explicit_tables(normalised):
    """Also with peaked rows (scores up to 60) and masked keys; padding may be visible."""
    scores = RANDOM.normal(size=(4, 6, 8)).astype(np.float32)
    scores[1] *= 10
    scores[2, :, 3] = 60 if normalised else 6
    visible = RANDOM.random((4, 6, 8)) < 0.7
    visible[..., 5] = True
    words, places = RANDOM.random((4, 8)) < 0.6, np.arange(6) + 1
    run = functools.partial(statistics_of, normalised=normalised)
    ours = run(scores, visible, words, places)
    for one in range(4):
        for row in range(6):
            expected = expected_row(
                scores[one, row], visible[one, row], words[one], places[row], normalised
            )
            assert_close({name: values[one, row] for name, values in ours.items()}, expected)
    entropy = np.asarray(ours["attention_entropy"])
    assert entropy.min() < (1e-6 if normalised else 0.1) < 1 < entropy.max()


def test_entropy_of_peaked_rows_is_exact():
    """One score of 60 above the others: the entropy is about 60 n exp(-60), and never negative."""
    scores = jnp.zeros((1, 50)).at[0, 7].set(60.0)
    one = jnp.ones((1, 50), bool)
    ours = statistics_of(scores, one, one[0], jnp.asarray([7]))
    assert 0 <= float(ours["attention_entropy"][0]) < 1e-6
    for name in ("effective_keys", "own_mass"):
        assert float(ours[name][0]) == pytest.approx(1, abs=1e-6)
    assert float(ours["largest_score"][0]) == 60


def test_large_scores_do_not_overflow():
    scores = jnp.asarray([[1e4, 1e4, -1e4]])
    one = jnp.ones((1, 3), bool)
    ours = statistics_of(scores, one, one[0], jnp.asarray([0]))
    assert float(ours["attention_entropy"][0]) == pytest.approx(np.log(2), abs=1e-6)
    assert float(ours["effective_keys"][0]) == pytest.approx(2, abs=1e-6)


def test_a_row_without_a_visible_key_is_zero():
    none = jnp.zeros((1, 4), bool)
    ours = statistics_of(jnp.ones((1, 4)), none, ~none[0], jnp.asarray([1]))
    assert {float(value[0]) for value in ours.values()} == {0.0}


def test_even_attention_has_all_keys():
    one = jnp.ones((1, 20), bool)
    ours = statistics_of(jnp.full((1, 20), 3.0), one, one[0], jnp.asarray([0]))
    assert float(ours["attention_entropy"][0]) == pytest.approx(np.log(20), abs=1e-6)
    assert float(ours["effective_keys"][0]) == pytest.approx(20, abs=1e-4)
    assert float(ours["mean_distance"][0]) == pytest.approx(9.5, abs=1e-5)


# -- layers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("kernel", [Softmax(), Gaussian()], ids=["softmax", "gaussian"])
def test_layers_are_those_of_explicit_tables(kernel, masked, causal):
    layer = layer_of(kernel, causal, masked, scale=0.7 if masked else 2.0)
    ours = jax.jit(lambda layer: layer_statistics(layer, 128))(layer)
    assert_close(ours, expected_layer(layer))


@pytest.mark.parametrize("block", [1, 2 * HEADS * POSITIONS, 3 * HEADS * POSITIONS * POSITIONS])
def test_blocks_change_nothing(block):
    """Rows one by one, by two with one left over, and examples by three with two left over."""
    layer = layer_of(Softmax(), True, True)
    ours = jax.jit(lambda layer: layer_statistics(layer, 128, block))(layer)
    assert_close(ours, expected_layer(layer))


def test_some_rows_are_evenly_spaced_and_exact():
    layer = layer_of(Softmax(), False, True)
    ours = jax.jit(lambda layer: layer_statistics(layer, 3))(layer)
    assert_close(ours, expected_layer(layer, (0, 4, 8)))


def test_padding_that_is_attended_is_seen():
    """The mask is not applied, and queries are words: the mass on padding is the fault."""
    layer = dataclasses.replace(layer_of(Softmax(), False, True), mask=None)
    ours = jax.jit(lambda layer: layer_statistics(layer, 128))(layer)
    assert_close(ours, expected_layer(layer))
    assert np.all(np.asarray(ours["padding_mass"]) > 0.1)


def test_no_query_that_counts_gives_gaps():
    layer = layer_of(Softmax(), False, True)
    nothing = jnp.zeros((EXAMPLES, POSITIONS), bool)
    layer = dataclasses.replace(layer, mask=nothing, words=nothing)
    ours = jax.jit(lambda layer: layer_statistics(layer, 128))(layer)
    assert all(np.all(np.isnan(value)) for value in ours.values())


@pytest.mark.parametrize("positions", [600, 3000])
def test_no_table_of_all_queries_and_keys_is_kept(positions):
    """No array of the traced program has more numbers than a block, or than what goes in."""
    shape, block = (6, 4, positions, 8), 2**16
    shapes = jax.ShapeDtypeStruct(shape, jnp.float32)

    def run(queries: Any, keys: Any) -> Any:
        return layer_statistics(AttentionLayer(queries, keys, Softmax()), positions, block)

    sizes = [
        one.aval.size
        for equation in _equations(jax.make_jaxpr(run)(shapes, shapes).jaxpr)
        for one in equation.outvars
    ]
    assert block / 2 < max(sizes) <= max(block, np.prod(shape))
    assert max(sizes) < 6 * 4 * positions**2 / 10


def _equations(jaxpr: Any) -> Any:
    for equation in jaxpr.eqns:
        yield equation
        for inner in jaxprs_in_params(equation.params):
            yield from _equations(inner)


def test_cross_attention_is_refused():
    layer = layer_of(Softmax(), False, False)
    layer = dataclasses.replace(layer, keys=layer.keys[:, :, :4])
    with pytest.raises(ConfigError, match=r"^attention_layers: got 9 queries for 4 keys, allowed"):
        layer_statistics(layer, 128)


def test_layers_of_another_kind_are_refused():
    layer = layer_of(Softmax(), False, False)
    with pytest.raises(
        ConfigError, match=r"^attention_layers: got the kernel 'softmax', allowed: S"
    ):
        layer_statistics(dataclasses.replace(layer, kernel="softmax"), 128)
    flat = object.__new__(AttentionLayer)
    for field in dataclasses.fields(layer):
        object.__setattr__(flat, field.name, getattr(layer, field.name))
    object.__setattr__(flat, "queries", layer.queries[:, 0])
    with pytest.raises(ConfigError, match=r"^attention_layers: got queries and keys of the shapes"):
        layer_statistics(flat, 128)


# -- the probe -------------------------------------------------------------------------------------


def of_examples(layer: AttentionLayer, chosen: Any) -> AttentionLayer:
    return jax.tree.map(lambda leaf: leaf[chosen] if jnp.ndim(leaf) else leaf, layer)


def moment_of(layers: Any) -> Moment:
    """Of a model that gives these layers, of chosen examples."""

    class Model:
        def attention_layers(self, batch: Any) -> Any:
            return [of_examples(layer, batch.words[:, 0]) for layer in layers]

    rows = jnp.arange(EXAMPLES, dtype=jnp.int32)
    batch = Batch(rows[:, None], rows)
    return Moment(None, Model(), None, batch, lambda *_: None, lambda: None)  # pyright: ignore[reportArgumentType]


def test_the_probe_has_a_row_per_layer_and_a_column_per_head():
    layers = [layer_of(Softmax(), causal, True) for causal in (False, True)]
    ours = jax.jit(lambda layers: AttentionStatistics()(moment_of(layers)))(layers)
    for number, layer in enumerate(layers):
        expected = expected_layer(layer)
        assert_close({name: value[number] for name, value in ours.items()}, expected)
    few = jax.jit(lambda layers: AttentionStatistics(examples=2)(moment_of(layers)))(layers)
    ends = of_examples(layers[0], np.asarray([0, 4]))
    expected = jax.jit(lambda layer: layer_statistics(layer, 128))(ends)
    np.testing.assert_allclose(few["own_mass"][0], expected["own_mass"], rtol=1e-6)


def test_layers_of_different_heads_are_refused():
    layer = layer_of(Softmax(), False, False)
    other = dataclasses.replace(layer, queries=layer.queries[:, :1], keys=layer.keys[:, :1])
    with pytest.raises(ConfigError, match=r"^attention_layers: got layers of 1 and 2 heads, allo"):
        AttentionStatistics()(moment_of([layer, other]))


def test_fields_and_splits_are_checked():
    with pytest.raises(ConfigError, match=r"^split: got 'dev', allowed: train, validation, test"):
        AttentionStatistics("dev")
    with pytest.raises(ConfigError, match=r"^rows: got 0, allowed: a whole number, at least 1"):
        AttentionStatistics(rows=0)
    with pytest.raises(ConfigError, match=r"^split: got 'validation', allowed: those that the ta"):
        AttentionStatistics("validation")(moment_of([]))


# -- models ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize(
    "kind", [one for one in AttentionStatistics.models if one is not EncoderConfig]
)
def test_models_give_the_layers_that_they_attend_with(kind, kernel):
    config, task = kind.example()
    config = dataclasses.replace(config, kernel=kernel, **CONFIGS.get(kind, {}))

    def run(model: Any, batch: Any) -> Any:
        (layer,) = model.attention_layers(batch)
        scores = layer.kernel.scores(layer.queries, layer.keys, layer.scale)
        if layer.mask is not None:
            scores = jnp.where(layer.mask[:, None, None], scores, -jnp.inf)
        return model(batch).attention, layer, layer.kernel.weights(scores)

    # Step by step, because both kernels draw the same shapes.
    model, batch = config.build(task, jax.random.key(0)), task.sample(jax.random.key(0), 4)
    attention, layer, found = jax.jit(run)(model, batch)
    if layer.mask is not None:
        words = batch.source_mask if isinstance(batch, SentencePairs) else batch.mask
        np.testing.assert_array_equal(layer.words, words)
    if isinstance(batch, SentencePairs):
        np.testing.assert_array_equal(layer.asked, batch.target_mask)
        found = found.mean(1)
    np.testing.assert_allclose(found.reshape(attention.shape), attention, rtol=2e-5)


def test_one_query_has_no_position():
    """Its statistics are those of the sentence's attention, and nothing is relative to a place."""
    config, task = AttentionClassifierConfig.example()
    model, batch = config.build(task, jax.random.key(0)), task.sample(jax.random.key(1), 4)
    scores = jnp.linspace(-1, 2, task.vocabulary_size)
    model = dataclasses.replace(model, score_table=scores)
    mask = jnp.arange(batch.words.shape[1]) < jnp.asarray([[2], [5], [9], [11]])
    batch = dataclasses.replace(batch, mask=mask)
    moment = Moment(task, model, batch, batch, lambda *_: None, lambda: None)  # pyright: ignore[reportArgumentType]
    found = jax.jit(lambda: AttentionStatistics()(moment))()
    shares = np.asarray(model(batch).attention, np.float64)
    entropy = -np.sum(shares * np.log(np.where(shares > 0, shares, 1)), axis=1)
    words = np.where(mask, np.asarray(scores)[np.asarray(batch.words)], -np.inf)
    expected = {
        "attention_entropy": entropy.mean(),
        "effective_keys": (1 / np.sum(shares**2, axis=1)).mean(),
        "largest_score": words.max(),
        "padding_mass": 0.0,
        "first_mass": shares[:, 0].mean(),
        "own_mass": np.nan,
        "mean_distance": np.nan,
        "attention_total": 1.0,
    }
    assert_close({name: value[0, 0] for name, value in found.items()}, expected)


def test_cross_attention_counts_the_words_of_the_target():
    config, task = SequenceToSequenceConfig.example()

    def run(key: Any) -> Any:
        model, batch = config.build(task, key), task.sample(key, 4)
        target_mask = batch.target_mask & (jnp.arange(batch.target.shape[1]) < 2)
        batch = dataclasses.replace(batch, target_mask=target_mask)
        (layer,) = model.attention_layers(batch)
        weights = model.weights(*model.states(batch, None), batch.source_mask)
        return layer_statistics(layer, 128), weights

    found, weights = jax.jit(run)(jax.random.key(0))
    own = np.mean(np.diagonal(weights[:, :, :2], axis1=2, axis2=3), axis=(0, 2))
    np.testing.assert_allclose(found["own_mass"], own, rtol=1e-5)


@pytest.mark.parametrize("kind", [RecurrentClassifierConfig, SequenceToSequenceConfig])
@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
def test_uniform_attention_has_as_many_effective_keys_as_words(kind, kernel):
    config, task = kind.example()
    config = dataclasses.replace(config, attention="uniform", kernel=kernel)

    def run(key: Any) -> Any:
        (layer,) = config.build(task, key).attention_layers(task.sample(key, 4))
        return layer, layer_statistics(layer, 128)

    layer, found = jax.jit(run)(jax.random.key(0))
    words = layer.keys.shape[2] if layer.words is None else float(layer.words.sum(1).mean())
    np.testing.assert_allclose(found["effective_keys"], words, rtol=1e-5)
    np.testing.assert_allclose(found["attention_total"], 1.0, rtol=1e-5)


def test_attention_without_queries_and_keys_is_refused():
    config, task = OneLayerTransformerConfig.example()
    config = dataclasses.replace(config, attention="uniform")

    def run(key: Any) -> Any:
        return config.build(task, key).attention_layers(task.sample(key, 2))

    with pytest.raises(ConfigError, match=r"^attention: got scores without queries and keys, all"):
        jax.eval_shape(run, jax.random.key(0))
