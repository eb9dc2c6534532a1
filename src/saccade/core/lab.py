"""The verb: `Lab.train`. Vectorising, recording, progress, resuming, caching and divergence are
done through it, once for all studies.
"""

import dataclasses
import io
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from saccade.core.batches import AbstractBatches, FullBatch
from saccade.core.checks import ALWAYS, require_batches, require_kinds, require_probes
from saccade.core.dataset import Frame
from saccade.core.engine import Engine, Loss, own_loss
from saccade.core.errors import ConfigError, FileError
from saccade.core.identity import address, call_identity, content, surroundings, training_digest
from saccade.core.interfaces import AbstractModelConfig, AbstractTask
from saccade.core.optimiser import AbstractOptimiser, GradientFlow
from saccade.core.program import Program
from saccade.core.progress import FROM_CACHE, Progress, ProgressLine
from saccade.core.run import Run, fitted
from saccade.core.schedule import Recording
from saccade.core.start import chosen_seeds, members_of, sweeps_of
from saccade.core.storage import locked, read_state, write_state
from saccade.core.sweep import swept_in, with_sweep

if TYPE_CHECKING:
    import xarray as xr

Precision = Literal["float32", "float64"]
_compiled_in: Path | None = None
"""The folder in which JAX keeps compiled programs at the moment."""


@dataclasses.dataclass(frozen=True)
class Training:
    """The result of a training: trajectory and snapshots as datasets, and the trained models."""

    trajectory: "xr.Dataset"
    """Every probe at every recorded step; dims: sweeps, seed, step, then the probe's own."""
    snapshot: "xr.Dataset"
    """Every probe of `Recording.ends` at the first and the last step."""
    digest: str
    """Content address of the training; empty if it cannot be kept."""
    seconds: float
    """Time spent training, over all interruptions."""
    precision: "Precision"
    _engine: Engine
    _leaves: Mapping[str, np.ndarray]

    @cached_property
    def models(self) -> Any:
        """The trained models of all members, stacked: every array has a leading member dim (sweeps
        x seeds).
        """
        with _in_precision(self.precision):
            shapes = self._engine.shapes
            return self._engine.models(*fitted((shapes.learned, shapes.still), self._leaves))


@dataclasses.dataclass(frozen=True)
class Plan:
    """What a training would be, from a dry run."""

    name: str
    members: int
    steps: int
    recorded: int
    memory_bytes: int
    """Data, weights, optimiser states and recorded numbers of all members."""
    cached: bool
    """Whether the result is in the cache."""
    seconds: float | None
    """Estimate from a few timed steps without probes; None for a result from the cache, and for a
    training that does not fit the device."""


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
    dry_run: bool = False
    """Train nothing: note in `plans` what would be trained, and give NaN for every number."""
    plans: list[Plan] = dataclasses.field(default_factory=list, init=False)
    """What a dry run has noted."""

    def __post_init__(self):
        self.folder = Path(self.folder)
        if self.precision not in ("float32", "float64"):
            raise ConfigError(f"precision: got {self.precision!r}, allowed: float32, float64")
        _use_all_cores()

    @property
    def device(self) -> str:
        """The devices, in words."""
        devices = jax.local_devices()
        kind = devices[0].device_kind
        if devices[0].platform == "cpu":
            return f"CPU, {len(devices)} cores"
        return kind if len(devices) == 1 else f"{len(devices)} x {kind}"

    def train(
        self,
        task: AbstractTask,
        model: AbstractModelConfig,
        optimiser: AbstractOptimiser,
        steps: int,
        record: Recording = Recording(),  # noqa: B008 (frozen)
        *,
        seeds: int | Sequence[int] = 5,
        sweep: Mapping[str, Sequence[float]] | None = None,
        batches: AbstractBatches = FullBatch(),  # noqa: B008 (frozen)
        loss: Loss | None = None,
        start: Training | None = None,
        name: str = "training",
    ) -> Training:
        """Train every member (seeds x swept values) at once, and record probes along the way.

        `sweep` maps dotted paths such as "optimiser.rate" or "model.embedding_std" to values; a
        `Swept` within a config does the same. `batches` says which examples a step sees. `loss`
        replaces the model's own loss by a function of model and batch. With `start` every member
        begins with the weights with which the member of the same seed (and swept values) ended
        another training; task and trainable parts may differ. The same call finds a finished
        training in the cache, or continues from a saved state.
        """
        require_kinds(task=task, model=model, optimiser=optimiser, record=record, batches=batches)
        if not isinstance(steps, int | np.integer) or isinstance(steps, bool) or steps < 0:
            raise ConfigError(f"steps: got {steps!r}, allowed: a whole number, at least 0")
        if isinstance(optimiser, GradientFlow) and not isinstance(batches, FullBatch):
            raise ConfigError(f"batches: got {batches}, allowed: FullBatch() with GradientFlow")
        if loss is not None and not callable(loss):
            raise ConfigError(f"loss: got {loss!r}, allowed: a function of model and batch")
        if start is not None and not isinstance(start, Training):
            raise ConfigError(f"start: got {start!r}, allowed: a Training, or None")
        require_batches(batches, task)
        steps = int(steps)
        recorded = record.at.steps(steps)
        chosen = chosen_seeds(seeds)
        task, model, optimiser = _swept_parts(task, model, optimiser, sweep or {})
        sweeps = swept_in(task, model, optimiser)
        sweeps |= sweeps_of(start, sweeps)
        require_probes(record, task, sweeps)

        with _in_precision(self.precision), self._compilation_cache():
            members = members_of(chosen, sweeps, start, self.precision)
            devices = jax.local_devices()[: len(members.seed)]
            engine = Engine(
                task, model, optimiser, members, devices, record, batches, loss or own_loss
            )
            engine.require_fitting_start()
            around = surroundings(self.device, self.precision)
            digest = training_digest(engine, steps, recorded, around)
            run = Run(self, engine, steps, recorded, name, digest)
            arrays, seconds = self._planned(run) if self.dry_run else run.result()
            leaves = {key: value for key, value in arrays.items() if key.startswith("carry:")}
            frame = Frame(sweeps, chosen, optimiser, task)
            trajectory = frame.dataset(arrays, "probes", recorded, record.probes)
            ends = np.unique([0, steps])
            snapshot = (
                frame.dataset(arrays, "snapshots", ends, record.ends)
                if record.ends
                else trajectory[list(ALWAYS)].sel(step=ends)
            )
        return Training(trajectory, snapshot, digest or "", seconds, self.precision, engine, leaves)

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
        with _in_precision(self.precision), self._compilation_cache():
            around = surroundings(self.device, self.precision)
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
                    self._say(title, FROM_CACHE)
                    return _from_arrays(*read_state(file))
                begun = time.monotonic()
                result = call()
                write_state(file, *_as_arrays(result, title))
                self._say(title, "", time.monotonic() - begun)
                return _from_arrays(*read_state(file))

    def _say(self, name: str, note: str, seconds: float = 0.0) -> None:
        if self.progress is not None:
            nan = float("nan")
            self.progress(Progress(name, 0, 0, nan, 0, 1, None, True, note, seconds))

    def _planned(self, run: Run) -> tuple[dict[str, np.ndarray], float]:
        """Note a training instead of doing it; every number is NaN."""
        engine, cached = run.engine, run.is_finished()
        seconds = None if cached else _estimate(engine, run.steps)
        rows = engine.programs["advance"].shapes[1]
        ends = engine.programs["snapshot"].shapes if "snapshot" in engine.programs else {}
        lengths = {"probes": len(run.recorded), "snapshots": len(np.unique([0, run.steps]))}
        arrays = {}
        for which, shapes in (("probes", rows), ("snapshots", ends)):
            for variable, shape in shapes.items():
                inner = shape.shape[2:] if which == "probes" else shape.shape[1:]
                full = (lengths[which], engine.count, *inner)
                filler = np.nan if np.issubdtype(shape.dtype, np.floating) else -1
                # A view: what may not fit is reported, not allocated.
                arrays[f"{which}:{variable}"] = np.broadcast_to(
                    np.asarray(filler, shape.dtype), full
                )
        carry = engine.shapes
        kept = jax.tree.leaves((carry.learned, carry.still))
        zeros = {f"carry:{at}": np.zeros(one.shape, one.dtype) for at, one in enumerate(kept)}
        memory = sum(array.nbytes for array in arrays.values())
        memory += sum(_bytes(tree) for tree in (carry, rows, engine.data_shapes))
        self.plans.append(
            Plan(run.name, engine.count, run.steps, len(run.recorded), memory, cached, seconds)
        )
        return arrays | zeros, 0.0

    @contextmanager
    def _compilation_cache(self) -> Iterator[None]:
        """Keep compiled programs beside the trainings: arms of one shape, and second runs, compile
        once.
        """
        names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
        before = {name: getattr(jax.config, name) for name in names}
        if before[names[0]] is None:
            _compile_in(self.folder.resolve() / "compiled")
            jax.config.update(names[1], 0.05)
        try:
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)


def _swept_parts(
    task: Any, model: Any, optimiser: Any, sweep: Mapping[str, Sequence[float]]
) -> tuple[Any, Any, Any]:
    """The three configs with the sweeps of a call put in."""
    parts = {"task": task, "model": model, "optimiser": optimiser}
    if not isinstance(sweep, Mapping):
        raise ConfigError(f'sweep: got {sweep!r}, allowed: {{"optimiser.rate": [0.1, 0.2]}}')
    last_names = [path.rpartition(".")[2] for path in sweep]
    for path, values in sweep.items():
        head, _, rest = path.partition(".")
        if head not in parts or not rest:
            raise ConfigError(
                f"sweep {path}: no such float, allowed: paths that begin with {', '.join(parts)}"
            )
        try:
            dim = path if last_names.count(path.rpartition(".")[2]) > 1 else rest
            parts[head] = with_sweep(parts[head], rest, values, dim)
        except ConfigError as error:
            raise ConfigError(f"{head}: {error}") from error
    return parts["task"], parts["model"], parts["optimiser"]


def _traced(function: Callable[..., Any], arguments: Sequence[Any], title: str) -> Program:
    try:
        return Program(jax.jit(function), *arguments)
    except Exception as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        raise ConfigError(
            f"cached {title}: JAX cannot trace it ({type(error).__name__}: {reason}); give it "
            "arrays and let it return arrays, or state a version"
        ) from error


def _as_arrays(result: Any, title: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A result as a header and named arrays: a dataset, or a tree of tuples, dicts and arrays."""
    import xarray as xr

    if isinstance(result, xr.DataArray):
        raise ConfigError(f"cached {title}: gave a DataArray, allowed: a Dataset; use to_dataset()")
    if isinstance(result, xr.Dataset):
        payload = bytes(result.to_netcdf(None, engine="h5netcdf"))  # pyright: ignore[reportArgumentType]
        return {"tree": "dataset"}, {"0": np.frombuffer(payload, np.uint8)}
    arrays: dict[str, np.ndarray] = {}

    def shape(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {"dict": {str(key): shape(one) for key, one in value.items()}}
        if isinstance(value, tuple | list):
            return {"tuple": [shape(one) for one in value]}
        array = np.asarray(value)
        if array.dtype.kind not in "biufc":
            raise ConfigError(
                f"cached {title}: gave a {type(value).__name__}, allowed: numbers, arrays, tuples "
                "and dicts of them, or an xarray Dataset"
            )
        arrays[str(len(arrays))] = array
        return len(arrays) - 1

    return {"tree": shape(result)}, arrays


def _from_arrays(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    if header["tree"] == "dataset":
        import xarray as xr

        with xr.open_dataset(io.BytesIO(arrays["0"].tobytes()), engine="h5netcdf") as dataset:
            return dataset.load()

    def filled(tree: Any) -> Any:
        if isinstance(tree, int):
            return arrays[str(tree)]
        if "dict" in tree:
            return {key: filled(one) for key, one in tree["dict"].items()}
        return tuple(filled(one) for one in tree["tuple"])

    return filled(header["tree"])


def _estimate(engine: Engine, steps: int) -> float | None:
    """Seconds that a training would take, from a few steps. The run reuses what is compiled."""
    begun = time.monotonic()
    try:
        carry = jax.block_until_ready(engine.steps(engine.start(), 0, 0))
    except jax.errors.JaxRuntimeError:  # it does not fit the device
        return None
    compiled, done, count = time.monotonic(), 0, 1
    while done < steps and time.monotonic() - compiled < 0.3:
        count = min(2 * count, steps - done)
        carry = jax.block_until_ready(engine.steps(carry, done, count))
        done += count
    per_step = (time.monotonic() - compiled) / max(done, 1)
    return compiled - begun + per_step * steps


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


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def _use_all_cores() -> None:
    """Make every core a JAX device, if JAX has not started yet: members then train in parallel on a
    CPU.
    """
    try:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    except (RuntimeError, AttributeError):
        return  # JAX is already running; it keeps the devices it has


def _in_precision(precision: Precision) -> Any:
    if precision == "float64":
        return jax.enable_x64(True)
    return nullcontext() if not jax.config.jax_enable_x64 else jax.enable_x64(False)  # pyright: ignore[reportAttributeAccessIssue]
