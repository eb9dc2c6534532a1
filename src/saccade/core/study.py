"""Studies: an experiment with its presets, claims, figures and divergences. The folder `studies/` is the registry."""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from saccade.core.claim import Claim, Judgement
from saccade.core.errors import ConfigError
from saccade.core.figure import Figure
from saccade.core.lab import Lab, describe, versions
from saccade.core.record import Arm, Record
from saccade.core.sweep import Swept, sweepable, swept_in

ConfigT = TypeVar("ConfigT")

REGISTRY = "saccade.studies"
"""The folder of studies, by name: core knows where studies are, not which."""


@dataclasses.dataclass(frozen=True)
class Divergence:
    """One setting in which paper, authors' code and this study differ, and what it does to a claim."""

    setting: str
    paper: str
    code: str
    ours: str
    effect: str


@dataclasses.dataclass(frozen=True)
class Study(Generic[ConfigT]):
    """One experiment, as the experiment section of a paper tells it."""

    name: str
    title: str
    paper: str
    presets: Mapping[str, ConfigT]
    """quick, paper and, where the authors released code, code."""
    experiment: Callable[[ConfigT, Lab], Mapping[str, Arm]]
    claims: Sequence[Claim]
    figures: Callable[[Record], Sequence[Figure]]
    divergences: Sequence[Divergence] = ()

    def config(self, preset: str) -> ConfigT:
        if preset not in self.presets:
            raise ConfigError(f"preset: got {preset!r}, allowed: {', '.join(self.presets)}")
        return self.presets[preset]

    def swept(self, config: ConfigT, sweeps: Mapping[str, Sequence[float]]) -> ConfigT:
        """The config with some of its floats swept."""
        floats = sweepable(config)
        for name, values in sweeps.items():
            if name not in floats:
                raise ConfigError(f"sweep {name}: no such float in {self.name}, allowed: {', '.join(floats)}")
            config = dataclasses.replace(config, **{name: Swept.over(name, values)})  # pyright: ignore[reportArgumentType]
        return config

    def run(self, config: ConfigT, lab: Lab, preset: str = "custom") -> Record:
        """Do the experiment and judge its claims."""
        arms = self.experiment(config, lab)
        sweeps = {name: list(swept.grid) for name, swept in swept_in(config).items()}
        for name in sweeps:
            if not any(name in arm.trajectory.dims for arm in arms.values()):
                raise ConfigError(f"sweep {name}: reaches no training of {self.name}")
        plain = describe(config) | {"sweeps": sweeps}
        plain.pop("class")
        seconds = sum(arm.trajectory.attrs.get("seconds", 0.0) for arm in arms.values())
        record = Record(
            self.name, preset, plain, arms, versions(), lab.device, lab.precision, seconds
        )  # fmt: skip
        verdicts = {judgement.claim: judgement.plain() for judgement in self.judge(record)}
        return dataclasses.replace(record, verdicts=verdicts)

    def judge(self, record: Record) -> list[Judgement]:
        return [claim.judge(record) for claim in self.claims]


def study_names() -> list[str]:
    """Names of all studies, without importing them."""
    return sorted(module.name for module in pkgutil.iter_modules(importlib.import_module(REGISTRY).__path__))


def find_study(name: str) -> Study[Any]:
    """The study of that name: `STUDY` in the file of that name."""
    if name not in study_names():
        raise ConfigError(f"study: got {name!r}, allowed: {', '.join(study_names())}")
    return importlib.import_module(f"{REGISTRY}.{name}").STUDY
