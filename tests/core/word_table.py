"""The smallest things that train: a table of logits a word, a probe that shows it, losses with closed forms.

A sentence's logits are the mean of its words' rows: softmax regression, which compiles in a second.
"""

import dataclasses
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from saccade.core.interfaces import AbstractModel, AbstractModelConfig, AbstractProbe, AbstractTask, Batch, Moment, Output, Variable
from saccade.tasks.topic_sentences import TopicSentences

TASK = TopicSentences(topics=2, words_per_topic=1, filler_size=3, dictionary_size=12, train_size=24, test_size=8)


class WordTable(AbstractModel):
    """One row of logits a word."""

    table: Float[Array, "word label"]

    def __call__(self, batch: Batch) -> Output:
        attention = jnp.full(batch.words.shape, 1 / batch.words.shape[1])
        return Output(jnp.mean(self.table[batch.words], axis=1), attention)


@dataclasses.dataclass(frozen=True)
class WordTableConfig(AbstractModelConfig):
    table_std: float = 1.0
    rate: float = 1.0
    """Factor on the table at the start; named like a field of the optimiser on purpose."""

    def build(self, task: Any, key: PRNGKeyArray) -> WordTable:
        return WordTable(self.rate * self.table_std * jax.random.normal(key, (task.vocabulary_size, task.labels)))


@dataclasses.dataclass(frozen=True)
class Table(AbstractProbe):
    """The whole table."""

    variables: ClassVar = {"table": Variable(("word", "label"), "logit of the label for the word")}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"table": moment.model.table}


@dataclasses.dataclass(frozen=True)
class TestWords(AbstractProbe):
    """Mean word number of the test set: shows which test set was drawn."""

    __test__: ClassVar = False  # a probe, whatever pytest makes of its name
    variables: ClassVar = {"test_word": Variable((), "mean word number of the test sentences")}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"test_word": jnp.mean(moment.test.words.astype(float))}


@dataclasses.dataclass(frozen=True)
class NumberedExamples(AbstractTask):
    """Sentence i is the one word i: words tell examples apart."""

    train_size: int = 24
    test_size: int = 8

    @property
    def vocabulary_size(self) -> int:
        return self.train_size

    labels: ClassVar = 1

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        del key
        return Batch(jnp.arange(size, dtype=jnp.int32)[:, None], jnp.zeros(size, jnp.int32))


def visits(model: WordTable, batch: Batch) -> Float[Array, ""]:
    """A loss that counts: one step at rate 1 adds 1 to the row of every example in the batch."""
    return -jnp.sum(model.table[batch.words])


def squares(model: WordTable, batch: Batch) -> Float[Array, ""]:
    """Half the squared norm of the table: a step at rate r multiplies the table by 1 - r."""
    del batch
    return jnp.sum(model.table**2) / 2
