"""What the engine knows of a training: pure functions of one member.

A recipe compiles to these (`recipe_functions`). The engine has no case for optimisers, batches,
corpora, flows or probes: they are matters of these functions.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

from jaxtyping import Array, Float, PyTree

__all__: list[str] = []

Row = dict[str, Array]
"""What is recorded of one member at one step, by name."""


@dataclasses.dataclass(frozen=True, eq=False)
class Dynamics:
    """The functions of one member, which the engine maps over members and compiles."""

    start: Callable[[Any], PyTree]
    """Of a member: the state at the start. It needs no data, so that shapes are known without."""
    step: Callable[[Any, PyTree, PyTree, Array], tuple[PyTree, Float[Array, ""]]]
    """Of member, state, data and step: the next state, and the loss. Where it is not finite, the
    member has diverged, and the real numbers of its state stay as they were."""
    observe: Callable[[Any, PyTree, PyTree], Row]
    """Of member, state and data: what is recorded along the steps. It has a row `loss`; the engine
    adds `diverged_at`."""
    adjust: Callable[[Any, PyTree, PyTree], PyTree] | None = None
    """Of member, state and data: the state at the start with what depends on the data, such as the
    unit of steps; None if nothing does. A program of its own: in one with the start, XLA was seen
    to wait for ever on two CPU devices."""
    observe_ends: Callable[[Any, PyTree, PyTree], Row] | None = None
    """The same at the first and the last step only; None if there is nothing more."""
    notice: Callable[[PyTree, Row, Array], tuple[PyTree, Row]] | None = None
    """Of state, what was observed and step: what the state remembers of it, such as the best so
    far, and what is recorded of that. Applied at recorded steps."""
    best: Callable[[PyTree], PyTree] = lambda state: state
    """The states whose results are kept at the end, such as those of the best step; of the states
    of all members."""
    result: Callable[[PyTree], PyTree] = lambda state: state
    """What is kept of these states."""
    jumps: bool = False
    """Whether a step leads from one recorded step to the next, as that of a flow does. The engine
    then counts recorded steps."""
    failing: Callable[[Array], Array] = lambda at: at
    """The step, as records have it, at which a member has diverged if the engine's step `at`
    fails."""
