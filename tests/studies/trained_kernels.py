"""Song's studies, and the one across papers, at small size, with premises that can be broken: other
optimisers, keys that are not small, queries far from the keys, large embeddings.
"""

import copy
import dataclasses
from functools import partial
from typing import Any

from trained_refutations import TrainedRefutation

from saccade.contracts.probe import Moment
from saccade.models.attention_classifier import AttentionClassifierConfig, Head
from saccade.models.attention_regression import AttentionRegressionConfig, value_curvature
from saccade.models.kernels import KernelName
from saccade.probes.feature_matrix import ValueModes
from saccade.records.record import Record
from saccade.studies import kernels_convergence, kernels_stationary, values_first
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent


def _as(kind: Any, config: Any) -> Any:
    """A config of another class, with the same fields."""
    return kind(**{field.name: getattr(config, field.name) for field in dataclasses.fields(config)})


# -- values alone ----------------------------------------------------------------------------------


def _sharpest(model: Any, batch: Any) -> Any:
    """The largest curvature of the loss in the values, exactly."""
    moment = Moment(None, model, batch, batch, type(model).loss, lambda: model)
    return ValueModes()(moment)["mode_curvature"][-1]


@dataclasses.dataclass(frozen=True)
class TooLargeSteps(kernels_convergence.Config):
    """Steps 1 % above the limit of stability, 2 / curvature: the loss grows, but stays finite."""

    @property
    def optimiser(self) -> GradientDescent:
        return GradientDescent(2.02, curvature=_sharpest)


@dataclasses.dataclass(frozen=True)
class WithMomentum(kernels_convergence.Config):
    """Gradient descent with momentum."""

    @property
    def optimiser(self) -> GradientDescent:
        return GradientDescent(self.step_share, 0.5, curvature=value_curvature)


def _values(lab: Lab, broken: bool, kind: Any, steps: int = 4000) -> Record:
    values = partial(kernels_convergence.experiment, trained=("values",))
    study = dataclasses.replace(kernels_convergence.STUDY, experiment=values)
    config = dataclasses.replace(study.config("quick"), value_steps=steps)
    return study.run(_as(kind, config) if broken else config, lab)


# -- queries alone ---------------------------------------------------------------------------------


class LargeKeys(AttentionRegressionConfig):
    """Keys larger by 1 than their scale says."""

    def build(self, task: Any, key: Any) -> Any:
        larger = copy.copy(self)
        object.__setattr__(larger, "key_scale", self.key_scale + 1.0)
        return AttentionRegressionConfig.build(larger, task, key)


@dataclasses.dataclass(frozen=True)
class WithLargeKeys(kernels_stationary.Config):
    """Keys that are not small."""

    def model(self, kernel: KernelName, heads: int, *trained: str) -> AttentionRegressionConfig:
        return _as(LargeKeys, super().model(kernel, heads, *trained))


@dataclasses.dataclass(frozen=True)
class WithFarQueries(kernels_stationary.Config):
    """Queries twenty times as large."""

    def model(self, kernel: KernelName, heads: int, *trained: str) -> AttentionRegressionConfig:
        model = super().model(kernel, heads, *trained)
        return dataclasses.replace(model, query_scale=20.0)


def _queries(lab: Lab, broken: bool, kind: Any) -> Record:
    keys = partial(kernels_stationary.experiment, kinds=("keys",))
    study = dataclasses.replace(kernels_stationary.STUDY, experiment=keys)
    config = study.config("quick")
    return study.run(_as(kind, config) if broken else config, lab)


# -- across papers ---------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class WithLargeEmbeddings(values_first.Config):
    """Embeddings that do not begin near 0, as corollary 1 needs."""

    def classifier(self, head: Head) -> AttentionClassifierConfig:
        return dataclasses.replace(super().classifier(head), embedding_std=0.3)


def _reversal(lab: Lab, broken: bool) -> Record:
    fixed = partial(values_first.lu, arms_of="lu_FC_*")
    study = dataclasses.replace(values_first.STUDY, experiment=fixed)
    config = dataclasses.replace(study.config("quick"), sentences=200, long_steps=3600)
    return study.run(_as(WithLargeEmbeddings, config) if broken else config, lab)


REFUTATIONS = (
    TrainedRefutation(
        "D-1", "steps above the limit of stability", partial(_values, kind=TooLargeSteps)
    ),
    TrainedRefutation("D-1b", "momentum", partial(_values, kind=WithMomentum, steps=500)),
    TrainedRefutation("D-8", "the queries begin far away", partial(_queries, kind=WithFarQueries)),
    TrainedRefutation("D-6b", "the keys are not small", partial(_queries, kind=WithLargeKeys)),
    TrainedRefutation("E-13e", "the initial embeddings are large", _reversal),
)
