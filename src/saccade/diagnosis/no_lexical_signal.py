"""Single words say nothing about their translation: over several runs, the lexical probe is on
average no better at the right place than elsewhere. Then nothing drives attention (Snell et al.
2021), and whether a run ever finds it is left to chance.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from saccade.diagnosis.fault import AbstractFault, Signs
from saccade.judging.statistics import t_interval

SEEDS = 5
MOST = 3.0
"""Logarithms of ratios count up to this: no single run decides."""


class NoLexicalSignal(AbstractFault):
    title: ClassVar = "single words give no signal"
    quantity: ClassVar = "lexical probe, right place over elsewhere: lower end of its 95 % interval"
    bound: ClassVar = "at most 1: over these runs the interval is not above chance"
    why: ClassVar = "derived: chance; Snell et al. 2021, section 6.2"
    cause: ClassVar = "co-occurrence says nothing, as where all examples have the same words"
    remedy: ClassVar = "other data with it, or a few steps under uniform attention on such data"
    worst: ClassVar = "smallest"
    needs: ClassVar = ("lexicon_right", "lexicon_elsewhere")
    of_all_seeds: ClassVar = True

    def reason_not_to_check(self, run: xr.Dataset, about: Mapping[str, Any]) -> str:
        lacking = super().reason_not_to_check(run, about)
        seeds = run.sizes.get("seed", 1)
        return lacking or (f"{seeds} seeds, {SEEDS} needed" if seeds < SEEDS else "")

    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        tiny = 1e-30  # a probability that has become 0
        ratio = xr.ufuncs.log(run["lexicon_right"] + tiny)
        ratio = (ratio - xr.ufuncs.log(run["lexicon_elsewhere"] + tiny)).clip(-MOST, MOST)
        edges = xr.apply_ufunc(
            lambda some: np.asarray(t_interval(some)),
            ratio,
            input_core_dims=[["seed"]],
            output_core_dims=[["edge"]],
            vectorize=True,
        )
        low = edges.isel(edge=0)
        first = ratio["step"] == ratio["step"][0]  # nothing is learned yet
        return Signs(xr.ufuncs.exp(low), (low <= 0) & ~first)
