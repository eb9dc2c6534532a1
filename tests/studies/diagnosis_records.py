"""A record made by hand of `diagnosis_errors` in which every claim holds, and edits that break each
check.
"""

from typing import Any

import numpy as np
import xarray as xr
from record_parts import Refutations, change, record_of, trained

from saccade.across.planted import PLANTINGS
from saccade.across.setups import EARLY, SEVERITY
from saccade.records.record import Arm, Record
from saccade.studies.diagnosis_errors import (
    FAMILIES,
    HEALTHY,
    LEFT_OUT,
    NUMBERS,
    PLANTED,
    RECURRENT,
    Config,
    planted,
)

NAMES = (*FAMILIES, RECURRENT)
CONFIG = Config()


def _faulty(name: str) -> Arm:
    """Named from the third severity on, at the end."""
    families = [family for family in planted(name) for _ in range(-(-36 // len(planted(name))))]
    # Decoders first, so that two runs of an arm are of the family that was left out.
    families.sort(key=lambda family: family != LEFT_OUT)
    runs, severities = len(families), len(PLANTINGS[type(PLANTED[name])].severities)
    cause = np.zeros((severities, runs, 2))
    cause[2:, :, 1] = NUMBERS[PLANTED[name]]
    dims = (SEVERITY, "seed", "step")
    data = {
        "cause": (dims, cause),
        # The step of divergence is that of the whole run.
        "number": (dims[:2], cause[..., 0]) if name == "diverged" else (dims, cause),
        "family": ("seed", [float(NAMES.index(family)) for family in families]),
    }
    axes = {SEVERITY: range(1, severities + 1), "seed": range(runs), "step": [EARLY, 1.0]}
    return trained(xr.Dataset(data, axes))  # pyright: ignore[reportArgumentType]


def _healthy() -> Arm:
    runs = 72
    families = [float(at // 24) for at in range(runs)]
    data = {
        "cause": (("seed", "step"), np.zeros((runs, 2))),
        "relative_loss": (
            ("seed", "step"),
            np.full((runs, 2), 0.5) + np.arange(runs)[:, None] / 300,
        ),
        "diverged_at": ("seed", np.full(runs, -1)),
        "family": ("seed", families),
    }
    return trained(xr.Dataset(data, {"seed": range(runs), "step": [EARLY, 1.0]}))  # pyright: ignore[reportArgumentType]


def diagnosis_record() -> Record:
    arms = {HEALTHY: _healthy()} | {name: _faulty(name) for name in PLANTED}
    return record_of("diagnosis_errors", CONFIG, arms)


RECORDS: dict[str, Any] = {"diagnosis_errors": diagnosis_record}


def _unnamed(values: xr.DataArray) -> xr.DataArray:
    """Another fault is named in half of the runs: in those that are no decoders."""
    return values.where(values["seed"] < 18, 99)


def _decoder_unnamed(values: xr.DataArray) -> xr.DataArray:
    return values.where(values["seed"] >= 18, 99)


def _alarmed(values: xr.DataArray) -> xr.DataArray:
    return values.where(values["seed"] >= 20, 3)


def _late(values: xr.DataArray) -> xr.DataArray:
    return values.where(values["seed"] != 5, 1.2)


DECODED = [name for name in PLANTED if LEFT_OUT in planted(name)]


CLAIMS = {name: f"F-{place}" for place, name in enumerate(PLANTED, 3)}
LAST = f"F-{3 + len(PLANTED)}"
REFUTATIONS: Refutations = {
    "F-1": [change(HEALTHY, "relative_loss", _late)],
    "F-2": [change(HEALTHY, "cause", _alarmed)],
    **{CLAIMS[name]: [change(name, "cause", _unnamed)] for name in PLANTED},
    LAST: [change(" ".join(DECODED), "cause", _decoder_unnamed)],
}
TOGETHER = {LAST: {CLAIMS[name] for name in DECODED}, CLAIMS["future_visible"]: {LAST}}
"""Decoders are half of the runs of most faults, and all of those that see later positions."""
