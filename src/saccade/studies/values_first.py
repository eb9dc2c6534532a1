"""Values first, attention second: one measure in the models of four papers (Lu 2021, Li 2023, Snell
2021, Song 2024).

Three papers observe the same order in their own quantities: the embedding of a topic word grows
before its score (Lu), W_V before W_K and W_Q (Li), translations of words before attention to them
(Snell). Here all are measured by their half-rise, the step at which a quantity has covered half of
the distance from its first to its last value. A ratio (values / attention) below 1: values are
first. In Lu's model the ratio depends on when training stops, and theory gives the score at which
the order reverses. In Song's model attention that has no key signal never moves.
"""

import dataclasses
import fnmatch
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.study import Study, divergences
from saccade.figures.figure import Figure, Line, Panel, curve, level
from saccade.judging.bound import Above, AtMost, Below
from saccade.judging.claim import Check, Claim
from saccade.judging.statistics import EverySeed, Mean
from saccade.models.attention_classifier import AttentionClassifierConfig, Head
from saccade.models.attention_regression import (
    PARTS,
    AttentionRegressionConfig,
    value_curvature,
)
from saccade.models.one_layer_transformer import OneLayerTransformerConfig
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.probes.attention import AttentionStatistics
from saccade.probes.motion import Displacements
from saccade.probes.topic_words import TopicWords
from saccade.probes.translation import READABLE
from saccade.records.record import Arms
from saccade.records.schedule import AtSteps, Every
from saccade.records.trajectory import at_place, at_start, half_rise
from saccade.settings import require_count, require_positive, require_single, with_sweep
from saccade.studies._ktiw import WORDS_AND_ATTENTION
from saccade.studies._seeds import AbstractSeededConfig
from saccade.tasks.copying import Copying
from saccade.tasks.random_sequences import RandomSequences
from saccade.tasks.topic_documents import TopicDocuments
from saccade.tasks.topic_sentences import TopicSentences
from saccade.theory.half_rise_order import reversal_score
from saccade.train.batches import Fresh
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam, GradientDescent
from saccade.train.recipe import Recipe
from saccade.train.start import Seeds

EMBEDDING_STARTS = (1e-3, 1e-2, 1e-1, 1.0)
"""Initial standard deviations of Lu's embeddings."""
MATRIX_STARTS = (1e-4, 1e-3, 1e-2, 1e-1)
"""Initial standard deviations of Li's W_K, W_Q and W_V."""
LARGEST = {"lu": max(EMBEDDING_STARTS), "li": max(MATRIX_STARTS)}
USUAL = 1e-3
"""The initial standard deviation of the papers' own experiments."""
FILLERS, FILLER = (5, 20, 40), 20
"""Lu: non-topic words of a sentence in the arms with the head FC, and the paper's own number."""
SMALL_KEYS = 0.01
"""Song: initial scale of W_K."""
PAPERS = {
    "lu": "Lu 2021 (TC): embedding and score of topic words",
    "li": "Li 2023: W_V and W_K, W_Q",
    "snell": "Snell 2021: beta and alpha",
    "song": "Song 2024: W_V and W_K, W_Q",
}


@dataclasses.dataclass(frozen=True)
class Config(AbstractSeededConfig):
    """Settings of the study."""

    seeds: int = 32
    """Repetitions, each with its own initialisation and data; of Snell's model `copying_seeds`."""
    sentences: int = 800
    """Lu: training sentences."""
    dictionary_size: int = 5000
    """Lu: non-topic words in the dictionary."""
    sentence_rate: float = 0.1
    """Lu: learning rate."""
    sentence_steps: int = 5000
    """Lu: epochs."""
    long_steps: int = 16000
    """Lu: epochs with the head FC, enough for the scores to pass the reversal."""
    topics: int = 10
    """Li: topics."""
    words_per_topic: int = 10
    """Li: words of each topic."""
    topics_per_document: int = 4
    """Li: distinct topics of a document."""
    document_rate: float = 10.0
    """Li: learning rate of SGD with squared error."""
    document_steps: int = 20000
    """Li: steps, each on 16 new documents of 64 words."""
    length: int = 40
    """Snell: words of a sequence."""
    choice: int = 60
    """Snell: words to choose from; compared with permutations of `length` words."""
    hidden: int = 256
    """Snell: size of embeddings and states."""
    batch_size: int = 128
    """Snell: new sequences per step."""
    copying_rate: float = 0.001
    """Snell: learning rate of Adam."""
    copying_steps: int = 100
    """Snell: steps."""
    copying_seeds: int = 20
    """Snell: repetitions."""
    fit_steps: int = 4000
    """Song: steps, of half the largest step size that theorem 1 allows."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "sentence_steps", "document_steps", "copying_steps", "hidden")
        require_count(self, "batch_size", "sentences", "length", "copying_seeds", "fit_steps")
        require_count(self, "long_steps", least=self.sentence_steps)
        rates = ("sentence_rate", "document_rate", "copying_rate")
        require_positive(self, *rates)
        require_single(self, "the study compares fixed settings", *rates)
        require_count(self, "choice", least=self.length + 1)

    def classifier(self, head: Head) -> AttentionClassifierConfig:
        """Lu: the model with one of the heads."""
        return AttentionClassifierConfig(head=head, embedding_std=USUAL)


def experiment(config: Config, lab: Lab) -> Arms:
    return {**lu(config, lab), **li(config, lab), **snell(config, lab), **song(config, lab)}


def lu(config: Config, lab: Lab, arms_of: str = "*") -> Arms:
    """TC from several initialisations, TL, and FC with several numbers of other words; or those of
    them whose names fit a pattern.
    """
    sentences = TopicSentences(
        filler_size=FILLER,
        dictionary_size=config.dictionary_size,
        train_size=config.sentences,
    )
    swept = with_sweep(config.classifier("TC"), "embedding_std", EMBEDDING_STARTS, "start")
    short = Recipe(
        sentences,
        swept,
        GradientDescent(config.sentence_rate),
        config.sentence_steps,
        probes=(TopicWords(), AttentionStatistics()),
        at=_dense(config.sentence_steps),
    )
    long = dataclasses.replace(
        short,
        model=config.classifier("FC"),
        steps=config.long_steps,
        at=_dense(config.long_steps, config.sentence_steps),
    )
    recipes = {"lu": short, "lu_TL": dataclasses.replace(short, model=config.classifier("TL"))}
    for size in FILLERS:
        task = dataclasses.replace(sentences, filler_size=size)
        recipes[f"lu_FC_{size}"] = dataclasses.replace(long, task=task)
    chosen = {name: recipes[name] for name in fnmatch.filter(recipes, arms_of)}
    return lab.train(chosen, config.seed_numbers)


def li(config: Config, lab: Lab) -> Arms:
    """All of W_K, W_Q and W_V from several initialisations."""
    sizes = (config.topics, config.words_per_topic, config.topics_per_document)
    documents = TopicDocuments(*sizes, shortest=64, longest=64, train_size=64, test_size=1)
    recipe = Recipe(
        documents,
        with_sweep(OneLayerTransformerConfig(), "start_std", MATRIX_STARTS, "start"),
        GradientDescent(config.document_rate),
        config.document_steps,
        probes=(Displacements(), AttentionStatistics("train", examples=16)),
        at=_dense(config.document_steps),
        batches=Fresh(16),
    )
    return lab.train({"li": recipe}, config.seed_numbers)


def snell(config: Config, lab: Lab) -> Arms:
    """Copying of words from a larger set, and of permutations."""
    copying = Copying(config.length, config.choice, largest=config.choice)
    recipe = Recipe(
        with_sweep(copying, "words", (config.length, config.choice)),
        SequenceToSequenceConfig(config.hidden),
        Adam(config.copying_rate),
        config.copying_steps,
        probes=WORDS_AND_ATTENTION,
        at=Every(1),
        batches=Fresh(config.batch_size),
    )
    return lab.train({"snell": recipe}, Seeds(config.copying_seeds, first=config.first_seed))


def song(config: Config, lab: Lab) -> Arms:
    """Softmax from small keys with all parts trained, and from keys of 0 that stay there."""
    models = {
        "song": AttentionRegressionConfig(trained=PARTS, key_scale=SMALL_KEYS),
        "song_blind": AttentionRegressionConfig(trained=("queries", "values"), key_scale=0.0),
    }
    recipes = {
        name: Recipe(
            RandomSequences(),
            model,
            GradientDescent(0.5, curvature=value_curvature),
            config.fit_steps,
            probes=(Displacements(), AttentionStatistics("train")),
            at=_dense(config.fit_steps),
        )
        for name, model in models.items()
    }
    return lab.train(recipes, config.seed_numbers)


def _dense(steps: int, *others: int) -> AtSteps:
    """Dense at first, then even, rounded to whole steps; and some others."""
    places = (*np.geomspace(1, steps, 80), *np.linspace(0, steps, 41), *others)
    return AtSteps(tuple(sorted({round(place) for place in places})))


# -- measures --------------------------------------------------------------------------------------


def curves(arms: Arms, paper: str) -> tuple[xr.DataArray, xr.DataArray]:
    """The quantities for values and attention; `snell_sizes`: beta and alpha by size, not order."""
    trajectory = arms[paper.removesuffix("_sizes")].trajectory
    if paper.startswith("lu"):
        return trajectory["norm"].mean("word"), trajectory["score"].mean("word")
    if paper in ("li", "song"):
        moved = trajectory["displacement"]
        squares = (moved.sel(part=["keys", "queries"]) ** 2).sum("part", skipna=False)
        return moved.sel(part="values", drop=True), xr.ufuncs.sqrt(squares)
    if paper == "snell_sizes":
        return trajectory["lexicon_right"], trajectory["attention_mass"].sel(offset=0, drop=True)
    accuracy = trajectory["attention_accuracy"].sel(offset=READABLE).sum("offset")
    return trajectory["lexicon_agreement"], accuracy


def ratio(arms: Arms, paper: str, last: int | None = None) -> xr.DataArray:
    """Half-rise of values / half-rise of attention, in a run that is stopped at the last step."""
    values, attention = (one.sel(step=slice(0, last)) for one in curves(arms, paper))
    return half_rise(values) / half_rise(attention)


def _usual(paper: str, config: Config) -> dict[str, float]:
    """The members with the paper's own setting."""
    starts: dict[str, float] = {"start": USUAL} if paper in LARGEST else {}
    return {"words": config.choice} if paper.startswith("snell") else starts


def _at_usual(paper: str, arms: Arms, config: Config) -> xr.DataArray:
    last = config.sentence_steps if paper.startswith("lu") else None
    return ratio(arms, paper, last).sel(_usual(paper, config), drop=True)


def _growth(arms: Arms, config: Config) -> xr.DataArray:
    """Li: the ratio of half-rises at the largest initialisation / at the usual one."""
    found = ratio(arms, "li")
    return found.sel(start=LARGEST["li"], drop=True) / found.sel(start=USUAL, drop=True)


def _at_largest(arms: Arms, config: Config) -> xr.DataArray:
    return ratio(arms, "lu").sel(start=LARGEST["lu"], drop=True)


def _without_signal(arms: Arms, config: Config) -> xr.DataArray:
    """Rise of attention on permutations / on informative words, at the half-rise of the latter."""
    _, attention = curves(arms, "snell")
    step = half_rise(attention.sel(words=config.choice, drop=True))
    place = (attention["step"] >= step).argmax("step")
    rise = at_place(attention - at_start(attention), place)
    return rise.sel(words=config.length, drop=True) / rise.sel(words=config.choice, drop=True)


def reversal(arms: Arms, filler_size: int) -> xr.DataArray:
    """Lu, FC: the last score of a run that is stopped where the half-rises of norm and score are
    equal; NaN if training ends before.
    """
    norm, score = curves(arms, f"lu_FC_{filler_size}")
    both = {"input_core_dims": [["step"], ["step"]], "vectorize": True}
    return xr.apply_ufunc(_reversed_at, norm, score, **both)


def _reversed_at(norm: np.ndarray, score: np.ndarray) -> float:
    # Steps before the first score of 0.5 are left out: both are near their start.
    lead = np.interp(score / 2, score, norm) - (norm[0] + norm) / 2
    behind = np.flatnonzero((lead < 0) & (score > 0.5))
    if not behind.size:
        return np.nan
    after, before = behind[0], behind[0] - 1
    return score[before] + np.ptp(score[[before, after]]) * lead[before] / (
        lead[before] - lead[after]
    )


def _off_reversal(arms: Arms, config: Config) -> xr.DataArray:
    """Largest |measured / derived score of the reversal - 1| over numbers of other words."""
    gaps = [abs(reversal(arms, size) / reversal_score(size) - 1) for size in FILLERS]
    return xr.concat(gaps, "filler_size").max("filler_size", skipna=False)


def _blind(arms: Arms, config: Config) -> xr.DataArray:
    """Song: change of the displacement of W_Q / of W_V (that of step 0 is rounding)."""
    moved = arms["song_blind"].trajectory["displacement"]
    moved = abs(moved - at_start(moved)).max("step", skipna=False)
    return moved.sel(part="queries", drop=True) / moved.sel(part="values", drop=True)


def _first(paper: str, quantity: str) -> Check:
    """Values are first at the paper's own setting."""
    where = {"start": USUAL} if paper in LARGEST else {}
    arm = paper.removesuffix("_sizes")
    return Check(quantity, partial(_at_usual, paper), Below(1.0), arm, where=where)


_claim = partial(Claim, statistic=EverySeed(5))
CLAIMS = (
    _claim(
        "E-13",
        "Values rise before attention in the models of all three papers; in Lu's with each head,"
        " after the paper's 5,000 epochs",
        "ours, across Lu 2021, Li 2023 and Snell 2021",
        (
            _first(f"lu_FC_{FILLER}", "Lu, FC: half-rise of the embedding norm / of the score"),
            _first("lu", "Lu, TC: half-rise of the embedding norm / of the score"),
            _first("lu_TL", "Lu, TL: half-rise of the embedding norm / of the score"),
            _first("li", "Li: half-rise of W_V / of W_K and W_Q"),
            _first("snell", "Snell: half-rise of A(right position, beta) / of attention accuracy"),
        ),
        "an order, as specified, in all seeds, at the papers' own initialisations. Lu's order"
        " depends on head and stopping time (E-13e). Snell's beta is judged by order (the right"
        " position is in the top 5 %), attention by its argmax at two places; E-13b compares sizes",
        prediction="Lu: first below the reversal (E-13e); Li: W_K's gradient contains W_Q",
    ),
    _claim(
        "E-13b",
        "In Snell's model the probability beta also rises before attention",
        "ours; Snell 2021, section 2.2",
        _first("snell_sizes", "half-rise of beta at the right position / of attention there"),
        "an order, in all seeds",
        reason="A guess: a beta near 1 needs a trained readout, and the readout is trained on what"
        " attention selects; beta is first by order (E-13), not by size.",
    ),
    _claim(
        "E-13c",
        "The lead of values decreases with the scale of the initialisation: it shrinks in Li's"
        " model, and in Lu's model the order reverses",
        "ours; Li 2023 ('sensitive to hyper-parameters')",
        (
            Check(
                f"Li: ratio of half-rises at start {LARGEST['li']:g} / at {USUAL:g}",
                _growth,
                Above(1.0),
                "li",
                where={"start": [USUAL, LARGEST["li"]]},
            ),
            Check(
                f"Lu: ratio of half-rises at start {LARGEST['lu']:g}",
                _at_largest,
                Above(1.0),
                "lu",
                where={"start": LARGEST["lu"]},
            ),
        ),
        "orders, in all seeds",
        prediction="Li: W_K's gradient is of the order of W_Q; Lu: theorem 1 needs a small start",
    ),
    Claim(
        "E-13d",
        "If values have no signal of their own, attention rises later: permutations (Snell)",
        "ours; Snell 2021, section 3.3",
        Check(
            "rise of attention accuracy on permutations / on words of a larger set, at half-rise of"
            " the latter",
            _without_signal,
            Below(0.5),
            "snell",
        ),
        "half as far",
        prediction="0",
    ),
    Claim(
        "E-13e",
        "In Lu's model with the head FC the order reverses as the scores grow, at the score that"
        " corollary 1 gives for the number of other words",
        "derived (src/saccade/theory/half_rise_order.py); Lu 2021, corollary 1",
        Check(
            "largest |measured / derived score of the reversal - 1|, m in"
            f" {', '.join(map(str, FILLERS))}",
            _off_reversal,
            AtMost(0.05),
            "lu_FC_*",
        ),
        "5 %: an error of 1 % in the ratio of two norms moves the score by 1 %, and A-2 allows"
        " corollary 1 an error of 2 % in each",
        prediction="0; the scores are 3.72, 4.97 and 5.68",
        statistic=Mean(5),
    ),
    _claim(
        "E-13f",
        "In Song's model with softmax values move before queries and keys if the keys begin small;"
        " with keys fixed at 0 the queries never move",
        "ours; Song 2024, theorem 2",
        (
            _first("song", "half-rise of W_V / of W_K and W_Q"),
            Check("keys 0: displacement of W_Q / of W_V", _blind, AtMost(1e-12), "song_blind"),
        ),
        f"an order, in all seeds, from keys of scale {SMALL_KEYS:g} and values of scale 0.1; the"
        " keys of 0 are not trained, since they would leave 0; that row is an identity",
        prediction="the gradients of W_Q and W_K contain W_V; 0",
        reason="In 20 of 32 seeds; the two are close in most. A guess: only the keys begin small,"
        " and their gradient contains the queries, which do not, so the keys move early.",
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return _rises(arms, config), _by_start(arms), _by_filler(arms)


def _rises(arms: Arms, config: Config) -> Figure:
    panels = []
    for paper, title in PAPERS.items():
        lines = []
        for label, values in zip(("values", "attention"), curves(arms, paper), strict=True):
            chosen = values.sel(_usual(paper, config))
            rise = chosen - at_start(chosen)
            share = (rise / at_place(rise, -1)).sel(step=slice(1, None))
            lines.append(curve(label, share))
        lines.append(level("half", (1.0, float(arms[paper].trajectory["step"].max())), 0.5))
        panels.append(Panel(title, "step", "share of the total rise", tuple(lines), "log"))
    caption = (
        "Rise of values and attention / their total rise, mean over seeds with the range, at the"
        " papers' own initialisations."
    )
    return Figure("values_first_rises", "Values first, attention second", caption, tuple(panels))


def _by_start(arms: Arms) -> Figure:
    lines = (
        curve("Lu 2021: embeddings", ratio(arms, "lu")),
        curve("Li 2023: W_K, W_Q, W_V", ratio(arms, "li")),
        level("values and attention together", (min(MATRIX_STARTS), LARGEST["lu"]), 1.0),
    )
    labels = ("initial standard deviation", "half-rise of values / of attention")
    panel = Panel("against the initialisation", *labels, lines, "log", "log")
    caption = (
        "Half-rise of values over that of attention against the scale of the initialisation, mean"
        " over seeds with the range. Below the line, values are first."
    )
    title = "The order depends on the initialisation"
    return Figure("values_first_starts", title, caption, (panel,))


def _by_filler(arms: Arms) -> Figure:
    measured = xr.concat([reversal(arms, size) for size in FILLERS], "filler_size")
    measured = measured.assign_coords(filler_size=list(FILLERS))
    derived = np.asarray([reversal_score(size) for size in FILLERS])
    theory = Line("derived", np.asarray(FILLERS, float), derived, role="theory")
    lines = (curve("measured", measured), theory)
    labels = ("non-topic words of a sentence", "last score at which the order reverses")
    panel = Panel("Lu 2021, FC", *labels, lines)
    caption = (
        "Score at which the norm of a topic word stops being past half before its score, mean over"
        " seeds with the range, and as corollary 1 gives it."
    )
    title = "Where values stop being first"
    return Figure("values_first_reversal", title, caption, (panel,))


DIVERGENCES = divergences(
    """
    measure | three | three | half-rise: halfway from first to last | one for all papers
    Snell's quantities | beta and alpha | attention accuracy at l, l - 1 and l + 1 | A(right
        position, beta), accuracy at l and l + 1: a state at l - 1 cannot hold the word | an order
        on both sides (E-13b: sizes)
    stopping time | 5,000 epochs (Lu) | 5,000 epochs | 5,000; with FC also 16,000 | the order
        depends on it (E-13e)
    """
)

QUICK: dict[str, Any] = {"sentences": 400, "dictionary_size": 1000, "sentence_rate": 0.5}
QUICK |= {"sentence_steps": 1000, "topics": 5, "words_per_topic": 5, "topics_per_document": 2}
QUICK |= {"document_rate": 8.0, "document_steps": 1500, "length": 10, "choice": 15, "hidden": 32}
QUICK |= {"batch_size": 32, "copying_rate": 0.005, "copying_steps": 60}
QUICK |= {"seeds": 5, "copying_seeds": 5, "long_steps": 3200, "fit_steps": 1000}
PRESETS = {"quick": Config(**QUICK), "paper": Config(first_seed=1000)}
TITLE = "Values first, attention second, in four papers' models"
ABOUT = ("values_first", TITLE, "Lu 2021, Li 2023, Snell 2021 and Song 2024")
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
