"""Studies of the papers, diagnosed: what they are about comes out by name."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from saccade.data.vocabulary import PADDING
from saccade.diagnosis.catalogue import Diagnosis, diagnose
from saccade.diagnosis.no_lexical_signal import NoLexicalSignal
from saccade.diagnosis.padding_attended import PaddingAttended
from saccade.diagnosis.softmax_blind import SoftmaxBlind
from saccade.diagnosis.values_first import ValuesFirst
from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.probes.attention import AttentionStatistics
from saccade.records.record import Arm, Record
from saccade.records.schedule import AtSteps
from saccade.studies import kernels_stationary
from saccade.tasks.arrays import Arrays
from saccade.train.lab import Lab
from saccade.train.optimiser import GradientDescent
from saccade.train.recipe import Recipe

RESULTS = Path(__file__).parents[2] / "results"


def by_title(found: list[Diagnosis]) -> dict[str, Diagnosis]:
    return {one.title: one for one in found}


def kinds(sightings: Any) -> list[type]:
    return [type(one.fault) for one in sightings]


def record_of(arms: dict[str, Arm]) -> Record:
    return Record("mine", "quick", {}, arms, {}, "CPU", "float32", 0.0)


def test_the_plateau_of_two_stages_is_that_attention_waits_for_values():
    """Over before the end, and longer from a smaller start."""
    found = by_title(diagnose(Record.open(RESULTS / "topics_two_stage.nc.gz")))
    ends = []
    for start in ("0.0001", "0.001", "0.01"):
        one = found[f"sgd_squared (start {start})"]
        assert not one.found
        (waited,) = one.earlier
        assert isinstance(waited.fault, ValuesFirst)
        assert waited.steps is not None
        ends.append(waited.steps[1])
    assert ends[0] > ends[1] > ends[2] > 100
    assert not found["adam_squared (start 0.1)"].earlier


def test_permutations_give_no_lexical_signal():
    """And sequences of a larger set of words do."""
    found = by_title(diagnose(Record.open(RESULTS / "ktiw_copying.nc.gz")))
    assert kinds(found["by_words (words 40)"].found) == [NoLexicalSignal]
    for words in (50, 60, 80):
        one = found[f"by_words (words {words})"]
        assert not one.found
        assert not one.earlier


def test_softmax_without_keys_is_blind_and_gaussian_attention_is_not(tmp_path):
    quick = kernels_stationary.STUDY.config("quick")
    config = dataclasses.replace(quick, seeds=2, steps=40)
    lab = Lab(tmp_path, "float64", None)
    found = by_title(
        diagnose(record_of(dict(kernels_stationary.experiment(config, lab, ("keys",)))))
    )
    for scale in ("0", "0.01"):
        assert kinds(found[f"softmax_keys (key_scale {scale})"].found) == [SoftmaxBlind]
        assert not found[f"gaussian_keys (key_scale {scale})"].found
    assert not found["softmax_keys (key_scale 1)"].found


def attended(task: Any, folder: Path, padding: int | None) -> Diagnosis:
    """A few steps of Lu's classifier."""
    recipe = Recipe(
        task,
        AttentionClassifierConfig(dimension=3),
        GradientDescent(0.1),
        2,
        probes=(AttentionStatistics("train", padding=padding),),
        at=AtSteps((0, 2)),
    )
    arm = Lab(folder, progress=None).train(recipe, seeds=2)
    (found,) = diagnose(record_of({"words": arm}))
    return found


def test_padding_that_is_taken_for_a_word_is_attended_to(tmp_path):
    words = np.asarray(jax.random.randint(jax.random.key(0), (8, 6), 1, 5))
    there = np.arange(6) < np.asarray([6, 5, 4, 3, 6, 5, 4, 3])[:, None]
    words, labels = np.where(there, words, PADDING), np.arange(8) % 2
    seen, masked = (words, labels), (words, labels, there)
    found = attended(Arrays.of(seen, test=seen), tmp_path, PADDING)
    assert kinds(found.found) == [PaddingAttended]
    assert not attended(Arrays.of(masked, test=masked), tmp_path, None).found


@pytest.mark.data
def test_padding_of_film_reviews_comes_out(tmp_path):
    """The arms of `sen_sst` in which padding is attended to, and those in which it is masked."""
    from saccade.studies.sen_sst import STUDY

    config = STUDY.config("quick")
    task = dataclasses.replace(next(iter(config.tasks.values())), first=200)
    if task.missing:
        pytest.skip(task.missing)
    padded = dataclasses.replace(task, padding="attended")
    assert kinds(attended(padded, tmp_path, PADDING).found) == [PaddingAttended]
    assert not attended(task, tmp_path, None).found
