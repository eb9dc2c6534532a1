"""Reflections of contexts and decoder states about their means."""

import dataclasses
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.errors import ConfigError
from saccade.models.sequence_to_sequence import SequenceToSequence, SequenceToSequenceConfig
from saccade.records.schedule import Every
from saccade.studies import ktiw_reflection
from saccade.studies.ktiw_reflection import contexts_reflected, states_reflected
from saccade.tasks.copying import Copying
from saccade.train.lab import Lab

TASK = Copying(4, 4)
ROUNDING = 1e-12
"""Float64: sums of some hundred numbers of size 1."""
EDITED = {
    contexts_reflected: ("context_weights", "context_bias"),
    states_reflected: ("hidden_layer.weights", "hidden_layer.bias"),
}
each_edit = pytest.mark.parametrize("edit", EDITED)


def model_of(**settings) -> SequenceToSequence:
    return SequenceToSequenceConfig(hidden=6, **settings).build(TASK, jax.random.key(1))


@each_edit
def test_an_edit_changes_two_arrays_and_is_its_own_inverse(edit):
    with jax.enable_x64(True):
        model = model_of(heads=2)
        edited = eqx.filter_jit(partial(edit, TASK))
        once = edited(model)
        twice = edited(once)
    leaves = jax.tree_util.tree_leaves_with_path(model)
    changed = {
        jax.tree_util.keystr(path)
        for (path, old), new in zip(leaves, jax.tree.leaves(once), strict=True)
        if not np.array_equal(old, new)
    }
    assert len(changed) == 2
    assert all(any(path.endswith(name) for path in changed) for name in EDITED[edit])
    for old, new in zip(jax.tree.leaves(model), jax.tree.leaves(twice), strict=True):
        np.testing.assert_allclose(np.asarray(new, float), np.asarray(old, float), atol=ROUNDING)


def test_contexts_are_reflected_about_that_of_the_mean_state():
    """The means over new sequences are those of the edit, whose sequences are drawn likewise."""
    with jax.enable_x64(True):
        model = model_of(heads=2)
        batch = TASK.sample(jax.random.key(0), ktiw_reflection.DRAWN)
        encoded, _ = model.states(batch, None)
        edited = contexts_reflected(TASK, model)
        before, after = (one.heads.contexts_of_one(encoded) for one in (model, edited))
        np.testing.assert_allclose(after, 2 * before.mean((0, 1)) - before, atol=ROUNDING)
        np.testing.assert_allclose(after.mean((0, 1)), before.mean((0, 1)), atol=ROUNDING)


def test_the_readout_sees_decoder_states_reflected_about_their_mean():
    with jax.enable_x64(True):
        model = model_of()
        batch = TASK.sample(jax.random.key(0), ktiw_reflection.DRAWN)
        _, decoded = model.states(batch, None)
        edited = states_reflected(TASK, model)
        context = jnp.ones_like(decoded)
        before, after = (
            one.hidden_layer(jnp.concatenate([context, states], axis=-1))
            for one, states in ((model, 2 * decoded.mean((0, 1)) - decoded), (edited, decoded))
        )
        np.testing.assert_allclose(after, before, atol=ROUNDING)


@pytest.mark.slow
def test_after_the_first_steps_contexts_turn_the_advantage_and_hardly_change_the_loss(lab: Lab):
    """In every run; the sham edit keeps the sign. Reflected contexts change the loss by less than
    one percent, because attention averages deviations out; negated ones by more.
    """
    config = dataclasses.replace(ktiw_reflection.STUDY.config("quick"), seeds=6)
    task = config.permutations("plain")
    recipe = config.recipe(task, config.model, config.early, at=Every(10))
    first = lab.train(recipe, config.seed_numbers)
    batch = task.sample(jax.random.key(5), 50)
    words = np.eye(config.length + 1, dtype=bool)[:-1]

    def measured(model: SequenceToSequence) -> tuple[jax.Array, jax.Array]:
        return model.loss(batch), jnp.exp(model.lexical_probe(batch)).mean(0)[:-1]

    losses, signs = [], []
    for edit in (None, contexts_reflected, states_reflected):
        edited = first if edit is None else first.edited(partial(edit, task))
        loss, beta = map(np.asarray, eqx.filter_vmap(measured)(edited.models))
        losses.append(loss)
        signs.append(np.sign(beta[:, words].mean(1) - beta[:, ~words].mean(1)))
    np.testing.assert_allclose(losses[1], losses[0], rtol=0.01)
    negated = first.edited(lambda model: model.with_readout_negated("context"))
    assert np.all(abs(eqx.filter_vmap(measured)(negated.models)[0] / losses[0] - 1) > 0.01)
    assert len(set(signs[0])) == 2, "runs of both signs"
    np.testing.assert_array_equal(signs[1], -signs[0])
    np.testing.assert_array_equal(signs[2], signs[0])


def test_a_model_without_a_projection_is_refused():
    with pytest.raises(ConfigError, match=r"^model.context_projection: got False, allowed: True"):
        ktiw_reflection.Config(model=SequenceToSequenceConfig(context_projection=False))
