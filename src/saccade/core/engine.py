"""The compiled heart of training: members side by side, one loop, one dispatch for many recorded
steps.

An ensemble is a list of members (seed, swept values). Everything here is a pure function of the
members' keys and values; the member axis is mapped (`vmap`) and split over the local devices
(`shard_map`). Nothing crosses it, so a member's numbers do not depend on its neighbours (they may
change in the last bit with the number of members a device has, because XLA then compiles another
program).
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache, cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, PyTree

from saccade.core.errors import ConfigError
from saccade.core.interfaces import AbstractModelConfig, AbstractProbe, AbstractTask, Batch, Moment
from saccade.core.optimiser import AbstractOptimiser, AbstractStepper, GradientFlow
from saccade.core.sweep import Swept, map_swept

PURPOSES = ("init", "data", "order", "evaluation", "label")
"""Each has its own key, so that changing one never moves another."""

NOT_DIVERGED = -1

PIECES = 32
"""Recorded steps in one dispatch, at the most."""


def purpose_key(seed: Any, purpose: str) -> Array:
    """The key that a seed has for one purpose."""
    return jax.random.fold_in(jax.random.key(seed), PURPOSES.index(purpose))


def initial_model(task: Any, model: Any, seed: Any) -> Any:
    """The model with which the member of that seed starts."""
    return model.build(task, purpose_key(seed, "init"))


def training_set(task: Any, seed: Any) -> Any:
    """The examples on which the member of that seed trains."""
    return task.sample(purpose_key(seed, "data"), task.train_size)


Loss = Callable[[Any, Any], Float[Array, ""]]


def cross_entropy(model: Any, batch: Batch) -> Float[Array, ""]:
    """Mean cross-entropy of the labels."""
    logits = model(batch).logits
    correct = batch.labels[:, None] == jnp.arange(logits.shape[-1])
    # A masked sum rather than a gather: the gradient is then a masked sum too, and not a scatter.
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * correct, axis=-1))


class Members(eqx.Module):
    """Who is trained: a seed and an index into each sweep, for every member."""

    seed: Int[Array, " member"]
    choice: dict[str, Int[Array, " member"]]
    start: PyTree = None
    """None, or the numbers of the models with which the members start instead of those that
    their seeds draw.
    """
    values: tuple[Float[Array, " member"], ...] = ()
    """What the swept fields of task, model and optimiser get, in the order of these fields;
    filled in by the engine.
    """


class Carry(eqx.Module):
    """What changes from step to step, for every member."""

    learned: PyTree
    """The trained arrays of the model."""
    still: PyTree
    """The arrays that are part of the model but never move."""
    optimiser_state: PyTree
    order: Int[Array, " example"] | None
    """Order of the examples in this epoch (minibatches only)."""
    diverged: Int[Array, ""]
    """Step at which the loss stopped being finite, or -1."""
    unit: Float[Array, ""]
    """What this member's steps are multiplied by: 1, or 1 / curvature at its start (see
    `AbstractStepper.curvature`).
    """


@dataclasses.dataclass(frozen=True, eq=False)
class Engine:
    """The compiled functions of one training call."""

    task: AbstractTask
    model: AbstractModelConfig
    optimiser: AbstractOptimiser
    probes: Sequence[AbstractProbe]
    snapshots: Sequence[AbstractProbe]
    loss: Loss
    batch_size: int | None
    members: Members
    devices: Sequence[Any]
    stream: bool = False
    """Draw every batch anew from the task, rather than from the training set."""

    # -- members -----------------------------------------------------------------------------------

    @cached_property
    def _mesh(self) -> Mesh:
        return Mesh(np.asarray(self.devices), ("member",))

    @cached_property
    def count(self) -> int:
        return int(self.members.seed.shape[0])

    @cached_property
    def _padded(self) -> Members:
        """The members with their values of the sweeps, the last one repeated until they divide
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
    def _placed(self) -> Members:
        """The padded members, on the devices."""
        return self.put(self._padded)

    def _over_members(
        self,
        function: Callable[..., Any],
        mapped: int,
        shared: int = 0,
        donate: tuple[int, ...] = (),
        once: bool = False,
    ):
        """Compile a one-member function for all members: `mapped` arguments split, `shared` ones
        the same for all.

        A function that runs `once` is compiled in a hurry: random numbers compile slowly and run
        fast enough.
        """
        spread, same = PartitionSpec("member"), PartitionSpec()
        vectorised = jax.vmap(function, in_axes=(0,) * mapped + (None,) * shared)
        split = jax.shard_map(
            vectorised,
            mesh=self._mesh,
            in_specs=(spread,) * mapped + (same,) * shared,
            out_specs=spread,
            check_vma=False,
        )
        options = _compiler_options(once) if self.devices[0].platform == "cpu" else None
        return jax.jit(split, donate_argnums=donate, compiler_options=options)  # pyright: ignore[reportArgumentType]

    def put(self, tree: PyTree) -> PyTree:
        """Place arrays with a leading member dim on the devices."""
        sharding = NamedSharding(self._mesh, PartitionSpec("member"))
        return jax.tree.map(lambda leaf: jax.device_put(leaf, sharding), tree)

    def fetch(self, tree: PyTree) -> PyTree:
        """Bring arrays to the host, without the padding members."""
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: self.count], tree)

    def _filled(self, member: Members) -> tuple[Any, Any, Any]:
        """Task, model config and optimiser of one member: sweeps replaced by that member's values.

        Those are arguments of the compiled program, and no part of it: other values of a sweep need
        no other program.
        """
        values = iter(member.values)
        return map_swept((self.task, self.model, self.optimiser), lambda _: next(values))

    # -- start -------------------------------------------------------------------------------------

    @cached_property
    def data(self) -> tuple[Any, Any]:
        """Training and test sets of every member, on the devices."""
        if (
            self.batch_size is not None
            and not self.stream
            and self.batch_size > self.task.train_size
        ):
            raise ConfigError(
                f"batch_size: got {self.batch_size}, allowed: at most the {self.task.train_size}"
                " training examples"
            )

        def draw(member: Members) -> tuple[Any, Any]:
            task, _, _ = self._filled(member)
            test = task.sample(purpose_key(member.seed, "evaluation"), task.test_size)
            return self._relabelled(member, training_set(task, member.seed)), self._relabelled(
                member, test
            )

        train, test = self._over_members(draw, 1, once=True)(self._placed)
        if self.batch_size is None:
            train, test = (
                self.put(self.model.prepare(self.task, jax.tree.map(np.asarray, part)))
                for part in (train, test)
            )
        return train, test

    def _relabelled(self, member: Members, batch: Any) -> Any:
        """Data with the targets that the member's start sets, if it does."""
        if type(self.model).relabelled is AbstractModelConfig.relabelled:
            return batch
        task, model, _ = self._filled(member)
        return model.relabelled(
            task, self._initial(member), batch, purpose_key(member.seed, "label")
        )

    def _initial(self, member: Members) -> Any:
        task, model, _ = self._filled(member)
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
        arrays = jax.tree.leaves(
            eqx.filter(eqx.filter_eval_shape(drawn._initial, one), _is_inexact)
        )
        wanted, got = (
            [leaf.shape for leaf in arrays],
            [leaf.shape[1:] for leaf in self.members.start],
        )
        if wanted != got:
            raise ConfigError(
                f"start: got a model with arrays {got}, allowed: one with the arrays of this one,"
                f" {wanted}"
            )

    def _start(self, member: Members) -> Carry:
        model = self._initial(member)
        learned, still = eqx.partition(model, model.trainable())
        still = eqx.filter(still, eqx.is_array)
        order = None if self.batch_size is None or self.stream else jnp.arange(self.task.train_size)
        state = (
            self._transformation(member).init(learned)
            if isinstance(self.optimiser, AbstractStepper)
            else ()
        )
        return Carry(
            learned, still, state, order, jnp.asarray(NOT_DIVERGED, jnp.int32), jnp.ones(())
        )

    def start(self) -> Carry:
        carry = self._over_members(self._start, 1, once=True)(self._placed)
        curvature = (
            self.optimiser.curvature if isinstance(self.optimiser, AbstractStepper) else None
        )
        if curvature is None:
            return carry

        def unit(moving: Carry, train: Any) -> Float[Array, ""]:
            return 1 / curvature(self._whole(moving.learned, moving.still), train)

        return eqx.tree_at(
            lambda tree: tree.unit,
            carry,
            self._over_members(unit, 2, once=True)(carry, self.data[0]),
        )

    def shapes(self) -> Carry:
        """Shapes and dtypes of the carry, without computing it: what a saved state must fit."""
        return jax.eval_shape(jax.vmap(self._start), self._padded)

    @cached_property
    def _skeleton(self) -> Any:
        """The parts of a model that are not arrays; the same for all members."""
        return eqx.filter(
            eqx.filter_eval_shape(self._initial, jax.tree.map(lambda leaf: leaf[0], self._padded)),
            lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct),
        )

    def _whole(self, learned: PyTree, still: PyTree) -> Any:
        return eqx.combine(learned, still, self._skeleton)

    # -- moving ------------------------------------------------------------------------------------

    def _transformation(self, member: Members):
        _, _, optimiser = self._filled(member)
        return optimiser.transformation()

    def objective(self, model: Any, batch: Any) -> Float[Array, ""]:
        """What training makes small: the loss, and what the model adds to it."""
        return self.loss(model, batch) + model.penalty()

    def _batch(
        self, carry: Carry, member: Members, train: Any, step: Int[Array, ""]
    ) -> tuple[Any, Any]:
        """The examples of one step, and the order of the training set from then on."""
        if self.batch_size is None:
            return train, carry.order
        key = purpose_key(member.seed, "order")
        if self.stream:
            task, _, _ = self._filled(member)
            drawn = task.sample(jax.random.fold_in(key, step), self.batch_size)
            return self._relabelled(member, drawn), None
        size = self.task.train_size
        batches = size // self.batch_size
        place = step % batches
        epoch_key = jax.random.fold_in(key, step // batches)
        # `place` is the same for all members, so this stays a real branch under vmap.
        order = jax.lax.cond(
            place == 0, lambda: jax.random.permutation(epoch_key, size), lambda: carry.order
        )
        return (
            train.examples(
                jax.lax.dynamic_slice_in_dim(order, place * self.batch_size, self.batch_size)
            ),
            order,
        )

    def _step(self, carry: Carry, member: Members, train: Any, step: Int[Array, ""]) -> Carry:
        batch, order = self._batch(carry, member, train, step)

        def objective(learned: PyTree) -> Float[Array, ""]:
            return self.objective(self._whole(learned, carry.still), batch)

        loss, gradient = jax.value_and_grad(objective)(carry.learned)
        updates, state = self._transformation(member).update(
            gradient, carry.optimiser_state, carry.learned
        )
        if self.optimiser.curvature is not None:  # pyright: ignore[reportAttributeAccessIssue] (only steppers step)
            updates = jax.tree.map(lambda update: carry.unit * update, updates)
        alive = (carry.diverged == NOT_DIVERGED) & jnp.isfinite(loss)
        diverged = jnp.where(
            alive | (carry.diverged != NOT_DIVERGED), carry.diverged, step.astype(jnp.int32)
        )
        return Carry(
            _chosen(alive, eqx.apply_updates(carry.learned, updates), carry.learned),
            carry.still,
            _chosen(alive, state, carry.optimiser_state),
            order,
            diverged,
            carry.unit,
        )

    def _flow(
        self,
        carry: Carry,
        member: Members,
        train: Any,
        first: Int[Array, ""],
        steps: Int[Array, ""],
    ) -> Carry:
        import diffrax  # here, because it costs most of a second to import and few runs need it

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
        alive = (carry.diverged == NOT_DIVERGED) & finished
        diverged = jnp.where(
            alive | (carry.diverged != NOT_DIVERGED),
            carry.diverged,
            (first + steps).astype(jnp.int32),
        )
        return Carry(
            _chosen(alive, end, carry.learned),
            carry.still,
            carry.optimiser_state,
            carry.order,
            diverged,
            carry.unit,
        )

    @cached_property
    def _advance(self):
        def advance(
            carry: Carry,
            member: Members,
            train: Any,
            test: Any,
            first: Array,
            counts: Array,
            recorded: Array,
            pieces: Array,
        ) -> tuple[Carry, dict[str, Array]]:
            def measure(moving: Carry) -> dict[str, Array]:
                return self._measured(moving, member, train, test, probes=self.probes)

            def piece(
                index: Array, state: tuple[Carry, Array, Array, Any]
            ) -> tuple[Carry, Array, Array, Any]:
                moving, step, slot, rows = state
                count = counts[index]
                if isinstance(self.optimiser, GradientFlow):
                    moving = jax.lax.cond(
                        count > 0,
                        lambda: self._flow(moving, member, train, step, count),
                        lambda: moving,
                    )
                else:
                    move = lambda at, going: self._step(going, member, train, at)  # noqa: E731
                    moving = jax.lax.fori_loop(step, step + count, move, moving)
                # Counts and flags are the same for all members, so this stays a real branch under
                # vmap.
                rows = jax.lax.cond(
                    recorded[index],
                    lambda: jax.tree.map(
                        lambda row, value: row.at[slot].set(value), rows, measure(moving)
                    ),
                    lambda: rows,
                )
                return moving, step + count, slot + recorded[index], rows

            shapes = jax.eval_shape(measure, carry)
            rows = jax.tree.map(
                lambda shape: jnp.zeros((counts.shape[0], *shape.shape), shape.dtype), shapes
            )
            start = (carry, first, jnp.zeros_like(first), rows)
            moved, _, _, rows = jax.lax.fori_loop(0, pieces, piece, start)
            return moved, rows

        return self._over_members(advance, 4, 4, donate=(0,))

    def advance(
        self, carry: Carry, first: int, counts: Sequence[int], recorded: Sequence[bool]
    ) -> tuple[Carry, dict[str, Array]]:
        """Move every member piece by piece, and measure the probes after each piece that is to be
        recorded.

        One dispatch for up to `PIECES` pieces; lengths are arguments of the compiled program, so
        they never recompile. The measurements come with dims member, slot (the first slots are
        filled, in order), then the probe's own.
        """
        pieces = len(counts)
        if not 0 < pieces <= PIECES or len(recorded) != pieces:
            raise ValueError(
                f"between 1 and {PIECES} pieces with a flag each, got {pieces} and {len(recorded)}"
            )
        padding = PIECES - pieces
        train, test = self.data
        return self._advance(
            carry,
            self._placed,
            train,
            test,
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
            measured |= probe(moment)
        return measured

    @cached_property
    def _snapshot(self):
        return self._over_members(partial(self._measured, probes=self.snapshots), 4, once=True)

    def snapshot(self, carry: Carry) -> dict[str, Array]:
        """Every snapshot probe of every member; 'loss' and 'diverged_at' are always among them."""
        train, test = self.data
        return self._snapshot(carry, self._placed, train, test)


@cache
def _compiler_options(once: bool) -> dict[str, Any]:
    """How programs for CPUs are compiled: fast, without training any slower; a program that runs
    once, as fast as possible.

    Measured: with less of LLVM compilation takes up to half less time and training no longer, with
    level 0 it would; without the fusion emitters it takes another third less, but training up to 40
    % longer.
    """
    if not once:
        return {"xla_backend_optimization_level": 1, "xla_llvm_disable_expensive_passes": True}
    options: dict[str, Any] = {"xla_backend_optimization_level": 0}
    unfused = {"xla_cpu_use_fusion_emitters": False}
    try:
        jax.jit(lambda: 0, compiler_options=unfused).lower().compile()
    except jax.errors.JaxRuntimeError:  # an option that other versions of XLA need not know
        return options
    return options | unfused


def _is_inexact(leaf: Any) -> bool:
    """Whether a leaf stands for an array of real numbers; shapes count, too."""
    return hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jnp.inexact)


def _chosen(condition: Bool[Array, ""], yes: PyTree, no: PyTree) -> PyTree:
    return jax.tree.map(partial(jnp.where, condition), yes, no)
