"""Keys are nearly the same vector, so that softmax cannot tell them apart: attention is uniform
whatever the query, and the query's gradient, scale Cov_p(g, k), vanishes with the spread of keys
(`theory/kernel_blindness.py`). They share a large part beside which differences are small; or, if
keys do not learn, they are all near 0.

Scores with standard deviation s, small, give an entropy of s^2 / 2 below uniform: 0.01 nat at
s = 0.14.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs, by_layer, of_kind
from saccade.diagnosis.part_not_trained import ROUNDING, STEPS

SPREAD, SCORES = 1e-2, 0.14


class SoftmaxBlind(AbstractFault):
    title: ClassVar = "softmax is blind: keys are alike"
    quantity: ClassVar = "spread of keys, over their norm (or over 1, if keys do not learn)"
    bound: ClassVar = f"below {SPREAD:g}, while scores spread by less than {SCORES:g}"
    why: ClassVar = (
        "derived: such scores lower the entropy by less than 0.01 nat; the bound of the keys is "
        "calibrated (diagnosis_errors)"
    )
    cause: ClassVar = "keys share one large constant part, such as a bias, and differ by little"
    remedy: ClassVar = "take the mean off the keys, enlarge what differs, or a Gaussian kernel"
    worst: ClassVar = "smallest"
    in_pytorch: ClassVar = "torch.optim.Adam(model.parameters(), lr=1e-3)"
    in_saccade: ClassVar = 'EncoderConfig(kernel="gaussian")'
    needs: ClassVar = ("key_spread", "key_norm", "score_spread", "score_reach")

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        spread, norm, reach = (run[name] for name in ("key_spread", "key_norm", "score_reach"))
        ratio = spread / norm.where(norm > 0)
        if "displacement" in run and "part_norm" in run:
            layers = spread.sizes["layer"]
            moved, size = (by_layer(run[name], layers) for name in ("displacement", "part_norm"))
            stay = (of_kind(moved, "key") <= ROUNDING * of_kind(size, "key")).all("part")
        else:  # then keys stay if their norm on the same examples does
            stay = abs(norm - norm.isel(step=0, drop=True)) <= ROUNDING * norm
        stay = stay & (run["step"] - run["step"][0] >= STEPS)
        # Small keys that learn do not stay small; those that do not learn are as good as none.
        ratio = xr.where(stay & (reach < ratio.fillna(1.0)), reach, ratio)
        # Of a kernel that does not normalise, no reach is given: it is not blind.
        blind = (ratio < SPREAD) & (run["score_spread"] < SCORES) & reach.notnull()
        return Signs(ratio.where(reach.notnull()), blind)
