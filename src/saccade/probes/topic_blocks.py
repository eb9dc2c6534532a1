"""Topic structure of a transformer: values, embeddings and attention (Li, Li & Risteski 2023).

Averages over same-topic pairs include the diagonal, as in the theorems.
"""

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from saccade.contracts.probe import Moment
from saccade.models.counting import id_counts
from saccade.models.one_layer_transformer import BLOCKS, OneLayerTransformerConfig
from saccade.models.tied_attention import TiedAttention, TiedAttentionConfig
from saccade.probes.co_occurrence import AbstractIdTable
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable
from saccade.tasks.topic_documents import NO_TOPIC, Documents, HasTopicIds

LOOKUPS = ("right", "legacy")
PAIRS = ("same word", "same topic", "different topic", "no topic")


class AbstractTransformerProbe(AbstractModelProbe):
    """A probe of the one-layer transformer."""

    models: ClassVar = (OneLayerTransformerConfig,)


def _pairs(task: HasTopicIds) -> tuple[Bool[np.ndarray, "id id"], Bool[np.ndarray, "id id"]]:
    """Which pairs of ids are words of the same topic, and which of different topics."""
    topic = task.topic_of_id
    words = (topic >= 0)[:, None] & (topic >= 0)[None, :]
    same = words & (topic[:, None] == topic[None, :])
    return same, words & ~same


def _mean(values: Float[Array, "id id"], where: Bool[np.ndarray, "id id"]) -> Float[Array, ""]:
    return jnp.sum(jnp.where(where, values, 0.0)) / max(int(where.sum()), 1)


class ValueBlocks(AbstractTransformerProbe):
    """Statistics of the value matrix W_E^T W_V W_E on its `BLOCKS`."""

    labels: ClassVar = {"block": BLOCKS}
    variables: ClassVar = {
        "entry_mean": Variable(("block",), "mean entry of the values in a block"),
        "entry_low": Variable(("block",), "smallest entry of the values in a block"),
        "entry_high": Variable(("block",), "largest entry of the values in a block"),
        "entry_std": Variable(("block",), "standard deviation of the values in a block"),
        "block_difference": Variable((), "mean entry, same topic (with diagonal) less others"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        table = moment.model.value_table().T  # row = output, as in the theory
        same, other = _pairs(moment.task)
        word = moment.task.topic_of_id >= 0
        hidden = np.arange(word.size) == moment.task.hidden_id
        column, row = word[:, None] & hidden[None, :], hidden[:, None] & np.ones_like(same)
        blocks = (column, same, other, row)
        mean = jnp.stack([_mean(table, block) for block in blocks])
        squares = [_mean((table - _mean(table, block)) ** 2, block) for block in blocks]
        low = jnp.stack([jnp.min(jnp.where(block, table, jnp.inf)) for block in blocks])
        high = jnp.stack([jnp.max(jnp.where(block, table, -jnp.inf)) for block in blocks])
        entries = {"entry_mean": mean, "entry_low": low, "entry_high": high}
        entries["entry_std"] = jnp.sqrt(jnp.stack(squares))
        return entries | {"block_difference": mean[1] - mean[2]}


class ValueTable(AbstractTransformerProbe, AbstractIdTable):
    """The whole value matrix in single precision, for heat maps."""

    variables: ClassVar = {
        "value_table": Variable(("output_id", "id"), "the values W_E^T W_V W_E; rows are outputs")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"value_table": moment.model.value_table().T.astype(jnp.float32)}


class Similarities(AbstractTransformerProbe):
    """Dot products of embeddings within and across topics."""

    variables: ClassVar = {
        "similarity_same": Variable((), "mean embedding dot product, same topic (with diagonal)"),
        "similarity_other": Variable((), "mean embedding dot product, different topics"),
        "similarity_difference": Variable((), "similarity_same less similarity_other"),
        "similarity_off_diagonal": Variable((), "similarity_difference without the diagonal"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        table = moment.model.word_similarity()
        same, other = _pairs(moment.task)
        within, across = _mean(table, same), _mean(table, other)
        apart = _mean(table, same & ~np.eye(len(same), dtype=bool)) - across
        found = {"similarity_same": within, "similarity_other": across}
        found["similarity_difference"] = within - across
        return found | {"similarity_off_diagonal": apart}


class SimilarityTable(AbstractTransformerProbe, AbstractIdTable):
    """All dot products of embeddings in single precision, for heat maps."""

    variables: ClassVar = {
        "similarity_table": Variable(("other_id", "id"), "embedding dot products W_E^T W_E")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"similarity_table": moment.model.word_similarity().astype(jnp.float32)}


class AttentionOdds(AbstractModelProbe):
    """gamma: the weight of an average word of the query's topic over that of another topic."""

    models: ClassVar = (OneLayerTransformerConfig, TiedAttentionConfig)
    variables: ClassVar = {
        "attention_ratio": Variable((), "gamma, mean weight in the query's topic / in other topics")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model, task = moment.model, moment.task
        if not isinstance(model, TiedAttention):
            return {"attention_ratio": _ratio(model.scores(), task)}
        words, tied = task.words_per_topic, model.tied
        ratio = ((words - 1) * jnp.exp(tied.same_topic) + jnp.exp(tied.same_word)) / words
        return {"attention_ratio": ratio}


def _ratio(scores: Float[Array, "id id"] | None, task: HasTopicIds) -> Float[Array, ""]:
    """Geometric mean over queries."""
    if scores is None:
        return jnp.ones(())
    word = np.flatnonzero(task.topic_of_id >= 0)

    def log_mean(where: Bool[np.ndarray, "id id"]) -> Float[Array, " word"]:
        total = jax.nn.logsumexp(jnp.where(where, scores, -jnp.inf)[word], axis=1)
        return total - np.log(where.sum(axis=1)[word])

    same, other = _pairs(task)
    return jnp.exp(jnp.mean(log_mean(same) - log_mean(other)))


@dataclasses.dataclass(frozen=True)
class PairAttention(AbstractTransformerProbe):
    """Average attention by kind of word pair, with the protocol of the authors' code.

    No masking; the first test documents, cut to their first positions; weights times (length /
    positions), so that uniform attention gives 1/positions for every kind. Pairs are ordered,
    (query, key); "same word" includes a position and itself. The legacy lookup takes ids for words.
    With markers, off by four: 40 % of words get the next topic, the last four none, START topic 0.
    """

    documents: int = 500
    """Documents that are measured."""
    positions: int = 100
    """Positions of each document that are measured."""

    labels: ClassVar = {"lookup": LOOKUPS, "pair": PAIRS}
    variables: ClassVar = {
        "pair_attention": Variable(("lookup", "pair"), "mean attention, ordered pair of positions"),
        "pair_count": Variable(("lookup", "pair"), "ordered pairs of that kind"),
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(documents=4, positions=5), (OneLayerTransformerConfig.example(),)

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch: Documents = moment.test
        size, measured = moment.task.vocabulary_size, np.s_[: self.documents, : self.positions]
        mask = None if batch.mask is None else batch.mask[measured]
        counts = id_counts(batch.labels[measured], mask, size)
        length = jnp.sum(counts, axis=1)
        scores = moment.model.scores()
        scores = jnp.zeros((size, size)) if scores is None else scores
        lookups = (moment.task.topic_of_id, _legacy(moment.task))
        kinds = jnp.stack([jnp.asarray(_kinds(topics)) for topics in lookups])

        def add(total: Any, document: tuple[Array, Array]) -> tuple[Any, None]:
            counts, length = document
            logs = jnp.log(jnp.where(counts > 0, counts, 1.0))
            # query key; all occurrences of a key together
            weights = moment.model.kernel.weights(jnp.where(counts > 0, scores + logs, -jnp.inf))
            mass = counts[:, None] * weights * length / self.positions
            pairs = counts[:, None] * counts[None, :]
            chosen = kinds[:, None] == jnp.arange(len(PAIRS))[None, :, None, None]
            sums = tuple(jnp.sum(jnp.where(chosen, part, 0), (2, 3)) for part in (mass, pairs))
            return jax.tree.map(jnp.add, total, sums), None

        nothing = jnp.zeros((len(LOOKUPS), len(PAIRS)), counts.dtype)
        (mass, pairs), _ = jax.lax.scan(add, (nothing, nothing), (counts, length))
        return {"pair_attention": mass / jnp.maximum(pairs, 1), "pair_count": pairs}


def _legacy(task: HasTopicIds) -> Int[np.ndarray, " id"]:
    """The authors' lookup, which takes ids for words. (Padding and hidden words do not occur.)"""
    ids, words = np.arange(task.vocabulary_size), task.topics * task.words_per_topic
    return np.where(ids < words, ids // int(task.words_per_topic), NO_TOPIC)


def _kinds(topic: Int[np.ndarray, " id"]) -> Int[np.ndarray, "query key"]:
    """Kind of every pair of ids, as an index into `PAIRS`; same word takes precedence."""
    none = (topic[:, None] < 0) | (topic[None, :] < 0)
    kinds = np.where(none, 3, np.where(topic[:, None] == topic[None, :], 1, 2))
    return np.where(np.eye(topic.size, dtype=bool), 0, kinds)
