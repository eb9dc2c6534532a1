"""Topics of a corpus by latent Dirichlet allocation (scikit-learn, online), and the words of each
topic (Li, Li & Risteski 2023, their experiments on Wikipedia).

A document is an article of running text. Its words are in lower case; stop words, and what does not
consist of letters, are dropped. The words of a topic are those of the largest P(word | topic), as
many as a threshold says as a share of all words. A word may be in several lists, unless the lists
are made disjoint: then such words are in none.
"""

import dataclasses
import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Int

from saccade.data.catalogue import CORPORA, named_in_records
from saccade.data.store import find_corpus, load_corpus, not_found
from saccade.errors import ConfigError, FileError
from saccade.files import decoded_text
from saccade.settings import require_count, require_single

if TYPE_CHECKING:
    import xarray as xr

RUNNING_TEXT = "language model"
"""Kind of the corpora that consist of articles."""
UNKNOWN_WORD = "<unk>"
"""How WikiText writes a word that it leaves out."""
SHORTEST = 50
"""Words of the shortest article. What is shorter is a heading that looks like a title."""
VERSION = 1
"""Of `fitted`, for results that are kept."""
_TITLE = re.compile(r"\s*= [^=]+ =\s*")
_LETTERS = re.compile(r"[^\W\d_]{2,}")

OVERLAPS = ("disjoint", "overlapping")
"""Whether a word of several lists is left out of them, or is in all of them."""
KINDS = ("same topic", "different topics")
"""Kinds of pairs of words."""
Lists = tuple[tuple[str, ...], ...]
"""The words of every topic, the most probable first."""


# -- articles --------------------------------------------------------------------------------------


def articles_of(corpus: str, data: str | None = None, split: str = "train") -> list[list[str]]:
    """The articles of a corpus of running text, by name or path, as words between blanks.

    An article begins at a line ` = Title = `; in a file without such a line, behind an empty line.
    A file has one split.
    """
    if corpus in CORPORA:
        require_running_text(corpus)
        lines = [line for _, line in load_corpus(corpus, data)[split]]
    else:
        lines = decoded_text(corpus).splitlines()
    found = [words for words in _split(lines) if len(words) >= SHORTEST]
    if not found:
        allowed = f"a corpus with articles of at least {SHORTEST} words"
        raise FileError(f"corpus: got {corpus} without such articles, allowed: {allowed}")
    return found


def _split(lines: Sequence[str]) -> list[list[str]]:
    titled = any(map(_TITLE.fullmatch, lines))
    found: list[list[str]] = [[]]
    for line in lines:
        if _TITLE.fullmatch(line) if titled else not line.strip():
            found.append([])
        found[-1] += line.split()
    return found


def require_running_text(corpus: str) -> None:
    """Refuse the name of a corpus that has no articles."""
    if corpus in CORPORA and CORPORA[corpus].kind != RUNNING_TEXT:
        names = ", ".join(name for name, one in CORPORA.items() if one.kind == RUNNING_TEXT)
        kind = CORPORA[corpus].kind
        allowed = f"{names}, or the path of a text file"
        raise ConfigError(f"corpus: got {corpus!r}, for {kind}, allowed: {allowed}")


def missing_articles(corpus: str, data: str | None = None) -> str:
    """What is missing to read a corpus, and how to get it; empty if it is here."""
    if corpus in CORPORA:
        return "" if find_corpus(corpus, data) is not None else not_found(corpus, data)
    if Path(corpus).is_file():
        return ""
    names = ", ".join(name for name, one in CORPORA.items() if one.kind == RUNNING_TEXT)
    return f"corpus: got {corpus}, allowed: {names}, or the path of a text file"


def missing_package() -> str:
    """That scikit-learn is missing, and how to get it; empty if it is here."""
    here = importlib.util.find_spec("sklearn") is not None
    return "" if here else "topics need the package scikit-learn: pip install 'saccade[text]'"


def about_articles(corpus: str) -> Mapping[str, str]:
    """What a record says of the corpus."""
    return named_in_records(corpus) if corpus in CORPORA else {"corpus": Path(corpus).name}


# -- topics ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class TopicModel:
    """Settings of latent Dirichlet allocation."""

    topics: int = 20
    """Topics."""
    passes: int = 6
    """Times that all articles are seen."""
    update: int = 32
    """Articles per update of the topics."""
    least_documents: int = 3
    """Articles that have a word, at least; rarer words are left out."""

    def __post_init__(self):
        require_single(self, "one topic model serves all members", "topics", "passes", "update")
        require_count(self, "passes", "update", "least_documents")
        require_count(self, "topics", least=2)


def word_counts(
    articles: Iterable[Sequence[str]], least_documents: int = 1
) -> tuple[list[str], Int[np.ndarray, "entry 3"]]:
    """The words that can have a topic, sorted, and entries (article, word, count)."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    counts = [
        Counter(
            word
            for word in map(str.lower, article)
            if _LETTERS.fullmatch(word) and word not in ENGLISH_STOP_WORDS
        )
        for article in articles
    ]
    articles_with = Counter(word for one in counts for word in one)
    words = sorted(word for word, count in articles_with.items() if count >= least_documents)
    if not words:
        most = max(articles_with.values(), default=0)
        got = f"got {least_documents}, allowed: at most {most}, the articles of the commonest word"
        raise ConfigError(f"least_documents: {got}")
    numbers = {word: number for number, word in enumerate(words)}
    entries = [
        (article, numbers[word], count)
        for article, one in enumerate(counts)
        for word, count in sorted(one.items())
        if word in numbers
    ]
    return words, np.asarray(entries, np.int64).reshape(-1, 3)


def fitted(
    articles: Sequence[Sequence[str]], settings: TopicModel, seed: int, largest: float
) -> "xr.Dataset":
    """A topic model: the words of every topic by falling probability, as many as the `largest`
    threshold asks for, with P(word | topic); the attribute `words` is the number of all words.
    """
    import xarray as xr
    from scipy.sparse import csr_matrix
    from sklearn.decomposition import LatentDirichletAllocation

    words, entries = word_counts(articles, settings.least_documents)
    rows, columns, counts = entries.T
    table = csr_matrix((counts, (rows, columns)), shape=(len(articles), len(words)))
    model = LatentDirichletAllocation(
        settings.topics,
        learning_method="online",
        max_iter=settings.passes,
        batch_size=settings.update,
        random_state=seed,
    ).fit(table)
    weights = model.components_ / model.components_.sum(axis=1, keepdims=True)
    kept = listed(len(words), largest)
    order = np.argsort(-weights, axis=1, kind="stable")[:, :kept]
    return xr.Dataset(
        {
            "topic_word": (("topic", "rank"), np.asarray(words, object)[order]),
            "probability": (("topic", "rank"), np.take_along_axis(weights, order, axis=1)),
        },
        attrs={"words": len(words)},
    )


def listed(words: int, threshold: float) -> int:
    """Words per topic at a threshold, of so many words (Li's code: a share of all, and one)."""
    return min(int(words * threshold) + 1, words)


def topic_words(model: "xr.Dataset", threshold: float, *, disjoint: bool) -> Lists:
    """The words of every topic at a threshold; disjoint: without those of several topics."""
    kept = listed(int(model.attrs["words"]), threshold)
    if kept > model.sizes["rank"]:
        most = model.sizes["rank"]
        raise ConfigError(f"threshold: got {threshold:g}, {kept} words, allowed: at most {most}")
    lists = [list(map(str, one)) for one in model["topic_word"].values[:, :kept]]
    times = Counter(word for one in lists for word in one)
    return tuple(tuple(w for w in one if not disjoint or times[w] == 1) for one in lists)


# -- pairs of words --------------------------------------------------------------------------------


def membership(lists: Sequence[Sequence[Any]], words: Sequence[Any]) -> Bool[np.ndarray, "w topic"]:
    """Which of some words (or ids) are in which list."""
    sets = [frozenset(one) for one in lists]
    table = [[word in one for one in sets] for word in words]
    return np.asarray(table, bool).reshape(len(words), len(sets))


def pair_kinds(
    ids: Int[np.ndarray, " place"], table: Bool[np.ndarray, "place topic"]
) -> tuple[Bool[np.ndarray, "place place"], Bool[np.ndarray, "place place"]]:
    """Which pairs of places are of the same topic, and which of different topics. Pairs of the same
    word, and words without a topic, are neither.
    """
    number = table.astype(np.int32)
    shared = number @ number.T > 0
    topical = np.any(table, axis=1)
    both = topical[:, None] & topical[None, :]
    same = shared & (ids[:, None] != ids[None, :])
    return same, both & ~shared
