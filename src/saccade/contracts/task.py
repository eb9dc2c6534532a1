"""The contract of tasks: a frozen dataclass of plain numbers that draws examples, or a corpus.

Every float of a task can be swept.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, PRNGKeyArray

from saccade.contracts.content import content
from saccade.errors import ConfigError


class AbstractBatch(eqx.Module):
    """Data that a model is called on. Every array has the examples first (in an ensemble, the
    members stand before them).
    """

    def examples(self, chosen: Int[Array, " chosen"]) -> Any:
        """Some of the examples."""
        return jax.tree.map(lambda leaf: leaf[chosen], self)

    @property
    def size(self) -> int:
        """The number of examples."""
        return jax.tree.leaves(self)[0].shape[0]

    @property
    def lengths(self) -> np.ndarray:
        """The length of every example: for minibatches by length, of batches that are padded."""
        raise AttributeError("lengths of examples", name="lengths", obj=self)

    def shortened(self, length: int) -> Any:
        """The examples without the padding behind a length, which none of them exceeds."""
        raise AttributeError("shortened examples", name="shortened", obj=self)


class Batch(AbstractBatch):
    """Labelled sentences. `index` is filled by a model that indexes the whole batch once (see
    `AbstractModelConfig.prepare`).
    """

    words: Int[Array, "*member sentence position"]
    labels: Int[Array, "*member sentence"]
    mask: Bool[Array, "*member sentence position"] | None = None
    """True where there is a word; None if every sentence is full."""
    index: Any = None

    def examples(self, chosen: Int[Array, " chosen"]) -> "Batch":
        """Some of the sentences, without the index (which belongs to the whole)."""
        mask = None if self.mask is None else self.mask[chosen]
        return Batch(self.words[chosen], self.labels[chosen], mask)

    @property
    def lengths(self) -> np.ndarray:
        """Words per sentence, up to the last one."""
        if self.mask is None:
            return np.full(self.words.shape[:-1], self.words.shape[-1])
        return _lengths_of(self.mask)

    def shortened(self, length: int) -> "Batch":
        mask = None if self.mask is None else self.mask[..., :length]
        return Batch(self.words[..., :length], self.labels, mask)


END, START, FIRST_WORD = 0, 1, 2
"""Ids in sentence pairs: the end of a sentence, a decoder's first input, and the first word."""


class SentencePairs(AbstractBatch):
    """Sentences with their translations, and the alignment, if a generator knows it."""

    source: Int[Array, "*member pair source"]
    target: Int[Array, "*member pair target"]
    aligned: Int[Array, "*member pair target"] | None
    """Position of the source word that a target word translates; None: not known."""
    source_mask: Bool[Array, "*member pair source"]
    """True where there is a word (or the end)."""
    target_mask: Bool[Array, "*member pair target"]

    @property
    def decoder_input(self) -> Int[Array, "*member pair target"]:
        """The target shifted by one position, behind the start: the decoder's input."""
        start = jnp.full((*self.target.shape[:-1], 1), START, self.target.dtype)
        return jnp.concatenate([start, self.target[..., :-1]], axis=-1)

    @property
    def lengths(self) -> np.ndarray:
        """Words of the longer sentence of every pair, with its end: both are cut at one length."""
        return np.maximum(_lengths_of(self.source_mask), _lengths_of(self.target_mask))

    def shortened(self, length: int) -> "SentencePairs":
        return jax.tree.map(lambda leaf: leaf[..., :length], self)


def _lengths_of(mask: Bool[Array, "*some position"] | np.ndarray) -> np.ndarray:
    """Places up to the last that is there."""
    return np.max(np.where(mask, np.arange(1, mask.shape[-1] + 1), 0), axis=-1)


SPLITS = ("train", "validation", "test")


class Splits(eqx.Module):
    """The examples of a training, by their use; None where a task has none."""

    train: Any
    test: Any
    validation: Any = None
    buckets: tuple[Any, ...] | None = None
    """The training examples of each length bucket, for minibatches by length."""


class AbstractTask(ABC):
    """A data distribution: a frozen config with `sample`. Knows no model, no global randomness."""

    train_size: int
    """Examples in the training set."""
    test_size: int
    """Examples in the test set."""
    validation_size: int = 0
    """Examples in the validation set."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, size: int) -> Any:
        """Independent examples of the distribution: a batch (`AbstractBatch`)."""

    @classmethod
    def example(cls) -> Self:
        """A small instance, on which a test is quick."""
        return cls()


class AbstractCorpus(AbstractTask):
    """Examples that exist already: the same for all seeds, and stored once per device, however many
    members train on them.
    """

    @property
    @abstractmethod
    def splits(self) -> Mapping[str, AbstractBatch]:
        """The examples of `train`, and of `validation` and `test` if there are any, as NumPy
        arrays.
        """

    @property
    def train_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._size("train")

    @property
    def validation_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._size("validation")

    @property
    def test_size(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self._size("test")

    @property
    def checksum(self) -> str:
        """SHA-256 of the examples, whatever file they came from; every record holds it."""
        return content(dict(self.splits))

    @property
    def about(self) -> Mapping[str, str]:
        """What a record says of the corpus, as attributes."""
        return {"corpus_sha256": self.checksum}

    @property
    def missing(self) -> str:
        """What is missing to read the corpus, and how to get it; empty if it is here."""
        return ""

    def _size(self, split: str) -> int:
        return self.splits[split].size if split in self.splits else 0

    def sample(self, key: PRNGKeyArray, size: int) -> Any:
        raise ConfigError(
            f"task {type(self).__name__}: a corpus has no new examples, allowed: FullBatch() or "
            "Minibatch(64)"
        )


class HasVocabulary(Protocol):
    """A task whose examples consist of word ids."""

    @property
    def vocabulary_size(self) -> int: ...


class HasLabels(Protocol):
    """A task of classification."""

    @property
    def labels(self) -> int: ...


class HasTopicItems(HasVocabulary, HasLabels, Protocol):
    """A task whose topics have words (or pairs of words) of their own."""

    @property
    def topic_items(self) -> np.ndarray: ...

    @property
    def topic_of_item(self) -> np.ndarray: ...
