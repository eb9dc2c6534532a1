"""Records made by hand of the studies of whole transformers (Song, Han, Zhang, Ding & Hong 2024) in
which every claim holds, and edits that break each check.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from record_parts import (
    SEEDS,
    Edit,
    Refutations,
    along,
    change,
    on,
    per_seed,
    plus,
    record_of,
    trained,
)

from saccade.records.record import Arm, Record
from saccade.studies import kernels_landscape, kernels_training
from saccade.studies._encoders import AT_SIZE, POSTERS, SMALL, TITLES

TOPS = {"softmax": 0.62, "gaussian": 0.75, "gaussian_matched": 0.7}
STEPS = np.arange(0, 20_001, 500)


def _arm(top: float, steps: np.ndarray = STEPS) -> Arm:
    """Accuracy that rises to a value, loss that falls with it."""
    accuracy = on("step", steps, np.linspace(0.5, top, steps.size)) * per_seed()
    curvature = on("step", steps, np.linspace(1, 9, steps.size)).expand_dims(place=[1])
    return trained(
        along(
            steps,
            loss=1.2 - accuracy,
            test_accuracy=accuracy,
            test_loss=1.2 - accuracy,
            hessian_eigenvalue=curvature,
        )
    )


def training_record() -> Record:
    config = kernels_training.Config(seeds=SEEDS, chosen=tuple(TITLES))
    arms = {}
    for (task, optimiser), names in config.places.items():
        for name in names:
            arms[f"{task}_{optimiser}_{name}"] = _arm(TOPS.get(name, 0.65))
        matched = f"{task}_{optimiser}_gaussian_matched"
        arms[matched] = arms[matched].with_variables(step_unit=0.1 * per_seed())
    return record_of("kernels_training", config, arms)


MOVES = np.linspace(-1, 1, 31)


def _plane(ripples: float) -> xr.DataArray:
    """A bowl with ripples."""
    query, key = (on(name, MOVES, MOVES) for name in kernels_landscape.MOVES)
    bowl = query**2 + key**2 + ripples * (np.cos(12 * query) + np.cos(12 * key))
    return 0.5 + bowl.expand_dims(draw=list(range(5)))


def landscape_record() -> Record:
    config = kernels_landscape.Config(seeds=SEEDS, chosen=tuple(TITLES))
    more, arms = np.arange(0, 101, 10), {}
    for task in config.chosen:
        arms[f"{task}_first"] = _arm(0.6)
        for kernel, ripples in (("softmax", 0.3), ("gaussian", 0.01)):
            arm = _arm(0.6, more)
            ends = along([0], plane_loss=_plane(ripples) * per_seed())
            snapshot = ends.drop_vars("diverged_at")
            arms[f"{task}_{kernel}"] = dataclasses.replace(arm, snapshot=snapshot)
    return record_of("kernels_landscape", config, arms)


RECORDS: dict[str, Any] = {
    "kernels_training": training_record,
    "kernels_landscape": landscape_record,
}


def _worse(arm: str, tasks: Sequence[str], optimisers: Mapping[str, str]) -> list[Edit]:
    """Lower accuracy, then higher loss, of one arm on each task."""
    return [
        change(f"{task}_{optimisers[task]}_{arm}", name, plus(by))
        for task in tasks
        for name, by in (("test_accuracy", -0.2), ("test_loss", 0.2))
    ]


def _better(arm: str, tasks: Sequence[str]) -> list[Edit]:
    return [
        change(f"{task}_{POSTERS[task]}_{arm}", name, plus(by))
        for task in tasks
        for name, by in (("test_accuracy", 0.2), ("test_loss", -0.2))
    ]


def _best(tasks: Sequence[str]) -> list[tuple[Edit, ...]]:
    """All remedies better than Gaussian attention."""
    return [*zip(*(_better(arm, tasks) for arm in kernels_training.REMEDIES), strict=True)]


def _flat(planes: xr.DataArray) -> xr.DataArray:
    """A slope without a minimum or a bend."""
    return 0 * planes + on("query_move", MOVES, MOVES)


def _smooth(tasks: Sequence[str]) -> list[Edit]:
    return [change(f"{task}_softmax", "plane_loss", _flat, "snapshot") for task in tasks]


REFUTATIONS: Refutations = {
    "D-9": _worse("gaussian", AT_SIZE, POSTERS),
    "D-9b": _worse("gaussian_matched", AT_SIZE, POSTERS),
    "D-9c": _worse("gaussian", kernels_training.TEXT, kernels_training.OTHERS),
    "D-9d": _best(AT_SIZE),
    "D-9e": _worse("gaussian_matched", kernels_training.TEXT, kernels_training.OTHERS),
    "D-9f": _worse("gaussian", SMALL, POSTERS),
    "D-9g": _worse("gaussian_matched", SMALL, POSTERS),
    "D-9h": _worse("gaussian", SMALL, kernels_training.OTHERS),
    "D-9i": _best(SMALL),
    "D-9j": _worse("gaussian_matched", SMALL, kernels_training.OTHERS),
    "D-9k": [
        change(f"pathfinder_adam_{arm}", "test_accuracy", plus(-0.2))
        for arm in ("softmax", "gaussian")
    ],
    "D-10": _smooth(AT_SIZE),
    "D-10b": _smooth(SMALL),
}
