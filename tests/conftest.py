"""Shape checks on saccade's annotated functions, one backend for figures, and a lab that all
tests share.
"""

import dataclasses
import gc
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import pytest
from jaxtyping import install_import_hook

import train.shape_checks

os.environ.setdefault("MPLBACKEND", "Agg")
DATA = os.environ.get("SACCADE_DATA", "")
SOURCES = Path(__file__).parents[1] / "src"
ABOUT_ARRAYS = [
    ".".join(path.relative_to(SOURCES).with_suffix("").parts)
    for path in SOURCES.glob("saccade/**/*.py")
    if "from jaxtyping import" in path.read_text(encoding="utf-8")
]
# Only what is imported after this line is checked, so it stands above every other import of
# saccade.
install_import_hook(ABOUT_ARRAYS, f"{train.shape_checks.__name__}.checked")

from saccade.train import placement, program  # noqa: E402
from saccade.train.lab import Lab  # noqa: E402

# Two devices wherever the tests run, so that members are always split over devices; JAX starts now
# and keeps them, and two flags that make compiling shorter, for this process alone. With JAX 0.11.2
# the process ended before the first test where they were set.
jax.config.update("jax_num_cpu_devices", 2)
with pytest.MonkeyPatch.context() as patch:
    flags = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
    flags = flags if jax.__version_info__ < (0, 11) else ""
    patch.setenv("XLA_FLAGS", f"{os.environ.get('XLA_FLAGS', '')} {flags}")
    jax.devices()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest tests, on documents and commands, begin first: no worker waits for them."""
    items.sort(key=lambda item: item.path.parent != Path(__file__).parent)
    if config.getoption("--slow") or "slow" in (config.getoption("-m") or ""):
        return
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.skip(reason="slow: run with --slow"))


def pytest_collection_finish() -> None:
    """Tracing makes many objects: collect less often, and never what was imported."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real corpora, for tests that are marked `data`."""
    folder = DATA and Path(DATA)
    if not folder or not folder.is_dir():
        pytest.skip("SACCADE_DATA names no folder with corpora")
    return folder


@pytest.fixture(scope="session", autouse=True)
def compiled_programs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Compiled programs are shared by all labs of the session, in all processes that run tests or
    are started by them.
    """
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    settings = {"jax_compilation_cache_dir": str(shared / "compiled")}
    settings |= {"jax_persistent_cache_min_compile_time_secs": 0.02}
    for name, value in settings.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)


@pytest.fixture(scope="session", autouse=True)
def kept_traces() -> None:
    """JAX's traces of inner functions are kept from one training to the next, which spares a third
    of the time.
    """
    program._number = itertools.repeat(0)


@pytest.fixture
def traced_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every training is traced anew, as in use: for tests that change what a program reads."""
    monkeypatch.setattr(program, "_number", itertools.count(1))


@pytest.fixture
def cut_short(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """A function after whose call every training has at most so many steps."""
    arm_of = Lab._arm

    def cut(steps: int) -> None:
        def short(lab: Lab, name: str, call: Any) -> Any:
            recipe = dataclasses.replace(call.recipe, steps=min(call.recipe.steps, steps))
            recorded = recipe.recorded(call.first)
            return arm_of(lab, name, dataclasses.replace(call, recipe=recipe, recorded=recorded))

        monkeypatch.setattr(Lab, "_arm", short)

    return cut


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab in a folder of its own; trainings are shared by the whole session."""
    return Lab(tmp_path_factory.mktemp("lab"), progress=None)


@pytest.fixture(scope="session", autouse=True)
def in_a_hurry() -> Iterator[None]:
    """Compiled without optimisation: most programs of the tests take longer to compile than to
    run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "compiler_options", lambda once: program.compiler_options(True))
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def compiled_as_in_use(in_a_hurry: None) -> Iterator[None]:
    """Trainings are compiled as users have them: for equality of bits, and for long ones."""

    def options(once: bool) -> dict[str, Any]:
        fused = {} if once else {"xla_cpu_use_fusion_emitters": True}
        return program.compiler_options(once) | fused

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(placement, "compiler_options", options)
        jax.config.update("jax_disable_most_optimizations", False)
        yield
        jax.config.update("jax_disable_most_optimizations", True)


@pytest.fixture(scope="session")
def precise_lab(lab: Lab) -> Lab:
    """The same folder in float64, for closed forms."""
    return Lab(lab.folder, precision="float64", progress=None)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C reaches this process and those that it starts, even if the caller ignores it, as
    `nohup` does.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
