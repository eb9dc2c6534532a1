"""Score and embedding norm of a topic word grow together (Lu, Mao & Nayak 2021, section 5.1,
figures 1 and 2).

Attention classifiers with three heads (FC fixed linear, TC trained linear, TL two layers) are
trained on sentences with one topic word each. FC is trained four times as long, for theorem 2. Two
sweeps, of the learning rate and of the initial variance, measure where the theory stops holding.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.bound import Above, AtLeast, AtMost, Below, Within
from saccade.core.claim import Check, Claim, PremiseNotMetError
from saccade.core.figure import Figure, HeatMap, Panel, curve, level
from saccade.core.lab import Lab
from saccade.core.record import Arm, Arms
from saccade.core.schedule import DenseThenEven, Logarithmic, Recording
from saccade.core.statistics import EverySeed, Mean, log_slope
from saccade.core.study import Study, divergences
from saccade.core.sweep import require_count, swept_in, with_sweep
from saccade.core.trajectory import at_start, only
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.probes import topic_words
from saccade.probes.performance import Accuracy
from saccade.studies import _sen
from saccade.studies._sen import HEADS, SCORE_FLOOR, above_floor, histogram, last, over_words
from saccade.tasks.topic_sentences import TopicSentences
from saccade.theory.fixed_linear_classifier import Theorem2
from saccade.theory.score_and_norm import Corollary1, Theorem1
from saccade.theory.topic_word_flow import Lemma2

SCORE_EDGES = tuple(np.arange(-0.625, 6.5, 0.25).tolist())  # 0 is the centre of a bin
NORM_EDGES = tuple(np.arange(0, 6.75, 0.25).tolist())
THEORIES = (Corollary1(), Theorem1())
RATES = (0.1, 0.3, 1.0, 3.0)
STDS = (1e-3, 3e-3, 1e-2, 3e-2)
LABELS = {"rate": "learning rate", "embedding_std": "initial standard deviation"}
SWEEPS = {"by_rate": ("rate", RATES), "by_std": ("embedding_std", STDS)}
"""Arms, each with the swept field and its values."""


@dataclasses.dataclass(frozen=True)
class Config(_sen.AbstractConfig):
    """Settings of the study."""

    model: AttentionClassifierConfig = AttentionClassifierConfig(query_std=0.3)
    """The classifier; every head is trained."""
    long_steps: int = 20000
    """Epochs of FC, for the convergence of theorem 2; at least `steps`."""
    sweep_seeds: int = 3
    """Repetitions of the two sweeps of A-8."""
    sweep_steps: int = 5000
    """Epochs of the two sweeps of A-8."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "sweep_seeds", "sweep_steps")
        require_count(self, "long_steps", least=self.steps)
        _sen.require_all_heads(self.model)


def experiment(config: Config, lab: Lab) -> Arms:
    words, others = topic_words.TopicWords(), topic_words.OtherWords()
    probes = (words, others, topic_words.Surroundings(), topic_words.Velocities(), Accuracy())
    ends = (topic_words.Distributions(SCORE_EDGES, NORM_EDGES),)
    record = Recording(probes, DenseThenEven(config.steps), ends)
    task, arms = config.task, {}
    for head in HEADS:
        model = dataclasses.replace(config.model, head=head)
        steps = config.long_steps if head == "FC" else config.steps
        training = config.train(lab, f"sen {head}", record, model, steps=steps)
        parts = [theory.predict(task, model, training.trajectory) for theory in THEORIES]
        source = "Lu 2021, corollary 1 (norm) and theorem 1 (distance)"
        arms[head] = Arm.of(training, xr.merge(parts), source)
    if swept := list(swept_in(config)):
        # The sweep itself answers A-8: along one field, at the first value of the others.
        along = {name: field for name, (field, _) in SWEEPS.items() if field in swept}
        return arms | {name: _along(arms["FC"], field, swept) for name, field in along.items()}

    # These two predictions use only the initial state and the sizes of the run.
    run = task, config.model, arms["FC"].trajectory
    arms["FC_lemma2"] = Arm.of_prediction(Lemma2().predict(*run, lab), Lemma2.source)
    arms["FC_theorem2"] = Arm.of_prediction(Theorem2().predict(*run), Theorem2.source)
    record = Recording((words,), Logarithmic(40))
    sizes = {"steps": config.sweep_steps, "seeds": config.sweep_seeds}
    for name, sweep in SWEEPS.items():
        varied = with_sweep(config, *sweep)
        training = varied.train(lab, f"sen FC {name}", record, varied.model, **sizes)
        norm = Corollary1().predict(task, None, training.trajectory)
        arms[name] = Arm.of(training, norm, Corollary1.source)
    return arms


def _along(arm: Arm, field: str, swept: Sequence[str]) -> Arm:
    first = dict.fromkeys((name for name in swept if name != field), 0)
    names = ["score", "norm", "attention", "loss", "diverged_at"]
    trajectory = arm.trajectory[names].isel(first, drop=True)
    prediction = arm.prediction[["norm"]].isel(first, drop=True)
    return Arm(trajectory, xr.Dataset(), prediction, Corollary1.source)


# -- measures --------------------------------------------------------------------------------------


def _largest_gap(arm: Arm) -> xr.DataArray:
    return above_floor(arm, _sen.relative_gap(arm)).max(("step", "word"))


def _residual(arm: Arm) -> xr.DataArray:
    """Largest difference between the two sides of theorem 1, relative to the right one."""
    start = at_start(arm.trajectory["distance"]) ** 2
    right, left = (part["distance"] ** 2 - start for part in (arm.trajectory, arm.prediction))
    return above_floor(arm, abs(left - right) / abs(right)).max(("step", "word"))


def _over_heads(measure: Callable[[Arm], xr.DataArray], arms: Arms, config: Config) -> xr.DataArray:
    return xr.concat([measure(arm) for arm in arms.values()], "arm").max("arm", skipna=False)


def _mean_gap(arms: Arms, config: Config) -> xr.DataArray:
    gaps = [above_floor(arm, _sen.relative_gap(arm)) for arm in arms.values()]
    return xr.concat([gap.mean(("step", "word")) for gap in gaps], "arm").mean("arm", skipna=False)


def _ratio(name: str, arms: Arms, config: Config) -> xr.DataArray:
    """Change of non-topic words / change of topic words, largest over heads."""
    ends = [arm.snapshot.isel(step=-1) for arm in arms.values()]
    ratios = [end[f"other_{name}"] / end[f"topic_{name}"] for end in ends]
    return xr.concat(ratios, "arm").max("arm")


def _trained(name: str, arms: Arms, config: Config) -> xr.DataArray:
    """A variable of FC at the paper's last epoch (FC is trained longer), mean over words."""
    return over_words(arms["FC"].trajectory[name].sel(step=config.steps))


def _attention_gain(arms: Arms, config: Config) -> xr.DataArray:
    return _attended(arms, config) - _trained("attention", arms, config)


def _largest_rise(arms: Arms, config: Config) -> xr.DataArray:
    return arms["FC"].trajectory["loss"].diff("step").max("step")


def _loss_ratio(arms: Arms, config: Config) -> xr.DataArray:
    if config.long_steps < 4 * config.steps:
        raise PremiseNotMetError("FC was not trained four times as long (long_steps)")
    return last("loss", arms, config) / _trained("loss", arms, config)


def _order(arms: Arms, config: Config) -> xr.DataArray:
    linear, layers = (over_words(arms[head].end["score"]) for head in TRAINED)
    fixed = _trained("score", arms, config)
    return xr.concat([fixed - linear, linear - layers], "pair").min("pair")


def _signs(arms: Arms, config: Config) -> xr.DataArray:
    """Share of agreement between the signs of a score's velocity and of the projection."""
    shares: list[xr.DataArray] = []
    for arm in arms.values():
        velocity, projection = (arm.trajectory[name] for name in ("score_velocity", "projection"))
        rate = velocity["rate"] if "rate" in velocity.dims else config.rate
        agree = xr.ufuncs.sign(velocity) == xr.ufuncs.sign(projection)
        shares.append(agree.where(abs(rate * velocity) > 1e-8).mean(("step", "word")))
    return xr.concat(shares, "arm").min("arm", skipna=False)


def _swept_gaps(arms: Arms) -> tuple[xr.DataArray, str]:
    """The largest gaps of the arm of a sweep, and the swept field."""
    gaps = _largest_gap(only(arms))
    (dim,) = (str(dim) for dim in gaps.dims if dim != "seed")
    gaps = gaps.dropna(dim, how="all").sortby(dim)
    if gaps.sizes[dim] < 3:
        raise PremiseNotMetError(f"scores exceed {SCORE_FLOOR} at fewer than three values of {dim}")
    return gaps, dim


def _growth(arms: Arms, config: Config) -> xr.DataArray:
    """Smallest growth of the gap from one value to the next, relative to the gap."""
    gaps, dim = _swept_gaps(arms)
    return (gaps.diff(dim) / gaps.isel({dim: slice(None, -1)}).values).min(dim)


def _exponent(arms: Arms, config: Config) -> xr.DataArray:
    """Slope of log(gap - gap at the smallest value) against the log of what it should be linear in.
    Gaps above 0.3 do not count: a relative gap of norms is not proportional to that of squares.
    """
    gaps, dim = _swept_gaps(arms)
    linear_in = gaps[dim] ** (2 if dim == "embedding_std" else 1)
    later = {dim: slice(1, None)}
    excess, grown = (part.isel(later) - part.isel({dim: 0}) for part in (gaps, linear_in))
    counted = excess.where((excess > 0) & (gaps.isel(later) <= 0.3))
    return log_slope(grown, counted, dim).where(counted.notnull().sum(dim) >= 3)


def _lemma2_error(arms: Arms, config: Config) -> xr.DataArray:
    measured, predicted = arms["FC"].trajectory["score"], arms["FC_lemma2"].prediction["score"]
    return abs(measured - predicted).max(("step", "word")) / measured.isel(step=-1).mean("word")


def _theorem2_error(arms: Arms, config: Config) -> xr.DataArray:
    if config.model.fixed_head != "orthonormal" or config.model.query != "unit":
        raise PremiseNotMetError("the rate is derived for orthonormal columns and a unit query")
    predicted = arms["FC_theorem2"].prediction["loss"].isel(step=-1)
    return abs(arms["FC"].end["loss"] / predicted - 1)


PILOT = "set before the experiment, from a pilot of one or two seeds (gaps of 0.7 % and below)"
FLOW = "the theory describes the flow from zero; 2 % allows for steps of 0.1 (pilot: below 0.7 %)"

NEAR_0, HIGH, UP = AtMost(0.02), Above(0.8), Above(0.0)
CHANGES = {"mean |score change|": "score_change", "mean embedding displacement": "displacement"}
_attended = partial(last, "attention")
_largest, _largest_residual = (partial(_over_heads, one) for one in (_largest_gap, _residual))
EVERYWHERE = "all heads and words, scores above 0.05"
A_4 = (
    ("training loss at the paper's last epoch", partial(_trained, "loss"), Below(0.05)),
    ("attention on the topic word at that epoch", partial(_trained, "attention"), HIGH),
    ("test accuracy at that epoch", partial(_trained, "test_accuracy"), AtLeast(1.0)),
    ("attention gained by training four times as long", _attention_gain, Above(0.0)),
    ("loss after four times the epochs / loss at that epoch", _loss_ratio, Below(0.5)),
    ("largest rise of the loss between two recorded epochs", _largest_rise, AtMost(0.0)),
)
GROWTH = "least relative growth of the gap from one"
EXPONENT = "exponent of the gap's growth with the"
TRAINED = ("TC", "TL")
sen_claim = partial(Claim, arms=HEADS, statistic=EverySeed(5))
"""A claim about all heads and every seed, unless it says otherwise."""

CLAIMS = (
    sen_claim(
        "A-1",
        "Scores and embeddings of non-topic words stay near their initial values (assumption 1)",
        "Lu 2021, assumption 1, figure 1",
        tuple(
            Check(f"{text}, non-topic / topic, largest over heads", partial(_ratio, name), NEAR_0)
            for text, name in CHANGES.items()
        ),
        tolerance="two orders of magnitude in the paper's figure 1; pilot 0.002 and 0.005",
        paper="two orders of magnitude",
        prediction="0 (assumed constant)",
    ),
    sen_claim(
        "A-2",
        "The embedding norm of a topic word follows from its score by corollary 1, at every epoch",
        "Lu 2021, corollary 1, figure 2",
        (
            Check(f"largest relative gap, {EVERYWHERE}", _largest, NEAR_0),
            Check("mean relative gap", _mean_gap, NEAR_0, statistic=Mean(5)),
        ),
        tolerance=FLOW,
        paper="curves coincide",
        prediction="0",
    ),
    sen_claim(
        "A-3",
        "The relation between score and norm does not depend on the classifier",
        "Lu 2021, theorem 1, figure 2",
        tuple(Check(f"largest relative gap, {head}", _largest, NEAR_0, head) for head in HEADS),
        tolerance=FLOW,
        paper="curves coincide for FC, TC and TL",
        prediction="0 for each",
    ),
    sen_claim(
        "A-4",
        "With a fixed linear classifier the loss converges to 0 and attention to the topic word",
        "Lu 2021, theorem 2",
        tuple(Check(f"FC: {quantity}", measure, bound) for quantity, measure, bound in A_4),
        arms="FC",
        tolerance=PILOT,
        paper="loss roughly 0, accuracy 100 %",
        prediction="loss -> 0, attention -> 1",
    ),
    sen_claim(
        "A-4b",
        "The trained heads TC and TL also attend to the topic word after the paper's 5,000 epochs",
        "Lu 2021, section 5.1 ('the topic words are attended to in a well-trained model')",
        tuple(Check(f"{one}: attention on topic words", _attended, HIGH, one) for one in TRAINED),
        tolerance="the same bound as for FC in A-4",
        paper="attended to",
        prediction="none (theorem 2 is about FC)",
        expected="fails",
        reason="their loss is near 0 much earlier: attention stays at about 0.5 (TC) and 0.25 (TL),"
        " with 100 % accuracy",
    ),
    sen_claim(
        "A-4c",
        "Theorem 2's convergence has a rate: the loss follows one equation in n, N and m alone",
        "derived from Lu 2021, corollary 1 (src/saccade/theory/fixed_linear_classifier.py)",
        Check("FC: |loss / predicted loss - 1| at the last epoch", _theorem2_error, AtMost(0.1)),
        arms=("FC", "FC_theorem2"),
        statistic=Mean(5),
        tolerance="10 %: the equation replaces each word's sentence count by its mean (relative"
        " spread 1 / sqrt(count))",
        prediction="0",
    ),
    sen_claim(
        "A-5",
        "The weaker the classifier, the larger the final topic scores: FC > TC > TL",
        "Lu 2021, section 5.1, figure 1",
        Check("smaller of FC - TC and TC - TL in mean final topic score", _order, Above(0.0)),
        tolerance="an order; paired by seed",
        paper="FC > TC > TL",
    ),
    sen_claim(
        "A-6",
        "Theorem 1 holds with the averages measured during training",
        "Lu 2021, theorem 1",
        Check(f"largest |left - right| / right, {EVERYWHERE}", _largest_residual, NEAR_0),
        tolerance=FLOW,
        paper="proved for the flow",
        prediction="0",
    ),
    sen_claim(
        "A-7",
        "A score rises exactly when the embedding moves away from the mean of the other words",
        "Lu 2021, lemma 2 (sign rule), equation 3",
        Check("share of (word, epoch) of equal signs, smallest over heads", _signs, AtLeast(0.95)),
        tolerance=PILOT,
        paper="proved for the flow",
        prediction="1",
    ),
    sen_claim(
        "A-7b",
        "The flow of lemma 2, from the initial state alone, gives the scores of FC at every epoch",
        "Lu 2021, lemma 2",
        Check("largest error of a score / mean final score", _lemma2_error, AtMost(0.05)),
        arms=("FC", "FC_lemma2"),
        statistic=Mean(5),
        tolerance="5 %: steps of 0.1 instead of the flow; other words move a little (A-1: <= 2 %)",
        paper="proved for small steps and small initial values",
        prediction="0",
    ),
    sen_claim(
        "A-8",
        "The gap to corollary 1 grows linearly with the learning rate and the initial variance",
        "beyond the paper; Lu 2021, lemma 2 bounds the error by its sigma^2",
        (
            Check(f"{GROWTH} learning rate to the next", _growth, UP, "by_rate"),
            Check(f"{GROWTH} initial standard deviation to the next", _growth, UP, "by_std"),
            Check(f"{EXPONENT} learning rate", _exponent, Within(0.7, 1.3), "by_rate", Mean()),
            Check(f"{EXPONENT} initial variance", _exponent, Within(0.7, 1.3), "by_std", Mean()),
        ),
        statistic=EverySeed(),
        tolerance="linear means exponent 1; 0.3 on either side, because the gap is a maximum over"
        " words and epochs",
        paper="error at most Lipschitz sqrt(d) sigma^2 / 4",
        prediction="exponents 1 and 1",
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return (_distributions(arms), _curves(arms, config), _convergence(arms), _generality(arms))


def _distributions(arms: Arms) -> Figure:
    panels = []
    for quantity, edges in (("score", SCORE_EDGES), ("norm", NORM_EDGES)):
        for which, title in (("other", "non-topic words"), ("topic", "topic words")):
            shares = {head: arms[head].snapshot[f"{which}_{quantity}_share"] for head in HEADS}
            bars = (histogram(f"Attn-{head}", edges, share) for head, share in shares.items())
            panels.append(Panel(title, _sen.CHANGES[quantity], "share of words", tuple(bars)))
    caption = (
        "Figure 1 of the paper: at the end of training, topic words have moved far and all other"
        " words hardly at all; the weaker the classifier, the farther. Shares per bin, mean and"
        " range over seeds. FC is shown at the end of its longer training."
    )
    return Figure("sen_distributions", "Final scores and embeddings", caption, tuple(panels))


def _curves(arms: Arms, config: Config) -> Figure:
    panels = []
    for head in HEADS:
        lines = _sen.curves(arms[head].trajectory.isel(word=0), config.task.filler_size)
        labels = ("score of a topic word", "norm of its embedding")
        panels.append(Panel(f"Attn-{head}", *labels, lines))
    caption = "Figure 2 of the paper: the first topic word during training, and corollary 1."
    return Figure("sen_curves", "Score and embedding norm grow together", caption, tuple(panels))


def _convergence(arms: Arms) -> Figure:
    predicted = arms["FC_theorem2"].prediction
    panels = []
    for name, label in (("loss", "training loss"), ("attention", "attention on the topic word")):
        measured = {head: over_words(arms[head].trajectory[name]) for head in HEADS}
        lines = [curve(f"Attn-{head}", values) for head, values in measured.items()]
        theory = curve("equation of theorem 2 (FC)", predicted[name], "theory")
        panels.append(Panel(label, "epoch", label, (*lines, theory)))
    caption = (
        "The rate of theorem 2: loss and attention over epochs, mean and range over seeds, and the"
        " equation that predicts FC from the numbers of topics, topic words and words per sentence"
        " alone. TC and TL need less attention."
    )
    title = "Attention converges to the topic word"
    return Figure("sen_convergence", title, caption, tuple(panels))


def _generality(arms: Arms) -> Figure:
    panels = []
    for name, (dim, _) in SWEEPS.items():
        gaps, label = _largest_gap(arms[name]), LABELS[dim]
        bound = level("bound of A-2", (gaps[dim].values.min(), gaps[dim].values.max()), 0.02)
        title, lines = f"against the {label}", (curve("largest relative gap, FC", gaps), bound)
        panels.append(Panel(title, label, "largest relative gap", lines, "log", "log"))
    caption = "Where the theory stops holding (A-8): the largest gap between norm and corollary 1."
    title = "The limits of small steps and small initial values"
    return Figure("sen_generality", title, caption, tuple(panels))


def sweep_figures(arms: Arms, config: Config) -> Sequence[Figure]:
    """The largest SEN gap over the swept grid, per head."""
    panels = []
    for head in HEADS:
        gaps = _largest_gap(arms[head]).mean("seed")
        title, label = f"Attn-{head}", "largest relative gap"
        x, *others = (name for name in swept_in(config) if name in gaps.dims)
        if others:
            flat = gaps.isel(dict.fromkeys(others[1:], 0)).transpose(others[0], x)
            cells = HeatMap(label, flat[x].values, flat[others[0]].values, flat.values, "log")
            panels.append(Panel(title, x, others[0], (cells,)))
        else:
            panels.append(Panel(title, x, label, (curve(title, gaps),), "log", "log"))
    caption = (
        "Where the theory stops holding: the largest relative gap between norm and corollary 1,"
        " mean over seeds; empty where no score exceeded 0.05."
    )
    return (Figure("sen_map", "The SEN gap over the sweep", caption, tuple(panels)),)


DIVERGENCES = divergences(
    """
    training / test sentences | 800 / 200 | 3,999 / 950 (first commit: 799 / 190) | 800 / 200 | none
        seen: A-1 to A-3 and A-5 to A-7 hold in both presets
    embedding dimension | 15 | 10 | 15 | none: the relation does not contain it
    initial embeddings | variance 1e-6 | standard deviation 1e-6 (called variance) | standard
        deviation 1e-3 = variance 1e-6 | larger initial values add ||v(0)||^2: A-8 measures it
    query | fixed, ||q|| folded into embeddings and step | fixed, drawn with deviation 0.3,
        dimension 10 | norm 1: scores trained directly | changes the speed by ||q||^2, not the
        relation
    step after rescaling | eta = tau ||q|| | tau on the raw parameters | eta = tau ||q||^2 (derived)
        | both updates get tau ||q||^2; the paper's formula agrees only for ||q|| = 1
    sign of the updates | plus | minus (torch.optim.SGD) | minus | none for the relation
    fixed classifier | orthonormal columns | Gaussian with a unit diagonal | orthonormal | longer
        columns: the loss vanishes with less attention, and A-4's bound on attention fails in the
        code preset
    attention of TC and TL at 5,000 epochs | 'attended to' | not reported | about 0.50 and 0.25
        (A-4b) | the loss is near 0 without more attention
    word drawn in figure 2 | random | always the first (plotting error) | the first | none
    """
)

SMALL = TopicSentences(dictionary_size=3000)
AS_CODE: Any = {"query": "fixed", "query_std": 0.3, "fixed_head": "gaussian"}
CODE_MODEL = AttentionClassifierConfig(dimension=10, embedding_std=1e-6, **AS_CODE)
ABOUT = ("sen", "Score and embedding norm of a topic word grow together", _sen.PAPER)
PRESETS = {
    # The paper's number of sentences: theorem 1's residual grows like 1 / (sentences per topic
    # word). A larger rate: the same time (rate x epoch) in fewer steps.
    "quick": Config(rate=0.25, task=SMALL, steps=2000, long_steps=8000, sweep_steps=1000),
    "paper": Config(),
    "code": Config(task=_sen.CODE_TASK, model=CODE_MODEL),
}
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, sweep_figures, DIVERGENCES)
