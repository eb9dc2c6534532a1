"""Members of a training, and the weights of another training with which they may start."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import numpy as np

from saccade.core.errors import ConfigError
from saccade.core.members import Members
from saccade.core.sweep import Swept

if TYPE_CHECKING:
    from saccade.core.lab import Training


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


def _whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def sweeps_of(start: "Training | None", known: Mapping[str, Swept]) -> dict[str, Swept]:
    """The sweeps of another training that the new one does not have: all its members start new
    ones.
    """
    if start is None:
        return {}
    loss = start.trajectory["loss"]
    dims = [str(dim) for dim in loss.dims if dim not in ("seed", "step", *known)]
    return {dim: Swept.over(dim, loss[dim].values.tolist()) for dim in dims}


def members_of(
    seeds: Sequence[int],
    sweeps: Mapping[str, Swept] = {},
    start: "Training | None" = None,
    precision: str = "float32",
) -> Members:
    """Every seed with every choice of swept values."""
    grids = (range(len(swept.grid)) for swept in sweeps.values())
    choices = list(itertools.product(*grids, seeds))
    columns = np.asarray(choices, dtype=np.uint32).T
    chosen = {key: columns[place].astype(np.int32) for place, key in enumerate(sweeps)}
    given = None if start is None else _weights(start, seeds, sweeps, choices, precision)
    return Members(columns[-1], chosen, given)  # pyright: ignore[reportArgumentType]


def _weights(
    start: "Training",
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
