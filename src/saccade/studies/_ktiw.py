"""Settings and helpers shared by the studies of Snell, Zhong, Klein & Steinhardt 2021 (knowledge to
translate individual words, KTIW).
"""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from saccade.contracts.model import AbstractModelConfig
from saccade.contracts.probe import AbstractProbe
from saccade.contracts.task import AbstractTask
from saccade.figures.figure import Line
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.probes.attention import AttentionStatistics
from saccade.probes.translation import AttentionPlaces, LexicalKnowledge, TokenAccuracy
from saccade.records.schedule import AbstractSchedule, Every
from saccade.settings import require_count, require_positive, require_single
from saccade.studies._seeds import AbstractSeededConfig
from saccade.tasks.copying import Copying
from saccade.train.batches import Fresh
from saccade.train.loss import Loss
from saccade.train.optimiser import Adam
from saccade.train.recipe import Recipe

PAPER = "Snell, Zhong, Klein & Steinhardt 2021"
FULL_SIZE = (
    lambda config: config.length >= 40,
    "sequences of 40 words (preset paper); shorter ones are also learned in other ways",
)

WORDS_AND_ATTENTION = (
    TokenAccuracy(),
    AttentionPlaces(),
    LexicalKnowledge(),
    AttentionStatistics(),
)
SMALL = SequenceToSequenceConfig(32)
QUICK: dict[str, Any] = {"length": 8, "model": SMALL, "batch_size": 32, "rate": 0.005}
"""Settings of the presets `quick`."""


@dataclasses.dataclass(frozen=True)
class AbstractTrainingConfig(AbstractSeededConfig):
    """Settings of a study that trains sequence models on fresh batches."""

    seeds: int = 20
    """Repetitions, each with its own initialisation and data."""
    model: SequenceToSequenceConfig = SequenceToSequenceConfig()
    """The model of sequences."""
    batch_size: int = 128
    """New examples per step."""
    rate: float = 0.001
    """Learning rate of Adam."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "batch_size")
        require_positive(self, "rate")
        require_single(self, "the study's arms share it", "rate")

    def recipe(
        self,
        task: AbstractTask,
        model: AbstractModelConfig,
        steps: int,
        *,
        at: AbstractSchedule,
        probes: Sequence[AbstractProbe] = (),
        ends: Sequence[AbstractProbe] = (),
        loss: Loss | None = None,
    ) -> Recipe:
        """A training with these settings."""
        return Recipe(
            task,
            model,
            Adam(self.rate),
            steps,
            probes=probes,
            at=at,
            ends=ends,
            batches=Fresh(self.batch_size),
            loss=loss,
        )


@dataclasses.dataclass(frozen=True)
class AbstractCopyingConfig(AbstractTrainingConfig):
    """Settings of a study of copying."""

    length: int = 40
    """Words per sequence."""
    test_size: int = 50
    """Test sequences."""
    interval: int = 10
    """Steps between two evaluations."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "length", "test_size", "interval")

    def copying(self, words: int, **settings: Any) -> Copying:
        return Copying(self.length, words, test_size=self.test_size, **settings)

    def copying_recipe(
        self,
        task: Copying,
        model: AbstractModelConfig,
        steps: int,
        *,
        probes: Sequence[AbstractProbe] = WORDS_AND_ATTENTION,
        ends: Sequence[AbstractProbe] = (),
    ) -> Recipe:
        """A training on sequences to be copied, evaluated evenly."""
        return self.recipe(task, model, steps, at=Every(self.interval), probes=probes, ends=ends)


def mean(numbers: np.ndarray) -> float:
    """The mean over seeds, for claims that compare means by value."""
    return float(np.mean(numbers))


def runs(label: str, values: xr.DataArray) -> list[Line]:
    """One line per seed along the steps."""
    steps = values["step"].values
    return [Line(label, steps, values.sel(seed=seed).values) for seed in values["seed"].values]
