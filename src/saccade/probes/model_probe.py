"""The base of the built-in probes, each of which names the models that it fits."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from saccade.contracts.model import AbstractModelConfig
from saccade.contracts.probe import AbstractProbe


@dataclasses.dataclass(frozen=True)
class AbstractModelProbe(AbstractProbe):
    """A probe of some kinds of models, on whose examples it is tested."""

    models: ClassVar[tuple[type[AbstractModelConfig], ...]]
    labels: ClassVar[Mapping[str, Sequence[Any]]] = {}
    """Values along the dims that do not depend on the task."""

    @classmethod
    def example(cls) -> tuple[Self, tuple[Any, ...]]:
        return cls(), tuple(kind.example() for kind in cls.models)

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        return {dim: (dim, list(values)) for dim, values in self.labels.items()}
