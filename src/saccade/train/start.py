"""Members of a training, and the weights of another training with which they may start."""

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from saccade.errors import ConfigError
from saccade.settings import Swept
from saccade.train.members import Members

if TYPE_CHECKING:
    import xarray as xr

    from saccade.train.training import TrainedArm


@dataclasses.dataclass(frozen=True)
class Seeds:
    """Seeds of the members: how many, and from which number on. Start, data or order may have
    seeds of their own.

    `Seeds(32, first=1000)`: the members 1000 to 1031. `Seeds(8, start=0)`: eight members with one
    start, each with its own data and order.
    """

    of: int | Sequence[int] = 5
    """A count, or a list of seeds: the axis `seed` of the record."""
    first: int = 0
    """Number of the first seed, of a count."""
    start: int | Sequence[int] | None = None
    """Seed of the initial weights: one for all members, or one per seed; None: the member's."""
    data: int | Sequence[int] | None = None
    """Seed of generated examples and of teachers."""
    order: int | Sequence[int] | None = None
    """Seed of the order of examples, of fresh examples and of dropout."""

    def __post_init__(self):
        if not _is_seed(self.first) or (self.first and not _whole(self.of)):
            need = "a whole number from 0; with a list of seeds, which has its own first one, 0"
            raise ConfigError(f"first: got {self.first!r}, allowed: {need}")
        count = len(self.numbers)
        for name in APART:
            given = getattr(self, name)
            if given is None or _is_seed(given):
                continue
            listed = list(given) if isinstance(given, Iterable) else []
            if len(listed) != count or not all(map(_is_seed, listed)):
                raise ConfigError(
                    f"seeds: got {name} {given!r}, allowed: a whole number from 0, or one for each "
                    f"of the {count} seeds"
                )

    @property
    def numbers(self) -> tuple[int, ...]:
        """The seeds, one by one."""
        if not _whole(self.of):
            return chosen_seeds(self.of)
        return chosen_seeds([self.first + number for number in chosen_seeds(self.of)])

    def apart(self) -> dict[str, tuple[int, ...]]:
        """The seeds that differ from the members', one per seed."""
        count, given = len(self.numbers), {name: getattr(self, name) for name in APART}
        return {
            name: (int(value),) * count if _is_seed(value) else tuple(map(int, value))
            for name, value in given.items()
            if value is not None
        }


APART = ("start", "data", "order")


def seed_of(trajectory: "xr.Dataset", what: str) -> "xr.DataArray":
    """The seeds from which start, data or order of the members of a record were drawn."""
    name = f"{what}_seed"
    return trajectory[name if name in trajectory.coords else "seed"]


def chosen_seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    """The seeds that a count, or a list of seeds, stands for."""
    given: Any = range(seeds) if _whole(seeds) else seeds  # pyright: ignore[reportArgumentType]
    whole = isinstance(given, Iterable) and all(map(_whole, given := list(given)))
    chosen = tuple(int(seed) for seed in given) if whole else ()
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0 or max(chosen) >= 2**32:
        raise ConfigError(
            f"seeds: got {seeds!r}, allowed: a count of at least 1, or distinct whole numbers "
            "from 0"
        )
    return chosen


def _is_seed(number: Any) -> bool:
    return _whole(number) and 0 <= number < 2**32


def _whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def sweeps_of(start: "TrainedArm | None", known: Mapping[str, Swept]) -> dict[str, Swept]:
    """The sweeps of another training that the new one does not have: all its members start new
    ones.
    """
    if start is None:
        return {}
    loss = start.trajectory["loss"]
    dims = [str(dim) for dim in loss.dims if dim not in ("seed", "step", *known)]
    return {dim: Swept.over(dim, loss[dim].values.tolist()) for dim in dims}


def require_same_members(
    after: "TrainedArm",
    sweeps: Mapping[str, Swept],
    seeds: Sequence[int],
    apart: Mapping[str, Sequence[int]],
    start: "TrainedArm | None",
) -> dict[str, Swept]:
    """Refuse to go on with other members; the sweeps in the order of the other training."""
    if start is not None:
        raise ConfigError("start: got a training beside `after`, allowed: one of the two")
    loss = after.trajectory["loss"]
    had = {str(dim): loss[dim].values.tolist() for dim in loss.dims if dim != "step"}
    wanted = {name: list(swept.grid) for name, swept in sweeps.items()} | {"seed": list(seeds)}
    for name in APART:
        had |= {f"{name}_seed": list(map(int, seed_of(after.trajectory, name).values))}
        wanted |= {f"{name}_seed": list(apart.get(name, seeds))}
    if had != wanted:
        raise ConfigError(
            f"after: got members {wanted}, allowed: those of the other training, {had}"
        )
    return {name: sweeps[name] for name in had if name in sweeps}


def members_of(
    seeds: Sequence[int],
    sweeps: Mapping[str, Swept] = {},
    start: "TrainedArm | None" = None,
    precision: str = "float32",
    apart: Mapping[str, Sequence[int]] = {},
) -> Members:
    """Every seed with every choice of swept values."""
    grids = (range(len(swept.grid)) for swept in sweeps.values())
    choices = list(itertools.product(*grids, seeds))
    columns = np.asarray(choices, dtype=np.uint32).T
    chosen = {key: columns[place].astype(np.int32) for place, key in enumerate(sweeps)}
    given = None if start is None else _weights(start, seeds, sweeps, choices, precision)
    repeats = len(choices) // len(seeds)
    varied = {name: np.tile(np.asarray(own, np.uint32), repeats) for name, own in apart.items()}
    return Members(columns[-1], chosen, given, apart=varied)  # pyright: ignore[reportArgumentType]


def _weights(
    start: "TrainedArm",
    seeds: Sequence[int],
    sweeps: Mapping[str, Swept],
    choices: Sequence[tuple[int, ...]],
    precision: str,
) -> list[Any]:
    """For every new member the arrays of the trained model that has its seed and its values of the
    other training's sweeps.
    """
    loss = start.trajectory["loss"]
    had = {str(dim): loss[dim].values.tolist() for dim in loss.dims if dim != "step"}
    for name, known in had.items():
        wanted = list(seeds) if name == "seed" else list(sweeps[name].grid)
        if not set(wanted) <= set(known):
            got, allowed = (", ".join(f"{one:g}" for one in numbers) for numbers in (wanted, known))
            raise ConfigError(
                f"start: got {name} {got}, allowed: those that the other training had, {allowed}"
            )
    sizes = [len(known) for known in had.values()]
    rows = []
    for choice in choices:
        values = {
            name: swept.grid[at]
            for (name, swept), at in zip(sweeps.items(), choice[:-1], strict=True)
        }
        values["seed"] = choice[-1]
        places = [known.index(values[name]) for name, known in had.items()]
        rows.append(int(np.ravel_multi_index(places, sizes)))
    arrays = jax.tree.leaves(eqx.filter(start.models, eqx.is_inexact_array))
    # The other training may have had another precision: members keep the new one's.
    return [
        leaf.astype(precision) if leaf.dtype == start.precision else leaf
        for leaf in (np.asarray(array)[rows] for array in arrays)
    ]
