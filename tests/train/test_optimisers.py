"""Optimisers: schedules, decay, clipping and rates per part against the updates written out, any
Optax transformation, and time as the integral of the rate.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
import optax
import pytest
import xarray as xr
from jaxtyping import Array, Float
from word_table import Table, WordList, WordTable, WordTableConfig, squares

from saccade.contracts.model import AbstractModel, Output
from saccade.contracts.task import Batch
from saccade.errors import ConfigError
from saccade.records.schedule import Every
from saccade.settings import Swept
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam, GradientDescent, OptaxOptimiser, PartRate
from saccade.train.rates import Cosine, OneCycle, Warmup
from saccade.train.recipe import Recipe


def train(
    lab: Lab,
    optimiser: Any,
    seeds: int = 1,
    sweep: Mapping[str, Sequence[float]] | None = None,
) -> xr.Dataset:
    """The trajectory of six steps; the loss is half the squared norm of the table."""
    recipe = Recipe(
        WordList(),
        WordTableConfig(),
        optimiser,
        6,
        probes=(Table(),),
        at=Every(1),
        loss=squares,
    )
    return lab.train(recipe, seeds, sweep=sweep).trajectory


def shrunk(lab: Lab, optimiser: Any) -> np.ndarray:
    """The table of every step, relative to the start."""
    table = train(lab, optimiser)["table"].squeeze("seed")
    return np.asarray((table / table.isel(step=0)).isel(word=0, label=0))


# -- schedules -------------------------------------------------------------------------------------


def test_a_cosine_after_a_rise():
    factors = np.asarray(Cosine(10, warmup=4, floor=0.1).factor(np.arange(13)))
    np.testing.assert_allclose(factors[:4], [0.25, 0.5, 0.75, 1.0])
    expected = [0.1 + 0.9 * (1 + np.cos(np.pi * at / 6)) / 2 for at in range(6)]
    np.testing.assert_allclose(factors[4:10], expected, rtol=1e-6)
    np.testing.assert_allclose(factors[10:], 0.1, rtol=1e-6)


def test_one_cycle_rises_to_its_peak_and_falls():
    factors = np.asarray(OneCycle(100, peak=0.25, first=0.04, last=0.01).factor(np.arange(120)))
    assert factors.argmax() == 25
    np.testing.assert_allclose(factors[[0, 25, 100, 119]], [0.04, 1, 0.01, 0.01], rtol=1e-5)
    assert np.all(np.diff(factors[:26]) > 0)
    assert np.all(np.diff(factors[25:101]) < 0)


@pytest.mark.parametrize("schedule", [Warmup(7), Cosine(20, 5), OneCycle(15)])
def test_the_integral_is_the_sum_of_the_factors(schedule):
    factors = np.asarray(schedule.factor(np.arange(50)), float)
    steps = np.asarray([0, 1, 6, 7, 21, 50])
    expected = [factors[:step].sum() for step in steps]
    np.testing.assert_allclose(schedule.integral(steps), expected, atol=1e-6)
    np.testing.assert_array_equal(schedule.integral(np.asarray([0])), [0])


def test_a_training_follows_its_schedule_and_its_time(lab: Lab):
    schedule = Cosine(6, warmup=2)
    record = train(lab, GradientDescent(0.5, schedule=schedule))
    factors = 0.5 * np.asarray(schedule.factor(np.arange(6)))
    expected = np.concatenate([[1], np.cumprod(1 - factors)])
    table = record["table"].squeeze("seed").isel(word=0, label=0).values
    np.testing.assert_allclose(table / table[0], expected, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(record["time"], [0, *np.cumsum(factors)], rtol=1e-6)
    assert record["time"].attrs["long_name"] == "training time, integral of the rate"


def test_floats_of_optimiser_and_schedule_are_swept(lab: Lab):
    swept = {"optimiser.schedule.floor": (0.0, 0.5), "optimiser.decay": (0.0, 0.1)}
    optimiser = GradientDescent(0.1, schedule=Cosine(4), decay=0.0)
    record = train(lab, optimiser, sweep=swept)
    assert record["time"].dims == ("schedule.floor", "step"), "decay changes no time"
    for floor in (0.0, 0.5):
        for decay in (0.0, 0.1):
            alone = train(lab, GradientDescent(0.1, schedule=Cosine(4, floor=floor), decay=decay))
            cell = record.sel({"schedule.floor": floor, "decay": decay})
            np.testing.assert_allclose(cell["table"], alone["table"], rtol=1e-6)
            np.testing.assert_allclose(cell["time"], alone["time"], rtol=1e-6)


# -- decay, clipping, parts ------------------------------------------------------------------------


class TwoTables(AbstractModel):
    """Two tables below a part."""

    inner: dict[str, WordTable]

    def __call__(self, batch: Batch) -> Output:
        return self.inner["first"](batch)

    def loss(self, batch: Batch) -> Float[Array, ""]:
        return sum((squares(one, batch) for one in self.inner.values()), jnp.zeros(()))


def two_tables(task: Any, key: Any) -> TwoTables:
    del task, key
    return TwoTables({name: WordTable(jnp.ones((3, 2))) for name in ("first", "second")})


def ends(lab: Lab, optimiser: Any, frozen: Sequence[str] = ()) -> tuple[float, float]:
    """Both tables after two steps from 1: each entry's gradient is the entry."""
    models = lab.train(Recipe(WordList(), two_tables, optimiser, 2, frozen=frozen), 1).models
    tables = [np.asarray(models.inner[name].table) for name in ("first", "second")]
    assert all(np.ptp(table) == 0 for table in tables)
    return float(tables[0].flat[0]), float(tables[1].flat[0])


def test_weight_decay_is_masked_by_path(lab: Lab):
    plain, both = 0.9**2, 0.85**2
    assert ends(lab, GradientDescent(0.1)) == pytest.approx((plain, plain))
    assert ends(lab, GradientDescent(0.1, decay=0.5)) == pytest.approx((both, both))
    masked = GradientDescent(0.1, decay=0.5, decayed=("inner.second",))
    assert ends(lab, masked) == pytest.approx((plain, both))


def test_parts_have_rates_of_their_own_and_can_be_frozen(lab: Lab):
    parts = (PartRate("inner.first", 0.0), PartRate("inner", 2.0))
    assert ends(lab, GradientDescent(0.1, parts=parts)) == pytest.approx((1.0, 0.8**2))
    assert ends(lab, GradientDescent(0.1), frozen=("*.first",)) == pytest.approx((1.0, 0.9**2))


def test_gradients_are_clipped_by_value_and_by_norm(lab: Lab):
    assert ends(lab, GradientDescent(0.1, clip_value=0.5)) == pytest.approx((0.9, 0.9))
    # Twelve entries of 1 have the norm sqrt(12), which is cut to 1.
    norm = ends(lab, GradientDescent(0.1, clip_norm=1.0))
    assert norm == pytest.approx((1 - 0.2 / np.sqrt(12),) * 2)


def test_adam_with_decay_is_optaxs_adamw(lab: Lab):
    ours = train(lab, Adam(0.1, decay=0.2, first=0.8, second=0.9, epsilon=1e-6))["table"]
    theirs = train(lab, optax.adamw(0.1, 0.8, 0.9, 1e-6, weight_decay=0.2))["table"]
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "settings", "problem"),
    [
        (Adam, {"decay": -1.0}, "decay: got -1.0, allowed: a finite number"),
        (Adam, {"clip_norm": 0.0}, "clip_norm: got 0.0, allowed: a finite"),
        (Adam, {"schedule": 0.5}, "schedule: got 0.5, allowed: None, or a schedule such as"),
        (Adam, {"decayed": "all"}, "decayed: got 'all', allowed: a tuple such as"),
        (Adam, {"parts": (("a", 1.0),)}, r"parts: got .* allowed: a tuple such as \(PartRate"),
        (Adam, {"second": 1.0}, "second: got 1.0, allowed: at least 0 and below 1"),
        (Cosine, {"steps": 10, "warmup": 10}, "warmup: got 10, allowed: a whole number from 0"),
        (OneCycle, {"peak": 1.0}, "peak: got 1.0, allowed: above 0 and below 1"),
    ],
)
def test_settings_that_make_no_sense_are_refused(kind, settings, problem):
    with pytest.raises(ConfigError, match=problem):
        kind(**settings)


@pytest.mark.parametrize(
    ("optimiser", "frozen"),
    [
        (GradientDescent(0.1, decay=0.1, decayed=("outer",)), ()),
        (GradientDescent(0.1, parts=(PartRate("outer", 0.5),)), ()),
        (GradientDescent(0.1), ("outer",)),
    ],
)
def test_a_path_that_names_nothing_is_refused_with_those_that_do(lab: Lab, optimiser, frozen):
    paths = "inner.first.table, inner.second.table"
    with pytest.raises(ConfigError, match=f": got 'outer', allowed: .*{paths}"):
        ends(lab, optimiser, frozen)


# -- any Optax transformation ----------------------------------------------------------------------


def test_a_bare_transformation_trains_and_its_time_is_the_step(lab: Lab):
    record = train(lab, optax.sgd(0.25))
    np.testing.assert_allclose(shrunk(lab, optax.sgd(0.25)), 0.75 ** np.arange(7), rtol=1e-5)
    np.testing.assert_array_equal(record["time"], record["step"])
    assert "rate is not known" in record["time"].attrs["long_name"]


def test_injected_numbers_are_swept_and_give_the_time(lab: Lab):
    inner = optax.inject_hyperparams(optax.sgd)(learning_rate=0.25)
    record = train(lab, inner, sweep={"optimiser.learning_rate": (0.25, 0.5)}, seeds=2)
    table = record["table"].isel(word=0, label=0)
    for rate in (0.25, 0.5):
        values = table.sel(learning_rate=rate)
        expected = np.broadcast_to((1 - rate) ** np.arange(7), (2, 7))
        np.testing.assert_allclose(values / values.isel(step=0), expected, rtol=1e-5)
    assert record["time"].dims == ("learning_rate", "step")
    np.testing.assert_allclose(record["time"], [[0.25], [0.5]] * record["step"].values, rtol=1e-6)


def test_an_injected_schedule_gives_the_time_and_cannot_be_swept(lab: Lab):
    inner = optax.inject_hyperparams(optax.sgd)(learning_rate=optax.linear_schedule(0.5, 0.0, 5))
    record = train(lab, optax.chain(optax.clip(100.0), inner))
    rates = 0.5 * (1 - np.minimum(np.arange(6) / 5, 1))
    np.testing.assert_allclose(record["time"], [0, *np.cumsum(rates)], rtol=1e-6)
    table = record["table"].squeeze("seed").isel(word=0, label=0).values
    np.testing.assert_allclose(table / table[0], [1, *np.cumprod(1 - rates)], rtol=1e-5, atol=1e-7)
    assert OptaxOptimiser.of(inner).hyperparameters is None
    with pytest.raises(ConfigError, match=r"sweep learning_rate: no such number.*inject_"):
        train(lab, inner, sweep={"optimiser.learning_rate": (0.1, 0.2)})


def test_two_injected_numbers_of_one_name_stay_apart(lab: Lab):
    rates = {"first": 1.0, "second": 0.0}
    inner = {
        name: optax.inject_hyperparams(optax.sgd)(learning_rate=rate)
        for name, rate in rates.items()
    }
    labels = lambda tree: type(tree)({name: name for name in rates})  # noqa: E731
    assert ends(lab, optax.multi_transform(inner, labels)) == pytest.approx((0.0, 1.0))  # pyright: ignore[reportArgumentType]


def test_transformations_that_need_the_loss_get_it(lab: Lab):
    """Polyak's step is loss / squared norm of the gradient: one half, for this loss."""
    np.testing.assert_allclose(shrunk(lab, optax.polyak_sgd(10.0)), 0.5 ** np.arange(7), rtol=1e-4)


def test_what_is_no_optimiser_is_refused(lab: Lab):
    with pytest.raises(ConfigError, match=r"optimiser: got 0.1, allowed: .* Optax transformation"):
        train(lab, 0.1)
    with pytest.raises(ConfigError, match=r"optimiser: got .*, allowed: an optimiser such as"):
        train(lab, optax.adam)


def test_a_swept_rate_beside_a_schedule(lab: Lab):
    optimiser = GradientDescent(Swept.over("rate", (0.1, 0.2)), schedule=Warmup(3))  # pyright: ignore[reportArgumentType]
    record = train(lab, optimiser)
    np.testing.assert_allclose(record["time"].isel(step=3), [0.2, 0.4], rtol=1e-6)
