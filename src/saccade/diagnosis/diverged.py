"""The loss, or what the model gives, stopped being a number."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.core.optimiser import GradientDescent
from saccade.diagnosis.fault import AbstractFault, Signs
from saccade.diagnosis.setup import Setup


class Diverged(AbstractFault):
    title: ClassVar = "the run diverged"
    quantity: ClassVar = "step at which loss or outputs stopped being finite"
    bound: ClassVar = "there is one"
    why: ClassVar = "derived: nothing is learned from NaN"
    cause: ClassVar = "a rate that is too high, or too low a precision"
    remedy: ClassVar = "a lower rate, a warm-up, clipped gradients, or float32"
    worst: ClassVar = "smallest"
    needs: ClassVar = ("diverged_at",)
    severities: ClassVar = (1.0, 10.0, 1e3, 1e8, 1e20)

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        at = run["diverged_at"]
        return Signs(at, (at >= 0) & (at <= run["step"]))

    def planted(self, healthy: Setup) -> Setup | None:
        if not isinstance(healthy.optimiser, GradientDescent):
            return None  # Adam's steps do not grow with the gradient
        free = healthy.changed("optimiser.clip_norm", None)
        return free.swept("optimiser.rate", self.severities)

    def remedies(self, setup: Setup) -> Mapping[str, Setup]:
        return {
            "a tenth of the rate": setup.changed("optimiser.rate", setup.optimiser.rate / 10),
            "gradients clipped at norm 1": setup.changed("optimiser.clip_norm", 1.0),
        }
