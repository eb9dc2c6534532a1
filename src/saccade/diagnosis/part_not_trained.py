"""A weight matrix of attention does not move at all, or only by weight decay."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

STEPS = 10
"""Steps after which a matrix that learns has moved."""


class PartNotTrained(AbstractFault):
    title: ClassVar = "a part is not trained"
    quantity: ClassVar = "displacement of the weights from their start"
    bound: ClassVar = f"exactly 0 after {STEPS} steps, or moved although no gradient came"
    why: ClassVar = "derived: a gradient that is not exactly 0 moves some weight"
    cause: ClassVar = (
        "the weights are frozen, no group of the optimiser has them, its rate is 0, or their "
        "gradient is exactly 0, as with keys that are all the same"
    )
    remedy: ClassVar = (
        "check requires_grad, that the optimiser gets model.parameters(), its rate, and the keys"
    )
    worst: ClassVar = "smallest"
    needs: ClassVar = ("displacement",)

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        moved = run["displacement"]
        since = moved["step"] - moved["step"][0]
        still = moved == 0
        if "second_moment" in run:
            still = still | (run["second_moment"] == 0)
        return Signs(moved, still & (since >= STEPS))
