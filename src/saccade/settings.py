"""Values that vary over an ensemble, and checks of config fields.

A `Swept` may take the place of any number of a config that no shape depends on (such fields are
typed `float` or `int`). It travels through the study into the configs of task, model and optimiser;
`Lab.train` finds it there and makes one member for every value. Arithmetic with numbers gives
another `Swept` of the same name, so that `variance ** 0.5` can be swept by the variance.
"""

import copy
import dataclasses
import itertools
import math
import operator
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

import numpy as np

from saccade.errors import ConfigError

if TYPE_CHECKING:
    import xarray as xr

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Swept:
    """The values that one named field takes over an ensemble."""

    name: str
    """Name of the swept field: the dim of the record."""
    grid: tuple[float, ...]
    """The values of that field: the coordinate of the record."""
    values: tuple[float, ...]
    """What this config field gets for each of them (equal to `grid` before any arithmetic)."""

    @staticmethod
    def over(name: str, grid: Iterable[float]) -> "Swept":
        try:
            listed = list(grid)
            kind = int if all(isinstance(one, int | np.integer) for one in listed) else float
            values = tuple(kind(value) for value in listed)
        except (TypeError, ValueError):
            raise ConfigError(f"sweep {name}: got {grid!r}, allowed: a list of numbers") from None
        if not values:
            raise ConfigError(f"sweep {name}: got no values, allowed: at least one number")
        if len(set(values)) < len(values):
            raise ConfigError(f"sweep {name}: got {_listed(values)}, allowed: every value once")
        if not all(math.isfinite(value) for value in values):
            raise ConfigError(f"sweep {name}: got {_listed(values)}, allowed: finite numbers")
        return Swept(name, values, values)

    def of_kind(self, kind: Any) -> "Swept":
        """With values for a field of this type: whole numbers for a count."""
        if kind in (float, "float"):
            grid, values = (tuple(map(float, of)) for of in (self.grid, self.values))
            return Swept(self.name, grid, values)
        if kind in (int, "int"):
            if any(value != int(value) for value in self.values):
                got = _listed(self.values)
                raise ConfigError(f"sweep {self.name}: got {got}, allowed: whole numbers")
            grid = tuple(int(one) if one == int(one) else one for one in self.grid)
            return Swept(self.name, grid, tuple(int(value) for value in self.values))
        return self

    def _map(self, function: Callable[[float], float]) -> "Swept":
        return Swept(self.name, self.grid, tuple(function(value) for value in self.values))

    def _with(self, other: Any, function: Callable[[float, float], float]) -> "Swept":
        if isinstance(other, Swept):
            raise ConfigError(
                f"sweep {self.name}: combined with the sweep {other.name}, allowed: arithmetic of "
                "one sweep with numbers; compute one of the two within the task or model"
            )
        return self._map(lambda value: function(value, other))

    def __mul__(self, other: float) -> "Swept":
        return self._with(other, operator.mul)

    __rmul__ = __mul__

    def __add__(self, other: float) -> "Swept":
        return self._with(other, operator.add)

    __radd__ = __add__

    def __sub__(self, other: float) -> "Swept":
        return self._with(other, operator.sub)

    def __rsub__(self, other: float) -> "Swept":
        return self._with(other, lambda value, other: other - value)

    def __truediv__(self, other: float) -> "Swept":
        return self._with(other, operator.truediv)

    def __rtruediv__(self, other: float) -> "Swept":
        return self._with(other, lambda value, other: other / value)

    def __pow__(self, other: float) -> "Swept":
        return self._with(other, operator.pow)

    def __rpow__(self, other: float) -> "Swept":
        return self._with(other, lambda value, other: other**value)

    def __neg__(self) -> "Swept":
        return self._map(operator.neg)

    def _as_number(self, *_: Any) -> Any:
        raise ConfigError(
            f"sweep {self.name}: used as one number, but it stands for {_listed(self.values)}, "
            "allowed: + - * / ** with numbers; it cannot be swept here, unless the code loops over "
            "its `values`"
        )

    __array_ufunc__ = None
    __array__ = _as_number
    __float__ = __int__ = __index__ = __bool__ = __abs__ = _as_number
    __lt__ = __le__ = __gt__ = __ge__ = _as_number


def is_of_jax(value: Any) -> bool:
    """Whether a value is an array of JAX, traced or not, without importing JAX."""
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(value, jax.Array)


def require(owner: Any, field: str, allowed: str, test: Callable[[Any], bool]) -> None:
    """Check one config field at construction: a plain value, or every value of a `Swept`."""
    value = getattr(owner, field)
    for single in value.values if isinstance(value, Swept) else (value,):
        if is_of_jax(single):
            continue  # a traced value of a sweep, checked when the sweep was made
        try:
            fine = test(single)
        except TypeError:
            fine = False  # not even of a kind that can be compared
        if not fine:
            raise ConfigError(f"{field}: got {single!r}, allowed: {allowed}")


def require_positive(owner: Any, *fields: str) -> None:
    for field in fields:
        require(owner, field, "a finite number above 0", lambda value: 0 < value < math.inf)


def require_finite(owner: Any, *fields: str, least: float = 0) -> None:
    allowed = f"a finite number, at least {least}"
    for field in fields:
        require(owner, field, allowed, lambda value: least <= value < math.inf)


def require_choices(owner: Any) -> None:
    """Check every field whose type is a `Literal`."""
    for field in dataclasses.fields(owner):
        if get_origin(field.type) is Literal:
            known = get_args(field.type)
            require(owner, field.name, ", ".join(known), known.__contains__)


def require_single(owner: Any, reason: str, *fields: str) -> None:
    """Refuse a sweep of a field that makes a sweep of its own, or several arms."""
    for field in fields:
        if isinstance(getattr(owner, field), Swept):
            raise ConfigError(f"sweep {field}: cannot be swept, {reason}; give one number")


def require_count(
    owner: Any, *fields: str, least: int = 1, most: int | None = None, allowed: str = ""
) -> None:
    def counts(value: Any) -> bool:
        whole = isinstance(value, int | np.integer)
        return whole and bool(value >= least) and (most is None or bool(value <= most))

    for field in fields:
        require(owner, field, allowed or f"a whole number, at least {least}", counts)


def swept_in(*configs: Any) -> dict[str, Swept]:
    """The sweeps within some configs, by name, in order of appearance."""
    found: dict[str, Swept] = {}
    for config in configs:
        if isinstance(config, Swept):
            _add(found, {config.name: config})
        elif dataclasses.is_dataclass(config) and not isinstance(config, type):
            parts = [getattr(config, field.name) for field in dataclasses.fields(config)]
            _add(found, swept_in(*parts))
        elif isinstance(config, tuple):
            _add(found, swept_in(*config))
    return found


def _add(found: dict[str, Swept], more: Mapping[str, Swept]) -> None:
    for name, swept in more.items():
        if found.setdefault(name, swept).grid != swept.grid:
            raise ConfigError(f"sweep {name}: got two different grids, allowed: one grid per name")


def map_swept(config: T, function: Callable[[Swept], Any]) -> T:
    """A copy of the config with every `Swept` replaced; construction checks are not repeated (they
    ran on every value). What a property of the copy keeps while tracing stays in the copy.
    """
    if isinstance(config, Swept):
        return function(config)
    if type(config) is tuple:
        return tuple(map_swept(part, function) for part in config)  # pyright: ignore[reportReturnType]
    if not dataclasses.is_dataclass(config) or isinstance(config, type):
        return config
    copied = object.__new__(type(config)) if swept_in(config) else copy.copy(config)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        value = value.of_kind(field.type) if isinstance(value, Swept) else value
        object.__setattr__(copied, field.name, map_swept(value, function))
    return copied


def over_sweeps(
    function: Callable[..., Any], *configs: Any, dims: Sequence[str] = ()
) -> "xr.DataArray":
    """The results of a function of configs for every value of every sweep in them; `dims` name
    the dims of one result.
    """
    import xarray as xr

    sweeps = swept_in(*configs)
    rows = []
    for place in itertools.product(*(range(len(swept.grid)) for swept in sweeps.values())):
        chosen = dict(zip(sweeps, place, strict=True))
        single = [
            map_swept(config, lambda swept, chosen=chosen: swept.values[chosen[swept.name]])
            for config in configs
        ]
        rows.append(np.asarray(function(*single), float))
    values = np.stack(rows).reshape(
        (*(len(swept.grid) for swept in sweeps.values()), *rows[0].shape)
    )
    return xr.DataArray(
        values,
        dims=(*sweeps, *dims),
        coords={name: list(swept.grid) for name, swept in sweeps.items()},
    )


def with_sweep(config: T, path: str, values: Iterable[float], name: str | None = None) -> T:
    """The config with the number at a dotted path swept, under that path or another name."""
    found = path_of(path, sweepable(config))
    return replaced(
        config, found, Swept.over(name or path, values).of_kind(_type_of(config, found))
    )


def with_cells(config: T, name: str, values: Mapping[str, Sequence[float]]) -> T:
    """The config with several numbers swept together, under one name: cell 0 has the first value of
    each, and so on. They are given by their dotted paths, and are no counts.
    """
    (count,) = {len(one) for one in values.values()}
    grid = tuple(map(float, range(count)))
    for path, several in values.items():
        if _type_of(config, path) not in (float, "float"):
            raise ConfigError(f"{path}: a whole number, allowed: a setting of type NUMBER")
        config = replaced(config, path, Swept(name, grid, tuple(map(float, several))))
    return config


def _type_of(config: Any, path: str) -> Any:
    """The type of the field at a dotted path."""
    *above, last = path.split(".")
    for part in above:
        config = getattr(config, part)
    return {field.name: field.type for field in dataclasses.fields(config)}[last]


def replaced(config: T, path: str, value: Any) -> T:
    """The config with the field at a dotted path replaced."""
    head, _, rest = path.partition(".")
    inner = replaced(getattr(config, head), rest, value) if rest else value
    return dataclasses.replace(config, **{head: inner})  # pyright: ignore[reportArgumentType]


def path_of(name: str, paths: Sequence[str]) -> str:
    """The one dotted path that a name stands for: the path itself, or its last part."""
    found = [path for path in paths if path == name or path.rpartition(".")[2] == name]
    if name in found:
        return name
    if len(found) > 1:
        raise ConfigError(f"sweep {name}: stands for {', '.join(found)}; give the whole path")
    if not found:
        raise ConfigError(f"sweep {name}: no such number, allowed: {', '.join(paths) or 'none'}")
    return found[0]


def sweepable(config: Any) -> list[str]:
    """Dotted paths of the numbers of a config."""
    paths: list[str] = []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, float | int | Swept) and not isinstance(value, bool):
            paths.append(field.name)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            paths += [f"{field.name}.{inner}" for inner in sweepable(value)]
    return paths


def _listed(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)
