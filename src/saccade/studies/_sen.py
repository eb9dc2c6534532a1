"""What the studies of Lu, Mao & Nayak (2021) share: settings, measures and marks of figures."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from saccade.contracts.probe import AbstractProbe
from saccade.contracts.theory import AbstractTheory
from saccade.figures.figure import Histogram, Line
from saccade.models.attention_classifier import AttentionClassifierConfig, Head
from saccade.records.record import Arm, Arms
from saccade.records.schedule import AbstractSchedule
from saccade.records.trajectory import only
from saccade.settings import require, require_count
from saccade.studies._seeds import AbstractSeededConfig
from saccade.tasks.topic_sentences import TopicSentences
from saccade.theory.score_and_norm import norm_of_score
from saccade.train.optimiser import AbstractOptimiser, GradientDescent
from saccade.train.recipe import Recipe

PAPER = "Lu, Mao & Nayak 2021"
HEADS: tuple[Head, ...] = ("FC", "TC", "TL")
"""Classifiers: fixed linear, trained linear, two trained layers."""
SCORE_FLOOR = 0.05
"""Gaps are relative, so they are measured only where a score exceeds this."""
CODE_TASK = TopicSentences(train_size=3999, test_size=950)
"""The sentences of the authors' code."""
DRAWN = 8
"""Seeds that have a line of their own in a figure."""
CHANGES = {"score": "change of the score", "norm": "displacement of the embedding"}


@dataclasses.dataclass(frozen=True)
class AbstractConfig(AbstractSeededConfig):
    """Settings of the studies of topic sentences."""

    rate: float = 0.1
    """Learning rate."""
    task: TopicSentences = TopicSentences()
    """The sentences."""
    steps: int = 5000
    """Epochs (full batch, so one step per epoch)."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "steps")

    @property
    def optimiser(self) -> AbstractOptimiser:
        return GradientDescent(self.rate)

    def recipe(
        self,
        model: AttentionClassifierConfig,
        probes: Sequence[AbstractProbe],
        at: AbstractSchedule,
        steps: int | None = None,
        ends: Sequence[AbstractProbe] = (),
        keep_state: bool = False,
    ) -> Recipe:
        """The training of a model with these settings; without `steps`, for those of the study."""
        return Recipe(
            self.task,
            model,
            self.optimiser,
            self.steps if steps is None else steps,
            probes=probes,
            at=at,
            ends=ends,
            keep_state=keep_state,
        )


def require_all_heads(model: AttentionClassifierConfig) -> None:
    """Refuse a head of its own for a study that trains all of them."""
    require(model, "head", "FC here: the study trains every head", HEADS[0].__eq__)


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


def beside_all(
    arm: Arm,
    theories: Sequence[AbstractTheory],
    source: str,
    task: TopicSentences,
    model: AttentionClassifierConfig,
) -> Arm:
    """An arm with what several theories predict for it."""
    predictions = [theory.predict(task, model, arm.trajectory) for theory in theories]
    return arm.with_prediction(xr.merge(predictions), source)


def histogram(label: str, edges: Sequence[float], share: xr.DataArray) -> Histogram:
    """Share per bin: mean over seeds, with the range."""
    rows = (share.mean("seed"), share.min("seed"), share.max("seed"))
    return Histogram(label, np.asarray(edges), *(row.values for row in rows))


def curves(word: xr.Dataset, fillers: int, prefix: str = "", more: str = "") -> tuple[Line, ...]:
    """Norm against score of a word in the first seeds, one line per seed, and corollary 1."""
    word = word.isel(seed=slice(DRAWN))
    score, norm = (word[f"{prefix}{one}"].transpose("seed", "step") for one in ("score", "norm"))
    rows = zip(score["seed"].values, score.values, norm.values, strict=True)
    lines = [Line(f"seed {seed}", x, y) for seed, x, y in rows]
    scores = np.linspace(0, float(score.max()), 100)
    theory = norm_of_score(scores, fillers)
    return *lines, Line(f"corollary 1{more}", scores, theory, role="theory")
