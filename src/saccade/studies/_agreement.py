"""Agreement between runs on real text (Snell, Zhong, Klein & Steinhardt 2021), shared by the
studies of classification and translation: comparisons of tables of ratings, other runs, contexts,
and tables with intervals.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from saccade.figures.figure import Panel, curve, level
from saccade.judging.bound import Above
from saccade.judging.claim import Check
from saccade.probes.agreement import (
    RATINGS,
    agreement,
    best_step,
    contextual_agreement,
    mean_over,
    random_baseline,
    rank_agreement,
    reached,
)
from saccade.records.record import Arm, Arms
from saccade.records.trajectory import at_place
from saccade.studies._seeds import AbstractSeededConfig
from saccade.train.start import Seeds

AGREEMENTS = {
    "alpha_uniform": "A(alpha, beta uf)",
    "uniform_proxy": "A(beta uf, beta px)",
    "delta_uniform": "A(Delta, beta uf)",
    "alpha_beta": "A(alpha, beta)",
}
"""beta uf: probe under uniform attention; beta px: of the bag-of-words proxy."""
MORE = {
    "alpha_frozen": "A(alpha, alpha fr)",
    "alpha_alpha": "A(alpha, alpha)",
    "model_1_uniform": "A(beta IBM 1, beta uf)",
    "alpha_model_1": "A(alpha, beta IBM 1)",
}
"""alpha fr: attention over a frozen lexicon; alpha and beta of other runs are those of the other
seeds; beta IBM 1: of IBM Model 1."""
COMPARED = {
    "attention": RATINGS,
    "uniform": ("beta",),
    "frozen_lexicon": ("alpha",),
    "proxy": ("beta",),
}
"""The ratings that are compared of every kind of run; others need not be computed."""


SPLITS = ("test", "train")
STARTS = 10_000
"""Between the seeds of two kinds of runs, whose initialisations and orders differ."""
NOT_INDEPENDENT = (
    " The seeds share examples and serve as each other's other runs, so that they are not"
    " independent: the interval is that of their spread"
)


def seeds_of(config: AbstractSeededConfig, place: int) -> Seeds:
    """The seeds of one kind of run."""
    return Seeds(config.seeds, first=STARTS * place + config.first_seed)


def by_number(arm: Arm, config: AbstractSeededConfig) -> Arm:
    """An arm whose members are known by the seeds of the config, as those of all kinds of runs;
    without its weights and what else was kept of the training, which would take much memory.
    """
    numbers = list(config.seed_numbers)
    return Arm(arm.trajectory.assign_coords(seed=numbers), arm.snapshot.assign_coords(seed=numbers))


def _mean(rated: Callable[..., Any], first: Any, second: Any) -> Any:
    """Mean over texts of a comparison of two tables that are NaN at padding."""
    there = ~jnp.isnan(first)
    return mean_over(rated(first, second, there), there.any(-1))


def _vectorised(rated: Callable[..., Any], dims: int) -> Callable[..., Any]:
    table = ",".join("abc"[:dims])
    return jax.jit(jnp.vectorize(partial(_mean, rated), signature=f"({table}),({table})->()"))


MEASURES = {"top": "agreement", "tau": "Kendall's tau"}
_RATED = {"top": agreement, "tau": rank_agreement}
COMPARE = {
    (name, dims): _vectorised(rated, dims) for name, rated in _RATED.items() for dims in (2, 3)
}
PLACES = ("text", "pair", "target", "position", "source")
"""Ends of the names of the dims of tables; the last is the dim of the positions that are rated."""


def dims_of(table: xr.DataArray) -> list[str]:
    """The dims of a table, without seeds and steps."""
    return [str(dim) for dim in table.dims if str(dim).endswith(PLACES)]


def compare(measure: str, first: xr.DataArray, second: xr.DataArray) -> xr.DataArray:
    """A comparison of two tables, for every seed and, where one of them has it, step."""
    dims = dims_of(first)
    # Seed by seed: all tables of all seeds at once would take gigabytes.
    rows = [
        xr.apply_ufunc(
            lambda *some: np.asarray(COMPARE[measure, len(dims)](*some)),
            first.sel(seed=seed),
            second.sel(seed=seed),
            input_core_dims=[dims, dims],
        )
        for seed in first["seed"].values
    ]
    return xr.concat(rows, "seed").assign_coords(seed=first["seed"])


def chance_of(table: xr.DataArray) -> xr.DataArray:
    """Agreement by chance on the rows of a table."""
    *rows, positions = dims_of(table)
    found = xr.apply_ufunc(
        lambda mask: np.asarray(random_baseline(jnp.asarray(mask))),
        table.notnull(),
        input_core_dims=[[*rows, positions]],
        output_core_dims=[rows],
    )
    return found.mean(rows)


def of_another(values: xr.DataArray, shift: int) -> xr.DataArray:
    """The values of another seed, under the number of this one."""
    return values.roll(seed=shift, roll_coords=False)


def compared(
    runs: Mapping[str, Arm],
    splits: Sequence[str],
    prefix: str = "",
    accuracy: str = "test_accuracy",
) -> dict[str, Arm]:
    """The runs without their tables, and `agreement`: the curves of all comparisons along the steps
    of the run that is compared with the reference, which is the run `attention` of the same seed at
    the step of its best test accuracy.

    Tables are called after rating and split, such as `alpha_test`, behind a prefix. The tables of
    all steps would be most of the record. `frozen_lexicon`, `proxy` and `model_1` may be missing.
    """
    attention, uniform = runs["attention"].trajectory, runs["uniform"].trajectory
    best = best_step(attention[accuracy].fillna(-1.0))
    shifts = range(1, attention.sizes["seed"])
    found: dict[str, xr.DataArray] = {}
    for split in splits:
        reference = {name: at_place(attention[f"{prefix}{name}_{split}"], best) for name in RATINGS}
        alpha, beta = reference["alpha"], uniform[f"{prefix}beta_{split}"]
        for measure in MEASURES:
            of = partial(compare, measure)
            curves = {"alpha_uniform": of(alpha, beta)}
            top = at_place(beta, curves["alpha_uniform"].fillna(-1.0).argmax("step"))
            curves["delta_uniform"] = of(reference["delta"], beta)
            curves["alpha_beta"] = of(alpha, of_another(attention[f"{prefix}beta_{split}"], 1))
            others = (of_another(attention[f"{prefix}alpha_{split}"], shift) for shift in shifts)
            several = [of(alpha, other) for other in others]
            curves["alpha_alpha"] = xr.concat(several, "other").mean("other")
            if "frozen_lexicon" in runs:
                frozen = runs["frozen_lexicon"].trajectory
                curves["alpha_frozen"] = of(alpha, frozen[f"{prefix}alpha_{split}"])
            if "proxy" in runs:
                proxy = runs["proxy"].trajectory
                chosen = best_step(proxy[accuracy].fillna(-1.0))
                curves["uniform_proxy"] = of(top, at_place(proxy[f"{prefix}beta_{split}"], chosen))
            if "model_1" in runs:
                counted = runs["model_1"].trajectory[f"{prefix}beta_{split}"]
                curves["model_1_uniform"] = of(counted, beta)
                curves["alpha_model_1"] = of(alpha, counted)
            titles = {**AGREEMENTS, **MORE}
            for name, values in curves.items():
                text = f"{titles[name]}, {MEASURES[measure]}, {split} set"
                named = values.astype(np.float32).assign_attrs(long_name=text, units="1")
                found[f"{name}_{measure}_{split}"] = named
        about = {"long_name": f"agreement by chance, {split} set", "units": "1"}
        found[f"chance_{split}"] = chance_of(alpha).astype(np.float32).assign_attrs(about)
    text = "test accuracy, mean of the other seeds"
    several = [of_another(attention[accuracy], shift) for shift in shifts]
    others = xr.concat(several, "other").mean("other")
    found["accuracy_of_others"] = others.assign_attrs(long_name=text, units="1")
    found["diverged_at"] = diverged_in(runs)
    arms = {"agreement": Arm(xr.Dataset(found))}
    for name, arm in runs.items():
        whole = arm.trajectory
        tables = [one for one in whole.data_vars if dims_of(whole[one])]
        arms[name] = dataclasses.replace(arm, trajectory=whole.drop_vars(tables))
    return arms


def diverged_in(runs: Mapping[str, Arm]) -> xr.DataArray:
    """The step at which one of the runs of a seed diverged, or -1: numbers that rest on several
    runs do not count for such a seed.
    """
    steps = [
        arm.trajectory["diverged_at"] for arm in runs.values() if "diverged_at" in arm.trajectory
    ]
    bare = [one.reset_coords(drop=True) for one in steps]
    return xr.concat(bare, "run").max("run").assign_attrs(steps[0].attrs)


def best_of(arms: Arms, corpus: str, name: str, more: str = "top_test") -> xr.DataArray:
    """Largest agreement over the evaluated steps."""
    values = arms[f"{corpus}_agreement"].trajectory[f"{name}_{more}"]
    return values.max("step") if "step" in values.dims else values


def in_context(
    arms: Arms,
    corpus: str,
    name: str,
    more: str = "top_test",
    performance: xr.DataArray | None = None,
) -> xr.DataArray:
    """xi in percent: performance (by default the accuracy) of the other runs at the first step at
    which their attention agrees with the reference more than these two do; that at the end if it
    never happens (which the paper, and `table`, mark by a star).
    """
    trajectory = arms[f"{corpus}_agreement"].trajectory
    curve_, value = trajectory[f"alpha_alpha_{more}"], best_of(arms, corpus, name, more)
    accuracy = trajectory["accuracy_of_others"] if performance is None else performance
    found, is_reached = contextual_agreement(curve_, accuracy, value), reached(curve_, value)
    xi = 100 * found.where(is_reached, at_place(accuracy, -1))
    return xi.assign_attrs(starred=int((~is_reached).sum()))


def after_peak(corpus: str, end: int, arms: Arms, config: Any) -> xr.DataArray:
    """A(alpha, beta uf) where the mean of the other seeds is largest, less that at an end."""
    values = arms[f"{corpus}_agreement"].trajectory["alpha_uniform_top_test"]
    several = [of_another(values, shift) for shift in range(1, values.sizes["seed"])]
    others = xr.concat(several, "other").mean("other").fillna(-1.0)
    return at_place(values, others.argmax("step")) - at_place(values, end)


def _over_chance(corpus: str, name: str, arms: Arms, config: Any) -> xr.DataArray:
    chance = arms[f"{corpus}_agreement"].trajectory["chance_test"]
    return best_of(arms, corpus, name) / chance


def above_chance(name: str, corpora: Mapping[str, str]) -> tuple[Check, ...]:
    """One check per corpus: an agreement is more than twice that of chance."""
    text = {**AGREEMENTS, **MORE}[name]
    return tuple(
        Check(
            f"{text} / chance, {title}",
            partial(_over_chance, corpus, name),
            Above(2.0),
            f"{corpus}_agreement",
        )
        for corpus, title in corpora.items()
    )


def peak_checks(corpora: Mapping[str, str]) -> tuple[Check, ...]:
    """Two checks per corpus: A(alpha, beta uf) rises to a peak, and falls behind it."""
    return tuple(
        Check(
            f"A(alpha, beta uf) at its peak less {words}, {title}",
            partial(after_peak, corpus, end),
            Above(0.0),
            f"{corpus}_agreement",
        )
        for end, words in ((0, "the start"), (-1, "the end"))
        for corpus, title in corpora.items()
    )


def agreement_panel(arms: Arms, corpus: str, title: str) -> Panel:
    """All agreements of a corpus along training, and chance."""
    trajectory = arms[f"{corpus}_agreement"].trajectory.sel(step=slice(1, None))
    lines = [
        curve(text, trajectory[f"{name}_top_test"])
        for name, text in {**AGREEMENTS, **MORE}.items()
        if "step" in getattr(trajectory.get(f"{name}_top_test"), "dims", ())
    ]
    ends = (float(trajectory["step"][0]), float(trajectory["step"][-1]))
    for name, text in {**AGREEMENTS, **MORE}.items():  # those that have no steps
        values = trajectory.get(f"{name}_top_test")
        if values is not None and "step" not in values.dims:
            lines.append(level(text, ends, float(values.mean()), "measured"))
    by_chance = float(trajectory["chance_test"].mean())
    lines.append(level("chance", ends, by_chance, "theory"))
    return Panel(title, "step", "agreement", tuple(lines), "log")
