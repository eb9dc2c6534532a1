"""Which examples a step of training sees: all, a minibatch of the training set, or new ones."""

import dataclasses
from abc import ABC
from functools import cached_property
from itertools import pairwise

import numpy as np

from saccade.settings import require_count

BUCKETS = 8
"""Largest number of length buckets: the training step is compiled once for each."""
PADDING = 0.1
"""Share of padding at which no further bucket is made."""


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

    by_length: bool = False
    """Whether the examples of a step have similar lengths, so that little is padding. For a corpus:
    all members take the same range of lengths in a step, and each its own examples."""


@dataclasses.dataclass(frozen=True)
class Fresh(_Sized):
    """Every step draws new examples from the task; the training set only measures."""


@dataclasses.dataclass(frozen=True)
class Buckets:
    """Examples sorted into ranges of lengths.

    An epoch sees every example: each bucket in a new order, in as many batches as it needs. A last
    batch that is not full takes the first examples of that order again.
    """

    members: tuple[np.ndarray, ...]
    """The examples of each bucket."""
    longest: tuple[int, ...]
    """The length to which each bucket is padded."""
    size: int
    """Examples per batch."""

    @cached_property
    def plan(self) -> np.ndarray:
        """The batches of an epoch: bucket, and place of the batch within the bucket's order."""
        rows = [
            (bucket, place)
            for bucket, ids in enumerate(self.members)
            for place in range(0, len(ids), self.size)
        ]
        return np.asarray(rows, np.int32)

    @property
    def starts(self) -> tuple[int, ...]:
        """Where each bucket begins if all are laid out one after another."""
        return tuple(int(at) for at in np.cumsum([0, *map(len, self.members)])[:-1])

    def padding(self, lengths: np.ndarray) -> float:
        """Share of the positions of an epoch that hold no word."""
        padded = words = 0
        for ids, longest in zip(self.members, self.longest, strict=True):
            batches = -(-len(ids) // self.size)
            padded += batches * self.size * longest
            words += float(np.mean(lengths[ids])) * batches * self.size
        return 1 - words / padded


def buckets_of(lengths: np.ndarray, size: int) -> Buckets:
    """As few ranges of lengths as keep padding below a tenth, at most eight, each with at least
    four batches if there are that many.
    """
    lengths = np.maximum(lengths, 1)
    least = min(4 * size, len(lengths))

    def sorted_into(count: int) -> Buckets:
        ends = _best_ends(lengths, count, least)
        members = tuple(
            np.flatnonzero((lengths > low) & (lengths <= high)).astype(np.int32)
            for low, high in pairwise([0, *ends])
        )
        return Buckets(members, tuple(ends), size)

    tried = map(sorted_into, range(1, BUCKETS))
    small = (buckets for buckets in tried if buckets.padding(lengths) < PADDING)
    return next(small, None) or sorted_into(BUCKETS)


def _best_ends(lengths: np.ndarray, count: int, least: int) -> list[int]:
    """The upper ends of at most `count` ranges of lengths with the fewest padded positions, each
    with at least `least` examples (dynamic programming over the distinct lengths).
    """
    distinct, counts = np.unique(lengths, return_counts=True)
    before = np.concatenate([[0], np.cumsum(counts)])
    total = len(distinct)
    cost = np.full((count + 1, total + 1), np.inf)
    cost[0, 0] = 0
    origin = np.zeros((count + 1, total + 1), int)
    for used in range(1, count + 1):
        for end in range(1, total + 1):
            held = before[end] - before[:end]
            costs = cost[used - 1, :end] + np.where(held >= least, held * distinct[end - 1], np.inf)
            origin[used, end] = int(np.argmin(costs))
            cost[used, end] = costs[origin[used, end]]
    used, end = int(np.argmin(cost[:, total])), total
    ends = []
    while end:
        ends.append(int(distinct[end - 1]))
        end, used = origin[used, end], used - 1
    return ends[::-1]
