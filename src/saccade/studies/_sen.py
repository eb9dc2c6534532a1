"""What the studies of Lu, Mao & Nayak (2021) share: settings, measures and marks of figures."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.figure import Histogram, Line
from saccade.core.lab import Lab, Training
from saccade.core.optimiser import GradientDescent
from saccade.core.record import Arm
from saccade.core.schedule import Recording
from saccade.core.sweep import require_count
from saccade.core.trajectory import only
from saccade.models.attention_classifier import AttentionClassifierConfig, Head
from saccade.tasks.topic_sentences import TopicSentences
from saccade.theory.score_and_norm import norm_of_score

Arms = Mapping[str, Arm]

PAPER = "Lu, Mao & Nayak 2021"
HEADS: tuple[Head, ...] = ("FC", "TC", "TL")
"""Classifiers: fixed linear, trained linear, two trained layers."""
SCORE_FLOOR = 0.05
"""Gaps are relative, so they are measured only where a score exceeds this."""
CODE_TASK = TopicSentences(train_size=3999, test_size=950)
"""The sentences of the authors' code."""
CHANGES = {"score": "change of the score", "norm": "displacement of the embedding"}


@dataclasses.dataclass(frozen=True)
class AbstractConfig:
    """Settings of the studies of topic sentences."""

    seeds: int = 5
    """Repetitions, each with its own data and initialisation."""
    dimension: int = 15
    """Dimension of the embeddings."""
    rate: float = 0.1
    """Learning rate."""
    task: TopicSentences = TopicSentences()
    """The sentences."""
    steps: int = 5000
    """Epochs (full batch, so one step per epoch)."""

    def __post_init__(self):
        require_count(self, "seeds", "steps")

    def train(
        self, lab: Lab, model: AttentionClassifierConfig, record: Recording, name: str, **more: Any
    ) -> Training:
        """A training with these settings; `more` may replace steps and seeds."""
        more = {"steps": self.steps, "seeds": self.seeds, "name": name} | more
        return lab.train(self.task, model, GradientDescent(self.rate), record=record, **more)


def over_words(values: xr.DataArray) -> xr.DataArray:
    """The mean over topic words, of a variable that has them."""
    return values.mean("word") if "word" in values.dims else values


def last(name: str, arms: Arms, config: Any) -> xr.DataArray:
    """Measures a variable of a single arm at its last epoch, mean over words."""
    return over_words(only(arms).end[name])


def above_floor(arm: Arm, values: xr.DataArray) -> xr.DataArray:
    """Values where the score of the word exceeds its floor."""
    return values.where(arm.trajectory["score"] > SCORE_FLOOR)


def relative_gap(arm: Arm) -> xr.DataArray:
    """Relative gap between norm and corollary 1."""
    return abs(arm.trajectory["norm"] / arm.prediction["norm"] - 1)


def histograms(
    edges: tuple[float, ...], shares: Mapping[str, xr.DataArray]
) -> tuple[Histogram, ...]:
    """Final shares per bin: mean over seeds, with the range."""
    ends = {name: share.isel(step=-1) for name, share in shares.items()}
    rows = {
        name: (end.mean("seed"), end.min("seed"), end.max("seed")) for name, end in ends.items()
    }
    bins = np.asarray(edges)
    return tuple(Histogram(name, bins, *(row.values for row in of)) for name, of in rows.items())


def curves(
    score: xr.DataArray, norm: xr.DataArray, fillers: int, name: str = "corollary 1"
) -> tuple[Line, ...]:
    """Norm against score during training, one line per seed, and corollary 1."""
    lines = [
        Line(f"seed {seed}", score.sel(seed=seed).values, norm.sel(seed=seed).values)
        for seed in score["seed"].values
    ]
    scores = np.linspace(0, float(score.max()), 100)
    return *lines, Line(name, scores, norm_of_score(scores, fillers), role="theory")
