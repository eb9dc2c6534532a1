"""The alignment error rate: by hand, by counting links one by one, and on a corpus whose alignment
is known.
"""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.contracts.task import END, SentencePairs
from saccade.data.alignments import GoldAlignment
from saccade.errors import ConfigError
from saccade.probes.alignment_error import alignment_error_rate, known_alignments, links_of
from saccade.tasks.lexicon_sentences import LexiconSentences
from saccade.theory import ibm_model_1

PAIRS = SentencePairs(
    source=np.asarray([[2, 3, 4, END], [2, END, END, END]], np.int32),  # pyright: ignore[reportArgumentType]
    target=np.asarray([[5, 6, END], [7, END, END]], np.int32),  # pyright: ignore[reportArgumentType]
    aligned=None,
    source_mask=np.asarray([[1, 1, 1, 1], [1, 1, 0, 0]], bool),  # pyright: ignore[reportArgumentType]
    target_mask=np.asarray([[1, 1, 1], [1, 1, 0]], bool),  # pyright: ignore[reportArgumentType]
)
"""Three words to two, and one to one."""
SCORES = np.asarray(
    [
        [[0.1, 0.7, 0.1, 0.1], [0.2, 0.0, 0.2, 0.6], [0.0, 0.0, 1.0, 0.0]],
        [[0.2, 0.8, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]],
    ]
)
"""The second word of the first pair, and the word of the second, look at the end most of all."""

Links = list[set[tuple[int, int]]]


# -- links -----------------------------------------------------------------------------------------


def test_every_target_word_takes_its_best_source_word():
    """The end is no word, so the next best is taken, and of two equal ones the first."""
    assert links_of(SCORES, PAIRS) == [{(1, 0), (0, 1)}, {(0, 0)}]


def test_scores_of_ends_and_padding_do_not_matter():
    there = np.asarray(PAIRS.target != END)[:, :, None] & np.asarray(PAIRS.source != END)[:, None]
    for filler in (np.nan, np.inf, -np.inf):
        assert links_of(np.where(there, SCORES, filler), PAIRS) == links_of(SCORES, PAIRS)


def test_logarithms_of_zero_are_scores_of_words():
    """A word is aligned with a source word even if it has no chance there."""
    with np.errstate(divide="ignore"):
        assert links_of(np.log(np.zeros_like(SCORES)), PAIRS) == [{(0, 0), (0, 1)}, {(0, 0)}]


def test_a_word_that_null_wins_has_no_link():
    null = np.asarray([[0.05, 0.9, 0.0], [0.1, 0.0, 0.0]])[..., None]
    scores = np.concatenate([SCORES, null], axis=2)
    assert links_of(scores, PAIRS) == [{(1, 0)}, {(0, 0)}]


def test_words_are_aligned_if_any_of_their_pieces_are():
    """Sources 0 and 1 are pieces of one word, and so are both targets."""
    sources = [[0, 0, 1, -1], [0, -1, -1, -1]]
    targets = [[0, 0, -1], [0, -1, -1]]
    assert links_of(SCORES, PAIRS, sources) == [{(0, 0), (0, 1)}, {(0, 0)}]
    assert links_of(SCORES, PAIRS, sources, targets) == [{(0, 0)}, {(0, 0)}]
    other = SCORES.copy()
    other[0, 1, 2] = 0.9
    assert links_of(other, PAIRS, sources, targets) == [{(0, 0), (1, 0)}, {(0, 0)}]


def test_other_tables_are_refused():
    with pytest.raises(
        ConfigError, match=r"^scores: got the shape \(2, 3, 3\), allowed: \(2, 3, 4"
    ):
        links_of(SCORES[..., :3], PAIRS)
    with pytest.raises(ConfigError, match=r"^scores: got the shape \(3, 4\), allowed: \(2, 3, 4"):
        links_of(SCORES[0], PAIRS)
    with pytest.raises(
        ConfigError, match=r"^target_words: got the shape \(2, 2\), allowed: \(2, 3"
    ):
        links_of(SCORES, PAIRS, None, [[0, 0], [0, 0]])
    broken = SCORES.copy()
    broken[1, 0, 0] = np.nan
    with pytest.raises(
        ConfigError, match=r"^scores: got NaN for a word of pair 1, allowed: numbers"
    ):
        links_of(broken, PAIRS)


# -- rates -----------------------------------------------------------------------------------------


def test_the_rate_by_hand():
    """A has 4 links, S 3; 2 of A are sure and 3 possible: 1 - (2 + 3) / (4 + 3)."""
    gold = [
        GoldAlignment.of([(0, 0), (1, 1)], [(2, 2)]),
        GoldAlignment.of([(0, 0)]),
    ]
    found = [frozenset({(0, 0), (2, 2), (0, 2)}), frozenset({(0, 0)})]
    assert alignment_error_rate(found, gold) == pytest.approx(1 - 5 / 7)
    assert alignment_error_rate([one.sure for one in gold], gold) == 0
    assert alignment_error_rate([one.possible for one in gold], gold) == 0
    assert alignment_error_rate([frozenset(), frozenset()], gold) == 1


links = st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=6)


@given(st.lists(st.tuples(links, links, links), min_size=1, max_size=4))
def test_the_rate_is_that_of_counting(pairs):
    found = [frozenset(one) for one, _, _ in pairs]
    gold = [GoldAlignment.of(sure, possible) for _, sure, possible in pairs]
    hits = size = 0
    for one, sure, possible in pairs:
        size += len(one) + len(sure)
        hits += sum(link in sure for link in one)
        hits += sum(link in sure or link in possible for link in one)
    if size == 0:
        with pytest.raises(ConfigError, match="got no link at all"):
            alignment_error_rate(found, gold)
        return
    rate = alignment_error_rate(found, gold)
    assert rate == pytest.approx(1 - hits / size)
    assert 0 <= rate <= 1


def test_another_number_of_pairs_is_refused():
    with pytest.raises(ConfigError, match="gold: got 0 alignments for 1 pairs, allowed: one per"):
        alignment_error_rate([frozenset()], [])


# -- a corpus whose alignment is known -------------------------------------------------------------

TASK = LexiconSentences(words=30, shortest=4, longest=8)


@functools.cache
def known() -> tuple[SentencePairs, list[GoldAlignment]]:
    pairs = jax.tree.map(np.asarray, TASK.sample(jax.random.key(0), 600))
    return pairs, known_alignments(pairs)


def test_a_perfect_table_has_no_error():
    pairs, gold = known()
    assert sum(len(one.sure) for one in gold) == np.sum(pairs.target != END)
    right = np.arange(pairs.source.shape[1]) == np.asarray(pairs.aligned)[..., None]
    assert alignment_error_rate(links_of(right.astype(float), pairs), gold) == 0
    assert alignment_error_rate(links_of(-right.astype(float), pairs), gold) == 1


@pytest.mark.parametrize("null", [False, True])
def test_the_error_of_ibm_model_1_is_that_of_repeated_words(null):
    """A word that occurs twice in a sentence cannot be told from its copy without positions: all of
    its translations are aligned with the first, and that is the only error.
    """
    pairs, gold = known()
    model = ibm_model_1.train(pairs, TASK.vocabulary_size, 30, null)
    arrays = (pairs.source, pairs.target, pairs.source_mask, pairs.target_mask)
    alpha = ibm_model_1.alignment(model.table, *arrays, null)
    rate = alignment_error_rate(links_of(alpha, pairs), gold)
    source = np.asarray(pairs.source)
    wrong = words = 0
    for row, target, aligned in zip(source, pairs.target, pairs.aligned, strict=True):  # pyright: ignore[reportArgumentType]
        for place in np.flatnonzero(np.asarray(target) != END):
            first = int(np.argmax(row == row[aligned[place]]))
            wrong += first != aligned[place]
            words += 1
    assert 0 < wrong / words < 0.2
    # One link per target word in both A and S, so the rate is the share of wrong links.
    assert rate == pytest.approx(wrong / words, abs=0.01)


def test_scores_by_chance_are_wrong_for_all_but_one_word_of_a_sentence():
    """Each target word hits with chance 1 / L; the share of hits is within four standard errors."""
    pairs, gold = known()
    shape = (*pairs.target.shape, pairs.source.shape[1])
    scores = np.random.default_rng(0).uniform(size=shape)
    rate = alignment_error_rate(links_of(scores, pairs), gold)
    lengths = np.sum(np.asarray(pairs.source) != END, axis=1)
    chances = np.repeat(1 / lengths, lengths)
    error = np.sqrt(np.sum(chances * (1 - chances))) / len(chances)
    assert abs((1 - rate) - chances.mean()) < 4 * error
    assert rate > 0.75


def test_pairs_without_a_known_alignment_are_refused():
    with pytest.raises(
        ConfigError, match=r"^pairs: got pairs whose alignment is not known, allowed"
    ):
        known_alignments(PAIRS)
