"""Queries of a causal model attend to later positions, where the answer stands."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs
from saccade.diagnosis.padding_attended import LEAST
from saccade.diagnosis.setup import Setup


class FutureVisible(AbstractFault):
    title: ClassVar = "later positions are visible"
    quantity: ClassVar = "attention to later positions"
    bound: ClassVar = f"above {LEAST:g}"
    why: ClassVar = "derived: a masked key has weight 0, up to rounding"
    cause: ClassVar = "the causal mask is missing, or turned round"
    remedy: ClassVar = "pass is_causal=True, or a mask that hides keys behind the query"
    needs: ClassVar = ("future_mass",)
    severities: ClassVar = (1e-8, 1e-4, 1.0)

    def reason_not_to_check(self, run: xr.Dataset, about: Mapping[str, Any]) -> str:
        lacking = super().reason_not_to_check(run, about)
        if not lacking and not about.get("causal", False):
            return "the run is not said to be causal (Watch(..., causal=True))"
        return lacking

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        mass = run["future_mass"]
        return Signs(mass, mass > LEAST)

    def planted(self, healthy: Setup) -> Setup | None:
        path = healthy.path("future_weight")
        return healthy.swept(path, self.severities) if healthy.causal and path else None

    def remedies(self, setup: Setup) -> Mapping[str, Setup]:
        path = setup.path("future_weight")
        return {"a causal mask": setup.changed(path, 0.0)} if path else {}
