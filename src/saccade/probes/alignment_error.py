"""How well tables of scores align words: the alignment error rate (Och & Ney 2003).

A table of attention, of the lexical probe beta, of a proxy or of IBM Model 1 aligns each target
word with the source word of its largest score. With these links A, and the sure and possible links
S and P of people,

    AER = 1 - (|A and S| + |A and P|) / (|A| + |S|),

each number summed over all pairs. Ends and padding are left out, on both sides. If ids are pieces
of words, two words are aligned if any of their pieces are.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from saccade.contracts.task import END, SentencePairs
from saccade.data.alignments import GoldAlignment, Link
from saccade.errors import ConfigError


def links_of(
    scores: Any, pairs: SentencePairs, source_words: Any = None, target_words: Any = None
) -> list[frozenset[Link]]:
    """The links of scores [pair, target, source]: the largest of every target word, the first of
    several.

    A last column beyond the source is NULL: a target word for which it is largest has no link.
    `source_words` and `target_words` number the words to which ids belong (`words_of` of a task);
    by default every id is a word.
    """
    table, source, target = (np.asarray(one) for one in (scores, pairs.source, pairs.target))
    here, there = _are_words(source, pairs.source_mask), _are_words(target, pairs.target_mask)
    shape = (*target.shape, source.shape[1])
    null = table.ndim == 3 and table.shape[2] == shape[2] + 1
    if table.shape != (*shape[:2], shape[2] + null):
        raise ConfigError(
            f"scores: got the shape {table.shape}, allowed: {shape}, of pairs, targets and "
            "sources, or one more source for NULL"
        )
    numbers = [
        _numbered(name, words, ids)
        for name, words, ids in (
            ("source_words", source_words, source),
            ("target_words", target_words, target),
        )
    ]
    may = np.pad(here, ((0, 0), (0, int(null))), constant_values=True)
    asked = there[:, :, None] & may[:, None, :]
    wrong = np.argwhere(asked & np.isnan(table))
    if len(wrong):
        raise ConfigError(f"scores: got NaN for a word of pair {wrong[0][0]}, allowed: numbers")
    # Minus infinity is a score, too: what may not be chosen is below it.
    ranks = np.where(asked, np.where(np.isneginf(table), np.finfo(float).min, table), -np.inf)
    best = ranks.argmax(axis=2)
    aligned = there & may.any(axis=1, keepdims=True) & (best < source.shape[1])
    links: list[set[Link]] = [set() for _ in source]
    for pair, place in np.argwhere(aligned):
        links[pair].add((int(numbers[0][pair, best[pair, place]]), int(numbers[1][pair, place])))
    return [frozenset(some) for some in links]


def known_alignments(pairs: SentencePairs) -> list[GoldAlignment]:
    """The alignments that a generator knows, all of them sure."""
    if pairs.aligned is None:
        raise ConfigError(
            "pairs: got pairs whose alignment is not known, allowed: those of LexiconSentences or "
            "Copying, or of your own with `aligned`; read_alignments reads gold alignments"
        )
    words, aligned = _are_words(pairs.target, pairs.target_mask), np.asarray(pairs.aligned)
    return [
        GoldAlignment.of((int(row[place]), int(place)) for place in np.flatnonzero(there))
        for row, there in zip(aligned, words, strict=True)
    ]


def alignment_error_rate(found: Sequence[frozenset[Link]], gold: Sequence[GoldAlignment]) -> float:
    """AER of the links of all pairs: from 0, if all sure links and only possible ones are found, to
    1.
    """
    if len(found) != len(gold):
        raise ConfigError(
            f"gold: got {len(gold):,} alignments for {len(found):,} pairs, allowed: one per pair"
        )
    total = sum(len(links) + len(one.sure) for links, one in zip(found, gold, strict=True))
    if total == 0:
        raise ConfigError("found, gold: got no link at all, allowed: at least one")
    right = sum(
        len(links & one.sure) + len(links & one.possible)
        for links, one in zip(found, gold, strict=True)
    )
    return 1 - right / total


def _are_words(ids: Any, mask: Any) -> np.ndarray:
    """True at words: neither ends nor padding."""
    return np.logical_and(np.asarray(mask), np.asarray(ids) != END)


def _numbered(name: str, words: Any, ids: np.ndarray) -> np.ndarray:
    """The number of the word at every place."""
    if words is None:
        return np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    numbers = np.asarray(words)
    if numbers.shape != ids.shape:
        raise ConfigError(
            f"{name}: got the shape {numbers.shape}, allowed: {ids.shape}, that of the ids"
        )
    return numbers
