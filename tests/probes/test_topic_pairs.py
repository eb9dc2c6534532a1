"""Pairs of words with topics: the probe against plain loops."""

import itertools
from typing import Any

import jax
import numpy as np
import pytest

from saccade.contracts.probe import Moment
from saccade.errors import ConfigError
from saccade.models.encoder import EncoderConfig
from saccade.probes.topic_pairs import TopicPairs
from saccade.tasks.topic_documents import TopicDocuments

LISTS = ((((1, 2), (3, 5)), ((1, 2), (3, 5, 6))), (((1, 2, 3), (3, 5)), ((1, 2, 3), (3, 4, 5))))
TASK = TopicDocuments(3, 2, 2, shortest=3, longest=7, train_size=8, test_size=6)
CONFIG = EncoderConfig(2, 2, 4, 6, dropout=0.0, head="masked")


@pytest.fixture(scope="module")
def moment() -> Moment:
    model = CONFIG.build(TASK, jax.random.key(0))
    batch = TASK.sample(jax.random.key(1), 6)
    loss: Any = lambda model, batch: model.loss(batch)  # noqa: E731
    return Moment(TASK, model, batch, batch, loss, lambda: model)


@pytest.fixture(scope="module")
def measured(moment) -> dict[str, np.ndarray]:
    probe = TopicPairs((0.001, 0.002), LISTS, "test", 6)
    return {name: np.asarray(one) for name, one in probe(moment).items()}


def shares_a_topic(topics: Any, one: int, two: int) -> bool:
    return any(one in some and two in some for some in topics)


@pytest.mark.parametrize(("overlap", "threshold"), list(itertools.product(range(2), range(2))))
def test_embeddings_by_plain_loops(moment, measured, overlap, threshold):
    topics, table = LISTS[overlap][threshold], np.asarray(moment.model.embedding, float)
    dots: dict[bool, list[float]] = {True: [], False: []}
    cosines: dict[bool, list[float]] = {True: [], False: []}
    for one, two in itertools.permutations({word for some in topics for word in some}, 2):
        same = shares_a_topic(topics, one, two)
        dots[same].append(float(table[one] @ table[two]))
        length = np.linalg.norm(table[one]) * np.linalg.norm(table[two])
        cosines[same].append(dots[same][-1] / float(length))
    for place, same in enumerate((True, False)):
        at = overlap, threshold, place
        assert measured["topic_dot"][at] == pytest.approx(np.mean(dots[same]), rel=1e-4)
        assert measured["topic_cosine"][at] == pytest.approx(np.mean(cosines[same]), rel=1e-4)


@pytest.mark.parametrize(("overlap", "threshold"), list(itertools.product(range(2), range(2))))
def test_attention_by_plain_loops(moment, measured, overlap, threshold):
    expected = looped(moment.model, moment.test, LISTS[overlap][threshold])
    found = measured["topic_attention"][:, :, overlap, threshold]
    assert np.allclose(found, expected, rtol=1e-4)


def looped(model: Any, batch: Any, topics: Any) -> np.ndarray:
    """Mean attention by layer, head and kind, one pair after another; words without masks."""
    words, mask = np.asarray(batch.labels), np.asarray(batch.mask)
    shown = type(batch)(batch.labels, batch.labels, batch.selected, batch.mask)
    sums, counts = np.zeros((2, 2, 2)), np.zeros(2)
    for layer, one in enumerate(model.attention_layers(shown)):
        scores = np.asarray(one.kernel.scores(one.queries, one.keys), float)
        for example, head in np.ndindex(*scores.shape[:2]):
            for query, key in itertools.product(np.flatnonzero(mask[example]), repeat=2):
                first, second = int(words[example, query]), int(words[example, key])
                if not all(any(word in some for some in topics) for word in (first, second)):
                    continue
                same = shares_a_topic(topics, first, second)
                if same and first == second:
                    continue
                row = np.where(mask[example], scores[example, head, query], -np.inf)
                weights = np.exp(row - row.max())
                sums[layer, head, int(not same)] += weights[key] / weights.sum()
                counts[int(not same)] += layer == head == 0
    return sums / counts


def test_lists_must_fit_the_thresholds():
    with pytest.raises(ConfigError, match="lists: got 2 and 2, allowed: 2 of 1 each"):
        TopicPairs((0.001,), LISTS)
