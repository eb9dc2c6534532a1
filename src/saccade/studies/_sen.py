"""What the studies of Lu, Mao & Nayak (2021) share: settings, measures and panels."""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from saccade.core.figure import Histogram, Line, Panel
from saccade.core.lab import Lab, Training
from saccade.core.optimiser import GradientDescent
from saccade.core.record import Arm
from saccade.core.schedule import Recording
from saccade.core.sweep import require_count
from saccade.models.attention_classifier import AttentionClassifierConfig, Head
from saccade.tasks.topic_sentences import TopicSentences
from saccade.theory.score_and_norm import norm_of_score

Arms = Mapping[str, Arm]

HEADS: tuple[Head, ...] = ("FC", "TC", "TL")
"""Classifiers: fixed linear, trained linear, two trained layers."""
SCORE_FLOOR = 0.05
"""Gaps are relative, so they are measured only where a score exceeds this."""


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
        self,
        lab: Lab,
        model: AttentionClassifierConfig,
        record: Recording,
        name: str,
        steps: int | None = None,
        seeds: int | None = None,
    ) -> Training:
        """A training with these settings; steps and seeds may differ."""
        steps, seeds, optimiser = (
            steps or self.steps,
            seeds or self.seeds,
            GradientDescent(self.rate),
        )
        return lab.train(self.task, model, optimiser, steps, record, seeds=seeds, name=name)


def single(arms: Arms) -> Arm:
    """The arm of a check that names one."""
    (arm,) = arms.values()
    return arm


def over_words(values: xr.DataArray) -> xr.DataArray:
    """The mean over topic words, of a variable that has them."""
    return values.mean("word") if "word" in values.dims else values


def above_floor(arm: Arm, values: xr.DataArray) -> xr.DataArray:
    """Values where the score of the word exceeds its floor."""
    return values.where(arm.trajectory["score"] > SCORE_FLOOR)


def relative_gap(arm: Arm) -> xr.DataArray:
    """Relative gap between norm and corollary 1."""
    return abs(arm.trajectory["norm"] / arm.prediction["norm"] - 1)


def histograms(
    title: str, labels: tuple[str, str], edges: Sequence[float], shares: Mapping[str, xr.DataArray]
) -> Panel:
    """Final shares per bin: mean over seeds, with the range."""
    marks = []
    for name, share in shares.items():
        end = share.isel(step=-1)
        rows = (end.mean("seed"), end.min("seed"), end.max("seed"))
        marks.append(Histogram(name, np.asarray(edges), *(row.values for row in rows)))
    return Panel(title, *labels, tuple(marks))


def curves(
    title: str,
    labels: tuple[str, str],
    score: xr.DataArray,
    norm: xr.DataArray,
    filler_size: int,
    name: str = "corollary 1",
) -> Panel:
    """Norm against score during training, one line per seed, and corollary 1."""
    lines = [
        Line(f"seed {seed}", score.sel(seed=seed).values, norm.sel(seed=seed).values)
        for seed in score["seed"].values
    ]
    scores = np.linspace(0, float(score.max()), 100)
    theory = Line(name, scores, norm_of_score(scores, filler_size), role="theory")
    return Panel(title, *labels, (*lines, theory))
