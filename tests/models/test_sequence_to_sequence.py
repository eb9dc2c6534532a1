"""The translation model against loops in NumPy; its heads, starts, frozen parts and unused
words.
"""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from plain_recurrence import states

from saccade.contracts.task import END, FIRST_WORD, START, SentencePairs
from saccade.errors import ConfigError
from saccade.models.kernels import KERNELS, Gaussian
from saccade.models.sequence_to_sequence import (
    SequenceToSequence,
    SequenceToSequenceConfig,
    token_entropy,
)
from saccade.settings import Swept, map_swept, swept_in
from saccade.tasks.copying import Copying
from saccade.tasks.lexicon_sentences import LexiconSentences

TASK = LexiconSentences(words=2)
IDS = TASK.vocabulary_size
HIDDEN = 3
ROUNDING = 1e-11
"""Float64: numbers of size up to 100, some hundred operations deep."""


def pairs(source: Any, target: Any, sources: Any, targets: Any) -> SentencePairs:
    """Sentence pairs of given lengths (END included), padded; which word
    is whose is not used here.
    """
    source, target = (jnp.asarray(words, jnp.int32) for words in (source, target))
    masks = (
        np.arange(words.shape[1]) < np.asarray(many)[:, None]
        for words, many in ((source, sources), (target, targets))
    )
    return SentencePairs(source, target, jnp.zeros_like(target), *map(jnp.asarray, masks))


BATCH = pairs(
    [[2, 3, 2, END], [3, END, END, END], [3, 2, END, END]],
    [[4, 5, END], [5, END, END], [4, 4, END]],
    (4, 2, 3),
    (3, 2, 3),
)
"""Three source words (no padding), one, and two; targets of another length."""


def scattered(seed: int = 0, task: Any = TASK, **settings: Any) -> SequenceToSequence:
    """A model of that kind far from its start: all numbers of size 1. Under jax.enable_x64."""
    random = np.random.default_rng(seed)
    shapes: Any = eqx.filter_eval_shape(
        SequenceToSequenceConfig(hidden=HIDDEN, **settings).build, task, jax.random.key(0)
    )
    used = jnp.asarray(getattr(task, "used_ids", np.ones(task.vocabulary_size, bool)))
    return jax.tree.map(
        lambda leaf: used if leaf.dtype == bool else jax.device_put(random.normal(size=leaf.shape)),
        shapes,
    )


@jax.jit
def answers(model: SequenceToSequence, batch: SentencePairs) -> tuple[Any, Any, Any]:
    output = model(batch)
    return output, model.lexical_probe(batch), model.loss(batch)


def measured(model: SequenceToSequence, batch: SentencePairs) -> tuple[Any, Any, Any]:
    """Output, lexical probe and loss, as NumPy arrays."""
    return jax.tree.map(np.asarray, answers(model, batch))


def by_numpy(
    model: SequenceToSequence, batch: SentencePairs, forced: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Log probabilities [pair, target, id] and attention of all heads [pair, target, head, source],
    by loops.

    Forced: all heads attend to that position only.
    """
    model = jax.tree.map(np.asarray, model)
    source_table = model.source_embeddings
    target_table = source_table if model.target_embeddings is None else model.target_embeddings
    scores, attention = (
        [],
        np.zeros((*batch.target.shape, model.heads.count, batch.source.shape[1])),
    )
    for pair, (source, target) in enumerate(
        zip(np.asarray(batch.source), np.asarray(batch.target), strict=True)
    ):
        there = int(batch.source_mask[pair].sum())
        encoded, last = states(model.encoder, source_table[source[:there]])
        start = (last,) if model.decoder_start == "encoder" else ()
        decoded, _ = states(model.decoder, target_table[[START, *target[:-1]]], *start)
        rows = []
        for t, state in enumerate(decoded):
            contexts = []
            for head in range(model.heads.count):
                query = state @ model.heads.query_weights[head] + model.heads.query_bias[head]
                if model.attention == "uniform":
                    weights = np.full(there, 1 / there)
                elif isinstance(model.kernel, Gaussian):
                    weights = np.exp(-np.sum((query - encoded) ** 2, axis=1) / 2)
                else:
                    weights = np.exp(encoded @ query)
                    weights /= weights.sum()
                if forced is not None:
                    weights = np.eye(there)[min(forced, there - 1)]
                attention[pair, t, head, :there] = weights
                context = weights @ encoded
                if model.heads.context_weights is not None and model.heads.context_bias is not None:
                    context = (
                        context @ model.heads.context_weights[head] + model.heads.context_bias[head]
                    )
                contexts.append(context)
            context = np.sum(contexts, axis=0) / (len(contexts) if model.together == "mean" else 1)
            hidden = (
                np.concatenate([context, state]) @ model.hidden_layer.weights
                + model.hidden_layer.bias
            )
            hidden = np.tanh(hidden) if model.activation == "tanh" else np.maximum(hidden, 0)
            logits = hidden @ model.output_layer.weights + model.output_layer.bias
            logits = logits[model.used_ids]
            rows.append(np.full(len(model.used_ids), -np.inf))
            rows[-1][model.used_ids] = (
                logits - logits.max() - np.log(np.sum(np.exp(logits - logits.max())))
            )
        scores.append(rows)
    return np.asarray(scores), attention


def log_softmax(logits: Any) -> np.ndarray:
    logits = np.asarray(logits)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def of_right_word(scores: np.ndarray, batch: SentencePairs) -> np.ndarray:
    return np.take_along_axis(scores, np.asarray(batch.target)[..., None], axis=-1)[..., 0]


VARIANTS: dict[str, dict[str, Any]] = {
    "copying code": {},
    "multi-head code": {"cell": "gru", "heads": 3, "together": "mean", "shared_embeddings": False},
    "Gaussian": {"heads": 2, "kernel": "gaussian", "activation": "relu"},
    "decoder from zero": {"decoder_start": "zero"},
    "text, uniform": {
        "heads": 2,
        "attention": "uniform",
        "context_projection": False,
        "cell": "gru",
    },
}


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_logits_attention_lexical_probe_and_loss_are_those_of_plain_loops(settings):
    with jax.enable_x64(True):
        model = scattered(**settings)
        output, probe, loss = measured(model, BATCH)
    scores, attention = by_numpy(model, BATCH)
    np.testing.assert_allclose(log_softmax(output.logits), scores, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(output.attention, attention.mean(axis=2), rtol=0, atol=ROUNDING)
    there = np.broadcast_to(np.asarray(BATCH.source_mask)[:, None], output.attention.shape)
    assert np.all(output.attention[~there] == 0)
    if model.kernel.normalised:
        np.testing.assert_allclose(output.attention.sum(-1), 1, rtol=0, atol=1e-15)
    wanted = np.asarray(BATCH.target_mask)
    assert float(loss) == pytest.approx(-np.mean(of_right_word(scores, BATCH)[wanted]), rel=1e-12)
    # What the model would say if all heads attended to one position only, which the loops can make
    # them do.
    for place in range(BATCH.source.shape[1]):
        alone = of_right_word(by_numpy(model, BATCH, forced=place)[0], BATCH)
        has = there[:, 0, place]
        np.testing.assert_allclose(probe[has, :, place], alone[has], rtol=0, atol=ROUNDING)


def test_uniform_attention_counts_every_word_and_the_end_the_same():
    with jax.enable_x64(True):
        output, _, _ = measured(scattered(**VARIANTS["text, uniform"]), BATCH)
    for pair, many in enumerate((4, 2, 3)):
        assert np.all(output.attention[pair, :, :many] == 1 / many)


@pytest.mark.parametrize("variant", ["copying code", "multi-head code"])
def test_with_one_source_position_the_lexical_probe_is_the_models_own_answer(variant):
    short = dataclasses.replace(BATCH, source_mask=jnp.asarray(np.tile(np.arange(4) == 0, (3, 1))))
    with jax.enable_x64(True):
        output, probe, _ = measured(scattered(1, **VARIANTS[variant]), short)
    assert np.all(output.attention[..., 0] == 1)
    np.testing.assert_allclose(
        probe[..., 0], of_right_word(log_softmax(output.logits), short), rtol=0, atol=ROUNDING
    )


def test_a_guess_never_depends_on_the_word_to_be_guessed_or_those_behind_it():
    with jax.enable_x64(True):
        model = scattered(2)
        before = measured(model, BATCH)[0].logits
        for place in range(BATCH.target.shape[1]):
            changed = BATCH.target.at[:, place].add(1)
            after = measured(model, dataclasses.replace(BATCH, target=changed))[0].logits
            assert np.array_equal(before[:, : place + 1], after[:, : place + 1])
            assert np.all(np.abs(before - after)[:, place + 1 :].max(axis=-1) > 1e-6), (
                "later predictions depend on it"
            )


# -- heads -----------------------------------------------------------------------------------------


def test_the_mean_of_equal_heads_is_one_head():
    settings = VARIANTS["multi-head code"]
    with jax.enable_x64(True):
        one = scattered(3, **settings | {"heads": 1})
        three = dataclasses.replace(
            one, heads=jax.tree.map(lambda leaf: jnp.asarray(np.repeat(leaf, 3, axis=0)), one.heads)
        )
        output, probe, _ = measured(three, BATCH)
    scores, attention = by_numpy(one, BATCH)
    np.testing.assert_allclose(log_softmax(output.logits), scores, rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(output.attention, attention[:, :, 0], rtol=0, atol=ROUNDING)
    first = of_right_word(by_numpy(one, BATCH, forced=0)[0], BATCH)
    np.testing.assert_allclose(probe[..., 0], first, rtol=0, atol=ROUNDING)


QUERIES = {".heads.query_weights", ".heads.query_bias"}


@pytest.mark.parametrize(
    ("settings", "learning"),
    [
        ({}, lambda every: every),
        ({"shared_embeddings": False, "context_projection": False}, lambda every: every),
        ({"attention": "frozen"}, lambda every: every - QUERIES),
        ({"attention": "uniform", "heads": 2}, lambda every: every - QUERIES),
        ({"lexicon": "frozen", "heads": 2}, lambda every: QUERIES),
    ],
    ids=["all", "other parts", "frozen attention", "uniform attention", "frozen lexicon"],
)
def test_what_learns(settings, learning):
    model = scattered(**settings)
    flags = {
        jax.tree_util.keystr(path): flag
        for path, flag in jax.tree_util.tree_leaves_with_path(model.trainable())
    }
    every = {
        jax.tree_util.keystr(path)
        for path, leaf in jax.tree_util.tree_leaves_with_path(model)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    }
    assert every > QUERIES
    assert (".target_embeddings" in every) == (not settings.get("shared_embeddings", True))
    assert (".heads.context_weights" in every) == settings.get("context_projection", True)
    assert flags.keys() == every | {".used_ids"}
    assert {name for name, flag in flags.items() if flag} == learning(every)


# -- numbered starts -------------------------------------------------------------------------------


@functools.cache
def starts() -> dict[str, list[Any]]:
    """Models with a numbered base; heads and hidden layer of models with two numbered heads, the
    first of which is swept.

    Of seeds and first heads (0, 3), (1, 3) and (0, 5). In one program, since drawing compiles
    slowly. The sweep is made as the lab makes it: its numbers are traced.
    """
    plain = SequenceToSequenceConfig(hidden=16, heads=2)
    based = dataclasses.replace(plain, base_start=3, shared_embeddings=False)
    swept: Any = Swept.over("head", [3.0, 5.0])
    over_heads = dataclasses.replace(plain, head_starts=(swept, 3))
    assert list(swept_in(over_heads)) == ["head"]

    @jax.jit
    def build(key: Any, number: Any) -> list[Any]:
        built: Any = map_swept(over_heads, lambda _: number).build(WIDE, key)
        return [
            based.build(WIDE, key),
            (built.heads, built.hidden_layer),
        ]  # what is not returned is not compiled

    keys = jax.random.split(jax.random.key(0))
    built = [
        jax.tree.map(np.asarray, build(keys[seed], number))
        for seed, number in ((0, 3.0), (1, 3.0), (0, 5.0))
    ]
    return {
        name: [models[place] for models in built] for place, name in enumerate(("base", "heads"))
    }


WIDE = Copying(3, 30)


def same(first: Any, second: Any) -> bool:
    leaves = zip(*(jax.tree.leaves(part) for part in (first, second)), strict=True)
    return all(np.array_equal(*pair) for pair in leaves)


def base(model: SequenceToSequence) -> list[Any]:
    """Everything but the heads."""
    tables = [model.source_embeddings, model.target_embeddings]
    return [*tables, model.encoder, model.decoder, model.hidden_layer, model.output_layer]


def head(heads: Any, place: int) -> Any:
    return jax.tree.map(lambda leaf: leaf[place], heads)


def test_a_numbered_base_is_the_same_whatever_the_seed():
    first, second, _ = starts()["base"]
    assert same(base(first), base(second))
    assert not same(first.heads, second.heads), "only the base has a number"


def test_a_numbered_head_is_the_same_whatever_seed_and_place_and_swept_members_differ():
    """Heads 3 and 3, from two seeds, then 5 and 3; of each pair the first is swept."""
    (first, layer), (second, second_layer), (other, other_layer) = starts()["heads"]
    assert same(first, second)
    assert not same(layer, second_layer), "only the heads have numbers"
    assert same(head(first, 0), head(first, 1))
    assert not same(head(other, 0), head(first, 0))
    assert same(head(other, 1), head(first, 1))
    assert same(other_layer, layer)


def test_the_parts_start_as_pytorch_starts_them():
    """Embeddings from N(0, 1), layers uniform up to one over the root of their inputs, all of it
    drawn apart.
    """
    model = starts()["base"][0]
    for table in (model.source_embeddings, model.target_embeddings):
        assert table.shape == (WIDE.vocabulary_size, 16)
        assert np.mean(table**2) == pytest.approx(
            1, abs=4 * np.sqrt(2 / table.size)
        )  # four standard errors
    for inputs, parts in {
        16: [model.encoder, model.decoder, model.heads, model.output_layer],
        32: [model.hidden_layer],
    }.items():
        for leaf in jax.tree.leaves(parts):
            # The largest of 16 draws, the fewest here, is below 0.8 with a chance of 3 %; the key
            # is fixed.
            assert 0.8 * inputs**-0.5 < np.abs(leaf).max() <= inputs**-0.5
    # 2^23 different numbers, some thousands of which are drawn: a few come twice by chance, but not
    # whole parts.
    numbers = np.concatenate(
        [np.ravel(leaf) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array))]
    )
    assert len(np.unique(numbers)) > 0.99 * len(numbers)


# -- words that are not used -----------------------------------------------------------------------


@jax.jit
def slope_and_logits(model: SequenceToSequence, batch: SentencePairs) -> tuple[Any, Any]:
    def loss(model: SequenceToSequence) -> tuple[Any, Any]:
        output = model(batch)
        return token_entropy(lambda _: output, batch), output.logits

    return eqx.filter_grad(loss, has_aux=True)(model)


def test_unused_words_have_no_chance_and_the_rest_is_as_if_they_were_not_there():
    wide, narrow = Copying(2, 2, groups=2, largest=4), Copying(2, 2, groups=2)
    used = np.flatnonzero(wide.used_ids)
    assert used.tolist() == [END, START, FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 4, FIRST_WORD + 5]
    source = np.asarray([[2, 3, END, END], [5, 4, END, END], [3, 2, END, END]])
    narrow_batch, wide_batch = (
        pairs(ids[source], ids[source[:, :3]], (3, 3, 3), (3, 3, 3)) for ids in (np.arange(6), used)
    )
    with jax.enable_x64(True):
        large = scattered(4, wide, **VARIANTS["text, uniform"])

        output = large.output_layer
        weights, bias = (
            jnp.asarray(np.asarray(table)[..., used]) for table in (output.weights, output.bias)
        )
        small = dataclasses.replace(
            large,
            source_embeddings=jnp.asarray(np.asarray(large.source_embeddings)[used]),
            output_layer=dataclasses.replace(output, weights=weights, bias=bias),
            used_ids=jnp.asarray(np.ones(narrow.vocabulary_size, bool)),
        )
        slope, logits = slope_and_logits(large, wide_batch)
    unused = np.setdiff1d(np.arange(wide.vocabulary_size), used)
    assert np.all(np.exp(log_softmax(logits))[..., unused] == 0)
    np.testing.assert_allclose(
        log_softmax(logits)[..., used], by_numpy(small, narrow_batch)[0], rtol=0, atol=ROUNDING
    )
    slope = jax.tree.map(np.asarray, slope)
    for table in (slope.source_embeddings, slope.output_layer.weights.T, slope.output_layer.bias):
        assert np.all(table[unused] == 0), "they learn nothing"
        assert np.all(table[[END, *used[2:]]] != 0)


# -- configs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"hidden": 0}, "hidden: got 0, allowed: a whole number, at least 1"),
        ({"heads": 0}, "heads: got 0, allowed: a whole number, at least 1"),
        ({"cell": "rnn"}, "cell: got 'rnn', allowed: lstm, gru"),
        ({"together": "max"}, "together: got 'max', allowed: sum, mean"),
        ({"activation": "sigmoid"}, "activation: got 'sigmoid', allowed: tanh, relu"),
        ({"attention": "none"}, "attention: got 'none', allowed: learned, frozen, uniform"),
        ({"lexicon": "uniform"}, "lexicon: got 'uniform', allowed: learned, frozen"),
        ({"kernel": "linear"}, f"kernel: got 'linear', allowed: {', '.join(KERNELS)}"),
        (
            {"lexicon": "frozen", "attention": "uniform"},
            "lexicon: got 'frozen' with attention 'uniform'",
        ),
        (
            {"lexicon": "frozen", "attention": "frozen"},
            "lexicon: got 'frozen' with attention 'frozen'",
        ),
        (
            {"heads": 2, "head_starts": (1.0,)},
            "head_starts: got 1 numbers, allowed: one for each of the 2 heads",
        ),
        # Seeds are whole: other numbers would name the start of another number.
        ({"base_start": -1.0}, "base_start: got -1.0, allowed: a whole number, at least 0"),
        ({"base_start": float("nan")}, "base_start: got nan, allowed: a whole number, at least 0"),
        ({"head_starts": (0.5,)}, "head_starts: got 0.5, allowed: a whole number, at least 0"),
        (
            {"head_starts": (Swept.over("head", [1.0, 1.5]),)},
            "head_starts: got 1.5, allowed: a whole number, at least 0",
        ),
    ],
)
def test_impossible_configs_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        SequenceToSequenceConfig(**settings)


# -- edits of the readout --------------------------------------------------------------------------


HALVES = ("context", "state")


@pytest.mark.parametrize("half", HALVES)
def test_one_half_of_the_readout_is_negated_and_nothing_else(half):
    model = scattered()
    edited = model.with_readout_negated(half)
    weights, changed = model.hidden_layer.weights, edited.hidden_layer.weights
    signs = np.where(np.arange(2 * HIDDEN) < HIDDEN, -1.0, 1.0) * (1 if half == "context" else -1)
    np.testing.assert_array_equal(changed, signs[:, None] * weights)
    back = edited.with_readout_negated(half)
    assert all(map(np.array_equal, jax.tree.leaves(back), jax.tree.leaves(model)))
    changes = jax.tree.map(np.array_equal, model, edited)
    assert sum(not same for same in jax.tree.leaves(changes)) == 1


def test_the_advantage_turns_with_the_context_half_and_not_with_the_state_half():
    """To first order in the context: states and weights of size 1/100 leave an error of a
    hundredth.
    """
    with jax.enable_x64(True):
        small = jax.tree.map(lambda leaf: leaf if leaf.dtype == bool else 0.01 * leaf, scattered(1))
        large_output = 100 * small.output_layer.weights
        model = eqx.tree_at(lambda one: one.output_layer.weights, small, large_output)

        def advantages(one: SequenceToSequence) -> np.ndarray:
            """log beta of each position less that of the first, in pairs without padding."""
            beta = measured(one, BATCH)[1][0]
            return beta - beta[:, :1]

        plain = advantages(model)
        assert abs(plain).max() > 0
        tolerance = 0.02 * abs(plain).max()
        turned, sham = (advantages(model.with_readout_negated(half)) for half in HALVES)
        np.testing.assert_allclose(turned, -plain, atol=tolerance)
        np.testing.assert_allclose(sham, plain, atol=tolerance)
