"""Studies: an experiment with its presets, claims, figures and divergences."""

import dataclasses
import json
import re
import textwrap
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args

import numpy as np

from saccade.core.adaptive_map import AdaptiveMap
from saccade.errors import ConfigError, FileError
from saccade.figures.figure import Figure, HeatMap, Line, Panel
from saccade.judging.bound import Verdict
from saccade.judging.claim import Claim, Judgement, checks_of
from saccade.judging.evidence import differences, has_number
from saccade.judging.registration import commit_of, file_of, functions_in, is_clean
from saccade.records.config import describe, typed
from saccade.records.record import Arm, Record
from saccade.settings import path_of, sweepable, swept_in, with_sweep
from saccade.train.lab import Lab
from saccade.train.precision import Precision
from saccade.workers.software import versions

ConfigT = TypeVar("ConfigT")

KNOWN = "known.json"
"""File beside the studies: study -> preset -> claim -> known verdict."""
_judged: Any = weakref.WeakKeyDictionary()
"""Record -> the study that judged it last in this process, and its judgements."""


@dataclasses.dataclass(frozen=True)
class Divergence:
    """A setting in which paper, authors' code and this study differ, and its effect on a claim."""

    setting: str
    paper: str
    code: str
    ours: str
    effect: str


@dataclasses.dataclass(frozen=True)
class PredictedBoundary:
    """Where a theory expects a claim to hold, for its map."""

    title: str
    """The theory, in a few words."""
    verdicts: Callable[[Any], Sequence[Verdict]]
    """From a config whose swept fields share one sweep, one verdict per cell."""


def divergences(table: str) -> tuple[Divergence, ...]:
    """Divergences from a table: one row per setting, cells apart by ` | `, further lines of a row
    indented by four more spaces."""
    rows = re.sub(r"\n {4,}", " ", textwrap.dedent(table).strip()).splitlines()
    cells = [[cell.strip() for cell in row.split(" | ")] for row in rows]
    for row in cells:
        if len(row) != len(dataclasses.fields(Divergence)):
            raise ConfigError(f"divergences: got {len(row)} cells in {row}, allowed: 5")
    return tuple(Divergence(*row) for row in cells)


def _no_figures(arms: Mapping[str, Arm], config: Any) -> Sequence[Figure]:
    del arms, config
    return ()


@dataclasses.dataclass(frozen=True)
class Study(Generic[ConfigT]):
    """One experiment, as the experiment section of a paper describes it."""

    name: str
    title: str
    paper: str
    presets: Mapping[str, ConfigT]
    """quick, paper and, where the authors released code, code."""
    experiment: Callable[[ConfigT, Lab], Mapping[str, Arm]]
    claims: Sequence[Claim]
    figures: Callable[[Mapping[str, Arm], ConfigT], Sequence[Figure]] = _no_figures
    """Figures of a record without sweeps."""
    sweep_figures: Callable[[Mapping[str, Arm], ConfigT], Sequence[Figure]] = _no_figures
    """Figures of a swept record, beside the maps of its claims."""
    divergences: Sequence[Divergence] = ()
    precision: Precision = "float32"
    """float64 where closed forms are checked to more digits than float32 has."""
    boundaries: Mapping[str, PredictedBoundary] = dataclasses.field(default_factory=dict)
    """What a theory predicts for the map of a claim, by claim id."""

    def __post_init__(self):
        ids = [claim.id for claim in self.claims]
        for twice in {one for one in ids if ids.count(one) > 1}:
            raise ConfigError(f"study {self.name}: two claims {twice}, allowed: every id once")
        for other in set(self.boundaries) - set(ids):
            raise ConfigError(f"study {self.name}: boundary of {other}, allowed: {', '.join(ids)}")

    def config(self, preset: str) -> ConfigT:
        if preset not in self.presets:
            raise ConfigError(f"preset: got {preset!r}, allowed: {', '.join(self.presets)}")
        return self.presets[preset]

    def config_of(self, record: Record) -> ConfigT:
        """The typed config of a record of this study."""
        return typed(type(next(iter(self.presets.values()))), record.config)

    def swept(self, config: ConfigT, sweeps: Mapping[str, Sequence[float]]) -> ConfigT:
        """The config with some of its floats swept, by dotted path or by its last part alone."""
        paths = [path_of(name, sweepable(config)) for name in sweeps]
        last = [path.rpartition(".")[2] for path in paths]
        for path, name, values in zip(paths, last, sweeps.values(), strict=True):
            config = with_sweep(config, path, values, path if last.count(name) > 1 else name)
        return config

    def run(self, config: ConfigT, lab: Lab, preset: str = "custom") -> Record:
        """Do the experiment and judge its claims, on the numbers that the record's file will have.
        Nothing else writes judgements.
        """
        # Before the experiment: files may change while it runs, and mistakes should cost nothing.
        commit = self._commit
        self.known(preset)
        with lab.titled(self.name):
            arms: Any = self.experiment(config, lab)
        kinds = arms.values() if isinstance(arms, Mapping) else [arms]
        for other in (one for one in kinds if not isinstance(one, Arm)):
            raise ConfigError(
                f"study {self.name}: experiment gave the type {type(other).__name__}, allowed: a "
                'dict of arms, such as {"attention": lab.train(recipe)}'
            )
        sweeps = {name: list(swept.grid) for name, swept in swept_in(config).items()}
        for name in sweeps:
            if not any(name in arm.trajectory.dims for arm in arms.values()):
                raise ConfigError(f"sweep {name}: reaches no training of {self.name}")
        plain = describe(config) | {"sweeps": sweeps}
        plain.pop("class")
        seconds = sum(arm.trajectory.attrs.get("seconds", 0.0) for arm in arms.values())
        record = Record(
            self.name,
            preset,
            plain,
            arms,
            versions(),
            lab.device,
            lab.precision,
            seconds,
        )
        return self.with_verdicts(record.as_committed(), commit)

    @property
    def _commit(self) -> str:
        """The commit of the experiment, which must be that of all measures."""
        checks = [check for claim in self.claims for check in checks_of(claim)]
        measures = [list(functions_in(one.measure)) or [type(one.measure)] for one in checks]
        return commit_of(self.experiment, (one for some in measures for one in some))

    def with_verdicts(self, record: Record, commit: str = "") -> Record:
        """A record that has just been made, with its verdicts, what they were computed from, and
        what a reader without the study needs. Without the commit from which it was made its claims
        are exploratory.
        """
        if record.verdicts:
            raise ConfigError(
                f"record of {record.study}: got one with verdicts, allowed: one without; verdicts "
                "are written when a record is made, and never again"
            )
        clean = is_clean(commit)
        judgements = [
            dataclasses.replace(one, registered=clean if has_number(one.evidence) else None)
            for one in self._judge(record, self.config_of(record))
        ]
        verdicts = {
            claim.id: judgement.plain()
            | {
                name: getattr(claim, name)
                for name in ("statement", "source", "paper", "prediction", "tolerance")
            }
            | {"explanation": claim.explanation(judgement), "evidence": judgement.evidence}
            for claim, judgement in zip(self.claims, judgements, strict=True)
        }
        about = {"title": self.title, "paper": self.paper, "commit": commit}
        new = dataclasses.replace(record, verdicts=verdicts, **about)
        _judged[new] = self, judgements
        return new

    def drawn(self, record: Record) -> list[Figure]:
        """The study's figures and, if something was swept, a map of every claim over the grid."""
        config = self.config_of(record)
        if not record.sweeps:
            return list(self.figures(record.arms, config))
        if (drawn_map := AdaptiveMap.of(record)) is not None:
            return [drawn_map.figure(self, record)]
        figures = list(self.sweep_figures(record.arms, config))
        panels = [panel for one in self.judge(record) for panel in _map(record, one)]
        caption = (
            "The first quantity of every claim over the sweep, mean over seeds; empty where it has "
            "no number."
        )
        if panels:
            name = f"{self.name}_claims"
            figures.append(Figure(name, "The claims over the sweep", caption, tuple(panels)))
        return figures

    def judge(self, record: Record) -> list[Judgement]:
        """The verdicts on a record, from its numbers; the same record is judged once."""
        by, judgements = _judged.get(record, (None, []))
        if by is not self:
            judgements = [
                dataclasses.replace(one, registered=self._registered(record, one))
                for one in self._judge(record, self.config_of(record))
            ]
            _judged[record] = self, judgements
        return judgements

    def _registered(self, record: Record, judgement: Judgement) -> bool | None:
        """Whether a claim computes today what it computed when the record was made, from a commit
        without changes; None if it has no number.
        """
        stored = record.verdicts.get(judgement.claim, {}).get("evidence", {})
        if not has_number(stored) and not has_number(judgement.evidence):
            return None
        if not stored or not is_clean(record.commit):
            return False
        return not any(differences(stored, judgement.evidence))

    def _judge(self, record: Record, config: ConfigT) -> list[Judgement]:
        known = self.known(record.preset) if self.is_preset(record) else {}
        mapped = AdaptiveMap.of(record)
        judgements = []
        for claim in self.claims:
            if mapped is not None and claim.id != mapped.claim:
                reason = f"premise not met: the record is a map of {mapped.claim} alone"
                judgement = Judgement(claim.id, "undetermined", (), reason)
            elif self.precision == "float64" and record.precision != "float64":
                reason = (
                    "premise not met: the study checks digits that "
                    f"{record.precision} does not have; it needs float64"
                )
                judgement = Judgement(claim.id, "undetermined", (), reason)
            else:
                judgement = claim.judge(record, config)
            judgements.append(dataclasses.replace(judgement, known=known.get(claim.id)))
        return judgements

    def is_preset(self, record: Record) -> bool:
        """Whether a record was made with exactly the settings of its preset."""
        preset = self.presets.get(record.preset)
        return preset is not None and self.config_of(record) == preset

    def known(self, preset: str) -> Mapping[str, Verdict]:
        """The verdicts that are known of a preset, from the file `known.json` beside the study."""
        beside = file_of(self.experiment)
        return {} if beside is None else read_known(beside.parent / KNOWN, self.name, preset)


def read_known(file: Path, study: str, preset: str) -> dict[str, Verdict]:
    """The verdicts that a file lists for a preset: none if it does not exist."""
    try:
        found = json.loads(file.read_text(encoding="utf-8")).get(study, {}).get(preset, {})
        wrong = [(claim, one) for claim, one in found.items() if one not in get_args(Verdict)]
    except FileNotFoundError:
        return {}
    except (OSError, AttributeError, ValueError) as error:
        raise FileError(f"{file}: not a table of known verdicts ({error})") from error
    if wrong:
        allowed = ", ".join(get_args(Verdict))
        claim, one = wrong[0]
        raise FileError(f"{file}: {study}, {preset}, {claim}: got {one!r}, allowed: {allowed}")
    return found


def _map(record: Record, judgement: Judgement) -> list[Panel]:
    """A claim's first quantity against one swept field, or over the first two."""
    if not judgement.cells:
        return []
    swept = list(judgement.cells[0][0])
    values = {tuple(at[name] for name in swept): found[0].value for at, _, found in judgement.cells}
    quantity = judgement.findings[0].quantity
    grids = [np.asarray(record.sweeps[name], float) for name in swept]
    if len(swept) == 1:
        curve = Line(quantity, grids[0], np.asarray([values[(float(x),)] for x in grids[0]]))
        scale = "log" if grids[0].min() > 0 else "linear"
        return [Panel(judgement.claim, swept[0], quantity, (curve,), scale)]
    others = tuple(float(grid[0]) for grid in grids[2:])
    table = [[values[(float(x), float(y), *others)] for x in grids[0]] for y in grids[1]]
    cells = HeatMap(quantity, grids[0], grids[1], np.asarray(table))
    return [Panel(judgement.claim, swept[0], swept[1], (cells,))]
