"""Members side by side on the devices, with their examples and their starts.

An ensemble is a list of members (seed, swept values). Everything here is a pure function of the
members' keys and values; the member axis is mapped (`vmap`) and split over the local devices
(`shard_map`). Nothing crosses it, so a member's numbers do not depend on its neighbours. (They may
change in the last bit with the number of members per device, because XLA then compiles another
program.)
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, Float, PyTree

from saccade.core.batches import AbstractBatches, Buckets, FullBatch, Minibatch, buckets_of
from saccade.core.checks import naming, require_examples, require_number, require_splits
from saccade.core.identity import content
from saccade.core.interfaces import AbstractCorpus, AbstractModelConfig, AbstractTask, Splits
from saccade.core.loss import Loss, own_loss
from saccade.core.members import NOT_DIVERGED, Carry, Members, is_inexact, trainable
from saccade.core.optimiser import AbstractOptimiser, AbstractStepper
from saccade.core.paths import selected
from saccade.core.program import Program, compiler_options, tracing
from saccade.core.recording import Recording
from saccade.core.stopping import EarlyStopping
from saccade.errors import ConfigError
from saccade.settings import Swept, map_swept

__all__: list[str] = []


@dataclasses.dataclass(frozen=True, eq=False)
class Ensemble:
    """What is trained: task, model and optimiser, for some members on some devices."""

    task: AbstractTask
    model: AbstractModelConfig
    optimiser: AbstractOptimiser
    members: Members
    devices: Sequence[Any]
    record: Recording = Recording()
    batches: AbstractBatches = FullBatch()
    loss: Loss = own_loss
    frozen: tuple[str, ...] = ()
    """Paths of the parts that do not learn."""
    stopping: EarlyStopping | None = None
    origin: Any = None
    """The model from which displacements count, if it is not what the members begin with."""
    places: int | None = None
    """Places for members, if there are more than members: the last one is repeated."""

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
        """The members with their values of the sweeps."""
        swept: list[Swept] = []
        map_swept((self.task, self.model, self.optimiser), swept.append)
        values = tuple(
            np.asarray(jnp.asarray(one.values))[self.members.choice[one.name]] for one in swept
        )
        return self.pad(dataclasses.replace(self.members, values=values))

    def pad(self, tree: PyTree) -> PyTree:
        """Arrays of the members, with the last one repeated until they divide evenly over the
        devices.
        """
        missing = max(self.places or 0, self.count) - self.count
        missing += -(self.count + missing) % len(self.devices)

        def padded(leaf: Any) -> Any:
            leaf = leaf[: self.count]
            if isinstance(leaf, jax.Array):  # keys are no NumPy arrays
                return jnp.concatenate([leaf, jnp.repeat(leaf[-1:], missing, 0)])
            return np.concatenate([leaf, np.repeat(leaf[-1:], missing, 0)])

        return jax.tree.map(padded, tree)

    @cached_property
    def placed(self) -> Members:
        """The padded members, on the devices."""
        return self.put(self._padded)

    def _over_members(self, function: Callable[..., Any], mapped: int, data: bool = False) -> Any:
        """A function of one member, that runs once, for all members."""
        axes = (0,) * mapped + (self._data_axis,) * data
        return self._split(jax.vmap(function, in_axes=axes), mapped, data=data, once=True)

    def _split(
        self,
        function: Callable[..., Any],
        mapped: int,
        shared: int = 0,
        out: Any = None,
        *,
        data: bool = False,
        donate: tuple[int, ...] = (),
        once: bool = False,
    ) -> Any:
        """A function of the members of one device for all devices: `mapped` arguments are split,
        then come the data, if they are an argument, and `shared` ones are the same for all. A
        function that runs `once` compiles quickly rather than to run quickly.
        """
        spread, same = PartitionSpec("member"), PartitionSpec()
        split = jax.shard_map(
            function,
            mesh=self._mesh,
            in_specs=(spread,) * mapped
            + (same if self.is_corpus else spread,) * data
            + (same,) * shared,
            out_specs=out or spread,
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

    def _shapes_of(self, program: Program) -> Any:
        return jax.tree.map(
            lambda info: jax.ShapeDtypeStruct(info.shape, info.dtype, sharding=self._spread),
            program.shapes,
        )

    # -- data and start ----------------------------------------------------------------------------

    @property
    def is_corpus(self) -> bool:
        """Whether all members share the examples."""
        return isinstance(self.task, AbstractCorpus)

    @property
    def _data_axis(self) -> int | None:
        return None if self.is_corpus else 0

    @cached_property
    def _draw(self) -> Program:
        def draw(member: Members) -> Splits:
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

        return Program(self._over_members(draw, 1), self.placed)

    @cached_property
    def prepares(self) -> bool:
        """Whether the model indexes its data on the host, out of sight of any traced program."""
        prepare = getattr(type(self.model), "prepare", None)
        return isinstance(self.batches, FullBatch) and prepare is not AbstractModelConfig.prepare

    @cached_property
    def from_host(self) -> bool:
        """Whether the data enter from the host, where no traced program says what they are."""
        return self.is_corpus or self.prepares

    @cached_property
    def data(self) -> Splits:
        """The examples of every member, or of all, on the devices."""
        if isinstance(self.task, AbstractCorpus):
            if type(self.model).relabelled is not AbstractModelConfig.relabelled:
                raise ConfigError(
                    f"model {self.model.title}: sets targets of its own for every member, allowed: "
                    "with generated examples, because all members share those of a corpus"
                )
            splits = require_splits(self.task)
            # `prepare` indexes the data of several members: here they are those of one.
            data = Splits(splits["train"], splits.get("test"), splits.get("validation"))
            if self.prepares:
                alone = jax.tree.map(lambda leaf: np.asarray(leaf)[None], data)
                data = jax.tree.map(lambda leaf: np.asarray(leaf)[0], self._prepared(alone))
            if self.buckets is not None:
                data = dataclasses.replace(data, buckets=self.buckets.members)
            return jax.device_put(data, NamedSharding(self._mesh, PartitionSpec()))
        data = self._draw(self.placed)
        if not self.prepares:
            return data
        return self.put(self._prepared(jax.tree.map(np.asarray, data)))

    def _prepared(self, data: Splits) -> Splits:
        name = type(self.model).__name__
        with tracing(), naming(f"model {name}", "prepare its data", self.model, self.task):
            parts = [
                part if part is None else self.model.prepare(self.task, part)
                for part in (data.train, data.test, data.validation)
            ]
        return Splits(*parts)

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

    @property
    def data_shapes(self) -> Splits:
        return self.data if self.from_host else self._shapes_of(self._draw)

    def _relabelled(self, member: Members, batch: Any) -> Any:
        """Data with the targets that the member's start sets, if it does."""
        if type(self.model).relabelled is AbstractModelConfig.relabelled:
            return batch
        task, model, _ = self._filled(member)
        return model.relabelled(task, self._initial(member), batch, member.key("label"))

    def _initial(self, member: Members) -> Any:
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

    def require_fitting_state(self, after: Carry | None) -> None:
        """Refuse the state of another training that does not go on here."""
        if after is None:
            return
        names = {"learned": "model", "still": "model", "optimiser_state": "optimiser"}
        names |= {"order": "batches", "stopping": "stopping", "elapsed": "optimiser"}

        def kind(tree: PyTree) -> Any:
            leaves, structure = jax.tree.flatten(tree)
            return structure, [(leaf.shape[1:], leaf.dtype) for leaf in leaves]

        for field, part in names.items():
            if kind(getattr(after, field)) != kind(getattr(self.shapes, field)):
                raise ConfigError(
                    f"after: got a training whose {part} has another state, allowed: the same "
                    "model, optimiser, batches, stopping and precision; with `start` only the "
                    "weights are taken"
                )

    def adopt(self, other: "Ensemble") -> None:
        """Take over the programs of an ensemble that differs in its members alone: if they have the
        same shapes, nothing is traced or compiled again.
        """
        if _outline(self._padded) != _outline(other._padded):
            return
        names = ["_mesh", "_spread", "_draw", "_start", "shapes", "_skeleton", "buckets"]
        if self.is_corpus:
            names += ["data", "data_content"]
        self._take(other, names)
        if not self.prepares or self.is_corpus or self._data_outline == other._data_outline:
            self._take(other, ["programs", "_unit"])

    def _take(self, other: "Ensemble", names: Sequence[str]) -> None:
        for name in names:
            if name in other.__dict__:
                self.__dict__[name] = other.__dict__[name]

    @cached_property
    def _data_outline(self) -> Any:
        return _outline(self.data)

    @property
    def outline(self) -> str:
        """Shapes of members and data, in words."""
        return str((_outline(self._padded), _outline(self.data_shapes)))

    @cached_property
    def data_content(self) -> str:
        """Hash of the data that enter from the host."""
        return content(self.data) if self.from_host else ""

    def release_members(self) -> None:
        """Let go of what lies on the devices for these members alone."""
        if self.prepares and "data" in self.__dict__:
            _ = self._data_outline  # for the members that follow
        for name in ("placed",) if self.is_corpus else ("data", "placed"):
            self.__dict__.pop(name, None)

    def release(self) -> None:
        """Let go of what lies on the devices."""
        for name in ("data", "placed"):
            self.__dict__.pop(name, None)

    @cached_property
    def _start(self) -> Program:
        def start(member: Members) -> Carry:
            model = self._initial(member)
            name = type(model).__name__
            with naming(f"model {name}", "be split by `trainable`", model):
                learned, still = eqx.partition(model, self._learning(model))
            still = eqx.filter(still, eqx.is_array)
            shuffled = isinstance(self.batches, Minibatch)
            order = jnp.arange(self.task.train_size) if shuffled else None
            _, _, optimiser = self._filled(member)
            state, elapsed = (), None
            if isinstance(optimiser, AbstractStepper):
                with naming(f"optimiser {type(optimiser).__name__}", "be initialised", optimiser):
                    state = optimiser.initial(learned)
                elapsed = None if optimiser.rate_of(state) is None else jnp.zeros(())
            diverged = jnp.asarray(NOT_DIVERGED, jnp.int32)
            stopping = None if self.stopping is None else self.stopping.begun(learned)
            unit = jnp.ones(())
            return Carry(learned, still, state, order, diverged, unit, stopping, elapsed)

        return Program(self._over_members(start, 1), self.placed)

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

    @property
    def _curvature(self) -> Any:
        return getattr(self.optimiser, "curvature", None)

    @cached_property
    def _unit(self) -> Program:
        def unit(moving: Carry, data: Splits) -> Float[Array, ""]:
            model = self.whole(moving.learned, moving.still)
            with naming("curvature", "be evaluated", model, data.train):
                curvature = self._curvature(model, data.train)
            require_number("curvature", curvature)
            return 1 / curvature

        jitted = self._over_members(unit, 1, data=True)
        return Program(jitted, self.shapes, self.data_shapes)

    def start(self) -> Carry:
        carry = self._start(self.placed)
        if self._curvature is None:
            return carry
        return eqx.tree_at(lambda tree: tree.unit, carry, self._unit(carry, self.data))

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

    @property
    def shapes_and_skeleton(self) -> tuple[Carry, Any]:
        """What the arrays of a state are put together with, without devices."""
        plain = lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)  # noqa: E731
        return jax.tree.map(plain, self.shapes), self._skeleton

    def whole(self, learned: PyTree, still: PyTree) -> Any:
        """A model, or the models of all members, from its arrays."""
        return eqx.combine(learned, still, self._skeleton)


def _outline(tree: PyTree) -> Any:
    """Structure, shapes and types of a tree of arrays."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]
