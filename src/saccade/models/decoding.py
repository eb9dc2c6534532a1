"""Translations that a model finds word by word: greedy decoding and beam search.

A translation ends at its first END, which is part of it, or is cut off after `longest` words. Its
score is its log probability, the sum over its words, and is not divided by its length (as in the
code of Snell et al. 2021), so that short translations have an advantage. A translation that is cut
off competes with the score of the words that it has.

Any model with the two methods of `HasDecoder` can be decoded. All pairs of a batch are decoded
together, and decoding stops when all are finished. Beam search stops as soon as the best hypothesis
of every pair has ended: scores only fall, so that no other can overtake it. A beam may prune the
words that greedy decoding finds, so its score is not always at least as high.
"""

from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from saccade.contracts.task import END, START
from saccade.errors import ConfigError

Source = Int[Array, "pair source"]
Mask = Bool[Array, "pair source"]


class HasDecoder(Protocol):
    """A model that translates one word at a time. All arrays have the pairs first."""

    def begin(self, source: Any, source_mask: Any) -> tuple[Any, Any]:
        """What the decoder reads of the source, and its first state."""
        ...

    def step(self, words: Any, state: Any, memory: Any) -> tuple[Any, Any]:
        """Logits of the next words, given the last ones (at first START), and the new state."""
        ...


class Translations(eqx.Module):
    """One translation per pair."""

    words: Int[Array, "pair target"]
    """Ids, END included; END again behind it."""
    mask: Bool[Array, "pair target"]
    """True at words and at the first END."""
    log_probability: Float[Array, " pair"]

    @staticmethod
    def of(words: Int[Array, "pair target"], score: Float[Array, " pair"]) -> "Translations":
        ends = jnp.cumsum(words == END, axis=1)
        return Translations(words, (ends == 0) | ((ends == 1) & (words == END)), score)


def greedy(
    model: HasDecoder, source: Source, source_mask: Mask, longest: int = 100
) -> Translations:
    """The translations whose every word is the most probable one, given those before it."""
    _require_count("longest", longest)
    return _greedy(model, source, source_mask, int(longest))


def beam(
    model: HasDecoder, source: Source, source_mask: Mask, width: int = 5, longest: int = 100
) -> Translations:
    """The best translations that a search finds which keeps `width` hypotheses per pair."""
    _require_count("width", width)
    _require_count("longest", longest)
    return _beam(model, source, source_mask, int(width), int(longest))


def _require_count(name: str, value: Any) -> None:
    if not (isinstance(value, int | np.integer) and value >= 1):
        raise ConfigError(f"{name}: got {value!r}, allowed: a whole number, at least 1")


@eqx.filter_jit
def _greedy(model: Any, source: Source, source_mask: Mask, longest: int) -> Translations:
    memory, state = model.begin(source, source_mask)
    pairs = source.shape[0]

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        place, _, _, ended, _, _ = carry
        return (place < longest) & ~jnp.all(ended)

    def extend(carry: tuple) -> tuple:
        place, last, state, ended, words, score = carry
        logits, state = model.step(last, state, memory)
        found = jax.nn.log_softmax(logits)
        best = jnp.where(ended, END, jnp.argmax(found, axis=-1)).astype(jnp.int32)
        score = score + jnp.where(ended, 0.0, jnp.max(found, axis=-1))
        return place + 1, best, state, ended | (best == END), words.at[:, place].set(best), score

    last = jnp.full(pairs, START, jnp.int32)
    words = jnp.full((pairs, longest), END, jnp.int32)
    carry = (0, last, state, jnp.zeros(pairs, bool), words, jnp.zeros(pairs))
    *_, words, score = jax.lax.while_loop(unfinished, extend, carry)
    return Translations.of(words, score)


@eqx.filter_jit
def _beam(model: Any, source: Source, source_mask: Mask, width: int, longest: int) -> Translations:
    memory, state = model.begin(source, source_mask)
    # A row per hypothesis: those of a pair stand together.
    memory, state = jax.tree.map(lambda leaf: jnp.repeat(leaf, width, axis=0), (memory, state))
    pairs = source.shape[0]

    def unfinished(carry: tuple) -> Bool[Array, ""]:
        place, _, _, ended, _, _ = carry
        return (place < longest) & ~jnp.all(ended[:, 0])

    def extend(carry: tuple) -> tuple:
        place, last, state, ended, words, score = carry
        logits, state = model.step(last.reshape(-1), state, memory)
        found = jax.nn.log_softmax(logits).reshape(pairs, width, -1)
        ids = found.shape[-1]
        # What has ended goes on with END alone, at no cost.
        ending = jnp.where(jnp.arange(ids) == END, 0.0, -jnp.inf)
        found = score[..., None] + jnp.where(ended[..., None], ending, found)
        score, chosen = jax.lax.top_k(found.reshape(pairs, -1), width)
        parent, last = chosen // ids, (chosen % ids).astype(jnp.int32)
        rows = (jnp.arange(pairs)[:, None] * width + parent).reshape(-1)
        state = jax.tree.map(lambda leaf: leaf[rows], state)
        words = jnp.take_along_axis(words, parent[..., None], axis=1).at[..., place].set(last)
        ended = jnp.take_along_axis(ended, parent, axis=1) | (last == END)
        return place + 1, last, state, ended, words, score

    last = jnp.full((pairs, width), START, jnp.int32)
    words = jnp.full((pairs, width, longest), END, jnp.int32)
    # All hypotheses are the same at first, so only one of them counts.
    score = jnp.where(jnp.arange(width) == 0, jnp.zeros((pairs, 1)), -jnp.inf)
    carry = (0, last, state, jnp.zeros((pairs, width), bool), words, score)
    *_, words, score = jax.lax.while_loop(unfinished, extend, carry)
    return Translations.of(words[:, 0], score[:, 0])
