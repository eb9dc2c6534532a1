"""The checker behind jaxtyping's import hook: beartype, told what a float of a config may be."""

from typing import Any

from beartype import BeartypeConf, FrozenDict, beartype

# Imported before the hook is installed: the checker cannot check the module that it needs itself.
from saccade.core.sweep import Swept

_CONFIGURATION = BeartypeConf(hint_overrides=FrozenDict({float: float | int | Swept}))

FILLED_ON_THE_HOST = ("Batch.__init__", "Members.__init__", "SparseSum.__init__")
"""Annotated for compiled code, but built from NumPy arrays, which are moved to the devices later."""


def checked(function: Any) -> Any:
    """Check arguments and results; a float may be whole, and may be swept (see `saccade.core.sweep`)."""
    if function.__qualname__ in FILLED_ON_THE_HOST:
        return function
    return beartype(conf=_CONFIGURATION)(function)
