"""Heads that attend to the first token, whatever it is: a place to put attention that nothing needs
(Gu et al. 2024). Trained language models have them; it is no fault.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

MASS = 0.3


class Sink(AbstractFault):
    title: ClassVar = "a sink at the first word"
    quantity: ClassVar = "attention to the first word"
    bound: ClassVar = f"above {MASS:g}"
    why: ClassVar = "published: Gu et al. 2024"
    cause: ClassVar = "softmax must put its weight somewhere; many trained models choose the first"
    remedy: ClassVar = "none is needed; a gate or a bias of the keys avoids it"
    needs: ClassVar = ("first_mass", "visible_keys")
    is_information: ClassVar = True

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        # With few keys to choose from, uniform attention is above the bound as well.
        mass = run["first_mass"]
        return Signs(mass, (mass > MASS) & (run["visible_keys"] > 3 / MASS))
