r"""The flow of topic words among words that do not move (Lu, Mao & Nayak 2021, lemma 2).

Statement. For small steps and initialisation, score $s_i$ and embedding $v_i$ of topic word $i$
follow (equations 2 and 3)

$$
\begin{split}
\frac{dv_i}{dt} & = \frac{|\Psi_i|}{|\Psi|}
    \left\langle -\nabla \ell(\bar{v}) \, \frac{e^{s_i}}{Z} \right\rangle, \\
\frac{ds_i}{dt} & = (v_i - \langle \bar{v}_r \rangle) \cdot \frac{dv_i}{dt} \, \Big/
    \left\langle \frac{e^{s_i} + Z_r}{Z_r} \right\rangle
\end{split}
$$

in time = rate x step, with the initial values of all other words ($Z_r$, $\bar{v}_r$). The paper
writes the updates with a plus; its gradient is the negative one.

Symbols. $\Psi$: training sentences; $\Psi_i$: those with topic word $i$; $\langle \cdot \rangle$:
mean over $\Psi_i$; $Z_r$ and $\bar{v}_r$: partition sum and weighted mean embedding of other words;
$Z = e^{s_i} + Z_r$; $\ell(\bar{v})$: loss.

Limits. A fixed query; a norm other than 1 enters as the factor $\|q\|^2$ in equation 2. The other
words do not move at all. A trained classifier follows its own gradient flow.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float

from saccade.contracts.model import cross_entropy
from saccade.contracts.task import Batch
from saccade.contracts.theory import AbstractTheory
from saccade.models.attention_classifier import AttentionClassifier
from saccade.models.attention_classifier import AttentionClassifierConfig as Config
from saccade.models.bag_attention import sum_over_sentences
from saccade.tasks.topic_sentences import TopicSentences
from saccade.train.members import initial_model, training_set
from saccade.train.program import Program
from saccade.train.start import seed_of

Times = Float[Array, " step"]
Curves = tuple[Array, Array, Array]  # loss, scores and norms


class TopicWordState(eqx.Module):
    """The variables of the flow: the topic words and, if it is trained, the classifier."""

    scores: Float[Array, " word"]
    embeddings: Float[Array, "dimension word"]
    head: Any


Field = Callable[[Any, TopicWordState, Any], TopicWordState]
Loss = Callable[[TopicWordState], Float[Array, ""]]
Problem = tuple[TopicWordState, Field, Loss]
TOLERANCES = (1e-5, 1e-7)  # relative and absolute


class Lemma2(AbstractTheory):
    """Loss, and score and norm of every topic word, from the initial state alone."""

    statement = "ds/dt = (v - <vbar_r>) . dv/dt / <(exp(s) + Z_r) / Z_r>"
    source = "Lu 2021, lemma 2"
    predicts = ("score", "norm", "loss")

    def predict(
        self,
        task: TopicSentences,
        model: Config,
        trajectory: xr.Dataset,
        cached: Callable[..., Any] | None = None,
    ) -> xr.Dataset:
        """The prediction on the axes of a trajectory. `cached`, such as a lab's method of that
        name, keeps the solution of the flow.
        """
        seeds = [seed_of(trajectory, what).values for what in ("start", "data")]
        seeds, times = np.stack(seeds, axis=1).astype(np.uint32), trajectory["time"].values
        solve = self.flows
        if cached is not None:
            version = self.version(task, model)
            solve = partial(cached, self.flows, version=version, name="flow of lemma 2")
        curves = solve(task, model, seeds, times)
        dims, data = ("seed", "step", "word"), {}
        for name, values in zip(("loss", "score", "norm"), curves, strict=True):
            text = f"{name} by the flow of lemma 2, from the initial state alone"
            about = {"long_name": text, "units": "1"}
            data[name] = (dims[: values.ndim], np.asarray(values), about)
        coordinates = (*dims, "time", "topic")
        return xr.Dataset(data, {name: trajectory.coords[name] for name in coordinates})

    def version(self, task: TopicSentences, model: Config) -> str:
        """Identity of the flow: its traced equations and tolerances (the solver calls Python)."""

        def traced(seed: Array) -> Any:
            state, field, loss = self.problem(task, model, seed)
            return state, field(0.0, state, None), loss(state)

        return f"{Program(jax.jit(traced), np.zeros(2, np.uint32)).digest} {TOLERANCES}"

    def problem(self, task: TopicSentences, model: Config, seed: Array) -> Problem:
        """Initial state, vector field and loss of one member, from its seeds of start and data."""
        start, topic = initial_model(task, model, seed[0]), task.topic_items
        head = eqx.filter(start.head, eqx.is_array)
        state = TopicWordState(start.scores_of(topic), start.embeddings_of(topic), head)
        return state, *self.vector_field(task, start, training_set(task, seed[1]))

    def flows(self, task: TopicSentences, model: Config, seeds: Any, times: Any) -> Curves:
        """Loss, scores and norms of all members at some times."""
        return jax.jit(jax.vmap(partial(self.flow, task, model), in_axes=(0, None)))(seeds, times)

    def flow(self, task: TopicSentences, model: Config, seed: Array, times: Times) -> Curves:
        """Loss, scores and norms of one member at some times."""
        import diffrax

        state, field, loss = self.problem(task, model, seed)

        def saved(time: Any, now: TopicWordState, args: Any) -> Curves:
            return loss(now), now.scores, jnp.linalg.norm(now.embeddings, axis=0)

        terms: Any = diffrax.ODETerm(field)  # pyright: ignore[reportArgumentType]
        solution: Any = diffrax.diffeqsolve(
            terms,
            diffrax.Tsit5(),
            t0=times[0],
            t1=times[-1],
            dt0=None,
            y0=state,
            saveat=diffrax.SaveAt(ts=times, fn=saved),
            stepsize_controller=diffrax.PIDController(*TOLERANCES),
            adjoint=diffrax.ForwardMode(),
            max_steps=None,
        )
        return solution.ys

    def vector_field(
        self, task: TopicSentences, start: AttentionClassifier, batch: Batch
    ) -> tuple[Field, Loss]:
        """Equations 2 and 3, (time, state, args) -> velocity, and the loss of a state."""
        topic, norm, embeddings = task.topic_items, start.query_norm, start.rescaled_embeddings
        weight = jnp.exp(start.scores)
        rows = jnp.concatenate([weight[None], weight * embeddings]).T
        sums = sum_over_sentences(rows, batch.words, batch)
        own = batch.words[:, 0]  # the only topic word of a sentence stands first
        rest = sums[:, 0] - weight[own]
        rest_mean = (sums[:, 1:] - (weight * embeddings).T[own]) / rest[:, None]
        here = own[:, None] == topic
        share = here / jnp.sum(here, axis=0)
        mean_rest, mean_inverse = rest_mean.T @ share, (1 / rest) @ share
        head_learns = start.trainable().head

        def loss(state: TopicWordState) -> Float[Array, ""]:
            attended = jnp.exp(state.scores)[own]
            attention = (attended / (attended + rest))[:, None]
            mean = attention * state.embeddings.T[own] + (1 - attention) * rest_mean
            head = eqx.combine(state.head, start.head)
            return cross_entropy(head.finish(mean @ head.first / norm), batch.labels)

        def field(time: Any, state: TopicWordState, args: Any) -> TopicWordState:
            gradient = jax.grad(loss)(state)
            # v = ||q|| nu moves ||q||^2 times as fast as its gradient says
            velocity = -(norm**2) * gradient.embeddings
            projection = jnp.sum((state.embeddings - mean_rest) * velocity, axis=0)
            head = jax.tree.map(lambda learns, slope: -slope * learns, head_learns, gradient.head)
            slowed = projection / (1 + jnp.exp(state.scores) * mean_inverse)
            return TopicWordState(slowed, velocity, head)

        return field, loss
