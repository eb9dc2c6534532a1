"""Theorem 1 and corollary 1: they solve their own equation, have the right limits, and agree with
training to their order.
"""

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.probes.topic_words import Surroundings, TopicWords
from saccade.records.schedule import Every
from saccade.tasks.topic_sentences import TopicSentences
from saccade.theory.score_and_norm import Corollary1, Theorem1, norm_of_score, score_of_norm
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe

fillers = st.floats(1, 1e4)


@settings(derandomize=True, deadline=None)
@given(score=st.floats(1e-6, 30), filler_size=fillers)
def test_score_and_norm_are_inverse_functions(score, filler_size):
    assert score_of_norm(norm_of_score(score, filler_size), filler_size) == pytest.approx(
        score, rel=1e-10, abs=1e-12
    )


@settings(derandomize=True, deadline=None)
@given(norm=st.floats(0, 1e3), filler_size=fillers)
def test_norm_and_score_are_inverse_functions(norm, filler_size):
    assert norm_of_score(score_of_norm(norm, filler_size), filler_size) == pytest.approx(
        norm, rel=1e-10, abs=1e-7
    )


@settings(derandomize=True, deadline=None)
@given(score=st.floats(0.01, 8), filler_size=fillers)
def test_corollary_1_solves_its_differential_equation(score, filler_size):
    """(1 + e^s / m) ds = v dv."""
    step = 1e-5
    norms = norm_of_score(score + step, filler_size), norm_of_score(score - step, filler_size)
    left = (1 + np.exp(score) / filler_size) * 2 * step
    right = norm_of_score(score, filler_size) * (norms[0] - norms[1])
    # Central differences: step^2 / 6 times the third derivative of the norm, which is below 1 /
    # score^2.5.
    assert right == pytest.approx(left, rel=1e-5)


def test_the_limits_of_corollary_1():
    assert norm_of_score(0.0, 20) == 0
    assert score_of_norm(0.0, 20) == 0
    assert norm_of_score(-1.0, 20) == 0, "it says nothing about negative scores"
    scores = np.linspace(0.1, 5, 9)
    np.testing.assert_allclose(
        norm_of_score(scores, 1e12), np.sqrt(2 * scores), rtol=1e-9
    )  # e^5 / 1e12
    np.testing.assert_allclose(
        score_of_norm([1e-4], 20), 0.5e-8 / (1 + 1 / 20), rtol=1e-6
    )  # first order in s
    assert np.all(np.diff(norm_of_score(scores, 20)) > 0)


def test_theorem_1_is_corollary_1_for_other_words_at_zero():
    """From scores of 0 and embeddings at 0, with m other words of score 0: 1 / Z_r = 1 / m and v
    - vbar_r = v.
    """
    score = np.linspace(0, 4, 9)[None, :, None] * np.ones((2, 1, 3))
    dims = ("seed", "step", "word")
    trajectory = xr.Dataset(
        {
            "score": (dims, score),
            "inverse_partition": (dims, np.full(score.shape, 1 / 20)),
            "distance": (dims, 0 * score),
        },
        {"step": np.arange(9), "seed": [0, 1], "time": ("step", 0.1 * np.arange(9))},
    )
    predicted = Theorem1().predict(None, None, trajectory)["distance"]
    assert predicted.dims == dims
    np.testing.assert_allclose(predicted, norm_of_score(score, 20), rtol=1e-12)
    task = TopicSentences(filler_size=20)
    np.testing.assert_allclose(
        Corollary1().predict(task, None, trajectory)["norm"], norm_of_score(score, 20), rtol=1e-12
    )


# -- against training ------------------------------------------------------------------------------

RATES = (0.25, 0.5, 1.0)
STDS = (1e-4, 1e-2, 3e-1)
TIME = 60.0
"""rate x step at which the rates are compared: scores are then about 2.5."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> xr.Dataset:
    """FC at three rates and from three starts, in float64; other words are too many to matter."""
    lab = Lab(tmp_path_factory.mktemp("theory"), precision="float64", progress=None)
    task = TopicSentences(
        topics=2, words_per_topic=1, filler_size=8, dictionary_size=3000, train_size=60, test_size=2
    )
    recipe = Recipe(
        task,
        AttentionClassifierConfig("FC", dimension=3),
        GradientDescent(),
        int(TIME / min(RATES)),
        probes=(TopicWords(), Surroundings()),
        at=Every(20),
    )
    sweep = {"optimiser.rate": RATES, "model.embedding_std": STDS}
    trajectory = lab.train(recipe, seeds=2, sweep=sweep).trajectory
    predictions = [
        Theorem1().predict(task, None, trajectory).rename(distance="predicted_distance"),
        Corollary1().predict(task, None, trajectory).rename(norm="predicted_norm"),
    ]
    return xr.merge([trajectory, *predictions])


def at_time(dataset: xr.Dataset, rate: float) -> xr.Dataset:
    return dataset.sel({"rate": rate, "step": round(TIME / rate)})


def test_theorem_1s_residual_is_linear_in_the_rate(trained):
    """Steps add sum ||dv||^2 / 2, which halves with the rate at a given time: residual(2 h) -
    residual(h) is c h.

    What the other words' own movement adds does not depend on the rate, and cancels in the
    differences.
    """
    small = trained.sel(embedding_std=STDS[0])
    residual = [
        (one["distance"] ** 2 - one["predicted_distance"] ** 2) / 2
        for one in (at_time(small, rate) for rate in RATES)
    ]
    assert np.all(at_time(small, 0.5)["score"] > 0.3), "nothing was learned"
    assert np.all(residual[2] > residual[1])
    assert np.all(residual[1] > residual[0])
    # The next order is rate^2; measured: 2.00 to 2.02.
    ratio = (residual[2] - residual[1]) / (residual[1] - residual[0])
    np.testing.assert_allclose(ratio, 2, rtol=0.05)


def test_the_gap_to_corollary_1_grows_with_the_variance_of_the_start(trained):
    for rate in RATES:
        now = at_time(trained, rate)
        gap = abs(now["norm"] / now["predicted_norm"] - 1).max("word")
        assert np.all(gap.sel(embedding_std=0.3) > 1.5 * gap.sel(embedding_std=1e-4))
        # A standard deviation of 1e-2 adds 1e-4 x dimension to ||v||^2 of about 7: next to nothing.
        np.testing.assert_allclose(
            gap.sel(embedding_std=1e-2), gap.sel(embedding_std=1e-4), atol=1e-3
        )
