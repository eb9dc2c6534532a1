"""Configs as plain JSON and back, flat ones of older records included."""

import dataclasses
import gzip
import io
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import h5py
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.task import AbstractTask
from saccade.errors import ConfigError
from saccade.records.config import describe, typed
from saccade.records.sealed import read_sealed
from saccade.registry import find_study, study_names
from saccade.settings import Swept, path_of, replaced, sweepable
from saccade.tasks.topic_sentences import TopicSentences

RESULTS = Path(__file__).parents[2] / "results"


def plain(config: Any) -> dict[str, Any]:
    """As a record keeps it."""
    return json.loads(json.dumps(describe(config)))


@dataclasses.dataclass(frozen=True)
class Inner:
    width: float = 2.0
    count: int = 3


@dataclasses.dataclass(frozen=True)
class Wider(Inner):
    depth: float = 1.0


@dataclasses.dataclass(frozen=True)
class Outer:
    rate: float = 0.1
    kind: Literal["one", "two"] = "one"
    inner: Inner = Inner()
    limit: int | None = None
    grid: tuple[float, ...] = ()
    flags: tuple[bool, ...] = (True,)
    inners: tuple[Inner, ...] = ()
    either: Inner | Wider = Inner()
    chosen: Callable[[Any], Any] = jnp.tanh
    made: float = dataclasses.field(default=0.0, init=False)


@dataclasses.dataclass(frozen=True)
class Hinted:
    """The default is of a subclass of the hint."""

    inner: Inner = Wider(count=9)


SWEPT: Any = Swept.over("rate", (0.1, 0.2)) ** 0.5
CONFIGS = {
    "defaults": Outer(),
    "values": Outer(0.5, "two", Inner(1.0, 7), limit=4, grid=(0.5, 1), flags=(False, True)),
    "tuples": Outer(inners=(Inner(3.0), Inner(4.0, 5))),
    "union": Outer(either=Wider(1.0, 2, 3.0)),
    "swept": Outer(rate=SWEPT, inner=Inner(width=SWEPT)),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_config_comes_back_from_its_description(name: str):
    assert typed(Outer, plain(CONFIGS[name])) == CONFIGS[name]


@pytest.mark.parametrize("config", [Hinted(), Hinted(Wider(5.0, 6, 7.0)), Hinted(Inner(4.0))])
def test_described_class_comes_back(config: Hinted):
    assert typed(Hinted, plain(config)) == config


@pytest.mark.parametrize("study", study_names())
def test_presets_come_back_from_their_descriptions(study: str):
    found = find_study(study)
    for config in found.presets.values():
        assert typed(type(config), plain(config)) == config
        for path in sweepable(config):
            try:
                swept = replaced(config, path, Swept.over(path.rpartition(".")[2], [0.25, 0.5]))
            except ConfigError:
                continue  # a field of this study that cannot be swept
            assert typed(type(config), plain(swept)) == swept


def leaves(description: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values of all fields, nested ones by their own names."""
    if isinstance(description, dict) and "class" in description:
        for field, value in description.items():
            yield from leaves(value, field)
    else:
        yield name, description


def recorded_config(file: Path) -> tuple[str, dict[str, Any]]:
    """Study and config of a record."""
    with h5py.File(io.BytesIO(gzip.decompress(read_sealed(file)))) as record:
        return str(record.attrs["study"]), json.loads(str(record.attrs["config"]))


YOUNGER = ("future_weight", "padding_weight", "skip", "score_precision", "picture_steps")
"""Fields that some committed records do not know yet; they have their defaults."""


@pytest.mark.parametrize("file", sorted(RESULTS.glob("*.nc*")), ids=lambda file: file.stem)
def test_configs_of_committed_records_are_read(file: Path):
    """Every value must arrive in the field of its name."""
    name, recorded = recorded_config(file)
    recorded = {**recorded, "class": ""}
    recorded.pop("sweeps")
    config = typed(type(find_study(name).config("paper")), recorded)
    known = dict(leaves(plain(config)))
    values = {name: value for name, value in leaves(recorded) if name != "class"}
    assert values.keys() - known.keys() == set()
    assert known.keys() - values.keys() <= {"class", *YOUNGER}
    assert all(known[name] == value for name, value in values.items())


def test_flat_fields_fill_a_nested_config():
    """Fields that are not there have the defaults, also those that only a subclass has."""
    old = {"rate": 0.5, "width": 7, "depth": 2.5, "unknown": 3}
    assert typed(Outer, old) == Outer(0.5, inner=Inner(7.0))
    assert typed(Hinted, old) == Hinted(Wider(7.0, 9, depth=2.5))
    assert typed(Outer, {}) == Outer()


def test_functions_have_their_defaults():
    config = Outer(chosen=jnp.sin)
    assert typed(Outer, plain(config)) == Outer()


def test_descriptions_tell_configs_apart():
    swept = Swept.over("rate", (1, 2))
    described = [1, 1.0, True, "1", None, [1], {"1": 1}, Inner(), Wider(), jnp.tanh]
    described += [np.arange(3), np.arange(1, 4), np.arange(3.0), jnp.arange(3.0)]
    described += [partial(jnp.multiply, 2), partial(jnp.multiply, 3)]
    described += [swept, 2 * swept, Swept.over("width", (1, 2))]
    texts = [json.dumps(describe(one)) for one in described]
    assert len(set(texts)) == len(texts)
    assert describe(np.float32(0.5)) == 0.5
    assert describe((1, (2, 3))) == [1, [2, 3]]


def test_replaced_follows_a_dotted_path():
    assert replaced(Outer(), "rate", 1.0) == Outer(1.0)
    assert replaced(Outer(), "inner.count", 9) == Outer(inner=Inner(count=9))


def test_path_is_found_by_its_last_part_if_that_is_unique():
    paths = ["rate", "inner.width", "inner.depth", "wider.width"]
    assert path_of("inner.width", paths) == "inner.width"
    assert path_of("depth", paths) == "inner.depth"
    assert path_of("rate", [*paths, "inner.rate"]) == "rate"
    refusals = {
        "width": "sweep width: stands for inner.width, wider.width; give the whole path",
        "speed": f"sweep speed: no such number, allowed: {', '.join(paths)}",
        "inner": f"sweep inner: no such number, allowed: {', '.join(paths)}",
    }
    for name, sentence in refusals.items():
        with pytest.raises(ConfigError) as refusal:
            path_of(name, paths)
        assert str(refusal.value) == sentence
    with pytest.raises(ConfigError, match="allowed: none"):
        path_of("rate", [])


@dataclasses.dataclass(frozen=True)
class Anything:
    """Kinds of fields that a user's own config may have."""

    path: Path = Path("a.txt")
    sizes: list[int] = dataclasses.field(default_factory=lambda: [1])
    named: dict[str, float] = dataclasses.field(default_factory=dict)
    task: AbstractTask = TopicSentences()
    number: int | float = 1
    pair: tuple[int, float] = (1, 1.0)
    call: Callable[..., Any] | None = None


def test_every_kind_of_field_comes_back():
    config = Anything(
        Path("b.txt"), [5, 6], {"x": 0.5}, TopicSentences(train_size=7), 0.5, (3, 4.5)
    )
    assert typed(Anything, plain(config)) == config


def test_what_cannot_be_read_back_is_named():
    @dataclasses.dataclass(frozen=True)
    class Arrays:
        values: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(2))

    with pytest.raises(ConfigError, match=r"Arrays\.values: cannot be read back"):
        typed(Arrays, plain(Arrays()))
