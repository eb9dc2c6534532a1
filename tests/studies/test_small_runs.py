"""The studies as they run: tiny real records, and premises broken in training instead of by hand."""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from synthetic_records import RECORDS

from saccade.core.lab import Lab
from saccade.core.record import Record
from saccade.core.study import find_study

RESULTS = Path(__file__).parents[2] / "results"

TINY: dict[str, dict[str, Any]] = {
    "sen_synergy": {"figure_steps": 3, "steps": 6},
    "sen_query": {"steps": 4},
}
"""`sen` runs below, over a sweep; `sen_convolution` in the tests of the command line."""
KEPT = {path.name.removesuffix(".nc.gz"): path for path in sorted(RESULTS.glob("*.nc.gz"))}
"""A committed record of each study, where there is one."""


@pytest.fixture(scope="module", autouse=True)
def in_a_hurry() -> Iterator[None]:
    """Compiled without optimisation: these trainings take as long as their compilation."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module")
def tiny(lab: Lab):
    """The record of a study's real experiment, of a few steps; made when first asked for."""

    @functools.cache
    def made(name: str) -> Record:
        study = find_study(name)
        sizes = {"seeds": 2, "topics": 2, "filler_size": 4, "dictionary_size": 16, "train_size": 12, "test_size": 4, "dimension": 3}
        return study.run(dataclasses.replace(study.config("quick"), **sizes, **TINY[name]), lab)

    return made


@pytest.mark.parametrize("name", TINY)
def test_a_tiny_run_is_judged_and_drawn_like_a_large_one(name, tiny, tmp_path):
    study, record = find_study(name), tiny(name)
    assert set(record.verdicts) == {claim.id for claim in study.claims}
    assert all(verdict["verdict"] != "holds" for verdict in record.verdicts.values()), "two seeds and a few steps decide nothing"
    assert [figure.name for figure in study.figures(record)] == [figure.name for figure in study.figures(RECORDS[name]())]
    record.save(tmp_path / "record.nc")
    again = Record.open(tmp_path / "record.nc")
    assert {judgement.claim: judgement.plain() for judgement in study.judge(again)} == record.verdicts


def assert_alike(synthetic: Record, real: Record) -> None:
    """Every variable that was made by hand is in the real record, on the same dims but for sweeps."""
    assert set(synthetic.config) == set(real.config)
    assert set(real.arms) <= set(synthetic.arms)
    for arm in real.arms:
        for part in ("trajectory", "snapshot", "prediction"):
            measured, made = getattr(real.arms[arm], part), getattr(synthetic.arms[arm], part)
            for variable in made.data_vars:
                assert variable in measured.data_vars, f"{arm}/{part}/{variable}"
                dims = set(measured[variable].dims) - set(real.sweeps)
                assert set(made[variable].dims) - set(real.sweeps) == dims, f"{arm}/{part}/{variable}"


@pytest.mark.parametrize("name", TINY)
def test_records_made_by_hand_look_like_tiny_ones(name, tiny):
    """Else the refutations would be about something that no study leaves."""
    assert_alike(RECORDS[name](), tiny(name))
    assert set(RECORDS[name]().arms) == set(tiny(name).arms)


@pytest.mark.parametrize("name", RECORDS)
def test_records_made_by_hand_look_like_committed_ones(name):
    if name not in KEPT:
        pytest.skip(f"no record of {name} in results/")
    record = Record.open(KEPT[name])
    assert record.study == name
    assert_alike(RECORDS[name](), record)
    assert set(RECORDS[name]().arms) == set(record.arms)


@pytest.mark.parametrize("name", KEPT)
def test_committed_records_are_judged_as_they_were(name):
    record = Record.open(KEPT[name])
    verdicts = {judgement.claim: judgement.verdict for judgement in find_study(name).judge(record)}
    assert verdicts == {claim: verdict["verdict"] for claim, verdict in record.verdicts.items()}


def test_frozen_arms_stay_where_they_started(tiny):
    arms = tiny("sen_synergy").arms
    assert np.all(arms["KF"].trajectory["score"] == 0)
    assert np.ptp(arms["EF"].trajectory["norm"].values, axis=1).max() == 0
    assert np.any(arms["TC"].trajectory["score"].isel(step=-1) != 0)
    assert np.ptp(arms["TC"].trajectory["norm"].values, axis=1).max() > 0
    for name in ("KF", "EF"):
        np.testing.assert_array_equal(arms[name].trajectory["norm"].isel(step=0), arms["TC"].trajectory["norm"].isel(step=0))


# -- premises broken in training ------------------------------------------------------------------------------------

STDS, LEAKS = (1e-3, 1.0), (0.0, 0.5)


@pytest.fixture(scope="module")
def broken(lab: Lab) -> Record:
    """A small `sen` over starts (theorem 1 wants a small one) and leaks (and topic words in no other place)."""
    study = find_study("sen")
    config = dataclasses.replace(
        study.config("quick"), seeds=5, topics=2, words_per_topic=1, filler_size=10, dictionary_size=3000, train_size=200,
        test_size=20, dimension=4, rate=0.15, steps=400, long_steps=400,
    )  # fmt: skip
    return study.run(study.swept(config, {"embedding_std": STDS, "leak": LEAKS}), lab)


@pytest.mark.parametrize("claim", ["A-2", "A-3", "A-6"])
def test_leaks_and_large_starts_refute_the_relation_of_score_and_norm(claim, broken):
    (judgement,) = (one for one in find_study("sen").judge(broken) if one.claim == claim)
    verdicts = {(where["embedding_std"], where["leak"]): verdict for where, verdict, _ in judgement.cells}
    assert verdicts == {(1e-3, 0.0): "holds", (1.0, 0.0): "fails", (1e-3, 0.5): "fails", (1.0, 0.5): "fails"}
    assert judgement.verdict == "undetermined"
    assert "holds in 1, fails in 3" in judgement.reason


def test_a_swept_record_is_judged_drawn_and_kept(broken, tmp_path):
    study = find_study("sen")
    (map_,) = study.figures(broken)
    assert len(map_.panels) == 3
    assert map_.panels[0].marks[0].value.shape == (2, 2)  # pyright: ignore[reportAttributeAccessIssue]
    judged = {judgement.claim: judgement for judgement in study.judge(broken)}
    assert set(judged) == {claim.id for claim in study.claims}
    assert judged["A-8"].verdict == "undetermined", "two values are no sweep for A-8"
    assert judged["A-7b"].verdict == judged["A-4c"].verdict == "undetermined", "a sweep has no arms of theory"
    broken.save(tmp_path / "record.nc")
    again = {judgement.claim: judgement for judgement in study.judge(Record.open(tmp_path / "record.nc"))}
    for claim, judgement in judged.items():
        assert [cell[:2] for cell in again[claim].cells] == [cell[:2] for cell in judgement.cells]
        assert again[claim].verdict == judgement.verdict == broken.verdicts[claim]["verdict"]
    assert_alike(RECORDS["sen"](), broken)


def test_a_sweep_along_one_value_is_drawn_as_a_line(broken):
    parts = ("trajectory", "snapshot", "prediction")
    one = {
        name: dataclasses.replace(arm, **{part: getattr(arm, part).isel({"leak": 0}, True, "ignore") for part in parts})
        for name, arm in broken.arms.items()
    }
    record = dataclasses.replace(broken, arms=one, config={**broken.config, "sweeps": {"embedding_std": list(STDS)}})
    (map_,) = find_study("sen").figures(record)
    assert np.array_equal(map_.panels[0].marks[0].x, STDS)  # pyright: ignore[reportAttributeAccessIssue]
    cells = find_study("sen").claims[1].judge(record).cells
    assert [verdict for _, verdict, _ in cells] == ["holds", "fails"]
