"""How numbers, intervals and verdicts are written: on the terminal, in the ledger, on the page."""

import math
import re
from collections.abc import Sequence

import numpy as np
import xarray as xr

from saccade.judging.bound import Verdict
from saccade.judging.claim import Judgement
from saccade.judging.statistics import Finding, exact_interval
from saccade.records.record import Record

SYMBOLS: dict[Verdict, str] = {"holds": "✓", "fails": "✗", "undetermined": "?"}
_LISTED = 8


def number(value: float) -> str:
    """Three significant digits; "n/a" where there is no number."""
    if math.isnan(value):
        return "n/a"
    rounded = float(f"{value:.3g}") or 0.0  # not "-0"
    whole = 1000 <= abs(rounded) < 1e6  # 5000, where %g writes 5e+03
    return f"{rounded:.0f}" if whole else f"{rounded:g}"


def counted(count: int, noun: str) -> str:
    """As in "1 record", "2 records"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def size_text(size: float) -> str:
    """Bytes, as in "12.3 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{number(size)} {unit}"
        size /= 1000
    return f"{number(size)} TB"


def measured(finding: Finding) -> str:
    """The number and its 95 % interval; where every seed must keep the bound, also how many do and
    the share of all seeds that do so at least (95 %).
    """
    if math.isnan(finding.value):
        return "n/a"
    text = number(finding.value)
    if finding.seeds:
        interval = f"{number(finding.low)}, {number(finding.high)}"
        text += f" [{'no interval' if 'n/a' in interval else interval}]"
    if finding.kept is not None and finding.judged:
        share = exact_interval(finding.kept, finding.judged)[0]
        text += f"; {finding.kept} of {finding.judged} seeds, share >= {share:.2f}"
    return text


def measured_anywhere(judgement: Judgement) -> list[tuple[Finding, str]]:
    """Checks and texts: the value with its interval or, in a sweep, the range over the cells."""
    if not judgement.cells:
        return [(finding, measured(finding)) for finding in judgement.findings]
    texts = []
    for place, finding in enumerate(judgement.findings):
        values = [findings[place].value for _, _, findings in judgement.cells]
        known = [value for value in values if not math.isnan(value)]
        span = f"{number(min(known))} to {number(max(known))}" if known else "n/a"
        texts.append((finding, f"{span} over {len(values)} cells"))
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
        lost = np.argwhere(steps.values >= 0)
        if len(lost):
            listed = [_where(steps, place) for place in lost[:_LISTED]]
            listed += [f"and {len(lost) - _LISTED} more"] if len(lost) > _LISTED else []
            which = f"{len(lost)} of {steps.size} members diverged ({'; '.join(listed)})"
            # What a model says about its computation is in its record: `EncoderConfig.about`.
            rounded = "bfloat16" in arm.trajectory.attrs.get("attention_form", "")
            advice = "; attention was in bfloat16: try fused=False, in float32" if rounded else ""
            sentences.append(f"{name}: {which}{advice}")
    return sentences


def _where(steps: xr.DataArray, place: np.ndarray) -> str:
    pairs = zip(steps.dims, place, strict=True)
    member = ", ".join(f"{dim} {tick(steps[dim].values[at])}" for dim, at in pairs)
    return f"{member} at step {int(steps.values[tuple(place)])}"
