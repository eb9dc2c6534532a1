"""The contracts of task, model, probe and theory.

A task and a model config are frozen dataclasses of plain numbers; every float of them can be swept.
A probe is a pure function of a `Moment` of training; a theory predicts variables under the probes'
names and dims.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

if TYPE_CHECKING:
    import xarray as xr


class AbstractBatch(eqx.Module):
    """Data that a model is called on: every array has the examples first (before them, in an
    ensemble, the members).
    """

    def examples(self, chosen: Int[Array, " chosen"]) -> Any:
        """Some of the examples."""
        return jax.tree.map(lambda leaf: leaf[chosen], self)


class Batch(AbstractBatch):
    """Labelled sentences. `index` is filled by a model that wants the whole batch indexed once
    (see `prepare`).
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
"""Ids in sentence pairs: the end of a sentence, the first input of a decoder, and the words from
there on.
"""


class SentencePairs(AbstractBatch):
    """Sentences, each with its translation and with what the generator knows: which source word
    each target word comes from.
    """

    source: Int[Array, "*member pair source"]
    target: Int[Array, "*member pair target"]
    aligned: Int[Array, "*member pair target"]
    """Position of the source word that a target word translates."""
    source_mask: Bool[Array, "*member pair source"]
    """True where there is a word (or the end)."""
    target_mask: Bool[Array, "*member pair target"]

    @property
    def decoder_input(self) -> Int[Array, "*member pair target"]:
        """The target one place later, behind the start: what a decoder sees of it before it
        guesses a word.
        """
        start = jnp.full((*self.target.shape[:-1], 1), START, self.target.dtype)
        return jnp.concatenate([start, self.target[..., :-1]], axis=-1)


class Output(eqx.Module):
    """What calling a model gives: the logits (of a regression: the predictions), and the
    attention that led to them.
    """

    logits: Float[Array, "example *output"]
    attention: Float[Array, "example *position"]


class AbstractTask(ABC):
    """A data distribution: frozen config and `sample`. Knows no model and no global randomness."""

    train_size: int
    """Examples in the training set."""
    test_size: int
    """Examples in the test set."""

    @abstractmethod
    def sample(self, key: PRNGKeyArray, size: int) -> Any:
        """Independent examples of the distribution: a batch (`AbstractBatch`)."""


class AbstractModel(eqx.Module):
    """A network. Calling it gives logits and attention; `trainable` says which parts learn."""

    @abstractmethod
    def __call__(self, batch: Any) -> Output: ...

    def penalty(self) -> Float[Array, ""] | float:
        """What the model adds to any training loss, such as a ridge on its weights; by default
        nothing.
        """
        return 0.0

    def trainable(self) -> PyTree:
        """A tree of booleans over the leaves; by default every array learns."""
        return jax.tree.map(eqx.is_inexact_array, self)


class AbstractModelConfig(ABC):
    """A frozen config that builds a model for a task from a key."""

    @abstractmethod
    def build(self, task: Any, key: PRNGKeyArray) -> AbstractModel: ...

    def relabelled(self, task: Any, start: Any, batch: Any, key: PRNGKeyArray) -> Any:
        """One member's data with the targets that its own start, or a teacher, sets; by default as
        drawn.

        The key is the same for all data of a member: it draws the teacher, not the examples.
        """
        del task, start, key
        return batch

    def prepare(self, task: Any, batches: Any) -> Any:
        """Index the members' whole data sets once, before full-batch training (leading dim:
        member).
        """
        del task
        return batches


class Moment:
    """One moment of one member's training, as a probe sees it. What a probe does not touch is
    never computed.
    """

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
        """What a function of this moment gives, computed for the first probe that asks and kept
        for the others.
        """
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
        """Training loss. (Its gradient comes along, and is dropped by the compiler if no probe
        wants it.)
        """
        return self._value_and_gradient[0]

    @property
    def gradient(self) -> Any:
        """Gradient of the training loss with respect to every array of the model, frozen or not."""
        return self._value_and_gradient[1]

    @cached_property
    def initial(self) -> Any:
        """The model at step 0, drawn again from its key (costs an initialisation; meant for
        snapshots).
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
    """A recorded quantity: its dims after seed and step, and what it is, in words (with its
    unit).
    """

    dims: tuple[str, ...]
    description: str


class AbstractProbe(ABC):
    """A named pure function of a moment, measured along training."""

    variables: ClassVar[Mapping[str, Variable]]

    @abstractmethod
    def __call__(self, moment: Moment) -> dict[str, Array]: ...

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
