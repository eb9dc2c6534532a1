"""Is the loss of Gaussian attention smoother than that of softmax? (Song, Han, Zhang, Ding & Hong
2024, figure 3)

A transformer is trained with softmax, then for some steps with either kernel from the same weights.
Then the loss is evaluated over planes: one direction in the weights of the queries, one in those of
the keys. Roughness is counted in three ways. A plane shows two of many directions, so the largest
eigenvalues of the Hessian are measured as well.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.study import Study, divergences
from saccade.figures.figure import Figure, HeatMap, Panel, curve
from saccade.judging.bound import Above, AtLeast
from saccade.judging.claim import Check, Claim
from saccade.judging.premises import require_premise
from saccade.judging.statistics import Mean
from saccade.models.kernels import KERNEL_TITLES
from saccade.probes.landscape import LossPlane
from saccade.records.record import Arm, Arms
from saccade.records.schedule import Every
from saccade.records.trajectory import at_place
from saccade.settings import require_count, require_positive
from saccade.studies import kernels_training
from saccade.studies._encoders import (
    AT_SIZE,
    LEARNED,
    POSTERS,
    TITLES,
    AbstractEncoderConfig,
)
from saccade.studies._kernels import PAPER
from saccade.studies._tables import table
from saccade.train.lab import Lab

NEGATIVE = 1e-3
"""Share of the range of a plane's losses below minus which a curvature counts as negative."""
MOVES = ("query_move", "key_move")
LEVELS = 12
"""Colours of a contour map."""


@dataclasses.dataclass(frozen=True)
class Config(AbstractEncoderConfig):
    """Settings of the study; the first stage is that of `kernels_training`."""

    more_steps: int = 100
    """Steps of the second stage, with either kernel."""
    points: int = 31
    """Points of a plane in each direction."""
    reach: float = 1.0
    """How far weights are moved, in their own norms."""
    draws: int = 5
    """Pairs of directions."""
    examples: int = 128
    """Held-out examples of a plane's losses."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "more_steps", "draws", "examples")
        require_count(self, "points", least=5)
        require_positive(self, "reach")


def experiment(config: Config, lab: Lab) -> Arms:
    plane = LossPlane(config.points, config.reach, config.draws, config.examples)
    arms = {}
    for task in config.chosen:
        first = config.recipe(task, POSTERS[task], "softmax")
        arms |= lab.train({f"{task}_first": first}, config.seed_numbers)
        for kernel in KERNEL_TITLES:
            name = f"{task}_{kernel}"
            second = dataclasses.replace(
                first,
                model=config.encoder(kernel),
                optimiser=config.optimiser(task, POSTERS[task]),
                steps=config.more_steps,
                at=Every(max(1, config.more_steps // 10)),
            )
            arm = lab.train({name: second}, config.seed_numbers, start=arms[f"{task}_first"])[name]
            # The planes of the last weights alone: a training would measure the first ones as well.
            measured = dataclasses.replace(second, steps=0, probes=(), ends=(plane,), sample=None)
            planes = lab.train({f"{name}, planes": measured}, config.seed_numbers, start=arm)
            snapshot = planes[f"{name}, planes"].snapshot
            arms[name] = dataclasses.replace(arm, snapshot=snapshot)
    return arms


# -- roughness -------------------------------------------------------------------------------------


def minima(loss: np.ndarray) -> np.ndarray:
    """Number of points within a plane that are lower than all eight neighbours."""
    inner = loss[..., 1:-1, 1:-1]
    lower = np.ones(inner.shape, bool)
    for row, column in product((-1, 0, 1), repeat=2):
        if row or column:
            lower &= inner < _shifted(loss, row, column)
    return lower.sum((-2, -1))


def negative_share(loss: np.ndarray) -> np.ndarray:
    """Share of the points within a plane where the second differences have an eigenvalue below
    -0.001 times the range.
    """
    along, across, mixed = _second_differences(loss)
    lowest = (along + across) / 2 - np.hypot((along - across) / 2, mixed)
    return np.mean(lowest < -NEGATIVE * _range(loss)[..., None, None], (-2, -1))


def bend(loss: np.ndarray) -> np.ndarray:
    """Mean size of the discrete Laplacian, over the range; NaN for a flat plane."""
    along, across, _ = _second_differences(loss)
    span = _range(loss)
    return np.mean(np.abs(along + across), (-2, -1)) / np.where(span > 0, span, np.nan)


ROUGHNESS: Mapping[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "minima": ("local minima", minima),
    "negative_share": ("share of negative curvature", negative_share),
    "bend": ("mean |Laplacian| / range", bend),
}


def _shifted(loss: np.ndarray, row: int, column: int) -> np.ndarray:
    rows, columns = loss.shape[-2:]
    return loss[..., 1 + row : rows - 1 + row, 1 + column : columns - 1 + column]


def _second_differences(loss: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    at = partial(_shifted, loss)
    along, across = at(1, 0) - 2 * at(0, 0) + at(-1, 0), at(0, 1) - 2 * at(0, 0) + at(0, -1)
    return along, across, (at(1, 1) - at(1, -1) - at(-1, 1) + at(-1, -1)) / 4


def _range(loss: np.ndarray) -> np.ndarray:
    return np.ptp(loss, axis=(-2, -1))


def roughness(arm: Arm, name: str) -> xr.DataArray:
    """One measure at the end of the second stage, mean over draws."""
    planes = arm.snapshot["plane_loss"].isel(step=-1).transpose(..., "draw", *MOVES)
    measured = ROUGHNESS[name][1](planes.values.astype(float))
    return (
        planes.isel(dict.fromkeys(MOVES, 0), drop=True)
        .copy(data=measured)
        .mean("draw", skipna=False)
    )


# -- claims ----------------------------------------------------------------------------------------


def _excess(task: str, arms: Arms) -> xr.DataArray:
    """Each measure of softmax less that of the Gaussian kernel; NaN for a seed with a plane that is
    flat or not finite.
    """
    last = at_place(arms[f"{task}_first"].trajectory["test_accuracy"], -1).mean("seed")
    require_premise(
        bool((last > LEARNED).any()),
        f"{TITLES[task]}: softmax is above chance ({LEARNED:g})",
        f"{TITLES[task]}: softmax is not above chance ({LEARNED:g})",
    )
    softmax, gaussian = (
        xr.concat([roughness(arms[f"{task}_{kernel}"], name) for name in ROUGHNESS], "measure")
        for kernel in KERNEL_TITLES
    )
    found = softmax - gaussian
    return found.where(found.notnull().all("measure") & (last > LEARNED))


def _votes(task: str, arms: Arms, config: Config) -> xr.DataArray:
    """How many of the three measures find softmax at least as rough as the Gaussian kernel."""
    del config
    excess = _excess(task, arms)
    return (excess >= 0).where(excess.notnull()).sum("measure", skipna=False)


def _balance(task: str, arms: Arms, config: Config) -> xr.DataArray:
    """How many find softmax rougher, less how many find it smoother."""
    del config
    return xr.apply_ufunc(np.sign, _excess(task, arms)).sum("measure", skipna=False)


def _planes_of(points: int, examples: int, config: Config) -> bool:
    enough = config.points >= points and config.examples >= examples and config.draws >= 5
    return enough and config.more_steps >= 100 and config.reach == 1


WHOLE = (
    lambda config: kernels_training.WHOLE[0](config) and _planes_of(31, 128, config),
    "both tasks at their size, as many steps as in the preset paper, and its planes",
)
WORDS = (
    lambda config: kernels_training.WORDS[0](config) and _planes_of(21, 64, config),
    "reviews of 128 words, 2,500 and 100 steps, and planes as in the preset small",
)
RELATIVE = "The measures are relative to the range of a plane, which differs between kernels"
CLAIMS = (
    Claim(
        "D-10",
        "After training with softmax, the loss of softmax over planes of queries and keys is at"
        " least as rough as that of the Gaussian kernel",
        "Song 2024, figure 3",
        tuple(
            Check(
                f"measures of three by which softmax is as rough or rougher, {TITLES[task]}",
                partial(_votes, task),
                AtLeast(2.0),
                tuple(f"{task}_{name}" for name in ("first", *KERNEL_TITLES)),
            )
            for task in AT_SIZE
        ),
        "two of three measures, for both tasks, means over five draws, as specified, where ties"
        " count for softmax; here the mean over seeds of their number. Undetermined if softmax has"
        f" not learned. {RELATIVE}",
        paper="the contours of softmax look rougher",
        statistic=Mean(3),
        full_size=WHOLE,
    ),
    Claim(
        "D-10b",
        "On reviews as words, after training a transformer with softmax, the loss of softmax over"
        " planes of queries and keys is rougher than that of the Gaussian kernel",
        kernels_training.SIZE,
        Check(
            f"measures of three by which softmax is rougher less those by which it is smoother,"
            f" {TITLES['words']}",
            partial(_balance, "words"),
            Above(0.0),
            tuple(f"words_{name}" for name in ("first", *KERNEL_TITLES)),
        ),
        "an order, where ties count for neither; means over five draws; undetermined if softmax has"
        f" not learned. {RELATIVE}",
        statistic=Mean(3),
        full_size=WORDS,
    ),
)


# -- figures ---------------------------------------------------------------------------------------


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return _planes(arms, config), _measures(arms, config), _eigenvalues(arms, config)


def _planes(arms: Arms, config: Config) -> Figure:
    panels = []
    for task, kernel in product(config.chosen, KERNEL_TITLES):
        planes = arms[f"{task}_{kernel}"].snapshot["plane_loss"].isel(step=-1, seed=0, draw=0)
        planes = planes.transpose(*reversed(MOVES))
        query, key = (np.round(planes[name].values, 2) for name in MOVES)
        values = planes.values.astype(float)
        cells = HeatMap("loss", query, key, values, "log", numbered=False, levels=LEVELS)
        title = f"{TITLES[task]}, {KERNEL_TITLES[kernel]}"
        sides = ("move of the queries' weights", "move of the keys' weights")
        panels.append(Panel(title, *sides, (cells,)))
    caption = (
        "Loss on held-out examples over a plane through the weights, in units of their own norms:"
        f" first seed, first draw, after {config.more_steps} steps with either kernel."
    )
    title = "Loss over planes of queries and keys"
    return Figure("kernels_landscape_planes", title, caption, tuple(panels))


def _measures(arms: Arms, config: Config) -> Figure:
    def ends(arm: Arm, measure: str) -> list[xr.DataArray]:
        if measure in ROUGHNESS:
            return [roughness(arm, measure)]
        return [at_place(arm.trajectory[measure], step) for step in (0, -1)]

    later = f"{config.more_steps} steps later"
    titles = {name: title for name, (title, _) in ROUGHNESS.items()} | {"test_loss": "test loss"}
    panels = []
    for measure, title in titles.items():
        rows = {
            f"{TITLES[task]}, {KERNEL_TITLES[kernel]}": ends(arms[f"{task}_{kernel}"], measure)
            for task, kernel in reversed([*product(config.chosen, KERNEL_TITLES)])
        }
        columns = [later] if measure in ROUGHNESS else ["same weights", later]
        panels.append(Panel(title, "", "", (table("", columns, rows, 3),)))
    caption = (
        "Roughness of the planes at the end of the second stage (mean over draws), and test loss"
        " there and at the weights that softmax has left, when only the kernel differs: means over"
        " seeds with intervals."
    )
    return Figure("kernels_landscape_roughness", "Roughness", caption, tuple(panels))


def _eigenvalues(arms: Arms, config: Config) -> Figure:
    panels = []
    for task in config.chosen:
        first = arms[f"{task}_first"].trajectory["hessian_eigenvalue"].isel(place=0, drop=True)
        panels.append(
            Panel(
                f"{TITLES[task]}, first stage",
                "step",
                "largest eigenvalue",
                (curve("softmax", first),),
                y_scale="log",
            )
        )
        lines = tuple(
            curve(
                f"{KERNEL_TITLES[kernel]} after softmax",
                arms[f"{task}_{kernel}"].trajectory["hessian_eigenvalue"].isel(place=0, drop=True),
            )
            for kernel in KERNEL_TITLES
        )
        panels.append(
            Panel(
                f"{TITLES[task]}, second stage", "step", "largest eigenvalue", lines, y_scale="log"
            )
        )
    caption = (
        "Largest eigenvalue of the Hessian of the loss on a few training examples: mean over seeds"
        " with the range."
    )
    title = "The largest eigenvalue of the Hessian along training"
    return Figure("kernels_landscape_eigenvalues", title, caption, tuple(panels))


DIVERGENCES = divergences(
    """
    second stage | '?00' steps, the digit is unreadable | none released | 100 steps | the start of
        the Gaussian kernel, whose loss is far off when only the kernel has changed
    optimiser of the second stage | not stated | none released | new, at the same rate without a
        rise | none known
    directions | axes are W^Q and W^K | none released | N(0, 1), scaled to the norm of every matrix,
        both layers moved together; the same for both kernels | D-10
    roughness | by eye | none released | three counts, on the losses of 128 held-out examples in
        float32, at 31 x 31 points (preset small: 64, 21 x 21) | D-10
    first stage | 20,000 steps with softmax | none released | as in `kernels_training` (15,000 steps
        on pictures) | its divergences
    """
)


def _first_stage(preset: str) -> dict[str, Any]:
    """The settings that both studies share."""
    fields = dataclasses.fields(AbstractEncoderConfig)
    return {one.name: getattr(kernels_training.PRESETS[preset], one.name) for one in fields}


QUICK = Config(
    **_first_stage("quick"),
    more_steps=4,
    points=5,
    draws=2,
    examples=16,
)
TWO_CORES = Config(**_first_stage("small"), points=21, examples=64)
"""Beyond the first stage, about half an hour on two cores."""
PRESETS = {"quick": QUICK, "small": TWO_CORES, "paper": Config(first_seed=1000)}
ABOUT = ("kernels_landscape", "Is the loss of Gaussian attention smoother?", PAPER)
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
