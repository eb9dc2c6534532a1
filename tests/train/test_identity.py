"""The cache must not lie: what changes a number is trained again, and what does not is found.

Every case trains, changes one thing and trains again in the same folder. The second result must be
that of a folder without a cache.
"""

import dataclasses
import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, Float, PRNGKeyArray
from one_weight import Weight, WeightConfig, Zeros, train

from saccade.contracts.probe import AbstractProbe, Moment
from saccade.contracts.task import AbstractTask, Batch
from saccade.errors import InterruptedTrainingError
from saccade.records.schedule import Every
from saccade.records.variable import Variable
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.run import NOT_KEPT
from saccade.workers.progress import FROM_CACHE, Progress

pytestmark = pytest.mark.usefixtures("traced_anew")

SCALE = 2.0
"""What most cases change."""


def numbers(lab: Lab, **changes) -> tuple[list[bytes], str]:
    """Every number that a training leaves, and the last note of its progress."""
    heard: list[Progress] = []
    training = train(dataclasses.replace(lab, progress=heard.append), **changes)
    tables = [training.trajectory, training.snapshot]
    found = [table[name].values.tobytes() for table in tables for name in table.variables]
    return [*found, np.asarray(training.models.weight).tobytes()], heard[-1].note


def scaled(model: Weight, batch: Batch) -> Float[Array, ""]:
    del batch
    return scale() * model.weight**2


def scale() -> float:
    return SCALE


def loss_by(function: Callable[[Any], Any]) -> dict[str, Any]:
    """Settings with a loss of the squared weight."""
    return {"loss": lambda model, batch: function(model.weight**2)}


def on_disk(folder: Path) -> list[tuple[str, int]]:
    """Finished trainings, with the time of their last change."""
    return sorted((file.name, file.stat().st_mtime_ns) for file in folder.glob("*.training"))


# -- what must be trained again --------------------------------------------------------------------

Case = Callable[[Path, pytest.MonkeyPatch], tuple[Callable[[], dict[str, Any]], Callable[[], Any]]]
CASES: dict[str, Case] = {}
"""For each change the settings of the training, asked for again at each call, and the change."""


def case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


def inner(function: Callable[[Any], Any]) -> Case:
    """A function that reads a global, whose trace JAX keeps by the identity of the function."""
    return lambda folder, patch: (
        lambda: loss_by(function),
        lambda: patch.setitem(globals(), "SCALE", 3.0),
    )


@jax.custom_vjp
def _with_own_gradient(value: Any) -> Any:
    return SCALE * value


_with_own_gradient.defvjp(
    lambda value: (_with_own_gradient(value), None), lambda _, gradient: (SCALE * gradient,)
)


def _body(carry: Any, _: Any) -> tuple[Any, None]:
    return SCALE * carry, None


CASES |= {
    "inner_jit": inner(jax.jit(lambda value: SCALE * value)),
    "inner_scan": inner(lambda value: jax.lax.scan(_body, value, None, length=2)[0]),
    "inner_checkpoint": inner(jax.checkpoint(lambda value: jnp.sin(SCALE * value))),
    "inner_custom_gradient": inner(_with_own_gradient),
}


@case
def global_used_by_the_loss(folder: Path, patch: pytest.MonkeyPatch):
    return lambda: {"loss": scaled}, lambda: patch.setitem(globals(), "SCALE", 3.0)


@case
def monkeypatched_function(folder: Path, patch: pytest.MonkeyPatch):
    return lambda: {"loss": scaled}, lambda: patch.setitem(globals(), "scale", lambda: 3.0)


def in_module(folder: Path, patch: pytest.MonkeyPatch, before: str, after: str):
    """A loss by `helped.factor(value)`, of a module whose file is rewritten and loaded again."""
    file = folder / "helped.py"
    file.write_text(before)
    patch.syspath_prepend(folder)
    patch.setattr(sys, "dont_write_bytecode", True)  # such files can be stale within one second
    module = importlib.import_module("helped")
    patch.setitem(sys.modules, "helped", module)

    def change() -> None:
        file.write_text(after)
        importlib.reload(module)

    return lambda: loss_by(lambda value: module.factor(value)), change


@case
def constant_of_an_imported_module(folder: Path, patch: pytest.MonkeyPatch):
    source = "FACTOR = {}\ndef factor(value):\n    return FACTOR * value\n"
    return in_module(folder, patch, source.format(2.0), source.format(3.0))


@case
def function_of_an_imported_module(folder: Path, patch: pytest.MonkeyPatch):
    source = "def factor(value):\n    return {} * value\n"
    return in_module(folder, patch, source.format(2.0), source.format("value"))


@case
def class_redefined_without_a_file(folder: Path, patch: pytest.MonkeyPatch):
    source = (
        "@dataclasses.dataclass(frozen=True)\n"
        "class Own(WeightConfig):\n"
        "    def build(self, task, key):\n"
        "        return Weight(super(Own, self).build(task, key).weight * {})\n"
    )
    names = dict(globals())
    exec(source.format(2), names)
    return lambda: {"model": names["Own"]()}, lambda: exec(source.format(3), names)


@case
def file_behind_a_path(folder: Path, patch: pytest.MonkeyPatch):
    @dataclasses.dataclass(frozen=True)
    class Stored(Zeros):
        path: str = str(folder / "words.npy")

        def sample(self, key: PRNGKeyArray, size: int) -> Batch:
            words = jnp.asarray(np.load(self.path)[:size])
            return Batch(words[:, None], super().sample(key, size).labels)

    np.save(Stored().path, np.asarray([1, 2], np.int32))
    return lambda: {"task": Stored()}, lambda: np.save(Stored().path, np.asarray([1, 4], np.int32))


@case
def array_in_a_closure(folder: Path, patch: pytest.MonkeyPatch):
    def task(words: Any) -> AbstractTask:
        class Closed(Zeros):
            def sample(self, key: PRNGKeyArray, size: int) -> Batch:
                words_here = jnp.asarray(words)[:size, None]
                return Batch(words_here, super().sample(key, size).labels)

        return Closed()

    words = np.arange(100, dtype=np.int32)

    def change() -> None:
        words[1] = 7

    return lambda: {"task": task(words)}, change


@case
def default_of_a_closure(folder: Path, patch: pytest.MonkeyPatch):
    def loss(model: Weight, batch: Batch, factor: float = 2.0) -> Float[Array, ""]:
        return factor * model.weight**2

    return lambda: {"loss": loss}, lambda: patch.setattr(loss, "__defaults__", (3.0,))


@case
def environment_read_while_tracing(folder: Path, patch: pytest.MonkeyPatch):
    patch.setenv("OWN_SCALE", "2")
    settings = loss_by(lambda value: float(os.environ["OWN_SCALE"]) * value)
    return lambda: settings, lambda: patch.setenv("OWN_SCALE", "3")


@case
def callback(folder: Path, patch: pytest.MonkeyPatch):
    shape = jax.ShapeDtypeStruct((), np.float32)
    settings = loss_by(lambda value: jax.pure_callback(lambda: np.float32(SCALE), shape) * value)
    return lambda: settings, lambda: patch.setitem(globals(), "SCALE", 3.0)


class Prepared(WeightConfig):
    def prepare(self, task: Any, batches: Any) -> Any:
        return dataclasses.replace(batches, words=np.full_like(batches.words, self.index()))

    def index(self) -> float:
        return scale()


@jax.jit
def _scaled(value: Any) -> Any:
    return SCALE * value


class PreparedByJax(Prepared):
    def index(self) -> float:
        return _scaled(1.0)


@case
def prepared_data(folder: Path, patch: pytest.MonkeyPatch):
    return lambda: {"model": Prepared()}, lambda: patch.setitem(globals(), "SCALE", 3.0)


@case
def prepared_data_of_an_inner_jit(folder: Path, patch: pytest.MonkeyPatch):
    return lambda: {"model": PreparedByJax()}, lambda: patch.setitem(globals(), "SCALE", 3.0)


class Scale(AbstractProbe):
    variables: ClassVar = {"scale": Variable((), "the scale")}

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"scale": scale() * moment.model.weight}


@case
def probe(folder: Path, patch: pytest.MonkeyPatch):
    probes = (Scale(),)
    return lambda: {"probes": probes}, lambda: patch.setitem(globals(), "SCALE", 3.0)


@case
def probe_at_the_ends(folder: Path, patch: pytest.MonkeyPatch):
    ends = (Scale(),)
    return lambda: {"ends": ends}, lambda: patch.setitem(globals(), "SCALE", 3.0)


@case
def curvature(folder: Path, patch: pytest.MonkeyPatch):
    optimiser = GradientDescent(0.1, curvature=lambda model, batch: scale() * model.weight)
    return lambda: {"optimiser": optimiser}, lambda: patch.setitem(globals(), "SCALE", 3.0)


def changed(name: str, before: Any, after: Any) -> Case:
    """An argument of the call, or a field of its recipe."""
    now = {name: before}
    return lambda folder, patch: (lambda: now, lambda: patch.setitem(now, name, after))


CASES |= {
    "swept_values": changed("sweep", *({"optimiser.rate": (0.1, rate)} for rate in (0.2, 0.3))),
    "seed": changed("seeds", (0,), (1,)),
    "schedule": changed("at", Every(1), Every(2)),
}


@pytest.mark.parametrize("name", CASES)
def test_changed_training_is_trained_again(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    own = Lab(tmp_path / "own")
    settings, change = CASES[name](tmp_path, monkeypatch)
    before, _ = numbers(own, **settings())
    change()
    after, note = numbers(own, **settings())
    true, _ = numbers(Lab(tmp_path / "other"), **settings())
    assert note != FROM_CACHE
    assert after == true
    assert after != before


def test_callback_is_never_kept(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    settings, _ = CASES["callback"](tmp_path, monkeypatch)
    for _ in range(2):
        _, note = numbers(Lab(tmp_path), **settings())
        assert note == NOT_KEPT
    assert not list(tmp_path.glob("*.training"))


def test_changed_flags_of_the_compiler_train_again(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """They can change the last bits; XLA reads them once per process, so here they do not."""
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    numbers(Lab(tmp_path))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=true")
    assert numbers(Lab(tmp_path))[1] == ""


def test_another_optimisation_by_the_compiler_trains_again(lab: Lab, tmp_path: Path):
    numbers(Lab(tmp_path))
    jax.config.update("jax_disable_most_optimizations", False)
    try:
        assert numbers(Lab(tmp_path))[1] == ""
    finally:
        jax.config.update("jax_disable_most_optimizations", True)
    assert numbers(Lab(tmp_path))[1] == FROM_CACHE


def test_state_of_a_changed_program_is_not_resumed(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    changes = {"loss": scaled, "steps": 4}
    with pytest.raises(InterruptedTrainingError, match="at step 1 of 4"):
        numbers(Lab(tmp_path, asked_to_stop=lambda: True), **changes)
    monkeypatch.setitem(globals(), "SCALE", 3.0)
    after, _ = numbers(Lab(tmp_path), **changes)
    true, _ = numbers(Lab(tmp_path / "other"), **changes)
    assert after == true
    assert len(list(tmp_path.glob("*.training"))) == 2


HOISTED = """
import sys
from pathlib import Path
import jax.numpy as jnp
import test_identity as parts
from saccade.train.lab import Lab

words = jnp.arange(100)
def loss(model, batch):
    return jnp.sum(words) * model.weight**2

lab, other = (Lab(Path(sys.argv[1]) / name, progress=None) for name in ("own", "other"))
before = parts.numbers(lab, loss=loss)
words = words + 1
after, true = parts.numbers(lab, loss=loss), parts.numbers(other, loss=loss)
print("trained again" if after == true != before else "from the cache")
"""


def test_constants_that_jax_makes_arguments_count(tmp_path: Path):
    """An option of JAX takes arrays out of a program and passes them along with its arguments."""
    assert run(HOISTED, tmp_path, JAX_USE_SIMPLIFIED_JAXPR_CONSTANTS="1") == "trained again"


def run(script: str, folder: Path, **environment: str) -> str:
    """What a script prints last, in a process of its own that finds the modules of the tests."""
    known = {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(folder)])}
    compiled = {"JAX_COMPILATION_CACHE_DIR": str(jax.config.jax_compilation_cache_dir)}  # pyright: ignore[reportAttributeAccessIssue]
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder)],
        env=os.environ | known | compiled | environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


# -- what must be found ----------------------------------------------------------------------------


def test_same_call_is_found(lab: Lab, tmp_path: Path):
    first, note = numbers(Lab(tmp_path))
    assert note == ""
    before = on_disk(tmp_path)
    for title, changes in (
        ("", {}),
        ("another name", {}),
        ("", {"seeds": (0,)}),
        ("", {"probes": [], "at": Every(1)}),
    ):
        assert numbers(Lab(tmp_path, title=title), **changes) == (first, FROM_CACHE)
    assert on_disk(tmp_path) == before


class HalfConfig(WeightConfig):
    def build(self, task: Any, key: PRNGKeyArray) -> Weight:
        return Weight(super().build(task, key).weight.astype(jnp.bfloat16))


def test_weights_of_half_precision_are_found(lab: Lab, tmp_path: Path):
    first, _ = numbers(Lab(tmp_path), model=HalfConfig())
    assert numbers(Lab(tmp_path), model=HalfConfig()) == (first, FROM_CACHE)


PACKAGE = '''"""A package of a user."""
import dataclasses
import one_weight

SCALE = 2.0

@dataclasses.dataclass(frozen=True)
class Config(one_weight.WeightConfig):
    """A config."""
    factor: float = 3.0

    def build(self, task, key):
        model = super().build(task, key)
        return one_weight.Weight(self.factor * model.weight)

def loss(model, batch):
    """The loss."""
    return SCALE * model.weight**2
'''
TRAINED = """
import sys
from pathlib import Path
import jax
jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_disable_most_optimizations", True)  # as in the process that runs the tests
import test_identity as parts
from own_package import parts_of_mine
from saccade.train.lab import Lab

model = parts_of_mine.Config()
print(parts.numbers(Lab(Path(sys.argv[1])), model=model, loss=parts_of_mine.loss)[1])
"""


def test_same_program_is_found_whatever_its_source(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A new file, other names and texts, another process: the same numbers, so the same address."""
    package = tmp_path / "own_package"
    package.mkdir()
    (package / "__init__.py").touch()
    source = package / "parts_of_mine.py"
    source.write_text(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    module = importlib.import_module("own_package.parts_of_mine")

    def trained(config: str) -> tuple[list[bytes], str]:
        return numbers(Lab(tmp_path), model=getattr(module, config)(), loss=module.loss)

    first, note = trained("Config")
    assert note == ""
    before = on_disk(tmp_path)
    (package / "unrelated.py").write_text("SCALE = 5.0\n")
    assert trained("Config") == (first, FROM_CACHE)
    assert run(TRAINED, tmp_path) == FROM_CACHE
    source.write_text(
        PACKAGE.replace("class Config", "class Renamed").replace("A config.", "Longer text.")
    )
    importlib.reload(module)
    assert trained("Renamed") == (first, FROM_CACHE)
    assert on_disk(tmp_path) == before
