"""The translator against loops in NumPy and PyTorch's own layers; its size, dropout, frozen parts
and unused words.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_recurrence import states

from saccade.contracts.model import Output
from saccade.contracts.task import END, START, SentencePairs
from saccade.errors import ConfigError
from saccade.models import translator
from saccade.models.kernels import KERNELS, Gaussian
from saccade.models.recurrence import Recurrence
from saccade.models.sequence_to_sequence import token_entropy
from saccade.models.translator import Translator, TranslatorConfig
from saccade.models.word_loss import mean_surprise, surprises
from saccade.settings import Swept
from saccade.tasks.copying import Copying
from saccade.tasks.lexicon_sentences import LexiconSentences
from saccade.train.batches import Minibatch
from saccade.train.optimiser import Adam
from saccade.train.recipe import Recipe

TASK = LexiconSentences(words=2)
IDS = TASK.vocabulary_size
HIDDEN = 3
ROUNDING = 1e-11
"""Float64: numbers of size up to 100, some hundred operations deep."""
SOURCES, TARGETS = (4, 2, 3), (3, 2, 3)
"""Positions that are no padding, per pair."""
BATCH = SentencePairs(
    source=jnp.asarray([[2, 3, 2, END], [3, END, END, END], [3, 2, END, END]], jnp.int32),
    target=jnp.asarray([[4, 5, END], [5, END, END], [4, 4, END]], jnp.int32),
    aligned=jnp.zeros((3, 3), jnp.int32),
    source_mask=jnp.asarray(np.arange(4) < np.asarray(SOURCES)[:, None]),
    target_mask=jnp.asarray(np.arange(3) < np.asarray(TARGETS)[:, None]),
)


def scattered(seed: int = 0, task: Any = TASK, **settings: Any) -> Translator:
    """A model far from its start: all numbers of size 1. Under jax.enable_x64."""
    random = np.random.default_rng(seed)
    config = TranslatorConfig(hidden=HIDDEN, **settings)
    shapes: Any = eqx.filter_eval_shape(config.build, task, jax.random.key(0))
    used = jnp.asarray(getattr(task, "used_ids", np.ones(task.vocabulary_size, bool)))

    def drawn(leaf: Any) -> Any:
        if isinstance(leaf, float):
            return leaf
        return used if leaf.dtype == bool else jnp.asarray(random.normal(size=leaf.shape))

    return jax.tree.map(drawn, shapes)


@eqx.filter_jit
def answers(model: Translator, batch: SentencePairs, gates: Any) -> tuple[Any, ...]:
    return model(batch, gates), model.lexical_probe(batch), model.loss(batch)


def measured(model: Translator, batch: SentencePairs, gates: Any = None) -> tuple[Any, ...]:
    """Output, lexical probe and loss, as NumPy arrays."""
    return jax.tree.map(np.asarray, answers(model, batch, gates))


def by_numpy(
    model: Translator, batch: SentencePairs, forced: int | None = None, gates: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Log probabilities [pair, target, id] and attention [pair, target, source], by loops.

    Forced: attention is on that position only.
    """
    model = jax.tree.map(np.asarray, model)
    gates = np.ones(batch.source.shape) if gates is None else np.asarray(gates)
    scores, attention = [], np.zeros((*batch.target.shape, batch.source.shape[1]))
    for pair, (source, target) in enumerate(
        zip(np.asarray(batch.source), np.asarray(batch.target), strict=True)
    ):
        there = int(batch.source_mask[pair].sum())
        encoded = gates[pair, :there, None] * model.embeddings[source[:there]]
        starts = []
        for layer in model.encoder:
            (ahead, ahead_last), (back, back_last) = (states(one, encoded) for one in layer)
            encoded = np.concatenate([ahead, back], axis=1)
            starts.append([np.mean(both, axis=0) for both in zip(ahead_last, back_last)])  # noqa: B905
        decoded = model.embeddings[[START, *target[:-1]]]
        for layer, start in zip(model.decoder, starts, strict=True):
            decoded, _ = states(layer, decoded, start)
        rows = []
        for t, state in enumerate(decoded):
            query = state @ model.query.weights + model.query.bias
            if model.attention == "uniform":
                weights = np.full(there, 1 / there)
            elif isinstance(model.kernel, Gaussian):
                weights = np.exp(-np.sum((query - encoded) ** 2, axis=1) / 2)
            else:
                weights = np.exp(encoded @ query - np.max(encoded @ query))
                weights /= weights.sum()
            if forced is not None:
                weights = np.eye(there)[min(forced, there - 1)]
            attention[pair, t, :there] = weights
            context = weights @ encoded @ model.context.weights + model.context.bias
            hidden = np.concatenate([context, state]) @ model.hidden_layer.weights
            hidden = np.maximum(hidden + model.hidden_layer.bias, 0)
            logits = hidden @ model.output_layer.weights + model.output_layer.bias
            rows.append(log_softmax(np.where(model.used_ids, logits, -np.inf)))
        scores.append(rows)
    return np.asarray(scores), attention


def log_softmax(logits: Any) -> np.ndarray:
    logits = np.asarray(logits)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def of_right_word(scores: np.ndarray, batch: SentencePairs) -> np.ndarray:
    return np.take_along_axis(scores, np.asarray(batch.target)[..., None], axis=-1)[..., 0]


# -- values ----------------------------------------------------------------------------------------


def test_the_paper_s_size_has_the_paper_s_number_of_parameters():
    """Embeddings are counted once, and the readout is not counted among them."""
    task = LexiconSentences(words=3999)
    assert task.vocabulary_size == 8000
    model: Any = eqx.filter_eval_shape(TranslatorConfig().build, task, jax.random.key(0))

    def count(part: Any) -> int:
        leaves = [leaf for leaf in jax.tree.leaves(part) if hasattr(leaf, "dtype")]
        return sum(leaf.size for leaf in leaves if jnp.issubdtype(leaf.dtype, jnp.floating))

    assert count(model) == 8_180_544
    assert count(model) - count(model.embeddings) == 6_132_544
    assert count(model.output_layer) == 256 * 8000 + 8000
    assert count(model.encoder) == 2 * (1024 * (256 + 256) + 2048 + 1024 * (512 + 256) + 2048)
    assert count(model.decoder) == 2 * (1024 * (256 + 256) + 2048)
    assert count(model.query) == 256 * 512 + 512
    assert count((model.context, model.hidden_layer)) == 2 * (512 * 256 + 256)


VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "one layer": {"layers": 1},
    "three layers, uniform": {"layers": 3, "attention": "uniform"},
    "Gaussian": {"kernel": "gaussian"},
}


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_logits_attention_lexical_probe_and_loss_are_those_of_plain_loops(settings):
    with jax.enable_x64(True):
        model = scattered(**settings)
        output, probe, loss = measured(model, BATCH)
    scores, attention = by_numpy(model, BATCH)
    np.testing.assert_allclose(log_softmax(output.logits), scores, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(output.attention, attention, rtol=0, atol=ROUNDING)
    there = np.broadcast_to(np.asarray(BATCH.source_mask)[:, None], attention.shape)
    assert np.all(output.attention[~there] == 0)
    wanted = np.asarray(BATCH.target_mask)
    assert float(loss) == pytest.approx(-np.mean(of_right_word(scores, BATCH)[wanted]), rel=1e-12)
    # What the model would say if it attended to one position only, which the loops can make it do.
    for place in range(BATCH.source.shape[1]):
        alone = of_right_word(by_numpy(model, BATCH, forced=place)[0], BATCH)
        has = there[:, 0, place]
        np.testing.assert_allclose(probe[has, :, place], alone[has], rtol=0, atol=ROUNDING)


def test_gates_multiply_the_source_embeddings_and_no_others():
    with jax.enable_x64(True):
        gates = jnp.asarray(np.random.default_rng(1).normal(size=BATCH.source.shape))
        model = scattered(1)
        gated, ones, plain = (
            measured(model, BATCH, one)[0].logits for one in (gates, jnp.ones_like(gates), None)
        )
    expected = by_numpy(model, BATCH, gates=gates)[0]
    np.testing.assert_allclose(log_softmax(gated), expected, rtol=0, atol=ROUNDING)
    assert np.array_equal(ones, plain)


def test_padding_changes_nothing():
    """Whatever words stand there: the same logits, attention and probe at words, and loss."""
    source, target = (
        jnp.where(mask, words, 3)
        for mask, words in ((BATCH.source_mask, BATCH.source), (BATCH.target_mask, BATCH.target))
    )
    with jax.enable_x64(True):
        model = scattered(2)
        plain = measured(model, BATCH)
        other = measured(model, dataclasses.replace(BATCH, source=source, target=target))
    wanted, there = np.asarray(BATCH.target_mask), np.asarray(BATCH.source_mask)
    assert np.array_equal(plain[0].logits[wanted], other[0].logits[wanted])
    assert np.array_equal(plain[0].attention[wanted], other[0].attention[wanted])
    both = wanted[:, :, None] & there[:, None]
    assert np.array_equal(plain[1][both], other[1][both])
    assert np.array_equal(plain[2], other[2])


def test_the_lexical_probe_is_the_same_however_many_words_are_probed_at_once(monkeypatch):
    with jax.enable_x64(True):
        model = scattered(3)
        whole = measured(model, BATCH)[1]
        monkeypatch.setattr(translator, "PROBED", 2 * BATCH.source.shape[1] * IDS)  # two words
        parts = jax.jit(lambda: model.lexical_probe(BATCH))()
    np.testing.assert_allclose(parts, whole, rtol=0, atol=1e-13)


def test_the_attention_layer_has_the_weights_of_the_call():
    with jax.enable_x64(True):
        for settings in ({}, {"attention": "uniform"}):
            model = scattered(4, **settings)
            (layer,) = eqx.filter_jit(model.attention_layers)(BATCH)
            scores = layer.kernel.scores(layer.queries, layer.keys, layer.scale)
            assert layer.mask is not None
            assert layer.asked is not None
            seen = jnp.where(layer.mask[:, None, None], scores, -jnp.inf)
            found = layer.kernel.weights(seen)[:, 0]
            np.testing.assert_allclose(
                found, measured(model, BATCH)[0].attention, rtol=0, atol=1e-14
            )
            assert np.array_equal(layer.asked, BATCH.target_mask)


def test_words_one_at_a_time_have_the_logits_of_all_at_once():
    with jax.enable_x64(True):
        model = scattered(5)
        expected = measured(model, BATCH)[0].logits
        memory, state = eqx.filter_jit(model.begin)(BATCH.source, BATCH.source_mask)
        step = eqx.filter_jit(model.step)
        for place in range(BATCH.target.shape[1]):
            logits, state = step(BATCH.decoder_input[:, place], state, memory)
            np.testing.assert_allclose(logits, expected[:, place], rtol=0, atol=ROUNDING)


# -- PyTorch ---------------------------------------------------------------------------------------


TORCH_NAMES = {
    "weight_ih": "input_weights",
    "bias_ih": "input_bias",
    "weight_hh": "state_weights",
    "bias_hh": "state_bias",
}


def copied(torch: Any, lstm: Any, layers: Any) -> None:
    """The weights of our layers [layer][direction], into PyTorch's LSTM."""
    with torch.no_grad():
        for place, directions in enumerate(layers):
            for way, layer in enumerate(directions):
                for name, field in TORCH_NAMES.items():
                    weights = np.asarray(getattr(layer, field)).T.copy()
                    ending = f"_l{place}{'_reverse' * way}"
                    getattr(lstm, name + ending).copy_(torch.tensor(weights))


def test_encoder_and_decoder_are_pytorchs():
    """Two layers of `nn.LSTM`, both directions of a packed batch, then one from their means."""
    torch = pytest.importorskip("torch")
    task = LexiconSentences(words=6)
    config = TranslatorConfig(hidden=8)
    model = jax.jit(lambda key: config.build(task, key))(jax.random.key(0))
    batch = task.sample(jax.random.key(1), 5)
    encode = eqx.filter_jit(lambda source: model.encoded(source, batch.source_mask))
    encoded, starts = encode(batch.source)
    decoded = eqx.filter_jit(model.decoded)(batch.decoder_input, starts)

    encoder = torch.nn.LSTM(8, 8, num_layers=2, bidirectional=True, batch_first=True)
    decoder = torch.nn.LSTM(8, 8, num_layers=2, batch_first=True)
    copied(torch, encoder, model.encoder)
    copied(torch, decoder, [(layer,) for layer in model.decoder])
    table, packing = torch.tensor(np.array(model.embeddings)), torch.nn.utils.rnn
    lengths = torch.tensor(np.asarray(batch.source_mask.sum(1), np.int64))
    assert len(set(lengths.tolist())) > 2
    with torch.no_grad():
        inputs = table[torch.tensor(np.array(batch.source, np.int64))]
        packed = packing.pack_padded_sequence(inputs, lengths, True, enforce_sorted=False)
        outputs, last = encoder(packed)
        outputs, _ = packing.pad_packed_sequence(outputs, batch_first=True)
        last = [part.reshape(2, 2, 5, 8).mean(1) for part in last]  # layer, direction, pair, hidden
        words = table[torch.tensor(np.array(batch.decoder_input, np.int64))]
        answered, _ = decoder(words, tuple(last))
    there = np.asarray(batch.source_mask)[:, : outputs.shape[1]]
    ours = np.asarray(encoded)[:, : outputs.shape[1]]
    np.testing.assert_allclose(ours[there], outputs.numpy()[there], rtol=0, atol=1e-5)
    for place, start in enumerate(starts):
        for part, found in zip(last, start, strict=True):
            np.testing.assert_allclose(found, part[place].numpy(), rtol=0, atol=1e-5)
    np.testing.assert_allclose(decoded, answered.numpy(), rtol=0, atol=1e-5)
    # What is compared is not constant, and depends on the words.
    assert np.ptp(ours[there]) > 0.1
    assert np.abs(encoded - encode(batch.source[::-1])[0]).max() > 0.01


def test_the_parts_start_as_pytorch_starts_them():
    """Embeddings from N(0, 1), layers uniform up to one over the root of their inputs (an LSTM: of
    its size), all of it drawn apart.
    """
    task = LexiconSentences(words=30)
    config = TranslatorConfig(hidden=16)
    model = jax.jit(lambda key: config.build(task, key))(jax.random.key(0))
    table = np.asarray(model.embeddings)
    # Four standard errors of a mean of squares.
    assert np.mean(table**2) == pytest.approx(1, abs=4 * np.sqrt(2 / table.size))
    of_16 = [model.encoder, model.decoder, model.query, model.output_layer]
    for inputs, parts in {16: of_16, 32: [model.context, model.hidden_layer]}.items():
        for leaf in jax.tree.leaves(parts):
            # Of 512 draws, the fewest of a matrix, the largest is below 0.98 with a chance of
            # 3e-5; of 16, the fewest of a bias, it is below 0.6 with one of 3e-4.
            least = 0.98 if leaf.ndim == 2 else 0.6
            assert least * inputs**-0.5 < np.abs(leaf).max() <= inputs**-0.5
    numbers = [np.ravel(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))]
    # 2^23 different numbers: a few come twice by chance, but not whole parts.
    together = np.concatenate(numbers)
    assert len(np.unique(together)) > 0.99 * len(together)


# -- dropout ---------------------------------------------------------------------------------------


def test_dropout_is_between_layers_and_nowhere_else(monkeypatch):
    """What every layer reads, without a key and with one: embeddings as they are, and outputs of
    another layer zero or doubled.
    """
    task = LexiconSentences(words=6)
    model = TranslatorConfig(hidden=32, layers=2, dropout=0.5).build(task, jax.random.key(0))
    batch = task.sample(jax.random.key(1), 20)
    reads: list[np.ndarray] = []
    outputs: list[np.ndarray] = []

    def kept_of(function: Any, where: list[np.ndarray], which: Any) -> Any:
        def recorded(*given: Any, **named: Any) -> Any:
            found = function(*given, **named)
            where.append(np.asarray(which(given, found)))
            return found

        return recorded

    for place, name, where, which in (
        (Recurrence, "inputs_of_vectors", reads, lambda given, _: given[1]),
        (Recurrence, "of_vectors", outputs, lambda _, found: found[0]),
        (translator, "both_ways", outputs, lambda _, found: found[0]),
    ):
        monkeypatch.setattr(place, name, kept_of(getattr(place, name), where, which))
    model.states(batch)
    model.states(batch, key=jax.random.key(2))
    assert (len(reads), len(outputs)) == (12, 8)
    kept = []
    for key in (0, 1):
        ahead, back, second, back_second, decoder, decoder_second = reads[6 * key : 6 * key + 6]
        both, _, decoded, _ = outputs[4 * key : 4 * key + 4]
        for read, words in ((ahead, batch.source), (back, batch.source), (decoder, None)):
            words = batch.decoder_input if words is None else words
            assert np.array_equal(read, np.asarray(model.embeddings)[np.asarray(words)])
        assert np.array_equal(second, back_second), "both directions read the same"
        for read, given in ((second, both), (decoder_second, decoded)):
            if not key:
                assert np.array_equal(read, given)
                continue
            stays = read != 0
            assert np.array_equal(read, np.where(stays, 2 * given, 0))
            # Backwards, padding is read first, and its states are zero. Four standard errors.
            share, error = np.mean(stays[given != 0]), 0.5 / np.sqrt(np.sum(given != 0))
            assert share == pytest.approx(0.5, abs=4 * error)
            kept.append(stays)
    of_source, of_target = (stays[..., : model.embeddings.shape[1]] for stays in kept)
    flat, of_decoder = (stays.ravel()[: kept[1].size] for stays in kept)
    for one, other in (
        (of_source, of_target),
        (flat, of_decoder),  # which one key for both would make the same
        (of_source[0], of_source[1]),
        (of_target[:, 0], of_target[:, 1]),
    ):
        # Encoder and decoder, pairs and positions are dropped apart. Four standard errors.
        assert np.mean(one == other) == pytest.approx(0.5, abs=4 * 0.5 / np.sqrt(one.size))


def test_only_a_key_brings_dropout():
    batch = TASK.sample(jax.random.key(1), 6)
    keys = jax.random.split(jax.random.key(2))
    configs = (TranslatorConfig(8), TranslatorConfig(8, dropout=0.0), TranslatorConfig(8, layers=1))
    model, none, shallow = (config.build(TASK, jax.random.key(0)) for config in configs)
    loss = eqx.filter_jit(lambda model, key=None: model.loss(batch, key))
    losses = [float(loss(model, key)) for key in (None, *keys)]
    assert len(set(losses)) == 3
    assert loss(model, keys[0]) == losses[1]
    assert loss(none) == losses[0]
    for other in (none, shallow):
        assert loss(other, keys[0]) == loss(other)


@pytest.mark.slow
def test_a_training_sweeps_dropout(lab):
    """In the engine, which gives a new key at every step, and None when it measures."""
    task = LexiconSentences.example()
    config = TranslatorConfig(hidden=4, dropout=Swept.over("dropout", [0.0, 0.5]))  # pyright: ignore[reportArgumentType]
    arm = lab.train(Recipe(task, config, Adam(0.01), 3, batches=Minibatch(4)), seeds=1)
    losses = np.asarray(arm.trajectory["loss"].isel(seed=0).transpose("dropout", "step"))
    assert np.all(np.isfinite(losses))
    assert losses[0, 0] == losses[1, 0], "one start, measured without dropout"
    assert losses[0, -1] != losses[1, -1]


# -- the loss --------------------------------------------------------------------------------------


def test_loss_and_gradient_are_those_of_the_plain_form():
    with jax.enable_x64(True):
        logits = jnp.asarray(5 * np.random.default_rng(0).normal(size=(*BATCH.target.shape, IDS)))
        plain = jax.value_and_grad(lambda one: token_entropy(lambda _: Output(one), BATCH))(logits)
        ours = jax.value_and_grad(lambda one: mean_surprise(one, BATCH))(logits)
        plain, ours = jax.tree.map(np.asarray, (plain, ours))
    for one, other in zip(plain, ours, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-14)
    assert np.all(ours[1][~np.asarray(BATCH.target_mask)] == 0)
    assert np.all(ours[1][np.asarray(BATCH.target_mask)] != 0)


def test_the_surprise_of_large_logits_is_finite():
    logits = jnp.asarray([[1e4, 0.0, -1e9], [0.0, 0.0, -1e9]])
    value, gradient = jax.value_and_grad(lambda one: jnp.sum(surprises(one, jnp.asarray([1, 0]))))(
        logits
    )
    assert float(value) == pytest.approx(1e4 + np.log(2))
    np.testing.assert_allclose(gradient, [[1, -1, 0], [-0.5, 0.5, 0]], atol=1e-6)


def test_unused_words_have_no_chance_and_learn_nothing():
    task = Copying(2, 2, groups=2, largest=4)
    used = np.asarray(task.used_ids)
    batch = task.sample(jax.random.key(0), 6)
    with jax.enable_x64(True):
        model = scattered(6, task)
        output, _, loss = measured(model, batch)
        slope = eqx.filter_jit(eqx.filter_grad(lambda one: one.loss(batch)))(model)
    scores = by_numpy(model, batch)[0]
    assert np.all(np.exp(log_softmax(output.logits))[..., ~used] == 0)
    np.testing.assert_allclose(
        log_softmax(output.logits)[..., used], scores[..., used], rtol=0, atol=ROUNDING
    )
    assert float(loss) == pytest.approx(-np.mean(of_right_word(scores, batch)), rel=1e-12)
    for table in (slope.embeddings, slope.output_layer.weights.T, slope.output_layer.bias):
        assert np.all(np.asarray(table)[~used] == 0)
    assert np.any(np.asarray(slope.output_layer.bias)[used] != 0)


# -- configs ---------------------------------------------------------------------------------------


QUERY = {".query.weights", ".query.bias"}


@pytest.mark.parametrize(
    ("settings", "learning"),
    [
        ({}, lambda every: every),
        ({"attention": "frozen"}, lambda every: every - QUERY),
        ({"attention": "uniform"}, lambda every: every - QUERY),
        ({"lexicon": "frozen"}, lambda every: QUERY),
    ],
    ids=["all", "frozen attention", "uniform attention", "frozen lexicon"],
)
def test_what_learns(settings, learning):
    model = dataclasses.replace(scattered(**settings), dropout=jnp.asarray(0.5))  # as if swept
    flags = {
        jax.tree_util.keystr(path): flag
        for path, flag in jax.tree_util.tree_leaves_with_path(model.trainable())
    }
    every = set(flags) - {".used_ids", ".dropout"}
    assert every > QUERY | {".embeddings", ".encoder[1][1].input_weights", ".decoder[1].state_bias"}
    assert {name for name, flag in flags.items() if flag} == learning(every)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 0}, "hidden: got 0, allowed: a whole number, at least 1"),
        ({"layers": 0}, "layers: got 0, allowed: a whole number, at least 1"),
        ({"dropout": 1.0}, "dropout: got 1.0, allowed: at least 0 and below 1"),
        ({"dropout": -0.1}, "dropout: got -0.1, allowed: at least 0 and below 1"),
        ({"attention": "none"}, "attention: got 'none', allowed: learned, frozen, uniform"),
        ({"lexicon": "uniform"}, "lexicon: got 'uniform', allowed: learned, frozen"),
        ({"kernel": "linear"}, f"kernel: got 'linear', allowed: {', '.join(KERNELS)}"),
        (
            {"lexicon": "frozen", "attention": "uniform"},
            "lexicon: got 'frozen' with attention 'uniform'",
        ),
        ({"layers": Swept.over("layers", [1, 2])}, "sweep layers: cannot be swept, because shapes"),
    ],
)
def test_impossible_configs_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        TranslatorConfig(**settings)
