"""Statistics over seeds and along training. SciPy is imported on use: it takes a second."""

import math

import numpy as np
import xarray as xr

LEVEL = 0.95
RESAMPLES = 4000


def bootstrap_interval(numbers: np.ndarray) -> tuple[float, float]:
    """95 % percentile-bootstrap interval of the mean; the same for the same numbers."""
    if numbers.size < 2:
        return math.nan, math.nan
    if numbers.min() == numbers.max():
        return float(numbers[0]), float(numbers[0])
    if not np.all(np.isfinite(numbers)):
        return float(numbers.min()), float(numbers.max())  # some seed never got there: the range is all there is
    # As scipy.stats.bootstrap does it (tested), without the tenth of a second that it takes a call.
    chosen = np.random.default_rng(0).integers(0, numbers.size, (RESAMPLES, numbers.size))
    low, high = np.percentile(numbers[chosen].mean(axis=1), [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)


def rank_correlation(first: xr.DataArray, second: xr.DataArray, dim: str) -> xr.DataArray:
    """Spearman's rank correlation along a dim; ties share their mean rank."""
    first, second = xr.broadcast(first, second)
    whole = first.notnull() & second.notnull()
    first, second = first.where(whole), second.where(whole)
    return xr.corr(_ranks(first, dim), _ranks(second, dim), dim)


def log_slope(x: xr.DataArray, y: xr.DataArray, dim: str) -> xr.DataArray:
    """Slope of log y against log x along a dim, by least squares: the exponent of a power law. Missing y are left out."""
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
