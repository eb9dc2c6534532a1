"""What recording costs, and how memory grows: the 800-sentence model, measured in one run.

Recording: the same training with every probe at every tenth step and with none, in turns; the extra
time is printed as a fraction. Memory: the bytes that training holds on the device, for 8, 16 and 32
members, and for more steps.

    python benchmarks/recording_and_memory.py [--members 8] [--steps 500] [--turns 5]
"""

import argparse
import gc
import statistics
import time
from collections.abc import Sequence

import jax

from saccade.contracts.probe import AbstractProbe
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.probes.performance import Accuracy
from saccade.probes.topic_words import OtherWords, Surroundings, TopicWords, Velocities
from saccade.tasks.topic_sentences import TopicSentences
from saccade.train.engine import Engine
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.prepared import engine_of
from saccade.train.recipe import Recipe

STANDARD = (TopicWords(), OtherWords(), Surroundings(), Accuracy())
"""Score, norm and attention of topic words, other words in summary, theorem 1's averages."""


def topic_engine(members: int, steps: int, probes: Sequence[AbstractProbe] = ()) -> Engine:
    model = AttentionClassifierConfig("TC")
    recipe = Recipe(TopicSentences(), model, GradientDescent(0.1), steps, probes=probes)
    return engine_of(recipe, members)


def recording(probes: Sequence[AbstractProbe], members: int, steps: int, turns: int) -> float:
    """Fraction of time that recording every tenth step adds."""
    engine = topic_engine(members, steps, probes)
    moving = engine.start()

    def train(every: int | None) -> float:
        nonlocal moving
        begun = time.perf_counter()
        if every is None:
            moving = engine.steps(moving, 0, steps)
        else:
            for first in range(0, steps, every * engine.slots):
                pieces = min(engine.slots, (steps - first) // every)
                moving, rows = engine.advance(moving, first, [every] * pieces, [True] * pieces)
                engine.placement.fetch(rows)
        jax.block_until_ready(moving)
        return time.perf_counter() - begun

    for every in (None, 10):
        train(every)  # compile
    bare, recorded = [], []
    for _ in range(turns):
        bare.append(train(None))
        recorded.append(train(10))
    share = statistics.median(recorded) / statistics.median(bare) - 1
    names = ", ".join(type(probe).__name__ for probe in probes)
    print(f"recording every 10th step, {members} members: {100 * share:+.1f} % time ({names})")
    return share


def memory(members: int, steps: int) -> int:
    """Bytes alive on the devices after some steps."""
    gc.collect()
    before = sum(array.nbytes for array in jax.live_arrays())
    engine = topic_engine(members, steps)
    moving = jax.block_until_ready(engine.steps(engine.start(), 0, steps))
    alive = sum(array.nbytes for array in jax.live_arrays()) - before
    del moving, engine
    return alive


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--members", type=int, default=8, help="members of the recording benchmark (default: 8)"
    )
    parser.add_argument("--steps", type=int, default=500, help="steps per turn (default: 500)")
    parser.add_argument(
        "--turns", type=int, default=5, help="times each side is measured, in turns (default: 5)"
    )
    options = parser.parse_args()
    Lab()  # gives every core its own device
    print(
        "target: standard probes every 10th step cost less than 20 %; velocities need a gradient of"
        " their own on top"
    )
    recording(STANDARD, options.members, options.steps, options.turns)
    recording((*STANDARD, Velocities()), options.members, options.steps, options.turns)
    base = memory(8, 2)
    for members, steps in ((8, 200), (16, 2), (32, 2)):
        print(
            f"memory, {members:2d} members after {steps:3d} steps:"
            f" {memory(members, steps) / base:.2f} of 8 members after 2"
        )


if __name__ == "__main__":
    main()
