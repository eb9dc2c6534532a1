"""The translation model at the paper's size (Snell et al. 2021, sections 2.1 and A.8).

    h_l    outputs of a bidirectional LSTM of several layers over the source      [2 hidden]
    s_t    outputs of an LSTM of as many layers over the target, shifted by one   [hidden]
    a_tl = (A s_t + b) . h_l,   alpha = softmax over l,   c_t = P (sum_l alpha_tl h_l) + p
    p_t  = N([c_t, s_t]),       N: one hidden layer of ReLUs
    beta_tl = N([P h_l + p, s_t]) at y_t: the lexical probe

Source and target share their embeddings; the readout has weights of its own. Where the paper and
the authors' code differ, the code is followed, because only its layers have the paper's number of
parameters: 8,180,544 with 8,000 ids, of which 6,132,544 (the readout's 2,056,000 among them) are
not embeddings.

* Attention: s^T W h in the text; in the code the query has a bias.
* Context: c_t is the attended state in the text; in the code it is projected to `hidden` (P).
* Decoder start: "the last hidden state" in the text; in the code output and memory of every layer's
  last state, averaged over the two directions, start the same layer of the decoder.
* Dropout: "the LSTMs used dropout 0.5". In the code it is that of PyTorch's LSTM: on what one layer
  hands to the next, in encoder and decoder, and not on embeddings, last outputs or readout.

Dropout is inverted (see `Encoder`) and acts only if a key is given, which training does and
measuring does not. Padding is neither read nor attended to. Initialisation is PyTorch's.

Parts by path: `embeddings`, `encoder.0.0` (layer, then direction: 1 reads backwards), `decoder.0`,
`query`, `context`, `hidden_layer`, `output_layer`.
"""

import dataclasses
from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from saccade.contracts.model import AbstractModel, AbstractModelConfig, AttentionLayer, Output
from saccade.contracts.task import HasVocabulary, SentencePairs
from saccade.models.encoder import dropped
from saccade.models.freezing import (
    AttentionKind,
    LexiconKind,
    ablated,
    require_learned_attention,
    without,
)
from saccade.models.kernels import KERNELS, SOFTMAX, AbstractKernel, KernelName
from saccade.models.linear import Linear
from saccade.models.recurrence import Recurrence, State, both_ways, looked_up
from saccade.models.sequence_to_sequence import NOT_USED
from saccade.models.word_loss import mean_surprise, surprises
from saccade.settings import require, require_choices, require_count, require_single
from saccade.tasks.lexicon_sentences import LexiconSentences

Words = Int[Array, "pair position"]
Mask = Bool[Array, "pair source"]
Gates = Float[Array, "pair source"] | None
SourceStates = Float[Array, "pair source state"]
TargetStates = Float[Array, "pair target hidden"]
DecoderState = tuple[State, ...]
"""State of every layer of the decoder."""

PROBED = 2**23
"""Logits that the lexical probe computes at once."""


class SourceMemory(eqx.Module):
    """What a decoder reads of the source sentences."""

    states: SourceStates
    mask: Mask


class Translator(AbstractModel):
    """Embeddings, encoder, decoder, attention and readout."""

    embeddings: Float[Array, "id feature"]
    """Of source and target."""
    encoder: tuple[tuple[Recurrence, Recurrence], ...]
    """Per layer: forwards and backwards."""
    decoder: tuple[Recurrence, ...]
    query: Linear
    context: Linear
    hidden_layer: Linear
    output_layer: Linear
    used_ids: Bool[Array, " id"]
    """Ids that the task uses; the others have probability zero."""
    dropout: Any
    """Probability that a number is dropped, if there is a key."""
    attention: AttentionKind = eqx.field(static=True)
    lexicon: LexiconKind = eqx.field(static=True)
    kernel: AbstractKernel = SOFTMAX

    def encoded(
        self, source: Words, mask: Mask, gates: Gates = None, key: PRNGKeyArray | None = None
    ) -> tuple[SourceStates, DecoderState]:
        """The encoder's outputs, and the decoder's first state. `gates` multiply embeddings."""
        states, starts = looked_up(self.embeddings, source), []
        if gates is not None:
            states = gates[..., None] * states
        for layer, drop in zip(self.encoder, self._drops(key), strict=True):
            states = dropped(states, self.dropout, drop)
            inputs = [direction.inputs_of_vectors(states) for direction in layer]
            states, last = both_ways(layer, inputs, mask)
            starts.append(tuple(part.mean(0) for part in last))
        return states, tuple(starts)

    def decoded(
        self, words: Words, start: DecoderState, key: PRNGKeyArray | None = None
    ) -> TargetStates:
        """The decoder's outputs, given all its inputs."""
        states = looked_up(self.embeddings, words)
        for layer, first, drop in zip(self.decoder, start, self._drops(key), strict=True):
            states = layer.of_vectors(dropped(states, self.dropout, drop), start=first)[0]
        return states

    def _drops(self, key: PRNGKeyArray | None) -> list[PRNGKeyArray | None]:
        """A key per layer, for its inputs; none for the first, which reads embeddings."""
        later = len(self.decoder) - 1
        return [None, *([None] * later if key is None else jax.random.split(key, later))]

    def states(
        self, batch: SentencePairs, gates: Gates = None, key: PRNGKeyArray | None = None
    ) -> tuple[SourceStates, TargetStates]:
        """States of encoder and decoder, which reads the correct words (teacher forcing)."""
        source_key, target_key = (None, None) if key is None else jax.random.split(key)
        encoded, start = self.encoded(batch.source, batch.source_mask, gates, source_key)
        return encoded, self.decoded(batch.decoder_input, start, target_key)

    def weights(
        self, encoded: SourceStates, decoded: TargetStates, mask: Mask
    ) -> Float[Array, "pair target source"]:
        """Attention; zero at padding."""
        if self.attention == "uniform":
            shape = (*decoded.shape[:2], encoded.shape[1])
            even = (mask / mask.sum(-1, keepdims=True))[:, None]
            return jnp.broadcast_to(even, shape).astype(encoded.dtype)
        scores = self.kernel.scores(self.query(decoded), encoded, scale=1.0)
        return self.kernel.weights(jnp.where(mask[:, None], scores, -jnp.inf))

    def attention_layers(self, batch: SentencePairs) -> tuple[AttentionLayer]:
        """Target words attend to source words; scores are not scaled."""
        encoded, decoded = self.states(batch)
        queries, kernel = self.query(decoded), self.kernel
        if self.attention == "uniform":
            queries, kernel = jnp.zeros_like(queries), SOFTMAX
        masks, asked = (batch.source_mask, batch.source_mask), batch.target_mask
        parts = (queries[:, None], encoded[:, None], kernel)
        return (AttentionLayer(*parts, *masks, asked=asked, scale=1.0),)

    def __call__(
        self, batch: SentencePairs, gates: Gates = None, key: PRNGKeyArray | None = None
    ) -> Output:
        """Logits of every target word, given the words before it, and the attention."""
        encoded, decoded = self.states(batch, gates, key)
        return self._read(encoded, decoded, batch.source_mask)

    def _read(self, encoded: SourceStates, decoded: TargetStates, mask: Mask) -> Output:
        weights = self.weights(encoded, decoded, mask)
        contexts = self.context(weights @ encoded)
        hidden = self.hidden_layer(jnp.concatenate([contexts, decoded], axis=-1))
        return Output(self._logits(hidden), weights)

    def _logits(self, hidden: Float[Array, "*some hidden"]) -> Float[Array, "*some id"]:
        # In the bias, where it costs no pass over the logits.
        bias = jnp.where(self.used_ids, self.output_layer.bias, NOT_USED)
        return jax.nn.relu(hidden) @ self.output_layer.weights + bias

    def loss(self, batch: SentencePairs, key: PRNGKeyArray | None = None) -> Float[Array, ""]:
        """Mean cross-entropy of the target words; with dropout if there is a key."""
        return mean_surprise(self(batch, key=key).logits, batch)

    def lexical_probe(self, batch: SentencePairs) -> Float[Array, "pair target source"]:
        """log beta: the log probability of the correct word if attention is on one position."""
        encoded, decoded = self.states(batch)
        size = decoded.shape[-1]
        of_context = self.context(encoded) @ self.hidden_layer.weights[:size]
        of_state = decoded @ self.hidden_layer.weights[size:] + self.hidden_layer.bias
        (pairs, targets), sources = batch.target.shape, batch.source.shape[1]

        def one_word(place: Int[Array, ""]) -> Float[Array, " source"]:
            pair, target = place // targets, place % targets
            logits = self._logits(of_state[pair, target] + of_context[pair])
            return -surprises(logits, jnp.full(sources, batch.target[pair, target]))

        # Some target words at a time: all logits at once would take gigabytes.
        at_once = max(1, PROBED // (sources * len(self.embeddings)))
        found = jax.lax.map(one_word, jnp.arange(pairs * targets), batch_size=at_once)
        return found.reshape(pairs, targets, sources)

    # -- one step at a time, for decoding ----------------------------------------------------------

    def begin(self, source: Words, source_mask: Mask) -> tuple[SourceMemory, DecoderState]:
        """What the decoder reads of the source, and its first state."""
        encoded, start = self.encoded(source, source_mask)
        return SourceMemory(encoded, source_mask), start

    def step(
        self, words: Int[Array, " pair"], state: DecoderState, memory: SourceMemory
    ) -> tuple[Float[Array, "pair id"], DecoderState]:
        """Logits of the next words, given the last ones, and the new state."""
        vectors, new = looked_up(self.embeddings, words), []
        for layer, before in zip(self.decoder, state, strict=True):
            new.append(layer.step(vectors, before))
            vectors = new[-1][0]
        return self._read(memory.states, vectors[:, None], memory.mask).logits[:, 0], tuple(new)

    def trainable(self) -> PyTree:
        learning = without(super().trainable(), ("dropout",))
        return ablated(learning, ("query",), self.attention, self.lexicon)


@dataclasses.dataclass(frozen=True)
class TranslatorConfig(AbstractModelConfig):
    """Sizes and variants of the model; the defaults are the paper's."""

    hidden: int = 256
    """Size of embeddings, of states per direction and of the readout's hidden layer."""
    layers: int = 2
    """Layers of the encoder, and of the decoder."""
    dropout: float = 0.5
    """Probability of dropout between layers, in training."""
    attention: AttentionKind = "learned"
    """learned; frozen: the query keeps its start; uniform: all positions weigh the same."""
    lexicon: LexiconKind = "learned"
    """learned; frozen: only the attention's query is trained."""
    kernel: KernelName = "softmax"
    """How scores become weights."""

    def __post_init__(self):
        require_choices(self)
        require_single(self, "because shapes depend on it", "hidden", "layers")
        require_count(self, "hidden", "layers")
        require(self, "dropout", "at least 0 and below 1", lambda value: 0 <= value < 1)
        require_learned_attention(self.lexicon, self.attention)

    @classmethod
    def example(cls) -> tuple[Self, LexiconSentences]:
        return cls(hidden=4), LexiconSentences.example()

    def build(self, task: HasVocabulary, key: PRNGKeyArray) -> Translator:
        table_key, encoder_key, decoder_key, *keys = jax.random.split(key, 7)
        size, ids, layers = self.hidden, task.vocabulary_size, self.layers
        encoder_keys = jax.random.split(encoder_key, (layers, 2))
        ahead, back = (
            [
                Recurrence.build(one, (2 if place else 1) * size, size, "lstm", backwards)
                for place, one in enumerate(encoder_keys[:, int(backwards)])
            ]
            for backwards in (False, True)
        )
        return Translator(
            jax.random.normal(table_key, (ids, size)),
            tuple(zip(ahead, back, strict=True)),
            tuple(
                Recurrence.build(one, size, size, "lstm")
                for one in jax.random.split(decoder_key, layers)
            ),
            Linear.build(keys[0], size, 2 * size),
            Linear.build(keys[1], 2 * size, size),
            Linear.build(keys[2], 2 * size, size),
            Linear.build(keys[3], size, ids),
            getattr(task, "used_ids", jnp.ones(ids, bool)),
            self.dropout,
            self.attention,
            self.lexicon,
            KERNELS[self.kernel],
        )
