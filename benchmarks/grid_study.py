"""A study for large grids: one attention layer fits random targets, over step size and scale.

Small on purpose (two heads of 4, 300 steps): what is measured is everything around the training.
"""

import dataclasses
from collections.abc import Mapping

from saccade import (
    Arm,
    AtMost,
    AttentionRegressionConfig,
    Check,
    Claim,
    EverySeed,
    GradientDescent,
    Lab,
    Logarithmic,
    RandomSequences,
    Recipe,
    Study,
)


@dataclasses.dataclass(frozen=True)
class Config:
    rate: float = 0.1
    """Step size."""
    key_scale: float = 1.0
    """Initial scale of the keys."""
    steps: int = 300
    """Steps of gradient descent."""
    seeds: int = 10
    """Seeds per cell."""


def experiment(config: Config, lab: Lab) -> Mapping[str, Arm]:
    grid = Recipe(
        RandomSequences(6, 1, 4, 4, 4),
        AttentionRegressionConfig(heads=2, head_dimension=4, key_scale=config.key_scale),
        GradientDescent(config.rate),
        config.steps,
        at=Logarithmic(12),
    )
    return lab.train({"grid": grid}, config.seeds)


def _fall(arms, config):
    loss = arms["grid"].trajectory["loss"]
    return loss.isel(step=-1) / loss.isel(step=0)


FALLS = Claim(
    "G-1",
    "The loss falls to less than half of its start",
    "none: a benchmark",
    Check("last loss / first loss", _fall, AtMost(0.5)),
    tolerance="chosen",
    arms="grid",
    statistic=EverySeed(),
)
STUDY = Study(
    "grid_study", "A large grid", "none: a benchmark", {"quick": Config()}, experiment, (FALLS,)
)
