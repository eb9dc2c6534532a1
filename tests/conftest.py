"""Shape checks on saccade's annotated functions, one backend for figures, and a lab that all
tests share.
"""

import gc
import os
import signal
from collections.abc import Iterator

import jax
import pytest
from jaxtyping import install_import_hook

import core.shape_checks

os.environ.setdefault("MPLBACKEND", "Agg")
# Only what is imported after this line is checked, so it stands above every other import of
# saccade.
install_import_hook("saccade", f"{core.shape_checks.__name__}.checked")

from saccade.core import ensemble  # noqa: E402
from saccade.core.lab import Lab  # noqa: E402
from saccade.core.program import compiler_options  # noqa: E402

# Two devices wherever the tests run, so that members are always split over devices; JAX starts now
# and keeps them.
jax.config.update("jax_num_cpu_devices", 2)
jax.devices()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests marked slow as well")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
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


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab in a folder of its own; trainings are shared by the whole session."""
    return Lab(tmp_path_factory.mktemp("lab"), progress=None)


@pytest.fixture(scope="module")
def in_a_hurry() -> Iterator[None]:
    """Compiled without optimisation: for trainings that take as long as their compilation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ensemble, "compiler_options", lambda once: compiler_options(once=True))
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)


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
