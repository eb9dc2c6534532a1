"""Records made by hand of the studies of Lu, Mao & Nayak (2021) in which every claim holds, and
edits that break each check.

The phenomena are put in as the theory states them: scores rise, norms follow corollary 1, the loss
follows the equation of theorem 2.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import xarray as xr
from record_parts import (
    SEEDS,
    Change,
    Edit,
    Refutations,
    after,
    along,
    at,
    at_end,
    both,
    change,
    one_seed,
    plus,
    power,
    record_of,
    reversed_along,
    set_to,
    swap,
    times,
    trained,
)

from saccade.records.record import Arm, Record
from saccade.records.schedule import DenseThenEven
from saccade.studies import sen, sen_convolution, sen_query, sen_synergy
from saccade.studies._sen import HEADS
from saccade.tasks.markov_pairs import MarkovPairs
from saccade.theory.fixed_linear_classifier import Theorem2
from saccade.theory.query_conservation import QueryConservation, norm_of_scores
from saccade.theory.score_and_norm import Corollary1, Theorem1, norm_of_score

WORDS, FILLERS = 8, 20
WRONG_WORD = 3
"""The topic word that starts on the wrong side of the others in the synergy record."""
INNER = {"score_share": "score_bin", "norm_share": "norm_bin"}
"""Last dims of histograms, by the end of their names."""


def dataset(
    steps: Any, rate: float = 0.1, sweep: dict[str, Any] | None = None, /, **variables: Any
) -> xr.Dataset:
    """A dataset from arrays whose last dims are those of (sweep), seed, step, (word or bin)."""
    outer = (*(sweep or {}), "seed", "step")

    def named(name: str, value: Any) -> xr.DataArray:
        value = np.asarray(value, float)
        of_words = value.ndim > 0 and value.shape[-1] == WORDS
        dims = (*outer, "word") if of_words else outer
        dims = next(((*outer, bin_) for end, bin_ in INNER.items() if name.endswith(end)), dims)
        return xr.DataArray(value, dims=dims[len(dims) - value.ndim :])

    arrays = {name: named(name, value) for name, value in variables.items()}
    spread = along(steps, sweep, {"word": np.arange(WORDS)}, **arrays)
    topic, time = ("word", np.arange(WORDS) // 2), ("step", rate * np.asarray(steps))
    return spread.assign_coords(topic=topic, time=time)


def _ramp(steps: np.ndarray, end: float) -> np.ndarray:
    """Scores that rise from 0; dims seed, step, word. Seeds and words differ a little."""
    seed, word = np.arange(SEEDS)[:, None, None], np.arange(WORDS)
    return end * (steps[:, None] / steps[-1]) ** 0.8 * (1 + 0.004 * seed + 0.003 * word)


def _shares(score_edges: Sequence[float], norm_edges: Sequence[float]) -> dict[str, np.ndarray]:
    """Histograms with all topic words in one bin, and all others in another."""
    edges = {"score": len(score_edges) - 1, "norm": len(norm_edges) - 1}
    return {
        f"{words}_{quantity}_share": np.eye(bins)[int(place * bins)]
        for quantity, bins in edges.items()
        for words, place in (("topic", 0.7), ("other", 0.1))
    }


def _predicted(arm: Arm, task: Any, *theories: Any) -> Arm:
    parts: Any = [theory.predict(task, None, arm.trajectory) for theory in theories]
    prediction: Any = xr.merge(parts)
    return arm.with_prediction(prediction, "theory")


def sen_record() -> Record:
    config = sen.Config()
    task, arms = config.task, {}
    for head, end in (("FC", 0.0), ("TC", 3.0), ("TL", 1.8)):
        total = config.long_steps if head == "FC" else config.steps
        steps = DenseThenEven(config.steps).steps(total)
        if head == "FC":
            curves = Theorem2().predict(task, None, dataset(steps, config.rate))
            score = np.broadcast_to(curves["score"].values[:, None], (SEEDS, len(steps), WORDS))
            attention = curves["attention"].values[:, None] * np.ones(WORDS)
            loss = curves["loss"].values
        else:
            score = _ramp(steps, end)
            attention, loss = 0.05 + 0.9 * score / score.max(), np.exp(-5 * steps / steps[-1])
        norm = norm_of_score(score, FILLERS)
        rising = {"score": score, "norm": norm, "distance": norm, "attention": attention}
        constant = {"score_velocity": 0.01, "norm_velocity": 0.01, "projection": 0.02}
        constant |= {"inverse_partition": 1 / FILLERS}
        constant = {name: np.full(WORDS, value) for name, value in constant.items()}
        accuracy = {"loss": loss, "test_accuracy": 1.0, "train_accuracy": 1.0}
        ends = dataset(
            sorted({0, config.steps, total}),
            config.rate,
            other_score_change=0.005,
            topic_score_change=score[0, -1, 0],
            other_displacement=0.005,
            topic_displacement=norm[0, -1, 0],
            **_shares(sen.SCORE_EDGES, sen.NORM_EDGES),
        )
        measured = dataset(steps, config.rate, **rising, **constant, **accuracy)
        arm = _predicted(Arm(measured, ends), task, Corollary1(), Theorem1())
        arms[head] = sen.with_running(arm, config.rate)
    reference = arms["FC"].trajectory
    flow = reference[["score", "norm", "loss"]].copy(deep=True)
    arms["FC_lemma2"] = Arm.of_prediction(flow, "lemma 2")
    arms["FC_theorem2"] = Arm.of_prediction(Theorem2().predict(task, None, reference), "theorem 2")
    for name, dim, grid, exponent, slope in (
        ("by_rate", "rate", sen.RATES, 1, 0.01),
        ("by_std", "embedding_std", sen.STDS, 2, 20.0),
    ):
        steps = np.arange(0, 1001, 50)
        score, growth = _ramp(steps, 3.0), 1 + slope * np.asarray(grid) ** exponent
        norm = norm_of_score(score, FILLERS) * growth[:, None, None, None]
        rest = {"attention": np.full(WORDS, 0.5), "loss": 1.0}
        swept = dataset(steps, 0.1, {dim: np.asarray(grid)}, score=score, norm=norm, **rest)
        arms[name] = sen.with_running(_predicted(trained(swept), task, Corollary1()), 0.1)
    return record_of("sen", config, arms)


def synergy_record() -> Record:
    config = sen_synergy.Config(knows_query_norm=True)
    steps = config.recorded.steps(config.steps)
    time = steps / 1000.0  # TC converges within the first of it
    slow = {"TC": 1.0, "KF": 3.0, "EF": 2.0}
    # The score of EF is overtaken at first and overtakes at the end; the norm of KF lags behind
    # that of TC.
    score = {"TC": 3 * (1 - np.exp(-2 * time)), "KF": 0 * time, "EF": 6 * (1 - np.exp(-0.3 * time))}
    pace = {"TC": 1.0, "KF": 0.5, "EF": 0.0}
    arms = {}
    for name in sen_synergy.ARMS:
        scores = np.broadcast_to(score[name][:, None], (SEEDS, len(steps), WORDS)).copy()
        norms = np.broadcast_to((4 - 3 * np.exp(-pace[name] * time))[:, None], scores.shape)
        projection = np.full(scores.shape, 0.2)
        velocity = np.full(scores.shape, 0.3 if name == "TC" else 0.2)
        if name == "TC":
            later = np.exp(0.6 - time)
            scores[:, :, WRONG_WORD] = np.where(time < 0.6, -time / 2, 3 - 3.3 * later)
        projection[:, time < 0.6, WRONG_WORD] = -0.2
        velocity[:, time <= 0.65, WRONG_WORD] = 0.1 if name == "TC" else 0.2
        data = {"score": scores, "norm": norms, "attention": np.full(WORDS, 0.5)}
        data |= {"loss": 1.4 * np.exp(-4 * time / slow[name])}
        data |= {"test_accuracy": 1.0, "train_accuracy": 1.0}
        if name != "EF":
            data |= {"projection": projection, "score_velocity": np.sign(projection)}
            data |= {"norm_velocity": velocity, "distance": norms}
            data |= {"inverse_partition": np.full(WORDS, 1 / FILLERS)}
        fine = dataset(steps, config.rate, **data)
        arms[name] = trained(fine).at_steps(config.shown)
        arms[f"{name}_loss"] = trained(fine[["loss", "diverged_at"]])
        if name != "EF":
            word = xr.DataArray(np.full(SEEDS, WRONG_WORD), {"seed": fine["seed"]}, ["seed"])
            followed = fine[[*sen_synergy.FOLLOWED, "diverged_at"]].isel(word=word)
            followed = followed.drop_vars("topic").assign(planted=("seed", np.zeros(SEEDS)))
            arms[f"{name}_laggard"] = trained(followed)
    arms["TC"] = _predicted(arms["TC"], None, Theorem1())
    return record_of("sen_synergy", config, arms)


def query_record() -> Record:
    config = sen_query.Config()
    steps = config.recorded.steps(config.steps)
    score, grid = _ramp(steps, 1.5), np.asarray(config.query_variances)
    # The gap halves as the variance doubles, at every score alike.
    norm = norm_of_score(score, FILLERS) * (1 + 0.05 / grid[:, None, None, None])
    data = {"score": score, "norm": norm, "attention": np.full(WORDS, 0.5)}
    data |= {"loss": 1.4 * np.exp(-4 * steps / steps[-1])}
    data |= {"test_accuracy": 1.0, "train_accuracy": 1.0}
    scores, initial = np.sum(score**2, axis=-1), config.model.key_dimension * grid[:, None, None]
    query = norm_of_scores(scores, initial)
    data |= {"score_square": scores, "query_norm": query, "key_square": query**2 - initial}
    arm = trained(dataset(steps, config.rate, {"query_variance": grid}, **data))
    arm = _predicted(arm, config.task, Corollary1(), QueryConservation())
    return record_of("sen_query", config, dict.fromkeys(HEADS, arm))


def convolution_record() -> Record:
    config = sen_convolution.Config(seeds=SEEDS, task=MarkovPairs(pairs_per_topic=WORDS // 2))
    steps = np.linspace(0, config.steps, 61).astype(int)
    score = _ramp(steps, 6.0)
    data = {"centred_score": score, "centred_norm": 1.3 * norm_of_score(score, 8)}
    data |= {"test_accuracy": 1.0, "train_accuracy": 1.0, "loss": np.exp(-steps / 1000)}
    trajectory = dataset(steps, config.rate, **data)
    ends = dataset(
        [0, config.steps],
        config.rate,
        topic_score_change=6.0,
        other_score_change=0.1,
        topic_displacement=4.0,
        other_displacement=0.1,
        **_shares(sen_convolution.SCORE_EDGES, sen_convolution.NORM_EDGES),
    )
    norm = norm_of_score(trajectory["centred_score"], config.other_pairs)
    arm = Arm(trajectory, ends, xr.Dataset({"centred_norm": norm}), "corollary 1")
    return record_of("sen_convolution", config, {"TC-CNN": arm})


RECORDS = {
    "sen": sen_record,
    "sen_synergy": synergy_record,
    "sen_query": query_record,
    "sen_convolution": convolution_record,
}

# -- refutations -----------------------------------------------------------------------------------


def _regrown(arm: str, growth: Callable[[xr.DataArray], Any]) -> Edit:
    """Gaps that are a function of the swept value."""
    dim = sen.SWEEPS[arm][0]
    return change(arm, "largest_gap", lambda gaps: xr.zeros_like(gaps) + growth(gaps[dim]))


def _nearly_even_at_first(arm: str) -> Edit:
    """The gaps at the two smallest values are nearly equal."""
    dim, (first, second, *_) = sen.SWEEPS[arm]
    alike = lambda gaps: 0.99 * gaps.sel({dim: second}, drop=True)  # noqa: E731
    return change(arm, "largest_gap", lambda gaps: gaps.where(gaps[dim] != first, alike(gaps)))


def _stopped(factor: float, amount: float = 0.0) -> Change:
    """From the paper's last epoch on a constant, near the value there."""
    return after(5000, lambda values: factor * values.sel(step=5000, drop=True) + amount)


def _overtakes_early(speed: xr.DataArray) -> xr.DataArray:
    """TC grows faster before the laggard's score is at its lowest."""
    return xr.where(speed["step"] < 300, 0.1, 0.3) + xr.zeros_like(speed)


def _far_late(head: str) -> Edit:
    """Late in training the gap grows with the variance of the query."""
    exceeds = after(4000, lambda norm: norm * (1 + norm["query_variance"]))
    return change(head, "norm", exceeds)


def _reversed(head: str) -> Edit:
    return change(head, "norm", reversed_along("query_variance"))


_UNORDERED = [change(head, "norm", reversed_along("step")) for head in HEADS]

REFUTATIONS: Refutations = {
    "A-1": [
        at_end("TL", "other_score_change", one_seed(plus(0.1))),
        at_end("FC", "other_displacement", one_seed(plus(0.2))),
    ],
    "A-2": [
        change("TC", "largest_gap", one_seed(plus(0.1))),
        both(
            change("FC TC TL", "mean_gap", plus(0.1)),
            change("FC TC TL", "largest_gap", plus(0.1)),
        ),
    ],
    "A-3": [change(head, "largest_gap", one_seed(plus(0.05))) for head in HEADS],
    "A-4": [
        change("FC", "loss", one_seed(plus(0.05))),
        change("FC", "attention", one_seed(times(0.85))),
        change("FC", "test_accuracy", one_seed(times(0.99))),
        change("FC", "attention", _stopped(1.0, -0.01)),
        change("FC", "loss", _stopped(0.6)),
        change("FC", "loss", one_seed(after(10000, plus(0.01)))),
    ],
    "A-4b": [change(head, "attention", one_seed(times(0.5))) for head in ("TC", "TL")],
    "A-4c": [change("FC", "loss", times(1.2))],
    "A-5": [(swap("FC", "TL"), swap("TC", "TL"), change("TC", "score", one_seed(times(0))))],
    "A-6": [change("TL", "largest_residual", one_seed(plus(0.05)))],
    "A-7": [change("TC", "equal_signs", one_seed(times(0.9)))],
    "A-7b": [change("FC", "score", times(1.1))],
    "A-8": [
        change("by_rate", "largest_gap", reversed_along("rate")),
        change("by_std", "largest_gap", reversed_along("embedding_std")),
        (
            change("by_rate", "largest_gap", plus(0.05)),
            _regrown("by_rate", lambda rate: 0.03 * rate**0.5),
            _regrown("by_rate", lambda rate: 0.01 * rate**2),
        ),
        (
            change("by_std", "largest_gap", plus(0.05)),
            _regrown("by_std", lambda std: std),
            _regrown("by_std", lambda std: 1e3 * std**4),
        ),
    ],
    "A-8b": [
        (
            _nearly_even_at_first("by_rate"),
            _regrown("by_rate", lambda rate: 0.03 * rate**0.5),
        ),
        (
            _nearly_even_at_first("by_std"),
            _regrown("by_std", lambda std: std),
        ),
    ],
    "A-9": [change(f"{arm}_loss", "loss", one_seed(times(1e-3))) for arm in ("KF", "EF")],
    "A-9b": [change(arm, "test_accuracy", one_seed(times(0.99))) for arm in ("TC", "KF", "EF")],
    "A-9c": [change("TC_loss KF_loss EF_loss", "loss", power(0.3))],
    "A-9d": [change("EF", "score", one_seed(at(after(50000, set_to(-1)), word=0)))],
    "A-10": [
        change("EF", "score", one_seed(plus(5))),
        change("EF", "score", one_seed(times(0.1))),
    ],
    "A-11": [change("KF", "norm", one_seed(plus(3)))],
    "A-12": [
        change("TC_laggard", "score", one_seed(lambda values: values.clip(min=0))),
        change("TC_laggard", "score", one_seed(after(50000, set_to(-0.2)))),
        change("TC_laggard", "norm_velocity", one_seed(plus(1))),
        change("KF_laggard", "norm_velocity", one_seed(after(50000, plus(1)))),
    ],
    "A-12b": [
        change("TC_laggard", "norm_velocity", one_seed(_overtakes_early)),
        change("KF_laggard", "norm_velocity", plus(1)),
    ],
    "A-13": [*((_far_late(head), _reversed(head)) for head in HEADS), *_UNORDERED],
    "A-13b": [*(_reversed(head) for head in HEADS), *_UNORDERED],
    "A-13c": 2 * [change(head, "key_square", one_seed(after(0, plus(1)))) for head in HEADS],
    "A-13d": [change(head, "query_norm", one_seed(times(1.1)), "prediction") for head in HEADS],
    "A-14": [
        change("TC-CNN", "test_accuracy", one_seed(times(0.9))),
        at_end("TC-CNN", "other_score_change", one_seed(times(100))),
        change("TC-CNN", "centred_norm", one_seed(reversed_along("step"))),
    ],
}
