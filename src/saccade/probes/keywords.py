"""Logits of the words around a keyword (Snell, Zhong, Klein & Steinhardt 2021, section 6.1)."""

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp
from jaxtyping import Array

from saccade.core.interfaces import AbstractProbe, Moment, Variable
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.probes.agreement import mean_over
from saccade.tasks.keyword_sentences import KEYWORD

PLACES = ("keyword", "next", "mean", "last")


@dataclasses.dataclass(frozen=True)
class KeywordLogits(AbstractProbe):
    """gamma at the keyword, right after it, averaged over positions, and at the last position.

    Positive test sentences, except with the keyword in the last two: places coincide there.
    """

    variables: ClassVar = {
        "word_logit": Variable(("place",), "logit of the positive class, attending to one position")
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(), (RecurrentClassifierConfig.example(),)

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = moment.test
        logits = moment.model.word_logits(batch)
        place = jnp.argmax(batch.words == KEYWORD, axis=-1)
        rows, last = jnp.arange(batch.words.shape[0]), batch.words.shape[1] - 1
        chosen = (batch.labels == 1) & (place < last - 1)
        after = logits[rows, jnp.minimum(place + 1, last)]
        found = (logits[rows, place], after, logits.mean(-1), logits[:, last])
        return {"word_logit": jnp.stack([mean_over(values, chosen) for values in found])}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        del task
        return {"place": ("place", list(PLACES))}
