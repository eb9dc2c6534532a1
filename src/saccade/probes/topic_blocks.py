"""Topic structure of a transformer: its values, its embeddings and its attention (Li, Li &
Risteski 2023).

Averages over same-topic pairs include the diagonal, as the theorems do. `similarity_off_diagonal`
excludes it, to show the difference.
"""

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from saccade.core.interfaces import AbstractProbe, HasVocabulary, Moment, Variable
from saccade.models.one_layer_transformer import (
    BLOCKS,
    OneLayerTransformer,
    OneLayerTransformerConfig,
    id_counts,
)
from saccade.models.tied_attention import TiedAttentionConfig
from saccade.tasks.topic_documents import NO_TOPIC, Documents, HasTopicIds

LOOKUPS = ("right", "legacy")
PAIRS = ("same word", "same topic", "different topic", "no topic")


class AbstractTransformerProbe(AbstractProbe):
    """A probe of the one-layer transformer."""

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(), (OneLayerTransformerConfig.example(),)


def _pairs(task: HasTopicIds) -> tuple[Bool[np.ndarray, "id id"], Bool[np.ndarray, "id id"]]:
    """Which pairs of ids are words of the same topic, and which of different topics."""
    topic = task.topic_of_id
    words = (topic >= 0)[:, None] & (topic >= 0)[None, :]
    same = words & (topic[:, None] == topic[None, :])
    return same, words & ~same


def _mean(values: Float[Array, "id id"], where: Bool[np.ndarray, "id id"]) -> Float[Array, ""]:
    return jnp.sum(jnp.where(where, values, 0.0)) / max(int(where.sum()), 1)


@dataclasses.dataclass(frozen=True)
class ValueBlocks(AbstractTransformerProbe):
    """Statistics of the value matrix W_E^T W_V W_E on its `BLOCKS`."""

    variables: ClassVar = {
        "entry_mean": Variable(("block",), "mean entry of the values in a block"),
        "entry_low": Variable(("block",), "smallest entry of the values in a block"),
        "entry_high": Variable(("block",), "largest entry of the values in a block"),
        "entry_std": Variable(("block",), "standard deviation of the values in a block"),
        "block_difference": Variable(
            (), "mean entry of the values, same topic (with the diagonal) less different topics"
        ),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        table = moment.model.value_table().T  # row = output, as in the theory
        same, other = _pairs(moment.task)
        word = moment.task.topic_of_id >= 0
        hidden = np.arange(word.size) == moment.task.hidden_id
        column, row = word[:, None] & hidden[None, :], hidden[:, None] & np.ones_like(same)
        blocks = (column, same, other, row)
        means = [_mean(table, block) for block in blocks]
        squares = [
            _mean((table - mean) ** 2, block) for mean, block in zip(means, blocks, strict=True)
        ]
        low = [jnp.min(jnp.where(block, table, jnp.inf)) for block in blocks]
        high = [jnp.max(jnp.where(block, table, -jnp.inf)) for block in blocks]
        return {
            "entry_mean": jnp.stack(means),
            "entry_low": jnp.stack(low),
            "entry_high": jnp.stack(high),
            "entry_std": jnp.sqrt(jnp.stack(squares)),
            "block_difference": means[1] - means[2],
        }

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        del task
        return {"block": ("block", list(BLOCKS))}


@dataclasses.dataclass(frozen=True)
class ValueTable(AbstractTransformerProbe):
    """The whole value matrix in single precision, for heat maps."""

    variables: ClassVar = {
        "value_table": Variable(("output_id", "id"), "the values W_E^T W_V W_E; rows are outputs")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"value_table": moment.model.value_table().T.astype(jnp.float32)}

    def coordinates(self, task: HasVocabulary) -> dict[str, tuple[str, Any]]:
        ids = np.arange(task.vocabulary_size)
        return {"output_id": ("output_id", ids), "id": ("id", ids)}


@dataclasses.dataclass(frozen=True)
class Similarities(AbstractTransformerProbe):
    """Dot products of embeddings within and across topics."""

    variables: ClassVar = {
        "similarity_same": Variable(
            (), "mean embedding dot product, same topic (with the diagonal)"
        ),
        "similarity_other": Variable((), "mean embedding dot product, different topics"),
        "similarity_difference": Variable((), "similarity_same less similarity_other"),
        "similarity_off_diagonal": Variable((), "similarity_difference without the diagonal"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        table = moment.model.word_similarity()
        same, other = _pairs(moment.task)
        apart = same & ~np.eye(len(same), dtype=bool)
        within, across = _mean(table, same), _mean(table, other)
        return {
            "similarity_same": within,
            "similarity_other": across,
            "similarity_difference": within - across,
            "similarity_off_diagonal": _mean(table, apart) - across,
        }


@dataclasses.dataclass(frozen=True)
class SimilarityTable(AbstractTransformerProbe):
    """All dot products of embeddings in single precision, for heat maps."""

    variables: ClassVar = {
        "similarity_table": Variable(("other_id", "id"), "embedding dot products W_E^T W_E")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"similarity_table": moment.model.word_similarity().astype(jnp.float32)}

    def coordinates(self, task: HasVocabulary) -> dict[str, tuple[str, Any]]:
        ids = np.arange(task.vocabulary_size)
        return {"other_id": ("other_id", ids), "id": ("id", ids)}


@dataclasses.dataclass(frozen=True)
class AttentionOdds(AbstractProbe):
    """gamma: the weight of an average word of the query's topic over that of another topic."""

    variables: ClassVar = {
        "attention_ratio": Variable(
            (), "gamma, mean weight of words of the query's topic / of other topics"
        )
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(), (OneLayerTransformerConfig.example(), TiedAttentionConfig.example())

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model, task = moment.model, moment.task
        if isinstance(model, OneLayerTransformer):
            return {"attention_ratio": _ratio(model, task)}
        words, tied = task.words_per_topic, model.tied
        ratio = ((words - 1) * jnp.exp(tied.same_topic) + jnp.exp(tied.same_word)) / words
        return {"attention_ratio": ratio}


def _ratio(model: OneLayerTransformer, task: HasTopicIds) -> Float[Array, ""]:
    """Geometric mean over queries."""
    scores = model.scores()
    if scores is None:
        return jnp.ones(())
    word = np.flatnonzero(task.topic_of_id >= 0)
    within, across = (
        jax.nn.logsumexp(jnp.where(where, scores, -jnp.inf)[word], axis=1)
        - np.log(where.sum(axis=1)[word])
        for where in _pairs(task)
    )
    return jnp.exp(jnp.mean(within - across))


@dataclasses.dataclass(frozen=True)
class PairAttention(AbstractProbe):
    """Average attention per pair of words, by kind of pair, with the protocol of the authors' code.

    No masking; the first documents of the test set, cut to their first positions; weights times
    (length / positions), so that uniform attention gives 1/positions for every kind. Pairs are
    ordered, (query, key); "same word" includes a position and itself. The legacy lookup reads a
    word's topic off its id as if ids were words. With markers it is off by four: 40 % of the words
    get the topic of the next, the last four none, and the start marker topic 0.
    """

    documents: int = 500
    """Documents that are measured."""
    positions: int = 100
    """Positions of each document that are measured."""

    variables: ClassVar = {
        "pair_attention": Variable(
            ("lookup", "pair"), "average attention of an ordered pair of positions"
        ),
        "pair_count": Variable(("lookup", "pair"), "ordered pairs of that kind"),
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(documents=4, positions=5), (OneLayerTransformerConfig.example(),)

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch: Documents = moment.test
        ids = batch.labels[: self.documents, : self.positions]
        mask = None if batch.mask is None else batch.mask[: self.documents, : self.positions]
        size = moment.task.vocabulary_size
        counts = id_counts(ids, mask, size)
        length = jnp.sum(counts, axis=1)
        scores = moment.model.scores()
        scores = jnp.zeros((size, size)) if scores is None else scores
        lookups = (moment.task.topic_of_id, _legacy(moment.task))
        kinds = jnp.stack([jnp.asarray(_kinds(topics)) for topics in lookups])

        def one(
            counts: Float[Array, " id"], length: Float[Array, ""]
        ) -> tuple[Float[Array, "lookup pair"], Float[Array, "lookup pair"]]:
            logs = jnp.log(jnp.where(counts > 0, counts, 1.0))
            # query key; all occurrences of a key together
            weights = moment.model.kernel.weights(jnp.where(counts > 0, scores + logs, -jnp.inf))
            mass = counts[:, None] * weights * length / self.positions
            pairs = counts[:, None] * counts[None, :]
            chosen = kinds[:, None] == jnp.arange(len(PAIRS))[None, :, None, None]
            mass, pairs = (jnp.sum(jnp.where(chosen, part, 0), (2, 3)) for part in (mass, pairs))
            return mass, pairs

        def add(total: Any, document: tuple[Array, Array]) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, one(*document)), None

        nothing = jnp.zeros((len(LOOKUPS), len(PAIRS)), counts.dtype)
        (mass, pairs), _ = jax.lax.scan(add, (nothing, nothing), (counts, length))
        return {"pair_attention": mass / jnp.maximum(pairs, 1), "pair_count": pairs}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        del task
        return {"lookup": ("lookup", list(LOOKUPS)), "pair": ("pair", list(PAIRS))}


def _legacy(task: HasTopicIds) -> Int[np.ndarray, " id"]:
    """The authors' lookup: an id below the number of words is taken for a word. (Padding and hidden
    words do not occur.)
    """
    ids, words = np.arange(task.vocabulary_size), task.topics * task.words_per_topic
    return np.where(ids < words, ids // int(task.words_per_topic), NO_TOPIC)


def _kinds(topic: Int[np.ndarray, " id"]) -> Int[np.ndarray, "query key"]:
    """Kind of every pair of ids, as an index into `PAIRS`; same word takes precedence."""
    none = (topic[:, None] < 0) | (topic[None, :] < 0)
    kinds = np.where(none, 3, np.where(topic[:, None] == topic[None, :], 1, 2))
    return np.where(np.eye(topic.size, dtype=bool), 0, kinds)
