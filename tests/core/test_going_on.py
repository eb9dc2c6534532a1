"""Going on from another training, chunks of members, and seeds of start, data and order apart."""

import dataclasses
from typing import Any

import jax
import numpy as np
import optax
import pytest
from word_table import (
    TASK,
    DrawnNumbers,
    Sentences,
    Table,
    TaughtConfig,
    WordTableConfig,
    label_visits,
)

from saccade.core.batches import Fresh, FullBatch, Minibatch
from saccade.core.engine import Engine
from saccade.core.lab import Lab, Training
from saccade.core.members import initial_model, training_set
from saccade.core.optimiser import Adam, GradientDescent
from saccade.core.program import Program
from saccade.core.progress import Progress
from saccade.core.rates import Cosine
from saccade.core.recording import Recording
from saccade.core.start import Seeds, seed_of
from saccade.errors import ConfigError, DoesNotFitError, InterruptedTrainingError
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.probes.topic_words import TopicWords
from saccade.records.schedule import Every
from saccade.theory.topic_word_flow import Lemma2

FIRST, SECOND = 14, 22


def train(lab: Lab, steps: int, **changes: Any) -> Training:
    settings: dict[str, Any] = {"task": TASK, "model": WordTableConfig(), "seeds": 3}
    settings |= {"optimiser": Adam(0.1), "record": Recording((Table(),), Every(4), (Table(),))}
    return lab.train(steps=steps, **settings | changes)


# -- going on --------------------------------------------------------------------------------------

WAYS: dict[str, dict[str, Any]] = {
    "full batches, in units of curvature": {
        "batches": FullBatch(),
        "optimiser": GradientDescent(
            0.1, schedule=Cosine(30, 5), curvature=lambda model, batch: 2 + model.table[0, 0] ** 2
        ),
    },
    "minibatches, swept": {
        "batches": Minibatch(5),
        "sweep": {"optimiser.rate": (0.1, 0.2)},
        "seeds": (3, 1),
    },
    "fresh examples, with keys in the optimiser": {
        "batches": Fresh(5),
        "optimiser": optax.chain(optax.add_noise(0.1, 0.5, key=3), optax.adam(0.1)),
    },
    "by length, any optimiser": {
        "task": Sentences(),
        "batches": Minibatch(3, by_length=True),
        "optimiser": optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    },
}


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=pytest.mark.slow) if "fresh" not in way else way for way in WAYS],
)
def test_two_halves_are_one_whole(lab: Lab, way: str):
    changes = WAYS[way]
    whole = train(lab, FIRST + SECOND, **changes)
    half = train(lab, FIRST, keep_state=True, **changes)
    rest = train(lab, SECOND, after=half, **changes)
    assert rest.trajectory["step"].values.tolist() == [14, 16, 20, 24, 28, 32, 36]
    for name in ("table", "loss", "time"):
        both = [part.trajectory[name] for part in (half, rest)]
        # Step 14 is recorded by the halves alone.
        for part in both:
            common = np.intersect1d(part["step"], whole.trajectory["step"])
            expected = whole.trajectory[name].sel(step=common)
            np.testing.assert_array_equal(part.sel(step=common), expected)
        np.testing.assert_array_equal(both[0].sel(step=14), both[1].sel(step=14))
    np.testing.assert_array_equal(rest.models.table, whole.models.table)
    assert rest.snapshot["step"].values.tolist() == [14, 36]


def test_going_on_is_kept_and_survives_an_interruption(lab: Lab, tmp_path):
    half = train(lab, FIRST, keep_state=True)
    rest = train(lab, 400, after=half)
    heard: list[Progress] = []
    again = train(dataclasses.replace(lab, progress=heard.append), 400, after=half)
    assert [event.note for event in heard] == ["from the cache"]
    assert again.trajectory.identical(rest.trajectory)
    other = train(lab, FIRST, keep_state=True, seeds=(4, 5, 6))
    assert train(lab, 400, after=other, seeds=(4, 5, 6)).digest != rest.digest

    asked = iter([False, True] + [False] * 100)
    broken = Lab(tmp_path, progress=None, asked_to_stop=lambda: next(asked))
    with pytest.raises(InterruptedTrainingError, match="at step"):
        train(broken, 400, after=half)
    resumed = train(Lab(tmp_path, progress=None), 400, after=half)
    assert resumed.trajectory.identical(rest.trajectory)


def test_a_result_without_its_state_is_trained_again(lab: Lab):
    plain = train(lab, 10)
    heard: list[Progress] = []
    kept = train(dataclasses.replace(lab, progress=heard.append), 10, keep_state=True)
    assert heard[-1].note == ""
    assert kept.trajectory.identical(plain.trajectory)
    heard.clear()
    train(dataclasses.replace(lab, progress=heard.append), 10)
    assert heard[-1].note == "from the cache", "a result with its state serves both"


def test_what_cannot_go_on_is_refused(lab: Lab):
    plain, kept = train(lab, 10), train(lab, FIRST, keep_state=True)
    with pytest.raises(ConfigError, match=r"after: .* trained with keep_state=True"):
        train(lab, 5, after=train(lab, 11))
    with pytest.raises(ConfigError, match=r"after: got members .*0, 1\].*, allowed: .*0, 1, 2"):
        train(lab, 5, after=kept, seeds=2)
    with pytest.raises(
        ConfigError, match="after: got a training whose optimiser has another state"
    ):
        train(lab, 5, after=kept, optimiser=GradientDescent(0.1, 0.5))
    with pytest.raises(ConfigError, match="after: got a training whose batches has another state"):
        train(lab, 5, after=kept, batches=Minibatch(4))
    with pytest.raises(ConfigError, match=r"after: got members .*data_seed"):
        train(lab, 5, after=kept, seeds=Seeds(3, data=7))
    with pytest.raises(ConfigError, match="start: got a training beside `after`"):
        train(lab, 5, after=kept, start=plain)
    with pytest.raises(ConfigError, match="after: got the type str, allowed: a Training, or None"):
        train(lab, 5, after="a file")
    settings: dict[str, Any] = {"batches": Minibatch(4), "keep_state": True}
    first = train(lab, 2, task=Sentences(), **settings)
    other = Sentences(Sentences().lengths[::-1])
    with pytest.raises(ConfigError, match="after: got a training on other examples, allowed: the"):
        train(lab, 2, task=other, after=first, **settings)


def test_sweeps_and_time_go_on_whatever_the_second_call_names(lab: Lab):
    """Sweeps of the first training come along, in its order; another rate goes on in time."""
    sweep = {"model.table_std": (0.5, 2.0), "optimiser.rate": (0.1, 0.2)}
    descent = GradientDescent(0.1)
    first = train(lab, 4, optimiser=descent, sweep=sweep, keep_state=True)
    rest = {"optimiser.rate": (0.1, 0.2)}
    second = train(lab, 4, optimiser=descent, sweep=rest, after=first)
    last, begun = (one.trajectory["table"].sel(step=4) for one in (first, second))
    np.testing.assert_array_equal(last, begun.transpose(*last.dims))
    slow = train(
        lab,
        4,
        optimiser=GradientDescent(0.01),
        after=train(lab, 8, optimiser=descent, keep_state=True),
    )
    np.testing.assert_allclose(slow.trajectory["time"].isel(step=[0, -1]), [0.8, 0.84], rtol=1e-6)


# -- one model -------------------------------------------------------------------------------------


def test_models_are_picked_by_seed_and_value(lab: Lab):
    training = train(lab, 4, sweep={"optimiser.rate": (0.1, 0.2)}, seeds=(7, 3))
    last = training.trajectory["table"].isel(step=-1)
    for rate in (0.1, 0.2):
        for seed in (7, 3):
            model = training.model(rate=rate, seed=seed)
            np.testing.assert_array_equal(model.table, last.sel(rate=rate, seed=seed))
    with pytest.raises(ConfigError, match=r"model: got rate 0.3, allowed: rate as one of 0.1, 0.2"):
        training.model(rate=0.3, seed=3)
    with pytest.raises(ConfigError, match=r"model: got no rate, allowed: rate as one of 0.1, 0.2"):
        training.model(seed=3)
    with pytest.raises(ConfigError, match="model: got speed, allowed: rate, seed"):
        training.model(speed=3)
    assert repr(training).startswith("<Training: 2 rate, 2 seed, 2 step, ")
    alone = train(lab, 4, seeds=1)
    np.testing.assert_array_equal(alone.model().table, alone.models.table[0])


# -- chunks ----------------------------------------------------------------------------------------


def test_chunks_of_members_come_back_as_one_dataset(lab: Lab, tmp_path):
    sweep = {"optimiser.rate": (0.1, 0.2)}
    whole = train(lab, 12, sweep=sweep)
    heard: list[Progress] = []
    small = Lab(tmp_path, progress=heard.append, chunk=4)
    chunked = train(small, 12, sweep=sweep)
    assert [event.name for event in heard if event.finished] == ["training"]
    assert [event.done for event in heard if event.done][-1] == 6
    assert len(list(tmp_path.glob("*.training"))) == 2
    for name in whole.trajectory.data_vars:
        np.testing.assert_allclose(chunked.trajectory[name], whole.trajectory[name], rtol=1e-5)
    np.testing.assert_allclose(chunked.models.table, whole.models.table, rtol=1e-5)
    np.testing.assert_allclose(
        chunked.model(rate=0.2, seed=2).table, whole.model(rate=0.2, seed=2).table, rtol=1e-5
    )
    heard.clear()
    train(small, 12, sweep=sweep)
    assert {event.note for event in heard} == {"from the cache"}
    half = train(small, 12, sweep=sweep, keep_state=True)
    rest = train(small, 12, sweep=sweep, after=half)
    ends = train(lab, 24, sweep=sweep).trajectory["table"].isel(step=-1)
    np.testing.assert_allclose(rest.trajectory["table"].isel(step=-1), ends, rtol=1e-5)


def test_what_does_not_fit_is_halved(lab: Lab, tmp_path, monkeypatch: pytest.MonkeyPatch):
    """A device that is said to have room for two members per core trains six in chunks."""
    from saccade.core import job

    whole = train(lab, 8, seeds=6)
    monkeypatch.setattr(job, "_fits", lambda engine: engine.count <= 2)
    heard: list[Progress] = []
    chunked = train(Lab(tmp_path, progress=heard.append), 8, seeds=6)
    assert sorted({event.done for event in heard if event.done}) == [2, 4, 6]
    np.testing.assert_allclose(chunked.trajectory["table"], whole.trajectory["table"], rtol=1e-5)


@pytest.mark.parametrize("when", ["compiling", "running"])
def test_what_turns_out_not_to_fit_is_halved(lab: Lab, tmp_path, monkeypatch, when: str):
    """As on a GPU, whose compiler tries parts of a program, and whose memory may be shared."""

    def full(count: int) -> None:
        if count > 2:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    if when == "running":
        advance = Engine.advance
        monkeypatch.setattr(
            Engine, "advance", lambda self, *given: full(self.count) or advance(self, *given)
        )
    else:
        counted = Program.memory
        counts = iter((6, 3))

        def memory(program: Program) -> int:
            full(next(counts, 2))
            return counted.__get__(program)

        monkeypatch.setattr(Program, "memory", property(memory))
    heard: list[Progress] = []
    chunked = train(Lab(tmp_path, progress=heard.append), 8, seeds=6)
    assert sorted({event.done for event in heard if event.done}) == [2, 4, 6]
    whole = train(lab, 8, seeds=6)
    np.testing.assert_allclose(chunked.trajectory["table"], whole.trajectory["table"], rtol=1e-5)


def test_one_member_that_does_not_fit_is_one_sentence(tmp_path, monkeypatch):
    def full(*given: Any) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(Engine, "advance", full)
    with pytest.raises(DoesNotFitError, match="one member does not fit the device's memory; take"):
        train(Lab(tmp_path, progress=None), 8, seeds=3)


def test_the_compiler_says_what_a_training_needs(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    from saccade.core import job

    training = train(lab, 4)
    monkeypatch.setattr(job, "_free_memory", lambda: 2**34)
    assert job._fits(training._engine)
    monkeypatch.setattr(job, "_free_memory", lambda: 2**10)
    assert not job._fits(training._engine)
    need = training._engine.programs["advance"].memory
    state = sum(leaf.nbytes for leaf in training._leaves.values())
    assert need > state / 2, "each of two devices holds half of the members"


# -- seeds apart -----------------------------------------------------------------------------------


def test_one_start_with_other_data(lab: Lab):
    task = DrawnNumbers()
    settings: dict[str, Any] = {"task": task, "loss": label_visits}
    settings["optimiser"] = GradientDescent(1.0)
    training = train(lab, 1, seeds=Seeds(3, start=7), **settings)
    record = training.trajectory
    start = np.asarray(initial_model(task, WordTableConfig(), 7).table)
    tables = record["table"].values
    np.testing.assert_allclose(tables[:, 0], np.broadcast_to(start, (3, *start.shape)), rtol=1e-5)
    for seed in range(3):
        words = np.asarray(training_set(task, seed).words)[:, 0]
        counts = np.bincount(words, minlength=4000)
        np.testing.assert_allclose(tables[seed, 1, :, 0] - start[:, 0], counts, atol=1e-4)
    assert record["start_seed"].values.tolist() == [7, 7, 7]
    assert seed_of(record, "start").values.tolist() == [7, 7, 7]
    assert seed_of(record, "data").values.tolist() == [0, 1, 2]


@pytest.mark.slow
def test_one_data_set_with_other_starts_and_orders(lab: Lab):
    settings: dict[str, Any] = {"batches": Minibatch(4), "model": WordTableConfig(0.0)}
    plain = train(lab, 3, **settings).trajectory["table"]
    same = train(lab, 3, seeds=Seeds(3, data=0, order=0), **settings).trajectory["table"]
    for seed in range(3):
        np.testing.assert_array_equal(same.sel(seed=seed), plain.sel(seed=0))
    orders = train(lab, 3, seeds=Seeds(3, data=0), **settings).trajectory["table"]
    assert not np.array_equal(orders.sel(seed=1), orders.sel(seed=0))
    listed = train(lab, 3, seeds=Seeds((4, 9), data=(0, 1), order=(0, 1)), **settings)
    np.testing.assert_array_equal(listed.trajectory["table"], plain.isel(seed=[0, 1]))


def test_a_teacher_goes_with_the_data(lab: Lab):
    settings: dict[str, Any] = {"model": TaughtConfig(), "task": DrawnNumbers()}
    one, other = (
        train(lab, 0, seeds=seeds, **settings).trajectory["loss"]
        for seeds in (Seeds(1, start=0, data=3), Seeds((8,), start=0, data=3))
    )
    np.testing.assert_array_equal(one.values, other.values)


def test_theories_draw_from_the_seeds_that_the_record_names(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    """Lemma 2 begins with the start and the data of every member."""
    asked = []
    empty = (np.zeros((2, 1)), np.zeros((2, 1, 2)), np.zeros((2, 1, 2)))
    monkeypatch.setattr(
        Lemma2, "flows", lambda self, task, model, seeds, times: asked.append(seeds) or empty
    )
    model, record = AttentionClassifierConfig("FC", 3), Recording((TopicWords(),))
    for seeds in ((4, 9), Seeds((4, 9), start=7, data=(1, 2))):
        training = lab.train(TASK, model, GradientDescent(), 0, record, seeds=seeds)
        Lemma2().predict(TASK, model, training.trajectory)
    assert [seeds.tolist() for seeds in asked] == [[[4, 4], [9, 9]], [[7, 1], [7, 2]]]


def test_seeds_that_do_not_fit_are_refused(lab: Lab):
    with pytest.raises(ConfigError, match="seeds: got start -1, allowed: a whole number from 0"):
        Seeds(3, start=-1)
    with pytest.raises(ConfigError, match=r"seeds: got data \(1, 2\), allowed: .*each of the 3"):
        Seeds(3, data=(1, 2))


def test_chunks_from_the_cache_and_new_ones_are_one_result(tmp_path):
    """The first chunk has its last state in the cache, the second is new."""
    small = Lab(tmp_path, progress=None, chunk=2)
    kept = train(small, 4, seeds=2, keep_state=True)
    both = train(small, 4, seeds=4)
    np.testing.assert_array_equal(
        both.trajectory["table"].isel(seed=[0, 1]), kept.trajectory["table"]
    )
    again = train(small, 4, seeds=4, start=both, keep_state=True)
    assert train(small, 4, seeds=4, after=again).trajectory["step"].values.tolist() == [4, 8]
    assert "data" not in vars(both._engine), "what lay on the devices is let go"


def test_by_length_in_float64(precise_lab: Lab):
    settings: dict[str, Any] = {"task": Sentences(), "batches": Minibatch(3, by_length=True)}
    training = train(precise_lab, 3, **settings)
    assert training.model(seed=1).table.dtype == np.float64
