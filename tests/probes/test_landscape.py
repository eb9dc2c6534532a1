"""The Hessian's eigenvalues against a Hessian written out, and losses over a plane against weights
that are moved by hand.
"""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from saccade.contracts.probe import Moment
from saccade.contracts.task import Batch
from saccade.models.encoder import EncoderConfig
from saccade.probes.curvature import Curvature
from saccade.probes.landscape import LossPlane
from saccade.tasks.arrays import Arrays
from saccade.train.loss import own_loss
from saccade.train.members import trainable

RANDOM = np.random.default_rng(0)
SMALL = EncoderConfig(layers=2, heads=2, dimension=4, hidden=3, dropout=0.5, fused=True)


def texts(count: int) -> Batch:
    mask = np.arange(5) < RANDOM.integers(1, 6, (count, 1))
    words = np.where(mask, RANDOM.integers(1, 6, (count, 5)), 0)
    return Batch(jnp.asarray(words), jnp.asarray(words[:, 0] % 2), jnp.asarray(mask))


def moment(kernel: Any, chunk: int | None = None, layers: int = 2) -> Moment:
    train, test = texts(7), texts(6)
    task = Arrays.of(train=train, test=test)
    config = EncoderConfig(**{**vars(SMALL), "kernel": kernel, "layers": layers})
    model = config.build(task, jax.random.key(3))
    return Moment(task, model, train, test, own_loss, lambda: model, chunk=chunk)


@pytest.mark.parametrize("kernel", ["softmax", "gaussian"])
def test_the_largest_eigenvalues_are_those_of_the_hessian(kernel):
    """Also of fused attention, which is measured as if it were explicit."""
    with jax.enable_x64(True):
        now = moment(kernel, layers=1)
        explicit = now.model.with_attention(fused=False)
        learned, rest = eqx.partition(explicit, trainable(explicit))
        flat, shaped = ravel_pytree(learned)

        def loss(weights: Any) -> Any:
            return eqx.combine(shaped(weights), rest).loss(now.train)

        wanted = np.linalg.eigvalsh(jax.jit(jax.hessian(loss))(flat))[::-1][:3]
        measure = jax.jit(lambda probe: probe(now)["hessian_eigenvalue"], static_argnums=0)
        found = measure(Curvature(examples=99, count=3, iterations=flat.size))
        np.testing.assert_allclose(found, wanted, rtol=1e-6)
        fewer = measure(Curvature(examples=3, iterations=flat.size))
        assert abs(float(fewer[0]) / wanted[0] - 1) > 0.01


def weights_of(layer: int, side: str, model: Any) -> Any:
    return getattr(model.layers[layer].attention, side).weights


@pytest.mark.parametrize("chunk", [None, 4])
def test_losses_over_a_plane_are_those_of_moved_weights(chunk):
    with jax.enable_x64(True):
        now = moment("gaussian", chunk)
        plane = LossPlane(points=5, reach=0.5, draws=2, examples=6)
        found = np.asarray(jax.jit(lambda: plane(now)["plane_loss"])())
        assert found.shape == (2, 5, 5)
        np.testing.assert_allclose(found[:, 2, 2], now.model.loss(now.test), rtol=1e-12)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(0), 1), 4)
        moved = now.model
        for layer in range(2):
            for place, side in enumerate(("query", "key")):
                weights = partial(weights_of, layer, side)
                old = np.asarray(weights(now.model))
                drawn = np.asarray(jax.random.normal(keys[2 * layer + place], old.shape))
                by = (-0.5, 0.25)[place] * np.linalg.norm(old) / np.linalg.norm(drawn)
                moved = eqx.tree_at(weights, moved, jnp.asarray(old + by * drawn))
        np.testing.assert_allclose(found[1, 0, 3], moved.loss(now.test), rtol=1e-12)
        assert np.ptp(found) > 1e-3
