"""The contracts of task, model, probe and theory.

A task and a model config are frozen dataclasses of plain numbers; every float of them can be swept.
A probe is a pure function of a `Moment` of training; a theory predicts variables under the probes'
names and dims.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

if TYPE_CHECKING:
    import xarray as xr

# -- data ------------------------------------------------------------------------------------------


class AbstractBatch(eqx.Module):
    """Data that a model is called on. Every array has the examples first (in an ensemble, the
    members stand before them).
    """

    def examples(self, chosen: Int[Array, " chosen"]) -> Any:
        """Some of the examples."""
        return jax.tree.map(lambda leaf: leaf[chosen], self)


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


END, START, FIRST_WORD = 0, 1, 2
"""Ids in sentence pairs: the end of a sentence, a decoder's first input, and the first word."""


class SentencePairs(AbstractBatch):
    """Sentences with their translations, and the alignment that the generator knows."""

    source: Int[Array, "*member pair source"]
    target: Int[Array, "*member pair target"]
    aligned: Int[Array, "*member pair target"]
    """Position of the source word that a target word translates."""
    source_mask: Bool[Array, "*member pair source"]
    """True where there is a word (or the end)."""
    target_mask: Bool[Array, "*member pair target"]

    @property
    def decoder_input(self) -> Int[Array, "*member pair target"]:
        """The target shifted by one position, behind the start: the decoder's input."""
        start = jnp.full((*self.target.shape[:-1], 1), START, self.target.dtype)
        return jnp.concatenate([start, self.target[..., :-1]], axis=-1)


class AbstractTask(ABC):
    """A data distribution: a frozen config with `sample`. Knows no model, no global randomness."""

    train_size: int
    """Examples in the training set."""
    test_size: int
    """Examples in the test set."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, size: int) -> Any:
        """Independent examples of the distribution: a batch (`AbstractBatch`)."""

    @classmethod
    def example(cls) -> Self:
        """A small instance, on which a test is quick."""
        return cls()


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


# -- models ----------------------------------------------------------------------------------------


class Output(eqx.Module):
    """The result of calling a model: the logits (of a regression: the predictions), and the
    attention that led to them.
    """

    logits: Float[Array, "example *output"]
    attention: Float[Array, "example *position"]


def cross_entropy(
    logits: Float[Array, "example label"], labels: Int[Array, " example"]
) -> Float[Array, ""]:
    """Mean cross-entropy of the labels."""
    correct = labels[:, None] == jnp.arange(logits.shape[-1])
    # A masked sum rather than a gather: the gradient is then a masked sum too, and not a scatter.
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * correct, axis=-1))


class AbstractModel(eqx.Module):
    """A network. Calling it gives logits and attention; `trainable` says which parts learn."""

    @abstractmethod
    def __call__(self, batch: Any) -> Output: ...

    def loss(self, batch: Any) -> Float[Array, ""]:
        """The training loss on a batch; by default the mean cross-entropy of its labels."""
        return cross_entropy(self(batch).logits, batch.labels)

    def penalty(self) -> Float[Array, ""] | float:
        """A term that the model adds to any training loss, such as a ridge; by default zero."""
        return 0.0

    def trainable(self) -> PyTree:
        """A tree of booleans over the leaves; by default every array learns."""
        return jax.tree.map(eqx.is_inexact_array, self)


class AbstractModelConfig(ABC):
    """A frozen config that builds a model for a task from a key."""

    @abstractmethod
    def build(self, task: Any, key: PRNGKeyArray) -> AbstractModel: ...

    @classmethod
    def example(cls) -> tuple[Self, AbstractTask]:
        """A small config and a small task that it fits, on which a test is quick."""
        raise TypeError(f"{cls.__name__} has no example: define the classmethod to test it")

    def relabelled(self, task: Any, start: Any, batch: Any, key: PRNGKeyArray) -> Any:
        """One member's data with the targets that its own start, or a teacher, sets; by default as
        drawn. The key is the same for all data of a member: it draws the teacher, not the examples.
        """
        del task, start, key
        return batch

    def prepare(self, task: Any, batches: Any) -> Any:
        """Index the members' whole data sets once, before full-batch training (leading dim:
        member).
        """
        del task
        return batches


# -- measuring -------------------------------------------------------------------------------------


class Moment:
    """One moment of one member's training. What no probe uses is not computed."""

    def __init__(
        self,
        task: Any,
        model: Any,
        train: Any,
        test: Any,
        loss: Callable[[Any, Any], Float[Array, ""]],
        build: Callable[[], Any],
    ):
        self.task, self.model, self.train, self.test = task, model, train, test
        self._loss, self._build = loss, build
        self._known: dict[Any, Any] = {}

    def once(self, function: Callable[["Moment"], Any]) -> Any:
        """The result of a function of this moment, computed once for all probes that ask."""
        if function not in self._known:
            self._known[function] = function(self)
        return self._known[function]

    @cached_property
    def _value_and_gradient(self) -> tuple[Float[Array, ""], Any]:
        moving, still = eqx.partition(self.model, eqx.is_inexact_array)
        return jax.value_and_grad(lambda part: self._loss(eqx.combine(part, still), self.train))(
            moving
        )

    @property
    def loss(self) -> Float[Array, ""]:
        """Training loss. (Its gradient comes along; the compiler drops it if no probe uses it.)"""
        return self._value_and_gradient[0]

    @property
    def gradient(self) -> Any:
        """Gradient of the training loss with respect to every array of the model, frozen or not."""
        return self._value_and_gradient[1]

    @cached_property
    def initial(self) -> Any:
        """The model at step 0, drawn again from its key (costs an initialisation; meant for
        `Recording.ends`).
        """
        return self._build()

    @cached_property
    def train_output(self) -> Output:
        return self.model(self.train)

    @cached_property
    def test_output(self) -> Output:
        return self.model(self.test)


@dataclasses.dataclass(frozen=True)
class Variable:
    """A recorded quantity: its dims after seed and step, its name in words, and its units."""

    dims: tuple[str, ...]
    long_name: str
    units: str = "1"

    @property
    def attributes(self) -> dict[str, str]:
        """As xarray's plots read them."""
        return {"long_name": self.long_name, "units": self.units}


class AbstractProbe(ABC):
    """A named pure function of a moment, measured along training."""

    variables: ClassVar[Mapping[str, Variable]]

    @abstractmethod
    def __call__(self, moment: Moment) -> dict[str, Array]: ...

    @classmethod
    def example(cls) -> tuple[Self, tuple[tuple[AbstractModelConfig, AbstractTask], ...]]:
        """A probe, and small models with their tasks on which it works."""
        raise TypeError(f"{cls.__name__} has no example: define the classmethod to test it")

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        """Coordinates of this probe's dims: name -> (dim, values)."""
        del task
        return {}


class AbstractTheory(ABC):
    """A result in closed form. `predict` gives the probes' variables on the probes' axes."""

    statement: ClassVar[str]
    source: ClassVar[str]
    predicts: ClassVar[tuple[str, ...]]
    """Names of the probes' variables that `predict` returns."""

    @abstractmethod
    def predict(self, task: Any, model: Any, trajectory: "xr.Dataset") -> "xr.Dataset": ...
