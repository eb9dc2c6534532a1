"""One progress for many chunks."""

import math
import time
from collections.abc import Callable

from saccade.workers.progress import FROM_CACHE, Progress

__all__: list[str] = []


class Whole:
    """One progress for a training whose members are trained in chunks, some at the same time."""

    def __init__(
        self, name: str, members: int, steps: int, show: Callable[[Progress], None] | None
    ):
        self._name, self._members, self._steps, self._show = name, members, steps, show
        self._begun = time.monotonic()
        self._running: dict[int, tuple[int, Progress]] = {}
        self._ended: list[tuple[int, Progress | None]] = []
        self.from_cache = Progress(name, steps, steps, math.nan, 0, 0, None, True, FROM_CACHE)
        """What a chunk says that was found finished."""

    def show(self, chunk: int, held: int, progress: Progress) -> None:
        """What a chunk of so many members says."""
        if progress.finished:
            self.ended(chunk, held, progress)
        else:
            self._running[chunk] = held, progress
            self._say(progress.note)

    def ended(self, chunk: int, held: int, last: Progress | None) -> None:
        """A chunk has ended: with what it said last, or without a result."""
        self._running.pop(chunk, None)
        self._ended.append((held, last))
        whole = sum(held for held, _ in self._ended) == self._members
        if whole or last is None or not last.from_cache:
            notes = {last.note for _, last in self._ended if last is not None}
            self._say(notes.pop() if whole and len(notes) == 1 else "", whole)

    def _say(self, note: str, finished: bool = False) -> None:
        if self._show is None:
            return
        heard = [*self._running.values(), *((n, one) for n, one in self._ended if one is not None)]
        losses = [(held, one.loss) for held, one in heard if math.isfinite(one.loss)]
        seen = sum(held for held, _ in losses)
        mean = sum(held * loss for held, loss in losses) / seen if seen else math.nan
        done = sum(held for held, _ in self._ended)
        running = [(held, one.step / max(one.steps, 1)) for held, one in self._running.values()]
        reached = done + sum(held * part for held, part in running)
        old = sum(held for held, one in self._ended if one is not None and one.from_cache)
        seconds = time.monotonic() - self._begun
        rate = (reached - old) / seconds if reached > old and seconds else None
        left = (self._members - reached) / rate if rate and not finished else None
        step = round(self._steps * reached / self._members)
        if finished:
            step = max((one.step for _, one in heard), default=0)
        diverged = sum(one.diverged for _, one in heard)
        may_stop = any(one.may_stop for _, one in heard)
        whole = (self._members, left, finished, note, seconds, may_stop, done, rate)
        self._show(Progress(self._name, step, self._steps, mean, diverged, *whole))
