"""Adam divides by the root of its mean squared gradient plus epsilon. Where that root is no larger
than epsilon, steps shrink with the gradient, and the part hardly moves (Wortsman et al. 2023,
section 3.4).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs, learned_share

DONE = 0.99


class EpsilonSwallows(AbstractFault):
    title: ClassVar = "Adam's epsilon swallows the gradient"
    quantity: ClassVar = "root of Adam's mean squared gradient, over epsilon"
    bound: ClassVar = f"at most 1, and not 0, unless {DONE:.0%} of the loss are gone"
    why: ClassVar = "published, as an order of magnitude: Wortsman et al. 2023, section 3.4"
    cause: ClassVar = "gradients are as small as epsilon: a scaled loss, or a large model"
    remedy: ClassVar = "a smaller epsilon, such as 1e-15, or a larger loss"
    worst: ClassVar = "smallest"
    in_pytorch: ClassVar = "torch.optim.Adam(model.parameters(), lr=rate, eps=1e-15)"
    in_saccade: ClassVar = "Adam(rate, epsilon=1e-15)"
    needs: ClassVar = ("second_moment",)
    how_to_get: ClassVar = "give Watch the optimiser, one of Adam's kind"

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        ratio = run["second_moment"]
        present = (ratio > 0) & (ratio <= 1)  # 0: no gradient comes at all
        if "loss" in run:  # where nothing is left to learn, gradients are small as well
            present = present & ~(learned_share(run) > DONE)
        return Signs(ratio, present)
