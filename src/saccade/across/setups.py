"""Small runs that learn, and with a fault that do not: what the diagnosis is tested on.

Three families, each with both optimisers and two sizes: an encoder that finds hidden words, a
decoder that predicts the next one (both on `RepeatedWords`, which only attention solves), and Li
2023's one-layer transformer on documents about topics. Larger encoders and decoders round their
scores to bfloat16, which does them no harm. Beside them, Snell 2021's recurrent model copies words,
for a fault that only shows in several runs.
"""

import dataclasses
from typing import Any, Literal, Self

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from saccade.contracts.model import AbstractModelConfig
from saccade.contracts.probe import AbstractProbe
from saccade.contracts.task import AbstractTask
from saccade.models.encoder import Encoder, EncoderConfig
from saccade.models.one_layer_transformer import OneLayerTransformerConfig, guess_entropy
from saccade.models.sequence_to_sequence import SequenceToSequenceConfig
from saccade.probes.ablations import Ablations
from saccade.probes.attention import AttentionSpread, AttentionStatistics
from saccade.probes.motion import Displacements, SecondMoments
from saccade.probes.translation import LexicalKnowledge
from saccade.records.schedule import AtSteps
from saccade.settings import replaced, require_finite, with_sweep
from saccade.tasks.copying import Copying
from saccade.tasks.repeated_words import RepeatedWords
from saccade.tasks.topic_documents import Masking, TopicDocuments
from saccade.train.batches import Fresh
from saccade.train.optimiser import AbstractRatedStepper, Adam, GradientDescent
from saccade.train.recipe import Recipe

Family = Literal["encoder", "decoder", "documents"]
OptimiserName = Literal["adam", "sgd"]
Size = Literal["small", "large"]
SEVERITY = "severity"
STEPS = 400
EARLY = 0.1
"""Share of training after which a run is judged for the first time."""


@dataclasses.dataclass(frozen=True)
class PlantedEncoder(AbstractModelConfig):
    """An encoder whose initial weights are changed, so that it has a fault."""

    encoder: EncoderConfig = EncoderConfig()
    """The model itself."""
    query_key_scale: float = 1.0
    """Factor of the weights of queries and keys, in every layer."""
    key_scale: float = 1.0
    """Factor of the weights of keys, in every layer."""
    key_offset: float = 0.0
    """Number that is added to all biases of keys: scores of a query move together by it."""
    head_scale: float = 1.0
    """Factor of values and outputs of the first head, in the first layer."""

    def __post_init__(self):
        require_finite(self, "query_key_scale", "key_scale", "key_offset", "head_scale")

    @classmethod
    def example(cls) -> tuple[Self, AbstractTask]:
        encoder, task = EncoderConfig.example()
        return cls(encoder, 1.5, 0.5, 1.0, 0.1), task

    def build(self, task: Any, key: PRNGKeyArray) -> Encoder:
        model = self.encoder.build(task, key)
        for place in range(len(model.layers)):
            model = self._changed(model, place)
        attention = model.layers[0].attention
        size = attention.value.weights.shape[1] // attention.heads
        first = jnp.where(jnp.arange(size * attention.heads) < size, self.head_scale, 1.0)
        parts = lambda tree: (  # noqa: E731
            tree.layers[0].attention.value.weights,
            tree.layers[0].attention.output.weights,
        )
        values, outputs = parts(model)
        return eqx.tree_at(parts, model, (values * first, outputs * first[:, None]))

    def _changed(self, model: Encoder, place: int) -> Encoder:
        parts = lambda tree: (  # noqa: E731
            tree.layers[place].attention.query.weights,
            tree.layers[place].attention.key.weights,
            tree.layers[place].attention.key.bias,
        )
        queries, keys, bias = parts(model)
        keys = self.key_scale * self.query_key_scale * keys
        changed = (self.query_key_scale * queries, keys, bias + self.key_offset)
        return eqx.tree_at(parts, model, changed)


@dataclasses.dataclass(frozen=True)
class Setup:
    """One training, with what the diagnosis must know of it."""

    task: Any
    model: Any
    optimiser: AbstractRatedStepper
    batch: int = 32
    """New examples per step."""
    steps: int = STEPS
    target: float = 0.0
    """Loss that a healthy run reaches."""
    causal: bool = False
    """Whether no query should see a later position."""
    loss: Any = None
    """A loss instead of the model's own, or None."""

    @property
    def recipe(self) -> Recipe:
        """The training, of which everything is recorded in which a fault can show."""
        early = round(EARLY * self.steps)
        return Recipe(
            self.task,
            self.model,
            self.optimiser,
            self.steps,
            probes=self.probes,
            at=AtSteps((0, early // 2, early, self.steps // 2)),
            batches=Fresh(self.batch),
            loss=self.loss,
        )

    @property
    def probes(self) -> list[AbstractProbe]:
        """Everything in which a fault can show."""
        if isinstance(self.model, SequenceToSequenceConfig):
            return [LexicalKnowledge()]
        probes: list[AbstractProbe] = [
            AttentionStatistics(examples=16),
            AttentionSpread(examples=16),
        ]
        names = ("values", "keys", "queries")
        if isinstance(self.model, PlantedEncoder):
            layers, parts = range(self.model.encoder.layers), ("query", "key", "value", "output")
            names = tuple(f"layers.{at}.attention.{part}" for at in layers for part in parts)
            probes.append(Ablations())
        return [*probes, Displacements(names), SecondMoments(names)]

    def swept(self, path: str, values: tuple[float, ...]) -> "Setup":
        """With a number swept, as the severity of a fault."""
        return with_sweep(self, path, values, SEVERITY)

    def changed(self, path: str, value: Any) -> "Setup":
        """With a field at a dotted path replaced."""
        return replaced(self, path, value)

    def path(self, field: str) -> str:
        """The path of a field of the model, at whatever depth; empty if it has none."""
        found = [one for one in _fields(self.model) if one.rpartition(".")[2] == field]
        return f"model.{found[0]}" if found else ""


def _fields(config: Any) -> list[str]:
    """Dotted paths of the fields of a config."""
    paths: list[str] = []
    if not dataclasses.is_dataclass(config):
        return paths
    for field in dataclasses.fields(config):
        paths += [field.name]
        paths += [f"{field.name}.{inner}" for inner in _fields(getattr(config, field.name))]
    return paths


def healthy(family: Family, optimiser: OptimiserName, size: Size) -> Setup:
    """A run that learns."""
    if family == "documents":
        return _documents(optimiser, size)
    causal, large = family == "decoder", size == "large"
    length, dimension = (8, 32) if large else (6, 16)
    objective = "next" if causal else "masked"
    task = RepeatedWords(length, 12, 3, objective, train_size=64, test_size=64)
    encoder = EncoderConfig(
        layers=2,
        heads=4 if large else 2,
        dimension=dimension,
        hidden=2 * dimension,
        dropout=0.0,
        head="masked",
        future_weight=0.0 if causal else 1.0,
        score_precision="bfloat16" if large else "full",
    )
    steps = {"adam": Adam(3e-3), "sgd": GradientDescent(0.3, clip_norm=1.0)}
    model = PlantedEncoder(encoder)
    return Setup(task, model, steps[optimiser], target=0.1, causal=causal)


def copying() -> Setup:
    """A recurrent model that copies words of a larger set, which co-occurrence tells apart."""
    task = Copying(8, 16, largest=16, train_size=16, test_size=50)
    return Setup(task, SequenceToSequenceConfig(32), Adam(5e-3), steps=40)


def _documents(optimiser: OptimiserName, size: Size) -> Setup:
    topics, words = (6, 6) if size == "large" else (5, 4)
    task = TopicDocuments(
        topics,
        words,
        2,
        shortest=32,
        longest=32,
        masking=Masking(0.15, 0.4, 0.2),
        train_size=64,
        test_size=16,
    )
    steps = {"adam": Adam(1e-2), "sgd": GradientDescent(10.0)}
    model = OneLayerTransformerConfig(start_std=0.3)
    target = 2.7 if size == "large" else 2.2
    return Setup(task, model, steps[optimiser], batch=16, target=target, loss=guess_entropy)
