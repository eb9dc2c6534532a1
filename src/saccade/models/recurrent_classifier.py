"""The recurrent classifier with additive attention (Snell et al. 2021, section 2.4).

States h_l of an LSTM (one direction or both); scores a_l = v . ReLU(Q h_l + q); attention is their
softmax; the logit of the positive class is the attended sum of gamma_l = W . h_l + b. The lexical
probe is the sigmoid of gamma_l with the sign of the label, so that p_correct = sigmoid(sum of
alpha_l logit(beta_l)). (Eq. 8 of the text prints a_l for alpha_l once.)
"""

import dataclasses
from typing import Any, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from saccade.contracts.model import AbstractModel, AbstractModelConfig, AttentionLayer, Output
from saccade.contracts.task import Batch, HasVocabulary
from saccade.data.vectors import vectors_for
from saccade.errors import ConfigError
from saccade.models.bag_attention import masked, of_one_query
from saccade.models.freezing import AttentionKind, LexiconKind, ablated, require_learned_attention
from saccade.models.kernels import KERNELS, SOFTMAX, AbstractKernel, KernelName
from saccade.models.linear import Linear
from saccade.models.recurrence import CellName, Recurrence, both_ways
from saccade.settings import require_choices, require_count
from saccade.tasks.keyword_sentences import KeywordSentences

Directions = Literal["one", "both"]
States = Float[Array, "sentence position state"]
PerPosition = Float[Array, "sentence position"]


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

    def states(self, batch: Batch, gates: PerPosition | None = None) -> States:
        """The states of all directions. `gates` multiply the embeddings."""
        given = (self.embeddings, batch.words, batch.mask)
        if len(self.layers) == 1:
            return self.layers[0].of_words(*given, gates=gates)[0]
        inputs = [layer.inputs_of_words(*given[:2], gates) for layer in self.layers]
        return both_ways(self.layers, inputs, batch.mask)[0]

    def _scored(self, states: States) -> tuple[PerPosition, AbstractKernel]:
        """The scores, and the kernel of their weights."""
        if self.attention == "uniform":
            return jnp.zeros(states.shape[:2], states.dtype), SOFTMAX
        return self.score_vector(jax.nn.relu(self.scorer(states)))[..., 0], self.kernel

    def scores(self, batch: Batch) -> PerPosition:
        """The scores of all positions; zero if attention is uniform."""
        return self._scored(self.states(batch))[0]

    def weights(self, states: States, batch: Batch) -> PerPosition:
        scores, kernel = self._scored(states)
        return kernel.weights(masked(scores, batch.mask))

    def attention_layers(self, batch: Batch) -> tuple[AttentionLayer]:
        scores, kernel = self._scored(self.states(batch))
        return of_one_query(scores, batch, kernel)

    def word_logits(self, batch: Batch) -> PerPosition:
        """gamma_l: the logit of the positive class if the model attends to position l only."""
        return self.readout(self.states(batch))[..., 0]

    def lexical_probe(self, batch: Batch) -> PerPosition:
        """log beta_l: the log probability of the correct label, attending to position l only."""
        return jax.nn.log_sigmoid((2 * batch.labels - 1)[:, None] * self.word_logits(batch))

    def __call__(self, batch: Batch, gates: PerPosition | None = None) -> Output:
        """Logits: zero, and that of the positive class."""
        states = self.states(batch, gates)
        weights = self.weights(states, batch)
        # Attention is linear in the values, so positions are classified before they are averaged.
        positive = jnp.sum(weights * self.readout(states)[..., 0], axis=-1)
        return Output(jnp.stack([jnp.zeros_like(positive), positive], axis=-1), weights)

    def trainable(self) -> PyTree:
        scores = ("scorer", "score_vector")
        return ablated(super().trainable(), scores, self.attention, self.lexicon)


def require_two_labels(task: Any) -> None:
    """Refuse more labels than a logit of the positive class can tell apart."""
    labels = getattr(task, "labels", 2)
    if labels != 2:
        got = f"{labels} labels of {type(task).__name__}"
        raise ConfigError(f"task: got {got}, allowed: two, for a classifier with one logit")


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
    vectors: str | None = None
    """Initial embeddings of the words that have one: glove_6b_50d, or the path of a file in GloVe's
    format. All others are drawn with the same standard deviation. None: all are N(0, 1)."""

    def __post_init__(self):
        require_count(self, "hidden", "features", "score_size")
        require_choices(self)
        require_learned_attention(self.lexicon, self.attention)

    @classmethod
    def example(cls) -> tuple[Self, KeywordSentences]:
        config = cls(hidden=3, features=4, score_size=5, directions="both")
        return config, KeywordSentences.example()

    def build(self, task: HasVocabulary, key: PRNGKeyArray) -> RecurrentClassifier:
        require_two_labels(task)
        keys = jax.random.split(key, 6)
        directions = (False, True) if self.directions == "both" else (False,)
        size = self.hidden * len(directions)
        sizes = (self.features, self.hidden, self.cell)
        layers = tuple(Recurrence.build(keys[1 + back], *sizes, back) for back in directions)
        return RecurrentClassifier(
            self._embeddings(task, keys[0]),
            layers,
            Linear.build(keys[3], size, self.score_size),
            Linear.build(keys[4], self.score_size, 1),
            Linear.build(keys[5], size, 1),
            self.attention,
            self.lexicon,
            KERNELS[self.kernel],
        )

    def _embeddings(self, task: Any, key: PRNGKeyArray) -> Float[Array, "word feature"]:
        drawn = jax.random.normal(key, (task.vocabulary_size, self.features))
        if self.vectors is None:
            return drawn
        if not hasattr(task, "vocabulary"):
            got = f"{self.vectors!r} for {type(task).__name__}"
            raise ConfigError(f"vectors: got {got}, allowed: for texts, whose words are known")
        names = ("", "", *task.vocabulary.words)  # padding and unknown words have none
        rows, found = vectors_for(self.vectors, names)
        if rows.shape[1] != self.features:
            raise ConfigError(
                f"features: got {self.features}, allowed: the {rows.shape[1]} numbers of the "
                f"vectors {self.vectors}"
            )
        spread = float(rows[found].std()) if found.any() else 1.0
        return jnp.where(jnp.asarray(found)[:, None], jnp.asarray(rows), spread * drawn)
