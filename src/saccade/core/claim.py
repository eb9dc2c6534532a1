"""Claims: checkable sentences with their source, and verdicts computed from a record.

A claim has one or more checks. A check measures one number a seed and compares it with a bound:
either every seed must keep the bound, or the mean over seeds must, with its bootstrap interval. The
rules, applied the same way everywhere:

* every seed:  holds if all seeds keep the bound, fails if one does not;
* mean:        holds if the whole interval keeps the bound, fails if none of it does, else
  undetermined;
* pooled:      a number of all seeds together (a ratio of medians, say), judged like a mean, by its
  interval over resampled seeds;
* by value:    where the claim itself states a count or a statistic ("19 of 20 runs"), the number
  alone is compared, and its
               interval is reported beside it: of a success rate the exact one, never a division by
               zero;
* a seed that diverged keeps no bound: an every-seed check fails, a mean cannot be taken
  (undetermined);
* a seed without a number (its premise is not met) is left out and counted;
* a record smaller than the claim says it needs: undetermined, and expected to be;
* too few seeds, or an unmet premise: undetermined, with the reason (but one seed that breaks an
  every-seed bound is enough). A claim fails if one of its checks fails, else it is undetermined if
  one is, else it holds.
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
from saccade.core.statistics import bootstrap_interval, exact_interval, resampled_interval

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
    """One number a seed: dims (sweeps), seed. NaN where the premise is not met for a seed. Or a
    number of all seeds together, with dim `resample` instead of seed (see `over_all_seeds`) and,
    if it comes with its interval, an attribute `interval`.
    """
    comparison: Comparison
    bound: float
    arms: tuple[str, ...]
    """Arms that the number rests on, by name or pattern (`softmax_*`): a seed that diverged in
    one of them has no number.
    """
    every_seed: bool = False
    """True: each seed must keep the bound. False: the mean over seeds must."""
    seeds: int = 3
    """Fewest seeds for a verdict."""
    where: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Members that the number rests on, by the arms' own sweeps: one that diverged elsewhere
    does not count.
    """
    by_value: bool = False
    """Compare the mean (or pooled number) itself, and report its interval only."""
    missing: Callable[[Record], str] | None = None
    """Says why an arm was not run, where that may happen."""
    rate: bool = False
    """Each seed has a 1 (success) or a 0: the mean is a success rate, and its interval is exact."""

    def __post_init__(self):
        if self.comparison not in ("<=", "<", ">=", ">"):
            raise ConfigError(f"comparison: got {self.comparison!r}, allowed: <=, <, >=, >")

    def found(self, record: Record) -> dict[str, list[str]]:
        """The record's arms for each name or pattern."""
        return {pattern: fnmatch.filter(record.arms, pattern) for pattern in self.arms}

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
    full_size: tuple[Callable[[Mapping[str, Any]], bool], str] | None = None
    """Where smaller runs do not show it: whether a config is large enough, and in words what is
    needed. A smaller record is expected to leave the claim undetermined, and does.
    """

    def __post_init__(self):
        if not self.checks:
            raise ConfigError(f"claim {self.id}: got no checks, allowed: at least one")
        if self.expected not in get_args(Verdict):
            raise ConfigError(
                f"claim {self.id}: got expected={self.expected!r}, allowed:"
                f" {', '.join(get_args(Verdict))}"
            )
        if self.expected != "holds" and not self.reason:
            raise ConfigError(
                f"claim {self.id}: expected={self.expected!r} without a reason, allowed: say why"
            )

    def expected_reason(self, judgement: Judgement) -> str:
        """Why the verdict that is expected of a record is not `holds`."""
        if self.full_size is not None and judgement.expected != self.expected:
            return f"this claim needs {self.full_size[1]}"
        return self.reason

    def judge(self, record: Record) -> Judgement:
        judged = self._judged(record)
        if self.full_size is None or self.full_size[0](record.config):
            return judged
        return dataclasses.replace(
            judged, verdict="undetermined", expected="undetermined"
        )  # `expected_reason` says why

    def _judged(self, record: Record) -> Judgement:
        try:
            values = [_measured(check, record) for check in self.checks]
        except (PremiseNotMetError, MissingArmError) as unmet:
            return Judgement(
                self.id, "undetermined", self.expected, (), f"premise not met: {unmet}"
            )
        for check, (measured, _) in zip(self.checks, values, strict=True):
            extra = set(measured.dims) - {"seed", "resample", *record.sweeps}
            if extra:
                raise TypeError(
                    f"check {check.quantity!r} must give one number a seed, got a dim"
                    f" {extra.pop()!r} as well"
                )
        sweeps = [
            dim for dim in record.sweeps if any(dim in measured.dims for measured, _ in values)
        ]
        if not sweeps:
            findings = tuple(
                _find(check, *value) for check, value in zip(self.checks, values, strict=True)
            )
            return Judgement(
                self.id, _together(findings), self.expected, findings, _reasons(findings)
            )
        cells = []
        for place in np.ndindex(*(record.sweeps[dim].size for dim in sweeps)):
            chosen = dict(zip(sweeps, place, strict=True))
            findings = tuple(
                _find(check, _cell(measured, chosen), _cell(diverged, chosen))
                for check, (measured, diverged) in zip(self.checks, values, strict=True)
            )
            where = {dim: float(record.sweeps[dim][at]) for dim, at in chosen.items()}
            cells.append((where, _together(findings), findings))
        counts = {
            verdict: sum(cell[1] == verdict for cell in cells)
            for verdict in ("holds", "fails", "undetermined")
        }
        verdict = next(
            (word for word, count in counts.items() if count == len(cells)), "undetermined"
        )
        told = ", ".join(f"{word} in {count}" for word, count in counts.items())
        reason = f"{told} of {len(cells)} cells"
        return Judgement(self.id, verdict, self.expected, cells[0][2], reason, tuple(cells))  # pyright: ignore[reportArgumentType]


def _measured(check: Check, record: Record) -> tuple[xr.DataArray, xr.DataArray]:
    found = check.found(record)
    for pattern, names in found.items():
        if not names:
            why = f": {check.missing(record)}" if check.missing is not None else ""
            raise PremiseNotMetError(f"arm {pattern} was not run{why}")
    diverged = [record.arm(name).diverged for names in found.values() for name in names]
    diverged = [
        one.sel({dim: at for dim, at in check.where.items() if dim in one.dims}) for one in diverged
    ]
    values = check.measure(record).astype(float)
    if ("seed" in values.dims) == ("resample" in values.dims):
        raise TypeError(
            f"check {check.quantity!r} must give one number a seed, or one with its resamples, got"
            f" dims {values.dims}"
        )
    lost = xr.zeros_like(values, dtype=bool)
    for one in diverged:
        other = [dim for dim in one.dims if dim not in values.dims]
        lost = lost | one.any(other).drop_vars(
            [name for name in one.coords if name not in values.dims], errors="ignore"
        )
    return values, lost


def _cell(values: xr.DataArray, chosen: Mapping[str, int]) -> xr.DataArray:
    return values.isel({dim: at for dim, at in chosen.items() if dim in values.dims})


def _find(check: Check, values: xr.DataArray, diverged: xr.DataArray) -> Finding:
    lost = np.broadcast_to(diverged.values, values.shape)
    pooled = "resample" in values.dims
    numbers = values.values[~lost]
    unmet = 0 if pooled else int(np.isnan(numbers).sum())
    seeds = int(values.attrs["seeds"]) if pooled else int(numbers.size) - unmet
    bound = f"{check.comparison} {check.bound:g}" + (", every seed" if check.every_seed else "")
    value, low, high = _summary(
        check,
        numbers if pooled else numbers[~np.isnan(numbers)],
        pooled,
        values.attrs.get("interval"),
    )
    reasons = []
    if lost.any():
        reasons.append(
            "seeds diverged" if pooled else f"{int(lost.sum())} of {lost.size} seeds diverged"
        )
    if unmet:
        reasons.append(f"{unmet} of {lost.size} seeds do not meet the premise")

    numbers = numbers[~np.isnan(numbers)]
    if check.every_seed and lost.any():
        verdict: Verdict = "fails"
    elif lost.any():
        verdict = "undetermined"
    elif seeds < check.seeds:
        reasons.append(f"{seeds} seeds, {check.seeds} needed")
        verdict = "undetermined"
        if check.every_seed and numbers.size and not np.all(check.keeps(numbers)):
            verdict = "fails"
    elif check.every_seed:
        broken = int(np.sum(~check.keeps(numbers)))
        verdict = "fails" if broken else "holds"
        if broken:
            reasons.append(f"{broken} of {numbers.size} seeds break the bound")
    elif math.isnan(value) or (pooled and math.isnan(low) and not check.by_value):
        verdict = "undetermined"
        reasons.append("no number" if math.isnan(value) else "no interval")
    else:
        one = check.by_value or math.isnan(low)  # one seed has no interval, unless of a rate
        edges = (value, value) if one else (low, high)
        kept = [bool(check.keeps(edge)) for edge in edges]
        verdict = "holds" if all(kept) else "undetermined" if any(kept) else "fails"
        if verdict == "undetermined":
            reasons.append("the interval crosses the bound")
    return Finding(check.quantity, bound, verdict, value, low, high, seeds, "; ".join(reasons))


def _summary(
    check: Check, numbers: np.ndarray, pooled: bool, interval: Sequence[float] | None
) -> tuple[float, float, float]:
    """The number that a check compares, and its interval."""
    if not numbers.size:
        return math.nan, math.nan, math.nan
    if interval is not None:
        return float(numbers[0]), float(interval[0]), float(interval[1])
    if pooled:
        return (float(numbers[0]), *resampled_interval(numbers[1:]))
    value = float(numbers.mean())
    if check.rate:
        return (value, *exact_interval(int((numbers > 0.5).sum()), numbers.size))
    return (value, *bootstrap_interval(numbers))


def _together(findings: Sequence[Finding]) -> Verdict:
    verdicts = {finding.verdict for finding in findings}
    return (
        "fails"
        if "fails" in verdicts
        else "undetermined"
        if "undetermined" in verdicts
        else "holds"
    )


def _reasons(findings: Sequence[Finding]) -> str:
    return "; ".join(
        f"{finding.quantity}: {finding.reason}" for finding in findings if finding.reason
    )


def _without_nan(value: Any) -> Any:
    """JSON has no NaN: null stands for it."""
    if isinstance(value, dict):
        return {key: _without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
