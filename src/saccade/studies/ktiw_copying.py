"""Attention fails where words cannot be translated first (Snell, Zhong, Klein & Steinhardt 2021,
section 3.3 and figure 3).

Permutations of a fixed set of words are copied later than distinct words from a larger set, or not
within the budget: their co-occurrences carry no information, so knowledge to translate individual
words (KTIW) has no signal to grow from. Beyond the paper: success against the number of words, and
permutations with KTIW given to the model beforehand. `ktiw_fate` is about which permutation runs
are late.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import xarray as xr

from saccade.core.study import Study, divergences
from saccade.errors import ConfigError
from saccade.figures.figure import Figure, Line, Panel, curve, over_seeds
from saccade.judging.bound import Above, AbstractBound, AtLeast, AtMost, Below
from saccade.judging.claim import Check, Claim
from saccade.judging.statistics import FisherTest, McNemarTest, Pooled, Rate, RateDifference
from saccade.probes.translation import (
    OFFSETS,
    READABLE,
    AttentionOffsets,
    ratio_of_medians,
    success_step,
)
from saccade.records.record import Arms
from saccade.records.trajectory import at_place, at_start, first_step
from saccade.settings import require_count, with_sweep
from saccade.studies import _ktiw
from saccade.studies._ktiw import FULL_SIZE, PAPER, AbstractCopyingConfig, runs
from saccade.theory.count_table import diagonal_ratio
from saccade.train.lab import Lab


@dataclasses.dataclass(frozen=True)
class Config(AbstractCopyingConfig):
    """Settings of the study."""

    choice: int = 60
    """Words to choose from where co-occurrence is informative."""
    words: tuple[int, ...] = (40, 41, 44, 50, 60, 80)
    """Numbers of words to choose from; they include `length` (permutations) and `choice`."""
    budget: int = 300
    """Steps within which a run must succeed, as in the paper's section 6.2."""
    short_budget: int = 200
    """The steps of the released code; a run that succeeds after them is late."""
    steps: int = 400
    """Steps on one set of words, enough to see runs that learn late."""
    mixture_steps: int = 1000
    """Steps on the mixture, which is learned later."""
    uniform_steps: int = 300
    """Steps with uniform attention."""
    lexicon_steps: int = 40
    """Steps with uniform attention that produce the lexicon given to permutations."""
    interval: int = 5
    """Steps between two evaluations."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "choice", least=self.length + 1)
        require_count(self, "budget", "short_budget")
        require_count(self, "uniform_steps", "lexicon_steps", least=self.interval)
        if not {self.length, self.choice} <= {*self.words} or min(self.words) < self.length:
            allowed = f"numbers from length {self.length}, including it and choice {self.choice}"
            raise ConfigError(f"words: got {self.words}, allowed: {allowed}")
        longest = max(self.budget, self.short_budget)
        require_count(self, "steps", "mixture_steps", least=max(longest, self.interval))


def experiment(config: Config, lab: Lab) -> Arms:
    learned = config.model
    uniform = dataclasses.replace(learned, attention="uniform")
    permutations = config.copying(config.length, largest=max(config.words))
    by_words = with_sweep(permutations, "words", config.words)
    both = with_sweep(permutations, "words", (config.length, config.choice), "learned_on")
    mixture = config.copying(config.length, groups=2)
    larger = config.copying(config.choice, largest=max(config.words))
    recipes = {
        "by_words": config.copying_recipe(
            by_words, learned, config.steps, ends=(AttentionOffsets(config.length),)
        ),
        "mixture": config.copying_recipe(mixture, learned, config.mixture_steps),
        "uniform": config.copying_recipe(both, uniform, config.uniform_steps),
        "lexicon": config.copying_recipe(larger, uniform, config.lexicon_steps),
    }
    arms = lab.train(recipes, config.seed_numbers)
    given = {"given": config.copying_recipe(permutations, learned, config.steps)}
    return arms | lab.train(given, config.seed_numbers, start=arms["lexicon"])


# -- measures --------------------------------------------------------------------------------------

SETS = {"length": "permutations", "choice": "words of a larger set"}
"""Fields of the config with a number of words, and the sequences of that many words."""


def _accuracy(which: str, arms: Arms, config: Config) -> xr.DataArray:
    """Token accuracy on the mixture, or on a set whose number of words is in a field."""
    if which == "mixture":
        return arms["mixture"].trajectory["test_accuracy"]
    words = getattr(config, which)
    return arms["by_words"].trajectory["test_accuracy"].sel(words=words, drop=True)


def _succeeds(which: str, budget: str, arms: Arms, config: Config) -> xr.DataArray:
    steps = success_step(_accuracy(which, arms, config))
    return (steps <= getattr(config, budget)).astype(float)


def _given(arms: Arms, config: Config) -> xr.DataArray:
    """Success on permutations from weights that were trained on a larger set."""
    steps = success_step(arms["given"].trajectory["test_accuracy"])
    return (steps <= config.short_budget).astype(float)


def _helps(arms: Arms, config: Config) -> tuple[xr.DataArray, xr.DataArray]:
    return _given(arms, config), _succeeds("length", SHORT, arms, config)


def _both_sets(budget: str, arms: Arms, config: Config) -> tuple[xr.DataArray, ...]:
    return tuple(_succeeds(which, budget, arms, config) for which in SETS)


def _times(arms: Arms, config: Config) -> tuple[xr.DataArray, ...]:
    return tuple(success_step(_accuracy(which, arms, config)) for which in SETS)


def _by_size(arms: Arms, config: Config) -> xr.DataArray:
    """Steps to success for every number of words."""
    return success_step(arms["by_words"].trajectory["test_accuracy"]).sortby("words")


def _up_to_choice(arms: Arms, config: Config) -> xr.DataArray:
    return _by_size(arms, config).sel(words=slice(None, config.choice))


def _order_of_medians(steps: np.ndarray) -> float:
    """Rank correlation of the number of words and the median steps [seed, words]. The ratio
    (n-1)/(k-1) has the order of the number of words n.
    """
    from scipy import stats

    medians = stats.rankdata(np.median(steps, axis=0))
    rank = np.arange(len(medians))
    return float(np.corrcoef(rank, medians)[0, 1]) if np.ptp(medians) else float("nan")


def _agreement(learned_on: str, arms: Arms, config: Config) -> xr.DataArray:
    """Agreement of beta with the right position under uniform attention, relative to chance."""
    values = arms["uniform"].trajectory.sel(learned_on=getattr(config, learned_on), drop=True)
    return values["lexicon_agreement"] / values["random_agreement"]


def _best_agreement(learned_on: str, arms: Arms, config: Config) -> xr.DataArray:
    return _agreement(learned_on, arms, config).max("step")


def _agreement_then(learned_on: str, arms: Arms, config: Config) -> xr.DataArray:
    """The agreement at the step at which the larger set's probe first finds half of the words."""
    probe = arms["uniform"].trajectory["lexicon_agreement"]
    there = probe.sel(learned_on=config.choice, drop=True) > 0.5
    values = at_place(_agreement(learned_on, arms, config), there.argmax("step"))
    return values.where(there.any("step"))


def _late_attention(arms: Arms, config: Config) -> xr.DataArray:
    """Largest final attention at any offset, in runs on permutations that succeed late."""
    steps = success_step(_accuracy("length", arms, config))
    late = (steps > config.short_budget) & np.isfinite(steps)
    snapshot = arms["by_words"].snapshot.sel(words=config.length, drop=True)
    return at_place(snapshot["mass_by_offset"], -1).max("distance").where(late)


def _lexicon_first(by: str, offsets: Sequence[int], arms: Arms, config: Config) -> xr.DataArray:
    """Whether beta is first, by size or order; attention is right if largest at these offsets."""
    trajectory = arms["by_words"].trajectory.sel(words=config.choice, drop=True)
    known = trajectory["lexicon_agreement"] > 0.5
    if by == "size":
        known = trajectory["lexicon_right"] > 2 * at_start(trajectory["lexicon_right"])
    attended = trajectory["attention_accuracy"].sel(offset=list(offsets)).sum("offset") > 0.5
    found = first_step(known, np.inf)
    return ((found < first_step(attended, np.inf)) & np.isfinite(found)).astype(float)


SEVERAL_SIZES = (lambda config: len(config.words) >= 5, "five numbers of words (preset paper)")
RANKS = Pooled(20, function=_order_of_medians)
BY_COUNT = Rate(20, by_value=True)
PAIRED_RATES = RateDifference(20, paired=True)
MCNEMAR, FISHER = McNemarTest(20), FisherTest(20)
BEYOND = Above(0.75)
BOTH = ("given", "by_words")
LONG, SHORT = "budget", "short_budget"
NO_SIGNAL = "without co-occurrence signal no attention"
EARLY = "Snell 2021, sections 3.2 and 3.3"
KTIW_FIRST = "Snell 2021, section 2.2 ('the learning of the attention is driven by KTIW')"
THREE_QUARTERS = "C-8's events; the exact interval of the share must lie above 0.75"
_claim = partial(Claim, arms="by_words")
_beta_first = partial(_claim, paper="beta first", prediction="beta first")


def _rates(
    budget: str, statistic: Rate, larger: AbstractBound, same: AbstractBound, mixed: AbstractBound
) -> tuple[Check, ...]:
    """Success rates of the three kinds of sequences within a budget."""
    succeeds = {which: partial(_succeeds, which, budget) for which in (*SETS, "mixture")}
    return (
        Check("success rate, words of a larger set", succeeds["choice"], larger, (), statistic),
        Check("success rate, permutations", succeeds["length"], same, (), statistic),
        Check("success rate, mixture", succeeds["mixture"], mixed, "mixture", statistic),
    )


def _at_chance(quantity: str, measure: Callable[..., xr.DataArray]) -> tuple[Check, Check]:
    """Agreement at chance on permutations, and far above in the larger set."""
    permutations, larger = (partial(measure, learned_on) for learned_on in SETS)
    first = Check(f"permutations: {quantity}", permutations, AtMost(2.0))
    return first, Check(f"larger set: {quantity}", larger, AtLeast(4.0))


def _first(quantity: str, by: str, offsets: Sequence[int], bound: AbstractBound, **how) -> Check:
    """A check of the share of runs on words of a larger set in which beta is first."""
    return Check(quantity, partial(_lexicon_first, by, offsets), bound, (), Rate(20, **how))


CLAIMS = (
    _claim(
        "C-4",
        "Permutations and mixtures of permutations sometimes fail within 300 steps; distinct words"
        " of a larger set always succeed",
        "Snell 2021, section 3.3 and figure 3; 300 steps as in section 6.2",
        _rates(LONG, BY_COUNT, AtLeast(0.95), AtMost(0.85), Below(1.0)),
        "19 of 20, 17 of 20 and fewer than all, by count, as specified; success is a token accuracy"
        " above 0.95 at an evaluated step (C-4f: within 200 steps)",
        paper="always; sometimes; sometimes",
        prediction=NO_SIGNAL,
        reason="All but one of the permutation runs that fail within 200 steps (C-4f) succeed by"
        " step 300: permutations are slower (C-5), not impossible. Mixtures do fail.",
    ),
    _claim(
        "C-4b",
        "Within 300 steps words of a larger set succeed significantly more often than permutations",
        "Snell 2021, figure 3",
        (
            Check("McNemar's exact test", partial(_both_sets, LONG), Below(0.05), (), MCNEMAR),
            Check("Fisher's exact test", partial(_both_sets, LONG), Below(0.05), (), FISHER),
        ),
        "5 %, a convention. Fisher's test is the one specified for C-4; both sets share their"
        " seeds, so that McNemar's is the right one",
        paper="not tested",
        reason="All but one of the permutation runs succeed by step 300 (C-4); within 200 steps"
        " half of them do not (C-4f).",
    ),
    _claim(
        "C-4f",
        "Within the 200 steps of the released code, permutations and mixtures fail more often than"
        " words of a larger set",
        "Snell 2021, section 3.3 and figure 3, with the budget of the released code",
        (
            *_rates(SHORT, Rate(20), AtLeast(0.8), AtMost(0.8), AtMost(0.8)),
            Check("McNemar's exact test", partial(_both_sets, SHORT), Below(0.05), (), MCNEMAR),
        ),
        "C-4 with 200 steps, decided by intervals: that of 20 of 20 is above 0.8; 5 %, a"
        " convention",
        paper="always; sometimes; sometimes",
        prediction=NO_SIGNAL,
    ),
    _claim(
        "C-4c",
        "Permutations are learned within 200 steps if the model can translate words beforehand",
        "beyond the paper: weights of a short run with uniform attention on words of a larger set",
        (
            Check("success rate, lexicon given", _given, AtLeast(0.8), "given", Rate(20)),
            Check("lexicon given less nothing given", _helps, Above(0.0), BOTH, PAIRED_RATES),
        ),
        "0.8: below the interval of 20 of 20; a difference whose interval excludes zero. A control"
        " with weights of a run on permutations (C-4e of version 0.1) was dropped: most of them"
        " have a lexical advantage as well. `ktiw_fate` changes the advantage itself (C-16c)",
        prediction="KTIW drives attention",
    ),
    _claim(
        "C-5",
        "Permutations take longer to learn",
        "Snell 2021, figure 3 ('converges slower')",
        Check("median steps to success, permutations / larger set", _times, Above(1.0)),
        "an order; runs that never succeed count as infinitely late",
        paper="slower",
        prediction="above 1",
        statistic=Pooled(20, paired=True, function=ratio_of_medians),
    ),
    _claim(
        "C-4d",
        "Permutation runs that succeed late attend to no fixed offset from the words that they"
        " copy",
        "beyond the paper",
        Check(
            "largest final attention at any offset",
            _late_attention,
            AtMost(0.25),
            left_out="the claim is about runs that succeed late",
        ),
        "a quarter of the attention; late: after 200 steps",
        full_size=FULL_SIZE,
    ),
    _claim(
        "C-6",
        "Time to success falls as the co-occurrence ratio (n-1)/(k-1) grows with the vocabulary",
        "beyond the paper; the ratio is derived (C-2)",
        Check("rank correlation of ratio and median steps to success", _by_size, AtMost(-0.8)),
        "-0.8, as specified; the interval resamples seeds, each with all numbers of words",
        prediction="-1",
        statistic=RANKS,
        full_size=SEVERAL_SIZES,
        reason="Time falls up to 1.5 times as many words as positions (C-6b), not beyond.",
    ),
    _claim(
        "C-6b",
        "With up to 1.5 times a sequence's words to choose from, time falls as that ratio grows",
        "beyond the paper",
        Check("rank correlation, up to `choice` words", _up_to_choice, AtMost(-0.8)),
        "-0.8, as for C-6",
        prediction="-1",
        statistic=RANKS,
        full_size=SEVERAL_SIZES,
    ),
    Claim(
        "C-7",
        "Under uniform attention the lexical probe stays at chance on permutations and finds the"
        " right word in a larger set",
        EARLY,
        _at_chance("best A(right position, beta) / chance", _best_agreement),
        "2 and 4 times chance (none is specified); by luck, the best of sixty evaluations of 640"
        " words is 1.5 times",
        prediction="1, and far above",
        arms="uniform",
        reason="The proxy cannot learn permutations (C-2b), but the recurrent model can, late:"
        " C-7b is about the steps in which the larger set is learned. That the decoder's start"
        " tells it the words was a guess, which C-16e refutes. No other explanation is tested.",
    ),
    Claim(
        "C-7b",
        "When the lexical probe finds words of a larger set, it is still at chance on permutations",
        f"{EARLY}, restricted to the early steps that they concern",
        _at_chance("A(right position, beta) / chance, at that step", _agreement_then),
        "2 and 4 times chance, as for C-7",
        prediction="1, and far above",
        arms="uniform",
    ),
    _beta_first(
        "C-8",
        "Beta at the right position doubles before attention finds the words (larger set)",
        KTIW_FIRST,
        _first(
            "share of runs in which beta at the right position doubles before attention is right"
            " for half of the words",
            "size",
            OFFSETS,
            AtLeast(0.9),
            by_value=True,
        ),
        "90 % of runs, by count, as specified; attention one position off counts as right, as"
        " specified; our measure",
        reason="Attention first goes to the position before the right one, whose state cannot"
        " contain the next word. Without that position beta is first (C-8c).",
    ),
    _beta_first(
        "C-8c",
        "Beta doubles before attention is at the right position (larger set)",
        KTIW_FIRST,
        _first("share of runs, attention at the right position only", "size", [0], BEYOND),
        f"{THREE_QUARTERS}. The position was chosen after C-8 had failed on an earlier record",
    ),
    _beta_first(
        "C-8d",
        "Beta doubles before attention finds a state that can contain the word (larger set)",
        KTIW_FIRST,
        _first("share of runs, attention one position after included", "size", READABLE, BEYOND),
        f"{THREE_QUARTERS}. The positions were chosen after C-8 had failed on an earlier record",
        full_size=FULL_SIZE,
        reason="In 18 of 20 runs beta is strictly first; in the other two both happen at the same"
        " evaluated step, which counts against the claim (evaluations are five steps apart)."
        " Without the position after, beta is first in all (C-8c).",
    ),
    _beta_first(
        "C-8b",
        "Beta is largest at the right position before attention is (larger set)",
        KTIW_FIRST,
        _first("share of runs: beta finds half of the words first", "order", OFFSETS, BEYOND),
        f"{THREE_QUARTERS}; beta finds a word if the right position is within its top 5 %,"
        " attention if it is largest there or one position before or after",
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return tuple(draw(arms, config) for draw in (_curves, _by_words, _events, _uniform, _started))


def _curves(arms: Arms, config: Config) -> Figure:
    titles = {
        "length": f"permutations of {config.length} words",
        "mixture": f"permutations of {config.length} words, from two sets",
        "choice": f"{config.length} distinct words of {config.choice}",
    }
    shown = slice(0, config.budget)
    lines = {one: runs(titles[one], _accuracy(one, arms, config).sel(step=shown)) for one in titles}
    budget = Line("short budget", np.full(2, config.short_budget), np.arange(2.0), role="reference")
    panels = tuple(
        Panel(titles[slow], "step", "token accuracy", (*lines[slow], *lines["choice"], budget))
        for slow in ("length", "mixture")
    )
    caption = (
        "Token accuracy on the test distribution, one line per run: permutations, and a mixture of"
        " permutations of two sets, against distinct words of a larger set."
    )
    title = "Copying fails where words cannot be translated first"
    return Figure("ktiw_copying_curves", title, caption, panels)


def _by_words(arms: Arms, config: Config) -> Figure:
    accuracy = arms["by_words"].trajectory["test_accuracy"]
    steps = success_step(accuracy)
    numbers = steps["words"].values
    ratios = np.asarray([diagonal_ratio(config.copying(int(words))) for words in numbers])
    shown = steps.where(np.isfinite(steps), float(accuracy["step"].max()))
    rates = tuple(
        Line(f"within {budget} steps", ratios, (steps <= budget).mean("seed").values)
        for budget in (config.short_budget, config.budget)
    )
    label, times = "co-occurrence ratio (n-1)/(k-1)", over_seeds("steps to success", ratios, shown)
    panels = (
        Panel("time", label, "steps to success", (times,), "log", "log"),
        Panel("success", label, "share of runs", rates, "log"),
    )
    caption = (
        "Steps to success, and success rates, against the ratio of co-occurrences. Mean over"
        f" {steps.sizes['seed']} runs with the range; runs that fail count with their last step."
    )
    title = "Time to success against the number of words"
    return Figure("ktiw_copying_words", title, caption, panels)


def _events(arms: Arms, config: Config) -> Figure:
    trajectory = arms["by_words"].trajectory.sel(step=slice(0, config.budget))
    panels = []
    for which, title in SETS.items():
        chosen = trajectory.sel(words=getattr(config, which))
        attention = chosen["attention_accuracy"]
        lines = (
            curve("beta at the right position", chosen["lexicon_right"]),
            curve("A(right position, beta)", chosen["lexicon_agreement"]),
            curve("attention right or one after", attention.sel(offset=READABLE).sum("offset")),
            curve("attention one before", attention.sel(offset=-1)),
        )
        panels.append(Panel(title, "step", "probability, or share of words", lines))
    caption = (
        "Lexical knowledge and attention along training, mean over runs with the range. The word"
        " one before the right position is the one that the decoder just received."
    )
    return Figure("ktiw_copying_events", "Words first, attention second", caption, tuple(panels))


def _uniform(arms: Arms, config: Config) -> Figure:
    trajectory = arms["uniform"].trajectory
    chance = trajectory["random_agreement"].sel(learned_on=config.choice).mean("seed")
    by_chance = curve("chance", chance, "theory")
    panels = []
    for rule, name in (("ties shared", ""), ("the authors' rule", "_authors")):
        values = trajectory[f"lexicon_agreement{name}"]
        lines = [curve(SETS[one], values.sel(learned_on=getattr(config, one))) for one in SETS]
        panels.append(Panel(rule, "step", "A(right position, beta)", (*lines, by_chance)))
    caption = (
        "Share of words whose right position is in beta's top 5 %, under uniform attention. By the"
        " authors' rule a constant probe always agrees."
    )
    title = "What is learned under uniform attention"
    return Figure("ktiw_copying_uniform", title, caption, tuple(panels))


def _started(arms: Arms, config: Config) -> Figure:
    given = arms["given"].trajectory["test_accuracy"].sel(step=slice(0, config.budget))
    plain = _accuracy("length", arms, config).sel(step=given["step"])
    lines = (curve("default initialisation", plain), curve("weights from a larger set", given))
    caption = (
        "Permutations from random weights, or from those of a run under uniform attention on words"
        " of a larger set, where words can be translated. Mean over runs with the range."
    )
    title = "With a lexicon given, permutations are learned"
    panel = Panel("permutations", "step", "token accuracy", lines)
    return Figure("ktiw_copying_given", title, caption, (panel,))


DIVERGENCES = divergences(
    """
    budget | 300 (section 6.2) | 200 steps | 300 (C-4), and 200 (C-4f) | more runs succeed
    randomness | 20 seeds | unseeded shuffling | seeded sequences | reproducible
    context | sum of alpha h | then a linear layer | with it | as in the code
    activation of N | not stated | tanh | tanh | as in the code
    vocabulary | 40, 60 or 80 words | 40 or 60, and two special ids | ids for the largest set; those
        that a run does not use have probability 0 | none: the models are the same
    constants in A | not stated | always agree | by chance | C-7: a flat probe
    """
)

ABOUT = ("ktiw_copying", "Attention fails where words cannot be translated first", PAPER)
SMALL = {**_ktiw.QUICK, "choice": 12, "words": (8, 12), "budget": 150, "short_budget": 110}
SMALL |= {"steps": 150, "mixture_steps": 150, "uniform_steps": 100, "lexicon_steps": 30}
PRESETS = {"quick": Config(**SMALL), "paper": Config(first_seed=1000)}
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
