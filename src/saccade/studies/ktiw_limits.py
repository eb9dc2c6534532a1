"""Limits of the two-stage picture (Snell, Zhong, Klein & Steinhardt 2021, section 6 and figure 7).

Two assumptions, each with a counter-example. Information stays at the position of its word: under
uniform attention a recurrent model first marks the keyword's position, and later the last position.
Attention is a free variable: a fixed permutation of the output has the same co-occurrences as
copying, and is not learned within the budget.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

import xarray as xr

from saccade.core.study import Study, divergences
from saccade.figures.figure import Figure, Panel, curve
from saccade.judging.bound import Above, AbstractBound, AtLeast, AtMost, Below
from saccade.judging.claim import Check, Claim
from saccade.judging.statistics import AbstractStatistic, Mean, Pooled, Rate
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.probes.attention import AttentionStatistics
from saccade.probes.keywords import KeywordLogits
from saccade.probes.performance import Accuracy
from saccade.probes.translation import READABLE, success_step
from saccade.records.record import Arms
from saccade.records.schedule import Logarithmic
from saccade.records.trajectory import at_place
from saccade.settings import require_count
from saccade.studies._ktiw import PAPER, QUICK, AbstractCopyingConfig, mean
from saccade.tasks.keyword_sentences import KeywordSentences
from saccade.train.batches import Fresh
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam
from saccade.train.recipe import Recipe
from saccade.train.start import Seeds

Moment = Callable[[Arms, "Config"], xr.DataArray]
EARLY = 0.6
"""Early in training: the first evaluated step with a test accuracy above this."""
LATE = 5
"""C-10b: late, but not at the end: after one part in this many of the steps."""
ORDERS = {"copied": "copying", "permuted": "fixed permutation"}
PLACES = {
    "keyword": "at the keyword",
    "next": "one position after the keyword",
    "mean": "mean of all positions",
    "last": "at the last position",
}


@dataclasses.dataclass(frozen=True)
class Config(AbstractCopyingConfig):
    """Settings of the study."""

    choice: int = 60
    """Words to choose from in the sequences to be copied."""
    budget: int = 300
    """Steps within which a run on sequences must succeed."""
    keyword_length: int = 40
    """Words per sentence of the keyword task, and words to choose from."""
    keyword_steps: int = 5000
    """Steps on the keyword task, 'too long' in the paper's words."""
    keyword_batch: int = 128
    """New sentences per step of the keyword task."""
    keyword_seeds: int = 20
    """Repetitions of the keyword task, from `first_seed` on."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "keyword_steps", "keyword_batch", "keyword_seeds")
        require_count(self, "keyword_length", least=4)
        require_count(self, "choice", least=self.length + 1)
        require_count(self, "budget", least=self.interval)


def experiment(config: Config, lab: Lab) -> Arms:
    size, length = config.model.hidden, config.keyword_length
    keywords = Recipe(
        KeywordSentences(length, length),
        RecurrentClassifierConfig(size, size, size, attention="uniform"),
        Adam(config.rate),
        config.keyword_steps,
        probes=(Accuracy(), KeywordLogits(), AttentionStatistics()),
        at=Logarithmic(80),
        batches=Fresh(config.keyword_batch),
    )
    keyword_seeds = Seeds(config.keyword_seeds, first=config.first_seed)
    arms = lab.train({"keywords": keywords}, keyword_seeds)
    orders = {
        order: config.copying_recipe(
            config.copying(config.choice, order=order), config.model, config.budget
        )
        for order in ORDERS
    }
    return arms | lab.train(orders, config.seed_numbers)


# -- measures --------------------------------------------------------------------------------------


def _early(arms: Arms, config: Config) -> xr.DataArray:
    """gamma at the first step with an accuracy above 0.6; NaN for a seed without such a step."""
    trajectory = arms["keywords"].trajectory
    there = trajectory["test_accuracy"] > EARLY
    return at_place(trajectory["word_logit"], there.argmax("step")).where(there.any("step"))


def _late(arms: Arms, config: Config) -> xr.DataArray:
    """gamma after a fifth of the steps."""
    logits = arms["keywords"].trajectory["word_logit"]
    return at_place(logits, int((logits["step"] <= config.keyword_steps / LATE).sum()) - 1)


def _at_end(arms: Arms, config: Config) -> xr.DataArray:
    return at_place(arms["keywords"].trajectory["word_logit"], -1)


def _gap(moment: Moment, first: str, second: str, arms: Arms, config: Config) -> xr.DataArray:
    gamma = moment(arms, config)
    return gamma.sel(place=first, drop=True) - gamma.sel(place=second, drop=True)


def _succeeds(name: str, arms: Arms, config: Config) -> xr.DataArray:
    steps = success_step(arms[name].trajectory["test_accuracy"])
    return (steps <= config.budget).astype(float)


def _knowledge(arms: Arms, config: Config) -> xr.DataArray:
    """Best agreement of beta with the right position on the permuted task, relative to chance."""
    trajectory = arms["permuted"].trajectory
    return (trajectory["lexicon_agreement"] / trajectory["random_agreement"]).max("step")


def _lag(arms: Arms, config: Config) -> xr.DataArray:
    """Final attention accuracy, one position after included: fixed permutation less copying."""
    permuted, copied = (
        at_place(arms[name].trajectory["attention_accuracy"], -1).sel(offset=READABLE).sum("offset")
        for name in ("permuted", "copied")
    )
    return permuted - copied


def _orders(when: str, moment: Moment, *pairs: tuple[str, str]) -> list[Check]:
    """One check per pair of places: gamma at the first is above that at the second."""
    names = [f"{when}gamma {PLACES[first]} less {PLACES[second]}" for first, second in pairs]
    gaps = [partial(_gap, moment, *pair) for pair in pairs]
    return [Check(name, gap, Above(0.0)) for name, gap in zip(names, gaps, strict=True)]


def _rate(name: str, bound: AbstractBound) -> Check:
    return Check(f"success rate, {ORDERS[name]}", partial(_succeeds, name), bound, name)


ORDER_OF_MEANS = Pooled(5, by_value=True, function=mean)
AT_FIRST = (("keyword", "next"), ("next", "mean"))
AT_LAST = (("last", "next"), ("last", "mean"), ("next", "keyword"))
FIVE_ORDERS = (*_orders("early: ", _early, *AT_FIRST), *_orders("at the end: ", _at_end, *AT_LAST))


def _five_orders(id_: str, statement: str, tolerance: str, statistic: AbstractStatistic) -> Claim:
    return Claim(
        id_,
        statement,
        "Snell 2021, section 6.1, figure 7 (hypothesis 2, then observation 3)",
        FIVE_ORDERS,
        tolerance,
        paper="the five orders",
        prediction="the first two, if information stays local",
        arms="keywords",
        statistic=statistic,
        reason="At the end the last position and the one after the keyword are level within the"
        " differences between seeds. After a fifth of the steps gamma is largest at the last"
        " position (C-10b).",
    )


CLAIMS = (
    _five_orders(
        "C-10",
        "Early in training gamma is largest at the keyword, then one position after it; at the end"
        " it is largest at the last position",
        "orders of the means over seeds, by value, as specified, with 5,000 steps (the paper's"
        " figure gives no number); quick: fewer",
        ORDER_OF_MEANS,
    ),
    _five_orders(
        "C-10c",
        "The orders of C-10 hold beyond the differences between seeds",
        "C-10 decided by the intervals of the differences",
        Mean(5),
    ),
    Claim(
        "C-10b",
        "After a fifth of these steps gamma is largest at the last position, and larger one"
        " position after the keyword than at the keyword",
        "Snell 2021, section 6.1, figure 7 (observation 3)",
        tuple(_orders("", _late, *AT_LAST)),
        "orders; a fifth is our choice",
        paper="the three orders",
        arms="keywords",
    ),
    Claim(
        "C-11",
        "A fixed permutation of the output is not learned within the budget; copying, with the same"
        " co-occurrences, is",
        "Snell 2021, section 6.2",
        (_rate("copied", AtLeast(1.0)), _rate("permuted", AtMost(0.1))),
        "20 of 20 and 2 of 20, as specified, by count",
        paper="always; never",
        statistic=Rate(20, by_value=True),
    ),
    Claim(
        "C-11b",
        "Words of a fixed permutation are translated nevertheless; only attention lags",
        "Snell 2021, section 6.2 ('beta behaves exactly the same for these two tasks')",
        (
            Check("best A(right position, beta) / chance", _knowledge, AtLeast(4.0), "permuted"),
            Check("final attention accuracy less copying's", _lag, Below(0.0), tuple(ORDERS)),
        ),
        "4 times chance, as for C-7; an order",
        paper="stated for uniform attention",
        prediction="far above 1; below 0",
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return _keywords(arms), _sequences(arms)


def _keywords(arms: Arms) -> Figure:
    trajectory = arms["keywords"].trajectory.sel(step=slice(1, None))
    logits = trajectory["word_logit"]
    lines = tuple(curve(label, logits.sel(place=place)) for place, label in PLACES.items())
    accuracy = (curve("test accuracy", trajectory["test_accuracy"]),)
    panels = (
        Panel("positive sentences", "step", "gamma", lines, "log"),
        Panel("uniform attention", "step", "test accuracy", accuracy, "log"),
    )
    caption = (
        "The logit of the positive class if the model attended to one position only, along training"
        " under uniform attention. Mean over runs with the range."
    )
    title = "Information does not stay at its word"
    return Figure("ktiw_limits_keywords", title, caption, panels)


def _sequences(arms: Arms) -> Figure:
    accuracy, agreement = (
        [curve(label, arms[name].trajectory[variable]) for name, label in ORDERS.items()]
        for variable in ("test_accuracy", "lexicon_agreement")
    )
    chance = arms["copied"].trajectory["random_agreement"].mean("seed")
    agreement.append(curve("chance", chance, "theory"))
    panels = (
        Panel("accuracy", "step", "token accuracy", tuple(accuracy)),
        Panel("lexicon", "step", "A(right position, beta)", tuple(agreement)),
    )
    caption = "Two orders with the same co-occurrences of words. Mean over runs with the range."
    return Figure("ktiw_limits_orders", "Attention is not a free variable", caption, panels)


DIVERGENCES = divergences(
    """
    directions of the classifier's LSTM | not stated for the toy task | both, on real data | one |
        with a backward pass 'one position after' has no meaning
    training | 'too long' | absent | 5,000 steps | C-10, C-10c; C-10b: 1,000 steps
    budget of section 6.2 | 300 iterations | 200 steps | 300 | C-11
    """
)

ABOUT = ("ktiw_limits", "Limits of the two-stage picture", PAPER)
SMALL = {**QUICK, "choice": 12, "budget": 110, "keyword_length": 12, "keyword_steps": 1500}
PRESETS = {
    "quick": Config(**SMALL, keyword_batch=32, keyword_seeds=5),
    "paper": Config(first_seed=4000),
}
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
