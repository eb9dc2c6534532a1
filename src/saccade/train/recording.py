"""What the engine measures of a training, apart from when."""

import dataclasses

from saccade.contracts.probe import AbstractProbe

__all__: list[str] = []


@dataclasses.dataclass(frozen=True)
class Recording:
    """Probes along training and at its ends, and the examples on which they are measured."""

    probes: tuple[AbstractProbe, ...] = ()
    ends: tuple[AbstractProbe, ...] = ()
    chunk: int | None = None
    sample: int | None = None
