# pyright: reportMissingImports=false
# (torch comes with the extra "bench" only)
"""The recurrent classifier of Snell et al. 2021 against PyTorch's own `nn.LSTM` (on a GPU:
cuDNN's), one seed after another, in one run, as ratios.

One step is a minibatch of 32 sentences of the size of SST-2 (up to 52 words, 4,945 ids), the
gradient and Adam, at the paper's size (1,274,882 parameters without embeddings). On two cores the
ratio should be at least 1.0 for one seed; on one H200 at least 3 for five. On a GPU the time of
4,000 steps at the size of IMDb (400 words, 30,000 ids) for five seeds follows, which should be
below ten minutes. PyTorch packs the sentences of a minibatch; ours have similar lengths
(`by_length`). (That both compute the same is tested: tests/models/test_recurrence.py.)

    python benchmarks/text_classifier.py [--turns 5]
"""

import time
from functools import partial
from typing import Any

import jax
import numpy as np
import torch
from torch import nn

from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.tasks.arrays import Arrays
from saccade.train.batches import Minibatch
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam
from saccade.train.prepared import engine_of
from saccade.train.recipe import Recipe
from turns import asked_turns, measured_in_turns

BATCH = 32
SST = {"texts": 6920, "longest": 52, "mean": 19, "ids": 4945}
IMDB = {"texts": 25_000, "longest": 400, "mean": 230, "ids": 30_000}


def corpus(texts: int, longest: int, mean: int, ids: int) -> Arrays:
    """Random sentences with the lengths of a corpus."""
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.normal(mean, mean / 2, texts).round(), 1, longest)
    mask = np.arange(longest) < lengths[:, None]
    words = np.where(mask, draw.integers(1, ids, (texts, longest)), 0)
    labels = draw.integers(0, 2, texts)
    few = slice(8)
    return Arrays.of(
        (words, labels, mask), test=(words[few], labels[few], mask[few]), dictionary_size=ids
    )


class Ours:
    """Some steps of an ensemble."""

    def __init__(self, task: Arrays, seeds: int):
        model = RecurrentClassifierConfig(256, 300, 256, directions="both")
        batches = Minibatch(BATCH, by_length=True)
        self._engine = engine_of(Recipe(task, model, Adam(1e-3), 4000, batches=batches), seeds)
        self._moving, self._step, self._seeds = self._engine.start(), 0, seeds

    def __call__(self, steps: int) -> int:
        self._moving = jax.block_until_ready(self._engine.steps(self._moving, self._step, steps))
        self._step += steps
        return steps * self._seeds


class Classifier(nn.Module):
    """The same model, written as one would in PyTorch."""

    def __init__(self, ids: int):
        super().__init__()
        self.embedding = nn.Embedding(ids, 300)
        self.lstm = nn.LSTM(300, 256, batch_first=True, bidirectional=True)
        self.scorer, self.score = nn.Linear(512, 256), nn.Linear(256, 1)
        self.readout = nn.Linear(512, 1)

    def forward(self, words, mask):
        packed = nn.utils.rnn.pack_padded_sequence(
            self.embedding(words), mask.sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        states, _ = self.lstm(packed)
        states, _ = nn.utils.rnn.pad_packed_sequence(
            states, batch_first=True, total_length=words.shape[1]
        )
        scores = self.score(torch.relu(self.scorer(states)))[..., 0]
        weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), -1)
        return self.readout((weights[..., None] * states).sum(1))[:, 0]


class Plain:
    """A loop over minibatches; one seed."""

    def __init__(self, task: Arrays, device: str):
        train: Any = task.splits["train"]
        parts = (train.words, train.mask, train.labels)
        self.words, self.mask, self.labels = (
            torch.tensor(np.asarray(one)).to(device) for one in parts
        )
        self.model = Classifier(task.vocabulary_size).to(device)
        self.optimiser = torch.optim.Adam(self.model.parameters())
        self.device = device

    def __call__(self, steps: int) -> int:
        for _ in range(steps):
            chosen = torch.randint(len(self.words), (BATCH,), device=self.device)
            self.optimiser.zero_grad()
            logits = self.model(self.words[chosen].long(), self.mask[chosen])
            wanted = self.labels[chosen].float()
            nn.functional.binary_cross_entropy_with_logits(logits, wanted).backward()
            self.optimiser.step()
        if self.device != "cpu":
            torch.cuda.synchronize()
        return steps


def main() -> None:
    turns = asked_turns(__doc__)
    Lab()  # gives every core its own device
    task = corpus(**SST)
    on_gpu = jax.default_backend() != "cpu"
    seeds, target, steps = (5, 3.0, 100) if on_gpu else (1, 1.0, 5)
    plain, ours = Plain(task, "cuda" if on_gpu else "cpu"), Ours(task, seeds)
    for way in (plain, ours):
        way(2)  # to warm up; ours compiles
    name = f"classifier, size of SST-2, {seeds} seed{'s' * (seeds > 1)} (target {target}x)"
    measured_in_turns(name, partial(plain, steps), partial(ours, steps), turns)
    if on_gpu:
        ours = Ours(corpus(**IMDB), 5)
        ours(5)
        begun = time.perf_counter()
        ours(100)
        taken = 40 * (time.perf_counter() - begun)
        print(f"size of IMDb, 5 seeds x 4,000 steps: {taken:.0f} s (target 600 s), from 100 steps")


if __name__ == "__main__":
    main()
