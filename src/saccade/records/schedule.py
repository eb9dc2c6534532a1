"""What to record of a training, and when. The first and the last step are always recorded."""

import dataclasses
from abc import ABC, abstractmethod

import numpy as np

from saccade.errors import ConfigError
from saccade.settings import require, require_count


@dataclasses.dataclass(frozen=True)
class AbstractSchedule(ABC):
    @abstractmethod
    def chosen(self, total: int) -> np.ndarray:
        """The steps asked for; may lie outside the run, in any order."""

    def steps(self, total: int) -> np.ndarray:
        """The recorded steps of a run of `total` steps, ascending, from 0 to `total`."""
        chosen = self.chosen(total)
        inside = chosen[(chosen >= 0) & (chosen <= total)]
        return np.unique(np.concatenate([[0], inside, [total]])).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class Every(AbstractSchedule):
    period: int = 10
    """Steps between two records."""

    def __post_init__(self):
        require_count(self, "period")

    def chosen(self, total: int) -> np.ndarray:
        return np.arange(0, total + 1, self.period)


@dataclasses.dataclass(frozen=True)
class Logarithmic(AbstractSchedule):
    points: int = 100
    """Largest number of recorded steps, dense at first."""

    def __post_init__(self):
        require_count(self, "points", least=2)

    def chosen(self, total: int) -> np.ndarray:
        # Backwards, so that of few points the last step is one; the first step is the remaining
        # point.
        return np.round(np.geomspace(max(total, 1), 1, self.points - 1))


@dataclasses.dataclass(frozen=True)
class AtSteps(AbstractSchedule):
    at: tuple[int, ...] = ()
    """The recorded steps."""

    def __post_init__(self):
        require(
            self,
            "at",
            "whole numbers from 0",
            lambda at: all(isinstance(step, int | np.integer) and step >= 0 for step in at),
        )

    def chosen(self, total: int) -> np.ndarray:
        beyond = [step for step in self.at if step > total]
        if beyond:
            raise ConfigError(f"at: got step {beyond[0]}, allowed: at most the run's {total} steps")
        return np.asarray(self.at, dtype=np.int64)


@dataclasses.dataclass(frozen=True)
class DenseThenEven(AbstractSchedule):
    """Dense at first, then even, then sparse: for quantities that move early and settle late."""

    until: int | None = None
    """Where the even part ends; by default with the run."""
    early: int = 24
    """Steps that are spaced logarithmically from 1."""
    even: int = 41
    """Steps that are spaced evenly from 0."""
    late: int = 11
    """Steps that are spaced evenly from `until` to the end of the run."""

    def __post_init__(self):
        require_count(self, "early", "even", "late", least=2)
        if self.until is not None:
            require_count(self, "until")

    def chosen(self, total: int) -> np.ndarray:
        until = max(total if self.until is None else self.until, 1)
        early = np.round(np.geomspace(1, until, self.early))
        even = np.linspace(0, until, self.even)
        return np.concatenate([early, even, np.linspace(until, total, self.late)]).astype(int)
