"""Tokens that enter a layer are nearly one vector: there is nothing to attend to. Attention without
skip connections makes them so, doubly exponentially with depth (Dong et al. 2021); with them, a
residual branch that is too large does (Noci et al. 2022).
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

MOST = 0.95


class RankCollapse(AbstractFault):
    title: ClassVar = "all tokens are alike"
    quantity: ClassVar = "mean cosine of two tokens that enter the layer"
    bound: ClassVar = f"above {MOST:g}"
    why: ClassVar = "calibrated (diagnosis_errors); no published bound is known"
    cause: ClassVar = (
        "deep attention without skip connections, one large part that all tokens share, or a rate "
        "so high that such a part grew"
    )
    remedy: ClassVar = "skip connections, smaller residual branches, normalisation, a lower rate"
    in_pytorch: ClassVar = "states = states + attention(norm(states))"
    in_saccade: ClassVar = "EncoderConfig(skip=1.0)"
    needs: ClassVar = ("token_cosine",)

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        cosine = run["token_cosine"]
        return Signs(cosine, cosine > MOST)
