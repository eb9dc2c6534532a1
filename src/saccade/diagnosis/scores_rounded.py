"""Scores are rounded so coarsely that attention goes to other keys than it should. bfloat16 has 8
binary digits: neighbours of a score of 100 are 0.5 apart, of a score of 1,000 they are 4 apart.
Softmax does not see a number that all scores of a query share, but rounding does.

The number is the share of attention that rounding moves, and not how often the two largest scores
round to neighbours: where attention is nearly uniform they always do, and it does no harm.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs

MOST = 0.1


class ScoresRounded(AbstractFault):
    title: ClassVar = "scores are rounded too coarsely"
    quantity: ClassVar = "share of attention that rounding of scores moves"
    bound: ClassVar = f"above {MOST:g}"
    why: ClassVar = "calibrated on runs in bfloat16 that learn (diagnosis_errors)"
    cause: ClassVar = "scores are in bfloat16 or float16, and large: often by a part that all share"
    remedy: ClassVar = "compute scores in float32, take the mean off the keys, or QK-norm"
    in_pytorch: ClassVar = "scores = queries.float() @ keys.float().transpose(-1, -2)"
    in_saccade: ClassVar = 'EncoderConfig(score_precision="full")'
    needs: ClassVar = ("rounding_shift",)
    how_to_get: ClassVar = "only of the eager attention of transformers, in bfloat16 or float16"

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        moved = run["rounding_shift"]
        return Signs(moved, moved > MOST)
