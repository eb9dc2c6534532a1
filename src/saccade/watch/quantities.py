"""What is measured of a watched run, in words; and the run as a study without claims, which draws
its record. Nothing here needs PyTorch.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from saccade.core.errors import ConfigError
from saccade.core.figure import Figure, HeatMap, Line, Panel
from saccade.core.interfaces import Variable
from saccade.core.lab import Lab
from saccade.core.record import Arm
from saccade.core.study import Study

NAME = "watched"
"""The study of such records."""
ARM = "run"
PER_HEAD = {
    "attention_entropy": ("entropy of attention, mean over queries", "nat"),
    "uniform_entropy": ("entropy of uniform attention, mean over queries", "nat"),
    "effective_keys": ("effective number of keys, 1 / sum p^2, mean over queries", "1"),
    "visible_keys": ("keys that a query may attend to, mean over queries", "1"),
    "largest_score": ("largest score of all queries and keys", "1"),
    "score_spread": ("standard deviation of a query's scores, mean over queries", "1"),
    "padding_mass": ("attention to padding, mean over queries", "1"),
    "future_mass": ("attention to later positions, mean over queries", "1"),
    "first_mass": ("attention to the first word, mean over queries", "1"),
    "own_mass": ("attention to the query's own position, mean over queries", "1"),
    "same_mass": ("attention to positions with the query's word, mean over queries", "1"),
    "mean_distance": ("mean distance of query and key, weighted by attention", "position"),
    "key_norm": ("root mean square norm of the visible keys, mean over queries", "1"),
    "key_spread": ("spread of the keys under attention, sd_p(k), root mean square", "1"),
    "value_signal": ("spread of what keys would change, sd_p(g), root mean square", "1"),
    "query_gradient": ("derivative of the loss by a query, root mean square", "1"),
    "query_alignment": ("alignment of g and keys, times the root of effective keys", "1"),
    "removed_loss": ("loss without the head", "nat"),
}
PER_LAYER = {
    "token_cosine": ("mean cosine of two tokens that enter the layer", "1"),
    "uniform_loss": ("loss with the layer's attention made uniform", "nat"),
}
PER_PART = {
    "part_norm": ("Frobenius norm of a weight matrix", "1"),
    "displacement": ("Frobenius norm of a weight matrix minus its start", "1"),
    "second_moment": ("root of Adam's mean squared gradient, over epsilon", "1"),
}
ALONE = {
    "loss": ("loss on the probe batch", "nat"),
    "training_loss": ("training loss of the step", "nat"),
}
ERROR = "_error"
"""Ending of the standard error over the probe's sequences."""
VARIABLES = (
    {name: Variable((), *texts) for name, texts in ALONE.items()}
    | {name: Variable(("layer",), *texts) for name, texts in PER_LAYER.items()}
    | {name: Variable(("layer", "part"), *texts) for name, texts in PER_PART.items()}
    | {name: Variable(("layer", "head"), *texts) for name, texts in PER_HEAD.items()}
)


@dataclasses.dataclass(frozen=True)
class WatchedRun:
    """What a record says of a run that was trained elsewhere."""

    model: str = ""
    """The class of the model."""
    parameters: int = 0
    causal: bool = False
    """Whether no query should see a later position."""
    rungs: dict[str, str] = dataclasses.field(default_factory=dict)
    """Layer -> how its attention was seen."""
    unseen: dict[str, str] = dataclasses.field(default_factory=dict)
    """Modules that look like attention and were not seen, with the reason."""
    notes: tuple[str, ...] = ()
    sequences: int = 0
    """Sequences of the probe batch, over which errors are taken."""
    source: str = ""
    """Where the weights came from."""


def _cannot_run(config: WatchedRun, lab: Lab) -> Mapping[str, Arm]:
    raise ConfigError(
        "watched: got a run, allowed: records that saccade.watch.Watch or `saccade measure` makes"
    )


def _figures(arms: Mapping[str, Arm], config: WatchedRun) -> Sequence[Figure]:
    run = arms[ARM].trajectory.isel(seed=0)
    steps = np.maximum(run["step"].values, 0.5)  # a logarithmic axis has no 0
    figures = []
    losses = [
        Line(label, steps, run[name].values)
        for name, label in (("loss", "probe batch"), ("training_loss", "training"))
        if name in run and np.isfinite(run[name]).any()
    ]
    curves = []
    if losses:
        curves.append(Panel("Loss", _STEP, "loss", tuple(losses), "log"))
    if "displacement" in run:
        moved = (run["displacement"] / run["part_norm"].isel(step=0)).mean("layer")
        lines = tuple(
            Line(str(part), steps, moved.sel(part=part).values)
            for part in run["part"].values
            if np.isfinite(moved.sel(part=part)).any()
        )
        title = "Displacement of weights, mean over layers"
        if lines:
            curves.append(Panel(title, _STEP, "relative to the norm at the start", lines, "log"))
    factors = [name for name in ("value_signal", "key_spread", "query_alignment") if name in run]
    if factors:
        means = run[factors].mean(["layer", "head"])
        relative = [means[name] / means[name].isel(step=0) for name in factors]
        lines = tuple(
            Line(name.replace("_", " "), steps, one.values)
            for name, one in zip(factors, relative, strict=True)
        )
        title = "Factors of the query's gradient, mean over heads"
        curves.append(Panel(title, _STEP, "relative to the first step", lines, "log"))
    if curves:
        caption = f"{config.model}, this run. Step 0 stands at 0.5."
        figures.append(
            Figure("watched_curves", "Loss, weights and gradients", caption, tuple(curves))
        )
    maps = [_map(run, *one) for one in _maps(run)]
    caption = (
        "Rows are heads, as layer:head, layers in the order of the model; columns are steps. Means "
        "over the queries of the probe batch."
    )
    if maps:
        figures.append(Figure("watched_heads", "Heads along training", caption, tuple(maps)))
    return figures


_STEP = "step (logarithmic)"


def _maps(run: xr.Dataset) -> list[tuple[str, xr.DataArray]]:
    found = [
        ("Entropy, relative to uniform", run["attention_entropy"] / run["uniform_entropy"]),
        ("Largest score", run["largest_score"]),
        ("Attention to the first word", run["first_mass"]),
    ]
    if "key_spread" in run:
        found.append(("Spread of keys under attention", run["key_spread"]))
    return found


def _map(run: xr.Dataset, title: str, values: xr.DataArray) -> Panel:
    table = values.stack(row=("layer", "head")).dropna("row", how="all").transpose("row", "step")
    layers = list(run["layer"].values)
    rows = np.asarray([f"{layers.index(one)}:{head}" for one, head in table["row"].values])
    columns = np.asarray([str(int(step)) for step in run["step"].values])
    return Panel(
        title, "step", "layer:head", (HeatMap(title, columns, rows, table.values, numbered=False),)
    )


STUDY = Study(
    name=NAME,
    title="A run that was trained elsewhere",
    paper="none: measured with saccade.watch",
    presets={"run": WatchedRun()},
    experiment=_cannot_run,
    claims=(),
    figures=_figures,
)
