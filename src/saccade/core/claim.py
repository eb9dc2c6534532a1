"""Claims: checkable sentences with their source, and verdicts computed from a record.

A claim has one or more checks. A check measures one number a seed and compares it with a bound: either every seed must
keep the bound, or the mean over seeds must, with its bootstrap interval. The rules, applied the same way everywhere:

* every seed:  holds if all seeds keep the bound, fails if one does not;
* mean:        holds if the whole interval keeps the bound, fails if none of it does, else undetermined;
* a seed that diverged keeps no bound: an every-seed check fails, a mean cannot be taken (undetermined);
* a seed without a number (its premise is not met) is left out and counted;
* too few seeds, or an unmet premise: undetermined, with the reason (but one seed that breaks an every-seed bound is enough).
A claim fails if one of its checks fails, else it is undetermined if one is, else it holds.
"""

import dataclasses
import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr

from saccade.core.errors import ConfigError
from saccade.core.record import MissingArmError, Record
from saccade.core.statistics import bootstrap_interval

Verdict = Literal["holds", "fails", "undetermined"]
Comparison = Literal["<=", "<", ">=", ">"]


class PremiseNotMetError(Exception):
    """Raised by a check's measure when the record cannot answer it; the message says why."""


@dataclasses.dataclass(frozen=True)
class Check:
    """One number a seed, and its bound."""

    quantity: str
    """What is measured, in words."""
    measure: Callable[[Record], xr.DataArray]
    """One number a seed: dims (sweeps), seed. NaN where the premise is not met for a seed."""
    comparison: Comparison
    bound: float
    arms: tuple[str, ...]
    """Arms that the number rests on, by name or pattern (`softmax_*`): a seed that diverged in one of them has no number."""
    every_seed: bool = False
    """True: each seed must keep the bound. False: the mean over seeds must."""
    seeds: int = 3
    """Fewest seeds for a verdict."""
    where: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Members that the number rests on, by the arms' own sweeps: one that diverged elsewhere does not count."""

    def __post_init__(self):
        if self.comparison not in ("<=", "<", ">=", ">"):
            raise ConfigError(f"comparison: got {self.comparison!r}, allowed: <=, <, >=, >")

    def keeps(self, value: Any) -> Any:
        """Whether a number keeps the bound; NaN does not."""
        match self.comparison:
            case "<=":
                return value <= self.bound
            case "<":
                return value < self.bound
            case ">=":
                return value >= self.bound
            case ">":
                return value > self.bound


@dataclasses.dataclass(frozen=True)
class Finding:
    """What one check found, in one cell of a sweep."""

    quantity: str
    bound: str
    verdict: Verdict
    value: float
    low: float
    high: float
    seeds: int
    """Seeds that have a number."""
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class Judgement:
    """A claim's verdict: over all cells if something was swept."""

    claim: str
    verdict: Verdict
    expected: Verdict
    findings: tuple[Finding, ...]
    """One a check, for the whole record or, in a sweep, for its first cell."""
    reason: str = ""
    cells: tuple[tuple[Mapping[str, float], Verdict, tuple[Finding, ...]], ...] = ()
    """In a sweep: place, verdict and findings of every cell."""

    @property
    def as_expected(self) -> bool:
        return self.verdict == self.expected

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        return _without_nan(dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class Claim:
    """One checkable sentence."""

    id: str
    """Number, e.g. A-2."""
    statement: str
    source: str
    """Paper, and theorem, figure or section."""
    checks: tuple[Check, ...]
    tolerance: str
    """Where the bounds come from."""
    paper: str = "not stated"
    """The paper's value."""
    prediction: str = "not stated"
    """What the theory predicts for the quantity."""
    expected: Verdict = "holds"
    reason: str = ""
    """Why another verdict than `holds` is expected."""

    def __post_init__(self):
        if not self.checks:
            raise ConfigError(f"claim {self.id}: got no checks, allowed: at least one")
        if self.expected not in get_args(Verdict):
            raise ConfigError(f"claim {self.id}: got expected={self.expected!r}, allowed: {', '.join(get_args(Verdict))}")
        if self.expected != "holds" and not self.reason:
            raise ConfigError(f"claim {self.id}: expected={self.expected!r} without a reason, allowed: say why")

    def judge(self, record: Record) -> Judgement:
        try:
            values = [_measured(check, record) for check in self.checks]
        except (PremiseNotMetError, MissingArmError) as unmet:
            return Judgement(self.id, "undetermined", self.expected, (), f"premise not met: {unmet}")
        for check, (measured, _) in zip(self.checks, values, strict=True):
            extra = set(measured.dims) - {"seed", *record.sweeps}
            if extra:
                raise TypeError(f"check {check.quantity!r} must give one number a seed, got a dim {extra.pop()!r} as well")
        sweeps = [dim for dim in record.sweeps if any(dim in measured.dims for measured, _ in values)]
        if not sweeps:
            findings = tuple(_find(check, *value) for check, value in zip(self.checks, values, strict=True))
            return Judgement(self.id, _together(findings), self.expected, findings, _reasons(findings))
        cells = []
        for place in np.ndindex(*(record.sweeps[dim].size for dim in sweeps)):
            chosen = dict(zip(sweeps, place, strict=True))
            findings = tuple(
                _find(check, _cell(measured, chosen), _cell(diverged, chosen))
                for check, (measured, diverged) in zip(self.checks, values, strict=True)
            )
            where = {dim: float(record.sweeps[dim][at]) for dim, at in chosen.items()}
            cells.append((where, _together(findings), findings))
        counts = {verdict: sum(cell[1] == verdict for cell in cells) for verdict in ("holds", "fails", "undetermined")}
        verdict = next((word for word, count in counts.items() if count == len(cells)), "undetermined")
        told = ", ".join(f"{word} in {count}" for word, count in counts.items())
        reason = f"{told} of {len(cells)} cells"
        return Judgement(self.id, verdict, self.expected, cells[0][2], reason, tuple(cells))  # pyright: ignore[reportArgumentType]


def _measured(check: Check, record: Record) -> tuple[xr.DataArray, xr.DataArray]:
    found = {pattern: fnmatch.filter(record.arms, pattern) for pattern in check.arms}
    for pattern, names in found.items():
        if not names:
            raise PremiseNotMetError(f"arm {pattern} was not run")
    diverged = [record.arm(name).diverged for names in found.values() for name in names]
    diverged = [one.sel({dim: at for dim, at in check.where.items() if dim in one.dims}) for one in diverged]
    values = check.measure(record).astype(float)
    if "seed" not in values.dims:
        raise TypeError(f"check {check.quantity!r} must give one number a seed, got dims {values.dims}")
    lost = xr.zeros_like(values, dtype=bool)
    for one in diverged:
        other = [dim for dim in one.dims if dim not in values.dims]
        lost = lost | one.any(other).drop_vars([name for name in one.coords if name not in values.dims], errors="ignore")
    return values, lost


def _cell(values: xr.DataArray, chosen: Mapping[str, int]) -> xr.DataArray:
    return values.isel({dim: at for dim, at in chosen.items() if dim in values.dims})


def _find(check: Check, values: xr.DataArray, diverged: xr.DataArray) -> Finding:
    lost = np.broadcast_to(diverged.values, values.shape)
    numbers = values.values[~lost]
    unmet = int(np.isnan(numbers).sum())
    numbers = numbers[~np.isnan(numbers)]
    bound = f"{check.comparison} {check.bound:g}" + (", every seed" if check.every_seed else "")
    value = float(numbers.mean()) if numbers.size else math.nan
    low, high = bootstrap_interval(numbers)
    reasons = []
    if lost.any():
        reasons.append(f"{int(lost.sum())} of {lost.size} seeds diverged")
    if unmet:
        reasons.append(f"{unmet} of {lost.size} seeds do not meet the premise")

    if check.every_seed and lost.any():
        verdict: Verdict = "fails"
    elif lost.any():
        verdict = "undetermined"
    elif numbers.size < check.seeds:
        reasons.append(f"{numbers.size} seeds, {check.seeds} needed")
        verdict = "undetermined"
        if check.every_seed and numbers.size and not np.all(check.keeps(numbers)):
            verdict = "fails"
    elif check.every_seed:
        broken = int(np.sum(~check.keeps(numbers)))
        verdict = "fails" if broken else "holds"
        if broken:
            reasons.append(f"{broken} of {numbers.size} seeds break the bound")
    else:
        edges = (low, high) if numbers.size > 1 else (value, value)  # one seed has no interval
        kept = [bool(check.keeps(edge)) for edge in edges]
        verdict = "holds" if all(kept) else "undetermined" if any(kept) else "fails"
        if verdict == "undetermined":
            reasons.append("the interval crosses the bound")
    return Finding(check.quantity, bound, verdict, value, low, high, int(numbers.size), "; ".join(reasons))


def _together(findings: Sequence[Finding]) -> Verdict:
    verdicts = {finding.verdict for finding in findings}
    return "fails" if "fails" in verdicts else "undetermined" if "undetermined" in verdicts else "holds"


def _reasons(findings: Sequence[Finding]) -> str:
    return "; ".join(f"{finding.quantity}: {finding.reason}" for finding in findings if finding.reason)


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: null stands for it."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
