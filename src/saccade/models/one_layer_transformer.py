"""The one-layer transformer of Li, Li & Risteski (2023), which predicts masked words of documents
about topics.

    f(X) = W_E^T (W_V W_E X) Attn(X) + b
    Attn = column softmax of (W_K Z)^T (W_Q Z) / sqrt(d_a),  Z = W_E X

There is no residual connection, feed-forward layer, normalisation or position, so a position's
output depends on its word alone: a D x D table of scores and a D x D table of values determine the
model (D ids). Three facts make training cheap:

* a document is its word counts: a query attends to id j with weight (count of j) x exp(score), so
  there are D keys instead of N;
* only selected positions have a loss, and most of them show the hidden id; these share one row per
  document;
* the others are gathered into a bounded number of rows (Bernstein: exceeded with probability below
  1e-15 per batch).

Attention is uniform, learned (W_K, W_Q), tied to three numbers (same word, same topic, other topic;
stage 2 of the theory), or free (the D x D table of scores is itself trained).
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal, Self, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractModel, AbstractModelConfig, Output
from saccade.core.sweep import require, require_count
from saccade.models.freezing import without
from saccade.models.kernels import KERNELS, AbstractKernel, KernelName
from saccade.tasks.long_documents import Moments
from saccade.tasks.topic_documents import Documents, HasTopicIds, TopicDocuments

PARTS = ("embeddings", "values", "keys", "queries", "bias", "score_table")

BLOCKS = ("hidden", "same", "other", "output hidden")
"""Blocks of a value matrix: the hidden id's column, words of the same topic, words of different
topics, the hidden id's row.
"""

Attention = Literal["uniform", "learned", "tied", "free"]
Embedding = Literal["one_hot", "trained"]
Start = Literal["gaussian", "uniform", "default"]


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A value matrix that is constant on blocks. Rows are output words, columns are attended ids;
    the hidden id's row is 0.
    """

    hidden: Any
    """The hidden id's column (x of the theory)."""
    same: Any
    """Words of the same topic, the diagonal included (s)."""
    other: Any
    """Words of different topics (q)."""

    def table(self, topic_of_id: np.ndarray, hidden_id: int) -> Float[Array, "output key"]:
        topic = np.asarray(topic_of_id)
        word = topic >= 0
        same = (topic[:, None] == topic[None, :]) & word[:, None]
        hidden = word[:, None] & (np.arange(topic.size) == hidden_id)[None, :]
        other = word[:, None] & word[None, :] & ~same
        return (
            jnp.where(same, self.same, 0.0)
            + jnp.where(hidden, self.hidden, 0.0)
            + jnp.where(other, self.other, 0.0)
        )


class TiedScores(eqx.Module):
    """Attention tied to c1 (same word), c2 (another word of the topic) and c3 (anything else)."""

    same_word: Float[Array, ""]
    """log(c1 / c3), the logarithm of beta."""
    same_topic: Float[Array, ""]
    """log(c2 / c3), the logarithm of alpha."""


class OneLayerTransformer(AbstractModel):
    """Embeddings (None: one-hot), a value matrix, and one kind of scores."""

    embeddings: Float[Array, "dimension id"] | None
    values: Float[Array, "dimension dimension"] | None
    """None: the identity."""
    keys: Float[Array, "key_dimension dimension"] | None
    queries: Float[Array, "key_dimension dimension"] | None
    key_bias: Float[Array, " key_dimension"] | None
    query_bias: Float[Array, " key_dimension"] | None
    value_bias: Float[Array, " dimension"] | None
    bias: Float[Array, " id"] | None
    tied: TiedScores | None
    score_table: Float[Array, "query key"] | None
    relation: Int[Array, "query key"] | None
    """For tied attention: 0 same word, 1 same topic, 2 anything else."""
    ridge: Any
    kernel: AbstractKernel
    ids: int = eqx.field(static=True)
    hidden_id: int = eqx.field(static=True)
    looking_share: float = eqx.field(static=True)
    """Share of the positions that are selected and show a word; 1 if masking is swept."""
    selected_hidden: bool = eqx.field(static=True)
    frozen: tuple[str, ...] = eqx.field(static=True)

    # -- tables ------------------------------------------------------------------------------------

    def scores(self) -> Float[Array, "query key"] | None:
        """Log weight of every key id for every query id; None if attention is uniform."""
        if self.score_table is not None:
            return self.score_table
        if self.tied is not None:
            assert self.relation is not None
            topic = jnp.where(self.relation == 1, self.tied.same_topic, 0.0)
            return jnp.where(self.relation == 0, self.tied.same_word, topic)
        if self.keys is None or self.queries is None:
            return None
        queries, keys = (self._embedded(part) for part in (self.queries, self.keys))
        if self.query_bias is not None and self.key_bias is not None:
            queries, keys = queries + self.query_bias[:, None], keys + self.key_bias[:, None]
        return self.kernel.scores(queries.T, keys.T)

    def _embedded(self, part: Float[Array, "*row dimension"]) -> Float[Array, "*row id"]:
        return part if self.embeddings is None else part @ self.embeddings

    def value_table(self) -> Float[Array, "key output"]:
        """The contribution of each key id to every output: (W_E^T W_V W_E)^T."""
        if self.embeddings is None:
            return jnp.eye(self.ids) if self.values is None else self.values.T
        if self.values is None:
            return self.embeddings.T @ self.embeddings
        return (self.embeddings.T @ (self.values @ self.embeddings)).T

    def word_similarity(self) -> Float[Array, "id other"]:
        """E = W_E^T W_E, the dot products of the embeddings."""
        return jnp.eye(self.ids) if self.embeddings is None else self.embeddings.T @ self.embeddings

    def _added(
        self, outputs: Float[Array, "*some id"], mass: Float[Array, "*some"]
    ) -> Float[Array, "*some id"]:
        """Outputs plus the value bias times the attention mass, plus the output bias."""
        if self.value_bias is not None:
            outputs = outputs + mass[..., None] * self._embedded(self.value_bias)
        return outputs if self.bias is None else outputs + self.bias

    def offset(self) -> Float[Array, " id"]:
        """The contribution of the biases to every output, for attention of mass 1."""
        return self._added(jnp.zeros(self.ids), jnp.ones(()))

    def _weights(
        self, scores: Float[Array, "*some key"], seen: Bool[Array, "*some key"]
    ) -> Float[Array, "*some key"]:
        """Weights of the visible keys; all 0 where no key is visible."""
        blind = ~jnp.any(seen, axis=-1, keepdims=True)
        return jnp.where(blind, 0.0, self.kernel.weights(jnp.where(seen | blind, scores, -jnp.inf)))

    def _seen(self, batch: Documents) -> Bool[Array, "document position"] | None:
        if not self.selected_hidden:
            return batch.mask
        return ~batch.selected if batch.mask is None else batch.mask & ~batch.selected

    def _outputs(
        self,
        scores: Float[Array, "row key"] | None,
        counts: Float[Array, "row key"],
        values: Float[Array, "key id"],
    ) -> Float[Array, "row id"]:
        """Outputs of queries, from their scores and their documents' word counts."""
        present = counts > 0
        if scores is None:
            scores = jnp.zeros_like(counts)
        weights = self._weights(scores + jnp.log(jnp.where(present, counts, 1.0)), present)
        return self._added(weights @ values, jnp.sum(weights, axis=-1))

    # -- calling -----------------------------------------------------------------------------------

    def __call__(self, batch: Documents) -> Output:
        """Logits and attention at every position. (Training uses the cheaper `guesses`.)"""
        scores, seen = self.scores(), self._seen(batch)
        shape = (*batch.words.shape, batch.words.shape[1])
        position_scores = jnp.zeros(shape)
        if scores is not None:
            position_scores = scores[batch.words[:, :, None], batch.words[:, None, :]]
        visible = jnp.broadcast_to(True if seen is None else seen[:, None, :], shape)
        attention = self._weights(position_scores, visible)
        values = self.value_table()[batch.words]
        logits = jnp.einsum("dqk,dko->dqo", attention, values)
        return Output(self._added(logits, jnp.sum(attention, axis=-1)), attention)

    def guesses(self, batch: Documents) -> "Guesses":
        """Outputs at the selected positions: one row per document for all hidden ones, and one for
        each of the others.
        """
        documents, positions = batch.words.shape
        hidden = batch.selected & (batch.words == self.hidden_id)
        rows = most(documents * positions, self.looking_share)
        place, used = chosen_places(batch.selected & ~hidden, rows)
        shown = batch.words.reshape(-1)[place]
        query = jnp.concatenate([jnp.full(documents, self.hidden_id), shown])
        document = jnp.concatenate([jnp.arange(documents), place // positions])
        label = batch.labels.reshape(-1)[place]
        right = (label[:, None] == jnp.arange(self.ids)) & used[:, None]
        targets = jnp.concatenate([id_counts(batch.labels, hidden, self.ids), right])
        scores = self.scores()
        scores = None if scores is None else scores[query]
        counts = id_counts(batch.words, self._seen(batch), self.ids)[document]
        return Guesses(self._outputs(scores, counts, self.value_table()), targets)

    def loss(self, batch: Documents | Moments) -> Float[Array, ""]:
        """Squared error: the mean of ||f - e_w||^2 over the selected positions (w the correct
        word), or for long documents its excess over the minimum, E ||W Pt + b - P||^2.
        """
        if isinstance(batch, Moments):
            if self.scores() is not None:
                raise ConfigError("attention: got scores, allowed: uniform on long documents")
            outputs = batch.shown @ self.value_table() + batch.constant[:, None] * self.offset()
            return jnp.sum((outputs - batch.target) ** 2)
        guesses = self.guesses(batch)
        times = jnp.sum(guesses.targets, axis=1)
        squares = times * (jnp.sum(guesses.outputs**2, axis=1) + 1)
        squares = squares - 2 * jnp.sum(guesses.outputs * guesses.targets, axis=1)
        return jnp.sum(squares) / guesses.count

    def penalty(self) -> Float[Array, ""] | float:
        if self.values is None or (isinstance(self.ridge, float) and self.ridge == 0):
            return 0.0
        return self.ridge * jnp.sum(self.values**2)

    def trainable(self) -> PyTree:
        frozen = tuple(part for part in self.frozen if getattr(self, part) is not None)
        return without(super().trainable(), (*frozen, "ridge"))


class Guesses(eqx.Module):
    """Outputs at the selected positions, and the correct words."""

    outputs: Float[Array, "row id"]
    targets: Float[Array, "row id"]
    """How often each id is correct in this row; all 0 in unused rows."""

    @property
    def count(self) -> Float[Array, ""]:
        """Number of selected positions."""
        return jnp.maximum(jnp.sum(self.targets), 1)


def guess_entropy(model: OneLayerTransformer, batch: Documents) -> Float[Array, ""]:
    """Mean cross-entropy of the correct word over the selected positions."""
    guesses = model.guesses(batch)
    return -jnp.sum(jax.nn.log_softmax(guesses.outputs) * guesses.targets) / guesses.count


def uniform_curvature(model: OneLayerTransformer, batch: Moments) -> Float[Array, ""]:
    """Largest curvature of loss and ridge in the values, for one-hot embeddings and uniform
    attention.
    """
    return 2 * (jnp.linalg.norm(batch.shown, ord=2) ** 2 + model.ridge)


def id_counts(
    ids: Int[Array, "document position"],
    present: Bool[Array, "document position"] | Float[Array, "document position"] | None,
    size: int,
) -> Float[Array, "document id"]:
    """How often each id occurs in each document, among the positions that are present."""
    dtype = jnp.zeros(()).dtype
    weight = jnp.ones(ids.shape, dtype) if present is None else present.astype(dtype)
    document = jnp.arange(ids.shape[0])[:, None]
    return jnp.zeros((ids.shape[0], size), dtype).at[document, ids].add(weight)


def chosen_places(
    chosen: Bool[Array, "document position"], rows: int
) -> tuple[Int[Array, " row"], Bool[Array, " row"]]:
    """Flat indices of the chosen positions in a fixed number of rows, and which rows are used."""
    documents, positions = chosen.shape
    flags = chosen.astype(jnp.float32)
    # Cumulative sums as products with triangular matrices: XLA's own are slow to compile and to run
    # on a CPU. Exact below 2^24.
    before = flags @ jnp.triu(jnp.ones((positions, positions), jnp.float32), 1)
    starts = jnp.tril(jnp.ones((documents, documents), jnp.float32), -1) @ jnp.sum(flags, axis=1)
    row = jnp.where(chosen, (before + starts[:, None]).astype(jnp.int32), rows)
    numbers = jnp.arange(documents * positions, dtype=jnp.int32)
    place = jnp.zeros(rows, jnp.int32).at[row.reshape(-1)].set(numbers, mode="drop")
    return place, jnp.arange(rows) < jnp.sum(flags)


def most(trials: int, probability: float) -> int:
    """A bound that a binomial variable exceeds with probability below 1e-15 (Bernstein)."""
    mean, room = trials * probability, 34.6
    return min(trials, math.ceil(mean + room / 3 + math.sqrt((room / 3) ** 2 + 2 * room * mean)))


@dataclasses.dataclass(frozen=True)
class OneLayerTransformerConfig(AbstractModelConfig):
    """The parts of the model, which of them learn, and their initialisation."""

    embedding: Embedding = "one_hot"
    """one_hot: frozen one-hot vectors; trained: tied input and output embeddings."""
    dimension: int = 0
    """Dimension of trained embeddings; 0: the number of ids."""
    attention: Attention = "learned"
    """uniform; learned: keys and queries; tied: three numbers; free: a table of scores."""
    values: Literal["trained", "identity"] | Callable[[Any], Blocks] = "trained"
    """trained; identity; or a function of the task that returns the blocks of frozen values."""
    frozen: tuple[str, ...] = ()
    """Parts that do not learn: embeddings, values, keys, queries, bias, score_table."""
    bias: bool = False
    """Whether outputs have a trained bias. (Its curvature is 10 to 20 times that of the values.)"""
    layer_biases: bool = False
    """Whether keys, queries and values have biases, as in the authors' code."""
    start: Start = "gaussian"
    """Initialisation of keys, queries and values: gaussian, N(0, std^2); uniform on 0 to std (the
    authors' code); default, PyTorch's."""
    start_std: float = 1e-3
    """Scale of that initialisation."""
    embedding_std: float = 0.05
    """Standard deviation of trained embeddings at initialisation."""
    selected_hidden: bool = False
    """Selected positions cannot be attended to (the authors' code)."""
    ridge: float = 0.0
    """lambda of the penalty lambda ||W_V||_F^2."""
    kernel: KernelName = "softmax"
    """softmax, or gaussian (not normalised)."""

    def __post_init__(self):
        choices = (("embedding", Embedding), ("attention", Attention), ("start", Start))
        for field, kind in choices:
            require(self, field, ", ".join(get_args(kind)), get_args(kind).__contains__)
        require(self, "kernel", ", ".join(KERNELS), lambda value: value in KERNELS)
        require_count(self, "dimension", least=0)
        for field in ("start_std", "embedding_std", "ridge"):
            require(self, field, "a finite number, at least 0", lambda value: 0 <= value < math.inf)
        unknown = [part for part in self.frozen if part not in PARTS]
        if unknown:
            raise ConfigError(f"frozen: got {unknown[0]}, allowed: {', '.join(PARTS)}")
        if callable(self.values) and self.embedding != "one_hot":
            raise ConfigError(
                "values: got blocks, allowed: only with one-hot embeddings, because blocks are"
                " a table of words"
            )
        if self.kernel == "gaussian" and self.attention != "learned":
            raise ConfigError(
                f"kernel: got gaussian, allowed: softmax, because {self.attention} attention has no"
                " keys and queries"
            )

    @classmethod
    def example(cls) -> tuple[Self, TopicDocuments]:
        return cls(start_std=0.5), TopicDocuments.example()

    def build(self, task: HasTopicIds, key: PRNGKeyArray) -> OneLayerTransformer:
        embedding_key, value_key, key_key, query_key, *bias_keys = jax.random.split(key, 7)
        ids, frozen = task.vocabulary_size, self.frozen
        embeddings, dimension = None, ids
        if self.embedding == "trained":
            dimension = self.dimension or ids
            embeddings = self.embedding_std * jax.random.normal(embedding_key, (dimension, ids))
        values = None
        if callable(self.values):
            values = self.values(task).table(task.topic_of_id, task.hidden_id)
            frozen = (*frozen, "values")
        elif self.values == "trained":
            values = self._matrix(value_key, dimension)
        learned, tied = self.attention == "learned", self.attention == "tied"
        biases = [None] * 3
        if self.layer_biases:
            biases = [self._vector(one, dimension) for one in bias_keys]
        return OneLayerTransformer(
            embeddings=embeddings,
            values=values,
            keys=self._matrix(key_key, dimension) if learned else None,
            queries=self._matrix(query_key, dimension) if learned else None,
            key_bias=biases[0] if learned else None,
            query_bias=biases[1] if learned else None,
            value_bias=biases[2] if values is not None else None,
            bias=jnp.zeros(ids) if self.bias else None,
            tied=TiedScores(jnp.zeros(()), jnp.zeros(())) if tied else None,
            score_table=jnp.zeros((ids, ids)) if self.attention == "free" else None,
            relation=jnp.asarray(_relation(task.topic_of_id)) if tied else None,
            ridge=self.ridge,
            kernel=KERNELS[self.kernel],
            ids=ids,
            hidden_id=task.hidden_id,
            looking_share=_looking_share(task),
            selected_hidden=self.selected_hidden,
            frozen=frozen,
        )

    def _matrix(self, key: PRNGKeyArray, size: int) -> Float[Array, "size size"]:
        match self.start:
            case "gaussian":
                return self.start_std * jax.random.normal(key, (size, size))
            case "uniform":
                return self.start_std * jax.random.uniform(key, (size, size))
            case "default":
                return _default(key, (size, size))

    def _vector(self, key: PRNGKeyArray, size: int) -> Float[Array, " size"]:
        return _default(key, (size,)) if self.start == "default" else jnp.zeros(size)


def _default(key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
    """PyTorch's default initialisation of a linear layer."""
    bound = shape[0] ** -0.5
    return jax.random.uniform(key, shape, minval=-bound, maxval=bound)


def _relation(topic: Int[np.ndarray, " id"]) -> Int[np.ndarray, "query key"]:
    word = topic >= 0
    words, same = word[:, None] & word[None, :], topic[:, None] == topic[None, :]
    return np.where(words & np.eye(len(topic), dtype=bool), 0, np.where(words & same, 1, 2))


def _looking_share(task: HasTopicIds) -> float:
    share = task.masking.selected * (task.masking.kept + task.masking.replaced)
    return float(share) if isinstance(share, float | int) else 1.0
