"""Attn-TC-CNN (Lu, Mao & Nayak 2021, appendix A): attention over neighbouring pairs of words.

Two convolutions of width 2 run over the sentence, one on embeddings and one on keys; attention and
head then work on word pairs. A convolution is linear, so pair (a, b) has the value U^T (K1 v_a + K2
v_b + bias) and the score q . (L1 k_a + L2 k_b + bias): tables of one row a pair, made from tables
of one row a word. A sentence of n words is a bag of n - 1 pairs, and the attention of the plain
classifier serves as it is.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from saccade.core.interfaces import AbstractModel, AbstractModelConfig, Batch, Output
from saccade.core.sweep import require, require_count
from saccade.models.attention_classifier import without
from saccade.models.bag_attention import attend, indexed
from saccade.models.heads import AbstractHead, linear_head
from saccade.models.kernels import KERNELS, SOFTMAX, AbstractKernel, KernelName, Softmax


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

    def on(
        self, table: Float[Array, "input word"], first: Any, second: Any
    ) -> Float[Array, "output pair"]:
        """Its output for some pairs."""
        left, right = (
            jnp.einsum("iw,io->ow", table[:, words], kernel)
            for words, kernel in ((first, self.first), (second, self.second))
        )
        return left + right + self.bias[:, None]

    def then(self, matrix: Float[Array, "output next"]) -> "PairConvolution":
        """This convolution followed by a linear map: again a convolution."""
        return PairConvolution(self.first @ matrix, self.second @ matrix, self.bias @ matrix)


class ConvolutionalClassifier(AbstractModel):
    """Embeddings and keys a word, a convolution on each, a fixed query, a linear head."""

    embeddings: Float[Array, "dimension word"]
    keys: Float[Array, "key_dimension word"]
    embedding_convolution: PairConvolution
    key_convolution: PairConvolution
    query: Float[Array, " key_dimension"]
    head: AbstractHead
    kernel: AbstractKernel = SOFTMAX

    @property
    def scores(self) -> Float[Array, " pair"]:
        if isinstance(
            self.kernel, Softmax
        ):  # linear in the keys, so that they are projected before they are paired
            return self.key_convolution.then(self.query[:, None]).on_pairs(self.keys)[0]
        return self.kernel.scores(
            self.query[None], self.key_convolution.on_pairs(self.keys).T, scale=1.0
        )[0]

    @property
    def rescaled_embeddings(self) -> Float[Array, "dimension pair"]:
        """Embeddings of all pairs. The query has norm 1, so there is nothing to rescale."""
        return self.embedding_convolution.on_pairs(self.embeddings)

    def scores_of(self, items: Any) -> Float[Array, " item"]:
        """Scores of some pairs, without making the table of all."""
        return self.kernel.scores(
            self.query[None], self.key_convolution.on(self.keys, *self._words(items)).T, scale=1.0
        )[0]

    def embeddings_of(self, items: Any) -> Float[Array, "dimension item"]:
        """Embeddings of some pairs, without making the table of all."""
        return self.embedding_convolution.on(self.embeddings, *self._words(items))

    def _words(self, items: Any) -> tuple[Any, Any]:
        return items // self.embeddings.shape[1], items % self.embeddings.shape[1]

    def items(self, batch: Batch) -> Int[Array, "sentence pair_position"]:
        return pair_numbers(batch.words, self.embeddings.shape[1])

    def __call__(self, batch: Batch) -> Output:
        values = self.embedding_convolution.then(self.head.first).on_pairs(self.embeddings)
        context, attention = attend(
            self.scores, values, self.items(batch), masked_by_pairs(batch), self.kernel
        )
        return Output(self.head.finish(context), attention)

    def trainable(self) -> PyTree:
        return without(super().trainable(), ("query",))


@dataclasses.dataclass(frozen=True)
class ConvolutionalClassifierConfig(AbstractModelConfig):
    """Attn-TC-CNN. Convolutions start as in PyTorch; keys start at 0, as in the plain
    classifier.
    """

    dimension: int = 15
    """Dimension of the embeddings, and kernels of their convolution."""
    key_dimension: int = 10
    """Dimension of query and keys, and kernels of the keys' convolution."""
    embedding_std: float = 1e-3
    """Standard deviation of the embeddings at the start."""
    kernel: KernelName = "softmax"
    """softmax, or gaussian (not normalised)."""

    def __post_init__(self):
        require(self, "kernel", ", ".join(KERNELS), lambda value: value in KERNELS)
        require_count(self, "dimension", "key_dimension")
        require(
            self,
            "embedding_std",
            "a finite number, at least 0",
            lambda value: 0 <= value < float("inf"),
        )

    def build(self, task: Any, key: PRNGKeyArray) -> ConvolutionalClassifier:
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

    def prepare(self, task: Any, batches: Batch) -> Batch:
        pairs = pair_numbers(np.asarray(batches.words), task.vocabulary_size)
        index = indexed(masked_by_pairs(batches), pairs, task.vocabulary_size**2).index
        return Batch(batches.words, batches.labels, batches.mask, index)


def pair_numbers(words: Any, vocabulary_size: int) -> Any:
    """The ordered pairs of neighbours of each sentence, as numbers."""
    return words[..., :-1] * vocabulary_size + words[..., 1:]


def masked_by_pairs(batch: Batch) -> Batch:
    """The batch with a mask over pairs: a pair is there if both its words are."""
    if batch.mask is None:
        return batch
    return Batch(batch.words, batch.labels, batch.mask[..., :-1] & batch.mask[..., 1:], batch.index)


def _convolution(key: PRNGKeyArray, dimension: int) -> PairConvolution:
    """PyTorch's default start: uniform in +- 1/sqrt(2 dimension), two inputs a kernel and
    dimension.
    """
    bound = (2 * dimension) ** -0.5
    shapes = ((dimension, dimension), (dimension, dimension), (dimension,))
    parts = (
        jax.random.uniform(part, shape, minval=-bound, maxval=bound)
        for part, shape in zip(jax.random.split(key, 3), shapes, strict=True)
    )
    return PairConvolution(*parts)
