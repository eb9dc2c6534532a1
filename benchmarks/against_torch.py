# pyright: reportMissingImports=false
# (torch comes with the extra "bench" only)
"""The engine against the plain PyTorch loop that a researcher would write: same data, same start,
same result.

Two sizes: the 800-sentence model of Lu 2021 with 8 seeds (the loop trains one seed after another),
and one seed at the size of SST-2 (6,920 sentences padded to 52 words, 14,830 words, dimension 200);
then SST-2 itself, with one seed and with four, where it is at hand (`saccade data list`).
Both are timed in turns in one run, and the ratio of the medians is printed: on a shared machine,
absolute times mean little.

    python benchmarks/against_torch.py [--turns 5]
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch.nn import functional

from saccade.contracts.task import AbstractCorpus, AbstractTask, Batch
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.tasks.named_text import NamedText
from saccade.tasks.topic_sentences import TopicSentences
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.prepared import engine_of
from saccade.train.recipe import Recipe
from turns import asked_turns, measured_in_turns

TOLERANCE = 1e-4
"""Largest difference of any parameter after the compared steps."""


@dataclasses.dataclass(frozen=True)
class PaddedSentences(AbstractTask):
    """Sentences of the size of SST-2: Zipf words, lengths about 19, padded to 52, two classes."""

    vocabulary_size: int = 14830
    longest: int = 52
    labels: int = 2
    train_size: int = 6920
    test_size: int = 8

    def sample(self, key, size: int) -> Batch:
        words_key, length_key, label_key = jax.random.split(key, 3)
        # Zipf's law by inverting its distribution: word = size ** uniform.
        uniform = jax.random.uniform(words_key, (size, self.longest))
        words = (self.vocabulary_size**uniform).astype(jnp.int32) - 1
        lengths = jnp.clip(
            jnp.round(19 + 9 * jax.random.normal(length_key, (size,))), 2, self.longest
        )
        mask = jnp.arange(self.longest) < lengths[:, None]
        return Batch(words, jax.random.randint(label_key, (size,), 0, self.labels, jnp.int32), mask)


class PlainLoop:
    """Embedding, softmax, cross-entropy, optim.SGD; one seed."""

    def __init__(self, batch: Batch, embeddings: np.ndarray, head: np.ndarray, rate: float):
        self.words = torch.tensor(np.asarray(batch.words)).long()
        self.labels = torch.tensor(np.asarray(batch.labels)).long()
        self.mask = None if batch.mask is None else torch.tensor(np.asarray(batch.mask))
        self.embeddings = torch.nn.Parameter(torch.tensor(embeddings.T.copy()))
        self.scores = torch.nn.Parameter(torch.zeros(embeddings.shape[1], 1))
        self.head = torch.nn.Parameter(torch.tensor(head))
        self.optimiser = torch.optim.SGD([self.embeddings, self.scores, self.head], lr=rate)

    def step(self) -> None:
        self.optimiser.zero_grad()
        scores = functional.embedding(self.words, self.scores).squeeze(-1)
        if self.mask is not None:
            scores = scores.masked_fill(~self.mask, -torch.inf)
        attention = torch.softmax(scores, dim=-1)
        context = (attention.unsqueeze(-1) * functional.embedding(self.words, self.embeddings)).sum(
            1
        )
        functional.cross_entropy(context @ self.head, self.labels).backward()
        self.optimiser.step()


def compare(
    name: str,
    task: AbstractTask,
    dimension: int,
    seeds: int,
    torch_steps: int,
    engine_steps: int,
    turns: int,
) -> float:
    rate = 0.1
    model = AttentionClassifierConfig("TC", dimension, embedding_std=0.1)
    engine = engine_of(Recipe(task, model, GradientDescent(rate), engine_steps), seeds)
    moving = engine.start()
    start = engine.placement.fetch(moving.state.learned)
    shared = isinstance(task, AbstractCorpus)  # all seeds have the same sentences
    whole = engine.data.arrays.train
    whole = whole if shared else engine.placement.fetch(whole)
    train = dataclasses.replace(whole, index=None)  # the sentences, without our own plan of them

    def of_seed(seed: int) -> Batch:
        return train if shared else jax.tree.map(lambda leaf: leaf[seed], train)

    loops = [
        PlainLoop(
            of_seed(seed),
            start.embeddings[seed],
            start.head.first[seed],
            rate,
        )
        for seed in range(seeds)
    ]

    # The same result, before anything is timed (this also compiles).
    compared = 20
    moving = engine.steps(moving, 0, compared)
    end = engine.placement.fetch(moving.state.learned)
    worst = 0.0
    for seed, loop in enumerate(loops):
        for _ in range(compared):
            loop.step()
        pairs = (
            (end.embeddings[seed].T, loop.embeddings),
            (end.score_table[seed], loop.scores[:, 0]),
            (end.head.first[seed], loop.head),
        )
        worst = max(
            worst, *(float(np.abs(ours - theirs.detach().numpy()).max()) for ours, theirs in pairs)
        )
        moved = max(
            float(np.abs(ours - theirs).max())
            for ours, theirs in ((end.head.first[seed], start.head.first[seed]),)
        )
        if moved < 10 * TOLERANCE:
            raise SystemExit(
                f"{name}: nothing moved in {compared} steps, so agreement would say nothing"
            )
    if not worst <= TOLERANCE:
        raise SystemExit(
            f"{name}: results differ by {worst:.2g} after {compared} steps, allowed: {TOLERANCE:g}"
        )

    def plain() -> int:
        for loop in loops:
            for _ in range(torch_steps):
                loop.step()
        return torch_steps * seeds

    def ours() -> int:
        nonlocal moving
        moving = jax.block_until_ready(engine.steps(moving, 0, engine_steps))
        return engine_steps * seeds

    return measured_in_turns(
        name, plain, ours, turns, note=f"largest difference after {compared} steps {worst:.1g}"
    )


def main() -> None:
    turns = asked_turns(__doc__)
    Lab()  # gives every core its own device
    print(
        f"{len(jax.local_devices())} devices ({jax.local_devices()[0].device_kind}), PyTorch on"
        f" {torch.get_num_threads()} threads"
    )
    compare("800 sentences, 8 seeds   (target 10x)", TopicSentences(), 15, 8, 20, 200, turns)
    compare("size of SST-2, 1 seed    (target 60x)", PaddedSentences(), 200, 1, 2, 20, turns)
    corpus = NamedText("sst2", tokeniser="bare")
    if corpus.missing:
        print(f"SST-2 itself is left out: {corpus.missing}")
        return
    for seeds in (1, 4):
        name = f"SST-2, {seeds} seed{'s' * (seeds > 1)}           (target 60x)"
        compare(name, corpus, 200, seeds, 2, 20, turns)


if __name__ == "__main__":
    main()
