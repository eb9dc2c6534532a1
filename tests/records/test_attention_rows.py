"""Spreads and factors of gradients by rows, for JAX and PyTorch, against explicit float64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from saccade.records.attention_rows import chosen_rows, row_statistics, spread_statistics

torch = pytest.importorskip("torch", reason="tensors of PyTorch need torch (extra `torch`)")
EXAMPLES, HEADS, ROWS, KEYS, SIZE = 2, 3, 5, 7, 4
RANDOM = np.random.default_rng(3)
KEY_VECTORS = RANDOM.normal(size=(EXAMPLES, HEADS, KEYS, SIZE))
SIGNAL = RANDOM.normal(size=(EXAMPLES, HEADS, ROWS, KEYS))
VISIBLE = RANDOM.random((EXAMPLES, 1, ROWS, KEYS)) < 0.7
VISIBLE[..., 0] = True
VISIBLE[1, 0, 2] = False  # a row without a visible key
PLACES, POSITIONS, SCALE = np.asarray([0, 1, 3, 4, 6]), np.arange(KEYS), 0.5


def scores_of(size: float) -> np.ndarray:
    return size * np.random.default_rng(4).normal(size=(EXAMPLES, HEADS, ROWS, KEYS))


def expected_rows(scores: np.ndarray, slopes: np.ndarray) -> dict[str, np.ndarray]:
    """As the definitions say, one row after another."""
    found: dict[str, np.ndarray] = {}
    for place in np.ndindex(EXAMPLES, HEADS, ROWS):
        seen = VISIBLE[place[0], 0, place[2]]
        if not seen.any():
            continue
        weights = np.where(seen, np.exp(scores[place] - scores[place][seen].max()), 0)
        shares = weights / weights.sum()
        keys = slopes[place][:, None] * KEY_VECTORS[place[:2]]
        mean, drift = shares @ keys, shares @ SIGNAL[place]
        signal = np.sqrt(shares @ (SIGNAL[place] - drift) ** 2)
        spread = np.sqrt(shares @ np.sum((keys - mean) ** 2, axis=1))
        gradient = SCALE * np.linalg.norm((shares * (SIGNAL[place] - drift)) @ (keys - mean))
        alignment = gradient / (SCALE * signal * spread) / np.sqrt(np.sum(shares**2))
        row = {
            "score_spread": scores[place][seen].std(),
            "visible_keys": seen.sum(),
            "uniform_entropy": np.log(seen.sum()),
            "future_mass": shares[PLACES[place[2]] < POSITIONS].sum(),
            "value_signal": signal,
            "key_spread": spread,
            "query_gradient": gradient,
            "query_alignment": alignment if signal * spread > 0 else 0.0,
        }
        for name, value in row.items():
            found.setdefault(name, np.zeros((EXAMPLES, HEADS, ROWS)))[place] = value
    return found


def found_by(
    xp: Any, array: Callable[..., Any], scores: np.ndarray, slopes: np.ndarray | None = None
) -> dict[str, np.ndarray]:
    """The statistics with the arrays of one library."""
    given: Any = map(array, (scores, VISIBLE, PLACES, POSITIONS))
    more: Any = {"vectors": array(KEY_VECTORS), "signal": array(SIGNAL)}
    more |= {"slopes": None if slopes is None else array(slopes), "scale": SCALE}
    found = spread_statistics(*given, xp=xp, **more)
    return {name: np.asarray(one) for name, one in found.items()}


@pytest.mark.parametrize("sloped", [False, True])
@pytest.mark.parametrize("size", [0.0, 1.0, 20.0])
def test_spreads_and_factors_are_those_of_their_definitions(size, sloped):
    """In float64, from uniform to peaked rows (one share is 1 to all digits)."""
    scores = scores_of(size)
    slopes = RANDOM.random(scores.shape) + 0.1 if sloped else None
    expected = expected_rows(scores, np.ones_like(scores) if slopes is None else slopes)
    with jax.enable_x64(True):
        ours = found_by(jnp, jnp.asarray, scores, slopes)
    theirs = found_by(torch, torch.as_tensor, scores, slopes)
    assert set(ours) == set(theirs) == set(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-9, atol=1e-12, err_msg=name)
        np.testing.assert_allclose(theirs[name], ours[name], rtol=1e-12, atol=1e-14, err_msg=name)


def test_peaked_rows_keep_their_digits_in_single_precision():
    """Scores of 62 above the rest: E x^2 - (E x)^2 would be 0, or noise."""
    scores = np.zeros((EXAMPLES, HEADS, ROWS, KEYS))
    scores[..., 0] = 62.0
    with jax.enable_x64(True):
        exact = found_by(jnp, jnp.asarray, scores)

    def single(array: np.ndarray) -> Any:
        return torch.as_tensor(array.astype(np.float32) if array.dtype == np.float64 else array)

    found = found_by(torch, single, scores)
    for name in ("key_spread", "value_signal", "query_gradient"):
        assert np.all(exact[name] < 1e-12)
        np.testing.assert_allclose(found[name], exact[name], rtol=1e-4, err_msg=name)


def test_rows_of_pytorch_are_those_of_jax():
    scores = scores_of(2.0).astype(np.float32)
    words = RANDOM.random((EXAMPLES, 1, KEYS)) < 0.8
    arrays = (scores, VISIBLE, words, PLACES, POSITIONS)
    in_jax: Any = map(jnp.asarray, arrays)
    in_torch: Any = map(torch.as_tensor, arrays)
    ours, theirs = row_statistics(*in_jax, xp=jnp), row_statistics(*in_torch, xp=torch)
    assert set(ours) == set(theirs)
    for name, value in ours.items():
        np.testing.assert_allclose(theirs[name], value, rtol=2e-6, atol=1e-7, err_msg=name)


def test_alignment_of_a_signal_that_knows_no_keys_is_about_one():
    """Over 4,000 random rows of 64 keys in 16 dimensions, root mean square: 1 within its error."""
    random = np.random.default_rng(7)
    rows, keys, size = 4000, 64, 16
    given = (np.zeros((1, rows, keys)), np.ones((1, rows, keys), bool))
    places = (np.arange(rows), np.arange(keys))
    vectors, signal = random.normal(size=(1, keys, size)), random.normal(size=(1, rows, keys))
    tensors: Any = map(torch.as_tensor, (*given, *places))
    more: Any = {"vectors": torch.as_tensor(vectors), "signal": torch.as_tensor(signal)}
    found = spread_statistics(*tensors, xp=torch, **more)
    squares = found["query_alignment"].numpy() ** 2
    error = squares.std() / np.sqrt(rows)
    # g centred has keys - 1 directions: its squared cosine with each is 1 / (keys - 1).
    assert squares.mean() == pytest.approx(keys / (keys - 1), abs=4 * error)


def test_chosen_rows_are_even_and_have_both_ends():
    assert chosen_rows(9, 3).tolist() == [0, 4, 8]
    assert chosen_rows(4, 9).tolist() == [0, 1, 2, 3]
