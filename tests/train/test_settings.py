"""Swept values: arithmetic, checks of every value, paths, and what is refused in which words."""

import dataclasses
import math
import operator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jaxtyping import PRNGKeyArray
from word_table import NumberedExamples, Table, WordTable, WordTableConfig

from saccade.contracts.model import AbstractModelConfig
from saccade.errors import ConfigError
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.settings import (
    Swept,
    map_swept,
    over_sweeps,
    require,
    require_count,
    require_positive,
    sweepable,
    swept_in,
    with_sweep,
)
from saccade.train.lab import Lab
from saccade.train.members import Members
from saccade.train.optimiser import GradientDescent, GradientFlow
from saccade.train.prepared import PreparedRecipe
from saccade.train.recipe import Recipe

GRIDS = st.lists(st.floats(0.1, 10), min_size=1, max_size=5, unique=True)


@dataclasses.dataclass(frozen=True)
class Inner:
    width: float = 2.0
    count: int = 3

    def __post_init__(self):
        require_positive(self, "width")
        require_count(self, "count", least=2)


@dataclasses.dataclass(frozen=True)
class Outer:
    rate: float = 0.1
    name: str = "outer"
    flag: bool = False
    inner: Inner = Inner()

    def __post_init__(self):
        require(self, "rate", "below 1", lambda value: value < 1)


@given(grid=GRIDS, number=st.floats(0.5, 3))
def test_arithmetic_maps_the_values_and_keeps_name_and_grid(grid: list[float], number: float):
    swept = Swept.over("variance", grid)
    for operation in (operator.add, operator.sub, operator.mul, operator.truediv):
        left, right = operation(swept, number), operation(number, swept)
        assert left.values == tuple(operation(value, number) for value in grid)
        assert right.values == tuple(operation(number, value) for value in grid)
        for result in (left, right):
            assert (result.name, result.grid) == ("variance", tuple(grid))
    assert (swept**0.5).values == tuple(value**0.5 for value in grid)
    assert (-swept).values == tuple(-value for value in grid)
    assert (swept**0.5).grid == (-swept).grid == tuple(grid)


@pytest.mark.parametrize(
    ("grid", "got"),
    [
        ((), "no values, allowed: at least one number"),
        ((0.1, 0.2, 0.1), "0.1, 0.2, 0.1, allowed: every value once"),
        ((1, 1.0), "1, 1, allowed: every value once"),
        ((0.1, math.nan), "0.1, nan, allowed: finite numbers"),
        ((math.inf,), "inf, allowed: finite numbers"),
    ],
)
def test_impossible_grid_is_refused(grid: tuple[float, ...], got: str):
    with pytest.raises(ConfigError) as refusal:
        Swept.over("rate", grid)
    assert str(refusal.value) == f"sweep rate: got {got}"


# -- checks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_every_swept_value_is_checked(value: float):
    plain = rf"width: got {value!r}, allowed: a finite number above 0"
    with pytest.raises(ConfigError, match=plain):
        Inner(value)
    with pytest.raises(ConfigError, match=plain):
        Inner(Swept("width", (1.0, 2.0), (1.0, value)))  # pyright: ignore[reportArgumentType]
    assert Inner(Swept.over("width", (1.0, 2.0))).width == Swept.over("width", (1.0, 2.0))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("value", [1, -2, 2.0, "3", None])
def test_count_must_be_whole_and_large_enough(value):
    with pytest.raises(
        ConfigError, match=rf"count: got {value!r}, allowed: a whole number, at least 2"
    ):
        Inner(count=value)


@pytest.mark.parametrize("value", ["fast", None])
def test_wrong_type_is_refused_like_a_wrong_value(value):
    with pytest.raises(
        ConfigError, match=rf"width: got {value!r}, allowed: a finite number above 0"
    ):
        Inner(value)


def test_arithmetic_that_leaves_the_allowed_range_is_refused():
    with pytest.raises(ConfigError, match=r"rate: got -0\.5, allowed: a finite number above 0"):
        GradientDescent(Swept.over("rate", (0.5, 1.5)) - 1)  # pyright: ignore[reportArgumentType]


# -- finding and placing ---------------------------------------------------------------------------


NUMBERS = ["rate", "inner.width", "inner.count"]


def test_sweepable_lists_numbers_at_any_depth():
    assert sweepable(Outer()) == NUMBERS
    assert sweepable(with_sweep(Outer(), "inner.width", (1, 2))) == NUMBERS
    assert sweepable(GradientFlow()) == ["rate", "relative_tolerance", "absolute_tolerance"]


def test_with_sweep_follows_dotted_paths():
    assert with_sweep(Outer(), "rate", (0.1, 0.2)).rate == Swept.over("rate", (0.1, 0.2))
    swept = with_sweep(Outer(), "inner.width", (1, 2))
    assert swept.inner.width == Swept.over("inner.width", (1, 2))
    assert (swept.rate, swept.inner.count) == (0.1, 3)


def test_with_sweep_checks_every_value():
    with pytest.raises(ConfigError, match=r"width: got -1\.0"):
        with_sweep(Outer(), "inner.width", (1, -1))
    with pytest.raises(ConfigError, match=r"rate: got 2\.0, allowed: below 1"):
        with_sweep(Outer(), "rate", (0.5, 2))


@pytest.mark.parametrize("path", ["speed", "name", "inner", "inner.widht", "rate.rate", ""])
def test_unknown_path_is_refused_with_what_is_allowed(path: str):
    with pytest.raises(ConfigError) as refusal:
        with_sweep(Outer(), path, (1, 2))
    assert str(refusal.value) == f"sweep {path}: no such number, allowed: {', '.join(NUMBERS)}"


def test_config_without_numbers_allows_none():
    @dataclasses.dataclass(frozen=True)
    class Flags:
        fast: bool = True
        name: str = "none"

    for path in ("fast", "name"):
        with pytest.raises(ConfigError, match="allowed: none"):
            with_sweep(Flags(), path, (0, 1))


def test_a_count_gets_whole_numbers_and_a_float_floats():
    def kinds(path: str, *values: float) -> list[type]:
        swept: Any = with_sweep(Outer(), path, values)
        return [type(value) for value in getattr(swept.inner, path.rpartition(".")[2]).values]

    assert kinds("inner.count", 2.0, 4.0) == [int, int]
    assert kinds("inner.width", 1, 2) == [float, float]
    with pytest.raises(ConfigError, match=r"sweep inner.count: got 2, 2.5, allowed: whole numbers"):
        with_sweep(Outer(), "inner.count", (2, 2.5))
    inner = Inner(width=Swept.over("width", (1, 2)))  # pyright: ignore[reportArgumentType]
    filled = map_swept(inner, lambda one: one.values)
    assert [type(value) for value in filled.width] == [float, float]  # pyright: ignore[reportGeneralTypeIssues]


def test_swept_in_finds_sweeps_at_any_depth_in_order():
    config = with_sweep(with_sweep(Outer(), "inner.width", (1, 2)), "rate", (0.1,))
    assert list(swept_in(config)) == ["rate", "inner.width"]
    model = dataclasses.replace(
        AttentionClassifierConfig(), embedding_std=Swept.over("std", (1, 2))
    )  # pyright: ignore[reportArgumentType]
    assert list(swept_in(model, config)) == ["std", "rate", "inner.width"]
    assert swept_in(Outer(), 3, None) == {}


def test_one_sweep_may_reach_several_fields():
    swept = Swept.over("variance", (0.1, 0.4))
    config = Outer(rate=swept, inner=Inner(swept**0.5))  # pyright: ignore[reportArgumentType]
    assert list(swept_in(config)) == ["variance"]


def test_two_grids_of_one_name_are_refused():
    first, second = Swept.over("rate", (0.1, 0.2)), Swept.over("rate", (0.1, 0.3))
    message = "sweep rate: got two different grids, allowed: one grid per name"
    with pytest.raises(ConfigError, match=message):
        swept_in(Outer(rate=first, inner=Inner(second)))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=message):
        swept_in(Outer(rate=first), Outer(rate=second))  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match=message):
        swept_in(first, second)


def test_map_swept_replaces_sweeps_only():
    config = with_sweep(Outer(name="other"), "inner.width", (1, 2))
    assert map_swept(config, lambda swept: swept.values[1]) == Outer(name="other", inner=Inner(2.0))


# -- within tuples ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Several:
    inners: tuple[Inner, ...] = (Inner(), Inner())
    numbers: tuple[float, ...] = ()
    nested: tuple[tuple[Inner, ...], ...] = ()


def test_sweeps_inside_tuples_are_found_in_order():
    width, number = Swept.over("width", (1, 2)), Swept.over("number", (3, 4, 5))
    config = Several((Inner(), Inner(width)), (0.5, number), ((Inner(width**2),),))  # pyright: ignore[reportArgumentType]
    assert swept_in(config) == {"width": width, "number": number}
    assert swept_in((Inner(), (number, 3, "three"))) == {"number": number}
    assert swept_in(Several(), (), (1, None)) == {}


def test_two_grids_of_one_name_inside_a_tuple_are_refused():
    both = tuple(Inner(Swept.over("width", grid)) for grid in ((1, 2), (1, 3)))  # pyright: ignore[reportArgumentType]
    with pytest.raises(
        ConfigError, match="sweep width: got two different grids, allowed: one grid per name"
    ):
        swept_in(Several(both))


def test_map_swept_replaces_sweeps_inside_tuples_only():
    width, number = Swept.over("width", (1, 2)), Swept.over("number", (3, 4))
    config = Several((Inner(), Inner(width)), (0.5, number), ((Inner(width**2),), ()))  # pyright: ignore[reportArgumentType]
    filled = map_swept(config, lambda swept: swept.values[1])
    assert filled == Several((Inner(), Inner(2.0)), (0.5, 4.0), ((Inner(4.0),), ()))
    assert swept_in(filled) == {}
    assert map_swept(Several(), lambda swept: 0.0) == Several()
    assert map_swept(("as", 1, "it was"), lambda swept: 0.0) == ("as", 1, "it was")


def test_a_function_is_taken_for_every_value_of_a_sweep_inside_a_tuple():
    config = Several((Inner(5.0), Inner(Swept.over("width", (1, 2)))))  # pyright: ignore[reportArgumentType]
    found = over_sweeps(lambda one: [inner.width for inner in one.inners], config, dims=("inner",))
    assert found.dims == ("width", "inner")
    np.testing.assert_array_equal(found, [[5, 1], [5, 2]])


@dataclasses.dataclass(frozen=True)
class SummedConfig(AbstractModelConfig):
    """A table that is the sum of several, each with a spread of its own."""

    parts: tuple[WordTableConfig, ...]

    def build(self, task: Any, key: PRNGKeyArray) -> WordTable:
        return WordTable(sum((part.build(task, key).table for part in self.parts), jnp.zeros(())))


def test_members_of_a_sweep_inside_a_tuple_are_filled_in(lab: Lab):
    """Standard deviations 1 and s from one key: 1 + s times the table of the first alone."""
    swept = Swept.over("spread", (0.5, 1.0, 3.0))
    model = SummedConfig((WordTableConfig(), WordTableConfig(table_std=swept)))  # pyright: ignore[reportArgumentType]
    recipe = Recipe(NumberedExamples(), model, GradientDescent(0.1), 0, probes=(Table(),))
    table = lab.train(recipe, 2).trajectory["table"]
    assert table.dims[:2] == ("spread", "seed")
    np.testing.assert_array_equal(table["spread"], swept.grid)
    assert np.all(table != 0)
    for spread in swept.grid:
        np.testing.assert_allclose(
            table.sel(spread=spread), (1 + spread) / 2 * table.sel(spread=1.0), rtol=1e-6
        )


def test_other_values_of_a_sweep_need_no_other_program():
    """Swept values are arguments of the compiled program; a field that is not swept is part of
    it.
    """

    def program(starts: tuple[float, ...], rates: float | tuple[float, ...]) -> str:
        swept: list[Any] = [
            Swept.over("model", starts),
            Swept.over("rate", rates) if isinstance(rates, tuple) else rates,
        ]
        members = Members(np.zeros(2, np.uint32), {"model": np.arange(2), "rate": np.arange(2)})  # pyright: ignore[reportArgumentType]
        model, optimiser = WordTableConfig(rate=swept[0]), GradientDescent(swept[1])
        recipe = Recipe(NumberedExamples(), model, optimiser, 10)
        parts = (recipe.task, recipe.model, recipe.optimiser)
        prepared = PreparedRecipe(parts, recipe, 10, recipe.recorded(), "float32")
        return prepared.engine(members).programs["advance"].digest

    first = program((0.1, 0.2), (0.3, 0.4))
    assert program((0.5, 0.6), (0.7, 0.8)) == first
    assert program((0.1, 0.2), 0.3) != program((0.1, 0.2), 0.4)


# -- functions of swept configs --------------------------------------------------------------------


def test_a_function_of_plain_configs_is_a_number():
    found = over_sweeps(lambda config: config.rate * config.inner.width, Outer(0.5))
    assert found.dims == ()
    assert float(found) == 1.0


def test_a_function_is_taken_for_every_value_of_every_sweep():
    config = with_sweep(with_sweep(Outer(), "rate", (0.1, 0.2, 0.3)), "inner.width", (2, 1))
    found = over_sweeps(lambda one: 10 * one.rate + one.inner.width, config)
    assert found.dims == ("rate", "inner.width")
    np.testing.assert_array_equal(found["rate"], [0.1, 0.2, 0.3])
    np.testing.assert_array_equal(found["inner.width"], [2, 1])
    np.testing.assert_allclose(found, np.add.outer([1, 2, 3], [2, 1]))


def test_one_sweep_in_two_configs_moves_as_one():
    swept: Any = Swept.over("variance", (1.0, 4.0))
    found = over_sweeps(
        lambda first, second: first.width - second.width, Inner(swept), Inner(swept**0.5)
    )
    assert found.dims == ("variance",)
    np.testing.assert_array_equal(found["variance"], [1, 4])
    np.testing.assert_array_equal(found, [0, 2])


def test_what_a_function_gives_itself_has_the_last_dims():
    config = with_sweep(Inner(), "width", (1, 2, 3))
    found = over_sweeps(lambda one: [one.width, one.width**2], config, dims=("power",))
    assert found.dims == ("width", "power")
    np.testing.assert_array_equal(found, [[1, 1], [2, 4], [3, 9]])
    alone = over_sweeps(lambda one: np.full((2, 3), one.width), Inner(), dims=("row", "column"))
    assert (alone.dims, alone.shape) == (("row", "column"), (2, 3))


def test_two_grids_of_one_name_have_no_common_function():
    with pytest.raises(ConfigError, match="two different grids"):
        over_sweeps(
            lambda first, second: 0.0, Swept.over("rate", (1, 2)), Swept.over("rate", (1, 3))
        )
