"""The one-layer transformer of Li, Li & Risteski (2023), which predicts masked words of documents.

    f(X) = W_E^T (W_V W_E X) Attn(X) + b
    Attn = column softmax of (W_K Z)^T (W_Q Z) / sqrt(d_a),  Z = W_E X

There is no residual connection, feed-forward layer, normalisation or position, so a position's
output depends on its word alone: a D x D table of scores and a D x D table of values determine the
model (D ids). Three facts make training cheap:

* a document is its word counts: id j has weight (count of j) x exp(score), so D keys replace N;
* only selected positions have a loss; most show the hidden id and share one row per document;
* the others are gathered into a bounded number of rows (Bernstein: exceeded with probability below
  1e-15 per batch).

Attention is uniform, learned (W_K, W_Q), tied to three numbers (same word, same topic, other topic;
stage 2 of the theory), or free (the D x D table of scores is itself trained).

In the authors' code the inputs are not one-hot: a LayerNorm follows the sum of the one-hot vector
and a trained type vector (`embedding="normalised"`). Outputs are one-hot as before.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from saccade.contracts.model import AbstractModel, AbstractModelConfig, AttentionLayer, Output
from saccade.errors import ConfigError
from saccade.models.counting import id_counts
from saccade.models.freezing import without
from saccade.models.kernels import KERNELS, AbstractKernel, KernelName
from saccade.models.linear import bounded_uniform
from saccade.settings import require_choices, require_count, require_finite
from saccade.tasks.long_documents import Moments
from saccade.tasks.topic_documents import Documents, HasTopicIds, TopicDocuments

PARTS = ("embeddings", "values", "keys", "queries", "bias", "score_table")

BLOCKS = ("hidden", "same", "other", "output hidden")
"""Blocks of a value matrix: hidden id's column, same topic, different topics, hidden id's row."""

NORM_EPSILON = 1e-12
"""Added to the variance by the LayerNorm of BERT."""

Attention = Literal["uniform", "learned", "tied", "free"]
Embedding = Literal["one_hot", "trained", "normalised"]
Start = Literal["gaussian", "uniform", "default"]
PerKey = Float[Array, "*some key"]
PerId = Float[Array, "*some id"]


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A value matrix (output word, attended id) that is constant on blocks; hidden row: 0."""

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
        words = jnp.where(same, self.same, 0.0) + jnp.where(hidden, self.hidden, 0.0)
        return words + jnp.where(other, self.other, 0.0)


class TiedScores(eqx.Module):
    """Attention tied to c1 (same word), c2 (another word of the topic) and c3 (anything else)."""

    same_word: Float[Array, ""]
    """log(c1 / c3), the logarithm of beta."""
    same_topic: Float[Array, ""]
    """log(c2 / c3), the logarithm of alpha."""


class NormalisedInputs(eqx.Module):
    """Inputs of the authors' code: LayerNorm of one-hot vectors plus a vector that all share."""

    type_vector: Float[Array, " id"]
    gain: Float[Array, " id"]
    shift: Float[Array, " id"]

    @staticmethod
    def build(key: PRNGKeyArray, ids: int) -> "NormalisedInputs":
        """A type vector from N(0, I), and PyTorch's LayerNorm."""
        return NormalisedInputs(jax.random.normal(key, (ids,)), jnp.ones(ids), jnp.zeros(ids))

    def table(self) -> Float[Array, "dimension id"]:
        """The vector of every id."""
        added = jnp.eye(self.type_vector.size) + self.type_vector  # id dimension
        centred = added - jnp.mean(added, axis=1, keepdims=True)
        spread = jnp.sqrt(jnp.mean(centred**2, axis=1, keepdims=True) + NORM_EPSILON)
        return (centred / spread * self.gain + self.shift).T


class OneLayerTransformer(AbstractModel):
    """Embeddings (None: one-hot), a value matrix, and one kind of scores."""

    embeddings: Float[Array, "dimension id"] | None
    inputs: NormalisedInputs | None
    """Replace the embeddings where words enter."""
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
        return self.kernel.scores(*self._queries_and_keys(self.queries, self.keys))

    def _queries_and_keys(
        self,
        queries: Float[Array, "key_dimension dimension"],
        keys: Float[Array, "key_dimension dimension"],
    ) -> tuple[Float[Array, "id key_dimension"], Float[Array, "id key_dimension"]]:
        """Of every id."""
        queries, keys = (self._of_every_id(part) for part in (queries, keys))
        if self.query_bias is not None and self.key_bias is not None:
            queries, keys = queries + self.query_bias[:, None], keys + self.key_bias[:, None]
        return queries.T, keys.T

    def attention_layers(self, batch: Documents) -> tuple[AttentionLayer]:
        """Of learned attention; other kinds have no queries and keys."""
        if self.keys is None or self.queries is None:
            raise ConfigError(
                "attention: got scores without queries and keys, allowed: learned attention for "
                'probes of attention layers; set attention="learned"'
            )
        queries, keys = self._queries_and_keys(self.queries, self.keys)
        queries, keys = (table[batch.words][:, None] for table in (queries, keys))
        return (AttentionLayer(queries, keys, self.kernel, self._seen(batch), batch.mask),)

    def input_table(self) -> Float[Array, "dimension id"] | None:
        """The vector that enters for every id; None: one-hot vectors."""
        return self.embeddings if self.inputs is None else self.inputs.table()

    def _of_every_id(self, part: Float[Array, "row dimension"]) -> Float[Array, "row id"]:
        table = self.input_table()
        return part if table is None else part @ table

    def _decoded(self, part: Float[Array, "*some dimension"]) -> Float[Array, "*some id"]:
        return part if self.embeddings is None else part @ self.embeddings

    def value_table(self) -> Float[Array, "key output"]:
        """The contribution of each key id to every output: (W_E^T W_V W_E)^T."""
        if self.values is not None:
            return self._decoded(self._of_every_id(self.values).T)
        table = self.input_table()
        return jnp.eye(self.ids) if table is None else self._decoded(table.T)

    def word_similarity(self) -> Float[Array, "id other"]:
        """E = W_E^T W_E, the dot products of the vectors that enter."""
        table = self.input_table()
        return jnp.eye(self.ids) if table is None else table.T @ table

    def _added(self, outputs: PerId, mass: Float[Array, "*some"]) -> PerId:
        """Outputs plus the value bias times the attention mass, plus the output bias."""
        if self.value_bias is not None:
            outputs = outputs + mass[..., None] * self._decoded(self.value_bias)
        return outputs if self.bias is None else outputs + self.bias

    def _weights(self, scores: PerKey, seen: Bool[Array, "*some key"]) -> PerKey:
        """Weights of the visible keys; all 0 where no key is visible."""
        blind = ~jnp.any(seen, axis=-1, keepdims=True)
        return jnp.where(blind, 0.0, self.kernel.weights(jnp.where(seen | blind, scores, -jnp.inf)))

    def _seen(self, batch: Documents) -> Bool[Array, "document position"] | None:
        if not self.selected_hidden:
            return batch.mask
        return ~batch.selected if batch.mask is None else batch.mask & ~batch.selected

    def __call__(self, batch: Documents) -> Output:
        """Logits and attention at every position. (Training uses the cheaper `guesses`.)"""
        scores, seen = self.scores(), self._seen(batch)
        words, shape = batch.words, (*batch.words.shape, batch.words.shape[1])
        scores = jnp.zeros(shape) if scores is None else scores[words[:, :, None], words[:, None]]
        visible = jnp.broadcast_to(True if seen is None else seen[:, None, :], shape)
        attention = self._weights(scores, visible)
        logits = jnp.einsum("dqk,dko->dqo", attention, self.value_table()[words])
        return Output(self._added(logits, jnp.sum(attention, axis=-1)), attention)

    def guesses(self, batch: Documents) -> "Guesses":
        """Outputs at selected positions: one row per document for hidden ones, then the others."""
        documents, positions = batch.words.shape
        hidden = batch.selected & (batch.words == self.hidden_id)
        rows = most(documents * positions, self.looking_share)
        place, used = chosen_places(batch.selected & ~hidden, rows)
        shown = batch.words.reshape(-1)[place]
        query = jnp.concatenate([jnp.full(documents, self.hidden_id), shown])
        document = jnp.concatenate([jnp.arange(documents), place // positions])
        right = batch.labels.reshape(-1)[place][:, None] == jnp.arange(self.ids)
        targets = jnp.concatenate(
            [id_counts(batch.labels, hidden, self.ids), right & used[:, None]]
        )
        scores = self.scores()
        counts = id_counts(batch.words, self._seen(batch), self.ids)[document]
        scores = jnp.zeros_like(counts) if scores is None else scores[query]
        present = counts > 0
        weights = self._weights(scores + jnp.log(jnp.where(present, counts, 1.0)), present)
        outputs = self._added(weights @ self.value_table(), jnp.sum(weights, axis=-1))
        return Guesses(outputs, targets)

    def loss(self, batch: Documents | Moments) -> Float[Array, ""]:
        """Mean of ||f - e_w||^2 over the selected positions (w the correct word); in long documents
        its excess over the minimum, E ||W Pt + b - P||^2."""
        if isinstance(batch, Moments):
            if self.scores() is not None:
                raise ConfigError("attention: got scores, allowed: uniform on long documents")
            biases = self._added(jnp.zeros(self.ids), jnp.ones(()))  # attention has mass 1
            outputs = batch.shown @ self.value_table() + batch.constant[:, None] * biases
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
    """Largest curvature of loss and ridge in the values (one-hot embeddings, uniform attention)."""
    return 2 * (jnp.linalg.norm(batch.shown, ord=2) ** 2 + model.ridge)


def chosen_places(
    chosen: Bool[Array, "document position"], rows: int
) -> tuple[Int[Array, " row"], Bool[Array, " row"]]:
    """Flat indices of the chosen positions in a fixed number of rows, and which rows are used."""
    documents, positions = chosen.shape
    flags = chosen.astype(jnp.float32)
    # Cumulative sums by triangular matrices: XLA's own are slow on a CPU. Exact below 2^24.
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
    """one_hot: frozen one-hot vectors; trained: tied input and output embeddings; normalised: the
    authors' code, LayerNorm of one-hot vectors plus a trained type vector, and one-hot outputs."""
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
    """gaussian: N(0, std^2); uniform: on 0 to std (the authors' code); default: PyTorch's."""
    start_std: float = 1e-3
    """Scale of the initialisation of keys, queries and values."""
    embedding_std: float = 0.05
    """Standard deviation of trained embeddings at initialisation."""
    selected_hidden: bool = False
    """Selected positions cannot be attended to (the authors' code)."""
    ridge: float = 0.0
    """lambda of the penalty lambda ||W_V||_F^2."""
    kernel: KernelName = "softmax"
    """softmax, or gaussian (not normalised)."""

    def __post_init__(self):
        require_choices(self)
        require_count(self, "dimension", least=0)
        require_finite(self, "start_std", "embedding_std", "ridge")
        unknown = [part for part in self.frozen if part not in PARTS]
        if unknown:
            raise ConfigError(f"frozen: got {unknown[0]}, allowed: {', '.join(PARTS)}")
        if callable(self.values) and self.embedding != "one_hot":
            allowed = "only with one-hot embeddings, because blocks are a table of words"
            raise ConfigError(f"values: got blocks, allowed: {allowed}")
        if self.kernel == "gaussian" and self.attention != "learned":
            reason = f"because {self.attention} attention has no keys and queries"
            raise ConfigError(f"kernel: got gaussian, allowed: softmax, {reason}")

    @classmethod
    def example(cls) -> tuple[Self, TopicDocuments]:
        return cls(start_std=0.5), TopicDocuments.example()

    def build(self, task: HasTopicIds, key: PRNGKeyArray) -> OneLayerTransformer:
        embedding_key, *keys = jax.random.split(key, 7)
        ids, frozen = task.vocabulary_size, self.frozen
        embeddings, dimension = None, ids
        if self.embedding == "trained":
            dimension = self.dimension or ids
            embeddings = self.embedding_std * jax.random.normal(embedding_key, (dimension, ids))
        learned, tied = self.attention == "learned", self.attention == "tied"
        normalised = self.embedding == "normalised"
        biased = self.layer_biases and learned

        def drawn(key: PRNGKeyArray, wanted: bool, axes: int) -> Float[Array, "..."] | None:
            return self._initial(key, (dimension,) * axes) if wanted else None

        values = drawn(keys[0], self.values == "trained", 2)
        if callable(self.values):
            values = self.values(task).table(task.topic_of_id, task.hidden_id)
            frozen = (*frozen, "values")
        return OneLayerTransformer(
            embeddings=embeddings,
            inputs=NormalisedInputs.build(embedding_key, ids) if normalised else None,
            values=values,
            keys=drawn(keys[1], learned, 2),
            queries=drawn(keys[2], learned, 2),
            key_bias=drawn(keys[3], biased, 1),
            query_bias=drawn(keys[4], biased, 1),
            value_bias=drawn(keys[5], self.layer_biases and values is not None, 1),
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

    def _initial(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "..."]:
        """A matrix of weights or a vector of biases."""
        if self.start == "default":
            return bounded_uniform(key, shape, shape[0])
        if len(shape) == 1:
            return jnp.zeros(shape)
        draw = jax.random.normal if self.start == "gaussian" else jax.random.uniform
        return self.start_std * draw(key, shape)


def _relation(topic: Int[np.ndarray, " id"]) -> Int[np.ndarray, "query key"]:
    word = topic >= 0
    words, same = word[:, None] & word[None, :], topic[:, None] == topic[None, :]
    return np.where(words & np.eye(len(topic), dtype=bool), 0, np.where(words & same, 1, 2))


def _looking_share(task: HasTopicIds) -> float:
    share = task.masking.selected * (task.masking.kept + task.masking.replaced)
    return float(share) if isinstance(share, float | int) else 1.0
