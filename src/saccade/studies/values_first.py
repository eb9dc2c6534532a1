"""Values first, attention second: one measure in the models of three papers (Lu 2021, Li 2023,
Snell 2021).

Each paper sees the same order in its own quantities: the embedding of a topic word grows before its
score (Lu), W_V before W_K and W_Q (Li), translations of words before attention to them (Snell).
Here they stand side by side, measured in the same way: the step at which each has gone half of its
way, values over attention. Below 1, values are first.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from saccade.core.claim import Check, Claim
from saccade.core.figure import Figure, Line, Panel, over_seeds
from saccade.core.lab import Lab
from saccade.core.optimiser import Adam, GradientDescent
from saccade.core.record import Arm, Record
from saccade.core.schedule import AtSteps, Every
from saccade.core.study import Divergence, Study
from saccade.core.sweep import Swept, require_count, require_positive, require_single, with_sweep
from saccade.core.trajectory import at_place, at_start, half_rise
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.one_layer_transformer import OneLayerTransformerConfig, squared_error
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig, token_entropy
from saccade.probes.motion import Displacements
from saccade.probes.topic_words import TopicWords
from saccade.probes.translation import READABLE, AttentionPlaces, LexicalKnowledge, TokenAccuracy
from saccade.tasks.copying import Copying
from saccade.tasks.topic_documents import TopicDocuments
from saccade.tasks.topic_sentences import TopicSentences

EMBEDDING_STARTS = (1e-3, 1e-2, 1e-1, 1.0)
"""Standard deviations of Lu's embeddings at the start."""
MATRIX_STARTS = (1e-4, 1e-3, 1e-2, 1e-1)
"""Standard deviations of Li's W_K, W_Q and W_V at the start."""
USUAL = 1e-3
"""The start of the papers' own experiments."""
PAPERS = {
    "lu": "Lu 2021: embedding and score of topic words",
    "li": "Li 2023: W_V and W_K, W_Q",
    "snell": "Snell 2021: beta and alpha",
}


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the study."""

    seeds: int = 5
    """Repetitions, each with its own start and data."""
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
    """Li: steps, on 16 new documents of 64 words each."""
    length: int = 40
    """Snell: words of a sequence."""
    choice: int = 60
    """Snell: words to choose from; permutations of as many words as a sequence has are run
    beside.
    """
    hidden: int = 256
    """Snell: size of embeddings and states."""
    batch_size: int = 128
    """Snell: new sequences a step."""
    copying_rate: float = 0.001
    """Snell: learning rate of Adam."""
    copying_steps: int = 100
    """Snell: steps."""

    def __post_init__(self):
        require_count(
            self,
            "seeds",
            "sentence_steps",
            "document_steps",
            "copying_steps",
            "hidden",
            "batch_size",
            "sentences",
            "length",
        )
        require_positive(self, "sentence_rate", "document_rate", "copying_rate")
        require_single(
            self,
            "the study compares fixed settings",
            "sentence_rate",
            "document_rate",
            "copying_rate",
        )
        require_count(self, "choice", least=self.length + 1)


def experiment(config: Config, lab: Lab) -> Mapping[str, Arm]:
    sentences = lab.train(
        TopicSentences(dictionary_size=config.dictionary_size, train_size=config.sentences),
        with_sweep(
            AttentionClassifierConfig(head="TC"), "embedding_std", EMBEDDING_STARTS, "start"
        ),
        GradientDescent(config.sentence_rate),
        config.sentence_steps,
        (TopicWords(),),
        record=AtSteps(_dense(config.sentence_steps)),
        seeds=config.seeds,
        name="values_first Lu 2021",
    )
    documents = lab.train(
        TopicDocuments(
            config.topics,
            config.words_per_topic,
            config.topics_per_document,
            shortest=64,
            longest=64,
            train_size=64,
            test_size=1,
        ),
        with_sweep(OneLayerTransformerConfig(), "start_std", MATRIX_STARTS, "start"),
        GradientDescent(config.document_rate),
        config.document_steps,
        (Displacements(),),
        record=AtSteps(_dense(config.document_steps)),
        seeds=config.seeds,
        batch_size=16,
        stream=True,
        loss=squared_error,
        name="values_first Li 2023",
    )
    words: float = Swept.over("words", (config.length, config.choice))  # pyright: ignore[reportAssignmentType] (stands for a float)
    copies = lab.train(
        Copying(config.length, words, largest=config.choice),
        SequenceToSequenceConfig(config.hidden),
        Adam(config.copying_rate),
        config.copying_steps,
        (TokenAccuracy(), AttentionPlaces(), LexicalKnowledge()),
        record=Every(1),
        seeds=config.seeds,
        batch_size=config.batch_size,
        stream=True,
        loss=token_entropy,
        name="values_first Snell 2021",
    )
    return {"lu": Arm.of(sentences), "li": Arm.of(documents), "snell": Arm.of(copies)}


def _dense(steps: int) -> tuple[int, ...]:
    """Dense at first, and evenly later."""
    places = np.concatenate([np.geomspace(1, steps, 80), np.linspace(0, steps, 41)])
    return tuple(sorted({round(place) for place in places}))


# -- measures --------------------------------------------------------------------------------------


def curves(record: Record, paper: str, by: str = "order") -> tuple[xr.DataArray, xr.DataArray]:
    """What each paper calls values and attention, along training."""
    trajectory = record.arm(paper).trajectory
    if paper == "lu":
        return trajectory["norm"].mean("word"), trajectory["score"].mean("word")
    if paper == "li":
        ways = trajectory["displacement"]
        attention = xr.ufuncs.sqrt(
            (ways.sel(part=["keys", "queries"]) ** 2).sum("part", skipna=False)
        )
        return ways.sel(part="values", drop=True), attention
    if by == "size":
        return trajectory["lexicon_right"], trajectory["attention_mass"].sel(offset=0, drop=True)
    return trajectory["lexicon_agreement"], trajectory["attention_accuracy"].sel(
        offset=READABLE
    ).sum("offset")


def ratio(record: Record, paper: str, by: str = "order") -> xr.DataArray:
    """Half-rise of values / half-rise of attention."""
    values, attention = curves(record, paper, by)
    return half_rise(values) / half_rise(attention)


def _at_usual(paper: str, by: str = "order"):
    def measure(record: Record) -> xr.DataArray:
        chosen = {"words": record.config["choice"]} if paper == "snell" else {"start": USUAL}
        return ratio(record, paper, by).sel(chosen, drop=True)

    return measure


def _growth(record: Record) -> xr.DataArray:
    """Ratio at the largest start / at the usual one."""
    found = ratio(record, "li")
    return found.sel(start=max(MATRIX_STARTS), drop=True) / found.sel(start=USUAL, drop=True)


def _turned(record: Record) -> xr.DataArray:
    return ratio(record, "lu").sel(start=max(EMBEDDING_STARTS), drop=True)


def _without_signal(record: Record) -> xr.DataArray:
    """On permutations: how far attention is at the step at which it has half risen where words
    are informative.
    """
    _, attention = curves(record, "snell")
    step = half_rise(attention.sel(words=record.config["choice"], drop=True))
    there = (attention["step"] >= step).argmax("step")
    far = at_place(attention - at_start(attention), there)
    return far.sel(words=record.config["length"], drop=True) / far.sel(
        words=record.config["choice"], drop=True
    )


CLAIMS = (
    Claim(
        "E-13",
        "Values rise before attention, in the models of all three papers",
        "ours, across Lu 2021, Li 2023 and Snell 2021",
        (
            Check(
                "Lu: half-rise of the embedding norm / of the score",
                _at_usual("lu"),
                "<",
                1.0,
                ("lu",),
                every_seed=True,
                seeds=5,
                where={"start": USUAL},
            ),
            Check(
                "Li: half-rise of W_V / of W_K and W_Q",
                _at_usual("li"),
                "<",
                1.0,
                ("li",),
                every_seed=True,
                seeds=5,
                where={"start": USUAL},
            ),
            Check(
                "Snell: half-rise of A(right position, beta) / of attention accuracy",
                _at_usual("snell"),
                "<",
                1.0,
                ("snell",),
                every_seed=True,
                seeds=5,
            ),
        ),
        tolerance="an order, in all seeds, at the papers' own starts",
        prediction=(
            "Lu: at half of the score the norm is past half (SEN); Li: W_K's gradient contains W_Q"
        ),
    ),
    Claim(
        "E-13b",
        "In Snell's model the probability beta, too, rises before attention does",
        "ours; Snell 2021, section 2.2",
        (
            Check(
                "half-rise of beta at the right position / of attention there",
                _at_usual("snell", "size"),
                "<",
                1.0,
                ("snell",),
                every_seed=True,
                seeds=5,
            ),
        ),
        tolerance="an order, in all seeds",
        expected="fails",
        reason=(
            "Beta is first by order (which position is largest), not by size: beta near 1 asks for"
            " a trained readout, and it is trained by what attention brings it."
        ),
    ),
    Claim(
        "E-13c",
        "The larger the start, the smaller the lead of values: in Li's model it shrinks, in Lu's"
        " the order turns",
        "ours; Li 2023 ('sensitive to hyper-parameters')",
        (
            Check(
                f"Li: ratio of half-rises at start {max(MATRIX_STARTS):g} / at {USUAL:g}",
                _growth,
                ">",
                1.0,
                ("li",),
                every_seed=True,
                seeds=5,
                where={"start": [USUAL, max(MATRIX_STARTS)]},
            ),
            Check(
                f"Lu: ratio of half-rises at start {max(EMBEDDING_STARTS):g}",
                _turned,
                ">",
                1.0,
                ("lu",),
                every_seed=True,
                seeds=5,
                where={"start": max(EMBEDDING_STARTS)},
            ),
        ),
        tolerance="orders, in all seeds",
        prediction="Li: W_K's gradient is of the order of W_Q; Lu: theorem 1 wants a small start",
    ),
    Claim(
        "E-13d",
        "Where values have no signal of their own, attention sets out later: permutations (Snell)",
        "ours; Snell 2021, section 3.3",
        (
            Check(
                "rise of attention accuracy on permutations / on words of a larger set, when the"
                " latter is half-way",
                _without_signal,
                "<",
                0.5,
                ("snell",),
            ),
        ),
        tolerance="half as far",
        prediction="0",
    ),
)


# -- figures ---------------------------------------------------------------------------------------


def figures(record: Record) -> Sequence[Figure]:
    if record.sweeps:
        return ()
    return (_rises(record), _by_start(record))


def _rises(record: Record) -> Figure:
    panels = []
    for paper, title in PAPERS.items():
        lines = []
        for label, curve in zip(("values", "attention"), curves(record, paper), strict=True):
            chosen = curve.sel(
                {"words": record.config["choice"]} if paper == "snell" else {"start": USUAL}
            )
            way = chosen - at_start(chosen)
            share = (way / at_place(way, -1)).sel(step=slice(1, None))
            lines.append(over_seeds(label, share["step"], share.transpose("seed", "step")))
        ends = np.asarray([1.0, float(record.arm(paper).trajectory["step"].max())])
        lines.append(Line("half-way", ends, np.full(2, 0.5), role="reference"))
        panels.append(Panel(title, "step", "share of the way", tuple(lines), "log"))
    caption = (
        "How far values and attention have gone of their way, mean over runs with the range, at the"
        " papers' own starts."
    )
    return Figure("values_first_rises", "Values first, attention second", caption, tuple(panels))


def _by_start(record: Record) -> Figure:
    lines = []
    for paper, label in (("lu", "Lu 2021: embeddings"), ("li", "Li 2023: W_K, W_Q, W_V")):
        found = ratio(record, paper)
        lines.append(over_seeds(label, found["start"], found.transpose("seed", "start")))
    starts = np.asarray([min(MATRIX_STARTS), max(EMBEDDING_STARTS)])
    lines.append(Line("values and attention together", starts, np.ones(2), role="reference"))
    panel = Panel(
        "against the start",
        "standard deviation at the start",
        "half-rise of values / of attention",
        tuple(lines),
        "log",
        "log",
    )
    caption = (
        "Half-rise of values over that of attention against the scale of the start, mean over runs"
        " with the range. Below the line, values are first."
    )
    return Figure("values_first_starts", "The order depends on the start", caption, (panel,))


DIVERGENCES = (
    Divergence(
        "measure",
        "each paper has its own",
        "each code has its own",
        "half-rise: half of the way from first to last value",
        "one number for three papers",
    ),
    Divergence(
        "Snell's quantities",
        "beta and alpha",
        "attention accuracy at l, l - 1 and l + 1",
        "A(right position, beta) and attention accuracy at l and l + 1: a state at l - 1 cannot"
        " hold the word",
        "an order on both sides (E-13b: sizes)",
    ),
)

STUDY = Study(
    name="values_first",
    title="Values first, attention second, in three papers' models",
    paper="Lu 2021, Li 2023 and Snell 2021",
    presets={
        "quick": Config(
            sentences=400,
            dictionary_size=1000,
            sentence_rate=0.25,
            sentence_steps=2000,
            topics=5,
            words_per_topic=5,
            topics_per_document=2,
            document_rate=8.0,
            document_steps=1500,
            length=10,
            choice=15,
            hidden=32,
            batch_size=32,
            copying_rate=0.005,
            copying_steps=60,
        ),
        "paper": Config(),
    },
    experiment=experiment,
    claims=CLAIMS,
    figures=figures,
    divergences=DIVERGENCES,
)
