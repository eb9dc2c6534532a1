"""The recurrent classifier with additive attention (Snell, Zhong, Klein & Steinhardt 2021, section
2.4).

States h_l of an LSTM (one direction or both); scores a_l = v . ReLU(Q h_l + q); attention is their
softmax; the logit of the positive class is the attended sum of gamma_l = W . h_l + b. The lexical
probe is sigmoid of gamma_l with the sign of the label, so that p_correct = sigmoid(sum of alpha_l
logit(beta_l)). (The text prints a_l for alpha_l once, in eq. 8.)
"""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractModel, AbstractModelConfig, Batch, Output
from saccade.core.sweep import require, require_count
from saccade.models.kernels import KERNELS, SOFTMAX, AbstractKernel, KernelName
from saccade.models.linear import Linear
from saccade.models.recurrence import CellName, Recurrence
from saccade.models.sequence_to_sequence import AttentionKind, LexiconKind

Directions = Literal["one", "both"]


class RecurrentClassifier(AbstractModel):
    """Embeddings, recurrent states, additive attention and a logit."""

    embeddings: Float[Array, "word feature"]
    layers: tuple[Recurrence, ...]
    """One a direction."""
    scorer: Linear
    score_vector: Linear
    readout: Linear
    attention: AttentionKind = eqx.field(static=True)
    lexicon: LexiconKind = eqx.field(static=True)
    kernel: AbstractKernel = SOFTMAX

    def states(
        self, batch: Batch, gates: Float[Array, "sentence position"] | None = None
    ) -> Float[Array, "sentence position state"]:
        outputs = [
            layer.of_words(self.embeddings, batch.words, batch.mask, gates=gates)[0]
            for layer in self.layers
        ]
        return jnp.concatenate(outputs, axis=-1)

    def weights(
        self,
        states: Float[Array, "sentence position state"],
        mask: Bool[Array, "sentence position"] | None,
    ) -> Float[Array, "sentence position"]:
        there = jnp.ones(states.shape[:2], bool) if mask is None else mask
        if self.attention == "uniform":
            return (there / there.sum(-1, keepdims=True)).astype(states.dtype)
        scores = self.score_vector(jax.nn.relu(self.scorer(states)))[..., 0]
        return self.kernel.weights(jnp.where(there, scores, -jnp.inf))

    def word_logits(
        self, batch: Batch, gates: Float[Array, "sentence position"] | None = None
    ) -> Float[Array, "sentence position"]:
        """gamma_l: the logit of the positive class, if the model attended to one position only."""
        return self.readout(self.states(batch, gates))[..., 0]

    def lexical_probe(self, batch: Batch) -> Float[Array, "sentence position"]:
        """log beta_l: the log probability of the right label, if the model attended to one
        position only.
        """
        return jax.nn.log_sigmoid((2 * batch.labels - 1)[:, None] * self.word_logits(batch))

    def __call__(
        self, batch: Batch, gates: Float[Array, "sentence position"] | None = None
    ) -> Output:
        """Logits 0 and that of the positive class. `gates` multiply the embeddings."""
        states = self.states(batch, gates)
        weights = self.weights(states, batch.mask)
        positive = jnp.sum(
            weights * self.readout(states)[..., 0], axis=-1
        )  # attention is linear: words are classified first
        return Output(jnp.stack([jnp.zeros_like(positive), positive], axis=-1), weights)

    def trainable(self) -> PyTree:
        learned = jax.tree.map(eqx.is_inexact_array, self)
        scores = (self.scorer, self.score_vector)
        attention = jax.tree.map(lambda _: self.attention == "learned", scores)
        if self.lexicon == "frozen":
            learned = jax.tree.map(lambda _: False, learned)
        return eqx.tree_at(lambda tree: (tree.scorer, tree.score_vector), learned, attention)


@dataclasses.dataclass(frozen=True)
class RecurrentClassifierConfig(AbstractModelConfig):
    """Sizes and variants of the classifier; as they come, those of the paper's toy task."""

    hidden: int = 256
    """Size of the states in one direction."""
    features: int = 256
    """Size of the embeddings."""
    score_size: int = 256
    """Hidden units of the scorer."""
    directions: Directions = "one"
    """one, or both as on the paper's real data."""
    cell: CellName = "lstm"
    """lstm or gru."""
    attention: AttentionKind = "learned"
    """learned; frozen: scores keep their random start; uniform: every position counts the same."""
    lexicon: LexiconKind = "learned"
    """learned; frozen: nothing learns but the attention."""
    kernel: KernelName = "softmax"
    """How scores become weights."""

    def __post_init__(self):
        require_count(self, "hidden", "features", "score_size")
        for field, allowed in (
            ("directions", ("one", "both")),
            ("cell", ("lstm", "gru")),
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

    def build(self, task: Any, key: PRNGKeyArray) -> RecurrentClassifier:
        keys = jax.random.split(key, 6)
        directions = (False, True) if self.directions == "both" else (False,)
        size = self.hidden * len(directions)
        return RecurrentClassifier(
            jax.random.normal(keys[0], (task.vocabulary_size, self.features)),
            tuple(
                Recurrence.build(keys[1 + back], self.features, self.hidden, self.cell, back)
                for back in directions
            ),
            Linear.build(keys[3], size, self.score_size),
            Linear.build(keys[4], self.score_size, 1),
            Linear.build(keys[5], size, 1),
            self.attention,
            self.lexicon,
            KERNELS[self.kernel],
        )
