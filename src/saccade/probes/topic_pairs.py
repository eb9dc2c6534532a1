"""Embeddings and attention of words of the same topic and of different topics, for topics that a
topic model found in a corpus (Li, Li & Risteski 2023, their experiments on Wikipedia).

A pair is of the same topic if some topic has both words; pairs of one word, and words without a
topic, are left out. Words are shown without masks.
"""

import dataclasses
from typing import Any, ClassVar, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from saccade.contracts.chunks import evenly
from saccade.contracts.model import AttentionLayer
from saccade.contracts.probe import Moment
from saccade.contracts.task import SPLITS
from saccade.data.topic_model import KINDS, OVERLAPS, membership, pair_kinds
from saccade.errors import ConfigError
from saccade.models.encoder import EncoderConfig
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable
from saccade.settings import require, require_count
from saccade.tasks.topic_documents import TopicDocuments

Ids = tuple[int, ...]
_SETTINGS = ("overlap", "threshold")


@dataclasses.dataclass(frozen=True)
class TopicPairs(AbstractModelProbe):
    """Mean cosine and dot product of embeddings, over all pairs of words with a topic; and mean
    attention per layer and head, over all pairs of places of evenly spaced examples.
    """

    thresholds: tuple[float, ...]
    """Thresholds of the lists of words."""
    lists: tuple[tuple[tuple[Ids, ...], ...], ...]
    """Ids of the words of every topic: by overlap (disjoint, overlapping), threshold and topic."""
    split: str = "test"
    """The examples: train, validation or test."""
    examples: int = 128
    """The most examples."""

    models: ClassVar = (EncoderConfig,)
    labels: ClassVar = {"overlap": OVERLAPS, "pair": KINDS}
    variables: ClassVar = {
        "topic_cosine": Variable((*_SETTINGS, "pair"), "mean cosine of embeddings"),
        "topic_dot": Variable((*_SETTINGS, "pair"), "mean dot product of embeddings"),
        "topic_attention": Variable(
            ("layer", "head", *_SETTINGS, "pair"), "mean attention of a pair of places"
        ),
    }

    def __post_init__(self):
        require(self, "split", ", ".join(SPLITS), SPLITS.__contains__)
        require_count(self, "examples")
        shape = (len(OVERLAPS), len(self.thresholds))
        if len(self.lists) != shape[0] or {len(one) for one in self.lists} != {shape[1]}:
            got = " and ".join(str(len(one)) for one in self.lists)
            allowed = f"{shape[0]} of {shape[1]} each, one per threshold"
            raise ConfigError(f"lists: got {got}, allowed: {allowed}")

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        lists = ((((1, 2), (3, 4)),), (((1, 2, 3), (3, 4)),))
        config = EncoderConfig(2, 2, 4, 6, dropout=0.0, head="masked")
        return cls((0.001,), lists), ((config, TopicDocuments.example()),)

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        found = super().coordinates(task)
        return found | {"threshold": ("threshold", np.asarray(self.thresholds))}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        embedding = moment.model.embedding
        tables = [
            [membership(lists, range(len(embedding))) for lists in some] for some in self.lists
        ]
        cosines, dots = [], []
        for table in (one for some in tables for one in some):
            chosen = np.flatnonzero(table.any(axis=1))
            vectors = embedding[chosen]
            kinds = pair_kinds(chosen, table[chosen])
            length = jnp.linalg.norm(vectors, axis=1, keepdims=True)
            unit = vectors / jnp.maximum(length, jnp.finfo(vectors.dtype).tiny)
            cosines.append([_mean(unit @ unit.T, kind) for kind in kinds])
            dots.append([_mean(vectors @ vectors.T, kind) for kind in kinds])
        outer = (len(OVERLAPS), len(self.thresholds))
        return {
            "topic_cosine": jnp.asarray(cosines).reshape(*outer, len(KINDS)),
            "topic_dot": jnp.asarray(dots).reshape(*outer, len(KINDS)),
            "topic_attention": self._attention(moment, np.asarray(tables)),
        }

    def _attention(
        self, moment: Moment, tables: Bool[np.ndarray, "overlap threshold id topic"]
    ) -> Float[Array, "layer head overlap threshold pair"]:
        batch = evenly(moment.split(self.split), self.examples)
        words = batch.labels if hasattr(batch, "selected") else batch.words
        shown = dataclasses.replace(batch, words=words)
        layers = moment.model.attention_layers(shown)
        apart = words[:, :, None] != words[:, None, :]
        sums, counts = [], []
        for table in tables.reshape(-1, *tables.shape[2:]):
            of_word = jnp.asarray(table, jnp.float32)[words]  # example position topic
            shared = jnp.einsum("eqt,ekt->eqk", of_word, of_word) > 0
            topical = jnp.any(of_word > 0, axis=-1)
            both = topical[:, :, None] & topical[:, None, :]
            for kind in (shared & apart, both & ~shared):
                sums.append(kind.astype(jnp.float32))
                counts.append(jnp.sum(kind))
        kinds = jnp.stack(sums)  # setting and kind, example, query, key
        means = [
            jnp.einsum("ehqk,xeqk->hx", _weights(layer), kinds) / jnp.stack(counts)
            for layer in layers
        ]
        found = jnp.stack(means)
        return found.reshape(*found.shape[:2], *tables.shape[:2], len(KINDS))


def _mean(
    values: Float[Array, "word word"], kind: Bool[np.ndarray, "word word"]
) -> Float[Array, ""]:
    """NaN if there is no such pair."""
    return jnp.sum(jnp.where(kind, values, 0.0)) / np.float32(kind.sum())


def _weights(layer: AttentionLayer) -> Float[Array, "example head query key"]:
    scores = layer.kernel.scores(layer.queries, layer.keys, layer.scale)
    if layer.mask is not None:
        scores = jnp.where(layer.mask[:, None, None, :], scores, -jnp.inf)
    return layer.kernel.weights(scores)
