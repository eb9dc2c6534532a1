"""All words of a dictionary, and the word that each sentence attends to."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from saccade.contracts.probe import Moment
from saccade.contracts.task import Batch
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.probes.dictionary import AttendedWords, DictionaryWords
from saccade.tasks.topic_sentences import TopicSentences
from saccade.train.loss import own_loss

TASK = TopicSentences.example()
WORDS = jnp.asarray([[1, 2, 3, 0], [4, 1, 4, 5]])


def moment(mask: jax.Array | None) -> Moment:
    model = AttentionClassifierConfig("FC", 3, query="fixed").build(TASK, jax.random.key(0))
    keys = jnp.outer(model.query, jnp.asarray([9.0, 1, 3, 2, 5, 4, 0, 0, 0, 0]))  # pyright: ignore[reportArgumentType]
    model = dataclasses.replace(model, keys=keys / model.query_norm**2)
    batch = Batch(WORDS, jnp.asarray([0, 1]), mask)
    return Moment(TASK, model, batch, None, own_loss, lambda: model)


def test_the_attended_word_has_the_largest_score_of_its_sentence():
    found = AttendedWords()(moment(WORDS > 0))
    np.testing.assert_array_equal(found["attended_word"], [2, 4])


def test_padding_is_attended_to_if_it_is_not_masked():
    np.testing.assert_array_equal(AttendedWords()(moment(None))["attended_word"], [0, 4])


def test_scores_and_norms_are_those_of_the_theory():
    one = moment(None)
    found = DictionaryWords()(one)
    np.testing.assert_allclose(found["word_score"], [9, 1, 3, 2, 5, 4, 0, 0, 0, 0], rtol=1e-5)
    norms = np.linalg.norm(one.model.embeddings, axis=0) * float(one.model.query_norm)
    np.testing.assert_allclose(found["word_norm"], norms, rtol=1e-5)
