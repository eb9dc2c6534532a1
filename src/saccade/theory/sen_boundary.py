r"""How far corollary 1 is from gradient descent with finite steps and initial embeddings (derived
here, from the equations of Lu, Mao & Nayak 2021, lemma 2 and theorem 2).

Statement. Let a fixed classifier have orthonormal columns, $n$ topics with $N$ equally likely topic
words in sentences of $m$ other words, which stay at rest around 0. Then all topic words move alike:
$v = v(0) + x u$ with the unit vector $u$ along $U (e_t - 1/n)$. Gradient descent of rate $\eta$ is

$$
\begin{split}
x & \leftarrow x + \eta h, \qquad s \leftarrow s + \eta (1 - p) x h, \qquad
h = \frac{1}{N} \, p \, (1 - \pi) \sqrt{\frac{n}{n-1}}, \\
p & = \frac{e^s}{e^s + m}, \qquad \pi = \frac{e^{p y}}{e^{p y} + n - 1}, \qquad
y = x \sqrt{\frac{n}{n-1}},
\end{split}
$$

from $x = s = 0$, and $\|v\|^2 = \|v(0)\|^2 + x^2$ ($v(0)$ is taken as orthogonal to $u$). Corollary
1 says $\|v\| = f(s)$; its relative gap $| \|v\| / f(s) - 1 |$ is a number of $\eta$, $\sigma$ and
the task alone.

Sketch. The factor $\frac{1}{N} p (1 - \pi) \sqrt{n/(n-1)}$ is the length of the mean gradient of
equation 2 (see `fixed_linear_classifier` for the flow), and
$ds = (1 - p) (v - \bar{v}_r) \cdot dv$ is equation 3 for a step. As $\eta \to 0$ both sides of
theorem 1 agree, and the gap is that of the initial embedding alone,
$\sqrt{1 + \|v(0)\|^2 / f(s)^2} - 1$, largest at the smallest score. A step of size $\eta$ adds
$\sum (\eta h)^2$ to $\|v\|^2$, so the gap grows like $\eta$. No constant is fitted.

Embeddings start with $N(0, \sigma^2)$ in $d$ dimensions, so $\|v(0)\|^2 / \sigma^2$ is chi-square
with $d$ degrees. A claim about every word of every seed rests on the largest of them: its median is
used.

Limits. A fixed classifier: trained ones have steps of their own, and may leave the flow earlier.
The sentence counts of words are replaced by their expectation; $\langle \bar{v}_r \rangle$ and the
motion of other words are neglected, and so is the projection of $v(0)$ on $u$. Queries of norm 1.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from saccade.theory.score_and_norm import norm_of_score


def largest_start(dimension: int, draws: int) -> float:
    """Median of the largest ||v(0)||^2 / sigma^2 of so many words."""
    from scipy.stats import chi2

    return float(chi2.ppf(0.5 ** (1 / draws), dimension))


def largest_gap(
    rate: Float[np.ndarray, " cell"],
    start: Float[np.ndarray, " cell"],
    measured: Sequence[int],
    *,
    topics: int,
    topic_words: int,
    filler_size: int,
    floor: float,
) -> Float[np.ndarray, " cell"]:
    """Largest relative gap to corollary 1 where the score exceeds a floor, at the measured steps;
    NaN where it never does. `start` is ||v(0)||^2.
    """
    longer = np.sqrt(topics / (topics - 1))
    along, score = np.zeros_like(rate), np.zeros_like(rate)
    gap, noted = np.full(rate.shape, np.nan), set(measured)
    with np.errstate(over="ignore", invalid="ignore"):  # a rate may be too large for any number
        for step in range(max(noted) + 1):
            if step in noted:
                expected = norm_of_score(score, filler_size)
                here = np.abs(np.sqrt(start + along**2) / np.maximum(expected, 1e-300) - 1)
                gap = np.where(score > floor, np.fmax(gap, here), gap)
            attention = 1 / (1 + filler_size * np.exp(-score))
            wrong = 1 / (1 + np.exp(attention * along * longer) / (topics - 1))
            moved = rate * attention * wrong * longer / topic_words
            along, score = along + moved, score + (1 - attention) * along * moved
    return gap
