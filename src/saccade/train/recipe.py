"""A training as a value: what is trained, how, and what is recorded, whoever is trained."""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from saccade.contracts.model import BuiltModel
from saccade.contracts.probe import AbstractProbe
from saccade.errors import ConfigError
from saccade.records.schedule import AbstractSchedule, Every
from saccade.settings import require_count
from saccade.train.batches import AbstractBatches, FullBatch
from saccade.train.checks import require_kinds, require_probe_instances, require_unswept
from saccade.train.loss import Loss
from saccade.train.optimiser import GradientFlow, OptaxOptimiser
from saccade.train.recording import Recording
from saccade.train.stopping import EarlyStopping


@dataclasses.dataclass(frozen=True, eq=False)
class Recipe:
    """A training, without the members that it trains. `Lab.train` takes recipes.

    Two recipes are equal if they are the same object: they may hold functions and corpora. Whether
    two trainings are the same is decided by what they compute.
    """

    task: Any
    """The task."""
    model: Any
    """A model's config, or a function of task and key that builds an Equinox module."""
    optimiser: Any
    """One of saccade's, or any Optax transformation."""
    steps: int
    """Steps; with `after`, further steps."""
    _: dataclasses.KW_ONLY
    probes: Sequence[AbstractProbe] = ()
    """Measured along training; loss and divergence always are."""
    at: AbstractSchedule = Every(10)
    """The steps at which probes are measured; the first and the last step always are."""
    ends: Sequence[AbstractProbe] = ()
    """Measured at the first and the last step only."""
    batches: AbstractBatches = FullBatch()
    """Which examples a step sees."""
    loss: Loss | None = None
    """A function of model and batch (and `key`, for dropout) in place of the model's own loss."""
    frozen: Sequence[str] = ()
    """Paths of the parts that do not learn."""
    stopping: EarlyStopping | None = None
    """When a member ends early; it keeps its best weights."""
    keep_state: bool = False
    """Whether the whole last state is kept, so that another training can go on from it."""
    chunk: int | None = None
    """Examples that are evaluated at once. None: of a corpus 512, or as many as have 65,536
    positions; all of generated data. Training with full batches always evaluates all. A loss in
    chunks is their mean, weighted by examples."""
    sample: int | None = None
    """Training examples on which loss and probes are measured, evenly spaced. None: all. Training
    with full batches always measures all."""

    def __post_init__(self):
        set_field = partial(object.__setattr__, self)
        set_field("model", BuiltModel.of(self.model))
        set_field("optimiser", OptaxOptimiser.of(self.optimiser))
        for name in ("probes", "ends"):
            set_field(name, require_probe_instances(name, getattr(self, name)))
        names = ("task", "model", "optimiser", "batches", "stopping")
        require_kinds(**{name: getattr(self, name) for name in names})
        require_unswept(steps=self.steps)
        whole = isinstance(self.steps, int | np.integer) and not isinstance(self.steps, bool)
        if not whole or self.steps < 0:
            raise ConfigError(f"steps: got {self.steps!r}, allowed: a whole number, at least 0")
        for name in ("chunk", "sample"):
            if getattr(self, name) is not None:
                require_count(self, name)
        if not isinstance(self.at, AbstractSchedule):
            raise ConfigError(
                f"at: got {self.at!r}, allowed: a schedule such as Every(10), Logarithmic(40) or "
                "AtSteps((0, 100))"
            )
        if isinstance(self.optimiser, GradientFlow) and not isinstance(self.batches, FullBatch):
            raise ConfigError(
                f"batches: got {self.batches}, allowed: FullBatch() with GradientFlow"
            )
        if self.loss is not None and not callable(self.loss):
            raise ConfigError(f"loss: got {self.loss!r}, allowed: a function of model and batch")
        if isinstance(self.frozen, str):
            allowed = f"several paths, ({self.frozen!r},)"
            raise ConfigError(f"frozen: got {self.frozen!r}, allowed: {allowed}")
        set_field("frozen", tuple(self.frozen))

    @property
    def recording(self) -> Recording:
        """What is measured, as the engine takes it."""
        return Recording(tuple(self.probes), tuple(self.ends), self.chunk, self.sample)

    def recorded(self, first: int = 0) -> np.ndarray:
        """The recorded steps of a training that begins at a step."""
        steps = self.at.steps(first + int(self.steps))
        return np.union1d(steps[steps >= first], [first]).astype(np.int64)
