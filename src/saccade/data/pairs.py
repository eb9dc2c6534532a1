"""Sentences with their translations, wherever they come from, as ids: what parallel texts share.

Ids come from the training pairs, and both languages share them (`shared_vocabulary.py`). Every
sentence ends with END. Pairs are read on first use, once; all splits are padded with END to the
longest source, and to the longest target, of the corpus.
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from saccade.contracts.task import END, SPLITS, AbstractCorpus, SentencePairs
from saccade.data.corpora import checksum_of
from saccade.data.shared_vocabulary import (
    UNKNOWN,
    AbstractSharedVocabulary,
    PairTokeniser,
    SharedPieces,
    SharedWords,
    how_to_get_pieces,
    lacks_pieces,
)
from saccade.data.shares import check_shares, drawn_shares
from saccade.data.vocabulary import check_limits
from saccade.errors import ConfigError, FileError
from saccade.files import at_line
from saccade.settings import require_choices, require_count, require_single

Longer = Literal["refused", "dropped", "cut"]


class Pair(NamedTuple):
    """A sentence and its translation, and the line of their files."""

    source: str
    target: str
    line: int


class AbstractPairs(AbstractCorpus):
    """A corpus of sentence pairs; a frozen dataclass has these fields, and says how to read."""

    validation_share: float
    """Share of the training pairs that is drawn for validation, if there are no pairs for it."""
    test_share: float
    """Share of the training pairs that is drawn for testing, if there are no pairs for it."""
    split_seed: int
    """Seed of these draws."""
    tokeniser: PairTokeniser
    """What gets an id: pieces of words, words, or what stands between white space."""
    pieces: int
    """Number of ids of the tokeniser "pieces", with end, start and unknown."""
    least_count: int
    """Times that a word occurs in the training pairs, at least, to get an id of its own."""
    largest_vocabulary: int | None
    """Largest number of ids, with end, start and unknown; rarer words are unknown."""
    longest: int | None
    """Words or pieces in the longest sentence, without its end; None: whatever there is."""
    longer: Longer
    """What becomes of a pair with a longer sentence."""

    @abstractmethod
    def read(self) -> dict[str, list[Pair]]:
        """The pairs of every split that has some of its own, train among them."""

    @abstractmethod
    def origin(self, split: str) -> str:
        """Where the pairs of a split come from, for messages."""

    def check_settings(self) -> None:
        """Refuse settings that no corpus can have, before anything is read."""
        fields = [field.name for field in dataclasses.fields(self)]  # pyright: ignore[reportArgumentType]
        require_single(self, "because a corpus is the same for all members", *fields)
        require_choices(self)
        check_shares(self, "pairs")
        limits = (self.least_count, self.largest_vocabulary)
        check_limits(*limits, "largest_vocabulary", ("end", "start", "unknown"))
        require_count(self, "pieces", least=UNKNOWN + 2)
        if self.tokeniser == "pieces" and (self.least_count > 1 or self.largest_vocabulary):
            given = "largest_vocabulary" if self.largest_vocabulary else "least_count"
            raise ConfigError(
                f"{given}: got {getattr(self, given)} with tokeniser='pieces', allowed: with words "
                "or spaces; pieces= is the number of ids"
            )
        if self.longest is not None:
            require_count(self, "longest")
        elif self.longer != "refused":
            raise ConfigError(
                f"longer: got {self.longer!r} without a length, allowed: with longest=50"
            )

    @property
    def splits(self) -> Mapping[str, SentencePairs]:
        return self._content.splits

    @property
    def checksum(self) -> str:
        """SHA-256 of the list of (split, source, target), before longer pairs are dropped or cut:
        the same for a copy in other files.
        """
        return self._content.checksum

    @property
    def vocabulary(self) -> AbstractSharedVocabulary:
        """The ids of both languages, from the training pairs."""
        return self._content.vocabulary

    @property
    def vocabulary_size(self) -> int:
        return self.vocabulary.size

    @property
    def sentences(self) -> Mapping[str, Sequence[tuple[str, str]]]:
        """The texts of every pair that is kept, by split, in the order of `splits`."""
        return {
            split: [(pair.source, pair.target) for pair in some]
            for split, some in self._content.kept.items()
        }

    @property
    def lines(self) -> Mapping[str, np.ndarray]:
        """The line, from 1, of every pair that is kept, by split: for files that go with the pairs,
        such as alignments.
        """
        return {
            split: np.asarray([pair.line for pair in some])
            for split, some in self._content.kept.items()
        }

    @property
    def left_out(self) -> Mapping[str, int]:
        """Pairs that were dropped because they are longer than `longest`, by split."""
        return self._content.left_out

    @property
    def unknown_share(self) -> Mapping[str, tuple[float, float]]:
        """Share of the words or pieces of each split that have no id of their own: of the sources
        and of the targets.
        """
        return {split: _unknown(batch) for split, batch in self.splits.items()}

    @property
    def about(self) -> Mapping[str, str]:
        left = ", ".join(f"{count:,} {split}" for split, count in self.left_out.items() if count)
        return {**super().about, **({"pairs_left_out": left} if left else {})}

    @property
    def missing(self) -> str:
        return how_to_get_pieces() if self.tokeniser == "pieces" and lacks_pieces() else ""

    def decode(self, ids: Any) -> str:
        """The text of one sentence, up to its end: for measures of texts such as BLEU."""
        return self.vocabulary.decode(ids)

    def words_of(self, ids: Any) -> np.ndarray:
        """The number of the word to which each id of sentences belongs; -1 at ends and padding."""
        return self.vocabulary.words_of(ids)

    @property
    def word_counts(self) -> Mapping[str, np.ndarray]:
        """Source words and target words of every pair, by split [pair, 2]; a word counts once,
        however many pieces it has.
        """
        return {
            split: np.stack(
                [self.words_of(ids).max(axis=1) + 1 for ids in (batch.source, batch.target)], axis=1
            )
            for split, batch in self.splits.items()
        }

    @cached_property
    def _content(self) -> "_Content":
        pairs = self._by_split()
        listed = {split: [one[:2] for one in some] for split, some in pairs.items()}
        train = [text for both in listed["train"] for text in both]
        vocabulary = self._vocabulary(train)
        sources, targets, kept, left = {}, {}, {}, {}
        for split, some in pairs.items():
            encoded = [vocabulary.encode([both[side] for both in listed[split]]) for side in (0, 1)]
            chosen = self._chosen(split, some, *encoded)
            sources[split], targets[split] = (
                [ids[at][: self.longest] for at in chosen] for ids in encoded
            )
            kept[split] = [some[at] for at in chosen]
            left[split] = len(some) - len(chosen)
        padded_sources, padded_targets = _padded(sources), _padded(targets)
        splits = {}
        for split in pairs:
            (source, source_mask), (target, target_mask) = (
                side[split] for side in (padded_sources, padded_targets)
            )
            splits[split] = SentencePairs(source, target, None, source_mask, target_mask)
        return _Content(splits, vocabulary, kept, left, checksum_of(listed))

    def _by_split(self) -> dict[str, list[Pair]]:
        """All pairs, with the shares that are drawn."""
        pairs = self.read()
        for split in ("validation", "test"):
            share = getattr(self, f"{split}_share")
            if share and split in pairs:
                got = f"got {share}, allowed: 0"
                raise ConfigError(f"{split}_share: {got}, since there are pairs for it already")
        pairs |= drawn_shares(self, pairs["train"], self.origin("train"))
        return {split: pairs[split] for split in SPLITS if split in pairs}

    def _vocabulary(self, texts: Sequence[str]) -> AbstractSharedVocabulary:
        if self.tokeniser == "pieces":
            return SharedPieces.of(texts, self.pieces)
        return SharedWords.of(texts, self.tokeniser, self.least_count, self.largest_vocabulary)

    def _chosen(
        self,
        split: str,
        pairs: Sequence[Pair],
        sources: Sequence[np.ndarray],
        targets: Sequence[np.ndarray],
    ) -> np.ndarray:
        """The pairs that stay."""
        lengths = np.asarray([[len(one) for one in side] for side in (sources, targets)])
        fits = np.all(lengths <= (self.longest or np.inf), axis=0)
        if self.longer == "cut" or fits.all():
            return np.arange(len(pairs))
        if self.longer == "refused":
            at = int(np.argmin(fits))
            what = "pieces" if self.tokeniser == "pieces" else "words"
            raise at_line(
                self.origin(split),
                pairs[at].line,
                f"got a pair of {lengths[0, at]} and {lengths[1, at]} {what}, allowed: at most "
                f"{self.longest}; raise longest, or give longer='dropped' or longer='cut'",
            )
        if not fits.any():
            raise FileError(
                f"{self.origin(split)}: got no pair of at most {self.longest} words or pieces, "
                "allowed: at least one; raise longest"
            )
        return np.flatnonzero(fits)


@dataclasses.dataclass(frozen=True)
class _Content:
    splits: Mapping[str, SentencePairs]
    vocabulary: AbstractSharedVocabulary
    kept: Mapping[str, Sequence[Pair]]
    left_out: Mapping[str, int]
    checksum: str


def _padded(sentences: Mapping[str, Sequence[np.ndarray]]) -> dict[str, tuple[Any, Any]]:
    """Ids and mask of every split, with an end behind each sentence and behind the longest."""
    lengths = {split: np.asarray([len(one) for one in some]) for split, some in sentences.items()}
    longest = max(int(np.max(some)) for some in lengths.values())
    padded = {}
    for split, some in sentences.items():
        places, many = np.arange(longest + 1), lengths[split][:, None]
        ids = np.full((len(some), longest + 1), END, np.int32)
        ids[places < many] = np.concatenate(some)
        padded[split] = (ids, places <= many)
    return padded


def _unknown(batch: SentencePairs) -> tuple[float, float]:
    sides = (np.asarray(side) for side in (batch.source, batch.target))
    source, target = (float(np.mean(side[side != END] == UNKNOWN)) for side in sides)
    return source, target
