r"""Toy dynamics: the lexicon moves before attention (after Snell et al. 2021, the authors' blog).

Statement. For the loss $L = p (b_0 - b_1)$, gradient flow from $b_0 = b_1$ and $p = 1/2$ is

$$
b_1 - b_0 = \frac{\sqrt{2}}{2} \sinh(\sqrt{2} \, t), \qquad
p = \frac{1}{2} \cosh(\sqrt{2} \, t):
$$

the lexicon starts with slope 1, attention with 0; up to any time it passes half of its rise first.

Symbols. $b_0$, $b_1$: lexical scores of the wrong and the correct word; $D = b_1 - b_0$: lexical
advantage; $p$: attention's score of the correct position; $t$: time of the flow.

Derivation. $b_0' = -p$, $b_1' = p$, $p' = b_1 - b_0$, so $D' = 2 p$, $p' = D$. Hence $p'' = 2 p$,
$D'' = 2 D$, and

$$
\begin{split}
D(t) & = D(0) \cosh(\sqrt{2} \, t) + \sqrt{2} \, p(0) \sinh(\sqrt{2} \, t), \\
p(t) & = p(0) \cosh(\sqrt{2} \, t) + \frac{D(0)}{\sqrt{2}} \sinh(\sqrt{2} \, t).
\end{split}
$$

$b_0 + b_1$ and $D^2 - 2 p^2$ are conserved. From $D(0) = 0$ the shares of the rises up to a time
$T$ are $\sinh u / \sinh U$ and $(\cosh u - 1) / (\cosh U - 1)$, $u = \sqrt{2} \, t$,
$U = \sqrt{2} \, T$. Their quotient, second by first, is $\tanh(u/2) / \tanh(U/2) < 1$ for $u < U$:
attention is behind throughout, and passes its half later: for short times at $T / \sqrt{2}$, not
$T / 2$; for long times both $\log(2) / \sqrt{2}$ before $T$.

Saddle. If $p$ counts from uniform attention, and co-occurrence gives the lexicon no drive of its
own (permutations), the start is $p = 0$: then $D = D(0) \cosh(\sqrt{2} \, t)$ and
$p = (D(0) / \sqrt{2}) \sinh(\sqrt{2} \, t)$. Both keep the sign of $D(0)$ and grow, to the right
position or away from it: the mode $D + \sqrt{2} \, p$ grows, $D - \sqrt{2} \, p$ decays.
`ktiw_fate` compares this sign with trained models (C-16, C-16i).

Limits. Nothing keeps $p$ in $[0, 1]$: from 1/2 it passes 1 at
$t = \operatorname{arcosh}(2) / \sqrt{2}$, about .931. The loss has no lower bound and both rises
never end: only the order at the start is meaningful. With $p = 0$ and $D > 0$ attention moves
first, and with $p = 0$ and $D = 0$ nothing moves.
"""

from typing import Any

import numpy as np

RATE = 2**0.5  # asymptotic growth rate of both rises, from D'' = 2 D


def lexical_advantage(time: Any, b0: Any = 0.0, b1: Any = 0.0, p: Any = 0.5) -> Any:
    """b1 - b0 at a time, from any initial values."""
    return (b1 - b0) * np.cosh(RATE * time) + RATE * p * np.sinh(RATE * time)


def attention_score(time: Any, b0: Any = 0.0, b1: Any = 0.0, p: Any = 0.5) -> Any:
    """p at a time, from any initial values."""
    return p * np.cosh(RATE * time) + (b1 - b0) / RATE * np.sinh(RATE * time)


def lexical_scores(time: Any, b0: Any = 0.0, b1: Any = 0.0, p: Any = 0.5) -> tuple[Any, Any]:
    """b0 and b1 at a time, from any initial values; their sum is conserved."""
    middle, half = (b0 + b1) / 2, lexical_advantage(time, b0, b1, p) / 2
    return middle - half, middle + half


def half_rise_times(horizon: Any) -> tuple[Any, Any]:
    """When lexicon and attention pass half of their rise up to the horizon, from b0 = b1, p > 0."""
    lexicon = np.arcsinh(np.sinh(RATE * horizon) / 2)
    # cosh u - 1 = 2 sinh(u/2)^2, which is exact for short times.
    attention = 2 * np.arcsinh(np.sinh(RATE * horizon / 2) / RATE)
    return lexicon / RATE, attention / RATE
