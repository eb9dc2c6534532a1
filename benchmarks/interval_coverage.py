"""How often 95 % intervals contain the true number: the table of docs/claims.md.

    python benchmarks/interval_coverage.py [--trials 20000]

Every row draws numbers from a known law many times, makes the interval as a claim does, and counts
how often it contains the truth. The last two rows are what version 0.1 did.
"""

import argparse
import math
from collections.abc import Callable

import numpy as np
import xarray as xr

from saccade.judging.statistics import (
    GeometricMean,
    Mean,
    Pooled,
    Rate,
    RateDifference,
    resampled_interval,
)
from saccade.probes.translation import ratio_of_medians

SIZES = (5, 10, 32)
Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, ...]]
Interval = Callable[..., tuple[float, float]]


def normal(random: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return (random.normal(size=size),)


def lognormal(random: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return (random.lognormal(size=size),)


def coins(random: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return ((random.random(size) < 0.8).astype(float),)


def times(random: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    return random.lognormal(1.0, 0.5, size), random.lognormal(0.0, 0.5, size)


def pairs(random: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    """Successes of 80 % and 50 % that share half of their luck."""
    shared, luck = random.random(size), random.random((2, size))
    mixed = np.where(random.random((2, size)) < 0.5, shared, luck)
    return (mixed[0] < 0.8).astype(float), (mixed[1] < 0.5).astype(float)


def percentile(numbers: np.ndarray) -> tuple[float, float]:
    """The percentile bootstrap of version 0.1, with fewer resamples."""
    chosen = np.random.default_rng(0).integers(0, numbers.size, (500, numbers.size))
    return resampled_interval(numbers[chosen].mean(axis=1))


def pooled(statistic: Pooled | RateDifference) -> Interval:
    def interval(*samples: np.ndarray) -> tuple[float, float]:
        arrays = [xr.DataArray(sample, dims="seed") for sample in samples]
        return statistic.summary(arrays)[1:]

    return interval


MEDIANS = Pooled(function=ratio_of_medians)
ROWS: dict[str, tuple[Draw, Interval, float, float]] = {
    # name: draw, interval, truth, share of the trials
    "`Mean`, normal": (normal, Mean().interval, 0.0, 1.0),
    "`GeometricMean`, lognormal": (lognormal, GeometricMean().interval, 1.0, 1.0),
    "`Mean`, lognormal (use `GeometricMean`)": (lognormal, Mean().interval, math.exp(0.5), 1.0),
    "`Rate`, 80 % succeed": (coins, Rate().interval, 0.8, 1.0),
    "`RateDifference`, paired": (pairs, pooled(RateDifference(paired=True)), 0.3, 0.2),
    "`Pooled`, ratio of medians, lognormal": (times, pooled(MEDIANS), math.e, 0.05),
    "percentile bootstrap, normal": (normal, percentile, 0.0, 0.2),
    "percentile bootstrap, lognormal": (lognormal, percentile, math.exp(0.5), 0.2),
}


def coverage(name: str, size: int, trials: int) -> float:
    """Share of intervals that contain the truth."""
    draw, interval, truth, share = ROWS[name]
    random, inside = np.random.default_rng(size), []
    for _ in range(max(int(share * trials), 1)):
        low, high = interval(*draw(random, size))
        inside.append(low <= truth <= high)
    return float(np.mean(inside))


def table(trials: int) -> str:
    lines = [
        f"| statistic and law | {' | '.join(f'n = {size}' for size in SIZES)} |",
        f"|---|{'---|' * len(SIZES)}",
    ]
    for name in ROWS:
        shares = (f"{coverage(name, size, trials):.1%}" for size in SIZES)
        lines.append(f"| {name} | {' | '.join(shares)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20000)
    print(table(parser.parse_args().trials))
