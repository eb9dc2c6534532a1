"""Attention agrees with what can be translated word by word (Snell, Zhong, Klein & Steinhardt 2021,
sections 3.1 and 4, table 2).

On a synthetic corpus with a lexicon, attention, lexical probes, the bag-of-words proxy, IBM Model 1
and saliency are compared by the agreement A. Two ablations (after table 10): attention learned over
a lexicon that stays random, and a lexicon learned under attention that stays random.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from saccade.contracts.model import AbstractModelConfig
from saccade.contracts.probe import AbstractProbe
from saccade.contracts.task import FIRST_WORD, SentencePairs
from saccade.core.study import Study, divergences
from saccade.figures.figure import Figure, HeatMap, Panel, curve, level
from saccade.judging.bound import Above, Below
from saccade.judging.claim import Check, Claim
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig, token_entropy
from saccade.models.word_proxy import WordProxyConfig
from saccade.probes import translation
from saccade.probes.agreement import best_step, contextual_agreement
from saccade.probes.attention import AttentionStatistics
from saccade.records.record import Arm, Arms
from saccade.records.schedule import Logarithmic
from saccade.records.trajectory import at_place
from saccade.settings import require, require_count
from saccade.studies._ktiw import PAPER, SMALL, AbstractTrainingConfig
from saccade.tasks.lexicon_sentences import LexiconSentences
from saccade.theory.ibm_model_1 import train, translation_scores
from saccade.train.lab import Lab
from saccade.train.members import purpose_key
from saccade.train.recipe import Recipe
from saccade.train.start import Seeds

PAIRS = 16
"""Test pairs on which agreement is measured."""
MODEL_1_PAIRS = 2000
"""Pairs on which IBM Model 1 is trained."""
ITERATIONS = (1, 10)
"""Iterations of IBM Model 1; the last give its beta."""
AGREEMENTS = {
    "alpha_uniform": "A(alpha, beta under uniform attention)",
    "uniform_proxy": "A(beta under uniform attention, beta of the proxy)",
    "delta_uniform": "A(saliency, beta under uniform attention)",
    "alpha_other_beta": "A(alpha, beta of another run)",
    "alpha_other_alpha": "A(alpha, alpha of another run)",
    "model_1_uniform": "A(beta of IBM Model 1, beta under uniform attention)",
    "alpha_frozen_lexicon": "A(alpha, alpha over a frozen lexicon)",
    "alpha_frozen_attention": "A(alpha, beta under frozen attention)",
}
OTHER_STARTS = 10_000
"""Between the seeds of two runs on the same pairs, whose initialisations differ."""


@dataclasses.dataclass(frozen=True)
class Config(AbstractTrainingConfig):
    """Settings of the study."""

    seeds: int = 20
    """Repetitions, each with its own data; every arm has initialisations of its own."""
    batch_size: int = 64
    """New pairs per step."""
    model: SequenceToSequenceConfig = SequenceToSequenceConfig(activation="relu")
    """The recurrent model."""
    corpus: LexiconSentences = LexiconSentences(train_size=64)
    """The corpus. Batches are fresh, so the training set only serves to measure."""
    proxy_dimension: int = 256
    """Dimension of the proxy."""
    steps: int = 1500
    """Steps of every model."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "proxy_dimension", "steps")
        for field in ("base_start", "head_starts"):
            require(self.model, field, "none: every seed draws its own", lambda one: one is None)

    def training_recipe(
        self, model: AbstractModelConfig, probes: Sequence[AbstractProbe]
    ) -> Recipe:
        """The training of a model on the corpus."""
        return self.recipe(
            self.corpus, model, self.steps, at=Logarithmic(24), probes=probes, loss=token_entropy
        )


def experiment(config: Config, lab: Lab) -> Arms:
    """Two runs with attention, one with uniform attention, two ablations, the proxy, and IBM Model
    1, all on the same pairs.
    """
    recurrent = {
        "attention": config.model,
        "uniform": dataclasses.replace(config.model, attention="uniform"),
        "frozen_lexicon": dataclasses.replace(config.model, lexicon="frozen"),
        "frozen_attention": dataclasses.replace(config.model, attention="frozen"),
    }
    tables = (translation.PositionTables(PAIRS), translation.PairWords(PAIRS))
    probes = (translation.TokenAccuracy(), *tables)
    recipes = {
        name: config.training_recipe(model, (*probes, AttentionStatistics()))
        for name, model in recurrent.items()
    }
    recipes["proxy"] = config.training_recipe(WordProxyConfig(config.proxy_dimension), probes)
    numbers, arms = list(config.seed_numbers), {}
    for place, (name, recipe) in enumerate(recipes.items()):
        # The two runs with attention are members of one training.
        runs = ("attention", "other") if name == "attention" else (name,)
        members = [
            OTHER_STARTS * (2 * place + at) + number
            for at in range(len(runs))
            for number in numbers
        ]
        same_pairs = numbers * len(runs)
        seeds = Seeds(members, data=same_pairs, order=same_pairs)
        arm = lab.train({f"translation_{name}": recipe}, seeds)[f"translation_{name}"]
        for at, run in enumerate(runs):
            arms[f"translation_{run}"] = _members(arm, at * len(numbers), numbers)
    arms["translation_model_1"] = _model_1(config, lab, arms["translation_uniform"].trajectory)
    return compared(arms)


def _members(arm: Arm, first: int, numbers: Sequence[int]) -> Arm:
    """Some members of an arm, known by the seeds of their data; without their weights."""
    chosen = arm.trajectory.isel(seed=slice(first, first + len(numbers)))
    chosen = chosen.drop_vars(("data_seed", "order_seed")).assign_coords(seed=list(numbers))
    return Arm(chosen, arm.snapshot)


def _model_1(config: Config, lab: Lab, like: xr.Dataset) -> Arm:
    """IBM Model 1 on this corpus: beta on another arm's pairs, and the share of words it knows."""
    task = dataclasses.replace(config.corpus, train_size=MODEL_1_PAIRS)
    table = like["beta"].isel(step=0, drop=True).transpose("seed", *translation.POSITIONS)
    betas, shares = [], []
    for seed in table["seed"].values:
        pairs = task.sample(purpose_key(int(seed), "data"), task.train_size)
        shown = at_place(like[["source_id", "target_id"]], 0).sel(seed=seed)
        beta, share = lab.cached(
            translate,
            pairs,
            task.vocabulary_size,
            ITERATIONS,
            task.translations,
            shown["source_id"].values,
            shown["target_id"].values,
            version=1,
            name=f"ktiw_agreement IBM Model 1, seed {seed}",
        )
        betas.append(beta)
        shares.append(share)
    beta = table.copy(data=np.stack(betas)).where(table.notnull())
    coordinates = {"seed": table["seed"], "iterations": list(ITERATIONS)}
    translated = xr.DataArray(np.stack(shares), coordinates, ["seed", "iterations"])
    return Arm(xr.Dataset({"beta": beta, "translated": translated}))


def translate(
    pairs: SentencePairs,
    vocabulary_size: int,
    iterations: Sequence[int],
    translations: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """log beta of IBM Model 1 on some sentences (-1 is padding), and, after each number of
    iterations, the share of source words whose largest entry is their translation.
    """
    tables = [train(pairs, vocabulary_size, number).table for number in iterations]
    sides = (np.maximum(source, 0), np.maximum(target, 0), source >= 0, target >= 0)
    beta = np.log(np.maximum(translation_scores(tables[-1], *sides), 1e-30))
    seen = np.unique(np.asarray(pairs.source)[np.asarray(pairs.source) >= FIRST_WORD])
    right = translations[seen - FIRST_WORD]
    return beta, np.asarray([(table[seen].argmax(-1) == right).mean() for table in tables])


# -- agreement -------------------------------------------------------------------------------------


AGREE = jax.jit(jnp.vectorize(translation.mean_agreement, signature="(p,t,s),(p,t,s)->()"))
CHANCE = jax.jit(jnp.vectorize(translation.mean_chance, signature="(p,t,s)->()"))


def _by_member(function: Callable[..., jax.Array], *tables: xr.DataArray) -> xr.DataArray:
    """A function of tables of positions, for every seed and, where one of them has it, step."""
    dims = [translation.POSITIONS] * len(tables)
    return xr.apply_ufunc(lambda *some: np.asarray(function(*some)), *tables, input_core_dims=dims)


def compared(arms: Arms) -> dict[str, Arm]:
    """The arms without their tables of positions, and the arm `translation_agreement` with the
    agreement of these tables.

    The tables of all steps would be most of the record (20 MB at the paper's size); only those of
    the first pair are kept. The reference is attention at the step of its best accuracy; NaN for a
    run without any accuracy.
    """
    agreements = partial(_by_member, AGREE)
    names = ("attention", "other", "uniform", "frozen_lexicon", "frozen_attention", "proxy")
    attention, other, uniform, frozen_lexicon, frozen_attention, proxy, model_1 = (
        arms[f"translation_{name}"].trajectory for name in (*names, "model_1")
    )
    best = best_step(attention["test_accuracy"].fillna(-1.0))
    reference = at_place(attention[["alpha", "delta"]], best)
    alpha, beta = reference["alpha"], uniform["beta"]
    with_uniform = agreements(alpha, beta)
    best_beta = at_place(beta, with_uniform.fillna(-1.0).argmax("step"))
    curves = {
        "alpha_uniform": with_uniform,
        "delta_uniform": agreements(reference["delta"], beta),
        "alpha_other_beta": agreements(alpha, other["beta"]),
        "alpha_other_alpha": agreements(alpha, other["alpha"]),
        "uniform_proxy": agreements(best_beta, proxy["beta"]),
        "model_1_uniform": agreements(model_1["beta"], beta),
        "alpha_frozen_lexicon": agreements(alpha, frozen_lexicon["alpha"]),
        "alpha_frozen_attention": agreements(alpha, frozen_attention["beta"]),
        "chance": _by_member(CHANCE, alpha),
    }
    titles = {**AGREEMENTS, "chance": "agreement by chance"}
    named = {key: one.assign_attrs(long_name=titles[key], units="1") for key, one in curves.items()}
    kept = {
        "first_alpha": alpha,
        "first_delta": reference["delta"],
        "first_beta_uniform": best_beta,
        "first_beta_model_1": model_1["beta"],
    }
    tables = {name: table.isel(pair=0, drop=True) for name, table in kept.items()}
    found = {"translation_agreement": Arm(xr.Dataset(named), xr.Dataset(tables))}
    for name, arm in arms.items():
        trajectory = arm.trajectory.drop_dims(translation.POSITIONS, errors="ignore")
        found[name] = dataclasses.replace(arm, trajectory=trajectory)
    return found


# -- measures --------------------------------------------------------------------------------------


def _agreed(name: str, arms: Arms, config: Config) -> xr.DataArray:
    """Best agreement over the evaluated steps, relative to chance."""
    agreement = arms["translation_agreement"].trajectory
    return agreement[name].max("step") / agreement["chance"]


def _frozen_less_uniform(arms: Arms, config: Config) -> xr.DataArray:
    """Best A(alpha, alpha over a frozen lexicon) less best A(alpha, beta under uniform)."""
    best = arms["translation_agreement"].trajectory.max("step")
    return best["alpha_frozen_lexicon"] - best["alpha_uniform"]


def _in_context(arms: Arms) -> xr.DataArray:
    """xi(alpha, beta under uniform attention), as a share of the best accuracy of the other run."""
    accuracy = arms["translation_other"].trajectory["test_accuracy"]
    agreement = arms["translation_agreement"].trajectory
    value = agreement["alpha_uniform"].max("step")
    found = contextual_agreement(agreement["alpha_other_alpha"], accuracy, value)
    return found / accuracy.max("step")


def _checks(*names: str) -> tuple[Check, ...]:
    texts = {name: f"{AGREEMENTS[name]} / chance" for name in names}
    return tuple(Check(texts[name], partial(_agreed, name), Above(2.0)) for name in names)


CLAIMS = (
    Claim(
        "C-12s",
        "On a corpus with a lexicon, attention, lexical probes, proxy and saliency agree far more"
        " than by chance",
        "Snell 2021, table 2, on generated sentences",
        _checks("alpha_uniform", "uniform_proxy", "delta_uniform", "alpha_other_beta"),
        "twice chance, as specified for real data (C-12, C-15)",
        paper="on real translation data 31, 34, 27 and 49 against 7 (Multi30k)",
        prediction="far above 1",
        arms="translation_*",
    ),
    Claim(
        "C-12t",
        "IBM Model 1 and the lexical probe under uniform attention agree far more than by chance",
        "Snell 2021, section 4.2",
        _checks("model_1_uniform"),
        "twice chance, as for C-12s",
        prediction="far above 1",
        arms="translation_*",
    ),
    Claim(
        "C-13s",
        "Attention learned over a frozen lexicon agrees with attention less than what can be"
        " translated word by word does",
        "Snell 2021, table 10, on generated sentences",
        Check(
            f"{AGREEMENTS['alpha_frozen_lexicon']} less {AGREEMENTS['alpha_uniform']}",
            _frozen_less_uniform,
            Below(0.0),
        ),
        "an order, as specified for real data (C-13); best over the evaluated steps for both",
        paper="9 against 53 (IMDB), 14 against 20 (SST)",
        prediction="below 0, if the lexicon drives attention",
        arms="translation_*",
    ),
    Claim(
        "C-13t",
        "A lexicon learned under frozen attention agrees with attention far more than by chance",
        "beyond the paper: the counterpart of table 10",
        _checks("alpha_frozen_attention"),
        "twice chance, as for C-12s",
        prediction="far above 1, if the lexicon needs no attention",
        arms="translation_*",
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return _curves(arms, config), _first_pair(arms)


def _curves(arms: Arms, config: Config) -> Figure:
    agreement = arms["translation_agreement"].trajectory.sel(step=slice(1, None))
    shown = ("alpha_uniform", "alpha_other_beta", "alpha_other_alpha")
    shown += ("alpha_frozen_lexicon", "alpha_frozen_attention")
    lines = [curve(AGREEMENTS[name], agreement[name]) for name in shown]
    by_chance = float(agreement["chance"].mean())
    lines.append(level("chance", (1.0, config.steps), by_chance, "theory"))
    translated = arms["translation_model_1"].trajectory["translated"]
    first = float(translated.sel(iterations=1).mean())
    caption = (
        "Agreement with the attention of a trained model along training, mean over runs with the"
        " range. When the attention of another run agrees as well as beta under uniform attention"
        f" does, that run has {float(_in_context(arms).mean()):.0%} of its best accuracy (xi). One"
        f" iteration of IBM Model 1 translates {first:.0%} of the word types correctly, by their"
        " largest entry."
    )
    panel = Panel("a corpus with a lexicon", "step", "agreement", tuple(lines), "log")
    title = "Attention goes where words can be translated"
    return Figure("ktiw_agreement_curves", title, caption, (panel,))


def _first_pair(arms: Arms) -> Figure:
    tables = arms["translation_agreement"].snapshot.isel(seed=0)
    shown = {
        "attention alpha": tables["first_alpha"],
        "saliency Delta": tables["first_delta"],
        "beta under uniform attention": np.exp(tables["first_beta_uniform"]),
        "beta of IBM Model 1": np.exp(tables["first_beta_model_1"]),
    }
    there = tables["first_alpha"].notnull()
    targets, sources = (np.flatnonzero(there.any(dim)) for dim in ("source", "target"))
    panels = []
    for title, table in shown.items():
        values = table.values[np.ix_(targets, sources)]
        cells = HeatMap(title.split()[0], sources, targets, values, numbered=False)
        panels.append(Panel(title, "source position", "target position", (cells,)))
    caption = (
        "The first test pair of one seed: four ratings of its source words for each target word."
        " Beta is the probability of the correct word from one source word alone."
    )
    return Figure("ktiw_agreement_first_pair", "Four views of one pair", caption, tuple(panels))


DIVERGENCES = divergences(
    """
    translation models | LSTM, two layers, both directions, dropout | the same, batches of 16 pairs
        | one layer, one direction, no dropout, batches of 64 | sufficient for generated sentences
    translation data | Multi30k, IWSLT14, News Commentary | the same, Multi30k from German to
        English | generated: Zipf words, a one-to-one lexicon, local reordering | C-12s stands in
        for C-12 where there are no data
    loss of the proxy | sum | sum over the batch | mean | C-1 is about the sum
    constants in A | not stated | always agree | agree by chance | none occur
    frozen lexicon | classification | the same | the translation model, generated sentences | C-13s
        stands in for C-13 where there are no data
    """
)

ABOUT = ("ktiw_agreement", "Attention goes where words can be translated", PAPER)
QUICK: dict[str, Any] = {"model": dataclasses.replace(SMALL, activation="relu")}
QUICK |= {"corpus": LexiconSentences(30, train_size=64), "proxy_dimension": 64, "batch_size": 32}
PRESETS = {
    "quick": Config(**QUICK, rate=0.005, steps=200, seeds=5),
    "paper": Config(first_seed=1000),
}
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
