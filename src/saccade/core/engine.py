"""The compiled core of training: one loop, one dispatch for many recorded steps."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from jaxtyping import Array, Float, Int, PyTree

from saccade.core.batches import Fresh, FullBatch, Minibatch
from saccade.core.checks import checked, naming, require_number
from saccade.core.chunks import evenly
from saccade.core.ensemble import Ensemble
from saccade.core.interfaces import AbstractProbe, Moment, Splits
from saccade.core.loss import takes_key, with_key
from saccade.core.members import Carry, Members, purpose_key, still_going, where
from saccade.core.optimiser import GradientFlow
from saccade.core.program import Program

__all__: list[str] = []
"""Parts of the engine: no public names."""

PIECES = 32
"""Largest number of recorded steps in one dispatch."""

ROWS = 2**26
"""Bytes that one dispatch brings to the host from a device, at most, unless one recorded step has
more."""

CHUNK, POSITIONS = 512, 2**16
"""Examples of a corpus that are evaluated at once, and their positions, at most, unless the
recording says otherwise."""


class Engine(Ensemble):
    """The programs of one training call."""

    @cached_property
    def programs(self) -> dict[str, Program]:
        """Everything that shapes the numbers, lowered but not yet compiled."""
        carry, data = self.shapes, self.data_shapes
        programs = {"start": self._start}
        if not self.is_corpus:
            programs["data"] = self._draw
        if self._curvature is not None:
            programs["unit"] = self._unit
        at = jnp.asarray(0)
        pieces = (at, jnp.zeros(PIECES, at.dtype), jnp.zeros(PIECES, at.dtype), at)
        out = (PartitionSpec("member"), PartitionSpec(None, "member"))
        advance = self._split(self._advance, 2, 4, out, donate=(0,), data=True)
        programs["advance"] = Program(advance, carry, self.placed, data, *pieces)
        if self.has_ends:
            snapshot = partial(self._measured, probes=self.record.ends)
            jitted = self._over_members(snapshot, 2, data=True)
            programs["snapshot"] = Program(jitted, carry, self.placed, data)
        return programs

    # -- moving ------------------------------------------------------------------------------------

    def objective(self, model: Any, batch: Any, key: Any = None) -> Float[Array, ""]:
        """What training minimises: the loss, and what the model adds to it. Without a key it is
        measured: no dropout.
        """
        with naming("loss", f"be evaluated for {self.model.title}", model, batch):
            loss = with_key(self.loss, model, batch, key=key)
            require_number("loss", loss)
        if not hasattr(model, "penalty"):
            return loss
        with naming(f"model {type(model).__name__}", "give its penalty", model):
            whole = loss + model.penalty()
        require_number("penalty", whole)
        return whole

    def _batch(
        self, carry: Carry, member: Members, train: Any, step: Int[Array, ""]
    ) -> tuple[Any, Any]:
        """The examples of one step, and the order of the training set from then on."""
        key = member.key("order")
        match self.batches:
            case Fresh(size):
                task, _, _ = self._filled(member)
                drawn = task.sample(jax.random.fold_in(key, step), size)
                return self._relabelled(member, drawn), None
            case Minibatch(size):
                total = self.task.train_size
                place = step % (total // size)
                epoch = jax.random.fold_in(key, step // (total // size))
                # `place` is the same for all members, so this stays a real branch under vmap.
                order = jax.lax.cond(
                    place == 0,
                    lambda: jax.random.permutation(epoch, total),
                    lambda: carry.order,
                )
                chosen = jax.lax.dynamic_slice_in_dim(order, place * size, size)
                return train.examples(chosen), order
            case _:
                return train, carry.order

    def _gradient(
        self, carry: Carry, member: Members, data: Splits, step: Int[Array, ""]
    ) -> tuple[Float[Array, ""], PyTree, Any]:
        """Loss and gradient of one step, and the order of the training set from then on."""
        key = None
        if takes_key(self.loss, self._skeleton):
            key = jax.random.fold_in(member.key("dropout"), step)

        def of(batch: Any) -> tuple[Float[Array, ""], PyTree]:
            def objective(learned: PyTree) -> Float[Array, ""]:
                return self.objective(self.whole(learned, carry.still), batch, key)

            return jax.value_and_grad(objective)(carry.learned)

        if self.buckets is None:
            batch, order = self._batch(carry, member, data.train, step)
            return *of(batch), order
        return self._gradient_by_length(carry, member, data, step, of)

    def _gradient_by_length(
        self,
        carry: Carry,
        member: Members,
        data: Splits,
        step: Int[Array, ""],
        of: Callable[[Any], tuple[Float[Array, ""], PyTree]],
    ) -> tuple[Float[Array, ""], PyTree, Any]:
        """The same, for a batch of one length bucket. Bucket and place depend on the step alone, so
        that branches stay real ones under vmap.
        """
        buckets, ids = self.buckets, data.buckets
        assert buckets is not None
        assert ids is not None
        epoch, at = step // len(buckets.plan), step % len(buckets.plan)
        turn = jax.random.fold_in(purpose_key(0, "order"), epoch)
        bucket, place = jnp.asarray(buckets.plan)[
            jax.random.permutation(turn, len(buckets.plan))[at]
        ]
        keys = jax.random.split(jax.random.fold_in(member.key("order"), epoch), len(ids))
        order = jax.lax.cond(
            at == 0,
            lambda: jnp.concatenate([*map(jax.random.permutation, keys, ids)]).astype(int),
            lambda: carry.order,
        )

        def branch(first: int, count: int, longest: int) -> Callable[[], Any]:
            def within() -> Any:
                places = first + (place + jnp.arange(buckets.size)) % count
                return of(data.train.examples(order[places]).shortened(longest))

            return within

        sizes = map(len, buckets.members)
        branches = [*map(branch, buckets.starts, sizes, buckets.longest)]
        return *jax.lax.switch(bucket, branches), order

    def _step(self, carry: Carry, member: Members, data: Splits, step: Int[Array, ""]) -> Carry:
        loss, gradient, order = self._gradient(carry, member, data, step)
        _, _, optimiser = self._filled(member)
        with naming(f"optimiser {type(optimiser).__name__}", "take a step", optimiser):
            updates, state = optimiser.update(gradient, carry.optimiser_state, carry.learned, loss)
        if self._curvature is not None:
            updates = jax.tree.map(lambda update: carry.unit * update, updates)
        alive, diverged = still_going(carry, jnp.isfinite(loss), step)
        learned = where(alive, eqx.apply_updates(carry.learned, updates), carry.learned)
        elapsed = carry.elapsed
        if elapsed is not None:
            elapsed = where(alive, elapsed + optimiser.rate_of(state), elapsed)
        return dataclasses.replace(
            carry,
            learned=learned,
            optimiser_state=where(alive, state, carry.optimiser_state),
            order=order,
            diverged=diverged,
            elapsed=elapsed,
        )

    def _flow(
        self,
        carry: Carry,
        member: Members,
        data: Splits,
        first: Int[Array, ""],
        steps: Int[Array, ""],
    ) -> Carry:
        import diffrax  # here, because it takes most of a second to import and few runs need it

        _, _, flow = self._filled(member)

        def field(time: Any, learned: PyTree, args: Any) -> PyTree:
            del time, args
            gradient = jax.grad(
                lambda moving: self.objective(self.whole(moving, carry.still), data.train)
            )(learned)
            return jax.tree.map(jnp.negative, gradient)

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),  # pyright: ignore[reportArgumentType]
            diffrax.Tsit5(),
            t0=first * flow.rate,
            t1=(first + steps) * flow.rate,
            dt0=None,
            y0=carry.learned,
            stepsize_controller=diffrax.PIDController(
                rtol=flow.relative_tolerance, atol=flow.absolute_tolerance
            ),
            max_steps=None,
            adjoint=diffrax.ForwardMode(),
            throw=False,
        )
        end = jax.tree.map(lambda leaf: leaf[-1], solution.ys)
        loss = self.objective(self.whole(end, carry.still), data.train)
        finished = jnp.isfinite(loss) & (solution.result == diffrax.RESULTS.successful)
        alive, diverged = still_going(carry, finished, first + steps)
        learned = where(alive, end, carry.learned)
        return dataclasses.replace(carry, learned=learned, diverged=diverged)

    def _advance(
        self,
        carry: Carry,
        members: Members,
        data: Splits,
        first: Array,
        counts: Array,
        recorded: Array,
        pieces: Array,
    ) -> tuple[Carry, dict[str, Array]]:
        """Move all members of one device. Members are mapped within the loops, so that JAX traces
        a step and the probes once.
        """
        axis = self._data_axis
        step_all = jax.vmap(self._step, in_axes=(0, 0, axis, None))
        flow_all = jax.vmap(self._flow, in_axes=(0, 0, axis, None, None))
        measured = partial(self._measured, probes=self.record.probes)
        measure = jax.jit(jax.vmap(measured, in_axes=(0, 0, axis)))

        def piece(
            index: Array, state: tuple[Carry, Array, Array, Any]
        ) -> tuple[Carry, Array, Array, Any]:
            moving, step, slot, rows = state
            count = counts[index]
            if isinstance(self.optimiser, GradientFlow):
                moving = jax.lax.cond(
                    count > 0,
                    lambda: flow_all(moving, members, data, step, count),
                    lambda: moving,
                )
            else:
                move = lambda at, going: step_all(going, members, data, at)  # noqa: E731
                moving = jax.lax.fori_loop(step, step + count, move, moving)

            def record() -> tuple[Carry, Any]:
                found = measure(moving, members, data)
                noticed = moving
                if self.stopping is not None:
                    notice = jax.vmap(self.stopping.noticed, in_axes=(0, 0, None))
                    noticed = notice(moving, found, step + count)
                    found |= _stopping_rows(noticed)
                return noticed, jax.tree.map(
                    lambda row, value: row.at[slot].set(value), rows, found
                )

            moving, rows = jax.lax.cond(recorded[index], record, lambda: (moving, rows))
            return moving, step + count, slot + recorded[index], rows

        shapes = jax.eval_shape(measure, carry, members, data)
        if self.stopping is not None:
            one = {
                name: jax.ShapeDtypeStruct(it.shape[1:], it.dtype) for name, it in shapes.items()
            }
            self.stopping.require(one)
            shapes |= _stopping_rows(carry)
        row = sum(math.prod(shape.shape) * shape.dtype.itemsize for shape in shapes.values())
        slots = max(1, min(counts.shape[0], ROWS // row))
        rows = jax.tree.map(lambda shape: jnp.zeros((slots, *shape.shape), shape.dtype), shapes)
        start = (carry, first, jnp.zeros_like(first), rows)
        moved, _, _, rows = jax.lax.fori_loop(0, pieces, piece, start)
        return moved, rows

    def advance(
        self, carry: Carry, first: int, counts: Sequence[int], recorded: Sequence[bool]
    ) -> tuple[Carry, dict[str, Array]]:
        """Move every member piece by piece, and measure the probes after each recorded piece.

        One dispatch for up to `PIECES` pieces, of which `slots` may be recorded; lengths are
        arguments of the compiled program, so other lengths do not recompile it. The measurements
        come with dims slot (the first slots are filled, in order), member, then the probe's own.
        """
        pieces = len(counts)
        if not 0 < pieces <= PIECES or len(recorded) != pieces:
            raise ValueError(f"between 1 and {PIECES} pieces with a flag each, got {pieces}")
        if sum(recorded) > self.slots:
            raise ValueError(f"at most {self.slots} recorded pieces, got {sum(recorded)}")
        padding = PIECES - pieces
        return self.programs["advance"](
            carry,
            self.placed,
            self.data,
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
        return self.programs["advance"].shapes[1]["loss"].shape[0]

    def steps(self, carry: Carry, first: int, count: int) -> Carry:
        """Move every member by some steps, without measuring."""
        return self.advance(carry, first, [count], [False])[0]

    # -- measuring ---------------------------------------------------------------------------------

    @property
    def _chunk(self) -> int | None:
        """Examples that are evaluated at once; None: all, as full-batch training does anyway."""
        if isinstance(self.batches, FullBatch):
            return None
        if self.record.chunk or not self.is_corpus:
            return self.record.chunk
        per_example = (
            math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(self.data_shapes.train)
        )
        return max(1, min(CHUNK, POSITIONS // max(per_example)))

    def _measured_train(self, train: Any) -> Any:
        """The training examples on which loss and probes are measured."""
        wanted = self.record.sample
        if wanted is None or isinstance(self.batches, FullBatch) or wanted >= train.size:
            return train
        return evenly(train, wanted)

    def _measured(
        self, carry: Carry, member: Members, data: Splits, *, probes: Sequence[AbstractProbe]
    ) -> dict[str, Array]:
        task, _, optimiser = self._filled(member)
        model = self.whole(carry.learned, carry.still)
        moment = Moment(
            task,
            model,
            self._measured_train(data.train),
            data.test,
            self.objective,
            partial(self._initial, member) if self.origin is None else lambda: self.origin,
            data.validation,
            self._chunk,
            None if self.origin is not None else optimiser,
            None if self.origin is not None else carry.optimiser_state,
        )
        measured: dict[str, Array] = {"loss": moment.loss, "diverged_at": carry.diverged}
        if carry.elapsed is not None:
            measured["time"] = carry.elapsed
        if self._curvature is not None:
            measured["step_unit"] = carry.unit
        for probe in probes:
            measured |= checked(probe, moment, self.task)
        return measured

    def measuring(self) -> Callable[[Any], dict[str, Array]]:
        """A function that measures the probes on any model of this structure, as the one member."""
        carry = self._start(self.placed)
        measured = partial(self._measured, probes=self.record.probes)
        program = Program(self._over_members(measured, 2, data=True), carry, self.placed, self.data)

        def measure(model: Any) -> dict[str, Array]:
            learned, still = eqx.partition(model, self._learning(model))
            one = (learned, eqx.filter(still, eqx.is_array))
            parts = self.put(jax.tree.map(lambda leaf: np.asarray(leaf)[None], one))
            moved = eqx.tree_at(lambda tree: (tree.learned, tree.still), carry, parts)
            return program(moved, self.placed, self.data)

        return measure

    @property
    def has_ends(self) -> bool:
        """Whether the two ends are measured apart: what only they measure, or the best weights."""
        return bool(self.record.ends) or self.stopping is not None

    def snapshot(self, carry: Carry) -> dict[str, Array]:
        """Every probe of the two ends, for every member; loss and divergence are among them."""
        return self.programs["snapshot"](carry, self.placed, self.data)


def _stopping_rows(carry: Carry) -> dict[str, Array]:
    """What early stopping records."""
    assert carry.stopping is not None
    return {"best_step": carry.stopping.best_step, "stopped_at": carry.stopping.stopped}


def at_best(carry: Carry) -> Carry:
    """The state with the weights of the best step, if training stops early."""
    if carry.stopping is None:
        return carry
    return eqx.tree_at(lambda tree: tree.learned, carry, carry.stopping.learned)
