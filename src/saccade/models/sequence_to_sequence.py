"""The sequence-to-sequence model with dot attention (Snell, Zhong, Klein & Steinhardt 2021,
sections 2.1 and 5.2).

Encoder states h_l, decoder states s_t (teacher forcing); head k scores a_{t,l} = (A_k s_t + b_k) .
h_l; its softmax over l weighs the states; the heads' contexts are summed (the text) or averaged
(the authors' code), after a projection P_k that the code has and the text does not; N([c_t, s_t]),
one hidden layer, gives the logits. The lexical probe asks the same N what it would say if all heads
attended to one position only: beta_{t,l} = N([c of h_l alone, s_t])_{y_t}.

Starts are PyTorch's. `base_start` and `head_starts` name starts by number: with them the base, or a
head, is the same in every member, whatever its seed, so that heads can be drawn, tried and
combined.
"""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractModel, AbstractModelConfig, Output, SentencePairs
from saccade.core.sweep import Swept, require, require_count
from saccade.models.kernels import KERNELS, SOFTMAX, AbstractKernel, KernelName
from saccade.models.linear import Linear
from saccade.models.recurrence import CellName, Recurrence, State

AttentionKind = Literal["learned", "frozen", "uniform"]
LexiconKind = Literal["learned", "frozen"]
Together = Literal["sum", "mean"]
Activation = Literal["tanh", "relu"]

ACTIVATIONS = {"tanh": jnp.tanh, "relu": jax.nn.relu}
NOT_USED = -1e9
"""Logit of an id that the task never uses: its probability is exactly 0, and so is its gradient."""


class Heads(eqx.Module):
    """Attention heads, stacked: how each makes a query of a decoder state, and a context of what
    it sees.
    """

    query_weights: Float[Array, "head hidden hidden"]
    query_bias: Float[Array, "head hidden"]
    context_weights: Float[Array, "head hidden hidden"] | None
    context_bias: Float[Array, "head hidden"] | None

    @staticmethod
    def build(keys: Any, hidden: int, projected: bool) -> "Heads":
        def one(key: PRNGKeyArray) -> tuple[Linear, Linear]:
            query_key, context_key = jax.random.split(key)
            return Linear.build(query_key, hidden, hidden), Linear.build(
                context_key, hidden, hidden
            )

        query, context = jax.vmap(one)(keys)
        return Heads(
            query.weights,
            query.bias,
            *((context.weights, context.bias) if projected else (None, None)),
        )

    @property
    def count(self) -> int:
        return self.query_bias.shape[0]

    def queries(
        self, states: Float[Array, "pair target hidden"]
    ) -> Float[Array, "pair head target hidden"]:
        return jnp.einsum("bth,khd->bktd", states, self.query_weights) + self.query_bias[:, None]

    def contexts(
        self, seen: Float[Array, "pair head place hidden"]
    ) -> Float[Array, "pair place hidden"]:
        """The sum of all heads' contexts, given what each of them sees."""
        if self.context_weights is None or self.context_bias is None:
            return seen.sum(1)
        return jnp.einsum("bkth,khd->btd", seen, self.context_weights) + self.context_bias.sum(0)

    def contexts_of_one(
        self, states: Float[Array, "pair source hidden"]
    ) -> Float[Array, "pair source hidden"]:
        """The sum of all heads' contexts, if all see one position only, for every position."""
        if self.context_weights is None or self.context_bias is None:
            return self.count * states
        return states @ self.context_weights.sum(0) + self.context_bias.sum(0)


class SequenceToSequence(AbstractModel):
    """Encoder, decoder, heads and readout."""

    source_embeddings: Float[Array, "id feature"]
    target_embeddings: Float[Array, "id feature"] | None
    """None: the source's are used."""
    encoder: Recurrence
    decoder: Recurrence
    heads: Heads
    hidden_layer: Linear
    output_layer: Linear
    used_ids: Bool[Array, " id"]
    """Ids that the task uses; the others get no probability."""
    together: Together = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    attention: AttentionKind = eqx.field(static=True)
    lexicon: LexiconKind = eqx.field(static=True)
    kernel: AbstractKernel = SOFTMAX

    def encoded(
        self, batch: SentencePairs, gates: Float[Array, "pair source"] | None = None
    ) -> tuple[Float[Array, "pair source hidden"], State]:
        return self.encoder.of_words(
            self.source_embeddings, batch.source, batch.source_mask, gates=gates
        )

    def decoded(self, batch: SentencePairs, start: State) -> Float[Array, "pair target hidden"]:
        table = self.source_embeddings if self.target_embeddings is None else self.target_embeddings
        return self.decoder.of_words(table, batch.decoder_input, start=start)[0]

    def weights(
        self,
        encoded: Float[Array, "pair source hidden"],
        decoded: Float[Array, "pair target hidden"],
        mask: Bool[Array, "pair source"],
    ) -> Float[Array, "pair head target source"]:
        """Attention of every head; padding gets none."""
        if self.attention == "uniform":
            shape = (encoded.shape[0], self.heads.count, decoded.shape[1], encoded.shape[1])
            return jnp.broadcast_to(
                (mask / mask.sum(-1, keepdims=True))[:, None, None], shape
            ).astype(encoded.dtype)
        scores = self.kernel.scores(self.heads.queries(decoded), encoded[:, None], scale=1.0)
        return self.kernel.weights(jnp.where(mask[:, None, None], scores, -jnp.inf))

    def _mixed(self, contexts: Float[Array, "..."]) -> Float[Array, "..."]:
        return contexts / self.heads.count if self.together == "mean" else contexts

    def __call__(
        self, batch: SentencePairs, gates: Float[Array, "pair source"] | None = None
    ) -> Output:
        """Logits of every target word, and the heads' mean attention. `gates` multiply the
        source embeddings.
        """
        encoded, last = self.encoded(batch, gates)
        decoded = self.decoded(batch, last)
        weights = self.weights(encoded, decoded, batch.source_mask)
        seen = jnp.einsum("bktl,blh->bkth", weights, encoded)
        contexts = self._mixed(self.heads.contexts(seen))
        hidden = self.hidden_layer(jnp.concatenate([contexts, decoded], axis=-1))
        return Output(self._logits(hidden), weights.mean(1))

    def _logits(self, hidden: Float[Array, "*some hidden"]) -> Float[Array, "*some id"]:
        logits = self.output_layer(ACTIVATIONS[self.activation](hidden))
        return jnp.where(self.used_ids, logits, NOT_USED)

    def lexical_probe(self, batch: SentencePairs) -> Float[Array, "pair target source"]:
        """beta: the log probability of the right word, if every head attended to one position
        only.
        """
        encoded, last = self.encoded(batch)
        decoded = self.decoded(batch, last)
        size = encoded.shape[-1]
        of_context = (
            self._mixed(self.heads.contexts_of_one(encoded)) @ self.hidden_layer.weights[:size]
        )
        of_state = decoded @ self.hidden_layer.weights[size:] + self.hidden_layer.bias

        def one_pair(parts: tuple[Array, Array, Array]) -> Float[Array, "target source"]:
            context, state, target = parts
            scores = jax.nn.log_softmax(self._logits(state[:, None] + context[None]))
            return jnp.take_along_axis(scores, target[:, None, None], axis=-1)[..., 0]

        # Pair by pair: all logits of all pairs at once would need gigabytes.
        return jax.lax.map(one_pair, (of_context, of_state, batch.target))

    def trainable(self) -> PyTree:
        learned = jax.tree.map(eqx.is_inexact_array, self)
        still = ["query_weights", "query_bias"] if self.attention != "learned" else []
        for name in still:
            learned = eqx.tree_at(lambda tree, name=name: getattr(tree.heads, name), learned, False)
        if self.lexicon == "frozen":
            nothing = jax.tree.map(lambda _: False, learned)
            learned = eqx.tree_at(
                lambda tree: (tree.heads.query_weights, tree.heads.query_bias),
                nothing,
                (self.attention == "learned", self.attention == "learned"),
            )
        return learned


@dataclasses.dataclass(frozen=True)
class SequenceToSequenceConfig(AbstractModelConfig):
    """Sizes and variants of the model; as they come, those of the authors' copying code."""

    hidden: int = 256
    """Size of embeddings and states."""
    cell: CellName = "lstm"
    """lstm, or gru as in the authors' multi-head code."""
    heads: int = 1
    """Attention heads (K)."""
    together: Together = "sum"
    """sum: contexts of heads are added, as in the text. mean: averaged, as in the code."""
    context_projection: bool = True
    """Whether a head projects what it sees (the code), or not (the text)."""
    shared_embeddings: bool = True
    """Whether source and target words share their embeddings."""
    activation: Activation = "tanh"
    """Of the readout's hidden layer."""
    attention: AttentionKind = "learned"
    """learned; frozen: scores keep their random start; uniform: every position counts the same."""
    lexicon: LexiconKind = "learned"
    """learned; frozen: nothing learns but the attention's queries."""
    kernel: KernelName = "softmax"
    """How scores become weights."""
    base_start: float | None = None
    """Number of the start of everything but the heads; None: drawn from the member's seed."""
    head_starts: tuple[float, ...] | None = None
    """Numbers of the heads' starts, one a head; None: drawn from the member's seed."""

    def __post_init__(self):
        require_count(self, "hidden", "heads")
        for field, allowed in (
            ("cell", ("lstm", "gru")),
            ("together", ("sum", "mean")),
            ("activation", tuple(ACTIVATIONS)),
            ("attention", ("learned", "frozen", "uniform")),
            ("lexicon", ("learned", "frozen")),
            ("kernel", tuple(KERNELS)),
        ):
            require(
                self, field, ", ".join(allowed), lambda value, allowed=allowed: value in allowed
            )
        if self.lexicon == "frozen" and self.attention != "learned":
            raise ConfigError(
                f"lexicon: got 'frozen' with attention {self.attention!r}, allowed: with attention"
                " that is learned"
            )
        if self.head_starts is not None and len(self.head_starts) != self.heads:
            raise ConfigError(
                f"head_starts: got {len(self.head_starts)} numbers, allowed: one for each of the"
                f" {self.heads} heads"
            )
        for field, starts in (
            ("base_start", (self.base_start,)),
            ("head_starts", self.head_starts or ()),
        ):
            for start in starts:
                for number in start.values if isinstance(start, Swept) else (start,):
                    if number is not None and not (number >= 0 and float(number).is_integer()):
                        raise ConfigError(
                            f"{field}: got {number!r}, allowed: a whole number, at least 0"
                        )

    def build(self, task: Any, key: PRNGKeyArray) -> SequenceToSequence:
        base_key, head_key = jax.random.split(key)
        if self.base_start is not None:
            base_key = numbered_key(self.base_start, 0)
        keys = jax.random.split(base_key, 6)
        if self.head_starts is None:
            head_keys = jax.random.split(head_key, self.heads)
        else:
            head_keys = jax.vmap(lambda number: numbered_key(number, 1))(
                jnp.stack([jnp.asarray(one) for one in self.head_starts])
            )
        size, ids = self.hidden, task.vocabulary_size
        used: Int[Array, " id"] = getattr(task, "used_ids", jnp.ones(ids, bool))
        return SequenceToSequence(
            jax.random.normal(keys[0], (ids, size)),
            None if self.shared_embeddings else jax.random.normal(keys[1], (ids, size)),
            Recurrence.build(keys[2], size, size, self.cell),
            Recurrence.build(keys[3], size, size, self.cell),
            Heads.build(head_keys, size, self.context_projection),
            Linear.build(keys[4], 2 * size, size),
            Linear.build(keys[5], size, ids),
            used,
            self.together,
            self.activation,
            self.attention,
            self.lexicon,
            KERNELS[self.kernel],
        )


def numbered_key(number: Any, purpose: int) -> PRNGKeyArray:
    """The key of a numbered start."""
    return jax.random.fold_in(jax.random.key(jnp.asarray(number).astype(jnp.uint32)), purpose)


def token_entropy(model: Any, batch: SentencePairs) -> Float[Array, ""]:
    """Mean cross-entropy of the target words."""
    logits = model(batch).logits
    correct = batch.target[..., None] == jnp.arange(logits.shape[-1])
    # A masked sum rather than a gather: the gradient is then a masked sum too, and not a scatter.
    surprise = -jnp.sum(jax.nn.log_softmax(logits) * correct, axis=-1)
    return jnp.sum(surprise * batch.target_mask) / batch.target_mask.sum()
