"""A dry run says what would be trained, and trains nothing."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from word_table import Table, WordList, WordTableConfig, without_seconds

import saccade.train.plan
from saccade.records.schedule import Every
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam, GradientDescent
from saccade.train.recipe import Recipe

RECIPE = Recipe(
    WordList(),
    WordTableConfig(),
    GradientDescent(0.1),
    40,
    probes=(Table(),),
    at=Every(15),
    ends=(Table(),),
)
RATES = {"optimiser.rate": (0.1, 0.2)}


@pytest.fixture
def dry(lab: Lab, tmp_path: Path) -> Lab:
    return Lab(tmp_path, progress=None, dry_run=True)


def test_dry_run_has_the_axes_of_the_training_and_no_numbers(lab: Lab, dry: Lab):
    planned = dry.train(RECIPE, 3, sweep=RATES)
    trained = Lab(dry.folder / "real", progress=None).train(RECIPE, 3, sweep=RATES)
    for part in ("trajectory", "snapshot"):
        nothing, dataset = (without_seconds(getattr(arm, part)) for arm in (planned, trained))
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
    dry.train({"a small one": RECIPE}, 3, sweep=RATES)
    dry.train({"another": dataclasses.replace(RECIPE, steps=7)}, 1)
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
    monkeypatch.setattr(saccade.train.plan, "_estimate", lambda *_: 0.0)
    dry.train(RECIPE, 3, sweep=RATES)
    dry.train(RECIPE, 6, sweep=RATES)
    dry.train(dataclasses.replace(RECIPE, at=Every(1)), 3, sweep=RATES)
    dry.train(dataclasses.replace(RECIPE, optimiser=Adam(0.1)), 3, sweep=RATES)
    base, members, records, states = (plan.memory_bytes for plan in dry.plans)
    table = 8 * 2 * 4
    assert members == 2 * base
    assert records - base == 6 * (41 - 4) * (table + 4 + 4)  # with loss and divergence
    assert states - base == 6 * (2 * table + 4)  # two moments and a count


def test_finished_training_is_known_to_be_in_the_cache(dry: Lab):
    real = dataclasses.replace(dry, dry_run=False)
    recipe = dataclasses.replace(RECIPE, steps=5)
    real.train(recipe, 3, sweep=RATES)
    dry.train(recipe, 3, sweep=RATES)
    dry.train(dataclasses.replace(RECIPE, steps=6), 3, sweep=RATES)
    assert [(plan.cached, plan.seconds is None) for plan in dry.plans] == [
        (True, True),
        (False, False),
    ]
    assert np.all(np.isfinite(real.train(recipe, 3, sweep=RATES).trajectory["loss"]))


def test_training_may_start_from_a_dry_one(dry: Lab, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(saccade.train.plan, "_estimate", lambda *_: 0.0)
    first = dry.train(RECIPE, 3, sweep=RATES)
    second = dry.train(RECIPE, 3, start=first)
    assert second.trajectory["loss"].dims == ("rate", "seed", "step")
    assert [plan.members for plan in dry.plans] == [6, 6]
