"""Models that are no saccade models: any Equinox module, dropout by a key, frozen parts, and counts
that are swept.
"""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxtyping import Array, PRNGKeyArray
from word_table import TASK, Table, WordList, WordTable, WordTableConfig

from saccade.contracts.model import cross_entropy
from saccade.contracts.task import AbstractTask, Batch
from saccade.errors import ConfigError
from saccade.records.schedule import Every
from saccade.train.batches import Minibatch
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.paths import part, paths
from saccade.train.recipe import Recipe


class Net(eqx.Module):
    """As one would write it without saccade."""

    embedding: eqx.nn.Embedding
    linear: eqx.nn.Linear

    def __init__(self, task: Any, key: PRNGKeyArray):
        first, second = jax.random.split(key)
        self.embedding = eqx.nn.Embedding(task.vocabulary_size, 4, key=first)
        self.linear = eqx.nn.Linear(4, task.labels, key=second)

    def __call__(self, words: Array) -> Array:
        return self.linear(jax.vmap(self.embedding)(words).mean(0))


def entropy(model: Net, batch: Batch) -> Array:
    return cross_entropy(jax.vmap(model)(batch.words), batch.labels)


class NetWithLoss(Net):
    def loss(self, batch: Batch) -> Array:
        return entropy(self, batch)


def build(task: Any, key: PRNGKeyArray) -> Net:
    return Net(task, key)


@pytest.mark.parametrize("model", [build, Net, lambda task, key: Net(task, key)])
def test_a_module_trains_without_a_config(lab: Lab, model):
    training = lab.train(Recipe(TASK, model, GradientDescent(0.5), 40, loss=entropy), 2)
    own = lab.train(Recipe(TASK, NetWithLoss, GradientDescent(0.5), 40), 2)
    np.testing.assert_array_equal(training.trajectory["loss"], own.trajectory["loss"])
    first, last = (training.trajectory["loss"].isel(step=at) for at in (0, -1))
    assert np.all(last < 0.9 * first)
    one = training.model(seed=1)
    assert isinstance(one, Net)
    assert one(TASK.sample(jax.random.key(0), 1).words[0]).shape == (2,)


def test_what_is_no_model_is_refused(lab: Lab):
    allowed = "allowed: a model config such as .*, or a function of task and key"
    net = Net(TASK, jax.random.key(0))
    for given in (net, 3, None):
        with pytest.raises(ConfigError, match=f"model: got .*{allowed}"):
            Recipe(TASK, given, GradientDescent(0.5), 4, loss=entropy)
    with pytest.raises(ConfigError, match="model: got the class WordTableConfig, allowed: an inst"):
        Recipe(TASK, WordTableConfig, GradientDescent(0.5), 4)
    with pytest.raises(ConfigError, match=r"got a Net without a loss, allowed: .*`loss=`"):
        lab.train(Recipe(TASK, build, GradientDescent(0.5), 4))


def test_parts_are_named_by_paths_and_can_be_frozen(lab: Lab):
    net = Net(TASK, jax.random.key(0))
    assert paths(net) == ["embedding.weight", "linear.weight", "linear.bias"]
    assert [leaf.shape for leaf in part(net, "linear", "parts")] == [(2, 4), (2,)]
    assert [leaf.shape for leaf in part(net, "*.weight", "parts")] == [(14, 4), (2, 4)]
    assert [leaf.shape for leaf in part(net, "linear.bias", "parts")] == [(2,)]
    nothing = Recipe(TASK, build, GradientDescent(0.5), 0, loss=entropy)
    start = lab.train(nothing, 1).models
    end = lab.train(dataclasses.replace(nothing, steps=5, frozen=("linear",)), 1).models
    np.testing.assert_array_equal(end.linear.weight, start.linear.weight)
    np.testing.assert_array_equal(end.linear.bias, start.linear.bias)
    assert np.any(end.embedding.weight != start.embedding.weight)


# -- dropout ---------------------------------------------------------------------------------------


class Noisy(WordTable):
    """A step adds a number between 0 and 1, drawn by the key, to every entry; measured, the loss is
    that of 1.
    """

    def loss(self, batch: Batch, key: PRNGKeyArray | None = None) -> Array:
        del batch
        drawn = 1.0 if key is None else jax.random.uniform(key)
        return -jnp.sum(self.table) * drawn


def noisy(task: Any, key: PRNGKeyArray) -> Noisy:
    del key
    return Noisy(jnp.zeros((task.vocabulary_size, task.labels)))


def outer_loss(model: Noisy, batch: Batch, key: PRNGKeyArray | None = None) -> Array:
    return model.loss(batch, key)


def test_training_has_a_new_key_at_every_step_and_measuring_has_none(lab: Lab):
    moves = []
    for loss in (None, outer_loss):
        recipe = Recipe(
            TASK,
            noisy,
            GradientDescent(1.0),
            30,
            probes=(Table(),),
            at=Every(1),
            batches=Minibatch(4),
            loss=loss,
        )
        training = lab.train(recipe, 4)
        table = training.trajectory["table"].values
        assert np.ptp(table, axis=(2, 3)).max() == 0
        np.testing.assert_allclose(training.trajectory["loss"], -table.sum(axis=(2, 3)), rtol=1e-5)
        moves.append(np.diff(table[:, :, 0, 0]))
    np.testing.assert_array_equal(*moves)
    assert len(np.unique(moves[0].round(5))) == 120, "another draw for every seed and step"
    assert 0.3 < moves[0].mean() < 0.7


# -- counts that are swept -------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class FirstWords(AbstractTask):
    """Words below `count`, of `largest`."""

    count: int = 4
    largest: int = 9
    train_size: int = 200
    test_size: int = 8

    labels: ClassVar = 2

    @property
    def vocabulary_size(self) -> int:
        return self.largest

    def sample(self, key: PRNGKeyArray, size: int) -> Batch:
        words = jax.random.randint(key, (size, 1), 0, self.count, jnp.int32)
        return Batch(words, jnp.zeros(size, jnp.int32))


def test_a_count_is_swept_where_no_shape_depends_on_it(lab: Lab):
    recipe = Recipe(FirstWords(), WordTableConfig(0.0), GradientDescent(1.0), 1, probes=(Table(),))
    training = lab.train(recipe, 2, sweep={"task.count": (2, 5, 9)})
    table = training.trajectory["table"].isel(step=-1, label=0)
    assert table["count"].values.tolist() == [2, 5, 9]
    assert table["count"].dtype.kind == "i"
    seen = (table != 0).sum("word")
    np.testing.assert_array_equal(seen, [[2, 2], [5, 5], [9, 9]])
    alone = lab.train(dataclasses.replace(recipe, task=FirstWords(5)), 2)
    last = alone.trajectory["table"].isel(step=-1, label=0)
    np.testing.assert_allclose(table.sel(count=5), last, rtol=1e-6)


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("largest", "model WordTableConfig: cannot be built for FirstWords if largest is swept: a"),
        ("train_size", "sweep train_size: train_size is the same for all members"),
    ],
)
def test_a_count_that_shapes_depend_on_is_refused(lab: Lab, path, problem):
    recipe = Recipe(FirstWords(), WordTableConfig(), GradientDescent(), 1)
    with pytest.raises(ConfigError, match=problem) as refusal:
        lab.train(recipe, sweep={f"task.{path}": (9, 12)})
    assert "loop over its values in `experiment`" in str(refusal.value)


def test_counts_are_whole(lab: Lab):
    recipe = Recipe(FirstWords(), WordTableConfig(), GradientDescent(), 1)
    with pytest.raises(ConfigError, match=r"sweep count: got 2, 2.5, allowed: whole numbers"):
        lab.train(recipe, sweep={"task.count": (2, 2.5)})
    words = dataclasses.replace(recipe, task=WordList())
    whole = lab.train(words, sweep={"optimiser.rate": (1, 2)})
    assert whole.trajectory["rate"].dtype == float


def test_one_boolean_may_stand_for_a_part_beside_frozen_ones(lab: Lab):
    class Halves(NetWithLoss):
        def trainable(self) -> Any:
            return eqx.tree_at(
                lambda tree: (tree.embedding, tree.linear), self, (True, True), is_leaf=None
            )

    start, end = (
        lab.train(Recipe(TASK, Halves, GradientDescent(0.5), steps, frozen=("linear",)), 1).models
        for steps in (0, 5)
    )
    np.testing.assert_array_equal(end.linear.weight, start.linear.weight)
    assert np.any(end.embedding.weight != start.embedding.weight)
