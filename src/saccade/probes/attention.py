"""Statistics of attention per layer and head, for any model with `attention_layers`.

The definitions are those of `saccade.core.attention_rows`. Query i and key i have the same
position; of a query without a position, as of a classifier's, own mass and distance are NaN. Scores
are computed by blocks of rows, so that no table of all queries and keys is kept.
"""

import dataclasses
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from saccade.core.attention_rows import BLOCK, chosen_rows, row_statistics
from saccade.core.errors import ConfigError
from saccade.core.interfaces import SPLITS, AttentionLayer, Moment, Variable
from saccade.core.sweep import require, require_count
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.attention_regression import AttentionRegressionConfig
from saccade.models.convolutional_classifier import ConvolutionalClassifierConfig
from saccade.models.encoder import EncoderConfig
from saccade.models.kernels import AbstractKernel
from saccade.models.one_layer_transformer import OneLayerTransformerConfig
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.models.translator import TranslatorConfig
from saccade.probes.model_probe import AbstractModelProbe

RELATIVE = ("own_mass", "mean_distance")
"""Statistics that are relative to the position of the query."""


def layer_statistics(
    layer: AttentionLayer, rows: int, block: int = BLOCK
) -> dict[str, Float[Array, " head"]]:
    """Statistics of a layer per head: means over queries that count and see a key, of all examples;
    the largest score is the largest of them. Of more than `rows` queries, evenly spaced ones. NaN
    if no query counts.
    """
    if not isinstance(layer.kernel, AbstractKernel):
        allowed = "Softmax() or Gaussian(), or another AbstractKernel"
        raise ConfigError(f"attention_layers: got the kernel {layer.kernel!r}, allowed: {allowed}")
    if (layer.queries.ndim, layer.keys.ndim) != (4, 4):
        got = f"queries and keys of the shapes {layer.queries.shape} and {layer.keys.shape}"
        raise ConfigError(f"attention_layers: got {got}, allowed: [example, head, position, part]")
    examples, heads, queries = layer.queries.shape[:3]
    keys = layer.keys.shape[2]
    if queries != keys and layer.asked is None:
        raise ConfigError(
            f"attention_layers: got {queries} queries for {keys} keys, allowed: as many, or `asked`"
            ", which says which queries count"
        )
    positions = jnp.arange(keys)
    places = jnp.asarray(chosen_rows(queries, rows))
    there = jnp.ones((examples, keys), bool)
    mask, words = (there if one is None else one for one in (layer.mask, layer.words))
    asked = words if layer.asked is None else layer.asked

    def of_rows(places: Any, queries: Any, example: Any) -> Any:
        """Sums over rows of one example, their number, and the largest score."""
        theirs, mask, words, asked = example
        visible = jnp.broadcast_to(mask, (len(places), keys))
        if layer.causal:
            visible = visible & (positions <= places[:, None])
        scores = layer.kernel.scores(queries, theirs, layer.scale)
        normalised = layer.kernel.normalised
        found = row_statistics(scores, visible, words, places, positions, jnp, normalised)
        counted = asked[places] & jnp.any(visible, axis=-1)
        largest = jnp.max(jnp.where(counted, found["largest_score"], -jnp.inf), axis=-1)
        sums = {name: jnp.sum(counted * one, axis=-1) for name, one in found.items()}
        return sums | {"count": jnp.sum(counted), "largest_score": largest}

    def of_example(parts: Any) -> Any:
        """Results of row blocks, which are stacked in front."""
        queries, *example = parts
        size = max(1, min(len(places), block // (heads * keys)))
        whole = len(places) // size
        cut = whole * size
        by_block = queries[:, :cut].reshape(heads, whole, size, -1).swapaxes(0, 1)
        blocks = (places[:cut].reshape(whole, size), by_block)
        found = jax.lax.map(lambda one: of_rows(one[0], one[1], example), blocks)
        if cut == len(places):
            return found
        rest = of_rows(places[cut:], queries[:, cut:], example)
        return jax.tree.map(lambda one, two: jnp.concatenate([one, two[None]]), found, rest)

    at_once = max(1, block // (heads * len(places) * keys))
    parts = (layer.queries[:, :, places], layer.keys, mask, words, asked)
    found = jax.lax.map(of_example, parts, batch_size=at_once)
    count = jnp.sum(found.pop("count"))
    largest = jnp.max(found.pop("largest_score"), axis=(0, 1))
    means = {name: jnp.sum(one, axis=(0, 1)) / count for name, one in found.items()}
    if not layer.placed:
        means |= {name: jnp.full_like(means[name], jnp.nan) for name in RELATIVE}
    return means | {"largest_score": jnp.where(count > 0, largest, jnp.nan)}


@dataclasses.dataclass(frozen=True)
class AttentionStatistics(AbstractModelProbe):
    """Entropy, effective keys, masses and scores per layer and head, of evenly spaced examples and
    queries. Queries that are padding, or see no key, are left out; NaN if none is left. Own mass
    and distance are NaN for a query without a position.
    """

    split: str = "test"
    """The examples: train, validation or test."""
    rows: int = 128
    """The most queries per example."""
    examples: int = 64
    """The most examples."""

    models: ClassVar = (
        AttentionClassifierConfig,
        AttentionRegressionConfig,
        ConvolutionalClassifierConfig,
        EncoderConfig,
        OneLayerTransformerConfig,
        RecurrentClassifierConfig,
        SequenceToSequenceConfig,
        TranslatorConfig,
    )
    variables: ClassVar = {
        name: Variable(("layer", "head"), *texts)
        for name, texts in {
            "attention_entropy": ("entropy of attention, mean over queries", "nat"),
            "effective_keys": ("effective number of keys, 1 / sum p^2, mean over queries",),
            "largest_score": ("largest score of all queries and keys",),
            "padding_mass": ("attention to padding, mean over queries",),
            "first_mass": ("attention to the first word, mean over queries",),
            "own_mass": ("attention to the query's own position, mean over queries",),
            "mean_distance": ("mean distance of query and key, weighted by attention", "position"),
            "attention_total": ("sum of a query's weights, mean over queries",),
        }.items()
    }

    def __post_init__(self):
        require(self, "split", ", ".join(SPLITS), SPLITS.__contains__)
        require_count(self, "rows", "examples")

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(rows=3, examples=4), super().example()[1]

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch = moment.split(self.split)
        chosen = batch.examples(jnp.asarray(chosen_rows(batch.size, self.examples)))
        layers = moment.model.attention_layers(chosen)
        counts = sorted({layer.queries.shape[1] for layer in layers})
        if len(counts) > 1:
            got = " and ".join(map(str, counts))
            raise ConfigError(
                f"attention_layers: got layers of {got} heads, allowed: the same number in every "
                "layer, because the record has one axis of heads"
            )
        found = [layer_statistics(layer, self.rows) for layer in layers]
        # Single precision is enough, and keeps records of double precision small.
        single = jnp.float32
        return {name: jnp.stack([one[name] for one in found]).astype(single) for name in found[0]}
