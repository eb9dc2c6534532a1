"""What the chunks of a training left: read from their files when needed, so that a training of any
number of members takes little memory.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from saccade.errors import FileError
from saccade.train.run import CARRY, STATE
from saccade.train.storage import Use, read_state

__all__: list[str] = []


@dataclasses.dataclass(frozen=True)
class Part:
    """The result of one chunk of members."""

    count: int
    digest: str | None = None
    seconds: float = 0.0
    file: Path | None = None
    """Where its arrays are, if they are not held."""
    held: Mapping[str, np.ndarray] | None = None
    failure: str = ""
    """Why there are no arrays."""

    def arrays(self) -> Mapping[str, np.ndarray]:
        """The arrays of its members, without those that only fill the devices."""
        found = self.held
        if found is None:
            assert self.file is not None, "a part that failed has no arrays"
            header, found = read_state(self.file)
            if not header.get("finished") or header.get("digest") != self.digest:
                why = "another process trains it again at the moment; wait for it and run again"
                raise FileError(f"{self.file}: was finished, and is not now: {why}")
        return {
            key: array[: self.count] if key.startswith((CARRY, STATE)) else array[:, : self.count]
            for key, array in found.items()
        }


class Parts:
    """The chunks of a training, in the order of the members."""

    def __init__(self, parts: Sequence[Part], use: Use | None = None):
        self._parts = list(parts)
        self._use = use  # nobody removes their files

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def count(self) -> int:
        return sum(part.count for part in self._parts)

    @property
    def trained(self) -> list[Part]:
        return [part for part in self._parts if not part.failure]

    @cached_property
    def rows(self) -> int:
        """Recorded steps, until the last member ended."""
        if len(self) == 1:
            return len(self._parts[0].arrays()["probes:loss"])
        return max(len(part.arrays()["probes:loss"]) for part in self.trained)

    @cached_property
    def not_trained(self) -> np.ndarray | None:
        """Which members are missing; None if none is."""
        if not any(part.failure for part in self._parts):
            return None
        return np.concatenate([np.full(part.count, bool(part.failure)) for part in self._parts])

    def without_rows(self) -> "Parts":
        """These chunks without what was recorded, which datasets have by then."""
        parts = [
            dataclasses.replace(part, held=None if part.held is None else _weights_of(part.held))
            for part in self._parts
        ]
        return Parts(parts, self._use)

    def places(self) -> Iterator[tuple[slice, Part]]:
        at = 0
        for part in self._parts:
            yield slice(at, at + part.count), part
            at += part.count


def _weights_of(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {key: array for key, array in arrays.items() if key.startswith((CARRY, STATE))}


class Leaves(Mapping[str, np.ndarray]):
    """The arrays of models and states of all members, read when they are asked for."""

    def __init__(self, parts: Parts):
        self._parts = parts

    @cached_property
    def _names(self) -> list[str]:
        kept = self._parts.trained[0].arrays()
        return [key for key in kept if key.startswith((CARRY, STATE))]

    def gathered(self, prefix: str) -> dict[str, np.ndarray]:
        """All arrays whose names begin so; every part is read once."""
        whole: dict[str, np.ndarray] = {}
        for some, part in self._parts.places():
            if part.failure:
                continue
            for key, rows in part.arrays().items():
                if not key.startswith(prefix):
                    continue
                if len(self._parts) == 1:
                    whole[key] = rows
                    continue
                if key not in whole:
                    whole[key] = np.zeros((self._parts.count, *rows.shape[1:]), rows.dtype)
                whole[key][some] = rows
        if self._parts.not_trained is not None:
            for rows in whole.values():
                rows[self._parts.not_trained] = nothing(rows.dtype)
        return whole

    def __getitem__(self, key: str) -> np.ndarray:
        if key not in self._names:
            raise KeyError(key)
        return self.gathered(key)[key]

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def nothing(dtype: np.dtype) -> Any:
    """What stands for the number of a member that was not trained."""
    if np.issubdtype(dtype, np.inexact):
        return np.nan
    return -1 if np.issubdtype(dtype, np.signedinteger) else 0
