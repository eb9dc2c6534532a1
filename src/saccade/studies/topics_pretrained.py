"""Do words of one topic attend to each other in pretrained transformers? (Li, Li & Risteski 2023,
both tables on Wikipedia)

Topics come from latent Dirichlet allocation on running text. Pairs of words of the same topic are
compared with pairs of different topics: by cosine and dot product of their embeddings, and by the
attention between their places in articles, in pretrained encoders and in BERT with random weights.

Weights that exist already have no seeds. A seed here is that of the topic model, of the articles
that are read and, of the random control, of its weights: intervals say how far the numbers depend
on topics and articles, and nothing of other pretrainings. Beyond the paper: a small BERT is trained
on the same text, each seed with its own start, and measured along its training.
"""

import dataclasses
import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.study import Study, divergences
from saccade.data.encoders import ENCODERS, find_encoder
from saccade.data.topic_model import (
    KINDS,
    OVERLAPS,
    VERSION,
    Lists,
    TopicModel,
    about_articles,
    articles_of,
    fitted,
    missing_package,
    topic_words,
)
from saccade.figures.figure import Choice, Figure, HeatMap, Panel, curve, level
from saccade.judging.bound import Above, AtLeast, Below
from saccade.judging.claim import Check, Claim
from saccade.judging.statistics import EverySeed, GeometricMean, Mean
from saccade.models.encoder import EncoderConfig
from saccade.probes.topic_pairs import TopicPairs
from saccade.records.record import Arm, Arms
from saccade.records.schedule import Logarithmic
from saccade.records.trajectory import at_place, half_rise
from saccade.settings import require, require_count, require_positive, require_single
from saccade.studies._documents import PAPER, STATISTICS
from saccade.studies._seeds import AbstractSeededConfig
from saccade.studies._tables import cell
from saccade.tasks.masked_text import MaskedText
from saccade.train.batches import Minibatch
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam
from saccade.train.recipe import Recipe

THRESHOLDS = (0.0005, 0.001, 0.002)
PAPERS = ("bert", "albert", "bart", "electra", "roberta")
AT_HAND = ("minilm", "gte_small")
"""Sentence encoders of other authors, trained further for similarity of sentences."""
RANDOM, TRAINED = "random", "trained"
TITLES = {name: ENCODERS[name].title for name in (*PAPERS, *AT_HAND)}
TITLES |= {RANDOM: "BERT, random weights", TRAINED: "small BERT, trained here"}
QUANTITIES = {
    "topic_cosine": "cosine",
    "topic_dot": "dot product",
    "topic_attention": "attention",
}
REPORTED: Mapping[str, Mapping[str, Sequence[Sequence[float]]]] = {
    "disjoint": {
        "bert": ((1.21, 1.13, 1.11), (1.19, 1.15, 1.13), (1.32, 1.28, 1.22)),
        "albert": ((5.64, 4.18, 3.24), (6.29, 3.74, 2.93), (1.33, 1.28, 1.22)),
        "bart": ((2.80, 1.95, 1.63), (2.67, 1.92, 1.62), (1.35, 1.31, 1.23)),
        "electra": ((5.98, 7.70, 7.46), (5.37, 7.35, 8.08), (2.14, 2.09, 1.95)),
        "roberta": ((6.44, 5.73, 5.24), (6.81, 6.31, 5.30), (1.40, 1.31, 1.22)),
        "random": ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
    },
    "overlapping": {
        "bert": ((1.14, 0.97, 0.99), (1.04, 1.05, 0.93), (1.23, 1.17, 1.13)),
        "albert": ((4.15, 3.09, 1.54), (3.06, 3.04, 1.44), (1.23, 1.17, 1.11)),
        "bart": ((2.51, 1.63, 1.06), (1.76, 1.12, 0.85), (1.27, 1.20, 1.11)),
        "electra": ((5.28, 5.56, 6.39), (3.99, 5.57, 5.61), (1.70, 1.58, 1.48)),
        "roberta": ((4.39, 5.20, 4.71), (5.01, 4.25, 4.15), (1.19, 1.15, 1.12)),
        "random": ((1.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
    },
}
"""The paper's ratios by model: of cosine, dot product and attention, each at the three thresholds.
Those of random weights are within 0.002 of 1."""
MOST_PAIRS = {"overlap": "overlapping", "threshold": THRESHOLDS[-1]}
"""The lists with the most pairs, for curves along training."""
LARGEST = 9.0
"""Ratios above this are drawn in one colour; the cells have the numbers."""


@dataclasses.dataclass(frozen=True)
class Config(AbstractSeededConfig):
    """Settings of the study."""

    seeds: int = 6
    """Topic models, each with its own articles and its own weights of the random control."""
    encoders: tuple[str, ...] = (*PAPERS, *AT_HAND)
    """Pretrained encoders: known names, folders, NAME=FOLDER, or OWNER/NAME on the hub."""
    corpus: str = "wikitext2_shuffled"
    """Name of a corpus of running text, or path of a text file."""
    first: int | None = None
    """Articles that are used, from the first on; None: all."""
    topic_model: TopicModel = TopicModel()
    """The topic model."""
    articles: int = 500
    """Articles whose attention is measured, drawn per seed; all if there are no more. 0: neither
    encoders nor the random control are measured."""
    pieces: int = 128
    """Word pieces that are read of an article, from the first on."""
    control_layers: int = 12
    """Layers of BERT with random weights."""
    control_heads: int = 12
    """Heads of each of its layers."""
    control_dimension: int = 768
    """Dimension of its states; its hidden units are four times as many."""
    starts: int = 6
    """Small BERT: runs, with the first of the seeds; 0: none is trained."""
    length: int = 128
    """Small BERT: words of a sequence."""
    vocabulary: int = 16_000
    """Small BERT: words with ids."""
    copies: int = 10
    """Small BERT: copies of the text with masks of their own."""
    model: EncoderConfig = EncoderConfig(4, 8, 256, 1024, head="masked", embedding_std=0.02)
    """Small BERT: the model."""
    rate: float = 0.0005
    """Small BERT: learning rate of Adam."""
    batch_size: int = 64
    """Small BERT: sequences per step."""
    steps: int = 40_000
    """Small BERT: steps."""
    examples: int = 512
    """Small BERT: held-out sequences on which attention is measured."""
    evaluations: int = 40
    """Small BERT: steps at which it is measured, dense at first."""

    def __post_init__(self):
        super().__post_init__()
        require_count(self, "control_layers", "control_heads", "control_dimension")
        require_count(self, "articles", "starts", least=0)
        require_count(self, "length", "copies", "batch_size", "steps", "examples")
        require_count(self, "pieces", least=8)
        require_count(self, "vocabulary", least=100)
        require_count(self, "evaluations", least=3)
        if self.first is not None:
            require_count(self, "first")
        require_positive(self, "rate")
        require_single(self, "the study has one small BERT per seed", "rate")
        divides = f"a divisor of control_dimension, {self.control_dimension}"
        require(self, "control_heads", divides, lambda one: self.control_dimension % one == 0)
        require(
            self.model, "head", "masked, because words are predicted", lambda one: one == "masked"
        )
        names = [find_encoder(one).name for one in self.encoders]
        twice = [name for name in names if names.count(name) > 1 or name in (RANDOM, TRAINED)]
        if twice:
            require(self, "encoders", f"other names than {twice[0]}, each once", lambda _: False)

    @property
    def missing(self) -> str:
        """The package that the study needs, if it is not here."""
        if lacking := missing_package():
            return lacking
        absent = [one for one in ("torch", "transformers") if importlib.util.find_spec(one) is None]
        return f"encoders need {absent[0]}: pip install 'saccade[torch]'" if absent else ""

    @property
    def tasks(self) -> Mapping[str, MaskedText]:
        """The text on which the small BERT is trained."""
        sizes: Any = {"length": self.length, "largest_vocabulary": self.vocabulary}
        return {TRAINED: MaskedText(self.corpus, first=self.first, copies=self.copies, **sizes)}


def experiment(config: Config, lab: Lab) -> Arms:
    articles = articles_of(config.corpus)[: config.first]
    digest = hashlib.sha256("\n".join(map(" ".join, articles)).encode()).hexdigest()
    named = (config.corpus, config.first, digest)
    largest = max(THRESHOLDS)
    topics = {
        seed: lab.cached(
            _topics,
            *named,
            config.topic_model,
            seed,
            largest,
            version=VERSION,
            name=f"topics {seed}",
        )
        for seed in config.seed_numbers
    }
    arms: dict[str, Arm] = {}
    if config.articles and not lab.dry_run:  # encoders are measured, not trained
        for place in map(find_encoder, config.encoders):
            source = dataclasses.astuple(place)
            arms[place.name] = _measured(
                config, lab, place.name, source, place.digest, named, topics
            )
        sizes = (config.control_layers, config.control_heads, config.control_dimension)
        arms[RANDOM] = _measured(config, lab, RANDOM, sizes, "", named, topics)
    if config.starts:
        recipe = _recipe(config, topics[config.first_seed])
        arms |= lab.train({TRAINED: recipe}, config.seed_numbers[: config.starts])
    return arms


def _topics(
    corpus: str, first: int | None, digest: str, settings: TopicModel, seed: int, largest: float
) -> xr.Dataset:
    """A topic model of a corpus, whose articles have this digest."""
    del digest
    return fitted(articles_of(corpus)[:first], settings, seed, largest)


def _measured(
    config: Config,
    lab: Lab,
    name: str,
    source: Sequence[Any],
    weights: str,
    named: Any,
    topics: Mapping[int, xr.Dataset],
) -> Arm:
    """An encoder, which `_pairs` takes from a source, with the topics and articles of every seed.
    The corpus has a name, and the encoder's weights a digest.
    """
    sizes = (config.articles, config.pieces)
    each = [
        lab.cached(
            _pairs,
            name,
            source,
            weights,
            *named,
            model,
            seed,
            *sizes,
            version=VERSION,
            name=f"{name} {seed}",
        )
        for seed, model in topics.items()
    ]
    seeds = xr.DataArray(list(topics), dims="seed", attrs={"long_name": SEED_NAMES[name == RANDOM]})
    dataset = xr.concat(each, "seed", join="exact", combine_attrs="drop").assign_coords(seed=seeds)
    for variable, text in VARIABLES.items():
        dataset[variable].attrs["long_name"] = text
    dataset.attrs |= dict(about_articles(config.corpus))
    return Arm(dataset)


SEED_NAMES = (
    "seed of the topic model and of the drawn articles; the weights are the same for all",
    "seed of the topic model, of the drawn articles and of the weights",
)
VARIABLES = {
    "topic_cosine": "mean cosine of embeddings",
    "topic_dot": "mean dot product of embeddings",
    "input_cosine": "mean cosine of what enters the first layer",
    "topic_attention": "mean attention of a pair of places",
    "topic_places": "pairs of places",
}


def _pairs(
    name: str,
    how: Sequence[Any],
    weights: str,
    corpus: str,
    first: int | None,
    digest: str,
    topics: xr.Dataset,
    seed: int,
    count: int,
    pieces: int,
) -> xr.Dataset:
    """Pairs of words in articles that the seed draws; digests are those of weights and corpus."""
    del weights, digest
    from saccade.data.encoders import EncoderPlace
    from saccade.models.pretrained_encoders import load_encoder, random_encoder, topic_pairs

    articles = articles_of(corpus)[:first]
    drawn = np.random.default_rng(seed).permutation(len(articles))[:count]
    if name == RANDOM:
        layers, heads, size = how
        words = [word.lower() for article in articles for word in article]
        encoder = random_encoder(
            words,
            seed,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            hidden_size=size,
            intermediate_size=4 * size,
            max_position_embeddings=max(512, pieces),
        )
    else:
        encoder = load_encoder(EncoderPlace(*how))
    return topic_pairs(encoder, [articles[at] for at in np.sort(drawn)], _lists(topics), pieces)


def _lists(topics: xr.Dataset) -> dict[tuple[str, float], Lists]:
    return {
        (overlap, threshold): topic_words(topics, threshold, disjoint=overlap == OVERLAPS[0])
        for overlap in OVERLAPS
        for threshold in THRESHOLDS
    }


def _recipe(config: Config, topics: xr.Dataset) -> Recipe:
    """The small BERT; its topics are those of the first seed."""
    (task,) = config.tasks.values()
    ids, lists = task.vocabulary.ids, _lists(topics)
    numbers = tuple(
        tuple(
            tuple(tuple(ids[word] for word in one if word in ids) for one in lists[overlap, share])
            for share in THRESHOLDS
        )
        for overlap in OVERLAPS
    )
    probe = TopicPairs(THRESHOLDS, numbers, "test", config.examples)
    return Recipe(
        task,
        config.model,
        Adam(config.rate),
        config.steps,
        probes=(probe, STATISTICS),
        at=Logarithmic(config.evaluations),
        batches=Minibatch(config.batch_size),
        sample=512,
    )


# -- measures --------------------------------------------------------------------------------------


def _over_heads(values: xr.DataArray) -> xr.DataArray:
    """The mean over layers and heads, of what has them."""
    return values.mean([dim for dim in ("layer", "head") if dim in values.dims])


def _ratio(values: xr.DataArray) -> xr.DataArray:
    """Same topic over different topics; attention after the mean over layers and heads."""
    values = _over_heads(values)
    return values.sel(pair=KINDS[0], drop=True) / values.sel(pair=KINDS[1], drop=True)


def _end(arm: Arm) -> xr.Dataset:
    """The measured values, of a training those at its last step."""
    return at_place(arm.trajectory, -1) if "step" in arm.trajectory.dims else arm.trajectory


def _smallest_ratio(name: str, arms: Arms, config: Config) -> xr.DataArray:
    del config
    return _ratio(_end(arms[name])["topic_attention"]).min(("overlap", "threshold"))


def _smallest_fall(overlap: str, name: str, arms: Arms, config: Config) -> xr.DataArray:
    del config
    ratio = _ratio(_end(arms[name])["topic_attention"]).sel(overlap=overlap, drop=True)
    return -ratio.diff("threshold").max("threshold")


def _disjoint_less_overlapping(name: str, arms: Arms, config: Config) -> xr.DataArray:
    del config
    ratio = _ratio(_end(arms[name])["topic_attention"])
    apart = ratio.sel(overlap=OVERLAPS[0], drop=True) - ratio.sel(overlap=OVERLAPS[1], drop=True)
    return apart.min("threshold")


def _distance(quantity: str, arms: Arms, config: Config) -> xr.DataArray:
    del config
    distance = abs(_ratio(_end(arms[RANDOM])[quantity]) - 1)
    return distance.max(("overlap", "threshold"))


def _closer(arms: Arms, config: Config) -> xr.DataArray:
    """Cosine of embeddings at the end, same topic less different topics, smallest over lists."""
    del config
    return _apart(_end(arms[TRAINED])["topic_cosine"]).min(("overlap", "threshold"))


def _apart(values: xr.DataArray) -> xr.DataArray:
    return values.sel(pair=KINDS[0], drop=True) - values.sel(pair=KINDS[1], drop=True)


def _order(arms: Arms, config: Config) -> xr.DataArray:
    """Half-rise of the embeddings' cosine over that of attention."""
    del config
    trajectory = arms[TRAINED].trajectory
    cosine = _apart(trajectory["topic_cosine"]).sel(MOST_PAIRS, drop=True)
    ratio = _ratio(trajectory["topic_attention"]).sel(MOST_PAIRS, drop=True)
    rise = at_place(ratio, -1) - at_place(ratio, 0)
    return (half_rise(cosine) / half_rise(ratio)).where(rise > RISEN)


RISEN = 0.05
"""A rise of the attention ratio that is no larger than this is none."""


def _command(name: str) -> str:
    if name == TRAINED:
        return "saccade run topics_pretrained --preset trained"
    return f"saccade run topics_pretrained --preset paper --encoders {name}"


def _not_run(name: str) -> Any:
    """Says how an arm is run that a record lacks."""
    return lambda arms, config: _command(name)


def _each(names: Sequence[str], text: str, measure: Any, bound: Any) -> tuple[Check, ...]:
    """One check per model."""
    return tuple(
        Check(
            f"{text}, {TITLES[name]}",
            partial(measure, name),
            bound,
            name,
            missing=_not_run(name),
        )
        for name in names
    )


def _falls(names: Sequence[str]) -> tuple[Check, ...]:
    return tuple(
        check
        for overlap in OVERLAPS
        for check in _each(
            names,
            f"smallest fall of the ratio between thresholds, {overlap} topics",
            partial(_smallest_fall, overlap),
            Above(0.0),
        )
    )


SMALLEST = "smallest attention ratio over thresholds, topics disjoint or not"
APART = "ratio with disjoint topics less that with overlapping ones, smallest over thresholds"
WIKIPEDIA = " The paper has topics of all of Wikipedia; here they are those of the corpus"
READ = (
    lambda config: (
        config.articles >= 200
        and config.pieces >= 128
        and config.first is None
        and config.topic_model.topics >= 20
        and config.topic_model.passes >= 6
    ),
    "20 topics of a whole corpus, and 200 articles of 128 pieces (preset small or paper)",
)
CONTROL = (
    lambda config: (
        READ[0](config) and config.control_layers >= 12 and config.control_dimension >= 768
    ),
    "BERT of its published size, and 200 articles of 128 pieces (preset small or paper)",
)
LEARNED = (
    lambda config: (
        config.first is None
        and config.steps >= 8000
        and config.vocabulary >= 6000
        and config.model.dimension >= 64
        and config.examples >= 512
    ),
    "a whole corpus, 6,000 words and 8,000 steps (preset trained or paper)",
)
_claim = partial(Claim, statistic=Mean(4))
CLAIMS = (
    _claim(
        "B-13",
        "In every pretrained model of the paper, words attend more to words of their topic than to"
        " words of other topics",
        "Li 2023, tables on Wikipedia",
        _each(PAPERS, SMALLEST, _smallest_ratio, Above(1.05)),
        "1.05, as specified, for every model and threshold." + WIKIPEDIA,
        paper="1.11 to 2.14",
        full_size=READ,
    ),
    _claim(
        "B-14",
        "In every pretrained model of the paper the attention ratio falls as the threshold grows",
        "Li 2023, tables on Wikipedia",
        _falls(PAPERS),
        "an order, as specified." + WIKIPEDIA,
        paper="5 of 5 models, in both tables",
        full_size=READ,
    ),
    _claim(
        "B-15",
        "In every pretrained model of the paper the attention ratio is at least as large with"
        " disjoint topics as with overlapping ones",
        "Li 2023, tables on Wikipedia",
        _each(PAPERS, APART, _disjoint_less_overlapping, AtLeast(0.0)),
        "an order, as specified." + WIKIPEDIA,
        paper="5 of 5 models, at all thresholds",
        full_size=READ,
    ),
    _claim(
        "B-16",
        "In BERT with random weights all three ratios are 1",
        "Li 2023, tables on Wikipedia",
        tuple(
            Check(
                f"largest |ratio - 1|, {title}", partial(_distance, quantity), Below(0.01), RANDOM
            )
            for quantity, title in QUANTITIES.items()
        ),
        "0.01, as specified. Embeddings are the rows of the table, as in the authors' code",
        paper="within 0.002 of 1",
        prediction="attention: 1. Rows with mean 0 have mean cosines near 0, and 0 / 0 is no ratio",
        statistic=EverySeed(4),
        reason="attention keeps the bound. Cosines and dot products of random rows are near 0 for"
        " both kinds of pairs, so that their ratio is one of chance. Which embeddings give the"
        " paper's 1 is not stated; B-16b tests another reading",
        full_size=CONTROL,
    ),
    _claim(
        "B-13b",
        "In two other pretrained encoders words attend more to words of their topic than to words"
        " of other topics",
        "Li 2023, tables on Wikipedia; B-13 for sentence encoders",
        _each(AT_HAND, SMALLEST, _smallest_ratio, Above(1.05)),
        "1.05, as in B-13",
        full_size=READ,
    ),
    _claim(
        "B-14b",
        "In two other pretrained encoders the attention ratio falls as the threshold grows",
        "Li 2023, tables on Wikipedia; B-14 for sentence encoders",
        _falls(AT_HAND),
        "an order, as in B-14",
        reason="of MiniLM with disjoint topics the ratio does not fall from the first threshold to"
        " the second. A guess: the shortest lists have few words, and few pairs",
        full_size=READ,
    ),
    _claim(
        "B-15b",
        "In two other pretrained encoders the attention ratio is at least as large with disjoint"
        " topics as with overlapping ones",
        "Li 2023, tables on Wikipedia; B-15 for sentence encoders",
        _each(AT_HAND, APART, _disjoint_less_overlapping, AtLeast(0.0)),
        "an order, as in B-15",
        full_size=READ,
    ),
    _claim(
        "B-16b",
        "In BERT with random weights the ratio of cosines is 1 if embeddings are what enters the"
        " first layer, at the places of the words",
        "Li 2023, tables on Wikipedia; B-16 for another reading of embeddings",
        Check(
            "largest |ratio - 1|, cosine of what enters the first layer",
            partial(_distance, "input_cosine"),
            Below(0.01),
            RANDOM,
        ),
        "0.01, as in B-16. Words share position and type vectors there, so that cosines are not"
        " near 0",
        paper="within 0.002 of 1",
        prediction="1",
        statistic=EverySeed(4),
        reason="the largest of six ratios is off by 0.0109 in the mean over seeds. A guess: chance,"
        " in the few words of the shortest lists",
        full_size=CONTROL,
    ),
    _claim(
        "B-13c",
        "A small BERT that is trained on the corpus itself comes to attend more to words of the"
        " same topic, and its embeddings of such words are closer",
        "beyond the paper: B-13 for a BERT of ours",
        (
            *_each((TRAINED,), SMALLEST, _smallest_ratio, Above(1.05)),
            Check(
                "cosine, same topic less different topics, smallest over lists",
                _closer,
                Above(0.0),
                TRAINED,
                missing=_not_run(TRAINED),
            ),
        ),
        "1.05, as in B-13; a sign. All seeds have the topics of the first",
        full_size=LEARNED,
    ),
    _claim(
        "B-14c",
        "In a small BERT that is trained on the corpus itself the attention ratio falls as the"
        " threshold grows",
        "beyond the paper: B-14 for a BERT of ours",
        _falls((TRAINED,)),
        "an order, as in B-14. All seeds have the topics of the first",
        full_size=LEARNED,
    ),
    _claim(
        "B-15c",
        "In a small BERT that is trained on the corpus itself the attention ratio is at least as"
        " large with disjoint topics as with overlapping ones",
        "beyond the paper: B-15 for a BERT of ours",
        _each((TRAINED,), APART, _disjoint_less_overlapping, AtLeast(0.0)),
        "an order, as in B-15. All seeds have the topics of the first",
        full_size=LEARNED,
    ),
    _claim(
        "B-13d",
        "In a small BERT that is trained on the corpus itself topics appear in the embeddings"
        " before they appear in attention",
        "beyond the paper: the order of the two main results of Li 2023",
        Check(
            "half-rise of the cosine, same topic less different topics / half-rise of the attention"
            " ratio",
            _order,
            Below(1.0),
            TRAINED,
            missing=_not_run(TRAINED),
        ),
        "an order. Half of the rise from the first to the last step, for overlapping topics and the"
        f" largest threshold, which have the most pairs; a seed whose attention ratio rises by no"
        f" more than {RISEN:g} has no number. Like every half-rise it depends on when training"
        " stops (E-13e)",
        statistic=GeometricMean(4),
        full_size=LEARNED,
    ),
)


# -- figures ---------------------------------------------------------------------------------------


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    del config
    drawn = (_tables(arms), _heads(arms))
    return (*drawn, _heads_along(arms[TRAINED]), _curves(arms)) if TRAINED in arms else drawn


def _tables(arms: Arms) -> Figure:
    """A panel per table and quantity, with a row per model."""
    others = [name for name in arms if name not in (*PAPERS, RANDOM, TRAINED)]
    names = [*PAPERS, *others, RANDOM, TRAINED][::-1]
    labels = np.asarray([TITLES.get(name, name) for name in names])
    columns = np.asarray([f"{one:g}, {by}" for one in THRESHOLDS for by in ("paper", "ours")])
    panels = []
    for overlap in OVERLAPS:
        for place, (quantity, title) in enumerate(QUANTITIES.items()):
            rows = [_row(arms, name, overlap, quantity, place) for name in names]
            shades = np.clip(np.asarray([[one for one, _ in row] for row in rows]), 0, LARGEST)
            texts = np.asarray([[text for _, text in row] for row in rows], object)
            cells = HeatMap("ratio", columns, labels, shades, texts=texts)
            panels.append(Panel(f"{title}, {overlap} topics", "threshold", "", (cells,)))
    absent = [name for name in PAPERS if name not in arms]
    caption = (
        "Same topic over different topics: cosine and dot product of embeddings, and attention,"
        " averaged over layers and heads. Ours with 95 % intervals over topic models and articles"
        " (of random weights and of the small BERT also over starts). With random weights cosines"
        " and dot products are near 0, and their ratio is of no use. Colours end at"
        f" {LARGEST:g}."
    )
    if absent:
        caption += f" Not run: {', '.join(TITLES[name] for name in absent)}; {_command('NAME')}"
        caption += f" runs one of {', '.join(absent)}."
    title = "Ratios of same-topic to different-topic pairs"
    return Figure("topics_pretrained_tables", title, caption, tuple(panels))


def _row(arms: Arms, name: str, overlap: str, quantity: str, place: int) -> list[tuple[float, str]]:
    """At every threshold the paper's number, and ours."""
    nothing = len(THRESHOLDS) * [(np.nan, "not run" if name in PAPERS else "-")]
    ours = nothing
    if name in arms:
        ratio = _ratio(_end(arms[name])[quantity]).sel(overlap=overlap)
        ours = [cell(ratio.isel(threshold=at), 2) for at in range(len(THRESHOLDS))]
    reported = REPORTED[overlap].get(name)
    paper = len(ours) * [(np.nan, "-")]
    if reported is not None:
        paper = [(number, f"{number:g}") for number in reported[place]]
    return [one for both in zip(paper, ours, strict=True) for one in both]


def _head_map(attention: xr.DataArray, numbered: bool) -> HeatMap:
    """Attention within topics over attention across them, by layer and head, and by step if there
    are several.
    """
    values = attention.sel(MOST_PAIRS).mean("seed")
    ratio = values.sel(pair=KINDS[0]) / values.sel(pair=KINDS[1])
    heads, layers = (np.arange(1, ratio.sizes[dim] + 1) for dim in ("head", "layer"))
    table = ratio.transpose(..., "layer", "head").values
    return HeatMap("ratio", heads, layers, table, numbered=numbered)


def _heads_along(arm: Arm) -> Figure:
    cells = _head_map(arm.trajectory["topic_attention"], numbered=True)
    panel = Panel(TITLES.get(TRAINED, TRAINED), "head", "layer", (cells,))
    caption = (
        "The ratio of the figure above along the training of the small BERT: one colour scale for"
        " all measured steps."
    )
    steps = Choice.of_steps(arm.trajectory["step"].values)
    title = "When heads begin to attend within a topic"
    return Figure("topics_pretrained_heads_training", title, caption, (panel,), steps)


def _heads(arms: Arms) -> Figure:
    panels = []
    for name, arm in arms.items():
        cells = _head_map(_end(arm)["topic_attention"], numbered=False)
        panels.append(Panel(TITLES.get(name, name), "head", "layer", (cells,)))
    caption = (
        "Attention per layer and head, same topic over different topics, mean over seeds first;"
        f" overlapping topics, threshold {MOST_PAIRS['threshold']:g}."
    )
    title = "Which heads attend within a topic"
    return Figure("topics_pretrained_heads", title, caption, tuple(panels))


def _curves(arms: Arms) -> Figure:
    trajectory = arms[TRAINED].trajectory.isel(step=slice(1, None))
    cosine, dot = (
        _apart(trajectory[name]).sel(overlap=MOST_PAIRS["overlap"], drop=True)
        for name in ("topic_cosine", "topic_dot")
    )
    ratio = _ratio(trajectory["topic_attention"]).sel(overlap=MOST_PAIRS["overlap"], drop=True)
    ends = (float(trajectory["step"][0]), float(trajectory["step"][-1]))

    def lines(values: xr.DataArray) -> tuple[Any, ...]:
        return tuple(
            curve(f"threshold {threshold:g}", values.isel(threshold=at, drop=True))
            for at, threshold in enumerate(THRESHOLDS)
        )

    panels = (
        Panel("embeddings, cosine", "step", "same less different", lines(cosine), "log"),
        Panel("embeddings, dot product", "step", "same less different", lines(dot), "log"),
        Panel(
            "attention",
            "step",
            "same / different",
            (*lines(ratio), level("no difference", ends, 1.0)),
            "log",
        ),
        Panel("loss", "step", "cross-entropy (nat)", (curve("loss", trajectory["loss"]),), "log"),
    )
    caption = (
        "A small BERT along its training: words of the same topic and of different topics, for"
        " overlapping topics; mean over seeds with the range. Differences of embeddings, because"
        " their mean cosine is 0 at the start."
    )
    return Figure("topics_pretrained_training", "Topics along training", caption, panels)


DIVERGENCES = divergences(
    """
    corpus | Wikipedia | Wikipedia | WikiText-2, 611 articles | fewer and coarser topics
    topic model | online, 6 passes | gensim on tf-idf, 100 topics, 1 pass | scikit-learn on counts,
        online, 6 passes, 20 topics | none known
    words | not stated | 100,000 of the tf-idf matrix | those of letters alone, in 3 articles or
        more, without stop words (19,364) | 10, 20 and 39 words per topic instead of 51, 101 and 201
    disjoint topics | not stated how | not released | words of several topics are dropped | B-15
    pairs of embeddings | not stated | 10,000 x 10,000 random tokens | all pairs of words with a
        topic that are one piece | none but less chance
    articles | not stated | not stated | 500 per seed (preset small: 200), first 128 pieces | wider
        intervals
    mean over heads | not stated | printed per layer and head | one mean per layer and head, then
        over both, then the ratio | none known
    random weights | BERT | BERT | BERT's sizes and initialisation; whole words as pieces | none
        known
    models | BERT, ALBERT, BART, ELECTRA, RoBERTa | BERT alone | any by name; of BART its encoder |
        B-13b for what is at hand
    """
)

SMALL = Config(encoders=AT_HAND, articles=200, starts=0, first_seed=1000)
"""What two cores do in ten minutes: encoders at hand and the random control."""
SMALL_BERT = Config(
    encoders=(),
    articles=0,
    starts=4,
    length=64,
    vocabulary=6000,
    copies=5,
    model=EncoderConfig(2, 4, 64, 256, dropout=0.0, head="masked", embedding_std=0.02),
    rate=0.001,
    batch_size=16,
    steps=12_000,
    first_seed=1000,
)
"""The small BERT alone, of a size for two cores."""
QUICK = Config(
    seeds=3,
    encoders=(),
    first=40,
    topic_model=TopicModel(topics=4, passes=2),
    articles=24,
    pieces=128,
    control_layers=2,
    control_heads=2,
    control_dimension=32,
    length=32,
    vocabulary=1000,
    copies=1,
    model=EncoderConfig(1, 2, 16, 32, dropout=0.0, head="masked", embedding_std=0.02),
    rate=0.003,
    batch_size=8,
    steps=40,
    examples=512,
    evaluations=6,
)
PRESETS = {
    "quick": QUICK,
    "small": SMALL,
    "trained": SMALL_BERT,
    "paper": Config(first_seed=1000),
}
ABOUT = ("topics_pretrained", "Do words of one topic attend to each other?", PAPER)
STUDY = Study(*ABOUT, PRESETS, experiment, CLAIMS, figures, divergences=DIVERGENCES)
