"""Two records of one study side by side, as data: what differs in their settings and numbers.

The rule for checks. A check has a number and a 95 % interval over seeds in each record, a in
[a_low, a_high] and b in [b_low, b_high]. The difference b - a has the interval

    from  b - a - sqrt((b - b_low)^2 + (a_high - a)^2)
    to    b - a + sqrt((b_high - b)^2 + (a - a_low)^2)

and *exceeds the intervals* if 0 lies outside. The half-widths of independent estimates add as the
root of the sum of squares; each end takes those sides of both intervals on which it lies, so that
intervals that are not symmetric (rates, geometric means, resampled numbers) keep their shape. For
rates with Wilson's intervals it is Newcombe's method 10; in general, Zou and Donner (2008),
Statistics in Medicine 27, 1693-1702. For two t intervals of n seeds each it is at least as wide as
Welch's. With a common standard error it is the test p < 0.05; two intervals that do not overlap
(`apart`) would be p < 0.006, so that intervals which overlap may still differ, and those that do
not overlap always do.

What the rule does not know:

* records that share seeds are not independent. Their numbers mostly go up and down together; the
  interval is then too wide, and differences are missed;
* of n checks without any difference, about n / 20 exceed their intervals by chance;
* a number without an interval (no seed enters it, one seed, a p-value) cannot be compared.

The rule for trajectories. At every step that both records measured, and at every place of a
variable's own dims, the difference of the means over seeds is divided by its standard error
(Welch), and the largest is reported. One of thousands is large by chance: it exceeds only if p is
below 0.05 after Bonferroni's correction for all numbers that were compared, by Student's t
distribution with the degrees of freedom of the smaller sample.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr

from saccade.core.adaptive_map import AdaptiveMap
from saccade.errors import ConfigError
from saccade.judging.bound import Verdict
from saccade.judging.claim import Judgement, without_nan
from saccade.judging.statistics import LEVEL, Finding
from saccade.records.record import Arm, Record
from saccade.report.formatting import counted, measured, natural, tick
from saccade.report.judged import Entry, note_of

Outcome = Literal["exceeds", "within", "cannot be compared"]
RULE = (
    "Numbers have 95 % intervals over seeds. A difference B - A exceeds the intervals if 0 lies"
    " outside its own 95 % interval, whose half-widths are the roots of the sums of squares of"
    " those of A and B. Intervals that do not overlap are a stricter rule (about p < 0.006):"
    " intervals that overlap may still differ."
)
TRAJECTORY_RULE = (
    "Difference of the means over seeds in standard errors, at the step and place where it is"
    " largest. It exceeds if p < 0.05 after Bonferroni's correction for all numbers compared."
)
ROUNDING = 2.0**-14
"""Relative rounding of a compact record: the least standard error of a mean."""
_NUMERIC = "fiub"
_ABSENT = "absent"


@dataclasses.dataclass(frozen=True)
class Pair:
    """A fact or a setting of both records."""

    name: str
    first: Any
    second: Any

    @property
    def differs(self) -> bool:
        return self.first != self.second

    @property
    def texts(self) -> tuple[str, str]:
        """Both values; with all digits if few do not tell them apart."""
        short = _text(self.first), _text(self.second)
        return (
            short if len({*short}) > 1 or not self.differs else (str(self.first), str(self.second))
        )


@dataclasses.dataclass(frozen=True)
class Difference:
    """The number of B less that of A, with its 95 % interval."""

    value: float
    low: float
    high: float
    outcome: Outcome
    apart: bool = False
    """Whether the intervals of the two numbers do not overlap."""
    reason: str = ""
    """Why the numbers cannot be compared."""

    @property
    def size(self) -> float:
        """The difference, over the half-width of its interval towards 0: above 1 if it exceeds."""
        if math.isnan(self.low) or self.value == 0:
            return 0.0
        half = self.value - self.low if self.value > 0 else self.high - self.value
        return abs(self.value) / half if half else math.inf


def difference(first: Finding, second: Finding) -> Difference:
    """What the rule says of two findings of one check."""
    nan = math.nan
    a, b = first.value, second.value
    lacking = [name for name, one in (("A", a), ("B", b)) if not math.isfinite(one)]
    if lacking:
        return Difference(
            nan, nan, nan, "cannot be compared", False, _lack(lacking, "finite number")
        )
    without = [
        name for name, one in (("A", first), ("B", second)) if math.isnan(one.low + one.high)
    ]
    if without:
        why = _lack(without, "interval")
        why += "; the numbers are equal" if a == b else ""
        return Difference(b - a, nan, nan, "cannot be compared", False, why)
    low = b - a - math.hypot(b - second.low, first.high - a)
    high = b - a + math.hypot(second.high - b, a - first.low)
    apart = first.high < second.low or second.high < first.low
    exceeds = apart or low > 0 or high < 0  # apart alone only where rounding hides the rest
    return Difference(b - a, low, high, "exceeds" if exceeds else "within", apart)


def _lack(names: Sequence[str], what: str) -> str:
    return f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} no {what}"


@dataclasses.dataclass(frozen=True)
class CheckComparison:
    """One check of both records, at one place of a sweep if there is one."""

    quantity: str
    place: int
    """Which of the claim's checks with this quantity it is."""
    at: Mapping[str, float]
    first: Finding
    second: Finding
    difference: Difference

    @property
    def where(self) -> str:
        return ", ".join(f"{name} = {tick(value)}" for name, value in self.at.items())

    @property
    def bound(self) -> str:
        """That of both records, or both."""
        bounds = dict.fromkeys((self.first.bound, self.second.bound))
        return " (A), ".join(bounds) + (" (B)" if len(bounds) > 1 else "")


@dataclasses.dataclass(frozen=True)
class ClaimComparison:
    """One claim of both records."""

    id: str
    statement: str
    first: Verdict
    second: Verdict
    checks: tuple[CheckComparison, ...]
    alone: tuple[str, ...] = ()
    """Checks and cells of a sweep that only one record has, in words."""
    undetermined: tuple[str, ...] = ()
    """Why a verdict is undetermined, in words."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader needs where checks are missing."""
        return self.undetermined if self.verdict_differs or self.alone or not self.checks else ()

    @property
    def verdict_differs(self) -> bool:
        return self.first != self.second

    def rows(self) -> list[tuple[CheckComparison, str]]:
        """One check per quantity and, in a sweep, how many of its cells exceed: the check is then
        that of the cell with the largest difference.
        """
        groups: dict[tuple[str, int], list[CheckComparison]] = {}
        for check in self.checks:
            groups.setdefault((check.quantity, check.place), []).append(check)
        rows = []
        for cells in groups.values():
            most = max(cells, key=lambda one: one.difference.size)
            exceed = sum(one.difference.outcome == "exceeds" for one in cells)
            swept = f"{exceed} of {counted(len(cells), 'cell')}; shown at {most.where}"
            rows.append((most, swept if most.at else ""))
        return rows


@dataclasses.dataclass(frozen=True)
class VariableComparison:
    """A variable of an arm, where its means over seeds differ most."""

    arm: str
    variable: str
    title: str
    step: int
    at: Mapping[str, Any]
    """Places along the variable's own dims."""
    first: float
    second: float
    standardised: float
    """The difference in standard errors."""
    p_value: float
    """Of this difference alone."""
    numbers: int
    """How many differences it is the largest of."""
    exceeds: bool = False

    @property
    def where(self) -> str:
        places = (f"{dim} {tick(value)}" for dim, value in self.at.items())
        return ", ".join((f"step {self.step}", *places))


@dataclasses.dataclass(frozen=True)
class TrajectoryComparison:
    """All variables along training that arms of the same name have in both records."""

    variables: tuple[VariableComparison, ...]
    """The largest difference first."""
    incomparable: tuple[tuple[str, str], ...]
    """Arm and variable, and why they cannot be compared."""
    alone: tuple[str, ...]
    """Arms and variables that only one record has, in words."""

    @property
    def numbers(self) -> int:
        return sum(one.numbers for one in self.variables)

    @property
    def exceeding(self) -> int:
        return sum(one.exceeds for one in self.variables)


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Everything that is said of two records, A and B."""

    study: str
    title: str
    files: tuple[str, str]
    identical: bool
    """Whether the two files have the same bytes."""
    facts: tuple[Pair, ...]
    settings: tuple[Pair, ...]
    """Those that differ, by dotted names."""
    versions: tuple[Pair, ...]
    """Those that differ."""
    claims: tuple[ClaimComparison, ...]
    alone: tuple[str, ...]
    """Claims that only one record has, in words."""
    trajectories: TrajectoryComparison
    shared_seeds: str
    """In which arms the records have the same seeds; empty if in none."""
    stored: tuple[str, ...] = ()
    """Which verdicts are stored ones, and why."""

    def count(self, outcome: Outcome) -> int:
        return sum(one.difference.outcome == outcome for one in self._checks)

    @property
    def _checks(self) -> list[CheckComparison]:
        return [check for claim in self.claims for check in claim.checks]

    @property
    def compared(self) -> int:
        """Checks that have intervals in both records."""
        return self.count("exceeds") + self.count("within")

    @property
    def apart(self) -> int:
        return sum(one.difference.apart for one in self._checks)

    @property
    def by_chance(self) -> float:
        """How many checks would exceed if nothing differed."""
        return (1 - LEVEL) * self.compared

    @property
    def other_verdicts(self) -> list[str]:
        """The claims whose verdicts differ."""
        return [
            f"{one.id} ({one.first}, {one.second})" for one in self.claims if one.verdict_differs
        ]

    def summary(self) -> list[str]:
        """What was found and how far it can be trusted, one sentence each."""
        lines = ["A and B are the same file, or copies of it."] if self.identical else []
        others = f": {', '.join(self.other_verdicts)}" if self.other_verdicts else ""
        lines.append(
            f"Verdicts: {len(self.other_verdicts)} of {counted(len(self.claims), 'claim')}"
            f" {'has' if len(self.other_verdicts) == 1 else 'have'} other verdicts in B{others}."
        )
        lines.append(
            f"Checks: {self.count('exceeds')} of {self.compared} differences exceed the intervals,"
            f" {self.apart} of them with intervals that do not overlap;"
            f" {self.count('cannot be compared')} cannot be compared."
        )
        if self.compared and not self.identical:
            lines.append(
                f"If nothing differed, about {self.by_chance:.2g} of {self.compared} would exceed"
                " by chance."
            )
        if self.shared_seeds:
            lines.append(
                f"Shared seeds: {self.shared_seeds}. The intervals are not independent, as the"
                " rule takes them to be: numbers that vary together differ unnoticed."
            )
        return [*lines, *(f"Stored verdicts: {one}." for one in self.stored)]

    def plain(self) -> dict[str, Any]:
        """As JSON."""
        counts = {"claims": len(self.claims), "other_verdicts": len(self.other_verdicts)}
        counts |= {"compared": self.compared, "exceed": self.count("exceeds"), "apart": self.apart}
        counts |= {"cannot_be_compared": self.count("cannot be compared")}
        counts |= {"by_chance": self.by_chance, "trajectory_numbers": self.trajectories.numbers}
        counts |= {"trajectory_variables": len(self.trajectories.variables)}
        counts |= {"trajectory_exceed": self.trajectories.exceeding}
        rules = {"checks": RULE, "trajectories": TRAJECTORY_RULE}
        plain = {"rules": rules, "summary": self.summary(), "counts": counts}
        return without_nan(plain | dataclasses.asdict(self))


def compared(
    first: Entry, second: Entry, files: tuple[str, str] = ("A", "B"), identical: bool = False
) -> Comparison:
    """Compare two records of one study, judged by it."""
    (study, a), (other, b) = first, second
    if a.study != b.study:
        got = f"{a.study} ({files[0]}) and {b.study} ({files[1]})"
        raise ConfigError(f"study: got {got}, allowed: two records of one study")
    for file, record in zip(files, (a, b), strict=True):
        if AdaptiveMap.of(record) is not None:
            what = "a map, whose cells are its own"
            raise ConfigError(f"{file}: got {what}, allowed: records of `saccade run`")
    claims, alone = _claims(first, second)
    return Comparison(
        study=a.study,
        title=study.title,
        files=files,
        identical=identical,
        facts=_facts(a, b),
        settings=_differing(_flat(a.config), _flat(b.config)),
        versions=_differing(a.versions, b.versions),
        claims=claims,
        alone=alone,
        trajectories=_trajectories(a, b),
        shared_seeds=_shared_seeds(a, b),
        stored=tuple(dict.fromkeys(note for one in (study, other) if (note := note_of(one)))),
    )


# -- settings --------------------------------------------------------------------------------------


def _facts(a: Record, b: Record) -> tuple[Pair, ...]:
    seeds = [f"{record.seeds} ({_ranges(_seeds_of(record))})" for record in (a, b)]
    facts = [Pair("preset", a.preset, b.preset), Pair("seeds", *seeds)]
    facts += [
        Pair(name, getattr(a, name) or "not known", getattr(b, name) or "not known")
        for name in ("device", "precision", "commit")
    ]
    lost = [_lost(record) for record in (a, b)]
    if lost != ["none", "none"]:  # trajectories are compared over the other members
        facts.append(Pair("members diverged or not trained", *lost))
    return tuple(facts)


def _lost(record: Record) -> str:
    """How many members of each arm have no number at the end."""
    counts = []
    for name, arm in record.arms.items():
        marks = (arm.diverged, arm.not_trained)
        lost = sum(int(one.sum()) for one in marks if one is not None)
        counts += [f"{name}: {lost}"] if lost else []
    return "; ".join(counts) or "none"


def _seeds_of(record: Record) -> set[int]:
    return set().union(*map(_seeds, record.arms.values()))


def _seeds(arm: Arm) -> set[int]:
    known = "seed" in arm.trajectory.coords
    return set(map(int, arm.trajectory["seed"].values)) if known else set()


def _ranges(numbers: Iterable[int]) -> str:
    """As in "0 to 4, 7"."""
    runs: list[list[int]] = []
    for one in sorted(numbers):
        if runs and one == runs[-1][-1] + 1:
            runs[-1][1:] = [one]
        else:
            runs.append([one])
    return ", ".join(" to ".join(map(str, run)) for run in runs) or "not known"


def _shared_seeds(a: Record, b: Record) -> str:
    """Same numbers of seeds in arms of the same name, as in "32 in FC, TC"."""
    counts: dict[int, list[str]] = {}
    for name in a.arms:
        shared = _seeds(a.arms[name]) & _seeds(b.arms[name]) if name in b.arms else set()
        if shared:
            counts.setdefault(len(shared), []).append(name)
    return "; ".join(f"{count} in {', '.join(arms)}" for count, arms in counts.items())


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    """The config as dotted names and values."""
    if not isinstance(value, Mapping) or not value:
        return {name: value} if name else {}
    inner = (_flat(one, f"{name}.{key}".lstrip(".")) for key, one in value.items())
    return {key: one for some in inner for key, one in some.items()}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> tuple[Pair, ...]:
    names = dict.fromkeys((*a, *b))
    pairs = (Pair(name, a.get(name, _ABSENT), b.get(name, _ABSENT)) for name in names)
    return tuple(pair for pair in pairs if pair.differs)


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value)) or "none"
    return tick(value) if isinstance(value, float) else str(value)


# -- claims ----------------------------------------------------------------------------------------

Place = tuple[tuple[tuple[str, float], ...], str, int]
"""Place in a sweep, quantity, and which of the checks with this quantity it is."""


def _claims(first: Entry, second: Entry) -> tuple[tuple[ClaimComparison, ...], tuple[str, ...]]:
    a, b = (
        {
            claim.id: (claim, one)
            for claim, one in zip(study.claims, study.judge(record), strict=True)
        }
        for study, record in (first, second)
    )
    both = sorted(a.keys() & b.keys(), key=natural)
    claims = tuple(_claim(name, a[name][0].statement, a[name][1], b[name][1]) for name in both)
    return claims, _only(sorted(a, key=natural), sorted(b, key=natural))


def _claim(name: str, statement: str, a: Judgement, b: Judgement) -> ClaimComparison:
    first, second = _findings(a), _findings(b)
    checks = tuple(
        CheckComparison(quantity, place, dict(at), one, other, difference(one, other))
        for (at, quantity, place), one in first.items()
        if (other := second.get((at, quantity, place))) is not None
    )
    alone = _only(_places(first, second), _places(second, first))
    why = tuple(
        f"undetermined in {record}: {one.reason}"
        for record, one in (("A", a), ("B", b))
        if one.verdict == "undetermined" and one.reason
    )
    return ClaimComparison(name, statement, a.verdict, b.verdict, checks, alone, why)


def _findings(judgement: Judgement) -> dict[Place, Finding]:
    cells = judgement.cells or (({}, judgement.verdict, judgement.findings),)
    found: dict[Place, Finding] = {}
    for at, _, findings in cells:
        seen: list[str] = []
        for finding in findings:
            found[tuple(at.items()), finding.quantity, seen.count(finding.quantity)] = finding
            seen.append(finding.quantity)
    return found


def _places(findings: Mapping[Place, Finding], other: Mapping[Place, Finding]) -> list[str]:
    """The findings that the other record lacks, with their numbers."""
    return [
        quantity
        + (f" at {', '.join(f'{name} = {tick(one)}' for name, one in at)}" if at else "")
        + f": {measured(finding)}"
        for (at, quantity, place), finding in findings.items()
        if (at, quantity, place) not in other
    ]


def _only(a: Sequence[str], b: Sequence[str]) -> tuple[str, ...]:
    """What only one of two lists has, in words."""
    in_a, in_b = {*a}, {*b}
    return (
        *(f"{one} (only A)" for one in a if one not in in_b),
        *(f"{one} (only B)" for one in b if one not in in_a),
    )


# -- trajectories ----------------------------------------------------------------------------------


def _trajectories(a: Record, b: Record) -> TrajectoryComparison:
    variables, incomparable, alone = [], [], list(_only(_trained(a), _trained(b)))
    for name in (arm for arm in _trained(a) if arm in _trained(b)):
        first, second = (dict(_along(record.arms[name])) for record in (a, b))
        alone += [f"{name}: {one}" for one in _only(list(first), list(second))]
        for variable in (one for one in first if one in second):
            found = _variable(name, variable, first[variable], second[variable])
            if isinstance(found, str):
                incomparable.append((f"{name}, {variable}", found))
            else:
                variables.append(found)
    numbers = sum(one.numbers for one in variables)
    marked = [
        dataclasses.replace(one, exceeds=one.p_value * numbers < 1 - LEVEL) for one in variables
    ]
    marked.sort(key=lambda one: -abs(one.standardised))
    return TrajectoryComparison(tuple(marked), tuple(incomparable), tuple(alone))


def _trained(record: Record) -> list[str]:
    """Arms that have a trajectory."""
    return [name for name, arm in record.arms.items() if arm.trajectory.data_vars]


def _along(arm: Arm) -> Iterator[tuple[str, xr.DataArray]]:
    """The variables that were measured along training, with one number per seed."""
    for name, one in arm.trajectory.data_vars.items():
        if {"seed", "step"} <= set(one.dims) and one.dtype.kind in _NUMERIC:
            yield str(name), one


def _variable(
    arm: str, variable: str, a: xr.DataArray, b: xr.DataArray
) -> VariableComparison | str:
    """Where the means over seeds differ most, or why they cannot be compared."""
    dims = [str(dim) for dim in a.dims if dim not in ("seed", "step")]
    if set(a.dims) != set(b.dims):
        return f"dims {', '.join(map(str, a.dims))} in A, {', '.join(map(str, b.dims))} in B"
    for dim in dims:
        if a.sizes[dim] != b.sizes[dim]:
            return f"{a.sizes[dim]} places along {dim} in A, {b.sizes[dim]} in B"
        if not np.array_equal(a[dim].values, b[dim].values):  # places, where it has no values
            return f"other values of {dim}"
    steps, in_a, in_b = np.intersect1d(a["step"].values, b["step"].values, return_indices=True)
    if not steps.size:
        return "no step that both measured"
    samples = [
        one.isel(step=at).transpose("seed", "step", *dims).values.astype(float)
        for one, at in ((a, in_a), (b, in_b))
    ]
    means, errors, counts = zip(*map(_moments, samples), strict=True)
    known = np.minimum(*counts) >= 2
    if not known.any():
        return "fewer than two seeds with a number"
    with np.errstate(invalid="ignore", divide="ignore"):
        rounding = ROUNDING * np.maximum(*np.abs(means))
        gap = means[1] - means[0]
        ratio = np.where(gap == 0, 0.0, gap / np.sqrt(errors[0] + errors[1] + rounding**2))
    size = np.where(known, np.abs(ratio), -1.0)
    place = np.unravel_index(int(size.argmax()), size.shape)
    at = {dim: a[dim].values[one].item() for dim, one in zip(dims, place[1:], strict=True)}
    return VariableComparison(
        arm=arm,
        variable=variable,
        title=str(a.attrs.get("long_name", variable)),
        step=int(steps[place[0]]),
        at=at,
        first=float(means[0][place]),
        second=float(means[1][place]),
        standardised=float(ratio[place]),
        p_value=_p_value(float(size[place]), int(min(count[place] for count in counts)) - 1),
        numbers=int(known.sum()),
    )


def _moments(sample: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over seeds (the first dim), its squared standard error, and the seeds with a number."""
    finite = np.isfinite(sample)
    count = finite.sum(0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(finite, sample, 0.0).sum(0) / count
        squares = np.where(finite, (sample - mean) ** 2, 0.0).sum(0)
        return mean, squares / (count - 1) / count, count


def _p_value(ratio: float, degrees: int) -> float:
    """Two-sided, by Student's t distribution."""
    from scipy.special import stdtr

    return float(2 * stdtr(degrees, -ratio))
