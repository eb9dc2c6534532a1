"""Claims judged from their records, and the maps of verdicts over what was swept. Stored
verdicts are never read.
"""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

from saccade.core.claim import Claim, Finding, Judgement, Verdict
from saccade.core.record import Record
from saccade.core.study import Study
from saccade.report.formatting import natural, tick

Entry = tuple[Study[Any], Record]
"""A record, with the study that can judge it."""
VERDICTS: tuple[Verdict, ...] = ("holds", "fails", "undetermined")


@dataclasses.dataclass(frozen=True)
class JudgedClaim:
    """One row of the ledger."""

    entry: int
    """Place of the record among the entries."""
    study: Study[Any]
    record: Record
    claim: Claim
    judgement: Judgement


def judged_claims(entries: Sequence[Entry]) -> list[JudgedClaim]:
    """Every claim of every record, judged now, by claim number."""
    rows = [
        JudgedClaim(place, study, record, claim, judgement)
        for place, (study, record) in enumerate(entries)
        for claim, judgement in zip(study.claims, study.judge(record), strict=True)
    ]
    return sorted(rows, key=lambda row: (natural(row.claim.id), row.study.name, row.entry))


def counts(rows: Sequence[JudgedClaim]) -> dict[str, int]:
    """How many claims hold, fail, are undetermined, and have another verdict than the expected
    one.
    """
    found = {verdict: sum(row.judgement.verdict == verdict for row in rows) for verdict in VERDICTS}
    return {**found, "unexpected": sum(not row.judgement.as_expected for row in rows)}


Cell = tuple[Verdict, tuple[Finding, ...]]


@dataclasses.dataclass(frozen=True)
class VerdictMap:
    """The verdicts of one claim over one or two swept values."""

    where: str
    """The values of the other sweeps, if there are more than two."""
    row_name: str
    row_values: tuple[float, ...]
    column_name: str
    """Empty if one value was swept."""
    column_values: tuple[float, ...]
    cells: tuple[tuple[Cell, ...], ...]
    """Rows of columns; one column if one value was swept."""


def verdict_maps(judgement: Judgement) -> list[VerdictMap]:
    """The cells of a swept claim as maps: the first sweep down, the second across, one map for
    every value of the others.
    """
    if not judgement.cells:
        return []
    values: dict[str, list[float]] = {}
    for place, _, _ in judgement.cells:
        for name, value in place.items():
            if value not in values.setdefault(name, []):
                values[name].append(value)
    known: dict[tuple[float, ...], Cell] = {
        tuple(place[name] for name in values): (verdict, findings)
        for place, verdict, findings in judgement.cells
    }
    row_name, column_name, *others = (*values, "") if len(values) == 1 else values
    columns = tuple(values.get(column_name, ()))
    across = [(column,) for column in columns] or [()]
    maps = []
    for fixed in itertools.product(*(values[name] for name in others)):
        cells = tuple(
            tuple(known[(row, *column, *fixed)] for column in across) for row in values[row_name]
        )
        where = ", ".join(
            f"{name} = {tick(value)}" for name, value in zip(others, fixed, strict=True)
        )
        maps.append(
            VerdictMap(where, row_name, tuple(values[row_name]), column_name, columns, cells)
        )
    return maps
