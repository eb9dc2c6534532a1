"""How near fused attention is to what a GPU can do, in one run, as ratios.

Three rates are measured first: exponentials (a chain of them within one kernel), products of
bfloat16 matrices, and bytes copied. From them follow three times below which no attention can be:
each score needs one exponential forward and one backward; 4 d and 10 d operations, of head size d
(backward, scores and what they make are computed again: five products instead of two); and each
input is read and each output written once. The bound is the largest of the three, as if they could
be done at the same time.

The fused kernel is measured alone, on vectors in bfloat16, and as training calls either kernel,
with conversions and further features; on the texts of one member, on those of three members in one
call, which is what training does, and in three calls.

    python benchmarks/attention_bound.py [--turns 5]
"""

import time
from collections.abc import Callable
from statistics import median
from typing import Any, Literal

import jax
import jax.numpy as jnp

from saccade.models.fused_attention import mixed, why_not_fused
from saccade.models.kernels import KERNELS, AbstractKernel
from turns import asked_turns

TEXTS, HEADS, PART = 32, 2, 32
CHAIN = 64
"""Exponentials per number."""


def seconds(function: Callable[..., Any], *arguments: Any, turns: int, repeats: int = 10) -> float:
    """Median time of a call, of several that are queued together."""
    compiled = jax.jit(function)
    jax.block_until_ready(compiled(*arguments))
    taken = []
    for _ in range(turns):
        begun = time.perf_counter()
        results = [compiled(*arguments) for _ in range(repeats)]
        jax.block_until_ready(results)
        taken.append((time.perf_counter() - begun) / repeats)
    return median(taken)


def chained(numbers: Any) -> Any:
    for _ in range(CHAIN):
        numbers = jnp.exp2(-numbers)
    return numbers


def rates(on_gpu: bool, turns: int) -> tuple[float, float, float]:
    """Exponentials, operations of bfloat16 products, and copied bytes per second."""
    count, size = (2**26, 8192) if on_gpu else (2**16, 256)
    numbers = jax.random.uniform(jax.random.key(0), (count,))
    matrix = jax.random.normal(jax.random.key(1), (size, size), jnp.bfloat16)
    exponentials = count * CHAIN / seconds(chained, numbers, turns=turns)
    operations = 2 * size**3 / seconds(jnp.matmul, matrix, matrix, turns=turns)
    copied = 8 * count / seconds(lambda some: some + 1, numbers, turns=turns)
    return exponentials, operations, copied


def bounds(scores: int, vector: int, *rates: float) -> list[tuple[float, str]]:
    """The shortest times of forward and backward pass, and what they are set by."""
    exponentials, operations, copied = rates
    found = []
    for products, vectors in ((2, 4), (5, 8)):
        times = {
            "exponentials": scores / exponentials,
            "products": 2 * products * PART * scores / operations,
            "bytes": vectors * vector / copied,
        }
        term = max(times, key=lambda name: times[name])
        found.append((times[term], term))
    return found


def alone(implementation: Literal["xla", "cudnn"]) -> Callable[..., Any]:
    """The kernel of softmax attention, on vectors in bfloat16."""

    def attention(*vectors: Any) -> Any:
        by_position = [jnp.swapaxes(one, 1, 2).astype(jnp.bfloat16) for one in vectors]
        found = jax.nn.dot_product_attention(*by_position, implementation=implementation)
        return jnp.swapaxes(found, 1, 2)

    return attention


def as_in_training(kernel: AbstractKernel) -> Callable[..., Any]:
    return lambda *vectors: mixed(kernel, *vectors, fused=True)


def with_gradients(attention: Callable[..., Any]) -> Callable[..., Any]:
    def both(*vectors: Any) -> Any:
        sums, back = jax.vjp(attention, *vectors)
        return sums, back(sums)

    return both


def main() -> None:
    turns = asked_turns(__doc__)
    why = why_not_fused(PART)
    longest = 64 if why else 1024
    if why:
        print(f"tiny sizes, which show only that this runs: {why}")
    chip = rates(not why, turns)
    units = ("exponentials", "operations in products of bfloat16", "copied bytes")
    print(", ".join(f"{rate:.3g} {unit}" for rate, unit in zip(chip, units, strict=True)), "per s")
    scores, vector = TEXTS * HEADS * longest**2, 2 * TEXTS * HEADS * longest * PART
    (ahead, ahead_by), (back, back_by) = bounds(scores, vector, *chip)
    print(
        f"bounds per layer and member: forward {1e3 * ahead:.4f} ms ({ahead_by}), "
        f"backward {1e3 * back:.4f} ms ({back_by})"
    )
    keys = jax.random.split(jax.random.key(2), 3)
    three = [jax.random.normal(key, (3, TEXTS, HEADS, longest, PART)) for key in keys]
    one = [part[0] for part in three]
    ways = {"the kernel alone, softmax": alone("xla" if why else "cudnn")}
    ways |= {f"as in training, {name}": as_in_training(kernel) for name, kernel in KERNELS.items()}
    for name, attention in ways.items():
        inputs = [one, three]
        if name.startswith("the kernel alone"):
            inputs = [[part.astype(jnp.bfloat16) for part in parts] for parts in inputs]
        both = with_gradients(attention)

        def in_three_calls(*parts: Any, both: Any = both) -> Any:
            return [both(*vectors) for vectors in zip(*parts, strict=True)]

        forward = seconds(attention, *inputs[0], turns=turns)
        whole = seconds(both, *inputs[0], turns=turns)
        together = seconds(jax.vmap(both), *inputs[1], turns=turns) / 3
        apart = seconds(in_three_calls, *inputs[1], turns=turns) / 3
        print(
            f"{name}: forward {1e3 * forward:.4f} ms, {forward / ahead:.2f} times the bound; with"
            f" gradients {1e3 * whole:.4f} ms, {whole / (ahead + back):.2f} times; three members in"
            f" one call {1e3 * together:.4f} ms per member, {together / (ahead + back):.2f} times,"
            f" in three calls {1e3 * apart:.4f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
