"""Accuracy, attention and lexical knowledge of a translation model (Snell et al. 2021).

alpha: attention; beta (the lexical probe): probability of the correct word if the model attends to
one position only; Delta: saliency. All at words of the first test pairs (END would be predictable).

Delta is minus the derivative of a target word's loss with respect to a factor on a source word's
embedding, at factor 1: positive where more of a word would help. (The released code negates it
twice for classification and once for translation.)
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Bool, Float, Int

from saccade.contracts.model import Output
from saccade.contracts.probe import Moment
from saccade.contracts.task import END, SentencePairs
from saccade.errors import ConfigError
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.models.translator import TranslatorConfig
from saccade.models.word_proxy import WordProxyConfig
from saccade.probes.agreement import agreement, mean_over, random_baseline
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.trajectory import first_step
from saccade.records.variable import Variable
from saccade.settings import require_count

OFFSETS = (-1, 0, 1)
READABLE = [0, 1]
"""Offsets at which the state of a one-directional encoder can contain the word."""
SUCCESS = 0.95
"""Token accuracy above which a run counts as successful."""
AT_ONCE = 2**24
"""Derivatives of losses by logits that the saliency computes at once."""
POSITIONS = ("pair", "target", "source")
Table = Float[Array, "*row source"]


def word_places(batch: SentencePairs) -> Bool[Array, "pair target"]:
    """The target positions of words: neither padding nor END."""
    return batch.target_mask & (batch.target != END)


def saliency(
    model: Callable[[SentencePairs, Float[Array, "pair source"]], Output], batch: SentencePairs
) -> Float[Array, "pair target source"]:
    """Delta of every source word for every target word, of a model with factors on embeddings."""

    def of_pairs(batch: SentencePairs) -> Float[Array, "pair target source"]:
        def losses(gates: Float[Array, "pair source"]) -> Float[Array, " target"]:
            scores = jax.nn.log_softmax(model(batch, gates).logits)
            right = jnp.take_along_axis(scores, batch.target[..., None], axis=-1)[..., 0]
            # Pairs are independent, so the derivatives of their sum are their own.
            return -jnp.sum(right, axis=0)

        return -jnp.swapaxes(jax.jacrev(losses)(jnp.ones(batch.source.shape)), 0, 1)

    logits = jax.eval_shape(model, batch, jnp.ones(batch.source.shape)).logits
    pairs, at_once = logits.shape[0], AT_ONCE // (logits.shape[1] * math.prod(logits.shape[1:]))
    if pairs <= at_once:
        return of_pairs(batch)

    def of_pair(one: SentencePairs) -> Float[Array, "target source"]:
        return of_pairs(jax.tree.map(lambda leaf: leaf[None], one))[0]

    return jax.lax.map(of_pair, batch, batch_size=max(1, at_once))


class AbstractTranslationProbe(AbstractModelProbe):
    """A probe of translation models."""

    models: ClassVar = (SequenceToSequenceConfig, TranslatorConfig, WordProxyConfig)

    def aligned(self, moment: Moment, batch: SentencePairs) -> Int[Array, "pair target"]:
        """The right position of every target word, for probes that need it."""
        if batch.aligned is None:
            raise ConfigError(
                f"probe {type(self).__name__}: cannot be used with {type(moment.task).__name__}: "
                "it needs the alignment of the words, which these pairs do not have; allowed: "
                "pairs of LexiconSentences or Copying, or of your own with `aligned`"
            )
        return batch.aligned


@dataclasses.dataclass(frozen=True)
class AbstractPairProbe(AbstractTranslationProbe):
    """A probe of the first test pairs."""

    pairs: int = 16
    """Test pairs to measure."""

    def first_pairs(self, moment: Moment) -> SentencePairs:
        return moment.test.examples(jnp.arange(min(self.pairs, moment.test.target.shape[0])))


class TokenAccuracy(AbstractTranslationProbe):
    """Accuracy on the test set's words, with teacher forcing."""

    variables: ClassVar = {
        "test_accuracy": Variable((), "share of test words and ends predicted correctly")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = moment.test
        right = moment.test_output.logits.argmax(-1) == batch.target
        return {"test_accuracy": jnp.sum(right & batch.target_mask) / batch.target_mask.sum()}


class AttentionPlaces(AbstractTranslationProbe):
    """Attention at the position of the translated word, and one position before and after it.

    In a one-directional encoder the state after the word may still contain it (`READABLE`). The
    state before cannot, but attention tends to go there first: to the decoder's last input.
    """

    labels: ClassVar = {"offset": OFFSETS}
    variables: ClassVar = {
        "attention_accuracy": Variable(("offset",), "share of words with largest weight here"),
        "attention_mass": Variable(("offset",), "mean attention at this offset"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch, weights = moment.test, jnp.asarray(moment.test_output.attention)
        words, largest = word_places(batch), weights.argmax(-1)
        places = jnp.arange(weights.shape[-1])
        accuracies, masses = [], []
        for offset in OFFSETS:
            wanted = self.aligned(moment, batch) + offset
            accuracies.append(mean_over((largest == wanted).astype(weights.dtype), words))
            mass = jnp.sum(weights * (places == wanted[..., None]), axis=-1)
            masses.append(mean_over(mass, words))
        return {"attention_accuracy": jnp.stack(accuracies), "attention_mass": jnp.stack(masses)}


@dataclasses.dataclass(frozen=True)
class AttentionOffsets(AbstractTranslationProbe):
    """Where attention goes: its mass by signed offset from the right position, and by position.

    The masses by position sum to 1, and so do those by offset if `span` covers the sentences.
    """

    span: int = 40
    """Largest offset, before and after the right position."""
    variables: ClassVar = {
        "mass_by_offset": Variable(("distance",), "mean attention at this signed offset"),
        "mass_by_position": Variable(("source",), "mean attention at this source position"),
    }

    def __post_init__(self):
        require_count(self, "span")

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        return {"distance": ("distance", list(range(-self.span, self.span + 1)))}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch, weights = moment.test, jnp.asarray(moment.test_output.attention)
        words = word_places(batch)
        from_right = jnp.arange(weights.shape[-1]) - self.aligned(moment, batch)[..., None]

        def mass_at(distance: Array) -> Float[Array, ""]:
            return mean_over(jnp.sum(weights * (from_right == distance), axis=-1), words)

        by_offset = jax.lax.map(mass_at, jnp.arange(-self.span, self.span + 1))
        by_position = jnp.sum(weights * words[..., None], axis=(0, 1)) / words.sum()
        return {"mass_by_offset": by_offset, "mass_by_position": by_position}


class LexicalKnowledge(AbstractPairProbe):
    """The lexical probe beta at the correct position and elsewhere."""

    variables: ClassVar = {
        "lexicon_right": Variable((), "mean of beta at the correct position"),
        "lexicon_elsewhere": Variable((), "mean of beta at all other positions"),
        "lexicon_agreement": Variable((), "A(correct position, beta): top 5 %, ties shared"),
        "lexicon_agreement_authors": Variable((), "A(correct position, beta) by the authors' rule"),
        "random_agreement": Variable((), "agreement by chance"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = self.first_pairs(moment)
        beta, words = moment.model.lexical_probe(batch), word_places(batch)
        aligned = self.aligned(moment, batch)
        right = (jnp.arange(beta.shape[-1]) == aligned[..., None]).astype(beta.dtype)
        there = jnp.broadcast_to(batch.source_mask[:, None], beta.shape)
        elsewhere = there & (right == 0)
        others, chance = elsewhere.sum(-1), jnp.exp(beta)
        mean_elsewhere = jnp.sum(chance * elsewhere, axis=-1) / jnp.maximum(others, 1)
        shared, authors = (agreement(right, beta, there, ties) for ties in ("shared", "authors"))
        return {
            "lexicon_right": mean_over(jnp.sum(chance * right, axis=-1), words),
            "lexicon_elsewhere": mean_over(mean_elsewhere, words & (others > 0)),
            "lexicon_agreement": mean_over(shared, words),
            "lexicon_agreement_authors": mean_over(authors, words),
            "random_agreement": mean_over(random_baseline(there), words),
        }


class PositionTables(AbstractPairProbe):
    """Tables of alpha, log beta and Delta, to be compared between runs; NaN outside words."""

    variables: ClassVar = {
        "alpha": Variable(POSITIONS, "attention of a target word to a source word"),
        "beta": Variable(POSITIONS, "log probability of the correct word, given one source", "nat"),
        "delta": Variable(POSITIONS, "saliency of a source word for a target word"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = self.first_pairs(moment)
        model, there = moment.model, word_places(batch)[..., None] & batch.source_mask[:, None]
        tables = {"alpha": model(batch).attention, "beta": model.lexical_probe(batch)}
        tables["delta"] = saliency(model, batch)
        return {name: jnp.where(there, table, jnp.nan) for name, table in tables.items()}


class PairWords(AbstractPairProbe):
    """The words of the first test pairs, to be given to models of another kind."""

    variables: ClassVar = {
        "source_id": Variable(("pair", "source"), "id of a source word, -1 at padding"),
        "target_id": Variable(("pair", "target"), "id of a target word, -1 at padding"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = self.first_pairs(moment)
        source = jnp.where(batch.source_mask, batch.source, -1)
        return {"source_id": source, "target_id": jnp.where(batch.target_mask, batch.target, -1)}


# -- of recorded tables and curves -----------------------------------------------------------------


def mean_agreement(first: Table, second: Table) -> Float[Array, ""]:
    """A(first, second), mean over all rows of tables that are NaN outside words."""
    there = ~jnp.isnan(first)
    return mean_over(agreement(first, second, there), there.any(-1))


def mean_chance(table: Table) -> Float[Array, ""]:
    """Agreement by chance, mean over all rows of such a table."""
    there = ~jnp.isnan(table)
    return mean_over(random_baseline(there), there.any(-1))


def success_step(accuracy: xr.DataArray) -> xr.DataArray:
    """The first recorded step at which a run is successful; infinite if there is none."""
    return first_step(accuracy > SUCCESS, np.inf)


def ratio_of_medians(slow: np.ndarray, fast: np.ndarray) -> float:
    """Median of some steps over that of others, which may be infinite; NaN if the latter is."""
    numerator, denominator = float(np.median(slow)), float(np.median(fast))
    return numerator / denominator if np.isfinite(denominator) else np.nan
