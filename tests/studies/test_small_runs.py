"""The studies as they run: records with the shapes of real ones, tiny real ones, and those that are
committed.
"""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from every_record import RECORDS, assert_alike, figure_names
from record_parts import PARTS, altered

from saccade.contracts.task import Splits
from saccade.core.study import Study
from saccade.errors import ConfigError
from saccade.records.record import Record
from saccade.registry import find_study
from saccade.studies import ktiw_agreement
from saccade.train import job as core_job
from saccade.train import prepared as core_prepared
from saccade.train.examples import Examples
from saccade.train.lab import Lab
from saccade.train.members import NOT_DIVERGED
from saccade.train.run import Run

RESULTS = Path(__file__).parents[2] / "results"
KEPT = {path.name.removesuffix(".nc.gz"): path for path in sorted(RESULTS.glob("*.nc*"))}
"""A committed record of each study, where there is one."""

SENTENCES = {"topics": 2, "filler_size": 4, "dictionary_size": 16, "dimension": 3}
SENTENCES |= {"train_size": 12, "test_size": 4}
DOCUMENTS = {"topics": 4, "words_per_topic": 2, "topics_per_document": 2, "batch_size": 4}
COPIES = {"length": 3, "choice": 4, "hidden": 3, "batch_size": 4, "test_size": 4}
COPIES |= {"budget": 10, "short_budget": 10, "interval": 5}
KERNELS = {"positions": 2, "head_dimension": 4, "steps": 20}
TINY: dict[str, dict[str, Any]] = {
    "sen_synergy": {**SENTENCES, "figure_steps": 3, "steps": 6},
    "sen_query": {**SENTENCES, "steps": 4},
    "topics_optima": DOCUMENTS
    | dict.fromkeys(("steps", "embedding_steps", "ratio_steps", "sampled_steps"), 20)
    | {"document_size": 8},
    "topics_two_stage": DOCUMENTS
    | {"document_size": 6, "squared_rate": 1.0, "squared_steps": 1000, "steps": 1000},
    "topics_attention": DOCUMENTS
    | {"document_size": 8, "shortest": 4, "longest": 6, "train_size": 12, "test_size": 4}
    | {"uniform_steps": 8, "steps": 8},
    "kernels_convergence": KERNELS
    | {"sequences": 3, "positions": 4, "value_steps": 20, "long_steps": 30},
    "kernels_stationary": KERNELS
    | {"sequences": 2, "dimension": 4, "cells": 2, "phase_seeds": 2, "phase_steps": 10}
    | {"matched_steps": 10},
    "ktiw_copying": COPIES
    | dict.fromkeys(("steps", "mixture_steps", "uniform_steps"), 10)
    | {"words": (3, 4, 6), "lexicon_steps": 5},
    "ktiw_multihead": COPIES
    | {"heads": 2, "base_points": 2, "round_size": 8, "rounds": 1, "trials": 2, "failure": 0.95}
    | {"steps": 10},
    "ktiw_fate": {"length": 3, "shorter_length": 2, "hidden": 3, "batch_size": 4, "test_size": 4}
    | {"steps_per_word": 3, "steps": 10, "interval": 5},
    "ktiw_reflection": {"length": 3, "shorter_length": 2, "hidden": 3, "batch_size": 4}
    | {"test_size": 4, "steps_per_word": 3, "steps": 10, "interval": 5},
    "ktiw_limits": COPIES
    | {"keyword_length": 5, "keyword_steps": 10, "keyword_batch": 4, "keyword_seeds": 2},
    "ktiw_proxy": {"length": 3, "choice": 4, "corpus_size": 6, "counted": 6}
    | {"proxy_dimension": 3, "proxy_steps": 4, "dimensions": (100, 1000, 10000, 100000)},
    "ktiw_agreement": {"words": 5, "hidden": 3, "batch_size": 4, "proxy_dimension": 3, "steps": 4},
    "values_first": {"sentences": 12, "dictionary_size": 16, "sentence_steps": 6}
    | {"document_steps": 6, "length": 3, "choice": 4, "hidden": 3, "batch_size": 4}
    | {"copying_steps": 4, "long_steps": 8, "fit_steps": 6, "copying_seeds": 2},
    "diagnosis_errors": {"steps": 20},
}
"""Trained for real with `--slow` only, because programs take minutes to compile; by default two
studies are: `sen` over a sweep, and `sen_convolution` in the tests of the command line.
"""


def tiny_config(name: str) -> Any:
    return altered(find_study(name).config("quick"), seeds=2, **TINY[name])


@functools.cache
def kept(name: str) -> Record:
    return Record.open(KEPT[name])


# -- records without training ----------------------------------------------------------------------


def dreamt(run: Run) -> tuple[dict[str, np.ndarray], float]:
    """A result with the shapes of its probes: random numbers, and losses that fall."""
    engine = run.engine
    assert isinstance(engine.data, Examples)
    functions, dynamics = engine.data.functions, engine.dynamics

    def measured(member: Any) -> tuple[dict[str, Any], Any]:
        task, _, _ = functions._filled(member)
        drawn = [task.sample(jax.random.key(0), size) for size in (task.train_size, task.test_size)]
        data = Splits(*(functions._relabelled(member, batch) for batch in drawn))
        state = functions.start(member)
        diverged = {"diverged_at": jnp.asarray(NOT_DIVERGED, jnp.int32)}
        rows = {"probes": dynamics.observe(member, state, data) | diverged}
        if dynamics.observe_ends is not None:
            rows["snapshots"] = dynamics.observe_ends(member, state, data) | diverged
        return rows, dynamics.result(state)

    random, arrays = np.random.default_rng(0), {}
    values, parts = jax.eval_shape(measured, functions.first_member)
    for which, variables in values.items():
        rows = len(run.recorded) if which == "probes" else len({0, run.steps})
        for name, shape in variables.items():
            drawn = random.uniform(0.6, 1.0, (rows, engine.count, *shape.shape))
            drawn = np.sort(drawn, axis=0)[::-1] if name == "loss" else drawn
            drawn = np.full(drawn.shape, -1) if name == "diverged_at" else drawn
            arrays[f"{which}:{name}"] = drawn.astype(shape.dtype)
    for place, leaf in enumerate(jax.tree.leaves(parts)):  # where another training starts
        shape = (len(engine.padded.seed), *leaf.shape)
        arrays[f"carry:{place}"] = np.broadcast_to(np.zeros((), leaf.dtype), shape)
    return arrays, 0.0


def dream(study: Study[Any], config: Any, folder: Path) -> Record:
    """A study's record as its experiment would leave it, with every name, dim and coordinate, but
    nothing traced or trained.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "result", dreamt)
        patch.setattr(core_prepared, "training_digest", lambda *_: None)
        patch.setattr(core_job, "_fits", lambda engine: True)  # would compile it
        patch.setattr(ktiw_agreement, "MODEL_1_PAIRS", 20)  # trained for real, by NumPy
        return study.run(config, Lab(folder, precision=study.precision, progress=None))


@pytest.fixture(scope="module")
def imagined(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("imagined")
    return functools.cache(lambda name: dream(find_study(name), tiny_config(name), folder))


def assert_kept_and_drawn(study: Study[Any], record: Record, folder: Path) -> None:
    """Every claim is judged, the file gives the same verdicts back, and all figures are drawn."""
    assert set(record.verdicts) == {claim.id for claim in study.claims}
    for claim in study.claims:
        if any(check.statistic.seeds > 1 for check in claim.checks):  # pyright: ignore
            assert record.verdicts[claim.id]["verdict"] != "holds", "two seeds decide nothing"
    record.save(folder / "record.nc")
    again = Record.open(folder / "record.nc")
    verdicts = {one.claim: one.verdict for one in study.judge(again)}
    assert verdicts == {claim: stored["verdict"] for claim, stored in record.verdicts.items()}
    drawn = study.drawn(again)
    assert [figure.name for figure in drawn] == figure_names(study.name)


@pytest.mark.usefixtures("few_resamples")
@pytest.mark.parametrize("name", TINY, scope="module")
def test_an_experiment_is_judged_and_drawn_whatever_it_measures(name, imagined, tmp_path):
    assert_kept_and_drawn(find_study(name), imagined(name), tmp_path)


@pytest.mark.parametrize("name", TINY, scope="module")
def test_records_made_by_hand_look_like_those_of_experiments(name, imagined):
    """Otherwise the refutations would be about records that no study makes."""
    record, synthetic = imagined(name), RECORDS[name]()
    assert set(record.config) == set(synthetic.config)
    # The quick presets of two studies have fewer heads, or faults; others have the very same arms.
    fewer = {"kernels_convergence": lambda arm: arm.endswith("_2")}
    fewer["diagnosis_errors"] = lambda arm: arm in ("healthy", *record.config["faults"])
    arms = set(filter(fewer.get(name), synthetic.arms))
    assert set(record.arms) == arms
    assert_alike(synthetic, record, arms)


def test_a_step_beyond_what_the_theory_allows_is_not_judged(tmp_path):
    study = find_study("kernels_convergence")
    config = altered(tiny_config(study.name), step_share=2.5)
    for judgement in study.judge(dream(study, config, tmp_path)):
        assert judgement.verdict == "undetermined"
        assert "a step of 2.5 times" in judgement.reason


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("kernels_stationary", "rate"),
        ("kernels_convergence", "value_scale"),
        ("kernels_convergence", "step_share"),
        ("topics_two_stage", "squared_rate"),
    ],
)
def test_a_sweep_is_run_and_judged_cell_by_cell(name, field, tmp_path):
    study, config = find_study(name), tiny_config(name)
    values = [getattr(config, field), getattr(config, field) / 2]
    record = dream(study, study.swept(config, {field: values}), tmp_path)
    cells = [judgement.cells for judgement in study.judge(record) if judgement.cells]
    assert cells
    assert all([place[field] for place, _, _ in cell] == values for cell in cells)
    (figure,) = study.drawn(record)
    assert figure.name == f"{name}_claims"


@pytest.mark.parametrize(
    ("name", "field", "reason"),
    [
        ("kernels_stationary", "largest_scale", "it is the end of a grid"),
        ("topics_attention", "fast_rate", "it is one rate of a sweep"),
        ("ktiw_multihead", "failure", "the study's arms share it"),
        ("values_first", "document_rate", "the study compares fixed settings"),
    ],
)
def test_a_field_that_cannot_be_swept_is_refused_with_its_reason(name, field, reason):
    study, config = find_study(name), tiny_config(name)
    with pytest.raises(ConfigError, match=f"sweep {field}: cannot be swept, {reason}"):
        study.swept(config, {field: (1.0, 2.0)})


# -- committed records -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", RECORDS)
def test_records_made_by_hand_look_like_committed_ones(name):
    if name not in KEPT:
        pytest.skip(f"no record of {name} in results/")
    study, synthetic = find_study(name), RECORDS[name]()
    # Tasks for a GPU and tasks for two cores are in records of their own.
    records = [kept(known) for known in (name, f"{name}-small") if known in KEPT]
    for record in records:
        assert study.config_of(record) == study.config(record.preset)
        assert_alike(synthetic, record, record.arms)
    assert {arm for record in records for arm in record.arms} == set(synthetic.arms)


# -- tiny real runs --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny(lab: Lab):
    """The record of a study's real experiment, of a few steps; made when first asked for."""

    def made(name: str) -> Record:
        study = find_study(name)
        real = Lab(lab.folder, precision=study.precision, progress=None)
        return study.run(tiny_config(name), real)

    return functools.cache(made)


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY, scope="module")
def test_every_tiny_run_is_judged_and_drawn_like_a_large_one(name, tiny, imagined, tmp_path):
    real, dreamt = tiny(name), imagined(name)
    assert_kept_and_drawn(find_study(name), real, tmp_path)
    assert_alike(RECORDS[name](), real, real.arms)
    # Nothing that is so short finds a good head.
    missing = {"one_good", "all_bad"} if name == "ktiw_multihead" else set()
    assert set(dreamt.arms) - set(real.arms) == missing
    for arm in real.arms:
        for part in PARTS:
            one, other = (getattr(record.arms[arm], part) for record in (real, dreamt))
            assert dict(one.sizes) == dict(other.sizes), "imagined shapes are not the real ones"
            assert {key: value.dtype for key, value in one.items()} == {
                key: value.dtype for key, value in other.items()
            }


@pytest.mark.slow
def test_frozen_arms_stay_where_they_started(tiny):
    arms = {name: arm.trajectory for name, arm in tiny("sen_synergy").arms.items()}
    assert np.all(arms["KF"]["score"] == 0)
    assert np.ptp(arms["EF"]["norm"].values, axis=1).max() == 0
    assert np.any(arms["TC"]["score"].isel(step=-1) != 0)
    assert np.ptp(arms["TC"]["norm"].values, axis=1).max() > 0
    start = arms["TC"]["norm"].isel(step=0)
    for name in ("KF", "EF"):
        np.testing.assert_array_equal(arms[name]["norm"].isel(step=0), start)
