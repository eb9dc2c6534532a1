"""Ids that both languages of sentence pairs share: words, or pieces of words (SentencePiece).

0 ends a sentence, 1 is a decoder's first input, 2 is unknown; words or pieces follow. The same
training sentences give the same ids, in whatever order or direction the pairs come.
"""

import functools
import importlib.util
import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from saccade.contracts.task import END, FIRST_WORD, START
from saccade.data.vocabulary import Vocabulary, tokens_of
from saccade.errors import ConfigError

UNKNOWN = FIRST_WORD
"""Id of a word, or piece, that the training sentences do not have."""
WordTokeniser = Literal["words", "spaces"]
PairTokeniser = Literal["pieces", "words", "spaces"]
"""`pieces`: SentencePiece's unigram model of both languages. `words`: runs of letters and digits,
and single other characters, in lower case. `spaces`: what stands between white space, as it is.
"""
WORD_MARK = "\u2581"
"""What SentencePiece writes for the space before a word."""
INSTALL = "pip install 'saccade[text]'"
_TEXT_SHIFT = FIRST_WORD - 1
"""`Vocabulary` has one id fewer before its words: no START."""
_LONGEST_SENTENCE = 1 << 24
"""Bytes. SentencePiece leaves out longer sentences without a word, so the limit is out of reach."""


class AbstractSharedVocabulary(ABC):
    """The ids of the words, or pieces, of two languages."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The number of ids, with those of end, start and unknown."""

    @property
    @abstractmethod
    def entries(self) -> Sequence[str]:
        """What every id stands for."""

    @abstractmethod
    def _begins_word(self) -> np.ndarray: ...

    @cached_property
    def begins_word(self) -> np.ndarray:
        """Per id, whether a word begins with it."""
        return self._begins_word()

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        """The ids of every sentence (int32), without its end."""

    @abstractmethod
    def _joined(self, ids: list[int]) -> str:
        """The text of some ids."""

    def decode(self, ids: Any) -> str:
        """The text of one sentence: up to its first end, without starts."""
        array = np.asarray(ids)
        if array.size == 0:
            return ""
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            raise ConfigError(
                f"ids: got an array of {array.dtype} and shape {array.shape}, allowed: the ids of "
                "one sentence"
            )
        wrong = array[(array < 0) | (array >= self.size)]
        if wrong.size:
            raise ConfigError(f"ids: got {wrong[0]}, allowed: from 0 to {self.size - 1}")
        listed = array.tolist()
        listed = listed[: listed.index(END)] if END in listed else listed
        return self._joined([one for one in listed if one != START])

    def words_of(self, ids: Any) -> np.ndarray:
        """The number of the word, from 0, to which each id of a sentence belongs (along the last
        axis); -1 at ends and padding.
        """
        array = np.asarray(ids)
        numbers = np.cumsum(self.begins_word[array], axis=-1) - 1
        # A sentence that is cut out of another one may begin within a word.
        numbers = np.maximum(numbers, 0)
        return np.where(np.isin(array, (END, START)), -1, numbers).astype(np.int32)


class SharedWords(AbstractSharedVocabulary):
    """Whole words."""

    def __init__(self, vocabulary: Vocabulary, tokeniser: WordTokeniser):
        self.vocabulary = vocabulary
        self.tokeniser: WordTokeniser = tokeniser

    @staticmethod
    def of(
        texts: Iterable[str],
        tokeniser: WordTokeniser,
        least_count: int = 1,
        largest_size: int | None = None,
    ) -> "SharedWords":
        """The words of some sentences that occur at least `least_count` times, and of those the
        most frequent, so that there are at most `largest_size` ids.
        """
        most = None if largest_size is None else largest_size - _TEXT_SHIFT
        tokens = (tokens_of(text, tokeniser) for text in texts)
        return SharedWords(Vocabulary.of(tokens, least_count, most), tokeniser)

    @property
    def size(self) -> int:
        return self.vocabulary.size + _TEXT_SHIFT

    @property
    def entries(self) -> Sequence[str]:
        return ("<end>", "<start>", "<unknown>", *self.vocabulary.words)

    def _begins_word(self) -> np.ndarray:
        return np.arange(self.size) >= UNKNOWN

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        tokens = (tokens_of(text, self.tokeniser) for text in texts)
        return [self.vocabulary.encode(words) + np.int32(_TEXT_SHIFT) for words in tokens]

    def _joined(self, ids: list[int]) -> str:
        return " ".join(self.vocabulary.decode(np.asarray(ids, int) - _TEXT_SHIFT))


class SharedPieces(AbstractSharedVocabulary):
    """Pieces of words, of a SentencePiece model."""

    def __init__(self, model: bytes):
        self.model = model
        """The model as SentencePiece stores it."""
        self._processor: Any = _sentencepiece().SentencePieceProcessor(model_proto=model)

    @staticmethod
    def of(texts: Iterable[str], pieces: int) -> "SharedPieces":
        """The model of some sentences with this number of ids, in all."""
        return SharedPieces(_trained(tuple(sorted(texts)), pieces))

    @property
    def size(self) -> int:
        return self._processor.get_piece_size()

    @property
    def entries(self) -> Sequence[str]:
        return [self._processor.id_to_piece(one) for one in range(self.size)]

    def _begins_word(self) -> np.ndarray:
        return np.asarray([piece.startswith(WORD_MARK) for piece in self.entries])

    def encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        encoded = self._processor.encode(list(texts), num_threads=1)
        # Characters that the model drops, such as a lone joiner, may be all of a sentence.
        return [np.asarray(ids or [UNKNOWN], np.int32) for ids in encoded]

    def _joined(self, ids: list[int]) -> str:
        return self._processor.decode(ids)


def lacks_pieces() -> bool:
    """Whether the package for pieces is missing."""
    return importlib.util.find_spec("sentencepiece") is None


def how_to_get_pieces() -> str:
    """What to do without the package, in one sentence."""
    return (
        "tokeniser: got 'pieces', which needs the package sentencepiece, allowed: 'words' or "
        f"'spaces' without it; run {INSTALL}"
    )


def _sentencepiece() -> Any:
    if lacks_pieces():
        raise ConfigError(how_to_get_pieces())
    import sentencepiece

    return sentencepiece


@functools.lru_cache(maxsize=4)
def _trained(texts: tuple[str, ...], pieces: int) -> bytes:
    """A model, always the same for the same sentences: one thread, and nothing is drawn."""
    package, model = _sentencepiece(), io.BytesIO()
    package.set_random_generator_seed(0)
    try:
        package.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            vocab_size=pieces,
            eos_id=END,
            bos_id=START,
            unk_id=UNKNOWN,
            pad_id=-1,
            num_threads=1,
            shuffle_input_sentence=False,
            max_sentence_length=_LONGEST_SENTENCE,
            minloglevel=3,
        )
    except RuntimeError as error:
        most = re.search(r"set it to a value <= (\d+)", str(error))
        least = re.search(r"required_chars\. \d+ vs (\d+)", str(error))
        if most:
            allowed = f"at most {most[1]} for these sentences"
        elif least:
            allowed = f"at least {least[1]}, so that every character has an id"
        else:
            allowed = f"a number that SentencePiece can train ({str(error).splitlines()[0]})"
        raise ConfigError(f"pieces: got {pieces}, allowed: {allowed}") from error
    return model.getvalue()
