"""Words are learned from co-occurrence: the bag-of-words proxy and its count table (Snell, Zhong,
Klein & Steinhardt 2021, section 4, A.1 to A.3).

The proxy starts in the direction of the count table of IBM Model 1. On permutations that table is
flat, on mixtures of permutations it is flat within each set. Attention that minimises the loss need
not go to the position where the lexical probe is largest (A.1).
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saccade.contracts.task import FIRST_WORD
from saccade.core.study import Study, divergences
from saccade.errors import ConfigError
from saccade.figures.figure import Figure, HeatMap, Line, Panel, over_seeds
from saccade.judging.bound import Above, AbstractBound, AtMost, Below, Within
from saccade.judging.claim import Check, Claim
from saccade.judging.statistics import (
    Deterministic,
    EverySeed,
    GeometricMean,
    log_slope,
)
from saccade.models.word_proxy import WordProxyConfig
from saccade.probes.co_occurrence import CountTable, Lexicon, LexiconRates
from saccade.records.record import Arm, Arms
from saccade.records.schedule import Logarithmic
from saccade.records.trajectory import at_place
from saccade.settings import require_count, require_positive, require_single
from saccade.studies._ktiw import PAPER
from saccade.studies._seeds import AbstractSeededConfig
from saccade.tasks.copying import Copying
from saccade.tasks.lexicon_sentences import LexiconSentences
from saccade.theory import count_table
from saccade.theory import optimal_attention as optimum
from saccade.train.batches import Fresh
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam
from saccade.train.recipe import Recipe
from saccade.train.training import TrainedArm

COUNTED = {"permutations": "permutations", "choice": "larger set", "mixture": "mixture of two sets"}
JUDGED_DIMENSION = 10000
"""The dimension at which C-1 is judged."""
JUDGED = f"rates_{JUDGED_DIMENSION}"
TABLE = ("id", "other_id")
SHOWN = {"counts": ("count_table", 0, "count"), "proxy": ("lexicon", -1, "probability")}
"""Arms whose tables are drawn: variable, place along the steps and label."""


@dataclasses.dataclass(frozen=True)
class Config(AbstractSeededConfig):
    """Settings of the study."""

    seeds: int = 20
    """Repetitions, each with its own initialisation and data."""
    dimensions: tuple[int, ...] = (100, 1000, 10000, 100000)
    """Dimensions of the proxy whose initial derivative is measured; the theory is about the limit
    of large dimensions."""
    outputs: int = 6
    """Words per language in the corpus for that derivative."""
    corpus_size: int = 200
    """Pairs of that corpus."""
    length: int = 40
    """Words per sequence to be copied."""
    choice: int = 60
    """Words to choose from where co-occurrence is informative."""
    counted: int = 200000
    """Pairs from which count tables are made."""
    proxy_dimension: int = 256
    """Dimension of the proxies that are trained."""
    proxy_rate: float = 0.001
    """Learning rate of Adam for the proxies."""
    proxy_steps: int = 1000
    """Steps of the proxies, on 64 new pairs each."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "corpus_size", "counted", "proxy_dimension", "proxy_steps")
        require_count(self, "outputs", "length", least=2)
        if JUDGED_DIMENSION not in self.dimensions or min(self.dimensions) < 1:
            allowed = f"whole numbers above 0, {JUDGED_DIMENSION} among them"
            raise ConfigError(f"dimensions: got {self.dimensions}, allowed: {allowed}")
        require_count(self, "choice", least=self.length + 1)
        require_positive(self, "proxy_rate")
        require_single(self, "the study's arms share it", "proxy_rate")

    def copying(self, which: str, **settings) -> Copying:
        words = self.choice if which == "choice" else self.length
        return Copying(self.length, words, groups=2 if which == "mixture" else 1, **settings)


def experiment(config: Config, lab: Lab) -> Arms:
    seeds = config.seed_numbers
    rates = {f"rates_{size}": _rates(config, size) for size in config.dimensions}
    counts = {f"counts_{which}": _counts(config, which) for which in COUNTED}
    proxies = {f"proxy_{which}": _proxy(config, which) for which in COUNTED}
    arms: dict[str, Arm] = {
        name: _with_expected_rates(arm) for name, arm in lab.train(rates, seeds).items()
    }
    for name, arm in lab.train(counts, seeds).items():
        arms[name] = _with_expected_counts(arm, config)
    return arms | lab.train(proxies, seeds) | {"counter_example": _counter_example()}


def _rates(config: Config, dimension: int) -> Recipe:
    """The initial derivative of a proxy, on one corpus per seed."""
    return Recipe(
        LexiconSentences(config.outputs, shortest=3, longest=6, train_size=config.corpus_size),
        WordProxyConfig(dimension),
        Adam(1.0),
        0,
        ends=(LexiconRates(), CountTable()),
    )


def _with_expected_rates(arm: TrainedArm) -> TrainedArm:
    counts = arm.snapshot["count_table"]
    logits = count_table.initial_logit_derivative(counts.values)
    probabilities = count_table.initial_probability_derivative(counts.values)
    rates = {"logit_rate": logits, "probability_rate": probabilities}
    prediction = xr.Dataset({name: counts.copy(data=rate) for name, rate in rates.items()})
    return arm.with_prediction(prediction, "Snell 2021, eq. 54; eq. 15 with the factor 1/|O|")


def _counts(config: Config, which: str) -> Recipe:
    """The count table of many sequences to be copied."""
    task = config.copying(which, train_size=config.counted, test_size=1)
    return Recipe(task, WordProxyConfig(1), Adam(1.0), 0, ends=(CountTable(),))


def _with_expected_counts(arm: TrainedArm, config: Config) -> TrainedArm:
    expected = count_table.expected_count_table(arm.recipe.task)
    # END counts in L: entries of words are smaller by k / (k + 1).
    expected = expected * config.counted * config.length / (config.length + 1)
    counts = arm.snapshot["count_table"].isel(seed=0, step=0, drop=True)
    prediction = xr.Dataset({"count_table": counts.copy(data=expected)})
    return arm.with_prediction(prediction, "derived: co-occurrences of distinct words")


def _proxy(config: Config, which: str) -> Recipe:
    """A proxy trained on sequences to be copied."""
    return Recipe(
        config.copying(which, train_size=64, test_size=1),
        WordProxyConfig(config.proxy_dimension),
        Adam(config.proxy_rate),
        config.proxy_steps,
        at=Logarithmic(10),
        ends=(Lexicon(),),
        batches=Fresh(64),
    )


def _counter_example() -> Arm:
    logits, target = np.asarray(optimum.COUNTER_EXAMPLE_LOGITS), optimum.COUNTER_EXAMPLE_TARGET
    solution = optimum.optimal_attention(logits, target)
    beta = optimum.lexical_probes(logits, target)
    measured = xr.Dataset(
        {"attention": ("position", solution.attention), "beta": ("position", beta)}
    )
    measured = measured.assign(probability=solution.probability, gap=solution.gap)
    theory = xr.Dataset({"attention": ("position", np.asarray(optimum.COUNTER_EXAMPLE_ATTENTION))})
    theory = theory.assign(probability=optimum.COUNTER_EXAMPLE_PROBABILITY)
    measured = measured.assign_coords(position=np.arange(len(beta))).expand_dims(seed=[0])
    return Arm(measured).with_prediction(theory, "Snell 2021, appendix A.1")


# -- measures --------------------------------------------------------------------------------------


def _rate_error(variable: str, arms: Arms, config: Config, name: str = JUDGED) -> xr.DataArray:
    """Largest |rate - theory| / largest |theory|."""
    arm = arms[name]
    off = abs(arm.snapshot[variable] - arm.prediction[variable]).max(TABLE)
    return at_place(off / abs(arm.prediction[variable]).max(TABLE), 0)


def _errors(arms: Arms, config: Config) -> xr.DataArray:
    """The error of the logits' rate for every dimension."""
    names = [f"rates_{size}" for size in config.dimensions]
    errors = [_rate_error("logit_rate", arms, config, name) for name in names]
    return xr.concat(errors, "dimension", coords="minimal", compat="override")


def _error_exponent(arms: Arms, config: Config) -> xr.DataArray:
    along = xr.DataArray(np.asarray(config.dimensions, float), dims="dimension")
    return log_slope(along, _errors(arms, config), "dimension")


def _correlation(arms: Arms, config: Config) -> xr.DataArray:
    arm = arms[JUDGED]
    return at_place(xr.corr(arm.snapshot["logit_rate"], arm.prediction["logit_rate"], TABLE), 0)


def _slope(arms: Arms, config: Config) -> xr.DataArray:
    """|O| x slope of the probabilities' rate against 2 (C - mean): 1 with the factor 1/|O|."""
    arm = arms[JUDGED]
    x, y = arm.prediction["logit_rate"], arm.snapshot["probability_rate"]
    return at_place(x.sizes["other_id"] * (x * y).sum(TABLE) / (x**2).sum(TABLE), 0)


def _pairs(which: str, config: Config) -> tuple[xr.DataArray, xr.DataArray, xr.DataArray]:
    """Where a table of ids holds a word with itself, two words of one set, or of two sets."""
    task = config.copying(which)
    place = np.arange(task.vocabulary_size) - FIRST_WORD
    words = (place >= 0)[:, None] & (place >= 0)
    group, itself = place // task.set_size, np.eye(len(place), dtype=bool)
    same = group[:, None] == group
    masks = (words & itself, words & same & ~itself, words & ~same)
    own, other, across = (xr.DataArray(mask, dims=TABLE) for mask in masks)
    return own, other, across


def _ratio_error(which: str, arms: Arms, config: Config) -> xr.DataArray:
    """Largest |C_ii / C_io / ((n-1)/(k-1)) - 1| over all words i and o of a set."""
    counts = at_place(arms[f"counts_{which}"].snapshot["count_table"], 0)
    own, other, _ = _pairs(which, config)
    ratio = counts.where(own).max("other_id") / counts.where(other)  # one own entry per row
    return abs(ratio / count_table.diagonal_ratio(config.copying(which)) - 1).max(TABLE)


def _exact_ratio_error(which: str, arms: Arms, config: Config) -> xr.DataArray:
    """The same, largest over seeds: it is zero whatever sequences are drawn."""
    return _ratio_error(which, arms, config).max("seed")


def _across(arms: Arms, config: Config) -> xr.DataArray:
    """Largest count of two words of different sets / largest count, over all seeds."""
    counts = at_place(arms["counts_mixture"].snapshot["count_table"], 0)
    shares = counts.where(_pairs("mixture", config)[2]).max(TABLE) / counts.max(TABLE)
    return shares.max("seed")


def _preference(which: str, arms: Arms, config: Config) -> xr.DataArray:
    """Mean probability that a word gives to itself / to another word of its set, at the end."""
    lexicon = at_place(arms[f"proxy_{which}"].snapshot["lexicon"], -1)
    own, other, _ = _pairs(which, config)
    return lexicon.where(own).mean(TABLE) / lexicon.where(other).mean(TABLE)


def _off(variable: str, arms: Arms, config: Config) -> xr.DataArray:
    arm = arms["counter_example"]
    off = abs(arm.trajectory[variable] - arm.prediction[variable])
    return off.max("position") if "position" in off.dims else off


def _at_largest_probe(arms: Arms, config: Config) -> xr.DataArray:
    trajectory = arms["counter_example"].trajectory
    return trajectory["attention"].isel(position=trajectory["beta"].argmax("position"))


def _rate_check(variable: str, quantity: str) -> Check:
    return Check(quantity, partial(_rate_error, variable), Below(0.05), statistic=GeometricMean(5))


def _exact_ratio(which: str, quantity: str) -> Check:
    """A ratio that is an identity: each sequence has all words of its set."""
    measure = partial(_exact_ratio_error, which)
    return Check(quantity, measure, AtMost(0.01), f"counts_{which}", Deterministic())


def _preference_check(which: str, kind: str, bound: AbstractBound) -> Check:
    quantity = f"{kind}: probability of the word itself / of another of its set"
    measure = partial(_preference, which)
    return Check(quantity, measure, bound, f"proxy_{which}", GeometricMean(5))


CLAIMS = (
    Claim(
        "C-1",
        "The proxy starts in the direction of the count table: d(W e)/dt = 2 (C - mean)",
        "Snell 2021, eq. 54; eq. 15 prints it for probabilities and drops a factor 1/|O|",
        (
            Check("correlation with theory", _correlation, Above(0.999), statistic=EverySeed(5)),
            _rate_check("logit_rate", "largest |logit rate - theory| / largest theory"),
            _rate_check("probability_rate", "largest |probability rate - theory| / largest theory"),
            Check("|O| x slope against 2 (C - mean)", _slope, Within(0.95, 1.05, open=True)),
            Check("exponent of the error in d", _error_exponent, Below(-0.4), "rates_*"),
        ),
        "0.999 (every seed) and 5 % (geometric mean) as specified, at d = 10,000; error ~ d^-1/2"
        " (central limit theorem)",
        paper="2 (C - mean)",
        prediction="1; 0; 0; 1; -0.5",
        arms=JUDGED,
    ),
    Claim(
        "C-2",
        "C_ii / C_io = (n-1)/(k-1) for k distinct words of n: 1 for permutations, and C_io = 0"
        " across the sets of a mixture",
        "derived; Snell 2021, figures 4 and 8",
        (
            _exact_ratio("permutations", "permutations: largest |ratio - 1|"),
            Check(
                "larger set: largest |ratio / ((n-1)/(k-1)) - 1|",
                partial(_ratio_error, "choice"),
                AtMost(0.01),
                "counts_choice",
                EverySeed(5),
            ),
            _exact_ratio("mixture", "mixture, within a set: largest |ratio - 1|"),
            Check(
                "mixture, across sets: largest share",
                _across,
                AtMost(0.0),
                "counts_mixture",
                Deterministic(),
            ),
        ),
        "1 % at 200,000 pairs, as specified. Permutations and mixtures are identities: no sample"
        " can break them, so they are no evidence, only checks of the code",
        paper="flat (figures)",
        prediction="0",
    ),
    Claim(
        "C-2b",
        "A trained proxy distinguishes the words of a larger set, but not those of permutations",
        "Snell 2021, section 3.3 ('the proxy model provably cannot learn') and A.3",
        (
            _preference_check("permutations", "permutations", Below(1.5)),
            _preference_check("mixture", "mixture", Below(1.5)),
            _preference_check("choice", "larger set", Above(3.0)),
        ),
        "1.5 and 3: the random initialisation alone makes words differ a little",
        paper="provably cannot",
        prediction="1; 1; large",
    ),
    Claim(
        "C-3",
        "Attention that minimises the loss can avoid the position with the largest lexical probe",
        "Snell 2021, appendix A.1",
        (
            Check("largest |attention - (0, 1/2, 1/2)|", partial(_off, "attention"), AtMost(1e-3)),
            Check("|probability - 0.859|", partial(_off, "probability"), AtMost(1e-4)),
            Check("attention where beta is largest", _at_largest_probe, AtMost(1e-3)),
        ),
        "1e-3 and 1e-4, as specified; the optimum is certified by its duality gap",
        paper="(0, 1/2, 1/2)",
        prediction="0",
        arms="counter_example",
        statistic=Deterministic(),
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    flat = "Count tables of IBM Model 1: flat for permutations, and within each set of the mixture."
    learned = "Predictions from single words: words predict themselves only in the larger set."
    return (
        _derivative(arms, config),
        _tables("ktiw_proxy_counts", "Count tables", flat, "counts", arms),
        _tables("ktiw_proxy_lexicons", "What the proxy learns", learned, "proxy", arms),
    )


def _derivative(arms: Arms, config: Config) -> Figure:
    arm = arms[JUDGED]
    panels = []
    for variable, title in (("logit_rate", "logits"), ("probability_rate", "probabilities")):
        both = (part[variable].isel(seed=0, step=0) for part in (arm.prediction, arm.snapshot))
        predicted, found = (table.values.ravel() for table in both)
        order = np.argsort(predicted)
        ends = predicted[order[[0, -1]]]
        measured = Line("measured, d = 10,000", predicted[order], found[order])
        lines = (measured, Line("theory", ends, ends, role="theory"))
        panels.append(Panel(title, "predicted rate", "measured rate", lines))
    dimensions, errors = np.asarray(config.dimensions, float), _errors(arms, config)
    falling = float(errors.isel(dimension=0).mean()) * (dimensions / dimensions[0]) ** -0.5
    theory = Line("d^-1/2", dimensions, falling, role="theory")
    lines = (over_seeds("largest error", dimensions, errors), theory)
    panels.append(Panel("dimension", "dimension d", "relative error", lines, "log", "log"))
    caption = (
        "The proxy's initial derivative under gradient flow: 2 (C - mean) for logits, (2/|O|)(C -"
        " mean) for probabilities. One seed; errors over all seeds."
    )
    title = "The proxy starts along the count table"
    return Figure("ktiw_proxy_derivative", title, caption, tuple(panels))


def _tables(name: str, title: str, caption: str, kind: str, arms: Arms) -> Figure:
    """One panel per kind of sequence: a table of the first seed, without END and START."""
    variable, place, label = SHOWN[kind]
    panels = []
    for which, panel_title in COUNTED.items():
        table = at_place(arms[f"{kind}_{which}"].snapshot[variable], place).isel(seed=0).values
        ids = np.arange(len(table) - FIRST_WORD)
        cells = HeatMap(label, ids, ids, table[FIRST_WORD:, FIRST_WORD:], numbered=False)
        panels.append(Panel(panel_title, "target word", "source word", (cells,)))
    return Figure(name, title, caption, tuple(panels))


DIVERGENCES = divergences(
    """
    eq. 15 | 2 (C - mean) for probabilities | not in the repository | (2/|O|)(C - mean) | C-1: the
        softmax's Jacobian at the uniform point is 1/|O|; eq. 54, for logits, is right
    proxy's loss | sum over words | sum over batch | sum | C-1 is about the sum
    precision | not stated | float32 | float32; the optimum of C-3 in float64 | C-1's error is that
        of a finite dimension, a hundred times that of rounding
    """
)

ABOUT = ("ktiw_proxy", "Words are learned from co-occurrence", PAPER)
SMALL: dict[str, Any] = {"length": 6, "choice": 9, "dimensions": (100, 1000, 10000)}
SMALL |= {"proxy_dimension": 64, "proxy_rate": 0.01, "proxy_steps": 300}
PRESETS = {"quick": Config(**SMALL, seeds=8), "paper": Config(first_seed=1000)}
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
