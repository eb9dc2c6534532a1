"""Fixtures for small real runs of the studies."""

import pytest

from saccade.judging import statistics

pytest.register_assert_rewrite("every_record")


@pytest.fixture
def few_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for verdicts on records made by hand, which are far from every bound."""
    monkeypatch.setattr(statistics, "POOLED_RESAMPLES", 100)
