"""The optimal embeddings against positive semidefinite minimisers that are written down."""

import itertools

import numpy as np
import pytest
import xarray as xr

from saccade.settings import with_sweep
from saccade.tasks.long_documents import LongDocuments
from saccade.tasks.topic_documents import Masking
from saccade.theory.embedding_optimum import EmbeddingOptimum
from saccade.theory.value_optimum import excess


def test_the_difference_of_the_paper_and_its_sweeps():
    task = LongDocuments(10, 10, 4)
    assert float(
        EmbeddingOptimum().predict(task, None, xr.Dataset())["similarity_difference"]
    ) == pytest.approx(1 / 8.65, rel=1e-12)
    swept = with_sweep(task, "masking.selected", (0.15, 0.5), "p_m")
    predicted = EmbeddingOptimum().predict(swept, None, xr.Dataset())["similarity_difference"]
    assert predicted.dims == ("p_m",)
    np.testing.assert_allclose(predicted, [1 / 8.65, 1 / (10 * 0.55)], rtol=1e-12)
    hidden = LongDocuments(10, 10, 4, selected_hidden=True)
    assert float(
        EmbeddingOptimum().predict(hidden, None, xr.Dataset())["similarity_difference"]
    ) == pytest.approx(0.1, rel=1e-12)


@pytest.mark.parametrize("heavy", [0.0, 0.5, 3.0])
def test_a_heavy_diagonal_leaves_the_loss_at_zero_and_turns_the_off_diagonal_difference_around(
    heavy,
):
    """E = block sums of the theory + heavy (I - means over topics): symmetric, positive, same
    block sums, no excess.
    """
    topics, words = 3, 4
    task = LongDocuments(
        topics, words, 2, Masking(0.5, 0.2, 0.0)
    )  # rho = 0: the conditions below are short
    a, m = task.shares.right, task.shares.hidden
    size = topics * words
    within = np.kron(np.eye(topics), np.full((words, words), 1 / words))
    # Rows: R_t = r + 1/a, R_s = r, m x + (1 - m) r / v = 0, and the row of the hidden id is 0 as
    # well: x = 0 with r = 0.
    blocks = np.zeros((1 + size, 1 + size))
    blocks[1:, 1:] = within / a + heavy * (np.eye(size) - within)
    assert excess(blocks, 0.0, task) < 1e-28
    assert m > 0
    assert np.linalg.eigvalsh(blocks)[0] > -1e-12
    predicted = float(EmbeddingOptimum().predict(task, None, xr.Dataset())["similarity_difference"])
    same, off, other = [], [], []
    for row, column in itertools.product(range(size), repeat=2):
        entry = blocks[1 + row, 1 + column]
        (same if row // words == column // words else other).append(entry)
        if row // words == column // words and row != column:
            off.append(entry)
    assert np.mean(same) - np.mean(other) == pytest.approx(predicted, rel=1e-12)
    assert (np.mean(off) < np.mean(other)) == (heavy > 1 / a), (
        "without the diagonal the sign may turn"
    )
