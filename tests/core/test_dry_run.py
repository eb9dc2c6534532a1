"""A dry run says what would be trained, and trains nothing."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from word_table import Table, WordList, WordTableConfig

import saccade.core.plan
from saccade.core.lab import Lab, Training
from saccade.core.optimiser import Adam, GradientDescent
from saccade.core.recording import Recording
from saccade.records.schedule import Every


def train(lab: Lab, **changes: Any) -> Training:
    settings: dict[str, Any] = {
        "task": WordList(),
        "model": WordTableConfig(),
        "optimiser": GradientDescent(0.1),
        "steps": 40,
        "record": Recording((Table(),), Every(15), ends=(Table(),)),
        "seeds": 3,
        "sweep": {"optimiser.rate": (0.1, 0.2)},
        "name": "a small one",
    }
    return lab.train(**(settings | changes))


@pytest.fixture
def dry(lab: Lab, tmp_path: Path) -> Lab:
    return Lab(tmp_path, progress=None, dry_run=True)


def test_dry_run_has_the_axes_of_the_training_and_no_numbers(lab: Lab, dry: Lab):
    planned, trained = train(dry), train(Lab(dry.folder / "real", progress=None))
    for part in ("trajectory", "snapshot"):
        nothing, dataset = getattr(planned, part), getattr(trained, part)
        assert nothing.sizes == dataset.sizes
        assert nothing.coords.identical(dataset.coords)
        for name in dataset.data_vars:
            assert nothing[name].dims == dataset[name].dims
            assert nothing[name].dtype == dataset[name].dtype
            assert nothing[name].attrs == dataset[name].attrs
        for name in ("loss", "table"):
            assert np.all(np.isnan(nothing[name]))
    assert planned.models.table.shape == trained.models.table.shape
    assert planned.digest == trained.digest


def test_plan_says_members_steps_and_records_and_leaves_no_training(dry: Lab, tmp_path: Path):
    train(dry)
    train(dry, name="another", seeds=1, sweep=None, steps=7)
    plans = [
        (plan.name, plan.members, plan.steps, plan.recorded, plan.cached) for plan in dry.plans
    ]
    assert plans == [("a small one", 6, 40, 4, False), ("another", 1, 7, 2, False)]
    for plan in dry.plans:
        assert plan.seconds is not None
        assert 0 < plan.seconds < 60
    assert not list(tmp_path.glob("*.training"))


def test_memory_grows_with_members_records_and_optimiser_states(
    dry: Lab, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(saccade.core.plan, "_estimate", lambda *_: 0.0)
    train(dry)
    train(dry, seeds=6)
    train(dry, record=Recording((Table(),), Every(1), ends=(Table(),)))
    train(dry, optimiser=Adam(0.1))
    base, members, records, states = (plan.memory_bytes for plan in dry.plans)
    table = 8 * 2 * 4
    assert members == 2 * base
    assert records - base == 6 * (41 - 4) * (table + 4 + 4)  # with loss and divergence
    assert states - base == 6 * (2 * table + 4)  # two moments and a count


def test_finished_training_is_known_to_be_in_the_cache(dry: Lab):
    real = dataclasses.replace(dry, dry_run=False)
    train(real, steps=5)
    train(dry, steps=5)
    train(dry, steps=6)
    assert [(plan.cached, plan.seconds is None) for plan in dry.plans] == [
        (True, True),
        (False, False),
    ]
    assert np.all(np.isfinite(train(real, steps=5).trajectory["loss"]))


def test_training_may_start_from_a_dry_one(dry: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(saccade.core.plan, "_estimate", lambda *_: 0.0)
    second = train(dry, start=train(dry), sweep=None)
    assert second.trajectory["loss"].dims == ("rate", "seed", "step")
    assert [plan.members for plan in dry.plans] == [6, 6]
