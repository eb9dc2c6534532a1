"""Adam divides by the root of its mean squared gradient plus epsilon. Where that root is no larger
than epsilon, steps shrink with the gradient, and the part hardly moves (Wortsman et al. 2023,
section 3.4).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.core.optimiser import Adam
from saccade.diagnosis.fault import AbstractFault, Signs, learned_share
from saccade.diagnosis.setup import Setup

DONE = 0.99


class EpsilonSwallows(AbstractFault):
    title: ClassVar = "Adam's epsilon swallows the gradient"
    quantity: ClassVar = "root of Adam's mean squared gradient, over epsilon"
    bound: ClassVar = f"at most 1, and not 0, unless {DONE:.0%} of the loss are gone"
    why: ClassVar = "published, as an order of magnitude: Wortsman et al. 2023, section 3.4"
    cause: ClassVar = "gradients are as small as epsilon: a scaled loss, or a large model"
    remedy: ClassVar = "a smaller epsilon, such as 1e-15, or a larger loss"
    worst: ClassVar = "smallest"
    needs: ClassVar = ("second_moment",)
    severities: ClassVar = (1e-5, 1e-3, 1e2)
    how_to_get: ClassVar = "give Watch the optimiser, one of Adam's kind"

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        ratio = run["second_moment"]
        present = (ratio > 0) & (ratio <= 1)  # 0: no gradient comes at all
        if "loss" in run:  # where nothing is left to learn, gradients are small as well
            present = present & ~(learned_share(run) > DONE)
        return Signs(ratio, present)

    def planted(self, healthy: Setup) -> Setup | None:
        if not isinstance(healthy.optimiser, Adam):
            return None
        return healthy.swept("optimiser.epsilon", self.severities)

    def remedies(self, setup: Setup) -> Mapping[str, Setup]:
        if not isinstance(setup.optimiser, Adam):
            return {}
        return {"epsilon 1e-15": setup.changed("optimiser.epsilon", 1e-15)}
