"""Timing two ways in turns: on a shared machine only their ratio is meaningful."""

import argparse
import statistics
import time
from collections.abc import Callable


def parser_of_turns(description: str | None) -> argparse.ArgumentParser:
    """The command line of a benchmark, with the option that all have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--turns", type=int, default=5, help="times each side is measured, in turns (default: 5)"
    )
    return parser


def asked_turns(description: str | None) -> int:
    """How often each side is measured, from the command line of a benchmark."""
    return parser_of_turns(description).parse_args().turns


def in_turns(one: Callable[[], int], other: Callable[[], int], turns: int) -> tuple[float, float]:
    """Median seconds per unit of two ways; both functions return how many units they did."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(turns):
        for taken, way in zip(times, (one, other), strict=True):
            begun = time.perf_counter()
            done = way()
            taken.append((time.perf_counter() - begun) / done)
    return statistics.median(times[0]), statistics.median(times[1])


def measured_in_turns(
    name: str,
    plain: Callable[[], int],
    ours: Callable[[], int],
    turns: int,
    unit: str = "seed-step",
    note: str = "",
) -> float:
    """Print and return the ratio of the times per unit."""
    slow, fast = in_turns(plain, ours, turns)
    print(
        f"{name}: plain PyTorch {1e3 * slow:8.3f} ms per {unit}, saccade {1e3 * fast:8.4f} ms, "
        f"ratio {slow / fast:6.1f}x" + (f"  ({note})" if note else ""),
        flush=True,
    )
    return slow / fast
