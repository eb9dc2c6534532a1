"""The loss, or what the model gives, stopped being a number, or is far above where it began: a
cross-entropy may stay finite however large the weights are.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

RUN_AWAY = 100.0


class Diverged(AbstractFault):
    title: ClassVar = "the run diverged"
    quantity: ClassVar = "step at which loss or outputs stopped being finite, or the loss ran away"
    bound: ClassVar = f"there is one: no number, or a loss {RUN_AWAY:g} times the first (or 1)"
    why: ClassVar = "derived: nothing is learned from NaN, nor far above the first loss"
    cause: ClassVar = "a rate that is too high, or too low a precision"
    remedy: ClassVar = "a lower rate, a warm-up, clipped gradients, or float32"
    worst: ClassVar = "smallest"
    in_pytorch: ClassVar = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    in_saccade: ClassVar = "GradientDescent(rate / 10, clip_norm=1.0)"
    needs: ClassVar = ("diverged_at",)

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        at, steps = run["diverged_at"], run["step"]
        gone = (at >= 0) & (at <= steps)
        first = at.where(at >= 0)
        if "loss" in run:
            begun = abs(run["loss"].isel(step=0, drop=True))
            high = run["loss"] > RUN_AWAY * begun.where(begun > 1, 1.0)
            first = xr.where(at >= 0, at, steps.where(high).min("step"))
            gone = gone | high
        return Signs(first, gone)
