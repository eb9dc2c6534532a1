"""Work in several processes: one compiles on one core only, which is most of a quick run."""

import concurrent.futures
import multiprocessing
import os
import queue
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from saccade.core.progress import Progress

__all__: list[str] = []

_progress: Any = None
_stop: Any = None
_parent: int | None = None


def run_in_processes(
    function: Callable[..., Any],
    arguments: Sequence[tuple[Any, ...]],
    processes: int,
    progress: Callable[[Progress], None],
) -> Iterator[tuple[int, Any]]:
    """Call a function on every row of arguments, several at once; give (place, result) as they end.

    What the function passes to `report` arrives at `progress`. Ctrl-C reaches this process alone:
    workers see it through `asked_to_stop` and end with whole states. A second one kills them.
    """
    context = multiprocessing.get_context("spawn")  # a forked JAX hangs
    reports, stop = context.Queue(), context.Event()
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, _begin, (reports, stop))
    pending = {pool.submit(function, *row): place for place, row in enumerate(arguments)}
    try:
        while pending:
            done, _ = concurrent.futures.wait(pending, 0.1, concurrent.futures.FIRST_COMPLETED)
            _pass_on(reports, progress)
            for future in done:
                yield pending.pop(future), future.result()
    except BaseException:
        stop.set()
        try:
            pool.shutdown(cancel_futures=True)
        except KeyboardInterrupt:
            for process in multiprocessing.active_children():
                process.kill()
        raise
    pool.shutdown()
    _pass_on(reports, progress)  # the last reports may have been on their way


def _pass_on(reports: Any, progress: Callable[[Progress], None]) -> None:
    while True:
        try:
            progress(reports.get_nowait())
        except queue.Empty:
            return


def _begin(reports: Any, stop: Any) -> None:
    global _progress, _stop, _parent
    _progress, _stop, _parent = reports, stop, os.getppid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def report(progress: Progress) -> None:
    """Report to the waiting process how far a training is."""
    _progress.put(progress)


def asked_to_stop() -> bool:
    """Whether the waiting process wants this one to stop, or is gone."""
    return _stop.is_set() or os.getppid() != _parent


def sensible_number() -> int:
    """How many processes: one on an accelerator, which they would share; else one per core, up to
    four.
    """
    import jax

    return 1 if jax.default_backend() != "cpu" else min(4, len(os.sched_getaffinity(0)))
