"""Records made by hand in which every claim holds, and ways to edit them.

The phenomena are put in as the theory states them: scores rise, norms follow corollary 1, the loss follows theorem 2's
equation. Breaking one of them must break the claims about it, and no training is needed to see it.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr

from saccade.core.lab import describe
from saccade.core.record import Arm, Record
from saccade.core.study import find_study
from saccade.studies import sen, sen_convolution, sen_query, sen_synergy
from saccade.theory.fixed_linear_classifier import Theorem2
from saccade.theory.score_and_norm import Corollary1, Theorem1, norm_of_score

SEEDS = 5
WORDS = 8
FILLERS = 20
WRONG_WORD = 3
"""The topic word that starts on the wrong side of the others in the synergy record."""


def dataset(steps: Any, rate: Any = 0.1, sweep: dict[str, Any] | None = None, **variables: Any) -> xr.Dataset:
    """A dataset from functions' values; an array's shape tells its dims: (sweep), seed, step, (word or bin)."""
    steps = np.asarray(steps)
    outer = tuple(sweep or ())
    coordinates: dict[str, Any] = {"seed": np.arange(SEEDS), "step": steps, **(sweep or {})}
    coordinates["time"] = ("step", rate * steps)
    coordinates |= {"word": np.arange(WORDS), "topic": ("word", np.arange(WORDS) // 2)}
    sizes = (*(len(values) for values in (sweep or {}).values()), SEEDS, len(steps))
    data: dict[str, Any] = {"diverged_at": ((*outer, "seed"), np.full(sizes[:-1], -1))}
    for name, value in variables.items():
        inner = ("score_bin",) if name.endswith("score_share") else ("norm_bin",) if name.endswith("norm_share") else ()
        value = np.asarray(value, float)
        if not inner and value.ndim and value.shape[-1] == WORDS:
            inner = ("word",)
        shape = (*sizes, *((value.shape[-1],) if inner else ()))
        data[name] = ((*outer, "seed", "step", *inner), np.broadcast_to(value, shape).copy())
    return xr.Dataset(data, coordinates)


def _record(study: str, config: Any, arms: dict[str, Arm]) -> Record:
    plain = describe(config) | {"sweeps": {}}
    plain.pop("class")
    return Record(study, "synthetic", plain, arms, {"saccade": "0"}, "none", "float64", 0.0)


def _ramp(steps: np.ndarray, end: float) -> np.ndarray:
    """Scores that rise from 0; dims seed, step, word. Seeds and words differ a little."""
    seed, word = np.arange(SEEDS)[:, None, None], np.arange(WORDS)
    return end * (steps[:, None] / steps[-1]) ** 0.8 * (1 + 0.004 * seed + 0.003 * word)


def _shares(edges: Sequence[float], place: float) -> np.ndarray:
    """All words in one bin, so far along the bins."""
    bins = len(edges) - 1
    return np.eye(bins)[int(place * bins)]


def sen_record() -> Record:
    config = sen.Config()
    task = config.task
    arms: dict[str, Arm] = {}
    for head, end in (("FC", None), ("TC", 3.0), ("TL", 1.8)):
        steps = np.asarray(sen._recorded(config.steps, config.long_steps if head == "FC" else config.steps))  # pyright: ignore[reportPrivateUsage]
        empty = dataset(steps, config.rate)
        if end is None:
            curves = Theorem2().predict(task, None, empty)
            score = np.broadcast_to(curves["score"].values[:, None], (SEEDS, len(steps), WORDS))
            attention, loss = curves["attention"].values[:, None] * np.ones(WORDS), curves["loss"].values
        else:
            score = _ramp(steps, end)
            attention, loss = 0.05 + 0.9 * score / score.max(), np.exp(-5 * steps / steps[-1])
        norm = norm_of_score(score, FILLERS)
        trajectory = dataset(
            steps, config.rate, score=score, norm=norm, attention=attention, loss=loss, distance=norm,
            inverse_partition=np.full(WORDS, 1 / FILLERS), score_velocity=np.full(WORDS, 0.01), norm_velocity=np.full(WORDS, 0.01),
            projection=np.full(WORDS, 0.02), test_accuracy=1.0, train_accuracy=1.0,
        )  # fmt: skip
        ends = dataset(
            [0, steps[-1]], config.rate, other_score_change=0.005, topic_score_change=score[0, -1, 0], other_displacement=0.005,
            topic_displacement=norm[0, -1, 0], topic_score_share=_shares(sen.SCORE_EDGES, 0.7),
            other_score_share=_shares(sen.SCORE_EDGES, 0.1), topic_norm_share=_shares(sen.NORM_EDGES, 0.7),
            other_norm_share=_shares(sen.NORM_EDGES, 0.1),
        )  # fmt: skip
        arms[head] = predicted(Arm(trajectory, ends, xr.Dataset()), task, Corollary1(), Theorem1())
    reference = arms["FC"].trajectory
    arms["FC_lemma2"] = Arm.of_prediction(reference[["score", "norm", "loss"]].copy(deep=True), "lemma 2")
    arms["FC_theorem2"] = Arm.of_prediction(Theorem2().predict(task, None, reference), "theorem 2")
    for name, dim, grid, power, slope in (
        ("by_rate", "rate", sen.RATES, 1, 0.01),
        ("by_std", "embedding_std", sen.STDS, 2, 50.0),
    ):
        steps = np.arange(0, 1001, 50)
        score = _ramp(steps, 3.0)
        growth = 1.002 + slope * np.asarray(grid)[:, None, None, None] ** power
        norm = norm_of_score(score, FILLERS) * growth
        swept = dataset(steps, 0.1, {dim: np.asarray(grid)}, score=score, norm=norm, attention=np.full(WORDS, 0.5), loss=1.0)
        arms[name] = predicted(Arm(swept, xr.Dataset(), xr.Dataset()), task, Corollary1())
    return _record("sen", config, arms)


def predicted(arm: Arm, task: Any, *theories: Any) -> Arm:
    prediction = xr.merge([theory.predict(task, None, arm.trajectory) for theory in theories])
    return dataclasses.replace(arm, prediction=prediction, predicted_by="theory")


def synergy_record() -> Record:
    config = sen_synergy.Config()
    steps = np.asarray(sen_synergy._recorded(config.figure_steps, config.steps))  # pyright: ignore[reportPrivateUsage]
    time = steps / 1000.0  # TC converges within the first of it
    slow = {"TC": 1.0, "KF": 3.0, "EF": 2.0}
    # The score of EF is overtaken at first and overtakes at the end; the norm of KF lags behind that of TC.
    score = {"TC": 3 * (1 - np.exp(-2 * time)), "KF": 0 * time, "EF": 6 * (1 - np.exp(-0.3 * time))}
    norm = {"TC": 1 + 3 * (1 - np.exp(-time)), "KF": 1 + 3 * (1 - np.exp(-0.5 * time)), "EF": 1 + 0 * time}
    arms = {}
    for name in sen_synergy.ARMS:
        scores = np.broadcast_to(score[name][:, None], (SEEDS, len(steps), WORDS)).copy()
        projection = np.full((SEEDS, len(steps), WORDS), 0.2)
        velocity = np.full((SEEDS, len(steps), WORDS), 0.3 if name == "TC" else 0.2)
        if name == "TC":
            scores[:, :, WRONG_WORD] = np.where(time < 0.6, -time / 2, 3 * (1 - np.exp(0.6 - time)) - 0.3 * np.exp(0.6 - time))
        projection[:, time < 0.6, WRONG_WORD] = -0.2
        velocity[:, time <= 0.65, WRONG_WORD] = 0.1 if name == "TC" else 0.2
        loss = 1.4 * np.exp(-4 * time / slow[name])
        data = {
            "score": scores, "norm": np.broadcast_to(norm[name][:, None], scores.shape), "loss": loss,
            "attention": np.full(WORDS, 0.5), "test_accuracy": 1.0, "train_accuracy": 1.0,
        }  # fmt: skip
        if name != "EF":
            data |= {
                "projection": projection, "norm_velocity": velocity, "score_velocity": np.sign(projection),
                "distance": data["norm"], "inverse_partition": np.full(WORDS, 1 / FILLERS),
            }  # fmt: skip
        arms[name] = Arm(dataset(steps, config.rate, **data), xr.Dataset(), xr.Dataset())
    arms["TC"] = predicted(arms["TC"], None, Theorem1())
    return _record("sen_synergy", config, arms)


def query_record() -> Record:
    config = sen_query.Config()
    steps = np.asarray(sen_query._recorded(config.steps))  # pyright: ignore[reportPrivateUsage]
    score = _ramp(steps, 1.5)
    grid = np.asarray(config.query_variances)
    # The gap halves as the variance doubles, at every score alike.
    norm = norm_of_score(score, FILLERS) * (1 + 0.05 / grid[:, None, None, None])
    task = sen.Config().task
    arms = {}
    for head in sen_query.HEADS:
        trajectory = dataset(
            steps, config.rate, {"query_variance": grid}, score=score, norm=norm, attention=np.full(WORDS, 0.5), loss=0.1,
            query_norm=3.0, test_accuracy=1.0, train_accuracy=1.0,
        )  # fmt: skip
        arms[head] = predicted(Arm(trajectory, xr.Dataset(), xr.Dataset()), task, Corollary1())
    return _record("sen_query", config, arms)


def convolution_record() -> Record:
    config = sen_convolution.Config(seeds=SEEDS, pairs_per_topic=4)
    steps = np.linspace(0, config.steps, 61).astype(int)
    score = _ramp(steps, 6.0)
    trajectory = dataset(
        steps, config.rate, centred_score=score, centred_norm=1.3 * norm_of_score(score, 8), test_accuracy=1.0, train_accuracy=1.0,
        loss=np.exp(-steps / 1000),
    )  # fmt: skip
    ends = dataset(
        [0, config.steps], config.rate, topic_score_change=6.0, other_score_change=0.1, topic_displacement=4.0,
        other_displacement=0.1, topic_score_share=_shares(sen_convolution.SCORE_EDGES, 0.7),
        other_score_share=_shares(sen_convolution.SCORE_EDGES, 0.1),
        topic_norm_share=_shares(sen_convolution.NORM_EDGES, 0.7),
        other_norm_share=_shares(sen_convolution.NORM_EDGES, 0.1),
    )  # fmt: skip
    norm = norm_of_score(trajectory["centred_score"], config.sentence_size - 2)
    return _record("sen_convolution", config, {"TC-CNN": Arm(trajectory, ends, xr.Dataset({"centred_norm": norm}), "corollary 1")})


RECORDS: dict[str, Callable[[], Record]] = {
    "sen": sen_record,
    "sen_synergy": synergy_record,
    "sen_query": query_record,
    "sen_convolution": convolution_record,
}

# -- edits ----------------------------------------------------------------------------------------------------------

Edit = Callable[[Record], Record]


def change(arms: str, variable: str, edit: Callable[[xr.DataArray], Any], part: str = "trajectory") -> Edit:
    """Replace one variable in some arms (named in one text, with spaces) by a function of itself."""

    def edited(record: Record) -> Record:
        changed = dict(record.arms)
        for name in arms.split():
            dataset = getattr(changed[name], part)
            values = dataset[variable].copy(deep=True)
            result = edit(values)
            replaced = dataset.assign({variable: values if result is None else result})
            changed[name] = dataclasses.replace(changed[name], **{part: replaced})
        return dataclasses.replace(record, arms=changed)

    return edited


def one_seed(edit: Callable[[xr.DataArray], xr.DataArray], seed: int = 2) -> Callable[[xr.DataArray], xr.DataArray]:
    """The same edit for a single seed."""
    return lambda values: xr.where(values["seed"] == seed, edit(values), values).transpose(*values.dims)


def swap(first: str, second: str) -> Edit:
    """Two arms under each other's names."""

    def edited(record: Record) -> Record:
        arms = dict(record.arms)
        arms[first], arms[second] = arms[second], arms[first]
        return dataclasses.replace(record, arms=arms)

    return edited


def diverge(arm: str, seed: int = 2) -> Edit:
    """One seed of an arm stops being finite halfway, as the lab records it."""

    def edited(record: Record) -> Record:
        trajectory = record.arms[arm].trajectory
        step, lost = trajectory["step"], trajectory["seed"] == seed
        at = int(step[len(step) // 2])
        floats = {name: values.where(~(lost & (step >= at))) for name, values in trajectory.items() if "step" in values.dims}
        marked = trajectory["diverged_at"].where(~lost, at)
        changed = dataclasses.replace(record.arms[arm], trajectory=trajectory.assign({**floats, "diverged_at": marked}))
        return dataclasses.replace(record, arms={**record.arms, arm: changed})

    return edited


def judged(record: Record) -> dict[str, Any]:
    """Judgements by claim."""
    return {judgement.claim: judgement for judgement in find_study(record.study).judge(record)}
