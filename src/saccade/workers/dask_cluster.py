"""Work on a Dask cluster: any that runs, or one of processes of this machine.

Workers do one call at a time, in a process of their own with one thread. Their chunks and states
are files in the folder of the waiting process, where a worker sees it; else in a folder of its
machine, and results travel. Dask pickles what travels; no file holds a pickle.
"""

import collections
import contextlib
import dataclasses
import logging
import pickle
import queue
import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
from dask.context import thread_state
from distributed import Client, Future, KilledWorker, LocalCluster, Security, get_worker

from saccade.errors import SaccadeError, described
from saccade.workers.progress import Progress
from saccade.workers.schedulers import (
    AbstractScheduler,
    Ended,
    Here,
    Report,
    Shared,
    UnfitWorkerError,
    WorkerLostError,
    connect,
    device_here,
    is_connected,
    sendable,
    use_one_core,
)
from saccade.workers.software import software, unfit

__all__: list[str] = []

log = logging.getLogger("saccade.workers")

AHEAD = 2
"""Calls per worker that are submitted at once: one runs, one waits. More would not be faster, and
could not be given to workers that come later."""
LOOK = 2.0
"""Seconds between two looks for new workers."""


_TOO_MANY = "it has {} threads; start it with --nthreads 1"


class DaskScheduler(AbstractScheduler):
    """A Dask cluster."""

    def __init__(self, text: str, patience: float = 10.0):
        logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are said in one line
        self._cluster: LocalCluster | None = None
        self._name, self._patience = text, patience
        where: dict[str, Any] = {"address": text}
        try:
            if count := re.fullmatch(r"dask:(\d+)", text):
                # Other machines do not see it, and other users of this one have no key.
                self._cluster = LocalCluster(
                    security=Security.temporary(),
                    protocol="tls://",
                    n_workers=int(count[1]),
                    threads_per_worker=1,
                    processes=True,
                    host="127.0.0.1",
                    dashboard_address="127.0.0.1:0",
                )
                where = {"address": self._cluster}
            elif text.endswith(".json"):
                where = {"scheduler_file": text}
                if not Path(text).exists():
                    raise OSError("no such file; does the scheduler run?")
            self._client = Client(**where, timeout=patience, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            why = str(error).splitlines()[0] if str(error) else "no answer"
            raise SaccadeError(f"scheduler {text}: cannot be reached: {why}") from error
        self._topic = f"saccade-{uuid.uuid4().hex}"
        self._queue: queue.Queue[Report | Future] = queue.Queue()
        self._client.subscribe_topic(self._topic, self._heard)
        self._running: dict[str, tuple[int, Future]] = {}
        self._fit: set[str] = set()
        self._out: dict[str, str] = {}
        self._looked = -LOOK
        self._waiting = False
        self._expected = ""
        self._call: tuple[Callable[..., Any], Future | None] | None = None

    # -- workers -----------------------------------------------------------------------------------

    @property
    def device(self) -> str:
        if not self._expected:
            self._wait_for_workers()
        return self._expected

    def sees(self, file: Path) -> bool:
        self._wait_for_workers()
        found: Any = self._client.run(_exists, str(file), workers=[*self._fit], on_error="return")
        return all(one is True for one in found.values())

    def _wait_for_workers(self) -> None:
        while True:
            self._look()
            if self._fit:
                return
            self._require_some()
            time.sleep(LOOK / 4)

    def _look(self) -> None:
        """Look at workers that are new; those that cannot take part are named and left out."""
        if time.monotonic() - self._looked < LOOK and self._fit:
            return
        self._looked = time.monotonic()
        known = self._workers()
        self._fit &= set(known)
        new = sorted(set(known) - self._fit - set(self._out))
        found: Any = self._client.run(_about, workers=new, on_error="return") if new else {}
        abouts = {worker: one for worker, one in found.items() if isinstance(one, dict)}
        for worker, one in found.items():
            if worker not in abouts:
                self.leave_out(worker, f"saccade cannot be started there ({described(one)})")
        if abouts and not self._expected:
            devices = collections.Counter(one["device"] for one in abouts.values())
            # Workers with accelerators before those without.
            chosen = sorted(devices, key=lambda one: (one.startswith("CPU"), -devices[one], one))
            self._expected = chosen[0]
        for worker, one in abouts.items():
            threads = known[worker]["nthreads"]
            why = unfit(software(), one["software"], self._expected, one["device"])
            if threads != 1:
                why = why or _TOO_MANY.format(threads)
            if why:
                self.leave_out(worker, why)
            else:
                self._fit.add(worker)
        if not self._fit and not self._waiting:
            log.warning("saccade: %s has no worker that fits; waiting", self._name)
        self._waiting = not self._fit

    def _require_some(self) -> None:
        """Stop if all workers there are cannot take part."""
        known = set(self._workers())
        if known and known <= set(self._out):
            worker = min(known)
            why = f"no worker fits: {worker}: {self._out[worker]}"
            raise SaccadeError(f"scheduler {self._name}: {why}")

    def _workers(self) -> dict[str, Any]:
        self._require_scheduler()
        return dict(self._client.scheduler_info(n_workers=-1)["workers"])

    def _require_scheduler(self) -> None:
        if self._client.status not in ("running", "connecting"):
            raise self._gone()

    def _gone(self) -> SaccadeError:
        return SaccadeError(
            f"scheduler {self._name}: is gone; finished chunks are kept, and the same command goes "
            "on from there"
        )

    def leave_out(self, worker: str, why: str, always: bool = True) -> None:
        if not always and self._fit <= {worker}:
            return
        if worker not in self._out:
            log.warning("saccade: worker %s is left out: %s", worker, why)
        self._out[worker] = why
        self._fit.discard(worker)

    # -- calls -------------------------------------------------------------------------------------

    def begin(self, function: Callable[..., Any], shared: Shared | None) -> None:
        self._wait_for_workers()
        future = None
        if shared is not None:
            # A task, not scattered data: Dask makes it again if the worker that has it dies.
            key = f"{self._topic}-shared-{uuid.uuid4().hex}"
            future = self._client.submit(bytes, shared.payload, key=key)
        self._call = function, future

    def has_room(self) -> bool:
        if not self._fit:
            self._require_some()
        return len(self._running) < AHEAD * len(self._fit)

    def submit(self, place: int, row: tuple[Any, ...], avoid: set[str]) -> None:
        assert self._call is not None
        function, shared = self._call
        key = f"{self._topic}-{uuid.uuid4().hex}"
        call = cloudpickle.dumps((function, row))
        # The worker is free to be any, unless some are left out.
        others = self._fit - avoid or self._fit
        where = sorted(others) if self._out or avoid else None
        about = (self._topic, place, "" if shared is None else str(shared.key))
        arguments = (_called, *about, shared, call)
        # Others may do it where all of these are gone; those that do not fit refuse.
        others_too = where is not None
        future = self._client.submit(
            *arguments, key=key, pure=False, workers=where, allow_other_workers=others_too
        )
        self._running[key] = place, future
        future.add_done_callback(self._queue.put)

    def _heard(self, event: tuple[float, dict[str, Any]]) -> None:
        message = event[1]
        self._queue.put(Report(message["place"], Progress(**message["progress"])))

    def events(self) -> Iterator[Report | Ended]:
        self._look()
        try:
            event = self._queue.get(timeout=0.1)
        except queue.Empty:
            self._require_scheduler()
            return
        while True:
            if isinstance(event, Report):
                yield event
            elif event.key in self._running:
                yield self._ended(event)
            try:
                event = self._queue.get_nowait()
            except queue.Empty:
                return

    def _ended(self, future: Future) -> Ended:
        place, _ = self._running.pop(str(future.key))
        if future.status == "finished":
            kind, content, worker = future.result()
            future.release()
            if kind == "result":
                return Ended(place, content, worker=worker)
            return Ended(place, None, content, worker)
        if future.status == "error":
            error = future.exception()
            if isinstance(error, KilledWorker):  # Dask has tried it on other workers
                lost = WorkerLostError("its workers were killed, one after another")
                return Ended(place, None, lost, final=True)
            return Ended(place, None, RuntimeError(described(error)))  # pyright: ignore[reportArgumentType]
        raise self._gone()  # Dask cancels calls when the connection ends

    def stop(self) -> None:
        """Cancelled calls notice it and end, with whole states; the workers go on without us, but
        for those of our own cluster.
        """
        with contextlib.suppress(Exception):
            self._client.cancel([future for _, future in self._running.values()])
            end = time.monotonic() + 10
            while self._cluster is not None and time.monotonic() < end:
                busy: Any = self._client.run(_is_busy)
                if not any(busy.values()):
                    break
                time.sleep(0.1)
        self._running.clear()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._client.unsubscribe_topic(self._topic)
            self._client.close(timeout=2)
        if self._cluster is not None:
            self._cluster.close(timeout=10)


# -- in a worker -----------------------------------------------------------------------------------

_unpacked: dict[str, Any] = {}
"""The shared argument that this worker has, by its key."""


def _is_busy() -> bool:
    return is_connected()


def _exists(file: str) -> bool:
    return Path(file).exists()


def _about() -> dict[str, Any]:
    use_one_core()
    return {"software": software(), "device": device_here()}


class _OnDask(Here):
    def __init__(self, topic: str, place: int):
        self._topic, self._place, self._worker = topic, place, get_worker()
        self._key, self.threads = thread_state.key, self._worker.state.nthreads
        self.folder = str(Path(self._worker.local_directory).parent / "saccade")

    def report(self, progress: Progress) -> None:
        message = {"place": self._place, "progress": dataclasses.asdict(progress)}
        self._worker.log_event(self._topic, message)

    def asked_to_stop(self) -> bool:
        """Whether Dask no longer wants the result: it was cancelled, or the client is gone."""
        task = self._worker.state.tasks.get(self._key)
        return task is None or task.state != "executing"


def _called(topic: str, place: int, key: str, shared: bytes | None, call: bytes) -> Any:
    """A call, with its error as a result: only Dask's own failures are errors for Dask."""
    here = _OnDask(topic, place)
    worker = here._worker.address
    connect(here)
    try:
        if here.threads != 1:
            raise UnfitWorkerError(_TOO_MANY.format(here.threads))
        use_one_core()
        if key not in _unpacked:
            _unpacked.clear()
            _unpacked[key] = None if shared is None else Shared.unpacked(shared)
        function, row = pickle.loads(call)
        first = () if shared is None else (_unpacked[key],)
        return "result", function(*first, *row), worker
    except ImportError as error:
        return "error", UnfitWorkerError(f"it cannot import all ({described(error)})"), worker
    except Exception as error:
        return "error", sendable(error), worker
    finally:
        connect(None)
