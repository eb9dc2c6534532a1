"""Which kernel gives the queries a gradient, and where (Song, Han, Zhang, Ding & Hong 2024).

Only W^Q is trained, as in theorem 2. Softmax has no gradient where all keys are equal; the Gaussian
kernel has none far from its keys. "The Gaussian kernel is better" is thus a statement about the
initialisation. The phase diagram over the scales of keys and queries shows which kernel trains
where.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import xarray as xr

from saccade.core.bound import Above, AbstractBound, AtMost, Below, Within
from saccade.core.claim import Check, Claim, PremiseNotMetError
from saccade.core.figure import Figure, HeatMap, Panel, over_seeds
from saccade.core.lab import Lab
from saccade.core.optimiser import GradientDescent
from saccade.core.record import Arm
from saccade.core.schedule import AtSteps, Logarithmic, Recording
from saccade.core.statistics import EverySeed, log_slope
from saccade.core.study import Study
from saccade.core.sweep import require, require_count, require_positive, require_single, with_sweep
from saccade.core.trajectory import at_start, first_step
from saccade.models.kernels import KERNEL_TITLES, KernelName
from saccade.probes.feature_matrix import ReachOfQueries
from saccade.probes.motion import GradientNorms
from saccade.studies._kernels import AbstractKernelConfig, last_over_first, no_code
from saccade.tasks.random_sequences import RandomSequences
from saccade.theory.kernel_blindness import KernelBlindness

KEY_SCALES = (0.0, 0.01, 0.05, 0.2, 1.0)
QUERY_SCALES = (1.0, 5.0, 20.0)
WITHOUT_KEYS, GENERIC = {"key_scale": 0.0}, {"key_scale": 1.0}
"""The members on which claims about zero keys, and about a generic initialisation, rest."""
GAUSSIAN_SOFTMAX = ("gaussian", "softmax")
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
    """Standard deviation of the noise that is added to the model's initial output to make the
    targets.
    """
    rate: float = 0.01
    """Learning rate; at 0.05 some Gaussian runs diverge."""
    steps: int = 6000
    """Steps of gradient descent on W^Q."""
    cells: int = 12
    """Scales of keys, and of queries, in the phase diagram."""
    phase_seeds: int = 10
    """Repetitions of every cell of the phase diagram."""
    phase_steps: int = 6000
    """Steps of every run of the phase diagram."""
    least_scale: float = 0.01
    """Smallest scale of the phase diagram."""
    largest_scale: float = 30.0
    """Largest scale of the phase diagram."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "dimension", "heads", "steps", "phase_seeds", "phase_steps")
        require_single(self, "it is the end of a grid", "least_scale", "largest_scale")
        require_count(self, "cells", least=2)
        require_positive(self, "rate", "least_scale", "value_scale", "output_scale")
        least = self.least_scale
        require(self, "largest_scale", "above the least scale", lambda value: value > least)


def experiment(config: Config, lab: Lab) -> Mapping[str, Arm]:
    size = config.dimension
    task = RandomSequences(
        config.sequences, 1, config.positions, size, float(size), target_std=config.target_std
    )
    # A teacher that differs in W^Q only can be matched exactly, from any distance.
    taught = dataclasses.replace(task, target_std=0.0)
    descent = GradientDescent(config.rate)
    gradient = GradientNorms(("queries",))
    key_record = Recording((gradient, ReachOfQueries()), Logarithmic(60))
    query_record = Recording((gradient,), Logarithmic(60))
    phase_record = Recording(at=AtSteps((0, config.phase_steps)))
    grid = {f"model.{name}_scale": scales(config) for name in ("key", "query")}
    steps, total, seeds = config.steps, config.phase_steps, config.seeds
    arms = {}
    for kernel in KERNEL_TITLES:
        name = f"kernels_stationary {kernel}"
        model = config.model(kernel, config.heads, ("queries",))
        model = dataclasses.replace(model, targets="start")
        student = dataclasses.replace(model, targets="teacher")
        swept = with_sweep(model, "key_scale", KEY_SCALES)
        keys = lab.train(task, swept, descent, steps, key_record, seeds=seeds, name=f"{name}, keys")
        swept = with_sweep(student, "query_scale", QUERY_SCALES)
        queries = lab.train(
            taught, swept, descent, steps, query_record, seeds=seeds, name=f"{name}, queries"
        )
        label, repeats = f"{name}, phase diagram", config.phase_seeds
        phase = lab.train(
            task, model, descent, total, phase_record, seeds=repeats, sweep=grid, name=label
        )
        predicted = KernelBlindness().predict(task, model, keys.trajectory)
        arms[f"{kernel}_keys"] = (
            Arm.of(keys, predicted, KernelBlindness.source) if kernel == "softmax" else Arm.of(keys)
        )
        arms[f"{kernel}_queries"] = Arm.of(queries)
        arms[f"{kernel}_phase"] = Arm.of(phase)
    return arms


def scales(config: Config) -> list[float]:
    """Scales of the phase diagram, evenly spaced in their logarithm."""
    grid = np.geomspace(config.least_scale, config.largest_scale, config.cells)
    return [float(f"{scale:.3g}") for scale in grid]


# -- measures --------------------------------------------------------------------------------------


def _after_keys(
    kernel: str, arms: Mapping[str, Arm], config: Config, scale: float = 0.0
) -> xr.DataArray:
    """Last loss / first at one scale of the keys, under the theorem's premise HD >= Nn."""
    features = config.heads * config.dimension
    if features < config.rows:
        raise PremiseNotMetError(f"HD = {features} is below Nn = {config.rows}")
    return last_over_first(arms[f"{kernel}_keys"]).sel(key_scale=scale, drop=True)


def _change(kernel: str, arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    return abs(_after_keys(kernel, arms, config) - 1)


def _gradients(kernel: str, arms: Mapping[str, Arm]) -> xr.DataArray:
    gradient = at_start(arms[f"{kernel}_keys"].trajectory["gradient_norm"])
    return gradient.sel(part="queries", drop=True)


def _gradient(kernel: str, arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    return _gradients(kernel, arms).sel(WITHOUT_KEYS)


def _slope(kernel: str, arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    """Exponent of the first gradient in the scale of the keys."""
    gradient = _gradients(kernel, arms).sel(key_scale=list(KEY_SCALES[1:]))
    return log_slope(gradient["key_scale"], gradient, "key_scale")


def _slope_size(kernel: str, arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    return abs(_slope(kernel, arms, config))


def _smallest_gain(kernel: str, arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    """Smallest gain in log10 of the last loss from one scale of the keys to the next."""
    lasts = last_over_first(arms[f"{kernel}_keys"]).sel(key_scale=list(KEY_SCALES[1:]))
    return -xr.ufuncs.log10(lasts).diff("key_scale").max("key_scale")


def _reach(kernel: str, arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    """Least loss that queries can reach without keys, as a share of the first loss."""
    if config.rows > config.dimension:
        raise PremiseNotMetError(
            f"{config.rows} vectors in {config.dimension} dimensions: queries are not independent"
        )
    trajectory = arms[f"{kernel}_keys"].trajectory
    share = at_start(trajectory["reach_floor"]) / at_start(trajectory["loss"])
    return share.sel(WITHOUT_KEYS, drop=True)


def _where_reachable(kernel: str, arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    """Last loss / first where 0 can be reached at all (the premise of theorem 2)."""
    return _after_keys(kernel, arms, config).where(_reach(kernel, arms, config) < 1e-12)


def _over_reach(kernel: str, arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    return _after_keys(kernel, arms, config) - _reach(kernel, arms, config)


def _under_reach(kernel: str, arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    return -_over_reach(kernel, arms, config)


def _after_queries(kernel: str, scale: float, arms: Mapping[str, Arm]) -> xr.DataArray:
    """Last loss / first at one scale of the queries."""
    return last_over_first(arms[f"{kernel}_queries"]).sel(query_scale=scale, drop=True)


def _unchanged(arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    return abs(_after_queries("gaussian", 20.0, arms) - 1)


def _reversed(scale: float, arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    """Orders of magnitude by which softmax's loss ends below that of the Gaussian kernel."""
    gaussian, softmax = (_after_queries(kernel, scale, arms) for kernel in GAUSSIAN_SOFTMAX)
    return xr.ufuncs.log10(gaussian / softmax)


def _step_ratio(arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    """Steps until the loss has fallen to 1e-3, Gaussian / softmax."""
    gaussian, softmax = (
        arms[f"{kernel}_keys"].trajectory["loss"].sel(GENERIC, drop=True)
        for kernel in GAUSSIAN_SOFTMAX
    )
    return _steps_to_train(gaussian) / _steps_to_train(softmax)


def _steps_to_train(loss: xr.DataArray) -> xr.DataArray:
    return first_step(loss < TRAINED * at_start(loss), never=np.inf)


def _only(kernel: str, other: str, arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    """Share of the phase diagram's cells in which this kernel trains and the other does not."""
    this, that = (last_over_first(arms[f"{name}_phase"]) < TRAINED for name in (kernel, other))
    return (this & ~that).mean(("key_scale", "query_scale"))


def _check(
    kernel: KernelName,
    quantity: str,
    measure: Callable[..., xr.DataArray],
    bound: AbstractBound,
    where: Mapping[str, float] = WITHOUT_KEYS,
    statistic: EverySeed | None = None,
) -> Check:
    """A check of the arm of a kernel in which the scale of the keys varies."""
    quantity = f"{KERNEL_TITLES[kernel]}: {quantity}"
    return Check(quantity, partial(measure, kernel), bound, f"{kernel}_keys", statistic, where)


CLAIMS = (
    Claim(
        "D-5",
        "If only the queries are trained and all keys are 0, softmax has no gradient and does not"
        " train; the Gaussian kernel reaches 0 whenever 0 can be reached",
        "Song 2024, theorem 2 (in its simplest instance)",
        (
            _check("softmax", "norm of the first gradient", _gradient, AtMost(1e-12)),
            _check("softmax", "|last loss / first - 1|", _change, AtMost(1e-12)),
            _check(
                "gaussian",
                "last loss / first, where 0 can be reached",
                _where_reachable,
                Below(1e-3),
                statistic=EverySeed(),
            ),
        ),
        tolerance="1e-12 and 1e-3, as specified",
        paper="softmax stationary, Gaussian global",
        prediction="0, 0, and 0 where the targets can be reached",
        statistic=EverySeed(5),
    ),
    Claim(
        "D-5b",
        "Without keys the Gaussian kernel reaches 0 from every initialisation",
        "Song 2024, theorem 2, without its premise that 0 can be reached",
        _check("gaussian", "last loss / first", _after_keys, Below(1e-3)),
        tolerance="1e-3, as for D-5",
        paper="from a suitable initialisation",
        prediction="the reach of the queries, not always 0",
        statistic=EverySeed(5),
        expected="fails",
        reason=(
            "Without keys every vector gets one weight in (0, 1] per head, so some targets cannot"
            " be reached. The loss then ends at the distance to the reach, which is still the"
            " global optimum (D-5c)."
        ),
    ),
    Claim(
        "D-5c",
        "Without keys the Gaussian kernel ends at the global optimum over W^Q, the distance of the"
        " targets to its reach",
        "derived (src/saccade/theory/kernel_blindness.py)",
        (
            _check("gaussian", "(last loss - reach) / first loss", _over_reach, AtMost(0.05)),
            _check("gaussian", "(reach - last loss) / first loss", _under_reach, AtMost(1e-9)),
        ),
        tolerance="5 %: weights approach 0 or 1 slowly; below the optimum only by rounding",
        prediction="0",
        statistic=EverySeed(5),
    ),
    Claim(
        "D-6",
        "Near equal keys softmax's gradient is proportional to the scale of the keys; that of the"
        " Gaussian kernel does not vanish",
        "Song 2024, theorem 2 ('vanishing gradient issue in Softmax attention')",
        (
            _check("softmax", "exponent of the first gradient", _slope, Within(0.7, 1.3), {}),
            _check("gaussian", "|exponent| of the first gradient", _slope_size, AtMost(0.3), {}),
            _check(
                "softmax",
                "smallest gain in orders of magnitude of the last loss from one scale to the next",
                _smallest_gain,
                Above(0.0),
                {},
                EverySeed(),
            ),
        ),
        tolerance="1 +- 0.3, as specified",
        prediction="1 and 0",
    ),
    Claim(
        "D-7",
        "For large queries the order reverses: the Gaussian kernel does not train, softmax recovers"
        " in part",
        "beyond the poster: Song 2024 says that the Gaussian kernel is easier 'in some cases'",
        (
            *(
                Check(
                    f"queries {scale:g} times as large: orders of magnitude by which softmax's loss"
                    " ends lower",
                    partial(_reversed, scale),
                    Above(0.0),
                    where={"query_scale": scale},
                )
                for scale in QUERY_SCALES[1:]
            ),
            Check(
                "queries 20 times as large: Gaussian's |last loss / first - 1|",
                _unchanged,
                AtMost(1e-3),
                "gaussian_queries",
                EverySeed(),
            ),
        ),
        tolerance="an order; 1e-3 for 'unchanged'",
        prediction="the Gaussian's gradient is exponentially small",
        arms=("softmax_queries", "gaussian_queries"),
    ),
    Claim(
        "D-8",
        "From a generic initialisation both kernels train",
        "Song 2024, theorem 2",
        tuple(
            _check(
                kernel, "last loss / first", partial(_after_keys, scale=1.0), Below(1e-3), GENERIC
            )
            for kernel in KERNEL_TITLES
        ),
        tolerance="1e-3, as specified",
        paper="Gaussian easier",
        statistic=EverySeed(5),
    ),
    Claim(
        "D-8b",
        "From a generic initialisation the Gaussian kernel needs fewer steps",
        "Song 2024, conclusion ('training a transformer with Gaussian kernel is easier than Softmax"
        " kernel in some cases')",
        Check("steps to 1e-3, Gaussian / softmax", _step_ratio, Below(1.0), where=GENERIC),
        tolerance="an order",
        paper="easier in some cases",
        arms=("softmax_keys", "gaussian_keys"),
    ),
    Claim(
        "D-8c",
        "Neither kernel is better everywhere: each trains where the other does not",
        "beyond the poster: the phase diagram",
        tuple(
            Check(f"share of cells in which only {name} trains", partial(_only, *both), Above(0.02))
            for name, both in (
                ("the Gaussian", GAUSSIAN_SOFTMAX),
                ("softmax", GAUSSIAN_SOFTMAX[::-1]),
            )
        ),
        tolerance="2 % of the cells, three of 144: more than single runs at a boundary",
        prediction="small keys; large keys",
        arms=("gaussian_phase", "softmax_phase"),
        statistic=EverySeed(),
    ),
)


# -- figures ---------------------------------------------------------------------------------------


def figures(arms: Mapping[str, Arm], config: Config) -> Sequence[Figure]:
    return _phase_figure(arms, config), _key_figure(arms), _query_figure(arms)


def _phase_figure(arms: Mapping[str, Arm], config: Config) -> Figure:
    shares = {
        title: (last_over_first(arms[f"{kernel}_phase"]) < TRAINED)
        .mean("seed")
        .transpose("query_scale", "key_scale")
        for kernel, title in KERNEL_TITLES.items()
    }
    maps = [(title, "share of seeds that train", share) for title, share in shares.items()]
    difference = shares["Gaussian"] - shares["softmax"]
    maps.append(("which kernel trains", "Gaussian - softmax", difference))
    panels = []
    for title, label, share in maps:
        cells = HeatMap(label, share["key_scale"].values, share["query_scale"].values, share.values)
        panels.append(Panel(title, "scale of the keys", "scale of the queries", (cells,)))
    caption = (
        "Phase diagram: share of seeds whose loss falls below 1e-3 of its first value, over the"
        f" initial scales of keys and queries ({config.phase_seeds} seeds per cell, only W^Q"
        " trained). Softmax needs keys that differ; the Gaussian kernel needs queries at some"
        " distance from its keys, neither too near nor too far."
    )
    return Figure("kernels_stationary_phase", "Which kernel trains where", caption, tuple(panels))


def _key_figure(arms: Mapping[str, Arm]) -> Figure:
    positive = {"key_scale": slice(1e-6, None)}
    gradients, losses = [], []
    for kernel, label in KERNEL_TITLES.items():
        gradient = _gradients(kernel, arms).sel(positive)
        gradients.append(over_seeds(label, gradient["key_scale"], gradient))
        last = last_over_first(arms[f"{kernel}_keys"]).sel(positive).clip(1e-12)
        losses.append(over_seeds(label, last["key_scale"], last))
    predicted = arms["softmax_keys"].prediction["gradient_norm"].sel(positive | {"part": "queries"})
    theory = over_seeds("proportional to the scale", predicted["key_scale"], predicted, "theory")
    gradients.append(dataclasses.replace(theory, low=None, high=None))
    panels = tuple(
        Panel(title, "scale of the keys", label, tuple(lines), "log", "log")
        for title, label, lines in (
            ("first gradient of W^Q", "norm of the gradient", gradients),
            ("after training", "last loss / first (not below 1e-12)", losses),
        )
    )
    caption = (
        "Softmax has no gradient where keys are equal: first gradient and last loss against the"
        " scale of the keys."
    )
    return Figure("kernels_stationary_keys", "Small keys", caption, panels)


def _query_figure(arms: Mapping[str, Arm]) -> Figure:
    panels = []
    for scale in QUERY_SCALES:
        lines = []
        for kernel, label in KERNEL_TITLES.items():
            loss = arms[f"{kernel}_queries"].trajectory["loss"].sel(query_scale=scale)
            lines.append(over_seeds(label, loss["step"], (loss / at_start(loss)).clip(1e-15)))
        label = "loss / first (not below 1e-15)"
        title = f"queries {scale:g} times as large"
        panels.append(Panel(title, "step", label, tuple(lines), "log", "log"))
    caption = (
        "The Gaussian kernel has no gradient far from its keys: loss along training for larger and"
        " larger queries, with the targets of a teacher."
    )
    return Figure("kernels_stationary_queries", "Large queries", caption, tuple(panels))


DIVERGENCES = (
    no_code(
        "theorem 2",
        "its text is cut in the poster",
        "W^Q alone, targets near the initial output",
        "D-5 and D-6 test the simplest form of the abstract's statement",
    ),
    no_code(
        "zero loss",
        "assumed to be reachable",
        "checked: `ReachOfQueries`",
        "without keys it cannot be reached for about one draw in seven (D-5b, D-5c)",
    ),
    no_code(
        "conclusion",
        "'Gaussian is easier in some cases'",
        "a phase diagram",
        "it reverses for large keys and queries",
    ),
    no_code(
        "scale of the frozen values",
        "not stated",
        "1, against 0.1 in kernels_convergence",
        "the loss reaches W^Q through the values: at 0.1 nothing trains in 6,000 steps of 0.01",
    ),
)

QUICK = Config(seeds=5, rate=0.02, steps=3000, phase_seeds=3, phase_steps=1000)
STUDY = Study(
    name="kernels_stationary",
    title="Where softmax and Gaussian kernels stop training",
    paper="Song, Han, Zhang, Ding & Hong 2024",
    presets={"quick": QUICK, "paper": Config()},
    experiment=experiment,
    claims=CLAIMS,
    figures=figures,
    divergences=DIVERGENCES,
    precision="float64",
)
