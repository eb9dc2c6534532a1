"""How fast gradient descent fits an attention layer (Song, Han, Zhang, Ding & Hong 2024, theorem
1).

One layer of attention, softmax or Gaussian, fits random targets. Theorem 1: if heads x dimension
reaches the number of vectors (HD >= Nn), the loss falls at least as fast as (1 - eta beta)^t.
Measured against that bound for a grid of sizes, with everything trained and with values only; below
HD = Nn, values alone end at a floor that is known as well.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import xarray as xr

from saccade.core.claim import Check, Claim, PremiseNotMetError
from saccade.core.figure import Figure, HeatMap, Line, Panel, over_seeds
from saccade.core.lab import Lab
from saccade.core.optimiser import GradientDescent
from saccade.core.record import Arm, Record
from saccade.core.schedule import Logarithmic
from saccade.core.study import Divergence, Study
from saccade.core.sweep import require, require_count, require_positive, with_sweep
from saccade.core.trajectory import at_start, fall
from saccade.models.attention_regression import (
    PARTS,
    AttentionRegressionConfig,
    half_squared_error,
    value_curvature,
)
from saccade.models.kernels import KERNEL_TITLES
from saccade.probes.feature_matrix import FeatureMatrix
from saccade.tasks.random_sequences import RandomSequences
from saccade.theory.linear_rate import LinearRate, ProjectionFloor

TRAINED = {"values": ("values",), "all": PARTS}
ROUNDING = 1e-24
"""A loss below this share of the first is rounding (1e-12 of the targets), which a bound that
goes on falling does not know.
"""
DIMENSIONS = (4.0, 8.0, 12.0, 16.0, 32.0)
"""Dimensions of the vectors; with two heads, HD = Nn = 24 lies in the middle."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the study."""

    seeds: int = 10
    """Repetitions, each with its own data and start."""
    sequences: int = 6
    """Sequences (N)."""
    positions: int = 4
    """Vectors in a sequence (n)."""
    heads: tuple[int, ...] = (1, 2, 4)
    """Numbers of heads (H)."""
    head_dimension: int = 16
    """Dimension of queries, keys and values (d)."""
    value_scale: float = 0.1
    """Scale of W^V at the start."""
    output_scale: float = 4.0
    """Scale of the fixed W^O."""
    step_share: float = 0.5
    """Step size, as a share of the largest that the bound allows, 1 / (max ||W_h^O||^2
    ||B_0||^2).
    """
    value_steps: int = 400000
    """Steps with values alone: the way to the floor is as slow as the smallest singular value of
    B is small.
    """
    steps: int = 20000
    """Steps with everything trained."""

    def __post_init__(self):
        require_count(
            self, "seeds", "sequences", "positions", "head_dimension", "value_steps", "steps"
        )
        require(
            self,
            "heads",
            "one or more whole numbers above 0",
            lambda heads: len(heads) > 0 and min(heads) > 0,
        )
        require_positive(self, "step_share")


def experiment(config: Config, lab: Lab) -> Mapping[str, Arm]:
    task = RandomSequences(
        config.sequences, 1, config.positions, width=int(max(DIMENSIONS)), dimension=max(DIMENSIONS)
    )
    task = with_sweep(task, "dimension", DIMENSIONS, "D")
    optimiser = GradientDescent(config.step_share, curvature=value_curvature)
    arms = {}
    for heads in config.heads:
        for kernel in KERNEL_TITLES:
            for which, trained in TRAINED.items():
                model = AttentionRegressionConfig(
                    kernel,
                    heads,
                    config.head_dimension,
                    trained,
                    value_scale=config.value_scale,
                    output_scale=config.output_scale,
                )
                steps = config.value_steps if which == "values" else config.steps
                training = lab.train(
                    task,
                    model,
                    optimiser,
                    steps,
                    (FeatureMatrix(),),
                    record=Logarithmic(50),
                    seeds=config.seeds,
                    loss=half_squared_error,
                    name=f"kernels_convergence {kernel}, {which}, {heads} heads",
                )
                bound = LinearRate().predict(task, model, training.trajectory)
                limit = at_start(
                    ProjectionFloor().predict(task, model, training.trajectory)["loss"]
                )
                arms[arm_name(kernel, which, heads)] = Arm.of(
                    training, bound.assign(floor=limit), LinearRate.source
                )
    return arms


def arm_name(kernel: str, which: str, heads: int) -> str:
    return f"{kernel}_{which}_{heads}"


# -- measures --------------------------------------------------------------------------------------


def _rows(record: Record) -> int:
    """Nn: vectors in all."""
    return int(record.config["sequences"] * record.config["positions"])


def _over_sizes(
    which: str, enough: bool, measure: Callable[[Arm], xr.DataArray], worst: str = "max"
):
    """A measure of arms, at its worst over kernels, heads and the dimensions that are (or are
    not) enough.
    """

    def measured(record: Record) -> xr.DataArray:
        share = record.config["step_share"]
        if "step_share" not in record.sweeps and share > 1:
            raise PremiseNotMetError(
                f"a step of {share:g} times the largest that the theory allows"
            )
        found: list[xr.DataArray] = []
        for heads in record.config["heads"]:
            there = [size for size in DIMENSIONS if (size * heads >= _rows(record)) == enough]
            for kernel in KERNEL_TITLES if there else ():
                values = measure(record.arm(arm_name(kernel, which, heads))).sel(D=there)
                found.append(getattr(values, worst)("D", skipna=False))
        if not found:
            raise PremiseNotMetError(f"no size with HD {'>=' if enough else '<'} Nn was run")
        values = getattr(xr.concat(found, "arm", coords="minimal", compat="override"), worst)(
            "arm", skipna=False
        )
        return values.where(values["step_share"] <= 1) if "step_share" in values.dims else values

    return measured


def _over_bound(arm: Arm) -> xr.DataArray:
    """Largest loss / bound along training, down to rounding; NaN where beta is 0, so that there
    is no bound.
    """
    loss, low = arm.trajectory["loss"], at_start(arm.trajectory["feature_low"])
    ratio = (loss / arm.prediction["loss"]).where(~(loss <= ROUNDING * at_start(loss)), 0.0)
    # Step 0 is left out: loss and bound are the same number there.
    return ratio.isel(step=slice(1, None)).max("step", skipna=False).where(low > 0)


def _fall(arm: Arm) -> xr.DataArray:
    return fall(arm.trajectory["loss"])


def _over_floor(arm: Arm) -> xr.DataArray:
    """Relative distance of the last loss to the projection floor."""
    return abs(arm.end["loss"].drop_vars(("step", "time")) / arm.prediction["floor"] - 1)


def _below_floor(arm: Arm) -> xr.DataArray:
    """Last loss / the floor that the start's B would leave."""
    return arm.end["loss"].drop_vars(("step", "time")) / arm.prediction["floor"]


def _arms(which: str) -> tuple[str, ...]:
    return tuple(f"{kernel}_{which}_*" for kernel in KERNEL_TITLES)


CLAIMS = (
    Claim(
        "D-1",
        "Values alone, HD >= Nn: the loss stays below (1 - eta beta)^t f_0 at all steps, for both"
        " kernels",
        "Song 2024, theorem 1 (proved here for values alone)",
        (
            Check(
                "largest loss / bound, all sizes with HD >= Nn",
                _over_sizes("values", True, _over_bound),
                "<=",
                1.0,
                _arms("values"),
                every_seed=True,
                seeds=5,
            ),
        ),
        tolerance=(
            "strict, but for rounding: losses below 1e-24 of the first do not count; step 0 does"
            " not either, it is the bound"
        ),
        paper="<= 1",
        prediction="<= 1",
    ),
    Claim(
        "D-2",
        "Values alone, HD < Nn: the loss ends at the projection floor, above 0",
        "derived; what theorem 1 leaves out",
        (
            Check(
                "largest |last loss / floor - 1|, all sizes with HD < Nn",
                _over_sizes("values", False, _over_floor),
                "<=",
                1e-3,
                _arms("values"),
                every_seed=True,
                seeds=5,
            ),
            Check(
                "smallest floor / first loss, all sizes with HD < Nn",
                _over_sizes(
                    "values",
                    False,
                    lambda arm: arm.prediction["floor"] / at_start(arm.trajectory["loss"]),
                    "min",
                ),
                ">",
                0.0,
                _arms("values"),
                every_seed=True,
                seeds=5,
            ),
        ),
        tolerance="1e-3 relative, as specified",
        prediction="0",
    ),
    Claim(
        "D-3",
        "All trained, HD >= Nn: the bound holds at all steps, and the loss goes to 0, for both"
        " kernels",
        "Song 2024, theorem 1",
        (
            Check(
                "largest loss / bound, all sizes with HD >= Nn",
                _over_sizes("all", True, _over_bound),
                "<=",
                1.0,
                _arms("all"),
                every_seed=True,
                seeds=5,
            ),
            Check(
                "largest last loss / first loss, all sizes with HD >= Nn",
                _over_sizes("all", True, _fall),
                "<",
                1e-6,
                _arms("all"),
                every_seed=True,
                seeds=5,
            ),
        ),
        tolerance="strict; 1e-6, as specified",
        paper="global optimum",
        prediction="<= 1, and 0",
    ),
    Claim(
        "D-4",
        "All trained, HD < Nn: no guarantee, but training goes below the floor: HD >= Nn is not"
        " necessary",
        "beyond Song 2024, theorem 1",
        (
            Check(
                "largest last loss / floor of the start, all sizes with HD < Nn",
                _over_sizes("all", False, _below_floor),
                "<",
                1.0,
                _arms("all"),
                every_seed=True,
                seeds=5,
            ),
        ),
        tolerance="an order: attention that moves changes what values can reach",
        prediction="not stated",
    ),
)


# -- figures ---------------------------------------------------------------------------------------


def figures(record: Record) -> Sequence[Figure]:
    if record.sweeps:
        return ()
    return (_bounds(record), _grid(record))


def _bounds(record: Record) -> Figure:
    panels = []
    heads = 2 if 2 in record.config["heads"] else record.config["heads"][0]
    size = DIMENSIONS[2]
    for which, told in (("values", "values alone"), ("all", "all trained")):
        for kernel, name in KERNEL_TITLES.items():
            arm = record.arm(arm_name(kernel, which, heads))
            chosen = {"D": size}
            loss, bound = arm.trajectory["loss"].sel(chosen), arm.prediction["loss"].sel(chosen)
            lines = [over_seeds("measured loss", loss["step"], loss.transpose("seed", "step"))]
            typical = _geometric_mean(bound)
            lines.append(
                Line(
                    "bound (1 - eta beta)^t f_0, geometric mean",
                    bound["step"].values,
                    typical.values,
                    role="theory",
                )
            )
            panels.append(Panel(f"{name}, {told}", "step", "loss", tuple(lines), "log", "log"))
    caption = (
        f"Loss along training for D = {size:g} and {heads} heads, where HD = Nn just holds: mean"
        " over seeds with the range, and theorem 1's bound. The bound is true and far from tight:"
        " beta is the smallest singular value, squared."
    )
    return Figure(
        "kernels_convergence_bounds", "The loss stays below its bound", caption, tuple(panels)
    )


def _geometric_mean(values: xr.DataArray) -> xr.DataArray:
    return xr.ufuncs.exp(xr.ufuncs.log(values).mean("seed"))


def _grid(record: Record) -> Figure:
    panels = []
    for which, told in (("values", "values alone"), ("all", "all trained")):
        for kernel, name in KERNEL_TITLES.items():
            heads = record.config["heads"]
            rows = [
                _geometric_mean(_fall(record.arm(arm_name(kernel, which, number)))).values
                for number in heads
            ]
            cells = HeatMap(
                "last loss / first",
                np.asarray(DIMENSIONS),
                np.asarray(heads),
                np.asarray(rows),
                "log",
            )
            panels.append(Panel(f"{name}, {told}", "D", "heads", (cells,)))
    caption = (
        "Last loss over first, geometric mean over seeds, for every size; theorem 1 speaks of H x"
        f" D >= {_rows(record)}. With values alone the loss ends at the projection floor below"
        " that; with everything trained it is small there, too."
    )
    return Figure("kernels_convergence_grid", "Where training gets to", caption, tuple(panels))


DIVERGENCES = (
    Divergence(
        "factor and sum of the loss",
        "unreadable in the poster",
        "none released",
        "1/2 of the sum over sequences and vectors",
        "scales beta and the step together",
    ),
    Divergence(
        "output width",
        "unreadable",
        "none released",
        "1 a vector",
        "the formulas hold for any width up to d",
    ),
    Divergence(
        "start",
        "'there exists an initialization'",
        "none released",
        "X ~ N(0, 4/D), W^Q, W^K ~ N(0, 1/D), W^V ~ 0.1 N(0, 1/D), W^O ~ 4 N(0, 1/d)",
        "D-3 says that it is good enough",
    ),
    Divergence(
        "step size",
        "'there exists a stepsize'",
        "none released",
        "half of 1/(max ||W_h^O||^2 ||B_0||^2)",
        "above 1 of it the claims are undetermined: the theory asks for less",
    ),
)

STUDY = Study(
    name="kernels_convergence",
    title="Gradient descent on attention converges linearly",
    paper="Song, Han, Zhang, Ding & Hong 2024",
    presets={
        "quick": Config(seeds=5, heads=(2,), value_steps=60000, steps=6000),
        "paper": Config(),
    },
    experiment=experiment,
    claims=CLAIMS,
    figures=figures,
    divergences=DIVERGENCES,
    precision="float64",
)
