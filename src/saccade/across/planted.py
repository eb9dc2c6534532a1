"""Faults that are planted into runs that learn: what the diagnosis is tested on.

Each fault is planted by one number, its severity, which is swept from mild to strong; at the last
value the fault is there in full. A run into which a fault cannot be planted has none: gradients of
a recurrent model have no mask, and Adam's steps do not grow with the gradient.
"""

import dataclasses
from collections.abc import Callable, Mapping

from saccade.across.setups import SEVERITY, Setup, copying
from saccade.diagnosis.bypassed import Bypassed
from saccade.diagnosis.diverged import Diverged
from saccade.diagnosis.epsilon_swallows import EpsilonSwallows
from saccade.diagnosis.fault import AbstractFault
from saccade.diagnosis.future_visible import FutureVisible
from saccade.diagnosis.inactive_head import InactiveHead
from saccade.diagnosis.no_lexical_signal import NoLexicalSignal
from saccade.diagnosis.padding_attended import PaddingAttended
from saccade.diagnosis.part_not_trained import PartNotTrained
from saccade.diagnosis.rank_collapse import RankCollapse
from saccade.diagnosis.saturated import Saturated
from saccade.diagnosis.score_growth import ScoreGrowth
from saccade.diagnosis.scores_rounded import ScoresRounded
from saccade.diagnosis.softmax_blind import SoftmaxBlind
from saccade.diagnosis.values_first import ValuesFirst
from saccade.settings import Swept
from saccade.train.optimiser import Adam, GradientDescent, PartRate

Severities = tuple[float, ...]


@dataclasses.dataclass(frozen=True)
class Planting:
    """How a fault comes into a run."""

    severities: Severities
    """From mild to strong; the last is the fault in full."""
    plant: Callable[[Setup, Severities], Setup | None]
    """The healthy run with exactly this fault, its severity swept; None if it cannot have it."""

    def into(self, healthy: Setup) -> Setup | None:
        return self.plant(healthy, self.severities)


def _field(name: str) -> Callable[[Setup, Severities], Setup | None]:
    """A fault that is one number of the model, where the model has it."""

    def plant(healthy: Setup, severities: Severities) -> Setup | None:
        path = healthy.path(name)
        return healthy.swept(path, severities) if path else None

    return plant


def _not_shown(healthy: Setup, severities: Severities) -> Setup | None:
    shown = hasattr(healthy.task, "shown")
    return healthy.swept("task.shown", severities) if shown else None


def _large_steps(healthy: Setup, severities: Severities) -> Setup | None:
    if not isinstance(healthy.optimiser, GradientDescent):
        return None  # Adam's steps do not grow with the gradient
    return healthy.changed("optimiser.clip_norm", None).swept("optimiser.rate", severities)


def _large_epsilon(healthy: Setup, severities: Severities) -> Setup | None:
    is_adam = isinstance(healthy.optimiser, Adam)
    return healthy.swept("optimiser.epsilon", severities) if is_adam else None


def _seen_future(healthy: Setup, severities: Severities) -> Setup | None:
    path = healthy.path("future_weight")
    return healthy.swept(path, severities) if healthy.causal and path else None


def _words_of_a_permutation(healthy: Setup, severities: Severities) -> Setup | None:
    del healthy  # it shows in several runs of the recurrent model
    return copying().swept("task.words", severities)


def _seen_padding(healthy: Setup, severities: Severities) -> Setup | None:
    path = healthy.path("padding_weight")
    # Of a decoder, words stand before all padding.
    return None if healthy.causal or not path else healthy.swept(path, severities)


def _slow_keys(healthy: Setup, severities: Severities) -> Setup | None:
    part = "layers.*.attention.key" if healthy.path("heads") else "keys"
    slow = PartRate(part, Swept.over(SEVERITY, severities))  # pyright: ignore[reportArgumentType]
    return healthy.changed("optimiser.parts", (slow,))


def _no_skips(healthy: Setup, severities: Severities) -> Setup | None:
    path = healthy.path("skip")
    if not path:
        return None
    return healthy.changed(healthy.path("layers"), 4).swept(path, severities)


def _large_offset(healthy: Setup, severities: Severities) -> Setup | None:
    path, precision = healthy.path("key_offset"), healthy.path("score_precision")
    return healthy.changed(precision, "bfloat16").swept(path, severities) if path else None


def _equal_keys(healthy: Setup, severities: Severities) -> Setup | None:
    path = healthy.path("query_key_scale")
    # Adam moves weights by its rate however small their gradients, and leaves it at once.
    if not path or not isinstance(healthy.optimiser, GradientDescent):
        return None
    return healthy.changed(healthy.path("key_offset"), 1.0).swept(path, severities)


def _small_start(healthy: Setup, severities: Severities) -> Setup | None:
    if not isinstance(healthy.optimiser, GradientDescent):
        return None
    path = healthy.path("query_key_scale") or healthy.path("start_std")
    return healthy.swept(path, severities)


PLANTINGS: Mapping[type[AbstractFault], Planting] = {
    Bypassed: Planting((0.5, 0.95, 1.0), _not_shown),
    Diverged: Planting((1.0, 1e3, 1e20), _large_steps),
    EpsilonSwallows: Planting((1e-5, 1e-3, 1e2), _large_epsilon),
    FutureVisible: Planting((1e-8, 1e-4, 1.0), _seen_future),
    InactiveHead: Planting((0.5, 0.1, 0.0), _field("head_scale")),
    NoLexicalSignal: Planting((16.0, 10.0, 8.0), _words_of_a_permutation),
    PaddingAttended: Planting((1e-8, 1e-4, 1.0), _seen_padding),
    PartNotTrained: Planting((1e-1, 1e-3, 0.0), _slow_keys),
    RankCollapse: Planting((0.5, 0.2, 0.0), _no_skips),
    Saturated: Planting((1.2, 2.0, 6.0), _field("query_key_scale")),
    ScoreGrowth: Planting((3.0, 20.0, 150.0), _field("query_key_scale")),
    ScoresRounded: Planting((10.0, 1000.0, 10000.0), _large_offset),
    SoftmaxBlind: Planting((0.3, 0.03, 1e-3), _equal_keys),
    ValuesFirst: Planting((0.5, 0.1, 0.01), _small_start),
}
"""By fault; the others are information, and planted nowhere."""
