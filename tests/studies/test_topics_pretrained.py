"""The study on pretrained encoders: a small real run, what is not run, and what is missing."""

import dataclasses
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from every_record import RECORDS, assert_alike, figure_names
from pretrained_records import pairs
from record_parts import altered, judged, without

from saccade import commands
from saccade.cli import main
from saccade.errors import ConfigError
from saccade.registry import find_study
from saccade.studies.topics_pretrained import (
    AT_HAND,
    PAPERS,
    RANDOM,
    REPORTED,
    THRESHOLDS,
    TRAINED,
    Config,
    _order,
    _ratio,
)
from saccade.train.lab import Lab

STUDY = find_study("topics_pretrained")


@pytest.fixture
def corpus(tmp_path: Path) -> str:
    """Articles about two topics, whose words share a stem each."""
    random = np.random.default_rng(0)
    articles = []
    for article in range(16):
        stems = ("river", "music")[article % 2]
        words = [f"{stems}{'abcdefgh'[at]}" for at in random.integers(0, 8, 80)]
        text = " ".join(word if at % 3 else f"{word} the" for at, word in enumerate(words))
        articles.append(f" = Title {article} = \n\n{text}")
    file = tmp_path / "articles.txt"
    file.write_text("\n".join(articles), encoding="utf-8")
    return str(file)


def tiny(corpus: str, **changes: Any) -> Config:
    sizes = {"topics": 2, "control_dimension": 8, "steps": 3, "evaluations": 3, "dimension": 4}
    more = {"length": 16, "batch_size": 4, "examples": 4, "seeds": 2, "update": 4, "heads": 2}
    return altered(STUDY.config("quick"), corpus=corpus, **(sizes | more | changes))


def test_a_small_run_has_the_shapes_of_the_record_made_by_hand(lab, corpus):
    pytest.importorskip("sklearn", reason="topics need scikit-learn (extra `text`)")
    pytest.importorskip("transformers", reason="encoders need transformers (extra `torch`)")
    record = STUDY.run(tiny(corpus), lab)
    assert_alike(RECORDS["topics_pretrained"](), record, (RANDOM, TRAINED))
    assert [figure.name for figure in STUDY.drawn(record)] == figure_names("topics_pretrained")
    assert record.arms[RANDOM].trajectory["seed"].attrs["long_name"].endswith("of the weights")
    again = STUDY.run(tiny(corpus), lab)
    assert again.arms[RANDOM].trajectory.equals(record.arms[RANDOM].trajectory)


def test_a_dry_run_measures_no_encoder(tmp_path, corpus):
    pytest.importorskip("sklearn", reason="topics need scikit-learn (extra `text`)")
    lab = Lab(tmp_path / "lab", progress=None, dry_run=True)
    assert list(STUDY.experiment(tiny(corpus), lab)) == [TRAINED]


def test_what_was_not_run_is_named_with_its_command():
    record = without(RECORDS["topics_pretrained"](), "electra", "minilm")
    judgements = judged(record)
    for claim in ("B-13", "B-14", "B-15", "B-13b"):
        assert judgements[claim].verdict == "undetermined"
    assert judgements["B-13"].reason == (
        "premise not met: arm electra was not run: "
        "saccade run topics_pretrained --preset paper --encoders electra"
    )
    untrained = without(record, TRAINED)
    told = (
        "premise not met: arm trained was not run: saccade run topics_pretrained --preset trained"
    )
    assert judged(untrained)["B-13d"].reason == told
    assert len(STUDY.drawn(untrained)) == 2
    tables = STUDY.drawn(record)[0]
    assert "Not run: ELECTRA; saccade run topics_pretrained" in tables.caption
    (cells,) = tables.panels[0].marks
    assert "not run" in cells.texts  # pyright: ignore[reportOperatorIssue, reportAttributeAccessIssue]


def test_the_tables_of_the_paper_keep_its_claims():
    """The numbers as they are printed keep the bounds of B-13, B-14, B-15 and B-16."""
    for overlap, table in REPORTED.items():
        for name in PAPERS:
            attention = np.asarray(table[name][2])
            assert attention.min() > 1.05
            assert np.all(np.diff(attention) < 0)
            assert np.all(attention <= np.asarray(REPORTED["disjoint"][name][2])), overlap
        assert np.all(np.asarray(table[RANDOM]) == 1)


def test_the_ratio_is_that_of_means_over_layers_and_heads():
    values = pairs(np.full((2, 3), 2.0)).expand_dims(layer=2, head=3).copy()
    values[0] = values[0] * 5
    values[1, 1, ..., 0] = 0.0
    expected = (3 * 5 * 2 + 2 * 2) / (3 * 5 + 3)
    assert np.allclose(_ratio(values), expected)


def test_a_seed_whose_attention_does_not_rise_has_no_order():
    record = RECORDS["topics_pretrained"]()
    arm = record.arms[TRAINED]
    flat = arm.trajectory["topic_attention"].isel(step=0, drop=True)
    seeds = arm.trajectory["seed"]
    attention = arm.trajectory["topic_attention"].where(seeds != 2, flat)
    changed = dataclasses.replace(arm, trajectory=arm.trajectory.assign(topic_attention=attention))
    order = _order({TRAINED: changed}, STUDY.config_of(record))
    assert np.isnan(order.sel(seed=2))
    assert np.all(order.sel(seed=[0, 1, 3, 4]) < 1)


def test_lists_of_chance_refute_the_structure_of_an_encoder():
    """Embeddings of one topic are alike: same-topic attention is larger, and is not once the words
    are dealt out to other topics.
    """
    torch = pytest.importorskip("torch", reason="encoders need torch (extra `torch`)")
    pytest.importorskip("transformers", reason="encoders need transformers (extra `torch`)")
    from saccade.models.pretrained_encoders import random_encoder, topic_pairs

    words = [f"{stem}{letter}" for stem in ("river", "music") for letter in "abcdefgh"]
    sizes = {"num_hidden_layers": 1, "num_attention_heads": 1, "hidden_size": 16}
    encoder = random_encoder(words, 0, **sizes, intermediate_size=8)
    with torch.no_grad():
        body: Any = encoder.model
        layer = body.encoder.layer[0].attention.self
        for part in (layer.query, layer.key):
            part.weight.copy_(torch.eye(16))
        table = body.get_input_embeddings().weight
        table[4:12, :8] += 1.0
        table[12:, 8:] += 1.0
    random = np.random.default_rng(0)
    articles = [list(random.permutation(words)) for _ in range(4)]
    right = (tuple(words[:8]), tuple(words[8:]))
    dealt = (tuple(words[::2]), tuple(words[1::2]))
    for lists, above in ((right, True), (dealt, False)):
        settings = {(overlap, 0.001): lists for overlap in REPORTED}
        found = topic_pairs(encoder, articles, settings)
        for name in ("topic_attention", "topic_cosine"):
            assert (float(_ratio(found[name]).min()) > 1.05) == above, name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"encoders": ("nothing",)}, "encoders: got 'nothing', allowed: bert"),
        ({"encoders": ("bert", "bert")}, "encoders: .*allowed: other names than bert"),
        ({"encoders": ("random=a/b",)}, "encoders: .*allowed: other names than random"),
        ({"pieces": 2}, "pieces: got 2, allowed: a whole number, at least 8"),
        ({"control_heads": 5}, "control_heads: got 5, allowed: a divisor of control_dimension"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(Config(), **changes)


def test_presets_name_their_encoders():
    assert STUDY.config("paper").encoders == (*PAPERS, *AT_HAND)
    assert STUDY.config("small").encoders == AT_HAND
    assert STUDY.config("quick").encoders == STUDY.config("trained").encoders == ()
    assert STUDY.config("small").starts == STUDY.config("trained").articles == 0
    assert len(THRESHOLDS) == 3


@pytest.mark.parametrize(
    ("package", "told"),
    [
        ("sklearn", "topics need the package scikit-learn: pip install 'saccade[text]'"),
        ("transformers", "encoders need transformers: pip install 'saccade[torch]'"),
    ],
)
def test_a_missing_package_is_named_in_one_line(capsys, monkeypatch, package, told):
    found = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == package else found(name)
    )
    assert main(["run", "topics_pretrained"]) == 1
    assert capsys.readouterr().err.strip() == f"saccade: topics_pretrained: {told}"


def test_a_missing_corpus_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    monkeypatch.setattr("saccade.data.store.cache_folder", lambda: tmp_path / "cache")
    lacking = commands._lacking(STUDY.config("quick"))
    assert lacking.startswith("corpus wikitext2_shuffled: not found below ")
