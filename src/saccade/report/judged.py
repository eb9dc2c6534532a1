"""Claims judged from their records, and maps of their verdicts over a sweep.

Stored verdicts are shown where the study of a record is not installed or does not fit it, and where
the claim is judged otherwise today.
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from saccade.core.adaptive_map import AdaptiveMap, is_cell
from saccade.core.study import Divergence, Study
from saccade.errors import FileError
from saccade.figures.figure import Figure
from saccade.judging.bound import Verdict
from saccade.judging.claim import Check, Claim, Judgement
from saccade.judging.registration import STATED, file_of, is_clean
from saccade.judging.statistics import Finding
from saccade.records.record import Record
from saccade.report.formatting import measured, natural, number, tick

TEXTS = ("statement", "source", "paper", "prediction", "tolerance")
"""What a claim says, besides its checks."""


@dataclasses.dataclass(frozen=True)
class StoredClaim:
    """What a record says about a claim that its study cannot judge."""

    id: str
    statement: str
    source: str
    paper: str
    prediction: str
    tolerance: str
    reason: str
    checks: tuple[Check, ...] = ()

    def explanation(self, judgement: Judgement) -> str:
        return self.reason


@dataclasses.dataclass(frozen=True)
class StoredStudy:
    """Stands for a study that is not installed or does not fit: shows what one record stores."""

    name: str
    title: str
    paper: str
    claims: Sequence[StoredClaim]
    judgements: Sequence[Judgement]
    note: str
    """Which file, and why its study does not judge it."""
    divergences: Sequence[Divergence] = ()

    @staticmethod
    def of(record: Record, note: str) -> "StoredStudy":
        claims, judgements = [], []
        try:
            for name, plain in record.verdicts.items():
                texts = {key: plain.get(key, "not stored") for key in TEXTS}
                # saccade 0.1 had another name for the explanation.
                why = plain.get("explanation", plain.get("expected_reason", ""))
                claims.append(StoredClaim(name, **texts, reason=why))
                judgements.append(Judgement.of_plain(plain))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            why = f"its stored verdicts cannot be read ({error!r})"
            raise FileError(f"{note}, and {why}") from error
        title, paper = record.title or record.study, record.paper or "not stored"
        return StoredStudy(record.study, title, paper, claims, judgements, note)

    def judge(self, record: Record) -> Sequence[Judgement]:
        return self.judgements

    def drawn(self, record: Record) -> list[Figure]:
        return []


AnyStudy = Study[Any] | StoredStudy
Entry = tuple[AnyStudy, Record]
"""A record, with the study that judges it."""


def note_of(study: AnyStudy) -> str:
    """Why verdicts are stored ones; empty for a study that judges its record."""
    return study.note if isinstance(study, StoredStudy) else ""


@dataclasses.dataclass(frozen=True)
class JudgedClaim:
    """One row of the ledger."""

    entry: int
    """Place of the record among the entries."""
    study: AnyStudy
    record: Record
    claim: Claim | StoredClaim
    judgement: Judgement

    @property
    def preset(self) -> str:
        return preset_of(self.record)

    @property
    def label(self) -> str:
        """registered, exploratory or unlabelled."""
        return {True: "registered", False: "exploratory", None: "unlabelled"}[
            None if note_of(self.study) else self.judgement.registered
        ]

    @property
    def status(self) -> str:
        """The label of its registration, in words."""
        if note_of(self.study):
            return "stored, not compared"
        if self.judgement.registered and STATED in self.record.commit:
            return f"{self.judgement.status} (commit stated, not verified)"
        return self.judgement.status

    @property
    def other_verdict(self) -> str:
        """The verdict that was written when the record was made, if it is another one."""
        stored = self.record.verdicts.get(self.claim.id, {}).get("verdict", "")
        return "" if stored == self.judgement.verdict else stored

    @property
    def is_map(self) -> bool:
        return AdaptiveMap.of(self.record) is not None

    @property
    def seeds(self) -> str:
        """Seeds that have a number, of those run in the arms that the claim rests on; "none" if
        no seed enters the numbers.
        """
        arms, checks = self.record.arms, self.claim.checks
        checks = (checks,) if isinstance(checks, Check) else checks
        found = (names for check in checks for names in check.found(arms).values())
        sizes = [arms[name].trajectory.sizes.get("seed", 0) for names in found for name in names]
        run = max(sizes, default=0) or self.record.seeds
        cells = [one for _, _, findings in self.judgement.cells for one in findings]
        findings = cells or self.judgement.findings
        seeded = [one.seeds for one in findings if one.seeds or math.isnan(one.value)]
        if findings and not seeded:
            return "none"
        counts = sorted(set(seeded))
        if not counts or counts == [run]:
            return str(run)
        least = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        return f"{least} of {run}"


def preset_of(record: Record) -> str:
    """The preset of a record, and what tells it from others of this preset."""
    if (mapped := AdaptiveMap.of(record)) is not None:
        return f"{record.preset}, map of {mapped.x.name} and {mapped.y.name}"
    return ", ".join([record.preset, *(f"{name} swept" for name in record.sweeps)])


def judged_claims(entries: Sequence[Entry]) -> list[JudgedClaim]:
    """Every claim of every record, by claim number."""
    rows = [
        JudgedClaim(place, study, record, claim, judgement)
        for place, (study, record) in enumerate(entries)
        for claim, judgement in zip(study.claims, study.judge(record), strict=True)
        if _is_about(record, claim.id)
    ]
    return sorted(rows, key=lambda row: (natural(row.claim.id), row.study.name, row.entry))


def _is_about(record: Record, claim: str) -> bool:
    """Whether a record can say anything of a claim: a map has the numbers of one alone."""
    mapped = AdaptiveMap.of(record)
    return mapped is None or mapped.claim == claim


_LAST = {"A": 19, "B": 16, "C": 15, "D": 10}
"""Numbers of the last claims that were specified from the papers, by letter; and E-13."""


def is_specified(claim: str) -> bool:
    """Whether an id is that of a claim specified from the papers; a variant has a letter behind the
    number, and claims of our own have other numbers.
    """
    letter, _, number = claim.partition("-")
    return claim == "E-13" or (number.isdecimal() and 1 <= int(number) <= _LAST.get(letter, 0))


@dataclasses.dataclass(frozen=True)
class Counts:
    """Verdicts of one kind of claims."""

    kind: str
    holds: int
    fails: int
    undetermined: int

    @property
    def claims(self) -> int:
        return self.holds + self.fails + self.undetermined

    @property
    def text(self) -> str:
        verdicts = f"{self.holds} hold, {self.fails} fail, {self.undetermined} undetermined"
        return f"{self.kind}: {self.claims} ({verdicts})"


KINDS = (
    "Claims specified from the papers",
    "Claims of our own, registered before their record",
    "Exploratory claims",
    "Claims of our own without a number",
)


def _is_built_in(study: AnyStudy) -> bool:
    """Whether a study is one of saccade's own, or stands for one that is not installed."""
    file = file_of(study.experiment) if isinstance(study, Study) else None
    return file is None or file.parent == Path(__file__).parents[1] / "studies"


def counts(rows: Sequence[JudgedClaim]) -> list[Counts]:
    """The verdicts by kind of claim, and by preset if there are several; kinds without claims, and
    maps of claims, are left out.
    """
    rows = [row for row in rows if not row.is_map]
    presets = sorted({row.record.preset for row in rows}, key=lambda one: (one != "paper", one))
    found: dict[tuple[str, str], list[Verdict]] = {}
    for preset, kind in itertools.product(presets, KINDS):
        found[preset, kind] = []
    for row in rows:
        specified = is_specified(row.claim.id) and _is_built_in(row.study)
        # A claim that is not the one of a clean commit has changed since its record was made.
        as_specified = row.judgement.registered or not is_clean(row.record.commit)
        if row.judgement.registered is None:
            stored = row.record.verdicts.get(row.claim.id, {})
            as_specified = stored.get("statement", row.claim.statement) == row.claim.statement
        own = {True: 1, False: 2, None: 3}[row.judgement.registered]
        kind = 0 if specified and as_specified else own
        found[row.record.preset, KINDS[kind]].append(row.judgement.verdict)
    words = get_args(Verdict)
    return [
        Counts(f"{kind}, preset {preset}" if len(presets) > 1 else kind, *map(some.count, words))
        for (preset, kind), some in found.items()
        if some
    ]


def changed(rows: Sequence[JudgedClaim]) -> list[str]:
    """The claims whose verdict is not the known one."""
    return [
        f"{row.claim.id} ({row.judgement.known}, now {row.judgement.verdict})"
        for row in rows
        if row.judgement.changed
    ]


@dataclasses.dataclass(frozen=True)
class Cell:
    """One place of a sweep."""

    verdict: Verdict
    findings: tuple[Finding, ...]

    @property
    def numbers(self) -> list[str]:
        return [number(finding.value) for finding in self.findings]

    @property
    def text(self) -> str:
        """The verdict and every check, one per line."""
        checks = (f"{one.quantity}: {measured(one)} ({one.bound})" for one in self.findings)
        return "\n".join([self.verdict, *checks])


@dataclasses.dataclass(frozen=True)
class VerdictMap:
    """The verdicts of one claim over one or two swept values."""

    where: str
    """The values of the other sweeps, if there are more than two."""
    row_name: str
    column_name: str
    """Empty if one value was swept."""
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]
    """Values and cells; one cell per row if one value was swept."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Those of the first cell: every cell has the same quantities and bounds."""
        return self.rows[0][1][0].findings

    @property
    def title(self) -> str:
        across = f" (down) and {self.column_name} (across)" if self.column_name else ""
        return self.row_name + across + (f", at {self.where}" if self.where else "")

    @property
    def quantities(self) -> str:
        return ", ".join(finding.quantity for finding in self.findings)


def verdict_maps(judgement: Judgement) -> list[VerdictMap]:
    """The first sweep down, the second across, and one map for every value of the others; none for
    the cells of an adaptive map, which its figure shows.
    """
    if not judgement.cells or is_cell(list(judgement.cells[0][0])):
        return []
    names = list(judgement.cells[0][0])
    values = {name: list(dict.fromkeys(at[name] for at, _, _ in judgement.cells)) for name in names}
    cells = {tuple(at.values()): Cell(verdict, found) for at, verdict, found in judgement.cells}
    row_name, column_name, *others = [*names, ""][: max(2, len(names))]
    columns = values.get(column_name, [])
    across = [(column,) for column in columns] or [()]
    maps = []
    for fixed in itertools.product(*(values[name] for name in others)):
        places = {at: [(at, *column, *fixed) for column in across] for at in values[row_name]}
        rows = tuple((tick(at), tuple(cells[one] for one in row)) for at, row in places.items())
        where = ", ".join(f"{name} = {tick(at)}" for name, at in zip(others, fixed, strict=True))
        maps.append(VerdictMap(where, row_name, column_name, tuple(map(tick, columns)), rows))
    return maps
