"""One training, from its start or from a saved state: progress, states on disk, interrupts."""

import dataclasses
import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from saccade.errors import DoesNotFitError, FileError, InterruptedTrainingError
from saccade.train.engine import PIECES, Engine, Moving
from saccade.train.members import NOT_DIVERGED
from saccade.train.program import is_out_of_memory
from saccade.train.running import Running
from saccade.train.storage import locked, read_state, write_state
from saccade.workers.progress import FROM_CACHE, Progress

__all__: list[str] = []

log = logging.getLogger("saccade.train")

CARRY, STATE = "carry:", "state:"
"""Names of the arrays of a result: the models, and the whole last state."""
NOT_KEPT = "not kept: the program calls code outside (Python?), so its identity is not known"


@dataclasses.dataclass
class Run:
    """A training that is under way."""

    running: Running
    engine: Engine
    steps: int
    recorded: np.ndarray
    name: str
    digest: str | None
    """Content address; None for a training that cannot be kept."""
    after: Moving | None = None
    """The state with which it begins, if it goes on from another training."""
    keep_state: bool = False
    """Whether the result has the whole last state, so that another training can go on from it."""
    begun: float = dataclasses.field(default_factory=time.monotonic)
    began_at: int = 0
    """The step from which this process went on."""

    @property
    def file(self) -> Path:
        return self.running.folder / f"{(self.digest or 'none')[:24]}.training"

    def is_finished(self) -> bool:
        """Whether the result is in the cache and would be used."""
        return not self.running.fresh and _finished(*self._saved(), self.keep_state)

    def is_begun(self) -> bool:
        """Whether a result or a state is in the cache: this many members have fitted before."""
        return self.digest is not None and self.file.exists()

    def result(self) -> tuple[dict[str, np.ndarray], float]:
        """What the training left, and the seconds that it took; from the cache if it is there."""
        lock = locked(self.file.with_suffix(".lock"), self._say_waiting)
        with lock if self.digest else nullcontext():
            header, arrays = self._saved()
            if _finished(header, arrays, self.keep_state) and not self.running.fresh:
                self._say(self._reached(arrays), finished=True, note=FROM_CACHE)
                log.debug("%s: found finished in %s", self.name, self.file)
                return self._asked_for(arrays), header["seconds"]
            if header.get("finished"):
                header, arrays = {}, {}
            try:
                return self._trained(header, arrays)
            except jax.errors.JaxRuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                count = max(self.engine.count, self.engine.placement.places or 0)
                got = f"{count} members do not fit" if count > 1 else "one member does not fit"
                fewer = f"train fewer at once, with --chunk {count // 2} or Lab(chunk={count // 2})"
                smaller = "take a smaller model, smaller batches or fewer examples"
                raise DoesNotFitError(
                    f"{self.name}: {got} the device's memory; {fewer if count > 1 else smaller}"
                ) from error

    def _asked_for(self, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """A result without the last state, unless that is asked for."""
        kept = self.keep_state
        return {key: it for key, it in arrays.items() if kept or not key.startswith(STATE)}

    def _saved(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        if self.digest is None or not self.file.exists():
            return {}, {}
        header, arrays = read_state(self.file)
        if header.get("digest") != self.digest:
            raise FileError(f"{self.file}: belongs to another training; move it and run again")
        return header, arrays

    def _trained(
        self, header: dict[str, Any], saved: dict[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], float]:
        engine = self.engine
        measured = Measured(engine, saved)
        if header:
            moving = engine.placement.put(fitted(engine.shapes, saved, self.file))
        elif self.after is not None:
            moving = engine.placement.put(engine.placement.pad(self.after))
        else:
            moving = engine.start()
        places = self._places
        at = int(header.get("at", places[0]))
        self.began_at = self._label(at)
        begun = last_state = time.monotonic()
        writing = 0.0
        before = float(header.get("seconds", 0.0))
        first_at, compiled = None, begun
        targets = deque(int(target) for target in places if target > at or not header)
        length = 1

        def state(finished: bool) -> dict[str, np.ndarray]:
            nonlocal last_state, writing
            started = time.monotonic()
            # A finished training no longer needs the optimiser, which has most of the numbers.
            kept: Any = moving
            if finished:
                kept = engine.dynamics.result(engine.dynamics.best(moving.state))
            arrays = measured.arrays() | leaves(kept)
            if finished and self.keep_state:
                arrays |= leaves(moving, STATE)
            if self.digest is not None:
                seconds = before + started - begun
                header = {"digest": self.digest, "step": self._label(at), "finished": finished}
                header |= {"at": at}
                header |= {"name": self.name, "steps": self.steps}
                write_state(self.file, header | {"seconds": seconds}, arrays)
                log.debug("%s: step %d is in %s", self.name, self._label(at), self.file)
            last_state = time.monotonic()
            writing = last_state - started
            return arrays

        with polite_interrupt() as stop:
            if not header and engine.has_ends:
                measured.add("snapshots", engine.snapshot(moving))
            while targets:
                started = time.monotonic()
                counts, recorded = self._pieces(at, targets, length)
                moving, rows = engine.advance(moving, at, counts, recorded)
                if any(recorded):
                    measured.add_rows("probes", rows, sum(recorded))
                else:
                    jax.block_until_ready(moving)
                at += sum(counts)
                now = time.monotonic()
                length = _next_length(length, now - started)
                if first_at is None:
                    # The first dispatch compiles: it says nothing about the others.
                    first_at, compiled = at, now
                if engine.dynamics.notice is not None and measured.ended(self.recorded):
                    targets.clear()
                step = self._label(at)
                left = _left(now - compiled, step - self._label(first_at), self.steps - step)
                self._say(step, measured=measured, seconds_left=left)
                if self.running.asked_to_stop is not None and self.running.asked_to_stop():
                    stop.set()
                if targets and stop.is_set():
                    state(finished=False)
                    again = "goes on from there" if self.digest else "starts again"
                    raise InterruptedTrainingError(
                        f"stopped {self.name} at step {self._label(at)} of {self.steps}; "
                        f"the same command {again}"
                    )
                # Large states take long to write.
                if targets and now - last_state > self.running.state_interval + 20 * writing:
                    state(finished=False)
            if self.steps > self.recorded[0] and engine.has_ends:
                best = engine.dynamics.best(moving.state)
                ended = eqx.tree_at(lambda tree: tree.state, moving, best)
                measured.add("snapshots", engine.snapshot(ended))
        arrays = state(finished=True)
        note = "" if self.digest else NOT_KEPT
        self._say(self._reached(arrays), measured=measured, finished=True, note=note)
        taken = time.monotonic() - begun
        log.info("%s: %d members trained in %.1f s", self.name, engine.count, taken)
        if stop.is_set():
            raise InterruptedTrainingError(
                f"stopped after {self.name}, which is finished; the same command goes on from there"
            )
        return arrays, before + time.monotonic() - begun

    @property
    def _places(self) -> np.ndarray:
        """The recorded steps as the engine counts them."""
        return np.arange(len(self.recorded)) if self.engine.dynamics.jumps else self.recorded

    def _label(self, at: int) -> int:
        """The step, as the record has it, that the engine counts as `at`."""
        return int(self.recorded[at]) if self.engine.dynamics.jumps else at

    def _pieces(self, at: int, targets: deque[int], length: int) -> tuple[list[int], list[bool]]:
        """The pieces of one dispatch, of about `length` steps together; removes the targets that
        they reach.

        Where pieces end changes no number.
        """
        counts: list[int] = []
        recorded: list[bool] = []
        room = length
        while targets and len(counts) < PIECES and (room > 0 or not counts):
            if sum(recorded) == self.engine.slots:
                break
            gap = targets[0] - at
            reached = gap <= room
            counts.append(gap if reached else room)
            recorded.append(reached)
            at, room = at + counts[-1], room - counts[-1]
            if reached:
                targets.popleft()
        return counts, recorded

    def _reached(self, arrays: Mapping[str, np.ndarray]) -> int:
        """The last step of a finished training: members may have stopped early."""
        return int(self.recorded[len(arrays["probes:loss"]) - 1])

    def _say(
        self,
        step: int,
        *,
        measured: "Measured | None" = None,
        seconds_left: float | None = None,
        finished: bool = False,
        note: str = "",
    ) -> None:
        if self.running.progress is None:
            return
        loss, diverged = (float("nan"), 0) if measured is None else measured.latest()
        seconds = time.monotonic() - self.begun
        members = self.engine.count
        self.running.progress(
            Progress(
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
                self.engine.dynamics.notice is not None,
            )
        )

    def _say_waiting(self) -> None:
        self._say(0, note="another process is training this; waiting for it")


def is_result(file: Path, digest: str, keep_state: bool) -> float | None:
    """The seconds of a finished training, if the file is its result."""
    if not file.exists():
        return None
    header, arrays = read_state(file)
    fits = header.get("digest") == digest and _finished(header, arrays, keep_state)
    return float(header["seconds"]) if fits else None


def _finished(header: Mapping[str, Any], arrays: Mapping[str, Any], keep_state: bool) -> bool:
    """Whether what was saved is finished, with the last state if that is asked for."""
    return bool(header.get("finished")) and (not keep_state or f"{STATE}0" in arrays)


class Measured:
    """The probes' results so far, on the host: for each variable one row per recorded step."""

    def __init__(self, engine: Engine, saved: Mapping[str, np.ndarray]):
        self._placement = engine.placement
        self._rows: dict[str, list[np.ndarray]] = {
            key: list(rows)
            for key, rows in saved.items()
            if key.startswith(("probes:", "snapshots:"))
        }

    def add(self, which: str, results: dict[str, Any]) -> None:
        for name, value in self._placement.fetch(results).items():
            self._rows.setdefault(f"{which}:{name}", []).append(value)

    def add_rows(self, which: str, rows: dict[str, Any], filled: int) -> None:
        """Add the filled slots of one dispatch."""
        for name, value in self._placement.fetch(rows, axis=1).items():
            self._rows.setdefault(f"{which}:{name}", []).extend(value[:filled].copy())

    def latest(self) -> tuple[float, int]:
        """Mean loss of the members that are still going, and how many are not."""
        diverged = self._rows["probes:diverged_at"][-1] != NOT_DIVERGED
        losses = self._rows["probes:loss"][-1][~diverged]
        return float(losses.mean()) if losses.size else float("nan"), int(diverged.sum())

    def ended(self, recorded: np.ndarray) -> bool:
        """Whether all members have stopped or diverged. What was recorded after the last of them is
        dropped, so that the result does not depend on how many steps a dispatch had.
        """
        stopped, diverged = (
            self._rows[f"probes:{name}"][-1] for name in ("stopped_at", "diverged_at")
        )
        last = np.where(stopped >= 0, stopped, diverged)
        if np.any(last < 0):
            return False
        kept = int(np.searchsorted(recorded, last.max())) + 1
        for key, rows in self._rows.items():
            if key.startswith("probes:"):
                del rows[kept:]
        return True

    def arrays(self) -> dict[str, np.ndarray]:
        return {key: np.stack(rows) for key, rows in self._rows.items()}


def _left(seconds: float, done: int, remaining: int) -> float | None:
    return seconds / done * remaining if done else None


def _next_length(length: int, seconds: float) -> int:
    """Twice or half as many steps, until a dispatch takes about a quarter of a second."""
    if seconds < 0.15:
        return length * 2
    return max(length // 2, 1) if seconds > 0.6 else length


def _is_key(leaf: Any) -> bool:
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def leaves(tree: Any, prefix: str = CARRY) -> dict[str, np.ndarray]:
    """The arrays of a tree by their places; keys as their numbers."""
    numbers = [
        np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
        for leaf in jax.tree.leaves(tree)
    ]
    return {f"{prefix}{at}": leaf for at, leaf in enumerate(numbers)}


def fitted(
    tree: Any,
    saved: Mapping[str, np.ndarray],
    origin: Path | str = "a finished training",
    prefix: str = CARRY,
) -> Any:
    """The tree of shapes with the saved arrays in their places, whatever the number of members."""
    shapes, structure = jax.tree.flatten(tree)
    found = [saved.get(f"{prefix}{place}") for place in range(len(shapes))]
    for at, (shape, leaf) in enumerate(zip(shapes, found, strict=True)):
        if leaf is not None and _is_key(shape):
            found[at] = leaf = jax.random.wrap_key_data(jnp.asarray(leaf))
        if leaf is None or leaf.shape[1:] != shape.shape[1:] or leaf.dtype != shape.dtype:
            raise FileError(
                f"{origin}: the saved state does not fit its own config; delete it and run again"
            )
    return jax.tree.unflatten(structure, found)


@contextmanager
def polite_interrupt() -> Iterator[threading.Event]:
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
