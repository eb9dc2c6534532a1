"""Work that is done elsewhere: by processes of this machine or, in `dask_cluster`, by Dask.

A scheduler calls a function on many rows of arguments and gives the results as they come. A call
whose worker dies, or that fails for a reason which may not be the user's, is tried again elsewhere.
"""

import collections
import dataclasses
import multiprocessing
import os
import pickle
import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from saccade.errors import ConfigError, FileError, SaccadeError, described
from saccade.workers.code import bundled, unpack
from saccade.workers.progress import Progress
from saccade.workers.software import cores_here

__all__: list[str] = []

TRIES = 3
"""How often a call is tried before it is given up."""
Show = Callable[[Progress], None]


class WorkerLostError(SaccadeError):
    """A worker that ended in the middle of a call."""


class UnfitWorkerError(SaccadeError):
    """A worker that cannot do this work: other versions, or another device."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """The result of a call that was given up."""

    error: BaseException
    tries: int | str

    def __str__(self) -> str:
        return described(self.error)


@dataclasses.dataclass(frozen=True)
class Report:
    """What a call says of its progress."""

    place: int
    progress: Progress


@dataclasses.dataclass(frozen=True)
class Ended:
    """The end of a call: its result, or its error and the worker on which it arose."""

    place: int
    result: Any
    error: BaseException | None = None
    worker: str = ""
    final: bool = False
    """Whether it is not to be tried again."""


class Shared:
    """An argument that every call gets, sent to a worker once: what it is, and the user's code that
    it needs.
    """

    def __init__(self, value: Any):
        import cloudpickle

        try:
            pickled = cloudpickle.dumps(value)
            self.payload = pickle.dumps((bundled(pickled), pickled))
        except Exception as error:
            why = f"this training cannot be sent to workers: {described(error)}"
            raise ConfigError(f"scheduler: {why}") from error
        if b"_make_skeleton_class" in pickled and b"_ModuleMeta" in pickled:
            raise ConfigError(
                "scheduler: got an Equinox module of a script or notebook, allowed: one of a .py "
                "file beside it, which is imported"
            )

    @staticmethod
    def unpacked(payload: bytes) -> Any:
        code, value = pickle.loads(payload)
        unpack(code)
        return pickle.loads(value)


class AbstractScheduler(ABC):
    """Somewhere to work."""

    @property
    @abstractmethod
    def device(self) -> str:
        """The device of a worker, in words."""

    @abstractmethod
    def sees(self, file: Path) -> bool:
        """Whether all workers see a file of this machine."""

    @abstractmethod
    def begin(self, function: Callable[..., Any], shared: Shared | None) -> None:
        """Prepare for calls of a function; with `shared`, that is its first argument."""

    @abstractmethod
    def has_room(self) -> bool:
        """Whether another call can be submitted."""

    @abstractmethod
    def submit(self, place: int, row: tuple[Any, ...], avoid: set[str]) -> None:
        """Begin a call, not on the workers to avoid if there are others."""

    @abstractmethod
    def events(self) -> Iterator[Report | Ended]:
        """What has happened; waits a tenth of a second for the first event."""

    @abstractmethod
    def leave_out(self, worker: str, why: str, always: bool = True) -> None:
        """Give no further calls to a worker; unless `always`, only if there are others."""

    @abstractmethod
    def stop(self) -> None:
        """Ask all calls to end; waits for those of workers that end with this process."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the workers."""

    def results(
        self,
        function: Callable[..., Any],
        places: Sequence[int],
        row: Callable[[int], Sequence[Any]],
        show: Callable[[int, Progress], None],
        shared: Shared | None = None,
        tries: int = TRIES,
    ) -> Iterator[tuple[int, Any]]:
        """Call a function on the row of every place; gives (place, result) as they end.

        What the function passes to `report` arrives at `show`. The user's own mistakes are raised
        at once; a call that fails otherwise as often as `tries` says has a `Failure` as its result.
        """
        self.begin(function, shared)
        todo, running = collections.deque(places), 0
        failed: dict[int, list[str]] = collections.defaultdict(list)  # the workers, by place
        failing: collections.Counter[str] = collections.Counter()  # in a row, by worker
        try:
            while todo or running:
                while todo and self.has_room():
                    place = todo.popleft()
                    self.submit(place, tuple(row(place)), set(failed[place]))
                    running += 1
                for event in self.events():
                    if isinstance(event, Report):
                        show(event.place, event.progress)
                        continue
                    running -= 1
                    error, place = event.error, event.place
                    if error is None:
                        failing[event.worker] = 0
                        yield place, event.result
                    elif isinstance(error, UnfitWorkerError):
                        self.leave_out(event.worker, str(error))
                        todo.appendleft(place)
                    elif isinstance(error, SaccadeError) and not _may_pass(error):
                        raise error
                    else:
                        failed[place].append(event.worker)
                        failing[event.worker] += 1
                        if failing[event.worker] >= TRIES:
                            why = f"{TRIES} calls in a row failed there ({described(error)})"
                            self.leave_out(event.worker, why, always=False)
                        if event.final or len(failed[place]) >= tries:
                            # Dask counts itself what it tries again on other workers.
                            count = "several" if event.final else len(failed[place])
                            yield place, Failure(error, count)
                        else:
                            todo.appendleft(place)
        except BaseException:
            self.stop()
            raise


def _silent(place: int, progress: Progress) -> None:
    pass


def _may_pass(error: SaccadeError) -> bool:
    """Whether the same call may succeed elsewhere."""
    return isinstance(error, FileError | WorkerLostError)


# -- in a worker -----------------------------------------------------------------------------------

_here: "Here | None" = None
"""How this process is connected to the one that waits for it, if it is a worker."""


class Here(ABC):
    """What a worker can say to the process that waits for it, and hear from it."""

    folder: str = ""
    """Where this worker keeps what it cannot keep in a folder of all."""

    @abstractmethod
    def report(self, progress: Progress) -> None: ...

    @abstractmethod
    def asked_to_stop(self) -> bool: ...


def connect(here: Here | None) -> None:
    global _here
    _here = here


def is_connected() -> bool:
    """Whether this process is doing a call."""
    return _here is not None


def report(progress: Progress) -> None:
    """Report to the waiting process how far a training is."""
    if _here is not None:
        _here.report(progress)


def asked_to_stop() -> bool:
    """Whether the waiting process wants this one to stop, or is gone."""
    return _here is not None and _here.asked_to_stop()


def own_folder() -> str:
    """A folder of this worker, or of its machine."""
    return "" if _here is None else _here.folder


def use_one_core() -> None:
    """Let JAX use one core of a CPU, if it has not started: the numbers of a chunk then do not
    depend on how many cores a worker's machine has.
    """
    import jax

    try:
        jax.config.update("jax_num_cpu_devices", 1)
    except RuntimeError:
        return  # JAX is already running; `device_here` tells what it has
    os.environ["NPROC"] = "1"  # the size of XLA's thread pool, which is read at the start
    jax.local_devices()


def device_here() -> str:
    """The devices of this worker, in words."""
    import jax

    devices = jax.local_devices()
    if devices[0].platform == "cpu":
        cores = "1 core" if os.environ.get("NPROC") == "1" else f"{os.cpu_count()} cores"
        return f"CPU, {cores} per worker" if len(devices) == 1 else f"CPU, {len(devices)} devices"
    kind = devices[0].device_kind
    return f"{kind} per worker" if len(devices) == 1 else f"{len(devices)} x {kind} per worker"


# -- processes of this machine ---------------------------------------------------------------------


class LocalProcesses(AbstractScheduler):
    """Processes of this machine, connected by pipes; nothing listens on the network."""

    def __init__(self, count: int, one_core: bool = True):
        self.count, self._one_core = count, one_core
        self._context = multiprocessing.get_context("spawn")  # a forked JAX hangs
        self._processes: list[_Process] = []
        self._call: tuple[Callable[..., Any], Shared | None] | None = None
        self._device = ""

    @property
    def device(self) -> str:
        if not self._device:
            for _, found in self.results(device_here, [0], lambda _: (), _silent, tries=1):
                if isinstance(found, Failure):
                    raise found.error
                self._device = found
        return self._device

    def sees(self, file: Path) -> bool:
        return True

    def begin(self, function: Callable[..., Any], shared: Shared | None) -> None:
        self._call = function, shared

    def has_room(self) -> bool:
        return sum(one.place is not None for one in self._processes) < self.count

    def submit(self, place: int, row: tuple[Any, ...], avoid: set[str]) -> None:
        import cloudpickle

        assert self._call is not None
        function, shared = self._call
        message = None if shared is None else shared.payload
        idle = [one for one in self._processes if one.place is None]
        # A process that has the shared argument already.
        idle.sort(key=lambda one: one.shared is not message)
        one = idle[0] if idle else self._started()
        one.place = place
        try:
            if one.shared is not message:
                one.connection.send_bytes(b"S" + (message or b""))
                one.shared = message
            one.connection.send_bytes(b"C" + cloudpickle.dumps((function, row, shared is not None)))
        except OSError:
            return  # it is dead, which `events` notices

    def _started(self) -> "_Process":
        ours, theirs = self._context.Pipe()
        arguments = (theirs, self._one_core, self.count)
        process = self._context.Process(target=_serve, args=arguments, daemon=True)
        process.start()
        theirs.close()
        self._processes.append(_Process(process, ours))  # pyright: ignore[reportArgumentType]
        return self._processes[-1]

    def events(self) -> Iterator[Report | Ended]:
        by_connection = {one.connection: one for one in self._processes}
        for connection in wait(list(by_connection), 0.1):
            one = by_connection[connection]  # pyright: ignore[reportArgumentType]
            place = one.place
            try:
                kind, content = pickle.loads(one.connection.recv_bytes())
            except (EOFError, OSError):
                self._processes.remove(one)
                one.process.join()
                why = f"a worker process ended ({_ending(one.process.exitcode)})"
                if not one.heard and one.process.exitcode == 1:
                    why += '; a script that uses workers needs `if __name__ == "__main__":`'
                if place is not None:
                    yield Ended(place, None, WorkerLostError(why), str(one.process.pid))
                continue
            assert place is not None, "a worker speaks only during a call"
            one.heard = True
            if kind == "report":
                yield Report(place, content)
                continue
            one.place = None
            error = content if kind == "error" else None
            yield Ended(place, None if error else content, error, str(one.process.pid))

    def leave_out(self, worker: str, why: str, always: bool = True) -> None:
        if always:  # processes of one machine are alike: another one would not fit either
            raise SaccadeError(f"worker process {worker}: {why}")

    def stop(self) -> None:
        busy = [one for one in self._processes if one.place is not None]
        try:
            for one in busy:
                try:
                    one.connection.send_bytes(b"X")
                except OSError:
                    one.place = None
            while any(one.place is not None for one in self._processes):
                for _ in self.events():
                    pass
        except KeyboardInterrupt:
            for one in self._processes:
                one.process.kill()
        self.close()

    def close(self) -> None:
        for one in self._processes:
            one.connection.close()  # which ends it
        for one in self._processes:
            one.process.join(5)
            if one.process.is_alive():
                one.process.kill()
        self._processes.clear()


@dataclasses.dataclass(eq=False)
class _Process:
    process: Any
    connection: Connection
    place: int | None = None
    """The call that it is busy with."""
    shared: bytes | None = None
    """The shared argument that it has."""
    heard: bool = False
    """Whether it has answered."""


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        hint = ", out of memory?" if code == -getattr(signal, "SIGKILL", 9) else ""
        return f"killed by {signal.Signals(-code).name}{hint}"
    return f"exit code {code}"


class _Piped(Here):
    def __init__(self, connection: Connection):
        self._connection, self._parent, self._stopped = connection, os.getppid(), False

    def report(self, progress: Progress) -> None:
        self.send("report", progress)

    def asked_to_stop(self) -> bool:
        if not self._stopped and self._connection.poll():
            self._stopped = True  # nothing else is sent during a call, but the end of the pipe
        return self._stopped or os.getppid() != self._parent

    def send(self, kind: str, content: Any) -> None:
        import cloudpickle

        self._connection.send_bytes(cloudpickle.dumps((kind, content)))


def _serve(connection: Connection, one_core: bool, count: int) -> None:
    """What a worker process does until its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the waiting process alone
    here = _Piped(connection)
    connect(here)
    if one_core:
        os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", f"{0.9 / count:.3f}")
        use_one_core()
    shared: Any = None
    while True:
        try:
            message = connection.recv_bytes()
        except (EOFError, OSError):
            return
        if message[:1] == b"X":  # came too late: the call had ended
            continue
        try:
            if message[:1] == b"S":
                shared = message[1:]
                continue
            if isinstance(shared, bytes):
                shared = Shared.unpacked(shared) if shared else None
            function, row, with_shared = pickle.loads(message[1:])
            answer = "result", function(*((shared,) if with_shared else ()), *row)
        except Exception as error:
            answer = "error", sendable(error)
        try:
            here.send(*answer)
        except OSError:
            return
        except Exception as error:
            why = f"the result of a call cannot be sent ({described(error)})"
            here.send("error", RuntimeError(why))


def sendable(error: BaseException) -> BaseException:
    """An error without what cannot be sent: frames, and objects of other libraries."""
    if not isinstance(error, SaccadeError):
        return RuntimeError(described(error))
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


def sensible_number() -> int:
    """How many processes: one on an accelerator, which they would share; else one per core, up to
    four.
    """
    import jax

    return 1 if jax.default_backend() != "cpu" else min(4, cores_here())
