"""How fast gradient descent fits an attention layer (Song, Han, Zhang, Ding & Hong 2024).

One layer of attention, softmax or Gaussian, fits random targets. Theorem 1: if heads x dimension
reaches the number of vectors (HD >= Nn), the loss falls at least as fast as (1 - eta beta)^t. The
loss is compared with this bound for a grid of sizes, once with all parts trained and once with only
the values trained. Below HD = Nn, training of the values ends at a floor that is known as well.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.bound import Above, AbstractBound, AtMost, Below
from saccade.core.claim import Check, Claim, PremiseNotMetError
from saccade.core.figure import Figure, HeatMap, Line, Panel, curve
from saccade.core.lab import Lab
from saccade.core.optimiser import GradientDescent
from saccade.core.record import Arm, Arms
from saccade.core.schedule import Logarithmic, Recording
from saccade.core.statistics import EverySeed
from saccade.core.study import Study, divergences
from saccade.core.sweep import Swept, require, require_count, require_positive, with_sweep
from saccade.core.trajectory import at_place, at_start
from saccade.models.attention_regression import PARTS, value_curvature
from saccade.models.kernels import KERNEL_TITLES, KernelName
from saccade.probes.feature_matrix import FeatureMatrix
from saccade.studies._kernels import PAPER, AbstractKernelConfig, last_over_first
from saccade.tasks.random_sequences import RandomSequences
from saccade.theory.linear_rate import LinearRate, ProjectionFloor

TRAINED = {"values": ("values",), "all": PARTS}
TITLES = {"values": "only values trained", "all": "all parts trained"}
ROUNDING = 1e-24
"""A loss below this share of the first is rounding (1e-12 of the targets); the bound falls on."""
DIMENSIONS = (4, 8, 12, 16, 32)
"""Dimensions of the vectors; with two heads, HD = Nn = 24 lies in the middle."""


@dataclasses.dataclass(frozen=True)
class Config(AbstractKernelConfig):
    """Settings of the study."""

    sequences: int = 6
    """Sequences (N)."""
    value_scale: float = 0.1
    """Initial scale of W^V."""
    heads: tuple[int, ...] = (1, 2, 4)
    """Numbers of heads (H)."""
    step_share: float = 0.5
    """Step size / the largest that theorem 1 allows, 1 / (max ||W_h^O||^2 ||B_0||^2)."""
    value_steps: int = 400000
    """Steps with only the values trained; B's small singular values make convergence slow."""
    steps: int = 20000
    """Steps with all parts trained."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "value_steps", "steps")
        several = "one or more whole numbers above 0"
        require(self, "heads", several, lambda heads: len(heads) > 0 and min(heads) > 0)
        require_positive(self, "step_share")


def experiment(config: Config, lab: Lab) -> Arms:
    largest = max(DIMENSIONS)
    task = RandomSequences(config.sequences, 1, config.positions, largest, largest)
    task = with_sweep(task, "dimension", DIMENSIONS, "D")
    optimiser = GradientDescent(config.step_share, curvature=value_curvature)
    record = Recording((FeatureMatrix(),), Logarithmic(50))
    arms = {}
    for heads, kernel, which in product(config.heads, KERNEL_TITLES, TRAINED):
        model = config.model(kernel, heads, *TRAINED[which])
        steps = config.value_steps if which == "values" else config.steps
        name = f"kernels_convergence {kernel}, {which}, {heads} heads"
        training = lab.train(task, model, optimiser, steps, record, seeds=config.seeds, name=name)
        given = (task, model, training.trajectory)
        floor = at_start(ProjectionFloor().predict(*given)["loss"])
        predicted = LinearRate().predict(*given).assign(floor=floor)
        arms[arm_name(kernel, which, heads)] = Arm.of(training, predicted, LinearRate.source)
    return arms


def arm_name(kernel: str, which: str, heads: int) -> str:
    return f"{kernel}_{which}_{heads}"


# -- measures --------------------------------------------------------------------------------------

Measured = Callable[[Arm], xr.DataArray]
ENOUGH, FEW = "HD >= Nn", "HD < Nn"


def _check(quantity: str, which: str, sizes: str, measure: Measured, bound: AbstractBound) -> Check:
    """The worst of a measure over kernels, heads and the dimensions that are enough, or too few."""
    arms = tuple(f"{kernel}_{which}_*" for kernel in KERNEL_TITLES)
    worst = "min" if isinstance(bound, Above) else "max"
    measured = partial(_over_sizes, which, sizes, measure, worst)
    return Check(f"{quantity}, all sizes with {sizes}", measured, bound, arms)


def _over_sizes(
    which: str, sizes: str, measure: Measured, worst: str, arms: Arms, config: Config
) -> xr.DataArray:
    share = config.step_share
    if not isinstance(share, Swept) and share > 1:
        raise PremiseNotMetError(f"a step of {share:g} times the largest that the theory allows")
    found = []
    for kernel, heads in product(KERNEL_TITLES, config.heads):
        values = measure(arms[arm_name(kernel, which, heads)])
        enough = values["D"].values * heads >= config.rows
        found.append(values.isel(D=enough if sizes == ENOUGH else ~enough))
    values = xr.concat(found, "D", coords="minimal", compat="override")
    if not values.sizes["D"]:
        raise PremiseNotMetError(f"no size with {sizes} was run")
    values = getattr(values, worst)("D", skipna=False)
    return values.where(values["step_share"] <= 1) if "step_share" in values.dims else values


def _over_bound(arm: Arm) -> xr.DataArray:
    """Largest loss / bound along training, down to rounding; NaN if beta is 0 (no bound)."""
    loss, low = arm.trajectory["loss"], at_start(arm.trajectory["feature_low"])
    ratio = (loss / arm.prediction["loss"]).where(~(loss <= ROUNDING * at_start(loss)), 0.0)
    # Step 0 is left out: loss and bound are the same number there.
    return ratio.isel(step=slice(1, None)).max("step", skipna=False).where(low > 0)


def _over_floor(arm: Arm) -> xr.DataArray:
    """Last loss / the floor of the initial B."""
    return at_place(arm.trajectory["loss"], -1) / arm.prediction["floor"]


def _from_floor(arm: Arm) -> xr.DataArray:
    return abs(_over_floor(arm) - 1)


def _floor_over_first(arm: Arm) -> xr.DataArray:
    return arm.prediction["floor"] / at_start(arm.trajectory["loss"])


_claim = partial(Claim, statistic=EverySeed(5))
CLAIMS = (
    _claim(
        "D-1",
        "If only the values are trained and HD >= Nn, the loss stays below (1 - eta beta)^t f_0 at"
        " every step, for both kernels",
        "Song 2024, theorem 1 (proved here for values only)",
        _check("largest loss / bound", "values", ENOUGH, _over_bound, AtMost(1.0)),
        "strict, except for rounding: losses below 1e-24 of the first do not count, nor step 0,"
        " where loss and bound are equal",
        paper="<= 1",
        prediction="<= 1",
    ),
    _claim(
        "D-2",
        "If only values are trained and HD < Nn, the loss ends at the positive projection floor",
        "derived; the case that theorem 1 excludes",
        (
            _check("largest |last loss / floor - 1|", "values", FEW, _from_floor, AtMost(1e-3)),
            _check("smallest floor / first loss", "values", FEW, _floor_over_first, Above(0.0)),
        ),
        "1e-3 relative, as specified",
        prediction="0",
    ),
    _claim(
        "D-3",
        "If all parts are trained and HD >= Nn, the bound holds at every step and the loss"
        " converges to 0, for both kernels",
        "Song 2024, theorem 1",
        (
            _check("largest loss / bound", "all", ENOUGH, _over_bound, AtMost(1.0)),
            _check("largest last loss / first loss", "all", ENOUGH, last_over_first, Below(1e-6)),
        ),
        "strict; 1e-6, as specified",
        paper="global optimum",
        prediction="<= 1, and 0",
    ),
    _claim(
        "D-4",
        "If all parts are trained and HD < Nn, there is no guarantee, but the loss goes below the"
        " floor: HD >= Nn is not necessary",
        "beyond Song 2024, theorem 1",
        _check("largest last loss / floor of the start", "all", FEW, _over_floor, Below(1.0)),
        "an order: attention that moves changes the loss that the values can reach",
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return _bounds(arms, config), _grid(arms, config)


def _title(kernel: KernelName, which: str) -> str:
    return f"{KERNEL_TITLES[kernel]}, {TITLES[which]}"


def _bounds(arms: Arms, config: Config) -> Figure:
    panels, size = [], DIMENSIONS[2]
    heads = 2 if 2 in config.heads else config.heads[0]
    label = "bound (1 - eta beta)^t f_0, geometric mean"
    for which, kernel in product(TITLES, KERNEL_TITLES):
        arm = arms[arm_name(kernel, which, heads)]
        loss, bound = arm.trajectory["loss"].sel(D=size), arm.prediction["loss"].sel(D=size)
        theory = Line(label, bound["step"].values, _geometric_mean(bound), role="theory")
        lines = (curve("measured loss", loss), theory)
        panels.append(Panel(_title(kernel, which), "step", "loss", lines, "log", "log"))
    caption = (
        f"Loss along training for D = {size:g} and {heads} heads, where HD = Nn just holds: mean"
        " over seeds with the range, and theorem 1's bound. The bound holds but is far from tight:"
        " beta is the smallest singular value, squared."
    )
    title = "The loss stays below its bound"
    return Figure("kernels_convergence_bounds", title, caption, tuple(panels))


def _geometric_mean(values: xr.DataArray) -> np.ndarray:
    return xr.ufuncs.exp(xr.ufuncs.log(values).mean("seed")).values


def _grid(arms: Arms, config: Config) -> Figure:
    sizes, heads = np.asarray(DIMENSIONS), np.asarray(config.heads)
    panels = []
    for which, kernel in product(TITLES, KERNEL_TITLES):
        chosen = [arms[arm_name(kernel, which, number)] for number in config.heads]
        rows = np.asarray([_geometric_mean(last_over_first(arm)) for arm in chosen])
        cells = HeatMap("last loss / first", sizes, heads, rows, "log")
        panels.append(Panel(_title(kernel, which), "D", "heads", (cells,)))
    caption = (
        "Last loss over first, geometric mean over seeds, for every size. Theorem 1 covers H x D >="
        f" {config.rows}. Below that, training of the values alone ends at the projection floor;"
        " with all parts trained the loss is small there as well."
    )
    return Figure("kernels_convergence_grid", "Loss after training", caption, tuple(panels))


DIVERGENCES = divergences(
    """
    loss | factor, sum unreadable | none released | half the sum over vectors | scales beta and step
    output width | unreadable | none released | 1 per vector | formulas hold for any width up to d
    initialisation | 'there exists an initialization' | none released | X ~ N(0, 4/D), W^Q, W^K ~
        N(0, 1/D), W^V ~ 0.1 N(0, 1/D), W^O ~ 4 N(0, 1/d) | D-3 shows that it is good enough
    step size | 'there exists a stepsize' | none released | half of 1/(max ||W_h^O||^2 ||B_0||^2) |
        above 1 of it the claims are undetermined: the theory requires less
    """
)

QUICK = Config(seeds=5, heads=(2,), value_steps=60000, steps=6000)
PRESETS = {"quick": QUICK, "paper": Config()}
ABOUT = ("kernels_convergence", "Gradient descent on attention converges linearly", PAPER)
MORE: Any = {"divergences": DIVERGENCES, "precision": "float64"}
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, **MORE)
