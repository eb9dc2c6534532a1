"""The verb: `Lab.train`. Vectorising, recording, progress, resuming, caching and divergence are
written here, once.
"""

import dataclasses
import hashlib
import importlib.metadata
import itertools
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property, partial
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, Literal

import equinox as eqx
import jax
import numpy as np

from saccade.core.engine import NOT_DIVERGED, PIECES, Engine, Loss, Members, cross_entropy
from saccade.core.errors import ConfigError, FileError, InterruptedTrainingError
from saccade.core.interfaces import AbstractModelConfig, AbstractProbe, AbstractTask, Variable
from saccade.core.optimiser import AbstractOptimiser, GradientFlow
from saccade.core.schedule import AbstractSchedule, Every
from saccade.core.storage import locked, read_state, write_state
from saccade.core.sweep import Swept, swept_in, with_sweep
from saccade.version import __version__

if TYPE_CHECKING:
    import xarray as xr

Precision = Literal["float32", "float64"]

ALWAYS = {
    "loss": Variable((), "training loss (mean cross-entropy unless the training names another)"),
    "diverged_at": Variable((), "step at which the loss stopped being finite, -1 if it never did"),
}
"""Variables that every training records, probes or not."""


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a training is; handed to `Lab.progress` several times a second."""

    name: str
    step: int
    steps: int
    loss: float
    diverged: int
    members: int
    seconds_left: float | None
    finished: bool = False
    note: str = ""
    seconds: float = 0.0
    """Time since this sitting of the training began."""


@dataclasses.dataclass(frozen=True)
class Training:
    """What a training left: trajectory and snapshots as datasets, and the trained models."""

    trajectory: "xr.Dataset"
    """Every probe at every recorded step; dims: sweeps, seed, step, then the probe's own."""
    snapshot: "xr.Dataset"
    """Every snapshot probe at the first and the last step."""
    digest: str
    """Content address of the training."""
    seconds: float
    """Time spent training, over all sittings."""
    _engine: Engine
    _leaves: Mapping[str, np.ndarray]
    _precision: "Precision"

    @cached_property
    def models(self) -> Any:
        """The trained models of all members, stacked: every array has a leading member dim
        (sweeps x seeds).
        """
        with _precision(self._precision):
            shapes = self._engine.shapes()
        parts = _fitted((shapes.learned, shapes.still), self._leaves)
        learned, still = (
            jax.tree.map(lambda leaf: leaf[: self._engine.count], part) for part in parts
        )
        return self._engine._whole(learned, still)  # pyright: ignore[reportPrivateUsage]


@dataclasses.dataclass
class Lab:
    """A folder of trainings, and the devices that do them."""

    folder: Path = Path("runs/cache")
    """Where states and finished trainings are kept."""
    precision: Precision = "float32"
    """float32 for training, float64 for closed-form checks."""
    progress: Callable[[Progress], None] | None = None
    """Called several times a second while training."""
    state_interval: float = 10.0
    """Seconds between two states on disk."""
    fresh: bool = False
    """Train again even if a finished training is in the cache."""
    asked_to_stop: Callable[[], bool] | None = None
    """Asked several times a second while training: whether to stop, as on Ctrl-C, with a whole
    state.
    """

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
        probes: Sequence[AbstractProbe] = (),
        *,
        snapshots: Sequence[AbstractProbe] = (),
        record: AbstractSchedule = Every(10),  # noqa: B008 (frozen)
        seeds: int | Sequence[int] = 5,
        sweep: Mapping[str, Sequence[float]] | None = None,
        batch_size: int | None = None,
        stream: bool = False,
        loss: Loss = cross_entropy,
        start: Training | None = None,
        name: str = "training",
    ) -> Training:
        """Train every member (seeds x swept values) at once and measure the probes along the way.

        `sweep` maps dotted paths such as "optimiser.rate" or "model.embedding_std" to values; a
        `Swept` inside of a config does the same. Without a `batch_size` every step sees the whole
        training set; with one it sees a minibatch of it, or with `stream` as many new examples (the
        training set then only measures). With `start` every member begins with the weights with
        which the member of the same seed (and swept values) ended another training; its task, and
        which parts learn, may differ. The same call finds a finished training in the cache, or goes
        on from a saved state.
        """
        if not isinstance(steps, int) or steps < 0:
            raise ConfigError(f"steps: got {steps!r}, allowed: a whole number, at least 0")
        if batch_size is not None and (batch_size < 1 or isinstance(optimiser, GradientFlow)):
            raise ConfigError(
                f"batch_size: got {batch_size}, allowed: at least 1, and none with GradientFlow"
            )
        if stream and batch_size is None:
            raise ConfigError(
                "stream: got no batch_size, allowed: with a batch_size, the examples drawn for"
                " every step"
            )
        chosen_seeds = _seeds(seeds)
        parts = {"task": task, "model": model, "optimiser": optimiser}
        last_names = [path.rpartition(".")[2] for path in sweep or {}]
        for path, values in (sweep or {}).items():
            head, _, rest = path.partition(".")
            if head not in parts or not rest:
                raise ConfigError(
                    f"sweep {path}: no such float, allowed: paths that begin with"
                    f" {', '.join(parts)}"
                )
            name_of_dim = path if last_names.count(path.rpartition(".")[2]) > 1 else rest
            parts[head] = _swept_part(parts[head], head, rest, values, name_of_dim)
        sweeps = swept_in(*parts.values()) | _sweeps_of(start, swept_in(*parts.values()))
        choices = list(
            itertools.product(*(range(len(swept.grid)) for swept in sweeps.values()), chosen_seeds)
        )
        columns = np.asarray(choices, dtype=np.uint32).T
        chosen = {key: columns[place].astype(np.int32) for place, key in enumerate(sweeps)}
        given = (
            None
            if start is None
            else _start_of(start, chosen_seeds, sweeps, choices, self.precision)
        )
        members = Members(columns[-1], chosen, given)  # pyright: ignore[reportArgumentType]

        with _precision(self.precision), self._compilation_cache():
            devices = jax.local_devices()[: len(choices)]
            engine = Engine(
                **parts,
                probes=probes,
                snapshots=snapshots,
                loss=loss,
                batch_size=batch_size,
                members=members,
                devices=devices,
                stream=stream,
            )
            engine.require_fitting_start()
            run = _Run(
                lab=self,
                engine=engine,
                steps=steps,
                recorded=record.steps(steps),
                name=name,
                digest=self._digest(engine, steps, record, chosen_seeds, start),
            )
            arrays, seconds = run.result()
            leaves = {key: value for key, value in arrays.items() if key.startswith("carry:")}
            frame = _Frame(sweeps, chosen_seeds, parts["optimiser"], parts["task"])
            trajectory = frame.dataset(arrays, "probes", run.recorded, probes)
            ends = np.unique([0, steps])
            snapshot = (
                frame.dataset(arrays, "snapshots", ends, snapshots)
                if snapshots
                else trajectory[list(ALWAYS)].sel(step=ends)
            )
        return Training(trajectory, snapshot, run.digest, seconds, engine, leaves, self.precision)

    @contextmanager
    def _compilation_cache(self) -> Iterator[None]:
        """Keep compiled programs beside the trainings: arms of one shape, and second runs,
        compile once.
        """
        names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
        before = {name: getattr(jax.config, name) for name in names}
        if before[names[0]] is None:
            jax.config.update(names[0], str(self.folder / "compiled"))
            jax.config.update(names[1], 0.05)
        try:
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)

    def _digest(
        self,
        engine: Engine,
        steps: int,
        record: AbstractSchedule,
        seeds: Sequence[int],
        start: Training | None,
    ) -> str:
        """Content address: configs, seeds, precision, device kind, and the code and versions
        that shape the numbers.
        """
        content = {
            "task": describe(engine.task),
            "model": describe(engine.model),
            "optimiser": describe(engine.optimiser),
            "probes": [describe(probe) for probe in engine.probes],
            "snapshots": [describe(probe) for probe in engine.snapshots],
            "loss": describe(engine.loss),
            "steps": steps,
            "record": describe(record),
            "seeds": list(seeds),
            "batch_size": engine.batch_size,
            "stream": engine.stream,
            "start": None if start is None else start.digest,
            "precision": self.precision,
            "device": self.device,
            "versions": versions(),
            "code": _code_digest(engine),
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# -- one training, from start or from a saved state ------------------------------------------------


@dataclasses.dataclass
class _Run:
    lab: Lab
    engine: Engine
    steps: int
    recorded: np.ndarray
    name: str
    digest: str
    begun: float = dataclasses.field(default_factory=time.monotonic)

    @property
    def _file(self) -> Path:
        return self.lab.folder / f"{self.digest[:24]}.training"

    def result(self) -> tuple[dict[str, np.ndarray], float]:
        with locked(self._file.with_suffix(".lock"), self._say_waiting):
            header, arrays = self._saved()
            if header.get("finished") and not self.lab.fresh:
                self._say(self.steps, finished=True, note="from the cache")
                return arrays, header["seconds"]
            if self.lab.fresh and header.get("finished"):
                header, arrays = {}, {}
            return self._trained(header, arrays)

    def _saved(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if not self._file.exists():
            return {}, {}
        header, arrays = read_state(self._file)
        if header.get("digest") != self.digest:
            raise FileError(
                f"{self._file}: belongs to another training; move it away and run again"
            )
        return header, arrays

    def _trained(
        self, header: dict[str, Any], saved: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], float]:
        engine = self.engine
        measured = _Measured(engine, saved)
        carry, step = (
            (engine.put(_restored(engine, saved, self._file)), int(header["step"]))
            if header
            else (engine.start(), 0)
        )
        begun = last_state = time.monotonic()
        writing = 0.0
        before = float(header.get("seconds", 0.0))
        first_step, compiled = None, begun
        targets = [int(target) for target in self.recorded if target > step or not header]
        length = 1

        def state(finished: bool) -> dict[str, np.ndarray]:
            nonlocal last_state, writing
            started = time.monotonic()
            # A finished training needs no optimiser any more, which has most of the numbers.
            arrays = measured.arrays() | _leaves(
                (carry.learned, carry.still) if finished else carry
            )
            seconds = before + started - begun
            write_state(
                self._file,
                {"digest": self.digest, "step": step, "finished": finished, "seconds": seconds},
                arrays,
            )
            last_state = time.monotonic()
            writing = last_state - started
            return arrays

        with _polite_interrupt() as stop:
            if not header and engine.snapshots:
                measured.add("snapshots", engine.snapshot(carry))
            while targets:
                started = time.monotonic()
                counts, recorded = self._pieces(step, targets, length)
                carry, rows = engine.advance(carry, step, counts, recorded)
                measured.add_rows("probes", rows, sum(recorded))
                step += sum(counts)
                now = time.monotonic()
                length = _next_length(length, now - started)
                if first_step is None:
                    first_step, compiled = (
                        step,
                        now,
                    )  # the first dispatch compiles: it says nothing about the rest
                self._say(
                    step,
                    measured=measured,
                    seconds_left=_left(now - compiled, step - first_step, self.steps - step),
                )
                if self.lab.asked_to_stop is not None and self.lab.asked_to_stop():
                    stop.set()
                if targets and stop.is_set():
                    state(finished=False)
                    raise InterruptedTrainingError(
                        f"stopped {self.name} at step {step} of {self.steps}; the same command goes"
                        " on from there"
                    )
                if (
                    targets and now - last_state > self.lab.state_interval + 20 * writing
                ):  # large states take long to write
                    state(finished=False)
            if self.steps > 0 and engine.snapshots:
                measured.add("snapshots", engine.snapshot(carry))
        arrays = state(finished=True)
        self._say(self.steps, measured=measured, finished=True)
        if stop.is_set():
            raise InterruptedTrainingError(
                f"stopped after {self.name}, which is finished; the same command goes on from there"
            )
        return arrays, before + time.monotonic() - begun

    def _pieces(self, step: int, targets: list[int], length: int) -> tuple[list[int], list[bool]]:
        """The pieces of one dispatch, of about `length` steps together; takes the targets that they
        reach.

        Where pieces end changes no number of a stepper. It would change the flow's, so its pieces
        end at targets only.
        """
        flow = isinstance(self.engine.optimiser, GradientFlow)
        counts: list[int] = []
        recorded: list[bool] = []
        room = length
        while targets and len(counts) < PIECES and (room > 0 or not counts):
            gap = targets[0] - step
            reached = flow or gap <= room
            counts.append(gap if reached else room)
            recorded.append(reached)
            step, room = step + counts[-1], room - counts[-1]
            if reached:
                targets.pop(0)
        return counts, recorded

    def _say(
        self,
        step: int,
        *,
        measured: "_Measured | None" = None,
        seconds_left: float | None = None,
        finished: bool = False,
        note: str = "",
    ) -> None:
        if self.lab.progress is not None:
            loss, diverged = (float("nan"), 0) if measured is None else measured.latest()
            members = self.engine.count
            seconds = time.monotonic() - self.begun
            told = Progress(
                self.name,
                step,
                self.steps,
                loss,
                diverged,
                members,
                seconds_left,
                finished,
                note,
                seconds,
            )
            self.lab.progress(told)

    def _say_waiting(self) -> None:
        self._say(0, note="another process is training this; waiting for it")


class _Measured:
    """What the probes gave so far, on the host: for each variable one row a recorded step."""

    def __init__(self, engine: Engine, saved: Mapping[str, np.ndarray]):
        self._engine = engine
        self._rows: dict[str, list[np.ndarray]] = {
            key: list(rows)
            for key, rows in saved.items()
            if key.startswith(("probes:", "snapshots:"))
        }

    def add(self, which: str, results: dict[str, Any]) -> None:
        for name, value in self._engine.fetch(results).items():
            self._rows.setdefault(f"{which}:{name}", []).append(value)

    def add_rows(self, which: str, rows: dict[str, Any], filled: int) -> None:
        """Add the filled slots of one dispatch."""
        for name, value in self._engine.fetch(rows).items():
            self._rows.setdefault(f"{which}:{name}", []).extend(
                value[:, slot] for slot in range(filled)
            )

    def latest(self) -> tuple[float, int]:
        """Mean loss of the members that are still going, and how many are not."""
        diverged = self._rows["probes:diverged_at"][-1] != NOT_DIVERGED
        losses = self._rows["probes:loss"][-1][~diverged]
        return float(losses.mean()) if losses.size else float("nan"), int(diverged.sum())

    def arrays(self) -> dict[str, np.ndarray]:
        return {key: np.stack(rows) for key, rows in self._rows.items()}


def _left(seconds: float, done: int, remaining: int) -> float | None:
    return seconds / done * remaining if done else None


def _next_length(length: int, seconds: float) -> int:
    """Twice or half as many steps, until a dispatch takes a quarter of a second or so."""
    if seconds < 0.15:
        return length * 2
    return max(length // 2, 1) if seconds > 0.6 else length


def _leaves(carry: Any) -> dict[str, np.ndarray]:
    return {f"carry:{place}": np.asarray(leaf) for place, leaf in enumerate(jax.tree.leaves(carry))}


def _restored(
    engine: Engine, saved: Mapping[str, np.ndarray], origin: Path | str = "a finished training"
) -> Any:
    return _fitted(engine.shapes(), saved, origin)


def _fitted(
    tree: Any, saved: Mapping[str, np.ndarray], origin: Path | str = "a finished training"
) -> Any:
    """The tree of shapes with the saved arrays in their places."""
    shapes, structure = jax.tree.flatten(tree)
    leaves = [saved.get(f"carry:{place}") for place in range(len(shapes))]
    for shape, leaf in zip(shapes, leaves, strict=True):
        if leaf is None or leaf.shape != shape.shape or leaf.dtype != shape.dtype:
            raise FileError(
                f"{origin}: the saved state does not fit its own config; delete it and run again"
            )
    return jax.tree.unflatten(structure, leaves)


@contextmanager
def _polite_interrupt() -> Iterator[threading.Event]:
    """Ctrl-C sets a flag, so that training ends with a whole state; a second Ctrl-C ends it at
    once.

    A process that ignores Ctrl-C (a worker, or one under nohup) goes on ignoring it.
    """
    stop = threading.Event()
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is signal.SIG_IGN:
        yield stop
        return

    def ask(number: int, frame: Any) -> None:
        del number, frame
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, ask)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, previous)


# -- datasets --------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class _Frame:
    """Turns stacked results (step x member x ...) into a dataset with named dims."""

    sweeps: Mapping[str, Swept]
    seeds: Sequence[int]
    optimiser: AbstractOptimiser
    task: AbstractTask

    def dataset(
        self,
        arrays: Mapping[str, np.ndarray],
        which: str,
        steps: np.ndarray,
        probes: Sequence[AbstractProbe],
    ) -> "xr.Dataset":
        import xarray as xr

        described = dict(ALWAYS)
        coordinates: dict[str, Any] = {"seed": np.asarray(self.seeds), "step": steps}
        for probe in probes:
            described |= probe.variables
            for name, coordinate in probe.coordinates(self.task).items():
                known = coordinates.setdefault(name, coordinate)
                if known is not coordinate and list(known[1]) != list(coordinate[1]):
                    raise ConfigError(
                        f"probes: got two with a dim {name!r} of different values, allowed: the"
                        " same values for both"
                    )
        coordinates |= {name: np.asarray(swept.grid) for name, swept in self.sweeps.items()}
        coordinates["time"] = self._time(steps)
        outer = (*self.sweeps, "seed")
        grid = tuple(len(coordinates[dim]) for dim in outer)

        diverged_at = _diverged_at(arrays, steps, which)
        dead = (diverged_at >= 0) & (steps[:, None] >= diverged_at)
        data: dict[str, Any] = {}
        for name, variable in described.items():
            values = arrays[f"{which}:{name}"]
            if name == "diverged_at":
                data[name] = (
                    outer,
                    diverged_at.reshape(grid),
                    {"description": variable.description},
                )
                continue
            if np.issubdtype(values.dtype, np.floating):
                values = np.where(
                    dead.reshape(dead.shape + (1,) * (values.ndim - 2)), np.nan, values
                )
            inner = values.shape[2:]
            values = np.moveaxis(values.reshape(len(steps), *grid, *inner), 0, len(grid))
            data[name] = (
                (*outer, "step", *variable.dims),
                values,
                {"description": variable.description},
            )
        return xr.Dataset(data, coordinates)

    def _time(self, steps: np.ndarray) -> Any:
        rate = self.optimiser.rate
        unit = (
            "1/curvature at the start"
            if getattr(self.optimiser, "curvature", None) is not None
            else "1"
        )
        if isinstance(rate, Swept):
            return ((rate.name, "step"), np.asarray(rate.values)[:, None] * steps, {"unit": unit})
        return ("step", rate * steps, {"unit": unit})


def _diverged_at(arrays: Mapping[str, np.ndarray], steps: np.ndarray, which: str) -> np.ndarray:
    """Per member; a loss that is not finite at a recorded step counts even if no later step
    noticed it.
    """
    marked = arrays[f"{which}:diverged_at"][-1].astype(np.int64)
    bad = ~np.isfinite(arrays[f"{which}:loss"])
    first_bad = np.where(bad.any(axis=0), steps[bad.argmax(axis=0)], NOT_DIVERGED)
    return np.where((marked == NOT_DIVERGED), first_bad, marked)


# -- identity --------------------------------------------------------------------------------------


def describe(config: Any) -> Any:
    """A config as plain JSON, class names included."""
    if isinstance(config, Swept):
        return {"sweep": config.name, "grid": list(config.grid), "values": list(config.values)}
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        fields = {
            field.name: describe(getattr(config, field.name))
            for field in dataclasses.fields(config)
        }
        return {"class": f"{type(config).__module__}.{type(config).__qualname__}", **fields}
    if isinstance(config, list | tuple):
        return [describe(item) for item in config]
    if isinstance(config, dict):
        return {str(key): describe(value) for key, value in config.items()}
    if config is None or isinstance(config, bool | int | float | str):
        return config
    if isinstance(config, np.generic):
        return config.item()
    if isinstance(config, np.ndarray | jax.Array):
        array = np.asarray(config)
        return {
            "array": hashlib.sha256(array.tobytes()).hexdigest(),
            "shape": list(array.shape),
            "dtype": str(array.dtype),
        }
    if isinstance(config, partial):
        return {
            "partial": describe(config.func),
            "arguments": describe(config.args),
            "keywords": describe(config.keywords),
        }
    if isinstance(config, FunctionType) and "<" not in config.__qualname__:
        return {
            "function": f"{config.__module__}.{config.__qualname__}"
        }  # the source of its file is part of the digest
    if isinstance(config, FunctionType):
        # Lambdas and inner functions of one name may differ in what they do and in what they close
        # over.
        code, cells = config.__code__, config.__closure__ or ()
        constants = [
            constant
            for constant in code.co_consts
            if isinstance(constant, int | float | str | type(None))
        ]
        return {
            "function": f"{config.__module__}.{config.__qualname__}",
            "code": hashlib.sha256(code.co_code).hexdigest(),
            "constants": constants,
            "names": list(code.co_names),
            "closure": [describe(cell.cell_contents) for cell in cells],
        }
    if hasattr(config, "__dict__") and not isinstance(config, type):
        return {
            "class": f"{type(config).__module__}.{type(config).__qualname__}",
            **describe(vars(config)),
        }
    module = getattr(config, "__module__", "")
    return f"{module}.{getattr(config, '__qualname__', type(config).__qualname__)}"


def versions() -> dict[str, str]:
    """Versions that can change a number."""
    names = ("jax", "jaxlib", "equinox", "optax", "diffrax", "numpy")
    return {"saccade": __version__} | {name: importlib.metadata.version(name) for name in names}


def _code_digest(engine: Engine) -> str:
    """Hash of the source that shapes a training: engine, optimisers, and the files of everything
    that takes part.
    """
    package = Path(__file__).parents[1]
    files = {
        package / "core" / f"{name}.py" for name in ("engine", "interfaces", "optimiser", "sweep")
    }
    for folder in ("tasks", "models", "probes", "theory"):
        files |= set((package / folder).glob("*.py"))
    parts = (engine.task, engine.model, engine.optimiser, *engine.probes, *engine.snapshots)
    for part in (*(type(one) for one in parts), engine.loss, *_functions(parts)):
        # By module, because a decorated function may not know its own file; an interactive session
        # has none.
        source = getattr(sys.modules.get(part.__module__), "__file__", None)
        if source is not None:
            files.add(Path(source))
    digest = hashlib.sha256()
    for file in sorted(files, key=lambda path: (path.name, str(path))):
        digest.update(file.name.encode() + (file.read_bytes() if file.is_file() else b""))
    return digest.hexdigest()


def _functions(config: Any) -> list[FunctionType]:
    """The functions inside of configs: a curvature, frozen values, and the like."""
    if isinstance(config, FunctionType):
        return [config]
    if isinstance(config, partial):
        return _functions((config.func, config.args, tuple(config.keywords.values())))
    if isinstance(config, list | tuple):
        return [function for item in config for function in _functions(item)]
    if dataclasses.is_dataclass(config) and not isinstance(config, type):
        return _functions([getattr(config, field.name) for field in dataclasses.fields(config)])
    return []


def _seeds(seeds: int | Sequence[int]) -> tuple[int, ...]:
    chosen = (
        tuple(range(seeds))
        if isinstance(seeds, int | np.integer)
        else tuple(int(seed) for seed in seeds)
    )
    if not chosen or len(set(chosen)) < len(chosen) or min(chosen) < 0 or max(chosen) >= 2**32:
        raise ConfigError(
            f"seeds: got {seeds!r}, allowed: a count of at least 1, or distinct whole numbers"
            " from 0"
        )
    return chosen


def _sweeps_of(start: Training | None, known: Mapping[str, Swept]) -> dict[str, Swept]:
    """The sweeps of another training that the new one does not have: all its members start new
    ones.
    """
    dims = (
        []
        if start is None
        else [str(dim) for dim in start.trajectory["loss"].dims if dim not in ("seed", "step")]
    )
    return {
        dim: Swept.over(dim, start.trajectory[dim].values.tolist())
        for dim in dims
        if dim not in known
    }  # pyright: ignore[reportOptionalMemberAccess]


def _start_of(
    start: Training,
    seeds: Sequence[int],
    sweeps: Mapping[str, Swept],
    choices: Sequence[tuple[int, ...]],
    precision: Precision,
) -> list[Any]:
    """For every new member the numbers of the trained model that has its seed and its values of
    the other training's sweeps.
    """
    had = {
        str(dim): start.trajectory[dim].values.tolist()
        for dim in start.trajectory["loss"].dims
        if dim != "step"
    }
    for name, known in had.items():
        wanted = list(seeds) if name == "seed" else list(sweeps[name].grid)
        if not set(wanted) <= set(known):
            got, allowed = (", ".join(f"{one:g}" for one in numbers) for numbers in (wanted, known))
            raise ConfigError(
                f"start: got {name} {got}, allowed: those that the other training had, {allowed}"
            )
    sizes = [len(known) for known in had.values()]
    rows = []
    for choice in choices:
        values = {
            name: swept.grid[at]
            for (name, swept), at in zip(sweeps.items(), choice[:-1], strict=True)
        }
        values["seed"] = choice[-1]
        rows.append(
            int(
                np.ravel_multi_index(
                    [known.index(values[name]) for name, known in had.items()], sizes
                )
            )
        )
    leaves = [
        np.asarray(leaf)[rows]
        for leaf in jax.tree.leaves(eqx.filter(start.models, eqx.is_inexact_array))
    ]
    # The other training may have been done in another precision: members keep the new one's.
    return [leaf.astype(precision) if leaf.dtype == start._precision else leaf for leaf in leaves]


def _swept_part(config: Any, head: str, path: str, values: Sequence[float], name: str) -> Any:
    try:
        return with_sweep(config, path, values, name)
    except ConfigError as error:
        raise ConfigError(f"{head}: {error}") from error


def _use_all_cores() -> None:
    """Give every core its own JAX device, if JAX has not started yet: members then train in
    parallel on a CPU.
    """
    try:
        jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    except (RuntimeError, AttributeError):
        return  # JAX is already running; it keeps the devices it has


def _precision(precision: Precision) -> Any:
    if precision == "float64":
        return jax.enable_x64(True)
    return nullcontext() if not jax.config.jax_enable_x64 else jax.enable_x64(False)  # pyright: ignore[reportAttributeAccessIssue]
