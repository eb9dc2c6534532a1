"""How numbers, intervals and verdicts are written: on the terminal, in the ledger, on the page."""

import math
import re
from collections.abc import Hashable, Sequence

import numpy as np
import xarray as xr

from saccade.core.bound import Verdict
from saccade.core.claim import Judgement
from saccade.core.record import Record
from saccade.core.statistics import Finding

SYMBOLS: dict[Verdict, str] = {"holds": "✓", "fails": "✗", "undetermined": "?"}
ASCII_SYMBOLS: dict[Verdict, str] = {"holds": "+", "fails": "x", "undetermined": "?"}
_LISTED = 8


def number(value: float) -> str:
    """Three significant digits; "n/a" where there is no number."""
    value = float(value)
    if math.isnan(value):
        return "n/a"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "0"
    rounded = float(f"{value:.3g}")
    if 1000 <= abs(rounded) < 1e6:  # 5000, where %g writes 5e+03
        return f"{rounded:.0f}"
    return f"{rounded:g}"


def measured(finding: Finding) -> str:
    """The mean over seeds and its 95 % interval."""
    if math.isnan(finding.value):
        return "n/a"
    if math.isnan(finding.low) or math.isnan(finding.high):
        return f"{number(finding.value)} [no interval]"
    return f"{number(finding.value)} [{number(finding.low)}, {number(finding.high)}]"


def measured_anywhere(judgement: Judgement) -> list[str]:
    """One text per check: the value with its interval or, in a sweep, the range over the cells."""
    if not judgement.cells:
        return [measured(finding) for finding in judgement.findings]
    texts = []
    for place in range(len(judgement.findings)):
        values = [findings[place].value for _, _, findings in judgement.cells]
        known = [value for value in values if not math.isnan(value)]
        span = f"{number(min(known))} to {number(max(known))}" if known else "n/a"
        texts.append(f"{span} over {len(values)} cells")
    return texts


def tick(value: object) -> str:
    """A swept value or a category, as a tick label."""
    try:
        return f"{float(value):g}"  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError):
        return str(value)


def ticks(values: Sequence[object]) -> list[str]:
    """Tick labels that stay different where the values are."""
    short = [tick(value) for value in values]
    return short if len(set(short)) == len(short) else [str(value) for value in values]


def natural(identifier: str) -> tuple[tuple[int, int, str], ...]:
    """Sorting key under which A-2 comes before A-10."""
    parts = re.findall(r"\d+|\D+", identifier)
    return tuple((0, int(part), "") if part.isdigit() else (1, 0, part) for part in parts)


def diverged_members(record: Record) -> list[str]:
    """One sentence per arm with members whose loss stopped being finite: which, and when."""
    sentences = []
    for name, arm in record.arms.items():
        if "diverged_at" not in arm.trajectory:
            continue  # an arm of theory alone
        steps = arm.trajectory["diverged_at"]
        lost = [
            dict(zip(steps.dims, place, strict=True)) for place in np.argwhere(steps.values >= 0)
        ]
        if lost:
            listed = [f"{_where(steps, at)} at step {int(steps[at])}" for at in lost[:_LISTED]]
            listed += [f"and {len(lost) - _LISTED} more"] if len(lost) > _LISTED else []
            sentences.append(
                f"{name}: {len(lost)} of {steps.size} members diverged ({'; '.join(listed)})"
            )
    return sentences


def _where(steps: xr.DataArray, place: dict[Hashable, int]) -> str:
    return ", ".join(
        f"{dim} {tick(steps[dim].values[at]) if dim in steps.coords else at}"
        for dim, at in place.items()
    )
