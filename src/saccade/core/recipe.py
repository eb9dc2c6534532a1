"""What a training does, apart from who is trained: the same for all chunks of its members."""

import dataclasses
from typing import Any

import jax
import numpy as np

from saccade.core.engine import Engine
from saccade.core.identity import surroundings, training_digest
from saccade.core.members import Carry, Members
from saccade.core.run import Run

__all__: list[str] = []


@dataclasses.dataclass(eq=False)
class Recipe:
    """Task, model, optimiser and what else a call of `Lab.train` says, without its members."""

    parts: tuple[Any, Any, Any]
    """Task, model and optimiser."""
    options: tuple[Any, ...]
    """Recording, batches, loss, frozen parts and stopping, as `Ensemble` has them."""
    steps: int
    recorded: np.ndarray
    keep_state: bool
    precision: str
    _last: Engine | None = dataclasses.field(default=None, init=False)

    def engine(self, members: Members, places: int | None = None) -> Engine:
        """The programs of some members, who fill so many places; those of the members before are
        used again if they are the same.
        """
        devices = jax.local_devices()[: places or len(members.seed)]
        new = Engine(*self.parts, members, devices, *self.options, places=places)
        if self._last is not None:
            new.adopt(self._last)
        self._last = new
        return new

    def run(
        self,
        lab: Any,
        device: str,
        members: Members,
        after: Carry | None,
        name: str,
        places: int | None = None,
    ) -> Run:
        """The training of some members, with its content address."""
        engine = self.engine(members, places)
        engine.require_fitting_start()
        engine.require_fitting_state(after)
        around = surroundings(device, self.precision)
        digest = training_digest(engine, self.steps, self.recorded, around, after)
        recorded, state = self.recorded, self.keep_state
        return Run(lab, engine, self.steps, recorded, name, digest, after, state)

    def released(self) -> Engine | None:
        """The last programs, if there are any; lets go of what lies on the devices."""
        last, self._last = self._last, None
        if last is not None:
            last.release()
        return last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}
