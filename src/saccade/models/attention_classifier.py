"""The bag-of-words attention classifier of Lu, Mao & Nayak (2021), with its heads and ablations.

Word w has an embedding v_w and a score s_w. A sentence is the mean of its words' embeddings,
weighted by the softmax of their scores, and a head classifies it. With a fixed query of norm 1 the
score itself is the trained parameter; otherwise it is q . k_w. (The paper rescales embeddings by
||q|| and prints the step eta = tau ||q||; the algebra gives tau ||q||^2 for both updates. At
||q|| = 1 they agree.)
"""

import dataclasses
from typing import Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from saccade.contracts.model import AbstractModel, AbstractModelConfig, AttentionLayer, Output
from saccade.contracts.task import Batch, HasVocabulary
from saccade.errors import ConfigError
from saccade.models import heads
from saccade.models.bag_attention import attend, index_bags, of_one_query
from saccade.models.freezing import without
from saccade.models.kernels import KERNELS, SOFTMAX, AbstractKernel, KernelName
from saccade.settings import require_choices, require_count, require_finite, require_positive
from saccade.tasks.topic_sentences import HasLabelledWords, TopicSentences

Head = Literal["FC", "TC", "TL"]
Query = Literal["unit", "fixed", "trained"]
FixedHead = Literal["orthonormal", "gaussian"]
Items = Int[Array | np.ndarray, " item"]


class AttentionClassifier(AbstractModel):
    """Scores, embeddings and a head. Words are the last axis of a table, for fast projections."""

    embeddings: Float[Array, "dimension word"]
    head: heads.AbstractHead
    frozen: tuple[str, ...] = eqx.field(static=True)
    """Names of the parts that are not trained."""
    score_table: Float[Array, " word"] | None = None
    """Trained scores: the query is fixed and has norm 1."""
    keys: Float[Array, "key_dimension word"] | None = None
    query: Float[Array, " key_dimension"] | None = None
    kernel: AbstractKernel = SOFTMAX

    @property
    def scores(self) -> Float[Array, " word"]:
        """Logarithms of the words' weights: with softmax q . k_w."""
        if self.score_table is not None:
            return self.score_table
        return self.kernel.of_query(self.query, self.keys)  # pyright: ignore[reportArgumentType] (both set)

    @property
    def query_norm(self) -> Float[Array, ""]:
        return jnp.ones(()) if self.query is None else jnp.linalg.norm(self.query)

    @property
    def rescaled_embeddings(self) -> Float[Array, "dimension word"]:
        """v_w = ||q|| nu_w, the embedding of the theory."""
        return self.embeddings if self.query is None else self.query_norm * self.embeddings

    def scores_of(self, items: Items) -> Float[Array, " item"]:
        return self.scores[items]

    def embeddings_of(self, items: Items) -> Float[Array, "dimension item"]:
        """Rescaled embeddings of some words."""
        return self.rescaled_embeddings[:, items]

    def score_velocity(self, gradient: "AttentionClassifier") -> Float[Array, " word"]:
        """ds/dt of every word, given the gradient of the loss, as if no keys were frozen."""
        if self.score_table is not None:
            return -gradient.score_table  # pyright: ignore[reportOptionalOperand]
        still = jnp.zeros_like(self.query) if "query" in self.frozen else gradient.query  # pyright: ignore[reportArgumentType]
        at, direction = (self.query, self.keys), (still, gradient.keys)
        return -jax.jvp(self.kernel.of_query, at, direction)[1]

    def embedding_velocity(self, gradient: "AttentionClassifier") -> Float[Array, "dimension word"]:
        """dv/dt of every word's rescaled embedding, as if no embeddings were frozen."""
        velocity = -self.query_norm * gradient.embeddings
        if self.query is None or "query" in self.frozen:
            return velocity
        stretch = -(self.query @ gradient.query) / self.query_norm  # pyright: ignore[reportOperatorIssue]
        return velocity + stretch * self.embeddings

    def items(self, batch: Batch) -> Int[Array, "sentence position"]:
        """The attended item at each position of a sentence: the word."""
        return batch.words

    def attention_layers(self, batch: Batch) -> tuple[AttentionLayer]:
        return of_one_query(self.scores[self.items(batch)], batch, self.kernel)

    def __call__(self, batch: Batch) -> Output:
        values = self.head.project(self.embeddings)
        context, attention = attend(self.scores, values, self.items(batch), batch, self.kernel)
        return Output(self.head.finish(context), attention)

    def trainable(self) -> PyTree:
        return without(super().trainable(), self.frozen)


@dataclasses.dataclass(frozen=True)
class AttentionClassifierConfig(AbstractModelConfig):
    """Attn-FC, Attn-TC or Attn-TL, with ablations. Scores and keys are initially zero."""

    head: Head = "FC"
    """FC: fixed linear with orthonormal columns; TC: trained linear; TL: two trained layers."""
    dimension: int = 15
    """Dimension of the embeddings."""
    embedding_std: float = 1e-3
    """Initial standard deviation of the embeddings (the paper gives the variance, 1e-6)."""
    hidden_size: int = 10
    """Width of the hidden layer of TL."""
    keys_frozen: bool = False
    """KF: scores keep their initial values."""
    embeddings_frozen: bool = False
    """EF: embeddings keep their initial values."""
    query: Query = "unit"
    """unit: norm 1, scores trained directly; fixed or trained: drawn at random, keys trained."""
    query_std: float = 1.0
    """Initial standard deviation of the entries of a fixed or trained query."""
    key_dimension: int = 10
    """Dimension of keys and of a fixed or trained query."""
    fixed_head: FixedHead = "orthonormal"
    """Columns of FC: orthonormal (the paper), or Gaussian with a unit diagonal (the code)."""
    kernel: KernelName = "softmax"
    """softmax, or gaussian (not normalised), which needs keys: a fixed or trained query."""

    def __post_init__(self):
        require_choices(self)
        if self.kernel == "gaussian" and self.query == "unit":
            allowed = "a fixed or a trained query, which has keys"
            raise ConfigError(f"kernel: got gaussian with a unit query, allowed: {allowed}")
        require_count(self, "dimension", "hidden_size", "key_dimension")
        require_positive(self, "query_std")
        require_finite(self, "embedding_std")

    @classmethod
    def example(cls) -> tuple[Self, TopicSentences]:
        return cls(), TopicSentences.example()

    def build(self, task: HasLabelledWords, key: PRNGKeyArray) -> AttentionClassifier:
        embedding_key, head_key, query_key = jax.random.split(key, 3)
        words = task.vocabulary_size
        embeddings = self.embedding_std * jax.random.normal(embedding_key, (self.dimension, words))
        names = {
            "head": self.head == "FC",
            "embeddings": self.embeddings_frozen,
            "score_table" if self.query == "unit" else "keys": self.keys_frozen,
            "query": self.query == "fixed",
        }
        frozen = tuple(name for name, still in names.items() if still)
        head = self._head(task.labels, head_key)
        if self.query == "unit":
            return AttentionClassifier(embeddings, head, frozen, score_table=jnp.zeros(words))
        query = self.query_std * jax.random.normal(query_key, (self.key_dimension,))
        keys, kernel = jnp.zeros((self.key_dimension, words)), KERNELS[self.kernel]
        return AttentionClassifier(embeddings, head, frozen, None, keys, query, kernel)

    def _head(self, labels: int, key: PRNGKeyArray) -> heads.AbstractHead:
        if self.head == "TC":
            return heads.linear_head(self.dimension, labels, key)
        if self.head == "TL":
            return heads.two_layer_head(self.dimension, self.hidden_size, labels, key)
        if self.fixed_head == "gaussian":
            return heads.gaussian_head(self.dimension, labels, key)
        if self.dimension < labels:
            allowed = f"at least the {labels} orthonormal columns of FC"
            raise ConfigError(f"dimension: got {self.dimension}, allowed: {allowed}")
        return heads.orthonormal_head(self.dimension, labels, key)

    def prepare(self, task: HasVocabulary, batches: Batch) -> Batch:
        index = index_bags(batches.words, batches.mask, task.vocabulary_size)
        return dataclasses.replace(batches, index=index)
