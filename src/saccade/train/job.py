"""One call of `Lab.train`: the members at once, or in chunks: one after another in this process, or
given to a scheduler.
"""

import dataclasses
import os
import platform
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from saccade.errors import DoesNotFitError, InterruptedTrainingError, SaccadeError
from saccade.records.sealed import write_atomically
from saccade.train.devices import compilation_cache_in, use_all_cores
from saccade.train.engine import Engine, Moving
from saccade.train.identity import address
from saccade.train.members import Members
from saccade.train.parts import Part, Parts
from saccade.train.plan import Plan, planned
from saccade.train.precision import in_precision
from saccade.train.prepared import PreparedRecipe
from saccade.train.program import is_out_of_memory
from saccade.train.run import Run, is_result
from saccade.train.running import Running
from saccade.train.storage import Use
from saccade.train.whole import Whole
from saccade.workers.progress import Progress
from saccade.workers.schedulers import (
    AbstractScheduler,
    Failure,
    Shared,
    UnfitWorkerError,
    asked_to_stop,
    device_here,
    own_folder,
    report,
)
from saccade.workers.software import software, unfit

__all__: list[str] = []

CHUNK = 64
"""Members of a chunk that is given to a scheduler, unless the user says otherwise."""


@dataclasses.dataclass(frozen=True)
class Job:
    """A training, whatever number of members is trained at once."""

    running: Running
    prepared: PreparedRecipe
    name: str
    after: Moving | None = None
    """The state of all members with which they begin, if they go on from another training."""
    axes: tuple[tuple[str, Sequence[float]], ...] = ()
    """Names and values of the members' axes, the last one fastest."""
    device: str = ""
    """The devices of this process, in words."""
    chunk: int | None = None
    """Members that are trained at once; None: all that fit, or `CHUNK` with a scheduler."""
    scheduler: AbstractScheduler | None = None
    plans: list[Plan] = dataclasses.field(default_factory=list)
    """What a dry run notes."""

    def result(self, members: Members) -> tuple[Engine, str | None, Parts, float]:
        """The programs (of all members, of a chunk, or of one), the content address, what the
        training left, and the seconds that it took.
        """
        count = len(members.seed)
        use = None if self.running.dry_run else Use(self.running.folder)
        if self.scheduler is None or self.running.dry_run:
            done = list(self._chunked(members, self.chunk or count))
        else:
            done = self._scheduled(members, min(self.chunk or CHUNK, count))
        engine = self.prepared.released() or self.prepared.engine(_some(members, slice(0, 1)))
        digests = [part.digest for part in done]
        digest = digests[0]
        if len(done) > 1:
            digest = None if None in digests else address({"chunks": digests})
        return (
            engine,
            digest,
            Parts(done, use if any(one.file for one in done) else None),
            sum(part.seconds for part in done),
        )

    def _named(self, some: slice, count: int) -> str:
        return self.name if _length(some) == count else f"{self.name} ({_range(some)})"

    # -- one after another -------------------------------------------------------------------------

    def _chunked(self, members: Members, size: int) -> Iterator[Part]:
        """The results of chunks of at most `size` members; of half as many from where a chunk does
        not fit.
        """
        count, at = len(members.seed), 0
        whole = Whole(self.name, count, self.prepared.steps, self.running.progress)
        while at < count:
            some = slice(at, min(at + size, count))
            held = _length(some)
            chunk, begun = _some(members, some), _some(self.after, some)
            running, is_chunk, places = self.running, held < count, None
            if is_chunk and not running.dry_run:
                show = lambda progress, at=at, held=held: whole.show(at, held, progress)  # noqa: E731
                running = dataclasses.replace(running, progress=show)
            if is_chunk:
                places = size  # the last chunk is filled up, so that one program serves all
            name = self._named(some, count) if running.dry_run else self.name
            run = self.prepared.run(running, self.device, chunk, begun, name, places)
            result = self._result(run, held)
            run.engine.release_members()
            if result is None:
                size = -(-held // 2)
                continue
            arrays, seconds = result
            # Of many chunks the files are read again, so that memory does not grow.
            kept = run.digest is not None and is_chunk and not self.running.dry_run
            found: dict[str, Any] = {"file": run.file} if kept else {"held": arrays}
            yield Part(held, run.digest, seconds, **found)
            at += held

    def _result(self, run: Run, held: int) -> tuple[dict[str, np.ndarray], float] | None:
        """What a chunk left, and the seconds that it took; None if half of it is to be tried."""
        if self.running.dry_run:
            plan, arrays = planned(run)
            self.plans.append(plan)
            self.running.say(run.name, "planned")
            return arrays, 0.0
        if held == 1:
            return run.result()
        # What was begun as a whole goes on as a whole.
        if not run.is_begun() and not _fits(run.engine):
            return None
        try:
            return run.result()
        except DoesNotFitError:
            if run.is_begun():
                raise
            return None

    # -- elsewhere ---------------------------------------------------------------------------------

    def _scheduled(self, members: Members, size: int) -> list[Part]:
        """The results of all chunks, from the scheduler's workers."""
        running, scheduler = self.running, self.scheduler
        assert scheduler is not None
        count = len(members.seed)
        chunks = [slice(at, min(at + size, count)) for at in range(0, count, size)]

        def row(place: int) -> tuple[Any, ...]:
            after = jax.tree.map(np.asarray, _some(self.after, chunks[place]))
            return _some(members, chunks[place]), after, self.name, size

        folder = running.folder.resolve()
        marker = _marked(folder)
        whole = Whole(self.name, count, self.prepared.steps, running.progress)

        def show(place: int, progress: Progress) -> None:
            whole.show(place, _length(chunks[place]), progress)
            if running.asked_to_stop is not None and running.asked_to_stop():
                kept = "finished chunks are kept, and the same command goes on from there"
                raise InterruptedTrainingError(f"stopped in {self.name}; {kept}")

        found: dict[int, Part] = {}
        programs: dict[str, tuple[str, str]] = {}
        try:
            settings = (
                str(folder),
                marker.name,
                running.fresh,
                running.state_interval,
                scheduler.device,
            )
            shared = Shared(Work(self.prepared, *settings))
            if not running.fresh and not scheduler.sees(marker) and any(folder.glob("*.training")):
                # Chunks may be finished in this folder, which workers do not see.
                every = range(len(chunks))
                for place, digest in scheduler.results(identify_chunk, every, row, show, shared):
                    if part := self._finished(digest, _length(chunks[place])):
                        found[place] = part
                        whole.ended(place, part.count, whole.from_cache)
            todo = [place for place in range(len(chunks)) if place not in found]
            for place, result in scheduler.results(train_chunk, todo, row, show, shared):
                found[place] = part = self._part(result, _length(chunks[place]), programs)
                if part.failure:
                    where = self._described(chunks[place])
                    running.say(self.name, f"{where}: {part.failure}; they are missing")
                whole.ended(place, part.count, getattr(result, "last", None))
        finally:
            marker.unlink(missing_ok=True)
        done = [found[place] for place in range(len(chunks))]
        if all(part.failure for part in done):
            raise SaccadeError(f"{self.name}: every chunk failed; the first: {done[0].failure}")
        return done

    def _finished(self, digest: Any, count: int) -> Part | None:
        """A chunk that is finished in this process's folder."""
        if not isinstance(digest, str):
            return None
        file = _file(self.running.folder, digest)
        seconds = is_result(file, digest, self.prepared.recipe.keep_state)
        return None if seconds is None else Part(count, digest, seconds, file)

    def _part(self, result: Any, count: int, programs: dict[str, tuple[str, str]]) -> Part:
        """What a worker answered; `programs` are those of the workers so far."""
        if isinstance(result, Failure):
            return Part(count, failure=f"failed {result.tries} times ({result})")
        shapes, computed = result.programs
        before, other = programs.setdefault(shapes, (computed, result.worker))
        if before != computed:
            raise SaccadeError(
                f"{self.name}: {other} and {result.worker} compute different programs, allowed: "
                "the same code on all workers; install the same saccade everywhere"
            )
        file = _file(self.running.folder, result.digest) if result.digest else None
        if file is not None and result.content is not None:
            write_atomically(file, result.content)
        return Part(count, result.digest, result.seconds, file, result.arrays)

    def _described(self, some: slice) -> str:
        """The cells of some members, in words."""
        sizes = [len(values) for _, values in self.axes]
        ends = [np.unravel_index(at, sizes) for at in (some.start, some.stop - 1)]
        texts = [
            " ".join(
                f"{name} {values[at]:g}" for (name, values), at in zip(self.axes, end, strict=True)
            )
            for end in ends
        ]
        return f"members {_range(some)} ({texts[0]} to {texts[1]})"


@dataclasses.dataclass(frozen=True)
class Work:
    """What every worker must know of a training."""

    prepared: PreparedRecipe
    folder: str
    """Folder of the waiting process."""
    marker: str
    """A file in it, by which a worker knows whether it sees the same folder."""
    fresh: bool
    state_interval: float
    device: str
    """The device that every worker must have."""
    versions: dict[str, str] = dataclasses.field(default_factory=software)

    def require_fit(self) -> None:
        """Refuse to work with other software or on another device than the others."""
        if why := unfit(self.versions, software(), self.device, device_here()):
            raise UnfitWorkerError(why)

    def folder_here(self) -> tuple[Path, bool]:
        """Where this worker keeps its states, and whether the waiting process sees them."""
        if (Path(self.folder) / self.marker).exists():
            return Path(self.folder), True
        return Path(own_folder()), False


@dataclasses.dataclass(frozen=True)
class Trained:
    """What a worker answers about a chunk."""

    worker: str
    digest: str | None
    programs: tuple[str, str]
    """The shapes of its members and data, and a hash of the programs that it ran: for the same
    shapes they must be the same on all workers."""
    seconds: float
    began_at: int
    """The step from which it went on."""
    last: Progress | None
    """What it said at its end."""
    content: bytes | None = None
    """The file of the result, where the waiting process does not see it."""
    arrays: dict[str, np.ndarray] | None = None
    """The result itself, where it cannot be kept."""


def _worker_run(
    work: Work, members: Members, after: Any, name: str, places: int
) -> tuple[Run, bool]:
    work.require_fit()
    folder, seen = work.folder_here()
    use_all_cores()
    running = Running(folder, _Throttled(), work.state_interval, work.fresh, asked_to_stop)
    return work.prepared.run(running, device_here(), members, after, name, places), seen


def train_chunk(work: Work, members: Members, after: Any, name: str, places: int) -> Trained:
    """Train some members; runs in a worker."""
    precision: Any = work.prepared.precision
    with in_precision(precision), compilation_cache_in(work.folder_here()[0]):
        run, seen = _worker_run(work, members, after, name, places)
        arrays, seconds = run.result()
        last = run.running.progress.last  # pyright: ignore[reportFunctionMemberAccess,reportOptionalMemberAccess]
        computed = address({name: one.digest for name, one in run.engine.programs.items()})
        programs = (run.engine.outline, computed)
        run.engine.release_members()
    where = f"{platform.node()}, process {os.getpid()}"
    about = (where, run.digest, programs, seconds, run.began_at, last)
    if run.digest is None:
        return Trained(*about, arrays=arrays)
    if seen:
        return Trained(*about)
    content = run.file.read_bytes()
    run.file.unlink()
    return Trained(*about, content)


def identify_chunk(work: Work, members: Members, after: Any, name: str, places: int) -> str | None:
    """The content address of a chunk; runs in a worker."""
    precision: Any = work.prepared.precision
    with in_precision(precision):
        run, _ = _worker_run(work, members, after, name, places)
        run.engine.release_members()
        return run.digest


class _Throttled:
    """Reports at most twice per second; the end is part of the answer."""

    def __init__(self):
        self._time = time.monotonic()
        self.last: Progress | None = None

    def __call__(self, progress: Progress) -> None:
        self.last, now = progress, time.monotonic()
        if not progress.finished and (now - self._time > 0.5 or progress.note):
            self._time = now
            report(progress)


def _some(tree: Any, some: slice) -> Any:
    return jax.tree.map(lambda leaf: leaf[some], tree)


def _range(some: slice) -> str:
    return f"{some.start + 1}-{some.stop}"


def _marked(folder: Path) -> Path:
    """A file by which workers know the folder; those that killed processes left are removed."""
    for old in folder.glob(".*.seen"):
        if time.time() - old.stat().st_mtime > 86400:
            old.unlink(missing_ok=True)
    marker = folder / f".{uuid.uuid4().hex}.seen"
    write_atomically(marker, b"")
    return marker


def _file(folder: Path, digest: str) -> Path:
    return folder / f"{digest[:24]}.training"


def _length(some: slice) -> int:
    return some.stop - some.start


def _fits(engine: Engine) -> bool:
    """Whether a training fits the memory of a device, as the compiler counts it."""
    devices = engine.placement.devices
    device = devices[0]
    limit = (device.memory_stats() or {}).get("bytes_limit", 0)
    if device.platform == "cpu":
        limit = _free_memory() // len(devices)
    try:
        return not limit or engine.programs["advance"].memory <= 0.9 * limit
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return False


def _free_memory() -> int:
    """Bytes of main memory that are available; 0 where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    sizes = [int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    return 1024 * sum(sizes)
