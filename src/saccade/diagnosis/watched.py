"""A run that was trained elsewhere as a study without claims: what the page shows of its record."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from saccade.core.errors import ConfigError
from saccade.core.figure import Figure, HeatMap, Line, Panel
from saccade.core.lab import Lab
from saccade.core.record import Arm
from saccade.core.study import Study
from saccade.diagnosis.catalogue import NUMBERED, strip
from saccade.watch.quantities import ARM, NAME, PAPER, TITLE, WatchedRun


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
        moved = (run["displacement"] / run["part_norm"].isel(step=-1)).mean("layer")
        lines = tuple(
            Line(str(part), steps, moved.sel(part=part).values)
            for part in run["part"].values
            if np.isfinite(moved.sel(part=part)).any()
        )
        title = "Displacement of weights, mean over layers"
        if lines:
            curves.append(Panel(title, _STEP, "relative to the norm at the end", lines, "log"))
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
    if "attention_entropy" not in run:  # no query counted
        return figures
    panel = _map(run, "First fault of a head", strip(arms[ARM].trajectory, vars(config)))
    names = "; ".join(f"{number} {fault.title}" for number, fault in NUMBERED.items())
    caption = f"Rows are heads, as layer:head; columns are steps. 0 none found; {names}."
    return [Figure("watched_faults", "Faults along training", caption, (panel,)), *figures]


_STEP = "step (logarithmic)"


def _maps(run: xr.Dataset) -> list[tuple[str, xr.DataArray]]:
    names = {"largest_score": "Largest score", "first_mass": "Attention to the first word"}
    names |= {"key_spread": "Spread of keys under attention"}
    found = [(title, run[name]) for name, title in names.items() if name in run]
    if "attention_entropy" in run:
        share = run["attention_entropy"] / run["uniform_entropy"]
        found = [("Entropy, relative to uniform", share), *found]
    return found


def _map(run: xr.Dataset, title: str, values: xr.DataArray) -> Panel:
    table = values.stack(row=("layer", "head")).dropna("row", how="all").transpose("row", "step")
    layers = list(run["layer"].values)
    rows = np.asarray([f"{layers.index(one)}:{head}" for one, head in table["row"].values])
    columns = np.asarray([str(int(step)) for step in run["step"].values])
    cells = HeatMap(title, columns, rows, table.values, numbered=False)
    return Panel(title, "step", "layer:head", (cells,))


STUDY = Study(
    name=NAME,
    title=TITLE,
    paper=PAPER,
    presets={"run": WatchedRun()},
    experiment=_cannot_run,
    claims=(),
    figures=_figures,
)
