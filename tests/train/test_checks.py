"""Mistakes are refused before anything is compiled, in one sentence that says how to go on."""

import dataclasses
import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array
from one_weight import Weight, WeightConfig, Zeros, train

from saccade.contracts.probe import AbstractProbe, Moment
from saccade.contracts.task import AbstractTask, Batch
from saccade.errors import ConfigError
from saccade.models.attention_regression import AttentionRegressionConfig
from saccade.probes.topic_words import TopicWords
from saccade.records.schedule import AtSteps, Every
from saccade.records.variable import Variable
from saccade.settings import Swept
from saccade.train.batches import AbstractBatches, Minibatch
from saccade.train.lab import Lab
from saccade.train.optimiser import Adam, GradientDescent
from saccade.train.program import Program

ONE, TWO = jnp.zeros(()), jnp.zeros(2)
RATES = {"optimiser.rate": (0.1, 0.2)}

Given = dict[str, Any] | Callable[[], dict[str, Any]]
"""What is changed of a training; a function if making it is refused already."""


@dataclasses.dataclass(frozen=True)
class Mine(AbstractProbe):
    """A probe of a user, which gives what it is given."""

    variables: Any
    measured: Any = None
    known: Any = dataclasses.field(default_factory=dict)

    def __call__(self, moment: Moment) -> Any:
        if self.measured is None:
            return dict.fromkeys(self.variables, ONE)
        return self.measured(moment) if callable(self.measured) else self.measured

    def coordinates(self, task: Any) -> dict[str, tuple[str, Any]]:
        return self.known


def along(*dims: str) -> Variable:
    return Variable(dims, "a quantity")


def probes(
    *given: AbstractProbe, sweep: Mapping[str, Sequence[float]] | None = None
) -> dict[str, Any]:
    return {"probes": given, "sweep": sweep}


@dataclasses.dataclass(frozen=True)
class Built(WeightConfig):
    """A model config that builds by a function."""

    by: Any = None

    def build(self, task: Any, key: Any) -> Any:
        return self.by(task)


class Bare(eqx.Module):
    weight: Array


class Untrained(Weight):
    def trainable(self) -> Any:
        return [True, False]


class Penalised(Weight):
    def penalty(self) -> Any:
        return TWO


@dataclasses.dataclass(frozen=True)
class Drawn(Zeros):
    """A task that draws by a function."""

    by: Any = None

    def sample(self, key: Any, size: int) -> Any:
        return self.by(size)


class Unsized(AbstractTask):
    def sample(self, key: Any, size: int) -> Batch:
        return Zeros().sample(key, size)


def broken(*_: Any) -> Any:
    raise ValueError("no such word\nand more lines")


def verbose(*_: Any) -> Any:
    raise ValueError("word " * 1000)


def topic_words_of_vectors() -> dict[str, Any]:
    model, task = AttentionRegressionConfig.example()
    return {"model": model, "task": task, "probes": (TopicWords(),)}


def sweep(name: str) -> Any:
    return Swept.over(name, (0.1, 0.2))


SCHEDULES = "a schedule such as Every(10), Logarithmic(40) or AtSteps((0, 100))"
MODELS = (
    "a model config such as AttentionClassifierConfig(), or a function of task and key that builds "
    "an Equinox module"
)
OPTIMISERS = "an optimiser such as GradientDescent(0.1) or Adam(1e-3), or an Optax transformation"
BATCHES = "FullBatch(), Minibatch(64) or Fresh(64)"
STEPS = "allowed: a whole number, at least 0"
SEEDS = "allowed: a count of at least 1, or distinct whole numbers from 0"

KINDS: dict[str, Given] = {
    "task: got None, allowed: a task such as TopicSentences()": {"task": None},
    "task: got the class Zeros, allowed: an instance; write Zeros(...)": {"task": Zeros},
    f"model: got 3, allowed: {MODELS}": {"model": 3},
    f"model: got a ndarray, allowed: {MODELS}": {"model": np.zeros((2, 2))},
    f"optimiser: got 0.1, allowed: {OPTIMISERS}": {"optimiser": 0.1},
    "optimiser: got the class Adam, allowed: an instance; write Adam(...)": {"optimiser": Adam},
    "probes: got 5, allowed: a list of probes": {"probes": 5},
    "probes: got Every(period=5), allowed: a list of probes": {"probes": Every(5)},
    "probes: got the class TopicWords, allowed: an instance; write TopicWords()": {
        "probes": (TopicWords,)
    },
    "ends: got 3, allowed: probes (instances of AbstractProbe)": {"ends": (3,)},
    "probes: got None, allowed: a list of probes": {"probes": None},
    f"at: got 5, allowed: {SCHEDULES}": {"at": 5},
    f"batches: got 8, allowed: {BATCHES}": {"batches": 8},
    f"batches: got AbstractBatches(), allowed: {BATCHES}": {"batches": AbstractBatches()},
    "batches: got the class Minibatch, allowed: an instance; write Minibatch(...)": {
        "batches": Minibatch
    },
    "loss: got 'mse', allowed: a function of model and batch": {"loss": "mse"},
    "curvature: got 3, allowed: None, or a function of model and training set": (
        lambda: {"optimiser": GradientDescent(0.1, curvature=3)}  # pyright: ignore[reportArgumentType]
    ),
    "frozen: got 'table', allowed: several paths, ('table',)": {"frozen": "table"},
    "start: got the type type, allowed: a TrainedArm, or None": {"start": object},
    f"steps: got -1, {STEPS}": {"steps": -1},
    f"steps: got 1.5, {STEPS}": {"steps": 1.5},
    f"steps: got True, {STEPS}": {"steps": True},
    f"seeds: got 'five', {SEEDS}": {"seeds": "five"},
    f"seeds: got '5', {SEEDS}": {"seeds": "5"},
    f"seeds: got 1.5, {SEEDS}": {"seeds": 1.5},
    f"seeds: got (0.5, 1.5), {SEEDS}": {"seeds": (0.5, 1.5)},
    f"seeds: got True, {SEEDS}": {"seeds": True},
    "at: got step 5, allowed: at most the run's 2 steps": {"at": AtSteps((1, 5))},
    "batches: got Minibatch(3), allowed: at most the 2 training examples": {
        "batches": Minibatch(3)
    },
}

VARIABLES = 'a dict such as {"norm": Variable(("word",), "norm of the embedding")}'
AXIS = "has the name of an axis of the record; rename it"

NAMES: dict[str, Given] = {
    "variable 'loss' is reserved (every training records it); rename it": probes(
        Mine({"loss": along()})
    ),
    **{
        f"variable {name!r} {AXIS}": probes(Mine({name: along()}), sweep=RATES)
        for name in ("step", "seed", "time", "rate")
    },
    f"variable 'word' {AXIS}": probes(Mine({"norm": along("word"), "word": along()})),
    "variable 'a' is also measured by Mine; give one of the two": probes(
        Mine({"a": along()}), Mine({"a": along()})
    ),
    "variable 'a' has the dim 'seed', which the record adds itself; remove or rename it": probes(
        Mine({"a": along("seed")})
    ),
    "variable 'a' has the dim 'rate', which is swept; rename the dim, or sweep under another name "
    "(Swept.over)": probes(Mine({"a": along("rate")}), sweep=RATES),
    "variable 'a' has a dim twice, ('word', 'word'); rename one of them": probes(
        Mine({"a": along("word", "word")})
    ),
    f"got variables None, allowed: {VARIABLES}": probes(Mine(None)),
    f"got variables {{'a': ()}}, allowed: {VARIABLES}": probes(Mine({"a": ()})),
    "coordinate 'loss' has the name of an axis or variable; rename it": probes(
        Mine({"a": along("word")}, known={"loss": ("word", [1, 2])})
    ),
    "coordinate 'n' has dims ('x', 'y'), allowed: one dim": probes(
        Mine({"a": along("x", "y")}, known={"n": (("x", "y"), np.ones((2, 2)))})
    ),
    "coordinate 'n' differs from that of another probe, allowed: the same values for both; rename "
    "one of the two": probes(
        Mine({"a": along("word")}, known={"n": ("word", [1, 2])}),
        Mine({"b": along("word")}, known={"n": ("word", [1, 3])}),
    ),
}

NEEDED = "as the coordinate or another variable has; rename the dim or change the array"
DECLARED = "allowed: what it declares, ['a', 'b']; change `variables` or the dict"
DIMS = "change the dims or the array"

MEASURED: dict[str, Given] = {
    f"does not measure ['b'], {DECLARED}": probes(Mine({"a": along(), "b": along()}, {"a": ONE})),
    f"measures ['c'], {DECLARED}": probes(
        Mine({"a": along(), "b": along()}, {"a": ONE, "b": ONE, "c": ONE})
    ),
    "gave [], allowed: a dict of arrays": probes(Mine({"a": along()}, [])),
    "variable 'a' is [1.0, 2.0], allowed: an array": probes(
        Mine({"a": along("word")}, {"a": [1.0, 2.0]})
    ),
    f"variable 'a' has shape (2,), allowed: its dims, (); {DIMS}": probes(
        Mine({"a": along()}, {"a": TWO})
    ),
    f"variable 'b' has shape (), allowed: its dims, ('word',); {DIMS}": {
        "ends": (Mine({"b": along("word")}),)
    },
    f"variable 'a' has 2 along 'word', allowed: 3, {NEEDED}": probes(
        Mine({"a": along("word")}, {"a": TWO}, {"word": ("word", ["x", "y", "z"])})
    ),
    f"variable 'b' has 3 along 'word', allowed: 2, {NEEDED}": probes(
        Mine({"a": along("word")}, {"a": TWO}), Mine({"b": along("word")}, {"b": jnp.zeros(3)})
    ),
    "cannot be used with Zeros and Weight: ValueError: no such word": probes(
        Mine({"a": along()}, broken)
    ),
    "cannot be used with Zeros and Weight: it needs 'bias', which Weight does not have": probes(
        Mine({"a": along()}, lambda moment: {"a": moment.model.bias})
    ),
}

SINGLE = (
    "sweep rate: used as one number, but it stands for 0.1, 0.2, allowed: + - * / ** with numbers; "
    "it cannot be swept here, unless the code loops over its `values`"
)

SWEEPS: dict[str, Given] = {
    "sweep seed: the record needs this name; sweep it under another": {
        "optimiser": GradientDescent(sweep("seed"))
    },
    "sweep loss: the record needs this name; sweep it under another": {
        "optimiser": GradientDescent(sweep("loss"))
    },
    "sweep rate: combined with the sweep width, allowed: arithmetic of one sweep with numbers; "
    "compute one of the two within the task or model": lambda: {
        "optimiser": GradientDescent(sweep("rate") * sweep("width"))
    },
    "sweep: got 'optimiser.rate', allowed: {\"optimiser.rate\": [0.1, 0.2]}": {
        "sweep": "optimiser.rate"
    },
    "optimiser: sweep rate: got 0.1, allowed: a list of numbers": {
        "sweep": {"optimiser.rate": 0.1}
    },
    "optimiser: sweep rate: got ('fast',), allowed: a list of numbers": {
        "sweep": {"optimiser.rate": ("fast",)}
    },
    f"{SINGLE}": lambda: {"steps": int(sweep("rate"))},
    f"{SINGLE} ": lambda: {"optimiser": GradientDescent(float(sweep("rate")))},
    f"{SINGLE}  ": lambda: {"seeds": 1 if sweep("rate") > 0.1 else 2},
}

LOSS = (
    "without a loss, allowed: a module with a method `loss(batch)`, or the argument `loss=` with a "
    "function of model and batch"
)
BUILT = "model Built: cannot be built for Zeros"
EVALUATED = "loss: cannot be evaluated for WeightConfig"
SHAPE = "got an array of shape (2,), allowed: one number per batch; take its mean or sum"
SIZE = "it needs 'train_size', which Unsized does not have"

PARTS: dict[str, Given] = {
    f"model: got a Bare {LOSS}": {"model": Built(by=lambda task: Bare(ONE))},
    "model Built: built a NoneType, allowed: an Equinox module": {
        "model": Built(by=lambda task: None)
    },
    f"{BUILT}: ValueError: no such word": {"model": Built(by=broken)},
    f"{BUILT}: it needs 'labels', which Zeros does not have": {
        "model": Built(by=lambda task: Weight(jnp.zeros(task.labels)))
    },
    "task Drawn: cannot draw its examples: ValueError: no such word": {"task": Drawn(by=broken)},
    f"task Unsized: cannot draw its examples: {SIZE}": {"task": Unsized()},
    f"task Unsized: cannot be drawn in minibatches: {SIZE}": {
        "task": Unsized(),
        "batches": Minibatch(1),
    },
    "task Drawn: drew a tuple, allowed: an AbstractBatch": {
        "task": Drawn(by=lambda size: (jnp.zeros((size, 1)), TWO))
    },
    "task Drawn: drew arrays whose first dims are 1, allowed: 2": {
        "task": Drawn(by=lambda size: Zeros().sample(jax.random.key(0), 1))
    },
    "task Drawn: drew arrays whose first dims are none (a scalar) and 3, allowed: 2": {
        "task": Drawn(by=lambda size: Batch(jnp.zeros((3, 1), int), jnp.zeros((), int)))
    },
    f"loss: {SHAPE}": {"loss": lambda model, batch: model.weight * TWO},
    "loss: got a number of type int32, allowed: a real number (float)": {
        "loss": lambda model, batch: jnp.sum(batch.words)
    },
    f"penalty: {SHAPE}": {"model": Built(by=lambda task: Penalised(ONE))},
    f"curvature: {SHAPE}": {"optimiser": GradientDescent(0.1, curvature=lambda model, batch: TWO)},
    "curvature: cannot be evaluated: ValueError: no such word": {
        "optimiser": GradientDescent(0.1, curvature=broken)
    },
    "model Untrained: cannot be split by `trainable`: ValueError: pytree structure error: "
    "different types at key path": {"model": Built(by=lambda task: Untrained(ONE))},
    f"{EVALUATED}: ValueError: no such word": {"loss": broken},
    f"{EVALUATED}: ValueError: {('word ' * 30)[:147]}...": {"loss": verbose},
    f"{EVALUATED}: it needs 'bias', which Weight does not have": {
        "loss": lambda model, batch: model.bias
    },
    "probe TopicWords: cannot be used with RandomSequences: it needs 'topic_items', which "
    "RandomSequences does not have": topic_words_of_vectors,
}

REFUSED = (
    KINDS
    | SWEEPS
    | PARTS
    | {f"probe Mine: {key}": given for key, given in (NAMES | MEASURED).items()}
)


@pytest.fixture
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be compiled: no program is called."""

    def called(*_: Any) -> None:
        pytest.fail("a program was compiled")

    monkeypatch.setattr(Program, "__call__", called)


def refusal(lab: Lab, given: Given) -> str:
    with pytest.raises(ConfigError) as caught:
        train(lab, **(given() if callable(given) else given))
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert len(sentence) < 300
    return sentence


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("sentence", REFUSED)
def test_mistake_is_refused_in_one_sentence(lab: Lab, sentence: str):
    found = re.sub(r" \(test_checks\.py, line \d+\)$", "", refusal(lab, REFUSED[sentence]))
    assert found == sentence.rstrip()


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize(
    "given", [{"loss": broken}, {"model": Built(by=broken)}, probes(Mine({"a": along()}, broken))]
)
def test_the_line_of_the_users_code_is_named(lab: Lab, given: Given):
    line = broken.__code__.co_firstlineno + 1
    assert refusal(lab, given).endswith(f"no such word (test_checks.py, line {line})")


def test_a_mistake_without_a_line_of_the_users_names_none(lab: Lab):
    assert refusal(lab, topic_words_of_vectors).endswith("RandomSequences does not have")


def test_a_refusal_comes_without_frames_of_jax(lab: Lab):
    """In a notebook, too, the sentence is what one sees; the user's own error stays attached."""

    def wrong(model: Any, batch: Any) -> Any:
        raise KeyError("mine")

    for loss, attached in ((lambda model: 0.0, False), (wrong, True)):
        with pytest.raises(ConfigError) as caught:
            train(lab, loss=loss)
        shown = "".join(traceback.format_exception(caught.value, chain=False))
        assert "site-packages" not in shown
        assert shown.endswith(f"{caught.value}\n")
        assert (caught.value.__cause__ is not None) == attached
