"""Pathfinder (Linsley et al. 2018; 32 x 32 pixels, as in the Long Range Arena, Tay et al. 2021; a
task of Song 2024): two discs lie at ends of dashed curves; do they lie on the same curve?

Example: a picture as the grey values of its pixels, row by row, each a word

    [0, 0, 12, 143, 97, 0, ...] -> label 1: the same curve
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Self

import numpy as np

from saccade.contracts.task import AbstractCorpus, Batch
from saccade.data.pathfinder_images import Drawing, pictures
from saccade.settings import require, require_count, require_single


@dataclasses.dataclass(frozen=True)
class Pathfinder(AbstractCorpus):
    """Generated pictures, the same for all members: word ids are grey values from 0 to 255."""

    pictures: int = 100_000
    """Training pictures."""
    validation: int = 0
    """Validation pictures."""
    held_out: int = 10_000
    """Test pictures."""
    drawing: Drawing = Drawing()
    """What a picture consists of; contours of 14 dashes are the hard ones of the Arena."""
    picture_seed: int = 0
    """Seed of the pictures."""

    def __post_init__(self):
        fields = [field.name for field in dataclasses.fields(self)]
        require_single(self, "because a corpus is the same for all members", *fields)
        require_count(self, "pictures", "held_out")
        require_count(self, "validation", "picture_seed", least=0)
        require(self, "drawing", "a Drawing", lambda one: isinstance(one, Drawing))

    @classmethod
    def example(cls) -> Self:
        return cls(12, held_out=6, drawing=Drawing(contour=3, distractors=1))

    @property
    def vocabulary_size(self) -> int:
        return 256

    @property
    def labels(self) -> int:
        return 2

    @property
    def splits(self) -> Mapping[str, Batch]:
        sizes = {"train": self.pictures, "validation": self.validation, "test": self.held_out}
        return _splits(tuple(sizes.items()), self.picture_seed, self.drawing)


@functools.lru_cache(maxsize=2)
def _splits(sizes: tuple[tuple[str, int], ...], seed: int, drawing: Drawing) -> Mapping[str, Batch]:
    images, labels = pictures(sum(size for _, size in sizes), seed, drawing)
    words = images.reshape(len(images), -1).astype(np.int32)
    found, first = {}, 0
    for split, size in sizes:
        some = slice(first, first + size)
        if size:
            found[split] = Batch(words[some], labels[some])  # pyright: ignore[reportArgumentType]
        first += size
    return found
