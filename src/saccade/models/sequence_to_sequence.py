"""The sequence-to-sequence model with dot attention (Snell et al. 2021, sections 2.1 and 5.2).

Encoder states h_l, decoder states s_t (teacher forcing). Head k has scores a_{t,l} = (A_k s_t +
b_k) . h_l, and its softmax over l weights the states. The heads' contexts are summed (the text) or
averaged (the authors' code), after a projection P_k that only the code has. N([c_t, s_t]), with one
hidden layer, gives the logits. The lexical probe applies the same N as if all heads attended to a
single position: beta_{t,l} = N([c of h_l alone, s_t])_{y_t}. The decoder starts from the encoder's
last state, or from zero.

Initialisation is PyTorch's. `base_start` and `head_starts` select initialisations by number: the
base, or a head, of a number is the same in every member whatever its seed, so that heads can be
drawn, tried and combined.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, PRNGKeyArray, PyTree

from saccade.contracts.model import AbstractModel, AbstractModelConfig, AttentionLayer, Output
from saccade.contracts.task import HasVocabulary, SentencePairs
from saccade.errors import ConfigError
from saccade.models.freezing import AttentionKind, LexiconKind, ablated, require_learned_attention
from saccade.models.kernels import KERNELS, SOFTMAX, AbstractKernel, KernelName
from saccade.models.linear import Linear
from saccade.models.recurrence import CellName, Recurrence
from saccade.settings import Swept, require_choices, require_count
from saccade.tasks.copying import Copying

Together = Literal["sum", "mean"]
Activation = Literal["tanh", "relu"]
DecoderStart = Literal["encoder", "zero"]
ReadoutHalf = Literal["context", "state"]
Gates = Float[Array, "pair source"] | None
SourceStates = Float[Array, "pair source hidden"]
TargetStates = Float[Array, "pair target hidden"]
HeadStates = Float[Array, "pair head target hidden"]

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu}
NOT_USED = -1e9
"""Logit of an id that the task never uses: its probability and its gradient are exactly zero."""


class Heads(eqx.Module):
    """Stacked heads: maps from decoder states to queries, and from attended states to contexts."""

    query_weights: Float[Array, "head hidden hidden"]
    query_bias: Float[Array, "head hidden"]
    context_weights: Float[Array, "head hidden hidden"] | None
    context_bias: Float[Array, "head hidden"] | None

    @staticmethod
    def build(keys: Key[Array, " head"], hidden: int, projected: bool) -> "Heads":
        def one(key: PRNGKeyArray) -> tuple[Linear, ...]:
            return tuple(Linear.build(part, hidden, hidden) for part in jax.random.split(key))

        query, context = jax.vmap(one)(keys)
        projection = (context.weights, context.bias) if projected else (None, None)
        return Heads(query.weights, query.bias, *projection)

    @property
    def count(self) -> int:
        return self.query_bias.shape[0]

    def queries(self, states: TargetStates) -> HeadStates:
        return jnp.einsum("bth,khd->bktd", states, self.query_weights) + self.query_bias[:, None]

    def contexts(self, seen: HeadStates) -> TargetStates:
        """The sum of all heads' contexts, given the states that each head attends to."""
        if self.context_weights is None or self.context_bias is None:
            return seen.sum(1)
        return jnp.einsum("bkth,khd->btd", seen, self.context_weights) + self.context_bias.sum(0)

    def contexts_of_one(self, states: SourceStates) -> SourceStates:
        """The sum of all heads' contexts if all attend to one position only, for every position."""
        if self.context_weights is None or self.context_bias is None:
            return self.count * states
        return states @ self.context_weights.sum(0) + self.context_bias.sum(0)


class SequenceToSequence(AbstractModel):
    """Encoder, decoder, heads and readout."""

    source_embeddings: Float[Array, "id feature"]
    target_embeddings: Float[Array, "id feature"] | None
    """None: shared with the source."""
    encoder: Recurrence
    decoder: Recurrence
    heads: Heads
    hidden_layer: Linear
    output_layer: Linear
    used_ids: Bool[Array, " id"]
    """Ids that the task uses; the others have probability zero."""
    together: Together = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    attention: AttentionKind = eqx.field(static=True)
    lexicon: LexiconKind = eqx.field(static=True)
    kernel: AbstractKernel = SOFTMAX
    decoder_start: DecoderStart = eqx.field(static=True, default="encoder")

    def states(self, batch: SentencePairs, gates: Gates) -> tuple[SourceStates, TargetStates]:
        """States of encoder and decoder. `gates` multiply the source embeddings."""
        table, mask = self.source_embeddings, batch.source_mask
        encoded, last = self.encoder.of_words(table, batch.source, mask, gates=gates)
        table = table if self.target_embeddings is None else self.target_embeddings
        start = last if self.decoder_start == "encoder" else None
        return encoded, self.decoder.of_words(table, batch.decoder_input, start=start)[0]

    def weights(
        self, encoded: SourceStates, decoded: TargetStates, mask: Bool[Array, "pair source"]
    ) -> Float[Array, "pair head target source"]:
        """Attention of every head; zero at padding."""
        if self.attention == "uniform":
            shape = (encoded.shape[0], self.heads.count, decoded.shape[1], encoded.shape[1])
            even = (mask / mask.sum(-1, keepdims=True))[:, None, None]
            return jnp.broadcast_to(even, shape).astype(encoded.dtype)
        scores = self.kernel.scores(self.heads.queries(decoded), encoded[:, None], scale=1.0)
        return self.kernel.weights(jnp.where(mask[:, None, None], scores, -jnp.inf))

    def attention_layers(self, batch: SentencePairs) -> tuple[AttentionLayer]:
        """Target words attend to source words; scores are not scaled."""
        encoded, decoded = self.states(batch, None)
        queries, keys, kernel = self.heads.queries(decoded), encoded[:, None], self.kernel
        if self.attention == "uniform":
            queries, kernel = jnp.zeros_like(queries), SOFTMAX
        keys = jnp.broadcast_to(keys, (len(keys), self.heads.count, *keys.shape[2:]))
        masks, asked = (batch.source_mask, batch.source_mask), batch.target_mask
        return (AttentionLayer(queries, keys, kernel, *masks, asked=asked, scale=1.0),)

    def __call__(self, batch: SentencePairs, gates: Gates = None) -> Output:
        """Logits of every target word, and the mean attention over heads."""
        encoded, decoded = self.states(batch, gates)
        weights = self.weights(encoded, decoded, batch.source_mask)
        seen = jnp.einsum("bktl,blh->bkth", weights, encoded)
        contexts = self._mixed(self.heads.contexts(seen))
        hidden = self.hidden_layer(jnp.concatenate([contexts, decoded], axis=-1))
        return Output(self._logits(hidden), weights.mean(1))

    def _mixed(self, contexts: Float[Array, "..."]) -> Float[Array, "..."]:
        return contexts / self.heads.count if self.together == "mean" else contexts

    def _logits(self, hidden: Float[Array, "*some hidden"]) -> Float[Array, "*some id"]:
        logits = self.output_layer(ACTIVATIONS[self.activation](hidden))
        return jnp.where(self.used_ids, logits, NOT_USED)

    def loss(self, batch: SentencePairs) -> Float[Array, ""]:
        return token_entropy(self, batch)

    def lexical_probe(self, batch: SentencePairs) -> Float[Array, "pair target source"]:
        """log beta: the log probability of the correct word if all heads attend to one position."""
        encoded, decoded = self.states(batch, None)
        size = encoded.shape[-1]
        contexts = self._mixed(self.heads.contexts_of_one(encoded))
        of_context = contexts @ self.hidden_layer.weights[:size]
        of_state = decoded @ self.hidden_layer.weights[size:] + self.hidden_layer.bias

        def one_pair(parts: tuple[Array, Array, Array]) -> Float[Array, "target source"]:
            context, state, target = parts
            scores = jax.nn.log_softmax(self._logits(state[:, None] + context[None]))
            return jnp.take_along_axis(scores, target[:, None, None], axis=-1)[..., 0]

        # Pair by pair: the logits of all pairs at once would take gigabytes.
        return jax.lax.map(one_pair, (of_context, of_state, batch.target))

    def with_readout_negated(self, half: ReadoutHalf) -> Self:
        """The model whose hidden layer reads the context, or the decoder's state, with the opposite
        sign: `hidden_layer.weights[:hidden]`, or `[hidden:]`, is negated.
        """
        weights = self.hidden_layer.weights
        size = weights.shape[0] // 2
        of_context = jnp.arange(2 * size) < size
        negated = of_context if half == "context" else ~of_context
        signs = jnp.where(negated, -1.0, 1.0).astype(weights.dtype)
        return eqx.tree_at(lambda one: one.hidden_layer.weights, self, signs[:, None] * weights)

    def trainable(self) -> PyTree:
        queries = ("heads.query_weights", "heads.query_bias")
        return ablated(super().trainable(), queries, self.attention, self.lexicon)


@dataclasses.dataclass(frozen=True)
class SequenceToSequenceConfig(AbstractModelConfig):
    """Sizes and variants of the model; the defaults are those of the authors' copying code."""

    hidden: int = 256
    """Size of embeddings and states."""
    cell: CellName = "lstm"
    """lstm, or gru as in the authors' multi-head code."""
    heads: int = 1
    """Attention heads (K)."""
    together: Together = "sum"
    """sum: the heads' contexts are added, as in the text. mean: averaged, as in the code."""
    context_projection: bool = True
    """Whether a head projects the states it attends to (the code), or not (the text)."""
    shared_embeddings: bool = True
    """Whether source and target words share their embeddings."""
    activation: Activation = "tanh"
    """Activation of the readout's hidden layer."""
    attention: AttentionKind = "learned"
    """learned; frozen: queries keep their initialisation; uniform: all positions weigh the same."""
    lexicon: LexiconKind = "learned"
    """learned; frozen: only the attention's queries are trained."""
    kernel: KernelName = "softmax"
    """How scores become weights."""
    decoder_start: DecoderStart = "encoder"
    """encoder: the decoder starts from the encoder's last state. zero: it sees no source word but
    through attention."""
    base_start: int | None = None
    """Number of the initialisation of everything but the heads; None: from the member's seed."""
    head_starts: tuple[int, ...] | None = None
    """Numbers of the heads' initialisations, one per head; None: from the member's seed."""

    def __post_init__(self):
        require_count(self, "hidden", "heads")
        require_choices(self)
        require_learned_attention(self.lexicon, self.attention)
        starts = self.head_starts or ()
        if self.head_starts is not None and len(starts) != self.heads:
            allowed = f"one for each of the {self.heads} heads"
            raise ConfigError(f"head_starts: got {len(starts)} numbers, allowed: {allowed}")
        numbered = [("base_start", self.base_start), *(("head_starts", one) for one in starts)]
        for field, start in numbered:
            for number in start.values if isinstance(start, Swept) else (start,):
                if number is not None and not (number >= 0 and number % 1 == 0):
                    allowed = "a whole number, at least 0"
                    raise ConfigError(f"{field}: got {number!r}, allowed: {allowed}")

    @classmethod
    def example(cls) -> tuple[Self, Copying]:
        return cls(hidden=4, heads=2), Copying.example()

    def build(self, task: HasVocabulary, key: PRNGKeyArray) -> SequenceToSequence:
        base_key, head_key = jax.random.split(key)
        if self.base_start is not None:
            base_key = numbered_key(self.base_start, 0)
        keys = jax.random.split(base_key, 6)
        head_keys = jax.random.split(head_key, self.heads)
        if self.head_starts is not None:
            numbers = jnp.stack([jnp.asarray(one) for one in self.head_starts])
            head_keys = jax.vmap(lambda number: numbered_key(number, 1))(numbers)
        size, ids = self.hidden, task.vocabulary_size
        return SequenceToSequence(
            jax.random.normal(keys[0], (ids, size)),
            None if self.shared_embeddings else jax.random.normal(keys[1], (ids, size)),
            Recurrence.build(keys[2], size, size, self.cell),
            Recurrence.build(keys[3], size, size, self.cell),
            Heads.build(head_keys, size, self.context_projection),
            Linear.build(keys[4], 2 * size, size),
            Linear.build(keys[5], size, ids),
            getattr(task, "used_ids", jnp.ones(ids, bool)),
            self.together,
            self.activation,
            self.attention,
            self.lexicon,
            KERNELS[self.kernel],
            self.decoder_start,
        )


def numbered_key(number: Any, purpose: int) -> PRNGKeyArray:
    """The key of a numbered initialisation."""
    return jax.random.fold_in(jax.random.key(jnp.asarray(number).astype(jnp.uint32)), purpose)


def token_entropy(
    model: Callable[[SentencePairs], Output], batch: SentencePairs
) -> Float[Array, ""]:
    """Mean cross-entropy of the target words, for any model of sentence pairs."""
    logits = model(batch).logits
    correct = batch.target[..., None] == jnp.arange(logits.shape[-1])
    # A masked sum rather than a gather: its gradient is a masked sum too, and not a scatter.
    surprise = -jnp.sum(jax.nn.log_softmax(logits) * correct, axis=-1)
    return jnp.sum(surprise * batch.target_mask) / batch.target_mask.sum()
