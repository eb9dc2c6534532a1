"""The closed forms of stage 1 against explicit documents: least squares, ridge regression, and
training.
"""

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import ConfigError
from saccade.models.one_layer_transformer import (
    Blocks,
    OneLayerTransformerConfig,
    uniform_curvature,
)
from saccade.probes.topic_blocks import ValueBlocks
from saccade.records.schedule import AtSteps
from saccade.settings import with_sweep
from saccade.tasks.long_documents import LongDocuments
from saccade.tasks.topic_documents import Masking, TopicDocuments
from saccade.theory.value_optimum import (
    ValueOptimum,
    average_difference,
    constant_moment,
    contrast_moment,
    decayed_values,
    excess,
    least_norm_values,
    share_left,
    shares_seen,
)
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe

PAPER = LongDocuments(10, 10, 4, Masking(0.15, 0.1, 0.1))


@st.composite
def tasks(draw: Any) -> LongDocuments:
    """Sizes small enough to write down all documents, and any masking that shows something of
    the words.
    """
    topics = draw(st.integers(2, 5))
    kept, replaced = draw(
        st.sampled_from([(0.1, 0.1), (0.5, 0.5), (0.0, 0.0), (0.3, 0.0), (0.0, 0.6)])
    )
    masking = Masking(draw(st.floats(0.05, 0.9)), kept, replaced)
    return LongDocuments(
        topics,
        draw(st.integers(1, 3)),
        draw(st.integers(1, topics - 1)),
        masking,
        draw(st.booleans()),
    )


def all_documents(task: LongDocuments) -> tuple[np.ndarray, np.ndarray]:
    """Frequencies of shown and of true ids, with a row for every set of topics; id 0 is the hidden
    word.
    """
    a, rho, m = (
        (1.0, 0.0, 0.0) if task.selected_hidden else dataclasses.astuple(task.masking.shares)
    )
    size, per_document = task.topics * task.words_per_topic, int(task.topics_per_document)
    rows = []
    for chosen in itertools.combinations(range(task.topics), per_document):
        inside = [word // task.words_per_topic in chosen for word in range(size)]
        rows.append([0.0, *np.asarray(inside) / (task.words_per_topic * per_document)])
    there = np.asarray(rows)
    shown = a * there + rho / size
    shown[:, 0] = m
    return shown, there


def table(blocks: Blocks, task: LongDocuments) -> np.ndarray:
    """The D x D matrix by loops; its row of the hidden id is 0."""
    size = task.topics * task.words_per_topic
    values = np.zeros((1 + size, 1 + size))
    for row, column in itertools.product(range(1, 1 + size), range(1, 1 + size)):
        same = (row - 1) // task.words_per_topic == (column - 1) // task.words_per_topic
        values[row, column] = blocks.same if same else blocks.other
    values[1:, 0] = blocks.hidden
    return values


every_size = settings(max_examples=40, deadline=None, derandomize=True)


# -- without decay ---------------------------------------------------------------------------------


def test_the_numbers_of_the_paper():
    blocks = least_norm_values(PAPER)
    assert (blocks.hidden, blocks.same, blocks.other) == pytest.approx(
        (0.054191, 0.108020, -0.007587), abs=5e-7
    )
    assert blocks.same - blocks.other == pytest.approx(1 / (10 * 0.865), rel=1e-12)
    assert average_difference(PAPER) == pytest.approx(0.115607, abs=5e-7)


@every_size
@given(task=tasks())
def test_the_values_of_least_norm_are_the_pseudo_inverse(task):
    shown, there = all_documents(task)
    # lstsq gives the solution of least norm; documents are dependent, so its cut-off must lie above
    # rounding.
    expected = np.linalg.lstsq(shown, there, rcond=1e-10)[0].T
    np.testing.assert_allclose(table(least_norm_values(task), task), expected, rtol=0, atol=1e-9)
    assert excess(expected, 0.0, task) < 1e-18


@every_size
@given(task=tasks(), seed=st.integers(0, 99))
def test_the_excess_is_that_of_all_documents(task, seed):
    shown, there = all_documents(task)
    random = np.random.default_rng(seed)
    values, bias = random.normal(size=(shown.shape[1],) * 2), random.normal(size=shown.shape[1])
    expected = np.mean(np.sum((shown @ values.T + bias - there) ** 2, axis=1))
    assert excess(values, bias, task) == pytest.approx(expected, rel=1e-11)


@every_size
@given(task=tasks(), seed=st.integers(0, 99))
def test_every_minimiser_has_the_average_difference(task, seed):
    """The one of least norm plus anything that no document shows, and any bias that the hidden
    words or blocks make up for.
    """
    shown, there = all_documents(task)
    random = np.random.default_rng(seed)
    bias = random.normal(size=len(shown[0]))
    particular = np.linalg.lstsq(shown, there - bias, rcond=1e-10)[0].T
    invisible = random.normal(size=particular.shape) @ (
        np.eye(len(bias)) - np.linalg.pinv(shown, rcond=1e-10) @ shown
    )
    values = particular + invisible
    assert excess(values, bias, task) < 1e-16
    topic = np.arange(task.topics * task.words_per_topic) // task.words_per_topic
    same = topic[:, None] == topic[None, :]
    difference = values[1:, 1:][same].mean() - values[1:, 1:][~same].mean()
    assert difference == pytest.approx(average_difference(task), rel=1e-8)


def test_without_hidden_words_their_column_is_zero():
    """kept + replaced = 1, so m = 0."""
    task = LongDocuments(5, 2, 2, Masking(0.4, 0.6, 0.4))
    assert task.shares.hidden == pytest.approx(0, abs=1e-16)
    blocks = least_norm_values(task)
    assert blocks.hidden == pytest.approx(0, abs=1e-15)
    assert excess(table(blocks, task), 0.0, task) < 1e-25


def test_a_model_that_cannot_attend_to_selected_positions_sees_the_truth():
    """a = 1, so that the difference is 1/v, by the task or by the model."""
    hidden = dataclasses.replace(PAPER, selected_hidden=True)
    model = OneLayerTransformerConfig(attention="uniform", selected_hidden=True)
    documents = TopicDocuments(10, 10, 4)
    plain = OneLayerTransformerConfig(attention="uniform")
    for task, seen_by in ((hidden, plain), (PAPER, model), (documents, model)):
        assert dataclasses.astuple(shares_seen(task, seen_by)) == (1.0, 0.0, 0.0)
    assert shares_seen(documents, plain) == documents.shares == PAPER.shares
    blocks = least_norm_values(PAPER, shares_seen(PAPER, model))
    assert (blocks.hidden, blocks.same, blocks.other) == pytest.approx((0, 0.1, 0), abs=1e-15)


# -- time ------------------------------------------------------------------------------------------


@every_size
@given(task=tasks())
def test_the_second_moment_has_the_eigenvalues_of_the_theory(task):
    """|u|^2 once, lambda on T - 1 contrasts, and 0."""
    shown, _ = all_documents(task)
    found = np.sort(np.linalg.eigvalsh(shown.T @ shown / len(shown)))[::-1][: task.topics]
    expected = [constant_moment(task), *[contrast_moment(task)] * (task.topics - 1)]
    np.testing.assert_allclose(found, np.sort(expected)[::-1], rtol=0, atol=1e-14)


@every_size
@given(task=tasks(), steps=st.integers(0, 30))
def test_what_is_left_after_some_steps_is_that_of_gradient_descent(task, steps):
    shown, there = all_documents(task)
    moment, target = (shown.T @ one / len(shown) for one in (shown, there))
    values, rate = np.zeros_like(moment), 1 / (2 * np.linalg.eigvalsh(moment)[-1])
    for _ in range(steps):
        values = values - rate * 2 * (values @ moment - target.T)
    topic = np.arange(task.topics * task.words_per_topic) // task.words_per_topic
    same = topic[:, None] == topic[None, :]
    difference = values[1:, 1:][same].mean() - values[1:, 1:][~same].mean()
    left = 1 - difference / average_difference(task)
    assert left == pytest.approx(share_left(task, steps), abs=1e-11)


def test_the_training_time_of_stage_one_at_the_sizes_of_the_paper():
    """rate x steps until the blocks have 99 % of their difference: squared error, long
    documents. (B-11b quotes it.)
    """
    assert contrast_moment(PAPER) == pytest.approx(0.865**2 * 6 / 3600, rel=1e-12)
    assert np.log(100) / (2 * contrast_moment(PAPER)) == pytest.approx(1846, abs=0.5)


def test_with_cross_entropy_the_blocks_start_at_half_the_speed():
    """Gradients at 0 of both losses, over all documents."""
    task = LongDocuments(4, 2, 2, Masking(0.5, 0.3, 0.2))
    shown, there = all_documents(task)
    squared = 2 * there.T @ shown / len(shown)
    entropy = (there - 1 / there.shape[1]).T @ shown / len(shown)
    topic = np.arange(8) // 2
    same = topic[:, None] == topic[None, :]
    speeds = [
        slope[1:, 1:][same].mean() - slope[1:, 1:][~same].mean() for slope in (squared, entropy)
    ]
    assert speeds[0] == pytest.approx(2 * contrast_moment(task) * average_difference(task))
    assert speeds[1] == pytest.approx(speeds[0] / 2)


# -- with decay ------------------------------------------------------------------------------------


def test_decay_shrinks_as_the_specification_says():
    for decay, expected in ((1e-3, 0.0642), (1e-2, 0.0128)):
        blocks = decayed_values(PAPER, decay)
        assert blocks.same - blocks.other == pytest.approx(expected, abs=5e-5)


@every_size
@given(task=tasks(), exponent=st.floats(-6, 0))
def test_decayed_values_solve_the_normal_equations(task, exponent):
    """(E Pt Pt^T + lambda I) W^T = E Pt P^T, over all documents."""
    shown, there = all_documents(task)
    decay = 10.0**exponent
    moment = shown.T @ shown / len(shown) + decay * np.eye(shown.shape[1])
    expected = np.linalg.solve(moment, shown.T @ there / len(shown)).T
    # Rounding, 1e-16 times the condition number 1 / decay, and some.
    np.testing.assert_allclose(
        table(decayed_values(task, decay), task), expected, rtol=0, atol=1e-14 / decay
    )


@every_size
@given(task=tasks())
def test_vanishing_decay_gives_the_values_of_least_norm(task):
    limit, near, nearer = (
        dataclasses.astuple(one)
        for one in (least_norm_values(task), *(decayed_values(task, d) for d in (1e-7, 1e-8)))
    )
    gaps = [np.abs(np.subtract(one, limit)).max() for one in (near, nearer)]
    # First order in the decay, with a factor of up to 1 / (smallest eigenvalue)^2; 1e-8 of
    # rounding.
    assert gaps[1] < 0.2 * gaps[0] + 1e-8


# -- refusals --------------------------------------------------------------------------------------


def test_documents_about_all_topics_are_refused():
    message = r"^topics_per_document: got 4 of 4 topics, allowed: fewer than all"
    for function in (least_norm_values, lambda task: decayed_values(task, 0.1)):
        with pytest.raises(ConfigError, match=message):
            function(LongDocuments(4, 2, 4))


@pytest.mark.parametrize("decay", [0.0, -1.0, float("nan")])
def test_no_decay_is_refused_where_decay_is_asked_for(decay):
    with pytest.raises(
        ConfigError,
        match=(
            r"^decay: got .*, allowed: above 0; the limit of vanishing decay is least_norm_values"
        ),
    ):
        decayed_values(PAPER, decay)


def test_with_all_topics_blocks_are_not_needed():
    """Why it is refused: values without any blocks have no excess, because all documents are
    one.
    """
    task = LongDocuments(4, 2, 4)
    shown, there = all_documents(task)
    values = np.outer(there[0], shown[0]) / (shown[0] @ shown[0])
    assert excess(values, 0.0, task) == pytest.approx(0, abs=1e-30)
    assert np.ptp(values[1:, 1:]) == pytest.approx(0, abs=1e-15)


# -- against training ------------------------------------------------------------------------------


def test_gradient_descent_meets_the_prediction_for_every_ridge_and_masking(precise_lab: Lab):
    """From 0, in one swept training; at 1e-2 the slowest direction gains 8 % per step, so 400
    steps reach rounding.
    """
    task = with_sweep(LongDocuments(4, 2, 2), "masking.selected", (0.15, 0.6), "p_m")
    model = with_sweep(
        OneLayerTransformerConfig(attention="uniform", start_std=0.0),
        "ridge",
        (1e-2, 1e-1),
        "decay",
    )
    descent = GradientDescent(1.0, curvature=uniform_curvature)
    recipe = Recipe(task, model, descent, 1000, probes=(ValueBlocks(),), at=AtSteps())
    arm = precise_lab.train(recipe, seeds=1).beside(ValueOptimum())
    end, predicted = arm.end.isel(seed=0), arm.prediction
    assert set(predicted) == set(ValueOptimum.predicts)
    for name in ValueOptimum.predicts:
        gap = abs(end[name] - predicted[name])
        assert set(gap.dims) >= {"p_m", "decay"}
        assert float(gap.max()) < 1e-10
    assert float(abs(end["entry_std"]).max()) < 1e-10, "blocks are constant"
    swept = predicted["block_difference"]
    assert float(swept.sel(decay=1e-2, p_m=0.6)) != pytest.approx(
        float(swept.sel(decay=1e-2, p_m=0.15)), rel=1e-2
    )
    assert bool((swept.sel(decay=1e-2) > swept.sel(decay=1e-1)).all())


def test_without_ridge_the_prediction_is_the_least_norm():
    model = OneLayerTransformerConfig(attention="uniform")
    predicted = ValueOptimum().predict(PAPER, model, xr.Dataset())
    blocks = least_norm_values(PAPER)
    expected = {
        "hidden": blocks.hidden,
        "same": blocks.same,
        "other": blocks.other,
        "output hidden": 0.0,
    }
    for block, value in expected.items():
        assert float(predicted["entry_mean"].sel(block=block)) == value
    assert float(predicted["block_difference"]) == pytest.approx(0.115607, abs=5e-7)
