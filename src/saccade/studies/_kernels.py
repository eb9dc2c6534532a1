"""Settings that the two studies of Song, Han, Zhang, Ding & Hong (2024) share."""

import dataclasses

import xarray as xr

from saccade.models.attention_regression import AttentionRegressionConfig
from saccade.models.kernels import KernelName
from saccade.records.record import Arm
from saccade.records.trajectory import at_start, fall
from saccade.settings import require_count
from saccade.studies._seeds import AbstractSeededConfig

PAPER = "Song, Han, Zhang, Ding & Hong 2024"


@dataclasses.dataclass(frozen=True)
class AbstractKernelConfig(AbstractSeededConfig):
    """Sizes and scales of the data and the model."""

    seeds: int = 32
    """Repetitions, each with its own data and initialisation."""
    sequences: int = 4
    """Sequences (N)."""
    positions: int = 4
    """Vectors per sequence (n)."""
    head_dimension: int = 16
    """Dimension of queries, keys and values (d)."""
    value_scale: float = 1.0
    """Initial scale of W^V."""
    output_scale: float = 4.0
    """Scale of the fixed W^O."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "sequences", "positions", "head_dimension")

    @property
    def rows(self) -> int:
        """Nn: vectors in total."""
        return self.sequences * self.positions

    def model(self, kernel: KernelName, heads: int, *trained: str) -> AttentionRegressionConfig:
        return AttentionRegressionConfig(
            kernel,
            heads,
            self.head_dimension,
            trained,
            value_scale=self.value_scale,
            output_scale=self.output_scale,
        )


def last_over_first(arm: Arm) -> xr.DataArray:
    """Last loss / first loss."""
    return fall(arm.trajectory["loss"])


def with_start(arm: Arm) -> xr.Dataset:
    """The trajectory, with what was measured at the start alone."""
    known, start = arm.trajectory, at_start(arm.snapshot)
    return known.assign({name: values for name, values in start.items() if name not in known})
