"""Parts of a model by name: dotted paths into its tree, such as `layers.0.attention.query`.

A pattern names a part and everything below it. `*` stands for any name, or for several:
`layers.*.attention` names the attention of every layer, `*.bias` every bias.
"""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import jax
from jaxtyping import PyTree

from saccade.errors import ConfigError
from saccade.train.members import is_inexact

__all__: list[str] = []


def dotted(path: Any) -> str:
    """The path of a leaf as JAX gives it, with dots."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def paths(tree: PyTree) -> list[str]:
    """The paths of all arrays of real numbers in a tree."""
    return [dotted(path) for path, leaf in jax.tree.leaves_with_path(tree) if is_inexact(leaf)]


def named(pattern: str, path: str) -> bool:
    """Whether a pattern names the leaf at a path, or a part that it belongs to."""
    return fnmatchcase(path, pattern) or fnmatchcase(path, f"{pattern}.*")


def selected(tree: PyTree, patterns: Sequence[str], what: str) -> PyTree:
    """A tree of booleans: which leaves the patterns name. `what` is what they are needed for."""
    known = paths(tree)
    for pattern in patterns:
        require_part(pattern, known, what)
    return jax.tree.map_with_path(
        lambda path, _: any(named(pattern, dotted(path)) for pattern in patterns), tree
    )


def require_part(pattern: Any, known: Sequence[str], what: str) -> None:
    """Refuse a pattern that names no array."""
    if not isinstance(pattern, str) or not any(named(pattern, path) for path in known):
        shown = known if len(known) <= 12 else [*known[:12], "..."]
        raise ConfigError(
            f"{what}: got {pattern!r}, allowed: paths of the model's arrays or parts, with * for "
            f"any name: {', '.join(shown) or 'none'}"
        )


def part(tree: PyTree, pattern: str, what: str) -> list[Any]:
    """The arrays that a pattern names."""
    require_part(pattern, paths(tree), what)
    found = jax.tree.leaves_with_path(tree)
    return [leaf for path, leaf in found if is_inexact(leaf) and named(pattern, dotted(path))]
