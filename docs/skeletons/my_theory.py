"""Skeleton of a theory: the value of a marked word follows from its score (Lu, Mao & Nayak 2021,
corollary 1, for words with scalar values).

Statement. Under gradient flow, from a score of zero,

    v^2 / 2 = v_0^2 / 2 + s + (e^s - 1) / m.

Symbols. s, v: score and value of the marked word; v_0: its initial value; m: fillers in a sentence.

Assumptions. Scores and values of the fillers stay near zero.

Sketch. With attention a = e^s / (e^s + m) and output z = a v, the chain rule gives
ds = (1 - a) v dv for every loss of z, so v dv = (1 + e^s / m) ds. Both sides integrate.

Limits. A step of size eta adds an error of order eta. Fillers that differ between labels by chance
are learned as well; this error falls with the number of sentences per filler.
"""

from typing import ClassVar

import numpy as np
import xarray as xr
from my_task import MarkedSentences

from saccade import AbstractTheory
from saccade.records.trajectory import at_start


class ValueOfScore(AbstractTheory):
    """The value that corresponds to a score."""

    statement: ClassVar[str] = "v^2 / 2 = v_0^2 / 2 + s + (exp(s) - 1) / m"
    source: ClassVar[str] = "Lu 2021, corollary 1, for scalar values"
    predicts: ClassVar[tuple[str, ...]] = ("value",)

    def predict(self, task: MarkedSentences, model: object, trajectory: xr.Dataset) -> xr.Dataset:
        # The same variable names on the same axes as the probe, so that theory and measurement
        # subtract. Sizes come from the task: a theory holds no second copy of a number.
        del model
        score, start = trajectory["score"], at_start(trajectory["value"])
        square = start**2 + 2 * (score + np.expm1(score) / task.filler_size)
        value = (square.clip(min=0) ** 0.5).transpose(*trajectory["value"].dims)
        name = "absolute value by theory, from the measured score"
        return xr.Dataset({"value": value.assign_attrs(long_name=name, units="1")})
