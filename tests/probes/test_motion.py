"""Displacements and gradients of parts, against NumPy norms."""

from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.core.errors import ConfigError
from saccade.core.interfaces import Moment
from saccade.models.attention_regression import AttentionRegression
from saccade.models.kernels import Softmax
from saccade.models.one_layer_transformer import TiedScores
from saccade.probes.motion import Displacements, GradientNorms
from saccade.tasks.random_sequences import Sequences

RANDOM = np.random.default_rng(1)
PARTS = ("values", "keys", "queries")


def in_a_hurry(function: Any) -> Any:
    """Compiled without optimisation: quicker than one operation at a time, for what runs once."""
    hurry = {"xla_backend_optimization_level": 0} if jax.default_backend() == "cpu" else None
    return jax.jit(function, compiler_options=hurry)  # pyright: ignore[reportArgumentType]


def model(scale: float = 1.0) -> AttentionRegression:
    queries, keys, values = (jnp.asarray(scale * RANDOM.normal(size=(2, 3, 2))) for _ in range(3))
    return AttentionRegression(
        queries, keys, values, jnp.asarray(RANDOM.normal(size=(2, 2, 1))), Softmax(), ("keys",)
    )


def moment(now: Any, start: Any) -> Moment:
    batch = Sequences(
        jnp.asarray(RANDOM.normal(size=(2, 3, 3))), jnp.asarray(RANDOM.normal(size=(2, 3, 1)))
    )
    return Moment(None, now, batch, batch, AttentionRegression.loss, lambda: start)


def test_norms_and_ways_from_the_start():
    with jax.enable_x64(True):
        now, start = model(), model()
        ours = Displacements()(moment(now, start))
        still = Displacements(("keys",))(moment(start, start))
    for place, name in enumerate(PARTS):
        after, before = (np.asarray(getattr(one, name)) for one in (now, start))
        assert ours["part_norm"][place] == pytest.approx(np.sqrt(np.sum(after**2)), rel=1e-14)
        assert ours["displacement"][place] == pytest.approx(
            np.sqrt(np.sum((after - before) ** 2)), rel=1e-14
        )
    assert np.asarray(still["displacement"]).tolist() == [0.0]
    assert Displacements(("keys",)).coordinates(None) == {"part": ("part", ["keys"])}


def test_gradients_of_parts_that_learn_and_of_those_that_do_not():
    with jax.enable_x64(True):
        now = moment(model(), None)
        parts = (now.model.values, now.model.keys, now.model.queries, now.model.output)

        def loss(values: Any, keys: Any, queries: Any, output: Any) -> Any:
            return AttentionRegression(queries, keys, values, output, Softmax(), ()).loss(now.train)

        both = in_a_hurry(
            lambda *parts: (
                GradientNorms((*PARTS, "output"))(now)["gradient_norm"],
                jax.grad(loss, (0, 1, 2, 3))(*parts),
            )
        )
        ours, slopes = both(*parts)
    np.testing.assert_allclose(
        ours, [np.linalg.norm(np.asarray(slope)) for slope in slopes], rtol=1e-13
    )
    assert np.all(np.asarray(ours) > 0), "keys are frozen, but have a gradient"


def test_a_part_may_be_a_tree():
    tied = SimpleNamespace(tied=TiedScores(jnp.asarray(3.0), jnp.asarray(4.0)))
    start = SimpleNamespace(tied=TiedScores(jnp.asarray(0.0), jnp.asarray(4.0)))
    ours = Displacements(("tied",))(moment(tied, start))
    assert (float(ours["part_norm"][0]), float(ours["displacement"][0])) == (5, 3)


def test_a_part_that_is_not_there_is_refused_by_name():
    with pytest.raises(
        ConfigError, match=r"^parts: got biases, allowed: parts that AttentionRegression has"
    ):
        Displacements(("biases",))(moment(model(), model()))
