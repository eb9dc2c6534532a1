"""Values first, attention second: the two stages of training (Li, Li & Risteski 2023, the two-stage
process).

W_K, W_Q and W_V are all trained from near 0 with one-hot embeddings. In the slides W_V grows while
W_K and W_Q stay, and then the reverse, "using SGD or Adam"; they call the phenomenon sensitive.
This study maps where two stages occur: optimiser x loss x scale of the initialisation.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.study import Study, divergences
from saccade.figures.figure import Figure, HeatMap, Line, Panel, curve
from saccade.judging.bound import Above, AtMost, Below, Within
from saccade.judging.claim import Check, Claim
from saccade.judging.statistics import EverySeed, GeometricMean, Mean, log_slope
from saccade.models.one_layer_transformer import OneLayerTransformerConfig, guess_entropy
from saccade.probes.motion import Displacements, GradientNorms, StableRanks
from saccade.probes.topic_blocks import AttentionOdds, ValueBlocks
from saccade.records.record import Arm, Arms
from saccade.records.schedule import AtSteps
from saccade.records.trajectory import at_place, at_start, first_step, only
from saccade.settings import require, require_count, require_positive, with_sweep
from saccade.studies._documents import PAPER, STATISTICS, DocumentSettings
from saccade.studies._seeds import AbstractSeededConfig
from saccade.theory.value_optimum import ValueOptimum
from saccade.train.batches import Fresh
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam, GradientDescent
from saccade.train.recipe import Recipe

STARTS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
"""Initial standard deviations of W_K, W_Q and W_V; exactly 0 shows the mechanism."""
SMALL, LARGE = 1e-3, 1e-1
AT_SMALL, NEAR_ZERO = {"start": SMALL}, {"start": [start for start in STARTS if start < LARGE]}
ARMS = {
    "sgd_squared": "SGD, squared error",
    "sgd_entropy": "SGD, cross-entropy",
    "adam_squared": "Adam, squared error",
    "adam_entropy": "Adam, cross-entropy",
}
DEFAULT = "sgd_squared_default"
PARTS = {"values": "W_V", "keys": "W_K", "queries": "W_Q"}
REFERENCE_STEP = 1000
"""Stage 1 ends when the values have reached 90 % of their displacement at this step, the last of
the slides' figure.
"""
ESCAPED = 10
"""Training counts until keys and queries have moved this many times as far as when stage 1 ended;
it goes on, so that figures show more.
"""


@dataclasses.dataclass(frozen=True)
class Config(AbstractSeededConfig):
    """Settings of the study."""

    documents: DocumentSettings = DocumentSettings()
    """Sizes and masking of the documents."""
    document_size: int = 64
    """Words per document."""
    batch_size: int = 16
    """New documents per step."""
    squared_rate: float = 10.0
    """Learning rate of SGD with squared error."""
    entropy_rate: float = 20.0
    """Learning rate of SGD with cross-entropy."""
    adam_rate: float = 0.003
    """Learning rate of Adam."""
    squared_steps: int = 20000
    """Steps of SGD with squared error: W_K and W_Q grow exponentially from near 0, but slowly."""
    steps: int = 4000
    """Steps of the other trainings."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "document_size", "batch_size", "squared_steps", "steps")
        require_positive(self, "squared_rate", "entropy_rate", "adam_rate")
        enough = f"at least {REFERENCE_STEP}, where stage 1 is judged"
        for field in ("squared_steps", "steps"):
            require(self, field, enough, lambda steps: steps >= REFERENCE_STEP)


def experiment(config: Config, lab: Lab) -> Arms:
    size = config.document_size
    task = config.documents.finite(size, size, train_size=64, test_size=1)
    swept = with_sweep(OneLayerTransformerConfig(), "start_std", STARTS, "start")
    models = dict.fromkeys(ARMS, swept) | {DEFAULT: OneLayerTransformerConfig(start="default")}
    recipes = {}
    for name, model in models.items():
        squared = "squared" in name
        rate = config.squared_rate if squared else config.entropy_rate
        steps = config.squared_steps if name.startswith("sgd_squared") else config.steps
        recipes[name] = Recipe(
            task,
            model,
            GradientDescent(rate) if "sgd" in name else Adam(config.adam_rate),
            steps,
            probes=(Displacements(), GradientNorms(), AttentionOdds(), ValueBlocks(), STATISTICS),
            at=AtSteps(_recorded(steps)),
            ends=(StableRanks(),),
            batches=Fresh(config.batch_size),
            loss=None if squared else guess_entropy,
        )
    arms = lab.train(recipes, config.seed_numbers)
    return {
        name: arm.beside(ValueOptimum()) if "squared" in name else arm for name, arm in arms.items()
    }


def _recorded(steps: int) -> tuple[int, ...]:
    """Dense at first, then even, with the step at which stage 1 is judged."""
    early, even = np.geomspace(1, steps, 60), np.linspace(0, steps, 41)
    return tuple(sorted({round(step) for step in (*early, *even, REFERENCE_STEP)}))


# -- measures --------------------------------------------------------------------------------------


def _attention(displacement: xr.DataArray) -> xr.DataArray:
    """Displacement of keys and queries together."""
    squares = displacement.sel(part=["keys", "queries"]) ** 2
    return xr.ufuncs.sqrt(squares.sum("part", skipna=False))


def stages(arm: Arm) -> xr.Dataset:
    """The step at which values reach 90 % of their displacement (the boundary); the share of their
    largest displacement that keys and queries have there, over all steps and until they have moved
    `ESCAPED` times as far; and the step at which they reach half of the latter.
    """
    displacement = arm.trajectory["displacement"]
    values, attention = displacement.sel(part="values", drop=True), _attention(displacement)
    reached = values >= 0.9 * values.sel(step=REFERENCE_STEP).drop_vars(("step", "time"))
    reached = reached & (values > 0)
    there = at_place(attention, reached.argmax("step"))
    there = there.where(reached.any("step") & (there > 0))
    escape = first_step(attention > ESCAPED * there, never=np.inf)
    largest = attention.where(attention["step"] <= escape).max("step").where(there > 0)
    found = {"boundary": first_step(reached), "share": there / largest}
    found["whole_share"] = there / attention.max("step")
    found["attention_step"] = first_step(attention >= largest / 2).where(largest > 0)
    return xr.Dataset(found)


def _share(arms: Arms, config: Config) -> xr.DataArray:
    return stages(only(arms))["share"].sel(AT_SMALL)


def _order(arms: Arms, config: Config) -> xr.DataArray:
    found = stages(only(arms)).sel(AT_SMALL)
    return found["boundary"] / found["attention_step"]


def _onset(arm: Arm, part: str, multiple: float) -> xr.DataArray:
    """Step at which the values, or keys and queries together, have moved a multiple of the norm of
    W_V, or of W_K, at the initialisation.
    """
    trajectory = arm.trajectory.sel(AT_SMALL)
    moved, norm = trajectory["displacement"], at_start(trajectory["part_norm"])
    moved = _attention(moved) if part == "keys" else moved.sel(part=part, drop=True)
    return first_step(moved > multiple * norm.sel(part=part, drop=True))


def _delay(arm: Arm) -> xr.DataArray:
    """Step at which keys and queries have moved half their norm / values ten times theirs."""
    return _onset(arm, "keys", 0.5) / _onset(arm, "values", 10)


def _onset_order(arms: Arms, config: Config) -> xr.DataArray:
    return _delay(only(arms))


def _late_onset(arms: Arms, config: Config) -> xr.DataArray:
    """Step at which keys and queries have moved half their norm / the boundary."""
    arm = only(arms)
    return _onset(arm, "keys", 0.5) / stages(arm)["boundary"].sel(AT_SMALL)


def _shorter_delay(arms: Arms, config: Config) -> xr.DataArray:
    """The delay of the second arm / that of the first."""
    first, second = arms.values()
    return _delay(second) / _delay(first)


def _gradient_at_zero(parts: list[str], arms: Arms, config: Config) -> xr.DataArray:
    gradient = at_start(only(arms).trajectory["gradient_norm"])
    return gradient.sel(start=0.0, part=parts).max("part")


def _gradient_slope(arms: Arms, config: Config) -> xr.DataArray:
    """Exponent of the keys' gradient / (start x norm of the values) in the start."""
    trajectory = at_start(only(arms).trajectory).sel(start=slice(1e-4, 1e-2))
    gradient = trajectory["gradient_norm"].sel(part="keys", drop=True)
    values = trajectory["part_norm"].sel(part="values", drop=True)
    return log_slope(gradient["start"], gradient / (gradient["start"] * values), "start")


def _softened(arms: Arms, config: Config) -> xr.DataArray:
    """Share at the boundary of the default or the large initialisation / of the small one."""
    small, share = arms["sgd_squared"], stages([*arms.values()][-1])["whole_share"]
    share = share.sel(start=LARGE) if "start" in share.dims else share
    return share / stages(small)["whole_share"].sel(AT_SMALL)


at_small, near_zero = partial(Check, where=AT_SMALL), partial(Check, where=NEAR_ZERO)
_key_gradients = partial(_gradient_at_zero, ["keys", "queries"])
_value_gradient = partial(_gradient_at_zero, ["values"])
SHARE = "displacement of W_K and W_Q when W_V has reached 90 % / their largest"
HALF = "step at which W_K and W_Q have reached half of theirs"
ONSET = "step at which W_K and W_Q have moved half their norm / W_V ten times its norm"
two_stages = partial(Claim, statistic=EverySeed(5))

CLAIMS = (
    two_stages(
        "B-9",
        "From near 0, training has two stages: first the values move, then keys and queries (SGD,"
        " squared error)",
        "Li 2023, two-stage process",
        (
            at_small(f"share at the boundary: {SHARE}", _share, AtMost(0.1)),
            at_small(f"step of that boundary / {HALF}", _order, Below(1.0)),
        ),
        "0.1, as specified: 90 % of the displacement at step 1,000; the largest displacement counts"
        " until it is 10 times that at the boundary, or to 20,000 steps. The specification does not"
        " define the two times of its order: boundary, and half of that largest displacement",
        paper="boundary near step 400 of 1,000",
        prediction="gradients of W_K and W_Q contain W_Q and W_K, which are near 0",
        arms="sgd_squared",
    ),
    two_stages(
        "B-9b",
        "With cross-entropy, too, keys and queries start to move after the values (SGD)",
        "Li 2023, two-stage process",
        at_small(ONSET, _onset_order, Above(1.0)),
        "an order, as specified; with cross-entropy the values keep growing: the loss has no finite"
        " optimum",
        prediction="values first",
        arms="sgd_entropy",
    ),
    two_stages(
        "B-9c",
        "The mechanism: at W_K = W_Q = 0 their gradients vanish and that of W_V does not; near 0"
        " they are of order start x ||W_V||",
        "Li 2023, intuition for the two-stage process",
        (
            near_zero("norm of the gradients of W_K and W_Q at 0", _key_gradients, AtMost(1e-12)),
            near_zero("norm of the gradient of W_V at 0", _value_gradient, Above(1e-12)),
            near_zero(
                "exponent of gradient of W_K / (start x ||W_V||) in the start",
                _gradient_slope,
                Within(-0.1, 0.1),
                statistic=Mean(5),
            ),
        ),
        "1e-12, as specified, for both; 0.1 on an exponent over two decades, where none is"
        " specified: a third-order term of relative size start^2",
        paper="gradients near 0",
        prediction="0, not 0, exponent 0",
        arms="sgd_squared",
    ),
    two_stages(
        "B-9d",
        "Adam has the two stages as well",
        "Li 2023, two-stage process ('using SGD or Adam')",
        tuple(
            at_small(f"{ARMS[name]}: share at the boundary, as for B-9", _share, AtMost(0.1), name)
            for name in ("adam_squared", "adam_entropy")
        ),
        "0.1, as for B-9, but 4,000 steps at most",
        paper="two stages",
        prediction="none: Adam divides tiny gradients by their own size",
        reason="With Adam keys and queries are hardly delayed (B-9f). A guess: it divides their"
        " small gradients by their own size. The slides call the phenomenon sensitive to"
        " hyperparameters and do not give theirs.",
    ),
    two_stages(
        "B-9e",
        "The delay of B-9 is there however long training goes on: keys and queries have moved half"
        " of their initial norm only after the boundary",
        "Li 2023, two-stage process; B-9 by the onset of B-9b, which no later step enters",
        at_small(
            "step at which W_K and W_Q have moved half their norm / step of the boundary",
            _late_onset,
            Above(1.0),
        ),
        "an order",
        prediction="values first",
        arms="sgd_squared",
    ),
    Claim(
        "B-9f",
        "With Adam the delay of keys and queries behind the values is at most a tenth of that with"
        " SGD",
        "beyond the slides; what B-9d's reason says",
        tuple(
            at_small(
                f"{loss}: delay with Adam / with SGD; delay = {ONSET}",
                _shorter_delay,
                AtMost(0.1),
                (f"sgd_{name}", f"adam_{name}"),
            )
            for name, loss in (("squared", "squared error"), ("entropy", "cross-entropy"))
        ),
        "an order of magnitude",
        prediction="below 1",
        statistic=GeometricMean(5),
    ),
    two_stages(
        "B-12",
        "From a larger initialisation there are no clear two stages: keys and queries have moved"
        " farther at the boundary",
        "Li 2023, two-stage process ('common default hyperparameters: not visibly two-stage')",
        (
            Check(
                f"share at the boundary, start {LARGE:g} / start {SMALL:g}",
                _softened,
                Above(1.0),
                where={"start": [SMALL, LARGE]},
            ),
            at_small(
                f"share at the boundary, PyTorch's default start / start {SMALL:g}",
                _softened,
                Above(1.0),
                ("sgd_squared", DEFAULT),
            ),
        ),
        "an order, as specified; shares of the largest displacement over all steps, as many from"
        " both: by B-9's rule every start with two stages has about 0.1",
        paper="not visibly two-stage",
        prediction="the escape from near 0 is shorter",
        arms="sgd_squared",
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return _displacements(arms), _map(arms, config), _norms(arms)


def _displacements(arms: Arms) -> Figure:
    panels = []
    for name, title in ARMS.items():
        # Step 0 is left out: the initialisation, drawn again, differs from itself by rounding.
        moved = arms[name].trajectory["displacement"].sel(start=SMALL, step=slice(1, None))
        boundary = float(stages(arms[name])["boundary"].sel(AT_SMALL).mean("seed"))
        ends = np.asarray([float(moved.min()), float(moved.max())])
        label, at = "boundary: W_V has reached 90 %", np.full(2, boundary)
        lines = (*_parts(moved), Line(label, at, ends, role="reference"))
        panels.append(Panel(title, "step", "displacement", lines, "log", "log"))
    caption = (
        f"Displacement of W_V, W_K and W_Q from an initialisation of scale {SMALL:g}; mean over"
        " seeds with the range. With two stages, W_K and W_Q are still small where W_V has arrived."
    )
    return Figure("topics_two_stage_ways", "Which part moves when", caption, tuple(panels))


def _parts(values: xr.DataArray, mark: str = "") -> tuple[Line, ...]:
    """A line for each of W_V, W_K and W_Q."""
    labels = {part: f"{mark}{label}{mark}" for part, label in PARTS.items()}
    return tuple(curve(label, values.sel(part=part)) for part, label in labels.items())


def _map(arms: Arms, config: Config) -> Figure:
    starts = [start for start in STARTS if start > 0]
    shares = [stages(arms[name])["whole_share"].sel(start=starts) for name in ARMS]
    values = np.asarray([share.mean("seed", skipna=False).values for share in shares])
    label, names = "share of the displacement of W_K and W_Q at the boundary", list(ARMS.values())
    cells = HeatMap(label, np.asarray(starts), np.asarray(names), values, "log")
    title = "two stages where the share is at most 0.1"
    panel = Panel(title, "scale of the initialisation", "optimiser and loss", (cells,))
    ids = config.documents.topics * config.documents.words_per_topic + 1
    default = stages(arms[DEFAULT])["whole_share"]
    caption = (
        "Where two stages occur: the share of their displacement that keys and queries have reached"
        f" when the values have reached 90 % of theirs, mean over {default.sizes['seed']} seeds."
        f" PyTorch's default initialisation has the standard deviation {(3 * ids) ** -0.5:.2g};"
        f" with SGD and squared error it gives {float(default.mean('seed')):.2g}."
    )
    return Figure("topics_two_stage_map", "The map of two stages", caption, (panel,))


def _norms(arms: Arms) -> Figure:
    """The slides' own picture, on linear axes."""
    panels = []
    for name in ("sgd_squared", "adam_squared"):
        lines = _parts(arms[name].trajectory["part_norm"].sel(AT_SMALL), "||")
        panels.append(Panel(ARMS[name], "step", "Frobenius norm", lines))
    caption = "The slides' figure: norms of the three matrices against the step."
    title = "Norms of values, keys and queries"
    return Figure("topics_two_stage_norms", title, caption, tuple(panels))


DIVERGENCES = divergences(
    """
    optimiser of the two-stage figure | not stated ('SGD or Adam') | not in the repository | SGD
        with squared error; all four are mapped | SGD has two stages with either loss (B-9, B-9b),
        Adam has none (B-9d)
    initialisation of W_K, W_Q, W_V | near 0 | noise x Uniform(0, 1), all positive; the noise
        defaults to 0.0 | N(0, std^2) | at exactly 0 the gradients of W_K and W_Q stay 0 (B-9c)
    output bias | b_pred | frozen to 0 with the decoder | none | its curvature is 10 to 20 times
        that of the values: SGD would need smaller steps
    inputs | one-hot | one-hot, then LayerNorm with a trained type embedding: two words have cosine
        0.991 | one-hot | the authors' model differs from that of the slides
    documents | tau topics, N to infinity | 10,000 fixed documents, Dirichlet topics, masks drawn
        once | new documents of 64 words every step | not tested
    """
)

ABOUT = ("topics_two_stage", "Values first, attention second", PAPER)
FAST: Any = {"squared_rate": 8.0, "entropy_rate": 8.0, "squared_steps": 1500, "steps": 1000}
PRESETS = {
    "quick": Config(documents=DocumentSettings(5, 5, 2), **FAST),
    "paper": Config(32, 1000),
}
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
