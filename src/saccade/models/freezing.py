"""Freezing parts of a model: the leaves of the named parts are not trained."""

import operator
from collections.abc import Iterable

import equinox as eqx
import jax
from jaxtyping import PyTree


def without(trainable: PyTree, parts: Iterable[str]) -> PyTree:
    """The tree of booleans with some parts (dotted paths, such as `head.first`) set to False."""
    for part in parts:
        trainable = eqx.tree_at(operator.attrgetter(part), trainable, replace_fn=_all_false)
    return trainable


def _all_false(branch: PyTree) -> PyTree:
    return jax.tree.map(lambda _: False, branch)
