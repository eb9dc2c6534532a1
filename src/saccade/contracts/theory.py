"""The contract of theories: variables under the names and on the axes of the probes."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import xarray as xr


class AbstractTheory(ABC):
    """A result in closed form. `predict` gives the probes' variables on the probes' axes."""

    statement: ClassVar[str]
    source: ClassVar[str]
    predicts: ClassVar[tuple[str, ...]]
    """Names of the probes' variables that `predict` returns."""

    @abstractmethod
    def predict(self, task: Any, model: Any, trajectory: "xr.Dataset") -> "xr.Dataset": ...
