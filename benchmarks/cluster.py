"""Ensembles on several workers: overhead per chunk, speed-up, memory of the waiting process.

python benchmarks/cluster.py overhead [--scheduler dask] [--chunk 64] [--cells 192] [--turns 3]
python benchmarks/cluster.py grid [--scheduler dask:2] [--chunk 500] [--cells 10000]
python benchmarks/cluster.py tasks [--workers 2]

`overhead` compares one worker and two, in turns, and says what a chunk takes beyond its training.
`grid` trains, saves and judges a record of many cells x 10 seeds and watches its own memory.
`tasks` times empty calls, which is what Dask's scheduler itself needs.
"""

import argparse
import dataclasses
import math
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parent))
import grid_study
from saccade import Lab, Progress
from saccade.workers.dask_cluster import DaskScheduler
from saccade.workers.schedulers import LocalProcesses


def config_of(cells: int, **changes: Any) -> Any:
    """A square grid of about so many cells."""
    side = math.isqrt(cells)
    grid = {"rate": np.geomspace(1e-5, 1e-2, side), "key_scale": np.geomspace(1e-2, 10, side)}
    config = dataclasses.replace(grid_study.Config(), **changes)
    return grid_study.STUDY.swept(config, {name: one.tolist() for name, one in grid.items()})


def overhead(options: argparse.Namespace) -> None:
    config = config_of(options.cells, steps=options.steps)
    times: dict[int, list[float]] = {1: [], 2: []}
    own: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        labs = {
            workers: Lab(
                Path(folder) / str(workers),
                progress=None,
                chunk=options.chunk,
                fresh=True,
                scheduler=f"{options.scheduler}:{workers}",
            )
            for workers in times
        }
        for lab in labs.values():  # starts the workers, which compile
            grid_study.experiment(config, lab)
        for _ in range(options.turns):
            for workers, lab in labs.items():
                begun = time.perf_counter()
                arm = grid_study.experiment(config, lab)["grid"]
                times[workers].append(time.perf_counter() - begun)
                if workers == 1:
                    own.append(arm.seconds)
        for lab in labs.values():
            lab.close()
    one, two = (statistics.median(taken) for taken in times.values())
    members = math.isqrt(options.cells) ** 2 * grid_study.Config.seeds
    chunks = -(-members // options.chunk)
    beyond = 1000 * (one - statistics.median(own)) / chunks
    print(f"{options.scheduler}, {members} members in {chunks} chunks of {options.chunk}")
    print(f"one worker: {one:.2f} s, of which training {statistics.median(own):.2f} s")
    print(f"beyond the training: {beyond:.1f} ms per chunk, tracing once per worker included")
    print(f"two workers: {two:.2f} s, {one / two:.2f} times as fast")


def grid(options: argparse.Namespace) -> None:
    process, seen = psutil.Process(), []
    begun = time.perf_counter()

    def watch(progress: Progress) -> None:
        share = (progress.done or 0) / progress.members
        if share >= len(seen) / 10 or progress.finished:
            seen.append(process.memory_info().rss / 2**20)
            print(f"{progress}: {seen[-1]:.0f} MiB", flush=True)

    highest, ended = [0.0], threading.Event()

    def sample() -> None:
        while not ended.wait(0.05):
            highest[0] = max(highest[0], process.memory_info().rss / 2**20)

    threading.Thread(target=sample, daemon=True).start()
    with (
        tempfile.TemporaryDirectory() as folder,
        Lab(Path(folder), progress=watch, chunk=options.chunk, scheduler=options.scheduler) as lab,
    ):
        config = config_of(options.cells)
        record = grid_study.STUDY.run(config, lab)
        trained = time.perf_counter() - begun
        judged = time.perf_counter()
        grid_study.STUDY.judge(dataclasses.replace(record))
        judged = time.perf_counter() - judged
        record.save(Path(folder) / "record.nc")
        size = (Path(folder) / "record.nc").stat().st_size / 2**20
    ended.set()
    seconds = record.seconds
    print(f"{trained:.0f} s in all; training itself {seconds:.0f} s over all workers")
    print(
        f"judged in {judged:.1f} s; record of {size:.1f} MiB; highest memory {highest[0]:.0f} MiB"
    )


def _nothing(*_: Any) -> None:
    pass


def tasks(options: argparse.Namespace) -> None:
    for name, scheduler in (
        ("Dask", DaskScheduler(f"dask:{options.workers}")),
        ("local processes", LocalProcesses(options.workers)),
    ):
        for count in (20, 2000):  # the first starts the workers
            begun = time.perf_counter()
            places = range(count)
            done = list(scheduler.results(_nothing, places, lambda at: (at,), _nothing))
            taken = time.perf_counter() - begun
        scheduler.close()
        print(
            f"{name}, {options.workers} workers: {1000 * taken / len(done):.2f} ms per empty call"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("overhead", "grid", "tasks"))
    parser.add_argument("--scheduler", help="overhead: dask or local; grid: as in `saccade run`")
    parser.add_argument("--chunk", type=int, help="members per chunk")
    parser.add_argument("--cells", type=int, help="cells of the grid")
    parser.add_argument("--steps", type=int, default=300, help="steps of a training (300)")
    parser.add_argument("--turns", type=int, default=3, help="turns of `overhead` (3)")
    parser.add_argument("--workers", type=int, default=2, help="workers of `tasks` (2)")
    options = parser.parse_args()
    usual = {"overhead": ("dask", 64, 256), "grid": ("dask:2", 500, 10000)}
    for name, value in zip(
        ("scheduler", "chunk", "cells"), usual.get(options.what, ("", 0, 0)), strict=True
    ):
        setattr(options, name, getattr(options, name) or value)
    {"overhead": overhead, "grid": grid, "tasks": tasks}[options.what](options)


if __name__ == "__main__":
    main()
