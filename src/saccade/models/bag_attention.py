"""Attention over bags of words, with the work done per word rather than per token.

The context of sentence x is  c_x = sum_w n_xw e^{s_w} P_w / sum_w n_xw e^{s_w}: two sparse sums
over the rows (e^s, e^s P) of a table with one row per word. Their gradient is one sparse sum in the
other direction: with r_x = dL/dc_x,

    dL/dP_w = e^{s_w} sum_{x with w} r_x / Z_x
    dL/ds_w = P_w . dL/dP_w - e^{s_w} sum_{x with w} (r_x . c_x) / Z_x

so only rows of the sentences are summed over the words' occurrences, and nothing is stored per
token. Both sums are computed by gathering: rows in groups of a fixed size, then groups of groups,
until each target has one row. Unlike a scatter, this is deterministic on every device, runs in
parallel, and costs the same for every order of the words.

Scores may lie up to about 110 below the largest score of the dictionary. A sentence whose words all
lie below that has a partition sum of 0 in float32, and its member is marked as diverged.
"""

from collections.abc import Sequence
from itertools import zip_longest

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from saccade.contracts.model import AttentionLayer
from saccade.contracts.task import Batch
from saccade.models.kernels import SOFTMAX, AbstractKernel, Direct

Scores = Float[Array, " item"]
Values = Float[Array, "column item"]
PerToken = Float[Array, "sentence position"]
Tokens = Int[Array, "sentence position"]
Contexts = Float[Array, "sentence column"]
Rows = Float[Array, "source column"]

GROUP, GPU_GROUP = 4, 16
"""Rows summed at once. On CPUs 4 is fastest for words that occur a few times (measured against 8,
16); on an accelerator, whose time goes by the number of levels, 16 (SST-2: 1.7 times as fast)."""

_HEADROOM = 30.0
"""exp is taken of (score - largest score + 30): small weights then stay within float32's range."""


class SparseSum(eqx.Module):
    """A plan for out[target] = sum of rows[source] over some (target, source) pairs, by gathers."""

    levels: tuple[Int[Array, "*member group slot"], ...]
    """Rows of the previous level (first: of the source) per group; one past the end: no row."""
    place: Int[Array, "*member target"]
    """Index of each target's sum in all levels concatenated; one past the end for an empty sum."""
    full: bool = eqx.field(static=True)
    """One group per target, in order, without empty slots: all sentences have the same length."""

    def __call__(self, rows: Rows) -> Float[Array, "target column"]:
        if self.full:
            return _sum_of_groups(rows, self.levels[0])
        nothing = jnp.zeros((1, rows.shape[1]), rows.dtype)
        sums, current = [], rows
        for groups in self.levels:
            current = _sum_of_groups(jnp.concatenate([current, nothing]), groups)
            sums.append(current)
        return jnp.concatenate([*sums, nothing])[self.place]


def _sum_of_groups(rows: Rows, groups: Int[Array, "group slot"]) -> Float[Array, "group column"]:
    """A sum of gathers, which XLA fuses into one pass, not a sum over a gathered block."""
    return sum((rows[groups[:, slot]] for slot in range(1, groups.shape[1])), rows[groups[:, 0]])


class Bags(eqx.Module):
    """Which words stand in which sentences, indexed both ways."""

    by_sentence: SparseSum
    by_word: SparseSum


@jax.custom_vjp
def bag_attention(scores: Scores, values: Values, bags: Bags) -> Contexts:
    """Softmax attention over the words of each sentence: the exp(score)-weighted mean of values."""
    return _forward(scores, values, bags)[0]


def _forward(scores: Scores, values: Values, bags: Bags):
    weight = jnp.exp(scores - jax.lax.stop_gradient(jnp.max(scores)) + _HEADROOM)
    sums = bags.by_sentence(jnp.concatenate([weight[None], weight * values]).T)
    partition, context = sums[:, :1], sums[:, 1:] / sums[:, :1]
    return context, (weight, values, partition, context, bags)


def _backward(saved, gradient: Array):
    weight, values, partition, context, bags = saved
    along = -jnp.sum(gradient * context, axis=1, keepdims=True)
    rows = jnp.concatenate([along, gradient], axis=1) / partition
    sums = bags.by_word(rows).T
    value_gradient = weight * sums[1:]
    return weight * sums[0] + jnp.sum(values * value_gradient, axis=0), value_gradient, None


bag_attention.defvjp(_forward, _backward)


def attend(
    scores: Scores, values: Values, items: Tokens, batch: Batch, kernel: AbstractKernel = SOFTMAX
) -> tuple[Contexts, PerToken]:
    """Contexts and attention weights; an indexed batch takes the fast path."""
    # The compiler drops weights that are not used.
    attention = kernel.weights(masked(scores[items], batch.mask))
    if batch.index is None:
        return jnp.sum(attention[..., None] * values.T[items], axis=1), attention
    if kernel.normalised:
        return bag_attention(scores, values, batch.index), attention
    return batch.index.by_sentence((kernel.weights(scores) * values).T), attention


def masked(scores: PerToken, mask: Bool[Array, "sentence position"] | None) -> PerToken:
    """Scores with minus infinity for padding, so that its weight is exactly 0."""
    return scores if mask is None else jnp.where(mask, scores, -jnp.inf)


def of_one_query(scores: PerToken, batch: Batch, kernel: AbstractKernel) -> tuple[AttentionLayer]:
    """The attention of one query per sentence, given the scores of the words."""
    query, keys = jnp.ones((len(scores), 1, 1, 1), scores.dtype), scores[:, None, :, None]
    masks, asked = (batch.mask, batch.mask), jnp.ones((len(scores), 1), bool)
    layer = AttentionLayer(query, keys, Direct(kernel), *masks, asked=asked, placed=False)
    return (layer,)


def sum_over_sentences(rows: Rows, items: Tokens, batch: Batch) -> Contexts:
    """The sum of a table's rows over the items of each sentence."""
    if batch.index is not None:
        return batch.index.by_sentence(rows)
    chosen = rows[items]
    chosen = chosen if batch.mask is None else jnp.where(batch.mask[..., None], chosen, 0)
    return jnp.sum(chosen, axis=1)


# -- building the plans, on the host, once per training --------------------------------------------

_Plan = tuple[list[np.ndarray], np.ndarray, np.ndarray]
"""The groups of each level (-1: empty slot), and the level and the group of each target."""


def index_bags(
    words: Int[Array | np.ndarray, "member sentence position"],
    mask: Array | np.ndarray | None,
    vocabulary_size: int,
) -> Bags:
    """The indices of all members' sentences, padded to common sizes."""
    words = np.asarray(words)
    present = np.ones(words.shape, bool) if mask is None else np.asarray(mask)
    group = GROUP if jax.default_backend() == "cpu" else GPU_GROUP
    by_sentence, by_word = [], []
    for member_words, member_mask in zip(words, present, strict=True):
        sentence, position = np.nonzero(member_mask)
        tokens = member_words[sentence, position]
        # Without padding, one group per sentence has no empty slot.
        size = words.shape[2] if member_mask.all() else group
        by_sentence.append(_plan(tokens, sentence, words.shape[1], size))
        by_word.append(_plan(sentence, tokens, vocabulary_size, group))
    return Bags(_stacked(by_sentence, vocabulary_size), _stacked(by_word, words.shape[1]))


def _plan(source: np.ndarray, target: np.ndarray, targets: int, size: int) -> _Plan:
    order = np.argsort(target, kind="stable")
    rows, owner = source[order], target[order]
    level_of, group_of = np.full(targets, -1), np.zeros(targets, np.int64)
    levels: list[np.ndarray] = []
    while True:
        owners, first, count = np.unique(owner, return_index=True, return_counts=True)
        rank = np.arange(owner.size) - np.repeat(first, count)
        groups = -(-count // size)
        start = np.cumsum(groups) - groups
        table = np.full((int(groups.sum()), size), -1)
        table[np.repeat(start, count) + rank // size, rank % size] = rows
        levels.append(table)
        done = groups == 1
        level_of[owners[done]], group_of[owners[done]] = len(levels) - 1, start[done]
        if done.all():
            return levels, level_of, group_of
        open_groups = np.repeat(~done, groups)
        rows, owner = np.flatnonzero(open_groups), np.repeat(owners, groups)[open_groups]


def _stacked(plans: Sequence[_Plan], source_size: int) -> SparseSum:
    nothing = np.zeros((0, 1), np.int64)
    by_level = list(zip_longest(*(levels for levels, *_ in plans), fillvalue=nothing))
    sizes = [max(map(len, tables)) for tables in by_level]
    width = max(table.shape[1] for table in by_level[0])
    stacked = []
    for tables, size, beyond in zip(by_level, sizes, (source_size, *sizes), strict=False):
        stack = np.full((len(plans), size, width), beyond, np.int32)
        for member, table in enumerate(tables):
            chosen = np.where(table < 0, beyond, table)
            stack[member, : len(table), : table.shape[1]] = chosen
        stacked.append(stack)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    places = [np.where(level < 0, starts[-1], starts[level] + group) for _, level, group in plans]
    shape = (places[0].size, width)
    full = len(sizes) == 1 and all(t.shape == shape and (t >= 0).all() for t in by_level[0])
    return SparseSum(tuple(stacked), np.stack(places).astype(np.int32), full)  # pyright: ignore[reportArgumentType]
