"""Timing two ways of doing the same in turns: on a shared machine only their ratio means
something.
"""

import statistics
import time
from collections.abc import Callable


def measured_in_turns(
    name: str,
    plain: Callable[[], int],
    ours: Callable[[], int],
    turns: int,
    unit: str = "seed-step",
    note: str = "",
) -> float:
    """Print and return how many times as long the plain way takes; both functions return how
    many units they did.
    """
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        for taken, way in zip(times, (plain, ours), strict=True):
            begun = time.perf_counter()
            done = way()
            taken.append((time.perf_counter() - begun) / done)
    slow, fast = (statistics.median(taken) for taken in times)
    print(
        f"{name}: plain PyTorch {1e3 * slow:8.3f} ms a {unit}, saccade {1e3 * fast:8.4f} ms, ratio"
        f" {slow / fast:6.1f}x" + (f"  ({note})" if note else ""),
        flush=True,
    )
    return slow / fast
