"""Attn-TC-CNN (Lu, Mao & Nayak 2021, appendix A): attention over neighbouring pairs of words.

Two convolutions of width 2 run over the sentence, one on embeddings and one on keys; attention and
head then work on word pairs. A convolution is linear, so pair (a, b) has the value U^T (K1 v_a + K2
v_b + bias) and the score q . (L1 k_a + L2 k_b + bias): tables with one row per pair, computed from
tables with one row per word. A sentence of n words is a bag of n - 1 pairs, to which the attention
of the plain classifier applies.
"""

import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from saccade.contracts.model import AbstractModel, AbstractModelConfig, AttentionLayer, Output
from saccade.contracts.task import Batch, HasVocabulary
from saccade.models.bag_attention import attend, index_bags, of_one_query
from saccade.models.freezing import without
from saccade.models.heads import AbstractHead, linear_head
from saccade.models.kernels import KERNELS, SOFTMAX, AbstractKernel, KernelName, Softmax
from saccade.models.linear import bounded_uniform
from saccade.settings import require_choices, require_count, require_finite
from saccade.tasks.markov_pairs import MarkovPairs
from saccade.tasks.topic_sentences import HasLabelledWords

Items = Int[Array | np.ndarray, " item"]


class PairConvolution(eqx.Module):
    """A width-2, stride-1 convolution: out_l = first^T x_l + second^T x_{l+1} + bias."""

    first: Float[Array, "input output"]
    second: Float[Array, "input output"]
    bias: Float[Array, " output"]

    def on_pairs(self, table: Float[Array, "input word"]) -> Float[Array, "output pair"]:
        """Its output for every ordered pair (a, b) of words, pair number a * words + b."""
        left = jnp.einsum("iw,io->ow", table, self.first) + self.bias[:, None]
        right = jnp.einsum("iw,io->ow", table, self.second)
        return (left[:, :, None] + right[:, None, :]).reshape(left.shape[0], -1)

    def on(self, table: Float[Array, "input word"], items: Items) -> Float[Array, "output item"]:
        """Its output for some pairs, given their numbers."""
        left = jnp.einsum("iw,io->ow", table[:, items // table.shape[1]], self.first)
        right = jnp.einsum("iw,io->ow", table[:, items % table.shape[1]], self.second)
        return left + right + self.bias[:, None]

    def then(self, matrix: Float[Array, "output next"]) -> "PairConvolution":
        """This convolution followed by a linear map: again a convolution."""
        return PairConvolution(self.first @ matrix, self.second @ matrix, self.bias @ matrix)


class ConvolutionalClassifier(AbstractModel):
    """Embeddings and keys per word, a convolution on each, a fixed query, a linear head."""

    embeddings: Float[Array, "dimension word"]
    keys: Float[Array, "key_dimension word"]
    embedding_convolution: PairConvolution
    key_convolution: PairConvolution
    query: Float[Array, " key_dimension"]
    head: AbstractHead
    kernel: AbstractKernel = SOFTMAX

    @property
    def scores(self) -> Float[Array, " pair"]:
        if isinstance(self.kernel, Softmax):  # linear in the keys: project before pairing
            return self.key_convolution.then(self.query[:, None]).on_pairs(self.keys)[0]
        return self.kernel.of_query(self.query, self.key_convolution.on_pairs(self.keys))

    @property
    def rescaled_embeddings(self) -> Float[Array, "dimension pair"]:
        """Embeddings of all pairs. The query has norm 1, so nothing is rescaled."""
        return self.embedding_convolution.on_pairs(self.embeddings)

    def scores_of(self, items: Items) -> Float[Array, " item"]:
        """Scores of some pairs, without the table of all."""
        return self.kernel.of_query(self.query, self.key_convolution.on(self.keys, items))

    def embeddings_of(self, items: Items) -> Float[Array, "dimension item"]:
        """Embeddings of some pairs, without the table of all."""
        return self.embedding_convolution.on(self.embeddings, items)

    def items(self, batch: Batch) -> Int[Array, "sentence pair_position"]:
        return pair_numbers(batch.words, self.embeddings.shape[1])

    def attention_layers(self, batch: Batch) -> tuple[AttentionLayer]:
        items = self.items(batch)
        scores = self.scores_of(items.ravel()).reshape(items.shape)
        return of_one_query(scores, masked_by_pairs(batch), self.kernel)

    def __call__(self, batch: Batch) -> Output:
        values = self.embedding_convolution.then(self.head.first).on_pairs(self.embeddings)
        bags = self.items(batch), masked_by_pairs(batch)
        context, attention = attend(self.scores, values, *bags, self.kernel)
        return Output(self.head.finish(context), attention)

    def trainable(self) -> PyTree:
        return without(super().trainable(), ("query",))


@dataclasses.dataclass(frozen=True)
class ConvolutionalClassifierConfig(AbstractModelConfig):
    """Attn-TC-CNN. Convolutions have PyTorch's initialisation; keys are initially zero."""

    dimension: int = 15
    """Dimension of the embeddings, and kernels of their convolution."""
    key_dimension: int = 10
    """Dimension of query and keys, and kernels of the keys' convolution."""
    embedding_std: float = 1e-3
    """Initial standard deviation of the embeddings."""
    kernel: KernelName = "softmax"
    """softmax, or gaussian (not normalised)."""

    def __post_init__(self):
        require_choices(self)
        require_count(self, "dimension", "key_dimension")
        require_finite(self, "embedding_std")

    @classmethod
    def example(cls) -> tuple[Self, MarkovPairs]:
        return cls(), MarkovPairs.example()

    def build(self, task: HasLabelledWords, key: PRNGKeyArray) -> ConvolutionalClassifier:
        keys = jax.random.split(key, 5)
        words = task.vocabulary_size
        query = jax.random.normal(keys[3], (self.key_dimension,))
        return ConvolutionalClassifier(
            embeddings=self.embedding_std * jax.random.normal(keys[0], (self.dimension, words)),
            keys=jnp.zeros((self.key_dimension, words)),
            embedding_convolution=_convolution(keys[1], self.dimension),
            key_convolution=_convolution(keys[2], self.key_dimension),
            query=query / jnp.linalg.norm(query),
            head=linear_head(self.dimension, task.labels, keys[4]),
            kernel=KERNELS[self.kernel],
        )

    def prepare(self, task: HasVocabulary, batches: Batch) -> Batch:
        pairs = pair_numbers(np.asarray(batches.words), task.vocabulary_size)
        index = index_bags(pairs, masked_by_pairs(batches).mask, task.vocabulary_size**2)
        return dataclasses.replace(batches, index=index)


def pair_numbers(words: Any, vocabulary_size: int) -> Any:
    """The numbers of the ordered pairs of neighbours in each sentence."""
    return words[..., :-1] * vocabulary_size + words[..., 1:]


def masked_by_pairs(batch: Batch) -> Batch:
    """The batch with a mask over pairs: both words of a pair must be present."""
    if batch.mask is None:
        return batch
    return dataclasses.replace(batch, mask=batch.mask[..., :-1] & batch.mask[..., 1:])


def _convolution(key: PRNGKeyArray, dimension: int) -> PairConvolution:
    """PyTorch's initialisation, with two inputs per kernel and dimension."""
    shapes = ((dimension, dimension), (dimension, dimension), (dimension,))
    keys = jax.random.split(key, 3)
    return PairConvolution(*map(bounded_uniform, keys, shapes, (2 * dimension,) * 3))
