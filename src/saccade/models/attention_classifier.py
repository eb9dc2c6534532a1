"""The bag-of-words attention classifier of Lu, Mao & Nayak (2021), with its heads and ablations.

Word w has an embedding v_w and a score s_w; a sentence is the mean of its words' embeddings,
weighted by the softmax of their scores; a head classifies it. With a fixed query of norm 1 the
score itself is the trained parameter; with a trained query it is q . k_w. (The paper rescales
embeddings by ||q|| and prints the step eta = tau ||q||; the algebra gives tau ||q||^2 for both
updates. At ||q|| = 1 they agree, and nothing here depends on it.)
"""

import dataclasses
import functools
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractModel, AbstractModelConfig, Batch, Output
from saccade.core.sweep import require, require_count, require_positive
from saccade.models.bag_attention import attend, indexed
from saccade.models.heads import (
    AbstractHead,
    gaussian_head,
    linear_head,
    orthonormal_head,
    two_layer_head,
)
from saccade.models.kernels import KERNELS, SOFTMAX, AbstractKernel, KernelName

Head = Literal["FC", "TC", "TL"]
Query = Literal["unit", "fixed", "trained"]
FixedHead = Literal["orthonormal", "gaussian"]


class AttentionClassifier(AbstractModel):
    """Scores, embeddings and a head. Arrays are stored word-last: projections of the table are
    then fast.
    """

    embeddings: Float[Array, "dimension word"]
    head: AbstractHead
    frozen: tuple[str, ...] = eqx.field(static=True)
    """Names of the parts that do not learn."""
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
        return self._scores(self.query, self.keys)  # pyright: ignore[reportArgumentType] (one of the two is always there)

    def _scores(
        self, query: Float[Array, " key_dimension"], keys: Float[Array, "key_dimension word"]
    ) -> Float[Array, " word"]:
        return self.kernel.scores(query[None], keys.T, scale=1.0)[0]

    @property
    def query_norm(self) -> Float[Array, ""]:
        return jnp.ones(()) if self.query is None else jnp.linalg.norm(self.query)

    @property
    def rescaled_embeddings(self) -> Float[Array, "dimension word"]:
        """v_w = ||q|| nu_w, the embedding that the theory speaks of."""
        return self.embeddings if self.query is None else self.query_norm * self.embeddings

    def scores_of(self, items: Any) -> Float[Array, " item"]:
        return self.scores[items]

    def embeddings_of(self, items: Any) -> Float[Array, "dimension item"]:
        """Rescaled embeddings of some words."""
        return self.rescaled_embeddings[:, items]

    def score_velocity(self, gradient: "AttentionClassifier") -> Float[Array, " word"]:
        """ds/dt of every word under the flow, from the gradient of the loss; keys count as
        trained, frozen or not.
        """
        if self.score_table is not None:
            return -gradient.score_table  # pyright: ignore[reportOptionalOperand]
        still = jnp.zeros_like(self.query) if "query" in self.frozen else gradient.query  # pyright: ignore[reportArgumentType]
        _, change = jax.jvp(self._scores, (self.query, self.keys), (still, gradient.keys))
        return -change

    def embedding_velocity(self, gradient: "AttentionClassifier") -> Float[Array, "dimension word"]:
        """dv/dt of every word's rescaled embedding under the flow; embeddings count as trained,
        frozen or not.
        """
        velocity = -self.query_norm * gradient.embeddings
        if self.query is None or "query" in self.frozen:
            return velocity
        stretch = -(self.query @ gradient.query) / self.query_norm  # pyright: ignore[reportOperatorIssue]
        return velocity + stretch * self.embeddings

    def items(self, batch: Batch) -> Int[Array, "sentence position"]:
        """What is attended to at each place of a sentence: here, the word."""
        return batch.words

    def __call__(self, batch: Batch) -> Output:
        values = self.head.project(self.embeddings)
        context, attention = attend(self.scores, values, self.items(batch), batch, self.kernel)
        return Output(self.head.finish(context), attention)

    def trainable(self) -> PyTree:
        return without(super().trainable(), self.frozen)


@dataclasses.dataclass(frozen=True)
class AttentionClassifierConfig(AbstractModelConfig):
    """Attn-FC, Attn-TC or Attn-TL, with optional frozen keys (KF), frozen embeddings (EF) or a
    trained query.
    """

    head: Head = "FC"
    """FC: fixed linear with orthonormal columns; TC: trained linear; TL: two trained layers."""
    dimension: int = 15
    """Dimension of the embeddings."""
    embedding_std: float = 1e-3
    """Standard deviation of the embeddings at the start (the paper gives the variance, 1e-6)."""
    hidden_size: int = 10
    """Width of the hidden layer of TL."""
    keys_frozen: bool = False
    """KF: scores stay where they start."""
    embeddings_frozen: bool = False
    """EF: embeddings stay where they start."""
    query: Query = "unit"
    """unit: a fixed query of norm 1, scores trained directly; fixed or trained: keys trained,
    query drawn at random.
    """
    query_std: float = 1.0
    """Standard deviation of the query's entries at the start, unless it is a unit."""
    key_dimension: int = 10
    """Dimension of query and keys, unless the query is a unit."""
    fixed_head: FixedHead = "orthonormal"
    """Columns of FC: orthonormal as in the paper, or Gaussian with a unit diagonal as in the
    authors' code.
    """
    kernel: KernelName = "softmax"
    """softmax, or gaussian (not normalised), which needs keys: a query that is fixed or trained."""

    def __post_init__(self):
        require(self, "kernel", ", ".join(KERNELS), lambda value: value in KERNELS)
        if self.kernel == "gaussian" and self.query == "unit":
            raise ConfigError(
                "kernel: got gaussian with a unit query, allowed: a fixed or a trained query, which"
                " has keys"
            )
        require(self, "head", "FC, TC, TL", lambda value: value in ("FC", "TC", "TL"))
        require(
            self,
            "query",
            "unit, fixed, trained",
            lambda value: value in ("unit", "fixed", "trained"),
        )
        require(
            self,
            "fixed_head",
            "orthonormal, gaussian",
            lambda value: value in ("orthonormal", "gaussian"),
        )
        require_count(self, "dimension", "hidden_size", "key_dimension")
        require_positive(self, "query_std")
        require(
            self,
            "embedding_std",
            "a finite number, at least 0",
            lambda value: 0 <= value < float("inf"),
        )

    def build(self, task: Any, key: PRNGKeyArray) -> AttentionClassifier:
        if self.head == "FC" and self.fixed_head == "orthonormal" and self.dimension < task.labels:
            raise ConfigError(
                f"dimension: got {self.dimension}, allowed: at least the {task.labels} orthonormal"
                " columns of FC"
            )
        embedding_key, head_key, query_key = jax.random.split(key, 3)
        words = task.vocabulary_size
        embeddings = self.embedding_std * jax.random.normal(embedding_key, (self.dimension, words))
        match self.head:
            case "FC":
                start = orthonormal_head if self.fixed_head == "orthonormal" else gaussian_head
                head = start(self.dimension, task.labels, head_key)
            case "TC":
                head = linear_head(self.dimension, task.labels, head_key)
            case "TL":
                head = two_layer_head(self.dimension, self.hidden_size, task.labels, head_key)
        frozen = (["head"] if self.head == "FC" else []) + (
            ["embeddings"] if self.embeddings_frozen else []
        )
        if self.query == "unit":
            frozen += ["score_table"] if self.keys_frozen else []
            return AttentionClassifier(
                embeddings, head, tuple(frozen), score_table=jnp.zeros(words)
            )
        frozen += (["keys"] if self.keys_frozen else []) + (
            ["query"] if self.query == "fixed" else []
        )
        query = self.query_std * jax.random.normal(query_key, (self.key_dimension,))
        keys = jnp.zeros((self.key_dimension, words))
        return AttentionClassifier(
            embeddings, head, tuple(frozen), keys=keys, query=query, kernel=KERNELS[self.kernel]
        )

    def prepare(self, task: Any, batches: Batch) -> Batch:
        return indexed(batches, batches.words, task.vocabulary_size)


def without(trainable: PyTree, parts: tuple[str, ...]) -> PyTree:
    """The tree of booleans with the named parts switched off."""
    for part in parts:
        still = functools.partial(jax.tree.map, lambda _: False)
        trainable = eqx.tree_at(
            lambda model, part=part: getattr(model, part), trainable, replace_fn=still
        )
    return trainable
