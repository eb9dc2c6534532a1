"""Optimal attention: the counter-example, certificates, and another solver."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp

from saccade.errors import ConfigError
from saccade.theory.optimal_attention import (
    COUNTER_EXAMPLE_ATTENTION,
    COUNTER_EXAMPLE_LOGITS,
    COUNTER_EXAMPLE_PROBABILITY,
    COUNTER_EXAMPLE_PROBES,
    COUNTER_EXAMPLE_TARGET,
    COUNTER_EXAMPLE_UNIFORM_PROBABILITY,
    lexical_probes,
    optimal_attention,
    projected_on_simplex,
    target_probability,
)


def problem(positions: int, outputs: int, scale: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return scale * generator.normal(size=(positions, outputs)), scale * generator.normal(
        size=outputs
    )


def test_the_counter_example_of_the_paper():
    logits = np.asarray(COUNTER_EXAMPLE_LOGITS)
    found = optimal_attention(logits, COUNTER_EXAMPLE_TARGET)
    np.testing.assert_allclose(found.attention, COUNTER_EXAMPLE_ATTENTION, rtol=0, atol=1e-3)
    assert found.probability == pytest.approx(COUNTER_EXAMPLE_PROBABILITY, abs=1e-9)
    probes = lexical_probes(logits, COUNTER_EXAMPLE_TARGET)
    np.testing.assert_allclose(probes, COUNTER_EXAMPLE_PROBES, rtol=1e-12)
    assert found.attention[probes.argmax()] < 1e-3, (
        "nothing for the position with the largest probe"
    )
    # As printed.
    assert found.probability == pytest.approx(0.859, abs=1e-4)
    np.testing.assert_allclose(probes, [1 / 3, 0.0067, 0.0067], rtol=0, atol=5e-5)
    uniform = target_probability(np.full(3, 1 / 3), logits, COUNTER_EXAMPLE_TARGET)
    assert uniform == pytest.approx(COUNTER_EXAMPLE_UNIFORM_PROBABILITY, rel=1e-12)
    assert uniform == pytest.approx(0.726, abs=5e-4)


@pytest.mark.parametrize("position", [1, 2])
def test_the_counter_example_is_found_from_a_crooked_problem_too(position):
    """Without the symmetry that makes the first step exact: the optimum moves little if the
    logits do.
    """
    logits = np.asarray(COUNTER_EXAMPLE_LOGITS)
    logits[position] += [0, 1e-3, -1e-3]
    found = optimal_attention(logits, 0)
    assert 0 < found.gap <= 1e-9
    np.testing.assert_allclose(found.attention, COUNTER_EXAMPLE_ATTENTION, rtol=0, atol=1e-3)


SIZES = [(3, 3, 1.0), (6, 4, 3.0), (12, 30, 3.0), (8, 3, 10.0)]


@pytest.mark.parametrize(("positions", "outputs", "scale"), SIZES)
@pytest.mark.parametrize("seed", range(2))
def test_another_solver_finds_nothing_better(positions, outputs, scale, seed):
    logits, shared = problem(positions, outputs, scale, seed)
    target = seed % outputs
    found = optimal_attention(logits, target, shared)

    def loss(attention: np.ndarray) -> float:
        total = attention @ logits + shared
        return float(logsumexp(total) - total[target])

    other = minimize(
        loss,
        np.full(positions, 1 / positions),
        method="SLSQP",
        bounds=[(0, 1)] * positions,
        constraints={"type": "eq", "fun": lambda attention: attention.sum() - 1},
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert found.attention.min() >= 0
    assert found.attention.sum() == pytest.approx(1, abs=1e-12)
    assert found.probability == pytest.approx(np.exp(-loss(found.attention)), rel=1e-9)
    # The certificate: nobody's loss is lower by more than the gap (but for the rounding of a loss
    # of some tens).
    assert found.gap <= 1e-9
    vertex = min(loss(np.eye(positions)[place]) for place in range(positions))
    assert loss(found.attention) <= min(other.fun, vertex) + found.gap + 1e-12
    # Both solvers agree, to the square root of the rounding in SLSQP's numerical gradients.
    assert loss(found.attention) == pytest.approx(other.fun, abs=1e-6)


def test_the_gap_bounds_what_is_missing_at_every_stage():
    logits, shared = problem(12, 30, 3.0, 0)
    best = optimal_attention(logits, 0, shared, tolerance=1e-11)
    missing, gaps = [], []
    for steps in (0, 1, 2, 4, 8, 16, 32):
        found = optimal_attention(logits, 0, shared, steps=steps)
        missing.append(np.log(best.probability / found.probability))
        gaps.append(found.gap)
    assert np.all(np.asarray(missing) <= gaps)
    assert gaps[0] > 1, "the start is far from the optimum"
    assert missing[-1] < 1e-2 * missing[0]


@pytest.mark.parametrize("seed", range(4))
def test_with_two_outputs_all_attention_goes_to_the_largest_probe(seed):
    logits, shared = problem(7, 2, 1.0, seed)
    found = optimal_attention(logits, 1, shared)
    probes = lexical_probes(logits, 1, shared)
    np.testing.assert_allclose(found.attention, np.eye(7)[probes.argmax()], rtol=0, atol=1e-9)
    assert found.probability == pytest.approx(probes.max(), rel=1e-9)


def test_a_small_lead_is_enough_with_two_outputs():
    logits = np.asarray([[1.0, 0.0], [1.0, 1e-6], [1.0, 0.0]])
    np.testing.assert_allclose(optimal_attention(logits, 1).attention, [0, 1, 0], rtol=0, atol=1e-2)


def test_one_position_gets_everything():
    logits, shared = problem(1, 5, 1.0, 0)
    found = optimal_attention(logits, 3, shared)
    assert found.attention.tolist() == [1.0]
    assert found.gap == 0
    assert found.probability == pytest.approx(lexical_probes(logits, 3, shared)[0], rel=1e-12)


def test_positions_that_agree_share_evenly():
    found = optimal_attention(np.tile([[1.0, 2.0, -1.0]], (4, 1)), 0)
    assert found.attention.tolist() == [0.25] * 4
    assert found.gap == 0


def test_what_does_not_matter_changes_nothing():
    logits, shared = problem(6, 4, 3.0, 1)
    plain = optimal_attention(logits, 2, shared)
    generator = np.random.default_rng(0)
    # A constant on all logits of a position, of the decoder; the decoder's logits on all positions;
    # order and names.
    places, names = generator.permutation(6), generator.permutation(4)
    others = [
        optimal_attention(logits + generator.normal(size=(6, 1)), 2, shared + 5.0),
        optimal_attention(logits + shared, 2),
        optimal_attention(logits[:, names], int(np.flatnonzero(names == 2)[0]), shared[names]),
    ]
    moved = optimal_attention(logits[places], 2, shared)
    # The loss is known to 1e-9, so attention, where the loss is curved by about 1, to its root.
    for other in others:
        assert other.probability == pytest.approx(plain.probability, rel=2e-9)
        np.testing.assert_allclose(other.attention, plain.attention, rtol=0, atol=1e-4)
    np.testing.assert_allclose(moved.attention, plain.attention[places], rtol=0, atol=1e-4)
    assert np.count_nonzero(plain.attention > 1e-6) > 1, (
        "a mixture, so that there is something to keep"
    )


def test_a_certain_word_is_told_from_an_almost_certain_one():
    """The loss is flat where p is near 1, the log odds are not."""
    logits = np.asarray([[40.0, 0.0, 0.0], [60.0, 0.0, 0.0]])
    np.testing.assert_allclose(optimal_attention(logits, 0).attention, [0, 1], rtol=0, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_the_projection_is_the_nearest_point_of_the_simplex(seed):
    generator = np.random.default_rng(seed)
    point = 2 * generator.normal(size=5)
    found = projected_on_simplex(point)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1, abs=1e-12)
    # Nearest: the way back to the point makes no acute angle with the way to any vertex.
    assert np.all((np.eye(5) - found) @ (point - found) <= 1e-12)
    np.testing.assert_allclose(projected_on_simplex(found), found, rtol=0, atol=1e-15)
    np.testing.assert_allclose(projected_on_simplex(point + 3), found, rtol=0, atol=1e-12)


def test_the_projection_of_one_number_is_one():
    assert projected_on_simplex(np.asarray([-7.0])).tolist() == [1.0]


@pytest.mark.parametrize(
    ("logits", "target", "message"),
    [
        (np.zeros((2, 1)), 0, "logits: got 1 output, allowed: at least 2"),
        (np.zeros((2, 3)), 3, "target: got 3, allowed: 0 to 2"),
        (np.zeros((2, 3)), -1, "target: got -1, allowed: 0 to 2"),
        (np.full((2, 3), np.nan), 0, "logits: got some that are not finite"),
    ],
)
def test_impossible_problems_are_refused_by_name(logits, target, message):
    with pytest.raises(ConfigError, match=f"^{message}"):
        optimal_attention(logits, target)
