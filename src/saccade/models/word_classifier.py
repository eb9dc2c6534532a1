"""The bag-of-words proxy of a classifier (Snell et al. 2021, section 2.4 and figure 5).

Every word has a logit gamma_w = W . e_w; the logit of the positive class is their mean over the
text: uniform attention over words without a context. The lexical probe is the sigmoid of gamma_w
with the sign of the label.
"""

import dataclasses
from typing import Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from saccade.contracts.model import AbstractModel, AbstractModelConfig, Output
from saccade.contracts.task import Batch, HasVocabulary
from saccade.models.recurrence import looked_up
from saccade.models.recurrent_classifier import require_two_labels
from saccade.settings import require_count
from saccade.tasks.keyword_sentences import KeywordSentences

PerPosition = Float[Array, "sentence position"]


class WordClassifier(AbstractModel):
    """Embeddings and a readout."""

    embeddings: Float[Array, "word feature"]
    readout: Float[Array, " feature"]

    def scores(self, batch: Batch) -> PerPosition:
        """Zero: attention is uniform."""
        return jnp.zeros(batch.words.shape)

    def word_logits(self, batch: Batch) -> PerPosition:
        """gamma: the logit of the positive class, given one word alone."""
        return looked_up(self.embeddings @ self.readout[:, None], batch.words)[..., 0]

    def lexical_probe(self, batch: Batch) -> PerPosition:
        """log beta: the log probability of the correct label, given one word alone."""
        return jax.nn.log_sigmoid((2 * batch.labels - 1)[:, None] * self.word_logits(batch))

    def __call__(self, batch: Batch, gates: PerPosition | None = None) -> Output:
        """Logits: zero, and that of the positive class. `gates` multiply the embeddings."""
        there = jnp.ones(batch.words.shape, bool) if batch.mask is None else batch.mask
        weights = there / there.sum(-1, keepdims=True)
        logits = self.word_logits(batch)
        positive = jnp.sum(weights * (logits if gates is None else gates * logits), axis=-1)
        return Output(jnp.stack([jnp.zeros_like(positive), positive], axis=-1), weights)


@dataclasses.dataclass(frozen=True)
class WordClassifierConfig(AbstractModelConfig):
    """Size of the proxy."""

    dimension: int = 256
    """Dimension of the embeddings."""

    def __post_init__(self):
        require_count(self, "dimension")

    @classmethod
    def example(cls) -> tuple[Self, KeywordSentences]:
        return cls(dimension=4), KeywordSentences.example()

    def build(self, task: HasVocabulary, key: PRNGKeyArray) -> WordClassifier:
        require_two_labels(task)
        word_key, readout_key = jax.random.split(key)
        size = self.dimension
        embeddings = size**-0.5 * jax.random.normal(word_key, (task.vocabulary_size, size))
        return WordClassifier(embeddings, size**-0.5 * jax.random.normal(readout_key, (size,)))
