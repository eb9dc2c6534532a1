"""Small studies, records and figures made by hand, with everything a report must survive."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

from saccade.core.study import Divergence, Study
from saccade.figures.figure import Figure, HeatMap, Histogram, Line, Panel
from saccade.judging.bound import AtMost
from saccade.judging.claim import Check, Claim, PremiseNotMetError
from saccade.judging.statistics import EverySeed
from saccade.records.record import Arm, Record
from saccade.report.judged import Entry, StoredStudy

SEEDS = 5
STEPS = np.arange(0, 3000, 10)


@dataclasses.dataclass(frozen=True)
class ExampleConfig:
    rate: float = 0.1
    words: int = 20


def lines_figure() -> Figure:
    steps = STEPS.astype(float)
    fast, slow = np.log1p(steps / 300), np.log1p(steps / 600)
    loss = np.exp(-steps / 500) + 1e-3
    return Figure(
        "score",
        "The score grows with the norm",
        "Mean over five seeds; the band reaches from the lowest to the highest seed"
        " <script>alert(1)</script>.",
        (
            Panel(
                "Score of the topic word",
                "step",
                "score",
                (
                    Line(
                        "learned <b>scores</b>, with a comma", steps, fast, fast * 0.9, fast * 1.1
                    ),
                    Line("frozen", steps, slow, slow * 0.9, slow * 1.1),
                    Line("theory, equation 7", steps, fast * 1.01, role="theory"),
                    Line("chance", steps, np.full_like(steps, 0.5), role="reference"),
                ),
            ),
            Panel(
                "Training loss",
                "step",
                "loss ($ is no formula)",
                (
                    Line("frozen", steps, loss, loss * 0 - 1, loss * 1.2),
                    Line("frozen", steps, loss * 1.1, role="theory"),
                    Line("one point", np.array([500.0]), np.array([0.1])),
                ),
                "log",
                "log",
            ),
        ),
    )


def histogram_figure() -> Figure:
    edges = np.linspace(-1, 1, 13)
    middles = (edges[1:] + edges[:-1]) / 2

    def share(centre: float) -> np.ndarray:
        heights = np.exp(-((middles - centre) ** 2) / 0.1)
        return heights / heights.sum()

    marks = tuple(
        Histogram(label, edges, share(centre), share(centre) * 0.85, share(centre) * 1.15)
        for label, centre in (("topic", 0.4), ("stop words", -0.4), ("random", 0.0))
    )
    return Figure(
        "shares",
        "Where the words go",
        "Bars are 95 % intervals.",
        (Panel("Shares", "score", "share", marks),),
    )


def heat_map_figure() -> Figure:
    values = 10 ** np.linspace(-5, 1, 24).reshape(4, 6)
    values[2, 3] = np.nan
    values[0, 0] = 0  # has no place on a logarithmic scale
    rates, variances = np.array([0.01, 0.03, 0.1, 0.3, 1, 3]), np.array([0.1, 0.2, 0.5, 1.0])
    return Figure(
        "map",
        "Where the theory holds",
        "Error of the prediction.",
        (
            Panel(
                "Error",
                "rate",
                "variance",
                (HeatMap("relative error", rates, variances, values, "log"),),
            ),
        ),
    )


@pytest.fixture(scope="session")
def figures() -> list[Figure]:
    return [lines_figure(), histogram_figure(), heat_map_figure()]


def arm(diverged: bool = False, sweeps: dict[str, list[float]] | None = None) -> Arm:
    """An arm whose error is 0.01 per seed, growing with the swept values."""
    sweeps = sweeps or {}
    shape = (*(len(values) for values in sweeps.values()), SEEDS)
    dims = (*sweeps, "seed")
    error = np.broadcast_to(0.01 + 0.0005 * np.arange(SEEDS), shape).copy()
    for place, values in enumerate(sweeps.values()):
        error += np.asarray(values).reshape([-1 if at == place else 1 for at in range(len(shape))])
    diverged_at = np.full(shape, -1)
    if diverged:
        diverged_at[..., 3] = 40
    trajectory = xr.Dataset(
        {
            "error": ((*dims, "step"), np.repeat(error[..., None], 3, axis=-1)),
            "diverged_at": (dims, diverged_at),
        },
        coords={"seed": np.arange(SEEDS), "step": [0, 10, 20], **sweeps},
    )
    return Arm(trajectory, predicted_by="growth of the score (Theorem 1)")


def _unmet(arms, config) -> xr.DataArray:
    raise PremiseNotMetError("example has no trained scores")


def check(name: str = "plain", bound: float = 0.02, quantity: str = "relative error") -> Check:
    return Check(quantity, lambda arms, _: arms[name].end["error"], AtMost(bound), name)


CLAIMS = (
    Claim(
        "A-10",
        "The norm grows | with the score\nand stays <script>alert('x')</script>",
        "Lu 2021, Theorem 1",
        (check(), check(bound=0.1, quantity="largest error")),
        "twice the standard error",
        "0.012",
        "0.01",
    ),
    Claim(
        "A-2", "The error is tiny", "Lu 2021, Figure 2", (check(bound=0.001),), "the paper's figure"
    ),
    Claim(
        "A-1",
        "Every wild seed converges",
        "Lu 2021",
        (dataclasses.replace(check("wild"), statistic=EverySeed()),),
        "none",
    ),
    Claim(
        "A-3",
        "The error is tiny without training",
        "Lu 2021, Section 4",
        (check(bound=0.001),),
        "the figure",
        reason="the text leaves out the first 100 steps",
    ),
    Claim(
        "A-4",
        "The premise is never met",
        "Lu 2021",
        (dataclasses.replace(check(), measure=_unmet),),
        "none",
    ),
    Claim("A-5", "The mean of the wild arm is small", "Lu 2021", (check("wild"),), "none"),
)


KNOWN = {"A-1": "holds", "A-2": "fails", "A-3": "fails", "A-4": "undetermined"}
"""Verdicts known of the quick preset: that of A-1 is another now."""


def _experiment_in(folder: Path) -> Any:
    """The experiment of a file in a folder that has a table of known verdicts."""
    file, namespace = folder / "example.py", {}
    file.write_text("def experiment(config, lab):\n    raise NotImplementedError\n")
    (folder / "known.json").write_text(json.dumps({"example": {"quick": KNOWN}}))
    exec(compile(file.read_text(), file, "exec"), namespace)
    return namespace["experiment"]


@pytest.fixture(scope="session")
def study(figures: list[Figure], tmp_path_factory: pytest.TempPathFactory) -> Study[ExampleConfig]:
    return Study(
        "example",
        "Score and norm grow together & alone",
        "Lu, Example and Other 2021",
        {"quick": ExampleConfig(), "paper": ExampleConfig(words=200)},
        _experiment_in(tmp_path_factory.mktemp("example")),
        CLAIMS,
        lambda arms, config: figures,
        divergences=(Divergence("batch size", "800", "not <stated>", "800", "none seen"),),
    )


@pytest.fixture(scope="session")
def record() -> Record:
    return Record(
        study="example",
        preset="quick",
        config={
            "rate": 0.1,
            "words": 20,
            "optimiser": {"momentum": 0.9},
            "sizes": [1, 2.5],
            "sweeps": {},
        },
        arms={"plain": arm(), "wild": arm(diverged=True)},
        versions={"saccade": "0.1.0", "jax": "0.10.0"},
        device="CPU, 2 cores",
        precision="float32",
        seconds=7.24,
        verdicts={"A-10": {"verdict": "holds", "reason": "not read where the study is known"}},
    )


@pytest.fixture(scope="session")
def swept_study(study: Study[ExampleConfig]) -> Study[ExampleConfig]:
    claims = (
        Claim(
            "B-1",
            "The error is small everywhere",
            "Song 2024",
            (check(), check(bound=1, quantity="largest")),
            "none",
        ),
    )
    return dataclasses.replace(study, name="swept", title="A map", claims=claims, divergences=())


def swept(record: Record, sweeps: dict[str, list[float]]) -> Record:
    """The record with its arms swept."""
    config = dict(record.config) | {"sweeps": sweeps}
    return dataclasses.replace(
        record, study="swept", config=config, arms={"plain": arm(sweeps=sweeps)}
    )


SWEPT = {"rate": [0.0, 0.005, 0.05], "variance": [0.0, 0.001, 0.1, 0.2, 0.3, 0.4, 0.5]}


@pytest.fixture(scope="session")
def swept_record(record: Record) -> Record:
    return swept(record, SWEPT)


@pytest.fixture(scope="session")
def line_swept_record(record: Record) -> Record:
    return swept(record, {"rate": [0.0, 0.005, 0.05]})


@pytest.fixture(scope="session")
def entries(study, record, swept_study, swept_record):
    paper = dataclasses.replace(record, preset="paper")
    return [(study, record), (study, paper), (swept_study, swept_record)]


@pytest.fixture(scope="session")
def unknown(study, record, swept_study, swept_record) -> list[Entry]:
    """Records of two studies that are not installed, one of them of saccade 0.1, and one swept."""
    whole = study.with_verdicts(dataclasses.replace(record, verdicts={}))
    first: dict[str, Any] = {}
    for claim, plain in whole.verdicts.items():
        kept = {key: plain[key] for key in ("claim", "verdict", "reason", "cells")}
        findings = [
            {key: value for key, value in one.items() if key not in ("kept", "judged")}
            for one in plain["findings"]
        ]
        first[claim] = kept | {"findings": findings, "expected": "holds", "expected_reason": ""}
    old = dataclasses.replace(record, verdicts=first, study="older")
    records = [
        whole,
        old,
        swept_study.with_verdicts(dataclasses.replace(swept_record, verdicts={})),
    ]
    # As they come from a file: plain JSON.
    kept = [
        dataclasses.replace(
            one, verdicts=json.loads(json.dumps(dict(one.verdicts), allow_nan=False))
        )
        for one in records
    ]
    note = "runs/{}.nc: the study {!r} is not installed"
    return [(StoredStudy.of(one, note.format(one.study, one.study)), one) for one in kept]
