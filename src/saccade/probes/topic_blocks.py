"""Topic structure inside of a transformer: in its values, its embeddings and its attention (Li, Li
& Risteski 2023).

Averages over same-topic pairs include the diagonal, as the theorems do; `*_off_diagonal` leave it
out, to show what goes wrong then.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from saccade.core.figure import HeatMap
from saccade.core.interfaces import AbstractProbe, Moment, Variable
from saccade.models.one_layer_transformer import BLOCKS, OneLayerTransformer, TiedScores, id_counts
from saccade.tasks.topic_documents import NO_TOPIC, Documents

LOOKUPS = ("right", "legacy")
SHOWN_TOPICS = 4
"""Topics on a picture of a table of ids."""
PAIRS = ("same word", "same topic", "different topic", "no topic")

if TYPE_CHECKING:
    import xarray as xr

    from saccade.core.record import Record


def _pairs(task: Any) -> tuple[Bool[np.ndarray, "id id"], Bool[np.ndarray, "id id"]]:
    """Which pairs of ids are words of one topic, and which are words of two."""
    topic = np.asarray(task.topic_of_id)
    word = topic >= 0
    words = word[:, None] & word[None, :]
    same = words & (topic[:, None] == topic[None, :])
    return same, words & ~same


def _mean(values: Float[Array, "id id"], where: Bool[np.ndarray, "id id"]) -> Float[Array, ""]:
    return jnp.sum(jnp.where(where, values, 0.0)) / max(int(where.sum()), 1)


@dataclasses.dataclass(frozen=True)
class ValueBlocks(AbstractProbe):
    """The value matrix W_E^T W_V W_E in blocks: the hidden id's column, same topic, different
    topics, the hidden id's row.
    """

    variables: ClassVar = {
        "entry_mean": Variable(("block",), "mean entry of the values in a block"),
        "entry_low": Variable(("block",), "smallest entry of the values in a block"),
        "entry_high": Variable(("block",), "largest entry of the values in a block"),
        "entry_std": Variable(
            ("block",), "standard deviation of the entries of the values in a block"
        ),
        "block_difference": Variable(
            (), "mean entry of the values, same topic (with the diagonal) less different topics"
        ),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        table = moment.model.value_table().T  # row = output, as in the theory
        same, other = _pairs(moment.task)
        word = np.asarray(moment.task.topic_of_id) >= 0
        hidden = np.arange(word.size) == moment.task.hidden_id
        wheres = (
            word[:, None] & hidden[None, :],
            same,
            other,
            hidden[:, None] & np.ones_like(same),
        )
        means = [_mean(table, where) for where in wheres]
        squares = [
            _mean((table - mean) ** 2, where) for mean, where in zip(means, wheres, strict=True)
        ]
        return {
            "entry_mean": jnp.stack(means),
            "entry_low": jnp.stack([jnp.min(jnp.where(where, table, jnp.inf)) for where in wheres]),
            "entry_high": jnp.stack(
                [jnp.max(jnp.where(where, table, -jnp.inf)) for where in wheres]
            ),
            "entry_std": jnp.sqrt(jnp.stack(squares)),
            "block_difference": means[1] - means[2],
        }

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        del task
        return {"block": ("block", list(BLOCKS))}


@dataclasses.dataclass(frozen=True)
class ValueTable(AbstractProbe):
    """The whole value matrix, in single precision: for heat maps (a snapshot)."""

    variables: ClassVar = {
        "value_table": Variable(("output_id", "id"), "the values W_E^T W_V W_E; rows are outputs")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"value_table": moment.model.value_table().T.astype(jnp.float32)}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        ids = np.arange(task.vocabulary_size)
        return {"output_id": ("output_id", ids), "id": ("id", ids)}


@dataclasses.dataclass(frozen=True)
class Similarities(AbstractProbe):
    """Dot products of embeddings, within topics and across."""

    variables: ClassVar = {
        "similarity_same": Variable(
            (), "mean embedding dot product, same topic, the diagonal included"
        ),
        "similarity_other": Variable((), "mean embedding dot product, different topics"),
        "similarity_difference": Variable((), "similarity_same less similarity_other"),
        "similarity_off_diagonal": Variable((), "similarity_difference, the diagonal left out"),
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
class SimilarityTable(AbstractProbe):
    """All dot products of embeddings, in single precision: for heat maps (a snapshot)."""

    variables: ClassVar = {
        "similarity_table": Variable(("other_id", "id"), "embedding dot products W_E^T W_E")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"similarity_table": moment.model.word_similarity().astype(jnp.float32)}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        ids = np.arange(task.vocabulary_size)
        return {"other_id": ("other_id", ids), "id": ("id", ids)}


@dataclasses.dataclass(frozen=True)
class AttentionOdds(AbstractProbe):
    """gamma: how much more an average word of the query's topic weighs than one of another
    topic.
    """

    variables: ClassVar = {
        "attention_ratio": Variable(
            (), "gamma, mean weight of words of the query's topic / of other topics"
        ),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model = moment.model
        if isinstance(model, OneLayerTransformer):
            scores = model.scores()
            if scores is None:
                return {"attention_ratio": jnp.ones(())}
            same, other = _pairs(moment.task)
            word = np.flatnonzero(np.asarray(moment.task.topic_of_id) >= 0)
            within, across = (
                jax.nn.logsumexp(jnp.where(where, scores, -jnp.inf)[word], axis=1)
                - np.log(where.sum(axis=1)[word])
                for where in (same, other)
            )
            return {"attention_ratio": jnp.exp(jnp.mean(within - across))}
        tied: TiedScores = model.tied
        words = moment.task.words_per_topic
        return {
            "attention_ratio": (
                ((words - 1) * jnp.exp(tied.same_topic) + jnp.exp(tied.same_word)) / words
            )
        }


@dataclasses.dataclass(frozen=True)
class PairAttention(AbstractProbe):
    """Average attention of a pair of words, by kind of pair, after the protocol of the authors'
    code.

    No masking; the first documents of the test set, cut to their first positions; weights times
    (length / positions), so that uniform attention gives 1/positions for every kind. Pairs are
    ordered, (query, key); "same word" includes a word and itself. The legacy lookup takes a word's
    topic from its id as if ids were words: with markers it is off by four, so that 40 % of the
    words get the topic of the next, the last four none, and the start marker topic 0.
    """

    documents: int = 500
    """Documents that are looked at."""
    positions: int = 100
    """Positions of each that are looked at."""

    variables: ClassVar = {
        "pair_attention": Variable(
            ("lookup", "pair"), "average attention of an ordered pair of positions"
        ),
        "pair_count": Variable(("lookup", "pair"), "ordered pairs of that kind"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch: Documents = moment.test
        ids = batch.labels[: self.documents, : self.positions]
        mask = None if batch.mask is None else batch.mask[: self.documents, : self.positions]
        size = moment.task.vocabulary_size
        counts = id_counts(ids, mask, size)
        length = jnp.sum(counts, axis=1)
        scores = moment.model.scores()
        scores = jnp.zeros((size, size)) if scores is None else scores
        kinds = jnp.stack(
            [jnp.asarray(_kinds(topics)) for topics in (_right(moment.task), _legacy(moment.task))]
        )

        def one(
            counts: Float[Array, " id"], length: Float[Array, ""]
        ) -> tuple[Float[Array, "lookup pair"], Array]:
            present = jnp.where(
                counts > 0, scores + jnp.log(jnp.where(counts > 0, counts, 1.0)), -jnp.inf
            )
            weights = moment.model.kernel.weights(
                present
            )  # query key, all occurrences of the key together
            mass = counts[:, None] * weights * length / self.positions
            pairs = counts[:, None] * counts[None, :]
            chosen = kinds[:, None] == jnp.arange(len(PAIRS))[None, :, None, None]
            return (
                jnp.sum(jnp.where(chosen, mass, 0), (2, 3)),
                jnp.sum(jnp.where(chosen, pairs, 0), (2, 3)),
            )

        def add(
            total: tuple[Array, Array], document: tuple[Array, Array]
        ) -> tuple[tuple[Array, Array], None]:
            return jax.tree.map(jnp.add, total, one(*document)), None

        nothing = jnp.zeros((len(LOOKUPS), len(PAIRS)), counts.dtype)
        (mass, pairs), _ = jax.lax.scan(add, (nothing, nothing), (counts, length))
        return {"pair_attention": mass / jnp.maximum(pairs, 1), "pair_count": pairs}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        del task
        return {"lookup": ("lookup", list(LOOKUPS)), "pair": ("pair", list(PAIRS))}


def _right(task: Any) -> Int[np.ndarray, " id"]:
    return np.asarray(task.topic_of_id)


def _legacy(task: Any) -> Int[np.ndarray, " id"]:
    """The authors' lookup: an id below the number of words is taken for a word; padding and
    hidden words do not occur.
    """
    ids = np.arange(task.vocabulary_size)
    return np.where(ids < task.topics * task.words_per_topic, ids // task.words_per_topic, NO_TOPIC)


def _kinds(topic: Int[np.ndarray, " id"]) -> Int[np.ndarray, "query key"]:
    """Kind of every pair of ids: the same id first, then no topic, then by topics."""
    none = (topic[:, None] < 0) | (topic[None, :] < 0)
    kinds = np.where(none, 3, np.where(topic[:, None] == topic[None, :], 1, 2))
    return np.where(np.eye(topic.size, dtype=bool), 0, kinds)


def corner(record: "Record", table: "xr.DataArray", label: str) -> HeatMap:
    """The first seed's table of ids at the end: the hidden id and the words of the first topics."""
    shown = 1 + min(SHOWN_TOPICS, record.config["topics"]) * record.config["words_per_topic"]
    return HeatMap(
        label,
        np.arange(shown),
        np.arange(shown),
        table.isel(seed=0, step=-1).values[:shown, :shown].astype(float),
    )
