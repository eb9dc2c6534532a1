"""The studies as they run: tiny real records, and premises broken in training instead of by
hand.
"""

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from synthetic_records import RECORDS

from saccade.core import lab as core_lab
from saccade.core.errors import ConfigError
from saccade.core.lab import Lab
from saccade.core.record import Record
from saccade.core.study import Study, find_study
from saccade.studies import ktiw_proxy

RESULTS = Path(__file__).parents[2] / "results"

SENTENCES = {
    "topics": 2,
    "filler_size": 4,
    "dictionary_size": 16,
    "train_size": 12,
    "test_size": 4,
    "dimension": 3,
}
WORDS = {"topics": 4, "words_per_topic": 2, "topics_per_document": 2, "batch_size": 4}
COPIES = {
    "length": 3,
    "choice": 4,
    "hidden": 3,
    "batch_size": 4,
    "test_size": 4,
    "budget": 10,
    "long_budget": 10,
}
TINY: dict[str, dict[str, Any]] = {
    "sen_synergy": {**SENTENCES, "figure_steps": 3, "steps": 6},
    "sen_query": {**SENTENCES, "steps": 4},
    "topics_optima": {
        **WORDS,
        "steps": 20,
        "embedding_steps": 20,
        "ratio_steps": 20,
        "document_size": 8,
        "sampled_steps": 16,
    },
    "topics_two_stage": {
        **WORDS,
        "document_size": 6,
        "squared_rate": 1.0,
        "squared_steps": 1000,
        "steps": 1000,
    },
    "topics_attention": {
        **WORDS,
        "document_size": 8,
        "shortest": 4,
        "longest": 6,
        "train_size": 12,
        "test_size": 4,
        "uniform_steps": 8,
        "steps": 8,
    },
    "kernels_convergence": {
        "sequences": 3,
        "positions": 4,
        "head_dimension": 4,
        "value_steps": 20,
        "steps": 20,
    },
    "kernels_stationary": {
        "sequences": 2,
        "positions": 2,
        "dimension": 4,
        "head_dimension": 4,
        "steps": 20,
        "cells": 2,
        "phase_seeds": 2,
        "phase_steps": 10,
    },
    "ktiw_copying": {
        **COPIES,
        "words": (3, 4, 6),
        "steps": 10,
        "mixture_steps": 10,
        "uniform_steps": 10,
        "lexicon_steps": 5,
        "interval": 5,
    },
    "ktiw_multihead": {
        **COPIES,
        "heads": 2,
        "pool": 2,
        "round_size": 8,
        "rounds": 1,
        "trials": 2,
        "failure": 0.95,
    },
    "ktiw_limits": {
        **COPIES,
        "keyword_length": 5,
        "keyword_steps": 10,
        "keyword_batch": 4,
        "keyword_seeds": 2,
    },
    "ktiw_proxy": {
        "length": 3,
        "choice": 4,
        "words": 5,
        "hidden": 3,
        "batch_size": 4,
        "steps": 4,
        "corpus_size": 6,
        "counted": 6,
        "proxy_dimension": 3,
        "proxy_steps": 4,
        "dimensions": (100, 1000, 10000, 100000),
    },
    "values_first": {
        "sentences": 12,
        "dictionary_size": 16,
        "sentence_steps": 6,
        "document_steps": 6,
        "length": 3,
        "choice": 4,
        "hidden": 3,
        "batch_size": 4,
        "copying_steps": 4,
    },
}
"""Trained for real with `--slow` only, because programs take minutes to compile; by default two
studies are: `sen` below, over a sweep, and `sen_convolution` in the tests of the command line.
"""
KEPT = {path.name.removesuffix(".nc.gz"): path for path in sorted(RESULTS.glob("*.nc.gz"))}
"""A committed record of each study, where there is one."""


@functools.cache
def kept(name: str) -> Record:
    return Record.open(KEPT[name])


@pytest.fixture(scope="module", autouse=True)
def in_a_hurry() -> Iterator[None]:
    """Compiled without optimisation: these trainings take as long as their compilation."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def small_config(name: str) -> Any:
    return dataclasses.replace(find_study(name).config("quick"), seeds=2, **TINY[name])


@pytest.fixture(scope="module")
def tiny(lab: Lab):
    """The record of a study's real experiment, of a few steps; made when first asked for."""

    @functools.cache
    def made(name: str) -> Record:
        study = find_study(name)
        return study.run(small_config(name), Lab(lab.folder, precision=study.precision))

    return made


def dreamt(run: Any) -> tuple[dict[str, np.ndarray], float]:
    """What a training would leave, by the shapes that its probes have: random numbers, and
    losses that fall.
    """
    engine = run.engine
    first = jax.tree.map(lambda leaf: leaf[0], engine._padded)

    def measured(member: Any) -> dict[str, Any]:
        task, _, _ = engine._filled(member)
        sets = [
            engine._relabelled(member, task.sample(jax.random.key(0), size))
            for size in (task.train_size, task.test_size)
        ]
        carry = engine._start(member)
        wanted = {
            "probes": engine.probes,
            **({"snapshots": engine.snapshots} if engine.snapshots else {}),
        }
        return {
            which: engine._measured(carry, member, *sets, probes=probes)
            for which, probes in wanted.items()
        }

    random, arrays = np.random.default_rng(0), {}
    for which, variables in jax.eval_shape(measured, first).items():
        rows = len(run.recorded) if which == "probes" else len({0, run.steps})
        for name, shape in variables.items():
            values = random.uniform(0.6, 1.0, (rows, engine.count, *shape.shape))
            values = np.sort(values, axis=0)[::-1] if name == "loss" else values
            arrays[f"{which}:{name}"] = (
                np.full(values.shape, -1) if name == "diverged_at" else values.astype(shape.dtype)
            )
    shapes = engine.shapes()
    for place, leaf in enumerate(jax.tree.leaves((shapes.learned, shapes.still))):
        arrays[f"carry:{place}"] = np.broadcast_to(
            np.zeros((), leaf.dtype), leaf.shape
        )  # where another training starts
    return arrays, 0.0


@pytest.fixture(scope="module")
def imagined(tmp_path_factory: pytest.TempPathFactory):
    """A study's record as its real experiment would leave it, with every name, dim and
    coordinate, but nothing trained.
    """
    folder = tmp_path_factory.mktemp("imagined")

    @functools.cache
    def made(name: str) -> Record:
        study = find_study(name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(core_lab._Run, "result", dreamt)
            patch.setattr(ktiw_proxy, "MODEL_1_PAIRS", 20)  # trained for real, by numpy
            return study.run(small_config(name), Lab(folder, precision=study.precision))

    return made


def assert_kept_and_drawn(study: Study[Any], record: Record, folder: Path) -> None:
    """Every claim is judged, the file gives the same verdicts back, and all figures are drawn."""
    assert set(record.verdicts) == {claim.id for claim in study.claims}
    sampled = [claim.id for claim in study.claims if any(check.seeds > 1 for check in claim.checks)]
    assert all(record.verdicts[claim]["verdict"] != "holds" for claim in sampled), (
        "two seeds decide nothing"
    )
    assert [figure.name for figure in study.drawn(record)] == [
        figure.name for figure in study.figures(RECORDS[study.name]())
    ]
    record.save(folder / "record.nc")
    again = Record.open(folder / "record.nc")
    assert {
        judgement.claim: judgement.plain() for judgement in study.judge(again)
    } == record.verdicts
    small = record.compact()
    assert {judgement.claim for judgement in study.judge(small)} == set(record.verdicts)
    assert [figure.name for figure in study.drawn(small)] == [
        figure.name for figure in study.drawn(again)
    ]


@pytest.mark.parametrize("name", TINY, scope="module")
def test_an_experiment_is_judged_and_drawn_whatever_it_measures(name, imagined, tmp_path):
    assert_kept_and_drawn(find_study(name), imagined(name), tmp_path)


@pytest.mark.parametrize("name", TINY, scope="module")
def test_records_made_by_hand_look_like_those_of_experiments(name, imagined):
    """Else the refutations would be about something that no study leaves."""
    record, synthetic = imagined(name), RECORDS[name]()
    chosen = [arm for arm in synthetic.arms if arm in record.arms]
    assert_alike(
        dataclasses.replace(synthetic, arms={arm: synthetic.arms[arm] for arm in chosen}), record
    )
    # Fewer heads in the quick preset of one study; else the very same arms.
    assert set(record.arms) == set(synthetic.arms) or name == "kernels_convergence"


def test_a_step_beyond_what_the_theory_allows_is_not_judged(imagined):
    """The premise, broken in the config of a record."""
    record = imagined("kernels_convergence")
    wild = dataclasses.replace(record, config={**record.config, "step_share": 2.5})
    for judgement in find_study("kernels_convergence").judge(wild):
        assert judgement.verdict == "undetermined"
        assert "a step of 2.5 times" in judgement.reason


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY, scope="module")
def test_every_tiny_run_is_judged_and_drawn_like_a_large_one(name, tiny, imagined, tmp_path):
    assert_kept_and_drawn(find_study(name), tiny(name), tmp_path)
    assert_alike(
        dataclasses.replace(
            RECORDS[name](), arms={arm: RECORDS[name]().arms[arm] for arm in tiny(name).arms}
        ),
        tiny(name),
    )
    # Nothing that is so short finds a good head.
    assert set(imagined(name).arms) - set(tiny(name).arms) == (
        {"one_good"} if name == "ktiw_multihead" else set()
    )
    for arm, record in imagined(name).arms.items():
        if arm not in tiny(name).arms:
            continue
        for part in ("trajectory", "snapshot", "prediction"):
            real, dream = getattr(tiny(name).arms[arm], part), getattr(record, part)
            assert dict(real.sizes) == dict(dream.sizes), (
                "an imagined record has the shapes of a real one"
            )
            assert {key: value.dtype for key, value in real.items()} == {
                key: value.dtype for key, value in dream.items()
            }


def assert_alike(synthetic: Record, real: Record) -> None:
    """Every variable that was made by hand is in the real record, on the same dims but for
    sweeps.
    """
    assert set(synthetic.config) == set(real.config)
    assert set(real.arms) <= set(synthetic.arms)
    for arm in real.arms:
        for part in ("trajectory", "snapshot", "prediction"):
            measured, made = getattr(real.arms[arm], part), getattr(synthetic.arms[arm], part)
            for variable in made.data_vars:
                assert variable in measured.data_vars, f"{arm}/{part}/{variable}"
                dims = set(measured[variable].dims) - set(real.sweeps)
                assert set(made[variable].dims) - set(real.sweeps) == dims, (
                    f"{arm}/{part}/{variable}"
                )


@pytest.mark.parametrize("name", RECORDS)
def test_records_made_by_hand_look_like_committed_ones(name):
    if name not in KEPT:
        pytest.skip(f"no record of {name} in results/")
    record = kept(name)
    assert record.study == name
    assert_alike(RECORDS[name](), record)
    assert set(RECORDS[name]().arms) == set(record.arms)


@pytest.mark.parametrize("name", KEPT)
def test_committed_records_are_judged_as_they_were(name):
    record = kept(name)
    verdicts = {judgement.claim: judgement.verdict for judgement in find_study(name).judge(record)}
    assert verdicts == {claim: verdict["verdict"] for claim, verdict in record.verdicts.items()}


@pytest.mark.slow
def test_frozen_arms_stay_where_they_started(tiny):
    arms = tiny("sen_synergy").arms
    assert np.all(arms["KF"].trajectory["score"] == 0)
    assert np.ptp(arms["EF"].trajectory["norm"].values, axis=1).max() == 0
    assert np.any(arms["TC"].trajectory["score"].isel(step=-1) != 0)
    assert np.ptp(arms["TC"].trajectory["norm"].values, axis=1).max() > 0
    for name in ("KF", "EF"):
        np.testing.assert_array_equal(
            arms[name].trajectory["norm"].isel(step=0), arms["TC"].trajectory["norm"].isel(step=0)
        )


@pytest.mark.parametrize(
    ("name", "changed", "told"),
    [
        (
            "topics_optima",
            {"topics_per_document": 5},
            r"topics_per_document: got 5, allowed: fewer than the 5 topics; .* nothing tells",
        ),
        (
            "topics_optima",
            {"topics_per_document": 7},
            r"topics_per_document: got 7, allowed: at most the 5 topics",
        ),
        (
            "topics_optima",
            {"kept": 0.6, "replaced": 0.5},
            r"kept \+ replaced: got 0\.6 \+ 0\.5, allowed: at most 1 together",
        ),
        ("topics_optima", {"selected": 0.0}, r"selected: got 0\.0, allowed: above 0 and at most 1"),
        (
            "topics_two_stage",
            {"steps": 999},
            r"steps: got 999, allowed: at least 1000, where stage 1 is judged",
        ),
        (
            "topics_two_stage",
            {"squared_steps": 500},
            r"squared_steps: got 500, allowed: at least 1000",
        ),
        (
            "kernels_convergence",
            {"heads": ()},
            r"heads: got \(\), allowed: one or more whole numbers above 0",
        ),
        (
            "kernels_convergence",
            {"step_share": -0.5},
            r"step_share: got -0\.5, allowed: a finite number above 0",
        ),
        ("kernels_stationary", {"cells": 1}, r"cells: got 1, allowed: a whole number, at least 2"),
        (
            "kernels_stationary",
            {"largest_scale": 0.001},
            r"largest_scale: got 0\.001, allowed: above the least scale",
        ),
        (
            "topics_attention",
            {"fast_rate": 0.0},
            r"fast_rate: got 0\.0, allowed: a finite number above 0",
        ),
    ],
    ids=lambda value: (
        " ".join(value) if isinstance(value, dict) else value if value in TINY else ""
    ),
)
def test_an_impossible_setting_is_refused_with_its_reason(name, changed, told):
    with pytest.raises(ConfigError, match=told):
        dataclasses.replace(find_study(name).config("quick"), **changed)


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("kernels_stationary", "rate"),
        ("kernels_stationary", "largest_scale"),
        ("kernels_convergence", "value_scale"),
        ("kernels_convergence", "step_share"),
        ("topics_attention", "fast_rate"),
        ("topics_two_stage", "squared_rate"),
    ],
)
def test_a_sweep_is_run_and_judged_cell_by_cell_or_refused(name, field, tmp_path):
    study, config = find_study(name), small_config(name)
    value = getattr(config, field)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(core_lab._Run, "result", dreamt)
        try:
            record = study.run(
                study.swept(config, {field: (value, value / 2)}),
                Lab(tmp_path, precision=study.precision),
            )
        except ConfigError:
            return
    cells = [judgement.cells for judgement in study.judge(record) if judgement.cells]
    assert cells
    assert all([place[field] for place, _, _ in cell] == [value, value / 2] for cell in cells)
    (figure,) = study.drawn(record)
    assert figure.name == f"{name}_claims"


# -- premises broken in training -------------------------------------------------------------------

STDS, LEAKS = (1e-3, 1.0), (0.0, 0.5)


@pytest.fixture(scope="module")
def broken(lab: Lab) -> Record:
    """A small `sen` over starts (theorem 1 wants a small one) and leaks (and topic words in no
    other place).
    """
    study = find_study("sen")
    config = dataclasses.replace(
        study.config("quick"),
        seeds=5,
        topics=2,
        words_per_topic=1,
        filler_size=10,
        dictionary_size=1500,
        train_size=100,
        test_size=20,
        dimension=4,
        rate=0.15,
        steps=400,
        long_steps=400,
    )
    return study.run(study.swept(config, {"embedding_std": STDS, "leak": LEAKS}), lab)


@pytest.mark.parametrize("claim", ["A-2", "A-3", "A-6"])
def test_leaks_and_large_starts_refute_the_relation_of_score_and_norm(claim, broken):
    (judgement,) = (one for one in find_study("sen").judge(broken) if one.claim == claim)
    verdicts = {
        (where["embedding_std"], where["leak"]): verdict for where, verdict, _ in judgement.cells
    }
    assert verdicts == {
        (1e-3, 0.0): "holds",
        (1.0, 0.0): "fails",
        (1e-3, 0.5): "fails",
        (1.0, 0.5): "fails",
    }
    assert judgement.verdict == "undetermined"
    assert "holds in 1, fails in 3" in judgement.reason


def test_a_swept_record_is_judged_drawn_and_kept(broken, tmp_path):
    study = find_study("sen")
    (map_,) = study.figures(broken)
    assert len(map_.panels) == 3
    assert map_.panels[0].marks[0].value.shape == (
        2,
        2,
    )  # pyright: ignore[reportAttributeAccessIssue]
    judged = {judgement.claim: judgement for judgement in study.judge(broken)}
    assert set(judged) == {claim.id for claim in study.claims}
    assert judged["A-8"].verdict == "undetermined", "two values are no sweep for A-8"
    assert judged["A-7b"].verdict == judged["A-4c"].verdict == "undetermined", (
        "a sweep has no arms of theory"
    )
    broken.save(tmp_path / "record.nc")
    again = {
        judgement.claim: judgement for judgement in study.judge(Record.open(tmp_path / "record.nc"))
    }
    for claim, judgement in judged.items():
        assert [cell[:2] for cell in again[claim].cells] == [cell[:2] for cell in judgement.cells]
        assert again[claim].verdict == judgement.verdict == broken.verdicts[claim]["verdict"]
    assert_alike(RECORDS["sen"](), broken)


def test_a_sweep_along_one_value_is_drawn_as_a_line(broken):
    parts = ("trajectory", "snapshot", "prediction")
    one = {
        name: dataclasses.replace(
            arm, **{part: getattr(arm, part).isel({"leak": 0}, True, "ignore") for part in parts}
        )
        for name, arm in broken.arms.items()
    }
    record = dataclasses.replace(
        broken, arms=one, config={**broken.config, "sweeps": {"embedding_std": list(STDS)}}
    )
    (map_,) = find_study("sen").figures(record)
    assert np.array_equal(map_.panels[0].marks[0].x, STDS)  # pyright: ignore[reportAttributeAccessIssue]
    cells = find_study("sen").claims[1].judge(record).cells
    assert [verdict for _, verdict, _ in cells] == ["holds", "fails"]
