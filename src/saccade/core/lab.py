"""The verb: `Lab.train`. Vectorising, recording, progress, resuming, caching and divergence are
done through it, once for all studies.
"""

import dataclasses
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
import optax
from jax.experimental.compilation_cache import compilation_cache

from saccade.core.batches import AbstractBatches, FullBatch
from saccade.core.checks import (
    ALWAYS,
    MISSING,
    require_batches,
    require_kinds,
    require_probes,
    require_splits,
    require_unswept,
)
from saccade.core.dataset import Frame
from saccade.core.identity import address, call_identity, content, surroundings
from saccade.core.interfaces import (
    AbstractCorpus,
    AbstractModelConfig,
    AbstractProbe,
    AbstractTask,
    BuiltModel,
)
from saccade.core.job import Job
from saccade.core.loss import Loss, own_loss
from saccade.core.measuring import Checkpoints
from saccade.core.optimiser import AbstractOptimiser, GradientFlow, OptaxOptimiser
from saccade.core.parts import Leaves, nothing
from saccade.core.plan import Plan
from saccade.core.program import Program
from saccade.core.progress import FROM_CACHE, Progress, ProgressLine
from saccade.core.recipe import Recipe
from saccade.core.recording import Recording
from saccade.core.results import as_arrays, from_arrays
from saccade.core.schedulers import AbstractScheduler, scheduler_of
from saccade.core.start import Seeds, chosen_seeds, members_of, require_same_members, sweeps_of
from saccade.core.stopping import EarlyStopping
from saccade.core.storage import locked, read_state, write_state
from saccade.core.training import Precision, Training, in_precision
from saccade.errors import ConfigError, FileError, plainly
from saccade.settings import require_count, swept_in, with_sweep

if TYPE_CHECKING:
    import xarray as xr

_compiled_in: Path | None = None
"""The folder in which JAX keeps compiled programs at the moment."""


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
        _use_all_cores()

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
        return self._device if self._scheduler is None else self._scheduler.device

    @property
    def _scheduler(self) -> AbstractScheduler | None:
        assert not isinstance(self.scheduler, str)
        return self.scheduler

    @property
    def _device(self) -> str:
        """The devices of this process, in words."""
        devices = jax.local_devices()
        kind = devices[0].device_kind
        if devices[0].platform == "cpu":
            return f"CPU, {len(devices)} cores"
        name = kind if len(devices) == 1 else f"{len(devices)} x {kind}"
        return f"{name}, matrix products in TF32" if self._rounds_factors(devices[0]) else name

    def _rounds_factors(self, device: Any) -> bool:
        """Whether matrix products round their factors to 10 binary digits (sums are in float32),
        which is JAX's default on NVIDIA's GPUs since Ampere.
        """
        asked = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
        exact = self.precision == "float64" or asked in ("highest", "float32", "F32_F32_F32")
        since = float(getattr(device, "compute_capability", 0) or 0)
        return device.platform == "gpu" and since >= 8 and not exact

    @plainly
    def train(
        self,
        task: AbstractTask,
        model: AbstractModelConfig | Callable[[Any, Any], Any],
        optimiser: AbstractOptimiser | optax.GradientTransformation,
        steps: int,
        record: Recording = Recording(),  # noqa: B008 (frozen)
        *,
        seeds: int | Sequence[int] | Seeds = 5,
        sweep: Mapping[str, Sequence[float]] | None = None,
        batches: AbstractBatches = FullBatch(),  # noqa: B008 (frozen)
        loss: Loss | None = None,
        frozen: Sequence[str] = (),
        stopping: EarlyStopping | None = None,
        start: Training | None = None,
        after: Training | None = None,
        keep_state: bool = False,
        name: str = "training",
    ) -> Training:
        """Train every member (seeds x swept values) at once, and record probes along the way.

        `model` is a config, or a function of task and key that builds an Equinox module.
        `optimiser` is one of saccade's, or any Optax transformation. `seeds` may vary start, data
        and order apart (`Seeds`). `sweep` maps dotted paths such as "optimiser.rate" or
        "model.embedding_std" to values; a `Swept` within a config does the same. `batches` says
        which examples a step sees. `loss` replaces the model's own loss by a function of model and
        batch (and `key`, for dropout). Parts whose paths are in `frozen` do not learn. With
        `stopping` a member ends early and keeps its best weights.

        With `start` every member begins with the weights with which the member of the same seed
        (and swept values) ended another training; task and trainable parts may differ. With `after`
        it goes on from another training of the same members: from its weights, optimiser state,
        order of examples and last step, for `steps` more steps. That one must have been trained
        with `keep_state`.

        The same call finds a finished training in the cache, or continues from a saved state.
        """
        if isinstance(task, AbstractCorpus):
            require_splits(task)  # read once, before the config is copied for every member
        given: dict[str, Any] = {"task": task, "model": BuiltModel.of(model)}
        given["optimiser"] = OptaxOptimiser.of(optimiser)
        require_kinds(**given, record=record, batches=batches, stopping=stopping)
        require_unswept(steps=steps, seeds=seeds)
        if not isinstance(steps, int | np.integer) or isinstance(steps, bool) or steps < 0:
            raise ConfigError(f"steps: got {steps!r}, allowed: a whole number, at least 0")
        if isinstance(optimiser, GradientFlow) and not isinstance(batches, FullBatch):
            raise ConfigError(f"batches: got {batches}, allowed: FullBatch() with GradientFlow")
        if loss is not None and not callable(loss):
            raise ConfigError(f"loss: got {loss!r}, allowed: a function of model and batch")
        for argument, value in (("start", start), ("after", after)):
            if value is not None and not isinstance(value, Training):
                got = type(value).__name__
                raise ConfigError(f"{argument}: got the type {got}, allowed: a Training, or None")
        if isinstance(frozen, str):
            raise ConfigError(f"frozen: got {frozen!r}, allowed: several paths, ({frozen!r},)")
        if after is not None and isinstance(task, AbstractCorpus):
            before = after._engine.task
            if not isinstance(before, AbstractCorpus) or before.checksum != task.checksum:
                raise ConfigError(
                    "after: got a training on other examples, allowed: the same corpus with the "
                    "same splits; start=training takes its weights to another one"
                )
        apart = seeds.apart() if isinstance(seeds, Seeds) else {}
        chosen = chosen_seeds(seeds.of if isinstance(seeds, Seeds) else seeds)
        parts = _swept_parts(given, sweep or {})
        require_batches(batches, parts[0])
        sweeps = swept_in(*parts)
        sweeps |= sweeps_of(start or after, sweeps)
        require_probes(record, parts[0], sweeps)
        first = 0
        if after is not None:
            sweeps = require_same_members(after, sweeps, chosen, apart, start)
            first = int(after.trajectory["step"][-1])
        recorded = record.at.steps(first + int(steps))
        recorded = np.union1d(recorded[recorded >= first], [first]).astype(np.int64)

        with in_precision(self.precision), compilation_cache_in(self.folder):
            members = members_of(chosen, sweeps, start, self.precision, apart)
            if after is not None:
                members = dataclasses.replace(members, start=after.start)
            options: Any = (record, batches, loss or own_loss, tuple(frozen), stopping)
            last = first + int(steps)
            recipe = Recipe(parts, options, last, recorded, keep_state, self.precision)
            begun = None if after is None else after.state
            axes = (*((name, swept.grid) for name, swept in sweeps.items()), ("seed", chosen))
            engine, digest, found, seconds = Job(self, recipe, name, begun, axes).result(members)
            reached = recorded if stopping is None else recorded[: found.rows]
            computed = getattr(parts[1], "about", {})
            frame = Frame(sweeps, chosen, parts[2], parts[0], apart, computed=computed)
            trajectory = frame.dataset(found, "probes", reached, record.probes, self.folder)
            ends = np.unique([first, reached[-1]])
            snapshot = (
                frame.dataset(found, "snapshots", ends, record.ends, self.folder)
                if engine.has_ends
                else trajectory[list(ALWAYS)].sel(step=ends)
            )
            if after is not None:
                trajectory, snapshot = (_going_on(after, part) for part in (trajectory, snapshot))
        for other in (start, after):
            if other is not None and "not_trained" in other.trajectory:
                trajectory, snapshot = (_missing_as_in(other, it) for it in (trajectory, snapshot))
        rest: Any = (seconds, self.precision, engine, Leaves(found), members.start)
        return Training(trajectory, snapshot, digest or "", *rest)

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
        record = Recording(probes, chunk=chunk)
        require_kinds(task=task, record=record)
        require_probes(record, task, {})
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
            around = surroundings(self._device, self.precision)
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
                    self.say(title, FROM_CACHE)
                    return from_arrays(*read_state(file))
                begun = time.monotonic()
                result = call()
                header, arrays = as_arrays(result, title)
                write_state(file, header | {"name": title}, arrays)
                self.say(title, "", time.monotonic() - begun)
                return from_arrays(*read_state(file))

    def say(self, name: str, note: str, seconds: float = 0.0) -> None:
        """Show that some work is done that has no steps of its own."""
        if self.progress is not None:
            nan = float("nan")
            self.progress(Progress(name, 0, 0, nan, 0, 1, None, True, note, seconds))


def _swept_parts(
    parts: dict[str, Any], sweep: Mapping[str, Sequence[float]]
) -> tuple[Any, Any, Any]:
    """Task, model and optimiser with the sweeps of a call put in."""
    parts = {**parts}
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


def _missing_as_in(other: Training, dataset: "xr.Dataset") -> "xr.Dataset":
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


def _going_on(after: Training, dataset: "xr.Dataset") -> "xr.Dataset":
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


@contextmanager
def compilation_cache_in(folder: Path) -> Iterator[None]:
    """Keep compiled programs beside the trainings: arms of one shape, and second runs, compile
    once.
    """
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    if before[names[0]] is None:
        _compile_in(folder.resolve() / "compiled")
        jax.config.update(names[1], 0.05)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def _compile_in(folder: Path) -> None:
    """Let JAX keep compiled programs in a folder; it would stay with the first one otherwise."""
    global _compiled_in
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"cannot write {folder}: {error.strerror or error}") from error
    jax.config.update("jax_compilation_cache_dir", str(folder))
    if _compiled_in not in (None, folder):
        compilation_cache.reset_cache()
    _compiled_in = folder


def _use_all_cores() -> None:
    """Make every core a JAX device, if JAX has not started yet: members then train in parallel on a
    CPU.
    """
    try:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    except (RuntimeError, AttributeError):
        return  # JAX is already running; it keeps the devices it has
