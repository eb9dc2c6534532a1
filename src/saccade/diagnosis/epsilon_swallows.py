"""Adam divides by the root of its mean squared gradient plus epsilon. Where that root is no larger
than epsilon, steps shrink with the gradient, and the part hardly moves (Wortsman et al. 2023,
section 3.4).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs


class EpsilonSwallows(AbstractFault):
    title: ClassVar = "Adam's epsilon swallows the gradient"
    quantity: ClassVar = "root of Adam's mean squared gradient, over epsilon"
    bound: ClassVar = "at most 1, and not 0"
    why: ClassVar = "published: Wortsman et al. 2023, section 3.4"
    cause: ClassVar = "gradients are as small as epsilon: a scaled loss, or a large model"
    remedy: ClassVar = "a smaller epsilon, such as 1e-15, or a larger loss"
    worst: ClassVar = "smallest"
    needs: ClassVar = ("second_moment",)
    how_to_get: ClassVar = "give Watch the optimiser, one of Adam's kind"

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        ratio = run["second_moment"]
        return Signs(ratio, (ratio > 0) & (ratio <= 1))  # 0: no gradient comes at all
