"""Configs as plain JSON, for records and identities, and back again as typed dataclasses."""

import dataclasses
import hashlib
import types
import typing
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import jax
import numpy as np

from saccade.core.sweep import Swept
from saccade.core.sweep import replaced as replaced

ConfigT = TypeVar("ConfigT")


def describe(config: Any) -> Any:
    """A config as plain JSON, class names included; arrays by the hash of their content.

    It says what a run was, to a reader and to `typed`. It is no identity: two functions of one
    name look alike here, and the cache does not rely on it.
    """
    if isinstance(config, Swept):
        return {"sweep": config.name, "grid": list(config.grid), "values": list(config.values)}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        names = (field.name for field in dataclasses.fields(config))
        return {"class": _name(type(config))} | {n: describe(getattr(config, n)) for n in names}
    if isinstance(config, list | tuple):
        return [describe(item) for item in config]
    if isinstance(config, Mapping):
        return {str(key): describe(value) for key, value in config.items()}
    if config is None or isinstance(config, bool | int | float | str):
        return config
    if isinstance(config, np.generic):
        return config.item()
    if isinstance(config, np.ndarray | jax.Array):
        array = np.asarray(config)
        if array.dtype == object:
            return describe(array.tolist())
        content = hashlib.sha256(array.tobytes()).hexdigest()
        return {"array": content, "shape": list(array.shape), "dtype": str(array.dtype)}
    if isinstance(config, partial):
        given = {"arguments": describe(config.args), "keywords": describe(config.keywords)}
        return {"partial": describe(config.func)} | given
    if isinstance(config, type) or callable(config):
        return _name(config if hasattr(config, "__qualname__") else type(config))
    inner = describe(vars(config)) if hasattr(config, "__dict__") else {"repr": repr(config)}
    return {"class": _name(type(config))} | inner


def _name(thing: Any) -> str:
    return f"{getattr(thing, '__module__', '')}.{thing.__qualname__}"


def typed(kind: type[ConfigT], plain: Mapping[str, Any]) -> ConfigT:
    """The config of a kind that `describe` made plain.

    Fields that are not in the plain config have their defaults. A nested config that is missing as
    a whole is looked for among the fields around it: records of saccade 0.1 had flat configs.
    """
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        hint = hints[field.name]
        if not field.init:
            continue
        if field.name in plain:
            value = _value(hint, plain[field.name])
            if value is not _UNKNOWN:
                values[field.name] = value
        elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
            nested = typed(_default(kind, field, hint), plain)
            values[field.name] = nested
    return kind(**values)


_UNKNOWN = object()


def _default(kind: type, field: dataclasses.Field[Any], hint: type) -> Any:
    """The class of a nested config: that of the default, which may be a subclass of the hint."""
    if field.default is not dataclasses.MISSING:
        return type(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return type(field.default_factory())
    return hint


def _with_subclasses(kind: type) -> Iterator[type]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _with_subclasses(inner)


def _value(hint: Any, plain: Any) -> Any:
    """A plain value as its hint wants it; `_UNKNOWN` for what cannot be rebuilt (functions)."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(plain, Mapping) and "sweep" in plain:
        return Swept(plain["sweep"], tuple(plain["grid"]), tuple(plain["values"]))
    if origin in (typing.Union, types.UnionType):
        if plain is None:
            return None
        kinds = [one for one in inner if one is not type(None)]
        by_name = {_name(one): one for one in kinds if isinstance(one, type)}
        named = plain.get("class") if isinstance(plain, Mapping) else None
        return _value(by_name.get(named or "", kinds[0]), plain)
    if origin is tuple:
        item = inner[0] if inner else Any
        return tuple(_value(item, one) for one in plain)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        if not isinstance(plain, Mapping):
            return _UNKNOWN
        kinds = {_name(one): one for one in _with_subclasses(hint)}
        return typed(kinds.get(plain.get("class", ""), hint), plain)
    if hint in (int, float, bool, str) and not isinstance(plain, Mapping):
        return hint(plain)
    if origin is typing.Literal or hint is Any or isinstance(plain, bool | int | float | str):
        return plain if not callable(hint) or origin is typing.Literal else _UNKNOWN
    return _UNKNOWN
