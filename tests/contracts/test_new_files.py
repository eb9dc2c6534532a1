"""A new task, model, probe, theory and study, each one file outside the package and no other edit:
the contracts hold for them as they are, and find each of them broken.
"""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import contracts
from saccade import registry
from saccade.contracts.model import AbstractModelConfig
from saccade.contracts.probe import AbstractProbe
from saccade.contracts.task import AbstractTask
from saccade.contracts.theory import AbstractTheory
from saccade.registry import find_study
from saccade.train.lab import Lab

FILES = {
    "coin_task": '''
"""Tosses of two biased coins; the label says which coin was tossed (Bernoulli 1713).

    [1, 1, 0, 1]  label 1
"""

import dataclasses

import jax
import jax.numpy as jnp

from saccade import AbstractTask, Batch


@dataclasses.dataclass(frozen=True)
class CoinTosses(AbstractTask):
    """Tosses of the first coin are mostly 0, those of the second mostly 1."""

    tosses: int = 4
    """Tosses per example."""
    bias: float = 0.8
    """Probability of a coin's more frequent side."""
    train_size: int = 8
    """Training examples."""
    test_size: int = 4
    """Test examples."""

    vocabulary_size = labels = 2

    def sample(self, key, size):
        coin_key, toss_key = jax.random.split(key)
        labels = jax.random.bernoulli(coin_key, 0.5, (size,)).astype(jnp.int32)
        usual = jax.random.bernoulli(toss_key, self.bias, (size, self.tosses))
        words = jnp.where(usual, labels[:, None], 1 - labels[:, None])
        return Batch(words.astype(jnp.int32), labels)
''',
    "kept_task": '''
"""Tosses of two coins that were written down.

    [1, 1, 0]  label 1
"""

import dataclasses

import numpy as np

from saccade import AbstractCorpus, Batch


@dataclasses.dataclass(frozen=True)
class KeptTosses(AbstractCorpus):
    """Always the same tosses."""

    tosses: int = 3
    """Tosses per example."""

    vocabulary_size = labels = 2

    @property
    def splits(self):
        labels = np.arange(4, dtype=np.int32) % 2
        words = np.tile(labels[:, None], self.tosses)
        return {"train": Batch(words, labels), "test": Batch(words[:3], labels[:3])}
''',
    "mean_model": '''
"""A classifier that attends to every word equally and trains an embedding per word."""

import dataclasses

import jax
import jax.numpy as jnp
from coin_task import CoinTosses

from saccade import AbstractModel, AbstractModelConfig, Output


class MeanClassifier(AbstractModel):
    """The mean of the words' embeddings is the logits."""

    embeddings: jax.Array

    def __call__(self, batch):
        mask = jnp.ones(batch.words.shape, bool) if batch.mask is None else batch.mask
        attention = mask / mask.sum(-1, keepdims=True)
        return Output(jnp.einsum("sp,spl->sl", attention, self.embeddings[batch.words]), attention)


@dataclasses.dataclass(frozen=True)
class MeanClassifierConfig(AbstractModelConfig):
    """Builds the classifier."""

    start_std: float = 0.1
    """Initial standard deviation of the embeddings."""

    @classmethod
    def example(cls):
        return cls(), CoinTosses.example()

    def build(self, task, key):
        shape = (task.vocabulary_size, task.labels)
        return MeanClassifier(self.start_std * jax.random.normal(key, shape))
''',
    "odds_probe": '''
"""The log odds of the labels, word by word."""

import dataclasses
from typing import ClassVar

from mean_model import MeanClassifierConfig

from saccade import AbstractProbe, Variable


@dataclasses.dataclass(frozen=True)
class WordOdds(AbstractProbe):
    """How much each word speaks for label 1."""

    variables: ClassVar = {"word_odds": Variable(("side",), "log odds of label 1", "nat")}

    @classmethod
    def example(cls):
        return cls(), (MeanClassifierConfig.example(),)

    def __call__(self, moment):
        table = moment.model.embeddings
        return {"word_odds": table[:, 1] - table[:, 0]}

    def coordinates(self, task):
        return {"side": ("side", list(range(task.vocabulary_size)))}
''',
    "bayes_theory": '''
"""The best linear classifier of coin tosses (Bernoulli 1713).

Statement. The log odds of a coin are the sum of those of its tosses.

Limits. Independent tosses, both coins equally likely.
"""

from typing import ClassVar

import numpy as np
import xarray as xr

from saccade import AbstractTheory


class BayesOdds(AbstractTheory):
    """Log odds of single tosses."""

    statement: ClassVar = "a toss contributes log(p / (1 - p)) to the log odds of its coin"
    source: ClassVar = "Bernoulli 1713, section 4"
    predicts: ClassVar = ("word_odds",)

    def predict(self, task, model, trajectory):
        odds = task.tosses * np.log(task.bias / (1 - task.bias))
        return xr.Dataset({"word_odds": ("side", [-odds, odds])})
''',
    "coin_study": '''
"""A classifier learns which coin was tossed (Bernoulli 1713)."""

import dataclasses

from bayes_theory import BayesOdds
from coin_task import CoinTosses
from mean_model import MeanClassifierConfig
from odds_probe import WordOdds

from saccade import Above, Check, Claim, Divergence, EverySeed, GradientDescent
from saccade import Recipe, Study


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the study."""

    task: CoinTosses = CoinTosses()
    """The coins."""
    seeds: int = 3
    """Repetitions."""
    rate: float = 1.0
    """Learning rate."""
    steps: int = 20
    """Steps of gradient descent."""


def experiment(config, lab):
    recipe = Recipe(
        config.task,
        MeanClassifierConfig(),
        GradientDescent(config.rate),
        config.steps,
        probes=(WordOdds(),),
    )
    arms = lab.train({"coins": recipe}, config.seeds)
    return {name: arm.beside(BayesOdds()) for name, arm in arms.items()}


def slope(arms, config):
    odds = arms["coins"].end["word_odds"]
    return odds.sel(side=1) - odds.sel(side=0)


CLAIM = Claim(
    "Z-1",
    "The classifier learns which side belongs to which coin",
    "Bernoulli 1713, section 4",
    Check("difference of the log odds of the two sides", slope, Above(0.0)),
    tolerance="a sign",
    arms="coins",
    statistic=EverySeed(3),
)

STUDY = Study(
    name="coin_study",
    title="Which coin was tossed",
    paper="Bernoulli 1713",
    presets={"quick": Config()},
    experiment=experiment,
    claims=(CLAIM,),
    divergences=(Divergence("coins", "urns", "none", "coins", "none"),),
)
''',
}
KINDS = {
    "coin_task": AbstractTask,
    "kept_task": AbstractTask,
    "mean_model": AbstractModelConfig,
    "odds_probe": AbstractProbe,
    "bayes_theory": AbstractTheory,
}
BROKEN = {
    "coin_task": [
        ("frozen=True", "frozen=False", "DID NOT RAISE"),
        ('    """Tosses per example."""\n', "", "tosses has no help"),
        ("    [1, 1, 0, 1]  label 1\n", "", "draws no example"),
        ("_key, toss_key = jax.random.split(key)", "_key = toss_key = jax.random.key(0)", "same"),
        ("labels)\n", "labels[:1])\n", "the examples do not come first"),
        ("vocabulary_size = labels = 2", "vocabulary_size, labels = 1, 2", "vocabulary_size"),
    ],
    "kept_task": [
        ("frozen=True", "frozen=False", "DID NOT RAISE"),
        ('"train":', '"training":', "no examples to train on"),
        ("    vocab", '    bias: float = 0.5\n    """Of a coin."""\n    vocab', "DID NOT RAISE"),
        (
            "labels = np.arange(4, dtype=np.int32) % 2",
            "KeptTosses.asked = getattr(KeptTosses, 'asked', 0) + 1; "
            "labels = (np.arange(4, dtype=np.int32) + KeptTosses.asked) % 2",
            "not always the same",
        ),
        ("words[:3], labels[:3]", "words[:3, :2], labels[:3]", "splits are not alike"),
        ("words[:3], labels[:3]", "words[:3], labels[:3], words[:3] > -1", "splits are not alike"),
        ("Batch(words, labels)", "Batch(words, labels[:3])", "the examples do not come first"),
        ("(words, labels)", "(words, labels, words > 0)", "an example has no word"),
        ("np.int32", "np.int64", "int64"),
        ("vocabulary_size = labels = 2", "vocabulary_size, labels = 1, 2", "vocabulary_size"),
    ],
    "mean_model": [
        ("attention = mask / mask.sum(-1, keepdims=True)", "attention = 1.0 * mask", "rtol"),
        ("else batch.mask", "else batch.mask | True", "padding gets attention"),
        ("self.start_std * jax.random.normal(key, shape)", "jax.numpy.zeros(shape)", "constant"),
        ("self.embeddings[", "jax.lax.stop_gradient(self.embeddings)[", "no gradient"),
        ("(task.vocabulary_size, task.labels)", "(task.vocabulary_size, 3)", r"\(6, 3\)"),
        ("return cls(), CoinTosses.example()", "return super().example()", "has no example"),
    ],
    "odds_probe": [
        ('return {"word_odds":', 'return {"odds":', "word_odds"),
        ("table[:, 1] - table[:, 0]", "table", "has not the dims"),
        ("table[:, 1] - table[:, 0]", "table[:1, 1]", "along side"),
        ("table[:, 1] - ", "__import__('random').random() - ", "not a pure function"),
        ("table[:, 1] - ", "float('nan') * ", "isnan"),
        ('"word_odds"', '"loss"', "the record needs these names"),
        ("log odds of label 1", "one number a word", "'one number a'"),
    ],
    "bayes_theory": [
        ("Limits. ", "", "lacks its Limits."),
        ('("word_odds",)', '("beauty",)', "no probe measures"),
        (", section 4", "", "no place in the paper"),
    ],
    "coin_study": [
        ('    arms="coins",\n', "", "names no arm"),
        ('"Bernoulli 1713, section 4"', '"somewhere"', "is no source"),
        ("EverySeed(3)", "EverySeed(4)", "needs 4 seeds"),
        ("EverySeed(3)", "EverySeed(2)", "Z-1"),
        ("tossed (Bernoulli 1713)", "tossed", "does not name Bernoulli"),
        ("learns which side", "finds inside of itself which side", "'inside of'"),
        ('    """Learning rate."""\n', "", "rate has no help"),
        ("paper=", 'precision="float16", paper=', "float16"),
        ("divergences=(", "divergences=() and (", "divergences"),
    ],
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Iterator[Path]:
    """A folder with the five files; nothing of it stays imported."""
    for name, text in FILES.items():
        (tmp_path / f"{name}.py").write_text(text.lstrip(), encoding="utf-8")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.setattr(registry, "_loaded", {})
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(tmp_path) in (getattr(module, "__file__", None) or ""):
            del sys.modules[name]


def check(folder: Path, name: str) -> None:
    """Apply the contract of its kind to a file."""
    importlib.invalidate_caches()
    if name not in KINDS:
        contracts.check_study(find_study(folder / f"{name}.py"))
        return
    (kind,) = contracts.classes_in(importlib.import_module(name), KINDS[name])
    if name == "bayes_theory":
        contracts.check_theory(kind, probes(importlib.import_module("odds_probe")))
    else:
        getattr(contracts, f"check_{name.rpartition('_')[2]}")(kind)


def probes(module: ModuleType) -> list[type]:
    return contracts.classes_in(module, AbstractProbe)


@pytest.mark.parametrize("name", FILES)
def test_a_new_file_needs_no_other_edit(name, folder):
    check(folder, name)


def test_the_new_files_run_together(folder, lab):
    study = find_study(folder / "coin_study.py")
    record = study.run(study.config("quick"), Lab(lab.folder, progress=None))
    assert record.verdicts["Z-1"]["verdict"] == "holds"


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [(name, *case) for name, cases in BROKEN.items() for case in cases],
    ids=[f"{name}: {reason}" for name, cases in BROKEN.items() for _, _, reason in cases],
)
def test_a_broken_file_is_found(name, old, new, reason, folder):
    file = folder / f"{name}.py"
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises((AssertionError, TypeError, pytest.fail.Exception), match=reason):
        check(folder, name)
