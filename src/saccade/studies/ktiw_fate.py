"""Does the sign of the lexical probe after five steps decide the fate of a permutation run? (after
Snell, Zhong, Klein & Steinhardt 2021, section 3.3)

Permutations have no co-occurrence signal, yet some runs attend to the right words early and others
late or never. The toy dynamics (`theory/lexicon_then_attention.py`) has a saddle at uniform
attention: lexical advantage and attention grow together, with the sign that the advantage has.
The advantage is beta(right) / beta(elsewhere) - 1; a run's fate is early success, or not.

Interventions after five steps, with a new optimiser:

* restarted: no edit;
* turned: `hidden_layer.weights[:hidden]` (the half of the readout that reads the context) is
  negated: to first order, the advantage changes its sign;
* sham: `hidden_layer.weights[hidden:]` (the half that reads the decoder's state) is negated: an
  edit of the same size and distribution, on which the advantage does not depend to first order.

The arms `zero` and `uniform_zero` start the decoder from zero, with learned and uniform attention.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np
import xarray as xr

from saccade.contracts.probe import AbstractProbe
from saccade.core.study import Study, divergences
from saccade.figures.figure import Figure, HeatMap, Panel, curve, level
from saccade.judging.bound import Above, AbstractBound, AtMost, Below, Within
from saccade.judging.claim import Check, Claim
from saccade.judging.statistics import (
    FisherTest,
    GeometricMean,
    McNemarTest,
    Mean,
    Rate,
    RateDifference,
)
from saccade.models.sequence_to_sequence import (
    ReadoutHalf,
    SequenceToSequence,
    SequenceToSequenceConfig,
)
from saccade.probes.attention import AttentionStatistics
from saccade.probes.translation import (
    AttentionOffsets,
    AttentionPlaces,
    LexicalKnowledge,
    TokenAccuracy,
    success_step,
)
from saccade.records.record import Arm, Arms
from saccade.records.schedule import AtSteps
from saccade.records.trajectory import at_place
from saccade.records.variable import Variable
from saccade.settings import require_count
from saccade.studies._ktiw import FULL_SIZE, PAPER, QUICK, AbstractCopyingConfig, runs
from saccade.tasks.copying import Copying
from saccade.theory import lexicon_then_attention as toy
from saccade.train.lab import Lab
from saccade.train.recipe import Recipe
from saccade.train.training import TrainedArm

EDITS: dict[str, ReadoutHalf | None] = {"restarted": None, "turned": "context", "sham": "state"}
"""Arms that go on from the first steps, and the half of the readout that is negated."""
SIZES = {"plain": "length", "shorter": "shorter_length"}
"""Arms without an intervention, and the config's field with their number of words."""
LATER = 25
"""Step at which attention is compared with the toy's prediction."""
FATES = {1.0: "early", 0.0: "late or never"}
SETTLED = 100
"""Step at which runs attend to the right position or avoid it."""


@dataclasses.dataclass(frozen=True)
class Config(AbstractCopyingConfig):
    """Settings of the study."""

    seeds: int = 40
    """Runs per arm, each with its own initialisation and data."""
    shorter_length: int = 30
    """Words of the other permutations."""
    early: int = 5
    """Step at which the sign of the lexical advantage is taken."""
    steps_per_word: int = 5
    """A run is early if it succeeds within this many steps per word of a sequence: 200 steps (those
    of the released code) for 40 words."""
    steps: int = 300
    """Steps without intervention."""
    interval: int = 25
    """Steps between two evaluations."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "shorter_length", "early", "steps_per_word")
        require_count(self, "steps", least=max(map(self.budget, SIZES)))

    def budget(self, arm: str) -> int:
        """Steps within which a run of an arm is early."""
        return self.steps_per_word * getattr(self, SIZES.get(arm, "length"))

    def permutations(self, arm: str) -> Copying:
        size = getattr(self, SIZES.get(arm, "length"))
        return Copying(size, size, test_size=self.test_size)

    def fate_recipe(
        self,
        arm: str,
        model: SequenceToSequenceConfig,
        steps: int,
        *,
        probes: Sequence[AbstractProbe] = (),
    ) -> Recipe:
        """A training of an arm on permutations: accuracy, attention and lexical knowledge, evenly
        and at the steps that claims name.
        """
        named = {self.early, LATER, SETTLED, *map(self.budget, SIZES)}
        chosen = {*range(0, steps, self.interval), *named}
        lexicon = LexicalKnowledge(self.test_size)
        return self.recipe(
            self.permutations(arm),
            model,
            steps,
            at=AtSteps(tuple(sorted(step for step in chosen if step <= steps))),
            probes=(TokenAccuracy(), AttentionPlaces(), lexicon, AttentionStatistics(), *probes),
        )


def experiment(config: Config, lab: Lab) -> Arms:
    model, seeds, short = config.model, config.seed_numbers, config.budget("plain")
    plain = {
        name: config.fate_recipe(
            name, model, config.steps, probes=(AttentionOffsets(getattr(config, size)),)
        )
        for name, size in SIZES.items()
    }
    arms = {name: _with_prediction(arm, config) for name, arm in lab.train(plain, seeds).items()}
    first = first_steps(config, lab)
    begun = {
        name: first if half is None else first.edited(partial(_negated, half))
        for name, half in EDITS.items()
    }
    edited = {name: config.fate_recipe(name, model, short) for name in EDITS}
    for name, arm in lab.train(edited, seeds, start=begun).items():
        arms[name] = with_edit_norm(arm, first, begun[name])
    zero = dataclasses.replace(model, decoder_start="zero")
    uniform_zero = dataclasses.replace(zero, attention="uniform")
    others = {
        "zero": config.fate_recipe("zero", zero, short),
        "uniform_zero": config.fate_recipe("uniform_zero", uniform_zero, config.steps),
    }
    return arms | lab.train(others, seeds)


def first_steps(config: Config, lab: Lab) -> TrainedArm:
    """The training that ends with the early step, from which edited runs go on."""
    recipe = config.fate_recipe("first steps", config.model, config.early)
    return lab.train({"first steps": recipe}, config.seed_numbers)["first steps"]


def _negated(half: ReadoutHalf, model: SequenceToSequence) -> SequenceToSequence:
    return model.with_readout_negated(half)


def with_edit_norm(arm: TrainedArm, first: TrainedArm, begun: TrainedArm) -> TrainedArm:
    """The arm with the Frobenius norm of the edit of its weights, per seed."""
    leaves = (
        jax.tree.leaves(eqx.filter(one.models, eqx.is_inexact_array)) for one in (first, begun)
    )
    squares = [
        np.square(np.asarray(new, float) - np.asarray(old, float)).reshape(len(new), -1).sum(1)
        for old, new in zip(*leaves, strict=True)
    ]
    about = Variable((), "Frobenius norm of the edit of the weights")
    return arm.with_variables(edit_norm=("seed", np.sqrt(sum(squares)), about.attributes))


def _with_prediction(arm: TrainedArm, config: Config) -> TrainedArm:
    """The arm with the sign that attention takes by the toy, from the advantage at the early
    step and uniform attention.
    """
    advantage = _at(_advantage(arm.trajectory), config.early)
    grown = toy.attention_score(1.0, 0.0, advantage, 0.0)
    sign = np.sign(grown).assign_attrs(Variable((), "sign of attention's change").attributes)
    prediction = xr.Dataset({"attention_sign": sign})
    return arm.with_prediction(prediction, "toy dynamics, p = 0 at uniform attention")


# -- measures --------------------------------------------------------------------------------------


def _at(values: xr.DataArray, step: int) -> xr.DataArray:
    """Values at a step, or at the last recorded one before it."""
    return at_place(values, int((values["step"] <= step).sum()) - 1)


def _advantage(trajectory: xr.Dataset) -> xr.DataArray:
    """beta(right) / beta(elsewhere) - 1 along the steps."""
    return trajectory["lexicon_right"] / trajectory["lexicon_elsewhere"] - 1


def _positive(arm: Arm, step: int) -> xr.DataArray:
    """Whether the advantage is positive at a step."""
    there = _at(_advantage(arm.trajectory), step)
    return (there > 0).astype(float).where(there.notnull())


def _fate(name: str, arms: Arms, config: Config) -> xr.DataArray:
    """Whether a run succeeds early."""
    steps = success_step(arms[name].trajectory["test_accuracy"])
    return (steps <= config.budget(name)).astype(float)


def _agrees(name: str, step: str | int, arms: Arms, config: Config) -> xr.DataArray:
    """Whether the advantage's sign at a step is that of the fate."""
    at = getattr(config, step) if isinstance(step, str) else step
    sign = _positive(arms[name], at)
    return (sign == _fate(name, arms, config)).astype(float).where(sign.notnull())


def _by_sign(name: str, arms: Arms, config: Config) -> tuple[xr.DataArray, xr.DataArray]:
    """Fates of the runs with a positive advantage, and of the others."""
    sign, fate = _positive(arms[name], config.early), _fate(name, arms, config)
    return fate.where(sign == 1), fate.where(sign == 0)


def _sooner_and_later(arms: Arms, config: Config) -> tuple[xr.DataArray, xr.DataArray]:
    return _agrees("plain", "early", arms, config), _agrees("plain", 0, arms, config)


def _same_sign(name: str, arms: Arms, config: Config) -> xr.DataArray:
    """Whether the advantage has the same sign just after an edit as without it."""
    edited, kept = (_positive(arms[one], 0) for one in (name, "restarted"))
    return (edited == kept).astype(float).where(edited.notnull() & kept.notnull())


def _same_fate(name: str, arms: Arms, config: Config) -> xr.DataArray:
    fates = (_fate(one, arms, config) for one in (name, "restarted"))
    return (next(fates) == next(fates)).astype(float)


def _opposite(measure: Callable[..., xr.DataArray], arms: Arms, config: Config) -> xr.DataArray:
    return 1 - measure("turned", arms, config)


def _two_fates(first: str, second: str, arms: Arms, config: Config) -> tuple[xr.DataArray, ...]:
    """Whether fates agree with the sign before the edit: in one arm, and in another."""
    sign = _positive(arms["restarted"], 0)
    return tuple(
        (sign == _fate(name, arms, config)).astype(float).where(sign.notnull())
        for name in (first, second)
    )


def _norm_ratio(arms: Arms, config: Config) -> xr.DataArray:
    norms = (arms[name].trajectory["edit_norm"] for name in ("turned", "sham"))
    return next(norms) / next(norms)


def _right_mass(name: str, step: int, arms: Arms, config: Config) -> xr.DataArray:
    """Attention at the right position, relative to uniform attention."""
    mass = _at(arms[name].trajectory["attention_mass"].sel(offset=0, drop=True), step)
    return mass * (getattr(config, SIZES[name]) + 1)  # the positions of the words, and END


def _avoided(name: str, arms: Arms, config: Config) -> xr.DataArray:
    return _right_mass(name, SETTLED, arms, config).where(_fate(name, arms, config) == 0)


def _as_predicted(name: str, arms: Arms, config: Config) -> xr.DataArray:
    """Whether attention at the right position is above or below uniform, as the toy says."""
    excess = _right_mass(name, LATER, arms, config) - 1
    predicted = arms[name].prediction["attention_sign"]
    return (excess * predicted > 0).astype(float).where(excess.notnull() & predicted.notnull())


def _lexicon_at_best(arms: Arms, config: Config) -> xr.DataArray:
    """Best agreement of beta with the right position without the decoder's start, by chance 1."""
    trajectory = arms["uniform_zero"].trajectory
    return (trajectory["lexicon_agreement"] / trajectory["random_agreement"]).max("step")


# -- claims ----------------------------------------------------------------------------------------

RATE = Rate(20)
MOSTLY, RATHER, NEARLY_ONE = Above(0.75), Above(0.5), Within(0.95, 1.05)
TITLES = {"plain": "40 words", "shorter": "30 words", "zero": "40 words, decoder from zero"}
EARLY_SUCCESS = (
    "early: a token accuracy above 0.95, at one of the evaluations every 25 steps, within 5 steps"
    " per word (200 for 40 words, as in the released code)"
)
FOUND = "The sign was noticed on an earlier record of 20 other seeds, with 40 words"
BEYOND = "beyond the paper"
_claim = partial(Claim, statistic=RATE, full_size=FULL_SIZE)


def _agreement(name: str, step: str | int, bound: AbstractBound = MOSTLY) -> Check:
    when = "step 5" if step == "early" else f"step {step}"
    quantity = f"{TITLES[name]}: share of runs whose fate has the sign of {when}"
    return Check(quantity, partial(_agrees, name, step), bound, name)


def _separated(name: str) -> Check:
    """Fisher's test of the fates of runs of one sign against those of the other."""
    quantity = f"{TITLES[name]}: Fisher's exact test, fate by sign"
    why = "each of the two groups has the runs of one sign"
    measure = partial(_by_sign, name)
    return Check(quantity, measure, Below(0.001), name, FisherTest(5), left_out=why)


CLAIMS = (
    _claim(
        "C-16",
        "The sign of the lexical advantage after five steps separates permutation runs that succeed"
        " early from those that do not",
        f"{BEYOND}: its thesis (section 2.2) for the differences between runs",
        tuple(check for name in SIZES for check in (_agreement(name, "early"), _separated(name))),
        f"the share's interval must lie above 0.75; 0.001 guards against groups of uneven size;"
        f" {EARLY_SUCCESS}. {FOUND}",
        prediction="1; 0 (the toy's saddle)",
    ),
    _claim(
        "C-16b",
        "The initialisation already has this sign, less reliably",
        BEYOND,
        (
            _agreement("plain", 0, RATHER),
            Check(
                "share of runs whose fate has the sign of step 5, less step 0",
                _sooner_and_later,
                Above(0.0),
                "plain",
                RateDifference(20, paired=True),
            ),
        ),
        f"intervals above one half and above 0. {FOUND}",
    ),
    _claim(
        "C-16c",
        "Runs whose advantage is turned round meet the opposite fate",
        f"{BEYOND}: an intervention (`hidden_layer.weights[:hidden]` is negated after five steps)",
        (
            Check(
                "share of runs whose fate is opposite to that of the restarted run",
                partial(_opposite, _same_fate),
                RATHER,
                ("turned", "restarted"),
            ),
            Check(
                "McNemar's exact test, fate by the sign before the edit, restarted against turned",
                partial(_two_fates, "restarted", "turned"),
                Below(0.001),
                ("turned", "restarted"),
                McNemarTest(20),
            ),
        ),
        f"more than half; 0.001; {EARLY_SUCCESS}",
        prediction="1; 0, if the advantage is the cause",
        reason="The edit turns the sign (C-16g) and changes fates, but mostly one way: runs that"
        " were to be early become late; few late ones become early. In the record, about half of"
        " the turned runs have the old sign again after 25 steps. A guess: the edit also changes"
        " the model's output as a whole; its loss rises more than with the sham edit.",
    ),
    _claim(
        "C-16d",
        "Runs with a sham edit of the same size keep their fate",
        f"{BEYOND}: the control of C-16c (`hidden_layer.weights[hidden:]` is negated)",
        Check(
            "share of runs whose fate is that of the restarted run",
            partial(_same_fate, "sham"),
            MOSTLY,
            ("sham", "restarted"),
        ),
        f"the interval must lie above 0.75; {EARLY_SUCCESS}",
        prediction="1, if the advantage is the cause",
    ),
    Claim(
        "C-16g",
        "The edit of C-16c turns the lexical advantage round; the sham edit, of the same size, does"
        " not",
        f"{BEYOND}: the premise of C-16c and C-16d",
        (
            Check(
                "share of runs whose sign is opposite just after the edit",
                partial(_opposite, _same_sign),
                MOSTLY,
                ("turned", "restarted"),
            ),
            Check(
                "share of runs whose sign is kept by the sham edit",
                partial(_same_sign, "sham"),
                MOSTLY,
                ("sham", "restarted"),
            ),
            Check(
                "norm of the edit / of the sham edit",
                _norm_ratio,
                NEARLY_ONE,
                ("turned", "sham"),
                GeometricMean(5),
            ),
        ),
        "intervals above 0.75; norms equal within 5 %: both halves have the same distribution. The"
        " edits were tried before on six other seeds",
        prediction="1; 1; 1, to first order in the context",
        statistic=RATE,
    ),
    _claim(
        "C-16e",
        "Under uniform attention the lexical probe stays at chance on permutations if the decoder"
        " starts from zero",
        f"{BEYOND}: a test of why C-7 fails",
        Check(
            "best A(right position, beta) / chance", _lexicon_at_best, AtMost(2.0), "uniform_zero"
        ),
        "2 times chance within 300 steps, as for C-7",
        prediction="1, if the decoder's start holds the order of the words",
        statistic=Mean(20),
        reason="The decoder's start is not what tells the model the words under uniform attention:"
        " this guess about C-7 is refuted. No other explanation is tested.",
    ),
    _claim(
        "C-16h",
        "The sign separates early from late runs also if the decoder starts from zero",
        f"{BEYOND}: C-16 without the decoder's start",
        (_agreement("zero", "early"), _separated("zero")),
        f"as for C-16; {EARLY_SUCCESS}",
        prediction="1; 0: the toy has no decoder's start",
    ),
    _claim(
        "C-16f",
        "Runs that do not succeed early avoid the right position",
        BEYOND,
        tuple(
            Check(
                f"{TITLES[name]}: attention at the right position / uniform, at step 100",
                partial(_avoided, name),
                Below(1.0),
                name,
                GeometricMean(5),
                left_out="the claim is about runs that do not succeed early",
            )
            for name in SIZES
        ),
        f"below uniform attention; {EARLY_SUCCESS}. {FOUND}",
        prediction="below 1 (the toy's saddle)",
    ),
    _claim(
        "C-16i",
        "Attention then moves towards the right position, or away from it, as the toy dynamics"
        " predicts from the advantage after five steps",
        f"{BEYOND}; the toy is of the authors' blog",
        tuple(
            Check(
                f"{TITLES[name]}: share of runs with the predicted sign of attention - uniform, at"
                " step 25",
                partial(_as_predicted, name),
                MOSTLY,
                name,
            )
            for name in SIZES
        ),
        "the interval must lie above 0.75",
        prediction="1",
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return _advantages(arms, config), _interventions(arms, config), _offsets(arms, config)


def _advantages(arms: Arms, config: Config) -> Figure:
    panels = []
    for name in SIZES:
        ratio = first_ratios(arms[name].trajectory)
        fate, lines = _fate(name, arms, config), []
        for early, label in FATES.items():
            lines += runs(label, ratio.isel(seed=np.flatnonzero(fate.values == early)))
        words = getattr(config, SIZES[name])
        one = level("no advantage", (0.0, float(ratio["step"][-1])), 1.0)
        title, label = f"permutations of {words} words", "beta(right) / beta(elsewhere)"
        panels.append(Panel(title, "step", label, (*lines, one), y_scale="log"))
    caption = (
        "The lexical advantage along the first steps, one line per run. Whether the ratio is above"
        f" or below 1 at step {config.early} is compared with the run's fate."
    )
    title = "The sign of the lexical advantage and the fate of a run"
    return Figure("ktiw_fate_advantage", title, caption, tuple(panels))


def first_ratios(trajectory: xr.Dataset) -> xr.DataArray:
    """beta(right) / beta(elsewhere) along the first steps."""
    return (_advantage(trajectory) + 1).sel(step=slice(0, LATER))


def early_by_sign(arms: Arms, config: Config, edits: Sequence[str]) -> Panel:
    """Share of runs that succeed early, by edit and by the advantage's sign before it."""
    before = _positive(arms["restarted"], 0)
    shares = [
        [float(_fate(name, arms, config).where(before == sign).mean()) for sign in (1, 0)]
        for name in edits
    ]
    columns = np.asarray(["advantage positive", "advantage negative"])
    cells = HeatMap("share that succeeds early", columns, np.asarray(edits), np.asarray(shares))
    return Panel("after five steps", "before the edit", "edit", (cells,))


def _interventions(arms: Arms, config: Config) -> Figure:
    caption = (
        "Share of runs that succeed early, by the sign of the advantage before the edit: without an"
        " edit, with the half of the readout that reads the context negated (turned), and with the"
        " half that reads the decoder's state negated (sham)."
    )
    panel = early_by_sign(arms, config, [*EDITS])
    return Figure("ktiw_fate_interventions", "Turning the sign round", caption, (panel,))


def _offsets(arms: Arms, config: Config) -> Figure:
    panels = []
    for name in SIZES:
        mass = _at(arms[name].trajectory["mass_by_offset"], SETTLED)
        fate = _fate(name, arms, config).values
        groups = {label: np.flatnonzero(fate == early) for early, label in FATES.items()}
        lines = [
            curve(label, mass.isel(seed=chosen)) for label, chosen in groups.items() if len(chosen)
        ]
        title = f"permutations of {getattr(config, SIZES[name])} words"
        label = "offset from the right position"
        panels.append(Panel(title, label, "attention", tuple(lines)))
    caption = f"Attention by offset at step {SETTLED}, mean over runs of one fate with the range."
    title = "Where early and late runs attend"
    return Figure("ktiw_fate_offsets", title, caption, tuple(panels))


DIVERGENCES = divergences(
    """
    permutations | 40 words | 40 words | 40 and 30 words | C-16 at two sizes
    decoder's start | not stated | the encoder's last state | the same; zero in two arms | C-16e,
        C-16h
    evaluation | not stated | every 10 steps | every 25 steps, and at steps that claims name | early
        success is seen at most 25 steps late
    """
)

ABOUT = ("ktiw_fate", "The first steps decide the fate of a permutation run", PAPER)
SMALL: dict[str, Any] = {**QUICK, "length": 6, "shorter_length": 5, "steps_per_word": 2}
SMALL |= {"steps": 15}  # all but the edits themselves (C-16g) needs the paper's size
PRESETS = {"quick": Config(**SMALL), "paper": Config(first_seed=1000)}
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
