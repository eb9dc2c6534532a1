"""The recurrent classifier with additive attention (Snell, Zhong, Klein & Steinhardt 2021, section
2.4).

States h_l of an LSTM (one direction or both); scores a_l = v . ReLU(Q h_l + q); attention is their
softmax; the logit of the positive class is the attended sum of gamma_l = W . h_l + b. The lexical
probe is the sigmoid of gamma_l with the sign of the label, so that p_correct = sigmoid(sum of
alpha_l logit(beta_l)). (Eq. 8 of the text prints a_l for alpha_l once.)
"""

import dataclasses
from functools import partial
from operator import contains
from typing import Literal, Self, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from saccade.core.interfaces import (
    AbstractModel,
    AbstractModelConfig,
    AbstractTask,
    Batch,
    HasVocabulary,
    Output,
)
from saccade.core.sweep import require, require_count
from saccade.models.kernels import KERNELS, SOFTMAX, AbstractKernel, KernelName
from saccade.models.linear import Linear
from saccade.models.recurrence import CellName, Recurrence
from saccade.models.sequence_to_sequence import (
    AttentionKind,
    LexiconKind,
    require_learned_attention,
)
from saccade.tasks.keyword_sentences import KeywordSentences

Directions = Literal["one", "both"]


class RecurrentClassifier(AbstractModel):
    """Embeddings, recurrent states, additive attention and a logit."""

    embeddings: Float[Array, "word feature"]
    layers: tuple[Recurrence, ...]
    """One per direction."""
    scorer: Linear
    score_vector: Linear
    readout: Linear
    attention: AttentionKind = eqx.field(static=True)
    lexicon: LexiconKind = eqx.field(static=True)
    kernel: AbstractKernel = SOFTMAX

    def states(self, batch: Batch) -> Float[Array, "sentence position state"]:
        read = (layer.of_words(self.embeddings, batch.words, batch.mask) for layer in self.layers)
        return jnp.concatenate([outputs for outputs, _ in read], axis=-1)

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

    def word_logits(self, batch: Batch) -> Float[Array, "sentence position"]:
        """gamma_l: the logit of the positive class if the model attends to position l only."""
        return self.readout(self.states(batch))[..., 0]

    def lexical_probe(self, batch: Batch) -> Float[Array, "sentence position"]:
        """log beta_l: the log probability of the correct label if the model attends to position l
        only.
        """
        return jax.nn.log_sigmoid((2 * batch.labels - 1)[:, None] * self.word_logits(batch))

    def __call__(self, batch: Batch) -> Output:
        """Logits: zero, and that of the positive class."""
        states = self.states(batch)
        weights = self.weights(states, batch.mask)
        # Attention is linear in the values, so positions are classified before they are averaged.
        positive = jnp.sum(weights * self.readout(states)[..., 0], axis=-1)
        return Output(jnp.stack([jnp.zeros_like(positive), positive], axis=-1), weights)

    def trainable(self) -> PyTree:
        trained = super().trainable()
        if self.lexicon == "frozen":
            trained = jax.tree.map(lambda _: False, trained)
        scores = (self.scorer, self.score_vector)
        moving = jax.tree.map(lambda _: self.attention == "learned", scores)
        return eqx.tree_at(lambda tree: (tree.scorer, tree.score_vector), trained, moving)


@dataclasses.dataclass(frozen=True)
class RecurrentClassifierConfig(AbstractModelConfig):
    """Sizes and variants of the classifier; the defaults are those of the paper's toy task."""

    hidden: int = 256
    """Size of the states per direction."""
    features: int = 256
    """Size of the embeddings."""
    score_size: int = 256
    """Hidden units of the scorer."""
    directions: Directions = "one"
    """one, or both as on the paper's real data."""
    cell: CellName = "lstm"
    """lstm or gru."""
    attention: AttentionKind = "learned"
    """learned; frozen: scores keep their initialisation; uniform: all positions weigh the same."""
    lexicon: LexiconKind = "learned"
    """learned; frozen: only the attention is trained."""
    kernel: KernelName = "softmax"
    """How scores become weights."""

    def __post_init__(self):
        require_count(self, "hidden", "features", "score_size")
        for field, kind in (
            ("directions", Directions),
            ("cell", CellName),
            ("attention", AttentionKind),
            ("lexicon", LexiconKind),
            ("kernel", KernelName),
        ):
            require(self, field, ", ".join(get_args(kind)), partial(contains, get_args(kind)))
        require_learned_attention(self.lexicon, self.attention)

    @classmethod
    def example(cls) -> tuple[Self, AbstractTask]:
        config = cls(hidden=3, features=4, score_size=5, directions="both")
        return config, KeywordSentences.example()

    def build(self, task: HasVocabulary, key: PRNGKeyArray) -> RecurrentClassifier:
        keys = jax.random.split(key, 6)
        directions = (False, True) if self.directions == "both" else (False,)
        size = self.hidden * len(directions)
        layers = tuple(
            Recurrence.build(keys[1 + back], self.features, self.hidden, self.cell, back)
            for back in directions
        )
        return RecurrentClassifier(
            jax.random.normal(keys[0], (task.vocabulary_size, self.features)),
            layers,
            Linear.build(keys[3], size, self.score_size),
            Linear.build(keys[4], self.score_size, 1),
            Linear.build(keys[5], size, 1),
            self.attention,
            self.lexicon,
            KERNELS[self.kernel],
        )
