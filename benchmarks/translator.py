# pyright: reportMissingImports=false
# (torch comes with the extra "bench" only)
"""The translator at the paper's size against PyTorch's own layers, on one core, as ratios.

One seed, 16 pairs of 25 words, hidden 256, 8,000 ids; forward and backward, without an optimiser:
the bidirectional LSTM of two layers alone, and the loss of the whole model with dropout. (That both
compute the same is tested: tests/models/test_translator.py.)

    python benchmarks/translator.py [--turns 5]
"""

import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from saccade.contracts.task import SentencePairs
from saccade.models.translator import TranslatorConfig
from saccade.tasks.lexicon_sentences import LexiconSentences
from saccade.train.program import compiler_options
from turns import asked_turns, measured_in_turns

PAIRS, LENGTH, HIDDEN = 16, 25, 256
TASK = LexiconSentences(words=3999)
REPEATS = 5


def ours(words: np.ndarray) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Encoder and loss, each with its gradient."""
    model = TranslatorConfig(HIDDEN).build(TASK, jax.random.key(0))
    given, mask = jnp.asarray(words, jnp.int32), jnp.ones(words.shape, bool)
    batch, key = SentencePairs(given, given, given, mask, mask), jax.random.key(1)
    moving, still = eqx.partition(model, model.trainable())

    def encoder(part: Any) -> Any:
        return jnp.sum(eqx.combine(part, still).encoded(given, mask)[0] ** 2)

    def loss(part: Any) -> Any:
        return eqx.combine(part, still).loss(batch, key)

    options = compiler_options(once=False)
    slopes = [jax.jit(jax.grad(one), compiler_options=options) for one in (encoder, loss)]  # pyright: ignore[reportArgumentType]
    return tuple(lambda slope=slope: jax.block_until_ready(slope(moving)) for slope in slopes)  # pyright: ignore[reportReturnType]


def plain(words: np.ndarray) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The same, written as one would in PyTorch."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    given = torch.from_numpy(words)
    table = nn.Embedding(TASK.vocabulary_size, HIDDEN)
    encoder = nn.LSTM(HIDDEN, HIDDEN, 2, batch_first=True, bidirectional=True, dropout=0.5)
    decoder = nn.LSTM(HIDDEN, HIDDEN, 2, batch_first=True, dropout=0.5)
    query, context = nn.Linear(HIDDEN, 2 * HIDDEN), nn.Linear(2 * HIDDEN, HIDDEN)
    readout = nn.Sequential(
        nn.Linear(2 * HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, TASK.vocabulary_size)
    )
    parts = nn.ModuleList([table, encoder, decoder, query, context, readout])

    def of_encoder() -> None:
        parts.zero_grad()
        (encoder(table(given))[0] ** 2).sum().backward()

    def of_loss() -> None:
        parts.zero_grad()
        encoded, last = encoder(table(given))
        start = tuple(part.reshape(2, 2, PAIRS, HIDDEN).mean(1) for part in last)
        shifted = torch.cat([torch.ones(PAIRS, 1, dtype=torch.long), given[:, :-1]], 1)
        decoded, _ = decoder(table(shifted), start)
        weights = torch.softmax(query(decoded) @ encoded.transpose(1, 2), -1)
        logits = readout(torch.cat([context(weights @ encoded), decoded], -1))
        nn.functional.cross_entropy(logits.flatten(0, 1), given.flatten()).backward()

    return of_encoder, of_loss


def repeated(way: Callable[[], Any]) -> int:
    for _ in range(REPEATS):
        way()
    return REPEATS


def main() -> None:
    turns = asked_turns(__doc__)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    words = np.random.default_rng(0).integers(2, TASK.vocabulary_size, size=(PAIRS, LENGTH))
    for name, theirs, mine in zip(("encoder", "loss"), plain(words), ours(words), strict=True):
        for way in (theirs, mine):
            repeated(way)  # to warm up; ours compiles
        told = f"translator, {name} and its gradient"
        measured_in_turns(told, partial(repeated, theirs), partial(repeated, mine), turns, "batch")


if __name__ == "__main__":
    main()
