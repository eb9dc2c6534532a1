"""The verb: `Lab.train`. Vectorising, recording, progress, resuming, caching and divergence are
done through it, once for all studies.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import jax
import numpy as np

from saccade.contracts.content import content
from saccade.contracts.probe import AbstractProbe
from saccade.contracts.task import AbstractCorpus, AbstractTask
from saccade.errors import ConfigError, plainly
from saccade.settings import Swept, require_count, swept_in, with_sweep
from saccade.train.checks import (
    ALWAYS,
    MISSING,
    require_batches,
    require_kinds,
    require_probe_instances,
    require_probes,
    require_splits,
    require_unswept,
    shown,
)
from saccade.train.dataset import Frame
from saccade.train.devices import compilation_cache_in, devices_in_words, use_all_cores
from saccade.train.identity import address, call_identity, surroundings
from saccade.train.job import Job
from saccade.train.loss import Loss, own_loss
from saccade.train.measuring import Checkpoints
from saccade.train.optimiser import OptaxOptimiser
from saccade.train.parts import Leaves, nothing
from saccade.train.placement import shapes_without_devices
from saccade.train.plan import Plan
from saccade.train.precision import Precision, in_precision
from saccade.train.prepared import PreparedRecipe
from saccade.train.program import Program
from saccade.train.recipe import Recipe
from saccade.train.recording import Recording
from saccade.train.results import as_arrays, from_arrays
from saccade.train.running import Running
from saccade.train.start import Seeds, chosen_seeds, members_of, require_same_members, sweeps_of
from saccade.train.storage import locked, read_state, write_state
from saccade.train.training import TrainedArm, Weights
from saccade.workers.named import scheduler_of
from saccade.workers.progress import FROM_CACHE, Progress, ProgressLine
from saccade.workers.schedulers import AbstractScheduler

if TYPE_CHECKING:
    import xarray as xr


@dataclasses.dataclass
class Lab:
    """A folder of trainings, and the devices that do them."""

    folder: Path = Path("runs/cache")
    """Where states and finished trainings are kept."""
    precision: Precision = "float32"
    """float32 for training, float64 for closed-form checks."""
    progress: Callable[[Progress], None] | None = dataclasses.field(default_factory=ProgressLine)
    """Called several times per second while training; None is silent."""
    state_interval: float = 10.0
    """Seconds between two states on disk."""
    fresh: bool = False
    """Train again even if a finished training is in the cache."""
    asked_to_stop: Callable[[], bool] | None = None
    """Asked several times per second while training: whether to stop, as on Ctrl-C, with a whole
    state."""
    chunk: int | None = None
    """Members that are trained at once; more are trained in chunks, each with its own state and
    entry in the cache. None: all that fit the device's memory; with a scheduler, 64."""
    scheduler: AbstractScheduler | str | None = None
    """Where chunks are trained: "local:4" (four processes), the address of a Dask scheduler
    ("tcp://HOST:8786") or its file. None: one after another, in this process."""
    title: str = ""
    """Stands before the names of arms in progress lines, such as the name of a study."""
    dry_run: bool = False
    """Train nothing: note in `plans` what would be trained, and give NaN for every number."""
    plans: list[Plan] = dataclasses.field(default_factory=list, init=False)
    """What a dry run has noted."""

    def __post_init__(self):
        self.folder = Path(self.folder)
        if self.precision not in ("float32", "float64"):
            raise ConfigError(f"precision: got {self.precision!r}, allowed: float32, float64")
        if self.chunk is not None:
            require_count(self, "chunk")
        if isinstance(self.scheduler, str):
            self.scheduler = scheduler_of(self.scheduler)
        if self.progress is not None and not callable(self.progress):
            raise ConfigError(f"progress: got {self.progress!r}, allowed: a function, or None")
        use_all_cores()

    def close(self) -> None:
        """Let go of the scheduler's workers; they also end with this process."""
        if self._scheduler is not None:
            self._scheduler.close()

    def __enter__(self) -> "Lab":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def device(self) -> str:
        """The devices that train, in words."""
        return (
            devices_in_words(self.precision) if self._scheduler is None else self._scheduler.device
        )

    @property
    def _scheduler(self) -> AbstractScheduler | None:
        assert not isinstance(self.scheduler, str)
        return self.scheduler

    @overload
    def train(
        self,
        recipes: Recipe,
        seeds: int | Sequence[int] | Seeds = 5,
        *,
        sweep: Mapping[str, Sequence[float]] | None = None,
        start: TrainedArm | None = None,
        after: TrainedArm | None = None,
    ) -> TrainedArm: ...

    @overload
    def train(
        self,
        recipes: Mapping[str, Recipe],
        seeds: int | Sequence[int] | Seeds = 5,
        *,
        sweep: Mapping[str, Sequence[float]] | None = None,
        start: TrainedArm | Mapping[str, TrainedArm] | None = None,
        after: TrainedArm | Mapping[str, TrainedArm] | None = None,
    ) -> dict[str, TrainedArm]: ...

    @plainly
    def train(
        self,
        recipes: Recipe | Mapping[str, Recipe],
        seeds: int | Sequence[int] | Seeds = 5,
        *,
        sweep: Mapping[str, Sequence[float]] | None = None,
        start: TrainedArm | Mapping[str, TrainedArm] | None = None,
        after: TrainedArm | Mapping[str, TrainedArm] | None = None,
    ) -> TrainedArm | dict[str, TrainedArm]:
        """Train every member (seeds x swept values) of a recipe at once, and record its probes
        along the way: one arm for one recipe, arms by name for recipes by name.

        `seeds` is a count, a list of numbers, or `Seeds`, which may begin with another number than
        0 and vary start, data and order apart. `sweep` maps dotted paths such as "optimiser.rate"
        or "model.embedding_std" to values; a `Swept` within a config does the same.

        With `start` every member begins with the weights with which the member of the same seed
        (and swept values) ended another training; task and trainable parts may differ. With `after`
        it goes on from another training of the same members: from its weights, optimiser state,
        order of examples and last step, for the recipe's steps more. The recipe of that one must
        say `keep_state`. Both take one arm for all recipes, or arms by the names of the recipes.

        The same call finds a finished training in the cache, or continues from a saved state.
        """
        if isinstance(recipes, Recipe):
            begun, continued = _arm_or_none("start", start), _arm_or_none("after", after)
            call = _Call.of(recipes, seeds, sweep or {}, begun, continued)
            return self._arm(self.title or "training", call)
        _require_recipes(recipes)
        starts = _by_name("start", start, recipes)
        afters = _by_name("after", after, recipes)
        # All are checked before the first is trained.
        calls = {
            name: _Call.of(recipe, seeds, sweep or {}, starts[name], afters[name])
            for name, recipe in recipes.items()
        }
        return {name: self._arm(f"{self.title} {name}".strip(), calls[name]) for name in recipes}

    def _arm(self, name: str, call: "_Call") -> TrainedArm:
        """The arm of one recipe."""
        recipe, recorded, start, after = call.recipe, call.recorded, call.start, call.after
        with in_precision(self.precision), compilation_cache_in(self.folder):
            members = members_of(call.seeds, call.sweeps, start, self.precision, call.apart)
            if after is not None:
                members = dataclasses.replace(members, start=after.weights.begun)
            last = call.first + int(recipe.steps)
            prepared = PreparedRecipe(call.parts, recipe, last, recorded, self.precision)
            job = Job(
                self._running,
                prepared,
                name,
                after=None if after is None else after.weights.moving,
                axes=call.axes,
                device=self.device,
                chunk=self.chunk,
                scheduler=self._scheduler,
                plans=self.plans,
            )
            engine, digest, found, seconds = job.result(members)
            reached = recorded if recipe.stopping is None else recorded[: found.rows]
            task, model, optimiser = call.parts
            computed = getattr(model, "about", {})
            frame = Frame(call.sweeps, call.seeds, optimiser, task, call.apart, computed=computed)
            trajectory = frame.dataset(found, "probes", reached, recipe.probes, self.folder)
            ends = np.unique([call.first, reached[-1]])
            snapshot = (
                frame.dataset(found, "snapshots", ends, recipe.ends, self.folder)
                if engine.has_ends
                else trajectory[list(ALWAYS)].sel(step=ends)
            )
            if after is not None:
                trajectory, snapshot = (_going_on(after, part) for part in (trajectory, snapshot))
            weights = Weights(
                shapes_without_devices(engine.shapes),
                prepared.skeleton_of(members),
                Leaves(found.without_rows()),
                self.precision,
                int(reached[-1]),
                members.start,
            )
            engine.release()
        for other in (start, after):
            if other is not None and "not_trained" in other.trajectory:
                trajectory, snapshot = (
                    _missing_as_in(other, part) for part in (trajectory, snapshot)
                )
        trajectory = trajectory.assign_attrs(seconds=seconds, digest=digest or "")
        return TrainedArm(trajectory, snapshot, recipe=call.swept_recipe, weights=weights)

    @property
    def _running(self) -> Running:
        return Running(
            self.folder,
            self.progress,
            self.state_interval,
            self.fresh,
            self.asked_to_stop,
            self.dry_run,
        )

    @contextmanager
    def titled(self, title: str) -> Iterator[None]:
        """A context in which a title, such as the name of a study, stands before names of arms."""
        before, self.title = self.title, title
        try:
            yield
        finally:
            self.title = before

    @plainly
    def measure(
        self,
        task: AbstractTask,
        models: Sequence[Any] | Mapping[int, Sequence[Any]],
        probes: Sequence[AbstractProbe],
        *,
        steps: Sequence[int] | None = None,
        loss: Loss | None = None,
        chunk: int | None = None,
    ) -> "xr.Dataset":
        """Probes on models that exist already, such as the checkpoints of one run (or of several,
        by seed): the dataset that a training here would have given.

        `steps` are those of the checkpoints, ascending; without them they are numbered from 0. The
        task's examples are those of the seed (0, if there is one run). Displacements count from the
        first checkpoint. `chunk` is the number of examples evaluated at once.
        """
        require_kinds(task=task)
        chosen = require_probe_instances("probes", probes)
        whole = isinstance(chunk, int | np.integer) and not isinstance(chunk, bool)
        if chunk is not None and (not whole or chunk < 1):
            raise ConfigError(f"chunk: got {chunk!r}, allowed: a whole number, at least 1")
        require_probes((chosen,), task, {})
        record = Recording(chosen, chunk=chunk)
        with in_precision(self.precision), compilation_cache_in(self.folder):
            given = Checkpoints.of(models, steps, self.precision)
            return given.measured(task, record, loss or own_loss)

    def cached(
        self, function: Callable[..., Any], *arguments: Any, version: Any = None, name: str = ""
    ) -> Any:
        """The result of slow work that is no training, computed once and kept.

        Without a `version` the function must be one that JAX can trace, of arrays and giving
        arrays: its result is found again by its traced program and the arrays that enter. With a
        `version` it may be any function of configs, numbers, texts, arrays and datasets, giving
        arrays or a dataset: its result is found again by its name, its arguments and the version,
        which its author changes whenever the function or anything that it calls changes. A file
        name among the arguments counts as a text.
        """
        title = name or getattr(function, "__qualname__", type(function).__qualname__)
        with in_precision(self.precision), compilation_cache_in(self.folder):
            around = surroundings(devices_in_words(self.precision), self.precision)
            program = _traced(function, arguments, title) if version is None else None
            if program is not None:
                call: Callable[[], Any] = lambda: program(*arguments)  # noqa: E731
                identity = None
                if program.is_whole:
                    identity = {"program": program.digest, "arguments": content(arguments)}
            else:
                call = lambda: function(*arguments)  # noqa: E731
                identity = {"version": version, **call_identity(function, arguments)}
            if self.dry_run and program is not None:
                return jax.tree.map(lambda one: np.full(one.shape, np.nan), program.shapes)
            if identity is None or self.dry_run:
                return call()
            file = self.folder / f"{address({**around, **identity})[:24]}.result"
            with locked(file.with_suffix(".lock")):
                if file.exists() and not self.fresh:
                    self._running.say(title, FROM_CACHE)
                    return from_arrays(*read_state(file))
                begun = time.monotonic()
                result = call()
                header, arrays = as_arrays(result, title)
                write_state(file, header | {"name": title}, arrays)
                self._running.say(title, "", time.monotonic() - begun)
                return from_arrays(*read_state(file))


@dataclasses.dataclass(frozen=True)
class _Call:
    """A recipe with the members that it trains, once all is checked that needs no training."""

    recipe: Recipe
    parts: tuple[Any, Any, Any]
    """Task, model and optimiser, with the sweeps of the call."""
    sweeps: Mapping[str, Swept]
    seeds: tuple[int, ...]
    apart: Mapping[str, tuple[int, ...]]
    """Seeds of start, data or order that differ from `seeds`."""
    first: int
    """The step at which it begins."""
    recorded: np.ndarray
    start: TrainedArm | None
    after: TrainedArm | None

    @staticmethod
    def of(
        recipe: Recipe,
        seeds: int | Sequence[int] | Seeds,
        sweep: Mapping[str, Sequence[float]],
        start: TrainedArm | None,
        after: TrainedArm | None,
    ) -> "_Call":
        task = recipe.task
        if isinstance(task, AbstractCorpus):
            require_splits(task)  # read once, before the config is copied for every member
        require_unswept(seeds=seeds)
        if after is not None:
            _require_same_examples(task, after.recipe.task)
        apart = seeds.apart() if isinstance(seeds, Seeds) else {}
        chosen = chosen_seeds(seeds.numbers if isinstance(seeds, Seeds) else seeds)
        parts = _swept_parts(recipe, sweep)
        require_batches(recipe.batches, parts[0])
        sweeps = swept_in(*parts)
        sweeps |= sweeps_of(start or after, sweeps)
        require_probes((recipe.probes, recipe.ends), parts[0], sweeps)
        first = 0
        if after is not None:
            sweeps = require_same_members(after, sweeps, chosen, apart, start)
            first = after.weights.step
        recorded = recipe.recorded(first)
        return _Call(recipe, parts, sweeps, chosen, apart, first, recorded, start, after)

    @property
    def axes(self) -> tuple[tuple[str, Sequence[float]], ...]:
        """Names and values of the members' axes, the last one fastest."""
        grids = ((name, swept.grid) for name, swept in self.sweeps.items())
        return *grids, ("seed", self.seeds)

    @property
    def swept_recipe(self) -> Recipe:
        """The recipe as it was trained: with the sweeps of the call."""
        task, model, optimiser = self.parts
        recipe = self.recipe
        given = (recipe.task, recipe.model, recipe.optimiser)
        if all(part is own for part, own in zip(self.parts, given, strict=True)):
            return recipe
        return dataclasses.replace(recipe, task=task, model=model, optimiser=optimiser)


def _require_recipes(recipes: Any) -> None:
    allowed = 'a Recipe, or recipes by name such as {"attention": Recipe(...)}'
    if not isinstance(recipes, Mapping) or not recipes:
        raise ConfigError(f"recipes: got {shown(recipes)}, allowed: {allowed}")
    for name, recipe in recipes.items():
        if not isinstance(name, str) or not isinstance(recipe, Recipe):
            got = f"{name!r} with the type {type(recipe).__name__}"
            raise ConfigError(f"recipes: got {got}, allowed: {allowed}")


def _arm_or_none(argument: str, given: Any) -> TrainedArm | None:
    if given is not None and not isinstance(given, TrainedArm):
        got = type(given).__name__
        raise ConfigError(f"{argument}: got the type {got}, allowed: a TrainedArm, or None")
    return given


def _by_name(
    argument: str, given: Any, recipes: Mapping[str, Recipe]
) -> dict[str, TrainedArm | None]:
    """What every recipe begins with: one arm for all, or arms by the names of the recipes."""
    arms = given if isinstance(given, Mapping) else dict.fromkeys(recipes, given)
    if unknown := [str(name) for name in arms if name not in recipes]:
        got, allowed = ", ".join(unknown), ", ".join(recipes)
        raise ConfigError(f"{argument}: got {got}, allowed: {allowed}")
    return {name: _arm_or_none(argument, arms.get(name)) for name in recipes}


def _require_same_examples(task: Any, before: Any) -> None:
    """Refuse to go on with the examples of another corpus."""
    if not isinstance(task, AbstractCorpus):
        return
    if not isinstance(before, AbstractCorpus) or before.checksum != task.checksum:
        raise ConfigError(
            "after: got a training on other examples, allowed: the same corpus with the "
            "same splits; start=arm takes its weights to another one"
        )


def _swept_parts(recipe: Recipe, sweep: Mapping[str, Sequence[float]]) -> tuple[Any, Any, Any]:
    """Task, model and optimiser with the sweeps of a call put in."""
    parts: dict[str, Any] = {
        "task": recipe.task,
        "model": recipe.model,
        "optimiser": recipe.optimiser,
    }
    if not isinstance(sweep, Mapping):
        raise ConfigError(f'sweep: got {sweep!r}, allowed: {{"optimiser.rate": [0.1, 0.2]}}')
    last_names = [path.rpartition(".")[2] for path in sweep]
    for path, values in sweep.items():
        head, _, rest = path.partition(".")
        if head not in parts or not rest:
            raise ConfigError(
                f"sweep {path}: no such number, allowed: paths that begin with {', '.join(parts)}, "
                "such as optimiser.rate"
            )
        try:
            dim = path if last_names.count(path.rpartition(".")[2]) > 1 else rest
            parts[head] = with_sweep(parts[head], rest, values, dim)
        except ConfigError as error:
            hint = ""
            if isinstance(parts[head], OptaxOptimiser):
                hint = "; of an Optax transformation, what optax.inject_hyperparams keeps"
            raise ConfigError(f"{head}: {error}{hint}") from error
    return parts["task"], parts["model"], parts["optimiser"]


def _missing_as_in(other: TrainedArm, dataset: "xr.Dataset") -> "xr.Dataset":
    """Without the members that began with weights of members that were not trained."""
    missing = other.trajectory["not_trained"]
    missing = missing.sel({dim: dataset[dim] for dim in missing.dims}).reset_coords(drop=True)
    missing = missing.broadcast_like(dataset["diverged_at"]) | dataset.get("not_trained", False)
    data = {
        name: one.where(~missing, nothing(one.dtype)).transpose(*one.dims).astype(one.dtype)
        for name, one in dataset.items()
        if name != "not_trained"
    }
    marked = missing.astype(bool).assign_attrs(MISSING.attributes)
    return dataset.assign({**data, "not_trained": marked})


def _going_on(after: TrainedArm, dataset: "xr.Dataset") -> "xr.Dataset":
    """With time that goes on where that of another training ended, whatever its rate was."""
    before, time = after.trajectory["time"].isel(step=-1, drop=True), dataset["time"]
    behind = before - time.isel(step=0, drop=True)
    if float(abs(behind).max()) <= 1e-6 * float(abs(before).max()):
        return dataset
    return dataset.assign_coords(time=(time + behind).assign_attrs(time.attrs))


def _traced(function: Callable[..., Any], arguments: Sequence[Any], title: str) -> Program:
    try:
        return Program(jax.jit(function), *arguments)
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise ConfigError(
            f"cached {title}: JAX cannot trace it ({type(error).__name__}: {reason}); give it "
            "arrays and let it return arrays, or state a version"
        ) from error
