"""Remedies that are tried: a run that is stuck goes on with each, and what helps comes out."""

import dataclasses
import json
import re

import numpy as np
import pytest
import xarray as xr

from saccade.cli import main
from saccade.core.lab import Lab
from saccade.core.optimiser import GradientDescent
from saccade.core.start import Seeds
from saccade.diagnosis.catalogue import diagnose
from saccade.diagnosis.diverged import Diverged
from saccade.diagnosis.padding_attended import PaddingAttended
from saccade.diagnosis.softmax_blind import SoftmaxBlind
from saccade.diagnosis.trying import CONTROL, Attempt, _compared, _of_arm, _Recalling, tried
from saccade.errors import ConfigError
from saccade.models.attention_regression import AttentionRegressionConfig
from saccade.records.record import Arm, Record
from saccade.registry import find_study
from saccade.settings import swept_in
from saccade.tasks.random_sequences import RandomSequences

STUDY = '''
"""Queries alone learn, and keys are 0 or not."""

import dataclasses

from saccade import Above, Arm, AttentionRegressionConfig, AttentionSpread, Check, Claim
from saccade import GradientDescent, Logarithmic, RandomSequences, Recording, Study


@dataclasses.dataclass(frozen=True)
class Config:
    seeds: int = 4
    """Runs."""


def experiment(config, lab):
    task = RandomSequences(2, 1, 2, 4, 4, target_std=0.3)
    model = AttentionRegressionConfig("softmax", 2, 4, ("queries",), targets="start")
    record = Recording((AttentionSpread("train"),), Logarithmic(6))
    arms = {}
    for name, scale in {"blind": [0.0, 1e-3], "seeing": [0.5, 1.0]}.items():
        training = lab.train(
            task, model, GradientDescent(0.02), 60, record, seeds=config.seeds,
            sweep={"model.key_scale": scale}, name=name,
        )
        arms[name] = Arm.of(training)
    return arms


CLAIMS = (Claim("X-1", "The loss is positive", "ours", Check("loss", lambda arms, config:
    arms["seeing"].end["loss"].isel(key_scale=0, drop=True), Above(0.0)), "none", arms="seeing"),)
STUDY = Study("stuck", "Stuck", "none", {"quick": Config()}, experiment, CLAIMS)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("trying")
    (place / "stuck.py").write_text(STUDY)
    return place


@pytest.fixture(scope="module")
def record(folder):
    study = find_study(folder / "stuck.py")
    found = study.run(study.config("quick"), Lab(folder / "runs" / "cache", progress=None), "quick")
    found.save(folder / "record.nc")
    return found


def test_what_helps_comes_out(folder, record):
    """Softmax without keys stays where it is, whatever the optimiser; a Gaussian kernel moves."""
    study = find_study(folder / "stuck.py")
    found = list(tried(record, study, Lab(folder / "runs" / "cache", progress=None), 80))
    by_remedy = {(one.arm, one.remedy): one for one in found}
    assert {one.arm for one in found} == {"blind (key_scale 0)", "blind (key_scale 0.001)"}
    assert {one.remedy for one in found} == {CONTROL, "a Gaussian kernel", "Adam"}
    assert all(isinstance(one.fault, SoftmaxBlind) and one.seeds == 4 for one in found)
    gaussian = by_remedy["blind (key_scale 0)", "a Gaussian kernel"]
    assert gaussian.verdict == "shortens the plateau: 4 of 4 seeds get there"
    assert gaussian.high < 1
    assert gaussian.is_bound  # without it no run gets there
    adam = by_remedy["blind (key_scale 0)", "Adam"]
    assert (adam.ratio, adam.low, adam.high) == (1, 1, 1)
    assert adam.verdict == "neither gets there"


def test_the_command_says_what_helped(folder, record, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    given = ["diagnose", "record.nc", "--try", "--steps", "80", "--study", "stuck.py"]
    assert main(given) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"blind \(key_scale 0\): softmax is blind: keys are alike", shown)
    assert "shortens the" in shown
    assert main([*given, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["verdict"].partition(":")[0] for row in rows} >= {
        "for comparison",
        "shortens the plateau",
    }
    assert all(row["ratio"] is None for row in rows if row["remedy"] == CONTROL)
    assert main([*given, "--step", "3"]) == 2
    assert "--step: got a step with --try" in capsys.readouterr().err
    assert main([*given[:3], "--steps", "0", *given[5:]]) == 2


def test_a_record_without_a_fault_has_no_remedy(folder, record):
    study = find_study(folder / "stuck.py")
    sound = dataclasses.replace(record, arms={"seeing": record.arms["seeing"]})
    with pytest.raises(
        ConfigError, match=r"^--try: got no fault in the record of stuck, allowed: one"
    ):
        list(tried(sound, study, Lab(folder / "runs" / "cache", progress=None), 5))


def test_faults_without_a_setting_are_said(folder, record):
    """Padding that this model does not have; and an arm that no training made."""
    study = find_study(folder / "stuck.py")
    lab = Lab(folder / "runs" / "cache", progress=None)
    run = record.arms["seeing"].trajectory
    padded = run.assign(padding_mass=run["score_spread"] * 0 + 0.2)
    for name in ("seeing", "other"):
        arms = {name: Arm(padded, xr.Dataset(), xr.Dataset())}
        found = list(tried(dataclasses.replace(record, arms=arms), study, lab, 5))
        (one,) = found
        assert isinstance(one.fault, PaddingAttended)
        why = (
            "no remedy of this fault is" if name == "seeing" else "the arm is not that of one trai"
        )
        assert one.verdict.startswith(f"not tried: {why}")
        assert one.plain()["loss"] is None


def test_times_are_compared_seed_by_seed():
    """A remedy that is twice as fast in every seed, and one that never gets there."""
    steps = np.arange(0, 101, 10)
    fall = np.clip(1 - steps / 80, 0, 1)
    fast = np.clip(1 - steps / 40, 0, 1)

    def losses(curve):
        return xr.DataArray(np.stack([curve] * 3), {"seed": range(3), "step": steps})

    found = _compared(
        "arm",
        PaddingAttended(),
        {CONTROL: losses(fall), "fast": losses(fast), "none": losses(0 * fall + 1)},
    )
    control, quick, never = found
    assert control.verdict == "for comparison: 3 of 3 seeds get there"
    assert (quick.ratio, quick.is_bound) == (0.5, False)
    assert quick.verdict == "shortens the plateau: 3 of 3 seeds get there"
    assert never.ratio == 100 / 40
    assert never.verdict == "lengthens it: 0 of 3 seeds get there"
    nothing = {CONTROL: losses(0 * fall + 1), "slow": losses(1 - 1e-9 * steps)}
    assert list(_compared("arm", PaddingAttended(), nothing))[1].verdict == "neither gets there"
    gone = {CONTROL: losses(fall), "gone": losses(np.where(steps > 50, np.nan, fall))}
    assert list(_compared("arm", PaddingAttended(), gone))[1].verdict.endswith(
        "; 3 of 3 seeds diverged"
    )
    assert Attempt("arm", PaddingAttended(), "one", 0.1, 0.5, 0.4, 0.6, 2).verdict == (
        "undetermined: 2 seeds, 3 needed"
    )


def test_sweeps_and_seeds_of_the_call_are_kept(tmp_path):
    """A rate that is swept by `sweep=`: going on as it was is going on with each cell's own."""
    lab = _Recalling(tmp_path, progress=None)
    seeds = Seeds(2, data=0)
    training = lab.train(
        RandomSequences(2, 1, 2, 4, 4),
        AttentionRegressionConfig("softmax", 2, 4),
        GradientDescent(0.5),
        3,
        seeds=seeds,
        sweep={"optimiser.rate": [1e-9, 1e-3]},
    )
    setup, _, how = lab.calls[training.digest]
    assert swept_in(setup)["rate"].grid == (1e-9, 1e-3)
    assert how["seeds"] is seeds


def test_a_run_that_diverged_begins_anew(tmp_path):
    task, model = RandomSequences(2, 1, 2, 4, 4), AttentionRegressionConfig("softmax", 2, 4)
    lab = _Recalling(tmp_path, progress=None)
    training = lab.train(task, model, GradientDescent(1e6), 20, seeds=3)
    assert np.all(training.trajectory["diverged_at"] >= 0)
    (found,) = diagnose(
        Record("mine", "quick", {}, {"one": _with_attention(Arm.of(training))}, {}, "", "", 0.0)
    )
    attempts = list(_of_arm(Diverged(), [found], *lab.calls[training.digest], lab, 200))
    by_remedy = {one.remedy: one for one in attempts}
    assert by_remedy[CONTROL].diverged == 3
    assert by_remedy["gradients clipped at norm 1"].diverged == 0


def _with_attention(arm: Arm) -> Arm:
    """Something beside the loss in which a fault could show."""
    nothing = 0 * arm.trajectory["loss"]
    return dataclasses.replace(arm, trajectory=arm.trajectory.assign(padding_mass=nothing))
