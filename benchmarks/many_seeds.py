"""Time per seed-step of the 800-sentence model with many seeds, on the device at hand.

python benchmarks/many_seeds.py [--seeds 1 8 64 256] [--steps 1000]
"""

import argparse
import statistics
import time

import jax

from recording_and_memory import topic_engine
from saccade.train.lab import Lab


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=int, nargs="+", default=[1, 8, 64, 256], help="ensemble sizes"
    )
    parser.add_argument("--steps", type=int, default=1000, help="steps per turn (default: 1000)")
    parser.add_argument(
        "--turns", type=int, default=5, help="turns, of which the median counts (default: 5)"
    )
    options = parser.parse_args()
    device = Lab().device
    for seeds in options.seeds:
        engine = topic_engine(seeds, options.steps)
        moving = jax.block_until_ready(engine.steps(engine.start(), 0, 2))
        times = []
        for _ in range(options.turns):
            begun = time.perf_counter()
            moving = jax.block_until_ready(engine.steps(moving, 0, options.steps))
            times.append((time.perf_counter() - begun) / options.steps)
        median = statistics.median(times)
        print(
            f"{device}: {seeds:4d} seeds, {1e6 * median:8.1f} us per step,"
            f" {1e6 * median / seeds:7.2f} us per seed-step"
        )


if __name__ == "__main__":
    main()
