"""What a claim computes from a record, as JSON: what its registration is compared by.

The evidence of a claim is its statement, whether the record is as large as the claim needs, and for
every check its quantity, bound, statistic, premises and samples. A claim is registered for a record
if the evidence of today, from the same record, is the evidence that was stored with it. How a
measure is written does not matter.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import xarray as xr

from saccade.judging.bound import AbstractBound
from saccade.judging.premises import Premise
from saccade.judging.statistics import AbstractStatistic, Finding

TOLERANCE = 1e-6
"""Of the largest of a sample, the bound and the scale of the check: far above the rounding of
float64, in which measures compute, and below every digit that is shown."""


class Asked(Protocol):
    """What a check asks, without its measure."""

    @property
    def quantity(self) -> str: ...
    @property
    def bound(self) -> AbstractBound: ...
    @property
    def statistic(self) -> AbstractStatistic | None: ...
    @property
    def arms(self) -> str | tuple[str, ...]: ...
    @property
    def where(self) -> Mapping[str, Any]: ...
    @property
    def left_out(self) -> str: ...
    @property
    def scale(self) -> float: ...


def evidence_of(
    check: Asked,
    samples: Sequence[xr.DataArray],
    premises: Sequence[Premise],
    unmet: str,
    findings: Sequence[Finding],
) -> dict[str, Any]:
    """What a check has computed, and found in each cell; `unmet` says why it has no samples."""
    results = [_plain(getattr(one, name)) for one in findings for name in ("value", "low", "high")]
    return {
        "quantity": check.quantity,
        "bound": _kind_and_fields(check.bound),
        "statistic": _kind_and_fields(check.statistic),
        "arms": list(check.arms),
        "where": {str(name): _plain(value) for name, value in check.where.items()},
        "left_out": check.left_out,
        "scale": check.scale,
        "premises": [list(premise) for premise in dict.fromkeys(premises)],
        "unmet": unmet,
        "samples": [_sample(one) for one in samples],
        "results": results,
    }


def _sample(sample: xr.DataArray) -> dict[str, Any]:
    ordered = sample.transpose(*sorted(sample.dims, key=str))
    values = np.asarray(ordered.values, np.float64)
    return {
        "dims": {str(dim): int(size) for dim, size in ordered.sizes.items()},
        "values": [_plain(float(value)) for value in values.ravel()],
    }


def _kind_and_fields(value: Any) -> dict[str, Any]:
    """A bound or a statistic: its class, and its fields. A function among them is known by the
    numbers that it gives, which are samples or findings.
    """
    fields = [] if value is None else dataclasses.fields(value)
    values = {field.name: getattr(value, field.name) for field in fields}
    plain = {name: _plain(one) for name, one in values.items() if not callable(one)}
    return {"kind": type(value).__name__, **plain}


def _plain(value: Any) -> Any:
    """JSON without NaN and infinity, which are texts."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, slice):
        return str(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.ndarray):
        return [_plain(one) for one in value.tolist()]
    return value


def differences(stored: Mapping[str, Any], today: Mapping[str, Any]) -> Iterator[str]:
    """In what the evidence of today is not the stored one, in words; nothing if it is the same."""
    for name in ("statement", "needs", "enough"):
        if stored.get(name) != today.get(name):
            yield f"the {name} was {stored.get(name)!r} and is {today.get(name)!r}"
    before, after = stored.get("checks", []), today.get("checks", [])
    if len(before) != len(after):
        yield f"it had {len(before)} checks and has {len(after)}"
        return
    for was, now in zip(before, after, strict=True):
        yield from (f"{now['quantity']}: {text}" for text in _of_check(was, now))


_TEXTS = {
    "quantity": "the quantity",
    "bound": "the bound",
    "statistic": "the statistic",
    "arms": "the arms",
    "where": "the members",
    "left_out": "the reason to leave seeds out",
    "scale": "the scale",
    "premises": "the premises",
}


def _of_check(was: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    for name, text in _TEXTS.items():
        if was.get(name) != now.get(name):
            yield f"{text} changed from {was.get(name)!r} to {now.get(name)!r}"
    if bool(was["unmet"]) != bool(now["unmet"]):
        yield "it had no number and has one" if was["unmet"] else "it had a number and has none"
    size = _size(now)
    if [sample["dims"] for sample in was["samples"]] != [one["dims"] for one in now["samples"]]:
        yield "the samples have other seeds or places"
        return
    pairs = zip(was["samples"], now["samples"], strict=True)
    if not all(_are_alike(old["values"], new["values"], size) for old, new in pairs):
        yield "the samples have other numbers"
    elif not _are_alike(was["results"], now["results"], size):
        yield "the samples are summarised by other numbers"


def _size(check: Mapping[str, Any]) -> float:
    """The bound and the scale, whichever is larger."""
    edges = [float(check["bound"].get(name, 0.0)) for name in ("limit", "low", "high")]
    return max(abs(edge) for edge in (*edges, check["scale"]) if math.isfinite(edge))


def _are_alike(before: Sequence[Any], after: Sequence[Any], size: float) -> bool:
    if len(before) != len(after):
        return False
    old, new = (np.asarray([float(value) for value in values]) for values in (before, after))
    finite = np.isfinite(old) & np.isfinite(new)
    same = np.array_equal(old[~finite], new[~finite], equal_nan=True)
    old, new = old[finite], new[finite]
    largest = np.maximum(np.maximum(abs(old), abs(new)), size)
    return same and bool(np.all(abs(old - new) <= TOLERANCE * largest))
