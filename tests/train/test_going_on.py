"""Going on from another training, chunks of members, and seeds of start, data and order apart."""

import dataclasses
import gc
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
    without_seconds,
)

from saccade.errors import ConfigError, DoesNotFitError, InterruptedTrainingError
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.probes.topic_words import TopicWords
from saccade.records.schedule import Every
from saccade.theory.topic_word_flow import Lemma2
from saccade.train.batches import Fresh, Minibatch
from saccade.train.engine import Engine
from saccade.train.lab import Lab
from saccade.train.members import initial_model, training_set
from saccade.train.optimiser import Adam, GradientDescent
from saccade.train.prepared import PreparedRecipe
from saccade.train.program import Program
from saccade.train.rates import Cosine
from saccade.train.recipe import Recipe
from saccade.train.start import Seeds, members_of, seed_of
from saccade.workers.progress import Progress

FIRST, SECOND = 14, 22
RATES = {"optimiser.rate": (0.1, 0.2)}
RECIPE = Recipe(
    TASK,
    WordTableConfig(),
    Adam(0.1),
    FIRST,
    probes=(Table(),),
    at=Every(4),
    ends=(Table(),),
)
FIRST_HALF = dataclasses.replace(RECIPE, keep_state=True)


# -- going on --------------------------------------------------------------------------------------

WAYS = {
    "full batches, in units of curvature": dataclasses.replace(
        RECIPE,
        optimiser=GradientDescent(
            0.1, schedule=Cosine(30, 5), curvature=lambda model, batch: 2 + model.table[0, 0] ** 2
        ),
    ),
    "minibatches, swept": dataclasses.replace(RECIPE, batches=Minibatch(5)),
    "fresh examples, with keys in the optimiser": dataclasses.replace(
        RECIPE,
        batches=Fresh(5),
        optimiser=optax.chain(optax.add_noise(0.1, 0.5, key=3), optax.adam(0.1)),
    ),
    "by length, any optimiser": dataclasses.replace(
        RECIPE,
        task=Sentences(),
        batches=Minibatch(3, by_length=True),
        optimiser=optax.inject_hyperparams(optax.adam)(learning_rate=0.1),
    ),
}


@pytest.mark.parametrize(
    "way",
    [pytest.param(way, marks=pytest.mark.slow) if "fresh" not in way else way for way in WAYS],
)
def test_two_halves_are_one_whole(lab: Lab, way: str):
    recipe, seeds, sweep = WAYS[way], 3, None
    if way == "minibatches, swept":
        seeds, sweep = (3, 1), RATES
    whole = lab.train(dataclasses.replace(recipe, steps=FIRST + SECOND), seeds, sweep=sweep)
    half = lab.train(dataclasses.replace(recipe, keep_state=True), seeds, sweep=sweep)
    second = dataclasses.replace(recipe, steps=SECOND)
    rest = lab.train(second, seeds, sweep=sweep, after=half)
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
    recipe = dataclasses.replace(RECIPE, steps=400)
    half = lab.train(FIRST_HALF, 3)
    rest = lab.train(recipe, 3, after=half)
    heard: list[Progress] = []
    again = dataclasses.replace(lab, progress=heard.append).train(recipe, 3, after=half)
    assert [event.note for event in heard] == ["from the cache"]
    assert without_seconds(again.trajectory).identical(without_seconds(rest.trajectory))
    other = lab.train(FIRST_HALF, (4, 5, 6))
    assert lab.train(recipe, (4, 5, 6), after=other).digest != rest.digest

    asked = iter([False, True] + [False] * 100)
    broken = Lab(tmp_path, progress=None, asked_to_stop=lambda: next(asked))
    with pytest.raises(InterruptedTrainingError, match="at step"):
        broken.train(recipe, 3, after=half)
    resumed = Lab(tmp_path, progress=None).train(recipe, 3, after=half)
    assert without_seconds(resumed.trajectory).identical(without_seconds(rest.trajectory))


def test_a_result_without_its_state_is_trained_again(lab: Lab):
    recipe = dataclasses.replace(RECIPE, steps=10)
    plain = lab.train(recipe, 3)
    heard: list[Progress] = []
    watched = dataclasses.replace(lab, progress=heard.append)
    kept = watched.train(dataclasses.replace(recipe, keep_state=True), 3)
    assert heard[-1].note == ""
    assert without_seconds(kept.trajectory).identical(without_seconds(plain.trajectory))
    heard.clear()
    watched.train(recipe, 3)
    assert heard[-1].note == "from the cache", "a result with its state serves both"


def test_what_cannot_go_on_is_refused(lab: Lab):
    recipe = dataclasses.replace(RECIPE, steps=5)
    plain = lab.train(dataclasses.replace(RECIPE, steps=11), 3)
    kept = lab.train(FIRST_HALF, 3)
    with pytest.raises(ConfigError, match=r"after: .* one whose recipe says keep_state=True"):
        lab.train(recipe, 3, after=plain)
    with pytest.raises(ConfigError, match=r"after: got members .*0, 1\].*, allowed: .*0, 1, 2"):
        lab.train(recipe, 2, after=kept)
    with pytest.raises(
        ConfigError, match="after: got a training whose optimiser has another state"
    ):
        lab.train(dataclasses.replace(recipe, optimiser=GradientDescent(0.1, 0.5)), 3, after=kept)
    with pytest.raises(ConfigError, match="after: got a training whose batches has another state"):
        lab.train(dataclasses.replace(recipe, batches=Minibatch(4)), 3, after=kept)
    with pytest.raises(ConfigError, match=r"after: got members .*data_seed"):
        lab.train(recipe, Seeds(3, data=7), after=kept)
    with pytest.raises(ConfigError, match="start: got a training beside `after`"):
        lab.train(recipe, 3, after=kept, start=plain)
    with pytest.raises(ConfigError, match="after: got the type str, allowed: a TrainedArm, or"):
        lab.train(recipe, 3, after="a file")  # pyright: ignore[reportArgumentType,reportCallIssue]
    sentences = dataclasses.replace(FIRST_HALF, task=Sentences(), steps=2, batches=Minibatch(4))
    first = lab.train(sentences, 3)
    other = dataclasses.replace(sentences, task=Sentences(Sentences().lengths[::-1]))
    with pytest.raises(ConfigError, match="after: got a training on other examples, allowed: the"):
        lab.train(other, 3, after=first)


def test_sweeps_and_time_go_on_whatever_the_second_call_names(lab: Lab):
    """Sweeps of the first training come along, in its order; another rate goes on in time."""
    descent = dataclasses.replace(FIRST_HALF, optimiser=GradientDescent(0.1), steps=4)
    first = lab.train(descent, 3, sweep={"model.table_std": (0.5, 2.0)} | RATES)
    second = lab.train(dataclasses.replace(descent, keep_state=False), 3, sweep=RATES, after=first)
    last, begun = (one.trajectory["table"].sel(step=4) for one in (first, second))
    np.testing.assert_array_equal(last, begun.transpose(*last.dims))
    fast = lab.train(dataclasses.replace(descent, steps=8), 3)
    slowly = dataclasses.replace(RECIPE, optimiser=GradientDescent(0.01), steps=4)
    slow = lab.train(slowly, 3, after=fast)
    np.testing.assert_allclose(slow.trajectory["time"].isel(step=[0, -1]), [0.8, 0.84], rtol=1e-6)


# -- one model -------------------------------------------------------------------------------------


def test_models_are_picked_by_seed_and_value(lab: Lab):
    recipe = dataclasses.replace(RECIPE, steps=4)
    training = lab.train(recipe, (7, 3), sweep=RATES)
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
    assert repr(training).startswith("<TrainedArm: 2 rate, 2 seed, 2 step, ")
    alone = lab.train(recipe, 1)
    np.testing.assert_array_equal(alone.model().table, alone.models.table[0])


# -- chunks ----------------------------------------------------------------------------------------


def test_chunks_of_members_come_back_as_one_dataset(lab: Lab, tmp_path):
    recipe = dataclasses.replace(RECIPE, steps=12)
    whole = lab.train(recipe, 3, sweep=RATES)
    heard: list[Progress] = []
    small = Lab(tmp_path, progress=heard.append, chunk=4)
    chunked = small.train(recipe, 3, sweep=RATES)
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
    small.train(recipe, 3, sweep=RATES)
    assert {event.note for event in heard} == {"from the cache"}
    half = small.train(dataclasses.replace(recipe, keep_state=True), 3, sweep=RATES)
    rest = small.train(recipe, 3, sweep=RATES, after=half)
    twice = lab.train(dataclasses.replace(recipe, steps=24), 3, sweep=RATES)
    ends = twice.trajectory["table"].isel(step=-1)
    np.testing.assert_allclose(rest.trajectory["table"].isel(step=-1), ends, rtol=1e-5)


def test_what_does_not_fit_is_halved(lab: Lab, tmp_path, monkeypatch: pytest.MonkeyPatch):
    """A device that is said to have room for two members per core trains six in chunks."""
    from saccade.train import job

    recipe = dataclasses.replace(RECIPE, steps=8)
    whole = lab.train(recipe, 6)
    monkeypatch.setattr(job, "_fits", lambda engine: engine.count <= 2)
    heard: list[Progress] = []
    chunked = Lab(tmp_path, progress=heard.append).train(recipe, 6)
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
    recipe = dataclasses.replace(RECIPE, steps=8)
    chunked = Lab(tmp_path, progress=heard.append).train(recipe, 6)
    assert sorted({event.done for event in heard if event.done}) == [2, 4, 6]
    whole = lab.train(recipe, 6)
    np.testing.assert_allclose(chunked.trajectory["table"], whole.trajectory["table"], rtol=1e-5)


def test_one_member_that_does_not_fit_is_one_sentence(tmp_path, monkeypatch):
    def full(*given: Any) -> None:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    monkeypatch.setattr(Engine, "advance", full)
    with pytest.raises(DoesNotFitError, match="one member does not fit the device's memory; take"):
        Lab(tmp_path, progress=None).train(RECIPE, 3)


def test_the_compiler_says_what_a_training_needs(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    from saccade.train import job

    parts = (RECIPE.task, RECIPE.model, RECIPE.optimiser)
    prepared = PreparedRecipe(parts, RECIPE, FIRST, RECIPE.recorded(), lab.precision)
    engine = prepared.engine(members_of(range(3)))
    monkeypatch.setattr(job, "_free_memory", lambda: 2**34)
    assert job._fits(engine)
    monkeypatch.setattr(job, "_free_memory", lambda: 2**10)
    assert not job._fits(engine)
    leaves = lab.train(RECIPE, 3).weights.leaves
    state = sum(leaf.nbytes for leaf in leaves.values())
    assert engine.programs["advance"].memory > state / 2, (
        "each of two devices holds half of the members"
    )


# -- seeds apart -----------------------------------------------------------------------------------


def test_one_start_with_other_data(lab: Lab):
    task = DrawnNumbers()
    recipe = dataclasses.replace(
        RECIPE, task=task, optimiser=GradientDescent(1.0), steps=1, loss=label_visits
    )
    record = lab.train(recipe, Seeds(3, start=7)).trajectory
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
    recipe = dataclasses.replace(RECIPE, model=WordTableConfig(0.0), steps=3, batches=Minibatch(4))
    plain = lab.train(recipe, 3).trajectory["table"]
    same = lab.train(recipe, Seeds(3, data=0, order=0)).trajectory["table"]
    for seed in range(3):
        np.testing.assert_array_equal(same.sel(seed=seed), plain.sel(seed=0))
    orders = lab.train(recipe, Seeds(3, data=0)).trajectory["table"]
    assert not np.array_equal(orders.sel(seed=1), orders.sel(seed=0))
    listed = lab.train(recipe, Seeds((4, 9), data=(0, 1), order=(0, 1)))
    np.testing.assert_array_equal(listed.trajectory["table"], plain.isel(seed=[0, 1]))


def test_a_teacher_goes_with_the_data(lab: Lab):
    recipe = dataclasses.replace(RECIPE, task=DrawnNumbers(), model=TaughtConfig(), steps=0)
    one, other = (
        lab.train(recipe, seeds).trajectory["loss"]
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
    model = AttentionClassifierConfig("FC", 3)
    recipe = Recipe(TASK, model, GradientDescent(), 0, probes=(TopicWords(),))
    for seeds in ((4, 9), Seeds((4, 9), start=7, data=(1, 2))):
        lab.train(recipe, seeds).beside(Lemma2())
    assert [seeds.tolist() for seeds in asked] == [[[4, 4], [9, 9]], [[7, 1], [7, 2]]]


def test_seeds_that_do_not_fit_are_refused(lab: Lab):
    with pytest.raises(ConfigError, match="seeds: got start -1, allowed: a whole number from 0"):
        Seeds(3, start=-1)
    with pytest.raises(ConfigError, match=r"seeds: got data \(1, 2\), allowed: .*each of the 3"):
        Seeds(3, data=(1, 2))


def test_chunks_from_the_cache_and_new_ones_are_one_result(tmp_path):
    """The first chunk has its last state in the cache, the second is new."""
    small = Lab(tmp_path, progress=None, chunk=2)
    recipe = dataclasses.replace(RECIPE, steps=4)
    keeping = dataclasses.replace(recipe, keep_state=True)
    kept = small.train(keeping, 2)
    both = small.train(recipe, 4)
    np.testing.assert_array_equal(
        both.trajectory["table"].isel(seed=[0, 1]), kept.trajectory["table"]
    )
    again = small.train(keeping, 4, start=both)
    after = small.train(recipe, 4, after=again)
    assert after.trajectory["step"].values.tolist() == [4, 8]


def examples_on_devices(size: int) -> int:
    """How many arrays on the devices have a dim of the size of the training set."""
    gc.collect()
    return sum(size in array.shape for array in jax.live_arrays())


@pytest.mark.parametrize(
    "task", [dataclasses.replace(TASK, train_size=23), Sentences((2,) * 23)], ids=["drawn", "given"]
)
def test_what_lay_on_the_devices_is_let_go(tmp_path, task: Any):
    """Of a training in chunks whose arm is kept."""
    seen: list[int] = []
    lab = Lab(tmp_path, progress=lambda _: seen.append(examples_on_devices(23)), chunk=2)
    arm = lab.train(dataclasses.replace(FIRST_HALF, task=task), 4)
    assert max(seen) > 0
    assert examples_on_devices(23) == 0
    assert arm.weights.moving.state.learned.table.shape[0] == 4


def test_by_length_in_float64(precise_lab: Lab):
    recipe = dataclasses.replace(
        RECIPE, task=Sentences(), steps=3, batches=Minibatch(3, by_length=True)
    )
    training = precise_lab.train(recipe, 3)
    assert training.model(seed=1).table.dtype == np.float64


def test_an_arm_at_fewer_steps_goes_on_from_its_last_step(lab: Lab):
    first = lab.train(dataclasses.replace(RECIPE, keep_state=True), 3)
    later = dataclasses.replace(RECIPE, steps=3, keep_state=False)
    whole = lab.train(later, 3, after=first)
    thinned = lab.train(later, 3, after=first.at_steps([0]))
    np.testing.assert_array_equal(thinned.trajectory["step"], whole.trajectory["step"])
    np.testing.assert_array_equal(thinned.trajectory["loss"], whole.trajectory["loss"])
