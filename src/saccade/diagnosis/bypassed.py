"""The model has learned, and attention has no part in it: something else than attention gives the
answer, so that attention gets no signal.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

SHARE, FALLEN = 0.01, 0.5


class Bypassed(AbstractFault):
    title: ClassVar = "attention is bypassed"
    quantity: ClassVar = "rise of the loss with uniform attention, over its fall so far"
    bound: ClassVar = f"below {SHARE:.0%}, after a fall by at least {FALLEN:.0%}"
    why: ClassVar = "calibrated (diagnosis_errors)"
    cause: ClassVar = "the answer reaches the output by another way, such as the word itself"
    remedy: ClassVar = "cut the other way off, or train attention on where to look"
    worst: ClassVar = "smallest"
    needs: ClassVar = ("uniform_loss", "loss")
    how_to_get: ClassVar = "give Watch ablations=True"

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        loss = run["whole_loss"] if "whole_loss" in run else run["loss"]
        first = loss.isel(step=0, drop=True)
        fallen = first - loss
        # Layers may stand in for each other, where they are made uniform one by one.
        several = "all_uniform_loss" in run
        rise = run["all_uniform_loss"] if several else run["uniform_loss"].max("layer")
        rise = rise - loss
        share = rise / fallen.where(fallen > 0)
        return Signs(share, (share < SHARE) & (fallen > FALLEN * first))
