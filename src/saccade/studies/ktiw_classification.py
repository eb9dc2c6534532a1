"""Attention agrees with what single words say about the label (Snell, Zhong, Klein & Steinhardt
2021, tables 2, 3, 5, 7 and 10, the rows of classification).

A bidirectional LSTM with additive attention, one with uniform attention, one whose lexicon stays
random, and a bag-of-words proxy are trained on the same texts. Attention (alpha), lexical probes
(beta) and saliency (Delta) of all positions are compared by the agreement A and by Kendall's tau,
on held-out and on training texts. The reference of a seed is its run with attention at the step of
its best accuracy; the other seeds are the other runs of the paper.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.study import Study, divergences
from saccade.data.vectors import vectors_for
from saccade.figures.figure import Figure, Panel
from saccade.judging.bound import Below
from saccade.judging.claim import Check, Claim
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.models.word_classifier import WordClassifierConfig
from saccade.probes.attention import AttentionStatistics
from saccade.probes.performance import Accuracy
from saccade.probes.text_tables import TextTables
from saccade.records.record import Arm, Arms
from saccade.records.schedule import AtSteps, Every
from saccade.records.trajectory import at_place
from saccade.settings import require, require_count, require_positive, require_single
from saccade.studies._agreement import (
    AGREEMENTS,
    COMPARED,
    MORE,
    NOT_INDEPENDENT,
    SPLITS,
    above_chance,
    agreement_panel,
    best_of,
    by_number,
    compared,
    in_context,
    peak_checks,
    seeds_of,
)
from saccade.studies._ktiw import PAPER
from saccade.studies._seeds import AbstractSeededConfig
from saccade.studies._tables import table
from saccade.tasks.named_text import NamedText
from saccade.train.batches import Minibatch
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam
from saccade.train.recipe import Recipe

CORPORA = {
    "imdb": "IMDb",
    "yelp_sample": "Yelp (a sample)",
    "ag_news_sample": "AG News (a sample)",
    "newsgroups": "20 Newsgroups",
    "sst2": "SST",
}
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "ag_news_sample": {"keep": ("1", "3")},
    "yelp_sample": {"test_share": 0.25},
}
"""World against business; the sample has no test set."""
EVALUATED = (0, 10, 50, 100, 150, 200)
"""The first steps at which the paper evaluates; then every 250."""
MEASURED = 1024
"""Training texts on which loss and accuracy are measured, and from which some are compared."""
RUNS = ("attention", "uniform", "frozen_lexicon")
PAPER_AGREEMENT = {
    "imdb": (52.55, 81.60, 61.55, 60.35),
    "yelp_sample": (17.55, 75.38, 58.90, 35.00),
    "ag_news_sample": (39.24, 55.13, 43.08, 48.13),
    "newsgroups": (65.08, 41.33, 64.82, 63.07),
    "sst2": (19.85, 33.57, 22.45, 25.33),
}
"""Table 5, in the order of `AGREEMENTS`, in percent."""
PAPER_CHANCE = {
    "imdb": 5.30,
    "yelp_sample": 5.80,
    "ag_news_sample": 6.20,
    "newsgroups": 5.11,
    "sst2": 8.39,
}
PAPER_TRAIN = {
    "imdb": (51.52, 80.10, 42.85, 64.88),
    "yelp_sample": (11.15, 76.12, 55.50, 37.63),
    "ag_news_sample": (36.97, 53.95, 43.11, 46.89),
    "newsgroups": (72.36, 38.69, 71.73, 69.47),
    "sst2": (21.82, 29.35, 20.48, 28.50),
}
"""Table 7."""
PAPER_TAU = {
    "imdb": (12.77, 33.31, 12.56),
    "yelp_sample": (20.38, 36.75, 20.98),
    "ag_news_sample": (26.31, 36.65, 20.55),
    "newsgroups": (16.06, 22.03, 6.50),
    "sst2": (11.68, 31.43, 15.01),
}
"""Table 3, without the last column, which it does not have."""
PAPER_CONTEXT = {
    "imdb": (86.81, 88.88, 86.81, 86.81, 89.55),
    "yelp_sample": (90.39, 95.22, 95.31, 93.59, 96.20),
    "ag_news_sample": (93.54, 96.05, 94.32, 94.50, 96.05),
    "newsgroups": (91.16, 60.75, 84.57, 84.57, 94.22),
    "sst2": (78.16, 83.53, 78.16, 82.38, 83.53),
}
"""Table 5: xi of the same four, and the best accuracy."""
PAPER_TAU_CONTEXT = {
    "imdb": (70.60, 80.50, 70.60),
    "yelp_sample": (87.44, 93.20, 87.44),
    "ag_news_sample": (89.31, 93.54, 85.85),
    "newsgroups": (60.75, 60.75, 60.75),
    "sst2": (76.69, 83.53, 76.69),
}
"""Table 3: xi by Kendall's tau."""
PAPER_FROZEN = {"imdb": 9, "yelp_sample": 8, "ag_news_sample": 17, "newsgroups": 19, "sst2": 14}
"""Table 10, A(alpha, alpha fr)."""


@dataclasses.dataclass(frozen=True)
class Config(AbstractSeededConfig):
    """Settings of the study."""

    seeds: int = 6
    """Runs of every kind; each is the reference once."""
    corpora: tuple[str, ...] = tuple(CORPORA)
    """Corpora by name."""
    first: int | None = None
    """Texts of every split that are kept, from the first on; None: all."""
    longest: int = 400
    """Words that are kept of a longer text."""
    held_out: int = 4000
    """Most held-out texts."""
    splits: tuple[str, ...] = SPLITS
    """Splits on whose texts runs are compared: test, and train for table 7."""
    texts: int = 256
    """Texts of each split on whose positions runs are compared."""
    model: RecurrentClassifierConfig = RecurrentClassifierConfig(256, 300, 256, directions="both")
    """The classifier."""
    vectors: str = ""
    """Word vectors of further runs (arms `_vectors`), by name or path; empty: none."""
    vector_size: int = 50
    """Numbers per word of these vectors."""
    vector_corpora: tuple[str, ...] = ("sst2",)
    """Corpora of these further runs."""
    rate: float = 0.001
    """Learning rate of Adam."""
    batch_size: int = 32
    """Texts per step."""
    steps: int = 4000
    """Steps of the classifiers."""
    proxy_dimension: int = 256
    """Dimension of the proxy."""
    proxy_rate: float = 0.0002
    """Learning rate of the proxy's Adam."""
    proxy_batch: int = 64
    """Texts per step of the proxy."""
    proxy_epochs: int = 30
    """Epochs of the proxy."""

    def __post_init__(self):
        super().__post_init__()
        counts = ("longest", "held_out", "texts", "batch_size", "steps", "proxy_dimension")
        require_count(self, *counts, "proxy_batch", "proxy_epochs", "vector_size")
        require_count(self, "seeds", least=2)
        require_positive(self, "rate", "proxy_rate")
        require_single(self, "the study's arms share it", "rate", "proxy_rate")
        require(self, "splits", "test, or test and train", lambda one: one in (SPLITS, SPLITS[:1]))
        need = f"some of {', '.join(CORPORA)}"
        for field in ("corpora", "vector_corpora"):
            require(self, field, need, lambda given: bool(given) and set(given) <= set(CORPORA))

    @property
    def tasks(self) -> dict[str, NamedText]:
        """The corpora: words that occur at least three times have ids."""
        sizes = {"first": self.first, "longest": self.longest, "held_out": self.held_out}
        return {
            name: NamedText(name, least_count=3, cut=True, **sizes, **SETTINGS.get(name, {}))
            for name in self.corpora
        }

    @property
    def evaluated(self) -> AtSteps:
        steps = (*EVALUATED, *range(250, self.steps + 1, 250))
        return AtSteps(tuple(step for step in steps if step <= self.steps))


def experiment(config: Config, lab: Lab) -> Arms:
    arms: dict[str, Arm] = {}
    if config.vectors:
        vectors_for(config.vectors, ["the"])  # missing vectors cost no training
    for corpus, task in config.tasks.items():
        recipes = _recurrent(config, task, config.model) | {"proxy": _proxy(config, task)}
        arms |= _arms_of(config, lab, corpus, recipes)
        if config.vectors and corpus in config.vector_corpora:
            model = dataclasses.replace(
                config.model, features=config.vector_size, vectors=config.vectors
            )
            arms |= _arms_of(config, lab, f"{corpus}_vectors", _recurrent(config, task, model))
    return arms


def _arms_of(
    config: Config, lab: Lab, corpus: str, recipes: Mapping[str, Recipe]
) -> dict[str, Arm]:
    """The runs on one corpus and their agreement; every kind of run has seeds of its own."""
    runs = {}
    for place, (run, recipe) in enumerate(recipes.items()):
        name = f"{corpus}_{run}"
        arm = lab.train({name: recipe}, seeds_of(config, place))[name]
        runs[run] = by_number(arm, config)
    return {f"{corpus}_{name}": arm for name, arm in compared(runs, config.splits).items()}


def _recurrent(
    config: Config, task: NamedText, model: RecurrentClassifierConfig
) -> dict[str, Recipe]:
    """The recurrent runs on one corpus."""
    models = (
        model,
        dataclasses.replace(model, attention="uniform"),
        dataclasses.replace(model, lexicon="frozen"),
    )
    return {
        run: Recipe(
            task,
            changed,
            Adam(config.rate),
            config.steps,
            probes=(
                Accuracy(("train", "test")),
                *_tables_of(config, run),
                AttentionStatistics("test"),
            ),
            at=config.evaluated,
            batches=Minibatch(config.batch_size),
            sample=MEASURED,
        )
        for run, changed in zip(RUNS, models, strict=True)
    }


def _tables_of(config: Config, run: str) -> tuple[TextTables, ...]:
    splits: Any = config.splits
    return tuple(TextTables(split, config.texts, COMPARED[run]) for split in splits)


def _proxy(config: Config, task: NamedText) -> Recipe:
    """The bag-of-words proxy on one corpus, evaluated after every epoch."""
    epoch = -(-task.train_size // config.proxy_batch)
    return Recipe(
        task,
        WordClassifierConfig(config.proxy_dimension),
        Adam(config.proxy_rate),
        epoch * config.proxy_epochs,
        probes=(Accuracy(("test",)), *_tables_of(config, "proxy")),
        at=Every(epoch),
        batches=Minibatch(config.proxy_batch),
        sample=MEASURED,
    )


# -- measures --------------------------------------------------------------------------------------


def _frozen_less_uniform(corpus: str, arms: Arms, config: Config) -> xr.DataArray:
    return best_of(arms, corpus, "alpha_frozen") - best_of(arms, corpus, "alpha_uniform")


def _each(text: str, measure: Callable[..., Any], bound: Any) -> tuple[Check, ...]:
    return tuple(
        Check(f"{text}, {title}", partial(measure, corpus), bound, f"{corpus}_agreement")
        for corpus, title in CORPORA.items()
    )


WHOLE = (
    lambda config: config.first is None and config.steps >= 4000,
    "whole corpora and 4,000 steps (preset paper)",
)
CLAIMS = (
    Claim(
        "C-12",
        "Attention, lexical probes and the bag-of-words proxy agree far more than by chance",
        "Snell 2021, table 2",
        tuple(
            check
            for name in ("alpha_uniform", "uniform_proxy", "alpha_beta")
            for check in above_chance(name, CORPORA)
        ),
        "twice chance, as specified." + NOT_INDEPENDENT,
        paper="A(alpha, beta uf) 53 against 5 (IMDb), 20 against 8 (SST), 65 against 5 (20 NG)",
        full_size=WHOLE,
    ),
    Claim(
        "C-13",
        "Attention learned over a frozen lexicon agrees with attention less than what is learned of"
        " single words under uniform attention",
        "Snell 2021, table 10",
        _each(f"{MORE['alpha_frozen']} less A(alpha, beta uf)", _frozen_less_uniform, Below(0.0)),
        "an order, as specified; best over the evaluated steps for both." + NOT_INDEPENDENT,
        paper="9 against 53 (IMDb), 8 against 18 (Yelp), 14 against 20 (SST)",
        full_size=WHOLE,
    ),
    Claim(
        "C-14",
        "The agreement of attention with the probe under uniform attention first rises and then"
        " falls",
        "Snell 2021, appendix A.7",
        peak_checks(CORPORA),
        "signs. Specified is a largest value strictly between start and end, which noise alone can"
        " give; here the step of the peak is that of the mean of the other seeds."
        + NOT_INDEPENDENT,
        paper="stated for all corpora",
        full_size=WHOLE,
    ),
    Claim(
        "C-15",
        "Saliency agrees with the probe under uniform attention far more than by chance",
        "Snell 2021, table 2",
        above_chance("delta_uniform", CORPORA),
        "twice chance, as specified." + NOT_INDEPENDENT,
        paper="62 against 5 (IMDb), 22 against 8 (SST)",
        full_size=WHOLE,
    ),
)


# -- figures ---------------------------------------------------------------------------------------


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    there = [corpus for corpus in CORPORA if f"{corpus}_agreement" in arms]
    return _tables(arms, there), _contexts(arms, there), _curves(arms, there)


def _ours(arms: Arms, corpus: str) -> list[tuple[str, str]]:
    """Names and titles of our arms of a corpus, from the bottom of a table up."""
    found = [(corpus, f"{CORPORA[corpus]}, ours")]
    vectors = f"{corpus}_vectors"
    if f"{vectors}_agreement" in arms:
        found.insert(0, (vectors, f"{CORPORA[corpus]}, ours, word vectors"))
    return found


def _percent(arms: Arms, corpus: str, name: str, more: str = "top_test") -> Any:
    """An agreement in percent; NaN where it was not measured."""
    there = f"{name}_{more}" in arms[f"{corpus}_agreement"].trajectory
    return 100 * best_of(arms, corpus, name, more) if there else np.nan


def _rows(arms: Arms, there: Sequence[str], more: str, paper: Mapping[str, Sequence[float]]) -> Any:
    """A row of the paper and one of ours for every corpus; numbers in percent."""
    rows: dict[str, Any] = {}
    for corpus in reversed(there):
        names = list(AGREEMENTS)[: len(paper[corpus])]
        for name, title in _ours(arms, corpus):
            rows[title] = [_percent(arms, name, one, more) for one in names]
        rows[f"{CORPORA[corpus]}, paper"] = list(paper[corpus])
    return rows


def _tables(arms: Arms, there: Sequence[str]) -> Figure:
    columns = list(AGREEMENTS.values())
    tables = (
        ("held-out texts (table 5)", "top_test", PAPER_AGREEMENT, columns),
        ("training texts (table 7)", "top_train", PAPER_TRAIN, columns),
        ("held-out texts, Kendall's tau (table 3)", "tau_test", PAPER_TAU, columns[:-1]),
    )
    panels = [
        Panel(title, "", "", (table("%", names, _rows(arms, there, more, paper)),))
        for title, more, paper, names in tables
        if f"alpha_uniform_{more}" in arms[f"{there[0]}_agreement"].trajectory
    ]
    frozen: dict[str, Any] = {}
    for corpus in reversed(there):
        chance = arms[f"{corpus}_agreement"].trajectory["chance_test"]
        for name, title in _ours(arms, corpus):
            best = [_percent(arms, name, one) for one in ("alpha_frozen", "alpha_uniform")]
            frozen[title] = [*best, 100 * chance]
        frozen[f"{CORPORA[corpus]}, paper"] = [
            PAPER_FROZEN[corpus],
            PAPER_AGREEMENT[corpus][0],
            PAPER_CHANCE[corpus],
        ]
    names = [MORE["alpha_frozen"], AGREEMENTS["alpha_uniform"], "chance"]
    panels.append(Panel("frozen lexicon (table 10)", "", "", (table("%", names, frozen),)))
    caption = (
        "Agreement in percent, best over the evaluated steps. Ours: mean over seeds with its 95 %"
        " interval, which leaves out that all seeds are measured on the same texts (a standard"
        " error of up to 3 points). Yelp and AG News are samples of the paper's corpora."
    )
    title = "Attention, single words and saliency agree"
    return Figure("ktiw_classification_tables", title, caption, tuple(panels))


def _contexts(arms: Arms, there: Sequence[str]) -> Figure:
    def row(name: str, more: str, count: int) -> list[Any]:
        kept = list(AGREEMENTS)[:count]
        known = [one for one in kept if np.ndim(_percent(arms, name, one))]
        ours = [in_context(arms, name, one, more) if one in known else np.nan for one in kept]
        accuracy = at_place(arms[f"{name}_attention"].trajectory["test_accuracy"], -1)
        return [*ours, 100 * accuracy] if count == len(AGREEMENTS) else ours

    panels, columns = [], [name.replace("A(", "xi(") for name in AGREEMENTS.values()]
    for title, more, paper, names in (
        ("agreement (table 5)", "top_test", PAPER_CONTEXT, [*columns, "accuracy at the end"]),
        ("Kendall's tau (table 3)", "tau_test", PAPER_TAU_CONTEXT, columns[:-1]),
    ):
        rows: dict[str, Any] = {}
        for corpus in reversed(there):
            for name, text in _ours(arms, corpus):
                rows[text] = row(name, more, min(len(names), len(AGREEMENTS)))
            rows[f"{CORPORA[corpus]}, paper"] = list(paper[corpus])
        panels.append(Panel(title, "", "", (table("%", names, rows),)))
    caption = (
        "xi: accuracy of the other runs at the first evaluated step at which their attention agrees"
        " with the reference more than the two quantities agree; a star: for some seeds that never"
        " happens, and their accuracy at the end stands for it (the paper's stars, of SST and AG"
        " News with beta px, are not shown). Ours: mean over seeds with its 95 % interval, which"
        " leaves out that all seeds are measured on the same texts."
    )
    title = "Agreement in the context of performance"
    return Figure("ktiw_classification_contexts", title, caption, tuple(panels))


def _curves(arms: Arms, there: Sequence[str]) -> Figure:
    panels = tuple(agreement_panel(arms, corpus, CORPORA[corpus]) for corpus in there)
    caption = (
        "Agreement with the reference along training, on held-out texts: mean over seeds with the"
        " range. beta uf: probe under uniform attention; alpha fr: attention over a frozen lexicon."
    )
    title = "Agreement along training"
    return Figure("ktiw_classification_curves", title, caption, panels)


DIVERGENCES = divergences(
    """
    embeddings | GloVe, 300 dimensions | in effect random: the layer is made again | N(0, 1);
        arms `_vectors`: GloVe with 50, on SST alone | none on C-12 to C-15, which the random ones
        judge
    held-out texts | at most 4,000 of the test set | the same | the same; SST-2's own test set |
        our SST has 6,920 training and 1,821 held-out sentences (paper: 5,130 and 1,421)
    texts that are compared | all held-out texts | the same | 256, evenly spaced | the standard
        error of an agreement over texts is at most 3.2 points
    other runs | five further runs of one reference | the same | the other seeds, each the reference
        once | an interval
    reference, and epoch of the proxy | best on the held-out texts | the same | the same; the
        validation sentences of SST-2 are not used | agreements are best cases, as in the paper
    ties | not stated | larger values only; a constant agrees | shared: the mean over random
        breaking | a constant has the agreement of chance
    agreement by chance | not stated | one shuffle per text | ceil(0.05 L) / L | less noise
    length | Amazon: below 400 words | the same | all texts are cut at 400 words | IMDb and 20
        Newsgroups: no end of long texts
    vocabulary | words that occur three times | or that have a vector | the former | SST: 4,945 ids,
        the paper has 11,022
    ends of texts | not stated | two marks that can be attended to | none | none known
    whole numbers, underscores | numbers unknown in AG News and 20 Newsgroups, "_" splits in the
        latter | the same | kept | none known
    corpora | Yelp and AG News as a whole, Amazon | the same | samples; Amazon by path only | fewer
        training texts
    proxy | Adam at 2e-4, 30 epochs, batches of 64 | 60 epochs at 5e-5 or 1.5e-4 | as in the text |
        none known
    Delta | minus the derivative of the loss | negated once more for classification | as in the text
        | C-15
    """
)

ABOUT = ("ktiw_classification", "Attention and single words in text classification", PAPER)
PRESETS: Mapping[str, Config] = {
    "quick": Config(
        seeds=3,
        corpora=("sst2",),
        first=1000,
        splits=("test",),
        texts=64,
        model=RecurrentClassifierConfig(16, 16, 16, directions="both"),
        rate=0.005,
        steps=250,
        proxy_dimension=16,
        proxy_rate=0.01,
        proxy_epochs=4,
    ),
    "paper": Config(vectors="glove_6b_50d", first_seed=1000),
}
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
