"""Freezing parts of a model: the leaves of the named parts are not trained."""

import operator
from collections.abc import Iterable
from typing import Literal

import equinox as eqx
import jax
from jaxtyping import PyTree

from saccade.errors import ConfigError

AttentionKind = Literal["learned", "frozen", "uniform"]
LexiconKind = Literal["learned", "frozen"]


def without(trainable: PyTree, parts: Iterable[str]) -> PyTree:
    """The tree of booleans with some parts (dotted paths, such as `head.first`) set to False."""
    for part in parts:
        trainable = eqx.tree_at(operator.attrgetter(part), trainable, replace_fn=_all_false)
    return trainable


def ablated(
    trainable: PyTree, parts: tuple[str, ...], attention: AttentionKind, lexicon: LexiconKind
) -> PyTree:
    """The tree with the parts of the attention, or all others, set to False where frozen."""
    chosen = operator.attrgetter(*parts)
    if lexicon == "frozen":
        trainable = eqx.tree_at(chosen, _all_false(trainable), chosen(trainable))
    return trainable if attention == "learned" else without(trainable, parts)


def require_learned_attention(lexicon: LexiconKind, attention: AttentionKind) -> None:
    """Refuse a frozen lexicon without learned attention: nothing would be trained."""
    if lexicon == "frozen" and attention != "learned":
        got = f"'frozen' with attention {attention!r}"
        raise ConfigError(f"lexicon: got {got}, allowed: with learned attention")


def _all_false(branch: PyTree) -> PyTree:
    return jax.tree.map(lambda _: False, branch)
