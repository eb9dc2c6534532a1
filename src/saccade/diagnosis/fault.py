"""A fault: a number of a record, its bound with the reason for it, what to try, and a generated run
that has it.
"""

import dataclasses
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import xarray as xr

from saccade.diagnosis.setup import Setup

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
    severities: ClassVar[tuple[float, ...]] = ()
    """Values of what makes the generated runs faulty, from mild to strong; the last is the fault at
    full severity."""

    def reason_not_to_check(self, run: xr.Dataset, about: Mapping[str, Any]) -> str:
        """Why this run cannot be checked; empty if it can."""
        missing = [name for name in self.needs if name not in run]
        if not missing:
            return ""
        watched = "rungs" in about
        hint = f": {self.how_to_get}" if self.how_to_get and watched else ""
        return f"no {', '.join(missing)} in the record{hint}"

    @abstractmethod
    def signs(self, run: xr.Dataset, about: Mapping[str, Any]) -> Signs:
        """Of one arm's trajectory, with the dims seed and step; `about` is the record's config."""

    def planted(self, healthy: Setup) -> Setup | None:
        """The healthy run with exactly this fault, its `severity` swept; None if there is none."""
        del healthy
        return None

    def remedies(self, setup: Setup) -> Mapping[str, Setup]:
        """What to try, for models of this package: by name, the setup with the remedy. Weights keep
        their structure, so that a run can go on with it.
        """
        del setup
        return {}


def of_kind(values: xr.DataArray, *kinds: str) -> xr.DataArray:
    """The numbers of parts that are queries, keys or values, whatever the record calls them."""
    names = [str(one) for one in values["part"].values]
    last = [re.sub(r"\.(weights?|bias)$", "", one) for one in names]
    patterns = [KINDS[kind] for kind in kinds]
    chosen = [any(re.search(one, name.rpartition(".")[2]) for one in patterns) for name in last]
    return values.isel(part=chosen)


def learned_share(run: xr.Dataset) -> xr.DataArray:
    """How far the loss has fallen: 0 at the first step, 1 at a loss of 0."""
    loss = run["loss"]
    return 1 - loss / loss.isel(step=0, drop=True)
