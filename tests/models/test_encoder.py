"""The encoder against plain NumPy and against PyTorch; padding, dropout, kernels and heads."""

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.task import Batch
from saccade.errors import ConfigError
from saccade.models.encoder import Encoder, EncoderConfig, dropped
from saccade.models.fused_attention import in_rows, with_rounding
from saccade.records.schedule import Every
from saccade.settings import Swept
from saccade.tasks.keyword_sentences import KeywordSentences
from saccade.tasks.random_sequences import RandomSequences
from saccade.tasks.topic_documents import Documents, Masking, TopicDocuments
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.paths import paths
from saccade.train.recipe import Recipe

RANDOM = np.random.default_rng(3)
WORDS, LABELS, LONGEST = 11, 3, 7
TASK: Any = SimpleNamespace(vocabulary_size=WORDS, labels=LABELS)
CONFIG = EncoderConfig(layers=2, heads=2, dimension=8, hidden=12, dropout=0.3, longest=LONGEST)
STEPS = np.asarray([1e-5, -1e-5])
MASK = np.arange(LONGEST) < np.asarray([7, 4, 1, 6])[:, None]


logits_of = eqx.filter_jit(lambda model, batch, key=None: model(batch, key).logits)
loss_of = eqx.filter_jit(Encoder.loss)


def built(config: EncoderConfig = CONFIG, task: Any = TASK) -> Encoder:
    """A model with random numbers everywhere, also as biases and norms. (Nothing is compiled.)"""
    shapes = eqx.filter_eval_shape(lambda key: config.build(task, key), jax.random.key(0))
    return jax.tree.map(lambda leaf: _drawn(leaf) if hasattr(leaf, "dtype") else leaf, shapes)


def _drawn(shape: Any) -> Any:
    return jax.device_put((0.5 * RANDOM.normal(size=shape.shape)).astype(shape.dtype))


def sentences(mask: np.ndarray | None = MASK) -> Batch:
    shape = (len(MASK), LONGEST)
    words, labels = RANDOM.integers(0, WORDS, shape), RANDOM.integers(0, LABELS, shape[0])
    there = None if mask is None else jnp.asarray(mask)
    return Batch(jnp.asarray(words, jnp.int32), jnp.asarray(labels, jnp.int32), there)


# -- oracles ---------------------------------------------------------------------------------------


def plain_norm(norm: Any, vectors: np.ndarray) -> np.ndarray:
    spread = np.sqrt(vectors.var(-1, keepdims=True) + 1e-5)
    return (vectors - vectors.mean(-1, keepdims=True)) / spread * norm.scale + norm.shift


def plain_states(model: Any, words: np.ndarray, gaussian: bool) -> np.ndarray:
    """One sentence without padding, head by head and query by query."""
    states = model.embedding[words] + model.positions[: len(words)]
    for layer in model.layers:
        inputs, block = plain_norm(layer.attention_norm, states), layer.attention
        size = inputs.shape[1] // block.heads
        parts = []
        for head in range(block.heads):
            own = slice(head * size, (head + 1) * size)
            queries, keys, values = (
                inputs @ one.weights[:, own] + one.bias[own]
                for one in (block.query, block.key, block.value)
            )
            rows = []
            for query in queries:
                if gaussian:
                    weights = np.exp(-np.sum((query - keys) ** 2, axis=1) / (2 * math.sqrt(size)))
                else:
                    weights = np.exp(keys @ query / math.sqrt(size))
                    weights = weights / weights.sum()
                rows.append(weights @ values)
            parts.append(np.stack(rows))
        states = states + np.concatenate(parts, axis=1) @ block.output.weights + block.output.bias
        inputs, block = plain_norm(layer.feed_forward_norm, states), layer.feed_forward
        inner = inputs @ block.inner.weights + block.inner.bias
        active = inner * (1 + np.vectorize(math.erf)(inner / math.sqrt(2))) / 2
        states = states + active @ block.outer.weights + block.outer.bias
    return plain_norm(model.norm, states)


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_logits_are_those_of_a_plain_program(kernel, pooling):
    with jax.enable_x64(True):
        model = built(dataclasses.replace(CONFIG, kernel=kernel, pooling=pooling))
        batch = sentences()
        ours = logits_of(model, batch)
        plain: Any = jax.tree.map(np.asarray, model)
        for row, (words, mask) in enumerate(zip(batch.words, MASK, strict=True)):
            states = plain_states(plain, np.asarray(words)[mask], kernel == "gaussian")
            pooled = states.mean(0) if pooling == "mean" else states[0]
            expected = pooled @ plain.head.weights + plain.head.bias
            np.testing.assert_allclose(ours[row], expected, rtol=1e-10, atol=1e-12)


def test_states_are_those_of_pytorch():
    torch = pytest.importorskip("torch", reason="the encoder is compared with that of PyTorch")
    model, batch = built(), sentences()
    size, hidden = CONFIG.dimension, CONFIG.hidden
    layer = torch.nn.TransformerEncoderLayer(
        size,
        CONFIG.heads,
        hidden,
        dropout=0.3,
        activation="gelu",
        batch_first=True,
        norm_first=True,
    )
    theirs = torch.nn.TransformerEncoder(
        layer, CONFIG.layers, norm=torch.nn.LayerNorm(size), enable_nested_tensor=False
    )

    def tensor(*arrays: Any) -> Any:
        """Weights of PyTorch have the outputs first."""
        return torch.cat([torch.tensor(np.asarray(array).T.copy()) for array in arrays])

    copied = {"norm.weight": tensor(model.norm.scale), "norm.bias": tensor(model.norm.shift)}
    for number, ours in enumerate(model.layers):
        block, feed = ours.attention, ours.feed_forward
        inputs = (block.query, block.key, block.value)
        named = {
            "self_attn.in_proj_weight": [one.weights for one in inputs],
            "self_attn.in_proj_bias": [one.bias for one in inputs],
            "self_attn.out_proj.weight": [block.output.weights],
            "self_attn.out_proj.bias": [block.output.bias],
            "linear1.weight": [feed.inner.weights],
            "linear1.bias": [feed.inner.bias],
            "linear2.weight": [feed.outer.weights],
            "linear2.bias": [feed.outer.bias],
            "norm1.weight": [ours.attention_norm.scale],
            "norm1.bias": [ours.attention_norm.shift],
            "norm2.weight": [ours.feed_forward_norm.scale],
            "norm2.bias": [ours.feed_forward_norm.shift],
        }
        copied |= {f"layers.{number}.{name}": tensor(*arrays) for name, arrays in named.items()}
    theirs.load_state_dict(copied)  # strict: nothing is missing, nothing left over
    theirs.eval()
    inputs = np.asarray(model.embedding)[batch.words] + np.asarray(model.positions)
    with torch.no_grad():
        expected = theirs(torch.tensor(inputs), src_key_padding_mask=torch.tensor(~MASK)).numpy()
    np.testing.assert_allclose(
        np.asarray(eqx.filter_jit(Encoder.states)(model, batch))[MASK],
        expected[MASK],
        rtol=1e-5,
        atol=1e-5,
    )  # float32


# -- padding ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_padding_changes_nothing(kernel, pooling):
    model = built(dataclasses.replace(CONFIG, kernel=kernel, pooling=pooling))
    short = sentences(None).shortened(4)
    longer = jnp.pad(short.words, ((0, 0), (0, 3)), constant_values=WORDS - 1)
    there = jnp.broadcast_to(jnp.arange(LONGEST) < 4, longer.shape)
    padded = Batch(longer, short.labels, there)
    both = eqx.filter_jit(lambda model, batch: (model(batch).logits, model.loss(batch)))
    for ours, expected in zip(both(model, padded), both(model, short), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)


def test_a_sentence_without_a_word_has_finite_logits_and_gradients():
    model, batch = built(), sentences(np.zeros_like(MASK))
    np.testing.assert_allclose(logits_of(model, batch), np.tile(model.head.bias, (4, 1)))
    gradient = jax.tree.leaves(eqx.filter_jit(eqx.filter_grad(Encoder.loss))(model, batch))
    assert all(np.all(np.isfinite(leaf)) for leaf in gradient)


def test_sentences_longer_than_the_positions_are_refused():
    model = built(dataclasses.replace(CONFIG, longest=5))
    with pytest.raises(ConfigError, match=r"^longest: got 5 for sentences of 7 positions, allowed"):
        model(sentences())


# -- dropout ---------------------------------------------------------------------------------------


def test_dropout_needs_a_key():
    model, batch = built(dataclasses.replace(CONFIG, layers=1)), sentences()
    keys = jax.random.split(jax.random.key(1))
    without = dataclasses.replace(model, dropout=0.0)
    quiet = logits_of(model, batch)
    one, other, again = eqx.filter_jit(
        lambda model, keys: jax.lax.map(lambda key: model(batch, key).logits, keys)
    )(model, keys[np.asarray([0, 1, 0])])
    np.testing.assert_array_equal(one, again)
    assert np.all(np.abs(np.asarray(one - quiet)) > 0)
    assert np.all(np.abs(np.asarray(one - other)) > 0)
    np.testing.assert_array_equal(logits_of(without, batch, keys[0]), quiet)
    assert loss_of(model, batch, keys[0]) != loss_of(model, batch)


@pytest.mark.parametrize("probability", [0.1, 0.5])
def test_dropout_keeps_the_mean_and_its_rate(probability):
    values = jnp.full(200_000, 3.0)
    found = np.asarray(dropped(values, probability, jax.random.key(4)))
    gone = np.mean(found == 0)
    np.testing.assert_allclose(np.unique(found), [0, 3 / (1 - probability)], rtol=1e-6)
    # Four standard errors of a share.
    error = 4 * math.sqrt(probability * (1 - probability) / values.size)
    assert abs(gone - probability) < error
    assert abs(found.mean() - 3) < 3 * error / (1 - probability)


def test_dropout_acts_at_three_places():
    """Without layers' outputs only the embedding is dropped; without it, only what layers add."""
    model, batch = built(dataclasses.replace(CONFIG, layers=1)), sentences(None)
    zero = lambda linear: jax.tree.map(jnp.zeros_like, linear)  # noqa: E731
    blocks = {
        "attention": lambda model: model.layers[0].attention.output,
        "feed_forward": lambda model: model.layers[0].feed_forward.outer,
        "embedding": lambda model: (model.embedding, model.positions),
    }
    for acting in blocks:
        changed = model
        for name, where in blocks.items():
            if name != acting:
                changed = eqx.tree_at(where, changed, replace_fn=zero)
        run = eqx.filter_jit(Encoder.states)
        still, dropped = (run(changed, batch, key) for key in (None, jax.random.key(2)))
        assert not np.allclose(still, dropped), acting


@pytest.mark.parametrize("name", ["layers", "heads", "dimension", "hidden", "longest"])
def test_what_shapes_depend_on_is_not_swept(name):
    with pytest.raises(ConfigError, match=f"sweep {name}: cannot be swept, because shapes depend"):
        dataclasses.replace(CONFIG, **{name: Swept.over(name, [8, 16])})


def test_the_rate_of_dropout_is_swept():
    """Within one program; a rate of zero is no dropout."""
    config = dataclasses.replace(CONFIG, dropout=Swept.over("dropout", [0.0, 0.5]))
    assert isinstance(config.dropout, Swept)
    batch = sentences()

    model, key = built(config), jax.random.key(5)
    assert not model.trainable().dropout

    def logits(rate: Any) -> Any:
        return dataclasses.replace(model, dropout=rate)(batch, key).logits

    found = eqx.filter_jit(jax.vmap(logits))(jnp.asarray(config.dropout.values))
    quiet = logits_of(model, batch)
    np.testing.assert_allclose(found[0], quiet, rtol=1e-6, atol=1e-6)
    assert not np.allclose(found[1], quiet)


# -- gradients -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kernel", "seed"), [("softmax", None), ("gaussian", 7)])
def test_gradients_are_finite_and_those_of_differences(kernel, seed):
    """Without and with dropout."""
    with jax.enable_x64(True):
        model, batch = built(dataclasses.replace(CONFIG, kernel=kernel, layers=1)), sentences()
        moving, still = eqx.partition(model, model.trainable())
        way = jax.tree.map(lambda leaf: RANDOM.normal(size=leaf.shape), moving)

        def slopes(moving: Any, key: Any) -> Any:
            """The gradient, and the losses a little further and a little back."""
            loss = lambda part: eqx.combine(part, still).loss(batch, key)  # noqa: E731
            at = lambda step: jax.tree.map(lambda here, to: here + step * to, moving, way)  # noqa: E731
            return jax.grad(loss)(moving), jax.lax.map(lambda step: loss(at(step)), STEPS)

        key = None if seed is None else jax.random.key(seed)
        slope, ends = eqx.filter_jit(slopes)(moving, key)
        pairs = zip(jax.tree.leaves(slope), jax.tree.leaves(way), strict=True)
        along = sum(np.sum(np.asarray(one) * other) for one, other in pairs)
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(along, rel=1e-6)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(slope))


# -- attention -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
def test_attention_layers_are_those_of_the_forward_pass(kernel, monkeypatch):
    model, batch = built(dataclasses.replace(CONFIG, kernel=kernel)), sentences()
    seen, kind = [], type(model.layers[0].attention.kernel)
    sums = kind.sums

    def watched(self: Any, scores: Any, values: Any) -> Any:
        seen.append(self.weights(scores))
        return sums(self, scores, values)

    monkeypatch.setattr(kind, "sums", watched)
    used = eqx.filter_jit(lambda model: (model(batch), list(seen)))(model)[1]
    monkeypatch.undo()
    layers = eqx.filter_jit(Encoder.attention_layers)(model, batch)
    assert len(used) == len(layers) == CONFIG.layers
    for layer, expected in zip(layers, used, strict=True):
        assert layer.mask is not None
        scores = layer.kernel.scores(layer.queries, layer.keys)
        found = layer.kernel.weights(jnp.where(layer.mask[:, None, None], scores, -jnp.inf))
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        assert found.shape == (4, CONFIG.heads, LONGEST, LONGEST)
        np.testing.assert_array_equal(layer.words, MASK)
        assert layer.future_weight == 1
        np.testing.assert_allclose(layer.padding_weight, 0)
        found = np.asarray(found)
        assert np.allclose(found.sum(-1), 1, rtol=1e-5) == (kernel == "softmax")
        assert np.all(np.moveaxis(found, -1, 1)[~MASK] == 0)


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
def test_normalised_queries_and_keys_and_a_temperature(kernel):
    """Against NumPy; the temperature can be swept, and is never trained."""
    config = dataclasses.replace(CONFIG, kernel=kernel, query_key_norm=True, temperature=2.0)
    model, batch = built(config), sentences()
    layer = eqx.filter_jit(Encoder.attention_layers)(model, batch)[0]
    inner = model.layers[0].attention
    states = model.embedding[batch.words] + model.positions[:LONGEST]
    inputs = plain_norm(model.layers[0].attention_norm, np.asarray(states))
    assert inner.norms is not None
    sides = ((inner.query, inner.norms[0], layer.queries), (inner.key, inner.norms[1], layer.keys))
    for side, norm, found in sides:
        plain = inputs @ np.asarray(side.weights) + np.asarray(side.bias)
        plain = np.swapaxes(plain.reshape(4, LONGEST, 2, 4), 1, 2)
        plain = plain / np.sqrt((plain**2).mean(-1, keepdims=True) + 1e-5) * norm.scale
        np.testing.assert_allclose(found, plain / np.sqrt(2), rtol=1e-4, atol=1e-5)
    swept = eqx.tree_at(lambda one: one.layers[0].attention.temperature, model, jnp.ones(()))
    assert not any(one.attention.temperature for one in swept.trainable().layers)
    assert all(jax.tree.leaves(swept.trainable().layers[0].attention.norms))


def test_a_record_says_how_attention_was_computed():
    assert CONFIG.about == {}
    said = dataclasses.replace(CONFIG, fused=True).about["attention_form"]
    on_gpu = jax.default_backend() == "gpu"
    assert said.startswith("explicit, in blocks: ")
    assert ("in eights" if on_gpu else "no fused attention on cpu") in said
    recipe = Recipe(
        KeywordSentences(length=5, words=6, train_size=8, test_size=4),
        dataclasses.replace(CONFIG, fused=True, layers=1, dropout=0.0),
        GradientDescent(0.1),
        1,
        at=Every(1),
    )
    trained = Lab(progress=None).train(recipe)
    assert trained.trajectory.attrs["attention_form"] == said


# -- heads -----------------------------------------------------------------------------------------


def documents(size: int = 9, selected: float = 0.4) -> tuple[TopicDocuments, Documents]:
    task = TopicDocuments(3, 2, 2, shortest=3, longest=7, masking=Masking(selected))
    return task, eqx.filter_jit(lambda key: task.sample(key, size))(jax.random.key(0))


@pytest.mark.parametrize("tied", [True, False])
def test_the_masked_head_predicts_selected_words(tied):
    task, batch = documents()
    config = dataclasses.replace(CONFIG, head="masked", tied=tied, longest=None)
    model = built(config, task)
    found, loss, states = eqx.filter_jit(
        lambda model, batch: (model(batch).logits, model.loss(batch), model.states(batch))
    )(model, batch)
    logits, embedding = np.asarray(found, float), model.embedding
    assert logits.shape == (9, 7, task.vocabulary_size)
    weights = embedding.T / math.sqrt(8) if tied else model.head.weights
    np.testing.assert_allclose(logits, states @ weights + model.head.bias, rtol=1e-4, atol=1e-5)
    surprise = np.log(np.exp(logits).sum(-1)) - np.take_along_axis(
        logits, np.asarray(batch.labels)[..., None], axis=-1
    ).squeeze(-1)
    expected = surprise[np.asarray(batch.selected)].mean()
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert ("head.weights" in paths(model)) is not tied


def test_the_masked_loss_of_many_documents_has_logits_for_a_share_of_positions():
    task, batch = documents(500, selected=0.05)
    model = built(dataclasses.replace(CONFIG, head="masked", longest=None, layers=1), task)
    everywhere = dataclasses.replace(model, selected_share=1.0)
    few, all_rows = (loss_of(one, batch) for one in (model, everywhere))
    assert float(few) == pytest.approx(float(all_rows), rel=1e-6)
    shapes = str(jax.make_jaxpr(model.loss)(batch))
    assert f"f32[{500 * 7},{task.vocabulary_size}]" not in shapes
    all_selected = dataclasses.replace(batch, selected=jnp.ones_like(batch.selected))
    assert np.isnan(loss_of(model, all_selected)), "more selected positions than the task selects"


def test_no_selected_position_is_no_loss():
    task, batch = documents()
    model = built(dataclasses.replace(CONFIG, head="masked", longest=None), task)
    none = dataclasses.replace(batch, selected=jnp.zeros_like(batch.selected))
    assert float(loss_of(model, none)) == 0


# -- configs ---------------------------------------------------------------------------------------


def test_parts_have_the_paths_that_the_documents_name():
    known = paths(built())
    for number in range(CONFIG.layers):
        for part in ("query", "key", "value", "output"):
            assert f"layers.{number}.attention.{part}.weights" in known
        for part in ("inner", "outer"):
            assert f"layers.{number}.feed_forward.{part}.weights" in known
    assert {"embedding", "positions", "norm.scale", "head.weights", "head.bias"} <= set(known)
    assert "dropout" not in known


def test_the_scale_of_the_start():
    config = EncoderConfig(
        layers=1, dimension=64, hidden=256, weight_scale=2.0, embedding_std=0.5, longest=200
    )
    task: Any = SimpleNamespace(vocabulary_size=500, labels=2)
    model = eqx.filter_jit(lambda key: config.build(task, key))(jax.random.key(0))
    layer = model.layers[0]
    for weights, inputs in (
        (layer.attention.query.weights, 64),
        (layer.feed_forward.inner.weights, 64),
        (layer.feed_forward.outer.weights, 256),
    ):
        error = 4 / math.sqrt(2 * weights.size)  # of a standard deviation, relative
        assert float(weights.std()) == pytest.approx(2 / math.sqrt(inputs), rel=error)
    for table in (model.embedding, model.positions):
        assert float(table.std()) == pytest.approx(0.5, rel=4 / math.sqrt(2 * table.size))


def test_positions_come_from_the_task():
    config = dataclasses.replace(CONFIG, longest=None)
    splits = {"train": sentences(), "test": sentences().shortened(3)}
    corpus = SimpleNamespace(vocabulary_size=WORDS, labels=LABELS, splits=splits)
    for task, positions in ((KeywordSentences(length=9), 9), (corpus, LONGEST)):
        assert len(built(config, task).positions) == positions
    vectors: Any = RandomSequences.example()
    with pytest.raises(ConfigError, match=r"^longest: got None with RandomSequences.* allowed: a"):
        config._positions(vectors)


@pytest.mark.parametrize(
    ("field", "value", "allowed"),
    [
        ("heads", 3, "heads: got 3, allowed: a divisor of the dimension, 8"),
        ("dropout", 1.0, "dropout: got 1.0, allowed: at least 0 and below 1"),
        ("kernel", "linear", "kernel: got 'linear', allowed: softmax, gaussian"),
        ("head", "next", "head: got 'next', allowed: classification, masked"),
        ("temperature", 0.0, "temperature: got 0.0, allowed: a finite number above 0"),
        ("longest", 0, "longest: got 0, allowed: a whole number, at least 1"),
        ("weight_scale", -1.0, "weight_scale: got -1.0, allowed: a finite number"),
    ],
)
def test_configs_are_checked(field, value, allowed):
    with pytest.raises(ConfigError, match=f"^{allowed}"):
        dataclasses.replace(CONFIG, **{field: value})


# -- decoders, and what a fault is made of ---------------------------------------------------------


def made(config: EncoderConfig) -> Encoder:
    """With the same weights, whatever the settings."""
    return config.build(TASK, jax.random.key(0))


def test_a_decoder_sees_no_later_word():
    """And with a weight between, it does, by exactly that weight."""
    decoder = made(dataclasses.replace(CONFIG, future_weight=0.0, head="masked"))
    batch = sentences()
    later = (batch.words[:, 3:] + 1) % WORDS
    other = eqx.tree_at(lambda one: one.words, batch, batch.words.at[:, 3:].set(later))
    before, after = (decoder(one).logits for one in (batch, other))
    np.testing.assert_allclose(before[:, :3], after[:, :3], rtol=1e-5, atol=1e-6)
    assert not np.allclose(before[:, 3:], after[:, 3:])
    attention = made(dataclasses.replace(CONFIG, future_weight=0.3)).layers[0].attention
    nothing = jnp.zeros((4, 2, LONGEST, LONGEST))
    layer = attention.seen(jnp.ones((4, LONGEST, 8)), nothing, nothing, None)
    found = in_rows(
        layer.kernel,
        layer.queries,
        layer.keys,
        jnp.broadcast_to(jnp.eye(LONGEST), (4, 2, LONGEST, LONGEST)),
        future_weight=layer.future_weight,
    )
    weights = np.where(np.triu(np.ones((LONGEST, LONGEST)), 1) > 0, 0.3, 1.0)
    np.testing.assert_allclose(found[0, 0], weights / weights.sum(1, keepdims=True), rtol=1e-5)


def test_padding_with_the_weight_of_words_is_no_padding():
    hidden, seen = (
        made(dataclasses.replace(CONFIG, padding_weight=weight, head="masked"))
        for weight in (0.0, 1.0)
    )
    batch = sentences()
    whole = Batch(batch.words, batch.labels)
    np.testing.assert_allclose(seen(batch).logits, hidden(whole).logits, rtol=1e-5, atol=1e-6)
    assert not np.allclose(seen(batch).logits, hidden(batch).logits)


def test_without_skip_connections_only_the_last_block_is_left():
    """States of 0 behind a feed-forward block without weights."""
    model = made(dataclasses.replace(CONFIG, skip=0.0))
    outer = lambda tree: tree.layers[-1].feed_forward.outer.weights  # noqa: E731
    model = eqx.tree_at(outer, model, jnp.zeros_like(outer(model)))
    batch = sentences()
    np.testing.assert_allclose(model.states(batch), 0.0)
    kept = eqx.tree_at(outer, made(CONFIG), jnp.zeros_like(outer(model)))
    assert np.all(np.abs(kept.states(batch)).max(-1) > 0)


def test_rounded_scores_have_eight_binary_digits():
    precisions: Any = ("full", "bfloat16")
    exact, rounded = (
        made(dataclasses.replace(CONFIG, score_precision=one, weight_scale=3.0))
        for one in precisions
    )
    batch = sentences()
    apart = np.abs(exact(batch).logits - rounded(batch).logits)
    assert 0 < apart.max() < 0.1
    scores = with_rounding(jnp.asarray([1.0, 1.001, 300.0, 301.0]))
    np.testing.assert_array_equal(scores, [1.0, 1.0, 300.0, 300.0])


@pytest.mark.parametrize(
    "setting", [{"future_weight": 0.0}, {"padding_weight": 0.1}, {"score_precision": "bfloat16"}]
)
def test_fused_attention_has_none_of_them(setting):
    with pytest.raises(ConfigError, match=r"^fused: got True, allowed: False with a future_weight"):
        EncoderConfig(fused=True, **setting)


def test_settings_do_not_learn():
    config = dataclasses.replace(CONFIG, future_weight=0.5, padding_weight=0.5, skip=0.5)
    array = lambda leaf: jnp.asarray(leaf) if isinstance(leaf, float) else leaf  # noqa: E731
    learns = jax.tree.map(array, made(config)).trainable()
    assert not learns.skip
    assert not any(
        getattr(layer.attention, name)
        for layer in learns.layers
        for name in ("future_weight", "padding_weight", "temperature")
    )
