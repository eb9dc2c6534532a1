"""The public names of the package: what a user needs, found without a list."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import saccade
from saccade.contracts.model import AbstractModelConfig
from saccade.contracts.probe import AbstractProbe
from saccade.contracts.task import AbstractTask
from saccade.contracts.theory import AbstractTheory
from saccade.names import public_names, stub

PARTS = {
    "tasks": AbstractTask,
    "models": AbstractModelConfig,
    "probes": AbstractProbe,
    "theory": AbstractTheory,
}


@pytest.mark.parametrize("folder", PARTS)
def test_every_built_in_part_is_a_name_of_the_package(folder: str):
    package = importlib.import_module(f"saccade.{folder}")
    found = 0
    for file in pkgutil.iter_modules(package.__path__):
        if file.name.startswith("_"):
            continue
        module = importlib.import_module(f"{package.__name__}.{file.name}")
        for name, part in inspect.getmembers(module, inspect.isclass):
            if issubclass(part, PARTS[folder]) and part.__module__ == module.__name__:
                assert getattr(saccade, name) is part
                found += 1
    assert found > 3


def test_names_are_classes_and_functions_of_their_modules():
    assert len(public_names()) > 100
    for name, module in public_names().items():
        part = getattr(saccade, name)
        in_a_part = module.split(".")[1] in ("tasks", "models", "probes", "theory")
        assert inspect.isclass(part) or (inspect.isfunction(part) and not in_a_part)
        assert part.__module__ == module


def test_what_a_user_needs_is_there():
    needed = """
        AbstractBatch AbstractModel AbstractModelConfig AbstractProbe AbstractTask AbstractTheory
        Adam Arm AtSteps Batch Check Claim Every Figure Fresh FullBatch GradientDescent GradientFlow
        Lab Line Logarithmic Minibatch Moment Output Panel Recipe Record Study Swept Variable
        Arrays Cosine EarlyStopping EncoderConfig LabelledText Losses OneCycle PartRate Seeds
        TrainedArm at_start cross_entropy over_seeds over_sweeps require require_positive with_sweep
    """
    assert set(needed.split()) <= {*public_names()} == {*dir(saccade)} - {"__version__"}


def test_parts_of_the_engine_are_not_public():
    engine = """
        Dynamics Engine Frame Measured Members PreparedRecipe Program Recording Run Running
        compiler_options is_inexact leaves
    """
    assert not set(engine.split()) & {*public_names()}


def test_unknown_and_private_names_are_refused():
    for name in ("NoSuchThing", "_Surroundings"):
        with pytest.raises(AttributeError, match=f"module 'saccade' has no attribute '{name}'"):
            getattr(saccade, name)


def test_a_close_name_is_suggested():
    with pytest.raises(AttributeError, match=r"did you mean LabelledText\?"):
        getattr(saccade, "Labeled" + "Text")


def test_all_names_can_be_imported_at_once():
    names: dict[str, object] = {}
    exec("from saccade import *", names)
    assert set(public_names()) <= set(names)


def test_stub_for_type_checkers_is_current():
    """Written by `python -m saccade.names`."""
    assert Path(saccade.__file__).with_suffix(".pyi").read_text(encoding="utf-8") == stub()
    assert max(map(len, stub().splitlines())) <= 100


def test_import_is_quick():
    """Names are imported on use: without them, neither JAX nor any part of the package."""
    script = "import sys, saccade; dir(saccade); print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "saccade.names" in done.stdout.split()
    assert not {"jax", "numpy", "saccade.train.lab"} & set(done.stdout.split())
