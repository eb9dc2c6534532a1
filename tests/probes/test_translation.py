"""What a translation model knows and where it looks: tables made by hand, a known lexicon,
finite differences.
"""

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from jaxtyping import Array, Float

from saccade.contracts.model import AbstractModel, Output
from saccade.contracts.probe import Moment
from saccade.contracts.task import END, SentencePairs
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig, token_entropy
from saccade.models.word_proxy import WordProxy
from saccade.probes import translation
from saccade.probes.translation import (
    AttentionOffsets,
    AttentionPlaces,
    LexicalKnowledge,
    PairWords,
    PositionTables,
    TokenAccuracy,
    mean_agreement,
    mean_chance,
    ratio_of_medians,
    saliency,
    success_step,
)
from saccade.tasks.lexicon_sentences import LexiconSentences

IDS = 6
"""The end, the start, source words 2 and 3, and their translations 4 and 5."""
PAIRS = SentencePairs(
    source=jnp.asarray([[2, 3, 2, END], [3, END, END, END], [2, 3, 3, 3]], jnp.int32),
    target=jnp.asarray([[4, 5, 4, END], [5, END, END, END], [4, 5, 5, 5]], jnp.int32),
    aligned=jnp.asarray([[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]], jnp.int32),
    source_mask=jnp.asarray(np.arange(4) < np.asarray([[4], [2], [1]])),
    target_mask=jnp.asarray(np.arange(4) < np.asarray([[4], [2], [1]])),
)
"""Three words and the end, one and the end, and a lone word without end. Word 2 comes twice in
the first; padding of the last holds words, which must not matter.
"""
WORDS = np.asarray([[1, 1, 1, 0], [1, 0, 0, 0], [1, 0, 0, 0]], bool)
"""Where targets are words."""
THERE = np.asarray(PAIRS.source_mask)


@functools.cache
def measuring(probes: tuple[Any, ...]) -> Any:
    def measure(model: Any) -> dict[str, Any]:
        moment = Moment(None, model, None, PAIRS, token_entropy, lambda: model)
        return {name: value for probe in probes for name, value in probe(moment).items()}

    return jax.jit(measure)


def probed(model: Any, *probes: Any) -> dict[str, np.ndarray]:
    return jax.tree.map(np.asarray, measuring(probes)(model))


class Fixed(AbstractModel):
    """Returns fixed logits and attention."""

    logits: Float[Array, "pair target id"]
    attention: Float[Array, "pair target source"]

    def __call__(self, batch: SentencePairs) -> Output:
        return Output(self.logits, self.attention)


# -- accuracy and attention ------------------------------------------------------------------------


@functools.cache
def of_fixed_outputs() -> tuple[dict[str, np.ndarray], np.ndarray]:
    guesses = np.asarray([[4, 5, 5, END], [END, END, 3, 3], [4, 5, 5, 5]])
    attention = np.full((3, 4, 4), 0.25)
    attention[0] = [
        [0.5, 0.3, 0.2, 0.0],
        [0.6, 0.2, 0.1, 0.1],
        [0.1, 0.1, 0.2, 0.6],
        [0.0, 0.0, 0.0, 1.0],
    ]
    attention[1, 0], attention[2, 0] = [0.7, 0.3, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]
    model = Fixed(
        jnp.asarray(np.eye(IDS)[guesses], jnp.float32), jnp.asarray(attention, jnp.float32)
    )
    return probed(model, TokenAccuracy(), AttentionPlaces(), AttentionOffsets(3)), attention


def test_accuracy_counts_words_and_ends_and_no_padding():
    """Wrong: the third word of the first pair and the word of the second; 5 of 7 are right."""
    assert float(of_fixed_outputs()[0]["test_accuracy"]) == pytest.approx(5 / 7, rel=1e-6)


def test_attention_places_are_counted_from_the_right_one():
    """Largest: at the right place, before it, behind it, right, right; beyond the border there
    is nothing.
    """
    values, a = of_fixed_outputs()
    np.testing.assert_allclose(values["attention_accuracy"], [1 / 5, 3 / 5, 1 / 5], rtol=1e-6)
    before = a[0, 1, 0] + a[0, 2, 1]
    right = a[0, 0, 0] + a[0, 1, 1] + a[0, 2, 2] + a[1, 0, 0] + a[2, 0, 0]
    behind = a[0, 0, 1] + a[0, 1, 2] + a[0, 2, 3] + a[1, 0, 1]
    np.testing.assert_allclose(
        values["attention_mass"], np.asarray([before, right, behind]) / 5, rtol=1e-6
    )
    assert AttentionPlaces().coordinates(None) == {"offset": ("offset", [-1, 0, 1])}


def test_attention_by_all_offsets_and_positions_is_that_of_loops():
    """Of the five words; by offset it sums to one, and at near offsets it is that of the places."""
    values, a = of_fixed_outputs()
    by_offset, by_position = np.zeros(7), np.zeros(4)
    for pair, target in zip(*np.nonzero(WORDS), strict=True):
        for source in range(4):
            by_offset[source - target + 3] += a[pair, target, source] / 5
            by_position[source] += a[pair, target, source] / 5
    np.testing.assert_allclose(values["mass_by_offset"], by_offset, rtol=1e-6)
    np.testing.assert_allclose(values["mass_by_position"], by_position, rtol=1e-6)
    assert values["mass_by_offset"].sum() == pytest.approx(1, rel=1e-6)
    np.testing.assert_allclose(values["mass_by_offset"][2:5], values["attention_mass"], rtol=1e-6)
    assert AttentionOffsets(2).coordinates(None) == {"distance": ("distance", [-2, -1, 0, 1, 2])}


# -- a known lexicon -------------------------------------------------------------------------------


def lexicon(strength: float) -> WordProxy:
    """Every source word gives its own translation that logit, and 0 to all others."""
    table = np.zeros((IDS, IDS), np.float32)
    table[[END, 2, 3], [END, 4, 5]] = strength
    return WordProxy(jnp.eye(IDS), jnp.asarray(table))


def test_a_perfect_lexicon_is_known_up_to_words_that_come_twice():
    values = probed(lexicon(3.0), LexicalKnowledge())
    right = np.exp(3) / (np.exp(3) + IDS - 1)
    other = 1 / (np.exp(3) + IDS - 1)
    assert values["lexicon_right"] == pytest.approx(right, rel=1e-6)
    twice = (
        2 * other + right
    ) / 3  # word 2 stands at two places: one of the three others says the same
    assert values["lexicon_elsewhere"] == pytest.approx(
        (2 * twice + other + other) / 4, rel=1e-6
    ), "a lone word has no others"
    assert values["lexicon_agreement"] == pytest.approx((0.5 + 1 + 0.5 + 1 + 1) / 5, rel=1e-6)
    assert values["lexicon_agreement_authors"] == 1
    assert values["random_agreement"] == pytest.approx((3 / 4 + 1 / 2 + 1) / 5, rel=1e-6)


def test_nothing_known_is_chance_but_by_the_authors_rule():
    values = probed(lexicon(0.0), LexicalKnowledge())
    assert values["lexicon_right"] == pytest.approx(1 / IDS, rel=1e-6)
    assert values["lexicon_elsewhere"] == pytest.approx(1 / IDS, rel=1e-6)
    assert values["lexicon_agreement"] == pytest.approx(values["random_agreement"], rel=1e-6)
    assert values["lexicon_agreement_authors"] == 1


def test_a_wrong_lexicon_is_below_chance():
    """All but the lone word, which has no other place to be looked for."""
    values = probed(lexicon(-3.0), LexicalKnowledge())
    assert (
        values["lexicon_agreement"]
        == values["lexicon_agreement_authors"]
        == pytest.approx(1 / 5, rel=1e-6)
    )
    assert values["lexicon_right"] < values["lexicon_elsewhere"]


# -- saliency --------------------------------------------------------------------------------------

STEP = 1e-5
FINITE: dict[str, Any] = {"rtol": 1e-6, "atol": 1e-8}
"""Central differences err by STEP^2 / 6 = 2e-11 times a third derivative (up to 100), and by
1e-15 / STEP = 1e-10.
"""


def scattered(config: Any, task: Any) -> Any:
    """A model far from its start: all numbers of size 1. Under jax.enable_x64."""
    random = np.random.default_rng(3)
    shapes = eqx.filter_eval_shape(config.build, task, jax.random.key(0))
    drawn = [
        (
            jnp.ones(leaf.shape, bool)
            if leaf.dtype == bool
            else jnp.asarray(random.normal(size=leaf.shape))
        )
        for leaf in jax.tree.leaves(shapes)
    ]
    return jax.tree.unflatten(jax.tree.structure(shapes), drawn)


def differences(losses: Any) -> np.ndarray:
    """Minus the derivative of losses [row, ...] by the gates [row, position] of their own row,
    as [row, position, ...].
    """
    moved = 1 + STEP * np.concatenate([np.eye(4), -np.eye(4)])
    found = np.asarray(
        jax.jit(jax.vmap(losses))(jnp.asarray(np.broadcast_to(moved[:, None], (8, 3, 4))))
    )
    return -np.moveaxis(found[:4] - found[4:], 0, 1) / (2 * STEP)


def test_saliency_is_minus_the_derivative_of_a_words_loss():
    with jax.enable_x64(True):
        model = scattered(SequenceToSequenceConfig(hidden=2, cell="gru"), LexiconSentences(words=2))
        ours = np.asarray(jax.jit(saliency)(model, PAIRS))

        def losses(gates: Any) -> Any:
            scores = jax.nn.log_softmax(model(PAIRS, gates).logits)
            return -jnp.sum(jax.nn.one_hot(PAIRS.target, IDS) * scores, axis=-1)

        expected = np.swapaxes(differences(losses), 1, 2)
    np.testing.assert_allclose(ours, expected, **FINITE)
    assert np.abs(ours).max() > 1e-2
    assert np.all(np.swapaxes(ours, 1, 2)[~THERE] == 0), "padding is salient"


@pytest.mark.parametrize("pairs", [1, 2])
def test_saliency_is_the_same_however_many_pairs_are_computed_at_once(pairs, monkeypatch):
    with jax.enable_x64(True):
        model = scattered(SequenceToSequenceConfig(hidden=2), LexiconSentences(words=2))
        together = np.asarray(jax.jit(saliency)(model, PAIRS))
        monkeypatch.setattr(translation, "AT_ONCE", pairs * 4 * 4 * IDS)
        apart = np.asarray(jax.jit(lambda model: saliency(model, PAIRS))(model))
    np.testing.assert_allclose(apart, together, rtol=0, atol=1e-13)


def test_saliency_is_positive_where_more_of_a_word_would_help():
    """A mean of logits: Delta_tl = (W(x_l, y_t) - sum over o of p_o W(x_l, o)) / L."""
    proxy = lexicon(3.0)
    ours = np.asarray(jax.jit(saliency)(proxy, PAIRS))
    W = np.asarray(proxy.readout)
    for pair, length in enumerate((4, 2, 1)):
        words = np.asarray(PAIRS.source)[pair, :length]
        logits = W[words].mean(axis=0)
        chances = np.exp(logits) / np.exp(logits).sum()
        for t in np.flatnonzero(WORDS[pair]):
            target = int(PAIRS.target[pair, t])
            np.testing.assert_allclose(
                ours[pair, t, :length],
                (W[words, target] - W[words] @ chances) / length,
                rtol=0,
                atol=1e-6,
            )
            assert np.array_equal(ours[pair, t, :length] > 0, W[words, target] > 0)


# -- tables ----------------------------------------------------------------------------------------


def test_tables_hold_attention_probe_and_saliency_where_there_are_words():
    model = lexicon(3.0)
    values = probed(model, PositionTables(pairs=2), PairWords(pairs=2))
    output, beta, delta = jax.jit(
        lambda model: (model(PAIRS), model.lexical_probe(PAIRS), saliency(model, PAIRS))
    )(model)
    there = (WORDS[..., None] & THERE[:, None])[:2]
    for name, table in (("alpha", output.attention), ("beta", beta), ("delta", delta)):
        np.testing.assert_array_equal(np.isnan(values[name]), ~there)
        np.testing.assert_allclose(values[name][there], np.asarray(table)[:2][there], rtol=1e-6)
    assert values["source_id"].tolist() == [[2, 3, 2, END], [3, END, -1, -1]]
    assert values["target_id"].tolist() == [[4, 5, 4, END], [5, END, -1, -1]]


FIRST = np.asarray(
    [[0.9, 0.5, 0.1], [0.2, 0.8, np.nan], [np.nan, np.nan, np.nan], [0.3, np.nan, np.nan]]
)
SECOND = np.asarray(
    [[7.0, 8.0, 9.0], [1.0, 2.0, np.nan], [np.nan, np.nan, np.nan], [5.0, np.nan, np.nan]]
)


@jax.jit
def mean_values(first: Any, second: Any) -> tuple[Any, ...]:
    return mean_agreement(first, second), mean_chance(first)


def means(first: np.ndarray, second: np.ndarray) -> tuple[float, ...]:
    return tuple(
        map(float, mean_values(*(jnp.asarray(table, jnp.float32) for table in (first, second))))
    )


def test_means_over_the_rows_of_tables_with_gaps():
    """Rows of three, two, no and one word: 0, 1, left out and 1."""
    agreed, chance = means(FIRST, SECOND)
    assert agreed == pytest.approx((0 + 1 + 1) / 3, rel=1e-6)
    assert chance == pytest.approx((1 / 3 + 1 / 2 + 1) / 3, rel=1e-6)


def test_a_run_that_is_not_a_number_agrees_with_nothing():
    """Rows with NaN at a word are left out, on either side: a diverged run must not look like a
    constant one.
    """
    gap = np.where(np.arange(4)[:, None] == 0, np.nan, SECOND)
    assert means(FIRST, gap)[0] == 1
    assert np.isnan(means(FIRST, np.full_like(SECOND, np.nan))[0])


# -- success ---------------------------------------------------------------------------------------


def test_success_is_the_first_step_above_the_threshold():
    curves = [[0.1, 0.96, 0.5], [0.1, 0.95, 0.99], [0.1, 0.2, 0.95]]
    accuracy = xr.DataArray(curves, {"step": [0, 5, 10]}, ["seed", "step"])
    assert success_step(accuracy).values.tolist() == [5, 10, np.inf]


@pytest.mark.parametrize(
    ("slow", "fast", "ratio"),
    [
        ([4.0, 6.0, np.inf], [2.0, 3.0, 5.0], 2.0),
        ([np.inf, np.inf, 1.0], [2.0, 3.0, np.inf], np.inf),
        ([1.0, 2.0, 3.0], [np.inf, np.inf, 1.0], np.nan),
    ],
)
def test_medians_of_steps_may_be_infinite(slow, fast, ratio):
    found = ratio_of_medians(np.asarray(slow), np.asarray(fast))
    assert found == pytest.approx(ratio, nan_ok=True)
