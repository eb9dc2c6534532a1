"""The study of translation: a tiny run on the generated lexicon, whose alignment is known, a gold
file, BLEU, and what a wrong setting says.
"""

import dataclasses
from typing import Any

import numpy as np
import pytest

from saccade.contracts.chunks import evenly
from saccade.errors import ConfigError
from saccade.models.translator import TranslatorConfig
from saccade.probes.alignment_error import known_alignments
from saccade.registry import find_study
from saccade.studies import ktiw_translation as study
from saccade.tasks.lexicon_corpus import LexiconCorpus
from saccade.tasks.lexicon_sentences import LexiconSentences
from saccade.tasks.parallel_text import ParallelText
from saccade.train.lab import Lab

SMALL = LexiconSentences(words=5, shortest=3, longest=5, train_size=64, test_size=6)
TINY = study.Config(
    seeds=2,
    corpora=("lexicon",),
    pairs=4,
    splits=("test",),
    model=TranslatorConfig(4, layers=1, dropout=0.0),
    batch_size=8,
    steps=60,
    proxy_dimension=4,
    proxy_epochs=1,
    iterations=5,
    lexicon=SMALL,
)


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Any:
    lab = Lab(tmp_path_factory.mktemp("cache"), progress=None)
    return find_study("ktiw_translation").run(TINY, lab)


@pytest.mark.slow
def test_a_tiny_run_has_agreements_and_alignment_errors(record):
    expected = {"agreement", "alignment", "attention", "uniform", "proxy", "model_1", "pair"}
    assert {f"lexicon_{name}" for name in expected} == set(record.arms)
    errors = record.arms["lexicon_alignment"].trajectory.drop_vars("diverged_at")
    assert set(errors.data_vars) == {f"error_{name}" for name in study.ALIGNERS}
    for values in errors.data_vars.values():
        assert ((values >= 0) & (values <= 1)).all()
    assert not record.arms["lexicon_attention"].trajectory.sizes.keys() & {"test_pair", "source"}


@pytest.mark.slow
def test_counting_aligns_the_generated_corpus_better_than_an_untrained_model(record):
    errors = record.arms["lexicon_alignment"].trajectory
    counted, at_first = errors["error_model_1"], errors["error_attention"].isel(step=0)
    assert (counted < at_first).all()


@pytest.mark.slow
def test_figures_of_a_record_without_real_corpora(record):
    names = [figure.name for figure in find_study("ktiw_translation").drawn(record)]
    assert names == [
        "ktiw_translation_curves",
        "ktiw_translation_pair_lexicon",
        "ktiw_translation_errors",
    ]


def test_the_tables_of_ibm_model_1_are_nan_outside_words():
    task = LexiconCorpus(SMALL)
    test = evenly(task.splits["test"], 4)
    (table,) = study.model_1_tables(task.splits["train"], task.vocabulary_size, 3, test)
    there = np.asarray(test.target_mask & (test.target != 0))[:, :, None]
    there = there & np.asarray(test.source_mask)[:, None]
    np.testing.assert_array_equal(np.isfinite(table), there)
    assert table[there].max() <= 0  # logarithms of probabilities


def test_some_pairs_are_evenly_spaced():
    task = LexiconCorpus(SMALL)
    whole, some = task.splits["test"], evenly(task.splits["test"], 3)
    np.testing.assert_array_equal(some.source, np.asarray(whole.source)[[0, 2, 4]])
    assert len(known_alignments(some)) == 3


def test_a_corpus_of_the_lexicon_is_the_same_for_all():
    first, second, other = (LexiconCorpus(SMALL, seed) for seed in (0, 0, 1))
    assert first.checksum == second.checksum != other.checksum
    assert (first.train_size, first.test_size) == (64, 6)


def gold(tmp_path: Any, lines: str) -> tuple[study.Config, ParallelText]:
    for name, text in (("train", "a b\nb a\n"), ("test", "a b\nb a\na\n")):
        for side in ("source", "target"):
            (tmp_path / f"{name}.{side}").write_text(text)
    (tmp_path / "gold").write_text(lines)
    paths = {name: str(tmp_path / name) for name in ("train.source", "train.target")}
    task = ParallelText(
        *paths.values(),
        test_source=str(tmp_path / "test.source"),
        test_target=str(tmp_path / "test.target"),
        tokeniser="words",
    )
    config = dataclasses.replace(TINY, corpora=("multi30k",), gold=str(tmp_path / "gold"))
    return config, task


def test_a_gold_file_aligns_the_held_out_pairs(tmp_path):
    config, task = gold(tmp_path, "0-0 1-1\n0-1 1p0\n0-0\n")
    test = evenly(task.splits["test"], 3)
    found = study._gold(config, "multi30k", task, test)
    assert found is not None
    assert [sorted(one.sure) for one in found] == [[(0, 0), (1, 1)], [(0, 1)], [(0, 0)]]
    assert sorted(found[1].possible) == [(0, 1), (1, 0)]
    assert study._gold(dataclasses.replace(config, gold=""), "multi30k", task, test) is None


def test_every_line_of_a_gold_file_is_checked(tmp_path):
    """Also those of pairs that are not compared."""
    config, task = gold(tmp_path, "0-0 1-1\n0-1\n0-1\n")
    with pytest.raises(ConfigError, match=r"0-1 .* in line 3, allowed: positions from 0 to 0"):
        study._gold(config, "multi30k", task, evenly(task.splits["test"], 1))


def test_a_gold_file_is_no_use_where_the_alignment_is_known():
    with pytest.raises(ConfigError, match="gold: got gold_file for the corpus lexicon"):
        dataclasses.replace(TINY, corpora=("lexicon", "multi30k"), gold="gold_file")


def test_a_gold_file_with_too_few_lines_is_refused(tmp_path):
    config, task = gold(tmp_path, "0-0 1-1\n")
    with pytest.raises(ConfigError, match="allowed: one per held-out pair, 3"):
        study._gold(config, "multi30k", task, evenly(task.splits["test"], 3))


def test_bleu_is_that_of_sacrebleu():
    pytest.importorskip("sacrebleu", reason="needs the extra text")
    same = ["the cat sat on the mat .", "a dog ran over the green hill ."]
    assert study.bleu(same, same) == pytest.approx(100)
    assert study.bleu(["the cat"], ["no word of it here at all"]) < 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpora": ("imdb",)}, "corpora: got .*, allowed: some of multi30k"),
        ({"seeds": 1}, "seeds: got 1, allowed: "),
        ({"splits": ("train",)}, "splits: got .*, allowed: test, or test and train"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(TINY, **changes)


@pytest.mark.data
@pytest.mark.usefixtures("real_data")
def test_the_directions_are_those_that_the_rows_say():
    tasks: Any = study.Config(first=3, pieces=0, corpora=tuple(study.CORPORA)).tasks
    first = {name: task.read()["train"][0] for name, task in tasks.items()}
    assert first["multi30k"].source.startswith("Two young, White males")
    assert first["tatoeba"][:2] == ("Hallo!", "Hi.")
