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
from saccade.diagnosis.setup import Setup

MOST = 0.1


class ScoresRounded(AbstractFault):
    title: ClassVar = "scores are rounded too coarsely"
    quantity: ClassVar = "share of attention that rounding of scores moves"
    bound: ClassVar = f"above {MOST:g}"
    why: ClassVar = "calibrated on runs in bfloat16 that learn (diagnosis_errors)"
    cause: ClassVar = "scores are in bfloat16 or float16, and large: often by a part that all share"
    remedy: ClassVar = "compute scores in float32, take the mean off the keys, or QK-norm"
    needs: ClassVar = ("rounding_shift",)
    how_to_get: ClassVar = "only of the eager attention of transformers, in bfloat16 or float16"
    severities: ClassVar = (10.0, 1000.0, 10000.0)

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        moved = run["rounding_shift"]
        return Signs(moved, moved > MOST)

    def planted(self, healthy: Setup) -> Setup | None:
        path, precision = healthy.path("key_offset"), healthy.path("score_precision")
        if not path:
            return None
        return healthy.changed(precision, "bfloat16").swept(path, self.severities)

    def remedies(self, setup: Setup) -> Mapping[str, Setup]:
        path = setup.path("score_precision")
        return {"scores in full precision": setup.changed(path, "full")} if path else {}
