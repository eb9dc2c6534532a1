"""Topic structure of a transformer, against NumPy on explicit tables and plain loops over
positions.
"""

import dataclasses
import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.probe import Moment
from saccade.models.one_layer_transformer import (
    BLOCKS,
    Attention,
    OneLayerTransformer,
    OneLayerTransformerConfig,
    TiedScores,
)
from saccade.models.tied_attention import TiedAttention
from saccade.probes.topic_blocks import (
    LOOKUPS,
    PAIRS,
    AttentionOdds,
    PairAttention,
    Similarities,
    SimilarityTable,
    ValueBlocks,
    ValueTable,
)
from saccade.tasks.long_documents import LongDocumentQueries
from saccade.tasks.topic_documents import Documents, Masking, TopicDocuments

MARKED = TopicDocuments(
    3, 4, 2, shortest=5, longest=11, markers=True, masking=Masking(0.5, 0.2, 0.2)
)
PLAIN = TopicDocuments(3, 4, 2, shortest=9, longest=9)
EXACT = {"rtol": 0, "atol": 1e-13}
"""float64, sums of a few dozen terms of size 1."""


@functools.cache
def documents(task: TopicDocuments) -> Documents:
    """Six documents without masking, made by NumPy: random numbers of JAX compile slowly. Under
    jax.enable_x64.
    """
    random = np.random.default_rng(2)
    length = random.integers(task.shortest, task.longest + 1, (6, 1))
    place = np.arange(task.positions) - task.markers
    labels = random.integers(task.first_word, task.vocabulary_size, (6, task.positions))
    if task.markers:
        labels = np.where(place < 0, 2, np.where(place == length, 3, labels))
    mask = place < length + task.markers
    ids = jnp.asarray(np.where(mask, labels, 0), jnp.int32)
    return Documents(
        ids, ids, jnp.zeros(ids.shape, bool), None if mask.all() else jnp.asarray(mask)
    )


def with_tables(
    task: Any, attention: Attention = "free", **tables: np.ndarray
) -> OneLayerTransformer:
    """A model whose parts are given numbers, in float64."""
    config = OneLayerTransformerConfig(
        attention=attention, embedding="trained" if "embeddings" in tables else "one_hot"
    )
    start = eqx.filter_eval_shape(config.build, task, jax.random.key(0))
    model = jax.tree.map(
        lambda leaf: (
            jnp.zeros(leaf.shape, leaf.dtype) if isinstance(leaf, jax.ShapeDtypeStruct) else leaf
        ),
        start,
    )
    for name, table in tables.items():
        model = eqx.tree_at(lambda one, name=name: getattr(one, name), model, jnp.asarray(table))
    return model


def measured(probe: Any, task: Any, model: Any, test: Any = None) -> dict[str, np.ndarray]:
    """Under jax.enable_x64."""

    @jax.jit
    def measure(model: Any, test: Any) -> dict[str, Any]:
        return probe(Moment(task, model, test, test, type(model).loss, lambda: model))

    values = measure(model, test)
    assert set(values) == set(probe.variables)
    return {name: np.asarray(value) for name, value in values.items()}


def random_table(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(size, size))


# -- values and embeddings -------------------------------------------------------------------------


@pytest.mark.parametrize("task", [PLAIN, MARKED], ids=["plain", "markers"])
def test_blocks_of_the_values(task):
    values = random_table(task.vocabulary_size)
    with jax.enable_x64(True):
        model = with_tables(task, values=values)
        ours = measured(ValueBlocks(), task, model)
        whole = measured(ValueTable(), task, model)["value_table"]
    np.testing.assert_allclose(whole, values, rtol=1e-6)  # single precision
    topic = [
        (one - task.first_word) // 4 if one >= task.first_word else None
        for one in range(task.vocabulary_size)
    ]
    entries: dict[str, list[Any]] = {block: [] for block in BLOCKS}
    for row, column in np.ndindex(values.shape):
        if row == task.hidden_id:
            entries["output hidden"].append(values[row, column])
        elif topic[row] is not None and column == task.hidden_id:
            entries["hidden"].append(values[row, column])
        elif topic[row] is not None and topic[column] is not None:
            entries["same" if topic[row] == topic[column] else "other"].append(values[row, column])
    for place, block in enumerate(BLOCKS):
        for name, function in (
            ("mean", np.mean),
            ("low", np.min),
            ("high", np.max),
            ("std", np.std),
        ):
            assert ours[f"entry_{name}"][place] == pytest.approx(
                function(entries[block]), abs=1e-13
            ), (block, name)
    assert ours["block_difference"] == pytest.approx(
        np.mean(entries["same"]) - np.mean(entries["other"]), abs=1e-13
    )


def test_values_are_seen_through_the_embeddings():
    """Rows are outputs: W_E^T W_V W_E, not its transpose."""
    embeddings, values = random_table(13, 1), random_table(13, 2)
    with jax.enable_x64(True):
        whole = measured(
            ValueTable(), PLAIN, with_tables(PLAIN, values=values, embeddings=embeddings)
        )["value_table"]
    np.testing.assert_allclose(
        whole, embeddings.T @ values @ embeddings, rtol=1e-4, atol=1e-4
    )  # single precision


def similarity_means(table: np.ndarray, task: TopicDocuments) -> dict[str, float]:
    """Means over pairs of words by loops: same topic, different topics, and same topic without
    the diagonal.
    """
    found: dict[str, list[float]] = {"same": [], "other": [], "off": []}
    for row in range(task.first_word, task.vocabulary_size):
        for column in range(task.first_word, task.vocabulary_size):
            same = (row - task.first_word) // 4 == (column - task.first_word) // 4
            found["same" if same else "other"].append(table[row, column])
            if same and row != column:
                found["off"].append(table[row, column])
    return {name: float(np.mean(numbers)) for name, numbers in found.items()}


@pytest.mark.parametrize("task", [PLAIN, MARKED], ids=["plain", "markers"])
def test_similarities_of_the_embeddings(task):
    embeddings = random_table(task.vocabulary_size, 3)
    with jax.enable_x64(True):
        model = with_tables(task, embeddings=embeddings)
        ours, whole = (
            measured(Similarities(), task, model),
            measured(SimilarityTable(), task, model),
        )
    table = embeddings.T @ embeddings
    np.testing.assert_allclose(
        whole["similarity_table"], table, rtol=1e-5, atol=1e-5
    )  # single precision
    means = similarity_means(table, task)
    assert ours["similarity_same"] == pytest.approx(means["same"], abs=1e-13)
    assert ours["similarity_other"] == pytest.approx(means["other"], abs=1e-13)
    assert ours["similarity_difference"] == pytest.approx(means["same"] - means["other"], abs=1e-13)
    assert ours["similarity_off_diagonal"] == pytest.approx(
        means["off"] - means["other"], abs=1e-13
    )


def test_leaving_the_diagonal_out_can_flip_the_sign():
    """Orthogonal embeddings within a topic, slightly alike across topics: only their own squares
    make a topic alike.
    """
    across = np.kron(np.ones((3, 3)) - np.eye(3), np.full((4, 4), 0.05))
    table = np.zeros((13, 13))
    table[1:, 1:] = np.eye(12) + across
    embeddings = np.linalg.cholesky(table + 1e-12 * np.eye(13)).T
    with jax.enable_x64(True):
        ours = measured(Similarities(), PLAIN, with_tables(PLAIN, embeddings=embeddings))
    assert ours["similarity_difference"] == pytest.approx(0.25 - 0.05, abs=1e-9)
    assert ours["similarity_off_diagonal"] == pytest.approx(-0.05, abs=1e-9)


# -- the ratio of attention ------------------------------------------------------------------------


@pytest.mark.parametrize("task", [PLAIN, MARKED], ids=["plain", "markers"])
def test_the_ratio_of_tied_attention_is_a_weighted_mean_of_its_two_numbers(task):
    alpha, beta = 2.5, 9.0
    with jax.enable_x64(True):
        relation = jax.jit(
            lambda key: OneLayerTransformerConfig(attention="tied").build(task, key).relation
        )(jax.random.key(0))
        model = with_tables(task, "tied", relation=relation)
        tied = TiedScores(jnp.log(jnp.asarray(beta)), jnp.log(jnp.asarray(alpha)))
        ours = measured(AttentionOdds(), task, eqx.tree_at(lambda one: one.tied, model, tied))
        exact = LongDocumentQueries(3, 4, 2)
        long = measured(AttentionOdds(), exact, TiedAttention(tied, jnp.zeros(3)))
    for values in (ours, long):
        assert values["attention_ratio"] == pytest.approx((3 * alpha + beta) / 4, rel=1e-13)


@pytest.mark.parametrize("task", [PLAIN, MARKED], ids=["plain", "markers"])
def test_the_ratio_of_a_free_table_is_a_geometric_mean_over_queries(task):
    scores = random_table(task.vocabulary_size, 4)
    with jax.enable_x64(True):
        ours = measured(AttentionOdds(), task, with_tables(task, score_table=scores))
    logs = []
    words = range(task.first_word, task.vocabulary_size)
    for query in words:
        topics = {
            key: (key - task.first_word) // 4 == (query - task.first_word) // 4 for key in words
        }
        within, across = (
            [np.exp(scores[query, key]) for key in words if topics[key] is wanted]
            for wanted in (True, False)
        )
        logs.append(np.log(np.mean(within) / np.mean(across)))
    assert ours["attention_ratio"] == pytest.approx(np.exp(np.mean(logs)), rel=1e-13)


def test_the_ratio_ignores_a_number_added_to_a_querys_scores_and_is_one_if_uniform():
    scores = random_table(13, 5)
    with jax.enable_x64(True):
        before, after = (
            measured(AttentionOdds(), PLAIN, with_tables(PLAIN, score_table=table))[
                "attention_ratio"
            ]
            for table in (scores, scores + np.arange(13)[:, None])
        )
        uniform = measured(AttentionOdds(), PLAIN, with_tables(PLAIN, "uniform"))["attention_ratio"]
    assert before == pytest.approx(after, rel=1e-12)
    assert uniform == 1


# -- attention of pairs ----------------------------------------------------------------------------


def pairs_by_loops(
    task: TopicDocuments, scores: np.ndarray, kernel: str, probe: PairAttention
) -> tuple[np.ndarray, np.ndarray]:
    """Sum of attention over ordered pairs of positions / number of pairs, and that number:
    lookup pair.
    """
    batch = documents(task)
    ids = np.asarray(batch.labels)[: probe.documents, : probe.positions]
    mask = (
        np.ones(ids.shape, bool)
        if batch.mask is None
        else np.asarray(batch.mask)[: probe.documents, : probe.positions]
    )
    mass, number = np.zeros((2, 4)), np.zeros((2, 4))
    for line, present in zip(ids, mask, strict=True):
        line = line[present]
        attention = np.exp(scores[line[:, None], line[None, :]])  # the full matrix
        if kernel == "softmax":
            attention /= attention.sum(axis=1, keepdims=True)
        attention *= len(line) / probe.positions
        for place, lookup in enumerate(LOOKUPS):
            for query, key in np.ndindex(attention.shape):
                words = line[query], line[key]
                if lookup == "right":
                    topics = [
                        (word - task.first_word) // 4 if word >= task.first_word else None
                        for word in words
                    ]
                else:  # the id taken for the word: of 12 words, ids 12 and above have no topic
                    topics = [word // 4 if word < 12 else None for word in words]
                if words[0] == words[1]:
                    kind = "same word"
                elif None in topics:
                    kind = "no topic"
                else:
                    kind = "same topic" if topics[0] == topics[1] else "different topic"
                mass[place, PAIRS.index(kind)] += attention[query, key]
                number[place, PAIRS.index(kind)] += 1
    return mass / np.maximum(number, 1), number


@functools.cache
def pair_values(
    markers: bool, kernel: str
) -> tuple[dict[str, np.ndarray], np.ndarray, PairAttention]:
    task = MARKED if markers else PLAIN
    probe = PairAttention(documents=5, positions=9)
    size = task.vocabulary_size
    with jax.enable_x64(True):
        batch = documents(task)
        if kernel == "softmax":
            scores = random_table(size, 6)
            model = with_tables(task, score_table=scores)
        else:
            keys, queries = random_table(size, 7), random_table(size, 8)
            config = OneLayerTransformerConfig(kernel="gaussian")
            start = eqx.filter_eval_shape(config.build, task, jax.random.key(0))
            parts = tuple(0.5 * jnp.asarray(one) for one in (keys, queries))
            model = eqx.tree_at(lambda one: (one.keys, one.queries), start, parts)
            scores = np.asarray(model.scores())
        return measured(probe, task, model, batch), scores, probe


@pytest.mark.parametrize(
    ("markers", "kernel"), [(True, "softmax"), (False, "softmax"), (True, "gaussian")]
)
def test_attention_of_pairs_is_that_of_every_two_positions(markers, kernel):
    ours, scores, probe = pair_values(markers, kernel)
    expected, number = pairs_by_loops(MARKED if markers else PLAIN, scores, kernel, probe)
    np.testing.assert_array_equal(ours["pair_count"], number)
    np.testing.assert_allclose(ours["pair_attention"], expected, **EXACT)
    assert np.all(number[:, :3] > 0)
    assert (number[0, 3] > 0) == markers, "only markers have no topic, if it is looked up right"


def test_the_legacy_lookup_gives_the_start_marker_topic_zero_and_the_last_four_words_none():
    """Documents of two positions, so that every count is known: 12 words have the ids 4 to
    15.
    """
    probe = PairAttention(documents=10, positions=2)
    first = MARKED.first_word
    cases = {  # (first id, second id): kinds of the pair by the right lookup and by the legacy one
        (2, first): (
            "no topic",
            "different topic",
        ),  # start is taken for a word of topic 0; id 4 for one of topic 1
        (2, 3): ("no topic", "same topic"),
        (first, first + 3): ("same topic", "same topic"),  # one topic too high, both of them
        (first, first + 4): ("different topic", "different topic"),
        (first + 7, first + 8): (
            "different topic",
            "no topic",
        ),  # ids 11 and 12: the last four ids have none
        (first + 8, first + 11): ("same topic", "no topic"),
        (first + 11, first + 11): ("same word", "same word"),
    }
    task = dataclasses.replace(MARKED, shortest=2, longest=2)
    model = with_tables(task, "uniform")
    count = jax.jit(
        lambda labels: probe(
            Moment(
                task,
                model,
                None,
                Documents(labels, labels, jnp.zeros(labels.shape, bool)),
                OneLayerTransformer.loss,
                lambda: model,
            )
        )["pair_count"]
    )
    for ids, kinds in cases.items():
        ours = np.asarray(count(jnp.asarray([ids], jnp.int32)))
        expected = np.zeros((2, 4))
        for place, kind in enumerate(kinds):
            expected[place, PAIRS.index(kind)] += 4 if ids[0] == ids[1] else 2
            expected[place, 0] += 0 if ids[0] == ids[1] else 2  # each word and itself
        np.testing.assert_array_equal(ours, expected, err_msg=str(ids))


@pytest.mark.parametrize("positions", [4, 100])
def test_uniform_attention_gives_one_over_positions_for_every_kind(positions):
    """Also for documents that are shorter than the cut."""
    with jax.enable_x64(True):
        ours = measured(
            PairAttention(documents=6, positions=positions),
            MARKED,
            with_tables(MARKED, "uniform"),
            documents(MARKED),
        )
    there = ours["pair_count"] > 0
    assert there.sum() >= 6
    np.testing.assert_allclose(ours["pair_attention"][there], 1 / positions, rtol=1e-12)
    assert np.all(ours["pair_attention"][~there] == 0)


def test_coordinates_name_what_is_measured():
    assert ValueBlocks().coordinates(PLAIN) == {
        "block": ("block", ["hidden", "same", "other", "output hidden"])
    }
    pairs = PairAttention().coordinates(PLAIN)
    assert pairs["lookup"][1] == ["right", "legacy"]
    assert pairs["pair"][1] == ["same word", "same topic", "different topic", "no topic"]
    for probe in (ValueTable(), SimilarityTable()):
        assert [list(values) for _, values in probe.coordinates(PLAIN).values()] == [
            list(range(13))
        ] * 2
