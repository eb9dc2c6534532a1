"""Co-occurrence of words, and how fast a proxy learns it (Snell et al. 2021, section 4)."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from saccade.contracts.probe import Moment
from saccade.contracts.task import HasVocabulary
from saccade.models.counting import id_counts
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.models.word_proxy import WordProxyConfig
from saccade.probes.model_probe import AbstractModelProbe
from saccade.records.variable import Variable

IDS = ("id", "other_id")


class AbstractIdTable(AbstractModelProbe):
    """A probe whose dims all run over ids; by default of the proxy."""

    models: ClassVar = (WordProxyConfig,)

    def coordinates(self, task: HasVocabulary) -> dict[str, tuple[str, Any]]:
        dims = [dim for variable in self.variables.values() for dim in variable.dims]
        return {dim: (dim, np.arange(task.vocabulary_size)) for dim in dims}


class CountTable(AbstractIdTable):
    """C: co-occurrences of source and target words in the training set, each weighted by 1 / L."""

    models: ClassVar = (SequenceToSequenceConfig, WordProxyConfig)
    variables: ClassVar = {
        "count_table": Variable(IDS, "co-occurrences of source and target word, 1/L each")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        batch, ids = moment.train, moment.task.vocabulary_size
        source = id_counts(batch.source, batch.source_mask, ids)
        shares = source / batch.source_mask.sum(-1, keepdims=True)
        return {"count_table": shares.T @ id_counts(batch.target, batch.target_mask, ids)}


class LexiconRates(AbstractIdTable):
    """Derivatives of the proxy's predictions from single words under gradient flow."""

    variables: ClassVar = {
        "logit_rate": Variable(IDS, "d/dt of a target's logit, given one source word"),
        "probability_rate": Variable(IDS, "d/dt of a target's probability, given one source word"),
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        model, gradient = moment.model, moment.gradient
        rates = -(gradient.embeddings @ model.readout + model.embeddings @ gradient.readout)
        _, probability_rates = jax.jvp(jax.nn.softmax, (model.word_logits,), (rates,))
        return {"logit_rate": rates, "probability_rate": probability_rates}


class Lexicon(AbstractIdTable):
    """theta: the probability of a target word, given one source word alone."""

    variables: ClassVar = {
        "lexicon": Variable(IDS, "probability of a target word, given one source word")
    }

    def __call__(self, moment: Moment) -> dict[str, Array]:
        return {"lexicon": jnp.exp(jax.nn.log_softmax(moment.model.word_logits))}
