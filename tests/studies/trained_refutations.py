"""What a trained refutation is: an experiment whose premise can be broken."""

import dataclasses
from collections.abc import Callable

from saccade.records.record import Record
from saccade.train.lab import Lab


@dataclasses.dataclass(frozen=True)
class TrainedRefutation:
    """A claim that holds in an experiment, and fails once its premise is broken."""

    claim: str
    premise: str
    """What is broken, in words."""
    run: Callable[[Lab, bool], Record]
    """`run(lab, broken)`: a small run of the claim's study."""
