"""Which kernel gives queries a gradient, and where (Song, Han, Zhang, Ding & Hong 2024, theorem 2).

Only W^Q is trained. Softmax is blind where all keys are equal; the Gaussian kernel is blind far
away from its keys. "The Gaussian kernel is better" is thus a statement about starts, and the phase
diagram over the scales of keys and queries shows which kernel trains where.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from saccade.core.claim import Check, Claim, PremiseNotMetError
from saccade.core.figure import Figure, HeatMap, Panel, over_seeds
from saccade.core.lab import Lab
from saccade.core.optimiser import GradientDescent
from saccade.core.record import Arm, Record
from saccade.core.schedule import AtSteps, Logarithmic
from saccade.core.statistics import log_slope
from saccade.core.study import Divergence, Study
from saccade.core.sweep import require, require_count, require_positive, require_single, with_sweep
from saccade.core.trajectory import at_start, fall, first_step
from saccade.models.attention_regression import AttentionRegressionConfig, half_squared_error
from saccade.models.kernels import KERNEL_TITLES
from saccade.probes.feature_matrix import ReachOfQueries
from saccade.probes.motion import GradientNorms
from saccade.tasks.random_sequences import RandomSequences
from saccade.theory.kernel_blindness import KernelBlindness

KEY_SCALES = (0.0, 0.01, 0.05, 0.2, 1.0)
QUERY_SCALES = (1.0, 5.0, 20.0)
WITHOUT_KEYS, GENERIC = {"key_scale": 0.0}, {"key_scale": 1.0}
"""The members that claims about no keys, and about a generic start, rest on."""
TRAINED = 1e-3
"""A run has trained when its loss has fallen to this share."""


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the study."""

    seeds: int = 10
    """Repetitions, each with its own data and start."""
    sequences: int = 4
    """Sequences (N)."""
    positions: int = 4
    """Vectors in a sequence (n)."""
    dimension: int = 16
    """Dimension of the vectors (D)."""
    heads: int = 2
    """Heads (H)."""
    head_dimension: int = 16
    """Dimension of queries, keys and values (d)."""
    target_std: float = 0.3
    """Standard deviation of what is added to the model's own first output to make the targets."""
    value_scale: float = 1.0
    """Scale of the frozen W^V."""
    output_scale: float = 4.0
    """Scale of the frozen W^O."""
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
        require_count(
            self, "seeds", "sequences", "positions", "dimension", "heads", "head_dimension", "steps"
        )
        require_count(self, "phase_seeds", "phase_steps")
        require_single(self, "it is the end of a grid", "least_scale", "largest_scale")
        require_count(self, "cells", least=2)
        require_positive(self, "rate", "least_scale", "value_scale", "output_scale")
        least = self.least_scale
        require(self, "largest_scale", "above the least scale", lambda value: value > least)


def experiment(config: Config, lab: Lab) -> Mapping[str, Arm]:
    task = RandomSequences(
        config.sequences,
        1,
        config.positions,
        config.dimension,
        float(config.dimension),
        target_std=config.target_std,
    )
    descent = GradientDescent(config.rate)
    gradient = GradientNorms(("queries",))
    arms = {}
    for kernel in KERNEL_TITLES:
        model = AttentionRegressionConfig(
            kernel,
            config.heads,
            config.head_dimension,
            ("queries",),
            value_scale=config.value_scale,
            output_scale=config.output_scale,
            targets="start",
        )
        keys = with_sweep(model, "key_scale", KEY_SCALES)
        training = lab.train(
            task,
            keys,
            descent,
            config.steps,
            (gradient, ReachOfQueries()),
            record=Logarithmic(60),
            seeds=config.seeds,
            loss=half_squared_error,
            name=f"kernels_stationary {kernel}, keys",
        )
        prediction = (
            KernelBlindness().predict(task, keys, training.trajectory)
            if kernel == "softmax"
            else None
        )
        arms[f"{kernel}_keys"] = Arm.of(
            training, prediction, KernelBlindness.source if kernel == "softmax" else ""
        )
        # A teacher that differs in W^Q alone can be matched exactly, from however far.
        queries = with_sweep(
            dataclasses.replace(model, targets="teacher"), "query_scale", QUERY_SCALES
        )
        arms[f"{kernel}_queries"] = Arm.of(
            lab.train(
                dataclasses.replace(task, target_std=0.0),
                queries,
                descent,
                config.steps,
                (gradient,),
                record=Logarithmic(60),
                seeds=config.seeds,
                loss=half_squared_error,
                name=f"kernels_stationary {kernel}, queries",
            )
        )
        arms[f"{kernel}_phase"] = Arm.of(
            lab.train(
                task,
                model,
                descent,
                config.phase_steps,
                record=AtSteps((0, config.phase_steps)),
                seeds=config.phase_seeds,
                sweep={"model.key_scale": scales(config), "model.query_scale": scales(config)},
                loss=half_squared_error,
                name=f"kernels_stationary {kernel}, phase diagram",
            )
        )
    return arms


def scales(config: Config) -> list[float]:
    """Scales of the phase diagram, evenly in their logarithm."""
    return [
        float(f"{scale:.3g}")
        for scale in np.geomspace(config.least_scale, config.largest_scale, config.cells)
    ]


# -- measures --------------------------------------------------------------------------------------


def _fall(arm: Arm) -> xr.DataArray:
    return fall(arm.trajectory["loss"])


def _keys(kernel: str, scale: float):
    def measure(record: Record) -> xr.DataArray:
        """Fall of the loss at one scale of the keys, under the theorem's premise HD >= Nn."""
        features, rows = (
            _product(record, *names)
            for names in (("heads", "dimension"), ("sequences", "positions"))
        )
        if features < rows:
            raise PremiseNotMetError(f"HD = {features} is below Nn = {rows}")
        return _fall(record.arm(f"{kernel}_keys")).sel(key_scale=scale, drop=True)

    return measure


def _product(record: Record, *names: str) -> int:
    return math.prod(int(record.config[name]) for name in names)


def _gradient(record: Record, kernel: str, sweep: str) -> xr.DataArray:
    return at_start(record.arm(f"{kernel}_{sweep}").trajectory["gradient_norm"]).sel(
        part="queries", drop=True
    )


def _reach(record: Record) -> xr.DataArray:
    """Least loss that queries can reach without keys, as a share of the first loss."""
    vectors, dimension = _product(record, "sequences", "positions"), int(record.config["dimension"])
    if vectors > dimension:
        raise PremiseNotMetError(
            f"{vectors} vectors in {dimension} dimensions: queries are not free of one another"
        )
    trajectory = record.arm("gaussian_keys").trajectory
    return (at_start(trajectory["reach_floor"]) / at_start(trajectory["loss"])).sel(
        key_scale=0.0, drop=True
    )


def _gaussian_without_keys(record: Record) -> xr.DataArray:
    """Fall of the loss where 0 can be reached at all (the premise of theorem 2)."""
    return _keys("gaussian", 0.0)(record).where(_reach(record) < 1e-12)


def _over_reach(record: Record) -> xr.DataArray:
    return _keys("gaussian", 0.0)(record) - _reach(record)


def _slope(kernel: str, sign: int = 1):
    def measure(record: Record) -> xr.DataArray:
        """Exponent of the first gradient in the scale of the keys."""
        gradient = _gradient(record, kernel, "keys")
        gradient = gradient.sel(key_scale=[scale for scale in KEY_SCALES if scale > 0])
        return sign * log_slope(gradient["key_scale"], gradient, "key_scale")

    return measure


def _smallest_gain(record: Record) -> xr.DataArray:
    """Smallest gain in log10 of softmax's last loss from one scale of the keys to the next."""
    lasts = xr.ufuncs.log10(
        _fall(record.arm("softmax_keys")).sel(
            key_scale=[scale for scale in KEY_SCALES if scale > 0]
        )
    )
    return -lasts.diff("key_scale").max("key_scale")


def _queries(kernel: str, scale: float):
    return lambda record: _fall(record.arm(f"{kernel}_queries")).sel(query_scale=scale, drop=True)


def _reversed(scale: float):
    def measure(record: Record) -> xr.DataArray:
        """How many orders of magnitude softmax's loss ends below the Gaussian's."""
        return xr.ufuncs.log10(
            _queries("gaussian", scale)(record) / _queries("softmax", scale)(record)
        )

    return measure


def _steps_to(record: Record, kernel: str) -> xr.DataArray:
    loss = record.arm(f"{kernel}_keys").trajectory["loss"].sel(key_scale=1.0, drop=True)
    return first_step(loss < TRAINED * at_start(loss), never=np.inf)


def _step_ratio(record: Record) -> xr.DataArray:
    return _steps_to(record, "gaussian") / _steps_to(record, "softmax")


def _only(kernel: str, other: str):
    def measure(record: Record) -> xr.DataArray:
        """Share of the phase diagram's cells in which this kernel trains and the other does not."""
        trains, not_other = (
            _fall(record.arm(f"{name}_phase")) < TRAINED for name in (kernel, other)
        )
        return (trains & ~not_other).mean(("key_scale", "query_scale"))

    return measure


CLAIMS = (
    Claim(
        "D-5",
        "Queries alone, all keys 0: softmax has no gradient and stays; the Gaussian kernel reaches"
        " 0 wherever that can be",
        "Song 2024, theorem 2 (in its cleanest instance)",
        (
            Check(
                "softmax: norm of the first gradient",
                lambda record: _gradient(record, "softmax", "keys").sel(key_scale=0.0),
                "<=",
                1e-12,
                ("softmax_keys",),
                every_seed=True,
                seeds=5,
                where=WITHOUT_KEYS,
            ),
            Check(
                "softmax: |last loss / first - 1|",
                lambda record: abs(_keys("softmax", 0.0)(record) - 1),
                "<=",
                1e-12,
                ("softmax_keys",),
                every_seed=True,
                seeds=5,
                where=WITHOUT_KEYS,
            ),
            Check(
                "Gaussian: last loss / first, where 0 can be reached",
                _gaussian_without_keys,
                "<",
                1e-3,
                ("gaussian_keys",),
                every_seed=True,
                where=WITHOUT_KEYS,
            ),
        ),
        tolerance="1e-12 and 1e-3, as specified",
        paper="softmax stationary, Gaussian global",
        prediction="0, 0, and 0 where the targets can be reached",
    ),
    Claim(
        "D-5b",
        "Without keys the Gaussian kernel reaches 0 from every start",
        "Song 2024, theorem 2, without its premise that 0 can be reached",
        (
            Check(
                "Gaussian: last loss / first",
                _keys("gaussian", 0.0),
                "<",
                1e-3,
                ("gaussian_keys",),
                every_seed=True,
                seeds=5,
                where=WITHOUT_KEYS,
            ),
        ),
        tolerance="1e-3, as for D-5",
        paper="from a suitable start",
        prediction="the reach of the queries, not always 0",
        expected="fails",
        reason=(
            "Without keys every vector gets one weight in (0, 1] a head, so some targets lie out of"
            " reach. D-5c: the loss then ends at the distance to that reach, which is still the"
            " global optimum."
        ),
    ),
    Claim(
        "D-5c",
        "Without keys the Gaussian kernel ends at the global optimum over W^Q: the distance of the"
        " targets to its reach",
        "derived (src/saccade/theory/kernel_blindness.py)",
        (
            Check(
                "(last loss - reach) / first loss",
                _over_reach,
                "<=",
                0.05,
                ("gaussian_keys",),
                every_seed=True,
                seeds=5,
                where=WITHOUT_KEYS,
            ),
            Check(
                "(reach - last loss) / first loss",
                lambda record: -_over_reach(record),
                "<=",
                1e-9,
                ("gaussian_keys",),
                every_seed=True,
                seeds=5,
                where=WITHOUT_KEYS,
            ),
        ),
        tolerance=(
            "5 %: weights come near 0 or 1 ever more slowly; below the optimum only by rounding"
        ),
        prediction="0",
    ),
    Claim(
        "D-6",
        "Near equal keys softmax's gradient is proportional to the scale of the keys; the"
        " Gaussian's does not fall",
        "Song 2024, theorem 2 ('vanishing gradient issue in Softmax attention')",
        (
            Check(
                "softmax: exponent of the first gradient, at least",
                _slope("softmax"),
                ">=",
                0.7,
                ("softmax_keys",),
            ),
            Check(
                "softmax: exponent of the first gradient, at most",
                _slope("softmax"),
                "<=",
                1.3,
                ("softmax_keys",),
            ),
            Check(
                "Gaussian: |exponent| of the first gradient",
                lambda record: abs(_slope("gaussian")(record)),
                "<=",
                0.3,
                ("gaussian_keys",),
            ),
            Check(
                "softmax: smallest gain in orders of magnitude of the last loss from one scale to"
                " the next",
                _smallest_gain,
                ">",
                0.0,
                ("softmax_keys",),
                every_seed=True,
            ),
        ),
        tolerance="1 +- 0.3, as specified",
        prediction="1 and 0",
    ),
    Claim(
        "D-7",
        "For large queries the order reverses: the Gaussian kernel stalls, softmax recovers in"
        " part",
        "beyond the poster: Song 2024 says that the Gaussian kernel is easier 'in some cases'",
        (
            Check(
                "queries 5 times as large: orders of magnitude by which softmax's loss ends lower",
                _reversed(5.0),
                ">",
                0.0,
                ("softmax_queries", "gaussian_queries"),
                where={"query_scale": 5.0},
            ),
            Check(
                "queries 20 times as large: orders of magnitude by which softmax's loss ends lower",
                _reversed(20.0),
                ">",
                0.0,
                ("softmax_queries", "gaussian_queries"),
                where={"query_scale": 20.0},
            ),
            Check(
                "queries 20 times as large: Gaussian's |last loss / first - 1|",
                lambda record: abs(_queries("gaussian", 20.0)(record) - 1),
                "<=",
                1e-3,
                ("gaussian_queries",),
                every_seed=True,
            ),
        ),
        tolerance="an order; 1e-3 for 'unchanged'",
        prediction="the Gaussian's gradient is exponentially small",
    ),
    Claim(
        "D-8",
        "From a generic start both kernels train",
        "Song 2024, theorem 2",
        (
            Check(
                "softmax: last loss / first",
                _keys("softmax", 1.0),
                "<",
                1e-3,
                ("softmax_keys",),
                every_seed=True,
                seeds=5,
                where=GENERIC,
            ),
            Check(
                "Gaussian: last loss / first",
                _keys("gaussian", 1.0),
                "<",
                1e-3,
                ("gaussian_keys",),
                every_seed=True,
                seeds=5,
                where=GENERIC,
            ),
        ),
        tolerance="1e-3, as specified",
        paper="Gaussian easier",
        prediction="not stated",
    ),
    Claim(
        "D-8b",
        "From a generic start the Gaussian kernel needs fewer steps",
        "Song 2024, conclusion ('training a transformer with Gaussian kernel is easier than Softmax"
        " kernel in some cases')",
        (
            Check(
                "steps to 1e-3, Gaussian / softmax",
                _step_ratio,
                "<",
                1.0,
                ("softmax_keys", "gaussian_keys"),
                where=GENERIC,
            ),
        ),
        tolerance="an order",
        paper="easier in some cases",
        prediction="not stated",
    ),
    Claim(
        "D-8c",
        "Neither kernel is better everywhere: each trains where the other does not",
        "beyond the poster: the phase diagram",
        (
            Check(
                "share of cells in which only the Gaussian trains",
                _only("gaussian", "softmax"),
                ">",
                0.02,
                ("gaussian_phase", "softmax_phase"),
                every_seed=True,
            ),
            Check(
                "share of cells in which only softmax trains",
                _only("softmax", "gaussian"),
                ">",
                0.02,
                ("gaussian_phase", "softmax_phase"),
                every_seed=True,
            ),
        ),
        tolerance="2 % of the cells, three of 144: more than single runs at a border",
        prediction="small keys; large ones",
    ),
)


# -- figures ---------------------------------------------------------------------------------------


def figures(record: Record) -> Sequence[Figure]:
    if record.sweeps:
        return ()
    return (_phase(record), _by_keys(record), _by_queries(record))


def _phase(record: Record) -> Figure:
    shares = {}
    for kernel in KERNEL_TITLES:
        trained = (_fall(record.arm(f"{kernel}_phase")) < TRAINED).mean("seed")
        shares[kernel] = trained.transpose("query_scale", "key_scale")
    keys, queries = shares["softmax"]["key_scale"].values, shares["softmax"]["query_scale"].values
    panels = [
        Panel(
            title,
            "scale of the keys",
            "scale of the queries",
            (HeatMap(label, keys, queries, values.values),),
        )
        for title, label, values in (
            ("softmax", "share of seeds that train", shares["softmax"]),
            ("Gaussian", "share of seeds that train", shares["gaussian"]),
            (
                "which kernel trains",
                "Gaussian less softmax",
                shares["gaussian"] - shares["softmax"],
            ),
        )
    ]
    caption = (
        "The phase diagram: share of the seeds whose loss falls below 1e-3 of its first value,"
        f" over the scales of keys and queries at the start ({record.config['phase_seeds']} seeds a"
        " cell, only W^Q trained). Softmax needs keys that differ; the Gaussian kernel needs"
        " queries at some distance from its keys, neither too near nor too far."
    )
    return Figure("kernels_stationary_phase", "Which kernel trains where", caption, tuple(panels))


def _by_keys(record: Record) -> Figure:
    gradients, losses = [], []
    for kernel, label in KERNEL_TITLES.items():
        gradient = _gradient(record, kernel, "keys").sel(key_scale=slice(1e-6, None))
        gradients.append(
            over_seeds(label, gradient["key_scale"], gradient.transpose("seed", "key_scale"))
        )
        last = _fall(record.arm(f"{kernel}_keys")).sel(key_scale=slice(1e-6, None)).clip(1e-12)
        losses.append(over_seeds(label, last["key_scale"], last.transpose("seed", "key_scale")))
    predicted = (
        record.arm("softmax_keys")
        .prediction["gradient_norm"]
        .sel(part="queries", key_scale=slice(1e-6, None))
    )
    theory = over_seeds(
        "proportional to the scale",
        predicted["key_scale"],
        predicted.transpose("seed", "key_scale"),
        "theory",
    )
    gradients.append(dataclasses.replace(theory, low=None, high=None))
    panels = (
        Panel(
            "first gradient of W^Q",
            "scale of the keys",
            "norm of the gradient",
            tuple(gradients),
            "log",
            "log",
        ),
        Panel(
            "after training",
            "scale of the keys",
            "last loss / first (not below 1e-12)",
            tuple(losses),
            "log",
            "log",
        ),
    )
    caption = (
        "Softmax is blind where keys are equal: first gradient and last loss against the scale of"
        " the keys."
    )
    return Figure("kernels_stationary_keys", "Small keys", caption, panels)


def _by_queries(record: Record) -> Figure:
    panels = []
    for scale in QUERY_SCALES:
        lines = []
        for kernel, label in KERNEL_TITLES.items():
            loss = record.arm(f"{kernel}_queries").trajectory["loss"].sel(query_scale=scale)
            share = (loss / at_start(loss)).clip(1e-15)
            lines.append(over_seeds(label, share["step"], share.transpose("seed", "step")))
        panels.append(
            Panel(
                f"queries {scale:g} times",
                "step",
                "loss / first (not below 1e-15)",
                tuple(lines),
                "log",
                "log",
            )
        )
    caption = (
        "The Gaussian kernel is blind far away: loss along training for larger and larger queries,"
        " targets of a teacher."
    )
    return Figure("kernels_stationary_queries", "Large queries", caption, tuple(panels))


DIVERGENCES = (
    Divergence(
        "theorem 2",
        "its text is cut in the poster",
        "none released",
        "W^Q alone, targets near the first output",
        "D-5 and D-6 are the cleanest form of what the abstract says",
    ),
    Divergence(
        "zero loss",
        "assumed to be reachable",
        "none released",
        "checked: `ReachOfQueries`",
        "without keys it is not for about one draw in seven (D-5b, D-5c)",
    ),
    Divergence(
        "conclusion",
        "'Gaussian is easier in some cases'",
        "none released",
        "a phase diagram",
        "it reverses for large keys and queries",
    ),
    Divergence(
        "scale of the frozen values",
        "not stated",
        "none released",
        "1, against 0.1 in kernels_convergence",
        "W^Q feels the loss through the values: at 0.1 nothing trains in 6,000 steps of 0.01",
    ),
)

STUDY = Study(
    name="kernels_stationary",
    title="Where softmax and Gaussian kernels stop training",
    paper="Song, Han, Zhang, Ding & Hong 2024",
    presets={
        "quick": Config(seeds=5, rate=0.02, steps=3000, phase_seeds=3, phase_steps=1000),
        "paper": Config(),
    },
    experiment=experiment,
    claims=CLAIMS,
    figures=figures,
    divergences=DIVERGENCES,
    precision="float64",
)
