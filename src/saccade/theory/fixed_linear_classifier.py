r"""With a fixed linear classifier attention finds the topic word (Lu, Mao & Nayak 2021, theorem 2).

Statement. With logits $U^T \bar{v}$, $U$ fixed with linearly independent columns, gradient descent
on the cross-entropy attends to the topic word in every sentence and drives the loss to 0.

Rate [derived here; the paper has none]. Let $U$ have orthonormal columns, $n$ topics with equally
likely words, $N$ topic words in total, and start near 0. Then all topic words move alike:
$v = y \, U (e_t - 1/n)$, so that a word's logit for its own topic $t$ exceeds the others by $y$,
and $\|v\|^2 = y^2 (n - 1)/n$. With the score $s$ given by corollary 1 and the attention
$p = e^s / (e^s + m)$,

$$
\begin{split}
\frac{dy}{dt} & = \frac{1}{N} \, p \, (1 - \pi) \, \frac{n}{n-1}, \qquad
\pi = \frac{e^{p y}}{e^{p y} + n - 1}, \\
\text{loss} & = \log\left(1 + (n - 1) e^{-p y}\right),
\end{split}
$$

in time = rate x step, which gives loss, attention, score and norm from $n$, $N$ and $m$ alone.

Limits. Replaces the words' sentence counts by their expectation, and neglects the other words. The
solution leaves 0 at once, because the gradient of the embeddings does not vanish there.
"""

from typing import Any

import numpy as np
import xarray as xr

from saccade.contracts.theory import AbstractTheory
from saccade.tasks.topic_sentences import HasTopicWords
from saccade.theory.score_and_norm import score_of_norm


class Theorem2(AbstractTheory):
    """Loss, attention, score and norm over time, from the sizes of the task alone."""

    statement = "a fixed linear classifier drives the loss to 0 and attention on topic words to 1"
    source = "Lu 2021, theorem 2; rate derived from corollary 1"
    predicts = ("loss", "attention", "score", "norm")

    def predict(self, task: HasTopicWords, model: object, trajectory: xr.Dataset) -> xr.Dataset:
        times = trajectory["time"].values
        curves = convergence(times, task.topics, task.topic_words, task.filler_size)
        data = xr.Dataset({name: ("step", values) for name, values in curves.items()})
        for name in data:
            text = f"{name} by the equation of theorem 2, from the sizes of the task alone"
            data[name].attrs = {"long_name": text, "units": "1"}
        return data.assign_coords({name: trajectory.coords[name] for name in ("step", "time")})


def convergence(
    times: np.ndarray, topics: int, topic_words: int, filler_size: int
) -> dict[str, np.ndarray]:
    """Loss, attention, score and norm of a topic word at some times of the flow."""
    from scipy.integrate import solve_ivp

    def attention_and_score(margin: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        norm = np.abs(margin) * np.sqrt((topics - 1) / topics)
        score = score_of_norm(norm, filler_size)
        return 1 / (1 + filler_size * np.exp(-score)), score, norm

    def field(time: float, margin: np.ndarray) -> np.ndarray:
        attention, _, _ = attention_and_score(margin)
        wrong = 1 / (1 + np.exp(attention * margin) / (topics - 1))
        return attention * wrong * topics / ((topics - 1) * topic_words)

    times = np.asarray(times, float)
    span = (0.0, max(times[-1], 1e-12))
    margin = solve_ivp(field, span, [0.0], "DOP853", times, rtol=1e-8, atol=1e-10).y[0]
    attention, score, norm = attention_and_score(margin)
    loss = np.log1p((topics - 1) * np.exp(-attention * margin))
    return {"loss": loss, "attention": attention, "score": score, "norm": norm}
