"""A transformer encoder on a file of texts: which learning rate generalises, and do heads sharpen?

    python reviews.py
    saccade run encoder_on_text.py

Two layers with dropout, AdamW with warm-up, cosine and weight decay, minibatches by length, and
early stopping on the validation loss; three rates x eight seeds are trained at once. The page shows
the entropy of every head along training.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import xarray as xr

from saccade import (
    Above,
    Accuracy,
    Adam,
    Arm,
    AtLeast,
    AttentionStatistics,
    Check,
    Claim,
    Cosine,
    EarlyStopping,
    EncoderConfig,
    Every,
    Figure,
    Lab,
    LabelledText,
    Losses,
    Mean,
    Minibatch,
    Panel,
    Recipe,
    Study,
    curve,
    level,
    require_count,
    with_sweep,
)

Arms = Mapping[str, Arm]


@dataclasses.dataclass(frozen=True)
class Config:
    """Settings of the study."""

    text: LabelledText = LabelledText("reviews.tsv", validation_share=0.15, test_share=0.15)
    """The file, and how it is split."""
    model: EncoderConfig = EncoderConfig(heads=2, dimension=32, hidden=64)
    """The encoder."""
    rates: tuple[float, ...] = (1e-3, 3e-3, 1e-2)
    """Largest learning rates."""
    batch_size: int = 32
    """Texts per step."""
    steps: int = 1000
    """Most steps."""
    patience: int = 150
    """Steps without a better validation loss after which a run stops."""
    seeds: int = 8
    """Repetitions, each with its own start, order and dropout."""

    def __post_init__(self):
        require_count(self, "batch_size", "steps", "patience", "seeds")


def experiment(config: Config, lab: Lab) -> Arms:
    adam = Adam(schedule=Cosine(config.steps, warmup=config.steps // 10), decay=0.01)
    adam = dataclasses.replace(adam, decayed=("layers.*.attention", "layers.*.feed_forward"))
    encoder = Recipe(
        config.text,
        config.model,
        with_sweep(adam, "rate", config.rates),
        config.steps,
        probes=(Losses(("validation",)), AttentionStatistics()),
        at=Every(50),
        ends=(Accuracy(("test",)),),
        sample=500,
        batches=Minibatch(config.batch_size, by_length=True),
        stopping=EarlyStopping("validation_loss", patience=config.patience),
    )
    return lab.train({"encoder": encoder}, config.seeds)


def _best_accuracy(arms: Arms, config: Config) -> xr.DataArray:
    """Test accuracy of the best weights, at the rate with the best mean."""
    accuracy = arms["encoder"].snapshot["test_accuracy"].isel(step=-1)
    return accuracy.isel(rate=int(accuracy.mean("seed").argmax("rate")))


def _sharpening(arms: Arms, config: Config) -> xr.DataArray:
    """Fall of the smallest entropy of a head, from the start to the lowest point, in nats."""
    entropy = arms["encoder"].trajectory["attention_entropy"].min(("layer", "head"))
    return (entropy.isel(step=0) - entropy.min("step")).max("rate")


CLAIMS = (
    Claim(
        "T-1",
        "At the best rate the encoder classifies new reviews",
        "an example, from no paper",
        Check("test accuracy of the best weights", _best_accuracy, AtLeast(0.9)),
        tolerance="most reviews; the words that decide are in every split",
        arms="encoder",
        statistic=Mean(3),
    ),
    Claim(
        "T-2",
        "Attention sharpens: some head attends to fewer words than at the start",
        "an example, from no paper",
        Check("fall of the smallest entropy, in nats", _sharpening, Above(0.1)),
        tolerance="0.1 nats is a tenth fewer effective words",
        arms="encoder",
        statistic=Mean(3),
    ),
)


def figures(arms: Arms, config: Config) -> Sequence[Figure]:
    record = arms["encoder"].trajectory
    ends = (0.0, float(record["step"][-1]))
    panels = []
    for rate in record["rate"].values:
        of_rate = record.sel(rate=rate, drop=True)
        entropy = of_rate["attention_entropy"]
        lines = [
            curve(f"layer {layer}, head {head}", entropy.isel(layer=layer, head=head))
            for layer in range(entropy.sizes["layer"])
            for head in range(entropy.sizes["head"])
        ]
        lengths = config.text.splits["test"].lengths
        uniform = level("uniform over a mean text", ends, float(np.log(lengths).mean()))
        panels.append(Panel(f"rate {rate:g}", "step", "entropy (nats)", (*lines, uniform)))
    losses = [
        curve(f"rate {rate:g}", record["validation_loss"].sel(rate=rate, drop=True))
        for rate in record["rate"].values
    ]
    panel = Panel("validation loss", "step", "cross-entropy", tuple(losses), "linear", "log")
    caption = (
        "Entropy of attention per head, mean and range over the seeds that have not stopped. Low"
        " entropy: attention to few words."
    )
    return (
        Figure("encoder_entropy", "Do heads sharpen?", caption, tuple(panels)),
        Figure("encoder_loss", "Which rate generalises", "Mean and range over seeds.", (panel,)),
    )


STUDY = Study(
    name="encoder_on_text",
    title="A transformer encoder on a file of texts",
    paper="an example",
    presets={"quick": Config()},
    experiment=experiment,
    claims=CLAIMS,
    figures=figures,
)
