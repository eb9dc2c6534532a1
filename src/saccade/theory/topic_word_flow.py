"""The flow of topic words among words that stand still (Lu, Mao & Nayak 2021, lemma 2).

Statement. For small steps and a small start, score s_i and embedding v_i of topic word i follow

    dv_i/dt = (|Psi_i| / |Psi|) < -grad l(vbar) e^{s_i} / Z >
    (equation 2) ds_i/dt = (v_i - <vbar_r>) . dv_i/dt / < (e^{s_i} + Z_r) / Z_r >
    (equation 3)

in time = rate x step, with everything of the other words (Z_r, vbar_r) as it was at the start. The
paper writes the updates with a plus; its gradient is the negative one.

Symbols. Psi: training sentences; Psi_i: those with topic word i; <.>: mean over Psi_i; Z = e^{s_i}
+ Z_r: partition sum of a sentence; Z_r, vbar_r: that and the weighted mean embedding of its other
words; l: loss as a function of vbar.

Limits. A fixed query; a norm other than 1 enters as the factor ||q||^2 in equation 2. Assumes that
the other words do not move at all. The classifier may: if it is trained, it flows along.
"""

from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from saccade.core.engine import initial_model, training_set
from saccade.core.interfaces import AbstractTheory, Batch
from saccade.models.bag_attention import sum_over_sentences


class TopicWordState(eqx.Module):
    """What flows: the topic words and, if it is trained, the classifier."""

    scores: Float[Array, " word"]
    embeddings: Float[Array, "dimension word"]
    head: Any


class Lemma2(AbstractTheory):
    """Score and norm of every topic word, from the start alone: no measured trajectory goes in."""

    statement: ClassVar[str] = "ds/dt = (v - <vbar_r>) . dv/dt / <(exp(s) + Z_r) / Z_r>"
    source: ClassVar[str] = "Lu 2021, lemma 2"
    predicts: ClassVar[tuple[str, ...]] = ("score", "norm", "loss")

    def predict(self, task: Any, model: Any, trajectory: xr.Dataset) -> xr.Dataset:
        times = jnp.asarray(trajectory["time"].values)
        seeds = jnp.asarray(trajectory["seed"].values.astype(np.uint32))
        flow = jax.jit(jax.vmap(lambda seed: self.flow(task, model, seed, times)))
        loss, score, norm = (np.asarray(part) for part in flow(seeds))
        dims = ("seed", "step", "word")
        coordinates = {
            name: trajectory.coords[name] for name in ("seed", "step", "time", "word", "topic")
        }
        told = "by lemma 2's flow, from the start alone"
        data = {
            "loss": (dims[:2], loss, {"description": f"training loss {told}"}),
            "score": (dims, score, {"description": f"score {told}"}),
            "norm": (dims, norm, {"description": f"norm {told}"}),
        }
        return xr.Dataset(data, coordinates)

    def flow(
        self, task: Any, model: Any, seed: Any, times: Float[Array, " step"]
    ) -> tuple[Array, Array, Array]:
        """Loss, scores and norms of one member at some times."""
        import diffrax

        start, batch = initial_model(task, model, seed), training_set(task, seed)
        field, loss = self.vector_field(task, start, batch)
        topic = task.topic_items
        state = TopicWordState(
            start.scores[topic],
            start.rescaled_embeddings[:, topic],
            eqx.filter(start.head, eqx.is_array),
        )

        def saved(time: Any, now: TopicWordState, args: Any) -> tuple[Array, Array, Array]:
            del time, args
            return loss(now), now.scores, jnp.linalg.norm(now.embeddings, axis=0)

        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(field),  # pyright: ignore[reportArgumentType]
            diffrax.Tsit5(),
            t0=times[0],
            t1=times[-1],
            dt0=None,
            y0=state,
            saveat=diffrax.SaveAt(ts=times, fn=saved),
            stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-7),
            max_steps=None,
            adjoint=diffrax.ForwardMode(),
        )
        return solution.ys  # pyright: ignore[reportReturnType]

    def vector_field(self, task: Any, start: Any, batch: Batch) -> tuple[Any, Any]:
        """Equations 2 and 3 as a function (time, state, args) -> velocity, and the loss of a
        state.
        """
        topic, norm, embeddings = task.topic_items, start.query_norm, start.rescaled_embeddings
        weight = jnp.exp(start.scores)
        sums = sum_over_sentences(
            jnp.concatenate([weight[None], weight * embeddings]).T, batch.words, batch
        )
        own = batch.words[:, 0]  # one topic word a sentence, and it stands first
        rest = sums[:, 0] - weight[own]
        rest_mean = (sums[:, 1:] - (weight * embeddings).T[own]) / rest[:, None]
        here = own[:, None] == topic
        share = here / jnp.sum(here, axis=0)
        mean_rest = rest_mean.T @ share
        mean_inverse = (1 / rest) @ share
        head_learns = start.trainable().head
        correct = batch.labels[:, None] == jnp.arange(task.labels)

        def loss(state: TopicWordState) -> Float[Array, ""]:
            attended = jnp.exp(state.scores)[own]
            attention = attended / (attended + rest)
            mean = (
                attention[:, None] * state.embeddings.T[own] + (1 - attention)[:, None] * rest_mean
            )
            head = eqx.combine(state.head, start.head)
            return -jnp.mean(
                jnp.sum(
                    jax.nn.log_softmax(head.finish(mean @ head.first / norm)) * correct, axis=-1
                )
            )

        def field(time: Any, state: TopicWordState, args: Any) -> TopicWordState:
            del time, args
            gradient = jax.grad(loss)(state)
            velocity = (
                -(norm**2) * gradient.embeddings
            )  # v = ||q|| nu moves ||q||^2 times as fast as its gradient says
            projection = jnp.sum((state.embeddings - mean_rest) * velocity, axis=0)
            head = jax.tree.map(lambda learns, slope: -slope * learns, head_learns, gradient.head)
            return TopicWordState(
                projection / (1 + jnp.exp(state.scores) * mean_inverse), velocity, head
            )

        return field, loss
