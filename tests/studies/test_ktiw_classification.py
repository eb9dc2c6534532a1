"""The study of text classification: comparisons of hand-made tables, and the number of parameters
of its classifier.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest
import xarray as xr
from text_records import RECORDS

from saccade.errors import ConfigError
from saccade.probes.agreement import RATINGS
from saccade.records.record import Arm
from saccade.registry import find_study
from saccade.studies import ktiw_classification as study
from saccade.train.lab import Lab

SEEDS, TEXTS, PLACES, STEPS = 3, 4, 30, 5


def test_the_classifier_has_as_many_parameters_as_the_paper_says():
    class Task:
        vocabulary_size = 11_022

    config: Any = study.PRESETS["paper"].model
    shapes = eqx.filter_eval_shape(config.build, Task(), jax.random.key(0))
    total = sum(leaf.size for leaf in jax.tree.leaves(shapes) if hasattr(leaf, "size"))
    assert total == 4_581_482
    assert total - shapes.embeddings.size == 1_274_882


def tables(seed: int) -> dict[str, Arm]:
    """Ratings without order, but for what a test puts in."""
    random = np.random.default_rng(seed)
    runs = {}
    for run in (*study.RUNS, "proxy"):
        data: dict[str, Any] = {}
        for split in study.SPLITS:
            dims = ("seed", "step", f"{split}_text", "position")
            for name in RATINGS:
                values = random.normal(size=(SEEDS, STEPS, TEXTS, PLACES))
                values[..., 20:] = np.nan  # padding
                data[f"{name}_{split}"] = (dims, values)
        accuracy = np.linspace(0.5, 0.9, STEPS) + 0.01 * np.arange(SEEDS)[:, None]
        data["test_accuracy"] = (("seed", "step"), accuracy)
        data["diverged_at"] = ("seed", np.full(SEEDS, -1))
        axes = {"seed": np.arange(SEEDS), "step": np.arange(STEPS)}
        runs[run] = Arm(xr.Dataset(data, axes))
    return runs


def edited(runs: dict[str, Arm], run: str, name: str, values: xr.DataArray) -> dict[str, Arm]:
    trajectory = runs[run].trajectory.assign({name: values})
    return runs | {run: dataclasses.replace(runs[run], trajectory=trajectory)}


def test_a_probe_that_ranks_as_the_reference_agrees_at_its_step_only():
    runs = tables(0)
    best = runs["attention"].trajectory["alpha_test"].isel(step=-1, drop=True)
    beta = runs["uniform"].trajectory["beta_test"].copy()
    beta[{"step": 2}] = 3 * best + 1  # any rising function ranks alike
    found = study.compared(edited(runs, "uniform", "beta_test", beta), study.SPLITS)[
        "agreement"
    ].trajectory
    top, tau = (found[f"alpha_uniform_{measure}_test"] for measure in ("top", "tau"))
    np.testing.assert_allclose(top.isel(step=2), 1)
    np.testing.assert_allclose(tau.isel(step=2), 1, atol=1e-6)
    assert float(top.drop_sel(step=2).mean()) < 0.4
    np.testing.assert_allclose(found["chance_test"], 1 / 20)  # one of 20 words is in the top 5 %


def test_other_runs_are_those_of_the_other_seeds():
    runs = tables(1)
    attention = runs["attention"].trajectory
    own = attention["alpha_test"].isel(step=-1, drop=True)
    # The probe of every seed ranks as the attention of the seed after it does.
    beta = (attention["beta_test"] * 0).fillna(0) + own.roll(seed=-1, roll_coords=False)
    found = study.compared(edited(runs, "attention", "beta_test", beta), study.SPLITS)[
        "agreement"
    ].trajectory
    np.testing.assert_allclose(found["alpha_beta_top_test"], 1)
    accuracy = attention["test_accuracy"].values
    expected = (accuracy.sum(0) - accuracy) / (SEEDS - 1)
    np.testing.assert_allclose(found["accuracy_of_others"], expected)


def test_a_seed_counts_for_no_agreement_if_one_of_its_runs_diverged():
    runs = tables(3)
    lost = xr.DataArray([-1, 2, -1], dims="seed")
    found = study.compared(edited(runs, "uniform", "diverged_at", lost), study.SPLITS)["agreement"]
    assert found.diverged.values.tolist() == [False, True, False]


def test_the_record_keeps_no_tables():
    for arm in study.compared(tables(2), study.SPLITS).values():
        assert "position" not in arm.trajectory.dims


def test_context_is_the_accuracy_at_which_attention_agrees_as_much():
    record = RECORDS["ktiw_classification"]()
    arm = record.arms["sst2_agreement"].trajectory
    steps, accuracy = arm["step"].values, arm["accuracy_of_others"].values[0]
    curve = arm["alpha_alpha_top_test"].values[0]
    first = int(np.argmax(curve > float(arm["alpha_uniform_top_test"][0].max())))
    found = study.in_context(record.arms, "sst2", "alpha_uniform")
    assert 0 < first < len(steps)
    np.testing.assert_allclose(found[0], 100 * accuracy[first])
    never = arm.assign(alpha_uniform_top_test=arm["alpha_uniform_top_test"] + 1)
    arms = {"sst2_agreement": dataclasses.replace(record.arms["sst2_agreement"], trajectory=never)}
    found = study.in_context(arms, "sst2", "alpha_uniform")
    np.testing.assert_allclose(found[0], 100 * accuracy[-1])
    assert found.attrs["starred"] == found.sizes["seed"]


def test_one_seed_has_no_other_runs():
    with pytest.raises(ConfigError, match="seeds: got 1, allowed: "):
        study.Config(seeds=1)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.usefixtures("real_data")
def test_a_tiny_run_on_sst(tmp_path: Any):
    quick = find_study("ktiw_classification").config("quick")
    config = dataclasses.replace(quick, first=80, steps=10, texts=8, proxy_epochs=1, seeds=2)
    record = find_study("ktiw_classification").run(config, Lab(tmp_path, progress=None))
    assert {"sst2_agreement", "sst2_attention", "sst2_proxy"} <= set(record.arms)
    assert len(find_study("ktiw_classification").drawn(record)) == 3
