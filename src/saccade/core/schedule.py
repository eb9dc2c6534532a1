"""When to record: every k steps, logarithmically, or at given steps. The first and the last step
always count.
"""

import dataclasses
from abc import abstractmethod

import numpy as np

from saccade.core.errors import ConfigError
from saccade.core.sweep import require, require_count


@dataclasses.dataclass(frozen=True)
class AbstractSchedule:
    @abstractmethod
    def chosen(self, total: int) -> np.ndarray:
        """The steps asked for; may lie outside of the run, in any order."""

    def steps(self, total: int) -> np.ndarray:
        """The recorded steps of a run of `total` steps, ascending, from 0 to `total`."""
        chosen = self.chosen(total)
        inside = chosen[(chosen >= 0) & (chosen <= total)]
        return np.unique(np.concatenate([[0], inside, [total]])).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class Every(AbstractSchedule):
    period: int = 10
    """Record every so many steps."""

    def __post_init__(self):
        require_count(self, "period")

    def chosen(self, total: int) -> np.ndarray:
        return np.arange(0, total + 1, self.period)


@dataclasses.dataclass(frozen=True)
class Logarithmic(AbstractSchedule):
    points: int = 100
    """How many recorded steps at the most, dense at first."""

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
            lambda at: all(isinstance(step, int) and step >= 0 for step in at),
        )

    def chosen(self, total: int) -> np.ndarray:
        beyond = [step for step in self.at if step > total]
        if beyond:
            raise ConfigError(f"at: got step {beyond[0]}, allowed: at most the run's {total} steps")
        return np.asarray(self.at, dtype=np.int64)
