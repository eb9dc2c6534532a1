"""Options made from dataclasses."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from saccade.errors import ConfigError
from saccade.options import first_value, parsed


@dataclasses.dataclass(frozen=True)
class Inner:
    size: int = 3
    """Words, 50 % of them new."""
    rate: float = 0.5
    """The inner rate."""
    function: Callable[[float], float] = abs
    """No option can set this."""


@dataclasses.dataclass(frozen=True)
class Other:
    """What the command does."""

    output: Path = Path("runs")


@dataclasses.dataclass(frozen=True)
class Base:
    low: int = 1
    """The smallest."""


@dataclasses.dataclass(frozen=True)
class Config(Base):
    """Some settings."""

    high: int = 2
    """The largest: above
    the smallest."""
    rate: float = 0.1
    """The outer rate."""
    inner: Inner = Inner()
    kind: Literal["one", "two", 3] = "one"
    names: tuple[str, ...] = ("a",)
    numbers: tuple[float, ...] | None = None
    path: Path | None = None
    on: bool = True
    off: bool = False

    def __post_init__(self):
        if self.low >= self.high:
            raise ConfigError(f"high: got {self.high}, allowed: above low")


def config(*arguments: str) -> Config:
    return parsed({"settings": Config()}, arguments, "test")[0][0]


def test_without_options_nothing_changes():
    default = Config()
    assert parsed({"settings": default}, [], "test") == ([default], [])


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        ("--high 5", {"high": 5}),
        ("--high=5", {"high": 5}),
        ("--low 10 --high 20", {"low": 10, "high": 20}),
        ("--low -3", {"low": -3}),
        ("--size 7", {"inner": Inner(size=7)}),
        ("--rate 1e-3", {"rate": 1e-3}),
        ("--inner.rate -1e-3", {"inner": Inner(rate=-1e-3)}),
        ("--kind two", {"kind": "two"}),
        ("--kind 3", {"kind": 3}),
        ("--names x y --names z", {"names": ("x", "y", "z")}),
        ("--numbers -1 -.5 2", {"numbers": (-1.0, -0.5, 2.0)}),
        ("--names ()", {"names": ()}),
        ("--numbers ()", {"numbers": ()}),
        ("--path a/b", {"path": Path("a/b")}),
        ("--no-on --off", {"on": False, "off": True}),
    ],
)
def test_options_change_fields(arguments, changed):
    assert config(*arguments.split()) == dataclasses.replace(Config(), **changed)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--high x", "--high: got 'x', allowed: a whole number"),
        ("--high", "--high: got nothing, allowed: a whole number"),
        ("--kind four", "--kind: got 'four', allowed: one, two, 3"),
        ("--numbers 1 x", "--numbers: got 'x', allowed: a number, one or more"),
        ("--numbers", "--numbers: got nothing, allowed: a number, one or more"),
        ("--off 1", "--off: got '1', allowed: no value (it is a switch)"),
        ("--low 10", "high: got 2, allowed: above low"),
        ("--hihg 3", "--hihg: no such option of test; did you mean --high? allowed: --low, --high"),
        ("--on", "--on: no such option of test;"),
        ("--function abs", "--function: no such option of test;"),
    ],
)
def test_a_mistake_is_one_sentence(arguments, message):
    with pytest.raises(ConfigError) as refusal:
        config(*arguments.split())
    assert str(refusal.value).startswith(message)


def test_positional_arguments_stand_anywhere():
    given = ["a.nc", "--names", "x", "b.nc", "--off", "c.nc", "--names", "y"]
    (found,), rest = parsed({"settings": Config()}, given, "test", "FILE...")
    assert rest == ["a.nc", "b.nc", "c.nc"]
    assert found == Config(names=("x", "y"), off=True)


def test_help_has_texts_defaults_and_groups(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as stop:
        parsed({"first part": Other(), "second part": Config()}, ["-h"], "test", "FILE")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for wanted in (
        "usage: test FILE [OPTIONS]\n\nWhat the command does.",
        "--output PATH, -o PATH",
        "first part:",
        "second part:",
        "The largest: above the smallest. (default: 2)",
        "Words, 50 % of them new. (default: 3)",
        "--inner.rate NUMBER",
        "--kind {one,two,3}",
        "--no-on",
    ):
        assert wanted in text, wanted
    assert "function" not in text


def test_a_setting_that_is_named_as_an_option_of_the_command_gets_a_prefix():
    """A new option of a command must not make a study unusable that has a setting of that name."""
    given = ["--low", "1", "--study-low", "2"]
    (first, second), _ = parsed({"first": Base(), "second": Base()}, given, "test")
    assert (first.low, second.low) == (1, 2)


def test_the_first_value_is_read_before_all_others():
    assert first_value(["--x", "1", "--preset", "paper"], "--preset", "quick") == "paper"
    assert first_value(["--preset=paper", "--y"], "--preset", "quick") == "paper"
    assert first_value(["--preset"], "--preset", "quick") == "quick"
    assert first_value(["--presets", "paper"], "--preset", "quick") == "quick"
