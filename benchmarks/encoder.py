# pyright: reportMissingImports=false
# (torch comes with the extra "bench" only)
"""The transformer encoder of the example against PyTorch's `nn.TransformerEncoder`, trained one run
after another as one would write it, in one run, as ratios; and the memory of a corpus.

One step is a minibatch of 32 texts through two layers with dropout, its gradient, and AdamW with a
schedule. 24 members (8 seeds x 3 rates) should take at most a third of the time of 24 runs. 64
members on 25,000 documents of 400 words should need the memory of one corpus per device.

    python benchmarks/encoder.py [--turns 5]
"""

import resource
from typing import Any

import jax
import numpy as np

from saccade.contracts.task import Batch
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.encoder import EncoderConfig
from saccade.settings import swept_in, with_sweep
from saccade.tasks.arrays import Arrays
from saccade.train.batches import Minibatch
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam
from saccade.train.prepared import PreparedRecipe, engine_of
from saccade.train.rates import Cosine
from saccade.train.recipe import Recipe
from saccade.train.start import members_of
from turns import asked_turns, measured_in_turns

BATCH, STEPS, RATES, SEEDS = 32, 10_000, (3e-4, 1e-3, 3e-3), 8
MODEL = EncoderConfig(heads=2, dimension=32, hidden=64)


def texts(count: int, longest: int, words: int = 420) -> Batch:
    """Texts of random words, of lengths from 4 to `longest`."""
    rng = np.random.default_rng(0)
    mask = np.arange(longest) < rng.integers(4, longest + 1, (count, 1))
    ids = np.where(mask, rng.integers(2, words, (count, longest)), 0).astype(np.int32)
    return Batch(ids, rng.integers(0, 2, count).astype(np.int32), mask)  # pyright: ignore[reportArgumentType]


class Ours:
    """Some steps of all members."""

    def __init__(self, by_length: bool):
        adam = Adam(schedule=Cosine(STEPS, warmup=100), decay=0.01, decayed=("layers",))
        adam = with_sweep(adam, "rate", RATES)
        task = Arrays.of(train=texts(2100, 30), test=texts(450, 30))
        recipe = Recipe(task, MODEL, adam, STEPS, batches=Minibatch(BATCH, by_length=by_length))
        parts = (recipe.task, recipe.model, recipe.optimiser)
        prepared = PreparedRecipe(parts, recipe, STEPS, recipe.recorded(), "float32")
        self._engine = prepared.engine(members_of(range(SEEDS), swept_in(adam)))
        self._moving, self._step = self._engine.start(), 0

    def __call__(self, steps: int) -> int:
        self._moving = jax.block_until_ready(self._engine.steps(self._moving, self._step, steps))
        self._step += steps
        return steps * self._engine.count


def torch_loop() -> Any:
    """One run of the same model, as one would write it in PyTorch."""
    import torch
    from torch import nn

    data = texts(2100, 30)
    words, labels, mask = (
        torch.from_numpy(np.array(one)) for one in (data.words, data.labels, data.mask)
    )
    words, labels = words.long(), labels.long()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            size = MODEL.dimension
            self.embedding, self.positions = nn.Embedding(420, size), nn.Embedding(30, size)
            layer = nn.TransformerEncoderLayer(
                size,
                MODEL.heads,
                MODEL.hidden,
                MODEL.dropout,
                "gelu",
                batch_first=True,
                norm_first=True,
            )
            norm = nn.LayerNorm(size)
            self.encoder = nn.TransformerEncoder(
                layer, MODEL.layers, norm, enable_nested_tensor=False
            )
            self.head, self.dropout = nn.Linear(size, 2), nn.Dropout(MODEL.dropout)

        def forward(self, ids, there):
            states = self.embedding(ids) + self.positions.weight[: ids.shape[1]]
            states = self.encoder(self.dropout(states), src_key_padding_mask=~there)
            pooled = (states * there[..., None]).sum(1) / there.sum(1, keepdim=True)
            return self.head(pooled)

    model = Model()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)

    def run(steps: int) -> int:
        for _ in range(steps):
            chosen = torch.randint(0, len(words), (BATCH,))
            there = mask[chosen]
            longest = int(there.sum(1).max())
            optimiser.zero_grad()
            logits = model(words[chosen, :longest], there[:, :longest])
            nn.functional.cross_entropy(logits, labels[chosen]).backward()
            optimiser.step()
            schedule.step()
        return steps

    return run


def corpus_memory() -> None:
    """Resident memory that 1 and 64 members add, on 25,000 documents of 400 words."""
    documents = texts(25_000, 400, 5000)
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(documents)) / 2**20
    task, model = Arrays.of(train=documents), AttentionClassifierConfig("TC", 4)
    recipe = Recipe(task, model, Adam(1e-3), 5, batches=Minibatch(64))
    print(f"corpus: 25,000 documents of up to 400 words, {size:.0f} MiB")
    for members in (1, 64):
        before = _resident()
        engine = engine_of(recipe, members)
        moving = jax.block_until_ready(engine.steps(engine.start(), 0, 5))
        held = engine.data.arrays.train.words
        copies = len(held.addressable_shards)
        per_device = held.addressable_shards[0].data.nbytes / 2**20
        print(
            f"  {members} members: {copies} copies of the words, one per device, of"
            f" {per_device:.0f} MiB; the process grew by {_resident() - before:.0f} MiB"
        )
        del engine, moving, held


def _resident() -> float:
    """Largest memory of this process so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    turns = asked_turns(__doc__)
    Lab()  # gives every core its own device
    corpus_memory()
    plain = torch_loop()
    plain(20)
    for by_length in (False, True):
        ours = Ours(by_length)
        ours(60)
        name = f"encoder, 24 members, {'by length' if by_length else 'padded'}"
        measured_in_turns(
            name, lambda: plain(60), lambda ours=ours: ours(60), turns, note="target 3"
        )


if __name__ == "__main__":
    main()
