"""From operations of attention to numbers per head, by blocks of rows."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from saccade.records.attention_rows import (
    BLOCK,
    chosen_rows,
    relative_weights,
    rounding_shift,
    row_statistics,
    spread_statistics,
)
from saccade.watch.capture import Call, CaptureError, ProductCall, ScoreCall

SQUARED = ("value_signal", "key_spread", "score_reach", "query_gradient")
"""Quantities of which the root mean square over rows is taken, as of gradients."""
CLOSE = {torch.float32: 1e-4, torch.float64: 1e-9}
"""How far recomputed attention may be from the model's, relative to its largest number; in lower
precision 3 %, and as much more as scores of that precision are rounded."""


@dataclasses.dataclass(frozen=True)
class Words:
    """What is known of the words at queries and keys of one call."""

    query_ids: Tensor | None = None
    """[example, query]."""
    key_ids: Tensor | None = None
    query_words: Tensor | None = None
    """True where there is a word, and no padding."""
    key_words: Tensor | None = None
    related: bool = True
    """Whether query i and key i are the same position."""


@dataclasses.dataclass(frozen=True)
class Found:
    """Numbers of one call, per head; and their standard errors over examples."""

    values: dict[str, np.ndarray]
    errors: dict[str, np.ndarray]
    examples: int
    heads: int
    reconstruction: float
    """Largest difference of recomputed attention, relative to the largest number."""
    squares: np.ndarray | None = None
    """Of products of queries and keys: mean outer product of what a head gives, [head, part, part].
    """


def call_statistics(call: Call, words: Words, pull: Tensor | None, rows: int) -> Found:
    """Means over queries that are words and see a key, and the largest of their scores.

    `pull` is the derivative of the loss by the tensor with which the model goes on, arranged as the
    call is. Of more than `rows` queries evenly spaced ones, each exactly.
    """
    examples, heads, queries, keys = call.shape
    dtype = torch.float64 if call.went_on.dtype == torch.float64 else torch.float32
    chosen = torch.as_tensor(chosen_rows(queries, rows), device=call.device)
    size = max(1, BLOCK // max(1, examples * heads * keys))
    blocks = [_block(call, words, pull, some, dtype) for some in chosen.split(size)]
    tables = {name: torch.cat([one[name] for one in blocks], dim=2) for name in blocks[0]}
    counted = tables.pop("counted") > 0
    largest = tables.pop("size").amax().item() if "size" in tables else 1.0
    apart = torch.where(counted, tables.pop("reconstruction"), 0.0).amax().item()
    values, errors = {}, {}
    for name, table in tables.items():
        if name == "largest_score":
            top = torch.where(counted, table, -math.inf).amax((0, 2))
            values[name] = torch.where(top > -math.inf, top, math.nan).cpu().numpy()
            continue
        squared = name in SQUARED
        mean, error = _mean(table.double() ** 2 if squared else table, counted)
        if squared:  # error of a square root
            mean, error = np.sqrt(mean), error / (2 * np.sqrt(np.maximum(mean, 1e-30)))
        values[name], errors[name] = mean, error
    squares = _squares(call, chosen, counted) if isinstance(call, ProductCall) else None
    return Found(values, errors, examples, heads, apart / max(largest, 1e-30), squares)


def _squares(call: ProductCall, chosen: Tensor, counted: Tensor) -> np.ndarray:
    """Mean outer product of what each head gives, over the rows that count."""
    given = torch.where(counted[..., None], call.of_heads[:, :, chosen].double(), 0.0)
    whole = counted.double().sum((0, 2)).clamp_min(1)
    return (torch.einsum("ehrp,ehrq->hpq", given, given) / whole[:, None, None]).cpu().numpy()


def _mean(table: Tensor, counted: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Mean over counted rows of all examples, per head, and its standard error over examples."""
    sums = torch.where(counted, table, 0.0).double().sum(2)
    counts = counted.double().sum(2)
    whole = counts.sum(0)
    mean = torch.where(whole > 0, sums.sum(0) / whole.clamp_min(1), math.nan)
    there = (counts > 0).double().sum(0)
    # A ratio of sums over examples: its error is that of the mean of (sum - mean x count).
    apart = ((sums - mean * counts) ** 2).sum(0) * there / (there - 1).clamp_min(1)
    error = torch.where(there > 1, apart.sqrt() / whole.clamp_min(1), math.nan)
    return mean.cpu().numpy(), error.cpu().numpy()


def _block(
    call: Call, words: Words, pull: Tensor | None, chosen: Tensor, dtype: torch.dtype
) -> dict[str, Tensor]:
    """Every statistic of some rows: [example, head, row]."""
    examples, _, _, keys = call.shape
    found = call.rows(chosen, dtype)
    scores, visible = found.scores, found.visible.expand(found.scores.shape)
    every = torch.ones(examples, keys, dtype=torch.bool, device=call.device)
    real = every if words.key_words is None else words.key_words
    places = torch.arange(keys, device=call.device)
    if isinstance(call, ScoreCall) and call.has_sink:
        places[-1] = -1  # neither first, nor own, nor later, and at no distance
        real = torch.nn.functional.pad(real, (0, keys - real.shape[1]), value=True)
    parts = row_statistics(scores, visible, real[:, None], chosen, places, torch)
    del parts["attention_total"]
    if words.key_words is None:  # then nobody knows
        del parts["padding_mass"]
    vectors = None
    if isinstance(call, ProductCall):
        vectors = call.of_head(call.keys, dtype)
        norms = torch.where(visible, (vectors**2).sum(-1)[:, :, None], 0.0).sum(-1)
        parts["key_norm"] = (norms / visible.sum(-1).clamp_min(1)).sqrt()
        if call.soft_cap is None:  # spreads do not change, and keep more digits
            vectors = vectors - vectors.mean(2, keepdim=True)
        low = call.queries.dtype
        if call.rounds_scores and low in (torch.bfloat16, torch.float16):
            parts["rounding_shift"] = rounding_shift(
                scores, scores.to(low).to(dtype), visible, torch
            )
    weights = relative_weights(scores, visible, torch)[-1]
    shares = weights / weights.sum(-1, keepdim=True).clamp_min(1)  # the largest is 1
    signal = None if pull is None else _signal(call, pull, chosen, shares)
    scale = call.scale if isinstance(call, ProductCall) else 1.0
    parts |= spread_statistics(
        scores, visible, chosen, places, torch, vectors, found.slopes, signal, scale
    )
    if "key_spread" in parts:
        parts["score_reach"] = scale * parts["key_spread"]
    if not words.related:
        for name in ("own_mass", "mean_distance", "future_mass"):
            parts[name] = torch.full_like(parts[name], math.nan)
    if words.query_ids is not None and words.key_ids is not None:
        same = words.query_ids[:, None, chosen, None] == words.key_ids[:, None, None]
        parts["same_mass"] = (shares[..., : same.shape[-1]] * same).sum(-1)
    counted = visible.any(-1)
    if words.query_words is not None:
        counted = counted & words.query_words[:, None, chosen]
    parts["reconstruction"] = call.error(chosen, shares)
    if isinstance(call, ProductCall):
        parts["size"] = call.of_heads[:, :, chosen].abs().amax(-1).to(dtype)
    return parts | {"counted": counted.to(dtype)}


def _signal(call: Call, pull: Tensor, chosen: Tensor, shares: Tensor) -> Tensor:
    """g, what the loss changes by the weight of each key."""
    dtype = shares.dtype
    pull = pull[:, :, chosen].to(dtype)
    if isinstance(call, ProductCall):
        return pull @ call.of_head(call.values, dtype).mT
    assert isinstance(call, ScoreCall)
    if not call.by_scores:
        return pull
    # By the scores, dL/ds = p (g - E g): g up to a constant, which no spread depends on.
    return torch.where(shares > 0, pull / torch.where(shares > 0, shares, 1.0), 0.0)


def require_faithful(calls: Sequence[Call], found: Mapping[str, Found]) -> None:
    """Refuse numbers of attention that is not the model's."""
    for call in calls:
        one = found[call.name]
        kind = call.went_on.dtype
        top = float(np.nanmax(np.abs(one.values["largest_score"]), initial=0.0))
        close = CLOSE.get(kind, 3e-2 + torch.finfo(kind).eps * top)
        if not one.reconstruction <= close:
            noted = f" ({'; '.join(call.notes)})" if call.notes else ""
            raise CaptureError(
                f"{call.name}: recomputed attention differs from the model's by "
                f"{one.reconstruction:.1e} of its size, allowed: {close:.0e}{noted}; "
                "it does something that was not seen"
            )


def token_cosine(tokens: Tensor, words: Tensor | None) -> float:
    """Mean cosine of two different words of an example: 1 if all are the same direction."""
    unit = torch.nn.functional.normalize(tokens.detach().double(), dim=-1)
    fits = words is not None and words.shape == unit.shape[:2]
    there = words.double() if fits else torch.ones(unit.shape[:2], device=unit.device).double()  # pyright: ignore[reportOptionalMemberAccess]
    counts = there.sum(1)
    squares = (unit * there[..., None]).sum(1).square().sum(-1)
    pairs = (counts * (counts - 1)).sum()
    return float((squares - counts).sum() / pairs) if pairs > 0 else math.nan
