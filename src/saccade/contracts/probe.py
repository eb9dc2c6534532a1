"""The contract of probes: a named pure function of one moment of a training."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, ClassVar, Self

import equinox as eqx
import jax
from jaxtyping import Array, Float

from saccade.contracts.chunks import in_chunks, mean_over_chunks
from saccade.contracts.model import AbstractModelConfig, Output
from saccade.contracts.task import SPLITS, AbstractTask
from saccade.errors import ConfigError
from saccade.records.variable import Variable


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
