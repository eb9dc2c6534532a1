"""Skeleton of a study: does the value of a marked word follow its score (Lu, Mao & Nayak 2021)?

    saccade run my_study.py                             # train, judge the claims, draw the figures
    saccade run my_study.py --help                      # every field of the config is an option
    saccade run my_study.py --sweep rate=0.1,1,10       # any number can be swept
    saccade report runs --study my_study.py             # the page, from the records

A study is one experiment: a config with presets, `experiment`, claims and figures. The name below
(`STUDY`) is what the command line looks for. Modules in the same folder can be imported.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import xarray as xr
from my_model import WordAttentionConfig
from my_probe import MarkedWords
from my_task import MarkedSentences
from my_theory import ValueOfScore

from saccade import (
    Accuracy,
    Arm,
    AtLeast,
    AtMost,
    Check,
    Claim,
    Divergence,
    EverySeed,
    Figure,
    GradientDescent,
    Lab,
    Line,
    Logarithmic,
    Mean,
    Panel,
    Recipe,
    Study,
)
from saccade.figures.figure import over_seeds
from saccade.settings import require_count, require_positive


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the study; the fields of nested configs are options as well."""

    task: MarkedSentences = MarkedSentences()
    """The data."""
    model: WordAttentionConfig = WordAttentionConfig()
    """The model."""
    rate: float = 0.5
    """Learning rate."""
    steps: int = 2000
    """Steps of gradient descent."""
    seeds: int = 5
    """Repetitions: each has its own data and start."""

    def __post_init__(self):
        require_positive(self, "rate")
        require_count(self, "steps", "seeds")


def experiment(config: Config, lab: Lab) -> Mapping[str, Arm]:
    # Everything slow goes through `lab`, which vectorises, reports progress, resumes and caches.
    # Recipes have names, which are those of the arms; a second arm is a second recipe.
    recipes = {
        "attention": Recipe(
            config.task,
            config.model,
            GradientDescent(config.rate),
            config.steps,
            probes=(MarkedWords(), Accuracy()),
            at=Logarithmic(40),
        )
    }
    arms = lab.train(recipes, config.seeds)
    return {name: arm.beside(ValueOfScore()) for name, arm in arms.items()}


# A measure gets the arms that its check names, and the typed config. It reduces over its own dims
# by name and keeps `seed` (and swept dims): one number per seed.


def _gap(arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    del config
    arm = arms["attention"]
    gap = abs(arm.trajectory["value"] - arm.prediction["value"]).max(("step", "word"))
    return gap / arm.end["value"].min("word")


def _attention(arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    del config
    return arms["attention"].end["attention"].mean("word")


def _test_accuracy(arms: Mapping[str, Arm], config: Config) -> xr.DataArray:
    del config
    return arms["attention"].end["test_accuracy"]


CLAIMS = (
    Claim(
        "M-1",
        "The value of a marked word follows its score, at every recorded step",
        ValueOfScore.source,
        Check("largest gap / last value, both words", _gap, AtMost(0.05)),
        arms="attention",
        statistic=EverySeed(3),
        tolerance="5 %: fillers and finite steps, which the theory leaves out",
        prediction="0",
    ),
    Claim(
        "M-2",
        "After training, the model attends to the marked word and classifies new sentences",
        "beyond corollary 1, which does not say how far the score grows",
        (
            Check("attention on the marked word", _attention, AtLeast(0.5)),
            Check("test accuracy", _test_accuracy, AtLeast(0.95)),
        ),
        arms="attention",
        statistic=Mean(3),
        tolerance="five times the uniform attention; few errors",
    ),
)


def figures(arms: Mapping[str, Arm], config: Config) -> Sequence[Figure]:
    """Figures as data; the report draws them as PNG and PDF, and on the page."""
    del config
    arm = arms["attention"]
    measured, predicted = (data["value"].mean("word") for data in (arm.trajectory, arm.prediction))
    steps = measured["step"].values
    theory = Line("theory", steps, predicted.mean("seed").values, role="theory")
    marks = (over_seeds("measured", steps, measured), theory)
    panel = Panel("Value of the marked words", "step", "value", marks, "log")
    caption = "Mean over both words and all seeds, with the range over seeds; dashed: theory."
    return (Figure("my_study_value", "The value follows the score", caption, (panel,)),)


# Where paper, authors' code and this study differ, and what it does to the claims.
DIVERGENCES = (
    Divergence(
        "values",
        "vectors of dimension 15, with a classifier",
        "the same",
        "scalars, without a classifier",
        "none on M-1: the relation does not depend on the classifier",
    ),
)

STUDY = Study(
    name="my_study",
    title="The value of a marked word follows its score",
    paper="Lu, Mao & Nayak 2021",
    presets={"quick": Config(steps=500, seeds=3), "full": Config()},
    experiment=experiment,
    claims=CLAIMS,
    figures=figures,
    divergences=DIVERGENCES,
)
