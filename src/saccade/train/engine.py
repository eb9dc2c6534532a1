"""The compiled loop: many members side by side, many recorded steps in one dispatch.

The engine knows the functions of one member (`Dynamics`), who the members are and which data they
have, and nothing of tasks, models, losses, batches or optimisers.
"""

import dataclasses
import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import PartitionSpec
from jaxtyping import Array, Int, PyTree

from saccade.train.dynamics import Dynamics, Row
from saccade.train.members import NOT_DIVERGED, Members
from saccade.train.placement import SAME, SPLIT, Placement, outline
from saccade.train.program import Program

__all__: list[str] = []
"""Parts of the engine: no public names."""

PIECES = 32
"""Largest number of recorded steps in one dispatch."""
ROWS = 2**26
"""Bytes that one dispatch brings to the host from a device, at most, unless one recorded step has
more."""


class Moving(eqx.Module):
    """What changes from step to step, for every member."""

    state: PyTree
    """The state of the dynamics."""
    diverged_at: Int[Array, ""]
    """Step at which the member diverged, or -1."""


class Data(Protocol):
    """Where the data of the members come from. They are made when they are needed."""

    @property
    def shared(self) -> bool:
        """Whether all members have the same."""
        ...

    @property
    def shapes(self) -> PyTree: ...

    @property
    def arrays(self) -> PyTree:
        """The data, on the devices."""
        ...

    @property
    def program(self) -> Program | None:
        """The program that draws them, if one does."""
        ...

    @property
    def content(self) -> str:
        """Hash of data that no program draws."""
        ...

    def adopt(self, other: Any) -> bool:
        """Take over the programs and outlines of the data of other members. Returns whether the
        engine's programs for those serve these data as well: whether shapes are the same.
        """
        ...

    def release_members(self) -> None:
        """Let go of what lies on the devices for these members alone."""
        ...

    def release(self) -> None:
        """Let go of what lies on the devices."""
        ...


@dataclasses.dataclass(frozen=True, eq=False)
class Engine:
    """The programs of some members of a dynamics."""

    dynamics: Dynamics
    members: Members
    data: Data
    placement: Placement

    @property
    def count(self) -> int:
        return self.placement.count

    @cached_property
    def padded(self) -> Members:
        return self.placement.pad(self.members)

    @cached_property
    def placed(self) -> Members:
        """The padded members, on the devices."""
        return self.placement.put(self.padded)

    @property
    def outline(self) -> str:
        """Shapes of members and data, in words."""
        return str((outline(self.padded), outline(self.data.shapes)))

    def adopt(self, other: "Engine") -> None:
        """Take over the programs of an engine that differs in its members alone: if they have the
        same shapes, nothing is traced or compiled again.
        """
        if outline(self.padded) == outline(other.padded) and self.data.adopt(other.data):
            for name in ("_start", "shapes", "programs"):
                if name in other.__dict__:
                    self.__dict__[name] = other.__dict__[name]

    def release_members(self) -> None:
        """Let go of what lies on the devices for these members alone."""
        self.data.release_members()
        self.__dict__.pop("placed", None)

    def release(self) -> None:
        """Let go of what lies on the devices."""
        self.data.release()
        self.__dict__.pop("placed", None)

    # -- programs ----------------------------------------------------------------------------------

    @cached_property
    def _start(self) -> Program:
        def start(member: Members) -> Moving:
            return Moving(self.dynamics.start(member), jnp.asarray(NOT_DIVERGED, jnp.int32))

        return Program(self.placement.over_members(start, (False,)), self.placed)

    def _adjusting(self, adjust: Any) -> Program:
        def adjusted(moving: Moving, member: Members, data: Any) -> Moving:
            return Moving(adjust(member, moving.state, data), moving.diverged_at)

        jitted = self.placement.over_members(adjusted, (False, False, self.data.shared))
        return Program(jitted, self.shapes, self.placed, self.data.shapes)

    @cached_property
    def shapes(self) -> Moving:
        """Shapes and types of the state, without computing it: what a saved state must fit."""
        return self.placement.shapes_of(self._start)

    @cached_property
    def programs(self) -> dict[str, Program]:
        """Everything that shapes the numbers, lowered but not yet compiled."""
        programs = {"start": self._start}
        if self.data.program is not None:
            programs["data"] = self.data.program
        if self.dynamics.adjust is not None:
            programs["adjust"] = self._adjusting(self.dynamics.adjust)
        data = SAME if self.data.shared else SPLIT
        advance = self.placement.split(
            self._advance,
            (SPLIT, SPLIT, data, SAME, SAME, SAME, SAME),
            (SPLIT, PartitionSpec(None, "member")),
            donated=(0,),
        )
        at = jnp.asarray(0)
        pieces = (at, jnp.zeros(PIECES, at.dtype), jnp.zeros(PIECES, at.dtype), at)
        arguments = (self.shapes, self.placed, self.data.shapes)
        programs["advance"] = Program(advance, *arguments, *pieces)
        if self.dynamics.observe_ends is not None:
            programs["snapshot"] = self._observing(self.dynamics.observe_ends)
        return programs

    def observing(self) -> Program:
        """What is observed along the steps, as a program of its own."""
        return self._observing(self.dynamics.observe)

    def _observing(self, function: Any) -> Program:
        observe = partial(_observed, function)
        jitted = self.placement.over_members(observe, (False, False, self.data.shared))
        return Program(jitted, self.shapes, self.placed, self.data.shapes)

    # -- moving ------------------------------------------------------------------------------------

    def _step(self, moving: Moving, member: Members, data: Any, at: Int[Array, ""]) -> Moving:
        state, loss = self.dynamics.step(member, moving.state, data, at)
        going = moving.diverged_at == NOT_DIVERGED
        sound = going & jnp.isfinite(loss)
        failed_at = self.dynamics.failing(at).astype(jnp.int32)
        diverged_at = jnp.where(sound | ~going, moving.diverged_at, failed_at)
        return Moving(_unless_diverged(sound, state, moving.state), diverged_at)

    def _notice(self, moving: Moving, observed: Row, at: Int[Array, ""]) -> tuple[Moving, Row]:
        assert self.dynamics.notice is not None
        state, rows = self.dynamics.notice(moving.state, observed, at)
        return dataclasses.replace(moving, state=state), observed | rows

    def _advance(
        self,
        moving: Moving,
        members: Members,
        data: Any,
        first: Array,
        counts: Array,
        recorded: Array,
        pieces: Array,
    ) -> tuple[Moving, Row]:
        """Move all members of one device. Members are mapped within the loops, so that JAX traces
        a step and the probes once, and a branch on the number of the step stays a branch.
        """
        axis = None if self.data.shared else 0
        step = jax.vmap(self._step, in_axes=(0, 0, axis, None))
        one_row = partial(_observed, self.dynamics.observe)
        observe = jax.jit(jax.vmap(one_row, in_axes=(0, 0, axis)))
        notice = None if self.dynamics.notice is None else jax.vmap(self._notice, (0, 0, None))

        def observed_and_noticed(moving: Moving, at: Array) -> tuple[Moving, Row]:
            observed = observe(moving, members, data)
            return (moving, observed) if notice is None else notice(moving, observed, at)

        def piece(
            index: Array, carried: tuple[Moving, Array, Array, Any]
        ) -> tuple[Moving, Array, Array, Any]:
            moving, at, slot, rows = carried
            end = at + counts[index]
            move = lambda at, moving: step(moving, members, data, at)  # noqa: E731
            moving = jax.lax.fori_loop(at, end, move, moving)

            def record() -> tuple[Moving, Any]:
                noticed, observed = observed_and_noticed(moving, end)
                add = lambda row, value: row.at[slot].set(value)  # noqa: E731
                return noticed, jax.tree.map(add, rows, observed)

            moving, rows = jax.lax.cond(recorded[index], record, lambda: (moving, rows))
            return moving, end, slot + recorded[index], rows

        _, shapes = jax.eval_shape(observed_and_noticed, moving, first)
        row = sum(math.prod(shape.shape) * shape.dtype.itemsize for shape in shapes.values())
        slots = max(1, min(counts.shape[0], ROWS // row))
        rows = jax.tree.map(lambda shape: jnp.zeros((slots, *shape.shape), shape.dtype), shapes)
        start = (moving, first, jnp.zeros_like(first), rows)
        moved, _, _, rows = jax.lax.fori_loop(0, pieces, piece, start)
        return moved, rows

    # -- running -----------------------------------------------------------------------------------

    def start(self) -> Moving:
        moving = self._start(self.placed)
        if self.dynamics.adjust is None:
            return moving
        return self.programs["adjust"](moving, self.placed, self.data.arrays)

    def advance(
        self, moving: Moving, first: int, counts: Sequence[int], recorded: Sequence[bool]
    ) -> tuple[Moving, Row]:
        """Move every member piece by piece, and observe it after each recorded piece.

        One dispatch for up to `PIECES` pieces, of which `slots` may be recorded; lengths are
        arguments of the compiled program, so other lengths do not recompile it. The rows come with
        dims slot (the first slots are filled, in order), member, then their own.
        """
        pieces = len(counts)
        if not 0 < pieces <= PIECES or len(recorded) != pieces:
            raise ValueError(f"between 1 and {PIECES} pieces with a flag each, got {pieces}")
        if sum(recorded) > self.slots:
            raise ValueError(f"at most {self.slots} recorded pieces, got {sum(recorded)}")
        padding = PIECES - pieces
        return self.programs["advance"](
            moving,
            self.placed,
            self.data.arrays,
            jnp.asarray(first),
            jnp.asarray([*counts, *[0] * padding]),
            jnp.asarray([*recorded, *[False] * padding]).astype(int),
            jnp.asarray(pieces),
        )

    @property
    def slots(self) -> int:
        """Largest number of recorded pieces in one dispatch: fewer than `PIECES` if much is
        measured.
        """
        return self.programs["advance"].shapes[1]["diverged_at"].shape[0]

    def steps(self, moving: Moving, first: int, count: int) -> Moving:
        """Move every member by some steps, without observing."""
        return self.advance(moving, first, [count], [False])[0]

    @property
    def has_ends(self) -> bool:
        """Whether the two ends are observed apart."""
        return self.dynamics.observe_ends is not None

    def snapshot(self, moving: Moving) -> Row:
        """What is observed at the ends only, of every member."""
        return self.programs["snapshot"](moving, self.placed, self.data.arrays)


def _observed(function: Any, moving: Moving, member: Members, data: Any) -> Row:
    """What a function of member, state and data observes, and where the member diverged."""
    return function(member, moving.state, data) | {"diverged_at": moving.diverged_at}


def _unless_diverged(sound: Any, new: PyTree, old: PyTree) -> PyTree:
    """The new state of a member that has not diverged, and the old one of a member that has.
    Arrays of whole numbers, such as an order of examples, are new in either case: they cannot make
    other numbers infinite, and choosing between large arrays takes time in every step.
    """

    def chosen(fresh: Array, stale: Array) -> Array:
        if eqx.is_inexact_array(fresh) or fresh.ndim == 0:
            return jnp.where(sound, fresh, stale)
        return fresh

    return jax.tree.map(chosen, new, old)
