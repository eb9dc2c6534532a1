"""Running text with masked words for a model to predict: a corpus by name, or a text file.

Articles are cut into sequences; words are in lower case. A selected word is shown unchanged,
replaced by a random word, or hidden. As in the original BERT, masks are drawn once, for several
copies of the text. Example with the words 2 "the", 3 "river", 4 "is" and 5 "long", and 6 for a
hidden word:

    [2, 6, 4, 5]  shown for  [2, 3, 4, 5]; the second word is selected

Ids: 0 is padding, 1 an unknown word, then come the words by falling count, and last the hidden
word. Unknown words are never selected.
"""

import dataclasses
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from saccade.contracts.task import SPLITS, AbstractCorpus
from saccade.data.catalogue import CORPORA
from saccade.data.formats import EXAMPLE_PAIRS
from saccade.data.topic_model import (
    UNKNOWN_WORD,
    about_articles,
    articles_of,
    missing_articles,
    require_running_text,
)
from saccade.data.vocabulary import FIRST, PADDING, Vocabulary, check_limits
from saccade.settings import require_count, require_single
from saccade.tasks.topic_documents import Documents, Masking

HELD_OUT = 5
"""Of a file without splits, one sequence in so many is held out."""


@dataclasses.dataclass(frozen=True)
class MaskedText(AbstractCorpus):
    """Sequences of words with masks."""

    corpus: str
    """Name of a corpus of running text, or path of a text file."""
    data: str | None = None
    """Folder with a folder per corpus; by default that of the variable SACCADE_DATA."""
    length: int = 64
    """Words of a sequence; the last one of an article may be shorter."""
    largest_vocabulary: int = 8000
    """Largest number of ids without the hidden word; rarer words are unknown."""
    first: int | None = None
    """Articles of every split that are kept, from the first on; None: all."""
    copies: int = 1
    """Copies of the training text, each with masks of its own."""
    mask_seed: int = 0
    """Seed of the masks."""
    masking: Masking = Masking()
    """How words are masked."""

    def __post_init__(self):
        if isinstance(self.corpus, os.PathLike):
            object.__setattr__(self, "corpus", os.fspath(self.corpus))
        reason = "because a corpus is the same for all members"
        require_single(self, reason, *(field.name for field in dataclasses.fields(self)))
        require_single(self.masking, reason, "selected", "kept", "replaced")
        require_running_text(self.corpus)
        require_count(self, "length", "copies")
        require_count(self, "mask_seed", least=0)
        if self.first is not None:
            require_count(self, "first")
        check_limits(1, self.largest_vocabulary, "largest_vocabulary")

    @classmethod
    def example(cls) -> Self:
        return cls(str(EXAMPLE_PAIRS[0]), length=6, largest_vocabulary=40)

    @property
    def splits(self) -> Mapping[str, Documents]:
        return self._content[1]

    @property
    def vocabulary(self) -> Vocabulary:
        """The words that have ids, from the training text."""
        return self._content[0]

    @property
    def vocabulary_size(self) -> int:
        return self.vocabulary.size + 1

    @property
    def hidden_id(self) -> int:
        """The id that is shown for a hidden word."""
        return self.vocabulary.size

    @property
    def about(self) -> Mapping[str, str]:
        return {**super().about, **about_articles(self.corpus)}

    @property
    def missing(self) -> str:
        return missing_articles(self.corpus, self.data)

    @cached_property
    def _content(self) -> tuple[Vocabulary, Mapping[str, Documents]]:
        named = SPLITS if self.corpus in CORPORA else SPLITS[:1]
        texts = {split: self._texts(split) for split in named}
        counts = Counter(word for text in texts["train"] for word in text)
        del counts[UNKNOWN_WORD]
        vocabulary = Vocabulary.of_counts(counts, largest_size=self.largest_vocabulary)
        found = {split: self._cut(vocabulary, some) for split, some in texts.items()}
        if len(found) == 1:
            held = np.arange(len(found["train"])) % HELD_OUT == HELD_OUT - 1
            found = {"train": found["train"][~held], "test": found["train"][held]}
        hidden = vocabulary.size
        return vocabulary, {split: self._masked(split, ids, hidden) for split, ids in found.items()}

    def _texts(self, split: str) -> list[list[str]]:
        articles = articles_of(self.corpus, self.data, split)[: self.first]
        return [[word.lower() for word in article] for article in articles]

    def _cut(self, vocabulary: Vocabulary, texts: Sequence[Sequence[str]]) -> np.ndarray:
        """Ids of all sequences, padded."""
        rows = []
        for text in texts:
            ids = vocabulary.encode(text)
            padded = np.pad(ids, (0, -len(ids) % self.length), constant_values=PADDING)
            rows.append(padded.reshape(-1, self.length))
        return np.concatenate(rows)

    def _masked(self, split: str, ids: np.ndarray, hidden: int) -> Documents:
        """Of training sequences several copies."""
        labels = np.concatenate([ids] * (self.copies if split == "train" else 1))
        random = np.random.default_rng([self.mask_seed, SPLITS.index(split)])
        fate = random.random(labels.shape)
        chance = self.masking.selected
        kept, replaced = chance * self.masking.kept, chance * self.masking.replaced
        shown = np.where(fate < kept, labels, hidden)
        others = random.integers(FIRST, hidden, labels.shape)
        shown = np.where((fate >= kept) & (fate < kept + replaced), others, shown)
        selected = (fate < chance) & (labels >= FIRST)
        shown = np.where(selected, shown, labels).astype(np.int32)
        return Documents(shown, labels, selected, labels != PADDING)  # pyright: ignore[reportArgumentType]
