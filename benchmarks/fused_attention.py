# pyright: reportMissingImports=false
# (torch comes with the extra "bench" only)
"""Training an encoder with fused attention against `torch.compile`, in one run, as ratios.

One step is a minibatch of 32 texts through two layers (dimension 64, two heads, dropout), its
gradient, and Adam. The baseline is compiled PyTorch under bfloat16 autocast, with flash attention
for softmax and the explicit form for the Gaussian kernel, one run after another. Softmax should be
at least as fast with one seed and twice as fast with three; the Gaussian kernel four times as fast,
in at most 1.4 times the time of our softmax. On a machine without a GPU sizes are tiny: the
benchmark then shows only that it runs.

    python benchmarks/fused_attention.py [--turns 5] [--words 4096 1024]
"""

from typing import Any

import jax
import numpy as np

from saccade.contracts.task import Batch
from saccade.models.encoder import EncoderConfig
from saccade.tasks.arrays import Arrays
from saccade.train.batches import Minibatch
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam
from saccade.train.prepared import engine_of
from saccade.train.recipe import Recipe
from turns import in_turns, measured_in_turns, parser_of_turns

BATCH, TEXTS, WORDS = 32, 256, 258
STEPS = {4096: 10, 1024: 40, 64: 2}
"""Lengths of texts in words, and the steps that are timed at once."""
LAYERS, HEADS, DIMENSION, HIDDEN, DROPOUT = 2, 2, 64, 128, 0.1


def texts(longest: int) -> Batch:
    rng = np.random.default_rng(0)
    ids = rng.integers(0, WORDS, (TEXTS, longest)).astype(np.int32)
    return Batch(ids, rng.integers(0, 2, TEXTS).astype(np.int32))  # pyright: ignore[reportArgumentType]


class Ours:
    """Some steps of all members."""

    def __init__(self, kernel: Any, longest: int, seeds: int, steps: int):
        model = EncoderConfig(LAYERS, HEADS, DIMENSION, HIDDEN, DROPOUT, kernel=kernel, fused=True)
        task = Arrays.of(train=texts(longest))
        recipe = Recipe(task, model, Adam(1e-4), steps, batches=Minibatch(BATCH))
        self._engine = engine_of(recipe, seeds)
        self._moving, self._step, self._steps = self._engine.start(), 0, steps
        self()

    def __call__(self) -> int:
        moved = self._engine.steps(self._moving, self._step, self._steps)
        self._moving = jax.block_until_ready(moved)
        self._step += self._steps
        return self._steps * self._engine.count


def torch_loop(kernel: str, longest: int, steps: int) -> Any:
    """One run of the same model."""
    import torch
    from torch import nn

    place = "cuda" if torch.cuda.is_available() else "cpu"
    data = texts(longest)
    words, labels = (
        torch.from_numpy(np.array(one)).long().to(place) for one in (data.words, data.labels)
    )

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(DIMENSION) for _ in range(2)])
            self.parts = nn.ModuleList([nn.Linear(DIMENSION, DIMENSION) for _ in range(4)])
            self.inner, self.outer = nn.Linear(DIMENSION, HIDDEN), nn.Linear(HIDDEN, DIMENSION)
            self.dropout = nn.Dropout(DROPOUT)

        def forward(self, states):
            inputs = self.norms[0](states)
            size = (*inputs.shape[:2], HEADS, DIMENSION // HEADS)
            queries, keys, values = (
                self.parts[at](inputs).view(size).transpose(1, 2) for at in range(3)
            )
            if kernel == "softmax":
                found = nn.functional.scaled_dot_product_attention(queries, keys, values)
            else:
                queries, keys = (one * size[-1] ** -0.25 for one in (queries, keys))
                scores = queries @ keys.transpose(-1, -2)
                scores = scores - queries.float().square().sum(-1)[..., :, None] / 2
                scores = scores - keys.float().square().sum(-1)[..., None, :] / 2
                found = torch.exp(scores).to(values.dtype) @ values
            found = self.parts[3](found.transpose(1, 2).reshape(states.shape))
            states = states + self.dropout(found)
            found = self.outer(nn.functional.gelu(self.inner(self.norms[1](states))))
            return states + self.dropout(found)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(WORDS, DIMENSION)
            self.positions = nn.Embedding(longest, DIMENSION)
            self.layers = nn.ModuleList([Layer() for _ in range(LAYERS)])
            self.norm, self.head = nn.LayerNorm(DIMENSION), nn.Linear(DIMENSION, 2)
            self.dropout = nn.Dropout(DROPOUT)

        def forward(self, ids):
            states = self.dropout(self.embedding(ids) + self.positions.weight)
            for layer in self.layers:
                states = layer(states)
            return self.head(self.norm(states).mean(1))

    model = Model().to(place)
    compiled = torch.compile(model)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-4, fused=place == "cuda")

    def run() -> int:
        for _ in range(steps):
            chosen = torch.randint(0, TEXTS, (BATCH,), device=place)
            optimiser.zero_grad()
            with torch.autocast(place, torch.bfloat16):
                logits = compiled(words[chosen])
            nn.functional.cross_entropy(logits.float(), labels[chosen]).backward()
            optimiser.step()
        if place == "cuda":
            torch.cuda.synchronize()
        return steps

    run()
    return run


def main() -> None:
    parser = parser_of_turns(__doc__)
    parser.add_argument(
        "--words",
        type=int,
        nargs="+",
        choices=STEPS,
        default=(4096, 1024) if jax.default_backend() == "gpu" else (64,),
        help="lengths of the texts (default: 4096 and 1024 on a GPU, else 64)",
    )
    asked = parser.parse_args()
    turns = asked.turns
    Lab()
    for longest in asked.words:
        steps, ours = STEPS[longest], {}
        for kernel, targets in (("softmax", {1: 1.0, 3: 2.0}), ("gaussian", {1: 4.0, 3: 4.0})):
            plain = torch_loop(kernel, longest, steps)
            for seeds, target in targets.items():
                one = ours[kernel, seeds] = Ours(kernel, longest, seeds, steps)
                name = f"{kernel}, {longest} words x {BATCH}, seeds {seeds} (target {target}x)"
                measured_in_turns(name, plain, one, turns)
            del plain
        for seeds in (1, 3):
            gaussian, softmax = in_turns(ours["gaussian", seeds], ours["softmax", seeds], turns)
            print(
                f"gaussian over softmax, {longest} words, seeds {seeds}: "
                f"{gaussian / softmax:.2f} times the time (target: at most 1.4)",
                flush=True,
            )


if __name__ == "__main__":
    main()
