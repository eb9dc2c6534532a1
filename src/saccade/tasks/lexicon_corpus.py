"""A fixed sample of sentences with a lexicon, as a corpus: the same pairs for all seeds, with an
alignment that is known.

Example, of `LexiconCorpus(LexiconSentences(window=2))`, a' translates a:

    [the, dog, sees, a, cat, END] -> [the', dog', a', sees', cat', END]
"""

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Self

import jax
import numpy as np

from saccade.contracts.task import AbstractCorpus, SentencePairs
from saccade.errors import ConfigError
from saccade.settings import require_count, require_single, swept_in
from saccade.tasks.lexicon_sentences import LexiconSentences

WHY = "because a corpus is the same for all members"


@dataclasses.dataclass(frozen=True)
class LexiconCorpus(AbstractCorpus):
    """Pairs of `LexiconSentences`, drawn once."""

    sentences: LexiconSentences = LexiconSentences()
    """The distribution, with the sizes of training and test set."""
    sample_seed: int = 0
    """Seed of the sample."""

    def __post_init__(self):
        require_single(self, WHY, "sample_seed")
        require_count(self, "sample_seed", least=0)
        for swept in swept_in(self.sentences):
            raise ConfigError(f"{swept}: cannot be swept, {WHY}")

    @classmethod
    def example(cls) -> Self:
        return cls(LexiconSentences.example())

    @property
    def splits(self) -> Mapping[str, SentencePairs]:
        return self._drawn

    @cached_property
    def _drawn(self) -> Mapping[str, SentencePairs]:
        sizes = {"train": self.sentences.train_size, "test": self.sentences.test_size}
        keys = jax.random.split(jax.random.key(self.sample_seed), len(sizes))
        return {
            split: jax.tree.map(np.asarray, self.sentences.sample(key, size))
            for key, (split, size) in zip(keys, sizes.items(), strict=True)
        }

    @property
    def vocabulary_size(self) -> int:
        return self.sentences.vocabulary_size
