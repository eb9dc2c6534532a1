"""What every task, model, probe, theory and study must be, for each one found in the package."""

import ast
import dataclasses
import functools
import importlib
import inspect
import json
import pkgutil
import re
from pathlib import Path
from typing import Any, get_type_hints

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.core import optimiser
from saccade.core.engine import cross_entropy
from saccade.core.interfaces import (
    END,
    FIRST_WORD,
    START,
    AbstractBatch,
    AbstractModelConfig,
    AbstractProbe,
    AbstractTask,
    AbstractTheory,
    Moment,
    SentencePairs,
)
from saccade.core.lab import ALWAYS, describe
from saccade.core.optimiser import AbstractStepper
from saccade.core.study import find_study, study_names
from saccade.core.sweep import Swept, sweepable, with_sweep
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.attention_regression import (
    AttentionRegressionConfig,
    half_squared_error,
    value_curvature,
)
from saccade.models.convolutional_classifier import ConvolutionalClassifierConfig
from saccade.models.one_layer_transformer import (
    OneLayerTransformerConfig,
    squared_error,
    uniform_curvature,
)
from saccade.models.recurrent_classifier import RecurrentClassifierConfig
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig, token_entropy
from saccade.models.tied_attention import TiedAttentionConfig, query_error
from saccade.models.word_proxy import WordProxyConfig, summed_bag_entropy
from saccade.probes import (
    co_occurrence,
    feature_matrix,
    keywords,
    motion,
    performance,
    topic_blocks,
    translation,
)
from saccade.probes.topic_words import Distributions
from saccade.tasks.copying import Copying
from saccade.tasks.keyword_sentences import KeywordSentences
from saccade.tasks.lexicon_sentences import LexiconSentences
from saccade.tasks.long_documents import LongDocumentQueries, LongDocuments
from saccade.tasks.markov_pairs import MarkovPairs
from saccade.tasks.random_sequences import RandomSequences
from saccade.tasks.topic_documents import TopicDocuments
from saccade.tasks.topic_sentences import TopicSentences
from saccade.theory.value_optimum import decayed_values, least_norm_values

PAPERS = {
    "Lu 2021": r"Lu, Mao & Nayak \(?2021",
    "Li 2023": r"Li, Li & Risteski \(?2023",
    "Snell 2021": r"Snell(, Zhong, Klein & Steinhardt| et al\.) \(?2021",
    "Song 2024": r"Song(, Han, Zhang, Ding & Hong| et al\.) \(?2024",
}
"""How a source names a paper, and how a docstring does."""


def in_short(text: str | None) -> set[str]:
    """The papers that a text names as sources do."""
    return {name for name in PAPERS if name in (text or "")}


def found(package: str, base: type) -> list[type]:
    """Every final class of a kind that a file of the package defines."""
    folder = importlib.import_module(f"saccade.{package}")
    kinds = []
    for module in pkgutil.iter_modules(folder.__path__, f"saccade.{package}."):
        members = vars(importlib.import_module(module.name)).values()
        kinds += [
            kind
            for kind in members
            if inspect.isclass(kind)
            and issubclass(kind, base)
            and kind.__module__ == module.name
            and not kind.__name__.startswith("Abstract")
        ]
    return kinds


def modules(*packages: str) -> list[Any]:
    names = [
        module.name
        for package in packages
        for module in pkgutil.iter_modules(
            importlib.import_module(f"saccade.{package}").__path__, f"saccade.{package}."
        )
    ]
    return [importlib.import_module(name) for name in names]


TASKS = found("tasks", AbstractTask)
MODELS = found("models", AbstractModelConfig)
PROBES = found("probes", AbstractProbe)
THEORIES = found("theory", AbstractTheory)
STUDIES = [find_study(name) for name in study_names()]
ACROSS = {f"saccade.studies.{study.name}" for study in STUDIES if len(in_short(study.paper)) > 1}
"""Modules of studies that set the models of several papers side by side."""

SMALL: dict[type, dict[str, Any]] = {
    TopicSentences: {
        "topics": 2,
        "words_per_topic": 2,
        "filler_size": 3,
        "dictionary_size": 6,
        "train_size": 16,
        "test_size": 5,
    },
    MarkovPairs: {"dictionary_size": 9, "sentence_size": 4, "train_size": 16, "test_size": 5},
    TopicDocuments: {
        "topics": 3,
        "words_per_topic": 2,
        "topics_per_document": 2,
        "shortest": 3,
        "longest": 7,
        "train_size": 16,
        "test_size": 5,
    },
    LongDocuments: {"topics": 3, "words_per_topic": 2, "topics_per_document": 2.0},
    LongDocumentQueries: {"topics": 3.0, "words_per_topic": 2.0, "topics_per_document": 2.0},
    RandomSequences: {
        "train_size": 5,
        "test_size": 2,
        "positions": 3,
        "width": 4,
        "dimension": 3.0,
        "outputs": 2,
    },
    Copying: {
        "length": 3,
        "words": 4.0,
        "groups": 2,
        "largest": 5,
        "train_size": 16,
        "test_size": 5,
    },
    KeywordSentences: {"length": 5, "words": 4, "train_size": 16, "test_size": 5},
    LexiconSentences: {"words": 4, "shortest": 2, "longest": 5, "train_size": 16, "test_size": 5},
}
"""Sizes for which a test is quick; a task without an entry is tested as it comes."""

EXACT = (LongDocuments, LongDocumentQueries)
"""Tasks that draw nothing: exact expectations, whatever the key and the size asked for."""

TASK_OF: dict[type, type] = {
    AttentionClassifierConfig: TopicSentences,
    ConvolutionalClassifierConfig: MarkovPairs,
    OneLayerTransformerConfig: TopicDocuments,
    TiedAttentionConfig: LongDocumentQueries,
    AttentionRegressionConfig: RandomSequences,
    SequenceToSequenceConfig: Copying,
    RecurrentClassifierConfig: KeywordSentences,
    WordProxyConfig: LexiconSentences,
}
"""The task that a model is meant for; without an entry, the first."""

MODEL_ARGUMENTS: dict[type, dict[str, Any]] = {
    OneLayerTransformerConfig: {"start_std": 0.5},
    TiedAttentionConfig: {"values": least_norm_values},
    SequenceToSequenceConfig: {"hidden": 4, "heads": 2},
    RecurrentClassifierConfig: {"hidden": 3, "features": 4, "score_size": 5, "directions": "both"},
    WordProxyConfig: {"dimension": 4},
}
"""What a model config cannot be made without, would show nothing or be slow without; else it is
tested as it comes.
"""

OUTPUTS: dict[type, Any] = {
    AttentionClassifierConfig: lambda task: (task.labels,),
    ConvolutionalClassifierConfig: lambda task: (task.labels,),
    OneLayerTransformerConfig: lambda task: (task.positions, task.vocabulary_size),
    TiedAttentionConfig: lambda task: (4,),
    AttentionRegressionConfig: lambda task: (task.positions, task.outputs),
    SequenceToSequenceConfig: lambda task: (task.length + 1, task.vocabulary_size),
    RecurrentClassifierConfig: lambda task: (task.labels,),
    WordProxyConfig: lambda task: (task.longest + 1, task.vocabulary_size),
}
"""Shape of the logits of one example; without an entry, only the number of examples is known."""

LOSS_OF: dict[type, Any] = {
    OneLayerTransformerConfig: squared_error,
    TiedAttentionConfig: query_error,
    AttentionRegressionConfig: half_squared_error,
    SequenceToSequenceConfig: token_entropy,
    WordProxyConfig: summed_bag_entropy,
}
"""The loss that a model is trained with; without an entry, cross-entropy."""

TRANSLATORS = (SequenceToSequenceConfig, WordProxyConfig)

MODELS_OF: dict[type, tuple[type, ...]] = {
    co_occurrence.CountTable: TRANSLATORS,
    co_occurrence.Lexicon: (WordProxyConfig,),
    co_occurrence.LexiconRates: (WordProxyConfig,),
    feature_matrix.FeatureMatrix: (AttentionRegressionConfig,),
    feature_matrix.ReachOfQueries: (AttentionRegressionConfig,),
    keywords.KeywordLogits: (RecurrentClassifierConfig,),
    motion.Displacements: (AttentionRegressionConfig, OneLayerTransformerConfig),
    motion.GradientNorms: (AttentionRegressionConfig, OneLayerTransformerConfig),
    topic_blocks.ValueBlocks: (OneLayerTransformerConfig,),
    topic_blocks.ValueTable: (OneLayerTransformerConfig,),
    topic_blocks.Similarities: (OneLayerTransformerConfig,),
    topic_blocks.SimilarityTable: (OneLayerTransformerConfig,),
    topic_blocks.AttentionOdds: (OneLayerTransformerConfig, TiedAttentionConfig),
    topic_blocks.PairAttention: (OneLayerTransformerConfig,),
    performance.Accuracy: (AttentionClassifierConfig, RecurrentClassifierConfig),
    translation.AttentionPlaces: TRANSLATORS,
    translation.LexicalKnowledge: TRANSLATORS,
    translation.PairWords: TRANSLATORS,
    translation.PositionTables: TRANSLATORS,
    translation.TokenAccuracy: TRANSLATORS,
}
"""The models that a probe fits; without an entry, Lu 2021's."""

SIZE = 6
"""Examples that a model is called on."""


def shapes_of(task: Any) -> Any:
    """What a task draws, in shapes alone."""
    return jax.eval_shape(lambda key: task.sample(key, SIZE), jax.random.key(0))


def small_task(kind: type) -> Any:
    return kind(**SMALL.get(kind, {}))


def small_model(kind: type) -> tuple[Any, Any]:
    return kind(**MODEL_ARGUMENTS.get(kind, {})), small_task(TASK_OF.get(kind, TopicSentences))


def floats_of(kind: type, prefix: str = "") -> list[str]:
    """Dotted paths of the fields that are declared as floats, in order."""
    hints, paths = get_type_hints(kind), []
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if hint is float:
            paths.append(prefix + field.name)
        elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
            paths += floats_of(hint, f"{prefix}{field.name}.")
    return paths


def at_path(config: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), config)


def sizes(batch: Any) -> set[int]:
    """First sizes of all arrays of a batch."""
    return {leaf.shape[0] for leaf in jax.tree.leaves(batch)}


def same(first: Any, second: Any) -> bool:
    return all(
        np.array_equal(*leaves)
        for leaves in zip(*map(jax.tree.leaves, (first, second)), strict=True)
    )


def in_a_hurry(function: Any) -> Any:
    """Compiled without optimisation: what runs once or twice is done sooner."""
    hurry = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    return jax.jit(function, compiler_options=hurry)  # pyright: ignore[reportArgumentType]


@functools.cache
def built(kind: type) -> tuple[Any, Any]:
    """A model of that kind and some examples for it."""
    config, task = small_model(kind)
    return in_a_hurry(lambda key: (config.build(task, key), task.sample(key, SIZE)))(
        jax.random.key(0)
    )


called = in_a_hurry(lambda model, batch: model(batch))


def named(kinds: list[type]) -> Any:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.__name__)


def helped(kind: type) -> None:
    """Every field of a config is followed by a string that says what it is."""
    tree = ast.parse(inspect.cleandoc(inspect.getsource(kind)))
    body = tree.body[0].body  # pyright: ignore[reportAttributeAccessIssue]
    fields = {field.name for field in dataclasses.fields(kind)}
    for place, node in enumerate(body):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and node.target.id in fields
        ):
            following = body[place + 1] if place + 1 < len(body) else None
            told = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            assert told, f"{kind.__name__}.{node.target.id} has no help"
            text = following.value.value  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
            assert isinstance(text, str)
            assert text.endswith((".", ".)")), text


def test_something_of_every_kind_is_found():
    assert all([TASKS, MODELS, PROBES, THEORIES, STUDIES])


@pytest.mark.parametrize(
    "module",
    modules("tasks", "models", "probes", "theory", "studies"),
    ids=lambda module: module.__name__.removeprefix("saccade."),
)
def test_a_module_says_what_it_is(module):
    assert module.__doc__
    assert len(module.__doc__.strip().splitlines()[0]) > 20
    if module.__name__ in ACROSS:
        assert len(in_short(module.__doc__)) > 1, "the docstring does not name the papers"
    elif module.__name__.startswith(("saccade.theory.", "saccade.studies.", "saccade.tasks.")):
        assert any(re.search(paper, module.__doc__) for paper in PAPERS.values()), (
            "the docstring names no paper"
        )


# -- tasks -----------------------------------------------------------------------------------------


@named(TASKS)
def test_a_task_is_a_frozen_config_with_help(kind):
    with pytest.raises(dataclasses.FrozenInstanceError):
        small_task(kind).train_size = 3
    helped(kind)
    assert re.search(
        r"^ {4}\[", importlib.import_module(kind.__module__).__doc__ or "", re.MULTILINE
    ), "no example is drawn"


@functools.cache
def drawing(kind: type) -> Any:
    task = small_task(kind)
    return in_a_hurry(lambda key: task.sample(key, task.train_size))


def drawn(kind: type, seed: int = 0) -> Any:
    """A training set of that kind."""
    return drawing(kind)(jax.random.key(seed))


@named(TASKS)
def test_a_task_draws_what_its_key_says(kind):
    task = small_task(kind)
    batch, again, other = (drawn(kind, seed) for seed in (0, 0, 1))
    assert isinstance(batch, AbstractBatch)
    assert same(batch, again)
    assert same(batch, other) == (kind in EXACT)
    assert sizes(batch) == {task.train_size}, "the examples do not come first"
    assert {leaf.dtype for leaf in jax.tree.leaves(batch)} <= {
        jnp.dtype(name) for name in ("int32", "float32", "bool")
    }
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(batch))


@named(TASKS)
def test_a_task_draws_as_many_examples_as_it_is_asked_for(kind):
    task = small_task(kind)
    few = jax.eval_shape(lambda key: task.sample(key, 3), jax.random.key(0))
    assert sizes(few) == {task.train_size if kind in EXACT else 3}
    assert task.train_size == task.test_size or kind not in EXACT


@named(TASKS)
def test_some_examples_of_a_batch_are_those_examples(kind):
    batch = drawn(kind)
    chosen = batch.examples(jnp.asarray([2, 0]))
    assert type(chosen) is type(batch)
    assert sizes(chosen) == {2}
    assert same(chosen, jax.tree.map(lambda leaf: leaf[np.asarray([2, 0])], batch))


WITH_WORDS = [kind for kind in TASKS if hasattr(kind, "vocabulary_size") and kind not in EXACT]
WITH_PAIRS = [kind for kind in WITH_WORDS if isinstance(shapes_of(small_task(kind)), SentencePairs)]
WITHOUT_TOPICS = (KeywordSentences,)
"""Tasks of labelled sentences whose labels are no topics."""


@named([kind for kind in WITH_WORDS if kind not in WITH_PAIRS])
def test_words_labels_and_mask_fit_each_other(kind):
    task, batch = small_task(kind), drawn(kind)
    assert batch.words.dtype == batch.labels.dtype == jnp.int32
    assert batch.words.min() >= 0
    assert batch.words.max() < task.vocabulary_size
    assert batch.labels.min() >= 0
    assert batch.mask is None or batch.mask.shape == batch.words.shape
    if kind in WITHOUT_TOPICS or hasattr(task, "topic_items"):  # one label a sentence
        assert batch.labels.shape == (task.train_size,)
        assert batch.labels.max() < task.labels
    if kind in WITHOUT_TOPICS:
        assert not hasattr(task, "topic_items")
        assert not hasattr(task, "topic_of_id")
    elif hasattr(task, "topic_items"):
        assert len(task.topic_of_item) == len(task.topic_items)
        assert set(task.topic_of_item) == set(range(task.labels))
    else:  # one label a position
        assert batch.labels.shape == batch.words.shape == batch.selected.shape
        assert batch.labels.max() < task.vocabulary_size
        assert np.array_equal(batch.words[~batch.selected], batch.labels[~batch.selected]), (
            "only selected words are changed"
        )
        assert batch.mask is None or not np.any(batch.selected & ~batch.mask), "padding is selected"
        assert len(task.topic_of_id) == task.vocabulary_size
        assert set(task.topic_of_id) == {-1, *range(task.topics)}


@named(WITH_PAIRS)
def test_pairs_hold_words_their_translations_and_where_they_come_from(kind):
    task, batch = small_task(kind), drawn(kind)
    assert batch.source.dtype == batch.target.dtype == batch.aligned.dtype == jnp.int32
    assert batch.source.shape == batch.source_mask.shape
    assert batch.target.shape == batch.target_mask.shape == batch.aligned.shape
    used = np.flatnonzero(getattr(task, "used_ids", np.ones(task.vocabulary_size, bool)))
    places = np.arange(batch.source.shape[1])
    for words, mask in ((batch.source, batch.source_mask), (batch.target, batch.target_mask)):
        words, mask, many = np.asarray(words), np.asarray(mask), np.sum(mask, axis=1)
        assert np.isin(words, used).all()
        assert np.all(words[:, 0] >= FIRST_WORD), "a sentence has no word"
        assert not np.any(words == START), "a decoder's first input is no word"
        assert np.array_equal(mask, places < many[:, None]), "padding comes last"
        assert np.array_equal((words == END) & mask, places == many[:, None] - 1), (
            "every sentence ends, and once"
        )
        assert np.all(words[~mask] == END)
    # Every target word comes from a source word of its pair, every source word from one target
    # word, and the end from the end.
    order = np.where(batch.target_mask, batch.aligned, places)
    assert np.array_equal(np.sort(order, axis=1), np.tile(places, (task.train_size, 1)))
    come_from = np.take_along_axis(np.asarray(batch.source), np.asarray(batch.aligned), axis=1)
    assert np.array_equal(come_from == END, np.asarray(batch.target) == END)
    # One word always has one translation, and no other word has it.
    pairs = set(zip(come_from.ravel().tolist(), np.ravel(batch.target).tolist(), strict=True))
    assert (
        len(pairs) == len({source for source, _ in pairs}) == len({target for _, target in pairs})
    )


@named([kind for kind in TASKS if hasattr(kind, "topic_of_id")])
def test_ids_have_topics_in_a_small_task_too(kind):
    task = small_task(kind)
    assert len(task.topic_of_id) == task.vocabulary_size
    assert task.topic_of_id[task.hidden_id] == -1
    assert set(task.topic_of_id) == {-1, *range(task.topics)}


@named(TASKS)
def test_a_task_describes_itself_and_its_floats_can_be_swept(kind):
    task = small_task(kind)
    assert json.loads(json.dumps(describe(task)))["class"].endswith(kind.__name__)
    floats = floats_of(kind)
    assert sweepable(task) == floats
    for path in floats:
        assert isinstance(at_path(with_sweep(task, path, [at_path(task, path)]), path), Swept)


# -- models ----------------------------------------------------------------------------------------


@named(MODELS)
def test_a_model_config_is_frozen_with_help_and_its_floats_can_be_swept(kind):
    config, _ = small_model(kind)
    field = dataclasses.fields(config)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, field, None)
    helped(kind)
    assert json.loads(json.dumps(describe(config)))["class"].endswith(kind.__name__)
    assert sweepable(config) == floats_of(kind)


STEPPERS = [
    kind
    for kind in vars(optimiser).values()
    if inspect.isclass(kind) and issubclass(kind, AbstractStepper)
]
FUNCTIONS = [
    (kind, field.name)
    for kind in (*MODELS, *STEPPERS)
    for field in dataclasses.fields(kind)
    if "Callable" in str(field.type)
]
"""Fields of configs that hold a function."""


@pytest.mark.parametrize(
    ("kind", "field"),
    FUNCTIONS,
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_function_in_a_config_is_told_apart_from_another(kind, field):
    """Equal descriptions mean equal digests: the cache would answer one with the other."""
    arguments = MODEL_ARGUMENTS.get(kind, {})
    functions = (
        (least_norm_values, decayed_values)
        if field == "values"
        else (value_curvature, uniform_curvature)
    )
    described = [
        json.loads(json.dumps(describe(kind(**arguments | {field: function}))))
        for function in functions
    ]
    for function, plain in zip(functions, described, strict=True):
        assert plain[field] == {"function": f"{function.__module__}.{function.__name__}"}
    assert described[0] != described[1]


def test_fields_that_hold_functions_are_found():
    assert {(OneLayerTransformerConfig, "values"), (TiedAttentionConfig, "values")} < set(FUNCTIONS)
    assert {kind for kind, field in FUNCTIONS if field == "curvature"} == set(STEPPERS)


@named(MODELS)
@pytest.mark.parametrize("with_index", [False, True])
def test_a_model_gives_logits_and_attention(kind, with_index):
    config, task = small_model(kind)
    model, batch = built(kind)
    if with_index:
        members = config.prepare(task, jax.tree.map(lambda leaf: leaf[None], batch))
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), members)
    output = called(model, batch)
    examples = 4 if type(task) in EXACT else SIZE
    assert output.logits.shape[0] == output.attention.shape[0] == examples
    assert kind not in OUTPUTS or output.logits.shape[1:] == OUTPUTS[kind](task)
    assert np.all(np.isfinite(output.logits))
    assert np.ptp(output.logits) > 0
    assert np.all(output.attention >= 0)
    np.testing.assert_allclose(np.sum(output.attention, axis=-1), 1, rtol=1e-6)  # float32
    assert jax.tree.structure(model.trainable()) == jax.tree.structure(model)
    assert any(jax.tree.leaves(model.trainable()))


@named(MODELS)
def test_a_model_learns_from_its_loss_and_its_penalty_is_a_number(kind):
    model, batch = built(kind)
    loss = LOSS_OF.get(kind, cross_entropy)
    moving, still = eqx.partition(model, model.trainable())
    value, gradient = in_a_hurry(
        jax.value_and_grad(lambda part: loss(eqx.combine(part, still), batch))
    )(moving)
    leaves = jax.tree.leaves(gradient)
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves)
    assert any(np.any(leaf != 0) for leaf in leaves), "nothing is to be learned"
    assert jnp.shape(model.penalty()) == ()
    assert np.isfinite(model.penalty())


MASKS = ("mask", "source_mask")
"""Fields of batches that say what can be attended to."""


def mask_of(kind: type) -> str | None:
    """The field in which the batches of a model's task tell words from padding."""
    fields = {field.name for field in dataclasses.fields(shapes_of(small_model(kind)[1]))}
    return next((name for name in MASKS if name in fields), None)


@named([kind for kind in MODELS if mask_of(kind)])
def test_a_model_gives_padding_no_attention(kind):
    model, batch = built(kind)
    name = mask_of(kind) or ""
    known = getattr(batch, name)
    positions = (batch.words if name == "mask" else batch.source).shape[1]
    last = jnp.asarray(np.tile(np.arange(positions) < positions - 1, (SIZE, 1)))
    full = known is None or (name == "source_mask" and np.all(known))
    for mask in (last,) if full else (last, known):
        attention = np.asarray(called(model, dataclasses.replace(batch, **{name: mask})).attention)
        np.testing.assert_allclose(attention.sum(axis=-1), 1, rtol=1e-6)  # float32
        # An item of several words (a pair, of which there is one fewer) is padding where its last
        # word is.
        items = np.asarray(mask)[:, -attention.shape[-1] :]
        assert not items.all()
        assert np.all(np.moveaxis(attention, -1, 1)[~items] == 0)


# -- probes ----------------------------------------------------------------------------------------


PROBE_ARGUMENTS: dict[type, dict[str, Any]] = {
    Distributions: {"score_edges": (-1.0, 0.0, 1.0, 2.0), "norm_edges": (0.0, 0.1, 1.0)},
    topic_blocks.PairAttention: {"documents": 4, "positions": 5},
}


WHOLE_NUMBERS = (translation.PairWords,)
"""Probes that record ids."""


def no_word(batch: SentencePairs) -> Any:
    """Where there is no target word, or nothing that it could come from."""
    return ~(translation.word_places(batch)[..., None] & batch.source_mask[:, None])


GAPS: dict[type, Any] = {translation.PositionTables: no_word}
"""Probes that record tables of single examples, and where these have nothing to tell: NaN there,
and nowhere else.
"""


def small_probe(kind: type) -> Any:
    return kind(**PROBE_ARGUMENTS.get(kind, {}))


def models_of(kind: type) -> tuple[type, ...]:
    return MODELS_OF.get(kind, (AttentionClassifierConfig,))


FITTING = [(probe, model) for probe in PROBES for model in models_of(probe)]


@functools.cache
def moment_parts(kind: type) -> tuple[Any, ...]:
    config, task = small_model(kind)
    model, batch = built(kind)
    return (
        task,
        model,
        batch,
        batch,
        LOSS_OF.get(kind, cross_entropy),
        functools.partial(config.build, task, jax.random.key(0)),
    )


@functools.cache
def measured(kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """What every probe that fits a model gives, by its name, measured twice."""
    task, model, *rest = moment_parts(kind)
    probes = [small_probe(probe) for probe, fits in FITTING if fits is kind]
    measure = in_a_hurry(
        lambda model: {type(probe).__name__: probe(Moment(task, model, *rest)) for probe in probes}
    )
    return measure(model), measure(model)


@pytest.mark.parametrize(("kind", "model"), FITTING, ids=lambda kind: kind.__name__)
def test_a_probe_measures_what_it_declares_and_nothing_else(kind, model):
    first, second = (values[kind.__name__] for values in measured(model))
    assert set(first) == set(kind.variables)
    probe = small_probe(kind)
    task, _, batch, *_ = moment_parts(model)
    coordinates = {dim: len(values) for dim, values in probe.coordinates(task).values()}
    if isinstance(
        batch, SentencePairs
    ):  # the dims of a batch need no coordinates: places are counted
        coordinates = (
            dict(zip(("pair", "source"), batch.source.shape, strict=True))
            | {"target": batch.target.shape[1]}
            | coordinates
        )
    gaps = GAPS[kind](batch) if kind in GAPS else False
    for name, variable in kind.variables.items():
        assert len(variable.description) > 5
        assert variable.description == variable.description.strip()
        assert first[name].shape == tuple(coordinates[dim] for dim in variable.dims), name
        assert np.array_equal(first[name], second[name], equal_nan=kind in GAPS), (
            f"{name} is not a pure function of the moment"
        )
        assert jnp.issubdtype(
            first[name].dtype, jnp.integer if kind in WHOLE_NUMBERS else jnp.floating
        )
        assert np.array_equal(
            np.isfinite(first[name]), np.broadcast_to(~np.asarray(gaps), first[name].shape)
        ), name
    json.dumps(describe(probe))


ALIKE = {"test_accuracy": {performance.Accuracy, translation.TokenAccuracy}}
"""Names of what several probes measure, each on its own kind of examples: no training could have
two of them.
"""


def test_no_two_probes_call_different_things_by_one_name():
    owners: dict[str, set[type]] = {}
    for kind in PROBES:
        for name in kind.variables:
            owners.setdefault(name, set()).add(kind)
    assert {name: kinds for name, kinds in owners.items() if len(kinds) > 1} == ALIKE
    for name, kinds in ALIKE.items():
        fits = [model for kind in kinds for model in models_of(kind)]
        assert len(set(fits)) == len(fits), f"one training could have two kinds of {name}"
        assert len({kind.variables[name].dims for kind in kinds}) == 1
    assert not set(owners) & set(ALWAYS)


# -- theories --------------------------------------------------------------------------------------


@named(THEORIES)
def test_a_theory_states_itself_and_predicts_what_probes_measure(kind):
    assert kind.statement
    places = (
        r"Lu 2021, (theorem|lemma|corollary) \d|Li 2023, (stage|main result) \d|Song 2024,"
        r" theorem \d"
    )
    assert re.search(places, kind.source)
    measured = {name for probe in PROBES for name in probe.variables} | set(ALWAYS)
    assert kind.predicts
    assert set(kind.predicts) <= measured
    assert kind.__doc__


@pytest.mark.parametrize(
    "module", modules("theory"), ids=lambda module: module.__name__.removeprefix("saccade.theory.")
)
def test_a_theory_is_told_with_its_limits(module):
    """Whether it predicts what probes measure, or is functions alone."""
    for part in ("Statement.", "Limits."):
        assert part in (module.__doc__ or ""), f"the module's docstring lacks its {part}"


# -- studies ---------------------------------------------------------------------------------------


each_study = pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)


@each_study
def test_a_study_is_whole(study):
    module = importlib.import_module(f"saccade.studies.{study.name}")
    assert Path(module.__file__ or "").stem == study.name
    assert module.STUDY is study
    assert {"quick", "paper"} <= set(study.presets)
    assert study.title
    if module.__name__ in ACROSS:
        assert in_short(module.__doc__) == in_short(study.paper), "the docstring names other papers"
    else:
        (paper,) = (name for name, pattern in PAPERS.items() if re.search(pattern, study.paper))
        assert re.search(PAPERS[paper], module.__doc__ or ""), "the docstring names another paper"
    assert study.precision in ("float32", "float64")
    helped(module.Config)
    for preset in study.presets.values():
        assert isinstance(preset, module.Config)
        assert (
            json.loads(json.dumps(describe(preset)))["class"]
            == f"saccade.studies.{study.name}.Config"
        )


NOT_DRAWN = {"counter_example"}
"""Arms of studies without any randomness: one number is all there is."""


@each_study
def test_a_study_claims_with_source_bounds_and_reasons(study):
    assert study.claims
    for claim in study.claims:
        letters = "E" if f"saccade.studies.{study.name}" in ACROSS else "A-D"
        assert re.fullmatch(rf"[{letters}]-\d+[a-z]?", claim.id)
        for text in (claim.statement, claim.source, claim.tolerance, claim.paper, claim.prediction):
            assert text.strip(), claim.id
        assert re.search("|".join((*PAPERS, "^derived", "^beyond")), claim.source), claim.id
        assert claim.expected == "holds" or len(claim.reason) > 20
        assert claim.checks
        for check in claim.checks:
            assert check.quantity
            assert check.seeds >= (1 if set(check.arms) <= NOT_DRAWN else 3), claim.id
            assert check.arms, (
                f"{claim.id}: {check.quantity} names no arm, so that a diverged seed would count"
            )
        assert len({check.quantity for check in claim.checks}) == len(claim.checks)


@each_study
def test_a_study_tells_where_it_differs_from_paper_and_code(study):
    assert study.divergences
    for divergence in study.divergences:
        assert all(
            getattr(divergence, field.name).strip() for field in dataclasses.fields(divergence)
        )


@each_study
def test_quick_asks_for_enough_seeds_to_judge(study):
    quick = study.config("quick")
    for claim in study.claims:
        if claim.full_size is not None and not claim.full_size[0](dataclasses.asdict(quick)):
            continue  # it says that it needs more than this preset
        assert max(check.seeds for check in claim.checks) <= quick.seeds, claim.id


@pytest.mark.parametrize(
    ("letter", "last", "paper"),
    [("A", 14, "Lu 2021"), ("B", 12, "Li 2023"), ("C", 11, "Snell 2021"), ("D", 8, "Song 2024")],
)
def test_every_claim_of_a_paper_is_there_once(letter, last, paper):
    ids = [claim.id for study in STUDIES for claim in study.claims]
    assert len(set(ids)) == len(ids)
    assert {f"{letter}-{number}" for number in range(1, last + 1)} <= set(ids)
    owners = {
        study.paper
        for study in STUDIES
        for claim in study.claims
        if claim.id.startswith(f"{letter}-")
    }
    assert len(owners) == 1, "claims of one letter are about one paper"
    assert re.search(PAPERS[paper], owners.pop())
