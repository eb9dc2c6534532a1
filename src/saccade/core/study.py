"""Studies: an experiment with its presets, claims, figures and divergences. The folder
`studies/` is the registry.
"""

import dataclasses
import importlib
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from saccade.core.claim import Claim, Judgement
from saccade.core.errors import ConfigError
from saccade.core.figure import Figure, HeatMap, Line, Panel
from saccade.core.lab import Lab, Precision, describe, versions
from saccade.core.record import Arm, Record
from saccade.core.sweep import Swept, sweepable, swept_in

ConfigT = TypeVar("ConfigT")

REGISTRY = "saccade.studies"
"""The folder of studies, by name: core knows where studies are, not which."""


@dataclasses.dataclass(frozen=True)
class Divergence:
    """One setting in which paper, authors' code and this study differ, and what it does to a
    claim.
    """

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
    precision: Precision = "float32"
    """float64 where closed forms are checked to more digits than float32 has."""

    def config(self, preset: str) -> ConfigT:
        if preset not in self.presets:
            raise ConfigError(f"preset: got {preset!r}, allowed: {', '.join(self.presets)}")
        return self.presets[preset]

    def swept(self, config: ConfigT, sweeps: Mapping[str, Sequence[float]]) -> ConfigT:
        """The config with some of its floats swept."""
        floats = sweepable(config)
        for name, values in sweeps.items():
            if name not in floats:
                raise ConfigError(
                    f"sweep {name}: no such float in {self.name}, allowed: {', '.join(floats)}"
                )
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
        )
        verdicts = {judgement.claim: judgement.plain() for judgement in self.judge(record)}
        return dataclasses.replace(record, verdicts=verdicts)

    def drawn(self, record: Record) -> list[Figure]:
        """The study's figures and, if something was swept, a map of every claim over the grid."""
        figures = list(self.figures(record))
        if record.sweeps:
            panels = [
                panel for judgement in self.judge(record) for panel in _map(record, judgement)
            ]
            caption = (
                "The first quantity of every claim over the sweep, mean over seeds; empty where it"
                " has no number."
            )
            figures += (
                [Figure(f"{self.name}_claims", "The claims over the sweep", caption, tuple(panels))]
                if panels
                else []
            )
        return figures

    def judge(self, record: Record) -> list[Judgement]:
        if self.precision == "float64" and record.precision != "float64":
            told = (
                f"premise not met: the study checks digits that {record.precision} does not have;"
                " it needs float64"
            )
            return [
                Judgement(claim.id, "undetermined", claim.expected, (), told)
                for claim in self.claims
            ]
        return [claim.judge(record) for claim in self.claims]


def _map(record: Record, judgement: Judgement) -> list[Panel]:
    """A claim's first quantity against one swept field, or over the first two."""
    if not judgement.cells:
        return []
    swept = list(judgement.cells[0][0])
    values = {tuple(cell[0][name] for name in swept): cell[2][0].value for cell in judgement.cells}
    quantity, grids = (
        judgement.findings[0].quantity,
        [np.asarray(record.sweeps[name], float) for name in swept],
    )
    if len(swept) == 1:
        curve = Line(quantity, grids[0], np.asarray([values[(float(x),)] for x in grids[0]]))
        return [
            Panel(
                judgement.claim,
                swept[0],
                quantity,
                (curve,),
                "log" if grids[0].min() > 0 else "linear",
            )
        ]
    others = tuple(float(grid[0]) for grid in grids[2:])
    table = np.asarray(
        [[values[(float(x), float(y), *others)] for x in grids[0]] for y in grids[1]]
    )
    return [
        Panel(judgement.claim, swept[0], swept[1], (HeatMap(quantity, grids[0], grids[1], table),))
    ]


def study_names() -> list[str]:
    """Names of all studies, without importing them."""
    return sorted(
        module.name for module in pkgutil.iter_modules(importlib.import_module(REGISTRY).__path__)
    )


def find_study(name: str) -> Study[Any]:
    """The study of that name: `STUDY` in the file of that name."""
    if name not in study_names():
        raise ConfigError(f"study: got {name!r}, allowed: {', '.join(study_names())}")
    return importlib.import_module(f"{REGISTRY}.{name}").STUDY
