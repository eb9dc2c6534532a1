"""Values first, attention second: one measure in the models of Lu 2021, Li 2023 and Snell 2021.

Each paper observes the same order in its own quantities: the embedding of a topic word grows before
its score (Lu), W_V before W_K and W_Q (Li), translations of words before attention to them (Snell).
Here all are measured by their half-rise, the step at which a quantity has covered half of the
distance from its first to its last value. A ratio (values / attention) below 1: values are first.
"""

import dataclasses
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.batches import Fresh
from saccade.core.bound import Above, Below
from saccade.core.claim import Check, Claim
from saccade.core.figure import Figure, Panel, curve, level
from saccade.core.lab import Lab
from saccade.core.optimiser import Adam, GradientDescent
from saccade.core.record import Arm, Arms
from saccade.core.schedule import AtSteps, Every, Recording
from saccade.core.statistics import EverySeed
from saccade.core.study import Study, divergences
from saccade.core.sweep import require_count, require_positive, require_single, with_sweep
from saccade.core.trajectory import at_place, at_start, half_rise
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.one_layer_transformer import OneLayerTransformerConfig
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.probes.motion import Displacements
from saccade.probes.topic_words import TopicWords
from saccade.probes.translation import READABLE, AttentionPlaces, LexicalKnowledge, TokenAccuracy
from saccade.tasks.copying import Copying
from saccade.tasks.topic_documents import TopicDocuments
from saccade.tasks.topic_sentences import TopicSentences

EMBEDDING_STARTS = (1e-3, 1e-2, 1e-1, 1.0)
"""Initial standard deviations of Lu's embeddings."""
MATRIX_STARTS = (1e-4, 1e-3, 1e-2, 1e-1)
"""Initial standard deviations of Li's W_K, W_Q and W_V."""
LARGEST = {"lu": max(EMBEDDING_STARTS), "li": max(MATRIX_STARTS)}
USUAL = 1e-3
"""The initial standard deviation of the papers' own experiments."""
PAPERS = {
    "lu": "Lu 2021: embedding and score of topic words",
    "li": "Li 2023: W_V and W_K, W_Q",
    "snell": "Snell 2021: beta and alpha",
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the study."""

    seeds: int = 5
    """Repetitions, each with its own initialisation and data."""
    sentences: int = 800
    """Lu: training sentences."""
    dictionary_size: int = 5000
    """Lu: non-topic words in the dictionary."""
    sentence_rate: float = 0.1
    """Lu: learning rate."""
    sentence_steps: int = 5000
    """Lu: epochs."""
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

    def __post_init__(self):
        require_count(self, "seeds", "sentence_steps", "document_steps", "copying_steps", "hidden")
        require_count(self, "batch_size", "sentences", "length")
        rates = ("sentence_rate", "document_rate", "copying_rate")
        require_positive(self, *rates)
        require_single(self, "the study compares fixed settings", *rates)
        require_count(self, "choice", least=self.length + 1)


def experiment(config: Config, lab: Lab) -> Arms:
    sizes = (config.topics, config.words_per_topic, config.topics_per_document)
    sentences = TopicSentences(dictionary_size=config.dictionary_size, train_size=config.sentences)
    documents = TopicDocuments(*sizes, shortest=64, longest=64, train_size=64, test_size=1)
    copying = Copying(config.length, config.choice, largest=config.choice)
    copying = with_sweep(copying, "words", (config.length, config.choice))
    classifier = AttentionClassifierConfig(head="TC")
    classifier = with_sweep(classifier, "embedding_std", EMBEDDING_STARTS, "start")
    transformer = with_sweep(OneLayerTransformerConfig(), "start_std", MATRIX_STARTS, "start")
    recurrent = SequenceToSequenceConfig(config.hidden)
    train = partial(lab.train, seeds=config.seeds)
    descent, steps = GradientDescent(config.sentence_rate), config.sentence_steps
    record = Recording((TopicWords(),), _dense(steps))
    lu = train(sentences, classifier, descent, steps, record, name="values_first Lu 2021")
    descent, steps = GradientDescent(config.document_rate), config.document_steps
    record = Recording((Displacements(),), _dense(steps))
    options: Any = {"batches": Fresh(16), "name": "values_first Li 2023"}
    li = train(documents, transformer, descent, steps, record, **options)
    adam, steps = Adam(config.copying_rate), config.copying_steps
    record = Recording((TokenAccuracy(), AttentionPlaces(), LexicalKnowledge()), Every(1))
    options = {"batches": Fresh(config.batch_size), "name": "values_first Snell 2021"}
    snell = train(copying, recurrent, adam, steps, record, **options)
    return {"lu": Arm.of(lu), "li": Arm.of(li), "snell": Arm.of(snell)}


def _dense(steps: int) -> AtSteps:
    """Dense at first, then even, rounded to whole steps."""
    places = np.concatenate([np.geomspace(1, steps, 80), np.linspace(0, steps, 41)])
    return AtSteps(tuple(sorted({round(place) for place in places})))


# -- measures --------------------------------------------------------------------------------------


def curves(arms: Arms, paper: str) -> tuple[xr.DataArray, xr.DataArray]:
    """The quantities for values and attention; `snell_sizes`: beta and alpha by size, not order."""
    trajectory = arms[paper.removesuffix("_sizes")].trajectory
    if paper == "lu":
        return trajectory["norm"].mean("word"), trajectory["score"].mean("word")
    if paper == "li":
        moved = trajectory["displacement"]
        squares = (moved.sel(part=["keys", "queries"]) ** 2).sum("part", skipna=False)
        return moved.sel(part="values", drop=True), xr.ufuncs.sqrt(squares)
    if paper == "snell_sizes":
        return trajectory["lexicon_right"], trajectory["attention_mass"].sel(offset=0, drop=True)
    accuracy = trajectory["attention_accuracy"].sel(offset=READABLE).sum("offset")
    return trajectory["lexicon_agreement"], accuracy


def ratio(arms: Arms, paper: str) -> xr.DataArray:
    """Half-rise of values / half-rise of attention."""
    values, attention = curves(arms, paper)
    return half_rise(values) / half_rise(attention)


def _usual(paper: str, config: Config) -> dict[str, float]:
    """The members with the paper's own setting."""
    return {"words": config.choice} if paper.startswith("snell") else {"start": USUAL}


def _at_usual(paper: str, arms: Arms, config: Config) -> xr.DataArray:
    return ratio(arms, paper).sel(_usual(paper, config), drop=True)


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


def _first(paper: str, quantity: str) -> Check:
    """Values are first at the paper's own setting."""
    where = {} if paper.startswith("snell") else {"start": USUAL}
    arm = paper.removesuffix("_sizes")
    return Check(quantity, partial(_at_usual, paper), Below(1.0), arm, where=where)


_claim = partial(Claim, statistic=EverySeed(5))
CLAIMS = (
    _claim(
        "E-13",
        "Values rise before attention in the models of all three papers",
        "ours, across Lu 2021, Li 2023 and Snell 2021",
        (
            _first("lu", "Lu: half-rise of the embedding norm / of the score"),
            _first("li", "Li: half-rise of W_V / of W_K and W_Q"),
            _first("snell", "Snell: half-rise of A(right position, beta) / of attention accuracy"),
        ),
        "an order, in all seeds, at the papers' own initialisations",
        prediction="Lu: norm past half at half of the score (SEN); Li: W_K's gradient contains W_Q",
    ),
    _claim(
        "E-13b",
        "In Snell's model the probability beta also rises before attention",
        "ours; Snell 2021, section 2.2",
        _first("snell_sizes", "half-rise of beta at the right position / of attention there"),
        "an order, in all seeds",
        expected="fails",
        reason="Beta is first by order (which position is largest), not by size: a beta near 1"
        " needs a trained readout, and the readout is trained on what attention selects.",
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
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    return _rises(arms, config), _by_start(arms)


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


DIVERGENCES = divergences(
    """
    measure | three | three | half-rise: halfway from first to last | one for all papers
    Snell's quantities | beta and alpha | attention accuracy at l, l - 1 and l + 1 | A(right
        position, beta), accuracy at l and l + 1: a state at l - 1 cannot hold the word | an order
        on both sides (E-13b: sizes)
    """
)

QUICK: dict[str, Any] = {"sentences": 400, "dictionary_size": 1000, "sentence_rate": 0.25}
QUICK |= {"sentence_steps": 2000, "topics": 5, "words_per_topic": 5, "topics_per_document": 2}
QUICK |= {"document_rate": 8.0, "document_steps": 1500, "length": 10, "choice": 15, "hidden": 32}
QUICK |= {"batch_size": 32, "copying_rate": 0.005, "copying_steps": 60}
PRESETS = {"quick": Config(**QUICK), "paper": Config()}
TITLE = "Values first, attention second, in three papers' models"
ABOUT = ("values_first", TITLE, "Lu 2021, Li 2023 and Snell 2021")
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
