"""Values learn, and queries and keys wait for them: the first stage of training in Li et al. 2023.
The gradient of queries contains keys and values, and that of keys contains queries and values, so
that from a small start both begin exponentially slowly; attention follows when values are there.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs, by_layer, of_kind

RATIO, MOVED = 0.05, 0.03


class ValuesFirst(AbstractFault):
    title: ClassVar = "attention waits for the values"
    quantity: ClassVar = "displacement of queries and keys over that of values"
    bound: ClassVar = f"below {RATIO:g}, while values have moved by {MOVED:.0%} of their norm"
    why: ClassVar = "calibrated (diagnosis_errors); the stages are those of Li et al. 2023"
    cause: ClassVar = "queries and keys start near 0, and so do their gradients"
    remedy: ClassVar = "wait, a larger start of queries and keys, or Adam"
    worst: ClassVar = "smallest"
    in_pytorch: ClassVar = "torch.optim.Adam(model.parameters(), lr=1e-3)"
    in_saccade: ClassVar = "Adam(1e-3)"
    needs: ClassVar = ("displacement", "part_norm")

    def reason_not_to_check(self, run: xr.Dataset, about: Mapping[str, Any]) -> str:
        lacking = super().reason_not_to_check(run, about)
        if lacking:
            return lacking
        kinds = ("query", "key", "value")
        absent = [one for one in kinds if not of_kind(run["displacement"], one).sizes["part"]]
        return f"no displacement of the {absent[0]} weights" if absent else ""

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        moved, size = (by_layer(run[one]) for one in ("displacement", "part_norm"))
        ours = xr.ufuncs.sqrt((of_kind(moved, "query", "key") ** 2).sum("part", skipna=False))
        theirs = xr.ufuncs.sqrt((of_kind(moved, "value") ** 2).sum("part", skipna=False))
        norm = xr.ufuncs.sqrt((of_kind(size, "value") ** 2).sum("part", skipna=False))
        ratio = ours / theirs.where(theirs > 0)
        # What does not move at all is another fault.
        return Signs(ratio, (ratio < RATIO) & (ours > 0) & (theirs > MOVED * norm))
