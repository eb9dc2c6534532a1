"""Statistics over seeds and along training. SciPy is imported on use: it takes a second."""

import math
from collections.abc import Callable

import numpy as np
import xarray as xr

LEVEL = 0.95
RESAMPLES = 4000
POOLED_RESAMPLES = 500
"""Of numbers that a Python function makes of all seeds together."""


def bootstrap_interval(numbers: np.ndarray) -> tuple[float, float]:
    """95 % percentile-bootstrap interval of the mean; the same for the same numbers."""
    if numbers.size < 2:
        return math.nan, math.nan
    if numbers.min() == numbers.max():
        return float(numbers[0]), float(numbers[0])
    if not np.all(np.isfinite(numbers)):
        return float(numbers.min()), float(
            numbers.max()
        )  # some seed never got there: the range is all there is
    # As scipy.stats.bootstrap does it (tested), without the tenth of a second that it takes a call.
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


def fisher_test(first: xr.DataArray, second: xr.DataArray) -> xr.DataArray:
    """Chance (two-sided, Fisher's exact test) of success rates so different, if there were no
    difference.

    A number of all seeds together, for a check by value: it has no interval.
    """
    from scipy import stats

    table = [
        [int((values > 0.5).sum()), int((values <= 0.5).sum())]
        for values in (first.values, second.values)
    ]
    chance = float(stats.fisher_exact(table).pvalue)  # pyright: ignore[reportAttributeAccessIssue]
    seeds = min(int(values.notnull().sum("seed").min()) for values in (first, second))
    return xr.DataArray([chance], dims="resample", attrs={"seeds": seeds})


def difference_of_rates(first: xr.DataArray, second: xr.DataArray) -> xr.DataArray:
    """First success rate less the second, with Newcombe's 95 % interval, which has a width also
    where all runs succeed or fail.
    """
    from scipy import stats

    (rate, low, high), (other, other_low, other_high) = (
        (
            float(values.mean()),
            *stats.binomtest(int((values > 0.5).sum()), values.size).proportion_ci(
                LEVEL, method="wilson"
            ),
        )
        for values in (first.values, second.values)
    )
    down, up = (
        math.hypot(rate - low, other_high - other),
        math.hypot(high - rate, other - other_low),
    )
    seeds = min(values.sizes["seed"] for values in (first, second))
    interval = (rate - other - down, rate - other + up)
    return xr.DataArray(
        [rate - other], dims="resample", attrs={"seeds": seeds, "interval": interval}
    )


def over_all_seeds(statistic: Callable[..., float], *samples: xr.DataArray) -> xr.DataArray:
    """A number of all seeds together, such as a ratio of medians, and the same of bootstrap
    resamples of the seeds.

    The statistic gets plain arrays with the seeds first. Dim `resample`: the first is the sample
    itself. Samples are resampled independently; what they have beside `seed` stays whole. Times of
    seeds that never got there may be infinite.
    """
    random = np.random.default_rng(0)
    arrays = [sample.transpose("seed", ...).values for sample in samples]
    values = [statistic(*arrays)]
    for _ in range(POOLED_RESAMPLES):
        values.append(
            statistic(*(array[random.integers(0, len(array), len(array))] for array in arrays))
        )
    seeds = min(sample.sizes["seed"] for sample in samples)
    return xr.DataArray(np.asarray(values, float), dims="resample", attrs={"seeds": seeds})


def resampled_interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of resampled numbers, some of which may be infinite; NaN if too many of them
    are, to be left out.
    """
    if not values.size or np.isnan(values).mean() > (1 - LEVEL) / 2:
        return math.nan, math.nan
    values = np.sort(values[~np.isnan(values)])
    places = np.round(np.asarray([(1 - LEVEL) / 2, (1 + LEVEL) / 2]) * (values.size - 1)).astype(
        int
    )
    return float(values[places[0]]), float(values[places[1]])


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
