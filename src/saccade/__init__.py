"""saccade: a laboratory for how attention learns.

The public names are imported on use, so that `import saccade` is quick.
"""

import importlib
from typing import TYPE_CHECKING, Any

from saccade.version import __version__

_PUBLIC = {
    "Lab": "saccade.core.lab",
    "Training": "saccade.core.lab",
    "GradientDescent": "saccade.core.optimiser",
    "Adam": "saccade.core.optimiser",
    "GradientFlow": "saccade.core.optimiser",
    "Every": "saccade.core.schedule",
    "Logarithmic": "saccade.core.schedule",
    "AtSteps": "saccade.core.schedule",
    "Swept": "saccade.core.sweep",
    "Arm": "saccade.core.record",
    "Record": "saccade.core.record",
    "Check": "saccade.core.claim",
    "Claim": "saccade.core.claim",
    "Study": "saccade.core.study",
    "TopicSentences": "saccade.tasks.topic_sentences",
    "MarkovPairs": "saccade.tasks.markov_pairs",
    "TopicDocuments": "saccade.tasks.topic_documents",
    "LongDocuments": "saccade.tasks.long_documents",
    "RandomSequences": "saccade.tasks.random_sequences",
    "AttentionClassifierConfig": "saccade.models.attention_classifier",
    "ConvolutionalClassifierConfig": "saccade.models.convolutional_classifier",
    "OneLayerTransformerConfig": "saccade.models.one_layer_transformer",
    "AttentionRegressionConfig": "saccade.models.attention_regression",
    "Accuracy": "saccade.probes.performance",
    "TopicWords": "saccade.probes.topic_words",
    "Corollary1": "saccade.theory.score_and_norm",
    "Theorem1": "saccade.theory.score_and_norm",
}

if TYPE_CHECKING:
    from saccade.core.claim import Check, Claim
    from saccade.core.lab import Lab, Training
    from saccade.core.optimiser import Adam, GradientDescent, GradientFlow
    from saccade.core.record import Arm, Record
    from saccade.core.schedule import AtSteps, Every, Logarithmic
    from saccade.core.study import Study
    from saccade.core.sweep import Swept
    from saccade.models.attention_classifier import AttentionClassifierConfig
    from saccade.models.attention_regression import AttentionRegressionConfig
    from saccade.models.convolutional_classifier import ConvolutionalClassifierConfig
    from saccade.models.one_layer_transformer import OneLayerTransformerConfig
    from saccade.probes.performance import Accuracy
    from saccade.probes.topic_words import TopicWords
    from saccade.tasks.long_documents import LongDocuments
    from saccade.tasks.markov_pairs import MarkovPairs
    from saccade.tasks.random_sequences import RandomSequences
    from saccade.tasks.topic_documents import TopicDocuments
    from saccade.tasks.topic_sentences import TopicSentences
    from saccade.theory.score_and_norm import Corollary1, Theorem1

__all__ = [
    "Accuracy",
    "Adam",
    "Arm",
    "AtSteps",
    "AttentionClassifierConfig",
    "AttentionRegressionConfig",
    "Check",
    "Claim",
    "ConvolutionalClassifierConfig",
    "Corollary1",
    "Every",
    "GradientDescent",
    "GradientFlow",
    "Lab",
    "Logarithmic",
    "LongDocuments",
    "MarkovPairs",
    "OneLayerTransformerConfig",
    "RandomSequences",
    "Record",
    "Study",
    "Swept",
    "Theorem1",
    "TopicDocuments",
    "TopicSentences",
    "TopicWords",
    "Training",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(importlib.import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'saccade' has no attribute {name!r}")
