"""What training does to the items that carry the topic (words, or word pairs) and to all the
others.

<.> below is the mean over the training sentences that contain topic item i; Z_r and vbar_r are the
partition sum and the weighted mean embedding of a sentence's other items (Lu, Mao & Nayak 2021,
lemma 2).
"""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from saccade.core.interfaces import AbstractProbe, Moment, Variable
from saccade.models.bag_attention import sum_over_sentences


@dataclasses.dataclass(frozen=True)
class AbstractTopicProbe(AbstractProbe):
    """A probe whose dim `word` runs over the task's topic items; coordinate `topic` says whose
    they are.
    """

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        return {
            "word": ("word", np.asarray(task.topic_items)),
            "topic": ("word", np.asarray(task.topic_of_item)),
        }


@dataclasses.dataclass(frozen=True)
class TopicWords(AbstractTopicProbe):
    """Score, embedding norm and received attention of every topic item."""

    variables: ClassVar = {
        "score": Variable(("word",), "score of the topic item"),
        "norm": Variable(("word",), "Euclidean norm of its embedding, rescaled by the query norm"),
        "attention": Variable(
            ("word",), "attention it gets, mean over the training sentences that contain it"
        ),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        items, surroundings = moment.task.topic_items, moment.once(_surroundings)
        return {
            "score": moment.model.scores_of(items),
            "norm": jnp.linalg.norm(moment.model.embeddings_of(items), axis=0),
            "attention": surroundings.attention,
        }


@dataclasses.dataclass(frozen=True)
class CentredTopicWords(AbstractTopicProbe):
    """Score and embedding of every topic item, less their values at the start."""

    variables: ClassVar = {
        "centred_score": Variable(("word",), "score of the topic item less its score at the start"),
        "centred_norm": Variable(("word",), "norm of the change of its embedding since the start"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        items, now, then = moment.task.topic_items, moment.model, moment.initial
        return {
            "centred_score": now.scores_of(items) - then.scores_of(items),
            "centred_norm": jnp.linalg.norm(
                now.embeddings_of(items) - then.embeddings_of(items), axis=0
            ),
        }


@dataclasses.dataclass(frozen=True)
class OtherWords(AbstractProbe):
    """Scores and norms of the items that carry no topic, in summary."""

    variables: ClassVar = {
        "other_score_mean": Variable((), "mean absolute score of the non-topic items"),
        "other_score_max": Variable((), "largest absolute score of the non-topic items"),
        "other_norm_mean": Variable((), "mean embedding norm of the non-topic items"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        other = _others(moment)
        score = jnp.abs(moment.model.scores)
        norm = jnp.linalg.norm(moment.model.rescaled_embeddings, axis=0)
        return {
            "other_score_mean": jnp.mean(score, where=other),
            "other_score_max": jnp.max(score, where=other, initial=0.0),
            "other_norm_mean": jnp.mean(norm, where=other),
        }


@dataclasses.dataclass(frozen=True)
class Surroundings(AbstractTopicProbe):
    """The averages over other words that Theorem 1 needs."""

    variables: ClassVar = {
        "inverse_partition": Variable(
            ("word",), "<1/Z_r>: mean inverse partition sum of the other words"
        ),
        "distance": Variable(
            ("word",), "|| v_i - <vbar_r> ||: distance from the mean of the other words"
        ),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        surroundings = moment.once(_surroundings)
        apart = moment.model.embeddings_of(moment.task.topic_items) - surroundings.mean
        return {
            "inverse_partition": surroundings.inverse_partition,
            "distance": jnp.linalg.norm(apart, axis=0),
        }


@dataclasses.dataclass(frozen=True)
class Velocities(AbstractTopicProbe):
    """How fast score and embedding of each topic item move under gradient flow, per unit of time
    (rate x step).

    Frozen keys and embeddings are measured as if they could move.
    """

    variables: ClassVar = {
        "score_velocity": Variable(("word",), "ds_i/dt"),
        "norm_velocity": Variable(("word",), "d||v_i||/dt"),
        "projection": Variable(
            ("word",), "(v_i - <vbar_r>) . dv_i/dt, whose sign Lemma 2 gives to ds_i/dt"
        ),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        items, model = moment.task.topic_items, moment.model
        embedding = model.embeddings_of(items)
        velocity = model.embedding_velocity(moment.gradient)[:, items]
        norm = jnp.linalg.norm(embedding, axis=0)
        return {
            "score_velocity": model.score_velocity(moment.gradient)[items],
            "norm_velocity": (
                jnp.sum(embedding * velocity, axis=0)
                / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny)
            ),
            "projection": jnp.sum((embedding - moment.once(_surroundings).mean) * velocity, axis=0),
        }


@dataclasses.dataclass(frozen=True)
class QueryNorm(AbstractProbe):
    """Norm of the query."""

    variables: ClassVar = {"query_norm": Variable((), "Euclidean norm of the query")}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"query_norm": moment.model.query_norm}


@dataclasses.dataclass(frozen=True)
class Distributions(AbstractTopicProbe):
    """Histograms of score and embedding displacement of topic and other items, for snapshots.

    The bins are the same for all members, so that histograms can be averaged over seeds.
    """

    score_edges: tuple[float, ...]
    norm_edges: tuple[float, ...]

    variables: ClassVar = {
        "other_displacement": Variable(
            (), "mean norm of the change of a non-topic embedding since the start"
        ),
        "topic_displacement": Variable(
            (), "mean norm of the change of a topic embedding since the start"
        ),
        "other_score_change": Variable(
            (), "mean absolute change of a non-topic score since the start"
        ),
        "topic_score_change": Variable((), "mean absolute change of a topic score since the start"),
        "topic_score_share": Variable(
            ("score_bin",), "share of topic items a bin of centred score"
        ),
        "other_score_share": Variable(
            ("score_bin",), "share of non-topic items a bin of centred score"
        ),
        "topic_norm_share": Variable(("norm_bin",), "share of topic items a bin of displacement"),
        "other_norm_share": Variable(
            ("norm_bin",), "share of non-topic items a bin of displacement"
        ),
    }

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        del task
        middle = lambda edges: (np.asarray(edges[1:]) + np.asarray(edges[:-1])) / 2  # noqa: E731
        return {
            "score_bin": ("score_bin", middle(self.score_edges)),
            "norm_bin": ("norm_bin", middle(self.norm_edges)),
        }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        other, now, then = _others(moment), moment.model, moment.initial
        score = now.scores - then.scores
        norm = jnp.linalg.norm(now.rescaled_embeddings - then.rescaled_embeddings, axis=0)
        shares = {}
        for name, values, edges in (
            ("score", score, self.score_edges),
            ("norm", norm, self.norm_edges),
        ):
            for which, chosen in (("topic", ~other), ("other", other)):
                # Inner edges only: the outermost bins take what lies beyond them, so that shares
                # sum to 1.
                above = jnp.sum(
                    (values[:, None] >= jnp.asarray(edges[1:-1])) & chosen[:, None], axis=0
                )
                total = jnp.sum(chosen)
                least = jnp.concatenate([total[None], above, jnp.zeros(1, above.dtype)])
                shares[f"{which}_{name}_share"] = (least[:-1] - least[1:]) / total
        return shares | {
            "other_displacement": jnp.mean(norm, where=other),
            "topic_displacement": jnp.mean(norm, where=~other),
            "other_score_change": jnp.mean(jnp.abs(score), where=other),
            "topic_score_change": jnp.mean(jnp.abs(score), where=~other),
        }


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
    own = (
        jnp.sum(here, axis=1) * weight[topic]
    )  # weight of item i in sentence x, all its places together
    rest = jnp.maximum(total[:, None] - own, jnp.finfo(total.dtype).tiny)
    share = (own > 0) / jnp.sum(own > 0, axis=0)  # averages over the sentences that contain item i
    inverse = share / rest
    mean = jnp.einsum("xd,xi->di", weighted, inverse) - embeddings[:, topic] * jnp.sum(
        inverse * own, axis=0
    )
    return _Surroundings(
        jnp.sum(share * own / total[:, None], axis=0), jnp.sum(inverse, axis=0), mean
    )


def _others(moment: Moment) -> Bool[Array, " item"]:
    return jnp.ones(moment.model.scores.shape, bool).at[moment.task.topic_items].set(False)
