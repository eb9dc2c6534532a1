"""Studies: refused presets and sweeps, and records that say what was run."""

import dataclasses
import functools
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from saccade.core.study import Study
from saccade.errors import ConfigError, FileError
from saccade.judging.bound import AtMost
from saccade.judging.claim import Check, Claim
from saccade.judging.registration import is_clean
from saccade.records.record import Arm
from saccade.settings import Swept
from saccade.train.lab import Lab


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
    arm = Arm(trajectory if swept else trajectory.isel(rate=0, drop=True))
    return {"one": arm, "two": arm}


def error_at_the_end(arms: Mapping[str, Arm], config: ExampleConfig) -> xr.DataArray:
    assert isinstance(config, ExampleConfig)
    return arms["one"].end["error"]


CHECK = Check("error", error_at_the_end, AtMost(0.15), "one")
STUDY = Study(
    "example",
    "An example",
    "Nobody 2021",
    {"quick": ExampleConfig(), "paper": ExampleConfig(seeds=5)},
    experiment,
    (Claim("A-1", "The error is small", "Nobody 2021, figure 1", CHECK, "the figure"),),
)


def test_unknown_preset_is_refused_with_what_is_allowed():
    assert STUDY.config("paper").seeds == 5
    with pytest.raises(ConfigError, match="preset: got 'slow', allowed: quick, paper"):
        STUDY.config("slow")


def test_run_records_config_verdicts_and_time(tmp_path: Path, monkeypatch):
    monkeypatch.delenv("SACCADE_COMMIT", raising=False)
    record = STUDY.run(STUDY.config("quick"), Lab(tmp_path), "quick")
    assert (record.study, record.preset, record.precision, record.seconds) == (
        "example",
        "quick",
        "float32",
        4.0,
    )
    assert record.config == {"seeds": 3, "rate": 0.1, "unused": 1.0, "sweeps": {}}
    stored = record.verdicts["A-1"]
    assert stored["verdict"] == "holds"
    texts = ("statement", "source", "paper", "prediction", "tolerance", "explanation")
    assert [stored[name] for name in texts] == [
        "The error is small",
        "Nobody 2021, figure 1",
        "not stated",
        "not stated",
        "the figure",
        "",
    ]
    assert (stored["known"], stored["registered"]) == (None, is_clean(record.commit))
    assert (record.title, record.paper) == ("An example", "Nobody 2021")
    assert stored["evidence"]["checks"][0]["samples"][0]["dims"] == {"seed": 3}
    assert "jax" in record.versions
    json.dumps(dict(record.verdicts), allow_nan=False)


def test_an_experiment_gives_arms(tmp_path: Path):
    wrong = dataclasses.replace(STUDY, experiment=lambda config, lab: {"main": 3})
    with pytest.raises(ConfigError, match="experiment gave the type int, allowed: a dict of arms"):
        wrong.run(wrong.config("quick"), Lab(tmp_path, progress=None))


def test_the_name_of_the_study_stands_before_those_of_its_arms(tmp_path: Path):
    lab, titles = Lab(tmp_path, progress=None, title="before"), []

    def titled(config: ExampleConfig, lab: Lab) -> Mapping[str, Arm]:
        titles.append(lab.title)
        return experiment(config, lab)

    study = dataclasses.replace(STUDY, experiment=titled)
    study.run(study.config("quick"), lab)
    assert (titles, lab.title) == (["example"], "before")


def test_a_claim_has_an_id_of_its_own():
    with pytest.raises(ConfigError, match=f"two claims {STUDY.claims[0].id}, allowed: every id"):
        dataclasses.replace(STUDY, claims=[STUDY.claims[0]] * 2)


def test_swept_run_has_a_cell_for_every_value(tmp_path: Path):
    config = STUDY.swept(STUDY.config("quick"), {"rate": (0.1, 0.3)})
    record = STUDY.run(config, Lab(tmp_path))
    assert record.config["sweeps"] == {"rate": [0.1, 0.3]}
    assert [verdict for _, verdict, _ in STUDY.judge(record)[0].cells] == ["holds", "fails"]


def test_unknown_sweep_is_refused_with_what_is_allowed():
    for name in ("speed", "name"):
        allowed = f"sweep {name}: no such number, allowed: seeds, rate, unused"
        with pytest.raises(ConfigError, match=allowed):
            STUDY.swept(STUDY.config("quick"), {name: (1, 2)})


def test_sweep_that_reaches_no_training_is_refused(tmp_path: Path):
    config = STUDY.swept(STUDY.config("quick"), {"unused": (1.0, 2.0)})
    with pytest.raises(ConfigError, match="sweep unused: reaches no training of example"):
        STUDY.run(config, Lab(tmp_path))


def test_a_record_is_judged_once_from_its_numbers(tmp_path: Path):
    asked = []

    def counted(arms: Mapping[str, Arm], config: ExampleConfig) -> xr.DataArray:
        asked.append(config)
        return error_at_the_end(arms, config)

    claim = dataclasses.replace(STUDY.claims[0], checks=dataclasses.replace(CHECK, measure=counted))
    study = dataclasses.replace(STUDY, claims=(claim,))
    record = study.run(study.config("quick"), Lab(tmp_path), "quick")
    for _ in range(3):
        assert study.judge(record)[0].verdict == "holds"
    study.drawn(record)
    assert len(asked) == 1, "the verdicts that a run stores are those that it shows"
    study.judge(dataclasses.replace(record, seconds=1.0))
    assert len(asked) == 2, "another record is judged for itself"


def test_a_lying_file_changes_no_verdict(tmp_path: Path):
    record = STUDY.run(STUDY.config("quick"), Lab(tmp_path), "quick")
    lying = {"A-1": {**record.verdicts["A-1"], "verdict": "fails"}}
    assert STUDY.judge(dataclasses.replace(record, verdicts=lying))[0].verdict == "holds"
    with pytest.raises(ConfigError, match="verdicts are written when a record is made"):
        STUDY.with_verdicts(record)


# -- known verdicts --------------------------------------------------------------------------------


def study_in(folder: Path, known: str | None = None) -> Study[ExampleConfig]:
    """The study, as if its experiment stood in a file of that folder."""
    file, here = folder / "example.py", {"inner": experiment}
    file.write_text("def outer(config, lab):\n    return inner(config, lab)\n")
    exec(compile(file.read_text(), file, "exec"), here)
    if known is not None:
        (folder / "known.json").write_text(known)
    return dataclasses.replace(STUDY, experiment=here["outer"])


def test_the_known_verdict_of_a_preset_is_read_beside_the_study(tmp_path: Path):
    study = study_in(tmp_path, '{"example": {"quick": {"A-1": "fails"}}}')
    judgement = study.judge(study.run(study.config("quick"), Lab(tmp_path), "quick"))[0]
    assert (judgement.verdict, judgement.known, judgement.changed) == ("holds", "fails", True)
    assert study.known("paper") == {}
    unknown = [
        study.run(study.config("paper"), Lab(tmp_path), "paper"),
        study.run(ExampleConfig(rate=0.05), Lab(tmp_path), "quick"),
        study.run(study.config("quick"), Lab(tmp_path)),
        study.run(study.swept(study.config("quick"), {"rate": [0.1]}), Lab(tmp_path), "quick"),
    ]
    assert [study.judge(record)[0].known for record in unknown] == [None] * 4
    assert [study.is_preset(record) for record in unknown] == [True, False, False, False]


@pytest.mark.parametrize("known", [None, "{}", '{"other": {"quick": {"A-1": "fails"}}}'])
def test_nothing_may_be_known(known: str | None, tmp_path: Path):
    assert study_in(tmp_path, known).known("quick") == {}


@pytest.mark.parametrize(
    ("known", "why"),
    [
        ("{", "Expecting property name"),
        ("[]", "'list' object has no attribute 'get'"),
        ('{"example": []}', "'list' object has no attribute 'get'"),
        ('{"example": {"quick": ["A-1"]}}', "'list' object has no attribute 'items'"),
        (
            '{"example": {"quick": {"A-1": "true"}}}',
            "example, quick, A-1: got 'true', allowed: holds, fails, undetermined",
        ),
    ],
)
def test_a_broken_table_is_one_sentence_before_the_experiment(known, why, tmp_path, monkeypatch):
    study = study_in(tmp_path, known)
    monkeypatch.setitem(study.experiment.__globals__, "inner", None)  # pyright: ignore[reportFunctionMemberAccess]
    with pytest.raises(FileError) as refused:
        study.run(study.config("quick"), Lab(tmp_path), "quick")
    assert re.search(rf"known\.json: .*{re.escape(why)}", str(refused.value))
    assert "\n" not in str(refused.value)


def test_an_experiment_may_be_any_function(tmp_path: Path):
    """One without a file, such as a partial of a builtin, has no table and no commit."""
    partial = dataclasses.replace(STUDY, experiment=functools.partial(experiment))
    assert partial.run(partial.config("quick"), Lab(tmp_path), "quick").commit == (
        STUDY.run(STUDY.config("quick"), Lab(tmp_path), "quick").commit
    )

    class Called:
        def __call__(self, config: ExampleConfig, lab: Lab) -> Mapping[str, Arm]:
            return experiment(config, lab)

    study = dataclasses.replace(STUDY, experiment=Called())
    record = study.run(study.config("quick"), Lab(tmp_path), "quick")
    assert (record.commit, study.known("quick")) == ("", {})


def test_sweeps_of_one_last_name_keep_their_paths():
    @dataclasses.dataclass(frozen=True)
    class Part:
        scale: float = 1.0

    @dataclasses.dataclass(frozen=True)
    class Both:
        task: Part = Part()
        model: Part = Part()

    study = Study("both", "", "", {"quick": Both()}, lambda config, lab: {}, ())
    swept: Any = study.swept(Both(), {"task.scale": [1.0, 2.0], "model.scale": [1.0, 2.0]})
    assert [swept.task.scale.name, swept.model.scale.name] == ["task.scale", "model.scale"]
    with pytest.raises(ConfigError, match=r"stands for task\.scale, model\.scale"):
        study.swept(Both(), {"scale": [1.0, 2.0]})
