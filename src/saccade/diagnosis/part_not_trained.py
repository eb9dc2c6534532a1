"""A weight matrix of attention does not move at all."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

STEPS = 10
"""Steps after which a matrix that learns has moved."""


class PartNotTrained(AbstractFault):
    title: ClassVar = "a part is not trained"
    quantity: ClassVar = "displacement of the weights from their start"
    bound: ClassVar = f"exactly 0 after {STEPS} steps or more"
    why: ClassVar = "derived: a gradient that is not exactly 0 moves some weight"
    cause: ClassVar = (
        "the weights are frozen, no group of the optimiser has them, or their gradient is exactly "
        "0, as with keys that are all the same"
    )
    remedy: ClassVar = (
        "check requires_grad, that the optimiser gets model.parameters(), and the keys"
    )
    worst: ClassVar = "smallest"
    needs: ClassVar = ("displacement",)

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        moved = run["displacement"]
        since = moved["step"] - moved["step"][0]
        return Signs(moved, (moved == 0) & (since >= STEPS))
