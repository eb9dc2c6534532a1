"""The transformer encoder, for classification of text and for masked language models.

    x_0 = E[words] + P                                                 learned positions
    x <- x + Attention(LayerNorm(x)),   x <- x + FeedForward(LayerNorm(x))      in every layer
    logits from LayerNorm(x), of the sentence or of every position

Normalisation stands before each block (pre-LN), GELU is exact (by the error function), and a final
LayerNorm stands before the head. Attention has any number of heads and either kernel; padding is no
key. Queries and keys may be normalised (`query_key_norm`: root mean square 1 in every head, then a
trained scale) and divided by the square root of a temperature. With `future_weight=0` attention is
causal, and the encoder a decoder; without skip connections (`skip=0`) nothing of x is kept where a
block adds to it. Attention is computed in blocks, or fused on a GPU
(`models/fused_attention.py`). Dropout (inverted: what is kept is divided by its probability) acts
on the sum x_0, on what attention adds and on what the feed-forward block adds; not on attention
weights or hidden units. It acts only if a key is given, which training does and measuring does not.

Parts by path: `embedding`, `positions`, `layers.0.attention.query` (`key`, `value`, `output`),
`layers.0.feed_forward.inner` (`outer`), `norm` and `head`.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from saccade.contracts.model import (
    AbstractModel,
    AbstractModelConfig,
    AttentionLayer,
    Output,
    cross_entropy,
)
from saccade.contracts.task import HasVocabulary
from saccade.errors import ConfigError
from saccade.models.freezing import without
from saccade.models.fused_attention import mixed, why_not_fused
from saccade.models.kernels import KERNELS, AbstractKernel, KernelName
from saccade.models.linear import Linear
from saccade.models.one_layer_transformer import chosen_places, most
from saccade.models.recurrence import looked_up
from saccade.settings import (
    require,
    require_choices,
    require_count,
    require_finite,
    require_positive,
    require_single,
)
from saccade.tasks.keyword_sentences import KeywordSentences

HeadName = Literal["classification", "masked"]
Pooling = Literal["mean", "first"]
ScorePrecision = Literal["full", "bfloat16"]
States = Float[Array, "sentence position dimension"]
PerHead = Float[Array, "sentence head position part"]
Words = Bool[Array, "sentence position"] | None

EPSILON = 1e-5
"""Added to the variance by LayerNorm, as in PyTorch."""


class HasWords(Protocol):
    """A batch of word ids, with a mask that is True where there is a word (None: everywhere)."""

    @property
    def words(self) -> Any: ...
    @property
    def mask(self) -> Any: ...


class LayerNorm(eqx.Module):
    """Vectors with mean 0 and variance 1, then scaled and shifted."""

    scale: Float[Array, " dimension"]
    shift: Float[Array, " dimension"]

    @staticmethod
    def build(dimension: int) -> "LayerNorm":
        return LayerNorm(jnp.ones(dimension), jnp.zeros(dimension))

    def __call__(self, vectors: Float[Array, "*some dimension"]) -> Float[Array, "*some dimension"]:
        centred = vectors - jnp.mean(vectors, axis=-1, keepdims=True)
        variance = jnp.mean(centred**2, axis=-1, keepdims=True)
        return centred * jax.lax.rsqrt(variance + EPSILON) * self.scale + self.shift


class RootMeanSquare(eqx.Module):
    """Vectors with a root mean square of 1, then scaled."""

    scale: Float[Array, " part"]

    def __call__(self, vectors: Float[Array, "*some part"]) -> Float[Array, "*some part"]:
        square = jnp.mean(vectors**2, axis=-1, keepdims=True)
        return vectors * jax.lax.rsqrt(square + EPSILON) * self.scale


class SelfAttention(eqx.Module):
    """Attention of every position to the words of its sentence."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear
    kernel: AbstractKernel
    heads: int = eqx.field(static=True)
    norms: tuple[RootMeanSquare, RootMeanSquare] | None = None
    """Of queries and of keys."""
    temperature: Any = 1.0
    """Divides all scores."""
    fused: bool = eqx.field(default=False, static=True)
    padding_weight: Any = 0.0
    future_weight: Any = 1.0
    rounded: bool = eqx.field(default=False, static=True)
    """Whether scores are rounded to bfloat16."""

    @property
    def _how(self) -> dict[str, Any]:
        names = ("padding_weight", "future_weight", "rounded")
        return {name: getattr(self, name) for name in names}

    def split(self, vectors: States) -> PerHead:
        return jnp.swapaxes(vectors.reshape(*vectors.shape[:2], self.heads, -1), 1, 2)

    def queries_and_keys(self, states: States) -> tuple[PerHead, PerHead]:
        """With the temperature: the square root of it in each."""
        found = [self.split(one(states)) for one in (self.query, self.key)]
        if self.norms is not None:
            found = [norm(one) for norm, one in zip(self.norms, found, strict=True)]
        if not (isinstance(self.temperature, float | int) and self.temperature == 1):
            found = [one * self.temperature**-0.5 for one in found]
        return found[0], found[1]

    def __call__(self, states: States, queries: PerHead, keys: PerHead, words: Words) -> States:
        # In a sentence without a word all positions are keys: nothing uses the result.
        seen = None if words is None else words | ~jnp.any(words, axis=-1, keepdims=True)
        values = self.split(self.value(states))
        found = mixed(self.kernel, queries, keys, values, seen, fused=self.fused, **self._how)
        return self.output(jnp.swapaxes(found, 1, 2).reshape(states.shape))

    def seen(self, states: States, queries: PerHead, keys: PerHead, words: Words) -> AttentionLayer:
        """What probes of attention see."""
        output = self.output.weights.reshape(self.heads, -1, states.shape[-1])
        return AttentionLayer(
            queries,
            keys,
            self.kernel,
            words,
            words,
            values=self.split(self.value(states)),
            output=output,
            tokens=states,
            **self._how,
        )


class FeedForward(eqx.Module):
    """One hidden layer of GELUs, the same at every position."""

    inner: Linear
    outer: Linear

    def __call__(self, states: States) -> States:
        return self.outer(jax.nn.gelu(self.inner(states), approximate=False))


class EncoderLayer(eqx.Module):
    """Attention, then a feed-forward block, each behind its own normalisation."""

    attention_norm: LayerNorm
    attention: SelfAttention
    feed_forward_norm: LayerNorm
    feed_forward: FeedForward


class MaskedHead(eqx.Module):
    """Logits of all ids from the state of a position."""

    weights: Float[Array, "dimension id"] | None
    """None: tied to the embedding, divided by the square root of the dimension."""
    bias: Float[Array, " id"]

    def __call__(
        self, states: Float[Array, "*some dimension"], embedding: Float[Array, "id dimension"]
    ) -> Float[Array, "*some id"]:
        if self.weights is None:
            return states.shape[-1] ** -0.5 * (states @ embedding.T) + self.bias
        return states @ self.weights + self.bias


class Encoder(AbstractModel):
    """Embedding, layers and a head."""

    embedding: Float[Array, "id dimension"]
    positions: Float[Array, "position dimension"]
    layers: tuple[EncoderLayer, ...]
    norm: LayerNorm
    head: Linear | MaskedHead
    dropout: Any
    """Probability that a number is dropped, if there is a key."""
    pooling: Pooling = eqx.field(static=True)
    selected_share: float = eqx.field(static=True)
    """Share of the positions that are selected for prediction; 1 if it is not known."""
    skip: Any = 1.0
    """What states are multiplied by where a block adds to them."""

    def with_attention(self, **changes: Any) -> "Encoder":
        """The same weights with other attention: another kernel, `fused` or not."""
        layers = tuple(
            dataclasses.replace(layer, attention=dataclasses.replace(layer.attention, **changes))
            for layer in self.layers
        )
        return dataclasses.replace(self, layers=layers)

    def states(self, batch: HasWords, key: PRNGKeyArray | None = None) -> States:
        """The states of all positions, behind the last normalisation."""
        return self._run(batch, key)[0]

    def attention_layers(self, batch: HasWords) -> tuple[AttentionLayer, ...]:
        return self._run(batch, None)[1]

    def _run(
        self, batch: HasWords, key: PRNGKeyArray | None
    ) -> tuple[States, tuple[AttentionLayer, ...]]:
        width, longest = batch.words.shape[-1], len(self.positions)
        if width > longest:
            raise ConfigError(
                f"longest: got {longest} for sentences of {width} positions, allowed: at least "
                f"their length; set longest={width}"
            )
        drops = iter(self._drops(key))
        states = looked_up(self.embedding, batch.words) + self.positions[:width]
        states, seen = dropped(states, self.dropout, next(drops)), []
        for layer in self.layers:
            inputs = layer.attention_norm(states)
            queries, keys = layer.attention.queries_and_keys(inputs)
            found = layer.attention(inputs, queries, keys, batch.mask)
            states = self._kept(states) + dropped(found, self.dropout, next(drops))
            found = layer.feed_forward(layer.feed_forward_norm(states))
            states = self._kept(states) + dropped(found, self.dropout, next(drops))
            seen.append(layer.attention.seen(inputs, queries, keys, batch.mask))
        return self.norm(states), tuple(seen)

    def _kept(self, states: States) -> States:
        plain = isinstance(self.skip, float | int) and self.skip == 1
        return states if plain else self.skip * states

    @property
    def ablated_shape(self) -> tuple[int, int]:
        return len(self.layers), self.layers[0].attention.heads

    def ablated(self, layer: int, head: int | None = None) -> "Encoder":
        """With uniform softmax attention in a layer (queries of 0), or without one of its heads."""
        if head is None:
            if not self.layers[layer].attention.kernel.normalised:
                raise ConfigError(
                    "ablated: got a kernel that is not normalised, allowed: softmax, which is "
                    "uniform with queries of 0"
                )
            parts = lambda tree: tree.layers[layer].attention.query  # noqa: E731
            return eqx.tree_at(parts, self, jax.tree.map(jnp.zeros_like, parts(self)))
        weights = lambda tree: tree.layers[layer].attention.output.weights  # noqa: E731
        heads = self.layers[layer].attention.heads
        whose = jnp.arange(heads).repeat(weights(self).shape[0] // heads)
        return eqx.tree_at(weights, self, jnp.where(whose[:, None] == head, 0.0, weights(self)))

    def _drops(self, key: PRNGKeyArray | None) -> list[PRNGKeyArray | None]:
        """A key per place of dropout."""
        places = 1 + 2 * len(self.layers)
        return [None] * places if key is None else list(jax.random.split(key, places))

    def __call__(self, batch: HasWords, key: PRNGKeyArray | None = None) -> Output:
        """Logits of each sentence's labels, or of the ids at each of its positions."""
        states = self.states(batch, key)
        if isinstance(self.head, MaskedHead):
            return Output(self.head(states, self.embedding))
        return Output(self.head(self._pooled(states, batch.mask)))

    def _pooled(self, states: States, words: Words) -> Float[Array, "sentence dimension"]:
        if self.pooling == "first":
            return states[:, 0]
        if words is None:
            return jnp.mean(states, axis=1)
        count = jnp.maximum(jnp.sum(words, axis=1), 1)
        return jnp.einsum("bnd,bn->bd", states, words.astype(states.dtype)) / count[:, None]

    def loss(self, batch: Any, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """Mean cross-entropy of the labels; with the masked head of the selected positions'."""
        if not isinstance(self.head, MaskedHead):
            return cross_entropy(self(batch, key).logits, batch.labels)
        # Only selected positions have a loss, so the others get no logits.
        states = self.states(batch, key)
        rows = most(batch.words.size, self.selected_share)
        place, used = chosen_places(batch.selected, rows)
        logits = self.head(states.reshape(-1, states.shape[-1])[place], self.embedding)
        correct = batch.labels.reshape(-1)[place][:, None] == jnp.arange(logits.shape[-1])
        found = jnp.sum(jax.nn.log_softmax(logits) * (correct & used[:, None]))
        count = jnp.sum(batch.selected)
        # More than the task selects would be left out without a word.
        return jnp.where(count > rows, jnp.nan, -found / jnp.maximum(count, 1))

    def trainable(self) -> PyTree:
        found = without(super().trainable(), ("dropout", "skip"))
        names = ("temperature", "padding_weight", "future_weight")
        settings = lambda tree: [  # noqa: E731
            getattr(layer.attention, name) for layer in tree.layers for name in names
        ]
        return eqx.tree_at(settings, found, [False] * (len(names) * len(self.layers)))


def dropped(
    values: Float[Array, "*some"], probability: Any, key: PRNGKeyArray | None
) -> Float[Array, "*some"]:
    """Inverted dropout: values are 0 with a probability, and else divided by that of staying."""
    if key is None or (isinstance(probability, float | int) and probability == 0):
        return values
    stays = jax.random.bernoulli(key, 1 - probability, values.shape)
    return jnp.where(stays, values / (1 - probability), 0.0)


@dataclasses.dataclass(frozen=True)
class EncoderConfig(AbstractModelConfig):
    """Sizes, dropout, kernel, head and initialisation. Biases are initially zero."""

    layers: int = 2
    """Layers."""
    heads: int = 4
    """Heads of every layer; they divide the dimension."""
    dimension: int = 64
    """Dimension of the states and of the embedding."""
    hidden: int = 256
    """Hidden units of the feed-forward blocks."""
    dropout: float = 0.1
    """Probability of dropout in training."""
    kernel: KernelName = "softmax"
    """softmax, or gaussian (not normalised)."""
    query_key_norm: bool = False
    """Whether queries and keys have a root mean square of 1, times a trained scale."""
    temperature: float = 1.0
    """Divides all scores of attention."""
    fused: bool = False
    """Whether attention is computed by the fused kernel of a GPU, in bfloat16, where there is one;
    else explicitly, in blocks."""
    head: HeadName = "classification"
    """classification: a label per sentence; masked: the word at every selected position."""
    pooling: Pooling = "mean"
    """What is classified: the mean over a sentence's words, or its first position."""
    tied: bool = True
    """Whether the masked head's weights are the embedding."""
    longest: int | None = None
    """Positions that are learned; None: as many as the task's sentences have."""
    weight_scale: float = 1.0
    """Initial standard deviation of every weight matrix, times the square root of its inputs."""
    embedding_std: float = 1.0
    """Initial standard deviation of embedding and positions."""
    future_weight: float = 1.0
    """Weight of keys behind the query: 1 as all others, 0 hidden, which makes it a decoder."""
    padding_weight: float = 0.0
    """Weight of padding: 0 hidden, 1 as of words, as without a mask."""
    skip: float = 1.0
    """What states are multiplied by where a block adds to them; 0: no skip connections."""
    score_precision: ScorePrecision = "full"
    """full: that of the training; bfloat16: scores of attention are rounded to it."""

    def __post_init__(self):
        require_choices(self)
        require_finite(self, "future_weight", "padding_weight", "skip")
        plain = (self.future_weight, self.padding_weight, self.score_precision) == (1, 0, "full")
        if self.fused and not plain:
            raise ConfigError(
                "fused: got True, allowed: False with a future_weight, a padding_weight or a "
                "score_precision of its own, which fused attention has not"
            )
        shapes = ("layers", "heads", "dimension", "hidden", "longest")
        require_single(self, "because shapes depend on it", *shapes)
        require_count(self, "layers", "heads", "dimension", "hidden")
        divisor = f"a divisor of the dimension, {self.dimension}"
        require(self, "heads", divisor, lambda heads: self.dimension % heads == 0)
        require(self, "dropout", "at least 0 and below 1", lambda value: 0 <= value < 1)
        if self.longest is not None:
            require_count(self, "longest")
        require_finite(self, "weight_scale", "embedding_std")
        require_positive(self, "temperature")

    @property
    def about(self) -> Mapping[str, str]:
        """How attention was computed, if fused attention was asked for."""
        if not self.fused:
            return {}
        why = why_not_fused(self.dimension // self.heads)
        how = f"explicit, in blocks: {why}" if why else "fused, in bfloat16"
        return {"attention_form": how}

    @classmethod
    def example(cls) -> tuple[Self, KeywordSentences]:
        config = cls(layers=2, heads=2, dimension=4, hidden=6, dropout=0.2)
        return config, KeywordSentences.example()

    def build(self, task: HasVocabulary, key: PRNGKeyArray) -> Encoder:
        embedding_key, position_key, head_key, *keys = jax.random.split(key, 3 + self.layers)
        shapes = (task.vocabulary_size, self.dimension), (self._positions(task), self.dimension)
        embedding, positions = (
            self.embedding_std * jax.random.normal(one, shape)
            for one, shape in zip((embedding_key, position_key), shapes, strict=True)
        )
        return Encoder(
            embedding,
            positions,
            tuple(self._layer(one) for one in keys),
            LayerNorm.build(self.dimension),
            self._head(task, head_key),
            self.dropout,
            self.pooling,
            _selected_share(task),
            self.skip,
        )

    def _weights(self, key: PRNGKeyArray, inputs: int, outputs: int) -> Float[Array, "input unit"]:
        return self.weight_scale * inputs**-0.5 * jax.random.normal(key, (inputs, outputs))

    def _linear(self, key: PRNGKeyArray, inputs: int, outputs: int) -> Linear:
        return Linear(self._weights(key, inputs, outputs), jnp.zeros(outputs))

    def _layer(self, key: PRNGKeyArray) -> EncoderLayer:
        size, hidden, keys = self.dimension, self.hidden, jax.random.split(key, 6)
        query, key_map, value, output = (self._linear(one, size, size) for one in keys[:4])
        norm = RootMeanSquare(jnp.ones(size // self.heads))
        how = ((norm, norm) if self.query_key_norm else None, self.temperature, self.fused)
        how += (self.padding_weight, self.future_weight, self.score_precision == "bfloat16")
        return EncoderLayer(
            LayerNorm.build(size),
            SelfAttention(query, key_map, value, output, KERNELS[self.kernel], self.heads, *how),
            LayerNorm.build(size),
            FeedForward(self._linear(keys[4], size, hidden), self._linear(keys[5], hidden, size)),
        )

    def _head(self, task: Any, key: PRNGKeyArray) -> Linear | MaskedHead:
        if self.head == "classification":
            return self._linear(key, self.dimension, task.labels)
        ids = task.vocabulary_size
        weights = None if self.tied else self._weights(key, self.dimension, ids)
        return MaskedHead(weights, jnp.zeros(ids))

    def _positions(self, task: Any) -> int:
        """Positions of the longest sentence, if the task has sentences."""
        if self.longest is not None:
            return self.longest
        if hasattr(task, "splits"):
            batches = list(task.splits.values())
        else:
            batches = [jax.eval_shape(lambda key: task.sample(key, 1), jax.random.key(0))]
        widths = [batch.words.shape[-1] for batch in batches if hasattr(batch, "words")]
        if not widths:
            kind = type(task).__name__
            raise ConfigError(
                f"longest: got None with {kind}, whose examples have no words, allowed: a number "
                "of positions; set longest=128"
            )
        return max(widths)


def _selected_share(task: Any) -> float:
    """How many positions a task selects, if it says so by one number."""
    share = getattr(getattr(task, "masking", None), "selected", 1.0)
    return float(share) if isinstance(share, float | int) else 1.0
