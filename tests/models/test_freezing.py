"""Freezing parts of a model by name or by dotted path."""

import jax
import pytest

from saccade.models.attention_classifier import AttentionClassifierConfig
from saccade.models.freezing import without


@pytest.mark.parametrize(
    ("parts", "trained"),
    [
        ((), {"embeddings", "head.first", "head.second", "score_table"}),
        (("embeddings",), {"head.first", "head.second", "score_table"}),
        (("head", "score_table"), {"embeddings"}),
        (("head.first", "head.first_bias"), {"embeddings", "head.second", "score_table"}),
    ],
)
def test_named_parts_are_switched_off_and_no_others(parts, trained):
    config, task = AttentionClassifierConfig.example()
    model = AttentionClassifierConfig("TL", dimension=config.dimension).build(
        task, jax.random.key(0)
    )
    flags = without(model.trainable(), parts)
    assert jax.tree.structure(flags) == jax.tree.structure(model)
    found = {
        "embeddings": flags.embeddings,
        "head.first": flags.head.first,
        "head.second": flags.head.second,
        "score_table": flags.score_table,
    }
    assert {name for name, learns in found.items() if learns} == trained


def test_a_part_that_does_not_exist_is_refused():
    config, task = AttentionClassifierConfig.example()
    model = config.build(task, jax.random.key(0))
    with pytest.raises(AttributeError, match="wrong"):
        without(model.trainable(), ("wrong",))
