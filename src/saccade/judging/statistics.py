"""Statistics over seeds: what a check makes of its measured numbers, and how it judges them.

`EverySeed`, `Mean`, `GeometricMean` and `Rate` take one number per seed. `Pooled`,
`RateDifference`, `FisherTest` and `McNemarTest` take one sample per arm (an array with dim `seed`)
and give one number of all seeds together. `Deterministic` takes a number that no seed enters.
SciPy is imported on use: it takes a second.
"""

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import xarray as xr

from saccade.errors import ConfigError
from saccade.judging.bound import AbstractBound, Verdict

LEVEL = 0.95
POOLED_RESAMPLES = 500
"""Of numbers that a Python function makes of all seeds together."""


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
    """Seeds that have a number; 0 if no seed enters it."""
    reason: str = ""
    kept: int | None = None
    """Seeds that keep the bound, where every seed must."""
    judged: int | None = None
    """Seeds that must keep it: those with a number, and those that count against the claim."""


@dataclasses.dataclass(frozen=True)
class AbstractStatistic(ABC):
    """From samples over seeds to a number, its interval and a verdict."""

    seeds: int = 3
    """Fewest seeds for a verdict."""

    def __post_init__(self):
        if not isinstance(self.seeds, int) or self.seeds < 1:
            raise ConfigError(f"seeds: got {self.seeds!r}, allowed: a whole number, at least 1")

    per_seed: ClassVar[bool] = True
    """Whether a measure gives one sample with one number per seed, or several samples."""
    seedless: ClassVar[bool] = False
    """Whether a measure may give a number without dim `seed`."""

    @property
    def note(self) -> str:
        """What the bound's text says of the statistic."""
        return ""

    @property
    def takes_arrays(self) -> bool:
        """Whether `find_in` judges plain arrays as `find` would, which is quicker."""
        return False

    def find_in(
        self,
        quantity: str,
        bound: AbstractBound,
        sample: np.ndarray,
        gone: np.ndarray,
        left_out: str = "",
    ) -> Finding:
        """`find` for one number per seed, given with the seeds that diverged."""
        raise NotImplementedError

    @abstractmethod
    def find(
        self,
        quantity: str,
        bound: AbstractBound,
        samples: Sequence[xr.DataArray],
        lost: xr.DataArray,
        left_out: str = "",
    ) -> Finding:
        """Judge samples whose only dim is `seed`; `lost` marks the seeds that diverged. Seeds
        without a number (NaN) count against the claim unless `left_out` says why not.
        """


class _PerSeed(AbstractStatistic):
    """One number per seed."""

    @property
    def takes_arrays(self) -> bool:
        return type(self).find is _PerSeed.find

    def find(self, quantity, bound, samples, lost, left_out=""):
        (sample,) = samples
        gone = np.broadcast_to(lost.values, sample.shape)
        return self.find_in(quantity, bound, sample.values, gone, left_out)

    def find_in(self, quantity, bound, sample, gone, left_out=""):
        numbers = sample[~gone]
        unmet = int(np.isnan(numbers).sum())
        numbers = numbers[~np.isnan(numbers)]
        reasons = []
        if gone.any():
            reasons.append(f"{int(gone.sum())} of {gone.size} seeds diverged")
        if unmet:
            why = f", left out: {left_out}" if left_out else ""
            reasons.append(f"{unmet} of {gone.size} seeds have no number{why}")
        value = self.value(numbers) if numbers.size else math.nan
        low, high = self.interval(numbers) if numbers.size else (math.nan, math.nan)
        against = bool(gone.any()) or (unmet > 0 and not left_out)
        verdict, reason = self.judge(bound, numbers, against, value, low, high)
        reasons += [reason] if reason else []
        text, seeds, why = f"{bound}{self.note}", numbers.size, "; ".join(reasons)
        kept = self.kept(bound, numbers)
        judged = gone.size - (unmet if left_out else 0) if kept is not None else None
        return Finding(quantity, text, verdict, value, low, high, seeds, why, kept, judged)

    def kept(self, bound: AbstractBound, numbers: np.ndarray) -> int | None:
        """How many seeds keep the bound, where every seed must."""
        return None

    def value(self, numbers: np.ndarray) -> float:
        return float(numbers.mean())

    def interval(self, numbers: np.ndarray) -> tuple[float, float]:
        return t_interval(numbers)

    def judge(
        self,
        bound: AbstractBound,
        numbers: np.ndarray,
        against: bool,
        value: float,
        low: float,
        high: float,
    ) -> tuple[Verdict, str]:
        """The verdict; `against`: some seeds diverged, or have no number without a reason."""
        if against:
            return "undetermined", ""
        if numbers.size < self.seeds:
            return "undetermined", f"{numbers.size} seeds, {self.seeds} needed"
        if not numbers.size or math.isnan(value):
            return "undetermined", "no number"
        return _by_interval(bound, value, low, high)


class Mean(_PerSeed):
    """The mean over seeds must keep the bound, with its whole t interval."""


class GeometricMean(_PerSeed):
    """The geometric mean of positive, skewed numbers must keep the bound, with the whole t interval
    of the logarithms.
    """

    @property
    def note(self) -> str:
        return ", geometric mean"

    def value(self, numbers: np.ndarray) -> float:
        return float(np.exp(np.log(numbers).mean())) if numbers.min() > 0 else math.nan

    def interval(self, numbers: np.ndarray) -> tuple[float, float]:
        if numbers.min() <= 0:
            return math.nan, math.nan
        with np.errstate(over="ignore"):  # few, very different numbers
            low, high = np.exp(t_interval(np.log(numbers)))
        return float(low), float(high)

    def judge(self, bound, numbers, against, value, low, high):
        if numbers.size and numbers.min() <= 0 and not against:
            return "undetermined", f"the number {numbers.min():g} has no logarithm"
        return super().judge(bound, numbers, against, value, low, high)


@dataclasses.dataclass(frozen=True)
class Rate(_PerSeed):
    """Each seed has a 1 (success) or a 0: the exact interval of the success rate must keep the
    bound.
    """

    by_value: bool = False
    """Compare the rate itself, where a claim states a count; the interval is reported only."""

    @property
    def note(self) -> str:
        return ", by count" if self.by_value else ""

    def interval(self, numbers: np.ndarray) -> tuple[float, float]:
        return exact_interval(int((numbers > 0.5).sum()), numbers.size)

    def judge(self, bound, numbers, against, value, low, high):
        edges = (value, value) if self.by_value else (low, high)
        return super().judge(bound, numbers, against, value, *edges)


class EverySeed(_PerSeed):
    """Each seed must keep the bound; one that diverged, or has no number, does not. How many seeds
    keep it is reported, beside the mean and its interval.
    """

    @property
    def note(self) -> str:
        return ", every seed"

    def kept(self, bound, numbers):
        return int(np.sum(bound.keeps(numbers)))

    def judge(self, bound, numbers, against, value, low, high):
        broken = numbers.size - self.kept(bound, numbers)
        if against:
            return "fails", ""
        if broken:
            return "fails", f"{broken} of {numbers.size} seeds break the bound"
        if numbers.size < self.seeds:
            return "undetermined", f"{numbers.size} seeds, {self.seeds} needed"
        return "holds", ""


class Deterministic(AbstractStatistic):
    """A number that no seed enters: it is compared as it is. Seeds that differ, by more than the
    rounding of a parallel program, are an error.
    """

    per_seed: ClassVar[bool] = True
    seedless: ClassVar[bool] = True

    def __init__(self):
        super().__init__(1)

    @property
    def note(self) -> str:
        return ", no seed enters"

    def find(self, quantity, bound, samples, lost, left_out=""):
        (sample,) = samples
        numbers = np.ravel(sample.values)
        if not np.allclose(numbers, numbers[0], rtol=1e-6, atol=1e-12, equal_nan=True):
            raise ConfigError(
                f"check {quantity!r}: got numbers that differ between seeds, "
                "allowed for Deterministic: one number"
            )
        value, diverged = float(numbers[0]), bool(lost.any())
        kept = bool(np.all(bound.keeps(numbers))) and not diverged
        verdict: Verdict = "holds" if kept else "fails"
        reason = "diverged" if diverged else "no number" if math.isnan(value) else ""
        text = f"{bound}{self.note}"
        return Finding(quantity, text, verdict, value, math.nan, math.nan, 0, reason)


@dataclasses.dataclass(frozen=True)
class _OfAllSeeds(AbstractStatistic):
    """One number of all seeds together, with an interval."""

    per_seed: ClassVar[bool] = False
    by_value: bool = False
    """Compare the number itself, where a claim states one; the interval is reported only."""
    paired: bool = False
    """Whether the samples are of the same seeds."""

    @property
    def note(self) -> str:
        return ", by value" if self.by_value else ""

    @abstractmethod
    def summary(self, samples: Sequence[xr.DataArray]) -> tuple[float, float, float]:
        """The number and its interval."""

    def count(self, samples: Sequence[xr.DataArray]) -> int:
        return min(sample.sizes["seed"] for sample in samples)

    def find(self, quantity, bound, samples, lost, left_out=""):
        sizes = [one.sizes["seed"] for one in samples]
        named = [one["seed"].values.tolist() for one in samples if "seed" in one.coords]
        if self.paired and any(one != some[0] for some in (sizes, named) for one in some):
            why = "got pairs of other seeds, allowed: the same for both"
            raise ConfigError(f"check {quantity!r}: {why}")
        samples, missing = _with_numbers(samples, self.paired)
        seeds, reasons = self.count(samples), []
        if missing:
            why = f", left out: {left_out}" if left_out else ""
            reasons.append(f"{missing} seeds have no number{why}")
        value, low, high = self.summary(samples) if seeds else (math.nan,) * 3
        verdict: Verdict = "undetermined"
        if bool(lost.any()):
            reasons.append("seeds diverged")
            value = low = high = math.nan
        elif seeds < self.seeds:
            reasons.append(f"{seeds} seeds, {self.seeds} needed")
        elif math.isnan(value):
            reasons.append("no number")
        elif math.isnan(low) and not self.by_value:
            reasons.append("no interval")
        elif not missing or left_out:
            edges = (value, value) if self.by_value else (low, high)
            verdict, reason = _by_interval(bound, value, *edges)
            reasons += [reason] if reason else []
        text = f"{bound}{self.note}"
        return Finding(quantity, text, verdict, value, low, high, seeds, "; ".join(reasons))


@dataclasses.dataclass(frozen=True)
class Pooled(_OfAllSeeds):
    """A function of whole samples, such as a ratio of medians, with its interval over resampled
    seeds.

    The function gets plain arrays with the seeds first. Samples are resampled independently, or
    with the same seeds if they are paired; what they have beside `seed` stays whole. Times of seeds
    that never got there may be infinite.
    """

    function: Callable[..., float] = dataclasses.field(kw_only=True)
    counted: int | None = dataclasses.field(default=None, kw_only=True)
    """Place of the sample whose seeds are counted; by default the smallest."""

    def count(self, samples):
        return super().count(samples if self.counted is None else [samples[self.counted]])

    def summary(self, samples):
        random = np.random.default_rng(0)
        arrays = [sample.transpose("seed", ...).values for sample in samples]

        def drawn() -> list[np.ndarray]:
            if self.paired:
                chosen = random.integers(0, len(arrays[0]), len(arrays[0]))
                return [one[chosen] for one in arrays]
            return [one[random.integers(0, len(one), len(one))] for one in arrays]

        resampled = [self.function(*drawn()) for _ in range(POOLED_RESAMPLES)]
        return self.function(*arrays), *resampled_interval(np.asarray(resampled, float))


class RateDifference(_OfAllSeeds):
    """First success rate less the second, with Newcombe's 95 % interval, which has a width also
    where all runs succeed or fail.

    Independent samples: method 10 of Newcombe (1998), Statistics in Medicine 17, 873-890. Pairs:
    method 10 of Newcombe (1998), Statistics in Medicine 17, 2635-2650.
    """

    def summary(self, samples):
        from scipy import stats

        first, second = (sample.values > 0.5 for sample in samples)
        (rate, low, high), (other, other_low, other_high) = (
            (
                float(hits.mean()),
                *stats.binomtest(int(hits.sum()), hits.size).proportion_ci(LEVEL, method="wilson"),
            )
            for hits in (first, second)
        )
        together = _adjusted_correlation(first, second) if self.paired else 0.0
        down = _hypotenuse(rate - low, other_high - other, together)
        up = _hypotenuse(high - rate, other - other_low, together)
        return rate - other, rate - other - down, rate - other + up


def _adjusted_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Correlation of paired outcomes; a positive one is less, because few pairs overstate it."""
    table = [int((one & other).sum()) for one in (first, ~first) for other in (second, ~second)]
    both, only_first, only_second, none = table
    excess = both * none - only_first * only_second
    excess = max(excess - first.size / 2, 0.0) if excess > 0 else excess
    margins = first.sum() * (~first).sum() * second.sum() * (~second).sum()
    return float(excess / math.sqrt(margins)) if margins else 0.0


def _hypotenuse(first: float, second: float, correlation: float) -> float:
    return math.sqrt(max(first**2 - 2 * correlation * first * second + second**2, 0.0))


class _Test(_OfAllSeeds):
    """A p-value. It has no interval: the number itself is compared."""

    same_seeds: ClassVar[bool]

    def __init__(self, seeds: int = 3):
        super().__init__(seeds, by_value=True, paired=self.same_seeds)

    @property
    def note(self) -> str:
        return ""


class FisherTest(_Test):
    """Chance (two-sided, Fisher's exact test) of success rates so different, if there were no
    difference, for arms that share nothing.
    """

    same_seeds: ClassVar[bool] = False

    def summary(self, samples):
        from scipy import stats

        table = [
            [int((values > 0.5).sum()), int((values <= 0.5).sum())]
            for values in (sample.values for sample in samples)
        ]
        chance = float(stats.fisher_exact(table).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
        return chance, math.nan, math.nan


class McNemarTest(_Test):
    """Chance (two-sided, McNemar's exact test) that the seeds which succeed in one arm only are so
    unevenly divided, if there were no difference, for arms that share their seeds.
    """

    same_seeds: ClassVar[bool] = True

    def summary(self, samples):
        from scipy import stats

        first, second = (sample.values > 0.5 for sample in samples)
        only_first, only_second = int((first & ~second).sum()), int((second & ~first).sum())
        differing = only_first + only_second
        chance = stats.binomtest(only_first, differing).pvalue if differing else 1.0
        return float(chance), math.nan, math.nan


def _with_numbers(samples: Sequence[xr.DataArray], paired: bool) -> tuple[list[xr.DataArray], int]:
    """The samples without seeds that have a NaN, and how many seeds that are."""
    whole = [
        sample.notnull().all([dim for dim in sample.dims if dim != "seed"]) for sample in samples
    ]
    if paired:
        together = np.logical_and.reduce([one.values for one in whole])
        whole = [one.copy(data=together) for one in whole]
    kept = [one.isel(seed=there.values) for one, there in zip(samples, whole, strict=True)]
    missing = [int((~there).sum()) for there in whole]
    return kept, missing[0] if paired else sum(missing)


def _by_interval(
    bound: AbstractBound, value: float, low: float, high: float
) -> tuple[Verdict, str]:
    """By the interval; one seed has none, and is judged by its number."""
    verdict = bound.verdict(*((value, value) if math.isnan(low) else (low, high)))
    return verdict, "the interval crosses the bound" if verdict == "undetermined" else ""


def t_interval(numbers: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean by Student's t distribution."""
    if numbers.size < 2:
        return math.nan, math.nan
    if numbers.min() == numbers.max():
        return float(numbers[0]), float(numbers[0])
    if not np.all(np.isfinite(numbers)):
        # Some seed never got there: the range is all there is.
        return float(numbers.min()), float(numbers.max())
    error = numbers.std(ddof=1) / math.sqrt(numbers.size)
    half, mean = float(_t_quantile(numbers.size - 1) * error), float(numbers.mean())
    return mean - half, mean + half


@functools.cache
def _t_quantile(degrees: int) -> np.float64:
    from scipy.special import stdtrit

    return stdtrit(degrees, (1 + LEVEL) / 2)


def exact_interval(successes: int, trials: int) -> tuple[float, float]:
    """95 % interval of a success rate after Clopper and Pearson: exact, also where all trials
    succeed or all fail.
    """
    if trials == 0:
        return math.nan, math.nan
    from scipy import stats

    interval = stats.binomtest(successes, trials).proportion_ci(LEVEL, method="exact")
    return float(interval.low), float(interval.high)


def resampled_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of resampled numbers, some of which may be infinite; NaN if too many of them
    are NaN to be left out.
    """
    if not values.size or np.isnan(values).mean() > (1 - LEVEL) / 2:
        return math.nan, math.nan
    values = np.sort(values[~np.isnan(values)])
    edges = np.asarray([(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    low, high = np.round(edges * (values.size - 1)).astype(int)
    return float(values[low]), float(values[high])


def rank_correlation(first: xr.DataArray, second: xr.DataArray, dim: str) -> xr.DataArray:
    """Spearman's rank correlation along a dim; ties share their mean rank."""
    first, second = xr.broadcast(first, second)
    whole = first.notnull() & second.notnull()
    first, second = first.where(whole), second.where(whole)
    return xr.corr(_ranks(first, dim), _ranks(second, dim), dim)


def log_slope(x: xr.DataArray, y: xr.DataArray, dim: str) -> xr.DataArray:
    """Slope of log y against log x along a dim, by least squares: the exponent of a power law.
    Missing y are left out.
    """
    log_y = xr.ufuncs.log(y.where(y > 0))
    log_x = xr.ufuncs.log(x).where(log_y.notnull())
    deviation = log_x - log_x.mean(dim)
    return (deviation * (log_y - log_y.mean(dim))).sum(dim) / (deviation**2).sum(dim)


def _ranks(values: xr.DataArray, dim: str) -> xr.DataArray:
    from scipy import stats

    ranked = xr.apply_ufunc(
        lambda array: stats.rankdata(array, axis=-1, nan_policy="omit"),
        values,
        input_core_dims=[[dim]],
        output_core_dims=[[dim]],
    )
    return ranked.where(values.notnull())
