"""A fault: a number of a record, its bound with the reason for it, and what to try."""

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import xarray as xr

PLACES = ("layer", "head", "part")
"""Dims of a record that name a place in the model."""
KINDS = {"query": "quer|(^|[._])q($|_)", "key": "key|(^|[._])k($|_)", "value": "val|(^|[._])v($|_)"}
"""What a part is, by its name: of a watched run, or a path into a model."""


@dataclasses.dataclass(frozen=True)
class Signs:
    """A fault's number at every step and place, and where it is beyond the bound."""

    value: xr.DataArray
    present: xr.DataArray


class AbstractFault(ABC):
    """One entry of the catalogue. Faults are looked for in the order of causes: one that is found
    makes those behind it its consequences.
    """

    title: ClassVar[str]
    quantity: ClassVar[str]
    """What is measured, in words."""
    bound: ClassVar[str]
    """Where the fault begins, in words."""
    why: ClassVar[str]
    """Where the bound comes from."""
    cause: ClassVar[str]
    remedy: ClassVar[str]
    needs: ClassVar[tuple[str, ...]]
    """Variables of the record."""
    how_to_get: ClassVar[str] = ""
    """How a record comes to have them, if it usually has not."""
    worst: ClassVar[Literal["largest", "smallest"]] = "largest"
    """Which number is farthest beyond the bound."""
    is_information: ClassVar[bool] = False
    """Whether it is worth knowing, and no fault."""
    of_all_seeds: ClassVar[bool] = False
    """Whether it shows in all seeds together, and not in one."""
    in_pytorch: ClassVar[str] = ""
    """A line that tries the remedy in a PyTorch run."""
    in_saccade: ClassVar[str] = ""
    """The same with optimisers and models of this package."""

    def reason_not_to_check(self, run: xr.Dataset, about: Mapping[str, Any]) -> str:
        """Why this run cannot be checked; empty if it can."""
        missing = [one for one in self.needs if one not in run or not run[one].notnull().any()]
        if not missing:
            return ""
        watched = "rungs" in about
        hint = f": {self.how_to_get}" if self.how_to_get and watched else ""
        return f"no {', '.join(missing)} in the record{hint}"

    @abstractmethod
    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        """Of one arm's trajectory, with the dims seed and step; `about` is the record's config."""


def by_layer(values: xr.DataArray, layers: int | None = None) -> xr.DataArray:
    """Numbers of parts with a dim `layer`, also where parts are paths into a model; as they are
    where paths name no layers, or others than so many.
    """
    names = [_path(one) for one in values["part"].values]
    above = list(dict.fromkeys(name.rpartition(".")[0] for name in names))
    if "layer" in values.dims or len(above) < 2 or layers not in (None, len(above)):
        return values
    found: list[xr.DataArray] = []
    for layer in above:
        places = [at for at, name in enumerate(names) if name.rpartition(".")[0] == layer]
        last = [names[at].rpartition(".")[2] for at in places]
        found.append(values.isel(part=places).assign_coords(part=last))
    return xr.concat(found, "layer", join="outer")


def _path(part: Any) -> str:
    """The path of a matrix, without the names of its arrays."""
    return re.sub(r"\.(weights?|bias)$", "", str(part))


def of_kind(values: xr.DataArray, *kinds: str) -> xr.DataArray:
    """The numbers of parts that are queries, keys or values, whatever the record calls them."""
    last = [_path(one).rpartition(".")[2] for one in values["part"].values]
    chosen = [any(re.search(KINDS[kind], name) for kind in kinds) for name in last]
    return values.isel(part=chosen)


def learned_share(run: xr.Dataset) -> xr.DataArray:
    """How far the loss has fallen: 0 at the first step, 1 at a loss of 0."""
    loss = run["loss"]
    first = loss.isel(step=0, drop=True)
    return 1 - loss / first.where(first > 0)
