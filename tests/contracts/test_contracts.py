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

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.core.engine import cross_entropy
from saccade.core.interfaces import AbstractModelConfig, AbstractProbe, AbstractTask, AbstractTheory, Batch, Moment
from saccade.core.lab import ALWAYS, describe
from saccade.core.study import find_study, study_names
from saccade.core.sweep import Swept, sweepable, with_sweep
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.convolutional_classifier import ConvolutionalClassifierConfig
from saccade.probes.topic_words import Distributions
from saccade.tasks.markov_pairs import MarkovPairs
from saccade.tasks.topic_sentences import TopicSentences


def found(package: str, base: type) -> list[type]:
    """Every final class of a kind that a file of the package defines."""
    folder = importlib.import_module(f"saccade.{package}")
    kinds = []
    for module in pkgutil.iter_modules(folder.__path__, f"saccade.{package}."):
        members = vars(importlib.import_module(module.name)).values()
        kinds += [
            kind for kind in members
            if inspect.isclass(kind) and issubclass(kind, base) and kind.__module__ == module.name
            and not kind.__name__.startswith("Abstract")
        ]  # fmt: skip
    return kinds


def modules(*packages: str) -> list[Any]:
    names = [
        module.name
        for package in packages
        for module in pkgutil.iter_modules(importlib.import_module(f"saccade.{package}").__path__, f"saccade.{package}.")
    ]
    return [importlib.import_module(name) for name in names]


TASKS = found("tasks", AbstractTask)
MODELS = found("models", AbstractModelConfig)
PROBES = found("probes", AbstractProbe)
THEORIES = found("theory", AbstractTheory)
STUDIES = [find_study(name) for name in study_names()]

SMALL: dict[type, dict[str, Any]] = {
    TopicSentences: {"topics": 2, "words_per_topic": 2, "filler_size": 3, "dictionary_size": 6, "train_size": 16, "test_size": 5},
    MarkovPairs: {"dictionary_size": 9, "sentence_size": 4, "train_size": 16, "test_size": 5},
}
"""Sizes for which a test is quick; a task without an entry is tested as it comes."""

TASK_OF: dict[type, type] = {AttentionClassifierConfig: TopicSentences, ConvolutionalClassifierConfig: MarkovPairs}
"""The task that a model is meant for; without an entry, the first."""


def small_task(kind: type) -> Any:
    return kind(**SMALL.get(kind, {}))


def small_model(kind: type) -> tuple[Any, Any]:
    return kind(), small_task(TASK_OF.get(kind, TopicSentences))


def in_a_hurry(function: Any) -> Any:
    """Compiled without optimisation: what runs once or twice is done sooner."""
    hurry = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    return jax.jit(function, compiler_options=hurry)  # pyright: ignore[reportArgumentType]


@functools.cache
def built(kind: type) -> tuple[Any, Batch]:
    """A model of that kind and some sentences for it."""
    config, task = small_model(kind)
    return in_a_hurry(lambda key: (config.build(task, key), task.sample(key, 6)))(jax.random.key(0))


called = in_a_hurry(lambda model, batch: model(batch))


def named(kinds: list[type]) -> Any:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.__name__)


def helped(kind: type) -> None:
    """Every field of a config is followed by a string that says what it is."""
    tree = ast.parse(inspect.cleandoc(inspect.getsource(kind)))
    body = tree.body[0].body  # pyright: ignore[reportAttributeAccessIssue]
    fields = {field.name for field in dataclasses.fields(kind)}
    for place, node in enumerate(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id in fields:
            following = body[place + 1] if place + 1 < len(body) else None
            told = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
            assert told, f"{kind.__name__}.{node.target.id} has no help"
            text = following.value.value  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue]
            assert isinstance(text, str)
            assert text.endswith("."), text


def test_something_of_every_kind_is_found():
    assert all([TASKS, MODELS, PROBES, THEORIES, STUDIES])


@pytest.mark.parametrize(
    "module", modules("tasks", "models", "probes", "theory", "studies"), ids=lambda module: module.__name__.removeprefix("saccade.")
)
def test_a_module_says_what_it_is(module):
    assert module.__doc__
    assert len(module.__doc__.strip().splitlines()[0]) > 20
    if module.__name__.startswith(("saccade.theory.", "saccade.studies.", "saccade.tasks.")):
        assert re.search(r"Lu, Mao & Nayak \(?2021", module.__doc__), "the docstring names no paper"


# -- tasks ----------------------------------------------------------------------------------------------------------


@named(TASKS)
def test_a_task_is_a_frozen_config_with_help(kind):
    with pytest.raises(dataclasses.FrozenInstanceError):
        small_task(kind).train_size = 3
    helped(kind)
    assert re.search(r"^ {4}\[", importlib.import_module(kind.__module__).__doc__ or "", re.MULTILINE), "no example is drawn"


@named(TASKS)
def test_a_task_draws_what_its_key_says(kind):
    task = small_task(kind)
    draw = in_a_hurry(lambda key: task.sample(key, task.train_size))
    batch, again, other = (draw(jax.random.key(seed)) for seed in (0, 0, 1))
    assert batch.words.shape[0] == batch.labels.shape[0] == task.train_size
    assert batch.words.dtype == batch.labels.dtype == jnp.int32
    assert batch.words.min() >= 0
    assert batch.words.max() < task.vocabulary_size
    assert batch.labels.min() >= 0
    assert batch.labels.max() < task.labels
    assert batch.mask is None or batch.mask.shape == batch.words.shape
    assert np.array_equal(batch.words, again.words)
    assert np.array_equal(batch.labels, again.labels)
    assert not np.array_equal(batch.words, other.words)
    assert len(task.topic_of_item) == len(task.topic_items)
    assert set(task.topic_of_item) == set(range(task.labels))


@named(TASKS)
def test_a_task_describes_itself_and_its_floats_can_be_swept(kind):
    task = small_task(kind)
    assert json.loads(json.dumps(describe(task)))["class"].endswith(kind.__name__)
    floats = [name for name, hint in get_type_hints(kind).items() if hint is float]
    assert sweepable(task) == floats
    for name in floats:
        assert isinstance(getattr(with_sweep(task, name, [getattr(task, name)]), name), Swept)


# -- models ---------------------------------------------------------------------------------------------------------


@named(MODELS)
def test_a_model_config_is_frozen_with_help_and_its_floats_can_be_swept(kind):
    config, _ = small_model(kind)
    field = dataclasses.fields(config)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, field, None)
    helped(kind)
    json.dumps(describe(config))
    assert sweepable(config) == [name for name, hint in get_type_hints(kind).items() if hint is float]


@named(MODELS)
@pytest.mark.parametrize("with_index", [False, True])
def test_a_model_gives_logits_and_attention(kind, with_index):
    config, task = small_model(kind)
    model, batch = built(kind)
    if with_index:
        members = config.prepare(task, jax.tree.map(lambda leaf: leaf[None], batch))
        batch = jax.tree.map(lambda leaf: jnp.asarray(leaf[0]), members)
    output = called(model, batch)
    assert output.logits.shape == (6, task.labels)
    assert np.all(np.isfinite(output.logits))
    np.testing.assert_allclose(np.sum(output.attention, axis=1), 1, rtol=1e-6)  # float32
    assert jax.tree.structure(model.trainable()) == jax.tree.structure(model)
    assert any(jax.tree.leaves(model.trainable()))


@named(MODELS)
def test_a_model_gives_padding_no_attention(kind):
    model, batch = built(kind)
    positions = batch.words.shape[1]
    mask = jnp.asarray(np.tile(np.arange(positions) < positions - 1, (6, 1)))
    attention = np.asarray(called(model, Batch(batch.words, batch.labels, mask)).attention)
    np.testing.assert_allclose(attention.sum(axis=1), 1, rtol=1e-6)  # float32
    assert np.all(attention[:, -1] == 0)


# -- probes ---------------------------------------------------------------------------------------------------------


@functools.cache
def arguments(kind: type) -> dict[str, Any]:
    return {"score_edges": (-1.0, 0.0, 1.0, 2.0), "norm_edges": (0.0, 0.1, 1.0)} if kind is Distributions else {}


@functools.cache
def moment_parts() -> tuple[Any, ...]:
    config, task = small_model(AttentionClassifierConfig)
    model, batch = built(AttentionClassifierConfig)
    return task, model, batch, batch, cross_entropy, functools.partial(config.build, task, jax.random.key(0))


@functools.cache
def measured() -> tuple[dict[str, Any], dict[str, Any]]:
    """What every probe gives, by its name, measured twice."""
    task, model, *rest = moment_parts()
    probes = [kind(**arguments(kind)) for kind in PROBES]
    measure = in_a_hurry(lambda model: {type(probe).__name__: probe(Moment(task, model, *rest)) for probe in probes})
    return measure(model), measure(model)


@named(PROBES)
def test_a_probe_measures_what_it_declares_and_nothing_else(kind):
    first, second = (values[kind.__name__] for values in measured())
    assert set(first) == set(kind.variables)
    probe = kind(**arguments(kind))
    coordinates = {dim: len(values) for dim, values in probe.coordinates(moment_parts()[0]).values()}
    for name, variable in kind.variables.items():
        assert len(variable.description) > 5
        assert variable.description == variable.description.strip()
        assert first[name].shape == tuple(coordinates[dim] for dim in variable.dims), name
        assert np.array_equal(first[name], second[name]), f"{name} is not a pure function of the moment"
        assert jnp.issubdtype(first[name].dtype, jnp.floating)
    json.dumps(describe(probe))


def test_no_two_probes_call_different_things_by_one_name():
    names = [name for kind in PROBES for name in kind.variables]
    assert len(set(names)) == len(names)
    assert not set(names) & set(ALWAYS)


# -- theories -------------------------------------------------------------------------------------------------------


@named(THEORIES)
def test_a_theory_states_itself_and_predicts_what_probes_measure(kind):
    assert kind.statement
    assert re.search(r"Lu 2021, (theorem|lemma|corollary) \d", kind.source)
    measured = {name for probe in PROBES for name in probe.variables} | set(ALWAYS)
    assert kind.predicts
    assert set(kind.predicts) <= measured
    assert kind.__doc__
    module = importlib.import_module(kind.__module__)
    for part in ("Statement.", "Limits."):
        assert part in (module.__doc__ or ""), f"the module's docstring lacks its {part}"


# -- studies --------------------------------------------------------------------------------------------------------


each_study = pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)


@each_study
def test_a_study_is_whole(study):
    module = importlib.import_module(f"saccade.studies.{study.name}")
    assert Path(module.__file__ or "").stem == study.name
    assert module.STUDY is study
    assert {"quick", "paper"} <= set(study.presets)
    assert study.title
    assert re.search(r"\d{4}", study.paper)
    helped(module.Config)
    for preset in study.presets.values():
        assert isinstance(preset, module.Config)
        assert json.loads(json.dumps(describe(preset)))["class"] == f"saccade.studies.{study.name}.Config"


@each_study
def test_a_study_claims_with_source_bounds_and_reasons(study):
    assert study.claims
    for claim in study.claims:
        assert re.fullmatch(r"[A-D]-\d+[a-z]?", claim.id)
        for text in (claim.statement, claim.source, claim.tolerance, claim.paper, claim.prediction):
            assert text.strip(), claim.id
        assert claim.expected == "holds" or len(claim.reason) > 20
        assert claim.checks
        for check in claim.checks:
            assert check.quantity
            assert check.seeds >= 3
            assert check.arms, f"{claim.id}: {check.quantity} names no arm, so that a diverged seed would count"
        assert len({check.quantity for check in claim.checks}) == len(claim.checks)


@each_study
def test_a_study_tells_where_it_differs_from_paper_and_code(study):
    assert study.divergences
    for divergence in study.divergences:
        assert all(getattr(divergence, field.name).strip() for field in dataclasses.fields(divergence))


@each_study
def test_quick_asks_for_enough_seeds_to_judge(study):
    for claim in study.claims:
        assert max(check.seeds for check in claim.checks) <= study.config("quick").seeds, claim.id


def test_every_claim_of_the_paper_is_there_once():
    ids = [claim.id for study in STUDIES for claim in study.claims]
    assert len(set(ids)) == len(ids)
    assert {f"A-{number}" for number in range(1, 15)} <= set(ids)
