"""What a translation model knows and where it looks (Snell, Zhong, Klein & Steinhardt 2021).

alpha: attention; beta: the probability of the right word if the model attended to one position only
(the lexical probe); Delta: saliency. All are taken on the first test pairs, for target words (the
end of a sentence is left out: it is told by its place).

Delta is defined once: minus the derivative of a target word's loss by a number that multiplies a
source word's embedding, at 1. It is positive where more of a word would help. (The released code
negates it twice for classification and once for translation.)
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from saccade.core.interfaces import END, AbstractProbe, Moment, SentencePairs, Variable
from saccade.probes.agreement import agreement, mean_over, random_baseline, rank_agreement

OFFSETS = (-1, 0, 1)
READABLE = [0, 1]
"""Offsets at which a state of a one-directional encoder can hold the word."""


def first_pairs(batch: SentencePairs, count: int) -> SentencePairs:
    return batch.examples(jnp.arange(min(count, batch.target.shape[0])))


def word_places(batch: SentencePairs) -> Bool[Array, "pair target"]:
    """The target positions that hold words: neither padding nor the end."""
    return batch.target_mask & (batch.target != END)


def saliency(model: Any, batch: SentencePairs) -> Float[Array, "pair target source"]:
    """Delta of every source word for every target word."""

    def losses(gates: Float[Array, "pair source"]) -> Float[Array, " target"]:
        scores = jax.nn.log_softmax(model(batch, gates).logits)
        right = jnp.take_along_axis(scores, batch.target[..., None], axis=-1)[..., 0]
        return -jnp.sum(
            right, axis=0
        )  # pairs do not touch one another: summed, they keep their own derivatives

    return -jnp.swapaxes(jax.jacrev(losses)(jnp.ones(batch.source.shape)), 0, 1)


def class_saliency(
    model: Any, batch: Any, loss: Callable[[Any, Any], Float[Array, ""]]
) -> Float[Array, "sentence position"]:
    """Delta of every word of a classifier's sentences, for a loss that is a mean over sentences."""

    class Gated(eqx.Module):
        gates: Float[Array, "sentence position"]

        def __call__(self, inner: Any) -> Any:
            return model(inner, self.gates)

    gradient = jax.grad(lambda gates: loss(Gated(gates), batch))(jnp.ones(batch.words.shape))
    return -batch.words.shape[0] * gradient


@dataclasses.dataclass(frozen=True)
class TokenAccuracy(AbstractProbe):
    """How many words of the test set are guessed right, given all before them."""

    variables: ClassVar = {
        "test_accuracy": Variable((), "share of test words and ends that are guessed right")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = moment.test
        right = moment.test_output.logits.argmax(-1) == batch.target
        return {"test_accuracy": jnp.sum(right & batch.target_mask) / batch.target_mask.sum()}


@dataclasses.dataclass(frozen=True)
class AttentionPlaces(AbstractProbe):
    """Whether attention looks at the word that is translated, or beside it.

    Of a one-directional encoder the state one place on may still hold the word (`READABLE`). That
    one place back cannot, but attention tends to go there first: to the word before, which the
    decoder has just been given.
    """

    variables: ClassVar = {
        "attention_accuracy": Variable(
            ("offset",),
            "share of words whose largest attention is so many places from the right one",
        ),
        "attention_mass": Variable(("offset",), "mean attention so many places from the right one"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch, weights = moment.test, moment.test_output.attention
        words = word_places(batch)
        largest = weights.argmax(-1)
        places = jnp.arange(weights.shape[-1])
        accuracies, masses = [], []
        for offset in OFFSETS:
            wanted = batch.aligned + offset
            accuracies.append(mean_over((largest == wanted).astype(weights.dtype), words))
            masses.append(
                mean_over(jnp.sum(weights * (places == wanted[..., None]), axis=-1), words)
            )
        return {"attention_accuracy": jnp.stack(accuracies), "attention_mass": jnp.stack(masses)}

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        del task
        return {"offset": ("offset", list(OFFSETS))}


@dataclasses.dataclass(frozen=True)
class LexicalKnowledge(AbstractProbe):
    """The lexical probe beta at the right position and elsewhere: knowledge to translate
    individual words.
    """

    pairs: int = 16
    """Test pairs on which it is taken."""

    variables: ClassVar = {
        "lexicon_right": Variable((), "mean of beta at the right position"),
        "lexicon_elsewhere": Variable((), "mean of beta at all other positions"),
        "lexicon_agreement": Variable(
            (), "A(right position, beta): how often it is among beta's top 5 %; ties shared"
        ),
        "lexicon_agreement_authors": Variable(
            (), "the same with the authors' rule: ties never count against"
        ),
        "random_agreement": Variable((), "what agreement by chance would be"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = first_pairs(moment.test, self.pairs)
        beta = moment.model.lexical_probe(batch)
        words = word_places(batch)
        places = jnp.arange(beta.shape[-1])
        right = (places == batch.aligned[..., None]).astype(beta.dtype)
        there = jnp.broadcast_to(batch.source_mask[:, None], beta.shape)
        elsewhere = there & (right == 0)
        chance = jnp.exp(beta)
        agreeing = partial(agreement, right, beta, there)
        return {
            "lexicon_right": mean_over(jnp.sum(chance * right, axis=-1), words),
            "lexicon_elsewhere": mean_over(
                jnp.sum(chance * elsewhere, axis=-1) / jnp.maximum(elsewhere.sum(-1), 1),
                words & (elsewhere.sum(-1) > 0),
            ),
            "lexicon_agreement": mean_over(agreeing(ties="shared"), words),
            "lexicon_agreement_authors": mean_over(agreeing(ties="authors"), words),
            "random_agreement": mean_over(random_baseline(there), words),
        }


@dataclasses.dataclass(frozen=True)
class PositionTables(AbstractProbe):
    """alpha, beta and Delta of the first test pairs, whole, to be compared between runs; NaN
    where there is no word.
    """

    pairs: int = 16
    """Test pairs that are kept."""

    variables: ClassVar = {
        "alpha": Variable(
            ("pair", "target", "source"), "attention of a target word to a source word"
        ),
        "beta": Variable(
            ("pair", "target", "source"),
            "log probability of the right word, attending to one source word only",
        ),
        "delta": Variable(
            ("pair", "target", "source"), "saliency of a source word for a target word"
        ),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = first_pairs(moment.test, self.pairs)
        there = word_places(batch)[..., None] & batch.source_mask[:, None]
        tables = {
            "alpha": moment.model(batch).attention,
            "beta": moment.model.lexical_probe(batch),
            "delta": saliency(moment.model, batch),
        }
        return {name: jnp.where(there, table, jnp.nan) for name, table in tables.items()}


@dataclasses.dataclass(frozen=True)
class PairWords(AbstractProbe):
    """The words of the first test pairs, for comparison with models of another kind."""

    pairs: int = 16
    """Test pairs that are kept."""

    variables: ClassVar = {
        "source_id": Variable(("pair", "source"), "id of a source word, -1 at padding"),
        "target_id": Variable(("pair", "target"), "id of a target word, -1 at padding"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = first_pairs(moment.test, self.pairs)
        sides = {
            "source_id": (batch.source, batch.source_mask),
            "target_id": (batch.target, batch.target_mask),
        }
        return {name: jnp.where(mask, words, -1) for name, (words, mask) in sides.items()}


def mean_agreement(
    first: Float[Array, "*row source"], second: Float[Array, "*row source"], **options: Any
) -> Float[Array, ""]:
    """A(first, second), mean over all rows of tables in which NaN stands where there is no word."""
    there = ~jnp.isnan(first)
    return mean_over(agreement(first, second, there, **options), there.any(-1))


def mean_rank_agreement(
    first: Float[Array, "*row source"], second: Float[Array, "*row source"]
) -> Float[Array, ""]:
    """Kendall's tau, mean over all rows of such tables."""
    there = ~jnp.isnan(first)
    return mean_over(rank_agreement(first, second, there), there.any(-1))


def mean_chance(table: Float[Array, "*row source"]) -> Float[Array, ""]:
    """What agreement by chance would be, mean over all rows of such a table."""
    there = ~jnp.isnan(table)
    return mean_over(random_baseline(there), there.any(-1))
