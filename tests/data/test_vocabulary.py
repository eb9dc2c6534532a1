"""Words and ids: their order, the limits, and the way back."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.vocabulary import FIRST, PADDING, UNKNOWN, Vocabulary, tokens_of
from saccade.errors import ConfigError

TEXTS = [["b", "a", "c"], ["b", "a"], ["b", "d", "c", "Ä"]]
"""Three b, two a and c, one Ä and d."""


def test_words_are_found_with_punctuation_in_lower_case():
    text = "Don't SHOUT: it's 3.5 km_h —Été!\n"
    found = ["don", "'", "t", "shout", ":", "it", "'", "s", "3", ".", "5", "km_h", "—", "été", "!"]
    assert tokens_of(text) == found
    assert tokens_of(text, "spaces") == ["Don't", "SHOUT:", "it's", "3.5", "km_h", "—Été!"]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(text=st.text())
def test_nothing_but_white_space_is_lost(text):
    for tokeniser in ("words", "spaces"):
        kept = "".join(tokens_of(text, tokeniser))
        given_text = text.lower() if tokeniser == "words" else text
        assert kept == "".join(given_text.split())
        assert bool(kept) == bool(text.strip())


def test_words_stand_by_falling_count_and_then_by_alphabet():
    vocabulary = Vocabulary.of(TEXTS)
    assert vocabulary.words == ("b", "a", "c", "d", "Ä")
    assert vocabulary.ids == {"b": 2, "a": 3, "c": 4, "d": 5, "Ä": 6}
    assert vocabulary.size == 7
    assert Vocabulary.of(TEXTS[::-1]) == vocabulary
    assert (PADDING, UNKNOWN, FIRST) == (0, 1, 2)


@pytest.mark.parametrize(
    ("least_count", "largest_size", "words"),
    [
        (2, None, ("b", "a", "c")),
        (3, None, ("b",)),
        (1, 4, ("b", "a")),
        (1, 7, ("b", "a", "c", "d", "Ä")),
        (1, 70, ("b", "a", "c", "d", "Ä")),
        (2, 6, ("b", "a", "c")),
        (2, 3, ("b",)),
    ],
)
def test_rare_words_have_no_id(least_count, largest_size, words):
    vocabulary = Vocabulary.of(TEXTS, least_count, largest_size)
    assert vocabulary.words == words
    assert largest_size is None or vocabulary.size <= largest_size


def test_a_text_is_encoded_and_decoded():
    vocabulary = Vocabulary.of(TEXTS, least_count=2)
    ids = vocabulary.encode(["c", "x", "b", "B"])
    assert ids.dtype == np.int32
    assert ids.tolist() == [4, 1, 2, 1]
    assert vocabulary.decode(ids) == ["c", "<unknown>", "b", "<unknown>"]
    assert vocabulary.decode([4, 0, 2, 0, 0]) == ["c", "b"]
    assert vocabulary.encode([]).shape == (0,)
    assert vocabulary.decode([]) == []


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    texts=st.lists(st.lists(st.text(min_size=1), min_size=1), min_size=1),
    least_count=st.integers(1, 3),
)
def test_known_words_come_back(texts, least_count):
    every = Vocabulary.of(texts)
    assert all(every.decode(every.encode(text)) == text for text in texts)
    counts = [sum(text.count(word) for text in texts) for word in every.words]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == sum(map(len, texts))
    if max(counts) < least_count:
        with pytest.raises(ConfigError, match=f"allowed: at most {max(counts)}, the count"):
            Vocabulary.of(texts, least_count)
        return
    some = Vocabulary.of(texts, least_count)
    assert some.words == every.words[: sum(count >= least_count for count in counts)]
    for text in texts:
        is_known = [word in some.ids for word in text]
        assert [id != UNKNOWN for id in some.encode(text)] == is_known
        known = [word if there else "<unknown>" for word, there in zip(text, is_known, strict=True)]
        assert some.decode(some.encode(text)) == known


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: Vocabulary.of(["a text"]),
            "tokens: got the text 'a text', allowed: a list of words; use tokens_of(text)",
        ),
        (
            lambda: Vocabulary.of(TEXTS).encode("a text"),
            "tokens: got the text 'a text', allowed: a list of words; use tokens_of(text)",
        ),
        (
            lambda: Vocabulary.of(TEXTS).encode(["a", 3]),  # pyright: ignore[reportArgumentType]
            "tokens: got the type int, allowed: a list of words",
        ),
        (lambda: Vocabulary.of([]), "texts: got no word, allowed: at least one"),
        (
            lambda: Vocabulary.of(TEXTS, 4),
            "least_count: got 4, allowed: at most 3, the count of the most frequent word",
        ),
        (
            lambda: Vocabulary.of(TEXTS, 0),
            "least_count: got 0, allowed: a whole number, at least 1",
        ),
        (
            lambda: Vocabulary.of(TEXTS, 1, 2),
            "largest_size: got 2, allowed: None or a whole number, at least 3: padding, unknown "
            "and a word",
        ),
        (lambda: Vocabulary.of(TEXTS).decode([7]), "ids: got 7, allowed: from 0 to 6"),
        (lambda: Vocabulary.of(TEXTS).decode([2, -1]), "ids: got -1, allowed: from 0 to 6"),
        (
            lambda: Vocabulary.of(TEXTS).decode([[2]]),
            "ids: got an array of int64 and shape (1, 1), allowed: the ids of one text",
        ),
        (
            lambda: Vocabulary.of(TEXTS).decode([2.0]),
            "ids: got an array of float64 and shape (1,), allowed: the ids of one text",
        ),
        (
            lambda: Vocabulary(("a", "b", "a")),
            "words: got 'a' more than once, allowed: every word once",
        ),
        (lambda: Vocabulary(("a", "")), "words: got '', allowed: texts that are not empty"),
        (lambda: Vocabulary(["a"]), "words: got the type list, allowed: a tuple of texts"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_misuse_is_refused(call, sentence):
    with pytest.raises(ConfigError, match=f"^{re.escape(sentence)}$"):
        call()
