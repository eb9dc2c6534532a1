"""The relation of score and norm under a convolution (Lu, Mao & Nayak 2021, appendix A, figures 8
and 9).

Attention works on pairs of neighbouring words: embeddings and keys first pass through convolutions
of width 2, and pairs carry the topic. Scores and embeddings of pairs are centred by their initial
values.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial

import numpy as np
import xarray as xr

from saccade.core.study import Study, divergences
from saccade.figures.figure import Figure, Panel
from saccade.judging.bound import Above, AtLeast
from saccade.judging.claim import Check, Claim
from saccade.judging.statistics import EverySeed, rank_correlation
from saccade.models.convolutional_classifier import ConvolutionalClassifierConfig
from saccade.probes.attention import AttentionStatistics
from saccade.probes.performance import Accuracy
from saccade.probes.topic_words import CentredTopicWords, Distributions
from saccade.records.record import Arm, Arms
from saccade.records.schedule import AtSteps
from saccade.settings import require_count
from saccade.studies._seeds import AbstractSeededConfig
from saccade.studies._sen import CHANGES, PAPER, curves, histogram, last
from saccade.tasks.markov_pairs import MarkovPairs
from saccade.theory.score_and_norm import norm_of_score
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe

TITLE = "Score and norm under a convolution"
SCORE_EDGES = tuple(np.arange(-1.125, 3, 0.25).tolist())  # 0 is the centre of a bin
NORM_EDGES = tuple(np.arange(0, 8.25, 0.5).tolist())


@dataclasses.dataclass(frozen=True)
class Config(AbstractSeededConfig):
    """Settings of the study."""

    task: MarkovPairs = MarkovPairs()
    """The sentences."""
    model: ConvolutionalClassifierConfig = ConvolutionalClassifierConfig()
    """The classifier."""
    rate: float = 0.1
    """Learning rate (not stated in the paper's appendix; 0.1 as elsewhere)."""
    steps: int = 3000
    """Epochs (full batch, so one step per epoch)."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "steps")

    @property
    def other_pairs(self) -> int:
        """m of corollary 1 if pairs were words: the other pairs of a sentence."""
        return self.task.sentence_size - 2


def experiment(config: Config, lab: Lab) -> Arms:
    recipe = Recipe(
        config.task,
        config.model,
        GradientDescent(config.rate),
        config.steps,
        probes=(CentredTopicWords(), Accuracy(), AttentionStatistics()),
        at=AtSteps(tuple(int(step) for step in np.linspace(0, config.steps, 61))),
        ends=(Distributions(SCORE_EDGES, NORM_EDGES),),
    )
    arms = lab.train({"TC-CNN": recipe}, config.seed_numbers)
    return {name: _beside_corollary_1(arm, config) for name, arm in arms.items()}


def _beside_corollary_1(arm: Arm, config: Config) -> Arm:
    """An arm with the displacements that corollary 1 would give if pairs were words."""
    norm = norm_of_score(arm.trajectory["centred_score"], config.other_pairs)
    norm = norm.assign_attrs(long_name="displacement by corollary 1, pairs as words", units="1")
    source = "Lu 2021, corollary 1, with pairs as words"
    return arm.with_prediction(xr.Dataset({"centred_norm": norm}), source)


def _score_ratio(arms: Arms, config: Config) -> xr.DataArray:
    end = arms["TC-CNN"].snapshot.isel(step=-1)
    return end["topic_score_change"] / end["other_score_change"]


def _together(arms: Arms, config: Config) -> xr.DataArray:
    trajectory = arms["TC-CNN"].trajectory
    score, norm = trajectory["centred_score"], trajectory["centred_norm"]
    return rank_correlation(score, norm, "step").min("word")


CLAIMS = (
    Claim(
        "A-14",
        "Under a convolution, topic pairs also receive the large scores, and their score and norm"
        " grow together",
        "Lu 2021, appendix A, figures 8 and 9",
        (
            Check("test accuracy", partial(last, "test_accuracy"), AtLeast(0.98)),
            Check("mean |score change|, topic pairs / other pairs", _score_ratio, AtLeast(10.0)),
            Check("least rank correlation of a topic pair's score and norm", _together, Above(0.9)),
        ),
        arms="TC-CNN",
        statistic=EverySeed(5),
        tolerance="set before the experiment, for each seed; the paper reports 99.89 % and shows"
        " figures",
        paper="99.89 % test accuracy",
        prediction="a positive relation; no formula",
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return (_distributions(arms), _curves(arms, config))


def _distributions(arms: Arms) -> Figure:
    panels = []
    for quantity, edges in (("score", SCORE_EDGES), ("norm", NORM_EDGES)):
        snapshot, label, both = arms["TC-CNN"].snapshot, CHANGES[quantity], ("other", "topic")
        shares = {which: snapshot[f"{which}_{quantity}_share"] for which in both}
        ends = {which: share.isel(step=-1) for which, share in shares.items()}
        bars = (histogram(f"{which} pairs", edges, share) for which, share in ends.items())
        panels.append(Panel(label, label, "share of pairs", tuple(bars)))
    caption = "Figure 8 of the paper: centred scores and displacements, mean and range over seeds."
    title = "Topic pairs move, others hardly"
    return Figure("sen_convolution_distributions", title, caption, tuple(panels))


def _curves(arms: Arms, config: Config) -> Figure:
    pair = arms["TC-CNN"].trajectory.isel(word=0)
    lines = curves(pair, config.other_pairs, "centred_", ", pairs as words")
    labels = ("change of its score", "displacement of its embedding")
    panel = Panel("one topic pair", *labels, lines)
    caption = "Figure 9 of the paper: the first topic pair during training, in the first seeds."
    return Figure("sen_convolution_curves", TITLE, caption, (panel,))


DIVERGENCES = divergences(
    """
    learning rate | not stated | not released | 0.1 | sets the progress in 3,000 epochs
    initial convolutions and keys | not stated | not released | PyTorch's default; keys zero | all
        pairs have the same initial score, which centring removes
    topic pairs | drawn at random | not released | first words | none: words have no order
    """
)

SMALL = MarkovPairs(train_size=1000, test_size=500)
PRESETS = {"quick": Config(task=SMALL, rate=0.15, steps=1500), "paper": Config(32, 1000)}
ABOUT = ("sen_convolution", TITLE, PAPER)
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
