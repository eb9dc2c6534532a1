"""Statistics over seeds: what a check makes of its measured numbers, and how it judges them.

`EverySeed`, `Mean` and `Rate` take one number per seed. `Pooled`, `RateDifference` and `FisherTest`
take one sample per arm (an array with dim `seed`) and give one number of all seeds together.
SciPy is imported on use: it takes a second.
"""

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np
import xarray as xr

from saccade.core.bound import AbstractBound, Verdict
from saccade.core.errors import ConfigError

LEVEL = 0.95
RESAMPLES = 4000
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
    """Seeds that have a number."""
    reason: str = ""


@dataclasses.dataclass(frozen=True)
class AbstractStatistic(ABC):
    """From samples over seeds to a number, its interval and a verdict."""

    seeds: int = 3
    """Fewest seeds for a verdict."""

    def __post_init__(self):
        if not isinstance(self.seeds, int) or self.seeds < 1:
            raise ConfigError(f"seeds: got {self.seeds!r}, allowed: a whole number, at least 1")

    note: ClassVar[str] = ""
    """What the bound's text says of the statistic."""
    per_seed: ClassVar[bool] = True
    """Whether a measure gives one sample with one number per seed, or several samples."""

    @abstractmethod
    def find(
        self,
        quantity: str,
        bound: AbstractBound,
        samples: Sequence[xr.DataArray],
        lost: xr.DataArray,
    ) -> Finding:
        """Judge samples whose only dim is `seed`; `lost` marks the seeds that diverged."""


class _PerSeed(AbstractStatistic):
    """One number per seed; a seed without a number (NaN) is left out and counted."""

    def find(self, quantity, bound, samples, lost):
        (sample,) = samples
        gone = np.broadcast_to(lost.values, sample.shape)
        numbers = sample.values[~gone]
        unmet = int(np.isnan(numbers).sum())
        numbers = numbers[~np.isnan(numbers)]
        reasons = []
        if gone.any():
            reasons.append(f"{int(gone.sum())} of {gone.size} seeds diverged")
        if unmet:
            reasons.append(f"{unmet} of {gone.size} seeds do not meet the premise")
        value = float(numbers.mean()) if numbers.size else math.nan
        low, high = self.interval(numbers) if numbers.size else (math.nan, math.nan)
        verdict, reason = self.judge(bound, numbers, bool(gone.any()), low, high)
        text = f"{bound}{self.note}"
        reasons += [reason] if reason else []
        return Finding(quantity, text, verdict, value, low, high, numbers.size, "; ".join(reasons))

    def interval(self, numbers: np.ndarray) -> tuple[float, float]:
        return bootstrap_interval(numbers)

    def judge(
        self, bound: AbstractBound, numbers: np.ndarray, lost: bool, low: float, high: float
    ) -> tuple[Verdict, str]:
        if lost:
            return "undetermined", ""
        if numbers.size < self.seeds:
            return "undetermined", f"{numbers.size} seeds, {self.seeds} needed"
        if not numbers.size:
            return "undetermined", "no number"
        return _by_interval(bound, float(numbers.mean()), low, high)


class Mean(_PerSeed):
    """The mean over seeds must keep the bound, with its whole bootstrap interval."""


class Rate(_PerSeed):
    """Each seed has a 1 (success) or a 0: the success rate itself is compared with the bound, and
    its exact interval is reported.
    """

    def interval(self, numbers: np.ndarray) -> tuple[float, float]:
        return exact_interval(int((numbers > 0.5).sum()), numbers.size)

    def judge(self, bound, numbers, lost, low, high):
        value = float(numbers.mean()) if numbers.size else math.nan
        return super().judge(bound, numbers, lost, value, value)


class EverySeed(_PerSeed):
    """Each seed must keep the bound; one that diverged does not."""

    note: ClassVar[str] = ", every seed"

    def judge(self, bound, numbers, lost, low, high):
        broken = int(np.sum(~bound.keeps(numbers)))
        if lost:
            return "fails", ""
        if numbers.size < self.seeds:
            short = f"{numbers.size} seeds, {self.seeds} needed"
            return "fails" if broken else "undetermined", short
        return (
            ("fails", f"{broken} of {numbers.size} seeds break the bound")
            if broken
            else ("holds", "")
        )


@dataclasses.dataclass(frozen=True)
class _OfAllSeeds(AbstractStatistic):
    """One number of all seeds together, with an interval."""

    per_seed: ClassVar[bool] = False
    by_value: bool = False
    """Compare the number itself, and report its interval only."""

    @abstractmethod
    def summary(self, samples: Sequence[xr.DataArray]) -> tuple[float, float, float]:
        """The number and its interval."""

    def count(self, samples: Sequence[xr.DataArray]) -> int:
        return min(sample.sizes["seed"] for sample in samples)

    def find(self, quantity, bound, samples, lost):
        value, low, high = self.summary(samples)
        seeds = self.count(samples)
        reason = ""
        if bool(lost.any()):
            verdict, reason = "undetermined", "seeds diverged"
            value = low = high = math.nan
        elif seeds < self.seeds:
            verdict, reason = "undetermined", f"{seeds} seeds, {self.seeds} needed"
        elif math.isnan(value):
            verdict, reason = "undetermined", "no number"
        elif math.isnan(low) and not self.by_value:
            verdict, reason = "undetermined", "no interval"
        else:
            edges = (value, value) if self.by_value else (low, high)
            verdict, reason = _by_interval(bound, value, *edges)
        return Finding(quantity, str(bound), verdict, value, low, high, seeds, reason)


@dataclasses.dataclass(frozen=True)
class Pooled(_OfAllSeeds):
    """A function of whole samples, such as a ratio of medians, with its interval over resampled
    seeds.

    The function gets plain arrays with the seeds first. Samples are resampled independently; what
    they have beside `seed` stays whole. Times of seeds that never got there may be infinite.
    """

    function: Callable[..., float] = dataclasses.field(kw_only=True)
    counted: int | None = dataclasses.field(default=None, kw_only=True)
    """Place of the sample whose seeds are counted; by default the smallest."""

    def count(self, samples):
        return super().count(samples if self.counted is None else [samples[self.counted]])

    def summary(self, samples):
        random = np.random.default_rng(0)
        arrays = [sample.transpose("seed", ...).values for sample in samples]
        resampled = [
            self.function(*(one[random.integers(0, len(one), len(one))] for one in arrays))
            for _ in range(POOLED_RESAMPLES)
        ]
        return self.function(*arrays), *resampled_interval(np.asarray(resampled, float))


class RateDifference(_OfAllSeeds):
    """First success rate less the second, with Newcombe's 95 % interval, which has a width also
    where all runs succeed or fail.
    """

    def summary(self, samples):
        from scipy import stats

        (rate, low, high), (other, other_low, other_high) = (
            (
                float(values.mean()),
                *stats.binomtest(int((values > 0.5).sum()), values.size).proportion_ci(
                    LEVEL, method="wilson"
                ),
            )
            for values in (sample.values for sample in samples)
        )
        down = math.hypot(rate - low, other_high - other)
        up = math.hypot(high - rate, other - other_low)
        return rate - other, rate - other - down, rate - other + up


class FisherTest(_OfAllSeeds):
    """Chance (two-sided, Fisher's exact test) of success rates so different, if there were no
    difference. It has no interval: the number itself is compared.
    """

    def __init__(self, seeds: int = 3):
        super().__init__(seeds, by_value=True)

    def count(self, samples):
        return min(int(sample.notnull().sum("seed").min()) for sample in samples)

    def summary(self, samples):
        from scipy import stats

        table = [
            [int((values > 0.5).sum()), int((values <= 0.5).sum())]
            for values in (sample.values for sample in samples)
        ]
        chance = float(stats.fisher_exact(table).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
        return chance, math.nan, math.nan


def _by_interval(
    bound: AbstractBound, value: float, low: float, high: float
) -> tuple[Verdict, str]:
    """By the interval; one seed has none, and is judged by its number."""
    verdict = bound.verdict(*((value, value) if math.isnan(low) else (low, high)))
    return verdict, "the interval crosses the bound" if verdict == "undetermined" else ""


def bootstrap_interval(numbers: np.ndarray) -> tuple[float, float]:
    """95 % percentile-bootstrap interval of the mean; the same for the same numbers."""
    if numbers.size < 2:
        return math.nan, math.nan
    if numbers.min() == numbers.max():
        return float(numbers[0]), float(numbers[0])
    if not np.all(np.isfinite(numbers)):
        # Some seed never got there: the range is all there is.
        return float(numbers.min()), float(numbers.max())
    # The same as scipy.stats.bootstrap (tested), without the tenth of a second per call.
    chosen = np.random.default_rng(0).integers(0, numbers.size, (RESAMPLES, numbers.size))
    low, high = np.percentile(numbers[chosen].mean(axis=1), [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)


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
