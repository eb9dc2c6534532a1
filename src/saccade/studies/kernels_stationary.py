"""Which kernel gives the queries a gradient, and where (Song, Han, Zhang, Ding & Hong 2024).

Only W^Q is trained, as in theorem 2. Softmax has no gradient where all keys are equal; the Gaussian
kernel has none far from its keys. "The Gaussian kernel is better" is thus a statement about the
initialisation. A phase diagram over scales of keys and queries shows which kernel trains where.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.study import Study, divergences
from saccade.figures.figure import Figure, HeatMap, Panel, curve
from saccade.judging.bound import Above, AbstractBound, AtMost, Below, Within
from saccade.judging.claim import Check, Claim
from saccade.judging.premises import require_premise
from saccade.judging.statistics import EverySeed, GeometricMean, Mean, log_slope
from saccade.models.attention_regression import query_curvature
from saccade.models.kernels import KERNEL_TITLES, KernelName
from saccade.probes.attention import AttentionSpread, AttentionStatistics
from saccade.probes.feature_matrix import FirstOrderQueries, ReachOfQueries
from saccade.probes.motion import GradientNorms
from saccade.records.record import Arms
from saccade.records.schedule import AtSteps, Logarithmic
from saccade.records.trajectory import at_start, first_step
from saccade.settings import require, require_count, require_positive, require_single, with_sweep
from saccade.studies._kernels import PAPER, AbstractKernelConfig, last_over_first, with_start
from saccade.tasks.random_sequences import RandomSequences
from saccade.theory.kernel_blindness import KernelBlindness
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe
from saccade.train.start import Seeds

Measured = Callable[..., xr.DataArray]
KEY_SCALES = (0.0, 0.01, 0.05, 0.2, 1.0)
QUERY_SCALES = (1.0, 5.0, 20.0)
WITHOUT_KEYS, WITH_KEYS = {"key_scale": 0.0}, {"key_scale": list(KEY_SCALES[1:])}
SMALL_KEYS, SMALLEST_KEYS = {"key_scale": list(KEY_SCALES[1:3])}, {"key_scale": KEY_SCALES[1]}
GENERIC = {"key_scale": 1.0}
"""The members on which claims about a generic initialisation rest."""
BOTH = ("gaussian", "softmax")
KINDS = ("keys", "queries", "matched", "phase")
"""Arms of a kernel: by key scale, by query scale, at matched curvature, and the phase diagram."""
TRAINED = 1e-3
"""A run has trained if its loss has fallen to this share."""


@dataclasses.dataclass(frozen=True)
class Config(AbstractKernelConfig):
    """Settings of the study."""

    dimension: int = 16
    """Dimension of the vectors (D)."""
    heads: int = 2
    """Heads (H)."""
    target_std: float = 0.3
    """Standard deviation of the noise added to the model's initial output to make the targets."""
    rate: float = 0.01
    """Learning rate; at 0.05 some Gaussian runs diverge."""
    steps: int = 6000
    """Steps of gradient descent on W^Q."""
    matched_share: float = 0.5
    """Learning rate x largest eigenvalue of the Hessian at the start, where kernels are matched."""
    matched_steps: int = 20000
    """Steps at matched curvature."""
    cells: int = 12
    """Scales of keys, and of queries, in the phase diagram."""
    phase_seeds: int = 20
    """Repetitions of every cell of the phase diagram."""
    phase_steps: int = 6000
    """Steps of every run of the phase diagram."""
    least_scale: float = 0.01
    """Smallest scale of the phase diagram."""
    largest_scale: float = 30.0
    """Largest scale of the phase diagram."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "dimension", "heads", "steps", "matched_steps")
        require_count(self, "phase_seeds", "phase_steps")
        require_single(self, "it is the end of a grid", "least_scale", "largest_scale")
        require_count(self, "cells", least=2)
        require_positive(self, "rate", "matched_share")
        require_positive(self, "least_scale", "value_scale", "output_scale")
        least = self.least_scale
        require(self, "largest_scale", "above the least scale", lambda value: value > least)


def experiment(config: Config, lab: Lab, kinds: Sequence[str] = KINDS) -> Arms:
    """Both kernels, with some kinds of arms."""
    seeds = {kind: Seeds(config.seeds, first=config.first_seed) for kind in kinds}
    seeds["phase"] = Seeds(config.phase_seeds, first=config.first_seed)
    arms = {}
    for kernel in KERNEL_TITLES:
        for kind, recipe in _recipes(config, kernel).items():
            if kind in kinds:
                arms |= lab.train({f"{kernel}_{kind}": recipe}, seeds[kind])
    if "softmax_keys" in arms:
        arm, theory = arms["softmax_keys"], KernelBlindness()
        predicted = theory.predict(arm.recipe.task, arm.recipe.model, with_start(arm))
        arms["softmax_keys"] = arm.with_prediction(predicted, theory.source)
    return arms


def _recipes(config: Config, kernel: KernelName) -> dict[str, Recipe]:
    """The trainings of a kernel, by kind."""
    sizes = (config.sequences, 1, config.positions, config.dimension, config.dimension)
    task = RandomSequences(*sizes, target_std=config.target_std)
    # A teacher that differs in W^Q only can be matched exactly, from any distance.
    taught = RandomSequences(*sizes, target_std=0.0)
    model = config.model(kernel, config.heads, "queries")
    model = dataclasses.replace(model, targets="start")
    student = dataclasses.replace(model, targets="teacher")
    grid = scales(config)
    descent = GradientDescent(config.rate)
    gradient, attention = GradientNorms(("queries",)), AttentionStatistics("train")
    keys = Recipe(
        task,
        with_sweep(model, "key_scale", KEY_SCALES),
        descent,
        config.steps,
        probes=(gradient, attention, AttentionSpread("train")),
        at=Logarithmic(60),
        ends=(ReachOfQueries(), FirstOrderQueries()),
    )
    queries = Recipe(
        taught,
        with_sweep(student, "query_scale", QUERY_SCALES),
        descent,
        config.steps,
        probes=(gradient, attention),
        at=Logarithmic(60),
    )
    matched = Recipe(
        task,
        model,
        GradientDescent(config.matched_share, curvature=query_curvature),
        config.matched_steps,
        probes=(attention,),
        at=Logarithmic(),
    )
    phase = Recipe(
        task,
        with_sweep(with_sweep(model, "key_scale", grid), "query_scale", grid),
        descent,
        config.phase_steps,
        at=AtSteps((0, config.phase_steps)),
    )
    return {"keys": keys, "queries": queries, "matched": matched, "phase": phase}


def scales(config: Config) -> list[float]:
    """Scales of the phase diagram, evenly spaced in their logarithm."""
    grid = np.geomspace(config.least_scale, config.largest_scale, config.cells)
    return [float(f"{scale:.3g}") for scale in grid]


# -- measures --------------------------------------------------------------------------------------


def _after_keys(kernel: str, arms: Arms, config: Config, at=WITHOUT_KEYS) -> xr.DataArray:
    """Last loss / first at one scale of the keys, under the theorem's premise HD >= Nn."""
    features = config.heads * config.dimension
    require_premise(
        features >= config.rows, "HD >= Nn", f"HD = {features} is below Nn = {config.rows}"
    )
    return last_over_first(arms[f"{kernel}_keys"]).sel(at, drop=True)


def _change(kernel: str, arms: Arms, config: Config) -> xr.DataArray:
    return abs(_after_keys(kernel, arms, config) - 1)


def _gradient(kernel: str, arms: Arms, config: Config, at=WITHOUT_KEYS) -> xr.DataArray:
    gradient = at_start(arms[f"{kernel}_keys"].trajectory["gradient_norm"])
    return gradient.sel(at).sel(part="queries", drop=True)


def _off_first_order(kernel: str, arms: Arms, config: Config) -> xr.DataArray:
    """|first gradient / its first order in the keys - 1| at the smallest scale."""
    predicted = arms[f"{kernel}_keys"].prediction["gradient_norm"]
    predicted = predicted.sel(SMALLEST_KEYS).sel(part="queries", drop=True)
    return abs(_gradient(kernel, arms, config, SMALLEST_KEYS) / predicted - 1)


def _slope(kernel: str, arms: Arms, config: Config) -> xr.DataArray:
    """Exponent of the first gradient in the scale of the keys."""
    gradient = _gradient(kernel, arms, config, WITH_KEYS)
    return log_slope(gradient["key_scale"], gradient, "key_scale")


def _slope_size(kernel: str, arms: Arms, config: Config) -> xr.DataArray:
    return abs(_slope(kernel, arms, config))


def _rate_slope(kernel: str, arms: Arms, config: Config, at=WITH_KEYS) -> xr.DataArray:
    """Exponent of the rate -log(f_T / f_0) / T in the scale of the keys."""
    rate = -xr.ufuncs.log(last_over_first(arms[f"{kernel}_keys"]).sel(at))
    return log_slope(rate["key_scale"], rate, "key_scale")


def _reach(kernel: str, arms: Arms, config: Config) -> xr.DataArray:
    """Least loss that queries can reach without keys, as a share of the first loss."""
    rows, size = config.rows, config.dimension
    require_premise(
        rows <= size,
        "no more vectors than dimensions, so that queries are independent",
        f"{rows} vectors in {size} dimensions: the queries are dependent",
    )
    start = at_start(arms[f"{kernel}_keys"].snapshot)
    return (start["reach_floor"] / start["loss"]).sel(WITHOUT_KEYS, drop=True)


def _reachable(kernel: str, arms: Arms, config: Config) -> xr.DataArray:
    """Last loss / first where 0 can be reached at all (the premise of theorem 2)."""
    return _after_keys(kernel, arms, config).where(_reach(kernel, arms, config) < 1e-12)


def _over_reach(kernel: str, arms: Arms, config: Config) -> xr.DataArray:
    return _after_keys(kernel, arms, config) - _reach(kernel, arms, config)


def _under_reach(kernel: str, arms: Arms, config: Config) -> xr.DataArray:
    return -_over_reach(kernel, arms, config)


def _after_queries(kernel: str, scale: float, arms: Arms) -> xr.DataArray:
    """Last loss / first at one scale of the queries."""
    return last_over_first(arms[f"{kernel}_queries"]).sel(query_scale=scale, drop=True)


def _unchanged(arms: Arms, config: Config) -> xr.DataArray:
    return abs(_after_queries("gaussian", 20.0, arms) - 1)


def _reversed(scale: float, arms: Arms, config: Config) -> xr.DataArray:
    """Orders of magnitude by which softmax's loss ends below that of the Gaussian kernel."""
    gaussian, softmax = (_after_queries(kernel, scale, arms) for kernel in BOTH)
    return xr.ufuncs.log10(gaussian / softmax)


def _step_ratio(arms: Arms, config: Config) -> xr.DataArray:
    """Steps until the loss has fallen to 1e-3 at equal rates, Gaussian / softmax."""
    return _ratio([arms[f"{kernel}_keys"].trajectory["loss"].sel(GENERIC) for kernel in BOTH])


def _matched_ratio(arms: Arms, config: Config) -> xr.DataArray:
    """The same at equal rate x curvature."""
    return _ratio([arms[f"{kernel}_matched"].trajectory["loss"] for kernel in BOTH])


def _ratio(losses: Sequence[xr.DataArray]) -> xr.DataArray:
    gaussian, softmax = (first_step(one < TRAINED * at_start(one), np.inf) for one in losses)
    return gaussian / softmax


def _only(kernel: str, other: str, arms: Arms, config: Config) -> xr.DataArray:
    """Share of the phase diagram's cells in which this kernel trains and the other does not."""
    this, that = (last_over_first(arms[f"{name}_phase"]) < TRAINED for name in (kernel, other))
    return (this & ~that).mean(("key_scale", "query_scale"))


def _check(
    kernel: KernelName, quantity: str, measure: Measured, bound: AbstractBound, **options: Any
) -> Check:
    """A check of the arm of a kernel in which the scale of the keys varies."""
    quantity, options = f"{KERNEL_TITLES[kernel]}: {quantity}", {"where": WITHOUT_KEYS, **options}
    return Check(quantity, partial(measure, kernel), bound, f"{kernel}_keys", **options)


def _lower(scale: float) -> Check:
    """For large queries softmax's loss ends lower."""
    quantity = f"queries {scale:g} times as large: orders of magnitude by which softmax's loss"
    where = {"query_scale": scale}
    return Check(f"{quantity} ends lower", partial(_reversed, scale), Above(0.0), where=where)


_over_keys, _three_seeds = partial(_check, where={}), partial(_check, statistic=EverySeed(3))
_claim = partial(Claim, statistic=EverySeed(5))
_generic, _after_generic = partial(_check, where=GENERIC), partial(_after_keys, at=GENERIC)
_small_slope = partial(_rate_slope, at=SMALL_KEYS)
UNSTATED = "as specified; the specification does not state the scale of W^V (here 1)"
CLAIMS = (
    _claim(
        "D-5",
        "If only the queries are trained and all keys are 0, softmax has no gradient and does not"
        " train; the Gaussian kernel reaches 0",
        "Song 2024, theorem 2 (in its simplest instance)",
        (
            _check("softmax", "norm of the first gradient", _gradient, AtMost(1e-12)),
            _check("softmax", "|last loss / first - 1|", _change, AtMost(1e-12)),
            _check("gaussian", "last loss / first", _after_keys, Below(1e-3)),
        ),
        f"1e-12 and 1e-3, {UNSTATED}. The rows of softmax are identities. The specification does"
        " not ask whether 0 can be reached (D-5b)",
        paper="softmax stationary, Gaussian global from a suitable initialisation",
        prediction="0, 0, and the reach of the queries, not always 0",
        reason="Without keys every vector gets one weight in (0, 1] per head: some targets cannot"
        " be reached. The loss then ends at the distance to the reach, the global optimum (D-5c).",
    ),
    _claim(
        "D-5b",
        "Without keys the Gaussian kernel reaches 0 whenever 0 can be reached",
        "Song 2024, theorem 2, with its premise that 0 can be reached",
        _three_seeds(
            "gaussian",
            "last loss / first if 0 is in reach",
            _reachable,
            Below(1e-3),
            left_out="theorem 2 assumes that 0 can be reached",
        ),
        "1e-3 as in D-5, for the seeds whose targets the queries can reach",
        paper="global optimum",
        prediction="0",
    ),
    _claim(
        "D-5c",
        "Without keys the Gaussian kernel ends at the global optimum over W^Q, the distance of the"
        " targets to its reach",
        "derived (src/saccade/theory/kernel_blindness.py)",
        (
            _check("gaussian", "(last loss - reach) / first loss", _over_reach, AtMost(0.05)),
            _check("gaussian", "(reach - last loss) / first loss", _under_reach, AtMost(1e-9)),
        ),
        "5 %: weights approach 0 or 1 slowly; below the optimum only by rounding",
        prediction="0",
    ),
    Claim(
        "D-6",
        "With keys of scale 0.01 to 1, softmax's first gradient is proportional to the scale and"
        " the rate at which its loss falls to its square; the Gaussian's gradient stays O(1)",
        "Song 2024, theorem 2 ('vanishing gradient issue in Softmax attention')",
        (
            _over_keys("softmax", "exponent of the first gradient", _slope, Within(0.7, 1.3)),
            _over_keys("gaussian", "|exponent| of the first gradient", _slope_size, AtMost(0.3)),
            _over_keys(
                "softmax", "exponent of the rate -log(f_T / f_0) / T", _rate_slope, Within(1.7, 2.3)
            ),
        ),
        f"1 +- 0.3, {UNSTATED}; the same +- 0.3 for the rate's exponent, 2, and the Gaussian's, 0",
        prediction="1, 0, and 2 as long as the queries have moved little",
        statistic=Mean(5),
        reason="The rate is of second order near equal keys only: D-6b asks it there.",
    ),
    Claim(
        "D-6b",
        "Near equal keys softmax's first gradient is that of first order in the keys, computed from"
        " the initial weights, and the rate is proportional to the square of the scale",
        "derived (src/saccade/theory/kernel_blindness.py); Song 2024, theorem 2",
        (
            _check(
                "softmax",
                f"|first gradient / first order - 1|, keys of scale {KEY_SCALES[1]:g}",
                _off_first_order,
                AtMost(0.01),
                where=SMALLEST_KEYS,
                statistic=EverySeed(5),
            ),
            _check(
                "softmax",
                f"exponent of the rate from {KEY_SCALES[1]:g} to {KEY_SCALES[2]:g}",
                _small_slope,
                Within(1.7, 2.3),
                where=SMALL_KEYS,
            ),
        ),
        "the next order, the scores, is below 0.01 at the smallest scale; 2 +- 0.3 as in D-6, but"
        " for the two smallest scales alone",
        prediction="0 and 2",
        statistic=Mean(5),
    ),
    Claim(
        "D-7",
        "For large queries the order reverses: the Gaussian does not train, softmax does in part",
        "beyond the poster: Song 2024 says that the Gaussian kernel is easier 'in some cases'",
        (
            *map(_lower, QUERY_SCALES[1:]),
            Check(
                "queries 20 times as large: Gaussian's |last loss / first - 1|",
                _unchanged,
                AtMost(1e-3),
                "gaussian_queries",
                EverySeed(),
            ),
        ),
        "an order, as specified; 1e-3 for 'unchanged'",
        prediction="the Gaussian's gradient is exponentially small",
        arms=("softmax_queries", "gaussian_queries"),
    ),
    _claim(
        "D-8",
        "From a generic initialisation both kernels train",
        "Song 2024, theorem 2",
        tuple(
            _generic(one, "last loss / first", _after_generic, Below(1e-3)) for one in KERNEL_TITLES
        ),
        f"1e-3, {UNSTATED}; D-8b and D-8d report the steps that it takes",
        paper="Gaussian easier",
        reason="One softmax run of 32 is still above the bound after the last step; its loss is"
        " falling. The Gaussian kernel is there in all.",
    ),
    Claim(
        "D-8b",
        "From a generic initialisation the Gaussian kernel needs fewer steps at matched curvature,"
        " with equal rate x largest eigenvalue of the Hessian at the start",
        "Song 2024, conclusion ('Gaussian kernel is easier than Softmax kernel in some cases')",
        Check("steps to 1e-3 at matched curvature, Gaussian / softmax", _matched_ratio, Below(1.0)),
        "an order; the specification asks for a report of the steps",
        paper="easier in some cases",
        arms=("softmax_matched", "gaussian_matched"),
        statistic=GeometricMean(5),
    ),
    Claim(
        "D-8d",
        "From a generic initialisation the Gaussian kernel needs fewer steps at an equal rate",
        "Song 2024, conclusion ('Gaussian kernel is easier than Softmax kernel in some cases')",
        Check("steps to 1e-3, Gaussian / softmax", _step_ratio, Below(1.0), where=GENERIC),
        "an order; equal rates favour the kernel with the larger curvature, against D-8b",
        paper="easier in some cases",
        arms=("softmax_keys", "gaussian_keys"),
        statistic=GeometricMean(5),
        reason="One softmax run does not get there (D-8): its steps count as infinite, the ratio"
        " is 0 and has no logarithm. The ratios of all others are below 1.",
    ),
    Claim(
        "D-8c",
        "Neither kernel is better everywhere: each trains where the other does not",
        "beyond the poster: the phase diagram",
        tuple(
            Check(f"share of cells in which only {name} trains", partial(_only, *both), Above(0.02))
            for name, both in (("the Gaussian", BOTH), ("softmax", BOTH[::-1]))
        ),
        "2 % of the cells, three of 144: more than single runs at a boundary",
        prediction="small keys; large keys",
        arms=("gaussian_phase", "softmax_phase"),
        statistic=EverySeed(),
        reason="In one seed of 20 there is no cell in which only the Gaussian trains; in the"
        " others, and for softmax in all, there are enough.",
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return _phase_figure(arms, config), _key_figure(arms, config), _query_figure(arms)


def _phase_figure(arms: Arms, config: Config) -> Figure:
    shares = {}
    for kernel, title in KERNEL_TITLES.items():
        trains = last_over_first(arms[f"{kernel}_phase"]) < TRAINED
        shares[title] = trains.mean("seed").transpose("query_scale", "key_scale")
    maps = [(title, "share of seeds that train", share) for title, share in shares.items()]
    difference = shares["Gaussian"] - shares["softmax"]
    panels = []
    for title, label, share in (*maps, ("which kernel trains", "Gaussian - softmax", difference)):
        cells = HeatMap(label, share["key_scale"].values, share["query_scale"].values, share.values)
        panels.append(Panel(title, "scale of the keys", "scale of the queries", (cells,)))
    caption = (
        "Phase diagram: share of seeds whose loss falls below 1e-3 of its first value, over the"
        f" initial scales of keys and queries ({config.phase_seeds} seeds per cell, only W^Q"
        " trained)."
    )
    return Figure("kernels_stationary_phase", "Which kernel trains where", caption, tuple(panels))


def _key_figure(arms: Arms, config: Config) -> Figure:
    gradients, losses = [], []
    for kernel, label in KERNEL_TITLES.items():
        gradients.append(curve(label, _gradient(kernel, arms, config, WITH_KEYS)))
        last = last_over_first(arms[f"{kernel}_keys"]).sel(WITH_KEYS)
        losses.append(curve(label, last.clip(1e-12)))
    predicted = arms["softmax_keys"].prediction["gradient_norm"].sel(WITH_KEYS)
    predicted = predicted.sel(part="queries").mean("seed")
    gradients.append(curve("first order in the keys", predicted, "theory"))
    panels = tuple(
        Panel(title, "scale of the keys", label, tuple(lines), "log", "log")
        for title, label, lines in (
            ("first gradient of W^Q", "norm of the gradient", gradients),
            ("after training", "last loss / first (not below 1e-12)", losses),
        )
    )
    caption = "Softmax has no gradient at equal keys: first gradient and last loss by key scale."
    return Figure("kernels_stationary_keys", "Small keys", caption, panels)


def _query_figure(arms: Arms) -> Figure:
    panels = []
    for scale in QUERY_SCALES:
        lines = []
        for kernel, label in KERNEL_TITLES.items():
            loss = arms[f"{kernel}_queries"].trajectory["loss"].sel(query_scale=scale)
            lines.append(curve(label, (loss / at_start(loss)).clip(1e-15)))
        labels = (f"queries {scale:g} times as large", "step", "loss / first (not below 1e-15)")
        panels.append(Panel(*labels, tuple(lines), "log", "log"))
    caption = (
        "The Gaussian kernel has no gradient far from its keys: loss along training for larger and"
        " larger queries, with the targets of a teacher."
    )
    return Figure("kernels_stationary_queries", "Large queries", caption, tuple(panels))


DIVERGENCES = divergences(
    """
    theorem 2 | its text is cut in the poster | none released | W^Q alone, targets near the initial
        output | D-5 and D-6 test the simplest form of the abstract's statement
    zero loss | assumed to be reachable | none released | checked: `ReachOfQueries` | without keys
        some draws cannot reach it: D-5 counts them, D-5b leaves them out
    step size | not stated | none released | 0.01; in D-8b 0.5 / largest eigenvalue of the Hessian |
        which kernel is faster may depend on it (D-8b, D-8d)
    conclusion | 'Gaussian is easier in some cases' | none released | a phase diagram | it reverses
        for large queries (D-7, D-8c)
    scale of the frozen values | not stated | none released | 1, against 0.1 in kernels_convergence
        | the loss reaches W^Q through the values, so their scale sets the speed
    """
)

QUICK = Config(seeds=8, rate=0.02, steps=3000, matched_steps=4000, phase_seeds=3, phase_steps=1000)
PRESETS = {"quick": QUICK, "paper": Config(first_seed=1000)}
ABOUT = ("kernels_stationary", "Where softmax and Gaussian kernels stop training", PAPER)
MORE: Any = {"divergences": DIVERGENCES, "precision": "float64"}
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, **MORE)
