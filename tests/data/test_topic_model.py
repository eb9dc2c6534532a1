"""Topics of articles: how they are read, what scikit-learn finds in them, and which pairs count."""

from typing import Any

import numpy as np
import pytest
import xarray as xr

from saccade.data import topic_model
from saccade.data.topic_model import (
    TopicModel,
    articles_of,
    fitted,
    listed,
    membership,
    missing_articles,
    pair_kinds,
    require_running_text,
    topic_words,
    word_counts,
)
from saccade.errors import ConfigError, FileError

pytest.importorskip("sklearn", reason="topics need scikit-learn (extra `text`)")
RIVERS = ["river", "water", "boat", "fish"]
MUSIC = ["song", "album", "guitar", "band"]


def two_kinds(count: int = 40, words: int = 60) -> list[list[str]]:
    """Articles about rivers and about music, with stop words and numbers in between."""
    random = np.random.default_rng(0)
    return [
        [
            part
            for word in random.choice((RIVERS, MUSIC)[at % 2], words)
            for part in (word, "the", "1999", ",")
        ]
        for at in range(count)
    ]


@pytest.fixture
def titled(tmp_path):
    article = "the river is long and the boat is slow , " * 8
    text = f" \n = First = \n\n{article}\n = = Part = = \n{article}\n = Second = \n{article}"
    (tmp_path / "text.txt").write_text(f"{text}\n = Third = \nshort\n", encoding="utf-8")
    return str(tmp_path / "text.txt")


def test_articles_begin_at_titles_and_not_at_headings(titled):
    first, second = articles_of(titled)
    assert first[:4] == ["=", "First", "=", "the"]
    assert "Part" in first
    assert second[1] == "Second"


def test_articles_without_titles_are_apart_by_empty_lines(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("one two " * 30 + "\n\n" + "three four " * 30, encoding="utf-8")
    assert [article[0] for article in articles_of(str(file))] == ["one", "three"]


def test_a_text_without_articles_is_refused(tmp_path):
    (tmp_path / "text.txt").write_text("too short\n", encoding="utf-8")
    with pytest.raises(FileError, match=r"corpus: got .* allowed: .* at least 50 words"):
        articles_of(str(tmp_path / "text.txt"))


def test_a_corpus_of_another_kind_is_refused():
    with pytest.raises(ConfigError, match="corpus: got 'sst2', for classification, allowed: wiki"):
        require_running_text("sst2")


def test_what_is_missing_is_said(tmp_path):
    assert missing_articles(str(tmp_path / "none.txt")).startswith("corpus: got ")
    assert missing_articles("wikitext2", str(tmp_path)).startswith("corpus wikitext2: not found")


def test_counts_are_those_of_the_vectoriser_of_scikit_learn():
    from sklearn.feature_extraction.text import CountVectorizer

    articles = [["The", "Dog", "sees", "a", "dog", "."], ["dog", "42", "cats", "_x_", "<unk>"]]
    words, entries = word_counts(articles)
    table = np.zeros((2, len(words)), int)
    table[entries[:, 0], entries[:, 1]] = entries[:, 2]
    oracle = CountVectorizer(stop_words="english", token_pattern=r"(?<!\S)[a-z]{2,}(?!\S)")
    counts: Any = oracle.fit_transform([" ".join(one) for one in articles])
    assert words == list(oracle.get_feature_names_out())
    assert np.array_equal(table, counts.toarray())
    assert word_counts(articles, least_documents=2)[0] == ["dog"]
    with pytest.raises(ConfigError, match="least_documents: got 3, allowed: at most 2"):
        word_counts(articles, least_documents=3)


def test_topics_are_found_and_are_those_of_scikit_learn():
    from sklearn.decomposition import LatentDirichletAllocation

    articles = two_kinds()
    model = fitted(articles, TopicModel(2, passes=6, update=8), 3, 0.4)
    found = topic_words(model, 0.4, disjoint=True)
    assert {frozenset(one) for one in found} == {frozenset(RIVERS), frozenset(MUSIC)}
    words, entries = word_counts(articles, 3)
    table = np.zeros((len(articles), len(words)))
    table[entries[:, 0], entries[:, 1]] = entries[:, 2]
    oracle = LatentDirichletAllocation(
        2, learning_method="online", max_iter=6, batch_size=8, random_state=3
    ).fit(table)
    weights = oracle.components_ / oracle.components_.sum(axis=1, keepdims=True)
    assert np.allclose(model["probability"], -np.sort(-weights, axis=1)[:, :4])
    assert xr.testing.assert_identical(model, fitted(articles, TopicModel(2, 6, 8), 3, 0.4)) is None


def lists_by_hand(rows: list[list[str]], words: int) -> xr.Dataset:
    return xr.Dataset({"topic_word": (("topic", "rank"), rows)}, attrs={"words": words})


def test_thresholds_are_shares_of_all_words_and_one():
    assert [listed(1000, share) for share in (0.0005, 0.001, 0.002)] == [1, 2, 3]
    assert listed(2, 1.0) == 2


def test_words_of_several_topics_are_dropped_from_disjoint_lists():
    model = lists_by_hand([["a", "b", "c"], ["d", "c", "e"]], 1000)
    assert topic_words(model, 0.001, disjoint=True) == (("a", "b"), ("d", "c"))
    assert topic_words(model, 0.002, disjoint=False) == (("a", "b", "c"), ("d", "c", "e"))
    assert topic_words(model, 0.002, disjoint=True) == (("a", "b"), ("d", "e"))
    with pytest.raises(ConfigError, match=r"threshold: got 0\.01, 11 words, allowed: at most 3"):
        topic_words(model, 0.01, disjoint=True)


def test_pairs_by_hand():
    lists = (("a", "b", "c"), ("c", "d"))
    words = ["a", "b", "a", "d", "c", "x"]
    ids = np.asarray([0, 1, 0, 2, 3, 4])
    same, other = pair_kinds(ids, membership(lists, words))

    def pairs(kind):
        return {f"{words[i]}{words[j]}" for i, j in np.argwhere(kind)}

    assert pairs(same) == {"ab", "ba", "ac", "ca", "bc", "cb", "cd", "dc"}
    assert pairs(other) == {"ad", "da", "bd", "db"}
    assert not same[0, 2], "the same word twice is no pair"


@pytest.mark.data
def test_the_articles_of_wikitext(real_data):
    articles = articles_of("wikitext2_shuffled", str(real_data))
    assert len(articles) == 611
    assert min(map(len, articles)) >= topic_model.SHORTEST
    assert len(word_counts(articles, 3)[0]) == 19_364
