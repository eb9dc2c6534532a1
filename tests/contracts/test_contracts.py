"""What every task, model, probe, theory and study must be, for each one found in the package."""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import contracts
import saccade
from saccade.contracts.model import AbstractModelConfig
from saccade.contracts.probe import AbstractProbe
from saccade.contracts.task import AbstractCorpus, AbstractTask
from saccade.contracts.theory import AbstractTheory
from saccade.registry import find_study, study_names
from saccade.train import optimiser
from saccade.train.optimiser import AbstractRatedStepper


def modules(*packages: str) -> list[ModuleType]:
    """Every module of some folders of the package."""
    found = []
    for package in packages:
        folder = importlib.import_module(f"saccade.{package}")
        names = (one.name for one in pkgutil.iter_modules(folder.__path__, f"{folder.__name__}."))
        found += [importlib.import_module(name) for name in names]
    return found


def found(package: str, base: type) -> list[Any]:
    return [kind for module in modules(package) for kind in contracts.classes_in(module, base)]


TASKS = found("tasks", AbstractTask)
MODELS = found("models", AbstractModelConfig)
PROBES = found("probes", AbstractProbe)
THEORIES = found("theory", AbstractTheory)
STUDIES = [find_study(name) for name in study_names()]


def each(kinds: list[Any]) -> Any:
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.__name__)


def each_module(*packages: str) -> Any:
    found = modules(*packages)
    return pytest.mark.parametrize("module", found, ids=[module.__name__ for module in found])


def test_something_of_every_kind_is_found():
    assert all([TASKS, MODELS, PROBES, THEORIES, STUDIES])


@each(TASKS)
def test_a_task(kind):
    if issubclass(kind, AbstractCorpus) and (missing := kind.example().missing):
        pytest.skip(missing)
    contracts.check_task(kind)


@each(MODELS)
def test_a_model(kind):
    contracts.check_model(kind)


@each(PROBES)
def test_a_probe(kind):
    contracts.check_probe(kind)


def test_no_two_probes_call_different_things_by_one_name():
    contracts.check_names(PROBES)


@each(THEORIES)
def test_a_theory(kind):
    contracts.check_theory(kind, PROBES)


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_a_study(study):
    contracts.check_study(study)
    assert {"quick", "paper"} <= set(study.presets)
    assert contracts.papers(study.paper)


@each_module("data", "models", "probes")
def test_a_module_says_what_it_is(module):
    contracts.check_module(module)


@each_module("theory")
def test_a_theory_without_a_class_has_its_statement_and_limits(module):
    contracts.check_theory_module(module)


@each_module("tasks", "theory", "studies")
def test_a_module_about_a_paper_names_it(module):
    contracts.check_module(module)
    if not contracts.classes_in(module, AbstractCorpus):  # any texts, from no paper
        assert contracts.papers(module.__doc__ or ""), "the docstring names no paper"


@each(
    [
        kind
        for kind in vars(optimiser).values()
        if inspect.isclass(kind)
        and issubclass(kind, AbstractRatedStepper)
        and not inspect.isabstract(kind)
    ]
)
def test_an_optimiser_is_described_with_its_function(kind):
    assert contracts.function_fields(kind) == ["curvature"]
    contracts.check_functions(kind())


def test_fields_that_hold_functions_are_found():
    assert [kind for kind in MODELS if contracts.function_fields(kind)]


def test_studies_ask_for_premises_by_name():
    """A premise that is raised by hand is known only where it is not met."""
    for file in sorted(Path(saccade.__file__).parent.glob("studies/*.py")):
        assert "raise PremiseNotMetError" not in file.read_text(encoding="utf-8"), file.name


def test_texts_are_plain_english():
    """Claims, figures, help, messages and docstrings: every string of the package."""
    folder = Path(saccade.__file__).parent
    for file in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                contracts.check_language(node.value)


@pytest.mark.parametrize(
    ("letter", "last", "paper"),
    [
        ("A", 19, "Lu"),
        ("B", 16, "Li"),
        ("C", 15, "Snell"),
        ("D", 10, "Song"),
        ("E", 0, None),
        ("F", 17, "Wortsman"),
    ],
)
def test_every_claim_of_a_paper_is_there_once(letter, last, paper):
    """A letter stands for one paper, E for studies that compare the models of several, and F for
    faults of training.
    """
    ids = [claim.id for study in STUDIES for claim in study.claims]
    assert len(set(ids)) == len(ids)
    assert {f"{letter}-{number}" for number in range(1, last + 1)} <= set(ids)
    for study in STUDIES:
        named = {author for author, _ in contracts.papers(study.paper)}
        ours = named == {paper} if paper else len(named) > 1
        assert ours == any(claim.id.startswith(f"{letter}-") for claim in study.claims)
        assert ours == all(claim.id.startswith(f"{letter}-") for claim in study.claims)
