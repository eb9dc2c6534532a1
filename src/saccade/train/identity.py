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
import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import PurePath
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from saccade.contracts.content import content
from saccade.errors import ConfigError
from saccade.train.program import compiler_options
from saccade.workers.software import versions

if TYPE_CHECKING:
    from saccade.train.engine import Engine

__all__: list[str] = []

_FORMAT = 4
"""Changes when the engine stores other arrays under the same programs."""
_FLAGS = ("XLA_FLAGS", "NVIDIA_TF32_OVERRIDE")
_CONFIG = ("jax_disable_most_optimizations", "jax_optimization_level")
"""Settings of the compiler that no program shows."""


@cache
def _plugins() -> dict[str, str]:
    """Versions of what JAX runs on accelerators; it loads them once per process."""
    found = importlib.metadata.distributions()
    versions = {one.metadata["Name"]: one.version for one in found if one.metadata["Name"]}
    kinds = re.compile("jax-|nvidia-cu(dnn|blas)|libtpu")
    return {name: version for name, version in versions.items() if kinds.match(name)}


def surroundings(device: str, precision: str) -> dict[str, Any]:
    """What shapes the numbers of every program that runs here."""
    return {
        "format": _FORMAT,
        "versions": versions() | _plugins(),
        "device": device,
        "precision": precision,
        "options": compiler_options(once=False),
        "flags": {name: os.environ.get(name, "") for name in _FLAGS},
        "config": {name: str(jax.config.values.get(name)) for name in _CONFIG},
    }


def address(parts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def training_digest(
    engine: "Engine", steps: int, recorded: np.ndarray, around: Mapping[str, Any], after: Any = None
) -> str | None:
    """The content address of a training; None if a program calls code outside."""
    programs = engine.programs
    if not all(program.is_whole for program in programs.values()):
        return None
    rows = {"probes": programs["advance"].shapes[1]}
    if "snapshot" in programs:
        rows["ends"] = programs["snapshot"].shapes
    names = {which: sorted(shapes) for which, shapes in rows.items()}
    return address(
        {
            **around,
            "programs": {name: program.digest for name, program in programs.items()},
            "members": content(engine.placed),
            "data": engine.data.content,
            "variables": names,
            "steps": steps,
            "recorded": recorded.tolist(),
            **({} if after is None else {"after": content(after)}),
            **({"jumps": True} if engine.dynamics.jumps else {}),
        }
    )


def call_identity(function: Any, arguments: Any) -> dict[str, Any]:
    """What a call of a function that is not traced is known by: its own code and what it holds (not
    the code of the functions that it calls), and its arguments by their content.
    """
    return {"function": _known(function), "arguments": _known(arguments)}


def _known(value: Any, above: tuple[Any, ...] = ()) -> Any:
    """A value as JSON that is the same in every process, and differs if the value differs."""
    import xarray as xr

    if any(value is one for one in above):
        return "itself"  # a function that calls itself holds itself
    inner = partial(_known, above=(*above, value))
    name = _qualified(value if hasattr(value, "__qualname__") else type(value))
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes() | complex() | np.generic() | PurePath():
            return [name, repr(value)]
        case np.ndarray() if value.dtype == object:
            return [name, inner(value.tolist())]
        case np.ndarray() | jax.Array():
            return [name, content(value)]
        case xr.Dataset() | xr.DataArray():
            return [name, inner(value.to_dict(data="array"))]
        case list() | tuple():
            return [inner(item) for item in value]
        case set() | frozenset():
            return [name, *sorted(json.dumps(inner(item)) for item in value)]
        case Mapping():
            return {str(key): inner(item) for key, item in value.items()}
        case MethodType():
            return [inner(value.__func__), _held(value.__self__, inner)]
        case partial():
            return [inner(value.func), inner(value.args), inner(value.keywords)]
        case FunctionType(__wrapped__=wrapped):
            return [name, _code(value.__code__, inner), inner(wrapped)]
        case FunctionType():
            cells = [cell.cell_contents for cell in value.__closure__ or ()]
            held = inner([cells, value.__defaults__, value.__kwdefaults__])
            return [name, _code(value.__code__, inner), held]
        case type() | ModuleType() | BuiltinFunctionType() | np.ufunc():
            return getattr(value, "__name__", name) if isinstance(value, ModuleType) else name
    if dataclasses.is_dataclass(value) or (callable(value) and hasattr(value, "__dict__")):
        return _held(value, inner)
    raise ConfigError(
        f"cached: got a {type(value).__name__}, allowed: numbers, texts, paths, arrays, datasets, "
        "configs, functions, and lists, tuples, sets and dicts of them"
    )


def _held(owner: Any, inner: Callable[[Any], Any]) -> Any:
    """An object by its class, the code that calls it, and its fields."""
    if isinstance(owner, type):
        return inner(owner)
    names = vars(owner)
    if dataclasses.is_dataclass(owner):
        names = [field.name for field in dataclasses.fields(owner)]
    call = type(owner).__call__ if callable(owner) else None
    called = inner(call) if isinstance(call, FunctionType) else None
    return [_qualified(type(owner)), called, {name: inner(getattr(owner, name)) for name in names}]


def _qualified(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}.{thing.__qualname__}"


def _code(code: CodeType, inner: Callable[[Any], Any]) -> Any:
    """The byte code of a function and of the functions within it."""
    constants = [
        _code(one, inner) if isinstance(one, CodeType) else repr(one) if one is ... else inner(one)
        for one in code.co_consts
    ]
    return [code.co_code.hex(), list(code.co_names), constants]
