"""A head adds next to nothing to its layer. The number is taken behind the output matrix, where
heads are added; before it a head with outputs of 0 would pass for active.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

LEAST, RISE = 0.1, 1e-3


class InactiveHead(AbstractFault):
    title: ClassVar = "a head adds nothing"
    quantity: ClassVar = "norm of what the head adds, over the mean of its layer"
    bound: ClassVar = f"below {LEAST:g}, and the loss rises by less than {RISE:.1%} without it"
    why: ClassVar = "calibrated (diagnosis_errors)"
    cause: ClassVar = "its values and outputs are 0, or so small that their gradients are"
    remedy: ClassVar = "fewer heads, or another initialisation of this one"
    worst: ClassVar = "smallest"
    needs: ClassVar = ("head_norm",)

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        norm = run["head_norm"]
        mean = norm.mean("head")
        share = norm / mean.where(mean > 0)
        present = share < LEAST
        if "removed_loss" in run:
            loss = run["whole_loss"] if "whole_loss" in run else run["loss"]
            present = present & (run["removed_loss"] - loss < RISE * abs(loss))
        return Signs(share, present)
