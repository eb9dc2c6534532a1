"""A recipe that is ready for its members: the same for all chunks of them."""

import dataclasses
from typing import Any

import jax
import numpy as np

from saccade.core.engine import Engine
from saccade.core.identity import surroundings, training_digest
from saccade.core.loss import own_loss
from saccade.core.members import Carry, Members
from saccade.core.recipe import Recipe
from saccade.core.run import Run
from saccade.core.running import Running

__all__: list[str] = []


@dataclasses.dataclass(eq=False)
class PreparedRecipe:
    """A recipe whose sweeps are put in, and the programs of the members before."""

    parts: tuple[Any, Any, Any]
    """Task, model and optimiser."""
    recipe: Recipe
    steps: int
    """The last step."""
    recorded: np.ndarray
    precision: str
    _last: Engine | None = dataclasses.field(default=None, init=False)

    def engine(self, members: Members, places: int | None = None) -> Engine:
        """The programs of some members, who fill so many places; those of the members before are
        used again if they are the same.
        """
        devices = jax.local_devices()[: places or len(members.seed)]
        recipe = self.recipe
        new = Engine(
            *self.parts,
            members,
            devices,
            record=recipe.recording,
            batches=recipe.batches,
            loss=recipe.loss or own_loss,
            frozen=tuple(recipe.frozen),
            stopping=recipe.stopping,
            places=places,
        )
        if self._last is not None:
            new.adopt(self._last)
        self._last = new
        return new

    def run(
        self,
        running: Running,
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
        return Run(
            running,
            engine,
            self.steps,
            self.recorded,
            name,
            digest,
            after,
            self.recipe.keep_state,
        )

    def released(self) -> Engine | None:
        """The last programs, if there are any; lets go of what lies on the devices."""
        last, self._last = self._last, None
        if last is not None:
            last.release()
        return last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}
