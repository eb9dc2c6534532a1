"""Theorem 2's equation: its solution satisfies it, and starts and ends where it should."""

import numpy as np
import pytest
import xarray as xr

from saccade.tasks.topic_sentences import TopicSentences
from saccade.theory.fixed_linear_classifier import Theorem2, convergence
from saccade.theory.score_and_norm import norm_of_score

SIZES = pytest.mark.parametrize(
    ("topics", "topic_words", "filler_size"), [(4, 8, 20), (2, 2, 1), (3, 9, 50)]
)


@SIZES
def test_the_solution_satisfies_the_equation(topics, topic_words, filler_size):
    """dy/dt = p (1 - pi) n / ((n - 1) N), with the margin y read off the norm."""
    times = np.linspace(0, 500, 2001)
    curves = convergence(times, topics, topic_words, filler_size)
    margin = curves["norm"] / np.sqrt((topics - 1) / topics)
    attention = np.exp(curves["score"]) / (np.exp(curves["score"]) + filler_size)
    np.testing.assert_allclose(curves["attention"], attention, rtol=1e-12)
    np.testing.assert_allclose(
        curves["norm"], norm_of_score(curves["score"], filler_size), rtol=1e-9
    )
    right = np.exp(attention * margin) / (np.exp(attention * margin) + topics - 1)
    np.testing.assert_allclose(curves["loss"], -np.log(right), rtol=1e-9)
    slope = attention * (1 - right) * topics / ((topics - 1) * topic_words)
    # The integral of the slope by Simpson's rule, step 0.25: fourth order, so 1e-6 of a margin is a
    # wide bound.
    integral = np.cumsum(
        (slope[:-2:2] + 4 * slope[1:-1:2] + slope[2::2]) * (times[1] - times[0]) / 3
    )
    np.testing.assert_allclose(margin[2::2], integral, rtol=1e-5)


@SIZES
def test_it_starts_at_chance_and_uniform_attention_and_moves_one_way(
    topics, topic_words, filler_size
):
    curves = convergence(np.linspace(0, 2000, 100), topics, topic_words, filler_size)
    assert curves["loss"][0] == pytest.approx(np.log(topics), rel=1e-12)
    assert curves["attention"][0] == pytest.approx(1 / (filler_size + 1), rel=1e-12)
    assert curves["score"][0] == curves["norm"][0] == 0
    assert np.all(np.diff(curves["loss"]) < 0)
    for name in ("attention", "score", "norm"):
        assert np.all(np.diff(curves[name]) > 0)


def test_after_a_long_time_the_loss_is_gone_and_attention_complete():
    curves = convergence(np.asarray([0, 1e3, 1e5, 1e7]), 4, 8, 20)
    # d loss / dt ~ - loss^2 up to logarithms: a hundred times as long, about a hundredth of the
    # loss.
    assert curves["loss"][-1] < 1e-4
    assert curves["loss"][3] < curves["loss"][2] / 30
    assert curves["attention"][-1] > curves["attention"][-2] > 0.95


def test_a_run_of_no_steps_is_the_start():
    curves = convergence(np.asarray([0.0]), 4, 8, 20)
    assert {name: len(values) for name, values in curves.items()} == dict.fromkeys(
        ("loss", "attention", "score", "norm"), 1
    )


def test_more_topic_words_slow_it_down_in_proportion():
    """The equation contains the number of topic words as a scale of time alone."""
    few, many = (
        convergence(np.linspace(0, 100, 9), 4, 8, 20),
        convergence(np.linspace(0, 300, 9), 4, 24, 20),
    )
    for name in few:
        np.testing.assert_allclose(
            few[name], many[name], rtol=1e-6, atol=1e-9
        )  # the solver's tolerance, 1e-8 a step


def test_predictions_lie_on_the_steps_of_the_trajectory():
    trajectory = xr.Dataset(
        coords={"step": [0, 10, 20], "time": ("step", [0.0, 1.0, 2.0]), "seed": [0, 1]}
    )
    predicted = Theorem2().predict(TopicSentences(), None, trajectory)
    assert set(predicted.data_vars) == set(Theorem2.predicts)
    assert all(values.dims == ("step",) for values in predicted.values())
    assert np.array_equal(predicted["time"], [0, 1, 2])
