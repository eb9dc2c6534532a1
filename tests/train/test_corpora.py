"""Corpora: one copy for all members, minibatches by length, evaluation in chunks, and identity by
content.
"""

import dataclasses
import gzip
import os
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import Array
from word_table import (
    Sentences,
    SplitLoss,
    Table,
    TaughtConfig,
    WordTable,
    WordTableConfig,
    masked_visits,
)

from saccade.contracts.chunks import in_chunks, mean_over_chunks
from saccade.contracts.probe import AbstractProbe, Moment
from saccade.contracts.task import Batch
from saccade.errors import ConfigError
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.records.schedule import Every
from saccade.records.variable import Variable
from saccade.train.batches import Fresh, FullBatch, Minibatch, buckets_of
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.prepared import engine_of
from saccade.train.recipe import Recipe
from saccade.train.training import TrainedArm

CORPUS = Sentences()


RECIPE = Recipe(
    CORPUS,
    WordTableConfig(0.0),
    GradientDescent(1.0),
    6,
    probes=(Table(),),
    at=Every(1),
    loss=masked_visits,
)


def visits(training: TrainedArm) -> np.ndarray:
    """How often each seed had seen each sentence [seed, step, sentence]."""
    counts = training.trajectory["table"].isel(label=0).values / np.asarray(CORPUS.lengths)
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-5)
    return np.round(counts).astype(int)


def test_all_members_share_one_copy_of_the_examples(lab: Lab):
    engine = engine_of(RECIPE, seeds=64)
    words = engine.data.arrays.train.words
    assert words.shape == (12, 4), "no member dim"
    assert {shard.data.shape for shard in words.addressable_shards} == {(12, 4)}
    assert len(words.addressable_shards) == 2, "one copy per device"


def test_an_epoch_by_length_sees_every_example(lab: Lab):
    """Buckets of 1, 2, 3 and 4 words of three sentences each, in batches of two: each bucket takes
    two batches, the last of which is filled up with one sentence that the epoch has seen.
    """
    buckets = buckets_of(np.asarray(CORPUS.lengths), 2)
    assert [len(ids) for ids in buckets.members] == [12], "a bucket has at least four batches"
    by_length = Minibatch(2, by_length=True)
    training = lab.train(dataclasses.replace(RECIPE, steps=12, batches=by_length), 3)
    seen = visits(training)
    assert np.all(np.diff(seen, axis=1).sum(axis=2) == 2), "two sentences per step"
    assert np.all(seen[:, 6] == 1), "every sentence once per epoch of six steps"
    assert np.all(seen[:, 12] == 2)
    assert len({seen[seed, :6].tobytes() for seed in range(3)}) == 3, "each seed has its own order"


def test_all_members_take_the_same_length_in_a_step(lab: Lab):
    lengths = (1,) * 10 + (8,) * 9
    corpus = Sentences(lengths)
    buckets = buckets_of(np.asarray(lengths), 2)
    assert buckets.longest == (1, 8)
    recipe = dataclasses.replace(
        RECIPE, task=corpus, steps=20, batches=Minibatch(2, by_length=True)
    )
    training = lab.train(recipe, 4)
    table = training.trajectory["table"].isel(label=0).values / np.asarray(lengths)
    steps = np.diff(np.round(table).astype(int), axis=1)  # seed step sentence
    long = steps[..., 10:].sum(axis=2)
    assert set(np.unique(long)) == {0, 2}, "a step has sentences of one length only"
    assert np.all(long == long[:1]), "the same for all seeds"
    assert np.all(steps[:, :10].sum(axis=1) >= 1), "an epoch of ten steps sees every sentence"
    assert np.all(steps[:, :10].sum(axis=1) <= 2)
    assert not np.array_equal(steps[0], steps[1]), "each seed draws its own sentences"


def test_by_length_a_batch_is_as_long_as_its_bucket(lab: Lab):
    """The loss sees no more positions than the longest sentence of the bucket."""
    seen = []

    def spying(model: WordTable, batch: Batch) -> Array:
        seen.append(batch.words.shape)
        return masked_visits(model, batch)

    corpus = Sentences((1,) * 10 + (8,) * 9)
    recipe = Recipe(
        corpus,
        WordTableConfig(0.0),
        GradientDescent(1.0),
        1,
        batches=Minibatch(2, by_length=True),
        loss=spying,
    )
    lab.train(recipe, 3)
    assert {(2, 1), (2, 8)} <= set(seen)


@given(
    st.lists(st.integers(0, 60), min_size=1, max_size=300),
    st.integers(1, 20),
)
def test_buckets_hold_every_example_once_and_none_is_cut(lengths: list[int], size: int):
    size = min(size, len(lengths))
    buckets = buckets_of(np.asarray(lengths), size)
    held = np.concatenate(buckets.members)
    assert sorted(held.tolist()) == list(range(len(lengths)))
    for ids, longest in zip(buckets.members, buckets.longest, strict=True):
        assert np.asarray(lengths)[ids].max() <= longest
        assert len(ids) >= min(4 * size, len(lengths))
    covered = [set() for _ in buckets.members]
    for bucket, place in buckets.plan:
        count = len(buckets.members[bucket])
        covered[bucket] |= {(place + at) % count for at in range(size)}
    assert [len(places) for places in covered] == [len(ids) for ids in buckets.members]


def test_lengths_like_those_of_sentences_need_little_padding():
    lengths = np.clip(np.random.default_rng(0).gamma(4, 5, 8000).astype(int), 1, 52)
    assert buckets_of(lengths, 64).padding(lengths) < 0.15
    assert 1 - lengths.mean() / lengths.max() > 0.5, "against half without buckets"


def test_chunks_give_the_means_and_outputs_of_the_whole():
    rng = np.random.default_rng(1)
    batch = Batch(jnp.asarray(rng.integers(0, 9, (11, 3))), jnp.asarray(rng.integers(0, 2, 11)))
    whole = jnp.mean(batch.words * 1.0)
    for size in (1, 4, 5, 10, 11, 20, None):
        mean = mean_over_chunks(lambda some: jnp.mean(some.words * 1.0), batch, size)
        np.testing.assert_allclose(mean, whole, rtol=1e-6)
        rows = in_chunks(lambda some: {"sum": some.words.sum(1)}, batch, size)["sum"]
        np.testing.assert_array_equal(rows, batch.words.sum(1))


@pytest.mark.parametrize(("examples", "size"), [(25_000, 26), (872, 16), (7, 2), (12, 5), (9, 8)])
def test_no_chunk_is_larger_than_asked_for(examples, size):
    seen = set()

    def spying(some: Any) -> Any:
        seen.add(some.size)
        return some.labels

    batch = Batch(np.zeros((examples, 1), np.int32), np.zeros(examples, np.int32))  # pyright: ignore[reportArgumentType]
    jax.eval_shape(lambda one: in_chunks(spying, one, size), batch)
    assert max(seen) <= size
    assert max(seen) > size / 2, "and not much smaller"


@dataclasses.dataclass(frozen=True)
class Everything(AbstractProbe):
    """Losses, outputs and the gradient, however they are computed."""

    variables = {  # noqa: RUF012
        "validation": Variable((), "loss on the validation split"),
        "logits": Variable(("example", "label"), "logits of the training split"),
        "gradient": Variable(("word", "label"), "gradient of the training loss"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {
            "validation": moment.loss_on("validation"),
            "logits": moment.train_output.logits,
            "gradient": moment.gradient.table,
        }


def test_a_record_in_chunks_is_that_of_the_whole(lab: Lab):
    recipe = Recipe(
        CORPUS,
        WordTableConfig(1.0),
        GradientDescent(1.0),
        4,
        probes=(Everything(),),
        at=Every(2),
        batches=Minibatch(4),
    )
    records = [
        lab.train(dataclasses.replace(recipe, chunk=chunk), 3).trajectory for chunk in (5, 12)
    ]
    for name in ("loss", "validation", "logits", "gradient"):
        np.testing.assert_allclose(records[0][name], records[1][name], rtol=1e-5, atol=1e-6)


def test_a_model_that_indexes_its_data_takes_a_corpus(lab: Lab):
    """Full batches of a corpus, with and without the index, are the same training."""
    recipe = Recipe(
        CORPUS,
        AttentionClassifierConfig("TC", 3),
        GradientDescent(0.1),
        5,
        probes=(SplitLoss(),),
        at=Every(5),
    )
    plain = lab.train(dataclasses.replace(recipe, batches=Minibatch(12)), 3)
    indexed = lab.train(dataclasses.replace(recipe, batches=FullBatch()), 3)
    for name in ("loss", "validation_loss"):
        np.testing.assert_allclose(indexed.trajectory[name], plain.trajectory[name], rtol=1e-5)


def test_other_content_is_another_training(lab: Lab):
    first = lab.train(RECIPE, 3)
    assert lab.train(RECIPE, 3).digest == first.digest
    equal = lab.train(dataclasses.replace(RECIPE, task=Sentences()), 3)
    assert equal.digest == first.digest, "an equal corpus is the same"
    changed = Sentences((2, *CORPUS.lengths[1:]))
    other = lab.train(dataclasses.replace(RECIPE, task=changed), 3)
    assert other.digest != first.digest
    named = [arm.trajectory.attrs["corpus_sha256"] for arm in (first, other)]
    assert named == [CORPUS.checksum, changed.checksum]
    assert named[0] != named[1]


def test_what_a_corpus_cannot_do_is_refused(lab: Lab):
    from word_table import WordList

    with pytest.raises(ConfigError, match=r"a corpus has no new examples, allowed: FullBatch\(\)"):
        lab.train(dataclasses.replace(RECIPE, batches=Fresh(4)))
    words = dataclasses.replace(RECIPE, task=WordList(), loss=None)
    with pytest.raises(ConfigError, match="got by_length with the task WordList, allowed: with a"):
        lab.train(dataclasses.replace(words, batches=Minibatch(4, by_length=True)))
    with pytest.raises(ConfigError, match="at most the 12 training examples"):
        lab.train(dataclasses.replace(RECIPE, batches=Minibatch(13)))
    with pytest.raises(ConfigError, match=r"split: got 'validation', allowed: .*, train, test"):
        lab.train(dataclasses.replace(words, probes=(SplitLoss(),)))


@dataclasses.dataclass(frozen=True, eq=False)
class Wrong(Sentences):
    """A corpus with something wrong."""

    given: Any = None

    @property
    def splits(self) -> Any:
        return self.given


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"test": CORPUS.splits["test"]}, "got the splits test, allowed: train, and validation"),
        (CORPUS.splits | {"dev": CORPUS.splits["test"]}, "got the splits train, .*, dev, allowed"),
        ({"train": [1, 2]}, "split 'train' is a list, allowed: an AbstractBatch"),
        (
            {"train": Batch(np.zeros((3, 2), np.int32), np.zeros(2, np.int32))},  # pyright: ignore[reportArgumentType]
            "drew arrays whose first dims are 2 and 3, allowed: 3",
        ),
    ],
)
def test_splits_that_do_not_fit_are_refused(lab: Lab, given, problem):
    with pytest.raises(ConfigError, match=f"task Wrong: {problem}"):
        lab.train(dataclasses.replace(RECIPE, task=Wrong(given=given)))


@pytest.mark.skipif("SACCADE_DATA" not in os.environ, reason="needs SACCADE_DATA with SST")
def test_sst_by_length_is_mostly_words():
    """Less than 15 % of the positions of an epoch are padding, in batches of 64."""
    file = Path(os.environ["SACCADE_DATA"]) / "sst" / "stsa.fine.train.gz"
    if not file.exists():
        pytest.skip(f"{file} is missing")
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        lengths = np.asarray([len(line.split()) - 1 for line in lines if line.strip()])
    buckets = buckets_of(lengths, 64)
    assert buckets.padding(lengths) < 0.15
    assert sum(map(len, buckets.members)) == len(lengths) == 8544


def test_a_model_that_sets_its_own_targets_needs_generated_examples(lab: Lab):
    with pytest.raises(ConfigError, match="model TaughtConfig: sets targets of its own for every"):
        lab.train(dataclasses.replace(RECIPE, model=TaughtConfig(), loss=None))
