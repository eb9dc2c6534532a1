"""What every task, model, probe, theory and study must be, as functions that take one of them.

Examples come from the classes themselves (`example()`). A check knows no class by name, so it
applies to a file outside the package as well as to one within it.
"""

import ast
import dataclasses
import functools
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Any, get_type_hints

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.model import AbstractModel, AbstractModelConfig, AttentionLayer
from saccade.contracts.probe import AbstractProbe, Moment
from saccade.contracts.task import (
    END,
    FIRST_WORD,
    SPLITS,
    START,
    AbstractBatch,
    AbstractCorpus,
    AbstractTask,
    SentencePairs,
)
from saccade.contracts.theory import AbstractTheory
from saccade.core.study import Study
from saccade.errors import ConfigError
from saccade.judging.bound import AbstractBound
from saccade.judging.claim import Claim
from saccade.judging.statistics import AbstractStatistic
from saccade.records.config import describe, typed
from saccade.settings import Swept, sweepable, with_sweep
from saccade.train.checks import ALWAYS, OUTER_DIMS
from saccade.train.program import Program, compiler_options

SIZE = 6
"""Examples that a model is called on."""
MASKS = {"mask": "words", "source_mask": "source"}
"""Fields of batches that say what can be attended to, and the words that they belong to."""
ODD = re.compile(r"\binside of\b|\bnought\b|\ba seed-step\b|\bone (?:number|line|run|corpus) a\b")
"""Phrases that technical English does not have."""
OWN_WORK = ("derived", "beyond", "ours")
"""How the source of a claim begins that no paper makes."""


def classes_in(module: ModuleType, base: type) -> list[type]:
    """Every final class of a kind that a module defines."""
    kinds = (kind for kind in vars(module).values() if inspect.isclass(kind))
    own = (kind for kind in kinds if issubclass(kind, base) and kind.__module__ == module.__name__)
    return [kind for kind in own if not kind.__name__.startswith("Abstract")]


def papers(text: str) -> set[tuple[str, str]]:
    """First author and year of every paper that a source names."""
    names = r"(?:,?\s+(?:&\s+|and\s+)?[A-Z][a-z]+)*(?:\s+et\s+al\.)?"
    return set(re.findall(rf"\b([A-Z][a-z]+){names},?\s+\(?(1\d{{3}}|20\d\d)\b", text))


# -- texts -----------------------------------------------------------------------------------------


def check_module(module: ModuleType) -> None:
    """A module says in its docstring what it is."""
    text = (module.__doc__ or "").strip()
    assert len(text.partition("\n")[0]) > 20, f"{module.__name__} does not say what it is"
    check_language(text)


def check_language(*texts: str) -> None:
    for text in texts:
        odd = ODD.search(" ".join(text.split()))
        assert odd is None, f"{odd and odd[0]!r} in {text!r}"


@functools.cache
def helps(kind: type) -> dict[str, str]:
    """Every field of a config, inherited ones included, with the string that follows it."""
    found: dict[str, str] = {}
    for base in kind.__mro__:
        if not vars(base).get("__annotations__"):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # pyright: ignore[reportAttributeAccessIssue]
        for node, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                said = getattr(after.value, "value", "") if isinstance(after, ast.Expr) else ""
                found.setdefault(node.target.id, said if isinstance(said, str) else "")
    return {field.name: found[field.name] for field in dataclasses.fields(kind)}


def check_config(config: Any) -> None:
    """A frozen dataclass with help for every field, which describes itself."""
    kind = type(config)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, dataclasses.fields(config)[0].name, None)
    for field, text in helps(kind).items():
        assert text.strip().endswith((".", ".)")), f"{kind.__name__}.{field} has no help: {text!r}"
        check_language(text)
        nested = getattr(config, field)
        if dataclasses.is_dataclass(nested) and not isinstance(
            nested, type | Swept | AbstractBatch
        ):
            check_config(nested)
    plain = json.loads(json.dumps(describe(config)))
    assert plain["class"] == f"{kind.__module__}.{kind.__qualname__}"
    assert [path for path in sweepable(config) if _is_float(config, path)] == list(_floats(kind))


def check_sweeps(config: Any) -> None:
    """Every float of a task or a model can be swept."""
    for path in _floats(type(config)):
        value = functools.reduce(getattr, path.split("."), config)
        swept = with_sweep(config, path, [value])
        assert isinstance(functools.reduce(getattr, path.split("."), swept), Swept)


def _is_float(config: Any, path: str) -> bool:
    return isinstance(functools.reduce(getattr, path.split("."), config), float)


def _floats(kind: type, prefix: str = "") -> Iterator[str]:
    """Dotted paths of the fields that are declared as floats, in order."""
    hints = get_type_hints(kind)
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        if hint is float:
            yield prefix + field.name
        elif dataclasses.is_dataclass(hint) and isinstance(hint, type):
            yield from _floats(hint, f"{prefix}{field.name}.")


def function_fields(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind) if "Callable" in str(field.type)]


def check_functions(config: Any) -> None:
    """A record says which function a config held."""
    for field in function_fields(type(config)):
        for function in (check_language, check_functions):  # any two will do
            plain = describe(dataclasses.replace(config, **{field: function}))
            assert plain[field] == f"{function.__module__}.{function.__name__}"


# -- tasks -----------------------------------------------------------------------------------------


def check_task(kind: type[AbstractTask]) -> None:
    """A frozen config that draws independent examples from a key, or exact expectations; or one of
    a corpus.
    """
    module = sys.modules[kind.__module__]
    check_module(module)
    drawn_example = re.search(r"^ {4}\[", module.__doc__ or "", re.MULTILINE)
    assert drawn_example, f"{module.__name__} draws no example"
    task = kind.example()
    assert type(task) is kind
    check_config(task)
    if isinstance(task, AbstractCorpus):
        _check_corpus(task)
        return
    check_sweeps(task)
    batch = _check_draws(task)
    _check_examples(batch)
    if isinstance(batch, SentencePairs):
        _check_sentences(task, batch)
        _check_alignment(batch)
    elif hasattr(batch, "words"):
        _check_words(task, batch)
    if hasattr(task, "topic_of_id"):
        _check_topics(task)


def _check_draws(task: Any) -> Any:
    draw = _in_a_hurry(lambda key: task.sample(key, task.train_size))
    batch, again, other = (draw(jax.random.key(seed)) for seed in (0, 0, 1))
    assert isinstance(batch, AbstractBatch)
    assert _same(batch, again)
    assert _sizes(batch) == {task.train_size}, "the examples do not come first"
    few = jax.eval_shape(lambda key: task.sample(key, 3), jax.random.key(0))
    if _sizes(few) == {3} != {task.train_size}:
        assert not _same(batch, other), "another key gives the same examples"
    else:  # exact expectations: the same rows whatever the key and the size
        assert _sizes(few) == {task.train_size} == {task.test_size}
        assert _same(batch, other)
    _check_leaves(batch)
    return batch


def _check_corpus(task: AbstractCorpus) -> None:
    """Examples that exist already: always the same, and alike in all splits."""
    splits, again = task.splits, type(task).example().splits
    assert "train" in splits, "no examples to train on"
    assert set(splits) <= set(SPLITS)
    assert splits.keys() == again.keys()
    for split in SPLITS:
        assert getattr(task, f"{split}_size") == (splits[split].size if split in splits else 0)
    train = splits["train"]
    for split, batch in splits.items():
        assert isinstance(batch, AbstractBatch)
        assert _same(batch, again[split]), "the examples are not always the same"
        assert _sizes(batch) == {batch.size}, "the examples do not come first"
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(batch)), "not NumPy"
        assert jax.tree.structure(batch) == jax.tree.structure(train), "splits are not alike"
        assert _rows(batch) == _rows(train), "splits are not alike"
        _check_leaves(batch)
        _check_examples(batch)
        if hasattr(batch, "words"):
            _check_words(task, batch)
        if isinstance(batch, SentencePairs):
            _check_sentences(task, batch)
        if getattr(batch, "mask", None) is not None:
            assert np.all(np.any(batch.mask, axis=1)), "an example has no word"  # pyright: ignore[reportAttributeAccessIssue]
    for path in sweepable(task):  # members share the corpus
        with pytest.raises(ConfigError, match=r"cannot be swept|used as one number"):
            _ = with_sweep(task, path, [functools.reduce(getattr, path.split("."), task)]).splits
    with pytest.raises(ConfigError, match="a corpus has no new examples"):
        task.sample(jax.random.key(0), 3)


def _rows(batch: Any) -> list[tuple[Any, Any]]:
    """Shape and type of one example."""
    return [(leaf.shape[1:], leaf.dtype) for leaf in jax.tree.leaves(batch)]


def _check_leaves(batch: Any) -> None:
    leaves = jax.tree.leaves(batch)
    assert {str(leaf.dtype) for leaf in leaves} <= {"int32", "float32", "bool"}
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves)


def _check_examples(batch: Any) -> None:
    chosen = batch.examples(jnp.asarray([2, 0]))
    assert type(chosen) is type(batch)
    assert _same(chosen, jax.tree.map(lambda leaf: leaf[np.asarray([2, 0])], batch))


def _check_words(task: Any, batch: Any) -> None:
    assert batch.words.dtype == batch.labels.dtype == jnp.int32
    assert batch.mask is None or batch.mask.shape == batch.words.shape
    assert batch.words.min() >= 0
    assert batch.words.max() < task.vocabulary_size
    assert batch.labels.min() >= 0
    if batch.labels.ndim == 1:  # one label per sentence
        assert batch.labels.max() < task.labels
    else:  # one label per position
        assert batch.labels.shape == batch.words.shape
        assert batch.labels.max() < task.vocabulary_size
    if hasattr(task, "topic_items"):
        assert len(task.topic_of_item) == len(task.topic_items)
        assert set(task.topic_of_item) == set(range(task.labels))
    if hasattr(batch, "selected"):
        unchanged = batch.words[~batch.selected] == batch.labels[~batch.selected]
        assert np.all(unchanged), "only selected words are changed"
        assert batch.mask is None or not np.any(batch.selected & ~batch.mask), "padding is selected"


def _check_topics(task: Any) -> None:
    assert len(task.topic_of_id) == task.vocabulary_size
    assert task.topic_of_id[task.hidden_id] == -1
    assert set(task.topic_of_id) == {-1, *range(task.topics)}


def _check_sentences(task: Any, batch: SentencePairs) -> None:
    """Sentences and their translations, each with its end and then padding."""
    used = np.flatnonzero(getattr(task, "used_ids", np.ones(task.vocabulary_size, bool)))
    for words, mask in ((batch.source, batch.source_mask), (batch.target, batch.target_mask)):
        assert words.dtype == jnp.int32
        assert words.shape == mask.shape
        words, mask, many = np.asarray(words), np.asarray(mask), np.sum(mask, axis=1)
        places = np.arange(words.shape[1])
        last = places == many[:, None] - 1
        assert np.isin(words, used).all()
        assert np.all(words[:, 0] >= FIRST_WORD), "a sentence has no word"
        assert not np.any(words == START), "a decoder's first input is no word"
        assert np.array_equal(mask, places < many[:, None]), "padding does not come last"
        assert np.array_equal((words == END) & mask, last), "a sentence does not end once"
        assert np.all(words[~mask] == END)


def _check_alignment(batch: SentencePairs) -> None:
    """Every target word comes from a source word of its pair, every source word from one target
    word, and the end from the end.
    """
    assert batch.aligned is not None, "the generator does not know the alignment"
    assert batch.aligned.dtype == jnp.int32
    assert batch.aligned.shape == batch.target.shape
    places = np.arange(batch.source.shape[1])
    order = np.where(batch.target_mask, batch.aligned, places)
    assert np.array_equal(np.sort(order, axis=1), np.tile(places, (len(order), 1)))
    come_from = np.take_along_axis(np.asarray(batch.source), np.asarray(batch.aligned), axis=1)
    assert np.array_equal(come_from == END, np.asarray(batch.target) == END)
    pairs = set(zip(come_from.ravel().tolist(), np.ravel(batch.target).tolist(), strict=True))
    sides = ({side for side, _ in pairs}, {side for _, side in pairs})
    assert {len(side) for side in sides} == {len(pairs)}, "a word has more than one translation"


def _sizes(batch: Any) -> set[int]:
    """First sizes of all arrays of a batch."""
    return {leaf.shape[0] for leaf in jax.tree.leaves(batch)}


def _same(first: Any, second: Any) -> bool:
    leaves = zip(*map(jax.tree.leaves, (first, second)), strict=True)
    return all(np.array_equal(*pair) for pair in leaves)


def _in_a_hurry(function: Any) -> Any:
    """Compiled without optimisation, because it runs once or twice."""
    options = compiler_options(once=True) if jax.default_backend() == "cpu" else None
    return jax.jit(function, compiler_options=options)  # pyright: ignore[reportArgumentType]


# -- models ----------------------------------------------------------------------------------------


@functools.cache
def _built(config: Any, task: Any) -> tuple[Any, Any]:
    """A model and some examples for it."""

    def build(key: Any) -> tuple[Any, Any]:
        return config.build(task, key), task.sample(key, SIZE)

    return _in_a_hurry(build)(jax.random.key(0))


_called = _in_a_hurry(lambda model, batch: model(batch))


def check_model(kind: type[AbstractModelConfig]) -> None:
    """A frozen config of a model that gives logits and attention, and learns from its loss."""
    check_module(sys.modules[kind.__module__])
    config, task = kind.example()
    assert type(config) is kind
    assert isinstance(task, AbstractTask)
    check_config(config)
    check_sweeps(config)
    check_functions(config)
    model, batch = _built(config, task)
    assert isinstance(model, AbstractModel)
    output = _called(model, batch)
    _check_output(task, batch, output)
    if kind.prepare is not AbstractModelConfig.prepare:
        members = config.prepare(task, jax.tree.map(lambda leaf: leaf[None], batch))
        prepared = jax.tree.map(lambda leaf: jax.device_put(leaf[0]), members)
        _check_output(task, batch, _called(model, prepared))
    if output.attention is None:
        _check_layers(model, batch)
    else:
        _check_padding(model, batch)
    _check_learning(model, batch)


def _check_output(task: Any, batch: Any, output: Any) -> None:
    assert {len(output.logits)} == _sizes(batch)
    names = (name for name in ("labels", "target", "targets") if hasattr(batch, name))
    if name := next(names, ""):
        targets = getattr(batch, name)
        if jnp.issubdtype(targets.dtype, jnp.integer):  # a class, or one per position
            classes = task.labels if targets.ndim == 1 else task.vocabulary_size
            assert output.logits.shape == (*targets.shape, classes)
        elif name == "targets":  # a regression
            assert output.logits.shape == targets.shape
    assert np.all(np.isfinite(output.logits))
    assert np.ptp(output.logits) > 0, "the logits are constant"
    if output.attention is None:  # given by layer
        return
    assert {len(output.attention)} == _sizes(batch)
    assert np.all(output.attention >= 0)
    np.testing.assert_allclose(np.sum(output.attention, axis=-1), 1, rtol=1e-6)  # float32


def _check_padding(model: Any, batch: Any) -> None:
    """Padding gets no attention."""
    name = next((name for name in MASKS if hasattr(batch, name)), None)
    if name is None:
        return
    known, (size, positions) = getattr(batch, name), getattr(batch, MASKS[name]).shape
    without_last = jnp.asarray(np.tile(np.arange(positions) < positions - 1, (size, 1)))
    for mask in (without_last, *(() if known is None or np.all(known) else (known,))):
        attention = np.asarray(_called(model, dataclasses.replace(batch, **{name: mask})).attention)
        np.testing.assert_allclose(attention.sum(axis=-1), 1, rtol=1e-6)  # float32
        # An item of several words (a pair, of which there is one fewer) is padding where its last
        # word is.
        items = np.asarray(mask)[:, -attention.shape[-1] :]
        assert not items.all()
        assert np.all(np.moveaxis(attention, -1, 1)[~items] == 0), "padding gets attention"


def _check_layers(model: Any, batch: Any) -> None:
    """Attention is given by layer, and the words at padding change nothing elsewhere."""
    size, positions = batch.words.shape
    mask = np.tile(np.arange(positions) < positions - 1, (size, 1))
    mask = mask if batch.mask is None else mask & np.asarray(batch.mask)
    other = jnp.where(mask, batch.words, jnp.where(batch.words == 0, 1, 0))
    there = jnp.asarray(mask)
    padded = [dataclasses.replace(batch, words=words, mask=there) for words in (batch.words, other)]
    found = [np.asarray(_called(model, one).logits) for one in padded]
    found = [one[mask] if one.shape[:2] == mask.shape else one for one in found]
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)  # float32
    layers = _in_a_hurry(lambda model, batch: model.attention_layers(batch))(model, padded[0])
    assert layers, "no attention"
    for layer in layers:
        assert isinstance(layer, AttentionLayer)
        assert {len(layer.queries), len(layer.keys)} == {size}
        assert layer.mask is not None, "padding may be attended to"
        assert np.array_equal(layer.mask, mask)


def _check_learning(model: Any, batch: Any) -> None:
    trainable = model.trainable()
    assert jax.tree.structure(trainable) == jax.tree.structure(model)
    assert any(jax.tree.leaves(trainable)), "nothing learns"
    moving, still = eqx.partition(model, trainable)

    def loss(part: Any) -> Any:
        return eqx.combine(part, still).loss(batch)

    value, gradient = _in_a_hurry(jax.value_and_grad(loss))(moving)
    leaves = jax.tree.leaves(gradient)
    assert value.shape == ()
    assert np.isfinite(value)
    assert all(np.all(np.isfinite(leaf)) for leaf in leaves)
    assert any(np.any(leaf != 0) for leaf in leaves), "the loss has no gradient"
    assert jnp.shape(model.penalty()) == ()
    assert np.isfinite(model.penalty())


# -- probes ----------------------------------------------------------------------------------------


def check_probe(kind: type[AbstractProbe]) -> None:
    """A pure function of a moment that measures what it declares, and nothing else."""
    check_module(sys.modules[kind.__module__])
    probe, cases = kind.example()
    assert type(probe) is kind
    assert cases, "no model that the probe fits"
    assert not set(probe.variables) & {*ALWAYS, *OUTER_DIMS}, "the record needs these names"
    for variable in probe.variables.values():
        assert len(variable.long_name) > 5
        assert variable.long_name == variable.long_name.strip()
        assert variable.units
        check_language(variable.long_name)
    json.dumps(describe(probe))
    for config, task in cases:
        _check_measured(probe, config, task, twice=(config, task) == cases[0])


def _check_measured(probe: AbstractProbe, config: Any, task: Any, twice: bool) -> None:
    model, batch = _built(config, task)
    build = functools.partial(config.build, task, jax.random.key(0))

    def loss(model: Any, batch: Any) -> Any:
        return model.loss(batch) + model.penalty()

    def program() -> Program:
        measure = _in_a_hurry(lambda model: probe(Moment(task, model, batch, batch, loss, build)))
        return Program(measure, model)

    traced = program()
    assert not twice or traced.digest == program().digest, "not a pure function of the moment"
    values = traced(model)
    assert set(values) == set(probe.variables)
    sizes = {dim: len(along) for dim, along in probe.coordinates(task).values()}
    for name, variable in probe.variables.items():
        value = values[name]
        assert value.ndim == len(variable.dims), f"{name} has not the dims {variable.dims}"
        for dim, size in zip(variable.dims, value.shape, strict=True):
            assert sizes.setdefault(dim, size) == size, f"{name} has {size} along {dim}"
        assert jnp.issubdtype(value.dtype, jnp.number)
        assert not np.any(np.isinf(value)), name
        # Only a probe that says so has gaps; its own test says where they are.
        assert "NaN" in (type(probe).__doc__ or "") or not np.any(np.isnan(value)), name


def _variables(kind: type[AbstractProbe]) -> Any:
    """Of its example, if they depend on its fields."""
    declared = kind.variables
    return kind.example()[0].variables if isinstance(declared, property) else declared


def check_names(kinds: Iterable[type[AbstractProbe]]) -> None:
    """Probes that share a name measure the same thing, and no model has two of them."""
    owners: dict[str, list[type[AbstractProbe]]] = {}
    for kind in kinds:
        for name in _variables(kind):
            owners.setdefault(name, []).append(kind)
    for name, several in owners.items():
        models = [type(config) for kind in several for config, _ in kind.example()[1]]
        if len(several) > 1:
            assert len(set(models)) == len(models), f"one training could have two kinds of {name}"
            assert len({_variables(kind)[name].dims for kind in several}) == 1
            assert len({_variables(kind)[name].units for kind in several}) == 1


# -- theories --------------------------------------------------------------------------------------


def check_theory(kind: type[AbstractTheory], probes: Iterable[type[AbstractProbe]]) -> None:
    """A result with its source, which predicts what some probe measures, and its limits."""
    check_theory_module(sys.modules[kind.__module__])
    assert kind.__doc__
    assert kind.statement.strip()
    assert papers(kind.source), f"{kind.source!r} names no paper"
    place = r"(theorem|lemma|corollary|proposition|stage|main result|equation|section) [\dA-Z]"
    assert re.search(place, kind.source), f"{kind.source!r} names no place in the paper"
    assert kind.predicts
    measured = {name for probe in probes for name in _variables(probe)} | set(ALWAYS)
    assert set(kind.predicts) <= measured, f"no probe measures {set(kind.predicts) - measured}"
    check_language(kind.statement, kind.source)


def check_theory_module(module: ModuleType) -> None:
    """Whether it has a class that predicts or functions only, it says what holds, and where."""
    check_module(module)
    for part in ("Statement.", "Limits."):
        assert part in (module.__doc__ or ""), f"{module.__name__} lacks its {part}"


# -- studies ---------------------------------------------------------------------------------------


def check_study(study: Study[Any]) -> None:
    """Presets, claims with source, bounds and reasons, and what differs from the paper."""
    module = sys.modules[study.experiment.__module__]
    check_module(module)
    assert module.STUDY is study
    assert (module.__file__ or "").endswith(f"{study.name}.py")
    assert study.title
    check_language(study.title)
    for author, year in papers(study.paper):
        named = re.search(rf"\b{author}\b[^;]{{0,80}}?\b{year}\b", module.__doc__ or "")
        assert named, f"the docstring does not name {author} {year}"
    assert study.precision in ("float32", "float64")
    assert "quick" in study.presets, "the default preset of the command line"
    kind = type(study.config("quick"))
    for preset in study.presets.values():
        assert type(preset) is kind
        check_config(preset)
        assert typed(kind, json.loads(json.dumps(describe(preset)))) == preset
    assert study.divergences
    for divergence in study.divergences:
        texts = dataclasses.astuple(divergence)
        assert all(text.strip() for text in texts)
        check_language(*texts)
    assert study.claims
    assert len({claim.id for claim in study.claims}) == len(study.claims)
    quick = study.config("quick")
    for claim in study.claims:
        needed = check_claim(claim)
        if claim.full_size is None or claim.full_size[0](quick):
            assert needed <= quick.seeds, f"{claim.id} needs {needed} seeds"


def check_claim(claim: Claim) -> int:
    """Texts, source, arms, bounds and statistics; returns the number of seeds for a verdict."""
    assert re.fullmatch(r"[A-Z]+-\d+[a-z]?", claim.id), claim.id
    texts = [claim.statement, claim.source, claim.tolerance, claim.paper, claim.prediction]
    assert all(text.strip() for text in texts), claim.id
    sourced = papers(claim.source) or claim.source.startswith(OWN_WORK)
    assert sourced, f"{claim.id}: {claim.source!r} is no source"
    assert not claim.reason or len(claim.reason) > 20
    check_language(*texts, claim.reason, *(claim.full_size or ("", ""))[1:])
    checks = claim.checks if isinstance(claim.checks, tuple) else (claim.checks,)
    assert checks
    seeds = 0
    assert len({check.quantity for check in checks}) == len(checks), claim.id
    for check in checks:
        assert check.quantity.strip()
        check_language(check.quantity)
        assert check.arms, f"{claim.id}: {check.quantity} names no arm"
        assert isinstance(check.bound, AbstractBound)
        assert isinstance(check.statistic, AbstractStatistic)
        # One seed is for numbers without chance; anything else needs several.
        assert check.statistic.seeds != 2, claim.id
        seeds = max(seeds, check.statistic.seeds)
    return seeds
