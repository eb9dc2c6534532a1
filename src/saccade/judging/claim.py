"""Claims: checkable sentences with their source, and verdicts computed from a record.

A claim has one or more checks. A check measures numbers of some arms, reduces them by a statistic
over seeds (`saccade.judging.statistics`) and compares the result with a bound
(`saccade.judging.bound`).
The rules, applied the same way everywhere:

* `EverySeed`: holds if all seeds keep the bound, fails if one does not;
* `Deterministic`: holds if the number keeps the bound, else fails;
* all others: holds if the whole 95 % interval keeps the bound, fails if none of it does, else
  undetermined; with `by_value`, for claims that state a number, by the number itself;
* a seed that diverged keeps no bound: an every-seed check fails, any other is undetermined;
* so it is for a seed without a number, unless the check says why such seeds are left out;
* a seed that was not trained, because its worker failed, is no evidence: the check is undetermined,
  unless another seed breaks an every-seed bound;
* a record smaller than the claim says it needs is undetermined;
* too few seeds, or an unmet premise, is undetermined, with the reason (but one seed that breaks an
  every-seed bound is enough to fail).

A claim fails if one of its checks fails, else it is undetermined if one is, else it holds.
"""

import dataclasses
import fnmatch
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import numpy as np
import xarray as xr

from saccade.errors import ConfigError, SaccadeError, described, located, place_of
from saccade.judging.bound import AbstractBound, Verdict
from saccade.judging.evidence import evidence_of
from saccade.judging.premises import PremiseNotMetError, noted_premises
from saccade.judging.statistics import AbstractStatistic, Finding, Mean
from saccade.records.record import Arm, MissingArmError, Record

Measure = Callable[[Mapping[str, Arm], Any], Any]
Measured = tuple[Sequence[xr.DataArray], xr.DataArray, xr.DataArray | None]
"""The samples of a check, where a seed of its arms diverged, and where one was not trained."""


class ClaimArms(dict[str, Arm]):
    """The arms that a check names, in double precision; asking for other arms is an error."""

    def __init__(self, record: Record, names: Sequence[str]):
        super().__init__({name: record.in_double_precision(name) for name in names})
        self._others = set(record.arms) - set(names)

    def __missing__(self, name: str) -> Arm:
        if name in self._others:
            raise TypeError(f"the check must name the arm {name!r}, which its measure uses")
        raise MissingArmError(f"arm {name} was not run")


@dataclasses.dataclass(frozen=True)
class Check:
    """A measured quantity and its bound."""

    quantity: str
    """What is measured, in words."""
    measure: Measure
    """`measure(arms, config)`: one number per seed, with dims (sweeps), seed; NaN where a seed has
    none. For a statistic of all seeds together: a tuple of such samples."""
    bound: AbstractBound
    arms: str | tuple[str, ...] = ()
    """Arms that the number rests on, by name or pattern (`softmax_*`): the measure gets these, and
    a seed that diverged in one of them has no number. By default the claim's."""
    statistic: AbstractStatistic | None = None
    """How seeds are taken together. By default the claim's."""
    where: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """Members that the number rests on, by the arms' own sweeps: one that diverged elsewhere does
    not count."""
    missing: Callable[[Mapping[str, Arm], Any], str] | None = None
    """Says why an arm was not run, where that may happen."""
    left_out: str = ""
    """Why seeds without a number (NaN) do not count against the claim; if empty, they do."""
    scale: float = 0.0
    """The size of what the quantity is a difference of, if it may be near 0 itself and so is the
    bound: numbers that differ by less than 1e-6 of it are the same for the claim's registration."""

    def __post_init__(self):
        if not isinstance(self.bound, AbstractBound):
            raise ConfigError(
                f"check {self.quantity!r}: got the bound {self.bound!r}, "
                "allowed: AtMost, Below, AtLeast, Above or Within"
            )
        if not (math.isfinite(self.scale) and self.scale >= 0):
            raise ConfigError(
                f"check {self.quantity!r}: got the scale {self.scale}, allowed: a finite number, at"
                " least 0"
            )

    def found(self, arms: Mapping[str, Arm]) -> dict[str, list[str]]:
        """The arms for each name or pattern."""
        return {pattern: fnmatch.filter(arms, pattern) for pattern in _several(self.arms)}


@dataclasses.dataclass(frozen=True)
class Judgement:
    """A claim's verdict: over all cells if something was swept."""

    claim: str
    verdict: Verdict
    findings: tuple[Finding, ...]
    """One per check, for the whole record or, in a sweep, for its first cell."""
    reason: str = ""
    cells: tuple[tuple[Mapping[str, float], Verdict, tuple[Finding, ...]], ...] = ()
    """In a sweep: place, verdict and findings of every cell."""
    known: Verdict | None = None
    """The verdict that is known of this preset (`known.json` beside the study), if any."""
    registered: bool | None = None
    """Whether the claim computes what it computed when the record was made, from a commit without
    changes; None for a claim that has no number, and no label either."""
    evidence: Mapping[str, Any] = dataclasses.field(default_factory=dict, repr=False)
    """What was computed, which the registration is compared by (`saccade.judging.evidence`)."""

    @property
    def status(self) -> str:
        """The label of a registration, as it is shown."""
        return {True: "registered", False: "exploratory", None: "no number"}[self.registered]

    @property
    def changed(self) -> bool:
        """Whether the verdict is another than the known one."""
        return self.known is not None and self.verdict != self.known

    def plain(self) -> dict[str, Any]:
        """As JSON, without the evidence."""
        return without_nan(dataclasses.asdict(dataclasses.replace(self, evidence={})))

    @staticmethod
    def of_plain(plain: Mapping[str, Any]) -> "Judgement":
        """A stored judgement."""

        def findings(rows: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
            numbers = ("value", "low", "high")
            return tuple(
                Finding(**{**row, **{name: _number(row[name]) for name in numbers}}) for row in rows
            )

        cells = tuple((dict(at), verdict, findings(rows)) for at, verdict, rows in plain["cells"])
        fields = {name: plain[name] for name in ("claim", "verdict", "reason")}
        registered = plain.get("registered", False)
        if registered not in (True, False, None):
            raise ValueError(f"a registration is {registered!r}")
        given = findings(plain["findings"])
        words = [fields["verdict"], *(verdict for _, verdict, _ in cells)]
        words += [one.verdict for one in (*given, *(one for *_, some in cells for one in some))]
        if other := sorted({str(one) for one in words} - set(get_args(Verdict))):
            raise ValueError(f"a verdict is {other[0]!r}")
        return Judgement(**fields, findings=given, cells=cells, registered=registered)


@dataclasses.dataclass(frozen=True)
class Claim:
    """One checkable sentence."""

    id: str
    """Number, such as A-2."""
    statement: str
    source: str
    """Paper, and theorem, figure or section."""
    checks: tuple[Check, ...] | Check
    tolerance: str
    """Where the bounds come from."""
    paper: str = "not stated"
    """The paper's value."""
    prediction: str = "not stated"
    """What the theory predicts for the quantity."""
    arms: str | tuple[str, ...] = ()
    """Arms of the checks that name none."""
    statistic: AbstractStatistic = Mean()
    """Statistic of the checks that name none."""
    reason: str = ""
    """Why it is known not to hold; shown where it does not."""
    full_size: tuple[Callable[[Any], bool], str] | None = None
    """Where smaller runs do not show it: whether a config is large enough, and in words what is
    needed. A smaller record leaves the claim undetermined."""

    def __post_init__(self):
        given = (self.checks,) if isinstance(self.checks, Check) else tuple(self.checks)
        checks = tuple(
            dataclasses.replace(
                check,
                arms=_several(check.arms or self.arms),
                statistic=check.statistic or self.statistic,
            )
            for check in given
        )
        object.__setattr__(self, "checks", checks)
        if not checks:
            raise ConfigError(f"claim {self.id}: got no checks, allowed: at least one")

    def explanation(self, judgement: Judgement) -> str:
        """Why the claim does not hold, as far as that is known."""
        known = judgement.verdict != "holds" and not judgement.changed
        return self.reason if known and judgement.reason != (self._needed or None) else ""

    @property
    def _needed(self) -> str:
        return "" if self.full_size is None else f"this claim needs {self.full_size[1]}"

    def judge(self, record: Record, config: Any) -> Judgement:
        """The verdict on a record whose typed config is given."""
        judged = self._judged(record, config)
        enough = self.full_size is None or bool(self.full_size[0](config))
        if not enough:
            cells = tuple((at, "undetermined", findings) for at, _, findings in judged.cells)
            undetermined: Any = {"verdict": "undetermined", "reason": self._needed, "cells": cells}
            judged = dataclasses.replace(judged, **undetermined)
        about = {"statement": self.statement, "needs": self._needed, "enough": enough}
        about |= {"verdict": judged.verdict, **judged.evidence}
        return dataclasses.replace(judged, evidence=about)

    def _partly(
        self, unmet: Mapping[int, str], measured: Sequence[Any], is_swept: bool
    ) -> Judgement:
        """Undetermined because of some checks, unless another one fails; all show their numbers."""
        reason = "; ".join(dict.fromkeys(unmet.values()))
        if not measured or is_swept:
            return Judgement(self.id, "undetermined", (), reason)
        checks = checks_of(self)
        numbers = iter(measured)
        findings = tuple(
            _no_number(check, unmet[place]) if place in unmet else _find(check, next(numbers))
            for place, check in enumerate(checks)
        )
        return Judgement(self.id, _together(findings), findings, reason)

    def _judged(self, record: Record, config: Any) -> Judgement:
        checks = checks_of(self)
        measured, unmet, premises = [], {}, []
        for place, check in enumerate(checks):
            try:
                with noted_premises() as noted:
                    premises.append(noted)
                    measured.append(_measured(check, record, config))
            except (PremiseNotMetError, MissingArmError) as error:
                unmet[place] = f"premise not met: {error}"
            except SaccadeError:
                raise
            except Exception as error:
                if place_of(error) is None:
                    raise
                why = f"{described(error)}{located(error)}"
                raise ConfigError(f"claim {self.id}, {check.quantity}: {why}") from error
        judged = self._found(record, measured, unmet)
        numbers, rows = iter(measured), [judged.findings] if judged.findings else []
        rows = [findings for *_, findings in judged.cells] or rows
        evidence = [
            evidence_of(
                check,
                () if place in unmet else next(numbers)[0],
                premises[place],
                unmet.get(place, ""),
                [findings[place] for findings in rows],
            )
            for place, check in enumerate(checks)
        ]
        return dataclasses.replace(judged, evidence={"checks": evidence})

    def _found(
        self, record: Record, measured: Sequence[Measured], unmet: Mapping[int, str]
    ) -> Judgement:
        """The judgement on what was measured; `unmet` are the places of checks without a number."""
        checks = checks_of(self)
        if unmet:
            return self._partly(unmet, measured, bool(record.sweeps))
        dims = _dims([sample for samples, *_ in measured for sample in samples])
        grids = record.sweeps
        sweeps = [dim for dim in grids if dim in dims]
        if not sweeps:
            findings = tuple(map(_find, checks, measured))
            verdict = _together(findings)
            return Judgement(self.id, verdict, findings, _reasons(findings))
        cells, finders = [], [_finder(*one, sweeps) for one in zip(checks, measured, strict=True)]
        for place in np.ndindex(*(grids[dim].size for dim in sweeps)):
            chosen = dict(zip(sweeps, place, strict=True))
            findings = tuple(found(chosen) for found in finders)
            where = {dim: float(grids[dim][at]) for dim, at in chosen.items()}
            cells.append((where, _together(findings), findings))
        counts = {word: sum(cell[1] == word for cell in cells) for word in get_args(Verdict)}
        verdict: Verdict = next(
            (word for word, n in counts.items() if n == len(cells)), "undetermined"
        )
        reason = ", ".join(f"{word} in {count}" for word, count in counts.items())
        reason = f"{reason} of {len(cells)} cells"
        return Judgement(self.id, verdict, cells[0][2], reason, tuple(cells))


def checks_of(claim: Claim) -> tuple[Check, ...]:
    """The checks of a claim, which may be given as one alone."""
    return claim.checks  # pyright: ignore[reportReturnType] (a tuple once made)


def _no_number(check: Check, reason: str) -> Finding:
    nan = math.nan
    return Finding(check.quantity, str(check.bound), "undetermined", nan, nan, nan, 0, reason)


def _measured(check: Check, record: Record, config: Any) -> Measured:
    found = check.found(record.arms)
    for pattern, names in found.items():
        if not names:
            why = f": {check.missing(record.arms, config)}" if check.missing is not None else ""
            known = f" (the record has {', '.join(record.arms)})" if not why else ""
            raise PremiseNotMetError(f"arm {pattern} was not run{why}{known}")
    arms = ClaimArms(record, [name for names in found.values() for name in names])
    given = check.measure(arms, config)
    samples = [one.astype(float) for one in (given if isinstance(given, tuple) else (given,))]
    per_seed = check.statistic is None or check.statistic.per_seed
    seedless = check.statistic is not None and check.statistic.seedless
    for sample in samples:
        extra = set(sample.dims) - {"seed", *record.sweeps}
        unseeded = "seed" not in sample.dims and not seedless
        if unseeded or (per_seed and (extra or len(samples) > 1)):
            raise ConfigError(
                f"check {check.quantity!r}: got the dims {', '.join(map(str, sample.dims))}, "
                "allowed: one number per seed"
            )
    kept = {*record.sweeps, "seed"} if per_seed else set(record.sweeps)
    none = xr.zeros_like(samples[0], dtype=bool) if per_seed else xr.DataArray(False)

    def marked(arms: Sequence[xr.DataArray]) -> xr.DataArray:
        """Where one of the arms has a mark, with the dims of the samples."""
        where = none
        for one in arms:
            at = {dim: value for dim, value in check.where.items() if dim in one.dims}
            one = one.sel(at).reset_coords(drop=True)
            where = where | one.any([dim for dim in one.dims if dim not in kept])
        return where.any([dim for dim in where.dims if dim not in kept & set(_dims(samples))])

    lost = marked([arm.diverged for arm in arms.values()])
    holes = [arm.not_trained for arm in arms.values() if arm.not_trained is not None]
    return samples, lost, marked(holes) if holes else None


def _dims(samples: Sequence[xr.DataArray]) -> set[Any]:
    return {dim for sample in samples for dim in sample.dims}


def _cell(values: xr.DataArray, chosen: Mapping[str, int]) -> xr.DataArray:
    return values.isel({dim: at for dim, at in chosen.items() if dim in values.dims})


def _find(check: Check, measured: Measured) -> Finding:
    samples, lost, missing = measured
    statistic = check.statistic
    assert statistic is not None, "a claim fills in the statistic"
    if missing is None or not missing.any():
        return statistic.find(check.quantity, check.bound, samples, lost, check.left_out)
    count = f"{int(missing.sum())} of {missing.size} seeds were not trained"
    if "seed" not in missing.dims or missing.all():
        return _no_number(check, count if "seed" in missing.dims else "members were not trained")
    kept = {"seed": ~missing.values}
    samples = [one.isel(kept) for one in samples]
    lost = lost.isel(kept) if "seed" in lost.dims else lost
    found = statistic.find(check.quantity, check.bound, samples, lost, check.left_out)
    verdict = "fails" if found.verdict == "fails" and found.kept is not None else "undetermined"
    reason = "; ".join(filter(None, [count, found.reason]))
    return dataclasses.replace(found, verdict=verdict, reason=reason)


def _finder(
    check: Check, measured: Measured, sweeps: Sequence[str]
) -> Callable[[Mapping[str, int]], Finding]:
    """What a check found in a cell, given by the places along the sweeps."""
    samples, lost, missing = measured
    statistic = check.statistic
    whole = missing is None and "seed" in samples[0].dims
    if statistic is None or not statistic.takes_arrays or not whole:
        return lambda at: _find(
            check,
            (
                [_cell(one, at) for one in samples],
                _cell(lost, at),
                None if missing is None else _cell(missing, at),
            ),
        )
    # Plain arrays, seeds last: to cut a cell out of an xarray takes longer than to judge it.
    (sample,) = samples
    dims = [dim for dim in sweeps if dim in sample.dims]
    numbers = sample.transpose(*dims, "seed").values
    gone = lost.broadcast_like(sample).transpose(*dims, "seed").values

    def found(at: Mapping[str, int]) -> Finding:
        place = tuple(at[dim] for dim in dims)
        given = numbers[place], gone[place], check.left_out
        return statistic.find_in(check.quantity, check.bound, *given)

    return found


def _several(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _together(findings: Sequence[Finding]) -> Verdict:
    verdicts = {finding.verdict for finding in findings}
    return next(word for word in ("fails", "undetermined", "holds") if word in verdicts)


def _reasons(findings: Sequence[Finding]) -> str:
    return "; ".join(f"{one.quantity}: {one.reason}" for one in findings if one.reason)


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def without_nan(value: Any) -> Any:
    """JSON has no NaN: null stands for it."""
    if isinstance(value, dict):
        return {key: without_nan(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
