"""What a recipe computes: the functions of one member that the engine runs."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from saccade.contracts.chunks import evenly
from saccade.contracts.model import AbstractModelConfig
from saccade.contracts.probe import AbstractProbe, Moment
from saccade.contracts.task import AbstractCorpus, AbstractTask, Splits
from saccade.errors import ConfigError
from saccade.settings import Swept, map_swept
from saccade.train.batches import AbstractBatches, Buckets, Fresh, FullBatch, Minibatch, buckets_of
from saccade.train.checks import checked, naming, require_examples, require_number, require_splits
from saccade.train.dynamics import Dynamics, Row
from saccade.train.loss import Loss, own_loss, takes_key, with_key
from saccade.train.members import (
    NOT_DIVERGED,
    Members,
    TrainState,
    is_inexact,
    purpose_key,
    trainable,
    where,
)
from saccade.train.optimiser import AbstractOptimiser, AbstractStepper, GradientFlow
from saccade.train.paths import selected
from saccade.train.program import tracing
from saccade.train.recording import Recording
from saccade.train.stopping import EarlyStopping

__all__: list[str] = []

CHUNK, POSITIONS = 512, 2**16
"""Examples of a corpus that are evaluated at once, and their positions, at most, unless the
recipe says otherwise."""


@dataclasses.dataclass(frozen=True, eq=False)
class RecipeFunctions:
    """The functions of one member of a recipe.

    Task, model and optimiser may hold sweeps: their values are arguments of the functions, so that
    other values do not recompile a program.
    """

    task: AbstractTask
    model: AbstractModelConfig
    optimiser: AbstractOptimiser
    first_member: Members
    """A member, by which shapes are known; with its values of the sweeps."""
    recording: Recording = Recording()
    recorded: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(1, np.int64))
    """The recorded steps, between which a flow is integrated."""
    batches: AbstractBatches = FullBatch()
    loss: Loss = own_loss
    frozen: tuple[str, ...] = ()
    stopping: EarlyStopping | None = None
    origin: Any = None
    """The model from which displacements count, if it is not what the members begin with."""

    @property
    def dynamics(self) -> Dynamics:
        has_ends = bool(self.recording.ends) or self.stopping is not None
        return Dynamics(
            start=self.start,
            adjust=None if self._curvature is None else self._in_units_of_curvature,
            step=self._flow if self._flows else self._step,
            observe=partial(self._observed, probes=self.recording.probes),
            observe_ends=self._observed_at_ends if has_ends else None,
            notice=None if self.stopping is None else self._noticed,
            best=at_best,
            result=lambda state: (state.learned, state.still),
            jumps=self._flows,
            failing=self._end_of_flow if self._flows else lambda at: at,
        )

    def _end_of_flow(self, at: Int[Array, ""]) -> Int[Array, ""]:
        """The recorded step to which a step of the flow leads."""
        return jnp.asarray(self.recorded)[at + 1]

    @property
    def _flows(self) -> bool:
        return isinstance(self.optimiser, GradientFlow)

    # -- parts -------------------------------------------------------------------------------------

    def _filled(self, member: Members) -> tuple[Any, Any, Any]:
        """Task, model config and optimiser of one member: sweeps replaced by that member's
        values.
        """
        values = iter(member.values)
        return map_swept((self.task, self.model, self.optimiser), lambda _: next(values))

    def initial(self, member: Members) -> Any:
        """The model with which a member begins."""
        task, model, _ = self._filled(member)
        name = model.title
        with naming(f"model {name}", f"be built for {type(task).__name__}", model, task):
            drawn = model.build(task, member.key("init"))
        if not isinstance(drawn, eqx.Module):
            got = type(drawn).__name__
            raise ConfigError(f"model {name}: built a {got}, allowed: an Equinox module")
        if member.start is None:
            return drawn
        given = jax.tree.leaves(member.start)
        arrays, rest = eqx.partition(drawn, eqx.is_inexact_array)
        return eqx.combine(jax.tree.unflatten(jax.tree.structure(arrays), given), rest)

    @cached_property
    def skeleton(self) -> Any:
        """The parts of a model that are not arrays; the same for all members."""
        with tracing():
            shapes = eqx.filter_eval_shape(self.initial, self.first_member)
        return eqx.filter(shapes, lambda leaf: not isinstance(leaf, jax.ShapeDtypeStruct))

    def whole(self, learned: PyTree, still: PyTree) -> Any:
        """A model from its arrays."""
        return eqx.combine(learned, still, self.skeleton)

    def parted(self, model: Any) -> tuple[PyTree, PyTree]:
        """The arrays of a model that learn, and the others."""
        with naming(f"model {type(model).__name__}", "be split by `trainable`", model):
            learned, still = eqx.partition(model, self._learning(model))
        return learned, eqx.filter(still, eqx.is_array)

    def _learning(self, model: Any) -> PyTree:
        """A tree of booleans: which leaves of a model learn."""
        learning = trainable(model)
        if not self.frozen:
            return learning
        kept = selected(model, self.frozen, "frozen")
        # One boolean may stand for a part.
        return jax.tree.map(
            lambda learns, part: jax.tree.map(lambda frozen: learns and not frozen, part),
            learning,
            kept,
        )

    def require_fitting_start(self) -> None:
        """Refuse weights of another training that this model has no place for."""
        start = self.first_member.start
        if start is None:
            return
        alone = dataclasses.replace(self.first_member, start=None)
        shapes = eqx.filter_eval_shape(self.initial, alone)
        wanted = [leaf.shape for leaf in jax.tree.leaves(eqx.filter(shapes, is_inexact))]
        got = [leaf.shape for leaf in start]
        if wanted != got:
            raise ConfigError(
                f"start: got a model with arrays {got}, allowed: one with the arrays of this one, "
                f"{wanted}"
            )

    # -- data --------------------------------------------------------------------------------------

    def draw(self, member: Members) -> Splits:
        """The examples of one member."""
        task, _, _ = self._filled(member)

        def drawn(purpose: str, size: int) -> Any:
            with naming(f"task {type(task).__name__}", "draw its examples", task):
                batch = task.sample(member.key(purpose), size)
            require_examples(task, batch, size)
            return self._relabelled(member, batch)

        with naming(f"task {type(task).__name__}", "draw its examples", task):
            sizes = (task.train_size, task.test_size, task.validation_size)
        validation = drawn("validation", sizes[2]) if sizes[2] else None
        return Splits(drawn("data", sizes[0]), drawn("evaluation", sizes[1]), validation)

    def _relabelled(self, member: Members, batch: Any) -> Any:
        """Data with the targets that the member's start sets, if it does."""
        if type(self.model).relabelled is AbstractModelConfig.relabelled:
            return batch
        task, model, _ = self._filled(member)
        return model.relabelled(task, self.initial(member), batch, member.key("label"))

    @cached_property
    def buckets(self) -> Buckets | None:
        """The length buckets of the training set, if minibatches are drawn by length."""
        if not (isinstance(self.batches, Minibatch) and self.batches.by_length):
            return None
        if not isinstance(self.task, AbstractCorpus):
            raise ConfigError(
                f"batches: got by_length with the task {type(self.task).__name__}, allowed: with a "
                "corpus, whose lengths are the same for all members"
            )
        train = require_splits(self.task)["train"]
        with naming(f"task {type(self.task).__name__}", "be drawn by length", train):
            return buckets_of(train.lengths, self.batches.size)

    # -- start -------------------------------------------------------------------------------------

    def start(self, member: Members) -> TrainState:
        """The state of a member at its start."""
        model = self.initial(member)
        learned, still = self.parted(model)
        shuffled = isinstance(self.batches, Minibatch)
        order = jnp.arange(self.task.train_size) if shuffled else None
        _, _, optimiser = self._filled(member)
        memory, elapsed = (), None
        if isinstance(optimiser, AbstractStepper):
            with naming(f"optimiser {type(optimiser).__name__}", "be initialised", optimiser):
                memory = optimiser.initial(learned)
            elapsed = None if optimiser.rate_of(memory) is None else jnp.zeros(())
        stopping = None if self.stopping is None else self.stopping.begun(learned)
        return TrainState(learned, still, memory, order, jnp.ones(()), stopping, elapsed)

    @property
    def _curvature(self) -> Any:
        return getattr(self.optimiser, "curvature", None)

    def _in_units_of_curvature(
        self, member: Members, state: TrainState, data: Splits
    ) -> TrainState:
        """The state of a member whose steps are divided by its curvature."""
        del member
        model = self.whole(state.learned, state.still)
        with naming("curvature", "be evaluated", model, data.train):
            curvature = self._curvature(model, data.train)
        require_number("curvature", curvature)
        return dataclasses.replace(state, unit=1 / curvature)

    # -- steps -------------------------------------------------------------------------------------

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

    def _step(
        self, member: Members, state: TrainState, data: Splits, at: Int[Array, ""]
    ) -> tuple[TrainState, Float[Array, ""]]:
        """One step of an optimiser."""
        loss, gradient, order = self._gradient(member, state, data, at)
        _, _, optimiser = self._filled(member)
        with naming(f"optimiser {type(optimiser).__name__}", "take a step", optimiser):
            updates, memory = optimiser.update(gradient, state.optimiser_state, state.learned, loss)
        if self._curvature is not None:
            updates = jax.tree.map(lambda update: state.unit * update, updates)
        elapsed = state.elapsed
        if elapsed is not None:
            elapsed = elapsed + optimiser.rate_of(memory)
        moved = dataclasses.replace(
            state,
            learned=eqx.apply_updates(state.learned, updates),
            optimiser_state=memory,
            order=order,
            elapsed=elapsed,
        )
        if state.stopping is None:
            return moved, loss
        going = state.stopping.stopped == NOT_DIVERGED
        rests = dataclasses.replace(state, order=order)
        return where(going, moved, rests), jnp.where(going, loss, 0)

    def _gradient(
        self, member: Members, state: TrainState, data: Splits, at: Int[Array, ""]
    ) -> tuple[Float[Array, ""], PyTree, Any]:
        """Loss and gradient of one step, and the order of the training set from then on."""
        key = None
        if takes_key(self.loss, self.skeleton):
            key = jax.random.fold_in(member.key("dropout"), at)

        def of(batch: Any) -> tuple[Float[Array, ""], PyTree]:
            def objective(learned: PyTree) -> Float[Array, ""]:
                return self.objective(self.whole(learned, state.still), batch, key)

            return jax.value_and_grad(objective)(state.learned)

        if self.buckets is None:
            batch, order = self._batch(member, state, data.train, at)
            return *of(batch), order
        return self._gradient_by_length(member, state, data, at, of)

    def _batch(
        self, member: Members, state: TrainState, train: Any, at: Int[Array, ""]
    ) -> tuple[Any, Any]:
        """The examples of one step, and the order of the training set from then on."""
        key = member.key("order")
        match self.batches:
            case Fresh(size):
                task, _, _ = self._filled(member)
                drawn = task.sample(jax.random.fold_in(key, at), size)
                return self._relabelled(member, drawn), None
            case Minibatch(size):
                total = self.task.train_size
                place = at % (total // size)
                epoch = jax.random.fold_in(key, at // (total // size))
                # `place` is the same for all members, so this stays a real branch under vmap.
                order = jax.lax.cond(
                    place == 0, lambda: jax.random.permutation(epoch, total), lambda: state.order
                )
                chosen = jax.lax.dynamic_slice_in_dim(order, place * size, size)
                return train.examples(chosen), order
            case _:
                return train, state.order

    def _gradient_by_length(
        self,
        member: Members,
        state: TrainState,
        data: Splits,
        at: Int[Array, ""],
        of: Callable[[Any], tuple[Float[Array, ""], PyTree]],
    ) -> tuple[Float[Array, ""], PyTree, Any]:
        """The same, for a batch of one length bucket. Bucket and place depend on the step alone, so
        that branches stay real ones under vmap.
        """
        buckets, ids = self.buckets, data.buckets
        assert buckets is not None
        assert ids is not None
        epoch, number = at // len(buckets.plan), at % len(buckets.plan)
        turn = jax.random.fold_in(purpose_key(0, "order"), epoch)
        bucket, place = jnp.asarray(buckets.plan)[
            jax.random.permutation(turn, len(buckets.plan))[number]
        ]
        keys = jax.random.split(jax.random.fold_in(member.key("order"), epoch), len(ids))
        order = jax.lax.cond(
            number == 0,
            lambda: jnp.concatenate([*map(jax.random.permutation, keys, ids)]).astype(int),
            lambda: state.order,
        )

        def branch(first: int, count: int, longest: int) -> Callable[[], Any]:
            def within() -> Any:
                places = first + (place + jnp.arange(buckets.size)) % count
                return of(data.train.examples(order[places]).shortened(longest))

            return within

        sizes = map(len, buckets.members)
        branches = [*map(branch, buckets.starts, sizes, buckets.longest)]
        return *jax.lax.switch(bucket, branches), order

    def _flow(
        self, member: Members, state: TrainState, data: Splits, at: Int[Array, ""]
    ) -> tuple[TrainState, Float[Array, ""]]:
        """The gradient flow from one recorded step to the next: for the engine, one step."""
        import diffrax  # here, because it takes most of a second to import and few runs need it

        _, _, flow = self._filled(member)

        def field(time: Any, learned: PyTree, args: Any) -> PyTree:
            del time, args
            gradient = jax.grad(
                lambda moving: self.objective(self.whole(moving, state.still), data.train)
            )(learned)
            return jax.tree.map(jnp.negative, gradient)

        recorded = jnp.asarray(self.recorded)
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),  # pyright: ignore[reportArgumentType]
            diffrax.Tsit5(),
            t0=recorded[at] * flow.rate,
            t1=recorded[at + 1] * flow.rate,
            dt0=None,
            y0=state.learned,
            stepsize_controller=diffrax.PIDController(
                rtol=flow.relative_tolerance, atol=flow.absolute_tolerance
            ),
            max_steps=None,
            adjoint=diffrax.ForwardMode(),
            throw=False,
        )
        end = jax.tree.map(lambda leaf: leaf[-1], solution.ys)
        loss = self.objective(self.whole(end, state.still), data.train)
        solved = solution.result == diffrax.RESULTS.successful
        moved = dataclasses.replace(state, learned=end)
        if state.stopping is None:
            return moved, jnp.where(solved, loss, jnp.nan)
        going = state.stopping.stopped == NOT_DIVERGED
        return where(going, moved, state), jnp.where(going, jnp.where(solved, loss, jnp.nan), 0)

    # -- observing ---------------------------------------------------------------------------------

    def _noticed(
        self, state: TrainState, observed: Row, at: Int[Array, ""]
    ) -> tuple[TrainState, Row]:
        """What early stopping remembers after a recorded step."""
        assert self.stopping is not None
        step = jnp.asarray(self.recorded)[at] if self._flows else at
        return self.stopping.noticed(state, observed, step)

    def _observed_at_ends(self, member: Members, state: TrainState, data: Splits) -> Row:
        """The probes of the two ends."""
        return self._observed(member, state, data, probes=self.recording.ends)

    def _observed(
        self, member: Members, state: TrainState, data: Splits, *, probes: Sequence[AbstractProbe]
    ) -> Row:
        task, _, optimiser = self._filled(member)
        trained = self.origin is None
        moment = Moment(
            task,
            self.whole(state.learned, state.still),
            self._measured_train(data.train),
            data.test,
            self.objective,
            partial(self.initial, member) if trained else lambda: self.origin,
            data.validation,
            self._chunk(data.train),
            optimiser if trained else None,
            state.optimiser_state if trained else None,
        )
        observed: Row = {"loss": moment.loss}
        if state.elapsed is not None:
            observed["time"] = state.elapsed
        if self._curvature is not None:
            observed["step_unit"] = state.unit
        for probe in probes:
            observed |= checked(probe, moment, self.task)
        return observed

    def _chunk(self, train: Any) -> int | None:
        """Examples that are evaluated at once; None: all, as full-batch training does anyway."""
        if isinstance(self.batches, FullBatch):
            return None
        if self.recording.chunk or not isinstance(self.task, AbstractCorpus):
            return self.recording.chunk
        per_example = (math.prod(leaf.shape[1:]) for leaf in jax.tree.leaves(train))
        return max(1, min(CHUNK, POSITIONS // max(per_example)))

    def _measured_train(self, train: Any) -> Any:
        """The training examples on which loss and probes are measured."""
        wanted = self.recording.sample
        if wanted is None or isinstance(self.batches, FullBatch) or wanted >= train.size:
            return train
        return evenly(train, wanted)


def with_values(parts: tuple[Any, Any, Any], members: Members) -> Members:
    """Members with their values of the sweeps, in the order of the swept fields of task, model and
    optimiser.
    """
    swept: list[Swept] = []
    map_swept(parts, swept.append)
    values = tuple(
        np.asarray(jnp.asarray(field.values))[members.choice[field.name]] for field in swept
    )
    return dataclasses.replace(members, values=values)


def at_best(state: TrainState) -> TrainState:
    """The states with the weights of the best step, if training stops early."""
    if state.stopping is None:
        return state
    return eqx.tree_at(lambda tree: tree.learned, state, state.stopping.learned)
