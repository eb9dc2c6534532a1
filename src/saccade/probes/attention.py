"""Statistics of attention per layer and head, for any model with `attention_layers`.

The definitions are those of `saccade.records.attention_rows`. Query i and key i have the same
position; of a query without a position, as of a classifier's, own mass and distance are NaN. Scores
are computed by blocks of rows, so that no table of all queries and keys is kept.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from saccade.contracts.model import AttentionLayer
from saccade.contracts.probe import Moment
from saccade.contracts.task import SPLITS
from saccade.errors import ConfigError
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.attention_regression import AttentionRegressionConfig
from saccade.models.convolutional_classifier import ConvolutionalClassifierConfig
from saccade.models.encoder import EncoderConfig
from saccade.models.fused_attention import with_rounding, with_visibility
from saccade.models.kernels import AbstractKernel
from saccade.models.one_layer_transformer import OneLayerTransformerConfig
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.models.translator import TranslatorConfig
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.attention_rows import (
    BLOCK,
    REACH,
    chosen_rows,
    rounding_shift,
    row_statistics,
    spread_statistics,
)
from saccade.records.variable import Variable
from saccade.settings import require, require_count

RELATIVE = ("own_mass", "mean_distance", "future_mass")
"""Statistics that are relative to the position of the query."""
SQUARED = ("key_spread", "score_reach", "head_norm")
"""Statistics of which the root mean square over queries is taken, as of gradients."""


def layer_statistics(
    layer: AttentionLayer, rows: int, block: int = BLOCK, spread: bool = False
) -> dict[str, Float[Array, " head"]]:
    """Statistics of a layer per head: means over queries that count and see a key, of all examples;
    the largest score is the largest of them. Of more than `rows` queries, evenly spaced ones. NaN
    if no query counts. With `spread`, those of `AttentionSpread` instead.
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
        theirs, values, mask, words, asked = example
        exact = layer.kernel.scores(queries, theirs, layer.scale)
        shown = lambda some: with_visibility(  # noqa: E731
            some, mask[None, None], places, layer.padding_weight, layer.future_weight
        )
        scores = shown(with_rounding(exact) if layer.rounded else exact)
        visible = scores > -jnp.inf
        counted = asked[places] & jnp.any(visible, axis=-1)
        if spread:
            found = _spread(layer, scores, shown(exact), visible, places, theirs, values)
        else:
            normalised = layer.kernel.normalised
            found = row_statistics(scores, visible, words, places, positions, jnp, normalised)
        largest = found.get("largest_score", jnp.zeros(counted.shape))
        largest = jnp.max(jnp.where(counted, largest, -jnp.inf), axis=-1)
        sums = {name: jnp.sum(jnp.where(counted, one, 0.0), axis=-1) for name, one in found.items()}
        return sums | {"count": jnp.sum(counted, axis=-1), "largest_score": largest}

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
    values = layer.keys[..., :0] if layer.values is None else layer.values
    parts = (layer.queries[:, :, places], layer.keys, values, mask, words, asked)
    found = jax.lax.map(of_example, parts, batch_size=at_once)
    count = jnp.sum(found.pop("count"), axis=(0, 1))
    largest = jnp.max(found.pop("largest_score"), axis=(0, 1))
    means = {name: jnp.sum(one, axis=(0, 1)) / count for name, one in found.items()}
    means |= {name: jnp.sqrt(means[name]) for name in SQUARED if name in means}
    if not layer.placed:
        means |= {name: jnp.full_like(means[name], jnp.nan) for name in RELATIVE if name in means}
    if spread:
        return means
    return means | {"largest_score": jnp.where(jnp.any(count > 0), largest, jnp.nan)}


def _spread(
    layer: AttentionLayer,
    scores: Any,
    exact: Any,
    visible: Any,
    places: Any,
    keys: Any,
    values: Any,
) -> dict[str, Any]:
    """How far scores and keys of some rows are apart, and what the head adds."""
    positions = jnp.arange(scores.shape[-1])
    visible = jnp.broadcast_to(visible, scores.shape)
    centred = keys - jnp.mean(keys, axis=-2, keepdims=True)  # spreads do not change
    found = spread_statistics(scores, visible, places, positions, jnp, centred)
    count = jnp.maximum(jnp.sum(visible, axis=-1), 1)
    squares = jnp.sum(keys**2, axis=-1)[..., None, :]
    found["key_norm"] = jnp.sqrt(jnp.sum(jnp.where(visible, squares, 0.0), axis=-1) / count)
    found["key_spread"] = found["key_spread"] ** 2
    nothing = jnp.full(scores.shape[:-1], jnp.nan)
    found["rounding_shift"] = found["head_norm"] = found["score_reach"] = nothing
    if layer.kernel.normalised:
        scale = keys.shape[-1] ** -0.5 if layer.scale is None else layer.scale
        found["score_reach"] = scale**2 * found["key_spread"]
    if layer.rounded:
        found["rounding_shift"] = rounding_shift(exact, scores, visible, jnp)
    if layer.values is not None and layer.output is not None:
        weights = jnp.where(visible, layer.kernel.weights(scores), 0.0)
        added = jnp.einsum("hqd,hdf->hqf", weights @ values, layer.output)
        found["head_norm"] = jnp.sum(added**2, axis=-1)
    return found


@dataclasses.dataclass(frozen=True)
class AbstractLayerProbe(AbstractModelProbe):
    """Of evenly spaced examples and queries. Queries that are padding, or see no key, are left out;
    NaN if none is left.
    """

    split: str = "test"
    """The examples: train, validation or test."""
    rows: int = 128
    """The most queries per example."""
    examples: int = 64
    """The most examples."""
    padding: int | None = None
    """Id of padding, where models take it for a word like any other; None: batches mask it."""

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

    def __post_init__(self):
        require(self, "split", ", ".join(SPLITS), SPLITS.__contains__)
        require_count(self, "rows", "examples")
        if self.padding is not None:
            require_count(self, "padding", least=0)

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(rows=3, examples=4), super().example()[1]

    def _layers(self, moment: Moment) -> Sequence[AttentionLayer]:
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
        if self.padding is None:
            return layers
        words = chosen.words != self.padding
        return [dataclasses.replace(layer, words=words) for layer in layers]


def _stacked(found: Sequence[dict[str, Array]]) -> dict[str, Array]:
    # Single precision is enough, and keeps records of double precision small.
    single = jnp.float32
    return {name: jnp.stack([one[name] for one in found]).astype(single) for name in found[0]}


@dataclasses.dataclass(frozen=True)
class AttentionStatistics(AbstractLayerProbe):
    """Entropy, effective keys, masses and scores per layer and head, of evenly spaced examples and
    queries. Own mass and distance are NaN for a query without a position.
    """

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

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return _stacked([layer_statistics(layer, self.rows) for layer in self._layers(moment)])


@dataclasses.dataclass(frozen=True)
class AttentionSpread(AbstractLayerProbe):
    """Whether a layer can tell its keys apart: spread of scores and of keys, similarity of the
    tokens that enter, what rounding does, and what each head adds. NaN for what a model does not
    give (`AttentionLayer`).
    """

    variables: ClassVar = {
        name: Variable(("layer", "head"), *texts)
        for name, texts in {
            "uniform_entropy": ("entropy of uniform attention, mean over queries", "nat"),
            "visible_keys": ("keys that a query may attend to, mean over queries",),
            "score_spread": ("standard deviation of a query's scores, mean over queries",),
            "future_mass": ("attention to later positions, mean over queries",),
            "key_norm": ("root mean square norm of the visible keys, mean over queries",),
            "key_spread": ("spread of the keys under attention, sd_p(k), root mean square",),
            "score_reach": (f"{REACH}, root mean square",),
            "rounding_shift": ("share of attention that rounding of scores moves",),
            "head_norm": ("norm of what the head adds, root mean square",),
        }.items()
    } | {"token_cosine": Variable(("layer",), "mean cosine of two tokens that enter the layer")}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        layers = self._layers(moment)
        found = [layer_statistics(layer, self.rows, spread=True) for layer in layers]
        cosines = jnp.stack([token_cosine(layer) for layer in layers])
        return _stacked(found) | {"token_cosine": cosines.astype(jnp.float32)}


def token_cosine(layer: AttentionLayer) -> Float[Array, ""]:
    """Mean cosine of two different words of an example; NaN if the layer has no tokens."""
    if layer.tokens is None:
        return jnp.asarray(jnp.nan)
    norms = jnp.linalg.norm(layer.tokens, axis=-1, keepdims=True)
    unit = layer.tokens / jnp.where(norms > 0, norms, 1.0)
    there = jnp.ones(unit.shape[:2]) if layer.words is None else layer.words * 1.0
    counts = jnp.sum(there, axis=1)
    squares = jnp.sum(jnp.sum(unit * there[..., None], axis=1) ** 2, axis=-1)
    return jnp.sum(squares - counts) / jnp.sum(counts * (counts - 1))
