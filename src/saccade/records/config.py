"""Configs as plain JSON, for records and identities, and back again as typed dataclasses."""

import dataclasses
import hashlib
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path, PurePath
from typing import Any, TypeVar

import numpy as np

from saccade.errors import ConfigError
from saccade.settings import Swept, is_of_jax
from saccade.settings import replaced as replaced

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
    if isinstance(config, PurePath):
        return str(config)
    if isinstance(config, np.ndarray) or is_of_jax(config):
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

    Fields that are not in the plain config have their defaults, and so have functions. A nested
    config that is missing as a whole is looked for among the fields around it: records of saccade
    0.1 had flat configs.
    """
    return kind(**_fields(kind, plain))


def _fields(kind: type, plain: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a config that its plain form says."""
    hints = typing.get_type_hints(kind)
    values: dict[str, Any] = {}
    for field in dataclasses.fields(kind):  # pyright: ignore[reportArgumentType]
        hint = hints[field.name]
        if not field.init:
            continue
        if field.name in plain:
            value = _value(hint, plain[field.name], f"{kind.__name__}.{field.name}")
            values |= {} if value is _FUNCTION else {field.name: value}
        elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
            values[field.name] = _nested(field, hint, plain)
    return values


_FUNCTION = object()
"""Stands for a function, which cannot be rebuilt from its name."""


def _nested(field: dataclasses.Field[Any], hint: type, plain: Mapping[str, Any]) -> Any:
    """A nested config from the fields around it: its default, with what they say."""
    if field.default is not dataclasses.MISSING:
        default = field.default
    elif field.default_factory is not dataclasses.MISSING:
        default = field.default_factory()
    else:
        return typed(hint, plain)
    return dataclasses.replace(default, **_fields(type(default), plain))


def _with_subclasses(kind: type) -> Iterator[type]:
    yield kind
    for inner in kind.__subclasses__():
        yield from _with_subclasses(inner)


def _value(hint: Any, plain: Any, name: str) -> Any:
    """A plain value as its type hint wants it."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(plain, Mapping) and "sweep" in plain:
        return Swept(plain["sweep"], tuple(plain["grid"]), tuple(plain["values"]))
    if origin in (typing.Union, types.UnionType):
        return _member(inner, plain, name)
    if origin is typing.Literal or hint in (Any, None, type(None)):
        return plain
    if origin in (tuple, list) or hint in (tuple, list):
        alike = not inner or inner[-1] is ... or origin is list
        kinds = (inner[:1] or (Any,)) * len(plain) if alike else inner
        values = [_value(*one, name) for one in zip(kinds, plain, strict=True)]
        return values if list in (origin, hint) else tuple(values)
    if isinstance(plain, Mapping) and (origin is dict or hint is dict):
        return {key: _value(inner[1] if inner else Any, one, name) for key, one in plain.items()}
    if isinstance(plain, Mapping) and isinstance(hint, type):
        kinds = {_name(one): one for one in _with_subclasses(hint)}
        found = kinds.get(plain.get("class", ""), hint)
        if dataclasses.is_dataclass(found):
            return typed(found, plain)
    if hint in (int, float, bool, str, Path) and isinstance(plain, bool | int | float | str):
        return hint(plain)  # pyright: ignore[reportArgumentType]
    if origin is Callable or hint is Callable:
        return None if plain is None else _FUNCTION
    raise ConfigError(f"{name}: cannot be read back from a record, got {plain!r} for {hint}")


def _member(kinds: Sequence[Any], plain: Any, name: str) -> Any:
    """The value as the member of a union that fits it best."""
    named = plain.get("class") if isinstance(plain, Mapping) else type(plain)
    first = [one for one in kinds if isinstance(one, type) and named in (one, _name(one))]
    for kind in (*first, *kinds):
        try:
            return _value(kind, plain, name) if plain is not None else None
        except (ConfigError, TypeError, ValueError):
            continue
    raise ConfigError(f"{name}: cannot be read back from a record, got {plain!r}")
