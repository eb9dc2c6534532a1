"""The compiled core of training: members side by side, one loop, one dispatch for many recorded
steps.

An ensemble is a list of members (seed, swept values). Everything here is a pure function of the
members' keys and values; the member axis is mapped (`vmap`) and split over the local devices
(`shard_map`). Nothing crosses it, so a member's numbers do not depend on its neighbours. (They may
change in the last bit with the number of members per device, because XLA then compiles another
program.)
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, Int, PyTree

from saccade.core.batches import AbstractBatches, Fresh, FullBatch, Minibatch
from saccade.core.checks import checked, naming, require_examples, require_number
from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractModelConfig, AbstractProbe, AbstractTask, Moment
from saccade.core.members import (
    NOT_DIVERGED,
    Carry,
    Members,
    initial_model,
    is_inexact,
    purpose_key,
    still_going,
    trainable,
    training_set,
    where,
)
from saccade.core.optimiser import AbstractOptimiser, AbstractStepper, GradientFlow
from saccade.core.program import Program, compiler_options, tracing
from saccade.core.schedule import Recording
from saccade.core.sweep import Swept, map_swept

PIECES = 32
"""Largest number of recorded steps in one dispatch."""

Loss = Callable[[Any, Any], Float[Array, ""]]


def own_loss(model: Any, batch: Any) -> Float[Array, ""]:
    """The model's own training loss."""
    return model.loss(batch)


@dataclasses.dataclass(frozen=True, eq=False)
class Engine:
    """The programs of one training call."""

    task: AbstractTask
    model: AbstractModelConfig
    optimiser: AbstractOptimiser
    members: Members
    devices: Sequence[Any]
    record: Recording = Recording()
    batches: AbstractBatches = FullBatch()
    loss: Loss = own_loss

    # -- members -----------------------------------------------------------------------------------

    @cached_property
    def _mesh(self) -> Mesh:
        return Mesh(np.asarray(self.devices), ("member",))

    @cached_property
    def _spread(self) -> NamedSharding:
        return NamedSharding(self._mesh, PartitionSpec("member"))

    @cached_property
    def count(self) -> int:
        return int(self.members.seed.shape[0])

    @cached_property
    def _padded(self) -> Members:
        """The members with their values of the sweeps; the last one is repeated until they divide
        evenly over the devices.
        """
        swept: list[Swept] = []
        map_swept((self.task, self.model, self.optimiser), swept.append)
        values = tuple(
            np.asarray(jnp.asarray(one.values))[self.members.choice[one.name]] for one in swept
        )
        members = dataclasses.replace(self.members, values=values)
        missing = -self.count % len(self.devices)
        return jax.tree.map(
            lambda leaf: np.concatenate([leaf, np.repeat(leaf[-1:], missing, 0)]), members
        )

    @cached_property
    def placed(self) -> Members:
        """The padded members, on the devices."""
        return self.put(self._padded)

    def _over_members(self, function: Callable[..., Any], mapped: int) -> Any:
        """A function of one member, that runs once, for all members."""
        return self._split(jax.vmap(function), mapped, once=True)

    def _split(
        self,
        function: Callable[..., Any],
        mapped: int,
        shared: int = 0,
        out: Any = PartitionSpec("member"),
        donate: tuple[int, ...] = (),
        once: bool = False,
    ) -> Any:
        """A function of the members of one device for all devices: `mapped` arguments are split,
        `shared` ones are the same for all. A function that runs `once` compiles quickly rather
        than to run quickly.
        """
        split = jax.shard_map(
            function,
            mesh=self._mesh,
            in_specs=(PartitionSpec("member"),) * mapped + (PartitionSpec(),) * shared,
            out_specs=out,
            check_vma=False,
        )
        options = compiler_options(once) if self.devices[0].platform == "cpu" else None
        return jax.jit(split, donate_argnums=donate, compiler_options=options)  # pyright: ignore[reportArgumentType]

    def put(self, tree: PyTree) -> PyTree:
        """Place arrays with a leading member dim on the devices."""
        return jax.tree.map(lambda leaf: jax.device_put(leaf, self._spread), tree)

    def fetch(self, tree: PyTree, axis: int = 0) -> PyTree:
        """Bring arrays to the host, without the padding members."""
        kept = (slice(None),) * axis + (slice(self.count),)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[kept], tree)

    def _filled(self, member: Members) -> tuple[Any, Any, Any]:
        """Task, model config and optimiser of one member: sweeps replaced by that member's values.

        They are arguments of the compiled program: other values of a sweep do not recompile it.
        """
        values = iter(member.values)
        return map_swept((self.task, self.model, self.optimiser), lambda _: next(values))

    @cached_property
    def programs(self) -> dict[str, Program]:
        """Everything that shapes the numbers, lowered but not yet compiled."""
        carry, data = self.shapes, self.data_shapes
        programs = {"data": self._draw, "start": self._start}
        if self._curvature is not None:
            programs["unit"] = self._unit
        at = jnp.asarray(0)
        pieces = (at, jnp.zeros(PIECES, at.dtype), jnp.zeros(PIECES, at.dtype), at)
        out = (PartitionSpec("member"), PartitionSpec(None, "member"))
        advance = self._split(self._advance, 4, 4, out, donate=(0,))
        programs["advance"] = Program(advance, carry, self.placed, *data, *pieces)
        if self.record.ends:
            snapshot = partial(self._measured, probes=self.record.ends)
            jitted = self._over_members(snapshot, 4)
            programs["snapshot"] = Program(jitted, carry, self.placed, *data)
        return programs

    def _shapes_of(self, program: Program) -> Any:
        return jax.tree.map(
            lambda info: jax.ShapeDtypeStruct(info.shape, info.dtype, sharding=self._spread),
            program.shapes,
        )

    # -- data and start ----------------------------------------------------------------------------

    @cached_property
    def _draw(self) -> Program:
        def draw(member: Members) -> tuple[Any, Any]:
            task, _, _ = self._filled(member)
            with naming(f"task {type(task).__name__}", "draw its examples", task):
                train = training_set(task, member.seed)
                test = task.sample(purpose_key(member.seed, "evaluation"), task.test_size)
            require_examples(task, train, task.train_size)
            require_examples(task, test, task.test_size)
            return self._relabelled(member, train), self._relabelled(member, test)

        return Program(self._over_members(draw, 1), self.placed)

    @cached_property
    def prepares(self) -> bool:
        """Whether the model indexes its data on the host, out of sight of any traced program."""
        prepare = type(self.model).prepare
        return isinstance(self.batches, FullBatch) and prepare is not AbstractModelConfig.prepare

    @cached_property
    def data(self) -> tuple[Any, Any]:
        """Training and test sets of every member, on the devices."""
        train, test = self._draw(self.placed)
        if not self.prepares:
            return train, test
        parts = (jax.tree.map(np.asarray, part) for part in (train, test))
        name = type(self.model).__name__
        with tracing(), naming(f"model {name}", "prepare its data", self.model, self.task):
            train, test = (self.model.prepare(self.task, part) for part in parts)
        return self.put(train), self.put(test)

    @property
    def data_shapes(self) -> tuple[Any, Any]:
        return self.data if self.prepares else self._shapes_of(self._draw)

    def _relabelled(self, member: Members, batch: Any) -> Any:
        """Data with the targets that the member's start sets, if it does."""
        if type(self.model).relabelled is AbstractModelConfig.relabelled:
            return batch
        task, model, _ = self._filled(member)
        key = purpose_key(member.seed, "label")
        return model.relabelled(task, self._initial(member), batch, key)

    def _initial(self, member: Members) -> Any:
        task, model, _ = self._filled(member)
        name = type(model).__name__
        with naming(f"model {name}", f"be built for {type(task).__name__}", model, task):
            drawn = initial_model(task, model, member.seed)
        if member.start is None:
            return drawn
        given = jax.tree.leaves(member.start)
        arrays, rest = eqx.partition(drawn, eqx.is_inexact_array)
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), given), rest)

    def require_fitting_start(self) -> None:
        """Refuse weights of another training that this model has no place for."""
        if self.members.start is None:
            return
        drawn = dataclasses.replace(self, members=dataclasses.replace(self.members, start=None))
        one = jax.tree.map(lambda leaf: leaf[0], drawn._padded)
        arrays = jax.tree.leaves(eqx.filter(eqx.filter_eval_shape(drawn._initial, one), is_inexact))
        wanted = [leaf.shape for leaf in arrays]
        got = [leaf.shape[1:] for leaf in self.members.start]
        if wanted != got:
            raise ConfigError(
                f"start: got a model with arrays {got}, allowed: one with the arrays of this one, "
                f"{wanted}"
            )

    @cached_property
    def _start(self) -> Program:
        def start(member: Members) -> Carry:
            model = self._initial(member)
            name = type(model).__name__
            with naming(f"model {name}", "be split by `trainable`", model):
                learned, still = eqx.partition(model, trainable(model))
            still = eqx.filter(still, eqx.is_array)
            shuffled = isinstance(self.batches, Minibatch)
            order = jnp.arange(self.task.train_size) if shuffled else None
            steps = isinstance(self.optimiser, AbstractStepper)
            state = self._transformation(member).init(learned) if steps else ()
            diverged = jnp.asarray(NOT_DIVERGED, jnp.int32)
            return Carry(learned, still, state, order, diverged, jnp.ones(()))

        return Program(self._over_members(start, 1), self.placed)

    @property
    def _curvature(self) -> Any:
        return getattr(self.optimiser, "curvature", None)

    @cached_property
    def _unit(self) -> Program:
        def unit(moving: Carry, train: Any) -> Float[Array, ""]:
            model = self._whole(moving.learned, moving.still)
            with naming("curvature", "be evaluated", model, train):
                curvature = self._curvature(model, train)
            require_number("curvature", curvature)
            return 1 / curvature

        jitted = self._over_members(unit, 2)
        return Program(jitted, self.shapes, self.data_shapes[0])

    def start(self) -> Carry:
        carry = self._start(self.placed)
        if self._curvature is None:
            return carry
        return eqx.tree_at(lambda tree: tree.unit, carry, self._unit(carry, self.data[0]))

    @cached_property
    def shapes(self) -> Carry:
        """Shapes and dtypes of the carry, without computing it: what a saved state must fit."""
        return self._shapes_of(self._start)

    @cached_property
    def _skeleton(self) -> Any:
        """The parts of a model that are not arrays; the same for all members."""
        one = jax.tree.map(lambda leaf: leaf[0], self._padded)
        with tracing():
            shapes = eqx.filter_eval_shape(self._initial, one)
        return eqx.filter(shapes, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))

    def _whole(self, learned: PyTree, still: PyTree) -> Any:
        return eqx.combine(learned, still, self._skeleton)

    def models(self, learned: PyTree, still: PyTree) -> Any:
        """The models of all members, without the padding."""
        parts = (jax.tree.map(lambda leaf: leaf[: self.count], part) for part in (learned, still))
        return self._whole(*parts)

    # -- moving ------------------------------------------------------------------------------------

    def _transformation(self, member: Members):
        _, _, optimiser = self._filled(member)
        return optimiser.transformation()

    def objective(self, model: Any, batch: Any) -> Float[Array, ""]:
        """What training minimises: the loss, and what the model adds to it."""
        with naming("loss", f"be evaluated for {type(self.model).__name__}", model, batch):
            loss = self.loss(model, batch)
            require_number("loss", loss)
        with naming(f"model {type(model).__name__}", "give its penalty", model):
            whole = loss + model.penalty()
        require_number("penalty", whole)
        return whole

    def _batch(
        self, carry: Carry, member: Members, train: Any, step: Int[Array, ""]
    ) -> tuple[Any, Any]:
        """The examples of one step, and the order of the training set from then on."""
        key = purpose_key(member.seed, "order")
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

    def _step(self, carry: Carry, member: Members, train: Any, step: Int[Array, ""]) -> Carry:
        batch, order = self._batch(carry, member, train, step)

        def objective(learned: PyTree) -> Float[Array, ""]:
            return self.objective(self._whole(learned, carry.still), batch)

        loss, gradient = jax.value_and_grad(objective)(carry.learned)
        updates, state = self._transformation(member).update(
            gradient, carry.optimiser_state, carry.learned
        )
        if self._curvature is not None:
            updates = jax.tree.map(lambda update: carry.unit * update, updates)
        alive, diverged = still_going(carry, jnp.isfinite(loss), step)
        learned = where(alive, eqx.apply_updates(carry.learned, updates), carry.learned)
        state = where(alive, state, carry.optimiser_state)
        return Carry(learned, carry.still, state, order, diverged, carry.unit)

    def _flow(
        self,
        carry: Carry,
        member: Members,
        train: Any,
        first: Int[Array, ""],
        steps: Int[Array, ""],
    ) -> Carry:
        import diffrax  # here, because it takes most of a second to import and few runs need it

        _, _, flow = self._filled(member)

        def field(time: Any, learned: PyTree, args: Any) -> PyTree:
            del time, args
            gradient = jax.grad(
                lambda moving: self.objective(self._whole(moving, carry.still), train)
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
        loss = self.objective(self._whole(end, carry.still), train)
        finished = jnp.isfinite(loss) & (solution.result == diffrax.RESULTS.successful)
        alive, diverged = still_going(carry, finished, first + steps)
        learned = where(alive, end, carry.learned)
        return dataclasses.replace(carry, learned=learned, diverged=diverged)

    def _advance(
        self,
        carry: Carry,
        members: Members,
        train: Any,
        test: Any,
        first: Array,
        counts: Array,
        recorded: Array,
        pieces: Array,
    ) -> tuple[Carry, dict[str, Array]]:
        """Move all members of one device. Members are mapped within the loops, so that JAX traces
        a step and the probes once.
        """
        step_all = jax.vmap(self._step, in_axes=(0, 0, 0, None))
        flow_all = jax.vmap(self._flow, in_axes=(0, 0, 0, None, None))
        measure = jax.jit(jax.vmap(partial(self._measured, probes=self.record.probes)))

        def piece(
            index: Array, state: tuple[Carry, Array, Array, Any]
        ) -> tuple[Carry, Array, Array, Any]:
            moving, step, slot, rows = state
            count = counts[index]
            if isinstance(self.optimiser, GradientFlow):
                moving = jax.lax.cond(
                    count > 0,
                    lambda: flow_all(moving, members, train, step, count),
                    lambda: moving,
                )
            else:
                move = lambda at, going: step_all(going, members, train, at)  # noqa: E731
                moving = jax.lax.fori_loop(step, step + count, move, moving)
            rows = jax.lax.cond(
                recorded[index],
                lambda: jax.tree.map(
                    lambda row, value: row.at[slot].set(value),
                    rows,
                    measure(moving, members, train, test),
                ),
                lambda: rows,
            )
            return moving, step + count, slot + recorded[index], rows

        shapes = jax.eval_shape(measure, carry, members, train, test)
        rows = jax.tree.map(
            lambda shape: jnp.zeros((counts.shape[0], *shape.shape), shape.dtype), shapes
        )
        start = (carry, first, jnp.zeros_like(first), rows)
        moved, _, _, rows = jax.lax.fori_loop(0, pieces, piece, start)
        return moved, rows

    def advance(
        self, carry: Carry, first: int, counts: Sequence[int], recorded: Sequence[bool]
    ) -> tuple[Carry, dict[str, Array]]:
        """Move every member piece by piece, and measure the probes after each recorded piece.

        One dispatch for up to `PIECES` pieces; lengths are arguments of the compiled program, so
        other lengths do not recompile it. The measurements come with dims slot (the first slots are
        filled, in order), member, then the probe's own.
        """
        pieces = len(counts)
        if not 0 < pieces <= PIECES or len(recorded) != pieces:
            raise ValueError(f"between 1 and {PIECES} pieces with a flag each, got {pieces}")
        padding = PIECES - pieces
        return self.programs["advance"](
            carry,
            self.placed,
            *self.data,
            jnp.asarray(first),
            jnp.asarray([*counts, *[0] * padding]),
            jnp.asarray([*recorded, *[False] * padding]).astype(int),
            jnp.asarray(pieces),
        )

    def steps(self, carry: Carry, first: int, count: int) -> Carry:
        """Move every member by some steps, without measuring."""
        return self.advance(carry, first, [count], [False])[0]

    # -- measuring ---------------------------------------------------------------------------------

    def _measured(
        self,
        carry: Carry,
        member: Members,
        train: Any,
        test: Any,
        *,
        probes: Sequence[AbstractProbe],
    ):
        task, _, _ = self._filled(member)
        model = self._whole(carry.learned, carry.still)
        moment = Moment(task, model, train, test, self.objective, partial(self._initial, member))
        measured: dict[str, Array] = {"loss": moment.loss, "diverged_at": carry.diverged}
        for probe in probes:
            measured |= checked(probe, moment, self.task)
        return measured

    def snapshot(self, carry: Carry) -> dict[str, Array]:
        """Every probe of the two ends, for every member; loss and divergence are among them."""
        return self.programs["snapshot"](carry, self.placed, *self.data)
