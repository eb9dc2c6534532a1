"""The examples of every member, or of all: drawn, read or prepared before the first step."""

import dataclasses
from functools import cached_property
from typing import Any

import jax
import numpy as np

from saccade.contracts.content import content
from saccade.contracts.model import AbstractModelConfig
from saccade.contracts.task import AbstractCorpus, Splits
from saccade.errors import ConfigError
from saccade.train.batches import FullBatch
from saccade.train.checks import naming, require_splits
from saccade.train.members import Members
from saccade.train.placement import Placement, outline
from saccade.train.program import Program, tracing
from saccade.train.recipe_functions import RecipeFunctions

__all__: list[str] = []


@dataclasses.dataclass(frozen=True, eq=False)
class Examples:
    """The data of the engine, for a recipe: of a corpus the same for all members, else drawn for
    each.
    """

    functions: RecipeFunctions
    members: Members
    placement: Placement

    @property
    def shared(self) -> bool:
        return isinstance(self.functions.task, AbstractCorpus)

    @cached_property
    def _draw(self) -> Program:
        drawn = self.placement.over_members(self.functions.draw, (False,))
        return Program(drawn, self.placement.put(self.placement.pad(self.members)))

    @property
    def program(self) -> Program | None:
        return None if self.shared else self._draw

    @cached_property
    def _prepares(self) -> bool:
        """Whether the model indexes its data on the host, out of sight of any traced program."""
        functions = self.functions
        prepare = getattr(type(functions.model), "prepare", None)
        full = isinstance(functions.batches, FullBatch)
        return full and prepare is not AbstractModelConfig.prepare

    @property
    def _from_host(self) -> bool:
        """Whether the data enter from the host, where no traced program says what they are."""
        return self.shared or self._prepares

    @property
    def arrays(self) -> Splits:
        return self._arrays

    @cached_property
    def _arrays(self) -> Splits:
        if self.shared:
            return self.placement.put_shared(self._corpus())
        data = self._draw(self.placement.put(self.placement.pad(self.members)))
        if not self._prepares:
            return data
        return self.placement.put(self._prepared(jax.tree.map(np.asarray, data)))

    def _corpus(self) -> Splits:
        task, model = self.functions.task, self.functions.model
        assert isinstance(task, AbstractCorpus)
        if type(model).relabelled is not AbstractModelConfig.relabelled:
            raise ConfigError(
                f"model {model.title}: sets targets of its own for every member, allowed: with "
                "generated examples, because all members share those of a corpus"
            )
        splits = require_splits(task)
        data = Splits(splits["train"], splits.get("test"), splits.get("validation"))
        if self._prepares:
            # `prepare` indexes the data of several members: here they are those of one.
            alone = jax.tree.map(lambda leaf: np.asarray(leaf)[None], data)
            data = jax.tree.map(lambda leaf: np.asarray(leaf)[0], self._prepared(alone))
        if self.functions.buckets is not None:
            data = dataclasses.replace(data, buckets=self.functions.buckets.members)
        return data

    def _prepared(self, data: Splits) -> Splits:
        task, model = self.functions.task, self.functions.model
        with tracing(), naming(f"model {type(model).__name__}", "prepare its data", model, task):
            parts = [
                part if part is None else model.prepare(task, part)
                for part in (data.train, data.test, data.validation)
            ]
        return Splits(*parts)

    @property
    def shapes(self) -> Splits:
        return self.arrays if self._from_host else self.placement.shapes_of(self._draw)

    @cached_property
    def _outline(self) -> Any:
        return outline(self.arrays)

    @property
    def content(self) -> str:
        return self._content

    @cached_property
    def _content(self) -> str:
        return content(self.arrays) if self._from_host else ""

    def adopt(self, other: "Examples") -> bool:
        names = ["_arrays", "_content"] if self.shared else ["_draw"]
        for name in names:
            if name in other.__dict__:
                self.__dict__[name] = other.__dict__[name]
        return self.shared or not self._prepares or self._outline == other._outline

    def release_members(self) -> None:
        if self.shared:
            return
        if self._prepares and "_arrays" in self.__dict__:
            _ = self._outline  # for the members that follow
        self.release()

    def release(self) -> None:
        self.__dict__.pop("_arrays", None)
