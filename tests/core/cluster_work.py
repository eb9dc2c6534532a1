"""A study file for clusters: trains one weight per member, as slowly as a test needs."""

import dataclasses
from typing import Any

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
    Recording,
    Study,
    Training,
)


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float = 0.1
    steps: int = 40
    work: int = 10
    """Rounds of useless work per step."""
    seeds: int = 4


def train(lab: Lab, config: Config | None = None, **how: Any) -> Training:
    config = config or Config()
    task, model = Targets(), SlowConfig(work=config.work)
    record = Recording(at=Every(10))
    optimiser = GradientDescent(config.rate)
    return lab.train(task, model, optimiser, config.steps, record, seeds=config.seeds, **how)


def experiment(config: Config, lab: Lab) -> dict[str, Arm]:
    return {"slow": Arm.of(train(lab, config, name="slow"))}


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
