"""Displacements, gradients and stable ranks of parts, against NumPy norms."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from saccade.contracts.probe import Moment
from saccade.errors import ConfigError
from saccade.models.attention_regression import AttentionRegression
from saccade.models.encoder import EncoderConfig
from saccade.models.kernels import Softmax
from saccade.models.one_layer_transformer import TiedScores
from saccade.probes.motion import (
    Displacements,
    GradientNorms,
    SecondMoments,
    StableRanks,
    stable_rank,
)
from saccade.tasks.keyword_sentences import KeywordSentences
from saccade.tasks.random_sequences import Sequences
from saccade.train.lab import Lab
from saccade.train.members import initial_model, training_set
from saccade.train.optimiser import Adam
from saccade.train.recipe import Recipe

RANDOM = np.random.default_rng(1)
PARTS = ("values", "keys", "queries")


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

        both = jax.jit(
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


class Tied(eqx.Module):
    """A model whose part is itself a tree."""

    tied: TiedScores
    name: str = "not an array"


def test_a_part_may_be_a_tree():
    now, start = (Tied(TiedScores(jnp.asarray(one), jnp.asarray(4.0))) for one in (3.0, 0.0))
    ours = Displacements(("tied", "tied.same_word", "*.same_topic"))(moment(now, start))
    assert np.asarray(ours["part_norm"]).tolist() == [5, 3, 4]
    assert np.asarray(ours["displacement"]).tolist() == [3, 3, 0]


def test_a_part_that_is_not_there_is_refused_by_name():
    with pytest.raises(
        ConfigError, match=r"^parts: got 'biases', allowed: paths of the model's arrays or parts"
    ):
        Displacements(("biases",))(moment(model(), model()))
    for nothing in ((), "values"):
        with pytest.raises(ConfigError, match=r"^parts: got .* allowed: at least one path; write"):
            Displacements(nothing)  # pyright: ignore[reportArgumentType]


# -- paths of any depth ----------------------------------------------------------------------------


def encoder_moment() -> Moment:
    config, task = EncoderConfig.example()

    def build(key: Any) -> Any:
        return eqx.filter(config.build(task, key), eqx.is_array)

    keys = jax.random.split(jax.random.key(0))
    now, start = (jax.jit(build)(key) for key in keys)
    still = eqx.filter_eval_shape(config.build, task, keys[0])
    now, start = (eqx.combine(one, still) for one in (now, start))
    batch = jax.jit(lambda key: task.sample(key, 3))(keys[0])
    return Moment(task, now, batch, batch, lambda model, batch: model.loss(batch), lambda: start)


def frobenius(*arrays: Any) -> float:
    return float(np.sqrt(sum(np.sum(np.asarray(array, float) ** 2) for array in arrays)))


def test_patterns_name_weights_at_any_depth_and_pool_them():
    here = encoder_moment()
    layers, starts = here.model.layers, here.initial.layers
    parts = ("layers.1.attention.query.weights", "layers.*.attention.key", "head")
    ours = Displacements(parts)(here)
    keys = [(one.attention.key.weights, one.attention.key.bias) for one in layers]
    head, query = here.model.head, layers[1].attention.query.weights
    np.testing.assert_allclose(
        ours["part_norm"],
        [frobenius(query), frobenius(*sum(keys, ())), frobenius(head.weights, head.bias)],
        rtol=1e-6,
    )
    moved = query - starts[1].attention.query.weights
    assert float(ours["displacement"][0]) == pytest.approx(frobenius(moved), rel=1e-6)
    slopes, gradient = jax.jit(lambda: (GradientNorms(parts)(here), here.gradient))()
    slope = gradient.layers[1].attention.query.weights
    assert float(slopes["gradient_norm"][0]) == pytest.approx(frobenius(slope), rel=1e-5)
    assert Displacements(parts).coordinates(None) == {"part": ("part", list(parts))}


# -- stable rank -----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 5), (3, 40), (40, 3), (1, 6)])
def test_stable_rank_is_that_of_singular_values(shape):
    matrix = RANDOM.normal(size=shape)
    values = np.linalg.svd(matrix, compute_uv=False)
    expected = np.sum(values**2) / values[0] ** 2
    with jax.enable_x64(True):
        assert float(stable_rank(jnp.asarray(matrix))) == pytest.approx(expected, rel=1e-13)
    assert float(stable_rank(jnp.asarray(matrix, jnp.float32))) == pytest.approx(expected, rel=1e-5)


def test_stable_rank_of_one_direction_and_of_all():
    assert float(stable_rank(jnp.outer(jnp.arange(1.0, 4), jnp.arange(2.0, 7)))) == pytest.approx(1)
    assert float(stable_rank(3 * jnp.eye(6))) == pytest.approx(6)


def test_stable_ranks_of_parts():
    """Biases aside; the mean over several matrices; NaN without a matrix or of zeros."""
    here = encoder_moment()
    zeros = eqx.tree_at(lambda model: model.head.weights, here.model, replace_fn=jnp.zeros_like)
    here.model = zeros
    names = ("layers.0.attention.query", "layers.*.attention.query", "head.bias", "head.weights")
    one, several, *nothing = jax.jit(lambda: StableRanks(names)(here)["stable_rank"])()
    ranks = [
        frobenius(layer.attention.query.weights) ** 2
        / np.linalg.norm(layer.attention.query.weights, 2) ** 2
        for layer in here.model.layers
    ]
    assert float(one) == pytest.approx(ranks[0], rel=1e-5)
    assert float(several) == pytest.approx(np.mean(ranks), rel=1e-5)
    assert np.all(np.isnan(nothing))


def adams(count: int, nu: Any, epsilon: float = 1e-3) -> dict[str, Any]:
    """What a moment says of Adam after some steps."""
    optimiser = Adam(1e-3, epsilon=epsilon)
    state = optax.ScaleByAdamState(jnp.asarray(count), nu, nu)
    return {"optimiser": optimiser, "optimiser_state": (state, optax.EmptyState())}


def test_second_moments_are_those_of_adam():
    """The root of the corrected mean over epsilon; NaN for what does not learn, at first, and with
    another optimiser.
    """
    now = model()
    nu = eqx.filter(now, eqx.is_inexact_array)
    nu = jax.tree.map(lambda leaf: jnp.full_like(leaf, 4e-8), nu)
    nu = eqx.tree_at(lambda tree: tree.keys, nu, None)
    given = (None, now, None, None, AttentionRegression.loss, lambda: now)
    found = SecondMoments(PARTS)(Moment(*given, **adams(3, nu)))["second_moment"]
    expected = np.sqrt(4e-8 / (1 - 0.999**3)) / 1e-3
    np.testing.assert_allclose(found, [expected, np.nan, expected], rtol=1e-4)
    assert np.all(np.isnan(SecondMoments(PARTS)(Moment(*given, **adams(0, nu)))["second_moment"]))
    assert np.all(np.isnan(SecondMoments(PARTS)(Moment(*given))["second_moment"]))
    with pytest.raises(ConfigError, match=r"^parts: got 'nothing', allowed: paths of the model's"):
        SecondMoments(("nothing",))(Moment(*given))


def test_second_moments_follow_a_training(tmp_path):
    """One step of Adam: the mean square is that of the first gradient."""
    task = KeywordSentences(length=4, words=5, train_size=8, test_size=2)
    config = EncoderConfig(1, 1, 4, 4, 0.0)
    part = "layers.0.attention.query"
    adam = Adam(1e-3, epsilon=1e-5)
    recipe = Recipe(task, config, adam, 1, probes=(SecondMoments((part,)),))
    arm = Lab(tmp_path, progress=None).train(recipe, seeds=1)
    start = initial_model(task, config, 0)
    gradient = eqx.filter_grad(lambda one: one.loss(training_set(task, 0)))(start)
    attention = gradient.layers[0].attention.query
    every = np.concatenate([np.ravel(attention.weights), np.ravel(attention.bias)])
    found = arm.trajectory["second_moment"].isel(seed=0, part=0).values
    assert np.isnan(found[0])
    np.testing.assert_allclose(found[1], np.sqrt(np.mean(every**2)) / 1e-5, rtol=1e-3)
