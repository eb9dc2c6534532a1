"""A study file for clusters: trains one weight per member, as slowly as a test needs."""

import dataclasses
from collections.abc import Mapping, Sequence

from cluster_model import SlowConfig, Targets

from saccade import (
    Arm,
    AtMost,
    Check,
    Claim,
    Every,
    EverySeed,
    GradientDescent,
    Lab,
    Recipe,
    Study,
    TrainedArm,
)


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float = 0.1
    steps: int = 40
    work: int = 10
    """Rounds of useless work per step."""
    seeds: int = 4

    @property
    def recipe(self) -> Recipe:
        return Recipe(
            Targets(),
            SlowConfig(work=self.work),
            GradientDescent(self.rate),
            self.steps,
            at=Every(10),
        )


def train(
    lab: Lab,
    config: Config | None = None,
    sweep: Mapping[str, Sequence[float]] | None = None,
    start: TrainedArm | None = None,
) -> TrainedArm:
    config = config or Config()
    return lab.train(config.recipe, config.seeds, sweep=sweep, start=start)


def experiment(config: Config, lab: Lab) -> Mapping[str, Arm]:
    return lab.train({"slow": config.recipe}, config.seeds)


def _final_loss(arms, config):
    return arms["slow"].trajectory["loss"].isel(step=-1)


CLAIM = Claim(
    "X-1",
    "The weight gets there",
    "a test",
    Check("final loss", _final_loss, AtMost(0.2)),
    tolerance="a test",
    arms="slow",
    statistic=EverySeed(),
)
STUDY = Study("slow_weights", "Slow weights", "a test", {"quick": Config()}, experiment, (CLAIM,))
