"""IBM Model 1 learns to translate words before it aligns them (Snell, Zhong, Klein & Steinhardt
2021, section 4.2).

Statement. Expectation maximisation for p(y | x) = prod_t (1/L) sum_l Trans(y_t | x_l) from a
uniform table gives, after its first iteration,

    Trans(o | i) = C_io / sum_o' C_io'         (17)
    beta_tl  = Trans(y_t | x_l)                (18)
    alpha_tl = beta_tl / sum_l' beta_tl'       (19)

with the count table C of `count_table.py`: it first learns what uniform attention first learns.

Symbols. Trans [source word, target word]: every row a distribution; beta: probability that a source
word translates to a target word; alpha: probability that it is responsible for it, among the words
of its sentence; L: words of the source sentence.

Derivation. Given a table, y_t comes from x_l with probability alpha_tl. The expected number of
times that i produced o is the sum of alpha over their co-occurrences, and the maximum-likelihood
table given these numbers is their share in the row. No iteration lowers the likelihood. With a
uniform table alpha_tl = 1/L, so the first expected numbers are C. The log likelihood is concave in
the table, so there are no local optima (but several tables may be optimal).

NULL. Brown et al. (1993) add a word to every source sentence, for target words without a source;
the paper does not. With `null` the table has one more row, and alpha and beta have one more column,
both last.

Limits. A source word that never occurs keeps the uniform row. A target word that no word of a
sentence translates to has beta = 0 everywhere, where (19) is undefined: alpha is then uniform. On
permutations of one set the uniform table is a fixed point, and nothing is ever aligned.
"""

import dataclasses

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from saccade.core.errors import ConfigError
from saccade.core.interfaces import SentencePairs
from saccade.theory.count_table import masked_words

BLOCK = 1024
"""Pairs per block: alpha for a whole corpus would not fit into memory."""


@dataclasses.dataclass(frozen=True)
class IBMModel1:
    """A trained table, and the likelihoods along its training."""

    table: Float[np.ndarray, "source target"]
    """Trans(o | i); with NULL, its row comes last."""
    log_likelihoods: Float[np.ndarray, " iteration"]
    """Of the corpus, under the table before each iteration."""


def train(
    pairs: SentencePairs, vocabulary_size: int, iterations: int, null: bool = False
) -> IBMModel1:
    """Expectation maximisation from a uniform table."""
    table = np.full((vocabulary_size + null, vocabulary_size), 1 / vocabulary_size)
    likelihoods = np.zeros(iterations)
    for iteration in range(iterations):
        counts, likelihoods[iteration] = expected_counts(table, pairs, null)
        table = first_table(counts)
    return IBMModel1(table, likelihoods)


def first_table(counts: Float[np.ndarray, "source target"]) -> Float[np.ndarray, "source target"]:
    """The shares within every row (eq. 17); uniform for a word that never occurs."""
    total = counts.sum(axis=1, keepdims=True)
    return np.where(total > 0, counts / np.where(total > 0, total, 1), 1 / counts.shape[1])


def expected_counts(
    table: Float[np.ndarray, "source target"], pairs: SentencePairs, null: bool = False
) -> tuple[Float[np.ndarray, "source target"], float]:
    """Expected number of times that each source word produced each target word, and the log
    likelihood of the pairs.
    """
    counts, likelihood = np.zeros(table.size), 0.0
    for first in range(0, len(pairs.source), BLOCK):
        part = [
            np.asarray(array)[first : first + BLOCK]
            for array in (pairs.source, pairs.target, pairs.source_mask, pairs.target_mask)
        ]
        there, wanted = part[2:]
        scores = translation_scores(table, *part, null=null)
        lengths = np.maximum(there.sum(axis=1, keepdims=True) + null, 1)
        with np.errstate(divide="ignore"):  # a word that nothing translates to: -inf
            chances = np.log(scores.sum(axis=2)) - np.log(lengths)
        likelihood += chances[wanted].sum()
        words, outputs = _ids(table, *part, null=null)
        numbers = words[:, None, :] * table.shape[1] + outputs[:, :, None]
        shares = _shares(scores, _both(there, wanted, null))
        counts += np.bincount(numbers.ravel(), shares.ravel(), table.size)
    return counts.reshape(table.shape), float(likelihood)


def translation_scores(
    table: Float[np.ndarray, "row column"],
    source: Int[Array | np.ndarray, "pair source"],
    target: Int[Array | np.ndarray, "pair target"],
    source_mask: Bool[Array | np.ndarray, "pair source"],
    target_mask: Bool[Array | np.ndarray, "pair target"],
    null: bool = False,
) -> Float[np.ndarray, "pair target position"]:
    """beta (eq. 18): Trans(y_t | x_l) at every source position, and at NULL; 0 at padding."""
    words, outputs = _ids(table, source, target, source_mask, target_mask, null)
    entries = table[words[:, None, :], outputs[:, :, None]]
    return np.where(_both(source_mask, target_mask, null), entries, 0.0)


def alignment(
    table: Float[np.ndarray, "row column"],
    source: Int[Array | np.ndarray, "pair source"],
    target: Int[Array | np.ndarray, "pair target"],
    source_mask: Bool[Array | np.ndarray, "pair source"],
    target_mask: Bool[Array | np.ndarray, "pair target"],
    null: bool = False,
) -> Float[np.ndarray, "pair target position"]:
    """alpha (eq. 19): beta normalised over source positions, and NULL; 0 at padding."""
    scores = translation_scores(table, source, target, source_mask, target_mask, null)
    return _shares(scores, _both(source_mask, target_mask, null))


def _ids(
    table: np.ndarray, source, target, source_mask, target_mask, null: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the table; NULL's row comes last."""
    rows, columns = table.shape
    if rows != columns + null:
        raise ConfigError(
            f"table: got {rows} rows of {columns} with null={null}, allowed: a square table, with"
            " NULL one more row"
        )
    words = masked_words("source", source, source_mask, columns)
    outputs = masked_words("target", target, target_mask, columns)
    return np.pad(words, ((0, 0), (0, int(null))), constant_values=columns), outputs


def _both(source_mask, target_mask, null: bool) -> np.ndarray:
    """True where both a target word and a source word (or NULL) are present."""
    there = np.pad(np.asarray(source_mask), ((0, 0), (0, int(null))), constant_values=True)
    return np.asarray(target_mask)[:, :, None] & there[:, None, :]


def _shares(scores: np.ndarray, both: np.ndarray) -> np.ndarray:
    """Shares of the sum over source positions; uniform where the sum is 0."""
    total = scores.sum(axis=2, keepdims=True)
    even = both / np.maximum(both.sum(axis=2, keepdims=True), 1)
    return np.where(total > 0, scores / np.where(total > 0, total, 1), even)
