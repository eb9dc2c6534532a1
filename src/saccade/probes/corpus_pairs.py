"""Measures of translation models on corpora of sentence pairs: accuracy in chunks, ratings of
positions to be compared between runs, and translations to be compared with those of people.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, Self

import jax.numpy as jnp
from jaxtyping import Array

from saccade.contracts.chunks import evenly
from saccade.contracts.probe import Moment
from saccade.contracts.task import SentencePairs
from saccade.models.decoding import greedy
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.models.translator import TranslatorConfig
from saccade.models.word_proxy import WordProxyConfig
from saccade.probes.agreement import RATINGS, require_ratings
from saccade.probes.model_probe import AbstractModelProbe
from saccade.probes.translation import saliency, word_places
from saccade.records.variable import Variable
from saccade.settings import require_choices, require_count

Split = Literal["train", "validation", "test"]


@dataclasses.dataclass(frozen=True)
class AbstractCorpusProbe(AbstractModelProbe):
    """A probe of some pairs of a split, which is part of the variables' names."""

    models: ClassVar = (SequenceToSequenceConfig, TranslatorConfig, WordProxyConfig)
    split: Split = "test"
    """Which pairs."""

    def __post_init__(self):
        require_choices(self)


@dataclasses.dataclass(frozen=True)
class PairAccuracy(AbstractCorpusProbe):
    """Accuracy of the words of a split, with teacher forcing; all logits at once are never kept."""

    @property
    def variables(self) -> Mapping[str, Variable]:  # pyright: ignore[reportIncompatibleVariableOverride]
        text = f"share of {self.split} words and ends predicted correctly, in chunks"
        return {f"{self.split}_word_accuracy": Variable((), text)}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        def counted(batch: SentencePairs) -> tuple[Array, Array]:
            right = moment.model(batch).logits.argmax(-1) == batch.target
            numbers = (jnp.sum(right & batch.target_mask), batch.target_mask.sum())
            return numbers[0] / batch.size, numbers[1] / batch.size

        right, words = moment.mean_of(counted, self.split)
        return {f"{self.split}_word_accuracy": right / words}


@dataclasses.dataclass(frozen=True)
class AbstractSomePairs(AbstractCorpusProbe):
    """A probe of some pairs, evenly spaced."""

    pairs: int = 64
    """Pairs to measure, at most."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "pairs")

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(pairs=3), super().example()[1]

    def chosen(self, moment: Moment) -> SentencePairs:
        return evenly(moment.split(self.split), self.pairs)


@dataclasses.dataclass(frozen=True)
class PairTables(AbstractSomePairs):
    """alpha, log beta and Delta of every source word for every target word; NaN outside words."""

    ratings: tuple[str, ...] = RATINGS
    """Which tables: some of alpha, beta and delta."""

    def __post_init__(self):
        super().__post_init__()
        require_ratings(self)

    @property
    def variables(self) -> Mapping[str, Variable]:  # pyright: ignore[reportIncompatibleVariableOverride]
        dims = (f"{self.split}_pair", "target", "source")
        named = {
            "alpha": ("attention of a target word to a source word", "1"),
            "beta": ("log probability of the correct word, given one source word", "nat"),
            "delta": ("saliency of a source word for a target word", "1"),
        }
        return {f"pair_{name}_{self.split}": Variable(dims, *named[name]) for name in self.ratings}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch, model = self.chosen(moment), moment.model
        there = word_places(batch)[..., None] & batch.source_mask[:, None]
        rated = {
            "alpha": lambda: model(batch).attention,
            "beta": lambda: model.lexical_probe(batch),
            "delta": lambda: saliency(model, batch),
        }
        return {
            f"pair_{name}_{self.split}": jnp.where(there, rated[name](), jnp.nan)
            for name in self.ratings
        }


@dataclasses.dataclass(frozen=True)
class GreedyWords(AbstractSomePairs):
    """The words of greedy translations."""

    models: ClassVar = (TranslatorConfig,)
    longest: int = 50
    """Words of a translation, at most, with its end."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "longest")

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(pairs=3, longest=4), super().example()[1]

    @property
    def variables(self) -> Mapping[str, Variable]:  # pyright: ignore[reportIncompatibleVariableOverride]
        dims = (f"{self.split}_translated", "word")
        return {f"words_{self.split}": Variable(dims, "id of a word of the translation", "id")}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        return {"word": ("word", list(range(self.longest)))}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = self.chosen(moment)
        found = greedy(moment.model, batch.source, batch.source_mask, self.longest)
        return {f"words_{self.split}": found.words}
