"""Settings, measures and pictures that the studies of Li, Li & Risteski (2023) share."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from saccade.errors import ConfigError
from saccade.figures.figure import HeatMap
from saccade.judging.claim import Measure
from saccade.probes.attention import AttentionStatistics
from saccade.records.trajectory import only
from saccade.settings import Swept
from saccade.tasks.long_documents import LongDocumentQueries, LongDocuments
from saccade.tasks.topic_documents import Masking, TopicDocuments

PAPER = "Li, Li & Risteski 2023"
STATISTICS = AttentionStatistics("train", examples=16)
"""Of attention, in all studies with queries and keys. (The test set may be a single document.)"""
SHOWN_TOPICS = 4
"""Topics on a picture of a table of ids."""


@dataclasses.dataclass(frozen=True)
class DocumentSettings:
    """Sizes and masking of documents about topics."""

    topics: int = 10
    """Topics (T)."""
    words_per_topic: int = 10
    """Words of each topic (v)."""
    topics_per_document: int = 4
    """Distinct topics per document (tau)."""
    masking: Masking = Masking()
    """How words are masked."""

    def __post_init__(self):
        TopicDocuments(*self.sizes)  # checks sizes
        if self.topics_per_document == self.topics:
            raise ConfigError(
                f"topics_per_document: got {self.topics_per_document}, allowed: fewer than the"
                f" {self.topics} topics; documents about all topics show the same frequencies, and"
                " topics cannot be distinguished"
            )
        right = self.masking.shares.right
        if not isinstance(right, Swept) and right <= 0:
            raise ConfigError(
                f"selected: got {self.masking.selected:g} with kept {self.masking.kept:g},"
                " allowed: some words that are shown unchanged"
            )

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.topics, self.words_per_topic, self.topics_per_document

    def finite(self, shortest: int, longest: int, **settings: Any) -> TopicDocuments:
        """Documents of finite length."""
        settings |= {"shortest": shortest, "longest": longest, "masking": self.masking}
        return TopicDocuments(*self.sizes, **settings)

    def long(self) -> LongDocuments:
        """Infinitely long documents, for uniform attention."""
        return LongDocuments(*self.sizes, self.masking)

    def queries(self) -> LongDocumentQueries:
        """Infinitely long documents, for attention that depends on the query."""
        return LongDocumentQueries(*self.sizes, self.masking)


def end_of(variable: str, largest_over: Sequence[str] = (), **where: Any) -> Measure:
    """Measures a variable of the only arm at the last step, at some coordinates."""
    return lambda arms, config: only(arms).end[variable].sel(where).max(largest_over)


def corner(documents: DocumentSettings, table: xr.DataArray, label: str) -> HeatMap:
    """The first seed's table of ids at the end: the hidden id and the words of the first topics."""
    shown = 1 + min(SHOWN_TOPICS, documents.topics) * documents.words_per_topic
    cells = table.isel(seed=0, step=-1).values[:shown, :shown]
    return HeatMap(label, np.arange(shown), np.arange(shown), cells.astype(float))
