"""Sentence pairs without a known alignment: their lengths, minibatches by length, and probes."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array

from saccade.contracts.task import END, SentencePairs
from saccade.errors import ConfigError
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig, token_entropy
from saccade.models.word_proxy import WordProxyConfig
from saccade.probes.translation import (
    AttentionOffsets,
    AttentionPlaces,
    LexicalKnowledge,
    PairWords,
    PositionTables,
    TokenAccuracy,
)
from saccade.records.schedule import Every
from saccade.tasks.arrays import Arrays
from saccade.tasks.lexicon_sentences import LexiconSentences
from saccade.tasks.parallel_text import ParallelText
from saccade.train.batches import Minibatch, buckets_of
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam
from saccade.train.recipe import Recipe

PAIRS = SentencePairs(
    jnp.asarray([[2, 3, END, END], [2, END, END, END], [3, 3, 2, END]], jnp.int32),
    jnp.asarray([[4, END, END, END, END], [5, 4, 4, 5, END], [4, END, END, END, END]], jnp.int32),
    None,
    jnp.asarray(np.arange(4) < np.asarray([[3], [2], [4]])),
    jnp.asarray(np.arange(5) < np.asarray([[2], [5], [2]])),
)


def test_a_pair_is_as_long_as_its_longer_sentence():
    assert PAIRS.lengths.tolist() == [3, 5, 4]
    assert PAIRS.size == 3


@pytest.mark.parametrize("aligned", [None, jnp.zeros((3, 5), jnp.int32)])
def test_both_sentences_are_shortened(aligned):
    pairs = dataclasses.replace(PAIRS, aligned=aligned)
    short = pairs.examples(jnp.asarray([2, 0])).shortened(4)
    assert short.source.shape == (2, 4)
    assert short.target.shape == short.target_mask.shape == (2, 4)
    assert (short.aligned is None) == (aligned is None)
    assert aligned is None or short.aligned.shape == (2, 4)
    assert short.lengths.tolist() == [4, 3], "nothing but padding is gone"
    assert pairs.shortened(9).target.shape == (3, 5)


@pytest.mark.parametrize("config", [SequenceToSequenceConfig(hidden=4), WordProxyConfig(4)])
def test_the_loss_of_shortened_pairs_is_the_same(config):
    task = LexiconSentences.example()
    model = config.build(task, jax.random.key(0))
    chosen = dataclasses.replace(task.sample(jax.random.key(1), 16), aligned=None)
    few = chosen.examples(jnp.flatnonzero(jnp.asarray(chosen.lengths) <= 4))
    assert 0 < few.size < 16
    loss = eqx.filter_jit(lambda batch: model.loss(batch))
    np.testing.assert_allclose(loss(few.shortened(4)), loss(few), rtol=1e-5)  # float32


def test_minibatches_by_length_see_short_pairs(lab: Lab):
    seen = set()

    def spying(model, batch: SentencePairs) -> Array:
        seen.add((batch.source.shape, batch.target.shape))
        return token_entropy(model, batch)

    task = ParallelText.example()
    buckets = buckets_of(task.splits["train"].lengths, 1)
    assert len(buckets.longest) > 1
    recipe = Recipe(
        task,
        SequenceToSequenceConfig(hidden=4),
        Adam(1e-2),
        12,
        probes=(TokenAccuracy(), PairWords(pairs=2)),
        at=Every(6),
        batches=Minibatch(1, by_length=True),
        loss=spying,
    )
    training = lab.train(recipe)
    assert {((1, longest), (1, longest)) for longest in buckets.longest} <= seen
    assert np.isfinite(training.trajectory["loss"]).all()
    assert training.trajectory.attrs["corpus_sha256"] == task.checksum


@pytest.mark.parametrize("probe", [AttentionPlaces(), AttentionOffsets(), LexicalKnowledge()])
def test_probes_that_need_an_alignment_say_so_before_training(lab: Lab, probe):
    name = type(probe).__name__
    recipe = Recipe(
        ParallelText.example(),
        SequenceToSequenceConfig(hidden=4),
        Adam(1e-2),
        10_000_000,
        probes=(probe,),
        at=Every(100),
    )
    with pytest.raises(
        ConfigError,
        match=rf"^probe {name}: cannot be used with ParallelText: it needs the alignment of the "
        r"words, which these pairs do not have; allowed: pairs of LexiconSentences or Copying",
    ):
        lab.train(recipe)


def test_tables_need_no_alignment(lab: Lab):
    task = ParallelText.example()
    recipe = Recipe(
        task,
        SequenceToSequenceConfig(hidden=4),
        Adam(1e-2),
        1,
        probes=(PositionTables(pairs=3), PairWords(pairs=3)),
        at=Every(1),
    )
    tables = lab.train(recipe).trajectory
    batch = task.splits["test"].examples(jnp.arange(3))
    assert tables["alpha"].shape[-3:] == (3, batch.target.shape[1], batch.source.shape[1])
    words = (batch.target != END)[..., None] & np.asarray(batch.source_mask)[:, None]
    assert np.array_equal(~np.isnan(tables["alpha"].isel(seed=0, step=0)), words)


def test_pairs_in_memory_are_a_corpus():
    assert Arrays(train=PAIRS, test=PAIRS).test_size == 3
    known = dataclasses.replace(PAIRS, aligned=jnp.zeros((3, 5), jnp.int32))
    with pytest.raises(
        ConfigError, match=r"^test: got SentencePairs with .*aligned, .* as in train"
    ):
        Arrays(train=PAIRS, test=known)
