"""What watching costs a run of a small GPT-2, in one process: steps and measurements in turn.

    python benchmarks/watching.py [--tokens 256] [--batch 8]

The overhead is that of 40 measurements (`Logarithmic(40)`) in 10,000 steps; target: below 2 %. The
probe is a batch of the training's size.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch import Tensor

from saccade.watch import Watch

WORDS, MEASUREMENTS, STEPS = 5_000, 40, 10_000
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description="What watching costs a run of a small GPT-2.")
    parser.add_argument("--tokens", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--batch", type=int, default=4)
    options = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    for tokens in options.tokens:
        compare(tokens, options.batch)


def compare(tokens: int, batch: int) -> None:
    torch.manual_seed(0)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes: Any = {"n_embd": 384, "n_layer": 6, "n_head": 6, "n_positions": tokens}
    config = transformers.GPT2Config(vocab_size=WORDS, bos_token_id=0, eos_token_id=0, **sizes)
    model: Any = transformers.GPT2LMHeadModel(config)
    model.to(device)
    optimiser = torch.optim.AdamW(model.parameters(), 1e-4)

    def drawn() -> dict[str, Tensor]:
        ids = torch.randint(0, WORDS, (batch, tokens), device=device)
        return {"input_ids": ids, "labels": ids}

    def step() -> None:
        optimiser.zero_grad()
        model(**drawn()).loss.backward()
        optimiser.step()

    model.train()
    step()
    run = Watch(model, drawn(), output=None, optimiser=optimiser)
    each, measured = [], []
    for number in range(ROUNDS):
        each.append(seconds(step))
        measured.append(seconds(lambda number=number: run.at(number + 1)))
        each.append(seconds(step))
    ratio = statistics.median(measured) / statistics.median(each)
    overhead = 100 * MEASUREMENTS * ratio / STEPS
    print(
        f"{device}, GPT-2 with 6 layers of 384, {batch} x {tokens} tokens: a measurement takes "
        f"{ratio:.2f} training steps; {MEASUREMENTS} in {STEPS:,} steps: {overhead:.2f} %"
    )


def seconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
