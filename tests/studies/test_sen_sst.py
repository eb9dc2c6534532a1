"""The study on SST: what it keeps of the words, and the dimension in which FC is trained."""

import dataclasses
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from saccade.contracts.task import Batch
from saccade.data.vocabulary import Vocabulary
from saccade.errors import ConfigError
from saccade.models.attention_classifier import AttentionClassifier, AttentionClassifierConfig
from saccade.records.record import Arm, Record
from saccade.registry import find_study
from saccade.studies import sen_sst
from saccade.tasks.arrays import Arrays
from saccade.theory.score_and_norm import norm_of_score
from saccade.train.lab import Lab
from saccade.train.loss import own_loss

LABELS = 2


def sentences() -> Arrays:
    draw = np.random.default_rng(0)
    words = draw.integers(1, 30, (40, 6))
    return Arrays.of((words, words.min(1) % LABELS))


def test_fc_moves_in_the_span_of_its_columns_alone():
    """In as many dimensions as labels, from the projected start, FC has the same scores and
    projections as in many, and the rest of its embeddings never moves.
    """
    task = sentences()
    batch = jax.tree.map(jnp.asarray, task.splits["train"])
    keys = jax.random.split(jax.random.key(0))

    @eqx.filter_jit
    def moved(model: AttentionClassifier) -> AttentionClassifier:
        slope = eqx.filter_grad(lambda one: own_loss(one, batch))(model)
        steps = jax.tree.map(lambda one, by: one - 0.5 * by, model, slope)
        return eqx.tree_at(lambda one: one.head, steps, model.head)

    def trained(model: AttentionClassifier) -> AttentionClassifier:
        for _ in range(60):
            model = moved(model)
        return model

    large, small = (
        AttentionClassifierConfig("FC", size, embedding_std=0.1).build(task, key)
        for size, key in zip((9, LABELS), keys, strict=True)
    )
    columns, basis = large.head.first, small.head.first
    # In the small space the columns are another orthonormal basis: rotate the projections into it.
    projected = basis @ columns.T @ large.embeddings
    small = eqx.tree_at(lambda one: one.embeddings, small, projected)
    after, reduced = trained(large), trained(small)
    np.testing.assert_allclose(reduced.scores, after.scores, atol=1e-5)
    np.testing.assert_allclose(
        basis.T @ reduced.embeddings, columns.T @ after.embeddings, atol=1e-5
    )
    outside = jnp.eye(9) - columns @ columns.T
    np.testing.assert_allclose(outside @ after.embeddings, outside @ large.embeddings, atol=1e-6)
    assert float(jnp.abs(after.scores).max()) > 0.05  # something was learned


@dataclasses.dataclass(frozen=True)
class Text:
    """What the study asks of a corpus: six ids in three sentences."""

    padding: str = "masked"
    vocabulary: ClassVar = Vocabulary(("best", "powerful", "a", "film"))
    vocabulary_size: ClassVar = 6
    labels: ClassVar = 2
    about: ClassVar = {"corpus": "by hand"}
    splits: ClassVar = {
        "train": Batch(
            np.asarray([[2, 4, 5, 0], [3, 4, 0, 0], [2, 3, 4, 5]]),  # pyright: ignore[reportArgumentType]
            np.asarray([0, 1, 1]),  # pyright: ignore[reportArgumentType]
            np.asarray([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 1, 1]], bool),  # pyright: ignore[reportArgumentType]
        )
    }


def measured() -> Arm:
    """Scores that rise to 1, 2, 0.5 and 0.02, with norms of corollary 1 but for the second."""
    steps = np.arange(5)
    scores = np.outer(steps / 4, [0, 0, 1, 2, 0.5, 0.02])
    norms = np.stack(
        [norm_of_score(scores[:, at], m) for at, m in enumerate((1, 1, 2.5, 2, 2, 2.5))]
    )
    norms[3] *= 1.3
    tables = {"word_score": scores, "word_norm": norms.T}
    data = {
        name: xr.DataArray(np.stack([one, one]), dims=("seed", "step", "word"))
        for name, one in tables.items()
    }
    attended = np.asarray([[2, 3, 2], [5, 3, 3], [5, 3, 3], [4, 4, 4], [4, 4, 4]])
    data["attended_word"] = xr.DataArray(
        np.stack([attended] * 2), dims=("seed", "step", "sentence")
    )
    axes = {"seed": [0, 1], "step": steps, "word": np.arange(6)}
    return Arm(xr.Dataset(data, axes, {"corpus": "by hand"}))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sen_sst, "TOP_FEW", 2)
    monkeypatch.setattr(sen_sst, "LEAST", 3)
    monkeypatch.setattr(sen_sst, "MEASURED", 5)


@pytest.mark.usefixtures("few")
def test_words_are_reduced_to_gaps_and_attended_words():
    text: Any = Text()
    best = xr.DataArray([4, 2], {"seed": [0, 1]}, ("seed",))
    kept = sen_sst.words_arm(measured(), text, best).trajectory
    # By score: powerful, best, a; "film" never exceeds the floor and has no gap.
    np.testing.assert_allclose(kept["gap_words"][0], [0.3, 0, 0, np.nan], atol=1e-6)
    assert kept["top_word"].values[0].tolist() == ["powerful", "best"]
    # Purity: best 0 of (0, 1), powerful 1 of (1, 1), a 1/3 of (0, 1, 1), film 0.
    np.testing.assert_allclose(kept["purity_attended"][0], [1 / 3, 2 / 3, 2 / 3, 1 / 3, 1 / 3])
    # Sentences 1 and 2 have "powerful", 0 and 2 have "best".
    np.testing.assert_allclose(kept["purity_near_top"][0, :2], [(0.5 + 0) / 2, (1 + 0.5) / 2])
    np.testing.assert_allclose(kept["occurrence_attended"][0, 3], 3)
    # The second seed was at its best after two steps: nothing behind them counts.
    assert np.isnan(kept["purity_attended"][1, 3:]).all()
    assert np.isnan(kept["pair_score"][1, 3:]).all()
    np.testing.assert_allclose(sen_sst.at_last(kept["pair_score"]).sel(chosen="best"), [1, 0.5])


@pytest.mark.usefixtures("few")
def test_a_word_is_looked_up_by_its_name(tmp_path: Any):
    text: Any = Text()
    arm = sen_sst.dictionary_arm({"FC": measured(), "TC": measured()}, text)
    record = Record("sen_sst", "x", {}, {"sst2_dictionary": arm}, {}, "none", "float32", 0.0)
    record.save(tmp_path / "record.nc")
    table = Record.open(tmp_path / "record.nc").arms["sst2_dictionary"].trajectory
    assert table["word"].values.tolist() == ["a"]  # in three sentences; the others are rarer
    np.testing.assert_allclose(table["word_score"].sel(word="a", classifier="TC")[-1], 0.5)
    assert float(table["companions"].sel(word="a")) == 2


@pytest.mark.data
@pytest.mark.usefixtures("real_data")
def test_too_few_sentences_are_refused_before_training(tmp_path: Any):
    with pytest.raises(ConfigError, match="first: got 10, allowed: so many sentences"):
        sen_sst.experiment(sen_sst.Config(first=10), Lab(tmp_path, progress=None))


def test_corpora_that_are_not_sst_are_refused():
    with pytest.raises(ConfigError, match="allowed: some of sst2, sst5"):
        sen_sst.Config(corpora=("imdb",))


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.usefixtures("real_data")
def test_a_tiny_run_on_sst(tmp_path: Any):
    config = dataclasses.replace(
        find_study("sen_sst").config("quick"), first=400, seeds=2, steps=60
    )
    record = find_study("sen_sst").run(config, Lab(tmp_path, progress=None))
    assert {"sst2_FC_words", "sst2_TC_padding_words", "sst2_dictionary"} <= set(record.arms)
    assert "Socher" in record.arms["sst2_FC"].trajectory.attrs["citation"]
    assert len(find_study("sen_sst").drawn(record)) == 5
