"""Records made by hand of the studies of Song, Han, Zhang, Ding & Hong (2024) in which every claim
holds, and edits that break each check.
"""

from functools import partial

import numpy as np
import xarray as xr
from record_parts import (
    Change,
    Edit,
    Refutations,
    after,
    along,
    at,
    at_end,
    both,
    change,
    on,
    once_trained,
    one_seed,
    per_seed,
    plus,
    record_of,
    reversed_along,
    steeper,
    times,
    trained,
)

from saccade.models.kernels import KERNEL_TITLES
from saccade.records.record import Arm, Record
from saccade.studies import kernels_convergence, kernels_stationary
from saccade.theory.kernel_blindness import KernelBlindness


def _early(last: int, points: int, *others: int) -> np.ndarray:
    return np.unique([0, *np.geomspace(1, last, points).round(), *others])


def _measured_at_ends(sweep: dict, last: int, **variables) -> xr.Dataset:
    return along([0, last], sweep, **variables).drop_vars("diverged_at")


def convergence_record() -> Record:
    config = kernels_convergence.Config()
    sizes = list(kernels_convergence.DIMENSIONS)
    dimension, first = on("D", sizes, sizes), 12 * per_seed()
    arms = {}
    for heads in config.heads:
        enough = heads * dimension >= config.rows
        floor = xr.where(enough, 0.0, 2.0) * per_seed()
        for which in kernels_convergence.TRAINED:
            total = config.value_steps if which == "values" else config.steps
            steps = _early(total, 49, kernels_convergence.STEPS)
            step = on("step", steps, steps)
            # Where HD >= Nn the loss goes to 0; else to the floor with values alone, and below it
            # with everything trained, a little faster than the spectrum of the start says.
            limit = floor if which == "values" else floor / 2
            decay = (0.01 * step).clip(max=60)
            slower = decay if which == "values" else 0.95 * decay
            loss, predicted = (limit + (first - limit) * np.exp(-one) for one in (decay, slower))
            trajectory = along(steps, {"D": sizes}, loss=loss)
            data = {"feature_low": xr.where(enough, 0.5, 0.0), "feature_high": 5.0}
            data |= {"output_low": 3.0, "curvature": 400.0, "floor": floor}
            snapshot = _measured_at_ends({"D": sizes}, total, **data)
            bound = first * np.exp(-4 * step / total) * xr.ones_like(dimension)
            theory = {"loss": bound.transpose("D", "seed", "step")}
            theory |= {"curve": predicted.transpose("D", "seed", "step")}
            theory |= {"floor": floor.transpose("D", "seed")}
            arm = Arm(trajectory, snapshot, xr.Dataset(theory), "theorem 1")
            for kernel in KERNEL_TITLES:
                arms[kernels_convergence.arm_name(kernel, which, heads)] = arm
    return record_of("kernels_convergence", config, arms)


def stationary_record() -> Record:
    config = kernels_stationary.Config()
    steps = _early(config.steps, 59)
    time, first = on("step", steps, steps) / config.steps, per_seed()
    keys, queries = list(kernels_stationary.KEY_SCALES), list(kernels_stationary.QUERY_SCALES)
    ends = {  # last loss / first, by scale of the keys, and of the queries
        "softmax": (np.exp(-14 * np.asarray(keys) ** 2), [1e-5, 0.1, 0.5]),
        "gaussian": ([1e-5] * 5, [1e-6, 0.9, 0.9999]),
    }
    grid = kernels_stationary.scales(config)
    key, query = on("key_scale", grid, grid), on("query_scale", grid, grid)
    trains = {"softmax": (key > 0.1) & (query < 100), "gaussian": (query < 3) & (key < 3)}
    one, part = on("part", ["queries"], [1.0]), {"part": ["queries"]}
    arms = {}
    for kernel, (by_keys, by_queries) in ends.items():
        # The Gaussian kernel needs half the time.
        faster = 2 if kernel == "gaussian" else 1
        pace = (faster * time).clip(max=1)
        pull = 2 * on("key_scale", keys, keys) if kernel == "softmax" else xr.DataArray(1.0)
        loss = first * on("key_scale", keys, by_keys) ** pace
        data = {"loss": loss, "gradient_norm": pull * one}
        trajectory = along(steps, {"key_scale": keys}, part, **data)
        data = {"loss": first, "reach_floor": 0.0, "first_order_gradient": pull}
        snapshot = _measured_at_ends({"key_scale": keys}, config.steps, **data)
        theory = xr.Dataset()
        if kernel == "softmax":
            theory = KernelBlindness().predict(None, None, snapshot)
        arms[f"{kernel}_keys"] = Arm(trajectory, snapshot, theory, "derived")
        loss = first * on("query_scale", queries, by_queries) ** pace
        by_query = along(steps, {"query_scale": queries}, part, loss=loss, gradient_norm=one)
        arms[f"{kernel}_queries"] = trained(by_query)
        late = _early(config.matched_steps, 99)
        pace = (faster * on("step", late, late) / config.matched_steps).clip(max=1)
        arms[f"{kernel}_matched"] = trained(along(late, loss=first * 1e-6**pace))
        phase = on("step", [0, config.phase_steps], [0, 1])
        loss = first * xr.where(trains[kernel], 1e-6, 0.5) ** phase
        swept = along([0, config.phase_steps], {"key_scale": grid, "query_scale": grid}, loss=loss)
        arms[f"{kernel}_phase"] = trained(swept)
    return record_of("kernels_stationary", config, arms)


RECORDS = {"kernels_convergence": convergence_record, "kernels_stationary": stationary_record}


def _at_once(loss: xr.DataArray) -> xr.DataArray:
    """The last loss from the first recorded step on."""
    return loss.where(loss["step"] == 0, loss.isel(step=-1))


def _out_of_reach(record: Record) -> Record:
    """One seed has a target that queries cannot reach, and ends near its reach."""
    far = at_end("gaussian_keys", "reach_floor", one_seed(at(plus(0.2), key_scale=0.0)))
    ends = one_seed(at(lambda loss: loss.clip(min=0.21), key_scale=0.0))
    return change("gaussian_keys", "loss", ends)(far(record))


def _ten_times_faster(loss: xr.DataArray) -> xr.DataArray:
    return loss * (loss / loss.isel(step=0, drop=True)) ** 9


def _as_predicted(arm: str, edit: Change) -> Edit:
    """Change the loss of an arm and what the spectrum predicts alike."""
    return both(change(arm, "loss", edit), change(arm, "curve", edit, "prediction"))


_all_lost = change("gaussian_queries", "loss", lambda loss: loss.where(loss["step"] == 0, 1e-9))
_gaussian_untrained = change("gaussian_keys", "loss", once_trained(at(plus(0.01), key_scale=0.0)))
_too_early, _at_last = (partial(at, step=one) for one in (kernels_convergence.STEPS, 20000))

REFUTATIONS: Refutations = {
    "D-1": [
        tuple(
            _as_predicted(arm, once_trained(at(times(1e3), D=32.0)))
            for arm in ("softmax_values_2", "gaussian_values_2")
        )
    ],
    "D-1b": [change("gaussian_values_4", "curve", one_seed(times(1.001)), "prediction")],
    "D-2": [_as_predicted("gaussian_values_2", one_seed(_too_early(at(times(1.01), D=4.0))))],
    "D-2b": [
        _as_predicted("gaussian_values_1", one_seed(at(times(1.01), step=400000))),
        change("softmax_values_1", "floor", one_seed(times(0)), "prediction"),
    ],
    "D-3": [
        change("softmax_all_2", "loss", once_trained(times(1e3))),
        _as_predicted("gaussian_all_2", one_seed(_too_early(plus(0.01)))),
    ],
    "D-3b": [
        change("softmax_all_4", "loss", once_trained(times(1e3))),
        _as_predicted("gaussian_all_4", one_seed(_at_last(plus(0.01)))),
    ],
    "D-3c": [change("gaussian_all_4", "curve", one_seed(after(200, times(1e-3))), "prediction")],
    "D-3d": [change("softmax_all_1", "loss", lambda loss: loss.where(loss["step"] == 0, loss / 2))],
    "D-4": [change("gaussian_all_2", "loss", one_seed(_too_early(at(times(3), D=4.0))))],
    "D-5": [
        change("softmax_keys", "gradient_norm", one_seed(plus(1e-9))),
        change("softmax_keys", "loss", once_trained(times(0.9))),
        _out_of_reach,
    ],
    "D-5b": [_gaussian_untrained],
    "D-5c": [
        change("gaussian_keys", "loss", once_trained(plus(0.1))),
        at_end("gaussian_keys", "reach_floor", one_seed(plus(0.1))),
    ],
    "D-6": [
        tuple(
            change("softmax_keys", "gradient_norm", steeper("key_scale", by)) for by in (-0.5, 0.5)
        ),
        change("gaussian_keys", "gradient_norm", steeper("key_scale", 1.0)),
        change("softmax_keys", "loss", reversed_along("key_scale")),
    ],
    "D-6b": [
        change("softmax_keys", "gradient_norm", one_seed(times(1.05)), "prediction"),
        change("softmax_keys", "loss", at(_ten_times_faster, key_scale=0.05)),
    ],
    "D-7": [_all_lost] * 3,
    "D-8": [
        change(f"{kernel}_keys", "loss", one_seed(at(at(plus(0.01), key_scale=1.0), step=6000)))
        for kernel in KERNEL_TITLES
    ],
    "D-8b": [change("softmax_matched", "loss", _at_once)],
    "D-8c": [
        change(f"{kernel}_phase", "loss", once_trained(plus(0.5)))
        for kernel in ("gaussian", "softmax")
    ],
    "D-8d": [change("softmax_keys", "loss", at(_at_once, key_scale=1.0))],
}
