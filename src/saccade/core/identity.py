"""Which training is which: the content address under which results are kept.

Two trainings are the same if everything that shapes their numbers is the same: the traced programs
with the content of every constant, the data that enter from the host, seeds, swept values, recorded
steps, precision, device and library versions. Nothing is derived from source files, class names or
paths.
"""

import hashlib
import importlib.metadata
import json
import os
from collections.abc import Mapping
from types import CodeType
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
        "flags": os.environ.get("XLA_FLAGS", ""),
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
    """What a call of a function that is not traced is known by: its own code (not that of what it
    calls), its owner, and its arguments by their content.
    """
    inner = getattr(function, "__func__", function)
    held = [cell.cell_contents for cell in getattr(inner, "__closure__", None) or ()]
    return {
        "function": describe(inner),
        "code": _code(getattr(inner, "__code__", None)),
        "held": describe(_plain([held, getattr(inner, "__defaults__", None)])),
        "owner": describe(_plain(getattr(function, "__self__", None))),
        "arguments": describe(_plain(arguments)),
    }


def _code(code: Any) -> Any:
    """The byte code of a function and of the functions within it."""
    if not isinstance(code, CodeType):
        return repr(code)
    return [code.co_code.hex(), list(code.co_names), [_code(one) for one in code.co_consts]]


def _plain(value: Any) -> Any:
    import xarray as xr

    if isinstance(value, xr.Dataset | xr.DataArray):
        return _plain(value.to_dict(data="array"))
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return value
