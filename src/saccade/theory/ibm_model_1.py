r"""IBM Model 1 learns to translate words before it aligns them (Snell et al. 2021, section 4.2).

Statement. Expectation maximisation for
$p(y | x) = \prod_t \frac{1}{L} \sum_l \operatorname{Trans}(y_t | x_l)$ from a uniform table gives,
after its first iteration,

$$
\begin{split}
\operatorname{Trans}(o | i) & = \frac{C_{io}}{\sum_{o'} C_{io'}} \qquad (17), \\
\beta_{tl} & = \operatorname{Trans}(y_t | x_l) \qquad (18), \\
\alpha_{tl} & = \frac{\beta_{tl}}{\sum_{l'} \beta_{tl'}} \qquad (19),
\end{split}
$$

with the count table $C$ of `count_table.py`: it first learns what uniform attention first learns.

Symbols. Trans [source word, target word]: every row a distribution; $\beta$: probability that a
source word translates to a target word; $\alpha$: that it, among the $L$ words of its sentence,
produced it.

Derivation. Given a table, $y_t$ comes from $x_l$ with probability $\alpha_{tl}$. The expected
number of times that $i$ produced $o$ is the sum of $\alpha$ over their co-occurrences; the
maximum-likelihood table is its share in the row. No iteration lowers the likelihood. With a uniform
table $\alpha_{tl} = 1/L$, so the first numbers are $C$. The log likelihood is concave in the table:
all local optima are global.

NULL. Brown et al. (1993) add a word to every source sentence, for target words without a source;
the paper does not. With `null` the table gets a last row, and $\alpha$ and $\beta$ a last column.

Limits. A source word that never occurs keeps the uniform row. A target word that no word of a
sentence translates to has $\beta = 0$ everywhere, where (19) is undefined: $\alpha$ is then
uniform. On permutations of one set the uniform table is a fixed point, and nothing is ever aligned.
"""

import dataclasses

import numpy as np
from jaxtyping import Float

from saccade.contracts.task import SentencePairs
from saccade.errors import ConfigError
from saccade.theory.count_table import Ids, Mask, masked_words

Table = Float[np.ndarray, "row column"]
Weights = Float[np.ndarray, "pair target position"]
"""Per source position; with NULL, it comes last."""

BLOCK = 1024
"""Pairs per block: alpha for a whole corpus would not fit into memory."""


@dataclasses.dataclass(frozen=True)
class IBMModel1:
    """A trained table, and the likelihoods along its training."""

    table: Table
    """Trans(o | i); with NULL, its row comes last."""
    log_likelihoods: Float[np.ndarray, " iteration"]
    """Of the corpus, under the table before each iteration."""


def train(pairs: SentencePairs, size: int, iterations: int, null: bool = False) -> IBMModel1:
    """Expectation maximisation from a uniform table of a vocabulary's size."""
    table = np.full((size + null, size), 1 / size)
    likelihoods = np.zeros(iterations)
    for iteration in range(iterations):
        counts, likelihoods[iteration] = expected_counts(table, pairs, null)
        table = first_table(counts)
    return IBMModel1(table, likelihoods)


def first_table(counts: Table) -> Table:
    """The shares within every row (eq. 17); uniform for a word that never occurs."""
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0, counts / np.where(total > 0, total, 1), 1 / counts.shape[1])


def expected_counts(table: Table, pairs: SentencePairs, null: bool = False) -> tuple[Table, float]:
    """How often each source word produced each target word, expected, and the log likelihood."""
    counts, likelihood = np.zeros(table.size), 0.0
    arrays = (pairs.source, pairs.target, pairs.source_mask, pairs.target_mask)
    for first in range(0, len(pairs.source), BLOCK):
        source, target, there, wanted = (np.asarray(part)[first : first + BLOCK] for part in arrays)
        scores, both, entries = _scores(table, source, target, there, wanted, null)
        lengths = np.maximum(there.sum(axis=1, keepdims=True) + null, 1)
        with np.errstate(divide="ignore"):  # a word that nothing translates to: -inf
            chances = np.log(scores.sum(axis=2)) - np.log(lengths)
        likelihood += chances[wanted].sum()
        np.add.at(counts, entries.ravel(), _shares(scores, both).ravel())
    return counts.reshape(table.shape), float(likelihood)


def translation_scores(
    table: Table, source: Ids, target: Ids, source_mask: Mask, target_mask: Mask, null: bool = False
) -> Weights:
    """beta (eq. 18): Trans(y_t | x_l) at every source position, and at NULL; 0 at padding."""
    return _scores(table, source, target, source_mask, target_mask, null)[0]


def alignment(
    table: Table, source: Ids, target: Ids, source_mask: Mask, target_mask: Mask, null: bool = False
) -> Weights:
    """alpha (eq. 19): beta normalised over source positions, and NULL; 0 at padding."""
    scores, both, _ = _scores(table, source, target, source_mask, target_mask, null)
    return _shares(scores, both)


def _scores(
    table: Table, source: Ids, target: Ids, source_mask: Mask, target_mask: Mask, null: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """beta, where it is of two words (or NULL), and the numbers of its entries in the table."""
    rows, columns = table.shape
    if rows != columns + null:
        got = f"{rows} rows of {columns} with null={null}"
        raise ConfigError(f"table: got {got}, allowed: a square table, with NULL one more row")
    last = ((0, 0), (0, int(null)))
    words = masked_words("source", source, source_mask, columns)
    words = np.pad(words, last, constant_values=columns)
    outputs = masked_words("target", target, target_mask, columns)
    there = np.pad(np.asarray(source_mask), last, constant_values=True)
    both = np.asarray(target_mask)[:, :, None] & there[:, None, :]
    entries = words[:, None, :] * columns + outputs[:, :, None]
    return np.where(both, table.ravel()[entries], 0.0), both, entries


def _shares(scores: np.ndarray, both: np.ndarray) -> np.ndarray:
    """Shares of the sum over source positions; uniform where the sum is 0."""
    total = scores.sum(axis=2, keepdims=True)
    even = both / np.maximum(both.sum(axis=2, keepdims=True), 1)
    return np.where(total > 0, scores / np.where(total > 0, total, 1), even)
