"""Words and their ids: 0 is padding, 1 an unknown word, and then the words by falling count.

Words that are equally frequent are in alphabetical order (of their code points), so that the same
texts always give the same ids.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import Any, Literal, Self

import numpy as np

from saccade.errors import ConfigError

PADDING, UNKNOWN, FIRST = 0, 1, 2
"""Ids of padding, of a word that is not in the vocabulary, and of the most frequent word."""
Tokeniser = Literal["words", "spaces", "bare", "bytes"]
"""`words`: runs of letters and digits, and single other characters, in lower case. `spaces`: what
stands between white space, as it is, for texts that are tokenised already. `bare`: the same after
all that is no letter, digit, underscore or white space is dropped (Lu 2021). `bytes`: the bytes of
the text in UTF-8, each called by the character of its number, or <0x0a>.
"""
BYTES = tuple(chr(one) if chr(one).isprintable() else f"<{one:#04x}>" for one in range(256))
"""The names of bytes."""
_WORDS, _OTHERS = re.compile(r"\w+|[^\w\s]"), re.compile(r"[^\w\s]")


def tokens_of(text: str, tokeniser: Tokeniser = "words") -> list[str]:
    """The words of a text. A text that is not blank has at least one; if all of it would be
    dropped, as it is.
    """
    if tokeniser == "words":
        return _WORDS.findall(text.lower())
    if tokeniser == "bytes":
        return [BYTES[one] for one in text.encode()]
    return (_OTHERS.sub("", text).split() if tokeniser == "bare" else []) or text.split()


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The words that have ids of their own."""

    words: tuple[str, ...]
    """The word of id 2, of id 3, and so on."""

    def __post_init__(self):
        if not isinstance(self.words, tuple):
            got = type(self.words).__name__
            raise ConfigError(f"words: got the type {got}, allowed: a tuple of texts")
        wrong = [word for word in self.words if not isinstance(word, str) or not word]
        if wrong:
            raise ConfigError(f"words: got {wrong[0]!r}, allowed: texts that are not empty")
        if len(self.ids) < len(self.words):
            twice = next(word for word, count in Counter(self.words).items() if count > 1)
            raise ConfigError(f"words: got {twice!r} more than once, allowed: every word once")

    @classmethod
    def of(
        cls,
        texts: Iterable[Sequence[str]],
        least_count: int = 1,
        largest_size: int | None = None,
    ) -> Self:
        """The vocabulary of some tokenised texts: the words that occur at least `least_count`
        times, and of those the most frequent, so that there are at most `largest_size` ids.
        """
        counts = Counter(chain.from_iterable(map(_checked, texts)))
        return cls.of_counts(counts, least_count, largest_size)

    @classmethod
    def of_counts(
        cls, counts: Mapping[str, int], least_count: int = 1, largest_size: int | None = None
    ) -> Self:
        """The same, from the number of times that each word occurs."""
        check_limits(least_count, largest_size)
        if not counts:
            raise ConfigError("texts: got no word, allowed: at least one")
        kept = [word for word, count in counts.items() if count >= least_count]
        if not kept:
            raise ConfigError(
                f"least_count: got {least_count}, allowed: at most {max(counts.values())}, the "
                "count of the most frequent word"
            )
        kept.sort(key=lambda word: (-counts[word], word))
        return cls(tuple(kept if largest_size is None else kept[: largest_size - FIRST]))

    @property
    def size(self) -> int:
        """The number of ids, with those of padding and unknown words."""
        return len(self.words) + FIRST

    @cached_property
    def ids(self) -> dict[str, int]:
        """The id of every word."""
        return {word: number for number, word in enumerate(self.words, FIRST)}

    def encode(self, tokens: Sequence[str]) -> np.ndarray:
        """The ids of the words of one text (int32)."""
        found = map(self.ids.get, _checked(tokens), repeat(UNKNOWN))
        return np.fromiter(found, np.int32, len(tokens))

    def decode(self, ids: Any) -> list[str]:
        """The words of one text, without padding; an unknown word is `<unknown>`."""
        array = np.asarray(ids)
        if array.size == 0:
            return []
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise ConfigError(
                f"ids: got an array of {array.dtype} and shape {array.shape}, allowed: the ids of "
                "one text"
            )
        wrong = array[(array < 0) | (array >= self.size)]
        if wrong.size:
            raise ConfigError(f"ids: got {wrong[0]}, allowed: from 0 to {self.size - 1}")
        shown = ("", "<unknown>", *self.words)
        return [shown[number] for number in array if number != PADDING]


def check_limits(
    least_count: Any,
    largest_size: Any,
    name: str = "largest_size",
    before: Sequence[str] = ("padding", "unknown"),
) -> None:
    """Refuse limits that no vocabulary can have; `before` names the ids before its words."""
    if type(least_count) is not int or least_count < 1:
        raise ConfigError(f"least_count: got {least_count!r}, allowed: a whole number, at least 1")
    if largest_size is not None and (type(largest_size) is not int or largest_size <= len(before)):
        raise ConfigError(
            f"{name}: got {largest_size!r}, allowed: None or a whole number, at least "
            f"{len(before) + 1}: {', '.join(before)} and a word"
        )


def _checked(tokens: Sequence[str]) -> Sequence[str]:
    if isinstance(tokens, str):
        raise ConfigError(
            f"tokens: got the text {tokens[:40]!r}, allowed: a list of words; use tokens_of(text)"
        )
    wrong = [kind for kind in set(map(type, tokens)) if not issubclass(kind, str)]
    if wrong:
        raise ConfigError(f"tokens: got the type {wrong[0].__name__}, allowed: a list of words")
    return tokens
