"""Tables with intervals, as heat maps: beside those of Snell 2021, and for arms of Song 2024."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from saccade.figures.figure import HeatMap
from saccade.judging.statistics import t_interval


def cell(values: xr.DataArray, digits: int = 1) -> tuple[float, str]:
    """Mean over seeds, and the mean with its interval as a text; with a star if for some seeds the
    number stands for one that does not exist.
    """
    numbers = values.values[np.isfinite(values.values)]
    if not numbers.size:
        return np.nan, "-"
    mean, star = float(numbers.mean()), "*" * bool(values.attrs.get("starred"))
    if numbers.size < 2:
        return mean, f"{mean:.{digits}f}{star}"
    low, high = t_interval(numbers)
    return mean, f"{mean:.{digits}f}{star}\n[{low:.{digits}f}, {high:.{digits}f}]"


def table(
    label: str,
    columns: Sequence[str],
    rows: Mapping[str, Sequence[xr.DataArray | float]],
    digits: int = 1,
) -> HeatMap:
    """Numbers of the paper as they are, ours with intervals."""
    cells = [
        [
            cell(one, digits) if isinstance(one, xr.DataArray) else (one, _written(one))
            for one in row
        ]
        for row in rows.values()
    ]
    values = np.asarray([[cell[0] for cell in row] for row in cells])
    texts = np.asarray([[cell[1] for cell in row] for row in cells], object)
    return HeatMap(label, np.asarray(columns), np.asarray(list(rows)), values, texts=texts)


def _written(number: float) -> str:
    return "n/a" if np.isnan(number) else f"{number:g}"
