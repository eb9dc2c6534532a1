"""Dry runs: what a training would be, without training."""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from saccade.train.engine import Engine
from saccade.train.run import CARRY, STATE, Run


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


def planned(run: Run) -> tuple[Plan, dict[str, np.ndarray]]:
    """What a run would be, and its result with NaN for every number."""
    engine, cached = run.engine, run.is_finished()
    steps = run.steps - int(run.recorded[0])
    # The engine counts the recorded steps of a flow, and each step of any other training.
    first = int(run.recorded[0])
    counted = [int(step) - first for step in run.recorded]
    counted = counted if engine.dynamics.jumps else range(steps + 1)
    seconds = None if cached else _estimate(engine, counted)
    rows = engine.programs["advance"].shapes[1]
    ends = engine.programs["snapshot"].shapes if "snapshot" in engine.programs else {}
    lengths = {"probes": len(run.recorded), "snapshots": len(np.unique([0, steps]))}
    arrays = {}
    for which, shapes in (("probes", rows), ("snapshots", ends)):
        for variable, shape in shapes.items():
            inner = shape.shape[2:] if which == "probes" else shape.shape[1:]
            full = (lengths[which], engine.count, *inner)
            filler = np.nan if np.issubdtype(shape.dtype, np.floating) else -1
            # A view: what may not fit is reported, not allocated.
            arrays[f"{which}:{variable}"] = np.broadcast_to(np.asarray(filler, shape.dtype), full)
    moving = engine.shapes
    kept = jax.tree.leaves(engine.dynamics.result(engine.dynamics.best(moving.state)))
    zeros = {
        f"{CARRY}{at}": np.zeros((engine.count, *one.shape[1:]), one.dtype)
        for at, one in enumerate(kept)
    }
    if run.keep_state:
        zeros |= {
            f"{STATE}{at}": np.zeros((engine.count, *one.shape[1:]), one.dtype)
            for at, one in enumerate(jax.tree.leaves(moving))
        }
    memory = sum(array.nbytes for array in arrays.values())
    memory += sum(_bytes(tree) for tree in (moving, rows, engine.data.shapes))
    plan = Plan(run.name, engine.count, steps, len(run.recorded), memory, cached, seconds)
    return plan, arrays | zeros


def _estimate(engine: Engine, counted: Sequence[int]) -> float | None:
    """Seconds that a training would take, from a few of the steps that the engine counts, which
    stand for these steps of the record. The run reuses what is compiled.
    """
    begun = time.monotonic()
    try:
        moving = jax.block_until_ready(engine.steps(engine.start(), 0, 0))
    except jax.errors.JaxRuntimeError:  # it does not fit the device
        return None
    compiled, done, count, last = time.monotonic(), 0, 1, len(counted) - 1
    while done < last and time.monotonic() - compiled < 0.3:
        count = min(2 * count, last - done)
        moving = jax.block_until_ready(engine.steps(moving, done, count))
        done += count
    per_step = (time.monotonic() - compiled) / max(counted[done], 1)
    return compiled - begun + per_step * counted[last]


def _bytes(tree: Any) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))
