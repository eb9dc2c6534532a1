"""Which training is which: the content address under which results are kept.

Two trainings are the same if everything that shapes their numbers is the same: the traced programs
with the content of every constant, the data that enter from the host, seeds, swept values, recorded
steps, precision, device and library versions. Nothing is derived from source files, class names or
paths.
"""

import dataclasses
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from saccade.core.config import describe
from saccade.core.program import compiler_options
from saccade.version import __version__

if TYPE_CHECKING:
    from saccade.core.engine import Engine

_FORMAT = 2
"""Changes when the engine stores other arrays under the same programs."""
_FLAGS = ("XLA_FLAGS", "NVIDIA_TF32_OVERRIDE")
_CONFIG = ("jax_disable_most_optimizations", "jax_optimization_level")
"""Settings of the compiler that no program shows."""


def versions() -> dict[str, str]:
    """Versions that can change a number."""
    names = ("jax", "jaxlib", "equinox", "optax", "diffrax", "numpy")
    return {"saccade": __version__} | {name: importlib.metadata.version(name) for name in names}


def content(tree: Any) -> str:
    """Hash of all arrays of a tree, with their places, shapes and types."""
    digest = hashlib.sha256()
    leaves, structure = jax.tree.flatten(tree)
    digest.update(str(structure).encode() if not leaves else b"")
    for path, leaf in jax.tree.leaves_with_path(tree):
        array = np.asarray(leaf)
        digest.update(f"{jax.tree_util.keystr(path)} {array.shape} {array.dtype}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def surroundings(device: str, precision: str) -> dict[str, Any]:
    """What shapes the numbers of every program that runs here."""
    return {
        "format": _FORMAT,
        "versions": versions(),
        "device": device,
        "precision": precision,
        "options": compiler_options(once=False),
        "flags": {name: os.environ.get(name, "") for name in _FLAGS},
        "config": {name: str(getattr(jax.config, name, None)) for name in _CONFIG},
    }


def address(parts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def training_digest(
    engine: "Engine", steps: int, recorded: np.ndarray, around: Mapping[str, Any]
) -> str | None:
    """The content address of a training; None if it has none, because a program calls Python."""
    programs = engine.programs
    if any(program.calls_python for program in programs.values()):
        return None
    names = {
        which: sorted(name for probe in probes for name in probe.variables)
        for which, probes in (("probes", engine.record.probes), ("ends", engine.record.ends))
    }
    host = {"members": engine.placed, "data": engine.data if engine.prepares else None}
    return address(
        {
            **around,
            "programs": {name: program.digest for name, program in programs.items()},
            "host": content(host),
            "variables": names,
            "steps": steps,
            "recorded": recorded.tolist(),
        }
    )


def call_identity(function: Any, arguments: Any) -> dict[str, Any]:
    """What a call of a function that is not traced is known by: its own code and what it holds (not
    the code of the functions that it calls), and its arguments by their content.
    """
    return {"function": describe(_plain(function)), "arguments": describe(_plain(arguments))}


def _plain(value: Any, above: tuple[Any, ...] = ()) -> Any:
    """A value for `describe`, with functions by their code, closure and defaults."""
    import xarray as xr

    if any(value is one for one in above):
        return "itself"  # a function that calls itself holds itself
    inner = partial(_plain, above=(*above, value))
    if isinstance(value, xr.Dataset | xr.DataArray):
        return inner(value.to_dict(data="array"))
    if isinstance(value, list | tuple):
        return [inner(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): inner(item) for key, item in value.items()}
    if isinstance(value, MethodType):
        return [inner(value.__func__), inner(value.__self__)]
    if isinstance(value, partial):
        return [inner(value.func), inner(value.args), inner(value.keywords)]
    if isinstance(value, FunctionType):
        held = [cell.cell_contents for cell in value.__closure__ or ()]
        held = inner([held, value.__defaults__, value.__kwdefaults__])
        return [f"{value.__module__}.{value.__qualname__}", _code(value.__code__), held]
    if isinstance(value, type) or not hasattr(value, "__dict__"):
        return value
    if not dataclasses.is_dataclass(value) and not callable(value):
        return value
    own = inner(type(value).__call__) if callable(value) else None
    return [f"{type(value).__module__}.{type(value).__qualname__}", own, inner(vars(value))]


def _code(code: Any) -> Any:
    """The byte code of a function and of the functions within it."""
    if not isinstance(code, CodeType):
        return repr(code)
    return [code.co_code.hex(), list(code.co_names), [_code(one) for one in code.co_consts]]
