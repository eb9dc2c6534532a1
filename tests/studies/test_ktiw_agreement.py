"""Agreement of known tables of positions, and of tables of which one is shifted."""

import dataclasses

import numpy as np
import pytest
import xarray as xr
from ktiw_records import agreement_record, translation_arms

from saccade.probes.translation import POSITIONS
from saccade.records.record import Arm, Record
from saccade.registry import find_study
from saccade.studies import ktiw_agreement

BEST = {
    "alpha_uniform": 0.5,
    "delta_uniform": 0.5,
    "alpha_other_beta": 1.0,
    "alpha_other_alpha": 1.0,
    "uniform_proxy": 1.0,
    "model_1_uniform": 1.0,
    "alpha_frozen_lexicon": 0.1,
    "alpha_frozen_attention": 0.5,
}
"""Attention finds the words of both pairs; uniform attention, the proxy and IBM Model 1 find those
of one, and all miss the other in the same way. Over a frozen lexicon attention finds none; at the
start, where it is constant, it agrees by chance."""


def best(arms: dict[str, Arm]) -> dict[str, float]:
    trajectory = ktiw_agreement.compared(arms)["translation_agreement"].trajectory
    return {name: float(trajectory[name].max("step").mean()) for name in BEST}


def edited(arm: str, **edits) -> dict[str, Arm]:
    arms = translation_arms(ktiw_agreement.Config())
    trajectory = arms[arm].trajectory
    changed = {
        name: edit(trajectory[name]).transpose(*trajectory[name].dims)
        for name, edit in edits.items()
    }
    return arms | {arm: dataclasses.replace(arms[arm], trajectory=trajectory.assign(changed))}


def shifted(values: xr.DataArray) -> xr.DataArray:
    return values.roll(source=5)


def test_agreement_of_known_tables():
    arms = translation_arms(ktiw_agreement.Config())
    assert best(arms) == pytest.approx(BEST)
    trajectory = ktiw_agreement.compared(arms)["translation_agreement"].trajectory
    np.testing.assert_allclose(trajectory["chance"], 0.1, rtol=1e-6)  # one of ten positions


@pytest.mark.parametrize(
    ("arm", "table", "touched"),
    [
        # The proxy is compared with uniform attention at the step that agrees best with attention,
        # so alpha affects that comparison, too.
        (
            "translation_attention",
            "alpha",
            {
                "alpha_uniform",
                "alpha_other_beta",
                "alpha_other_alpha",
                "uniform_proxy",
                "alpha_frozen_attention",
                "alpha_frozen_lexicon",
            },
        ),
        ("translation_attention", "delta", {"delta_uniform"}),
        ("translation_attention", "beta", set()),
        ("translation_other", "alpha", {"alpha_other_alpha"}),
        ("translation_other", "beta", {"alpha_other_beta"}),
        (
            "translation_uniform",
            "beta",
            {"alpha_uniform", "delta_uniform", "uniform_proxy", "model_1_uniform"},
        ),
        ("translation_proxy", "beta", {"uniform_proxy"}),
        ("translation_model_1", "beta", {"model_1_uniform"}),
        ("translation_frozen_attention", "beta", {"alpha_frozen_attention"}),
        ("translation_frozen_attention", "alpha", set()),
        ("translation_frozen_lexicon", "alpha", {"alpha_frozen_lexicon"}),
        ("translation_frozen_lexicon", "beta", set()),
    ],
)
def test_each_agreement_is_of_its_two_tables_alone(arm, table, touched):
    found = best(edited(arm, **{table: shifted}))
    assert {name for name in BEST if abs(found[name] - BEST[name]) > 0.3} == touched
    assert {name: found[name] for name in BEST if name not in touched} == {
        name: pytest.approx(BEST[name]) for name in BEST if name not in touched
    }


def test_the_reference_is_attention_at_its_best_accuracy():
    """Attention that is lost after its best step stays the reference."""
    lost = edited(
        "translation_attention",
        alpha=lambda values: values.where(values["step"] != values["step"].max(), shifted(values)),
        test_accuracy=lambda values: values.where(values["step"] != values["step"].max(), 0.0),
    )
    assert best(lost)["alpha_uniform"] == pytest.approx(0.5)


def test_tables_leave_the_record_but_those_of_the_first_pair():
    arms = ktiw_agreement.compared(translation_arms(ktiw_agreement.Config()))
    assert all(not set(POSITIONS) & set(arm.trajectory.dims) for arm in arms.values())
    kept = arms["translation_agreement"].snapshot
    np.testing.assert_array_equal(kept["first_alpha"].isel(seed=0), np.eye(3, 10))
    assert set(kept.dims) == {"seed", "target", "source"}


@pytest.mark.parametrize("arm", ["translation_attention", "translation_uniform"])
def test_a_translation_without_any_number_is_no_reference(arm):
    """The claims are not judged by it, and the figures are still drawn."""
    names = ("test_accuracy", "alpha", "beta", "delta")
    lost = edited(arm, **{name: lambda values: values * np.nan for name in names})
    record: Record = dataclasses.replace(agreement_record(), arms=ktiw_agreement.compared(lost))
    study = find_study("ktiw_agreement")
    verdicts = {judgement.claim: judgement.verdict for judgement in study.judge(record)}
    assert {verdicts["C-12s"], verdicts["C-12t"]} <= {"undetermined", "fails"}
    assert verdicts["C-12s"] == "undetermined"
    assert len(study.drawn(record)) == 2
