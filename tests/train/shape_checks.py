"""The checker behind jaxtyping's import hook: beartype, on the functions whose annotations speak
of arrays.
"""

import inspect
from collections.abc import Callable
from typing import Any, get_args, get_origin

from beartype import BeartypeConf, beartype
from jaxtyping import AbstractArray

FILLED_ON_THE_HOST = (
    "Batch.__init__",
    "Documents.__init__",
    "Members.__init__",
    "SentencePairs.__init__",
    "SparseSum.__init__",
)
"""Annotated for compiled code, but also built from NumPy arrays, which are moved to the devices
later.
"""

_CONFIGURATION = BeartypeConf(is_pep484_tower=True)


def checked(function: Any) -> Any:
    """Check arguments and results of a function of arrays.

    Other functions are left alone: what a user hands to a config is for the config to refuse, in
    its own words.
    """
    hints = inspect.get_annotations(function).values()
    if function.__qualname__ in FILLED_ON_THE_HOST or not any(
        _speaks_of_arrays(hint) for hint in hints
    ):
        return function
    # What a task must have is for the type checker; at run time a task that lacks it is refused.
    function.__annotations__ = {
        name: Any if getattr(hint, "_is_protocol", False) else hint
        for name, hint in inspect.get_annotations(function).items()
    }
    return beartype(conf=_CONFIGURATION)(function)


def _speaks_of_arrays(hint: Any) -> bool:
    if get_origin(hint) is Callable:
        return False  # speaks of another function's arrays
    shaped = isinstance(hint, type) and issubclass(hint, AbstractArray)
    return shaped or any(_speaks_of_arrays(part) for part in get_args(hint))
