"""Shape checks on saccade's annotated functions, one backend for figures, and a lab that all
tests share.
"""

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

from saccade.core.lab import Lab  # noqa: E402

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


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A lab in a folder of its own; trainings and compiled programs are shared by the whole
    session.
    """
    folder = tmp_path_factory.mktemp("lab")
    # For every lab of the session, in all processes that run tests: each finds the programs that
    # another one compiled.
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    jax.config.update("jax_compilation_cache_dir", str(shared / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
    return Lab(folder, progress=None)


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
