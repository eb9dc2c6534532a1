"""A fault: a number of a record, its bound with the reason for it, and what to try."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import xarray as xr

PLACES = ("layer", "head", "part")
"""Dims of a record that name a place in the model."""


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
