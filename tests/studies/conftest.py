"""Fixtures for small real runs of the studies."""

from collections.abc import Iterator

import jax
import pytest

from saccade.core import engine, statistics
from saccade.core.program import compiler_options

pytest.register_assert_rewrite("every_record")


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for verdicts on records made by hand, which are far from every bound."""
    monkeypatch.setattr(statistics, "POOLED_RESAMPLES", 100)


@pytest.fixture(scope="module")
def in_a_hurry() -> Iterator[None]:
    """Compiled without optimisation: these trainings take as long as their compilation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "compiler_options", lambda once: compiler_options(once=True))
        jax.config.update("jax_disable_most_optimizations", True)
        yield
        jax.config.update("jax_disable_most_optimizations", False)
