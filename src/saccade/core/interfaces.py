"""The contracts of task, model, probe and theory.

A task and a model config are frozen dataclasses of plain numbers; every float of them can be swept.
A probe is a pure function of a `Moment` of training; a theory predicts variables under the probes'
names and dims.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from saccade.core.chunks import in_chunks, mean_over_chunks
from saccade.core.identity import content
from saccade.errors import ConfigError
from saccade.records.variable import Variable

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


# -- models ----------------------------------------------------------------------------------------


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


# -- measuring -------------------------------------------------------------------------------------


class Moment:
    """One moment of one member's training. What no probe uses is not computed.

    `optimiser` and `optimiser_state` are None where models are measured that were not trained here.
    """

    def __init__(
        self,
        task: Any,
        model: Any,
        train: Any,
        test: Any,
        loss: Callable[[Any, Any], Float[Array, ""]],
        build: Callable[[], Any],
        validation: Any = None,
        chunk: int | None = None,
        optimiser: Any = None,
        optimiser_state: Any = None,
    ):
        self.task, self.model = task, model
        self.optimiser, self.optimiser_state = optimiser, optimiser_state
        self._splits = {"train": train, "validation": validation, "test": test}
        self._loss, self._build, self._chunk = loss, build, chunk
        self._known: dict[Any, Any] = {}

    def once(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The result of a function of this moment, computed once for all probes that ask."""
        if (function, arguments) not in self._known:
            self._known[function, arguments] = function(self, *arguments)
        return self._known[function, arguments]

    def split(self, name: str) -> Any:
        """The examples of `train`, `validation` or `test`."""
        if self._splits.get(name) is None:
            has = ", ".join(one for one in SPLITS if self._splits[one] is not None)
            raise ConfigError(f"split: got {name!r}, allowed: those that the task has, {has}")
        return self._splits[name]

    @property
    def train(self) -> Any:
        return self.split("train")

    @property
    def test(self) -> Any:
        return self.split("test")

    @cached_property
    def gradient(self) -> Any:
        """Gradient of the training loss with respect to every array of the model, frozen or not."""
        moving, still = eqx.partition(self.model, eqx.is_inexact_array)

        def of_batch(batch: Any) -> Any:
            return jax.grad(lambda part: self._loss(eqx.combine(part, still), batch))(moving)

        return mean_over_chunks(of_batch, self.train, self._chunk)

    @property
    def loss(self) -> Float[Array, ""]:
        """Training loss."""
        return self.loss_on("train")

    def loss_on(self, split: str) -> Float[Array, ""]:
        """The loss on the examples of a split."""
        return self.once(_loss_on, split)

    def loss_of(self, model: Any, batch: Any) -> Float[Array, ""]:
        """The loss of a model of this kind on some examples, in chunks."""
        return mean_over_chunks(lambda some: self._loss(model, some), batch, self._chunk)

    @cached_property
    def initial(self) -> Any:
        """The model at step 0, drawn again from its key (costs an initialisation; meant for
        `Recipe.ends`).
        """
        return self._build()

    def mean_of(self, function: Callable[[Any], Any], split: str) -> Any:
        """The mean over the examples of a split of a function that is itself a mean over examples,
        computed in chunks: for outputs that are too large to be kept.
        """
        return mean_over_chunks(function, self.split(split), self._chunk)

    def each(self, function: Callable[[Any], Any], batch: Any) -> Any:
        """A function with a result per example, computed in chunks."""
        return in_chunks(function, batch, self._chunk)

    def output(self, split: str) -> Output:
        """What the model gives for the examples of a split, computed in chunks."""
        return self.once(_output, split)

    @property
    def train_output(self) -> Output:
        return self.output("train")

    @property
    def test_output(self) -> Output:
        return self.output("test")


def _loss_on(moment: Moment, split: str) -> Float[Array, ""]:
    return moment.loss_of(moment.model, moment.split(split))


def _output(moment: Moment, split: str) -> Output:
    return moment.each(moment.model, moment.split(split))


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
