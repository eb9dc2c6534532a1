"""What is known of the words of labelled texts before any training."""

import dataclasses

import numpy as np

from saccade.contracts.task import Batch


@dataclasses.dataclass(frozen=True)
class WordFacts:
    """Numbers per word id, over the texts that contain the word; 0 for an id that none contains."""

    occurrence: np.ndarray
    """Texts that contain the word."""
    companions: np.ndarray
    """Mean number of the other words in these texts (m of Lu 2021's corollary 1)."""
    purity: np.ndarray
    """Share of their most frequent label minus that of the next (delta of Lu 2021)."""

    @staticmethod
    def of(batch: Batch, ids: int, labels: int) -> "WordFacts":
        words, mask = np.asarray(batch.words), batch.mask
        there = np.ones(words.shape, bool) if mask is None else np.asarray(mask)
        # Every text counts once, however often the word stands in it.
        text, place = np.nonzero(there)
        text, word = np.divmod(np.unique(text * ids + words[text, place]), ids)
        occurrence = np.bincount(word, minlength=ids)
        lengths = np.bincount(word, there.sum(1)[text], ids)
        table = np.zeros((ids, labels))
        np.add.at(table, (word, np.asarray(batch.labels)[text]), 1.0)
        table = np.sort(table / np.maximum(occurrence, 1)[:, None], axis=1)
        companions = np.where(occurrence > 0, lengths / np.maximum(occurrence, 1) - 1, 0.0)
        return WordFacts(occurrence, companions, table[:, -1] - table[:, -2])
