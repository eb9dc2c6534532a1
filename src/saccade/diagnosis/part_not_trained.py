"""A weight matrix of attention does not move at all, or only by weight decay."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

STEPS = 10
"""Steps after which a matrix that learns has moved."""
ROUNDING = 1e-6
"""Of the norm: a start that is computed again may differ by some units of the last digit."""


class PartNotTrained(AbstractFault):
    title: ClassVar = "a part is not trained"
    quantity: ClassVar = "displacement of the weights from their start"
    bound: ClassVar = f"0, up to rounding, after {STEPS} steps, or moved although no gradient came"
    why: ClassVar = "derived: a gradient that is not exactly 0 moves some weight"
    cause: ClassVar = (
        "the weights are frozen, no group of the optimiser has them, its rate is 0, or their "
        "gradient is exactly 0, as with keys that are all the same"
    )
    remedy: ClassVar = (
        "check requires_grad, that the optimiser gets model.parameters(), its rate, and the keys"
    )
    worst: ClassVar = "smallest"
    in_pytorch: ClassVar = (
        "[name for name, part in model.named_parameters() if not part.requires_grad]"
    )
    in_saccade: ClassVar = "Adam(rate, parts=())"
    needs: ClassVar = ("displacement",)

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        moved = run["displacement"]
        since = moved["step"] - moved["step"][0]
        still = moved <= ROUNDING * run["part_norm"] if "part_norm" in run else moved == 0
        if "second_moment" in run:
            still = still | (run["second_moment"] == 0)
        return Signs(moved, still & (since >= STEPS))
