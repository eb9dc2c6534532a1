"""Studies: found by their files, refused presets and sweeps, and records that say what was run."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

from saccade import studies
from saccade.core.claim import Check, Claim
from saccade.core.errors import ConfigError
from saccade.core.lab import Lab
from saccade.core.record import Arm
from saccade.core.study import Study, find_study, study_names
from saccade.core.sweep import Swept


@dataclasses.dataclass(frozen=True)
class ExampleConfig:
    seeds: int = 3
    rate: float = 0.1
    unused: float = 1.0


def experiment(config: ExampleConfig, lab: Lab) -> Mapping[str, Arm]:
    """No training: the error of a seed is its rate plus a hundredth of its number."""
    del lab
    swept = isinstance(config.rate, Swept)
    rates = config.rate.values if isinstance(config.rate, Swept) else (config.rate,)
    error = np.asarray(rates)[:, None] + 0.01 * np.arange(config.seeds)
    trajectory = xr.Dataset(
        {
            "error": (("rate", "seed", "step"), error[..., None]),
            "diverged_at": (("rate", "seed"), np.full(error.shape, -1)),
        },
        {"rate": list(rates), "seed": np.arange(config.seeds), "step": [0]},
        {"seconds": 2.0},
    )
    arm = Arm(
        trajectory if swept else trajectory.isel(rate=0, drop=True), xr.Dataset(), xr.Dataset()
    )
    return {"one": arm, "two": arm}


STUDY = Study(
    "example",
    "An example",
    "Nobody 2021",
    {"quick": ExampleConfig(), "paper": ExampleConfig(seeds=5)},
    experiment,
    (
        Claim(
            "A-1",
            "The error is small",
            "Nobody 2021, figure 1",
            (Check("error", lambda record: record.arm("one").end["error"], "<=", 0.15, ("one",)),),
            "the figure",
        ),
    ),
    lambda record: (),
)


def test_every_file_in_the_folder_is_a_study_of_that_name():
    files = sorted(
        path.stem for path in Path(studies.__path__[0]).glob("*.py") if path.stem != "__init__"
    )
    assert study_names() == files
    assert files
    for name in files:
        study = find_study(name)
        assert isinstance(study, Study)
        assert study.name == name
        assert {"quick", "paper"} <= set(study.presets)
        assert study.claims


def test_claims_of_all_studies_have_numbers_of_their_own():
    ids = [claim.id for name in study_names() for claim in find_study(name).claims]
    assert len(set(ids)) == len(ids)


def test_unknown_study_is_refused_with_what_is_allowed():
    with pytest.raises(ConfigError) as refusal:
        find_study("sem")
    assert str(refusal.value) == f"study: got 'sem', allowed: {', '.join(study_names())}"


def test_unknown_preset_is_refused_with_what_is_allowed():
    assert STUDY.config("paper").seeds == 5
    with pytest.raises(ConfigError, match="preset: got 'slow', allowed: quick, paper"):
        STUDY.config("slow")


def test_run_records_config_verdicts_and_time(tmp_path: Path):
    record = STUDY.run(STUDY.config("quick"), Lab(tmp_path), "quick")
    assert (record.study, record.preset, record.precision, record.seconds) == (
        "example",
        "quick",
        "float32",
        4.0,
    )
    assert record.config == {"seeds": 3, "rate": 0.1, "unused": 1.0, "sweeps": {}}
    assert record.verdicts["A-1"]["verdict"] == "holds"
    assert "jax" in record.versions
    json.dumps(dict(record.verdicts), allow_nan=False)


def test_swept_run_has_a_cell_for_every_value(tmp_path: Path):
    config = STUDY.swept(STUDY.config("quick"), {"rate": (0.1, 0.3)})
    record = STUDY.run(config, Lab(tmp_path))
    assert record.config["sweeps"] == {"rate": [0.1, 0.3]}
    assert [verdict for _, verdict, _ in STUDY.judge(record)[0].cells] == ["holds", "fails"]


def test_unknown_sweep_is_refused_with_what_is_allowed():
    for name in ("speed", "seeds"):
        with pytest.raises(
            ConfigError, match=f"sweep {name}: no such float in example, allowed: rate, unused"
        ):
            STUDY.swept(STUDY.config("quick"), {name: (1, 2)})


def test_sweep_that_reaches_no_training_is_refused(tmp_path: Path):
    config = STUDY.swept(STUDY.config("quick"), {"unused": (1.0, 2.0)})
    with pytest.raises(ConfigError, match="sweep unused: reaches no training of example"):
        STUDY.run(config, Lab(tmp_path))
