"""The one-layer transformer against its formula, its short way against the plain one, its
penalty and its configs.
"""

import dataclasses
import functools
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from saccade.errors import ConfigError
from saccade.models.counting import id_counts
from saccade.models.one_layer_transformer import (
    Blocks,
    NormalisedInputs,
    OneLayerTransformer,
    OneLayerTransformerConfig,
    TiedScores,
    chosen_places,
    guess_entropy,
    most,
    uniform_curvature,
)
from saccade.records.schedule import Every
from saccade.tasks.long_documents import LongDocuments
from saccade.tasks.topic_documents import Documents, Masking, TopicDocuments
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe

PLAIN = TopicDocuments(3, 2, 2, shortest=7, longest=7, masking=Masking(0.5, 0.3, 0.3))
PADDED = dataclasses.replace(PLAIN, shortest=3)
MARKED = dataclasses.replace(PLAIN, shortest=3, markers=True, replacements="all")
MANY = dataclasses.replace(PLAIN, shortest=30, longest=30, masking=Masking())
"""So many positions that fewer rows than positions are kept for the guesses."""

EXACT = {"rtol": 0, "atol": 1e-12}
"""float64, sums of a few dozen terms of size 1."""


@functools.cache
def documents(task: TopicDocuments, size: int = 5) -> Documents:
    """Made by NumPy, laid out as the task's: random numbers of JAX compile slowly. Under
    jax.enable_x64.
    """
    random = np.random.default_rng(11)
    length = random.integers(task.shortest, task.longest + 1, (size, 1))
    place = np.arange(task.positions) - task.markers
    labels = random.integers(task.first_word, task.vocabulary_size, (size, task.positions))
    inside = (place >= 0) & (place < length)
    selected = inside & (random.uniform(size=labels.shape) < task.masking.selected)
    if task.markers:
        labels = np.where(place < 0, 2, np.where(place == length, 3, labels))
    mask = inside if not task.markers else place <= length
    labels = np.where(mask, labels, 0)
    shown = np.where(
        random.uniform(size=labels.shape) < 0.5,
        task.hidden_id,
        random.integers(0, task.vocabulary_size, labels.shape),
    )
    words = np.where(selected, shown, labels)
    full = None if task.shortest == task.longest else jnp.asarray(mask)
    return Documents(
        jnp.asarray(words, jnp.int32), jnp.asarray(labels, jnp.int32), jnp.asarray(selected), full
    )


def scattered(config: OneLayerTransformerConfig, task: Any) -> OneLayerTransformer:
    """A model away from its start: every trained or frozen number of size 1 / 2, but for the
    ridge.
    """
    start = eqx.filter_eval_shape(config.build, task, jax.random.key(0))
    random = np.random.default_rng(3)

    def filled(leaf: Any) -> Any:
        if not isinstance(leaf, jax.ShapeDtypeStruct):
            return leaf
        return (
            jax.device_put(0.5 * random.normal(size=leaf.shape))
            if jnp.issubdtype(leaf.dtype, jnp.floating)
            else leaf
        )

    model = jax.tree.map(filled, start)
    if model.relation is not None:  # drawn from the ids alone
        real = jax.jit(lambda key: config.build(task, key).relation)(jax.random.key(0))
        model = eqx.tree_at(lambda one: one.relation, model, real)
    return model


# -- the formula -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
@pytest.mark.parametrize("embedding", ["one_hot", "trained"])
def test_outputs_are_those_of_the_formula(embedding, kernel):
    """f(X) = W_E^T (W_V W_E X) Attn(X) + b with column softmax of (W_K Z)^T (W_Q Z) / sqrt(d_a),
    one document of four words.
    """
    words = np.array([[1, 0, 3, 1]])
    with jax.enable_x64(True):
        config = OneLayerTransformerConfig(
            embedding=embedding, dimension=4, bias=True, kernel=kernel
        )
        model = scattered(config, PLAIN)
        ids = jnp.asarray(words, jnp.int32)
        output = jax.jit(lambda model, batch: model(batch))(
            model, Documents(ids, ids, jnp.zeros(ids.shape, bool))
        )
        value, key, query, bias = (
            np.asarray(part) for part in (model.values, model.keys, model.queries, model.bias)
        )
        embed = np.eye(7) if model.embeddings is None else np.asarray(model.embeddings)
    one_hot = np.eye(7)[:, words[0]]  # id position
    Z = embed @ one_hot
    K, Q = key @ Z, query @ Z
    if kernel == "softmax":
        attention = np.exp(K.T @ Q / np.sqrt(len(key)))
        attention /= attention.sum(axis=0, keepdims=True)
    else:
        attention = np.exp(
            -np.sum((K[:, :, None] - Q[:, None, :]) ** 2, axis=0) / (2 * np.sqrt(len(key)))
        )
    expected = embed.T @ (value @ Z) @ attention + bias[:, None]
    np.testing.assert_allclose(np.asarray(output.logits)[0], expected.T, **EXACT)
    np.testing.assert_allclose(np.asarray(output.attention)[0], attention.T, **EXACT)


def test_layer_biases_add_where_pytorch_adds_them():
    """queries W_Q z + b_Q, keys W_K z + b_K, values W_V z + b_V, before attention."""
    with jax.enable_x64(True):
        model = scattered(
            OneLayerTransformerConfig(embedding="trained", dimension=3, layer_biases=True), PLAIN
        )
        batch = documents(PLAIN)
        output = jax.jit(lambda model, batch: model(batch))(model, batch)
        embed, V, K, Q, b_V, b_K, b_Q = (
            np.asarray(part)
            for part in (
                model.embeddings,
                model.values,
                model.keys,
                model.queries,
                model.value_bias,
                model.key_bias,
                model.query_bias,
            )
        )
    Z = embed[:, np.asarray(batch.words)[0]].T  # position dimension
    scores = (Z @ Q.T + b_Q) @ (Z @ K.T + b_K).T / np.sqrt(3)
    attention = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        np.asarray(output.logits)[0], attention @ (Z @ V.T + b_V) @ embed, **EXACT
    )


def test_tied_scores_are_three_numbers_and_markers_are_like_any_other():
    with jax.enable_x64(True):
        model = scattered(OneLayerTransformerConfig(attention="tied"), MARKED)
        same_word, same_topic = jnp.asarray(1.5), jnp.asarray(0.5)
        table = np.asarray(
            eqx.tree_at(lambda one: one.tied, model, TiedScores(same_word, same_topic)).scores()
        )
    for query, key in np.ndindex(table.shape):
        topics = [(one - 4) // 2 if one >= 4 else None for one in (query, key)]
        expected = 0.0
        if None not in topics:
            expected = 1.5 if query == key else 0.5 if topics[0] == topics[1] else 0.0
        assert table[query, key] == expected


# -- the inputs of the authors' code ---------------------------------------------------------------


def test_outputs_with_normalised_inputs_are_those_of_the_formula():
    """f(X) = W_V Z Attn(X) + b_V with Z the LayerNorm of one-hot vectors plus the type vector."""
    with jax.enable_x64(True):
        config = OneLayerTransformerConfig(embedding="normalised", layer_biases=True)
        model, batch = scattered(config, PLAIN), documents(PLAIN)
        output = jax.jit(lambda model, batch: model(batch))(model, batch)
        assert model.inputs is not None
        common, gain, shift = map(np.asarray, jax.tree.leaves(model.inputs))
        names = ("values", "keys", "queries", "value_bias", "key_bias", "query_bias")
        V, K, Q, b_V, b_K, b_Q = (np.asarray(getattr(model, name)) for name in names)
    plain = np.eye(7)[np.asarray(batch.words)[0]] + common
    centred = plain - plain.mean(axis=1, keepdims=True)
    Z = centred / plain.std(axis=1, keepdims=True) * gain + shift
    scores = (Z @ Q.T + b_Q) @ (Z @ K.T + b_K).T / np.sqrt(7)
    attention = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(
        np.asarray(output.logits)[0], attention @ (Z @ V.T + b_V), rtol=0, atol=1e-11
    )


def test_identity_values_give_the_inputs_themselves():
    with jax.enable_x64(True):
        config = OneLayerTransformerConfig(embedding="normalised", values="identity")
        model = scattered(config, PLAIN)
        table = model.input_table()
        np.testing.assert_array_equal(model.value_table(), np.asarray(table).T)
        np.testing.assert_allclose(
            model.word_similarity(), np.asarray(table).T @ np.asarray(table), **EXACT
        )


def test_normalised_inputs_are_almost_the_same_for_all_words():
    """With t the centred type vector of 104 ids, |t|^2 near 103, words i and j have the cosine
    (|t|^2 + t_i + t_j - 1/D) / sqrt((|t|^2 + 2 t_i + 1 - 1/D) (|t|^2 + 2 t_j + 1 - 1/D)): 0.99.
    """
    with jax.enable_x64(True):
        inputs = NormalisedInputs.build(jax.random.key(5), 104)
        table, vector = np.asarray(inputs.table()), np.asarray(inputs.type_vector)
    norms = np.linalg.norm(table, axis=0)
    np.testing.assert_allclose(norms, np.sqrt(104), rtol=1e-9)
    cosines = table.T @ table / np.outer(norms, norms)
    t, size = vector - vector.mean(), np.sum((vector - vector.mean()) ** 2)
    square = size + 2 * t + 1 - 1 / 104
    expected = (size + t[:, None] + t[None, :] - 1 / 104) / np.sqrt(np.outer(square, square))
    apart = ~np.eye(104, dtype=bool)
    np.testing.assert_allclose(cosines[apart], expected[apart], rtol=0, atol=1e-12)
    # 1 - 1/|t|^2 to first order; |t|^2 is chi-squared with 103 degrees, so 103 +- 4 x 14.4.
    assert 1 - 1 / 45 < cosines[apart].mean() < 1 - 1 / 161


def test_as_many_numbers_learn_as_in_the_authors_code():
    """33,176 with keys, queries and values trained; its type table has a second row, which no
    word uses.
    """
    task = TopicDocuments(10, 10, markers=True)
    config = OneLayerTransformerConfig(embedding="normalised", layer_biases=True)
    model = scattered(config, task)
    learned = eqx.filter(model, model.trainable())
    assert sum(leaf.size for leaf in jax.tree.leaves(learned)) == 33_176 - 104


# -- the short way ---------------------------------------------------------------------------------

SHORT_WAYS = {
    "uniform": (
        {
            "attention": "uniform",
            "bias": True,
            "embedding": "trained",
            "dimension": 3,
            "values": "identity",
        },
        PADDED,
    ),
    "learned": ({"bias": True, "layer_biases": True, "selected_hidden": True}, MARKED),
    "tied": ({"attention": "tied"}, MARKED),
    "free": ({"attention": "free", "bias": True}, PADDED),
    "trained embeddings": ({"embedding": "trained", "dimension": 3, "layer_biases": True}, MARKED),
    "gaussian": (
        {"kernel": "gaussian", "embedding": "trained", "dimension": 3, "layer_biases": True},
        PADDED,
    ),
    "normalised": ({"embedding": "normalised", "layer_biases": True}, MARKED),
    "few rows": ({}, MANY),
}


def plain_losses(model: OneLayerTransformer, batch: Documents) -> tuple[jax.Array, jax.Array]:
    """Squared error and cross-entropy at the selected positions, from the logits of every
    position.
    """
    logits = model(batch).logits
    right = jax.nn.one_hot(batch.labels, logits.shape[-1])
    squares = jnp.sum((logits - right) ** 2, axis=-1)
    entropies = -jnp.sum(jax.nn.log_softmax(logits) * right, axis=-1)
    chosen = jnp.sum(batch.selected)
    return tuple(
        jnp.sum(jnp.where(batch.selected, one, 0.0)) / chosen for one in (squares, entropies)
    )  # pyright: ignore[reportReturnType]


def short_losses(model: OneLayerTransformer, batch: Documents) -> tuple[jax.Array, jax.Array]:
    return model.loss(batch), guess_entropy(model, batch)


def weighed(
    losses: Any, moving: Any, still: Any, batch: Documents
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    """A sum of both losses (for one gradient of both), and each of them."""
    both = losses(eqx.combine(moving, still), batch)
    return both[0] + 0.3 * both[1], both


@pytest.mark.parametrize("name", SHORT_WAYS)
def test_the_short_way_gives_the_losses_and_gradients_of_the_plain_one(name):
    chosen, task = SHORT_WAYS[name]
    with jax.enable_x64(True):
        batch = documents(task, 20 if task is MANY else 5)
        model = scattered(OneLayerTransformerConfig(**chosen), task)
        moving, still = eqx.partition(model, eqx.is_inexact_array)

        @jax.jit
        def both_ways(moving: Any, batch: Documents) -> list[Any]:
            ways = (plain_losses, short_losses)
            return [
                jax.value_and_grad(functools.partial(weighed, way), has_aux=True)(
                    moving, still, batch
                )
                for way in ways
            ]

        (plain, plain_slopes), (short, short_slopes) = both_ways(moving, batch)
    if task is MANY:
        assert most(batch.words.size, model.looking_share) < batch.words.size / 4
    looking = np.asarray(batch.selected & (batch.words != task.hidden_id))
    assert 0 < looking.sum() < np.asarray(batch.selected).sum(), "both kinds of queries are there"
    assert looking.sum() <= most(batch.words.size, model.looking_share)
    np.testing.assert_allclose(short[1], plain[1], **EXACT)
    for ours, expected in zip(
        jax.tree.leaves(short_slopes), jax.tree.leaves(plain_slopes), strict=True
    ):
        np.testing.assert_allclose(ours, expected, **EXACT)
    assert any(np.abs(slope).max() > 1e-3 for slope in jax.tree.leaves(plain_slopes))


def test_without_a_selected_word_the_loss_is_zero():
    with jax.enable_x64(True):
        batch = documents(PLAIN)
        batch = Documents(batch.labels, batch.labels, jnp.zeros_like(batch.selected))
        model = scattered(OneLayerTransformerConfig(attention="uniform"), PLAIN)
        assert float(jax.jit(OneLayerTransformer.loss)(model, batch)) == 0


@settings(max_examples=4, deadline=None, derandomize=True)
@given(
    size=st.integers(1, 4),
    positions=st.integers(1, 6),
    rows=st.integers(1, 30),
    share=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_chosen_places_are_those_that_numpy_finds(size, positions, rows, share, seed):
    chosen = np.random.default_rng(seed).uniform(size=(size, positions)) < share
    place, there = jax.jit(functools.partial(chosen_places, rows=rows))(jnp.asarray(chosen))
    expected = np.flatnonzero(chosen)[:rows]
    assert np.asarray(there).sum() == len(expected)
    assert np.array_equal(np.asarray(place)[np.asarray(there)], expected)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(trials=st.integers(1, 10**6), probability=st.floats(1e-6, 1.0))
def test_most_is_exceeded_once_in_1e15_and_never_more_than_all(trials, probability):
    bound = most(trials, probability)
    assert bound <= trials
    assert binom.sf(bound, trials, probability) < 1e-15


def test_most_is_not_much_more_than_needed():
    """Bernstein's room against the exact quantile, for the sizes of the paper."""
    trials, probability = 40 * 152, 0.15 * 0.2
    needed = binom.isf(1e-15, trials, probability)
    assert needed <= most(trials, probability) < needed + 0.2 * trials * probability
    assert most(trials, probability) < trials / 10


def test_counts_of_ids():
    ids = np.array([[0, 2, 2, 1], [3, 3, 3, 0]])
    present = np.array([[True, True, False, True], [True, True, True, False]])
    ours = id_counts(jnp.asarray(ids), jnp.asarray(present), 4)
    np.testing.assert_array_equal(ours, [[1, 1, 1, 0], [0, 0, 0, 3]])
    np.testing.assert_array_equal(
        id_counts(jnp.asarray(ids), None, 4), [np.bincount(row, minlength=4) for row in ids]
    )


# -- attention -------------------------------------------------------------------------------------


@pytest.mark.parametrize("selected_hidden", [False, True])
def test_attention_sums_to_one_and_padding_gets_none(selected_hidden):
    with jax.enable_x64(True):
        batch = documents(MARKED)
        model = scattered(OneLayerTransformerConfig(selected_hidden=selected_hidden), MARKED)
        attention = np.asarray(jax.jit(lambda model, batch: model(batch).attention)(model, batch))
    np.testing.assert_allclose(attention.sum(axis=2), 1, **EXACT)
    mask, selected = np.asarray(batch.mask), np.asarray(batch.selected)
    seen = mask & ~selected if selected_hidden else mask
    for weights, visible in zip(attention, seen, strict=True):
        assert np.all(weights[:, ~visible] == 0)
        assert np.all(weights[:, visible] > 0)


def test_without_keys_and_queries_only_the_values_have_a_gradient():
    """The mechanism of the two stages: dL/dW_K contains W_Q, and dL/dW_Q contains W_K."""
    with jax.enable_x64(True):
        model = scattered(OneLayerTransformerConfig(), PLAIN)
        nothing = jnp.zeros_like(model.keys)  # pyright: ignore[reportArgumentType]
        model = eqx.tree_at(lambda one: (one.keys, one.queries), model, (nothing, nothing))
        moving, still = eqx.partition(model, eqx.is_inexact_array)
        batch = documents(PLAIN)
        both = jax.jit(jax.jacrev(lambda part: short_losses(eqx.combine(part, still), batch)))(
            moving
        )
    for slopes in both:  # of the squared error, and of the cross-entropy
        assert np.all(np.asarray(slopes.keys) == 0)
        assert np.all(np.asarray(slopes.queries) == 0)
        assert np.abs(slopes.values).max() > 1e-3


# -- long documents --------------------------------------------------------------------------------

LONG = LongDocuments(4, 2, 2, Masking(0.5, 0.3, 0.2))


@pytest.mark.parametrize(
    "settings",
    [{"bias": True}, {"embedding": "trained", "dimension": 3}, {"layer_biases": True}],
    ids=str,
)
def test_the_expected_error_is_that_of_every_document(settings):
    """W_E^T (W_V W_E Pt + b_V) + b against P, for every pair of topics; attention is uniform, so
    it adds up to 1.
    """
    shown, there = [], []
    for pair in itertools.combinations(range(4), 2):
        true = np.array([0.0, *(0.25 * (word // 2 in pair) for word in range(8))])
        shown.append(0.65 * true + np.array([0.25, *[0.1 / 8] * 8]))
        there.append(true)
    assert dataclasses.astuple(LONG.shares) == pytest.approx((0.65, 0.1, 0.25))
    with jax.enable_x64(True):
        model = scattered(OneLayerTransformerConfig(attention="uniform", **settings), LONG)
        ours = float(jax.jit(OneLayerTransformer.loss)(model, LONG.sample(jax.random.key(0), 5)))
    embed = np.eye(9) if model.embeddings is None else np.asarray(model.embeddings)
    inner = np.asarray(model.values) @ embed @ np.stack(shown, axis=1)
    if model.value_bias is not None:
        inner = inner + np.asarray(model.value_bias)[:, None]
    outputs = embed.T @ inner + (0 if model.bias is None else np.asarray(model.bias)[:, None])
    assert ours == pytest.approx(
        np.mean(np.sum((outputs - np.stack(there, axis=1)) ** 2, axis=0)), rel=1e-12
    )


def test_long_documents_need_uniform_attention():
    model = scattered(OneLayerTransformerConfig(), LONG)
    with pytest.raises(ConfigError, match=r"^attention: got scores, allowed: uniform"):
        model.loss(LONG.sample(jax.random.key(0), 5))


def test_the_curvature_is_the_largest_eigenvalue_of_the_hessian_in_the_values():
    ridge = 0.03
    with jax.enable_x64(True):
        model = scattered(OneLayerTransformerConfig(attention="uniform", ridge=ridge), LONG)
        moments = LONG.sample(jax.random.key(0), 5)

        def loss(values: jax.Array) -> Any:
            moved = eqx.tree_at(lambda one: one.values, model, values.reshape(9, 9))
            return moved.loss(moments) + moved.penalty()

        hessian = np.asarray(jax.jit(jax.hessian(loss))(jnp.zeros(81)))
        ours = float(uniform_curvature(model, moments))
    assert ours == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=1e-12)


# -- ridge -----------------------------------------------------------------------------------------


def test_the_ridge_has_a_gradient():
    """lambda ||W_V||_F^2: against finite differences (exact for a square) and 2 lambda W."""
    with jax.enable_x64(True):
        model = scattered(OneLayerTransformerConfig(ridge=0.7), PLAIN)
        values = np.asarray(model.values)

        def penalty(table: Any) -> Any:
            return eqx.tree_at(lambda one: one.values, model, table).penalty()

        slope = np.asarray(jax.grad(penalty)(jnp.asarray(values)))
        assert float(penalty(jnp.asarray(values))) == pytest.approx(
            0.7 * np.sum(values**2), rel=1e-14
        )
        np.testing.assert_allclose(slope, 1.4 * values, rtol=1e-14)
        for index in ((0, 0), (3, 5)):
            step = 1e-3 * np.eye(7)[index[0]][:, None] * np.eye(7)[index[1]][None, :]
            difference = (
                float(penalty(jnp.asarray(values + step)))
                - float(penalty(jnp.asarray(values - step)))
            ) / 2e-3
            assert difference == pytest.approx(slope[index], abs=1e-11)  # rounding: 1e-14 / 1e-3
    assert scattered(OneLayerTransformerConfig(ridge=0.0), PLAIN).penalty() == 0
    assert scattered(OneLayerTransformerConfig(values="identity", ridge=0.5), PLAIN).penalty() == 0


def test_a_swept_ridge_and_swept_masking_train_each_member_with_its_own(precise_lab: Lab):
    """Two steps of gradient descent from 0: the first is the same for all ridges, the second
    shrinks it by 2 rate lambda.
    """
    task = dataclasses.replace(PLAIN, train_size=6, test_size=1)
    model = OneLayerTransformerConfig(attention="uniform", start_std=0.0)
    sweep = {"task.masking.selected": [0.3, 0.9], "model.ridge": [0.0, 0.4]}
    recipe = Recipe(task, model, GradientDescent(0.1), 2, at=Every(1))
    arm = precise_lab.train(recipe, seeds=1, sweep=sweep)
    loss = arm.trajectory["loss"].isel(seed=0)
    assert loss.dims == ("masking.selected", "ridge", "step")
    np.testing.assert_allclose(loss.sel(step=0), 1, **EXACT)  # outputs of 0
    with jax.enable_x64(True):
        tables = np.asarray(arm.models.values).reshape(2, 2, 7, 7)  # selected ridge
    first = (tables[:, 0] - tables[:, 1]) / (0.1 * 2 * 0.4)
    gap = np.asarray(loss.sel(ridge=0.4, step=1) - loss.sel(ridge=0.0, step=1))
    np.testing.assert_allclose(gap, 0.4 * np.sum(first**2, axis=(1, 2)), **EXACT)
    assert np.all(gap > 1e-4)
    assert not np.allclose(tables[0], tables[1])


# -- configs ---------------------------------------------------------------------------------------


def learning(config: OneLayerTransformerConfig) -> set[str]:
    """Names of the parts that learn."""
    flags = scattered(config, PLAIN).trainable()
    names = {
        field.name for field in dataclasses.fields(flags) if field.name not in ("frozen", "kernel")
    }
    return {
        name
        for name in names
        if any(leaf is True for leaf in jax.tree.leaves(getattr(flags, name)))
    }


def blocks(task: Any) -> Blocks:
    del task
    return Blocks(1.0, 2.0, 3.0)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"values", "keys", "queries"}),
        (
            {"layer_biases": True, "bias": True},
            {"values", "keys", "queries", "value_bias", "key_bias", "query_bias", "bias"},
        ),
        ({"attention": "uniform", "ridge": 0.3}, {"values"}),
        ({"embedding": "normalised"}, {"inputs", "values", "keys", "queries"}),
        ({"attention": "tied", "values": blocks}, {"tied"}),
        ({"attention": "free", "values": blocks}, {"score_table"}),
        ({"embedding": "trained", "values": "identity", "attention": "uniform"}, {"embeddings"}),
        ({"embedding": "trained", "frozen": ("embeddings", "keys")}, {"values", "queries"}),
        ({"attention": "free", "bias": True, "frozen": ("score_table", "bias", "values")}, set()),
        ({"attention": "uniform", "frozen": ("keys",)}, {"values"}),
    ],
    ids=lambda value: "-".join(sorted(value)) or "nothing",
)
def test_only_what_should_learn_is_trainable(settings, expected):
    assert learning(OneLayerTransformerConfig(**settings)) == expected


def test_starts():
    task = TopicDocuments(10, 5, 2)

    @jax.jit
    def built(key: jax.Array) -> list[Any]:
        configs = [
            OneLayerTransformerConfig(start=start, start_std=0.01, layer_biases=True)
            for start in ("gaussian", "uniform", "default")
        ]
        models = [config.build(task, key) for config in configs]
        return [
            (model.keys, model.queries, model.values, model.value_bias, model.key_bias)
            for model in models
        ]

    gaussian, uniform, default = built(jax.random.key(7))
    size = 51
    bound = size**-0.5
    for matrix in gaussian[:3]:
        # Of 2601 numbers, four standard errors: of the mean std / sqrt(n), of the variance var
        # sqrt(2 / n).
        assert abs(np.mean(matrix)) < 4 * 0.01 / size
        assert np.mean(matrix**2) == pytest.approx(1e-4, rel=4 * np.sqrt(2) / size)
    for matrix in uniform[:3]:
        assert np.min(matrix) >= 0
        assert 0.0099 < np.max(matrix) <= 0.01  # below 0.0099 with probability 0.99^2601 < 1e-11
        assert np.mean(matrix) == pytest.approx(0.005, abs=4 * 0.01 / np.sqrt(12) / size)
    for matrix in default[:3]:
        assert -bound <= np.min(matrix) < -0.99 * bound
        assert 0.99 * bound < np.max(matrix) <= bound
    for kind in (gaussian, uniform):
        assert not np.any(kind[3])
        assert not np.any(kind[4])
    assert np.all(np.abs(default[3]) <= bound)
    assert np.std(default[3]) > 0
    for kind in (gaussian, uniform, default):
        assert not np.array_equal(kind[0], kind[1])
        assert not np.array_equal(kind[3], kind[4]) or kind is not default


def test_blocks_make_a_table_with_an_empty_row_for_every_id_that_is_no_word():
    table = np.asarray(
        Blocks(1.0, 2.0, 3.0).table(TopicDocuments(2, 2, 1, markers=True).topic_of_id, 1)
    )
    word = [0, 1, 0, 0]
    expected = [[0] * 8] * 4 + [[*word, 2, 2, 3, 3]] * 2 + [[*word, 3, 3, 2, 2]] * 2
    np.testing.assert_array_equal(table, expected)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"embedding": "random"}, "embedding: got 'random', allowed: one_hot, trained, normalised"),
        ({"attention": "hard"}, "attention: got 'hard', allowed: uniform, learned, tied, free"),
        ({"start": "zero"}, "start: got 'zero', allowed: gaussian, uniform, default"),
        ({"kernel": "linear"}, "kernel: got 'linear', allowed: softmax, gaussian"),
        ({"dimension": -1}, "dimension: got -1, allowed: a whole number, at least 0"),
        ({"ridge": -0.1}, "ridge: got -0.1, allowed: a finite number, at least 0"),
        (
            {"frozen": ("key",)},
            "frozen: got key, allowed: embeddings, values, keys, queries, bias, score_table",
        ),
        (
            {"embedding": "trained", "values": blocks},
            "values: got blocks, allowed: only with one-hot embeddings",
        ),
        (
            {"kernel": "gaussian", "attention": "free"},
            "kernel: got gaussian, allowed: softmax, because free attention",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_impossible_configs_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        OneLayerTransformerConfig(**settings)
