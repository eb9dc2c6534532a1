"""Documents about topics: which words they have, how long they are, and what masking shows of
them.
"""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import ConfigError
from saccade.settings import Swept, map_swept, over_sweeps, with_sweep
from saccade.tasks.topic_documents import Masking, TopicDocuments

PADDING, HIDDEN, START, END = range(4)
"""Ids of the authors' code, with markers."""


@functools.cache
def drawn(
    task: TopicDocuments, size: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
    """Shown ids, true ids, selected positions, and the mask of words."""
    batch = jax.jit(lambda key: task.sample(key, size))(jax.random.key(seed))
    words, labels, selected = (
        np.asarray(part) for part in (batch.words, batch.labels, batch.selected)
    )
    return words, labels, selected, None if batch.mask is None else np.asarray(batch.mask)


def assert_share(count: int, trials: int, probability: float) -> None:
    """A binomial count within four standard errors of its mean."""
    assert abs(count - trials * probability) < 4 * np.sqrt(trials * probability * (1 - probability))


def assert_uniform(counts: np.ndarray) -> None:
    """Each count within four standard errors of a multinomial's."""
    total, share = counts.sum(), 1 / len(counts)
    assert np.abs(counts - total * share).max() < 4 * np.sqrt(total * share * (1 - share))


# -- topics and words ------------------------------------------------------------------------------


@settings(max_examples=3, deadline=None, derandomize=True)
@given(
    topics=st.integers(2, 5),
    words_per_topic=st.integers(1, 3),
    per_document=st.integers(1, 5),
    markers=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_a_document_has_words_of_its_topics_alone(
    topics, words_per_topic, per_document, markers, seed
):
    per_document = min(per_document, topics)
    task = TopicDocuments(
        topics, words_per_topic, per_document, shortest=60, longest=60, markers=markers
    )
    words, labels, selected, mask = drawn(task, 20, seed)
    assert mask is None, "every document is full"
    assert words.shape == labels.shape == selected.shape == (20, 60 + 2 * markers)
    assert words.dtype == labels.dtype == np.int32
    inner = labels[:, 1:-1] if markers else labels
    assert inner.min() >= task.first_word
    assert inner.max() < task.vocabulary_size == topics * words_per_topic + (4 if markers else 1)
    topic = task.topic_of_id[inner]
    assert np.array_equal(topic, (inner - task.first_word) // words_per_topic)
    # A topic is missed by all 60 words with probability (1 - 1/5)^60 < 2e-6 at the most.
    assert all(len(set(one)) == per_document for one in topic)
    assert np.array_equal(words[~selected], labels[~selected]), (
        "words that are not selected are shown unchanged"
    )


def test_every_set_of_topics_is_equally_likely_and_so_are_its_words():
    task = TopicDocuments(4, 3, 2, shortest=40, longest=40)
    _, labels, _, _ = drawn(task, 1200)
    topic = task.topic_of_id[labels]
    sets = [tuple(sorted(set(one))) for one in topic]
    pairs = [(low, high) for low in range(4) for high in range(low + 1, 4)]
    assert_uniform(np.asarray([sets.count(pair) for pair in pairs]))
    # Given its two topics, each word is of either with probability 1/2, and any of three words.
    assert_share(int(np.sum(topic == topic.min(axis=1, keepdims=True))), labels.size, 0.5)
    assert_uniform(np.bincount(((labels - 1) % 3).reshape(-1), minlength=3))


def test_a_dirichlet_mixture_has_its_mean_and_its_second_moment():
    """P(topic) = 1/T, and two words share their topic with probability T E s^2 = (alpha + 1) /
    (T alpha + 1); alpha is swept.
    """
    task = TopicDocuments(5, 2, mixture="dirichlet", topics_per_document=1, shortest=30, longest=30)
    swept = with_sweep(task, "concentration", (0.1, 2.0))

    def member(choice: jax.Array) -> Any:
        filled = map_swept(swept, lambda one: jnp.asarray(one.values, jnp.float32)[choice])
        return filled.sample(jax.random.key(0), 1500).labels

    for labels, concentration in zip(
        np.asarray(jax.jit(jax.vmap(member))(jnp.arange(2))), (0.1, 2.0), strict=True
    ):
        topic = task.topic_of_id[labels]
        counts = np.stack([(topic == one).sum(axis=1) for one in range(5)], axis=1)
        together = np.sum(counts * (counts - 1), axis=1) / (
            30 * 29
        )  # unbiased: two different words per document
        expected = (concentration + 1) / (5 * concentration + 1)
        # Documents are independent: four standard errors of their mean.
        assert abs(together.mean() - expected) < 4 * together.std() / np.sqrt(len(together))
        shares = counts / 30
        assert np.all(
            np.abs(shares.mean(axis=0) - 0.2) < 4 * shares.std(axis=0) / np.sqrt(len(shares))
        )
        assert np.any([len(set(one)) > 1 for one in topic]), (
            "topics_per_document does not limit a mixture"
        )


# -- masking ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("markers", "replacements"), [(False, "words"), (True, "words"), (True, "all")]
)
def test_words_are_selected_kept_replaced_and_hidden_as_often_as_masking_says(
    markers, replacements
):
    masking = Masking(selected=0.4, kept=0.2, replaced=0.3)
    task = TopicDocuments(
        3,
        2,
        2,
        shortest=50,
        longest=50,
        masking=masking,
        markers=markers,
        replacements=replacements,
    )
    words, labels, selected, _ = drawn(task, 600)
    real = labels >= task.first_word
    assert not np.any(selected & ~real), "markers are never guessed"
    assert real.sum() == 600 * 50
    assert_share(int(selected.sum()), int(real.sum()), 0.4)
    shown, true = words[selected], labels[selected]
    ids = (
        range(task.first_word, task.vocabulary_size)
        if replacements == "words"
        else range(task.vocabulary_size)
    )
    each = 0.3 / len(ids)  # a replaced word is any of these, the right one included
    assert_share(int(np.sum(shown == true)), shown.size, 0.2 + each)
    assert_share(
        int(np.sum(shown == task.hidden_id)),
        shown.size,
        0.5 + (each if task.hidden_id in ids else 0.0),
    )
    others = np.bincount(
        shown[(shown != true) & (shown != task.hidden_id)], minlength=task.vocabulary_size
    )
    for one in range(task.vocabulary_size):
        if one == task.hidden_id:
            continue
        not_true = int(np.sum(true != one))
        if one not in ids:
            assert others[one] == 0
        else:
            assert_share(int(others[one]), not_true, each)


def test_the_shares_of_what_is_shown():
    """a + rho + m = 1: right, random and hidden words, counted in a sample."""
    masking = Masking(selected=0.4, kept=0.2, replaced=0.3)
    shares = masking.shares
    assert (shares.right, shares.random, shares.hidden) == pytest.approx(
        (0.68, 0.12, 0.2), abs=1e-15
    )
    assert dataclasses.astuple(masking.shares_unselected) == (1.0, 0.0, 0.0)
    task = TopicDocuments(3, 2, 2, shortest=50, longest=50, masking=masking)
    words, labels, selected, _ = drawn(task, 600)
    assert_share(int(np.sum(words == 0)), words.size, shares.hidden)
    # A random word is the right one in one case of six.
    assert_share(int(np.sum(words == labels)), words.size, shares.right + shares.random / 6)
    assert np.array_equal(words[~selected], labels[~selected])


def test_masking_at_its_limits():
    """Nothing is shown; all is; nothing is hidden. One program, with traced numbers."""
    task = TopicDocuments(3, 2, 2, shortest=30, longest=30)

    def member(selected: jax.Array, kept: jax.Array, replaced: jax.Array) -> Any:
        masking = Masking(selected, kept, replaced)  # pyright: ignore[reportArgumentType]
        return dataclasses.replace(task, masking=masking).sample(jax.random.key(1), 40)

    limits = jnp.asarray([(1.0, 0.0, 0.0), (1.0, 1.0, 0.0), (0.5, 0.75, 0.25)]).T
    batch = jax.jit(jax.vmap(member))(*limits)
    words, labels, selected = (
        np.asarray(part) for part in (batch.words, batch.labels, batch.selected)
    )
    assert np.all(selected[:2])
    assert np.all(words[0] == 0)
    assert np.array_equal(words[1], labels[1])
    assert np.all(words[2] > 0)
    assert not np.array_equal(words[2], labels[2])
    assert not np.all(selected[2])


# -- lengths and markers ---------------------------------------------------------------------------


@pytest.mark.parametrize("markers", [False, True])
def test_lengths_are_equally_likely_and_padding_is_masked(markers):
    task = TopicDocuments(
        3, 2, 2, shortest=3, longest=7, masking=Masking(0.9, 0.1, 0.1), markers=markers
    )
    words, labels, selected, mask = drawn(task, 800)
    assert mask is not None
    assert words.shape == (800, task.positions) == (800, 9 if markers else 7)
    length = mask.sum(axis=1) - 2 * markers
    assert_uniform(np.bincount(length - 3, minlength=5))
    for shown, true, guessed, present, size in zip(
        words, labels, selected, mask, length, strict=True
    ):
        assert np.array_equal(present, np.arange(task.positions) < size + 2 * markers)
        inner = true[1 : 1 + size] if markers else true[:size]
        assert np.all(inner >= task.first_word)
        assert np.all(true[~present] == PADDING)
        assert np.all(shown[~present] == PADDING)
        assert not guessed[~present].any()
        if markers:
            assert (true[0], true[1 + size]) == (shown[0], shown[1 + size]) == (START, END)
            assert not guessed[0]
            assert not guessed[1 + size]


def test_full_documents_with_markers_begin_and_end_with_one():
    task = TopicDocuments(
        3, 2, 2, shortest=5, longest=5, masking=Masking(1.0, 0.0, 0.0), markers=True
    )
    words, labels, selected, mask = drawn(task, 10)
    assert mask is None
    assert task.hidden_id == HIDDEN
    assert np.all(words == [START, *[HIDDEN] * 5, END])
    assert np.all(labels[:, 1:-1] >= 4)
    assert np.all(selected == [False, *[True] * 5, False])


def test_ids_that_are_no_words_have_no_topic():
    assert TopicDocuments(2, 3, 1).topic_of_id.tolist() == [-1, 0, 0, 0, 1, 1, 1]
    assert TopicDocuments(2, 3, 1, markers=True).topic_of_id.tolist() == [
        -1,
        -1,
        -1,
        -1,
        0,
        0,
        0,
        1,
        1,
        1,
    ]


# -- sweeps ----------------------------------------------------------------------------------------


def test_swept_masking_draws_what_its_values_alone_would():
    """As the lab does it: traced values, one per member. The same key then gives the same
    documents, bit for bit.
    """
    swept = TopicDocuments(3, 2, 2, shortest=12, longest=12, masking=Masking(0.5, 0.1, 0.1))
    for field, values in {
        "selected": (0.2, 0.8),
        "kept": (0.0, 0.6),
        "replaced": (0.1, 0.4),
    }.items():
        swept = with_sweep(swept, f"masking.{field}", values)
    key = jax.random.key(5)

    def member(choice: jax.Array) -> Any:
        filled = map_swept(swept, lambda one: jnp.asarray(one.values, jnp.float32)[choice])
        return filled.sample(key, 30)

    together = jax.jit(jax.vmap(member))(jnp.arange(2))
    for place in range(2):
        chosen = map_swept(swept, lambda one, place=place: one.values[place])
        for name, expected in zip(
            ("words", "labels", "selected"), drawn(chosen, 30, 5)[:3], strict=True
        ):
            assert np.array_equal(getattr(together, name)[place], expected), name
    assert not np.array_equal(together.words[0], together.words[1])


def test_shares_follow_a_sweep_of_masking():
    swept = with_sweep(TopicDocuments(), "masking.selected", [0.1, 0.5], "p_m")
    assert isinstance(swept.masking.selected, Swept)
    hidden = over_sweeps(lambda task: task.masking.shares.hidden, swept)
    assert hidden.dims == ("p_m",)
    np.testing.assert_allclose(hidden, [0.08, 0.4], atol=1e-15)


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"topics": 1}, "topics: got 1, allowed: a whole number, at least 2"),
        ({"words_per_topic": 0}, "words_per_topic: got 0, allowed: a whole number, at least 1"),
        (
            {"topics": 3, "topics_per_document": 4},
            "topics_per_document: got 4, allowed: at most the 3 topics",
        ),
        (
            {"topics_per_document": 0},
            "topics_per_document: got 0, allowed: a whole number, at least 1",
        ),
        ({"mixture": "uniform"}, "mixture: got 'uniform', allowed: distinct, dirichlet"),
        ({"replacements": "none"}, "replacements: got 'none', allowed: words, all"),
        ({"concentration": 0.0}, "concentration: got 0.0, allowed: a finite number above 0"),
        ({"shortest": 9, "longest": 8}, "longest: got 8, allowed: at least the shortest, 9"),
        ({"shortest": 0}, "shortest: got 0"),
        ({"train_size": 0}, "train_size: got 0"),
    ],
)
def test_impossible_documents_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        TopicDocuments(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"selected": 0.0}, "selected: got 0.0, allowed: above 0 and at most 1"),
        ({"selected": 1.5}, "selected: got 1.5, allowed: above 0 and at most 1"),
        ({"kept": -0.1}, "kept: got -0.1, allowed: from 0 to 1"),
        ({"replaced": float("nan")}, "replaced: got nan, allowed: from 0 to 1"),
        (
            {"kept": 0.7, "replaced": 0.4},
            r"kept \+ replaced: got 0.7 \+ 0.4, allowed: at most 1 together",
        ),
        (
            {"kept": Swept.over("kept", [0.1, 0.7]), "replaced": 0.4},
            r"kept \+ replaced: got 0.7 \+ 0.4",
        ),
    ],
)
def test_impossible_masking_is_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        Masking(**settings)
