r"""When the norm of a topic word is past half before its score (from Lu, Mao & Nayak 2021).

Statement. By corollary 1 the norm is a function of the score,
$f(s) = \sqrt{2 (s + (e^s - 1) / m)}$. Training that ends at a score $s$ passes half of the norm
before half of the score if and only if

$$
f(s/2) > \frac{f(s)}{2}, \qquad \text{that is} \qquad s + \frac{4 e^{s/2} - 3 - e^s}{m} > 0.
$$

The order reverses at the one positive root of the left side: at 4.97 for $m = 20$.

Symbols. $s$: score of a topic word; $m$: other words of a sentence; $f$: norm of its embedding.

Derivation. Score and norm both grow, so the time of half the score comes later than that of half
the norm where the norm at half the score exceeds half the last norm; square both sides. The left
side is 0 at $s = 0$, rises there, and is concave for $s > 0$: it has one positive root. For small
$s$ the norm is close to $\sqrt{2 s}$ and is first; once $e^s / m$ dominates, the norm grows like
$e^{s/2}$.

Limits. Those of corollary 1: gradient flow from scores of 0 and embeddings near 0. Which side a run
is on depends on when it is stopped, so "values first" is no property of the model alone.
"""

import math


def excess(score: float, filler_size: float) -> float:
    """Positive where the norm is past half before the score."""
    return score + (4 * math.exp(score / 2) - 3 - math.exp(score)) / filler_size


def reversal_score(filler_size: float) -> float:
    """The last score at which norm and score are halfway at the same time, by Newton's method."""
    # To the right of the root the concave function falls, so Newton's steps do not pass the root.
    score = 2 * math.log(filler_size + 8)
    for _ in range(60):
        slope = 1 + (2 * math.exp(score / 2) - math.exp(score)) / filler_size
        score -= excess(score, filler_size) / slope
    return score
