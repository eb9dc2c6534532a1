"""Ratings of the positions of some texts by a classifier, to be compared between runs (Snell et al.
2021, section 3.1).

alpha is the attention (here its scores, which have the same order and tie less), beta the lexical
probe, and Delta the saliency of a word: minus the derivative of the loss by a factor of the word's
embedding.
"""

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from saccade.contracts.chunks import evenly
from saccade.contracts.model import cross_entropy
from saccade.contracts.probe import Moment
from saccade.contracts.task import Batch
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.models.word_classifier import WordClassifierConfig
from saccade.probes.agreement import RATINGS, require_ratings
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable
from saccade.settings import require_choices, require_count

TITLES = {
    "alpha": ("score of the word, of which attention is the softmax", "1"),
    "beta": ("log probability of the correct label, attending to this word only", "nat"),
    "delta": ("saliency of the word", "1"),
}


@dataclasses.dataclass(frozen=True)
class TextTables(AbstractModelProbe):
    """alpha, log beta and Delta of every position of some texts, evenly spaced; NaN at padding. The
    names of the variables end in the split.
    """

    models: ClassVar = (RecurrentClassifierConfig, WordClassifierConfig)
    split: Literal["train", "validation", "test"] = "test"
    """Which texts."""
    texts: int = 256
    """How many of them, at most."""
    ratings: tuple[str, ...] = RATINGS
    """Which tables: some of alpha, beta and delta."""

    def __post_init__(self):
        require_choices(self)
        require_count(self, "texts")
        require_ratings(self)

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(texts=3), super().example()[1]

    @property
    def variables(self) -> Mapping[str, Variable]:  # pyright: ignore[reportIncompatibleVariableOverride]
        dims = (f"{self.split}_text", "position")
        return {f"{name}_{self.split}": Variable(dims, *TITLES[name]) for name in self.ratings}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        chosen: Batch = evenly(moment.split(self.split), self.texts)
        model = moment.model
        rated = {
            "alpha": model.scores,
            "beta": model.lexical_probe,
            "delta": partial(saliency, model),
        }
        there = True if chosen.mask is None else chosen.mask
        return {
            f"{name}_{self.split}": jnp.where(there, moment.each(rated[name], chosen), jnp.nan)
            for name in self.ratings
        }


def saliency(model: Any, batch: Batch) -> Float[Array, "sentence position"]:
    """Delta: minus the derivative of a text's loss by a factor of each word's embedding."""

    def loss(gates: Float[Array, "sentence position"]) -> Float[Array, ""]:
        # The mean over texts times their number: the texts do not influence each other.
        return batch.size * cross_entropy(model(batch, gates).logits, batch.labels)

    return -jax.grad(loss)(jnp.ones(batch.words.shape))
