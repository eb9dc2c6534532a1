"""Logits around a keyword, with logits made by hand."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float

from saccade.contracts.model import AbstractModel, Output
from saccade.contracts.probe import Moment
from saccade.contracts.task import Batch
from saccade.probes.keywords import PLACES, KeywordLogits
from saccade.tasks.keyword_sentences import KEYWORD

SENTENCES = np.asarray(
    [
        [1, 0, 2, 2, 1],
        [0, 1, 1, 1, 1],
        [1, 2, 0, 1, 2],
        [1, 2, 2, 0, 1],
        [2, 2, 1, 1, 0],
        [1, 1, 2, 2, 2],
    ]
)
"""The keyword at places 1, 0 and 2; at the last two; nowhere."""
LABELS = np.asarray([1, 1, 1, 1, 1, 0])
LOGITS = np.arange(30.0).reshape(6, 5) ** 2


class Fixed(AbstractModel):
    """Gives every word a fixed logit."""

    fixed: Float[Array, "sentence position"]

    def word_logits(self, batch: Batch) -> Float[Array, "sentence position"]:
        return self.fixed

    def __call__(self, batch: Batch) -> Output:
        return Output(jnp.zeros((batch.words.shape[0], 2)), self.fixed)


@jax.jit
def probed(model: Fixed, batch: Batch) -> Any:
    moment = Moment(None, model, batch, batch, AbstractModel.loss, lambda: model)
    return KeywordLogits()(moment)["word_logit"]


def measured(*chosen: int, labels: Any = LABELS) -> np.ndarray:
    """Of some of the sentences, all of them as often as makes six together: one program for all."""
    rows = np.resize(chosen, 6)
    batch = Batch(jnp.asarray(SENTENCES[rows], jnp.int32), jnp.asarray(labels[rows], jnp.int32))
    return np.asarray(probed(Fixed(jnp.asarray(LOGITS[rows], jnp.float32)), batch))


def test_logits_at_the_keyword_behind_it_on_average_and_at_the_end():
    """The keyword at the last two places, where places coincide, and negative sentences are left
    out.
    """
    assert KEYWORD == 0
    assert PLACES == ("keyword", "next", "mean", "last")
    assert KeywordLogits().coordinates(None) == {"place": ("place", list(PLACES))}
    rows, place = np.arange(3), np.asarray([1, 0, 2])
    expected = [
        LOGITS[rows, place],
        LOGITS[rows, place + 1],
        LOGITS[:3].mean(axis=1),
        LOGITS[:3, 4],
    ]
    np.testing.assert_allclose(measured(*range(6)), np.mean(expected, axis=1), rtol=1e-6)


@pytest.mark.parametrize("left_out", [3, 4, 5], ids=["last but one", "last", "negative"])
def test_sentences_that_do_not_count_change_nothing(left_out):
    np.testing.assert_allclose(measured(0, left_out), measured(0), rtol=1e-6)
    assert not np.allclose(measured(0, 2), measured(0)), "those that count do"
    assert np.all(np.isnan(measured(left_out))), "no sentence, no number"


def test_a_negative_sentence_does_not_count_whatever_it_holds():
    """A sentence without the keyword has its first place where the keyword would be found: only
    the label decides.
    """
    labels = np.where(np.arange(6) == 1, 0, LABELS)
    np.testing.assert_allclose(measured(0, 1, 2, labels=labels), measured(0, 2), rtol=1e-6)
