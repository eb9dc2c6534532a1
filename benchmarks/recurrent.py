# pyright: reportMissingImports=false
# (torch comes with the extra "bench" only)
"""The recurrent model against PyTorch's own `nn.LSTM` in the same loop, in one run, as ratios; on a
GPU, its speed alone.

One step is a batch of fresh sequences to be copied through the sequence-to-sequence model with
attention, its gradient and Adam. On two cores the ratio should be at least 1.0 for one seed and 1.5
for eight; on one H200 20 seeds x 200 steps at the paper's size should take less than 6 seconds
after compilation. (That both compute the same is tested: tests/models/test_recurrence.py.)

    python benchmarks/recurrent.py [--turns 5]
"""

import time
from functools import partial

import jax
import numpy as np

from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.tasks.copying import Copying
from saccade.train.batches import Fresh
from saccade.train.engine import Engine
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam
from saccade.train.prepared import engine_of
from saccade.train.recipe import Recipe
from turns import asked_turns, measured_in_turns

QUICK = {"hidden": 32, "batch_size": 32, "length": 8}
PAPER = {"hidden": 256, "batch_size": 128, "length": 40}


def engine(seeds: int, hidden: int, batch_size: int, length: int) -> Engine:
    task, model = Copying(length, length), SequenceToSequenceConfig(hidden)
    return engine_of(Recipe(task, model, Adam(1e-3), 200, batches=Fresh(batch_size)), seeds)


class Ours:
    """Some steps of an ensemble."""

    def __init__(self, seeds: int, **size: int):
        self._engine = engine(seeds, **size)
        self._moving, self._step, self._seeds = self._engine.start(), 0, seeds

    def __call__(self, steps: int) -> int:
        self._moving = jax.block_until_ready(self._engine.steps(self._moving, self._step, steps))
        self._step += steps
        return steps * self._seeds


def torch_loop(hidden: int, batch_size: int, length: int):
    """The same model, written as one would in PyTorch."""
    import torch
    from torch import nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(length + 2, hidden)
            self.encoder, self.decoder = (
                nn.LSTM(hidden, hidden, batch_first=True) for _ in range(2)
            )
            self.query, self.context = nn.Linear(hidden, hidden), nn.Linear(hidden, hidden)
            self.hidden_layer, self.output_layer = (
                nn.Linear(2 * hidden, hidden),
                nn.Linear(hidden, length + 2),
            )

        def forward(self, source, inputs):
            encoded, last = self.encoder(self.embedding(source))
            decoded, _ = self.decoder(self.embedding(inputs), last)
            weights = torch.softmax(self.query(decoded) @ encoded.transpose(1, 2), -1)
            both = torch.cat([self.context(weights @ encoded), decoded], -1)
            return self.output_layer(torch.tanh(self.hidden_layer(both)))

    model, random = Model(), np.random.default_rng(0)
    optimiser = torch.optim.Adam(model.parameters())

    def run(steps: int) -> int:
        for _ in range(steps):
            words = torch.from_numpy(np.argsort(random.random((batch_size, length)), 1) + 2)
            source = nn.functional.pad(words, (0, 1))
            inputs = torch.cat([torch.ones(batch_size, 1, dtype=torch.long), source[:, :-1]], 1)
            optimiser.zero_grad()
            nn.functional.cross_entropy(
                model(source, inputs).flatten(0, 1), source.flatten()
            ).backward()
            optimiser.step()
        return steps

    return run


def main() -> None:
    turns = asked_turns(__doc__)
    Lab()  # gives every core its own device
    if jax.default_backend() != "cpu":
        run = Ours(20, **PAPER)
        run(10)
        begun = time.perf_counter()
        run(200)
        print(
            f"20 seeds x 200 steps at the paper's size: {time.perf_counter() - begun:.2f} s on"
            f" {jax.local_devices()[0].device_kind}"
        )
        return
    for name, size, steps in (("quick size", QUICK, 20), ("paper's size", PAPER, 2)):
        for seeds, target in ((1, 1.0), (8, 1.5)):
            plain, ours = torch_loop(**size), Ours(seeds, **size)
            for way in (plain, ours):
                way(1)  # to warm up; ours compiles
            told = f"recurrent, {name}, {seeds} seed{'s' * (seeds > 1)}" + (
                f" (target {target}x)" if size is QUICK else ""
            )
            measured_in_turns(told, partial(plain, steps), partial(ours, steps), turns)


if __name__ == "__main__":
    main()
