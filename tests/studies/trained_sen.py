"""Lu's studies at small size, with premises that can be broken: leaks, large starts, frozen scores,
other optimisers.
"""

import dataclasses
from functools import partial
from typing import Any

from record_parts import altered
from trained_refutations import TrainedRefutation

from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.records.record import Record
from saccade.registry import find_study
from saccade.studies import sen_query, sen_synergy
from saccade.train.lab import Lab
from saccade.train.optimiser import AbstractOptimiser, Adam, GradientDescent

SENTENCES = {"topics": 2, "words_per_topic": 1, "filler_size": 10, "dictionary_size": 1500}
SENTENCES |= {"train_size": 100, "test_size": 20, "dimension": 4}


def _as(kind: Any, config: Any) -> Any:
    """A config of another class, with the same fields."""
    return kind(**{field.name: getattr(config, field.name) for field in dataclasses.fields(config)})


def _relation(lab: Lab, broken: bool, field: str, values: tuple[float, float]) -> Record:
    """`sen` at one value of a field: a sweep leaves out the arms that these claims do not need."""
    study = find_study("sen")
    sizes = {"rate": 0.15, "steps": 400, "long_steps": 400, "interval": 2, "seeds": 5}
    config = altered(study.config("quick"), **SENTENCES, **sizes)
    return study.run(study.swept(config, {field: [values[broken]]}), lab)


_leaks = partial(_relation, field="leak", values=(0.0, 0.5))
_starts_large = partial(_relation, field="embedding_std", values=(1e-3, 1.0))


@dataclasses.dataclass(frozen=True)
class WithoutScores(sen_synergy.Config):
    """The study's config with scores that TC does not train either."""

    def model(self, arm: str) -> AttentionClassifierConfig:
        return super().model("KF" if arm == "TC" else arm)


def _synergy(lab: Lab, broken: bool) -> Record:
    study = find_study("sen_synergy")
    sizes = {"dictionary_size": 300, "train_size": 80, "dimension": 8, "rate": 0.5, "seeds": 5}
    sizes |= {"steps": 1500, "figure_steps": 200}
    config = altered(study.config("quick"), **{**SENTENCES, **sizes})
    return study.run(_as(WithoutScores, config) if broken else config, lab)


@dataclasses.dataclass(frozen=True)
class WithDecay(sen_query.Config):
    """The study's config with weight decay."""

    @property
    def optimiser(self) -> AbstractOptimiser:
        return GradientDescent(self.rate, decay=0.002)


@dataclasses.dataclass(frozen=True)
class WithAdam(sen_query.Config):
    """The study's config with Adam."""

    @property
    def optimiser(self) -> AbstractOptimiser:
        return Adam(0.01)


def _query(lab: Lab, broken: bool, kind: Any) -> Record:
    study = find_study("sen_query")
    config = altered(study.config("quick"), **SENTENCES, seeds=3, steps=600)
    return study.run(_as(kind, config) if broken else config, lab)


REFUTATIONS = (
    TrainedRefutation("A-2", "topic words also stand at other places", _leaks),
    TrainedRefutation("A-3", "the initial embeddings are large", _starts_large),
    TrainedRefutation("A-6", "topic words also stand at other places", _leaks),
    TrainedRefutation("A-7", "topic words also stand at other places", _leaks),
    TrainedRefutation("A-9", "TC does not train its scores", _synergy),
    TrainedRefutation("A-13c", "the weights decay", partial(_query, kind=WithDecay)),
    TrainedRefutation("A-13d", "Adam instead of gradient descent", partial(_query, kind=WithAdam)),
)
