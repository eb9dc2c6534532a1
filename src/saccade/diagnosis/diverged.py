"""The loss, or what the model gives, stopped being a number."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs


class Diverged(AbstractFault):
    title: ClassVar = "the run diverged"
    quantity: ClassVar = "step at which loss or outputs stopped being finite"
    bound: ClassVar = "there is one"
    why: ClassVar = "derived: nothing is learned from NaN"
    cause: ClassVar = "a rate that is too high, or too low a precision"
    remedy: ClassVar = "a lower rate, a warm-up, clipped gradients, or float32"
    worst: ClassVar = "smallest"
    needs: ClassVar = ("diverged_at",)

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        at = run["diverged_at"]
        return Signs(at, (at >= 0) & (at <= run["step"]))
