"""The balance of query and keys: it solves its own equation, is kept by the flow, and drifts with
the step as derived.
"""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.probes.topic_words import KeySquares, QueryNorm
from saccade.records.schedule import Every
from saccade.tasks.topic_sentences import TopicSentences
from saccade.theory.query_conservation import QueryConservation, balance, norm_of_scores
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent, GradientFlow
from saccade.train.recipe import Recipe

TASK = TopicSentences(2, 1, filler_size=6, dictionary_size=40, train_size=40, test_size=2)
MODEL = AttentionClassifierConfig("TC", dimension=3, query="trained", key_dimension=4)
TIME, RATES = 30.0, (0.125, 0.25, 0.5)


@settings(derandomize=True, deadline=None)
@given(score_square=st.floats(0, 1e4), initial_square=st.floats(1e-3, 1e3))
def test_the_norm_solves_its_equation(score_square, initial_square):
    norm = norm_of_scores(score_square, initial_square)
    left = norm**4 - initial_square * norm**2
    assert left == pytest.approx(score_square, rel=1e-9, abs=1e-9 * initial_square**2)
    assert norm >= np.sqrt(initial_square) * (1 - 1e-12)


def test_the_limits_of_the_norm():
    """Without scores the query has not moved; large scores hide the start."""
    assert norm_of_scores(0.0, 9.0) == 3
    assert norm_of_scores(1e12, 1.0) == pytest.approx(1e3, rel=1e-6)


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """Three rates, in float64."""
    lab = Lab(tmp_path_factory.mktemp("steps"), precision="float64", progress=None)
    recipe = Recipe(
        TASK,
        MODEL,
        GradientDescent(),
        int(TIME / RATES[0]),
        probes=(QueryNorm(), KeySquares()),
        at=Every(20),
    )
    return lab.train(recipe, seeds=3, sweep={"optimiser.rate": RATES}).trajectory


def drift(trajectory: xr.Dataset, rate: float) -> xr.DataArray:
    kept = balance(trajectory).sel(rate=rate, drop=True)
    return kept.sel(step=round(TIME / rate)) - kept.sel(step=0)


def test_steps_lower_the_balance_in_proportion_to_the_rate(stepped):
    """tau^2 (||dL/dq||^2 - ||dL/dK||^2) per step, and 1 / tau steps; keys begin at 0, so that the
    second is larger.
    """
    changes = [drift(stepped, rate) for rate in RATES]
    assert all(np.all(change < 0) for change in changes)
    # The next order is rate^2: halving the rate twice, the ratio of differences tends to 2.
    ratio = (changes[2] - changes[1]) / (changes[1] - changes[0])
    np.testing.assert_allclose(ratio, 2, rtol=0.15)
    np.testing.assert_allclose(changes[1] / changes[0], 2, rtol=0.15)


def test_the_drift_is_below_its_derived_bound(stepped):
    loss = stepped["loss"]
    fall = loss.isel(step=0) - loss.isel(step=-1)
    kept = balance(stepped)
    change = abs(kept - kept.isel(step=0)).max("step")
    assert np.all(change <= 2 * stepped["rate"] * fall)
    grown = stepped["key_square"].isel(step=-1)
    assert np.all(grown > 1), "nothing was learned"


def test_the_scores_give_the_norm_of_the_query(stepped):
    predicted = QueryConservation().predict(None, None, stepped)["query_norm"]
    measured = stepped["query_norm"]
    assert predicted.dims == measured.dims
    np.testing.assert_allclose(predicted.isel(step=0), measured.isel(step=0), rtol=1e-12)
    grown = measured.isel(step=-1) / measured.isel(step=0)
    assert np.all(grown > 1.05)
    # The balance itself changes by less than 2 rate x fall of the loss, which is below 0.7.
    np.testing.assert_allclose(predicted**2, measured**2, atol=0.7)


@pytest.mark.slow
def test_the_flow_keeps_the_balance(tmp_path):
    lab = Lab(tmp_path, precision="float64", progress=None)
    recipe = Recipe(
        TASK,
        MODEL,
        GradientFlow(1.0, relative_tolerance=1e-8, absolute_tolerance=1e-10),
        int(TIME),
        probes=(QueryNorm(), KeySquares()),
        at=Every(10),
    )
    trajectory = lab.train(recipe, seeds=2).trajectory
    kept = balance(trajectory)
    assert np.all(trajectory["key_square"].isel(step=-1) > 1)
    np.testing.assert_allclose(kept, kept.isel(step=[0]).values * np.ones(kept.shape), rtol=1e-6)
    predicted = QueryConservation().predict(None, None, trajectory)["query_norm"]
    np.testing.assert_allclose(predicted, trajectory["query_norm"], rtol=1e-6)
