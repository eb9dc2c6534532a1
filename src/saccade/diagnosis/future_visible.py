"""Queries of a causal model attend to later positions, where the answer stands."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs
from saccade.diagnosis.padding_attended import LEAST


class FutureVisible(AbstractFault):
    title: ClassVar = "later positions are visible"
    quantity: ClassVar = "attention to later positions"
    bound: ClassVar = f"above {LEAST:g}"
    why: ClassVar = "derived: a masked key has weight 0, up to rounding"
    cause: ClassVar = "the causal mask is missing, or turned round"
    remedy: ClassVar = "pass is_causal=True, or a mask that hides keys behind the query"
    in_pytorch: ClassVar = (
        "scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)"
    )
    in_saccade: ClassVar = "EncoderConfig(future_weight=0.0)"
    needs: ClassVar = ("future_mass",)

    def reason_not_to_check(self, run: xr.Dataset, about: Mapping[str, Any]) -> str:
        lacking = super().reason_not_to_check(run, about)
        if not lacking and not about.get("causal", False):
            return "the run is not said to be causal (Watch(..., causal=True))"
        return lacking

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        mass = run["future_mass"]
        return Signs(mass, mass > LEAST)
