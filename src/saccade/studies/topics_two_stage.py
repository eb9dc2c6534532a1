"""Values first, attention second: the two stages of training (Li, Li & Risteski 2023, the two-stage
process).

All of W_K, W_Q and W_V are trained from near 0 with one-hot embeddings. The slides see W_V rise
while W_K and W_Q stay, and then the reverse, "using SGD or Adam", and call the phenomenon
sensitive. Here is the map: optimiser x loss x scale of the start, and where on it there are two
stages.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from saccade.core.claim import Check, Claim
from saccade.core.errors import ConfigError
from saccade.core.figure import Figure, HeatMap, Line, Panel, over_seeds
from saccade.core.lab import Lab
from saccade.core.optimiser import Adam, GradientDescent
from saccade.core.record import Arm, Record
from saccade.core.schedule import AtSteps
from saccade.core.statistics import log_slope
from saccade.core.study import Divergence, Study
from saccade.core.sweep import require_count, require_positive, with_sweep
from saccade.core.trajectory import at_place, at_start, first_step
from saccade.models.one_layer_transformer import (
    OneLayerTransformerConfig,
    guess_entropy,
    squared_error,
)
from saccade.probes.motion import Displacements, GradientNorms
from saccade.probes.topic_blocks import AttentionOdds, ValueBlocks
from saccade.tasks.topic_documents import TopicDocumentSettings
from saccade.theory.value_optimum import ValueOptimum

STARTS = (0.0, 1e-4, 1e-3, 1e-2, 1e-1)
"""Standard deviations of W_K, W_Q and W_V at the start; exactly 0 shows the mechanism."""
SMALL, LARGE = 1e-3, 1e-1
AT_SMALL, NEAR_ZERO = {"start": SMALL}, {"start": [start for start in STARTS if start < LARGE]}
ARMS = {
    "sgd_squared": "SGD, squared error",
    "sgd_entropy": "SGD, cross-entropy",
    "adam_squared": "Adam, squared error",
    "adam_entropy": "Adam, cross-entropy",
}
REFERENCE_STEP = 1000
"""Stage 1 is over when the values have gone 90 % of their way at this step (the last of the
slides' figure).
"""


@dataclasses.dataclass(frozen=True)
class Config(TopicDocumentSettings):
    """Settings of the study."""

    document_size: int = 64
    """Words of a document."""
    batch_size: int = 16
    """New documents a step."""
    squared_rate: float = 10.0
    """Learning rate of SGD with squared error."""
    entropy_rate: float = 20.0
    """Learning rate of SGD with cross-entropy."""
    adam_rate: float = 0.003
    """Learning rate of Adam."""
    squared_steps: int = 20000
    """Steps of SGD with squared error: W_K and W_Q escape from near 0 exponentially, and slowly."""
    steps: int = 4000
    """Steps of the others."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "document_size", "batch_size", "squared_steps", "steps")
        require_positive(self, "squared_rate", "entropy_rate", "adam_rate")
        for field in ("squared_steps", "steps"):
            if getattr(self, field) < REFERENCE_STEP:
                raise ConfigError(
                    f"{field}: got {getattr(self, field)}, allowed: at least {REFERENCE_STEP},"
                    " where stage 1 is judged"
                )


def experiment(config: Config, lab: Lab) -> Mapping[str, Arm]:
    task = config.documents(config.document_size, config.document_size, train_size=64, test_size=1)
    swept = with_sweep(OneLayerTransformerConfig(), "start_std", STARTS, "start")
    default = OneLayerTransformerConfig(start="default")
    probes = (Displacements(), GradientNorms(), AttentionOdds(), ValueBlocks())

    def trained(name: str, model: OneLayerTransformerConfig) -> Arm:
        squared = "squared" in name
        rate = config.squared_rate if squared else config.entropy_rate
        optimiser = GradientDescent(rate) if "sgd" in name else Adam(config.adam_rate)
        steps = config.squared_steps if name.startswith("sgd_squared") else config.steps
        training = lab.train(
            task,
            model,
            optimiser,
            steps,
            probes,
            record=AtSteps(_recorded(steps)),
            seeds=config.seeds,
            batch_size=config.batch_size,
            stream=True,
            loss=squared_error if squared else guess_entropy,
            name=f"topics_two_stage {name}",
        )
        if not squared:
            return Arm.of(training)
        return Arm.of(
            training, ValueOptimum().predict(task, model, training.trajectory), ValueOptimum.source
        )

    arms = {name: trained(name, swept) for name in ARMS}
    return arms | {"sgd_squared_default": trained("sgd_squared_default", default)}


def _recorded(steps: int) -> tuple[int, ...]:
    """Dense at first, and evenly later."""
    places = np.concatenate(
        [np.geomspace(1, steps, 60), np.linspace(0, steps, 41), [REFERENCE_STEP]]
    )
    return tuple(sorted({round(place) for place in places}))


# -- measures --------------------------------------------------------------------------------------


def stages(arm: Arm) -> xr.Dataset:
    """When values and attention go their way, and how far attention has gone when the values
    have.
    """
    displacement = arm.trajectory["displacement"]
    values = displacement.sel(part="values", drop=True)
    attention = xr.ufuncs.sqrt(
        (displacement.sel(part=["keys", "queries"]) ** 2).sum("part", skipna=False)
    )
    reached = values >= 0.9 * values.sel(step=REFERENCE_STEP).drop_vars(("step", "time"))
    largest = attention.max("step")
    at_boundary = at_place(attention, reached.argmax("step"))
    half = attention >= largest / 2
    return xr.Dataset(
        {
            "boundary": first_step(reached),
            "attention_step": first_step(half).where(largest > 0),
            "share": (at_boundary / largest.where(largest > 0)).where(reached.any("step")),
        }
    )


def _share(name: str, start: float | None):
    def measure(record: Record) -> xr.DataArray:
        share = stages(record.arm(name))["share"]
        return share if start is None else share.sel(start=start)

    return measure


def _order(record: Record) -> xr.DataArray:
    found = stages(record.arm("sgd_squared")).sel(start=SMALL)
    return found["boundary"] / found["attention_step"]


def _onset_order(record: Record) -> xr.DataArray:
    """Step at which keys and queries have moved half their norm / step at which values have
    moved ten times theirs.
    """
    trajectory = record.arm("sgd_entropy").trajectory.sel(start=SMALL)
    moved, norm = trajectory["displacement"], at_start(trajectory["part_norm"])
    attention = xr.ufuncs.sqrt((moved.sel(part=["keys", "queries"]) ** 2).sum("part", skipna=False))
    late = first_step(attention > 0.5 * norm.sel(part="keys", drop=True))
    early = first_step(
        moved.sel(part="values", drop=True) > 10 * norm.sel(part="values", drop=True)
    )
    return late / early


def _start_gradient(record: Record) -> xr.DataArray:
    return at_start(record.arm("sgd_squared").trajectory["gradient_norm"])


def _gradient_without(*parts: str):
    return lambda record: _start_gradient(record).sel(start=0.0, part=list(parts)).max("part")


def _gradient_slope(record: Record) -> xr.DataArray:
    """Exponent of the keys' gradient divided by (start x norm of the values), against the start:
    0 if proportional.
    """
    small = slice(1e-4, 1e-2)
    gradient = _start_gradient(record).sel(part="keys", start=small, drop=True)
    values = at_start(record.arm("sgd_squared").trajectory["part_norm"]).sel(
        part="values", start=small, drop=True
    )
    return log_slope(gradient["start"], gradient / (gradient["start"] * values), "start")


def _steepest(sign: int):
    return lambda record: sign * _gradient_slope(record)


def _softened(name: str, start: float | None):
    return lambda record: _share(name, start)(record) / _share("sgd_squared", SMALL)(record)


CLAIMS = (
    Claim(
        "B-9",
        "From near 0 there are two stages: values first, then keys and queries (SGD, squared"
        " error)",
        "Li 2023, two-stage process",
        (
            Check(
                "way of keys and queries when the values have gone 90 % of theirs / their"
                " whole way",
                _share("sgd_squared", SMALL),
                "<=",
                0.1,
                ("sgd_squared",),
                every_seed=True,
                seeds=5,
                where=AT_SMALL,
            ),
            Check(
                "step of that boundary / step at which keys and queries have gone half their way",
                _order,
                "<",
                1.0,
                ("sgd_squared",),
                every_seed=True,
                seeds=5,
                where=AT_SMALL,
            ),
        ),
        tolerance=(
            "0.1, as specified; displacements, because norms mislead where the start is not tiny"
        ),
        paper="boundary near step 400 of 1,000",
        prediction="gradients of W_K and W_Q contain W_Q and W_K, which are near 0",
    ),
    Claim(
        "B-9b",
        "With cross-entropy, too, keys and queries set out after the values (SGD)",
        "Li 2023, two-stage process",
        (
            Check(
                "step at which keys and queries have moved half their norm / step at which values"
                " have moved ten times theirs",
                _onset_order,
                ">",
                1.0,
                ("sgd_entropy",),
                every_seed=True,
                seeds=5,
                where=AT_SMALL,
            ),
        ),
        tolerance=(
            "an order; with cross-entropy the values never flatten, because the loss has no finite"
            " optimum"
        ),
        prediction="values first",
    ),
    Claim(
        "B-9c",
        "The mechanism: at W_K = W_Q = 0 their gradients vanish and that of W_V does not; near 0"
        " they are of order start x ||W_V||",
        "Li 2023, intuition for the two-stage process",
        (
            Check(
                "norm of the gradients of W_K and W_Q at 0",
                _gradient_without("keys", "queries"),
                "<=",
                1e-12,
                ("sgd_squared",),
                every_seed=True,
                where=NEAR_ZERO,
            ),
            Check(
                "norm of the gradient of W_V at 0",
                _gradient_without("values"),
                ">",
                1e-3,
                ("sgd_squared",),
                every_seed=True,
                where=NEAR_ZERO,
            ),
            Check(
                "exponent of gradient of W_K / (start x ||W_V||) in the start, at most",
                _steepest(1),
                "<=",
                0.1,
                ("sgd_squared",),
                where=NEAR_ZERO,
            ),
            Check(
                "minus that exponent, at most",
                _steepest(-1),
                "<=",
                0.1,
                ("sgd_squared",),
                where=NEAR_ZERO,
            ),
        ),
        tolerance=(
            "1e-12, as specified; 0.1 on an exponent over two decades: a third order term of"
            " relative size start^2"
        ),
        paper="gradients near 0",
        prediction="0, not 0, exponent 0",
    ),
    Claim(
        "B-9d",
        "Adam has the two stages as well",
        "Li 2023, two-stage process ('using SGD or Adam')",
        tuple(
            Check(
                f"{ARMS[name]}: way of keys and queries at the boundary / their whole way",
                _share(name, SMALL),
                "<=",
                0.1,
                (name,),
                every_seed=True,
                seeds=5,
                where=AT_SMALL,
            )
            for name in ("adam_squared", "adam_entropy")
        ),
        tolerance="0.1, as for B-9",
        paper="two stages",
        prediction="none: Adam divides tiny gradients by their own size",
        expected="fails",
        reason=(
            "Adam rescales each gradient to the size of the rate, so that small gradients of W_K"
            " and W_Q do not hold them back: they set out at step 1. The slides call the phenomenon"
            " sensitive to hyper-parameters and do not give theirs."
        ),
    ),
    Claim(
        "B-12",
        "From a larger start there are no clean two stages: keys and queries have gone farther at"
        " the boundary",
        "Li 2023, two-stage process ('common default hyperparameters: not visibly two-stage')",
        (
            Check(
                f"way at the boundary, start {LARGE:g} / start {SMALL:g}",
                _softened("sgd_squared", LARGE),
                ">",
                1.0,
                ("sgd_squared",),
                every_seed=True,
                seeds=5,
                where={"start": [SMALL, LARGE]},
            ),
            Check(
                f"way at the boundary, PyTorch's default start / start {SMALL:g}",
                _softened("sgd_squared_default", None),
                ">",
                1.0,
                ("sgd_squared", "sgd_squared_default"),
                every_seed=True,
                seeds=5,
                where=AT_SMALL,
            ),
        ),
        tolerance="an order",
        paper="not visibly two-stage",
        prediction="the escape from near 0 is shorter",
    ),
)


# -- figures ---------------------------------------------------------------------------------------


def figures(record: Record) -> Sequence[Figure]:
    if record.sweeps:
        return ()
    return (_ways(record), _map(record), _norms(record))


def _ways(record: Record) -> Figure:
    panels = []
    for name, title in ARMS.items():
        arm = record.arm(name)
        displacement = arm.trajectory["displacement"].sel(start=SMALL)
        going = displacement.sel(
            step=slice(1, None)
        )  # the start, drawn anew, differs from itself by rounding
        lines = [
            over_seeds(label, going["step"], going.sel(part=part).transpose("seed", "step"))
            for part, label in (("values", "W_V"), ("keys", "W_K"), ("queries", "W_Q"))
        ]
        boundary = float(stages(arm)["boundary"].sel(start=SMALL).mean("seed"))
        ends = np.asarray([float(going.min()), float(going.max())])
        lines.append(
            Line(
                "boundary: W_V has gone 90 % of its way",
                np.full(2, boundary),
                ends,
                role="reference",
            )
        )
        panels.append(Panel(title, "step", "way from the start", tuple(lines), "log", "log"))
    caption = (
        f"How far W_V, W_K and W_Q have moved, from a start of {SMALL:g}; mean over seeds with the"
        " range. Two stages: W_K and W_Q are still low where W_V has arrived."
    )
    return Figure("topics_two_stage_ways", "Who moves when", caption, tuple(panels))


def _map(record: Record) -> Figure:
    starts = [start for start in STARTS if start > 0]
    shares = [
        stages(record.arm(name))["share"].mean("seed", skipna=False).sel(start=starts).values
        for name in ARMS
    ]
    label = "way of W_K and W_Q at the boundary / their whole way"
    cells = HeatMap(
        label, np.asarray(starts), np.asarray(list(ARMS.values())), np.asarray(shares), "log"
    )
    panel = Panel(
        "two stages where the share is at most 0.1",
        "scale of the start",
        "optimiser and loss",
        (cells,),
    )
    caption = (
        "Where two stages exist: the share of their way that keys and queries have gone when the"
        f" values have gone 90 % of theirs, mean over {record.seeds} seeds. PyTorch's default start"
        f" has the standard deviation {_default_std(record):.2g}; with SGD and squared error it"
        f" gives {float(stages(record.arm('sgd_squared_default'))['share'].mean('seed')):.2g}."
    )
    return Figure("topics_two_stage_map", "The map of two stages", caption, (panel,))


def _default_std(record: Record) -> float:
    ids = record.config["topics"] * record.config["words_per_topic"] + 1
    return (3 * ids) ** -0.5


def _norms(record: Record) -> Figure:
    """The slides' own picture, on linear axes."""
    panels = []
    for name in ("sgd_squared", "adam_squared"):
        trajectory = record.arm(name).trajectory
        norm = trajectory["part_norm"].sel(start=SMALL)
        lines = [
            over_seeds(f"||{label}||", norm["step"], norm.sel(part=part).transpose("seed", "step"))
            for part, label in (("values", "W_V"), ("keys", "W_K"), ("queries", "W_Q"))
        ]
        panels.append(Panel(ARMS[name], "step", "Frobenius norm", tuple(lines)))
    caption = "The slides' figure: norms of the three matrices against the step."
    return Figure(
        "topics_two_stage_norms", "Norms of values, keys and queries", caption, tuple(panels)
    )


DIVERGENCES = (
    Divergence(
        "optimiser of the two-stage figure",
        "not stated ('SGD or Adam')",
        "not in the repository",
        "SGD with squared error; all four are mapped",
        "B-9 holds for SGD with squared error, B-9b for cross-entropy; Adam has no two stages"
        " (B-9d)",
    ),
    Divergence(
        "start of W_K, W_Q, W_V",
        "near 0",
        "noise x Uniform(0, 1), all positive; the noise defaults to 0.0",
        "N(0, std^2)",
        "at exactly 0 the gradients of W_K and W_Q are 0 for ever (B-9c)",
    ),
    Divergence(
        "output bias",
        "b_pred",
        "frozen to 0 with the decoder",
        "none",
        "a trained bias has 10 to 20 times the curvature of the values, so that SGD must take"
        " smaller steps",
    ),
    Divergence(
        "inputs",
        "one-hot",
        "one-hot, then LayerNorm with a trained type embedding: two words have cosine 0.991",
        "one-hot",
        "the authors' model is not the one of the slides",
    ),
    Divergence(
        "documents",
        "tau topics, N to infinity",
        "10,000 fixed documents, Dirichlet topics, masks drawn once",
        "new documents of 64 words every step",
        "without attention the values end 6 % below 1/(v(1-(1-p_c)p_m)), by the finite N; once"
        " attention moves, 14 %",
    ),
)

STUDY = Study(
    name="topics_two_stage",
    title="Values first, attention second",
    paper="Li, Li & Risteski 2023",
    presets={
        "quick": Config(
            topics=5,
            words_per_topic=5,
            topics_per_document=2,
            squared_rate=8.0,
            entropy_rate=8.0,
            squared_steps=1500,
            steps=1000,
        ),
        "paper": Config(),
    },
    experiment=experiment,
    claims=CLAIMS,
    figures=figures,
    divergences=DIVERGENCES,
)
