"""A record made by hand of the study on pretrained encoders in which every claim holds, and edits
that break each check.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr
from record_parts import (
    SEEDS,
    Edit,
    Refutations,
    along,
    at,
    change,
    on,
    per_seed,
    record_of,
    times,
    trained,
)

from saccade.data.topic_model import KINDS, OVERLAPS
from saccade.records.record import Arm, Record
from saccade.studies import topics_pretrained as study
from saccade.studies.topics_pretrained import AT_HAND, PAPERS, RANDOM, THRESHOLDS, TRAINED

STEPS = np.arange(0, 8001, 200)
PLACES = {"overlap": list(OVERLAPS), "threshold": list(THRESHOLDS), "pair": list(KINDS)}
FALLING = ((1.5, 1.4, 1.3), (1.4, 1.3, 1.2))
"""Ratios by overlap and threshold, as in the paper."""


def pairs(ratio: Any, level: float = 0.01) -> xr.DataArray:
    """Same-topic and different-topic means with a ratio."""
    table = level * np.stack([np.asarray(ratio, float), np.ones((2, 3))], axis=-1)
    return xr.DataArray(table, PLACES, ("overlap", "threshold", "pair"))


def _per_head(values: xr.DataArray) -> xr.DataArray:
    return values.expand_dims(layer=2, head=2)


def _measured(ratio: Any, inputs: Any) -> Arm:
    """An encoder, of which seeds differ a little in what is the same for both kinds of pairs."""
    tables = {
        "topic_cosine": pairs(ratio),
        "topic_dot": pairs(ratio),
        "input_cosine": pairs(inputs, 0.3),
        "topic_attention": _per_head(pairs(ratio)),
    }
    return trained(xr.Dataset({name: one * per_seed() for name, one in tables.items()}))


def _trained() -> Arm:
    done = STEPS / STEPS[-1]
    early, late = on("step", STEPS, np.sqrt(done)), on("step", STEPS, done**2)
    same = pairs(FALLING).sel(pair=KINDS[0]) - 0.01
    other = pairs(np.ones((2, 3)))
    first = xr.DataArray([1.0, 0.0], {"pair": list(KINDS)}, ["pair"])
    attention = other + late * first * same
    cosine = early * first * 0.2 * xr.ones_like(other)
    trajectory = along(
        STEPS,
        None,
        {**PLACES, "layer": range(2), "head": range(2)},
        topic_cosine=cosine * per_seed(),
        topic_dot=cosine * per_seed(),
        topic_attention=_per_head(attention) * per_seed(),
        loss=on("step", STEPS, 8 - 3 * done),
    )
    return trained(trajectory)


def pretrained_record() -> Record:
    arms = {name: _measured(FALLING, FALLING) for name in (*PAPERS, *AT_HAND)}
    arms |= {RANDOM: _measured(np.full((2, 3), 1.001), np.full((2, 3), 0.999)), TRAINED: _trained()}
    return record_of("topics_pretrained", study.Config(seeds=SEEDS), arms)


def _with_ratio(name: str, ratio: Any, arm: str) -> Edit:
    """Another ratio, at the end if the arm is a training."""
    table = pairs(ratio).sel(pair=KINDS[0]) / 0.01

    def edited(values: xr.DataArray) -> xr.DataArray:
        other = values.sel(pair=KINDS[1])
        same = (other * table.drop_vars("pair")).assign_coords(pair=KINDS[0])
        same = same.expand_dims("pair").transpose(*values.dims)
        if "step" in values.dims:
            late = values["step"] == values["step"][-1]
            same = same.where(late, values.sel(pair=[KINDS[0]]))
        return xr.concat([same, values.sel(pair=[KINDS[1]])], "pair").transpose(*values.dims)

    return change(arm, name, edited)


ATTENTION = "topic_attention"
FLAT = np.asarray([[1.5, 1.4, 1.04], [1.4, 1.3, 1.03]])
RISING = {
    "disjoint": ((1.5, 1.6, 1.45), (1.4, 1.3, 1.2)),
    "overlapping": ((1.5, 1.4, 1.3), (1.25, 1.29, 1.2)),
}
EXCHANGED = ((1.4, 1.3, 1.2), (1.5, 1.4, 1.3))


def _each(names: Sequence[str], ratio: Any) -> tuple[Edit, ...]:
    return tuple(_with_ratio(ATTENTION, ratio, name) for name in names)


def _models(letter: str, names: Sequence[str]) -> dict[str, tuple[Edit, ...]]:
    falls = [edit for overlap in OVERLAPS for edit in _each(names, RISING[overlap])]
    return {
        f"B-13{letter}": _each(names, FLAT),
        f"B-14{letter}": tuple(falls),
        f"B-15{letter}": _each(names, EXCHANGED),
    }


def _late(values: xr.DataArray) -> xr.DataArray:
    """The same start and end, with all of the rise in the last step."""
    return values.where(values["step"] == values["step"][-1], values.isel(step=0))


_distance = partial(_with_ratio, ratio=np.full((2, 3), 1.02), arm=RANDOM)
_own = _models("c", (TRAINED,))
REFUTATIONS: Refutations = {
    **_models("", PAPERS),
    **_models("b", AT_HAND),
    **_own,
    "B-13c": (
        *_own["B-13c"],
        change(TRAINED, "topic_cosine", at(times(-1), threshold=THRESHOLDS[0])),
    ),
    "B-16": tuple(_distance(name) for name in study.QUANTITIES),
    "B-16b": (_distance("input_cosine"),),
    "B-13d": (change(TRAINED, "topic_cosine", _late),),
}
RECORDS = {"topics_pretrained": pretrained_record}
