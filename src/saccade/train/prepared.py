"""A recipe that is ready for its members: the same for all chunks of them."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from saccade.errors import ConfigError
from saccade.train.engine import Engine, Moving
from saccade.train.examples import Examples
from saccade.train.identity import surroundings, training_digest
from saccade.train.loss import own_loss
from saccade.train.members import Members
from saccade.train.placement import Placement, outline
from saccade.train.recipe import Recipe
from saccade.train.recipe_functions import RecipeFunctions, with_values
from saccade.train.run import Run
from saccade.train.running import Running
from saccade.train.start import chosen_seeds, members_of

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
    _functions: RecipeFunctions | None = dataclasses.field(default=None, init=False)

    def engine(self, members: Members, places: int | None = None) -> Engine:
        """The programs of some members, who fill so many places; those of the members before are
        used again if they are the same.
        """
        devices = jax.local_devices()[: places or len(members.seed)]
        members = with_values(self.parts, members)
        functions = self.functions(_first_of(members))
        placement = Placement(devices, len(members.seed), places)
        data = Examples(functions, members, placement)
        new = Engine(functions.dynamics, members, data, placement)
        if self._last is not None:
            new.adopt(self._last)
        self._last = new
        return new

    def functions(self, member: Members) -> RecipeFunctions:
        """The functions of one member: those of the members before, if shapes are the same."""
        known = self._functions
        if known is not None and outline(known.first_member) == outline(member):
            return known
        recipe = self.recipe
        self._functions = RecipeFunctions(
            *self.parts,
            member,
            recording=recipe.recording,
            recorded=self.recorded,
            batches=recipe.batches,
            loss=recipe.loss or own_loss,
            frozen=tuple(recipe.frozen),
            stopping=recipe.stopping,
        )
        return self._functions

    def skeleton_of(self, members: Members) -> Any:
        """The parts of the members' models that are not arrays."""
        members = with_values(self.parts, members)
        return self.functions(_first_of(members)).skeleton

    def run(
        self,
        running: Running,
        device: str,
        members: Members,
        after: Moving | None,
        name: str,
        places: int | None = None,
    ) -> Run:
        """The training of some members, with its content address."""
        engine = self.engine(members, places)
        assert self._functions is not None
        self._functions.require_fitting_start()
        if after is not None:
            _require_fitting(after, engine.shapes)
        around = surroundings(device, self.precision)
        digest = training_digest(engine, self.steps, self.recorded, around, after)
        return Run(
            running, engine, self.steps, self.recorded, name, digest, after, self.recipe.keep_state
        )

    def released(self) -> Engine | None:
        """The last programs, if there are any; lets go of what lies on the devices."""
        last, self._last = self._last, None
        if last is not None:
            last.release()
        return last

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None, "_functions": None}


def engine_of(recipe: Recipe, seeds: int | Sequence[int] = 1) -> Engine:
    """The engine of a recipe for some seeds, on the devices of this process, for benchmarks."""
    parts = (recipe.task, recipe.model, recipe.optimiser)
    prepared = PreparedRecipe(parts, recipe, int(recipe.steps), recipe.recorded(), "float32")
    return prepared.engine(members_of(chosen_seeds(seeds)))


def _first_of(members: Members) -> Members:
    """The first member, in arrays of its own."""
    return jax.tree.map(lambda leaf: np.array(leaf[0]), members)


def _require_fitting(after: Moving, shapes: Moving) -> None:
    """Refuse the state of another training that does not go on here."""
    names = {"learned": "model", "still": "model", "optimiser_state": "optimiser"}
    names |= {"order": "batches", "stopping": "stopping", "elapsed": "optimiser"}

    def kind(tree: Any) -> Any:
        leaves, structure = jax.tree.flatten(tree)
        return structure, [(leaf.shape[1:], leaf.dtype) for leaf in leaves]

    for field, part in names.items():
        if kind(getattr(after.state, field)) != kind(getattr(shapes.state, field)):
            raise ConfigError(
                f"after: got a training whose {part} has another state, allowed: the same "
                "model, optimiser, batches, stopping and precision; with `start` only the "
                "weights are taken"
            )
