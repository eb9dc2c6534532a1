"""A run that was trained elsewhere as a study without claims: what the page shows of its record."""

from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from saccade.core.study import Study
from saccade.diagnosis.catalogue import NUMBERED, strip
from saccade.errors import ConfigError
from saccade.figures.figure import Figure, HeatMap, Line, Panel
from saccade.records.record import Arm
from saccade.train.lab import Lab
from saccade.watch.quantities import ARM, NAME, PAPER, TITLE, WatchedRun


def _cannot_run(config: WatchedRun, lab: Lab) -> Mapping[str, Arm]:
    raise ConfigError(
        "watched: got a run, allowed: records that saccade.watch.Watch or `saccade measure` makes"
    )


_STEP = "step (logarithmic)"


def _figures(arms: Mapping[str, Arm], config: WatchedRun) -> Sequence[Figure]:
    run = arms[ARM].trajectory.isel(seed=0)
    figures = []
    found = None
    if "attention_entropy" in run:  # some query counted
        found = strip(arms[ARM].trajectory, vars(config))
    if found is not None and (found > 0).any():
        numbers = [one for one in NUMBERED if (found == one).any()]
        names = "; ".join(f"{number} {NUMBERED[number].title}" for number in numbers)
        caption = f"Rows are heads, as layer:head; columns are steps. 0 none found; {names}."
        panel = _map(run, "First fault of a head", found, numbered=True)
        figures.append(Figure("watched_faults", "Faults along training", caption, (panel,)))
    panels = tuple(panel for panel in (_losses(run), _moved(run), _factors(run)) if panel.marks)
    none = "" if figures or found is None else " No fault of `saccade diagnose` shows at any step."
    caption = f"{config.model}, this run. Step 0 stands at 0.5.{none}"
    figures.append(Figure("watched_curves", "Loss, weights and gradients", caption, panels))
    caption = (
        "Rows are heads, as layer:head, layers in the order of the model; columns are steps. Means "
        "over the queries of the probe batch."
    )
    maps = tuple(_map(run, *one) for one in _maps(run))
    figures.append(Figure("watched_heads", "Heads along training", caption, maps))
    return [figure for figure in figures if figure.panels]


def _line(label: str, values: xr.DataArray) -> Line:
    steps = np.maximum(values["step"].values, 0.5)  # a logarithmic axis has no 0
    return Line(label, steps, values.values)


def _losses(run: xr.Dataset) -> Panel:
    names = {"loss": "probe batch", "training_loss": "training"}
    known = [name for name in names if name in run and np.isfinite(run[name]).any()]
    lines = tuple(_line(names[name], run[name]) for name in known)
    return Panel("Loss", _STEP, "loss", lines, "log")


def _moved(run: xr.Dataset) -> Panel:
    lines: tuple[Line, ...] = ()
    if "displacement" in run:
        relative = (run["displacement"] / run["part_norm"].isel(step=-1)).mean("layer")
        known = relative.dropna("part", how="all")
        lines = tuple(_line(str(one), known.sel(part=one)) for one in known["part"].values)
    title = "Displacement of weights, mean over layers"
    return Panel(title, _STEP, "relative to the norm at the end", lines, "log")


def _factors(run: xr.Dataset) -> Panel:
    names = [name for name in ("value_signal", "key_spread", "query_alignment") if name in run]
    means = run[names].mean(["layer", "head"])
    lines = tuple(
        _line(name.replace("_", " "), means[name] / means[name].isel(step=0)) for name in names
    )
    title = "Factors of the query's gradient, mean over heads"
    return Panel(title, _STEP, "relative to the first step", lines, "log")


def _maps(run: xr.Dataset) -> list[tuple[str, xr.DataArray]]:
    names = {"largest_score": "Largest score", "first_mass": "Attention to the first word"}
    names |= {"key_spread": "Spread of keys under attention"}
    found = [(title, run[name]) for name, title in names.items() if name in run]
    if "attention_entropy" in run:
        share = run["attention_entropy"] / run["uniform_entropy"]
        found = [("Entropy, relative to uniform", share), *found]
    return found


def _map(run: xr.Dataset, title: str, values: xr.DataArray, numbered: bool = False) -> Panel:
    table = values.stack(row=("layer", "head")).dropna("row", how="all").transpose("row", "step")
    layers = list(run["layer"].values)
    rows = np.asarray([f"{layers.index(one)}:{head}" for one, head in table["row"].values])
    columns = np.asarray([str(int(step)) for step in run["step"].values])
    cells = HeatMap(title, columns, rows, table.values, numbered=numbered)
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
