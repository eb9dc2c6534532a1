"""What to record of a training, and when. The first and the last step are always recorded."""

import dataclasses
from collections.abc import Iterable, Sequence

from saccade.core.interfaces import AbstractProbe
from saccade.errors import ConfigError
from saccade.records.schedule import AbstractSchedule, Every
from saccade.settings import require_count


@dataclasses.dataclass(frozen=True)
class Recording:
    """What a training records, and when; loss and divergence are always recorded."""

    probes: Sequence[AbstractProbe] = ()
    """Measured along training."""
    at: AbstractSchedule = Every(10)
    """The steps at which they are measured."""
    ends: Sequence[AbstractProbe] = ()
    """Measured at the first and the last step only."""
    chunk: int | None = None
    """Examples that are evaluated at once. None: of a corpus 512, or as many as have 65,536
    positions; all of generated data. Training with full batches always evaluates all. A loss in
    chunks is their mean, weighted by examples."""
    sample: int | None = None
    """Training examples on which loss and probes are measured, evenly spaced. None: all. Training
    with full batches always measures all."""

    def __post_init__(self):
        for name in ("chunk", "sample"):
            if getattr(self, name) is not None:
                require_count(self, name)
        for name in ("probes", "ends"):
            given = getattr(self, name)
            listed = (given,) if isinstance(given, AbstractProbe | type) else given
            if not isinstance(listed, Iterable):
                raise ConfigError(f"{name}: got {given!r}, allowed: a list of probes")
            for probe in listed:
                _require_probe(name, probe)
            object.__setattr__(self, name, tuple(listed))
        if not isinstance(self.at, AbstractSchedule):
            raise ConfigError(
                f"at: got {self.at!r}, allowed: a schedule such as Every(10), Logarithmic(40) or "
                "AtSteps((0, 100))"
            )


def _require_probe(field: str, probe: object) -> None:
    if isinstance(probe, type):
        raise ConfigError(
            f"{field}: got the class {probe.__name__}, allowed: an instance; write "
            f"{probe.__name__}()"
        )
    if not isinstance(probe, AbstractProbe):
        raise ConfigError(f"{field}: got {probe!r}, allowed: probes (instances of AbstractProbe)")
