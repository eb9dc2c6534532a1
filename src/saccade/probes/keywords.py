"""Logits of the words around a keyword (Snell, Zhong, Klein & Steinhardt 2021, section 6.1)."""

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array

from saccade.core.interfaces import (
    AbstractModelConfig,
    AbstractProbe,
    AbstractTask,
    Moment,
    Variable,
)
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.probes.agreement import mean_over
from saccade.tasks.keyword_sentences import KEYWORD

PLACES = ("keyword", "next", "mean", "last")


@dataclasses.dataclass(frozen=True)
class KeywordLogits(AbstractProbe):
    """gamma at the keyword, one position after it, averaged over positions, and at the last
    position, on positive test sentences.

    Sentences with the keyword at one of the last two positions are left out: there the positions
    coincide.
    """

    variables: ClassVar = {
        "word_logit": Variable(
            ("place",), "logit of the positive class if the model attends to one position only"
        )
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[tuple[AbstractModelConfig, AbstractTask], ...]]:
        return cls(), (RecurrentClassifierConfig.example(),)

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = moment.test
        logits = moment.model.word_logits(batch)
        place = jnp.argmax(batch.words == KEYWORD, axis=-1)
        last = batch.words.shape[1] - 1
        chosen = (batch.labels == 1) & (place < last - 1)
        rows = jnp.arange(batch.words.shape[0])
        found = (
            logits[rows, place],
            logits[rows, jnp.minimum(place + 1, last)],
            logits.mean(-1),
            logits[:, last],
        )
        return {"word_logit": jnp.stack([mean_over(values, chosen) for values in found])}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        del task
        return {"place": ("place", list(PLACES))}
