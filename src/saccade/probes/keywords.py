"""Logits of the words around a keyword (Snell, Zhong, Klein & Steinhardt 2021, section 6.1)."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Array

from saccade.contracts.probe import Moment
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.probes.agreement import mean_over
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable
from saccade.tasks.keyword_sentences import KEYWORD

PLACES = ("keyword", "next", "mean", "last")


class KeywordLogits(AbstractModelProbe):
    """gamma at the keyword, right after it, averaged over positions, and at the last position.

    Positive test sentences, except with the keyword in the last two: places coincide there.
    """

    models: ClassVar = (RecurrentClassifierConfig,)
    labels: ClassVar = {"place": PLACES}
    variables: ClassVar = {
        "word_logit": Variable(("place",), "logit of the positive class, attending to one position")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = moment.test
        logits = moment.model.word_logits(batch)
        place = jnp.argmax(batch.words == KEYWORD, axis=-1)
        rows, last = jnp.arange(batch.words.shape[0]), batch.words.shape[1] - 1
        chosen = (batch.labels == 1) & (place < last - 1)
        after = logits[rows, jnp.minimum(place + 1, last)]
        found = (logits[rows, place], after, logits.mean(-1), logits[:, last])
        return {"word_logit": jnp.stack([mean_over(values, chosen) for values in found])}
