"""Scores and embeddings of the items that carry the topic (words, or word pairs) and of all others.

`<.>` is the mean over the training sentences with topic item i; Z_r and vbar_r are partition sum
and weighted mean embedding of a sentence's other items (Lu, Mao & Nayak 2021, lemma 2).
"""

import dataclasses
from typing import Any, ClassVar, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from saccade.contracts.probe import Moment
from saccade.contracts.task import HasTopicItems
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.bag_attention import sum_over_sentences
from saccade.models.convolutional_classifier import ConvolutionalClassifierConfig
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable


class AbstractItemProbe(AbstractModelProbe):
    """A probe of the items (words, or word pairs) that a classifier of Lu 2021 attends to."""

    models: ClassVar = (AttentionClassifierConfig,)


class AbstractTopicProbe(AbstractItemProbe):
    """A probe whose dim `word` runs over the topic items, with the coordinate `topic`."""

    def coordinates(self, task: HasTopicItems) -> dict[str, tuple[str, Any]]:
        items, topics = np.asarray(task.topic_items), np.asarray(task.topic_of_item)
        return {"word": ("word", items), "topic": ("word", topics)}


class TopicWords(AbstractTopicProbe):
    """Score, embedding norm and received attention of every topic item."""

    variables: ClassVar = {
        "score": Variable(("word",), "score of the topic item"),
        "norm": Variable(("word",), "Euclidean norm of its embedding, rescaled by the query norm"),
        "attention": Variable(("word",), "mean attention to it in training sentences with it"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        items, model = moment.task.topic_items, moment.model
        score, norm = model.scores_of(items), jnp.linalg.norm(model.embeddings_of(items), axis=0)
        return {"score": score, "norm": norm, "attention": moment.once(_surroundings).attention}


class CentredTopicWords(AbstractTopicProbe):
    """Score and embedding of every topic item minus their initial values."""

    models: ClassVar = (AttentionClassifierConfig, ConvolutionalClassifierConfig)
    variables: ClassVar = {
        "centred_score": Variable(("word",), "score of the topic item minus its initial score"),
        "centred_norm": Variable(("word",), "norm of the displacement of its embedding"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        items, now, then = moment.task.topic_items, moment.model, moment.initial
        score = now.scores_of(items) - then.scores_of(items)
        displacement = now.embeddings_of(items) - then.embeddings_of(items)
        return {"centred_score": score, "centred_norm": jnp.linalg.norm(displacement, axis=0)}


class OtherWords(AbstractItemProbe):
    """Summary of the scores and norms of the items that carry no topic."""

    variables: ClassVar = {
        "other_score_mean": Variable((), "mean absolute score of the non-topic items"),
        "other_score_max": Variable((), "largest absolute score of the non-topic items"),
        "other_norm_mean": Variable((), "mean embedding norm of the non-topic items"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        other = _others(moment)
        score = jnp.abs(moment.model.scores)
        norm = jnp.linalg.norm(moment.model.rescaled_embeddings, axis=0)
        mean, norm_mean = (jnp.mean(values, where=other) for values in (score, norm))
        largest = jnp.max(score, where=other, initial=0.0)
        return {"other_score_mean": mean, "other_score_max": largest, "other_norm_mean": norm_mean}


class Surroundings(AbstractTopicProbe):
    """The averages over the other words of a sentence that theorem 1 needs."""

    variables: ClassVar = {
        "inverse_partition": Variable(("word",), "<1/Z_r>, mean inverse partition sum of others"),
        "distance": Variable(("word",), "||v_i - <vbar_r>||, distance from the other words' mean"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        surroundings = moment.once(_surroundings)
        apart = moment.model.embeddings_of(moment.task.topic_items) - surroundings.mean
        distance = jnp.linalg.norm(apart, axis=0)
        return {"inverse_partition": surroundings.inverse_partition, "distance": distance}


class Velocities(AbstractTopicProbe):
    """Velocities of topic items under gradient flow, in time = rate x step; frozen parts too."""

    variables: ClassVar = {
        "score_velocity": Variable(("word",), "ds_i/dt"),
        "norm_velocity": Variable(("word",), "d||v_i||/dt"),
        "projection": Variable(("word",), "(v_i - <vbar_r>) . dv_i/dt; lemma 2: sign of ds_i/dt"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        items, model = moment.task.topic_items, moment.model
        embedding = model.embeddings_of(items)
        velocity = model.embedding_velocity(moment.gradient)[:, items]
        norm = jnp.linalg.norm(embedding, axis=0)
        positive_norm = jnp.maximum(norm, jnp.finfo(norm.dtype).tiny)
        apart = embedding - moment.once(_surroundings).mean
        grows = jnp.sum(embedding * velocity, axis=0) / positive_norm
        rises = model.score_velocity(moment.gradient)[items]
        projection = jnp.sum(apart * velocity, axis=0)
        return {"score_velocity": rises, "norm_velocity": grows, "projection": projection}


class QueryNorm(AbstractItemProbe):
    """Norm of the query."""

    variables: ClassVar = {"query_norm": Variable((), "Euclidean norm of the query")}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"query_norm": moment.model.query_norm}


class KeySquares(AbstractItemProbe):
    """Squares of keys and scores, summed over all items; a unit query has keys along it."""

    variables: ClassVar = {
        "key_square": Variable((), "sum over all items of the squared norm of the key"),
        "score_square": Variable((), "sum over all items of the squared score"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model = moment.model
        scores = jnp.sum(model.scores**2)
        keys = scores if model.keys is None else jnp.sum(model.keys**2)
        return {"key_square": keys, "score_square": scores}


@dataclasses.dataclass(frozen=True)
class Distributions(AbstractItemProbe):
    """Histograms of score change and displacement, for `ends`; all members share the bins."""

    score_edges: tuple[float, ...]
    norm_edges: tuple[float, ...]

    variables: ClassVar = {
        "other_displacement": Variable((), "mean displacement of a non-topic embedding"),
        "topic_displacement": Variable((), "mean displacement of a topic embedding"),
        "other_score_change": Variable((), "mean absolute score change of a non-topic item"),
        "topic_score_change": Variable((), "mean absolute score change of a topic item"),
        "topic_score_share": Variable(("score_bin",), "share of topic items per score bin"),
        "other_score_share": Variable(("score_bin",), "share of non-topic items per score bin"),
        "topic_norm_share": Variable(("norm_bin",), "share of topic items per displacement bin"),
        "other_norm_share": Variable(("norm_bin",), "share of other items per displacement bin"),
    }

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        probe = cls(score_edges=(-1.0, 0.0, 1.0, 2.0), norm_edges=(0.0, 0.1, 1.0))
        return probe, (AttentionClassifierConfig.example(), ConvolutionalClassifierConfig.example())

    def coordinates(self, task: HasTopicItems) -> dict[str, tuple[str, Any]]:
        edges = {"score_bin": np.asarray(self.score_edges), "norm_bin": np.asarray(self.norm_edges)}
        return {name: (name, (part[1:] + part[:-1]) / 2) for name, part in edges.items()}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        other, now, then = _others(moment), moment.model, moment.initial
        score = now.scores - then.scores
        norm = jnp.linalg.norm(now.rescaled_embeddings - then.rescaled_embeddings, axis=0)
        values = {}
        for which, chosen in (("topic", ~other), ("other", other)):
            values |= {
                f"{which}_score_share": _shares(score, self.score_edges, chosen),
                f"{which}_norm_share": _shares(norm, self.norm_edges, chosen),
                f"{which}_displacement": jnp.mean(norm, where=chosen),
                f"{which}_score_change": jnp.mean(jnp.abs(score), where=chosen),
            }
        return values


def _shares(
    values: Float[Array, " item"], edges: tuple[float, ...], chosen: Bool[Array, " item"]
) -> Float[Array, " bin"]:
    """Share of the chosen items per bin; the outermost bins include what lies beyond them."""
    above = jnp.sum((values[:, None] >= jnp.asarray(edges[1:-1])) & chosen[:, None], axis=0)
    total = jnp.sum(chosen)
    least = jnp.concatenate([total[None], above, jnp.zeros(1, above.dtype)])
    return (least[:-1] - least[1:]) / total


class _Surroundings(eqx.Module):
    attention: Float[Array, " word"]
    inverse_partition: Float[Array, " word"]
    mean: Float[Array, "dimension word"]


def _surroundings(moment: Moment) -> _Surroundings:
    """The averages over the sentences of each topic item."""
    model, batch, topic = moment.model, moment.train, moment.task.topic_items
    items = model.items(batch)
    weight, embeddings = jnp.exp(model.scores), model.rescaled_embeddings
    sums = sum_over_sentences(jnp.concatenate([weight[None], weight * embeddings]).T, items, batch)
    total, weighted = sums[:, 0], sums[:, 1:]

    here = items[..., None] == topic
    here = here if batch.mask is None else here & batch.mask[..., None]
    own = jnp.sum(here, axis=1) * weight[topic]  # weight of item i in sentence x, all positions
    rest = jnp.maximum(total[:, None] - own, jnp.finfo(total.dtype).tiny)
    share = (own > 0) / jnp.sum(own > 0, axis=0)  # averages over the sentences that contain item i
    inverse = share / rest
    own_part = embeddings[:, topic] * jnp.sum(inverse * own, axis=0)
    mean = jnp.einsum("xd,xi->di", weighted, inverse) - own_part
    attention = jnp.sum(share * own / total[:, None], axis=0)
    return _Surroundings(attention, jnp.sum(inverse, axis=0), mean)


def _others(moment: Moment) -> Bool[Array, " item"]:
    return jnp.ones(moment.model.scores.shape, bool).at[moment.task.topic_items].set(False)
