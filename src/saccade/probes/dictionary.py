"""Scores and embeddings of all words of a dictionary, and the word that each sentence attends to.

For corpora, whose topic words are not known beforehand (Lu, Mao & Nayak 2021, section 5.2).
"""

from typing import Any, ClassVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from saccade.contracts.probe import Moment
from saccade.contracts.task import HasVocabulary
from saccade.models.bag_attention import masked
from saccade.probes.topic_words import AbstractItemProbe
from saccade.records.variable import Variable


class DictionaryWords(AbstractItemProbe):
    """Score and embedding norm of every id: words, and what stands for padding and the unknown."""

    variables: ClassVar = {
        "word_score": Variable(("word",), "score of the word"),
        "word_norm": Variable(("word",), "Euclidean norm of its embedding, rescaled by the query"),
    }

    def coordinates(self, task: HasVocabulary) -> dict[str, tuple[str, Any]]:
        return {"word": ("word", np.arange(task.vocabulary_size))}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model = moment.model
        norm = jnp.linalg.norm(model.rescaled_embeddings, axis=0)
        return {"word_score": model.scores, "word_norm": norm}


class AttendedWords(AbstractItemProbe):
    """The id of largest score in every training sentence; of several, that which stands first."""

    variables: ClassVar = {
        "attended_word": Variable(("sentence",), "id of the word with the largest score", "id"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch, model = moment.train, moment.model
        items = model.items(batch)
        place = jnp.argmax(masked(model.scores[items], batch.mask), axis=1)
        return {"attended_word": jnp.take_along_axis(items, place[:, None], axis=1)[:, 0]}
