"""Losses without attention, against models whose weights were changed by hand."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.contracts.probe import Moment
from saccade.errors import ConfigError
from saccade.models.encoder import EncoderConfig
from saccade.models.fused_attention import in_rows
from saccade.models.kernels import KERNELS, SOFTMAX
from saccade.probes.ablations import Ablations
from saccade.tasks.repeated_words import RepeatedWords

TASK = RepeatedWords(length=3, words=5, extra=2, objective="masked")
CONFIG = EncoderConfig(2, 2, 8, 8, 0.0, head="masked", weight_scale=2.0)


@pytest.fixture(scope="module")
def moment():
    model = CONFIG.build(TASK, jax.random.key(0))
    batch = TASK.sample(jax.random.key(1), 12)
    return Moment(TASK, model, batch, batch, lambda model, some: model.loss(some), lambda: None)


def test_losses_are_those_of_the_models_that_are_left(moment):
    found = jax.jit(lambda: Ablations()(moment))()
    model, batch = moment.model, moment.test
    np.testing.assert_allclose(found["whole_loss"], model.loss(batch), rtol=1e-5)
    for layer in range(2):
        for head in range(2):
            weights = np.array(model.layers[layer].attention.output.weights)
            weights[4 * head : 4 * head + 4] = 0
            left = eqx.tree_at(
                lambda tree, at=layer: tree.layers[at].attention.output.weights,
                model,
                jnp.asarray(weights),
            )
            np.testing.assert_allclose(
                found["removed_loss"][layer, head], left.loss(batch), rtol=1e-5
            )


def test_attention_is_uniform_over_what_is_visible(moment, monkeypatch):
    """By a kernel that gives every visible key the same weight, in one layer."""

    class Uniform(type(SOFTMAX)):
        def scores(self, queries, keys, scale=None):
            return 0 * super().scores(queries, keys, scale)

    model, batch = moment.model, moment.test
    found = jax.jit(lambda: Ablations()(moment))()
    for place in range(2):
        layers = list(model.layers)
        attention = eqx.tree_at(lambda one: one.kernel, layers[place].attention, Uniform())
        layers[place] = eqx.tree_at(lambda one: one.attention, layers[place], attention)
        uniform = eqx.tree_at(lambda tree: tree.layers, model, tuple(layers))
        np.testing.assert_allclose(found["uniform_loss"][place], uniform.loss(batch), rtol=1e-5)


def test_all_layers_at_once_and_only_with_softmax(moment):
    found = jax.jit(lambda: Ablations()(moment))()
    both = moment.model.ablated(0).ablated(1)
    np.testing.assert_allclose(found["all_uniform_loss"], both.loss(moment.test), rtol=1e-5)
    gaussian = moment.model.with_attention(kernel=KERNELS["gaussian"])
    with pytest.raises(ConfigError, match=r"^ablated: got a kernel that is not normalised, allow"):
        gaussian.ablated(0)


def test_a_model_that_cannot_be_ablated_is_refused(moment):
    other = Moment(
        TASK, eqx.nn.Identity(), moment.test, moment.test, lambda *_: jnp.zeros(()), lambda: None
    )
    with pytest.raises(ConfigError, match=r"^Ablations: got Identity, allowed: a model with"):
        Ablations()(other)


def test_rows_in_blocks_hide_the_same_keys(monkeypatch):
    """Causal attention, padding with a weight, and rounding do not depend on how rows are cut."""
    random = np.random.default_rng(0)
    draw = lambda: jnp.asarray(random.normal(size=(2, 2, 7, 4)), jnp.float32)  # noqa: E731
    parts = (draw(), draw(), draw())
    seen = jnp.asarray(random.random((2, 7)) < 0.7).at[:, 0].set(True)
    how: Any = {"padding_weight": 0.3, "future_weight": 0.0, "rounded": True}
    whole = in_rows(SOFTMAX, *parts, seen, **how)
    monkeypatch.setattr("saccade.models.fused_attention.BLOCKS", {jax.default_backend(): 7 * 2})
    np.testing.assert_allclose(in_rows(SOFTMAX, *parts, seen, **how), whole, rtol=1e-5, atol=1e-6)
