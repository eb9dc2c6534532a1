r"""Uniform attention learns co-occurrence first (Snell et al. 2021, section 4.1, A.2).

Statement. The proxy $p_t = \operatorname{softmax}(\frac{1}{L} \sum_l W e_{x_l})$ is trained by
gradient flow from $e_i, W_o \sim N(0, I/d)$. For $d \to \infty$ the logit $(W e_i)_o$ and
$\theta_{io} = \operatorname{softmax}(W e_i)_o$ start with

$$
\begin{split}
\frac{d (W e_i)_o}{d \tau} & = 2 \left(C_{io} - \operatorname{mean}_{o'} C_{io'}\right), \\
\frac{d \theta_{io}}{d \tau}
    & = \frac{2}{|O|} \left(C_{io} - \operatorname{mean}_{o'} C_{io'}\right), \\
C_{io} & = \sum_{m, l, t} \frac{1}{L} \, 1[x_l = i] \, 1[y_t = o],
\end{split}
$$

the sum over pairs $m$, source positions $l$ and target positions $t$.

Symbols. $C$: count table; $L$: words of a source sentence; $|O|$: output words; $e$ [word, d], $W$
[output, d]: embeddings; $p^m$: output for pair $m$, the same at all $t$; $T^m$: words of its
target; $k$ words per sequence, $n$ per set, $G$ sets.

Derivation. The loss is a sum, not a mean, over pairs and output words. With

$$ R_{io} = C_{io} - \sum_m (\text{share of } i \text{ among the words of } x^m) \, T^m p^m_o $$

the gradient flow is $de = R W$, $dW = R^T e$, so that for every $d$

$$ \frac{d (W e_i)_o}{d \tau} = (R W W^T + e e^T R)_{io}. $$

Both Gram matrices tend to the identity and $p^m$ to $1/{|O|}$, so that $R$ tends to $C$ less its
mean over $o$; all errors are of order $d^{-1/2}$. There the Jacobian of softmax is
$\frac{1}{|O|} (I - 1 1^T / {|O|})$, and the logits' derivative already has mean zero over $o$: the
factor $1/{|O|}$ remains. Equation 15 drops it, and prints the logits' derivative (equation 54) for
$\theta$.

Copying. $k$ distinct words of a set contain $i$ with probability $k/n$, and both $i$ and $o$ with
$\frac{k (k-1)}{n (n-1)}$; a co-occurrence counts $1/k$, a set is drawn with $1/G$. Without END a
pair adds

$$
C_{ii} = \frac{1}{G n}, \qquad
C_{io} = \frac{1}{G n} \frac{k-1}{n-1} \text{ within a set, 0 across sets}, \qquad
\frac{C_{ii}}{C_{io}} = \frac{n-1}{k-1}.
$$

With $n = k$ the table is constant within a set: uniform attention cannot learn which word is a copy
of which. A fixed permutation of the output has the same table. If END counts, $L$ is larger by one:
all entries of words shrink by $k/(k+1)$, and their ratio is unchanged.

Limits. Derivatives at the start say where logits go first, not where they end. $|O|$ counts columns
that no target has. The limit $d \to \infty$ comes first: with many pairs the flow leaves the start
soon.
"""

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from saccade.contracts.task import END, FIRST_WORD
from saccade.errors import ConfigError
from saccade.tasks.copying import Copying

Ids = Int[Array | np.ndarray, "pair _"]
Mask = Bool[Array | np.ndarray, "pair _"]
Counts = Float[np.ndarray, "*some id output"]

BLOCK = 4096
"""Pairs per block: a table of pairs and words for a whole corpus would not fit into memory."""


def count_table(
    source: Ids, target: Ids, there: Mask, wanted: Mask, size: int, without_end: bool = False
) -> Float[np.ndarray, "id id"]:
    """C, rows = source words. Without END, L does not count it; an empty source adds nothing."""
    there, wanted = np.asarray(there), np.asarray(wanted)
    if without_end:
        there, wanted = there & (np.asarray(source) != END), wanted & (np.asarray(target) != END)
    words = masked_words("source", source, there, size)
    outputs = masked_words("target", target, wanted, size)
    table = np.zeros((size, size))
    for first in range(0, len(words), BLOCK):
        block = slice(first, first + BLOCK)
        has = _counted(words[block], there[block], size)
        gives = _counted(outputs[block], wanted[block], size)
        table += (has / np.maximum(has.sum(axis=1, keepdims=True), 1)).T @ gives
    return table


def masked_words(name: str, words: Ids, mask: Mask, size: int) -> Int[np.ndarray, "pair _"]:
    """The words, with END outside the mask; ids outside the vocabulary are refused."""
    shown = np.where(np.asarray(mask), np.asarray(words), END)
    wrong = shown[(shown < 0) | (shown >= size)]
    if wrong.size:
        allowed = f"0 to {size - 1}, the ids of the vocabulary"
        raise ConfigError(f"{name}: got the id {wrong[0]}, allowed: {allowed}")
    return shown


def expected_count_table(task: Copying) -> Float[np.ndarray, "id id"]:
    """The mean contribution of a pair of a copying task to C, without END."""
    k, n, G = task.length, int(task.words), task.groups
    place = np.arange(task.vocabulary_size) - FIRST_WORD
    drawn = (place >= 0) & (place % task.set_size < n)
    of_set = place // task.set_size
    together = drawn[:, None] & drawn & (of_set[:, None] == of_set)
    # A set of one word has no pairs of different words, so their entry is arbitrary.
    table = np.where(together, (k - 1) / (G * n * max(n - 1, 1)), 0.0)
    np.fill_diagonal(table, drawn / (G * n))
    return table


def diagonal_ratio(task: Copying) -> float:
    """C_ii / C_io within a set: how much more often a word occurs with its copy than with another.

    1 for n = k, also for n = k = 1 (the table is flat); infinite for k = 1 < n.
    """
    k, n = task.length, int(task.words)
    return 1.0 if n == k else (n - 1) / (k - 1) if k > 1 else float("inf")


def initial_logit_derivative(counts: Counts) -> Counts:
    """2 (C - mean over outputs): initial derivative of the logits under gradient flow (eq. 54)."""
    return 2 * (counts - counts.mean(axis=-1, keepdims=True))


def initial_probability_derivative(counts: Counts) -> Counts:
    """(2/|O|) (C - mean over outputs): that of the probabilities (eq. 15 with its factor)."""
    return initial_logit_derivative(counts) / counts.shape[-1]


def _counted(words: np.ndarray, mask: Mask, size: int) -> np.ndarray:
    """How often every word occurs in every pair, as floats: integer matrix products are slow."""
    number = np.arange(len(words))[:, None] * size + words
    counts = np.bincount(number[np.asarray(mask)], minlength=len(words) * size)
    return counts.reshape(len(words), size).astype(float)
