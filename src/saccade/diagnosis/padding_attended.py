"""Queries attend to padding: what they get depends on how long other texts of the batch are."""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

LEAST = 1e-6
"""A masked key has weight 0; this is ten times the rounding of a sum in single precision."""


class PaddingAttended(AbstractFault):
    title: ClassVar = "padding is attended to"
    quantity: ClassVar = "attention to padding"
    bound: ClassVar = f"above {LEAST:g}"
    why: ClassVar = "derived: a masked key has weight 0, up to rounding"
    cause: ClassVar = "the batch has no attention mask, or the mask does not reach this layer"
    remedy: ClassVar = (
        "pass the mask of the padding to the model, in training as in the probe; score padding "
        "minus infinity"
    )
    in_pytorch: ClassVar = "scores.masked_fill(~mask[:, None, None, :], -torch.inf)"
    in_saccade: ClassVar = "EncoderConfig(padding_weight=0.0)"
    needs: ClassVar = ("padding_mass",)
    how_to_get: ClassVar = "give Watch `words`, or an attention_mask in the probe"

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        mass = run["padding_mass"]
        return Signs(mass, mass > LEAST)
