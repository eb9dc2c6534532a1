"""Snell's studies with a broken premise, trained for real."""

import dataclasses
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
from trained_refutations import TrainedRefutation

from saccade.contracts.task import SentencePairs
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.records.record import Record
from saccade.studies import ktiw_copying, ktiw_fate, ktiw_limits
from saccade.tasks.copying import Copying
from saccade.train.lab import Lab

SHORT = {"mixture_steps": 10, "uniform_steps": 10, "lexicon_steps": 5}


@dataclasses.dataclass(frozen=True)
class Shuffled(Copying):
    """The output has the input's words in a random order, which the alignment does not know."""

    def sample(self, key: Any, size: int) -> SentencePairs:
        pairs = super().sample(key, size)
        ranks = jax.random.uniform(jax.random.fold_in(key, 1), pairs.target[:, :-1].shape)
        order = jnp.argsort(ranks, axis=1)
        words = jnp.take_along_axis(pairs.target[:, :-1], order, axis=1)
        target = jnp.concatenate([words, pairs.target[:, -1:]], axis=1)
        return dataclasses.replace(pairs, target=target)


@dataclasses.dataclass(frozen=True)
class Matched(Copying):
    """As many words as a sequence has are drawn, however many there are: their co-occurrence ratio
    is 1.
    """

    def sample(self, key: Any, size: int) -> SentencePairs:
        same: dict[str, Any] = {
            field.name: getattr(self, field.name) for field in dataclasses.fields(Copying)
        }
        same["words"] = self.length
        return Copying(**same).sample(key, size)


def copied(lab: Lab, task: type[Copying], **settings: Any) -> Record:
    """The study of copying with sequences of another kind."""

    @dataclasses.dataclass(frozen=True)
    class Config(ktiw_copying.Config):
        def copying(self, words: int, **more: Any) -> Copying:
            return task(self.length, words, test_size=self.test_size, **more)

    quick = ktiw_copying.STUDY.config("quick")
    fields = {field.name: getattr(quick, field.name) for field in dataclasses.fields(quick)}
    return ktiw_copying.STUDY.run(Config(**fields | settings), lab)


def shuffled_alignment(lab: Lab, broken: bool) -> Record:
    steps = {"budget": 10, "short_budget": 10, "steps": 80}
    return copied(lab, Shuffled if broken else Copying, **SHORT, **steps)


def matched_co_occurrence(lab: Lab, broken: bool) -> Record:
    steps = {"budget": 110, "short_budget": 110, "steps": 110, "mixture_steps": 110}
    return copied(lab, Matched if broken else Copying, **SHORT | steps)


def uniform_attention(lab: Lab, broken: bool) -> Record:
    quick = ktiw_limits.STUDY.config("quick")
    model = SequenceToSequenceConfig(32, attention="uniform" if broken else "learned")
    config = dataclasses.replace(quick, model=model, keyword_steps=10)
    return ktiw_limits.STUDY.run(config, lab)


def edit_of_the_other_half(lab: Lab, broken: bool) -> Record:
    halves = ("state", "context") if broken else ("context", "state")
    edits = {"restarted": None, "turned": halves[0], "sham": halves[1]}
    with mock.patch.object(ktiw_fate, "EDITS", edits):
        return ktiw_fate.STUDY.run(ktiw_fate.STUDY.config("quick"), lab)


REFUTATIONS = (
    TrainedRefutation("C-8c", "the alignment is shuffled", shuffled_alignment),
    TrainedRefutation(
        "C-4f", "the larger set has the co-occurrences of permutations", matched_co_occurrence
    ),
    TrainedRefutation("C-11", "attention is uniform", uniform_attention),
    TrainedRefutation("C-16g", "the other half of the readout is edited", edit_of_the_other_half),
)
