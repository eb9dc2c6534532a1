# pyright: reportMissingImports=false
# (torch comes with the extra "bench" only)
"""Li 2023's transformer and Song 2024's phase diagram against the plain PyTorch loop: same data,
same start, same result.

The transformer: one-hot, 104 ids, batch 40, documents of 100 to 150 words and two markers,
everything but the embedding trained by gradient descent, 5 seeds. The phase diagram: 12 x 12 scales
of keys and queries x 10 seeds, only W^Q trained; the loop trains one run after another, so it is
timed on a sample of them.

    python benchmarks/topics_and_kernels.py [--turns 5]
"""

from typing import Any

import jax
import numpy as np
import torch
from torch.nn import functional

from saccade.models.attention_regression import AttentionRegressionConfig
from saccade.models.one_layer_transformer import OneLayerTransformerConfig, guess_entropy
from saccade.settings import with_sweep
from saccade.tasks.random_sequences import RandomSequences
from saccade.tasks.topic_documents import TopicDocuments
from saccade.train.batches import Minibatch
from saccade.train.lab import Lab
from saccade.train.members import Members, purpose_key
from saccade.train.optimiser import GradientDescent
from saccade.train.prepared import PreparedRecipe, engine_of
from saccade.train.recipe import Recipe
from turns import asked_turns, measured_in_turns

TOLERANCE = 1e-4
"""Largest difference of any parameter after the compared steps."""
COMPARED = 10
"""Steps after which results are compared."""


def agreeing(name: str, pairs: list[tuple[Any, Any, Any]]) -> str:
    """Say how far (start, ours, theirs) are apart, or stop if they are, or if nothing moved."""
    worst = max(float(np.abs(ours - theirs.detach().numpy()).max()) for _, ours, theirs in pairs)
    moved = max(float(np.abs(ours - start).max()) for start, ours, _ in pairs)
    if not worst <= TOLERANCE or moved < 10 * TOLERANCE:
        raise SystemExit(
            f"{name}: results differ by {worst:.2g} after moving by {moved:.2g}, allowed:"
            f" {TOLERANCE:g}"
        )
    return f"largest difference after {COMPARED} steps {worst:.1g}"


class PlainTransformer:
    """One-hot inputs, three linear layers, softmax, cross-entropy of the selected positions; one
    seed.
    """

    def __init__(self, documents: Any, start: Any, order: np.ndarray, batch_size: int, rate: float):
        self.words, self.labels, self.selected, self.mask = (
            torch.tensor(np.asarray(part))
            for part in (documents.words, documents.labels, documents.selected, documents.mask)
        )
        self.order, self.batch_size, self.at = torch.tensor(order), batch_size, 0
        self.parts = [
            torch.nn.Parameter(torch.tensor(np.asarray(part)))
            for part in (start.queries, start.keys, start.values)
        ]
        self.optimiser = torch.optim.SGD(self.parts, lr=rate)

    def step(self) -> None:
        batches = len(self.order) // self.batch_size
        first = self.at % batches * self.batch_size
        self.at += 1
        chosen = self.order[first : first + self.batch_size]
        words, labels, selected, mask = (
            part[chosen] for part in (self.words, self.labels, self.selected, self.mask)
        )
        self.optimiser.zero_grad()
        ids = self.parts[0].shape[1]
        inputs = functional.one_hot(words.long(), ids).float()
        queries, keys, values = (functional.linear(inputs, part) for part in self.parts)
        scores = queries @ keys.transpose(1, 2) / ids**0.5
        attention = torch.softmax(scores.masked_fill(~mask[:, None, :], -torch.inf), dim=-1)
        outputs = attention @ values
        functional.cross_entropy(outputs[selected], labels[selected].long()).backward()
        self.optimiser.step()


def transformer(turns: int, seeds: int = 5, batch_size: int = 40, rate: float = 1.0) -> None:
    task = TopicDocuments(
        shortest=100, longest=150, markers=True, mixture="dirichlet", train_size=2000, test_size=1
    )
    model = OneLayerTransformerConfig(start="default")
    recipe = Recipe(
        task,
        model,
        GradientDescent(rate),
        COMPARED,
        batches=Minibatch(batch_size),
        loss=guess_entropy,
    )
    engine = engine_of(recipe, seeds)
    moving = engine.start()
    start, documents = engine.placement.fetch((moving.state.learned, engine.data.arrays.train))
    loops = []
    for seed in range(seeds):
        own_documents, own_start = jax.tree.map(
            lambda leaf, seed=seed: leaf[seed], (documents, start)
        )
        order = jax.random.permutation(
            jax.random.fold_in(purpose_key(seed, "order"), 0), task.train_size
        )
        loops.append(
            PlainTransformer(own_documents, own_start, np.asarray(order), batch_size, rate)
        )
    moving = engine.steps(moving, 0, COMPARED)
    end = engine.placement.fetch(moving.state.learned)
    pairs = []
    for seed, loop in enumerate(loops):
        for _ in range(COMPARED):
            loop.step()
        moved = (end.queries[seed], end.keys[seed], end.values[seed])
        begun = (start.queries[seed], start.keys[seed], start.values[seed])
        pairs += list(zip(begun, moved, loop.parts, strict=True))
    note = agreeing("transformer", pairs)

    def plain() -> int:
        for loop in loops:
            loop.step()
            loop.step()
        return 2 * seeds

    def ours() -> int:
        nonlocal moving
        moving = jax.block_until_ready(engine.steps(moving, COMPARED, 20))
        return 20 * seeds

    measured_in_turns(
        f"one-layer transformer, {seeds} seeds (target  8x)", plain, ours, turns, note=note
    )


class PlainRegression:
    """One run of attention regression with W^Q trained; softmax or Gaussian."""

    def __init__(self, batch: Any, queries: np.ndarray, still: Any, kernel: str, rate: float):
        self.inputs, self.targets = (
            torch.tensor(np.asarray(part)) for part in (batch.inputs, batch.targets)
        )
        self.keys, self.values, self.output = (
            torch.tensor(np.asarray(part)) for part in (still.keys, still.values, still.output)
        )
        self.queries = torch.nn.Parameter(torch.tensor(np.asarray(queries)))
        self.kernel, self.optimiser = kernel, torch.optim.SGD([self.queries], lr=rate)

    def step(self) -> None:
        self.optimiser.zero_grad()
        heads = []
        for queries, keys, values in zip(self.queries, self.keys, self.values, strict=True):
            q, k = self.inputs @ queries, self.inputs @ keys
            scale = q.shape[-1] ** -0.5
            if self.kernel == "softmax":
                attention = torch.softmax(scale * q @ k.transpose(1, 2), dim=-1)
            else:
                attention = torch.exp(-scale / 2 * torch.cdist(q, k) ** 2)
            heads.append(attention @ (self.inputs @ values))
        output = torch.cat(heads, dim=-1) @ self.output.reshape(-1, self.output.shape[-1])
        (((output - self.targets) ** 2).sum() / 2).backward()
        self.optimiser.step()


def phase_diagram(
    kernel: str, turns: int, cells: int = 12, seeds: int = 10, rate: float = 0.01
) -> None:
    task = RandomSequences(train_size=4, target_std=0.3)
    grid = [float(scale) for scale in np.geomspace(0.01, 30, cells)]
    config = AttentionRegressionConfig(kernel, trained=("queries",), targets="start")  # pyright: ignore[reportArgumentType]
    model = with_sweep(with_sweep(config, "key_scale", grid), "query_scale", grid)
    keys, queries, seed = (
        part.reshape(-1)
        for part in np.meshgrid(range(cells), range(cells), range(seeds), indexing="ij")
    )
    choice: Any = {"key_scale": keys.astype(np.int32), "query_scale": queries.astype(np.int32)}
    who: Any = seed.astype(np.uint32)
    members = Members(who, choice)
    recipe = Recipe(task, model, GradientDescent(rate), COMPARED)
    parts = (recipe.task, recipe.model, recipe.optimiser)
    prepared = PreparedRecipe(parts, recipe, COMPARED, recipe.recorded(), "float32")
    engine = prepared.engine(members)
    moving = engine.start()
    start, still, data = engine.placement.fetch(
        (moving.state.learned, moving.state.still, engine.data.arrays.train)
    )
    sample = np.linspace(0, len(seed) - 1, 12).astype(int)
    loops = [
        PlainRegression(
            jax.tree.map(lambda leaf, at=at: leaf[at], data),
            start.queries[at],
            jax.tree.map(lambda leaf, at=at: leaf[at], still),
            kernel,
            rate,
        )
        for at in sample
    ]
    moving = engine.steps(moving, 0, COMPARED)
    end = engine.placement.fetch(moving.state.learned)
    for loop in loops:
        for _ in range(COMPARED):
            loop.step()
    note = agreeing(
        kernel,
        [
            (start.queries[at], end.queries[at], loop.queries)
            for at, loop in zip(sample, loops, strict=True)
        ],
    )

    def plain() -> int:
        for loop in loops:
            for _ in range(10):
                loop.step()
        return 10 * len(loops)

    def ours() -> int:
        nonlocal moving
        moving = jax.block_until_ready(engine.steps(moving, 0, 50))
        return 50 * len(seed)

    name = f"phase diagram, {kernel}, {len(seed)} runs (target 50x)"
    measured_in_turns(name, plain, ours, turns, unit="run-step", note=note)


def main() -> None:
    turns = asked_turns(__doc__)
    Lab()  # gives every core its own device
    print(
        f"{len(jax.local_devices())} devices ({jax.local_devices()[0].device_kind}), PyTorch on"
        f" {torch.get_num_threads()} threads"
    )
    transformer(turns)
    phase_diagram("softmax", turns)
    phase_diagram("gaussian", turns)


if __name__ == "__main__":
    main()
