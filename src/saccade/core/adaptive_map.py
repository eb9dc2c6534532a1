"""Records of adaptive maps: one verdict per cell, where a cell is a pair of values of two fields.

The two fields share one sweep, named `map-cell`. `AdaptiveMap.run` trains the cells that
`saccade.core.adaptive` asks for, level by level, and joins the levels into one record. The entry
`adaptive-map` of its config says what was mapped; nothing else tells it from another swept record.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar, get_args

import numpy as np
import xarray as xr

from saccade.core import adaptive
from saccade.core.adaptive import Lattice, MapAxis, Point, Refinement
from saccade.errors import ConfigError
from saccade.figures.figure import Figure, Line, Panel, Regions, Role
from saccade.judging.bound import Verdict
from saccade.judging.claim import Claim, Judgement
from saccade.judging.registration import CHANGES
from saccade.records.config import describe
from saccade.records.record import Arm, Record
from saccade.settings import with_cells

ConfigT = TypeVar("ConfigT")
CELL = "map-cell"
"""Name of the sweep of a map, which no setting can have."""
MAP = "adaptive-map"
"""Where the config of a record says what was mapped; no setting can be named so."""
AT_ONCE = 256
"""Cells that are trained, judged and reduced together: a whole lattice may not fit the memory."""
_WORDS: tuple[Verdict, ...] = get_args(Verdict)
_PARTS = ("trajectory", "snapshot", "prediction")


class _MappedStudy(Protocol):
    """What a map needs of the study whose claim it shows."""

    @property
    def name(self) -> str: ...
    @property
    def claims(self) -> Sequence[Claim]: ...
    @property
    def boundaries(self) -> Mapping[str, Any]: ...
    def run(self, config: Any, lab: Any, preset: str = "custom") -> Record: ...
    def judge(self, record: Record) -> list[Judgement]: ...
    def config_of(self, record: Record) -> Any: ...
    def with_verdicts(self, record: Record, commit: str = "") -> Record: ...


@dataclasses.dataclass(frozen=True)
class AdaptiveMap:
    """What is mapped, on which lattice, and how far it was refined."""

    claim: str
    x: MapAxis
    y: MapAxis
    lattice: Lattice = Lattice()
    most: int | None = None
    """Most cells of the adaptive part."""
    levels: tuple[int, ...] = ()
    """Cells of every round of refinement; further ones belong to the full lattice alone."""
    lacking: int = 0
    """Cells that the next round would have needed, beyond the most allowed."""

    def __post_init__(self):
        if self.x.path == self.y.path:
            raise ConfigError(f"y: got {self.y.path}, which is x as well, allowed: another setting")

    @staticmethod
    def of(record: Record) -> "AdaptiveMap | None":
        """The map that a record holds, if it holds one."""
        if (plain := record.config.get(MAP)) is None:
            return None
        axes = {name: MapAxis(**plain[name]) for name in ("x", "y")}
        lattice, levels = Lattice(**plain["lattice"]), tuple(plain["levels"])
        return AdaptiveMap(**{**plain, **axes, "lattice": lattice, "levels": levels})

    def config_at(self, config: ConfigT, points: Sequence[Point]) -> ConfigT:
        """The config with one cell per point of the lattice."""
        columns, rows = np.asarray(points).T
        values = {self.x.path: (self.x, columns), self.y.path: (self.y, rows)}
        side = self.lattice.side
        at = {path: axis.values(places, side).tolist() for path, (axis, places) in values.items()}
        return with_cells(config, CELL, at)

    def points(self, record: Record) -> list[Point]:
        """The points of the lattice that the cells of a record are."""
        values = [_values(record.config, axis.path) for axis in (self.x, self.y)]
        both = zip((self.x, self.y), values, strict=True)
        places = [axis.places(np.asarray(one), self.lattice.side) for axis, one in both]
        return [(int(column), int(row)) for column, row in zip(*places, strict=True)]

    # -- running -----------------------------------------------------------------------------------

    def run(
        self, study: _MappedStudy, config: Any, lab: Any, preset: str, full: bool = False
    ) -> Record:
        """Train and judge cells until no square is left to split or the most cells are reached;
        with `full`, all other cells of the lattice as well.
        """
        claim = _claim(study, self.claim)
        if claim.full_size is not None and not claim.full_size[0](config):
            raise ConfigError(f"claim: got {claim.id}, which needs {claim.full_size[1]}")
        tried: list[Point] = []
        records: list[Record] = []
        kept: dict[str, dict[str, list[str]]] = {}

        def judged(points: Sequence[Point]) -> list[int]:
            verdicts: list[int] = []
            for start in range(0, len(points), AT_ONCE):
                some = points[start : start + AT_ONCE]
                here = self.config_at(config, some)
                record = study.run(here, lab, preset)
                judgement = {one.claim: one for one in study.judge(record)}[self.claim]
                verdicts += [_WORDS.index(one) for one in _verdicts(judgement)]
                kept.update(kept or needed(claim, record, here))
                tried.extend(some)
                records.append(_reduced(record, kept))
            return verdicts

        refinement = adaptive.refined(self.lattice, judged, self.most)
        known = dict(refinement.found)
        if full:
            others = [point for point in self.lattice.every if point not in known]
            known |= zip(others, judged(others), strict=True)
        joined = self._joined(records, config, tried, refinement)
        judgement = {one.claim: one for one in study.judge(joined)}[self.claim]
        if self.found(joined, judgement) != known:
            why = "its measure reads variables only in some cells; train the grid with --sweep"
            raise ConfigError(f"claim: {claim.id} is judged otherwise in the joined record: {why}")
        commits = {record.commit for record in records}
        commit = records[0].commit if len(commits) == 1 else f"{records[0].commit}{CHANGES}"
        return study.with_verdicts(joined.as_committed(), commit)

    def _joined(
        self, records: Sequence[Record], config: Any, tried: Sequence[Point], by: Refinement
    ) -> Record:
        done = dataclasses.replace(self, levels=by.levels, lacking=by.lacking)
        plain = describe(self.config_at(config, tried))
        plain.pop("class")
        plain |= {"sweeps": {CELL: [float(cell) for cell in range(len(tried))]}}
        plain |= {MAP: dataclasses.asdict(done)}
        arms = {name: _arms_joined([one.arms[name] for one in records]) for name in records[0].arms}
        seconds = sum(one.seconds for one in records)
        return dataclasses.replace(records[0], config=plain, arms=arms, seconds=seconds)

    # -- what it shows -----------------------------------------------------------------------------

    def found(self, record: Record, judgement: Judgement) -> dict[Point, int]:
        """The verdicts at the points of the lattice, as numbers."""
        numbers = [_WORDS.index(verdict) for verdict in _verdicts(judgement)]
        return dict(zip(self.points(record), numbers, strict=True))

    def adaptive_part(self, found: Mapping[Point, int]) -> dict[Point, int]:
        return dict(list(found.items())[: sum(self.levels)])

    def agreement(self, found: Mapping[Point, int]) -> float | None:
        """Share of lattice points where the adaptive part gives the verdict that the full lattice
        has; None if that was not trained.
        """
        if len(found) < self.lattice.points:
            return None
        adaptive_part = self.lattice.filled(self.adaptive_part(found))
        return float(np.mean(adaptive_part == self.lattice.table(found)))

    def figure(self, study: _MappedStudy, record: Record) -> Figure:
        """The regions of the verdicts, the cells that were trained and the boundaries."""
        judgement = {one.claim: one for one in study.judge(record)}[self.claim]
        found = self.found(record, judgement)
        part, lattice = self.adaptive_part(found), self.lattice
        table, theory = lattice.filled(part), self._predicted(study, record)
        boundary = self._lines("boundary, adaptive", table)
        panels = [self._panel(f"{self.claim}, adaptive: {len(part)} cells", table, part, boundary)]
        share = self.agreement(found)
        if share is not None:
            whole, title = lattice.table(found), f"{self.claim}, full lattice: {len(found)} cells"
            lines = (*self._lines("boundary, full lattice", whole, "reference"), *boundary)
            panels.append(self._panel(title, whole, {}, lines))
        panels = [dataclasses.replace(one, marks=(*one.marks, *theory)) for one in panels]
        caption = [
            f"Verdicts of {self.claim} over {self.x.name} and {self.y.name}: {judgement.reason}.",
            f"A square of the lattice ({lattice.side + 1} x {lattice.side + 1} points) was split"
            " where verdicts differ; points are cells that were trained.",
        ]
        if self.lacking:
            more = f"{sum(self.levels)} cells, the next round needs {self.lacking} more"
            caption.append(f"Not refined to the end: stopped at {more}.")
        if share is not None:
            caption.append(
                f"The adaptive map has the verdict of the full lattice at {share:.1%} of its"
                f" {lattice.points} points, from {len(part) / lattice.points:.0%} of the runs."
            )
        if theory:
            caption.append(f"Dashed: {theory[0].label}.")
        name = f"{study.name}_{self.claim.replace('-', '')}_map"
        title = f"Where {self.claim} holds, over {self.x.name} and {self.y.name}"
        return Figure(name, title, " ".join(caption), tuple(panels))

    def _predicted(self, study: _MappedStudy, record: Record) -> tuple[Line, ...]:
        """Boundaries between the verdicts that a theory predicts, where one does."""
        if (theory := study.boundaries.get(self.claim)) is None:
            return ()
        every = self.lattice.every
        verdicts = theory.verdicts(self.config_at(study.config_of(record), every))
        numbers = [_WORDS.index(verdict) for verdict in verdicts]
        table = self.lattice.table(dict(zip(every, numbers, strict=True)))
        return self._lines(f"predicted: {theory.title}", table, "theory")

    def _lines(self, label: str, table: np.ndarray, role: Role = "measured") -> tuple[Line, ...]:
        side = self.lattice.side
        return tuple(
            Line(label, self.x.values(columns, side), self.y.values(rows, side), role=role)
            for columns, rows in adaptive.boundaries(table)
        )

    def _panel(
        self, title: str, table: np.ndarray, marked: Mapping[Point, int], lines: tuple[Line, ...]
    ) -> Panel:
        side = self.lattice.side
        edges = np.clip(np.arange(side + 2) - 0.5, 0, side)
        points = np.asarray(list(marked), int).reshape(-1, 2)
        regions = Regions(
            _WORDS,
            self.x.values(edges, side),
            self.y.values(edges, side),
            table,
            self.x.values(points[:, 0], side),
            self.y.values(points[:, 1], side),
            np.asarray(list(marked.values()), int),
        )
        scales = self.x.scale, self.y.scale
        return Panel(title, self.x.name, self.y.name, (regions, *lines), *scales)


def _claim(study: _MappedStudy, name: str) -> Claim:
    for claim in study.claims:
        if claim.id == name:
            return claim
    allowed = ", ".join(claim.id for claim in study.claims)
    raise ConfigError(f"claim: got {name!r}, allowed: {allowed}")


def _verdicts(judgement: Judgement) -> list[Verdict]:
    if not judgement.cells or set(judgement.cells[0][0]) != {CELL}:
        why = judgement.reason or "its numbers do not depend on the two settings"
        raise ConfigError(f"claim: {judgement.claim} has no verdict per cell: {why}")
    return [verdict for _, verdict, _ in judgement.cells]


def _values(plain: Mapping[str, Any], path: str) -> Sequence[float]:
    for part in path.split("."):
        plain = plain[part]
    return plain["values"]


# -- records of some cells -------------------------------------------------------------------------


def needed(claim: Claim, record: Record, config: Any) -> dict[str, dict[str, list[str]]]:
    """The variables that a claim rests on, by arm and part: without any other, its judgement of a
    record is the same. A record of thousands of cells could not keep them all.
    """
    names = dict.fromkeys(
        name
        for check in claim.checks  # pyright: ignore[reportGeneralTypeIssues]
        for found in check.found(record.arms).values()
        for name in found
    )
    kept: dict[str, dict[str, list[str]]] = {
        name: {part: [str(one) for one in getattr(record.arms[name], part)] for part in _PARTS}
        for name in names
    }
    wanted = claim.judge(record, config).plain()

    def enough(less: Mapping[str, Mapping[str, list[str]]]) -> bool:
        try:
            return claim.judge(_reduced(record, less), config).plain() == wanted
        except Exception:  # whatever a measure raises that lacks a variable
            return False

    for name in names:
        for part in _PARTS:
            every = kept[name][part]
            always = ["diverged_at"] if part == "trajectory" else []  # seeds without a number
            for dropped in (every, *([one] for one in every)):  # all at once, or one by one
                here = kept[name][part]
                less = [one for one in here if one in always or one not in dropped]
                without = kept | {name: kept[name] | {part: less}}
                if len(less) < len(here) and enough(without):
                    kept = without
    return kept


def _reduced(record: Record, kept: Mapping[str, Mapping[str, list[str]]]) -> Record:
    """The record with these variables, and with the mark of members that were not trained."""

    def reduced(dataset: xr.Dataset, names: Sequence[str]) -> xr.Dataset:
        marks = [one for one in ("not_trained",) if one in dataset]
        return dataset[[one for one in names if one in dataset and one not in marks] + marks]

    arms = {
        name: dataclasses.replace(
            record.arms[name],
            **{part: reduced(getattr(record.arms[name], part), it) for part, it in parts.items()},
        )
        for name, parts in kept.items()
    }
    return dataclasses.replace(record, arms=arms, verdicts={})


def _arms_joined(arms: Sequence[Arm]) -> Arm:
    """One arm of several with other cells each; the cells are counted through."""
    joined = {part: _datasets_joined([getattr(arm, part) for arm in arms]) for part in _PARTS}
    seconds = sum(arm.trajectory.attrs.get("seconds", 0.0) for arm in arms)
    about = {**arms[0].trajectory.attrs, "seconds": seconds}
    joined["trajectory"] = joined["trajectory"].assign_attrs(about)
    return dataclasses.replace(arms[0], **joined)


def _datasets_joined(datasets: Sequence[xr.Dataset]) -> xr.Dataset:
    if CELL not in datasets[0].dims:
        return datasets[0]
    marks = [one["not_trained"] for one in datasets if "not_trained" in one]
    if marks:  # in one of several rounds
        whole = {dim: size for dim, size in marks[0].sizes.items() if dim != CELL}
        datasets = [
            one
            if "not_trained" in one
            else one.assign(
                not_trained=((CELL, *whole), np.zeros((one.sizes[CELL], *whole.values()), bool))
            )
            for one in datasets
        ]
    ends = np.cumsum([0, *(one.sizes[CELL] for one in datasets)]).astype(float)
    both = zip(datasets, ends[:-1], strict=True)
    numbered = [
        one.assign_coords({CELL: start + np.arange(one.sizes[CELL])}) for one, start in both
    ]
    how: Any = {"data_vars": "minimal", "coords": "minimal", "compat": "override", "join": "outer"}
    joined = xr.concat(numbered, CELL, **how)
    # What does not depend on cells, such as the time of a step, comes from the longest round.
    longest = max(numbered, key=lambda one: one.sizes.get("step", 0))
    fixed = {str(name): one for name, one in longest.variables.items() if CELL not in one.dims}
    kinds = {
        name: one.astype(datasets[0][name].dtype)
        for name, one in joined.data_vars.items()
        if one.dtype != datasets[0][name].dtype and not one.isnull().any()
    }
    coords = {name: one for name, one in fixed.items() if name in joined.coords}
    data = {name: one for name, one in fixed.items() if name in joined.data_vars}
    return joined.assign_coords(coords).assign(data | kinds)


def is_cell(swept: Sequence[str]) -> bool:
    """Whether the sweeps of a judgement are the cells of a map."""
    return list(swept) == [CELL]
