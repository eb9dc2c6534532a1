"""Li's studies: premises, and settings that are refused."""

import jax
import numpy as np
import pytest
from every_record import RECORDS
from record_parts import altered, change, judged

from saccade.errors import ConfigError
from saccade.models.one_layer_transformer import OneLayerTransformerConfig
from saccade.registry import find_study
from saccade.tasks.topic_documents import TopicDocuments


def test_attention_that_never_moves_has_no_stages():
    """Exactly at 0 keys and queries stay where they are: a displacement of 0 has no share, and a
    seed without a number keeps no bound.
    """
    still = change("sgd_squared", "displacement", lambda way: way.where(way["part"] == "values", 0))
    verdicts = judged(still(RECORDS["topics_two_stage"]()))
    assert verdicts["B-9"].verdict == verdicts["B-12"].verdict == "fails"
    assert "5 of 5 seeds have no number" in verdicts["B-9"].reason


def test_the_share_at_the_boundary_does_not_shrink_with_longer_training():
    """Keys and queries that go on growing after they have moved ten times as far do not count."""
    record = RECORDS["topics_two_stage"]()
    grown = change(
        "sgd_squared", "displacement", lambda way: way.where(way["step"] < 9000, 50 * way)
    )
    found = [judged(one)["B-9"].findings[0].value for one in (record, grown(record))]
    assert found[0] == found[1] > 0.07


def test_the_diagonal_alone_gives_the_order_of_embeddings_at_the_initialisation():
    """Why B-10b leaves it out: d std^2 / v from the diagonal, of which noise is a few percent."""
    task, config = TopicDocuments(), OneLayerTransformerConfig(embedding="trained")
    table = np.asarray(config.build(task, jax.random.key(1)).word_similarity())[1:, 1:]
    topic = task.topic_of_id[1:]
    same = topic[:, None] == topic[None, :]
    others = table[~same].mean()
    assert table[same].mean() - others == pytest.approx(101 * 0.05**2 / 10, rel=0.2)
    # Standard error of 900 pairs (i, j), each twice: std^2 sqrt(d) / sqrt(450) = 0.0012.
    apart = table[same & ~np.eye(100, dtype=bool)].mean() - others
    assert abs(apart) < 4 * 0.0012


@pytest.mark.parametrize(
    ("study", "changed", "reason"),
    [
        ("topics_optima", {"topics_per_document": 5}, r"got 5, allowed: fewer than the 5 topics"),
        ("topics_optima", {"topics_per_document": 7}, r"got 7, allowed: at most the 5 topics"),
        ("topics_optima", {"kept": 0.6, "replaced": 0.5}, r"got 0\.6 \+ 0\.5, allowed: at most 1"),
        ("topics_optima", {"selected": 0.0}, r"got 0\.0, allowed: above 0 and at most 1"),
        ("topics_two_stage", {"steps": 999}, r"got 999, allowed: at least 1000, where stage 1"),
        ("topics_two_stage", {"squared_steps": 500}, r"got 500, allowed: at least 1000"),
        ("topics_attention", {"fast_rate": 0.0}, r"got 0\.0, allowed: a finite number above 0"),
    ],
)
def test_an_impossible_setting_is_refused_with_its_reason(study, changed, reason):
    with pytest.raises(ConfigError, match=rf"{next(iter(changed))}.*: {reason}"):
        altered(find_study(study).config("quick"), **changed)
