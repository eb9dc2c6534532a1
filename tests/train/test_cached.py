"""`Lab.cached`: slow work that is no training, found again by its traced program or its version."""

import dataclasses
import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from saccade.errors import ConfigError
from saccade.train.lab import Lab
from saccade.workers.progress import FROM_CACHE

SCALE = 2.0
pytestmark = pytest.mark.usefixtures("traced_anew")

NUMBERS = np.arange(3, dtype=np.float32)


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def own(tmp_path: Path, notes: list[str]) -> Lab:
    return Lab(tmp_path, progress=lambda event: notes.append(event.note))


def scaled(values: Any) -> Any:
    return SCALE * values


@jax.jit
def scaled_by_an_inner_jit(values: Any) -> Any:
    return SCALE * values


# -- by the traced program -------------------------------------------------------------------------


@pytest.mark.parametrize("function", [scaled, scaled_by_an_inner_jit])
def test_traced_function_is_found_until_its_program_changes(
    own: Lab, notes: list[str], monkeypatch: pytest.MonkeyPatch, function: Callable[..., Any]
):
    for expected in (2.0, 2.0):
        np.testing.assert_array_equal(own.cached(function, NUMBERS), expected * NUMBERS)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    np.testing.assert_array_equal(own.cached(function, NUMBERS), 3 * NUMBERS)
    np.testing.assert_array_equal(own.cached(function, NUMBERS + 1), 3 * NUMBERS + 3)
    assert notes == ["", FROM_CACHE, "", ""]
    own.fresh = True
    np.testing.assert_array_equal(own.cached(function, NUMBERS), 3 * NUMBERS)
    assert notes[-1] == ""


@dataclasses.dataclass(frozen=True)
class Line:
    slope: float

    def at(self, values: Any) -> Any:
        return self.slope * values

    def __call__(self, values: Any) -> Any:
        return self.slope * values


def test_traced_functions_differ_by_what_they_hold(own: Lab):
    made = [
        lambda slope: Line(slope).at,
        Line,
        lambda slope: functools.partial(jnp.multiply, slope),
    ]
    for function in made:
        for slope in (2.0, 3.0):
            np.testing.assert_array_equal(own.cached(function(slope), NUMBERS), slope * NUMBERS)


def test_callback_is_never_kept(own: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def called(values: Any) -> Any:
        shape = jax.ShapeDtypeStruct((), np.float32)
        return jax.pure_callback(lambda: np.float32(SCALE), shape) * values

    np.testing.assert_array_equal(own.cached(called, NUMBERS), 2 * NUMBERS)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    np.testing.assert_array_equal(own.cached(called, NUMBERS), 3 * NUMBERS)
    assert not list(tmp_path.glob("*.result"))


@pytest.mark.parametrize(
    ("function", "argument", "reason"),
    [
        (lambda values: np.linalg.det(values), np.eye(2), "TracerArrayConversionError: "),
        (lambda value: value if value > 0 else -value, 1.0, "TracerBoolConversionError: "),
        (lambda text: len(text), "three", "TypeError: "),
    ],
)
def test_what_cannot_be_traced_needs_a_version(
    own: Lab, function: Callable[..., Any], argument: Any, reason: str
):
    with pytest.raises(ConfigError) as refusal:
        own.cached(function, argument, name="slow")
    sentence = str(refusal.value)
    assert sentence.startswith(f"cached slow: JAX cannot trace it ({reason}")
    assert sentence.endswith("); give it arrays and let it return arrays, or state a version")
    assert "\n" not in sentence
    np.testing.assert_array_equal(own.cached(function, argument, version=1), function(argument))


# -- by the version --------------------------------------------------------------------------------


CALLS: list[tuple[Any, ...]] = []


def counted(*arguments: Any) -> int:
    """The number of its calls."""
    CALLS.append(arguments)
    return len(CALLS)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()


def test_version_decides_together_with_the_inputs(own: Lab):
    dataset = xr.Dataset({"a": ("x", [1.0, 2.0])}, {"x": ["u", "v"]}, {"note": "first"})
    calls = [
        (Line(1.0), NUMBERS, dataset, "text", 1, None),
        (Line(2.0), NUMBERS, dataset, "text", 1, None),
        (Line(1.0), NUMBERS + 1, dataset, "text", 1, None),
        (Line(1.0), NUMBERS.astype(float), dataset, "text", 1, None),
        (Line(1.0), NUMBERS, dataset + 1, "text", 1, None),
        (Line(1.0), NUMBERS, dataset.assign_coords(x=["u", "w"]), "text", 1, None),
        (Line(1.0), NUMBERS, dataset, "another", 1, None),
        (Line(1.0), NUMBERS, dataset, "text", 1.5, None),
        (Line(1.0), NUMBERS, dataset, "text", 1, {"key": (1, 2)}),
    ]
    for _ in range(2):
        found = [own.cached(counted, *arguments, version=1) for arguments in calls]
        assert found == list(range(1, len(calls) + 1))
    assert own.cached(counted, *calls[0], version=2) == len(calls) + 1


def numpy_scaled(values: np.ndarray) -> np.ndarray:
    return 2 * np.asarray(values)


def numpy_shifted(values: np.ndarray) -> np.ndarray:
    return 1 + np.asarray(values)


class Slope:
    """A function that is no dataclass."""

    def __init__(self, slope: float):
        self.slope = slope

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return self.slope * values


def closed(slope: float) -> Callable[..., Any]:
    return lambda values: slope * values


def keyword(slope: float) -> Callable[..., Any]:
    def function(values: np.ndarray, *, by: float = slope) -> np.ndarray:
        return by * values

    return function


FUNCTIONS: dict[str, tuple[Callable[..., Any], ...]] = {
    "names": (numpy_scaled, numpy_shifted),
    "methods": (Line(2.0).at, Line(3.0).at),
    "dataclasses": (Line(2.0), Line(3.0)),
    "objects": (Slope(2.0), Slope(3.0)),
    "partials": (functools.partial(np.multiply, 2), functools.partial(np.multiply, 3)),
    "partials of lambdas": (functools.partial(lambda a: 2 * a), functools.partial(lambda a: 3 * a)),
    "lambdas": (lambda one: 2 * one, lambda one: 3 * one),
    "closures": (closed(2.0), closed(3.0)),
    "closures of functions": tuple(
        functools.wraps(f)(lambda a, f=f: f(a)) for f in map(closed, (2, 3))
    ),
    "keywords": (keyword(2.0), keyword(3.0)),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_versions_are_those_of_one_function(own: Lab, kind: str):
    for function in FUNCTIONS[kind]:
        np.testing.assert_array_equal(own.cached(function, NUMBERS, version=1), function(NUMBERS))


def test_functions_among_the_arguments_differ_by_what_they_do(own: Lab):
    for function in (closed(2.0), closed(3.0)):
        found = own.cached(lambda by, values: by(values), function, NUMBERS, version=1)
        np.testing.assert_array_equal(found, function(NUMBERS))


def test_title_is_no_identity(own: Lab):
    for function in (numpy_scaled, numpy_shifted):
        found = own.cached(function, NUMBERS, version=1, name="a slow one")
        np.testing.assert_array_equal(found, function(NUMBERS))


def test_texts_of_a_dataset_are_compared_by_content(own: Lab):
    for _ in range(2):
        words = np.asarray(["".join(("to", "pic"))], object)
        assert own.cached(counted, xr.Dataset(coords={"word": words}), version=1) == 1


# -- results ---------------------------------------------------------------------------------------

RESULTS: dict[str, Any] = {
    "array": NUMBERS,
    "whole": np.asarray([[1, 2]], np.int32),
    "truth": np.asarray([True, False]),
    "number": np.asarray(0.5),
    "tuple": (NUMBERS, np.asarray(1)),
    "dict": {"one": NUMBERS, "more": {"two": (NUMBERS, NUMBERS)}},
    "dataset": xr.Dataset(
        {"a": (("x", "y"), np.ones((2, 3)), {"units": "nats"}), "n": ("x", [1, 2])},
        {"x": ["u", "v"], "y": [0.1, 0.2, 0.3]},
        {"title": "naïve 注意"},
    ),
}


def assert_same(first: Any, second: Any) -> None:
    assert type(first) is type(second)
    if isinstance(first, xr.Dataset):
        xr.testing.assert_identical(first, second)
    elif isinstance(first, dict):
        assert list(first) == list(second)
        assert_same(tuple(first.values()), tuple(second.values()))
    elif isinstance(first, tuple):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_same(one, other)
    else:
        assert (first.dtype, first.shape) == (second.dtype, second.shape)
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("kind", RESULTS)
def test_result_comes_back_as_it_was(own: Lab, notes: list[str], kind: str):
    for _ in range(2):
        assert_same(own.cached(lambda: RESULTS[kind], version=kind), RESULTS[kind])
    assert notes == ["", FROM_CACHE]


def test_traced_result_is_the_same_at_the_first_call(own: Lab):
    function = lambda values: {"sum": jnp.sum(values), "parts": (values, 2 * values)}  # noqa: E731
    first, second = (own.cached(function, NUMBERS) for _ in range(2))
    assert_same(first, second)
    assert_same(first, {"parts": (NUMBERS, 2 * NUMBERS), "sum": np.asarray(3, np.float32)})


def test_other_names_of_the_same_numbers_are_another_result(own: Lab):
    for name in ("first", "second"):
        assert list(own.cached(lambda values, name=name: {name: 2 * values}, NUMBERS)) == [name]


@pytest.mark.parametrize("result", ["text", None, Line(1.0), np.asarray(["text"])])
def test_result_that_cannot_be_kept_is_refused(own: Lab, tmp_path: Path, result: Any):
    with pytest.raises(ConfigError) as refusal:
        own.cached(lambda: result, version=1, name="slow")
    assert str(refusal.value) == (
        f"cached slow: gave a {type(result).__name__}, allowed: numbers, arrays, tuples and dicts "
        "of them, or an xarray Dataset"
    )
    assert not list(tmp_path.glob("*.result"))


def test_precision_is_the_labs_own(own: Lab):
    assert own.cached(scaled, NUMBERS.astype(float)).dtype == np.float32
    precise = dataclasses.replace(own, precision="float64")
    assert precise.cached(scaled, NUMBERS.astype(float)).dtype == np.float64


PROCESS = """
import sys
import numpy as np
from saccade.train.lab import Lab
from saccade.tasks.topic_sentences import TopicSentences

notes = []
def solved(task, values, pick=frozenset({"a", "b", "c"})):
    return values * (2 if "a" in {"a", "b", "c"} else 1)

lab = Lab(sys.argv[1], progress=lambda progress: notes.append(progress.note))
lab.cached(solved, TopicSentences(), np.arange(3.0), version=1)
lab.cached(lambda values: values.sum(), np.arange(3.0))
print(notes)
"""


def test_results_are_found_in_another_process(tmp_path: Path):
    command = [sys.executable, "-c", PROCESS, str(tmp_path)]
    outputs = [
        subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
        for _ in range(2)
    ]
    assert outputs == ["['', '']\n", f"{[FROM_CACHE] * 2}\n"]


@pytest.mark.parametrize("value", [xr.Variable("x", [1.0]), object(), threading.Lock()])
def test_arguments_that_cannot_be_known_are_refused(own: Lab, value: Any):
    with pytest.raises(ConfigError, match=f"cached: got a {type(value).__name__}, allowed: num"):
        own.cached(lambda one: 1, value, version=1)


def test_a_key_may_be_an_argument(own: Lab):
    first, second = (own.cached(jax.random.normal, jax.random.key(seed)) for seed in (0, 1))
    assert first == jax.random.normal(jax.random.key(0))
    assert first != second


def test_an_array_with_dims_must_be_a_dataset(own: Lab):
    with pytest.raises(ConfigError, match="gave a DataArray, allowed: a Dataset"):
        own.cached(lambda: xr.DataArray([1.0]), version=1)
