"""Greedy decoding and beam search against each other, all translations there are, and a task that a
trained model must solve.
"""

import functools
import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from saccade.contracts.task import END, SentencePairs
from saccade.errors import ConfigError
from saccade.models.decoding import Translations, beam, greedy
from saccade.models.translator import Translator, TranslatorConfig
from saccade.tasks.copying import Copying
from saccade.tasks.lexicon_sentences import LexiconSentences

TASK = LexiconSentences(words=3, shortest=1, longest=4)
SMALL = Copying(2, 2)
"""Four ids."""
SEEDS = (0, 2, 4, 7)
"""Of models whose translations end at different lengths, but for the first."""


def scattered(seed: int, task: Any = TASK) -> Translator:
    """A model far from its start, whose words depend on the source and on those before."""
    model = TranslatorConfig(hidden=6, layers=2).build(task, jax.random.key(seed))
    random = np.random.default_rng(seed)

    def drawn(leaf: Any) -> Any:
        is_number = eqx.is_inexact_array(leaf)
        return jnp.asarray(random.normal(size=leaf.shape), jnp.float32) if is_number else leaf

    return jax.tree.map(drawn, model)


def log_probability(model: Translator, batch: SentencePairs, found: Translations) -> np.ndarray:
    """That of the translations, by teacher forcing."""
    words, mask = found.words, found.mask
    given = SentencePairs(batch.source, words, jnp.zeros_like(words), batch.source_mask, mask)
    scores = jax.nn.log_softmax(eqx.filter_jit(model)(given).logits)
    chosen = jnp.take_along_axis(scores, words[..., None], axis=-1)[..., 0]
    return np.asarray(jnp.sum(chosen * mask, axis=1))


@functools.cache
def examples() -> SentencePairs:
    return TASK.sample(jax.random.key(0), 12)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_beam_of_one_is_greedy_and_a_beam_of_five_is_no_worse_here(seed):
    """The latter is no theorem: seeds are fixed."""
    model, batch = scattered(seed), examples()
    source = (batch.source, batch.source_mask)
    plain, one, five = (
        greedy(model, *source, 8),
        beam(model, *source, 1, 8),
        beam(model, *source, 5, 8),
    )
    assert np.array_equal(plain.words, one.words)
    assert np.array_equal(plain.mask, one.mask)
    np.testing.assert_allclose(plain.log_probability, one.log_probability, rtol=0, atol=1e-5)
    assert np.all(five.log_probability >= plain.log_probability - 1e-5)
    for found in (plain, five):
        expected = log_probability(model, batch, found)
        np.testing.assert_allclose(found.log_probability, expected, rtol=0, atol=1e-4)


def test_a_beam_finds_what_greedy_decoding_misses():
    model, batch = scattered(2), examples()
    plain, five = (way(model, batch.source, batch.source_mask, longest=8) for way in (greedy, beam))
    assert np.any(five.log_probability > plain.log_probability + 0.01)


@pytest.mark.parametrize("seed", range(3))
def test_a_beam_that_keeps_everything_finds_the_best_translation_there_is(seed):
    longest, ids = 3, SMALL.vocabulary_size
    model, batch = scattered(seed, SMALL), SMALL.sample(jax.random.key(0), 5)
    found = beam(model, batch.source, batch.source_mask, ids**longest, longest)
    # All words until the first END, or as many as there may be.
    every = [
        (*words, *[END] * (longest - len(words)))
        for length in range(1, longest + 1)
        for words in itertools.product(range(ids), repeat=length)
        if END not in words[:-1] and (words[-1] == END or length == longest)
    ]
    assert len(every) == len(set(every)) == 1 + 3 + 9 + 27
    score = np.full((len(every), 5), -np.inf)
    for place, words in enumerate(every):
        tiled = jnp.asarray(np.tile(words, (5, 1)), jnp.int32)
        score[place] = log_probability(model, batch, Translations.of(tiled, jnp.zeros(5)))
    np.testing.assert_allclose(np.exp(score).sum(axis=0), 1, atol=1e-5)  # nothing is left out
    np.testing.assert_allclose(found.log_probability, score.max(axis=0), rtol=0, atol=1e-5)
    assert np.array_equal(found.words, np.asarray(every)[score.argmax(axis=0)])


@pytest.mark.parametrize("way", [greedy, beam])
def test_a_translation_ends_at_its_first_end_or_is_cut_off(way):
    batch = examples()
    model = scattered(2)
    for end, lengths in ((50.0, 1), (-50.0, 6)):
        bias = model.output_layer.bias.at[END].set(end)
        changed = eqx.tree_at(lambda one: one.output_layer.bias, model, bias)
        found = way(changed, batch.source, batch.source_mask, longest=6)
        assert found.words.shape == found.mask.shape == (12, 6)
        assert np.all(found.mask.sum(axis=1) == lengths)
    for seed in SEEDS:
        found = way(scattered(seed), batch.source, batch.source_mask, longest=6)
        words, mask = np.asarray(found.words), np.asarray(found.mask)
        assert np.all(words[~mask] == END)
        ends = np.sum((words == END) & mask, axis=1)
        assert np.array_equal(ends == 0, mask.all(axis=1) & (words[:, -1] != END))
        assert np.all(ends <= 1)


@pytest.mark.parametrize("way", [greedy, beam])
def test_pairs_and_padding_do_not_touch_one_another(way):
    model, batch = scattered(2), examples()
    together = way(model, batch.source, batch.source_mask, longest=8)
    assert len({int(many) for many in together.mask.sum(axis=1)}) > 1, "they end together"
    changed = jnp.where(batch.source_mask, batch.source, 3)
    others = way(model, changed[::-1], batch.source_mask[::-1], longest=8)
    assert np.array_equal(together.words, others.words[::-1])
    alone = way(model, batch.source[:1], batch.source_mask[:1], longest=8)
    assert np.array_equal(together.words[:1], alone.words)


@pytest.mark.slow
def test_a_trained_model_copies():
    """The words of the source, in order, then END: of sequences that it was not trained on."""
    task = Copying(3, 5)
    config, rate, steps = TranslatorConfig(hidden=24, layers=2, dropout=0.1), 0.01, 400
    optimiser = optax.adam(rate)

    @jax.jit
    def trained(key: Any) -> Translator:
        start_key, data_key = jax.random.split(key)
        model = config.build(task, start_key)
        moving, still = eqx.partition(model, model.trainable())

        def loss(part: Any, key: Any) -> Any:
            batch_key, drop_key = jax.random.split(key)
            return eqx.combine(part, still).loss(task.sample(batch_key, 32), drop_key)

        def step(carry: Any, key: Any) -> Any:
            part, state = carry
            updates, state = optimiser.update(jax.grad(loss)(part, key), state)
            return (optax.apply_updates(part, updates), state), None

        keys = jax.random.split(data_key, steps)
        (moving, _), _ = jax.lax.scan(step, (moving, optimiser.init(moving)), keys)
        return eqx.combine(moving, still)

    model, batch = trained(jax.random.key(0)), task.sample(jax.random.key(1), 60)
    for found in (
        greedy(model, batch.source, batch.source_mask, 6),
        beam(model, batch.source, batch.source_mask, 3, 6),
    ):
        assert np.array_equal(found.words[:, :4], batch.target)
        assert np.all(found.mask.sum(axis=1) == 4)
        assert np.all(found.log_probability > np.log(0.5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"longest": 0}, "longest: got 0, allowed: a whole number, at least 1"),
        ({"width": 0}, "width: got 0, allowed: a whole number, at least 1"),
        ({"width": -3}, "width: got -3, allowed: a whole number, at least 1"),
    ],
)
def test_impossible_settings_are_refused_by_name(settings, message):
    batch = examples()
    with pytest.raises(ConfigError, match=f"^{message}"):
        beam(scattered(0), batch.source, batch.source_mask, **settings)
    if "longest" in settings:
        with pytest.raises(ConfigError, match=f"^{message}"):
            greedy(scattered(0), batch.source, batch.source_mask, **settings)
