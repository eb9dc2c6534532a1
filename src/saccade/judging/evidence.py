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
float64, in which measures compute, and below every digit that is shown. Verdicts, and counts of
seeds, must be the same."""
FLOOR = 1e-15
"""Samples that are nearer are the same: sums of numbers of size one, in another order."""


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
    numbers, words = ("value", "low", "high"), ("verdict", "seeds", "kept", "judged")
    return {
        "quantity": check.quantity,
        "bound": _plain(check.bound),
        "statistic": _plain(check.statistic),
        "arms": _plain(check.arms),
        "where": _plain(check.where),
        "left_out": check.left_out,
        "scale": check.scale,
        "premises": sorted([text, met] for text, met in set(premises)),
        "unmet": unmet,
        "samples": [_sample(one) for one in samples],
        "results": [_plain(getattr(one, name)) for one in findings for name in numbers],
        "outcomes": [[_plain(getattr(one, name)) for name in words] for one in findings],
    }


def has_number(evidence: Mapping[str, Any]) -> bool:
    """Whether any check has found a number."""
    try:
        checks = evidence.get("checks", ())
        return any(value != "nan" for check in checks for value in check["results"][::3])
    except (AttributeError, KeyError, TypeError):
        return True  # it cannot be read, which is another finding than none


def _sample(sample: xr.DataArray) -> dict[str, Any]:
    ordered = sample.transpose(*sorted(sample.dims, key=str))
    values = np.asarray(ordered.values, np.float64)
    return {
        "dims": {str(dim): int(size) for dim, size in ordered.sizes.items()},
        "values": [_plain(float(value)) for value in values.ravel()],
    }


def _plain(value: Any) -> Any:
    """A value as JSON. NaN and infinity are texts; an object is its class and its fields, of which
    functions are known by the numbers that they give.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.ndarray | xr.DataArray):
        return _plain(np.asarray(value).tolist())
    if isinstance(value, slice):
        return str(value)
    kind = type(value)
    fields = dataclasses.fields(value) if dataclasses.is_dataclass(value) else ()
    values = {field.name: getattr(value, field.name) for field in fields}
    plain = {name: _plain(inner) for name, inner in values.items() if not callable(inner)}
    ours = kind.__module__.startswith("saccade.judging.")
    return {"kind": kind.__name__ if ours else f"{kind.__module__}.{kind.__qualname__}", **plain}


def differences(stored: Mapping[str, Any], today: Mapping[str, Any]) -> Iterator[str]:
    """In what the evidence of today is not the stored one, in words; nothing if it is the same."""
    try:
        yield from _differences(stored, today)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        yield f"what was stored cannot be read ({type(error).__name__}: {error})"


_OF_THE_CLAIM = {
    "statement": "the statement",
    "needs": "the size that the claim needs",
    "enough": "whether the record is large enough",
    "verdict": "the verdict",
}


def _differences(stored: Mapping[str, Any], today: Mapping[str, Any]) -> Iterator[str]:
    for name, text in _OF_THE_CLAIM.items():
        if stored.get(name) != today.get(name):
            yield f"{text} changed from {stored.get(name)!r} to {today.get(name)!r}"
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
        before, after = was[name], now[name]
        if name in ("bound", "statistic"):  # a later version of saccade may have more fields
            after = {field: after.get(field) for field in before}
        if before != after:
            yield f"{text} changed from {before!r} to {after!r}"
    if bool(was["unmet"]) != bool(now["unmet"]):
        yield "it had no number and has one" if was["unmet"] else "it had a number and has none"
    size = _size(now)
    if [sample["dims"] for sample in was["samples"]] != [one["dims"] for one in now["samples"]]:
        yield "the samples have other seeds or places"
        return
    pairs = zip(was["samples"], now["samples"], strict=True)
    if not all(_are_alike(old["values"], new["values"], size) for old, new in pairs):
        yield "the samples have other numbers"
    else:
        values = [float(value) for sample in now["samples"] for value in sample["values"]]
        size = max([size, *(abs(value) for value in values if math.isfinite(value))])
        if not _are_alike(was["results"], now["results"], size):
            yield "the samples are summarised by other numbers"
        elif was["outcomes"] != now["outcomes"]:
            yield "the same numbers are judged otherwise"


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
    return same and bool(np.all(abs(old - new) <= np.maximum(TOLERANCE * largest, FLOOR)))
