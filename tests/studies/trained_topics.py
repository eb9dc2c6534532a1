"""Trained refutations of the claims about Li, Li & Risteski (2023): what is broken is the data, the
model or the penalty, never the record.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import equinox as eqx
import jax
import jax.numpy as jnp
from record_parts import altered
from trained_refutations import TrainedRefutation

from saccade.models.one_layer_transformer import OneLayerTransformer, OneLayerTransformerConfig
from saccade.records.record import Record
from saccade.registry import find_study
from saccade.tasks.long_documents import LongDocumentQueries, LongDocuments
from saccade.tasks.topic_documents import Documents, TopicDocuments
from saccade.train.lab import Lab

SHORT = dict.fromkeys(("steps", "embedding_steps", "ratio_steps", "sampled_steps"), 2)
"""Parts of the study of the optima that a refutation is not about."""
FEW = {"train_size": 100, "test_size": 20, "uniform_steps": 2, "steps": 2}


def _run(lab: Lab, study: str, premise: Any, broken: bool, **changes: Any) -> Record:
    """A small run of a study, with its premise broken or not."""
    found = find_study(study)
    with premise() if broken else contextlib.nullcontext():
        return found.run(altered(found.config("quick"), **changes), lab)


@contextlib.contextmanager
def _replaced(owner: type, name: str, changed: Any) -> Iterator[None]:
    """A method that gets the original one first."""
    original = getattr(owner, name)

    def method(self: Any, *given: Any) -> Any:
        return changed(original, self, *given)

    with patch.object(owner, name, method):
        yield


# -- premises --------------------------------------------------------------------------------------


def _hidden_positions() -> Any:
    """Nobody can attend to selected positions; the theory believes that everybody can."""

    def moments(original: Any, task: LongDocuments, *given: Any) -> Any:
        return original(dataclasses.replace(task, selected_hidden=True), *given)

    return _replaced(LongDocuments, "sample", moments)


def _decay_without_gradient() -> Any:
    """As in the authors' code: the penalty is part of the loss that is reported, and of no step."""

    def penalty(original: Any, model: OneLayerTransformer) -> Any:
        return jax.lax.stop_gradient(original(model))

    return _replaced(OneLayerTransformer, "penalty", penalty)


def _one_topic() -> Any:
    """Every document has one topic, whatever tau says."""

    def queries(original: Any, task: LongDocumentQueries, *given: Any) -> Any:
        return original(dataclasses.replace(task, topics_per_document=1), *given)

    return _replaced(LongDocumentQueries, "sample", queries)


def _large_start() -> Any:
    """All weights start with the standard deviation 0.2, whatever the config says."""

    def initial(original: Any, config: OneLayerTransformerConfig, *given: Any) -> Any:
        return original(dataclasses.replace(config, start_std=0.2), *given)

    return _replaced(OneLayerTransformerConfig, "_initial", initial)


def _shuffled_topics() -> Any:
    """Words are dealt out to topics: the first of each topic are one topic of the documents."""

    def documents(original: Any, task: TopicDocuments, *given: Any) -> Documents:
        word = jnp.arange(task.vocabulary_size) - task.first_word
        dealt = word % task.words_per_topic * task.topics + word // task.words_per_topic
        other = jnp.where(word >= 0, task.first_word + dealt, jnp.arange(task.vocabulary_size))
        batch: Documents = original(task, *given)
        ids = (other[batch.words], other[batch.labels])
        return eqx.tree_at(lambda one: (one.words, one.labels), batch, ids)

    return _replaced(TopicDocuments, "sample", documents)


# -- runs ------------------------------------------------------------------------------------------


def _values(lab: Lab, broken: bool) -> Record:
    return _run(lab, "topics_optima", _hidden_positions, broken, **{**SHORT, "steps": 5000})


def _decayed(lab: Lab, broken: bool) -> Record:
    return _run(lab, "topics_optima", _decay_without_gradient, broken, **{**SHORT, "steps": 5000})


def _ratios(lab: Lab, broken: bool) -> Record:
    return _run(lab, "topics_optima", _one_topic, broken, **{**SHORT, "ratio_steps": 1500})


def _stages(lab: Lab, broken: bool) -> Record:
    return _run(lab, "topics_two_stage", _large_start, broken)


def _embeddings(lab: Lab, broken: bool) -> Record:
    changes = {**FEW, "uniform_steps": 200}
    return _run(lab, "topics_attention", _shuffled_topics, broken, **changes)


def _table(lab: Lab, broken: bool) -> Record:
    changes = {**FEW, "train_size": 400, "test_size": 40, "steps": 300}
    return _run(lab, "topics_attention", _shuffled_topics, broken, **changes)


REFUTATIONS = (
    TrainedRefutation("B-1", "selected positions are hidden", _values),
    TrainedRefutation("B-3", "the decay has no gradient", _decayed),
    TrainedRefutation("B-5", "every document has one topic", _ratios),
    TrainedRefutation("B-9", "weights start far from 0", _stages),
    TrainedRefutation("B-10b", "words are dealt out to topics", _embeddings),
    TrainedRefutation("B-11e", "words are dealt out to topics", _table),
)
