"""The contract of models: a frozen config of plain numbers that builds an Equinox module.

Every float of a config can be swept.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from saccade.contracts.task import AbstractTask


class Output(eqx.Module):
    """The result of calling a model: the logits (of a regression: the predictions), and the
    attention that led to them.
    """

    logits: Float[Array, "example *output"]
    if TYPE_CHECKING:  # a probe of attention is not used with a model that gives none here
        attention: Array = None  # pyright: ignore[reportAssignmentType]
    else:
        attention: Float[Array, "example *position"] | None = None
    """None for models that give their attention by layer (`attention_layers`)."""


class AttentionLayer(eqx.Module):
    """What the attention of one layer is made of: queries, keys and a kernel. Weights are computed
    from them by rows, so that no table of all queries and keys is kept.
    """

    queries: Float[Array, "example head query part"]
    keys: Float[Array, "example head key part"]
    kernel: Any
    """An `AbstractKernel`: scores of queries and keys, and their weights."""
    mask: Bool[Array, "example key"] | None = None
    """True where a key may be attended to; None if all may."""
    words: Bool[Array, "example key"] | None = None
    """True where a key is a word (and not padding); None if all are."""
    padding_weight: Any = 0.0
    """What the weight of a key that `mask` leaves out is multiplied by: 0 if it is hidden."""
    future_weight: Any = 1.0
    """The same for keys behind the query's own position: 0 if attention is causal."""
    asked: Bool[Array, "example query"] | None = None
    """True where a query counts; None: where `words` has a word, if queries and keys are the same
    words."""
    scale: float | None = eqx.field(default=None, static=True)
    """Factor of the scores; None: the kernel's own, 1 / sqrt d. Without any scaling it is 1."""
    placed: bool = eqx.field(default=True, static=True)
    """Whether query i has position i, and with it a key of its own and distances; the one query
    that sums up a sentence has not."""
    rounded: bool = eqx.field(default=False, static=True)
    """Whether the model rounds its scores to bfloat16."""
    values: Float[Array, "example head key value"] | None = None
    """What is added up, if the layer says so."""
    output: Float[Array, "head value feature"] | None = None
    """The matrix that each head's sum is multiplied by, before heads are added."""
    tokens: Float[Array, "example key feature"] | None = None
    """What enters the layer, of which queries and keys are made."""


def cross_entropy(
    logits: Float[Array, "example label"], labels: Int[Array, " example"]
) -> Float[Array, ""]:
    """Mean cross-entropy of the labels."""
    correct = labels[:, None] == jnp.arange(logits.shape[-1])
    # A masked sum rather than a gather: the gradient is then a masked sum too, and not a scatter.
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * correct, axis=-1))


class HasAttentionLayers(Protocol):
    """A model that gives the attention of its layers, for the general probes of attention."""

    def attention_layers(self, batch: Any) -> Sequence[AttentionLayer]: ...


class HasAblations(Protocol):
    """A model whose attention can be taken away, a layer or a head at a time."""

    @property
    def ablated_shape(self) -> tuple[int, int]:
        """Layers, and heads per layer."""
        ...

    def ablated(self, layer: int, head: int | None = None) -> Any:
        """This model with uniform attention in a layer, or without one of its heads."""
        ...


class AbstractModel(eqx.Module):
    """A network. Calling it gives logits and attention; `trainable` says which parts learn.

    `loss` may have a second parameter `key`: a new key at every step of training, and None when the
    loss is measured. Dropout needs it.
    """

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
    def build(self, task: Any, key: PRNGKeyArray) -> Any:
        """A new model: an `AbstractModel`, or any Equinox module with a `loss`."""

    @property
    def title(self) -> str:
        """The name of the model in messages."""
        return type(self).__name__

    @property
    def about(self) -> Mapping[str, str]:
        """What a record should say of how this device computes the model; by default nothing."""
        return {}

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


@dataclasses.dataclass(frozen=True)
class BuiltModel(AbstractModelConfig):
    """A model that a function builds; `Lab.train` makes it of a bare function."""

    function: Callable[[Any, PRNGKeyArray], Any]
    """Of task and key."""

    @staticmethod
    def of(model: Any) -> Any:
        """A config as it is, a function (or the class of a module) as one; an instance is none."""
        is_config = isinstance(model, type) and issubclass(model, AbstractModelConfig)
        if isinstance(model, AbstractModelConfig | eqx.Module) or is_config or not callable(model):
            return model
        return BuiltModel(model)

    def build(self, task: Any, key: PRNGKeyArray) -> Any:
        return self.function(task, key)

    @property
    def title(self) -> str:
        return getattr(self.function, "__qualname__", repr(self.function))
