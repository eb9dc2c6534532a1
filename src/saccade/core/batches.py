"""Which examples a step of training sees: all, a minibatch of the training set, or new ones."""

import dataclasses
from abc import ABC

from saccade.core.sweep import require_count


@dataclasses.dataclass(frozen=True)
class AbstractBatches(ABC):  # noqa: B024 (the engine knows the kinds)
    """How the examples of a step are chosen."""


@dataclasses.dataclass(frozen=True)
class FullBatch(AbstractBatches):
    """Every step sees the whole training set."""


@dataclasses.dataclass(frozen=True)
class _Sized(AbstractBatches):
    size: int
    """Examples per step."""

    def __post_init__(self):
        require_count(self, "size")


@dataclasses.dataclass(frozen=True)
class Minibatch(_Sized):
    """Every step sees some examples of the training set, in a new order every epoch."""


@dataclasses.dataclass(frozen=True)
class Fresh(_Sized):
    """Every step draws new examples from the task; the training set only measures."""
