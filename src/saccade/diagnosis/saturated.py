"""Attention is one-hot before anything is learned: softmax has no gradient where one key has all
the weight, so it stays with the key that chance chose.

Of n scores that are independent and normal with standard deviation s, the largest few have most of
the weight beyond s = sqrt(2 ln n): the freezing transition of the random energy model, and the
boundary of entropy collapse at initialisation of Giorlandino & Goldt 2025. A head that has learned
to choose is beyond it as well, and healthy: the loss tells the two apart.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs, learned_share

LEARNED = 0.3
"""Share of the loss that must be gone for a run to have learned more than how often words occur."""


class Saturated(AbstractFault):
    title: ClassVar = "attention is one-hot before anything is learned"
    quantity: ClassVar = "standard deviation of scores over sqrt(2 ln n)"
    bound: ClassVar = f"above 1, while the loss has fallen by less than {LEARNED:.0%}"
    why: ClassVar = (
        "derived: freezing of n random scores, also Giorlandino & Goldt 2025; the share of the "
        "loss is calibrated (diagnosis_errors)"
    )
    cause: ClassVar = "queries and keys are too large from the start, or grew at a high rate"
    remedy: ClassVar = "smaller initial queries and keys, QK-norm, or a temperature"
    in_pytorch: ClassVar = "queries = queries / 10"
    in_saccade: ClassVar = "EncoderConfig(temperature=100.0)"
    needs: ClassVar = ("score_spread", "visible_keys", "loss")

    def reason_not_to_check(self, run: xr.Dataset, about: Mapping[str, Any]) -> str:
        lacking = super().reason_not_to_check(run, about)
        first = int(run["step"][0])
        late = f"the first measurement is at step {first}: what was learned before is not known"
        return lacking or (late if first > 0 else "")

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        keys = run["visible_keys"]
        ratio = run["score_spread"] / xr.ufuncs.sqrt(2 * xr.ufuncs.log(keys.where(keys > 1)))
        return Signs(ratio, (ratio > 1) & (learned_share(run) < LEARNED))
