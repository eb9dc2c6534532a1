"""Keys are nearly the same vector, so that softmax cannot tell them apart: attention is uniform
whatever the query, and the query's gradient, scale Cov_p(g, k), vanishes with the spread of keys
(`theory/kernel_blindness.py`).

Scores with standard deviation s, small, give an entropy of s^2 / 2 below uniform: 0.01 nat at
s = 0.14.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

SPREAD, SCORES = 1e-2, 0.14


class SoftmaxBlind(AbstractFault):
    title: ClassVar = "softmax is blind: keys are alike"
    quantity: ClassVar = "spread of keys over their norm"
    bound: ClassVar = f"below {SPREAD:g}, while scores spread by less than {SCORES:g}"
    why: ClassVar = (
        "derived: such scores lower the entropy by less than 0.01 nat; the bound of the keys is "
        "provisional, not calibrated"
    )
    cause: ClassVar = "keys share one large constant part, such as a bias, and differ by little"
    remedy: ClassVar = "take the mean off the keys, enlarge what differs, or a Gaussian kernel"
    worst: ClassVar = "smallest"
    needs: ClassVar = ("key_spread", "key_norm", "score_spread")

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        ratio = run["key_spread"] / run["key_norm"]
        return Signs(ratio, (ratio < SPREAD) & (run["score_spread"] < SCORES))
